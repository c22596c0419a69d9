"""Runs jobs when they are due: one loop that sleeps until the next slot."""

from __future__ import annotations

import asyncio
import hashlib
import logging
import time
from collections.abc import Callable, Coroutine
from contextlib import suppress
from functools import partial
from typing import Any, Protocol, TypeVar

from msgspec.structs import replace

from clawkit.config.sections.gateway import Cron
from clawkit.cron.jobs import Destination, Job, JobState
from clawkit.cron.outcome import (
    MAX_SCHEDULE_ERRORS,
    Outcome,
    conclude,
    settled,
)
from clawkit.cron.schedule import last_before, next_after
from clawkit.cron.store import CronRun, CronRunRecord, CronStore, JobRow, new_run
from clawkit.errors import ClawkitError, ConflictError, ToolError

POLL_S, SWEEP_S = 1.0, 60.0
"""Interval for checking changes by other processes, and dead processes."""
LATE_MS, MAX_LATE_MS = 60_000, 86_400_000
"""A slot counts as missed after the first time, and is no longer caught up after the second."""
SPREAD_MS = 60_000
"""Missed runs start spread over this time, not all at once."""
BATCH = 500
AGAIN_MS = 5_000
"""Retry interval if the store cannot be used."""
INTERRUPTED = Outcome(
    "error",
    error="its process ended before it was done",
    reason="interrupted",
    is_interrupted=True,
)

log = logging.getLogger(__name__)
T = TypeVar("T")


class _NotBegunError(ClawkitError):
    """The store cannot be used, so the run must not start."""


class CronClock(Protocol):
    """The clock, replaceable by tests."""

    def now_ms(self) -> int:
        """Milliseconds since the epoch."""

    async def sleep(
        self, until_ms: int | None, event: asyncio.Event, has_news: Callable[[], bool]
    ) -> None:
        """Return when the time is reached, the event is set, or there is news; may also return
        spuriously."""


class SystemClock:
    """The clock of the machine. It can be set, and stops during suspend, so sleeps are short."""

    def now_ms(self) -> int:
        return time.time_ns() // 1_000_000

    async def sleep(
        self, until_ms: int | None, event: asyncio.Event, has_news: Callable[[], bool]
    ) -> None:
        end = time.monotonic() + SWEEP_S
        while (left_s := end - time.monotonic()) > 0:
            if until_ms is not None:
                left_s = min(left_s, (until_ms - self.now_ms()) / 1000)
            with suppress(TimeoutError):
                async with asyncio.timeout(min(POLL_S, left_s)):
                    await event.wait()
            is_due = until_ms is not None and self.now_ms() >= until_ms
            if is_due or event.is_set() or has_news():
                return


class JobWorker(Protocol):
    """Does the work of a run. Implemented by the layer that creates agents."""

    async def work(self, row: JobRow, run: CronRun, begin: Callable[[], None]) -> Outcome:
        """Do the work; must call `begin` before any action that must not be repeated."""

    async def deliver(self, job: Job, run: CronRun, text: str, destination: Destination) -> str:
        """Send text somewhere, and return a receipt. Raises `ToolError` if it did not arrive."""

    def tell(self, action: str, row: JobRow, run: CronRun | None = None) -> None:
        """Notify clients of a change of a job: added, updated, removed, started or finished."""


