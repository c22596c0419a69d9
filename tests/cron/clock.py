"""A clock that jumps to the next time with something to do, and a worker that takes notes."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from pathlib import Path
from typing import Any

from clawkit.config.sections.gateway import Cron
from clawkit.cron.jobs import Destination, Job
from clawkit.cron.outcome import Outcome
from clawkit.cron.scheduler import Scheduler
from clawkit.cron.service import CronService
from clawkit.cron.store import CronRun, CronStore, JobRow
from clawkit.errors import ToolError

START_MS = 1_767_225_600_000  # 2026-01-01T00:00:00Z


class SimulatedClock:
    """Ends at `end_ms`, by setting `is_over`."""

    def __init__(self, now_ms: int = START_MS, end_ms: int = START_MS) -> None:
        self.ms, self.end_ms = now_ms, end_ms
        self.is_over = asyncio.Event()
        self.on_sleep: Callable[[], None] = lambda: None

    def now_ms(self) -> int:
        return self.ms

    async def sleep(
        self, until_ms: int | None, event: asyncio.Event, has_news: Callable[[], bool]
    ) -> None:
        self.on_sleep()
        for _ in range(3):  # let runs that have begun go on
            await asyncio.sleep(0)
        if event.is_set() or has_news():
            return
        if until_ms is None or until_ms > self.end_ms:
            self.ms = max(self.ms, self.end_ms)
            self.is_over.set()
            await event.wait()
        else:
            self.ms = max(self.ms, until_ms)


class NotingWorker:
    """Says what it is told to; notes what it did and sent."""

    def __init__(self) -> None:
        self.done: list[tuple[str, int | None, str]] = []
        self.sent: list[tuple[str, str]] = []
        self.told: list[str] = []
        self.answers: Callable[[Job, CronRun], Any] = lambda _job, _run: Outcome("ok", "done")
        self.undeliverable = ""

    async def work(self, row: JobRow, run: CronRun, begin: Callable[[], None]) -> Outcome:
        begin()
        self.done.append((row.job.name, run.slot_ms, run.why))
        found = self.answers(row.job, run)
        if asyncio.iscoroutine(found):
            found = await found
        outcome: Outcome = found
        return outcome

    async def deliver(self, job: Job, run: CronRun, text: str, destination: Destination) -> str:
        if self.undeliverable:
            raise ToolError(self.undeliverable)
        self.sent.append((destination.to or destination.mode, text))
        return "receipt"

    def tell(self, action: str, row: JobRow, run: CronRun | None = None) -> None:
        self.told.append(f"{action} {row.job.name}")


class Bench:
    """A store, a scheduler and what it does."""

    def __init__(self, path: Path, settings: Cron | None = None, now_ms: int = START_MS) -> None:
        self.store = CronStore(str(path / "cron.sqlite"))
        self.clock, self.worker = SimulatedClock(now_ms, now_ms), NotingWorker()
        self.settings = settings or Cron()
        self.jobs = CronService(self.store, self.settings, self.clock.now_ms)

    def add(self, **job: Any) -> str:
        given = {"name": "job", "message": "go", "sessionTarget": "isolated", "delivery": "none"}
        id_: str = self.jobs.add({**given, **job}, by="operator")["id"]
        return id_

    async def run(self, until_ms: int) -> None:
        """Run jobs until a time."""
        self.clock.end_ms = until_ms
        self.clock.is_over = asyncio.Event()
        scheduler = Scheduler(self.store, self.worker, lambda: self.settings, self.clock)
        task = asyncio.ensure_future(scheduler.run())
        over = asyncio.ensure_future(self.clock.is_over.wait())
        await asyncio.wait({task, over}, return_when=asyncio.FIRST_COMPLETED)
        task.cancel()
        over.cancel()
        await asyncio.wait({task, over})
        if not task.cancelled():
            task.result()
