"""Jobs that wait for a command: until it exits, or for lines that it prints."""

from __future__ import annotations

import asyncio
import logging
import os
import shlex
import time
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from typing import TYPE_CHECKING, Any

from msgspec import UNSET
from msgspec.structs import replace

from clawkit.cron.jobs import Job
from clawkit.cron.schedule import OnExit, Stream
from clawkit.cron.store import After, CronRun, JobRow, new_run
from clawkit.errors import ClawkitError, ConflictError, ToolError, ToolInputError
from clawkit.gateway.protocol import GatewayError, now_ms
from clawkit.process.protocols import Commands
from clawkit.redact.redactor import compile_pattern
from clawkit.store import hold_lock
from clawkit.text import one_line, printable, quote
from clawkit.tools._commands import owner_of

if TYPE_CHECKING:
    from clawkit.gateway.job_runner import JobRunner
    from clawkit.process.command import Command

LOOK_S = 1.0
AGAIN_S = 1.0
"""Delay before a command that exited is restarted."""
SHORT_S, MAX_SHORT = 60.0, 5
"""A stream is disabled after this many commands in a row that took less time."""
MAX_LINE, MAX_OUTPUT = 16_384, 64 * 1024**2
MAX_READ = 64 * 1024
"""Bytes read per round; a command that keeps printing faster is stopped when its output reaches
`MAX_OUTPUT`."""
MAX_TAIL = 4_000
LOST = "[The gateway ended while it watched the command, so the outcome is unknown.]"

log = logging.getLogger(__name__)


