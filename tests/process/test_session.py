"""One command, from its start until nobody wants to know about it any more."""

from __future__ import annotations

import asyncio
import os
import signal
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any

import pytest
from tests.process.watching import alive, until

from clawkit.errors import ToolInputError
from clawkit.process import command as sessions
from clawkit.process.command import Command
from clawkit.process.local_host import LocalHost
from clawkit.process.protocols import GRACE_S, Launch, Running

pytestmark = pytest.mark.usefixtures("no_loose_ends")
Begin = Callable[..., Awaitable[Command]]
UNITS_S = (0.1, 0.5, 2.0)
"""What goes on while a clock runs is tried more slowly where the machine is too busy for it."""


class Told:
    """What was told about the ends of commands."""

    def __init__(self) -> None:
        self.done: list[Command] = []
        self.ended: list[Command] = []


@pytest.fixture
def told() -> Told:
    return Told()


@pytest.fixture
async def begin(
    no_loose_ends: None, host: LocalHost, launch: Callable[..., Launch], told: Told
) -> AsyncIterator[Begin]:
    """Starts commands, which end with the test."""
    begun: list[Command] = []

    async def start(
        text: str,
        *,
        background: bool = True,
        ready: Callable[[Running], Awaitable[object]] | None = None,
        **options: Any,
    ) -> Command:
        """The clocks run only from when it is `ready`."""
        given = launch(text, **options)
        number = len(begun)
        running = await host.start(given, f"session-{os.getpid()}-{number}")
        if ready is not None:
            await ready(running)
        session = Command(
            f"calm-otter-{number}",
            f"key-{number}",
            "me",
            given,
            running,
            background=background,
            on_done=told.done.append,
            on_end=told.ended.append,
        )
        begun.append(session)
        return session

    yield start
    for each in begun:
        await each.end("lost")
        each.close()


async def test_a_session_describes_its_command_during_and_after_the_run(
    begin: Begin, told: Told
) -> None:
    session = await begin("echo begun; read; exit 3", open_input=True)
    assert (session.exit, session.name, session.owner) == (None, "echo begun;", "me")
    assert session.pid == session.running.pid
    assert await session.wait(0.01) is None
    await session.wait_for_news(0, 60)
    assert await session.output.read(0, 100) == b"begun\n"
    first = session.runtime_s
    assert first > 0
    assert not session.left
    await session.write(b"\n")
    exit_ = await session.wait()
    assert exit_ is not None
    assert (exit_.reason, exit_.code, session.exit) == ("exit", 3, exit_)
    assert session.runtime_s == exit_.seconds > first
    assert not session.can_write
    assert told.done == [session]


async def test_a_command_that_takes_too_long_is_ended(begin: Begin, marker: str) -> None:
    session = await begin(f"(setsid sleep {marker} &); sleep {marker}; :", timeout_s=0.2)
    exit_ = await session.wait()
    assert exit_ is not None
    assert (exit_.reason, exit_.signal, exit_.status) == ("overall-timeout", "SIGTERM", "failed")
    await until(lambda: not alive(marker))


