"""Jobs while things go wrong: processes that die, and faults of stores, clocks and jobs."""

from __future__ import annotations

import asyncio
import subprocess
from collections import Counter
from pathlib import Path
from typing import Any

import apsw
import pytest
from msgspec.structs import replace
from tests.cli.asking import PROGRAM
from tests.cron.clock import START_MS, Bench

from clawkit.config.sections.gateway import Cron
from clawkit.cron.jobs import Job, Pacing
from clawkit.cron.outcome import Outcome
from clawkit.cron.schedule import CronExpr
from clawkit.cron.store import CronRun, CronStore, Ending, JobRow
from clawkit.errors import ToolError, ToolInputError

MINUTE, HOUR, DAY = 60_000, 3_600_000, 86_400_000

_PROGRAM = """
import asyncio, os, signal, sys
from pathlib import Path
from tests.cron.clock import START_MS, Bench
from clawkit.cron.outcome import Outcome
from clawkit.cron.store import CronStore

place, step, when = Path(sys.argv[1]), sys.argv[2], sys.argv[3]
bench = Bench(place)

def note(text):
    fd = os.open(place / "notes", os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
    os.write(fd, (text + "\\n").encode())
    os.close(fd)

def deadly(call):
    def wrapped(*given, **more):
        if when == "before":
            os.kill(os.getpid(), signal.SIGKILL)
        call(*given, **more)
        os.kill(os.getpid(), signal.SIGKILL)
    return wrapped

def tries(name):
    return (place / "notes").read_text().count("ran " + name) if (place / "notes").exists() else 0

def answer(job, run):
    count = tries(job.name)
    note("ran " + job.name)
    if step == "work":
        os.kill(os.getpid(), signal.SIGKILL)
    if job.name == "retried" and not count:
        return Outcome("error", error="no route", reason="network")
    if job.name == "broken":
        return Outcome("error", error="no key", reason="auth")
    return Outcome("ok", "the answer of " + job.name)

async def deliver(job, run, text, to):
    if step == "deliver" and when == "before":
        os.kill(os.getpid(), signal.SIGKILL)
    note("sent " + text.partition("\\n")[0])
    if step == "deliver":
        os.kill(os.getpid(), signal.SIGKILL)
    return "receipt"

bench.worker.answers, bench.worker.deliver = answer, deliver
if hasattr(CronStore, step):
    setattr(CronStore, step, deadly(getattr(CronStore, step)))
asyncio.run(bench.run(START_MS + 3 * 3_600_000))
"""


def run_process(place: Path, step: str = "", when: str = "") -> int:
    given = [*PROGRAM, "-c", _PROGRAM, str(place), step, when]
    return subprocess.run(given, check=False).returncode


STEPS = [
    (step, when)
    for step in ("plan", "take", "begin", "finish", "record", "deliver")
    for when in ("before", "after")
]


@pytest.mark.usefixtures("ready")
@pytest.mark.parametrize(("step", "when"), [*STEPS, ("work", "")])
@pytest.mark.parametrize("name", ["asked", "retried", "broken", "hourly"])
def test_a_process_may_be_killed_at_any_step(
    tmp_path: Path, name: str, step: str, when: str
) -> None:
    bench = Bench(tmp_path)
    schedule = {"every": "1h"} if name == "hourly" else {"at": "2026-01-01T01:00:00Z"}
    id_ = bench.add(name=name, delivery="announce", **schedule)
    assert run_process(tmp_path, step, when) == -9
    assert run_process(tmp_path) == 0
    notes = Counter((tmp_path / "notes").read_text().splitlines())
    runs = bench.store.history(id_, 100)[0]
    by_slot = Counter(run.slot_ms for run in runs if run.slot_ms)
    assert set(by_slot.values()) == {1}
    assert {run.status for run in runs} <= {"ok", "error", "interrupted", "skipped"}
    assert not [run for run in runs if run.unsettled or run.delivery in ("pending", "sending")]
    begun = [run for run in runs if run.begun]
    assert notes[f"ran {name}"] <= len(begun) <= notes[f"ran {name}"] + 1
    answers = notes[f"sent the answer of {name}"]
    shown = Counter(run.delivery for run in runs)
    assert shown["delivered"] <= answers <= shown["delivered"] + shown["unknown"]
    assert shown["unknown"] <= 1
    failed = [run for run in runs if run.status in ("error", "interrupted")]
    assert bool(failed) == bool(
        [each for each in notes if each.startswith(f"sent The job '{name}' f")]
    )
    row = bench.store.get(id_)
    interrupted = [run for run in runs if run.status == "interrupted"]
    if name == "hourly":
        assert row is not None
        assert row.state.consecutive_errors == 0
    elif name == "broken" or interrupted:
        assert row is not None
        assert not row.job.enabled
        assert row.state.consecutive_errors == len(failed)
    else:
        assert row is None
        assert notes[f"ran {name}"] == (2 if name == "retried" else 1)