class Watches:
    """Runs one command for each enabled job that waits for one; the first process to lock it
    wins."""

    def __init__(self, job_runner: JobRunner) -> None:
        self._job_runner, self._store = job_runner, job_runner.store
        self._tasks: dict[tuple[str, str], asyncio.Task[None]] = {}
        self._is_stale = True
        self._is_closing = False

    def look(self) -> None:
        """Request a check of the jobs: one has changed, or its command has ended."""
        self._is_stale = True

    @property
    def running(self) -> int:
        return len(self._tasks)

    async def run(self) -> None:
        """Keep the commands in sync with the jobs, until cancelled."""
        seen = -1
        try:
            while True:
                try:
                    if seen != (seen := self._store.data_version()) or self._is_stale:
                        self._is_stale = False
                        self._adjust()
                except ToolError as error:
                    log.warning("jobs that wait for commands: %s", error)
                await asyncio.sleep(LOOK_S)
        finally:
            self._is_closing = True
            for task in self._tasks.values():
                task.cancel()
            if self._tasks:
                await asyncio.wait(set(self._tasks.values()))

    def _adjust(self) -> None:
        is_on = self._job_runner.settings.enabled
        rows = [row for row in self._store.events() if row.job.enabled] if is_on else []
        wanted = {(row.job.id, row.job.revision): row for row in rows}
        for key in self._tasks.keys() - wanted.keys():
            self._tasks[key].cancel()
        for key in wanted.keys() - self._tasks.keys():
            self._tasks[key] = task = asyncio.ensure_future(self._watch(wanted[key]))
            task.add_done_callback(partial(self._ended, key))

    def _ended(self, key: tuple[str, str], _task: asyncio.Task[None]) -> None:
        self._tasks.pop(key, None)
        self.look()

    async def _watch(self, row: JobRow) -> None:
        """Task root of one job."""
        place = os.path.join(
            os.path.dirname(self._store.path), "cron-owners", f"watch-{row.job.id}"
        )
        try:
            with hold_lock(place, "the command of a job"):
                match row.job.schedule:
                    case OnExit() as schedule:
                        await self._until_exit(row, schedule)
                    case Stream() as schedule:
                        await self._follow(row, schedule)
        except ConflictError:
            await asyncio.sleep(LOOK_S)  # another process holds it
        except (ClawkitError, GatewayError) as error:
            self._disable(row.job, str(error))
        except asyncio.CancelledError:
            if not self._is_closing and isinstance(row.job.schedule, OnExit):
                # Disabled or changed: the command was not lost.
                with suppress(ClawkitError):
                    self._store.change(row.job.id, _noting(stream_last_started_at_ms=UNSET))
            raise

    async def _change(
        self, job: Job, edit: Callable[[JobRow], After], run: CronRun | None = None
    ) -> None:
        """Change a job, retrying until the store can be used."""
        while True:
            try:
                self._store.change(job.id, edit, run=run)
                return
            except ToolInputError:  # removed in the meantime
                raise
            except ToolError as error:
                log.warning("a job that waits for a command: %s", error)
                await asyncio.sleep(AGAIN_S)

    def _disable(self, job: Job, why: str) -> None:
        def disable(row: JobRow) -> After:
            state = replace(row.state, auto_disabled=why, last_error=why, last_run_status="error")
            return replace(row.job, enabled=False), state, row.planned_ms, None

        with suppress(ClawkitError):  # removed in the meantime
            self._job_runner.changed("updated", self._store.change(job.id, disable))

    async def _until_exit(self, row: JobRow, schedule: OnExit) -> None:
        found = self._store.get(row.job.id)
        state = found.state if found else row.state
        if state.stream_last_started_at_ms is not UNSET and state.stream_last_exit_at_ms is UNSET:
            await self._emit(row, LOST)
            return
        began = _noting(stream_last_started_at_ms=now_ms(), stream_last_exit_at_ms=UNSET)
        await self._change(row.job, began)
        async with self._job_runner.toolkit(row.job, "exec") as kit:
            command = await self._begin(kit, schedule.command, schedule.cwd)
            exit_ = await command.wait()
            tail = command.output.tail(MAX_TAIL)
            how = "ended" if exit_ is None else f"exited: {exit_.reason}, code {exit_.code}"
            redact = kit.run.redactor.text
        said = quote(redact(printable(tail.decode("utf-8", "replace"))))
        await self._emit(
            row,
            f"[The command {one_line(schedule.command, 200)} {how}. Its output ends:]\n{said}",
        )

    async def _emit(self, row: JobRow, text: str) -> None:
        """Queue the single run of a job that waits for an exit."""

        def emit(row: JobRow) -> After:
            state = replace(row.state, stream_last_exit_at_ms=now_ms())
            return replace(row.job, enabled=False), state, row.planned_ms, None

        await self._change(row.job, emit, new_run(row, "event", now_ms(), text))
        self._job_runner.scheduler.wake()

    async def _begin(self, kit: Any, command: str, cwd: str) -> Command:
        """Start a command in the background, like the tool `exec`. Raises `ToolError`."""
        given = {"command": command, "workdir": cwd, "background": True, "timeout": 0}
        result = await kit.call("exec", given)
        id_ = result.details.get("sessionId")
        if result.is_error or not isinstance(id_, str):
            raise ToolError(f"the command could not be started: {one_line(result.as_text(), 500)}")
        found: Command = kit.run.services[Commands].get(owner_of(kit.run.scope), id_)
        return found

    async def _follow(self, row: JobRow, schedule: Stream) -> None:
        """Restart the command of a stream whenever it ends, unless that happens too often."""
        shorts = 0
        while shorts < MAX_SHORT:
            began = time.monotonic()
            await self._change(row.job, _noting(stream_last_started_at_ms=now_ms()))
            async with self._job_runner.toolkit(row.job, "exec") as kit:
                command = await self._begin(kit, shlex.join(schedule.command), schedule.cwd)
                await self._read(row, schedule, command, kit.run.redactor.text)
            await self._change(row.job, _noting(stream_last_exit_at_ms=now_ms()))
            shorts = shorts + 1 if time.monotonic() - began < SHORT_S else 0
            await asyncio.sleep(AGAIN_S)
        self._disable(row.job, f"its command ended {MAX_SHORT} times within {SHORT_S:g} seconds")

    async def _read(self, row: JobRow, schedule: Stream, command: Command, redact: Any) -> None:
        pattern = compile_pattern(schedule.match) if schedule.mode == "match" else None
        at, rest = 0, b""
        while command.output.size < MAX_OUTPUT:
            await command.wait_for_news(at, 3_600.0)
            if command.exit is None and command.output.size - at < MAX_READ:
                await asyncio.sleep(schedule.batch_ms / 1000)
            is_over = command.exit is not None
            data = await command.output.read(at, min(MAX_READ, command.output.size - at))
            at += len(data)
            is_over = is_over and at >= command.output.size
            *lines, rest = (rest + data).split(b"\n")
            if is_over or len(rest) > MAX_LINE:
                lines, rest = [*lines, rest], b""
            whole = b"\n".join(line[:MAX_LINE] for line in lines).decode("utf-8", "replace")
            texts = redact(printable(whole)).split("\n")
            found = [
                text for text in texts if text.strip() and (not pattern or pattern.search(text))
            ]
            if found:
                await self._add(row, schedule, found)
            if is_over:
                return
            await asyncio.sleep(0)

    async def _add(self, row: JobRow, schedule: Stream, lines: list[str]) -> None:
        """Queue one run per batch; a waiting run takes further batches while they fit."""
        room, batch = schedule.max_batch_bytes, list[str]()
        for line in lines:
            if (room := room - len(line.encode()) - 1) < 0:
                break
            batch.append(line)
        how, is_cut = "dropped", len(batch) < len(lines)
        try:
            said = quote("\n".join(batch))
            how = self._store.add_event(row, said, now_ms(), schedule.max_batch_bytes)
        except ToolError as error:  # the store cannot be used: continue the stream
            log.warning("lines of a stream are lost: %s", error)

        def count(row: JobRow) -> After:
            dropped = row.state.stream_dropped_batches + (how == "dropped" or is_cut)
            coalesced = row.state.stream_coalesced_batches + (how == "coalesced")
            state = replace(
                row.state, stream_dropped_batches=dropped, stream_coalesced_batches=coalesced
            )
            return row.job, state, row.planned_ms, row.next_ms

        if how != "queued" or is_cut:
            await self._change(row.job, count)
        self._job_runner.scheduler.wake()


def _noting(**changes: Any) -> Callable[[JobRow], After]:
    def note(row: JobRow) -> After:
        return row.job, replace(row.state, **changes), row.planned_ms, row.next_ms

    return note
