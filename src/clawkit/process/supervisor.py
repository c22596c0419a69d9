"""All commands of a run: ids, limits, timeouts, the list, and notification of ends."""

from __future__ import annotations

import asyncio
import os
import time
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from typing import TYPE_CHECKING

from clawkit.core.tasks import in_thread
from clawkit.errors import NotFoundError, ToolAuthorizationError, ToolError
from clawkit.process import records
from clawkit.process.detached import Detached, detached
from clawkit.process.protocols import (
    Command,
    ExecHost,
    Exit,
    Launch,
    Left,
    Reason,
    Running,
    grace_of,
)
from clawkit.process.records import name_of, new_slug

if TYPE_CHECKING:
    from clawkit.process.spool import Spool
    from clawkit.process.terminal import TerminalState

INPUT_WAIT_S = 15.0
"""A command with open input that is silent for this long may be waiting for input."""
_LOOK_S = 0.25
NOTICE_S = 0.25
"""Delay of the notification, so that a concurrent poll can report the end first."""


class Session:
    """A command, its timeouts and its state."""

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
        """`key` is unique on this machine. `on_done` is always called at the end, `on_end` only if
        nothing else has reported the end."""
        self.id = id_
        self.key = key
        self.owner = owner
        self.launch = launch
        self.running = running
        self.pid = running.pid
        self.started = time.time()
        self.background = background
        self.polled = 0
        self.empty_polls = 0
        self.counted: tuple[int, int] | None = None
        self.announce = True
        self.exit: Exit | None = None
        self.ended_at = 0.0
        self.is_published = False
        """Whether it has a record on disk, for other processes."""
        self._begun = time.monotonic()
        self._reason: Reason | None = None
        """Why clawkit stopped it, if it did."""
        self._on_done = on_done
        self._on_end = on_end
        self._is_news = False
        self._timers: list[asyncio.TimerHandle] = []
        self._ends: set[asyncio.Task[None]] = set()
        self.loop = asyncio.get_running_loop()
        self._over = self.loop.create_task(self._watch())
        if launch.timeout_s:
            self.after(launch.timeout_s, lambda: self._end_soon("overall-timeout"))
        if launch.quiet_s:
            self.after(launch.quiet_s, self._check_quiet)

    @property
    def name(self) -> str:
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
    def left(self) -> Sequence[Left]:
        return self.running.left if self.exit is not None else ()

    @property
    def runtime_s(self) -> float:
        return self.exit.seconds if self.exit else time.monotonic() - self._begun

    @property
    def idle_s(self) -> float:
        return max(0.0, time.monotonic() - max(self.output.last_at, self._begun))

    @property
    def waits_for_input(self) -> bool:
        return self.can_write and self.idle_s >= INPUT_WAIT_S

    async def wait(self, seconds: float | None = None) -> Exit | None:
        if self.exit is None:
            await asyncio.wait({self._over}, timeout=seconds)
        return self.exit

    async def wait_for_news(self, seen: int, seconds: float) -> None:
        end = time.monotonic() + seconds
        while (
            self.exit is None and self.output.size <= seen and (left := end - time.monotonic()) > 0
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
        if self.exit is None and self._reason is None:
            self._reason = reason
        await self.running.end(grace_of(reason))
        await self.wait()

    def to_background(self) -> None:
        self.background = True

    def close(self) -> None:
        self._stop_timers()
        if self._over is not asyncio.current_task():
            self._over.cancel()
        self.running.close()
        self.output.close()

    async def _watch(self) -> None:
        exit_ = await self.running.wait()
        if self._reason is not None or exit_.reason == "process-limit":
            # None of its processes may be left when its end is reported.
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


MAX_FINISHED = 50
_MIN_KEEP_S, _MAX_KEEP_S = 60.0, 10_800.0
_PUBLISH_S = 1.0
"""A command that runs longer gets a record on disk, so that other processes can see it."""
_ROOM_S = 0.25


class Supervisor:
    """Owns every command, independent of the call that started it."""

    def __init__(
        self,
        hosts: Mapping[str, Callable[[], ExecHost]],
        folder: str,
        *,
        max_running: int = 64,
        keep_s: float = 1_800.0,
    ) -> None:
        """`folder` is for the records of commands, and for long output."""
        self._make_host = hosts
        self._hosts: dict[str, ExecHost] = {}
        self._folder = folder
        self._max_running = max_running
        self._keep_s = min(max(keep_s, _MIN_KEEP_S), _MAX_KEEP_S)
        self._sessions: dict[str, Session] = {}
        self._starting = 0
        self._reserved: set[str] = set()
        self._waiting: deque[asyncio.Future[None]] = deque()
        self._token = os.urandom(3).hex()
        self._count = 0
        self._adopted: dict[str, Detached] = {}
        self._has_swept = False
        self._is_closed = False

    @property
    def hosts(self) -> Sequence[str]:
        return tuple(self._make_host)

    def prepare(self, host: str) -> None:
        self._host(host).prepare()

    async def start(
        self,
        host: str,
        launch: Launch,
        owner: str,
        *,
        background: bool,
        on_end: Callable[[Command], None] | None = None,
    ) -> Session:
        await self._wait_for_room()
        self._starting += 1
        id_ = ""
        try:
            if not self._has_swept:
                self._has_swept = True
                await in_thread(records.sweep, self._folder, self._keep_s)
            id_ = new_slug(self._sessions.keys() | self._reserved)
            self._reserved.add(id_)
            self._count += 1
            key = f"{id_}-{self._token}{self._count:x}"
            running = await self._host(host).start(launch, key)
            if self._is_closed:
                await running.end(0)
                await self._hosts[host].close()
                raise ToolError("clawkit is shutting down; no new commands can start")
            session = Session(
                id_,
                key,
                owner,
                launch,
                running,
                background=background,
                on_done=self._on_done,
                on_end=on_end,
            )
            self._sessions[id_] = session
        finally:
            self._starting -= 1
            self._reserved.discard(id_)
        session.after(0.0 if background else _PUBLISH_S, lambda: self._publish(session))
        return session

    def all(self, owner: str) -> Sequence[Command]:
        self._prune()
        mine = [each for each in self._sessions.values() if each.owner == owner]
        shown: list[Command] = [each for each in mine if each.background]
        shown += self._adopt(owner)
        return sorted(shown, key=lambda each: (each.exit is not None, -each.started))

    def get(self, owner: str, id_: str) -> Command:
        self._prune()
        wanted = id_.strip()
        found = self._sessions.get(wanted)
        if found is not None and found.owner == owner and found.background:
            return found
        known = self.all(owner)
        for each in known:
            if each.id == wanted:
                return each
        names = [each.id for each in known]
        hint = f"; known: {', '.join(names[:10])}" if names else "; there are none"
        raise NotFoundError(f"unknown command {id_[:80]!r}{hint}", alike=names)

    def _adopt(self, owner: str) -> list[Detached]:
        """Detached commands of earlier runs."""
        ours = {each.key for each in self._sessions.values()}
        found = {each.key: each for each in detached(self._folder, owner) if each.key not in ours}
        for key in [key for key in self._adopted if key not in found]:
            self._adopted.pop(key).close()
        for key, each in found.items():
            self._adopted.setdefault(key, each)
        return [self._adopted[key] for key in found]

    async def forget(self, command: Command) -> None:
        if isinstance(command, Detached):
            if command.exit is None or command.left:
                await command.end()
            command.forget()
            return
        session = self._sessions.pop(command.id, None)
        if session is not None:
            session.announce = False
            if session.exit is None or session.left:
                await session.end()
            self._drop(session)

    async def close(self) -> None:
        """Stop all commands that are not detached, and release everything."""
        self._is_closed = True
        for session in self._sessions.values():
            session.announce = False
        for host in self._hosts.values():
            await host.close()
        for each in self._adopted.values():
            each.close()
        self._adopted = {}
        sessions, self._sessions = self._sessions, {}
        for session in sessions.values():
            if session.loop is not asyncio.get_running_loop():
                continue
            if not session.launch.detach:
                await session.wait()
                self._unpublish(session)
            elif session.exit is None and not session.is_published:
                self._publish(session)
            session.close()

    def _host(self, name: str) -> ExecHost:
        if self._is_closed:
            raise ToolError("clawkit is shutting down; no new commands can start")
        if name not in self._hosts:
            if name not in self._make_host:
                raise ToolAuthorizationError(f"no commands can run on the {name!r} host here")
            self._hosts[name] = self._make_host[name]()
        return self._hosts[name]

    async def _wait_for_room(self) -> None:
        while True:
            running = [each for each in self._sessions.values() if each.exit is None or each.left]
            if len(running) + self._starting < self._max_running:
                return
            # Commands in the background may never end.
            if self._starting == 0 and all(each.background for each in running):
                names = ", ".join(each.id for each in running[:5])
                raise ToolError(
                    f"{len(running)} commands are already running ({names}, …); stop one with "
                    "`process kill`, or raise tools.exec.maxRunning"
                )
            turn = asyncio.get_running_loop().create_future()
            self._waiting.append(turn)
            try:
                # The timeout, because a move to the background sends no event.
                await asyncio.wait({turn}, timeout=_ROOM_S)
            finally:
                self._waiting.remove(turn)

    def _on_done(self, session: Session) -> None:
        if turn := next((each for each in self._waiting if not each.done()), None):
            turn.set_result(None)
        output = session.output
        if session.launch.detach and session.exit is not None and session.exit.reason == "lost":
            # The spawn server is gone, but not the command: its record takes over.
            self._sessions.pop(session.id, None)
            session.close()
            return
        if session.left:
            if not session.is_published:
                self._publish(session)
        else:
            self._unpublish(session)
        if output.path or session.left:
            # `process` can still show this; otherwise the result of the call was everything.
            session.background = True
        elif not session.background:
            if self._sessions.get(session.id) is session:
                del self._sessions[session.id]
            session.close()
        self._prune()

    def _prune(self) -> None:
        """Forget commands that ended long ago, and the oldest if there are many."""
        done = [each for each in self._sessions.values() if each.exit is not None and not each.left]
        for session in done:
            self._unpublish(session)
        done.sort(key=lambda each: each.ended_at)
        oldest = time.time() - self._keep_s
        excess = max(0, len(done) - MAX_FINISHED)
        for number, session in enumerate(done):
            if number < excess or session.ended_at < oldest:
                del self._sessions[session.id]
                self._drop(session)

    def _drop(self, session: Session) -> None:
        session.report_end()
        session.close()
        session.output.remove()
        records.remove(self._folder, session.key, "json", "exit")

    def _publish(self, session: Session) -> None:
        """Write the record of a running command, and its output to a file, for other processes."""
        record = records.Record(
            key=session.key,
            id=session.id,
            owner=session.owner,
            text=session.launch.shown,
            cwd=session.launch.cwd,
            pid=session.pid,
            since=session.running.since,
            started=session.started,
            detached=session.launch.detach,
            terminal=session.launch.size,
            keeper=os.getpid(),
        )
        with suppress(OSError):
            records.write(self._folder, record)
            session.is_published = True
        if session.exit is None:
            session.output.to_file()

    def _unpublish(self, session: Session) -> None:
        """Remove the record of a command that has ended, and the file unless the output is long."""
        if session.launch.detach:
            return
        if session.is_published:
            session.is_published = False
            records.remove(self._folder, session.key, "json")
        session.output.settle()
