"""session_status: who is running, where, with which model and tools."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from clawkit.core.call import CallRequest, Run, call
from clawkit.core.context import InForce, Scope, Sender
from clawkit.core.result import Result
from clawkit.testing import open_kit
from clawkit.tools.session_status import TOOL
from clawkit.version import __version__


async def status(scope: Scope = Scope(), **params: Any) -> Result:
    in_force = InForce(("read", "ls"), 30)
    run = Run({"session_status": TOOL}, "/ws", scope, services={InForce: in_force})
    return await call(run, CallRequest("session_status", params))


async def test_the_card_tells_what_is_in_force() -> None:
    result = await status(Scope(agent="support", session="s1", sandboxed=True, depth=1))
    assert result.as_text().startswith(
        f"clawkit {__version__}\nsession s1 of agent support\nmodel not set\n"
        "workspace /ws (sandboxed)\ntools read, ls (30 removed by policy)\ntime 2"
    )
    assert result.details == {
        "ok": True,
        "sessionKey": "s1",
        "agentId": "support",
        "model": None,
        "workspace": "/ws",
        "sandboxed": True,
        "senderIsOwner": False,
        "depth": 1,
        "tools": ["read", "ls"],
        "toolsRemoved": 30,
        "version": __version__,
    }


async def test_the_card_of_a_real_run(tmp_path: Path) -> None:
    async with open_kit(tmp_path, model="openai/gpt-5", config={"tools": {"deny": ["ls"]}}) as kit:
        result = await kit.call("session_status")
    assert "model openai/gpt-5\n" in result.as_text()
    built = "read write edit apply_patch grep find exec process session_status"
    assert result.details["tools"] == built.split()
    assert result.details["senderIsOwner"] is True


async def test_a_run_without_tools_says_none() -> None:
    run = Run({"session_status": TOOL}, "/", services={InForce: InForce((), 3)})
    assert "tools none (3" in (await call(run, CallRequest("session_status"))).as_text()


@pytest.mark.parametrize("key", ["current", "s1"])
@pytest.mark.parametrize("name", ["sessionKey", "session_key"])
async def test_the_current_session_has_two_names(key: str, name: str) -> None:
    scope = Scope(session="s1", sender=Sender(owner=True))
    assert (await status(scope, **{name: key})).details["sessionKey"] == "s1"


@pytest.mark.parametrize("key", ["other", ""])
async def test_another_session_is_not_there(key: str) -> None:
    result = await status(Scope(session="s1"), sessionKey=key)
    assert result.details["code"] == 400
    assert key in result.details["error"]
