"""The secrets of the gateway, in a workspace that has its files in it."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest
from tests.gateway.conftest import TOKEN, serve
from tests.gateway.test_terminals import end_of, turn

from clawkit.gateway.open_agent import Open
from clawkit.sandbox.confinement import can_confine

FILES = ("running.json", "token", "own-device.key", "device-tokens.json", "key")
OTHERS = ("mcp/tokens.json", "agents/main/agent/auth-profiles.json", "exec-approvals.json")


def put_secrets(home: Path) -> None:
    for name in (*(f"gateway/{each}" for each in FILES), *OTHERS):
        (home / name).parent.mkdir(parents=True, exist_ok=True)
        (home / name).write_text("topsecret\n")
    socket = {"path": str(home / "socket"), "token": "topsecret"}
    defaults = {"security": "full", "ask": "off", "askFallback": "deny"}
    approvals = json.dumps({"version": 1, "socket": socket, "defaults": defaults})
    (home / "exec-approvals.json").write_text(approvals)
    (home / "way-in").symlink_to("gateway")


async def said(there: Open, tool: str, **params: str) -> str:
    result = await there.agent.kit.call(tool, params)
    return result.as_text()


@pytest.mark.parametrize("place", [".", ".."])
async def test_no_tool_reads_or_changes_them(place: str) -> None:
    home = Path(os.environ["CLAWKIT_HOME"])
    workspace = Path(os.path.normpath(home / place))
    async with serve({}) as ground:
        peer = await ground.join()
        put_secrets(home)
        await end_of(peer, await peer.send("clawkit.turn", turn(workspace, session="wide")))
        there = await ground.gateway.live.open("agent:main:wide", owner=True)
        for folder in ("gateway", "way-in"):
            assert "own secrets" in await said(there, "ls", path=str(home / folder))
            for name in FILES:
                path = str(home / folder / name)
                assert "own secrets" in await said(there, "read", path=path)
                assert "own secrets" in await said(there, "write", path=path, content="mine")
        for name in OTHERS:
            assert "own secrets" in await said(there, "read", path=str(home / name))
            assert "own secrets" in await said(there, "write", path=str(home / name), content="x")
        new = str(home / "gateway" / "new" / "file")
        assert "own secrets" in await said(there, "write", path=new, content="mine")
        (home / "plain").write_text("topsecret\n")
        found = await said(there, "grep", pattern="topsecret", path=str(home))
        assert "plain:1: topsecret" in found
        assert found.count("topsecret") == 1
        assert "device-tokens" not in await said(there, "find", pattern="*", path=str(home))
        if can_confine():
            others = " ".join(str(home / name) for name in OTHERS)
            command = f"cat {home}/gateway/* {home}/way-in/* {others}; echo done"
            shown = await said(there, "exec", command=command)
            assert "done" in shown
            assert "topsecret" not in shown


async def test_a_workspace_among_them_is_refused() -> None:
    async with serve({}) as ground:
        peer = await ground.join()
        place = Path(os.environ["CLAWKIT_HOME"]) / "gateway"
        refused = await peer.refused("clawkit.turn", turn(place, session="in"))
        assert "contains secrets of clawkit" in refused["message"]


async def test_agents_mask_them() -> None:
    async with serve({}) as ground:
        there = await ground.gateway.live.open("agent:main:main", owner=True)
        own = ground.gateway.auth.own_secret
        shown = there.agent.kit.run.redactor.text(f"a {own} b {TOKEN} c")
        assert own not in shown
        assert TOKEN not in shown


async def test_agents_mask_a_generated_token() -> None:
    async with serve({"gateway": {"auth": {}}}) as ground:
        token = (Path(os.environ["CLAWKIT_HOME"]) / "gateway" / "token").read_text().strip()
        there = await ground.gateway.live.open("agent:main:main", owner=True)
        assert token not in there.agent.kit.run.redactor.text(f"it is {token}")
