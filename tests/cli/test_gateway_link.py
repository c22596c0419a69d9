"""A terminal's link to a gateway: what becomes of it when the gateway does not come back."""

from __future__ import annotations

import asyncio
import time
from typing import Any

import pytest
from tests.gateway.conftest import TOKEN, serve

from clawkit.agent import events
from clawkit.cli import gateway_link
from clawkit.cli.gateway_link import SessionFollower
from clawkit.core.approval import Approver
from clawkit.core.tasks import in_thread
from clawkit.errors import ToolError
from clawkit.gateway.client import Link, Target, connect


class Follower(SessionFollower):
    """Keeps what it is told."""

    error: ToolError | None = None

    def __init__(self, link: Link) -> None:
        self.shown: list[events.Event] = []
        self.told = asyncio.Event()
        super().__init__(link)

    def show(self, event: events.Event, run: str) -> None:
        self.shown.append(event)
        self.told.set()

    def hear(self, payload: dict[str, Any]) -> None: ...
    def say(self, text: str) -> None: ...
    def approver(self) -> Approver | None:
        return None

    def how_to_go_on(self) -> str:
        return "Type this."

    async def back(self) -> None: ...
    def gone(self, error: ToolError) -> None:
        self.error = error


async def test_it_gives_up_after_a_while_and_says_what_to_type(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(gateway_link, "GIVE_UP_S", 0.0)
    async with serve({}) as ground:
        target = Target("127.0.0.1", ground.port, secret=TOKEN)
        follower = Follower(await in_thread(connect, target))
        assert (await follower.call("health", {}))["ok"]
        kept = {"sessionKey": "x", "message": "hi", "idempotencyKey": "k"}
        ground.gateway.live.is_closed = True  # as it is when it stops
        waiting = asyncio.ensure_future(follower.call("chat.send", kept))
        cancelled = asyncio.ensure_future(follower.call("agent.wait", {"runId": "none"}))
        await follower.call("health", {})
        assert not waiting.done(), "what the next gateway can do is kept for it"
    with pytest.raises(ToolError, match=r"cannot be made again: .*\. Type this\.$"):
        await waiting
    assert cancelled.done()
    assert str(follower.error).startswith("the connection to the gateway was lost, and")
    [lost] = follower.shown
    assert isinstance(lost, events.Voided)
    assert "(service restart); connecting again" in lost.reason
    with pytest.raises(ToolError, match="there is no connection to the gateway now"):
        await follower.call("health", {})
    follower.leave()


async def test_what_was_sent_long_ago_is_not_sent_again(monkeypatch: pytest.MonkeyPatch) -> None:
    """A gateway remembers what it did for some minutes; this machine may have slept for longer."""
    async with serve({}) as ground:
        target = Target("127.0.0.1", ground.port, secret=TOKEN)
        follower = Follower(await in_thread(connect, target))
        ground.gateway.live.is_closed = True
        kept = {"sessionKey": "x", "message": "hi", "idempotencyKey": "k"}
        waiting = asyncio.ensure_future(follower.call("chat.send", kept))
        await follower.call("health", {})
        ground.gateway.live.is_closed = False
        clock, slept = time.time, [0.0]
        monkeypatch.setattr(time, "time", lambda: clock() + slept[0])
        for client in list(ground.gateway.hub.clients.values()):
            client.close(1012, "service restart")
        await follower.told.wait()
        slept[0] = 3_600.0
        with pytest.raises(ToolError, match="before it said whether it did this"):
            await waiting
        assert ground.gateway.live.run("k") is None
        assert (await follower.call("health", {}))["ok"]
        follower.leave()
