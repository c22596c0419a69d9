"""Programs of others that speak the protocol: the official SDK, the Inspector, the conformance
suites."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from tests.gateway.conftest import TOKEN
from tests.lacking import needs
from tests.mcp_server.test_http import serving
from tests.node import NODE, PACKAGES
from tests.scale import FULL
from tests.sdks import SDKS

needs_node = needs(
    NODE.exists() and (PACKAGES / "mcp-conformance-2026").exists(),
    "Node.js and the conformance suites",
)
CLAWKIT = os.path.join(os.path.dirname(sys.executable), "clawkit")
HERE = Path(__file__).parent
ASK: dict[str, Any] = {"tools": {"rules": [{"tool": "write", "effect": "ask"}]}}
WRITE = {"path": "a.txt", "content": "new"}


async def use(target: Any, mode: str, workspace: Path) -> list[str]:
    """What the official client gets from a server that asks before it writes."""
    from mcp import Client, types

    seen: list[str] = []

    async def answer(context: Any, params: types.ElicitRequestParams) -> types.ElicitResult:
        seen.append(params.message.splitlines()[0])
        content: Any = {"decision": "allow-once" if len(seen) == 1 else "deny"}
        return types.ElicitResult(action="accept", content=content)

    async with Client(target, mode=mode, elicitation_callback=answer) as client:
        listed = await client.list_tools()
        by_name = {each.name: each for each in listed.tools}
        assert by_name["read"].annotations is not None
        assert by_name["read"].annotations.read_only_hint is True
        allowed = await client.call_tool("write", WRITE)
        assert (allowed.is_error, (workspace / "a.txt").read_text()) == (False, "new")
        read = await client.call_tool("read", {"path": "a.txt"})
        assert [getattr(each, "text", "") for each in read.content] == ["new"]
        denied = await client.call_tool("write", {**WRITE, "content": "other"})
        assert (denied.is_error, (workspace / "a.txt").read_text()) == (True, "new")
    (workspace / "a.txt").unlink()
    return seen


@SDKS
async def test_the_official_client_works_over_pipes_in_both_eras(tmp_path: Path) -> None:
    from mcp import StdioServerParameters

    config = tmp_path / "clawkit.json5"
    config.write_text(json.dumps(ASK))
    env = {name: os.environ[name] for name in ("PATH", "HOME", "CLAWKIT_HOME")}
    args = ["mcp", "serve", "--workspace", str(tmp_path), "--config", str(config)]
    server = StdioServerParameters(command=CLAWKIT, args=args, env=env)
    for mode in ("auto", "legacy"):
        seen = await use(server, mode, tmp_path)
        assert len(seen) == 2


@SDKS
async def test_the_official_client_works_over_http_in_both_eras(tmp_path: Path) -> None:
    import httpx2
    from mcp.client.streamable_http import streamable_http_client

    async with serving(tmp_path, config=ASK) as server:
        for mode in ("auto", "legacy"):
            login = {"Authorization": f"Bearer {TOKEN}"}
            async with httpx2.AsyncClient(headers=login) as http:
                url = f"http://127.0.0.1:{server.port}/mcp"
                target = streamable_http_client(url, http_client=http)
                seen = await use(target, mode, tmp_path)
                assert len(seen) == 2


@needs_node
def test_the_inspector_finds_nothing_wrong_with_the_tools_and_calls_one(tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_text("hello")
    program = PACKAGES / "@modelcontextprotocol/inspector/clients/launcher/build/index.js"
    server = [CLAWKIT, "mcp", "serve", "--workspace", str(tmp_path)]
    argv = [str(NODE), str(program), "--cli", *server, "--method"]
    env = {**os.environ, "HOME": str(tmp_path)}
    listed = subprocess.run(
        [*argv, "tools/list", "--strict"], capture_output=True, env=env, timeout=120, check=True
    )
    names = {each["name"] for each in json.loads(listed.stdout)["tools"]}
    assert {"read", "write", "exec"} <= names
    assert listed.stderr == b""
    call = ["tools/call", "--tool-name", "read", "--tool-arg", "path=a.txt"]
    called = subprocess.run([*argv, *call], capture_output=True, env=env, timeout=120, check=True)
    assert json.loads(called.stdout)["content"] == [{"type": "text", "text": "hello"}]


@contextmanager
def everything(workspace: Path) -> Iterator[str]:
    """The address of a server with the tools that the suites call."""
    argv = [sys.executable, "-P", str(HERE / "everything.py"), "0"]
    with subprocess.Popen(argv, stdout=subprocess.PIPE, cwd=workspace) as server:
        assert server.stdout is not None
        try:
            yield server.stdout.readline().decode().strip()
        finally:
            server.terminate()


SUITES = [
    ("mcp-conformance-2025",),
    ("mcp-conformance-2026", "--requirements", "2026-07-28"),
    ("mcp-conformance-2026", "--requirements", "2025-11-25"),
]


@needs_node
@pytest.mark.long
def test_the_conformance_suites_find_only_what_is_expected(tmp_path: Path) -> None:
    expected = ("--expected-failures", str(HERE / "expected_failures.yaml"))
    with everything(tmp_path) as address:
        for suite, *options in SUITES if FULL else SUITES[:2]:
            program = str(PACKAGES / suite / "dist/index.js")
            argv = [str(NODE), program, "server", "--url", address, *options, *expected]
            done = subprocess.run(argv, capture_output=True, timeout=300, check=False)
            assert done.returncode == 0, done.stdout.decode()[-4_000:]