async def test_a_command_that_ignores_its_time_is_made_to_end(
    begin: Begin, marker: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(GRACE_S, "overall-timeout", 0.2)
    session = await begin(
        f"trap '' TERM; sleep {marker}; :",
        ready=lambda _: until(lambda: len(alive(marker)) >= 2),
        timeout_s=0.2,
    )
    exit_ = await session.wait()
    assert exit_ is not None
    assert (exit_.reason, exit_.signal) == ("overall-timeout", "SIGKILL")


async def test_a_command_that_ends_in_time_is_left_alone(begin: Begin) -> None:
    session = await begin("exit 2", ready=lambda each: each.wait(), timeout_s=0.3, quiet_s=0.3)
    exit_ = await session.wait()
    assert exit_ is not None
    await asyncio.sleep(0.4)
    assert session.exit == exit_
    assert (exit_.reason, exit_.code) == ("exit", 2)


async def test_a_silent_command_is_ended(begin: Begin, marker: str) -> None:
    session = await begin(
        f"echo once; sleep {marker}",
        ready=lambda each: until(lambda: each.output.size > 0),
        quiet_s=0.2,
    )
    exit_ = await session.wait()
    assert exit_ is not None
    assert exit_.reason == "no-output-timeout"
    assert session.output.tail(100) == b"once\n"
    assert not alive(marker)


@pytest.mark.parametrize("noise", ["echo x", "head -c 300000 /dev/zero"], ids=["little", "much"])
async def test_a_command_with_regular_output_keeps_running(begin: Begin, noise: str) -> None:
    for unit in UNITS_S:
        text = f"for i in {{1..8}}; do {noise}; sleep {unit}; done; exit 4"
        session = await begin(text, quiet_s=6 * unit)
        exit_ = await session.wait()
        assert exit_ is not None
        ended = (exit_.reason, exit_.code)
        if exit_.reason != "no-output-timeout":
            break
    assert ended == ("exit", 4)


async def test_a_detached_command_is_timed_like_others(begin: Begin) -> None:
    for unit in UNITS_S:
        text = f"for i in {{1..8}}; do echo x; sleep {unit}; done; sleep 60"
        session = await begin(text, quiet_s=4 * unit, detach=True)
        exit_ = await session.wait()
        assert exit_ is not None
        assert exit_.reason == "no-output-timeout"
        said = await session.output.read(0, 100)
        if said == b"x\n" * 8:
            break
    assert said == b"x\n" * 8


async def test_the_first_reason_counts(begin: Begin, marker: str) -> None:
    session = await begin(f"sleep {marker}")
    await asyncio.gather(session.end("overall-timeout"), session.end())
    assert session.exit is not None
    assert session.exit.reason == "overall-timeout"
    await session.end()
    assert session.exit.reason == "overall-timeout"


async def test_ending_what_has_ended_changes_nothing(begin: Begin) -> None:
    session = await begin("exit 3")
    await session.wait()
    await session.end()
    assert session.exit is not None
    assert (session.exit.reason, session.exit.code) == ("exit", 3)


async def test_ending_what_has_ended_ends_what_it_left(begin: Begin, marker: str) -> None:
    session = await begin(f"(setsid sleep {marker} >/dev/null 2>&1 &); exit 0")
    await session.wait()
    await until(lambda: [each.name for each in session.left] == ["sleep"])
    await session.end()
    assert not alive(marker)
    assert not session.left
    assert session.exit is not None
    assert session.exit.reason == "exit"


async def test_the_end_of_a_background_command_is_announced_once(begin: Begin, told: Told) -> None:
    session = await begin("exit 1")
    await until(lambda: told.ended)
    assert not session.announce
    await asyncio.sleep(sessions.NOTICE_S * 1.5)
    assert told.ended == told.done == [session]


@pytest.mark.parametrize("why", ["foreground", "ended", "polled"])
async def test_an_end_that_is_already_known_is_not_announced(
    begin: Begin, told: Told, why: str
) -> None:
    session = await begin("read; exit 1", open_input=True, background=why != "foreground")
    if why == "ended":
        await session.end()
    else:
        await session.write(b"\n")
    await session.wait()
    if why == "polled":
        session.announce = False
    await asyncio.sleep(sessions.NOTICE_S * 1.5)
    assert told.done == [session]
    assert not told.ended


async def test_the_end_of_a_command_moved_to_the_background_is_announced(
    begin: Begin, told: Told
) -> None:
    session = await begin("read; exit 1", open_input=True, background=False)
    assert not session.background
    session.background = True
    await session.write(b"\n")
    await until(lambda: told.ended == [session])


async def test_a_timeout_in_the_background_is_announced(begin: Begin, told: Told) -> None:
    session = await begin("sleep 60", timeout_s=0.1)
    await until(lambda: told.ended == [session])


@pytest.mark.parametrize(
    "text",
    [
        "read; echo more; read",
        "head -c 400000 /dev/zero; read; echo more; read",
        "head -c 400000 /dev/zero; echo -n; read; echo more; sleep 0.01; echo again; read",
    ],
    ids=["little", "much", "twice"],
)
async def test_news_are_waited_for(begin: Begin, text: str) -> None:
    session = await begin(text, open_input=True)
    size = 400_000 if "head" in text else 0
    await until(lambda: session.output.size == size)
    waiting = asyncio.create_task(session.wait_for_news(size, 30))
    await asyncio.sleep(0)
    await session.write(b"\n")
    await asyncio.wait_for(waiting, 30)
    assert session.output.size > size
    if "again" in text:
        await asyncio.wait_for(session.wait_for_news(size + 5, 30), 30)
        assert session.output.tail(6) == b"again\n"


async def test_the_end_is_news(begin: Begin) -> None:
    session = await begin("read", open_input=True)
    waiting = asyncio.create_task(session.wait_for_news(0, 60))
    await asyncio.sleep(0)
    await session.write(b"\n")
    await asyncio.wait_for(waiting, 30)
    await session.wait_for_news(0, 60)


async def test_no_news_come_when_the_time_is_over(begin: Begin) -> None:
    session = await begin("sleep 60")
    await session.wait_for_news(0, 0.05)
    await session.wait_for_news(0, 0)
    assert session.exit is None


async def test_a_detached_command_has_news_too(begin: Begin) -> None:
    session = await begin("sleep 0.1; echo more; sleep 60", detach=True)
    await asyncio.wait_for(session.wait_for_news(0, 60), 30)
    assert await session.output.read(0, 100) == b"more\n"


async def test_time_without_output_is_measured(begin: Begin) -> None:
    session = await begin("read; echo x; sleep 60", open_input=True)
    await asyncio.sleep(0.1)
    assert session.idle_s > 0.05
    before = time.monotonic()
    await session.write(b"\n")
    await session.wait_for_news(0, 60)
    assert session.idle_s <= time.monotonic() - before


async def test_a_silent_command_with_open_input_may_wait_for_it(
    begin: Begin, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sessions, "INPUT_WAIT_S", 600)
    asking = await begin("sleep 60", open_input=True)
    deaf = await begin("sleep 60")
    waits = [asking.waits_for_input]
    monkeypatch.setattr(sessions, "INPUT_WAIT_S", 0.1)
    await asyncio.sleep(0.15)
    waits += [asking.waits_for_input, deaf.waits_for_input]
    await asking.end()
    waits.append(asking.waits_for_input)
    assert waits == [False, True, False, False]


async def test_resizing_and_signals_reach_the_command(begin: Begin) -> None:
    text = "trap 'stty size' WINCH; trap 'exit 7' USR1; echo ready; while :; do sleep 0.02; done"
    session = await begin(text, size=(80, 24))
    await session.wait_for_news(0, 60)
    assert session.can_write
    assert session.terminal is not None
    session.resize(100, 30)
    await until(lambda: b"30 100" in session.output.tail(100))
    await session.signal(signal.SIGUSR1)
    exit_ = await session.wait()
    assert exit_ is not None
    assert exit_.code == 7
    with pytest.raises(ToolInputError):
        await session.write(b"x")


async def test_cancelling_a_wait_does_not_end_the_command(begin: Begin) -> None:
    session = await begin("read; exit 5", open_input=True)
    for waiting in (session.wait(), session.wait_for_news(0, 60)):
        task = asyncio.create_task(waiting)
        await asyncio.sleep(0)
        task.cancel()
        await asyncio.wait({task})
    await session.write(b"\n")
    exit_ = await session.wait()
    assert exit_ is not None
    assert exit_.code == 5