class Scheduler:
    """Runs the jobs of a store. Several processes can do so concurrently; each run happens once."""

    def __init__(
        self,
        store: CronStore,
        worker: JobWorker,
        settings: Callable[[], Cron],
        clock: CronClock | None = None,
    ) -> None:
        self._store, self._worker, self._settings = store, worker, settings
        self._clock: CronClock = clock or SystemClock()
        self._changed = asyncio.Event()
        self._tasks: dict[str, asyncio.Task[None]] = {}
        self._working = set[str]()
        """The runs that are still working; other `_tasks` wait for a delivery."""
        self._owner = ""
        self._is_closing = False

    def wake(self) -> None:
        """Check the jobs now, after a change in this process."""
        self._changed.set()

    @property
    def running(self) -> int:
        return len(self._tasks)

    def pause(self) -> None:
        """Start no more runs: this process is about to end."""
        self._is_closing = True

    async def run(self) -> None:
        """Run jobs until cancelled, which interrupts running ones."""
        with self._store.owning() as self._owner:
            try:
                await self._loop()
            finally:
                self._is_closing = True
                for task in self._tasks.values():
                    task.cancel()
                if self._tasks:
                    await asyncio.wait(set(self._tasks.values()))

    async def run_one(self, id_: str) -> None:
        """Execute only one queued run. Cancelling this fails the run."""
        with self._store.owning() as self._owner:
            for run in self._store.take(self._owner, self._clock.now_ms(), 1, id_):
                if (row := self._store.get(run.job)) is not None:
                    await self._carry_out(row, run)

    async def _loop(self) -> None:
        swept_ms = 0
        while True:
            now_ms, seen = self._clock.now_ms(), -1
            self._changed.clear()
            try:
                if abs(now_ms - swept_ms) >= SWEEP_S * 1000:
                    self._sweep(now_ms)
                    swept_ms = now_ms
                self._plan(now_ms)
                self._start(now_ms)
                seen, until_ms = self._store.data_version(), self._store.wake_ms(now_ms)
            except Exception as error:  # such as a full disk: temporary, and nothing is lost
                is_known = isinstance(error, ToolError)
                log.error("jobs cannot be run now: %s", error, exc_info=not is_known)
                until_ms = now_ms + AGAIN_MS
            await self._clock.sleep(until_ms, self._changed, partial(self._has_news, seen))

    def _has_news(self, version: int) -> bool:
        """Whether another process has changed the store."""
        try:
            return version != -1 and self._store.data_version() != version
        except ToolError:
            return False

    def _sweep(self, now_ms: int) -> None:
        """Handle runs that dead processes left behind."""
        for run in self._store.orphans(now_ms):
            row = self._store.get(run.job)
            over = self._end(row.job if row else None, run, INTERRUPTED)
            if over is not None and over.unsettled:
                self._spawn(over, self._settle(row.job if row else None, over))
        for run in self._store.unsettled(self._owner):
            row = self._store.get(run.job)
            self._spawn(run, self._settle(row.job if row else None, run))
        self._store.turn_back(now_ms)

    def _plan(self, now_ms: int) -> None:
        """Create runs for the slots that are due."""
        while due := self._store.due(now_ms, BATCH):
            planned = []
            for row in due:
                try:
                    planned.append(plan_job(row, now_ms, self._settings()))
                except (ValueError, OverflowError) as error:  # such as a removed time zone
                    self._fail_schedule(row, str(error), now_ms)
            self._store.plan(planned)

    def _fail_schedule(self, row: JobRow, why: str, now_ms: int) -> None:
        def fail(row: JobRow) -> tuple[Job, JobState, int, int | None]:
            count = row.state.schedule_error_count + 1
            state = replace(row.state, schedule_error_count=count, last_error=why)
            if count < MAX_SCHEDULE_ERRORS:
                return row.job, state, row.planned_ms, now_ms + LATE_MS
            state = replace(state, auto_disabled=f"its schedule cannot be read: {why}")
            return replace(row.job, enabled=False), state, row.planned_ms, None

        changed = self._store.change(row.job.id, fail)
        self._worker.tell("updated", changed)
        if changed.job.enabled:
            return
        said = f"The job {row.job.title!r} is now disabled: {changed.state.auto_disabled}"
        run = new_run(row, "schedule", now_ms)
        record = replace(run.record, error=why, reason="schedule", report=said)
        run = replace(run, status="error", ended_ms=now_ms, owner=self._owner, record=record)
        run = replace(run, unsettled=True)
        self._store.queue(run)
        self._spawn(run, self._settle(changed.job, run))

    def _start(self, now_ms: int) -> None:
        settings = self._settings()
        free = settings.max_concurrent_runs - len(self._working)
        if not settings.enabled or self._is_closing or free <= 0:
            return
        for run in self._store.take(self._owner, now_ms, free):
            if (row := self._store.get(run.job)) is None:
                self._store.record(replace(run, status="skipped", ended_ms=now_ms))
                continue
            self._working.add(run.id)
            self._spawn(run, self._carry_out(row, run))

    def _spawn(self, run: CronRun, work: Coroutine[None, None, None]) -> None:
        task = asyncio.ensure_future(work)
        self._tasks[run.id] = task
        task.add_done_callback(lambda task: self._ended(run.id, task))

    def _ended(self, id_: str, task: asyncio.Task[None]) -> None:
        self._tasks.pop(id_, None)
        self._working.discard(id_)
        self._changed.set()
        if not task.cancelled() and (error := task.exception()) is not None:
            log.error("a run could not be recorded: %s", error)

    async def _carry_out(self, row: JobRow, run: CronRun) -> None:
        """Task root of a run."""
        self._worker.tell("started", row, run)
        outcome = await self._work(row, run)
        over = await self._insist(lambda: self._end(row.job, run, outcome))
        self._working.discard(run.id)
        self._changed.set()
        if over is not None and over.unsettled:
            await self._settle(row.job, over)

    async def _work(self, row: JobRow, run: CronRun) -> Outcome:
        is_begun = False

        def begin() -> None:
            nonlocal is_begun
            try:
                if not is_begun:
                    self._store.begin(run)
            except ConflictError:
                raise
            except ToolError as error:
                raise _NotBegunError(str(error)) from error
            is_begun = True

        while True:
            try:
                return await self._worker.work(row, run, begin)
            except _NotBegunError as error:
                await self._wait(error)
            except ClawkitError as error:
                kind = "busy" if isinstance(error, ConflictError) else getattr(error, "kind", "")
                return Outcome("error", error=str(error), reason=kind)
            except asyncio.CancelledError:
                if self._is_closing:  # the next process handles it, as after a crash
                    raise
                return Outcome("error", error="it was stopped", reason="stopped")
            except Exception as error:  # a bug in a tool must not stop other jobs
                log.exception("a run failed")
                said = f"{type(error).__name__}: {error}"
                return Outcome("error", error=said, reason="internal")

    async def _insist(self, change: Callable[[], T]) -> T:
        """Change the store, retrying until it can be used, so that no outcome is lost."""
        while True:
            try:
                return change()
            except ToolError as error:
                await self._wait(error)

    async def _wait(self, error: Exception) -> None:
        log.error("a run must wait: %s", error)
        at_ms = self._clock.now_ms() + AGAIN_MS
        await self._clock.sleep(at_ms, asyncio.Event(), lambda: False)

    def _end(self, job: Job | None, run: CronRun, outcome: Outcome) -> CronRun | None:
        """Record the end of a run; None if another process already did."""
        now_ms, settings = self._clock.now_ms(), self._settings()
        mine = replace(run, owner=self._owner)
        done = self._store.finish(
            run, lambda row: conclude(job, row, mine, outcome, settings, now_ms)
        )
        if done is None:
            return None
        over, row = done
        if row is None and job is not None:
            row = JobRow(job, JobState(), 0, None)
        if row is not None:
            self._worker.tell("finished", row, over)
        return over

    async def _settle(self, job: Job | None, run: CronRun) -> None:
        """Handle the end of a run: its answer is sent at most once, other reports at least once."""
        if job is None:
            gone = replace(run.record, delivery_error="its job was removed")
            is_sent = run.delivery != "pending"
            run = run if is_sent else replace(run, delivery="not-delivered", record=gone)
        else:
            if run.record.report:
                await self._report(job, run, run.record.report)
                run = replace(run, record=replace(run.record, report=""))
            if run.delivery == "pending":
                run = await self._deliver(job, run)
            if (place := job.delivery.completion_destination) is not None:
                sent = run
                await self._insist(lambda: self._store.record(sent))
                await self._send(job, run, run.record.summary, place)
        over = replace(run, unsettled=False)
        row = await self._insist(lambda: self._store.record(over, lambda row: settled(row, over)))
        if job is not None:
            action = "updated" if row is not None else "removed"
            self._worker.tell(action, row or JobRow(job, JobState(), 0, None), over)

    async def _report(self, job: Job, run: CronRun, message: str) -> None:
        place, general = job.delivery.failure_destination, self._settings().failure_alert
        if job.failure_alert and job.failure_alert.mode:
            place = Destination(job.failure_alert.mode, to=job.failure_alert.to)
        elif place is None:
            place = Destination(general.mode or "announce", to=general.to or "")
        if problem := await self._send(job, run, message, place):
            log.error("the failure of a job could not be reported: %s", problem)

    async def _send(self, job: Job, run: CronRun, text: str, destination: Destination) -> str:
        """Returns the reason if it was not sent."""
        try:
            await self._worker.deliver(job, run, text, destination)
        except ClawkitError as error:
            return str(error)
        return ""

    async def _deliver(self, job: Job, run: CronRun) -> CronRun:
        """Deliver an answer once. The turn is never repeated for a delivery."""
        mode: Any = job.delivery.mode
        place = Destination(mode, job.delivery.channel, job.delivery.to)
        trying = replace(run, delivery="sending")
        await self._insist(lambda: self._store.record(trying))
        try:
            receipt = await self._worker.deliver(job, run, run.record.summary, place)
        except ClawkitError as error:
            record = replace(run.record, delivery_error=str(error))
            return replace(run, delivery="not-delivered", record=record)
        return replace(run, delivery="delivered", record=replace(run.record, receipt=receipt))


