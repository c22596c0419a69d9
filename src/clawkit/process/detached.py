"""Commands that another clawkit process started: stopping them, and following detached ones."""

from __future__ import annotations

import asyncio
import os
import time
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from typing import NamedTuple

from clawkit.core.tasks import in_thread
from clawkit.errors import ToolError, ToolInputError
from clawkit.process import process_table, records
from clawkit.process.protocols import Exit, Left
from clawkit.process.records import Record
from clawkit.process.spool import Spool
from clawkit.text import printable

ASK_S = 5.0
"""Between SIGTERM and SIGKILL."""
_STEP_S, _STEP_MAX_S = 0.03, 0.2
_LOOK_S = 0.25
_NOT_PERMITTED = "not permitted to signal them: they run as another user"
_HANGS = "they are stuck in the kernel"

Progress = Callable[[Sequence[Left], bool], None]
"""Called with what is still running, and whether it is still within the grace period."""


class Outcome(NamedTuple):
    """The result of stopping or signalling a command."""

    record: Record
    reached: tuple[Left, ...]
    """Its processes that are gone, or got the signal."""
    left: tuple[Left, ...] = ()
    problem: str = ""
    """Why some are left."""


def living(record: Record, processes: process_table.Table) -> dict[int, process_table.Process]:
    """The living processes of a command, even if its first process has ended."""
    return _Ending(record).look(processes)


def end(
    records_: Iterable[Record], *, grace_s: float = ASK_S, progress: Progress | None = None
) -> list[Outcome]:
    """Terminate commands and everything they started concurrently, and kill what remains after
    `grace_s`. Blocks until nothing is left, or what is left cannot be killed."""
    begun = time.monotonic()
    endings = [_Ending(record) for record in records_]
    for each in endings:
        each.end(grace_s)
    while True:
        processes = process_table.table()
        waited = time.monotonic() - begun
        for each in endings:
            each.step(processes)
        missing = [each for each in endings if each.outcome is None]
        if not missing:
            return [each.outcome for each in endings if each.outcome is not None]
        if progress is not None:
            progress([left for each in missing for left in each.left], waited < grace_s)
        time.sleep(min(_STEP_S + waited / 20, _STEP_MAX_S))


def send(record: Record, number: int) -> Outcome:
    """Signal a command and everything it started."""
    processes = process_table.table()
    found = living(record, processes)
    if problem := _check_outside(found):
        return Outcome(record, (), _names(found), problem)
    refused = {pid: each for pid, each in found.items() if not _may_signal(pid)}
    reached = {pid: each for pid, each in found.items() if pid not in refused}
    process_table.send(number, reached, processes)
    return Outcome(record, _names(reached), _names(refused), _NOT_PERMITTED if refused else "")


class _Ending(process_table.Escalation):
    """One command that is being stopped."""

    def __init__(self, record: Record) -> None:
        super().__init__()
        self.record = record
        self.outcome: Outcome | None = None
        self._known: dict[int, process_table.Process] = {}
        self._now: dict[int, process_table.Process] = {}
        self._saw_leader = False
        self._empty_looks = 0

    @property
    def left(self) -> tuple[Left, ...]:
        return _names(self._now)

    def look(self, processes: process_table.Table) -> dict[int, process_table.Process]:
        """Its living processes.

        If its first process exists, or did at an earlier look, its session belongs to the command.
        If it never did, the session id may have been reused by unrelated processes: then only
        tagged processes count.
        """
        record = self.record
        if record.pid <= 1 or record.since <= 0 or not record.is_here:
            return {}
        leader = processes.get(record.pid)
        self._saw_leader |= leader is not None and leader.started == record.since
        found: set[int] = set()
        if self._saw_leader:
            found = process_table.members(
                record.pid, record.key, 0, processes, (), started=record.since
            )
        roots = {pid for pid, each in self._known.items() if _is_same(each, processes.get(pid))}
        roots |= {
            pid
            for pid, each in processes.items()
            if pid > 1
            and pid not in found
            and each.started >= record.since
            and process_table.is_tagged(pid, record.key)
        }
        found |= process_table.family(roots, processes)
        self._now = {pid: processes[pid] for pid in sorted(found) if not processes[pid].gone}
        self._known |= self._now
        return self._now

    def step(self, processes: process_table.Table) -> None:
        if self.outcome is not None:
            return
        found = self.look(processes)
        if not found:
            # A process that started while the table was read is seen at the second look.
            self._empty_looks += 1
            if self._empty_looks > 1:
                self._finish("")
            return
        self._empty_looks = 0
        if problem := _check_outside(found):
            self._finish(problem)
        elif not any(map(_may_signal, found)):
            self._finish(_NOT_PERMITTED)
        elif not self.escalate(self.record.pid, found, processes, time.monotonic()):
            self._finish(_HANGS)

    def _finish(self, problem: str) -> None:
        gone = {pid: each for pid, each in self._known.items() if pid not in self._now}
        self.outcome = Outcome(self.record, _names(gone), self.left, problem)


