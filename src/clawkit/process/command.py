"""One command, from its start until it is removed."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import TYPE_CHECKING

from clawkit.errors import ToolError
from clawkit.process.protocols import Exit, Launch, LeftoverProcess, Reason, Running, grace_of

if TYPE_CHECKING:
    from clawkit.process.spool import Spool
    from clawkit.process.terminal import TerminalState

INPUT_WAIT_S = 15.0
"""A command with open input that is silent for this long may be waiting for input."""
_LOOK_S = 0.25
NOTICE_S = 0.25
"""Delay of the notification, so that a concurrent poll can report the end first."""


class Command:
    """One command, its timeouts and its state, for as long as it is remembered."""

    def __init__(
        self,
        id_: str,
        key: str,
        owner: str,
        launch: Launch,
        running: Running,
        *,
        background: bool,
        on_done: Callable[[Command], None] = lambda _: None,
        on_end: Callable[[Command], None] | None = None,
        started: float = 0.0,
    ) -> None:
        """`key` is unique on this machine. `on_done` is always called at the end, `on_end` only if
        nothing else has reported the end. `started` is given if it was started earlier."""
        self.id = id_
        """Two words, such as `calm-otter`."""
        self.key = key
        self.owner = owner
        """Other owners do not see it."""
        self.launch = launch
        self.running = running
        self.pid = running.pid
        self.started = started or time.time()
        """Seconds since 1970."""
        self.background = background
        """Whether it continues without the call that started it."""
        self.polled = 0
        """Bytes of output that polls have already returned."""
        self.empty_polls = 0
        """Polls in a row that returned nothing."""
        self.counted: tuple[int, int] | None = None
        """Bytes of output in which lines were counted, and the newlines in them."""
        self.announce = True
        """Whether its end is still to be reported: false once a poll has reported it."""
        self.exit: Exit | None = None
        """None while it runs."""
        self.ended_at = 0.0
        self.is_published = False
        """Whether it has a record on disk, for other processes."""
        self._begun = time.monotonic() - max(0.0, time.time() - self.started)
        self._reason: Reason | None = None
        """Why clawkit stopped it, if it did."""
        self._on_done = on_done
        self._on_end = on_end
        self._is_news = False
        self._timers: list[asyncio.TimerHandle] = []
        self._ends: set[asyncio.Task[None]] = set()
        self.loop = asyncio.get_running_loop()
        self._has_ended = asyncio.Event()
        self._over = self.loop.create_task(self._watch())
        self._over.add_done_callback(lambda _: self._has_ended.set())
        if launch.timeout_s:
            self.after(launch.timeout_s, lambda: self._end_soon("overall-timeout"))
        if launch.quiet_s:
            self.after(launch.quiet_s, self._check_quiet)

    @property
    def name(self) -> str:
        """A few words of the command, for lists."""
        from clawkit.process.records import name_of

        return name_of(self.launch.shown)

    @property
    def output(self) -> Spool:
        return self.running.output

    @property
    def terminal(self) -> TerminalState | None:
        return self.running.terminal

    @property
    def can_write(self) -> bool:
        return self.exit is None and self.running.can_write

    @property
    def left(self) -> Sequence[LeftoverProcess]:
        return self.running.left if self.exit is not None else ()

    @property
    def runtime_s(self) -> float:
        return self.exit.seconds if self.exit else time.monotonic() - self._begun

    @property
    def idle_s(self) -> float:
        """Seconds since its last output."""
        return max(0.0, time.monotonic() - max(self.output.last_at, self._begun))

    @property
    def waits_for_input(self) -> bool:
        """A guess: its input is open and it has been silent for a while."""
        return self.can_write and self.idle_s >= INPUT_WAIT_S

    async def wait(self, seconds: float | None = None) -> Exit | None:
        """Wait until it has ended; None after `seconds`."""
        if not self._has_ended.is_set():
            with suppress(TimeoutError):
                async with asyncio.timeout(seconds):
                    await self._has_ended.wait()
        return self.exit

    async def wait_for_news(self, known: int, seconds: float) -> None:
        """Wait until it has written more than `known` bytes or ended, at most `seconds`."""
        end = time.monotonic() + seconds
        while (
            self.exit is None and self.output.size <= known and (left := end - time.monotonic()) > 0
        ):
            # A detached command writes to its file itself, so there are no events.
            await self.output.changed(min(left, _LOOK_S) if self.launch.detach else left)

    async def write(self, data: bytes, *, eof: bool = False) -> None:
        await self.running.write(data, eof=eof)

    def resize(self, columns: int, rows: int) -> None:
        self.running.resize(columns, rows)

    async def signal(self, number: int) -> None:
        await self.running.signal(number)

    async def end(self, reason: Reason = "manual-cancel") -> None:
        """Stop it and everything it started, and wait until all have ended. Raises `ToolError` if
        another process started it and something cannot be stopped."""
        if self.exit is None and self._reason is None:
            self._reason = reason
        await self.running.end(grace_of(reason))
        await self.wait()

    def close(self) -> None:
        self._stop_timers()
        if self._over is not asyncio.current_task():
            self._over.cancel()
        self.running.close()
        self.output.close()

    async def _watch(self) -> None:
        exit_ = await self.running.wait()
        if self._reason is not None or exit_.reason == "process-limit":
            # All of its processes must be gone when its end is reported.
            with suppress(ToolError):  # `end` raises it as well
                await self.running.end(grace_of(self._reason or exit_.reason))
        if self._reason is not None and exit_.reason not in ("process-limit", "out-of-memory"):
            exit_ = exit_._replace(reason=self._reason)
        self._stop_timers()
        self.exit = exit_
        self.ended_at = time.time()
        self.output.wake()
        is_news = self.background and self._reason != "manual-cancel"
        self._on_done(self)
        if is_news:
            self._is_news = True
            self.after(NOTICE_S, self.report_end)
        self._has_ended.set()

    def report_end(self) -> None:
        """Call `on_end`, unless the end was reported already."""
        if self._is_news and self.announce and self._on_end is not None:
            self.announce = False
            self._on_end(self)

    def after(self, seconds: float, call: Callable[[], None]) -> None:
        """Call `call` later, unless the command ends or is closed first."""
        self._timers.append(self.loop.call_later(seconds, call))

    def _stop_timers(self) -> None:
        for timer in self._timers:
            timer.cancel()
        self._timers.clear()

    def _check_quiet(self) -> None:
        left = (self.launch.quiet_s or 0) - self.idle_s
        if left > 0.01:
            self.after(left, self._check_quiet)
        else:
            self._end_soon("no-output-timeout")

    def _end_soon(self, reason: Reason) -> None:
        task = self.loop.create_task(self.end(reason))
        self._ends.add(task)
        task.add_done_callback(self._ends.discard)