def plan_job(
    row: JobRow, now_ms: int, settings: Cron
) -> tuple[JobRow, list[CronRun], int, int | None]:
    """Plan the due slots of a job: the latest one runs, or is caught up if it was missed; the
    others are skipped. Raises ValueError for an invalid schedule."""
    job, after_ms = row.job, row.planned_ms
    found = last_before(job.schedule, after_ms, now_ms, job.id)
    if found is None:  # the last run chose this time, or the clock was set back
        run = replace(new_run(row, "schedule", now_ms), slot_ms=row.next_ms)
        runs = [run] if row.next_ms == row.state.next_check_ms else []
        return row, runs, after_ms, next_after(job.schedule, max(after_ms, now_ms), job.id)
    slot_ms, count = found
    due_ms = row.next_ms if row.next_ms is not None else slot_ms
    is_missed = now_ms - max(slot_ms, due_ms) > LATE_MS
    is_lost = is_missed and (settings.skip_missed_jobs or now_ms - slot_ms > MAX_LATE_MS)
    planned: list[CronRun] = []
    first_ms = slot_ms if count == 1 else next_after(job.schedule, after_ms, job.id) or slot_ms
    skipped = count if is_lost else count - 1
    if skipped:
        is_chosen = row.state.next_check_ms == row.next_ms
        reason = "backoff" if row.state.consecutive_errors else "pacing" if is_chosen else "overdue"
        reason = "missed" if is_missed else reason
        until_ms = slot_ms if is_lost else slot_ms - 1
        record = CronRunRecord(job.name, reason=reason, slots=skipped, until_ms=until_ms)
        gone = CronRun(
            "", job.id, first_ms, "schedule", "skipped", first_ms, ended_ms=now_ms, record=record
        )
        planned.append(replace(gone, id=f"skipped:{job.id}:{first_ms}"))
    if not is_lost:
        at_ms = now_ms + _spread_ms(job.id) if is_missed else now_ms
        run = new_run(row, "catch-up" if is_missed else "schedule", at_ms)
        planned.append(replace(run, slot_ms=slot_ms))
    return row, planned, slot_ms, next_after(job.schedule, slot_ms, job.id)


def _spread_ms(job_id: str) -> int:
    return int.from_bytes(hashlib.sha256(job_id.encode()).digest()[:4], "big") % SPREAD_MS
