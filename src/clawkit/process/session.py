"""One command from its start until nobody wants to know about it any more."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Sequence

from clawkit.process.base import Exit, Launch, Left, Output, Reason, Running, Terminal
from clawkit.process.slugs import name_of

GRACE_S: dict[Reason, float] = {"manual-cancel": 2.0, "process-limit": 0.0}
"""Seconds between asking a command to end and making it."""
_GRACE_S = 5.0
INPUT_WAIT_S = 15.0
"""A command that can be written to and is silent for so long may be waiting for it."""
_LOOK_S = 0.25
NOTICE_S = 0.25
"""A poll that runs when a command ends tells it first."""


class Session:
    """A command and what is known about it."""

    def __init__(
        self,
        id_: str,
        key: str,
        owner: str,
        launch: Launch,
        running: Running,
        *,
        background: bool,
        on_done: Callable[[Session], None],
        on_end: Callable[[Session], None] | None,
    ) -> None:
        """`on_done` is called at its end in any case, `on_end` when it is news to somebody."""
        self.id = id_
        self.key = key
        """The only one of its kind on this machine."""
        self.owner = owner
        self.launch = launch
        self.running = running
        self.pid = running.pid
        self.started = time.time()
        self.background = background
        self.told = 0
        self.empty_polls = 0
        self.counted: tuple[int, int] | None = None
        self.announce = True
        self.exit: Exit | None = None
        self.ended_at = 0.0
        self._begun = time.monotonic()
        self._reason: Reason | None = None
        """Why clawkit ended it, if it did."""
        self._on_done = on_done
        self._on_end = on_end
        self._is_news = False
        self._timers: list[asyncio.TimerHandle] = []
        self._ends: set[asyncio.Task[None]] = set()
        self.loop = asyncio.get_running_loop()
        self._over = self.loop.create_task(self._watch())
        if launch.timeout_s:
            self._after(launch.timeout_s, lambda: self._end_soon("overall-timeout"))
        if launch.quiet_s:
            self._after(launch.quiet_s, self._check_quiet)

    @property
    def name(self) -> str:
        return name_of(self.launch.shown)

    @property
    def output(self) -> Output:
        return self.running.output

    @property
    def terminal(self) -> Terminal | None:
        return self.running.terminal

    @property
    def can_write(self) -> bool:
        return self.exit is None and self.running.can_write

    @property
    def left(self) -> Sequence[Left]:
        return self.running.left if self.exit is not None else ()

    @property
    def runtime_s(self) -> float:
        return self.exit.seconds if self.exit else time.monotonic() - self._begun

    @property
    def idle_s(self) -> float:
        return max(0.0, time.monotonic() - max(self.running.output.last_at, self._begun))

    @property
    def waits_for_input(self) -> bool:
        return self.can_write and self.idle_s >= INPUT_WAIT_S

    async def wait(self, seconds: float | None = None) -> Exit | None:
        if self.exit is None:
            await asyncio.wait({self._over}, timeout=seconds)
        return self.exit

    async def wait_for_news(self, seen: int, seconds: float) -> None:
        end = time.monotonic() + seconds
        while self.exit is None and self.output.size <= seen:
            left = end - time.monotonic()
            if left <= 0:
                return
            # Of what a detached command writes itself, nobody tells us.
            wait_s = min(left, _LOOK_S) if self.launch.detach else left
            await self.running.output.changed(wait_s)

    async def write(self, data: bytes, *, eof: bool = False) -> None:
        await self.running.write(data, eof=eof)

    def resize(self, columns: int, rows: int) -> None:
        self.running.resize(columns, rows)

    async def signal(self, number: int) -> None:
        await self.running.signal(number)

    async def end(self, reason: Reason = "manual-cancel") -> None:
        if self.exit is None and self._reason is None:
            self._reason = reason
        await self.running.end(GRACE_S.get(reason, _GRACE_S))
        await self.wait()

    def to_background(self) -> None:
        self.background = True

    def close(self) -> None:
        """Let go of its files and timers."""
        self._stop_timers()
        if self._over is not asyncio.current_task():
            self._over.cancel()
        self.running.close()
        self.running.output.close()

    async def _watch(self) -> None:
        exit_ = await self.running.wait()
        if self._reason is not None or exit_.reason == "process-limit":
            # Whoever is told that it was ended can rely on nothing of it being left.
            await self.running.end(GRACE_S.get(self._reason or exit_.reason, _GRACE_S))
        if self._reason is not None and exit_.reason not in ("process-limit", "out-of-memory"):
            exit_ = exit_._replace(reason=self._reason)
        self._stop_timers()
        self.exit = exit_
        self.ended_at = time.time()
        self.running.output.wake()
        is_news = self.background and self._reason != "manual-cancel"
        self._on_done(self)
        if is_news:
            self._is_news = True
            self._after(NOTICE_S, self.tell)

    def tell(self) -> None:
        """Tell its end to whoever is to be told, unless that has been done."""
        if self._is_news and self.announce and self._on_end is not None:
            self.announce = False
            self._on_end(self)

    def _after(self, seconds: float, call: Callable[[], None]) -> None:
        self._timers.append(self.loop.call_later(seconds, call))

    def _stop_timers(self) -> None:
        for timer in self._timers:
            timer.cancel()
        self._timers.clear()

    def _check_quiet(self) -> None:
        left = (self.launch.quiet_s or 0) - self.idle_s
        if left > 0.01:
            self._after(left, self._check_quiet)
        else:
            self._end_soon("no-output-timeout")

    def _end_soon(self, reason: Reason) -> None:
        task = self.loop.create_task(self.end(reason))
        self._ends.add(task)
        task.add_done_callback(self._ends.discard)