async def test_an_answer_is_sent_once_if_the_store_fails_right_after_that(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    bench = Bench(tmp_path)
    bench.add(every="1h", delivery="announce")
    path, deliver = tmp_path / "cron.sqlite", bench.worker.deliver

    async def fail_after(*given: Any) -> str:
        receipt = await deliver(*given)
        path.chmod(0o644)  # refused from now on
        return receipt

    monkeypatch.setattr(bench.worker, "deliver", fail_after)
    bench.clock.on_sleep = lambda: path.chmod(0o600)
    await bench.run(START_MS + HOUR + MINUTE)
    assert bench.worker.sent == [("announce", "done")]
    assert bench.store.history()[0][0].delivery == "delivered"


async def test_a_run_waits_if_it_cannot_be_recorded_that_it_begins(tmp_path: Path) -> None:
    bench = Bench(tmp_path)
    bench.add(at="2026-01-01T01:00:00Z", name="once")
    path, work = tmp_path / "cron.sqlite", bench.worker.work
    tries = list[str]()

    async def refuse(row: JobRow, run: CronRun, begin: Any) -> Outcome:
        tries.append(run.id)
        if len(tries) == 1:
            path.chmod(0o644)
        return await work(row, run, begin)

    bench.worker.work = refuse  # type: ignore[method-assign]
    bench.clock.on_sleep = lambda: path.chmod(0o600)
    await bench.run(START_MS + 2 * HOUR)
    assert [name for name, _, _ in bench.worker.done] == ["once"]
    assert len(tries) == 2
    assert [run.status for run in bench.store.history()[0]] == ["ok"]


async def test_a_run_that_another_process_has_ended_stays_so(tmp_path: Path) -> None:
    bench = Bench(tmp_path)
    bench.add(every="1h", delivery="announce")

    def lose(_job: Job, run: CronRun) -> Outcome:
        for each in (tmp_path / "cron-owners").iterdir():
            each.unlink()
        other = CronStore(str(tmp_path / "cron.sqlite"))
        with other.owning() as owner:
            (found,) = other.orphans(bench.clock.ms)
            other.record(replace(found, status="interrupted", owner=owner, ended_ms=1))
        return Outcome("ok", "too late")

    bench.worker.answers = lose
    await bench.run(START_MS + HOUR + MINUTE)
    assert [run.status for run in bench.store.history()[0]] == ["interrupted"]
    assert bench.worker.sent == []


async def test_an_unknown_zone_stops_its_job_and_no_other_one_and_is_reported(
    tmp_path: Path,
) -> None:
    bench = Bench(tmp_path)
    id_ = bench.add(name="lost", cron="0 * * * *", tz="UTC", exact=True)
    bench.add(name="other", every="1h")

    def move(row: JobRow) -> Any:
        schedule = CronExpr("0 * * * *", "Mars/Olympus", 0)
        return replace(row.job, schedule=schedule), row.state, row.planned_ms, row.next_ms

    bench.store.change(id_, move)
    await bench.run(START_MS + 2 * HOUR)
    assert [name for name, _, _ in bench.worker.done] == ["other", "other"]
    row = bench.store.get(id_)
    assert row is not None
    assert not row.job.enabled
    assert "Mars/Olympus" in row.state.auto_disabled
    assert [text for _, text in bench.worker.sent if "'lost' is now disabled" in text]


async def test_a_damaged_job_stops_no_other_one(tmp_path: Path) -> None:
    bench = Bench(tmp_path)
    damaged = bench.add(name="damaged", every="1h")
    bench.add(name="other", every="1h")
    with apsw.Connection(str(tmp_path / "cron.sqlite")) as db:
        db.execute("UPDATE job SET definition = x'00' WHERE id = ?", (damaged,))
    await bench.run(START_MS + 2 * HOUR)
    assert [name for name, _, _ in bench.worker.done] == ["other", "other"]
    assert [each["name"] for each in bench.jobs.list()["jobs"]] == ["other"]


async def test_a_run_with_a_damaged_record_does_not_hold_up_its_job(tmp_path: Path) -> None:
    bench = Bench(tmp_path)
    id_ = bench.add(every="1h")
    bench.store.queue(CronRun("first", id_, None, "event", "queued", START_MS + HOUR))
    with apsw.Connection(str(tmp_path / "cron.sqlite")) as db:
        db.execute("UPDATE run SET record = x'00'")
    await bench.run(START_MS + 2 * HOUR)
    assert [slot for _, slot, _ in bench.worker.done] == [None, START_MS + 2 * HOUR]


async def test_answers_that_wait_for_a_busy_session_do_not_hold_up_other_jobs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    bench = Bench(tmp_path, Cron(max_concurrent_runs=2))
    free = asyncio.Event()

    async def wait(*_given: Any) -> str:
        await free.wait()
        return "receipt"

    monkeypatch.setattr(bench.worker, "deliver", wait)
    for number in range(4):
        bench.add(name=f"told {number}", every="1h", delivery="announce")
    bench.add(name="quiet", every="1h")
    await bench.run(START_MS + HOUR + MINUTE)
    assert len(bench.worker.done) == 5


async def test_a_failed_delivery_keeps_a_job_for_one_time(tmp_path: Path) -> None:
    bench = Bench(tmp_path)
    id_ = bench.add(at="2026-01-01T01:00:00Z", delivery="announce")
    bench.worker.undeliverable = "no such session"
    await bench.run(START_MS + 2 * HOUR)
    shown = bench.jobs.get(id_)
    assert (shown["enabled"], shown["lastRunStatus"]) == (False, "error")
    assert shown["state"]["lastError"] == "delivery failed: no such session"
    assert len(bench.worker.done) == 1


async def test_an_interrupted_job_for_one_time_runs_again_if_it_says_so(tmp_path: Path) -> None:
    bench = Bench(tmp_path)
    id_ = bench.add(at="2026-01-01T01:00:00Z", retryInterrupted=True)
    with bench.store.owning() as owner:
        bench.store.queue(CronRun("first", id_, START_MS + HOUR, "schedule", "queued", START_MS))
        (run,) = bench.store.take(owner, START_MS, 1)
        bench.store.begin(run)
    await bench.run(START_MS + MINUTE)
    assert [why for _, _, why in bench.worker.done] == ["retry"]


async def test_a_manual_run_that_fails_does_not_use_up_the_time_of_a_job(tmp_path: Path) -> None:
    bench = Bench(tmp_path)
    id_ = bench.add(at="2026-01-02T01:00:00Z")
    outcomes = iter([Outcome("error", error="x", reason="network"), *[Outcome("ok", "x")] * 3])
    bench.worker.answers = lambda _job, _run: next(outcomes)
    bench.jobs.run(id_, "force")
    await bench.run(START_MS + 3 * DAY)
    assert [why for _, _, why in bench.worker.done] == ["manual", "schedule"]


async def test_a_manual_run_that_waits_does_not_stand_for_a_slot(tmp_path: Path) -> None:
    bench = Bench(tmp_path)
    id_ = bench.add(at="2026-01-01T01:00:00Z")
    bench.jobs.run(id_, "force")
    bench.clock.ms = START_MS + HOUR  # nothing ran jobs until then
    await bench.run(START_MS + 2 * HOUR)
    assert sorted(why for _, _, why in bench.worker.done) == ["manual", "schedule"]
    assert bench.store.get(id_) is None


async def test_a_new_time_replaces_the_retry_of_the_old_one(tmp_path: Path) -> None:
    bench = Bench(tmp_path)
    id_ = bench.add(at="2026-01-01T01:00:00Z", deleteAfterRun=False)
    outcomes = iter([Outcome("error", error="x", reason="network"), *[Outcome("ok", "x")] * 3])
    bench.worker.answers = lambda _job, _run: next(outcomes)
    await bench.run(START_MS + HOUR + 1_000)
    bench.jobs.update(id_, {"at": "2026-01-01T01:00:10Z"}, by="operator")
    await bench.run(START_MS + 2 * HOUR)
    assert [(slot, why) for _, slot, why in bench.worker.done] == [
        (START_MS + HOUR, "schedule"),
        (START_MS + HOUR + 10_000, "schedule"),
    ]


async def test_a_job_whose_time_has_passed_is_not_enabled_silently(tmp_path: Path) -> None:
    bench = Bench(tmp_path)
    id_ = bench.add(at="2026-01-01T01:00:00Z", deleteAfterRun=False)
    await bench.run(START_MS + 2 * HOUR)
    with pytest.raises(ToolInputError, match="in the past"):
        bench.jobs.update(id_, {"enabled": True}, by="operator")
    bench.jobs.update(id_, {"enabled": True, "at": "2026-01-01T03:00:00Z"}, by="operator")
    await bench.run(START_MS + 4 * HOUR)
    assert len(bench.worker.done) == 2


async def test_a_job_that_is_disabled_for_its_failures_runs_no_more(tmp_path: Path) -> None:
    bench = Bench(tmp_path)
    id_ = bench.add(every="1h")
    bench.worker.answers = lambda _job, _run: Outcome("error", error="x")
    for number in range(12):
        bench.store.queue(CronRun(f"event {number}", id_, None, "event", "queued", START_MS))
    await bench.run(START_MS + MINUTE)
    assert len(bench.worker.done) == 10


async def test_what_was_chosen_while_the_clock_was_ahead_does_not_hold_a_job_up(
    tmp_path: Path,
) -> None:
    bench = Bench(tmp_path)
    id_ = bench.add(name="paced", every="1h", pacing={"min": MINUTE, "max": 3 * HOUR})
    bench.add(name="once", at="2026-01-01T05:00:00Z")

    def answer(job: Job, _run: CronRun) -> Outcome:
        if job.name == "once" and bench.clock.ms > START_MS + 300 * DAY:
            return Outcome("error", error="x", reason="network")
        if bench.clock.ms > START_MS + 300 * DAY:
            bench.jobs.next_check(id_, 2 * HOUR)
        return Outcome("ok", "x")

    bench.worker.answers = answer
    bench.clock.ms = START_MS + 3_650 * DAY
    await bench.run(START_MS + 3_650 * DAY + 5 * MINUTE)
    bench.clock.ms = START_MS + HOUR
    bench.worker.done.clear()
    await bench.run(START_MS + 4 * HOUR)
    assert len([each for each in bench.worker.done if each[0] == "paced"]) == 3
    row = bench.store.get(id_)
    assert row is not None
    assert row.job.pacing == Pacing(MINUTE, 3 * HOUR)
    assert row.next_ms == START_MS + 5 * HOUR


def test_unsettled_runs_are_not_deleted(tmp_path: Path) -> None:
    bench = Bench(tmp_path)
    id_ = bench.add(every="1h")
    with bench.store.owning() as owner:
        for number in range(2):
            bench.store.queue(CronRun(f"{number}", id_, None, "manual", "queued", START_MS))
            (run,) = bench.store.take(owner, START_MS, 1)
            over = replace(run, status="ok", ended_ms=START_MS, unsettled=number == 0)
            bench.store.record(over)
        bench.store.queue(CronRun("last", id_, None, "manual", "queued", START_MS))
        (last,) = bench.store.take(owner, START_MS, 1)
        done = replace(last, status="ok", ended_ms=START_MS + 8 * DAY)
        bench.store.finish(
            last, lambda row: Ending(done, (row.job, row.state, 0, None) if row else None)
        )
    assert {run.id for run in bench.store.history()[0]} == {"0", "last"}


def test_a_full_disk_is_an_error(tmp_path: Path) -> None:
    bench = Bench(tmp_path)
    bench.add(every="1h")
    with bench.store._database.using() as db:
        db.pragma("max_page_count", 1)
    with pytest.raises(ToolError, match="full"):
        bench.add(every="1h", message="x" * 20_000)
