"""Servers that others wrote, one from npm and one from PyPI, over every transport."""

from __future__ import annotations

import asyncio
import os
import socket
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from tests.mcp.parts import error, mounts, names, open_kit
from tests.node import EVERYTHING, NEEDS_NODE, NODE

from clawkit import Agent
from clawkit.testing import ScriptedModel, calls

TIME = Path(sys.prefix, "bin", "mcp-server-time")
pytestmark = [NEEDS_NODE, pytest.mark.untraced]


async def test_an_agent_uses_a_server_from_npm_and_one_from_pypi(workspace: Path) -> None:
    everything = {"command": str(NODE), "args": [str(EVERYTHING)]}
    config = {"mcp": {"servers": {"time": {"command": str(TIME)}, "every": everything}}}
    model = ScriptedModel(
        calls(
            ("time__get_current_time", {"timezone": "UTC"}),
            ("every__get-sum", {"a": 2, "b": 3}),
            ("every__get-tiny-image", {}),
            ("every__get-roots-list", {}),
        ),
        "Done.",
    )
    async with Agent.open(
        config, workspace=workspace, model=model, keep=False, owner=True
    ) as agent:
        await mounts(agent.kit).ready(("time", "every"), wait_s=60)  # a busy machine starts late
        assert await agent.run("Try them") == "Done."
        slots = mounts(agent.kit)._slots
        versions = {name: slot.session and slot.session.version for name, slot in slots.items()}
    said = str(model.requests[-1].messages)
    for part in ('"timezone": "UTC"', "The sum of 2 and 3 is 5", "image/png", workspace.as_uri()):
        assert part.replace('"', '\\"') in said or part in said
    assert versions == {"time": "2026-07-28", "every": "2025-11-25"}


@asynccontextmanager
async def serve(transport: str) -> AsyncIterator[str]:
    with socket.create_server(("127.0.0.1", 0)) as probe:
        port = probe.getsockname()[1]
    process = await asyncio.create_subprocess_exec(
        *(str(NODE), str(EVERYTHING), transport),
        env={**os.environ, "PORT": str(port)},
        stdout=asyncio.subprocess.DEVNULL,
        stderr=asyncio.subprocess.PIPE,
    )
    assert process.stderr is not None
    try:
        async with asyncio.timeout(30):
            while str(port).encode() not in await process.stderr.readline():
                pass
        yield f"http://127.0.0.1:{port}"
    finally:
        process.kill()
        await process.wait()
        process._transport.close()  # type: ignore[attr-defined]  # else it is reported as unclosed


@pytest.mark.parametrize(
    ("argument", "path", "transport"),
    [("streamableHttp", "/mcp", None), ("sse", "/sse", "sse")],
)
async def test_a_server_is_used_over_http(
    workspace: Path, argument: str, path: str, transport: Any
) -> None:
    async with serve(argument) as address:
        entry = {"url": address + path, "requestTimeoutMs": 20_000}
        entry |= {"transport": transport} if transport else {}
        async with open_kit(workspace, {"every": entry}) as kit:
            assert "every__echo" in names(kit), mounts(kit).errors
            result = await kit.call("every__echo", {"message": "hello"})
            roots = await kit.call("every__get-roots-list")
        assert "Echo: hello" in result.as_text()
        assert workspace.as_uri() in roots.as_text()


async def test_an_address_where_nothing_listens_is_reported(workspace: Path) -> None:
    async with open_kit(workspace, {"gone": {"url": "http://127.0.0.1:9/mcp"}}) as kit:
        errors = mounts(kit).errors
        assert error(await kit.call("gone__x")).startswith("unknown tool")
    assert "127.0.0.1:9" in errors["gone"]
