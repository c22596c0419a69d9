"""Ten thousand jobs: their cost while none is due, and the delay of a due one."""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable

from bench.figure import Figure
from clawkit.config.sections.gateway import Cron
from clawkit.cron.jobs import Destination, Job
from clawkit.cron.outcome import Outcome
from clawkit.cron.scheduler import Scheduler, SystemClock
from clawkit.cron.service import CronService
from clawkit.cron.store import CronRun, CronStore, JobRow

JOBS, IDLE_S, ROUNDS = 10_000, 20.0, 15


class _Worker:
    def __init__(self) -> None:
        self.begun: list[float] = []

    async def work(self, row: JobRow, run: CronRun, begin: Callable[[], None]) -> Outcome:
        begin()
        self.begun.append(time.time() - (run.slot_ms or run.due_ms) / 1000)
        return Outcome("ok", "x")

    async def deliver(self, job: Job, run: CronRun, text: str, place: Destination) -> str:
        return "receipt"

    def tell(self, action: str, row: JobRow, run: CronRun | None = None) -> None:
        pass


def measure() -> list[Figure]:
    with tempfile.TemporaryDirectory(prefix="clawkit-bench-") as place:
        path = os.path.join(place, "home", "cron.sqlite")
        _fill(path)
        # A separate process, so that its memory is that of the jobs.
        code = "import sys; from bench.cron import serve; serve(sys.argv[1])"
        args = [sys.executable, "-c", code, path]
        done = subprocess.run(args, capture_output=True, text=True, check=True)
    idle, changed_ms, late_ms, memory_mb = map(float, done.stdout.split())
    return [
        Figure("cron: idle with 10,000 jobs", idle * 100, "% of a core", 0.1),
        Figure("cron: a job is rescheduled", changed_ms, "ms", 5),
        Figure("cron: a due job starts after", late_ms, "ms", 50),
        Figure("cron: memory for 10,000 jobs", memory_mb, "MB", 20),
    ]


def _fill(path: str) -> None:
    store = CronStore(path)
    jobs = CronService(store, Cron(), SystemClock().now_ms)
    for number in range(JOBS):
        every = {"kind": "cron", "expr": f"{number % 60} {number // 60 % 24} 1 1 *", "tz": "UTC"}
        jobs.add({"name": f"job {number}", "schedule": every, "message": "x"}, by="operator")
    store.close()


def serve(path: str) -> None:
    """Measure in this process, and print the figures."""
    before = _memory_mb()
    print(*asyncio.run(_serve(path)), _memory_mb() - before)


async def _serve(path: str) -> tuple[float, float, float]:
    store, worker = CronStore(path), _Worker()
    jobs = CronService(store, Cron(), SystemClock().now_ms)
    scheduler = Scheduler(store, worker, Cron)
    running = asyncio.ensure_future(scheduler.run())
    await asyncio.sleep(2)
    used, began = time.process_time(), time.monotonic()
    await asyncio.sleep(IDLE_S)
    idle = (time.process_time() - used) / (time.monotonic() - began)
    id_ = store.find("job 77").job.id
    changes = []
    for number in range(ROUNDS):
        start = time.perf_counter()
        jobs.update(id_, {"cron": f"{number} 3 1 1 *", "tz": "UTC"}, by="operator")
        changes.append(time.perf_counter() - start)
    for _ in range(ROUNDS):
        count = len(worker.begun)
        jobs.add({"at": "+300ms", "message": "x", "delivery": "none"}, by="operator")
        scheduler.wake()
        while len(worker.begun) == count:  # noqa: ASYNC110  # a flag would cost what is measured
            await asyncio.sleep(0.01)
    running.cancel()
    await asyncio.wait({running})
    return idle, sorted(changes)[ROUNDS // 2] * 1e3, sorted(worker.begun)[ROUNDS // 2] * 1e3


def _memory_mb() -> float:
    with open("/proc/self/status", encoding="ascii") as file:
        found = next(line for line in file if line.startswith("VmHWM"))
    return int(found.split()[1]) / 1024
