"""A terminal's link to a gateway: what becomes of it when the gateway does not come back."""

from __future__ import annotations

import asyncio
import os
import sys
import time
from functools import partial
from typing import Any

import pytest
from tests.gateway.conftest import TOKEN, Ground, serve

from clawkit.agent import events
from clawkit.cli import gateway_link
from clawkit.cli.gateway_answers import ToldEvent
from clawkit.cli.gateway_line_chat import RemoteLines
from clawkit.cli.gateway_link import SessionFollower
from clawkit.cli.gateway_turn import open_chat
from clawkit.core.approval import Approver
from clawkit.core.tasks import in_thread
from clawkit.errors import ToolError
from clawkit.gateway.client import Link, Target, connect
from clawkit.ui.line_chat import run_plain


class Follower(SessionFollower):
    """Records what it receives."""

    error: ToolError | None = None

    def __init__(self, link: Link) -> None:
        self.shown: list[events.Event] = []
        self.told = asyncio.Event()
        super().__init__(link)

    def show(self, event: events.Event, run: str) -> None:
        self.shown.append(event)
        self.told.set()

    def hear(self, payload: ToldEvent) -> None: ...
    def say(self, text: str) -> None: ...
    def approver(self) -> Approver | None:
        return None

    def how_to_go_on(self) -> str:
        return "Type this."

    async def back(self) -> None: ...
    def on_disconnected(self, error: ToolError) -> None:
        self.error = error


KEPT = {"sessionKey": "x", "message": "hi", "idempotencyKey": "k"}


def target_of(ground: Ground) -> Target:
    return Target("127.0.0.1", ground.port, secret=TOKEN)


async def test_reconnecting_ends_with_an_error_that_names_the_next_command(
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
    with pytest.raises(ToolError, match=r"could not be restored: .*forwarded\? Type this\.$"):
        await waiting
    assert cancelled.done()
    assert str(follower.error).startswith("the connection to the gateway was lost and")
    [lost] = follower.shown
    assert isinstance(lost, events.AnswerRestarted)
    assert "(service restart); connecting again" in lost.reason
    with pytest.raises(ToolError, match="not connected to the gateway"):
        await follower.call("health", {})
    follower.leave()


@pytest.mark.parametrize(
    ("why", "shown"),
    [
        ("lost", "lost. Type this."),
        ("it stopped.", "it stopped. Type this."),
        ("is its port forwarded?", "is its port forwarded? Type this."),
        ("the versions differ. Type this.", "the versions differ. Type this."),
    ],
)
async def test_advice_is_one_sentence_after_the_reason(why: str, shown: str) -> None:
    async with serve({}) as ground:
        follower = Follower(await in_thread(connect, target_of(ground)))
        follower._give_up(why)
        assert str(follower.error) == shown
        follower.leave()


async def test_messages_sent_long_ago_are_not_sent_again(monkeypatch: pytest.MonkeyPatch) -> None:
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
        with pytest.raises(ToolError, match="before it confirmed this"):
            await waiting
        assert ground.gateway.live.run("k") is None
        assert (await follower.call("health", {}))["ok"]
        follower.leave()


@pytest.mark.parametrize("is_heard", [False, True])
async def test_messages_sent_before_a_suspend_are_not_sent_again(
    monkeypatch: pytest.MonkeyPatch, is_heard: bool
) -> None:
    """It notices that the connection is gone when it wakes up, perhaps after reading what came
    before; by then, the gateway has forgotten what it did."""
    async with serve({}) as ground:
        follower = Follower(await in_thread(connect, target_of(ground)))
        ground.gateway.live.is_closed = True
        waiting = asyncio.ensure_future(follower.call("chat.send", KEPT))
        await follower.call("health", {})
        ground.gateway.live.is_closed = False
        clock = time.time
        monkeypatch.setattr(time, "time", lambda: clock() + 3_600.0)
        for client in list(ground.gateway.hub.clients.values()):
            if is_heard:
                client.tell("tick", b"{}")
            client.close(1012, "service restart")
        with pytest.raises(ToolError, match="before it confirmed this"):
            await waiting
        assert ground.gateway.live.run("k") is None
        follower.leave()


async def test_a_connection_that_breaks_again_and_again_gives_no_more_time(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async with serve({}) as ground:
        follower = Follower(await in_thread(connect, target_of(ground)))
        waiting = asyncio.ensure_future(follower.call("chat.send", KEPT))
        ground.gateway.live.is_closed = True
        clock, past = time.time, [0.0]
        monkeypatch.setattr(time, "time", lambda: clock() + past[0])
        for _ in range(2):
            await follower.call("health", {})
            follower.told.clear()
            for client in list(ground.gateway.hub.clients.values()):
                client.close(1012, "service restart")
            await follower.told.wait()
            past[0] += gateway_link.GIVE_UP_S * 0.6
            while not follower.is_connected:
                await asyncio.sleep(0.01)
        with pytest.raises(ToolError, match="before it confirmed this"):
            await asyncio.wait_for(waiting, 20)
        follower.leave()


async def test_messages_cancelled_while_disconnected_are_not_sent() -> None:
    async with serve({}) as ground:
        follower = Follower(await in_thread(connect, target_of(ground)))
        for client in list(ground.gateway.hub.clients.values()):
            client.close(1012, "service restart")
        await follower.told.wait()
        waiting = asyncio.ensure_future(follower.call("chat.send", KEPT))
        await asyncio.sleep(0)
        waiting.cancel()
        while not follower.is_connected:
            await asyncio.sleep(0.01)
        await follower.call("health", {})
        await follower.call("health", {})
        assert ground.gateway.live.run("k") is None
        follower.leave()


PLAIN: dict[str, Any] = {
    **dict.fromkeys(("session", "agent", "workspace", "model", "thinking")),
    "go_on": False,
}


@pytest.mark.parametrize("is_working", [False, True])
async def test_a_chat_without_a_screen_ends_when_the_gateway_does_not_come_back(
    is_working: bool, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(gateway_link, "GIVE_UP_S", 0.0)
    ours, theirs = os.pipe()
    monkeypatch.setattr(sys, "stdin", os.fdopen(ours, encoding="utf-8"))
    async with serve({}) as ground:
        hosted = await in_thread(partial(open_chat, keyboard=False), target_of(ground), PLAIN)
        assert hosted is not None
        link, opened = hosted
        chat: list[RemoteLines] = []

        def make() -> RemoteLines:
            chat.append(RemoteLines(link, PLAIN, opened, None))
            chat[0].is_interactive = True
            ground.gateway.live.is_closed = is_working  # it accepts nothing more
            return chat[0]

        talking = asyncio.ensure_future(run_plain(make, "hi"))
        async with asyncio.timeout(30):
            while not chat or not (chat[0]._waiting if is_working else chat[0].has_turns):
                await asyncio.sleep(0.01)
        assert ("Hello there, friend." in capsys.readouterr().out) != is_working
    # It ends although the person, at whose prompt it waits, types nothing.
    assert await asyncio.wait_for(talking, 30) == 1
    err = capsys.readouterr().err
    how = f"To continue: clawkit chat --session {opened['name']}"
    assert f"could not be restored: {target_of(ground).url}" in err
    assert err.count(how) == err.count("To continue") == 1
    os.close(theirs)
    sys.stdin.close()