def _is_same(known: process_table.Process, now: process_table.Process | None) -> bool:
    return now is not None and now.started == known.started


def _check_outside(found: Iterable[int]) -> str:
    """Refuse to stop the command that this process belongs to: we would be killed before the
    others are."""
    return "it runs this program; stop it from outside" if os.getpid() in found else ""


def _may_signal(pid: int) -> bool:
    try:
        with suppress(ProcessLookupError):
            os.kill(pid, 0)
    except PermissionError:
        return False
    return True


def _names(found: dict[int, process_table.Process]) -> tuple[Left, ...]:
    return tuple(Left(pid, printable(each.name, "")) for pid, each in found.items())


class DetachedRunning:
    """A detached command that another clawkit process started; that process may be gone."""

    can_write = False
    terminal = None

    def __init__(self, folder: str, record: Record) -> None:
        self._folder, self._record = folder, record
        self._left: dict[int, process_table.Process] | None = None
        self.pid, self.since = record.pid, record.since
        path = records.place_of(folder, record.key, "log")
        try:
            os.close(records.open_file(folder, record.key, "log"))
            self.output = Spool.of_file(path)
        except OSError:
            self.output = Spool(path)

    @property
    def left(self) -> Sequence[Left]:
        if self._left is None:
            self._left = living(self._record, process_table.table())
        seen = {pid: process_table.look(pid) for pid in self._left}
        return tuple(
            Left(pid, printable(now.name, ""))
            for pid, now in seen.items()
            if now is not None and not now.gone and _is_same(self._left[pid], now)
        )

    async def wait(self) -> Exit:
        was_lost = False
        while True:
            exit_ = records.exit_of(self._folder, self._record)
            if exit_ is not None and (was_lost or exit_.reason != "lost"):
                return exit_
            # The exit file is written a moment after the process is gone.
            was_lost = exit_ is not None
            await asyncio.sleep(_LOOK_S)

    async def write(self, data: bytes, *, eof: bool = False) -> None:
        raise ToolInputError("its input is closed: it was started with detach")

    def resize(self, columns: int, rows: int) -> None:
        raise ToolInputError("it has no terminal")

    async def signal(self, number: int) -> None:
        _check(await in_thread(send, self._record, number), "reached by the signal")

    async def end(self, grace_s: float) -> None:
        """Raises `ToolError` if something cannot be stopped."""
        (outcome,) = await in_thread(end, [self._record], grace_s=grace_s)
        _check(outcome, "stopped")

    def close(self) -> None:
        self.output.close()


def _check(outcome: Outcome, what: str) -> None:
    if outcome.left:
        names = ", ".join(f"{each.name} (pid {each.pid})" for each in outcome.left[:5])
        raise ToolError(f"{names} could not be {what}: {outcome.problem}")
