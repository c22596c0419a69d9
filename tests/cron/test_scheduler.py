"""The scheduler with a simulated clock, and with processes that are killed."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
import time
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace
from tests.cron.clock import START_MS, Bench
from tests.scale import FULL, scaled

from clawkit.config.sections.gateway import Cron, FailureAlert
from clawkit.cron.jobs import Job
from clawkit.cron.outcome import BACKOFF_MS, Outcome
from clawkit.cron.schedule import next_after
from clawkit.cron.scheduler import Scheduler
from clawkit.cron.store import CronRun, CronStore

SECOND, MINUTE, HOUR, DAY = 1_000, 60_000, 3_600_000, 86_400_000


def slots(bench: Bench, name: str = "job") -> list[int | None]:
    return [slot for each, slot, _ in bench.worker.done if each == name]


def statuses(bench: Bench) -> list[str]:
    return [run.status for run in reversed(bench.store.history(limit=1_000)[0])]


async def test_twenty_years_of_jobs_run_every_slot_once(tmp_path: Path) -> None:
    bench, years = Bench(tmp_path), scaled(20)
    end_ms = START_MS + round(years * 365.25 * DAY)
    schedules: dict[str, dict[str, Any]] = {
        "daily": {"cron": "30 2 * * *", "tz": "Europe/Vienna", "exact": True},
        "weekly": {"cron": "0 9 * * MON", "tz": "America/New_York"},
        "leap": {"cron": "0 0 29 2 *", "tz": "UTC", "exact": True},
        "monthly": {"cron": "15 3 1 * *", "tz": "Australia/Lord_Howe"},
        "often": {"every": "40h"},
        "once": {"at": "2026-12-24T18:00:00Z"},
    }
    ids = {name: bench.add(name=name, **given) for name, given in schedules.items()}
    expected: dict[str, list[int]] = {}
    for name, id_ in ids.items():
        row, found, at = bench.store.get(id_), [], START_MS
        assert row is not None
        while (slot := next_after(row.job.schedule, at, id_)) is not None and slot <= end_ms:
            found.append(slot)
            at = slot
        expected[name] = found
    await bench.run(end_ms)
    assert {name: slots(bench, name) for name in ids} == expected
    assert len(expected["daily"]) >= 365 * years
    assert expected["once"]
    assert bench.store.get(ids["once"]) is None  # it is done
    assert len(bench.store.history(ids["often"], 10_000)[0]) <= 2_001  # old runs are forgotten


async def test_a_job_that_was_missed_is_caught_up_with_once_and_the_rest_is_skipped(
    tmp_path: Path,
) -> None:
    bench = Bench(tmp_path)
    bench.add(cron="0 * * * *", tz="UTC", exact=True)
    await bench.run(START_MS + 2 * HOUR)
    bench.clock.ms = START_MS + 7 * HOUR + 20 * MINUTE  # nothing ran for five hours
    await bench.run(START_MS + 8 * HOUR)
    hours = [(slot or 0) - START_MS for slot in slots(bench)]
    assert hours == [HOUR, 2 * HOUR, 7 * HOUR, 8 * HOUR]
    assert [why for _, _, why in bench.worker.done] == [
        "schedule",
        "schedule",
        "catch-up",
        "schedule",
    ]
    skipped = [run for run in bench.store.history()[0] if run.status == "skipped"]
    assert [(run.slot_ms, run.record.slots, run.record.reason) for run in skipped] == [
        (START_MS + 3 * HOUR, 4, "missed")
    ]
    caught = next(run for run in bench.store.history()[0] if run.why == "catch-up")
    assert caught.due_ms < START_MS + 7 * HOUR + 21 * MINUTE + SECOND  # within a minute


@pytest.mark.parametrize(
    ("settings", "away_ms"), [(Cron(skip_missed_jobs=True), 5 * HOUR), (Cron(), 3 * DAY)]
)
async def test_missed_jobs_are_not_caught_up_with_if_not_wanted_or_too_late(
    tmp_path: Path, settings: Cron, away_ms: int
) -> None:
    bench = Bench(tmp_path, settings)
    bench.add(every="4d" if away_ms > DAY else "2h")
    start = START_MS + (4 * DAY if away_ms > DAY else 2 * HOUR)
    bench.clock.ms = start + away_ms
    await bench.run(bench.clock.ms)
    assert bench.worker.done == []
    assert statuses(bench) == ["skipped"]


async def test_the_next_slot_follows_from_the_last_one_and_not_from_the_time(
    tmp_path: Path,
) -> None:
    bench = Bench(tmp_path)
    bench.add(every="1h")
    bench.clock.ms = START_MS + HOUR + 13 * SECOND  # a restart that took a while
    await bench.run(START_MS + 2 * HOUR)
    assert slots(bench) == [START_MS + HOUR, START_MS + 2 * HOUR]


async def test_nothing_runs_twice_when_the_clock_is_set_back(tmp_path: Path) -> None:
    bench = Bench(tmp_path)
    bench.add(every="10m")
    await bench.run(START_MS + 30 * MINUTE)
    bench.clock.ms = START_MS + 5 * MINUTE
    await bench.run(START_MS + 50 * MINUTE)
    assert Counter(slots(bench)).most_common(1)[0][1] == 1
    assert slots(bench)[-1] == START_MS + 50 * MINUTE


async def test_a_clock_that_was_far_ahead_does_not_hold_a_job_up(tmp_path: Path) -> None:
    bench = Bench(tmp_path)
    bench.add(every="1d")
    bench.clock.ms = START_MS + 3_650 * DAY
    await bench.run(START_MS + 3_651 * DAY)
    count = len(bench.worker.done)
    bench.clock.ms = START_MS + DAY + HOUR
    await bench.run(START_MS + 4 * DAY)
    assert slots(bench)[count:] == [START_MS + 2 * DAY, START_MS + 3 * DAY, START_MS + 4 * DAY]


async def test_a_job_does_not_overlap_itself_and_late_slots_coalesce(tmp_path: Path) -> None:
    bench, gate = Bench(tmp_path), asyncio.Event()

    async def slow() -> Outcome:
        await gate.wait()
        return Outcome("ok", "slow")

    bench.worker.answers = lambda _job, run: (
        slow() if run.slot_ms == START_MS + MINUTE else Outcome("ok", "x")
    )
    bench.add(every="1m")
    asyncio.get_running_loop().call_later(0.2, gate.set)
    running = asyncio.ensure_future(bench.run(START_MS + 5 * MINUTE))
    await running
    done = [run.status for run in reversed(bench.store.history()[0])]
    assert bench.worker.done[0][1] == START_MS + MINUTE
    assert len(bench.worker.done) == len(set(bench.worker.done))
    assert "skipped" in done or len(done) == 5
    reasons = {run.record.reason for run in bench.store.history()[0] if run.status == "skipped"}
    assert reasons <= {"coalesced"}


async def test_a_job_may_overlap_itself_if_configured(tmp_path: Path) -> None:
    bench, gate = Bench(tmp_path), asyncio.Event()

    async def slow() -> Outcome:
        await gate.wait()
        return Outcome("ok", "slow")

    bench.worker.answers = lambda _job, _run: slow()
    bench.add(every="1m", overlap=True)
    await bench.run(START_MS + 3 * MINUTE)
    assert len(bench.worker.done) == 3  # three at once: none of them has ended


async def test_runs_are_bounded_and_in_order(tmp_path: Path) -> None:
    bench = Bench(tmp_path, Cron(max_concurrent_runs=3))
    now, most = 0, 0

    async def work() -> Outcome:
        nonlocal now, most
        now += 1
        most = max(most, now)
        await asyncio.sleep(0)
        now -= 1
        return Outcome("ok", "x")

    bench.worker.answers = lambda _job, _run: work()
    count = scaled(1_000)
    for number in range(count):
        bench.add(name=f"job {number:04}", at="2026-01-01T00:01:00Z")
    await bench.run(START_MS + 2 * MINUTE)
    assert [name for name, _, _ in bench.worker.done] == [f"job {n:04}" for n in range(count)]
    assert most == 3


async def test_a_failing_job_backs_off_is_reported_once_per_cause_and_is_disabled(
    tmp_path: Path,
) -> None:
    bench = Bench(tmp_path)
    id_ = bench.add(every="10s")
    causes = iter(["no key 1", "no key 2", "no disk", *["no disk"] * 20])
    bench.worker.answers = lambda _job, _run: Outcome("error", error=next(causes))
    await bench.run(START_MS + 2 * DAY)
    gaps = [
        b - a
        for (_, a, _), (_, b, _) in zip(bench.worker.done, bench.worker.done[1:], strict=False)
        if a and b
    ]
    assert len(bench.worker.done) == 10
    assert all(gap >= least - 10_000 for gap, least in zip(gaps, BACKOFF_MS, strict=False))
    reports = [text.partition("\n")[0] for _, text in bench.worker.sent]
    assert reports == [
        "The job 'job' failed: no key 1",
        "The job 'job' failed, 3 times in a row: no disk",
        "The job 'job' failed, 10 times in a row: no disk",
    ]
    row = bench.store.get(id_)
    assert row is not None
    assert not row.job.enabled
    assert row.state.auto_disabled == "10 failures in a row"
    assert row.next_ms is None
    assert "clawkit cron enable" in bench.worker.sent[-1][1]


async def test_a_recovery_is_reported(tmp_path: Path) -> None:
    bench = Bench(tmp_path)
    bench.add(every="1h")
    outcomes = iter([Outcome("error", error="down"), *[Outcome("ok", "fine")] * 9])
    bench.worker.answers = lambda _job, _run: next(outcomes)
    await bench.run(START_MS + 3 * HOUR)
    assert [text for _, text in bench.worker.sent] == [
        "The job 'job' failed: down",
        "The job 'job' works again.",
    ]


async def test_alerts_go_on_with_a_cooldown_if_they_are_enabled(tmp_path: Path) -> None:
    alert = FailureAlert(enabled=True, after=2, cooldown_ms=3 * HOUR)
    bench = Bench(tmp_path, Cron(failure_alert=alert))
    bench.add(every="1h")
    bench.worker.answers = lambda _job, _run: Outcome("error", error="down")
    await bench.run(START_MS + 8 * HOUR)
    # The first failure, then every three hours.
    assert [text.count("times in a row") for _, text in bench.worker.sent] == [0, 1, 1]


async def test_failures_are_reported_as_the_job_or_else_the_settings_say(
    tmp_path: Path,
) -> None:
    bench = Bench(tmp_path, Cron(failure_alert=FailureAlert(mode="announce", to="alerts")))
    bench.add(name="plain", every="1h")
    bench.add(name="own", every="1h", delivery={"mode": "none", "failureDestination": {"to": "me"}})
    bench.worker.answers = lambda _job, _run: Outcome("error", error="down")
    await bench.run(START_MS + HOUR)
    assert sorted(bench.worker.sent) == [
        ("alerts", "The job 'plain' failed: down"),
        ("me", "The job 'own' failed: down"),
    ]


async def test_one_run_is_carried_out_alone(tmp_path: Path) -> None:
    bench = Bench(tmp_path)
    wanted, other = (bench.add(name=name, every="1h") for name in ("wanted", "other"))
    ids = [bench.jobs.run(id_, "force")["runId"] for id_ in (other, wanted)]
    scheduler = Scheduler(bench.store, bench.worker, lambda: bench.settings, bench.clock)
    await scheduler.run_one(ids[1])
    await scheduler.run_one(ids[1])
    assert [name for name, _, _ in bench.worker.done] == ["wanted"]
    assert bench.store.owners() == []
    assert bench.store.withdraw(ids[0])
    assert not bench.store.withdraw(ids[1])
    assert statuses(bench) == ["ok"]


async def test_a_job_for_one_time_tries_again_only_after_passing_errors(tmp_path: Path) -> None:
    bench = Bench(tmp_path)
    kept = bench.add(name="broken", at="2026-01-01T01:00:00Z")
    bench.add(name="soon", at="2026-01-01T01:00:00Z")
    tries: Counter[str] = Counter()

    def answer(job: Job, _run: CronRun) -> Outcome:
        tries[job.name] += 1
        if job.name == "soon" and tries["soon"] > 2:
            return Outcome("ok", "at last")
        return Outcome("error", error="x", reason="network" if job.name == "soon" else "invalid")

    bench.worker.answers = answer
    await bench.run(START_MS + 2 * HOUR)
    assert tries == {"soon": 3, "broken": 1}
    row = bench.store.get(kept)
    assert row is not None
    assert not row.job.enabled
    assert row.state.last_error == "x"
    assert [row.job.name for row in bench.store.all()] == ["broken"]


async def test_delivery_is_another_outcome_than_the_run(tmp_path: Path) -> None:
    bench = Bench(tmp_path)
    id_ = bench.add(every="1h", delivery="announce")
    texts = iter(["hello", "NO_REPLY", "lost", "HEARTBEAT_OK all is well"])
    bench.worker.answers = lambda _job, _run: Outcome("ok", next(texts))
    await bench.run(START_MS + 2 * HOUR)
    bench.worker.undeliverable = "no such session"
    await bench.run(START_MS + 4 * HOUR)
    found = [(run.status, run.delivery) for run in reversed(bench.store.history()[0])]
    assert found == [
        ("ok", "delivered"),
        ("ok", "silent"),
        ("ok", "not-delivered"),
        ("ok", "silent"),
    ]
    assert len(bench.worker.done) == 4  # the failed delivery did not repeat its turn
    row = bench.store.get(id_)
    assert row is not None
    assert row.state.delivery_suppression_reason == "silent"
    lost = bench.store.history()[0][1].record
    assert lost.delivery_error == "no such session"


async def test_a_failed_delivery_fails_the_job_unless_it_is_best_effort(tmp_path: Path) -> None:
    bench = Bench(tmp_path)
    ids = [
        bench.add(name=str(best), every="1h", delivery={"mode": "announce", "bestEffort": best})
        for best in (False, True)
    ]
    bench.worker.undeliverable = "gone"
    await bench.run(START_MS + HOUR)
    rows = [bench.store.get(id_) for id_ in ids]
    assert [row.state.last_run_status for row in rows if row] == ["error", "ok"]


async def test_a_job_that_removes_or_changes_itself_while_it_runs(tmp_path: Path) -> None:
    bench = Bench(tmp_path)
    gone, changed = bench.add(name="gone", every="1h"), bench.add(name="changed", every="1h")

    def answer(job: Job, _run: CronRun) -> Outcome:
        if job.name == "gone":
            bench.jobs.remove(gone)
        elif len(bench.worker.done) < 3:
            bench.jobs.update(changed, {"every": "2h"}, by="operator")
        return Outcome("ok", "x")

    bench.worker.answers = answer
    await bench.run(START_MS + 5 * HOUR)
    assert slots(bench, "gone") == [START_MS + HOUR]
    assert slots(bench, "changed") == [START_MS + each * HOUR for each in (1, 3, 5)]
    assert statuses(bench).count("ok") == 4


async def test_a_run_chooses_its_next_time_within_its_pacing(tmp_path: Path) -> None:
    bench = Bench(tmp_path)
    id_ = bench.add(every="1h", pacing={"min": 10 * MINUTE, "max": 3 * HOUR})
    wishes = iter([MINUTE, 20 * MINUTE, DAY, 0, 0, 0])

    def answer(_job: Job, _run: CronRun) -> Outcome:
        if wish := next(wishes):
            bench.jobs.next_check(id_, wish)
        return Outcome("ok", "x")

    bench.worker.answers = answer
    await bench.run(START_MS + 5 * HOUR)
    times = [
        round((run.due_ms - START_MS) / MINUTE)
        for run in reversed(bench.store.history()[0])
        if run.status == "ok"
    ]
    assert times == [60, 70, 90, 270, 300]


async def test_a_manual_run_leaves_the_schedule_alone(tmp_path: Path) -> None:
    bench = Bench(tmp_path)
    id_ = bench.add(every="1h")
    assert bench.jobs.run(id_)["reason"] == "not-due"
    assert bench.jobs.run(id_, "force")["ran"] is True
    await bench.run(START_MS + HOUR)
    assert bench.worker.done == [("job", None, "manual"), ("job", START_MS + HOUR, "schedule")]
    bench.jobs.update(id_, {"enabled": False}, by="operator")
    assert bench.jobs.run(id_, "if-enabled")["reason"] == "disabled"


async def test_nothing_runs_while_jobs_are_disabled(tmp_path: Path) -> None:
    bench = Bench(tmp_path, Cron(enabled=False))
    bench.add(every="1h")
    await bench.run(START_MS + 3 * HOUR)
    assert bench.worker.done == []


async def test_runs_of_a_dead_process_are_interrupted_or_restarted(tmp_path: Path) -> None:
    bench = Bench(tmp_path)
    ids = [
        bench.add(name=name, every="1h", delivery="announce")
        for name in ("new", "begun", "sent", "tried")
    ]
    with bench.store.owning() as owner:
        bench.clock.ms = START_MS + HOUR
        runs = {}
        for id_ in ids:
            row = bench.store.get(id_)
            assert row is not None
            bench.store.queue(
                CronRun(
                    f"run {row.job.name}",
                    id_,
                    START_MS + HOUR,
                    "schedule",
                    "queued",
                    bench.clock.ms,
                )
            )
            bench.store.change(
                id_, lambda row: (row.job, row.state, START_MS + HOUR, START_MS + 2 * HOUR)
            )
        for run in bench.store.take(owner, bench.clock.ms, 9):
            runs[run.id] = run
        bench.store.begin(runs["run begun"])
        for name, state in (("sent", "pending"), ("tried", "sending")):
            over: Any = replace(
                runs[f"run {name}"],
                status="ok",
                ended_ms=bench.clock.ms,
                delivery=state,
                unsettled=True,
            )
            bench.store.record(over)
    await bench.run(START_MS + HOUR + MINUTE)
    found = {run.id: run for run in bench.store.history()[0]}
    assert [name for name, _, _ in bench.worker.done] == ["new"]
    assert found["run begun"].status == "interrupted"
    assert found["run sent"].delivery == "delivered"
    assert found["run tried"].delivery == "unknown"
    assert any("its process ended" in text for _, text in bench.worker.sent)


async def test_an_interrupted_job_runs_again_if_configured(tmp_path: Path) -> None:
    bench = Bench(tmp_path)
    id_ = bench.add(every="1h", retryInterrupted=True)
    row = bench.store.get(id_)
    assert row is not None
    with bench.store.owning() as owner:
        bench.store.queue(CronRun("first", id_, None, "manual", "queued", START_MS))
        (run,) = bench.store.take(owner, START_MS, 1)
        bench.store.begin(run)
    await bench.run(START_MS + MINUTE)
    assert [why for _, _, why in bench.worker.done] == ["retry"]


async def test_a_store_that_cannot_be_used_for_a_while_loses_no_outcome(tmp_path: Path) -> None:
    bench = Bench(tmp_path)
    bench.add(every="1h")
    path, refused = tmp_path / "cron.sqlite", list[str]()

    def answer(_job: Job, _run: CronRun) -> Outcome:
        path.chmod(0o644)  # refused from now on
        return Outcome("ok", "kept")

    def mend() -> None:
        if path.stat().st_mode & 0o077:
            refused.append("once")
            path.chmod(0o600)

    bench.worker.answers, bench.clock.on_sleep = answer, mend
    await bench.run(START_MS + HOUR + 30 * MINUTE)
    run = bench.store.history()[0][0]
    assert (run.status, run.record.summary, refused) == ("ok", "kept", ["once"])


_PROGRAM = """
import asyncio, os, sys, time
from clawkit.config.sections.gateway import Cron
from clawkit.cron.outcome import Outcome
from clawkit.cron.scheduler import Scheduler
from clawkit.cron.store import CronStore

class Worker:
    async def work(self, row, run, begin):
        begin()
        fd = os.open(sys.argv[2], os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
        os.write(fd, f"{row.job.id} {run.slot_ms} {run.id}\\n".encode())
        os.close(fd)
        await asyncio.sleep(0.05)
        return Outcome("ok", "x")
    async def deliver(self, job, run, text, place):
        return "receipt"
    def tell(self, action, row, run=None):
        pass

asyncio.run(Scheduler(CronStore(sys.argv[1]), Worker(), lambda: Cron(max_concurrent_runs=8)).run())
"""


def start(tmp_path: Path) -> subprocess.Popen[bytes]:
    given = [str(tmp_path / "cron.sqlite"), str(tmp_path / "ran")]
    return subprocess.Popen([sys.executable, "-c", _PROGRAM, *given], env=dict(os.environ))


@pytest.mark.long
@pytest.mark.timeout(600)
def test_killed_processes_lose_and_repeat_no_run(tmp_path: Path) -> None:
    """200 runs a minute by two processes, one of which is killed again and again."""
    seconds, between_s = (300, 10) if FULL else (12, 2)
    now_ms = time.time_ns() // 1_000_000
    bench = Bench(tmp_path, now_ms=now_ms)
    ids = [bench.add(name=f"job {number}", every="3s", delivery="announce") for number in range(10)]
    end = time.monotonic() + seconds
    processes, kills = [start(tmp_path), start(tmp_path)], 0
    try:
        while time.monotonic() < end:
            time.sleep(between_s)
            victim = processes.pop(0)
            victim.send_signal(signal.SIGKILL)
            victim.wait()
            kills += 1
            processes.append(start(tmp_path))
        for id_ in ids:
            bench.jobs.update(id_, {"enabled": False}, by="operator")
        wait_until = time.monotonic() + 60
        while time.monotonic() < wait_until and bench.store.active():
            time.sleep(0.2)
    finally:
        for process in processes:
            process.kill()
            process.wait()
    ran = [tuple(line.split()[:2]) for line in (tmp_path / "ran").read_text().splitlines()]
    assert [each for each, count in Counter(ran).items() if count > 1] == []
    runs, total = bench.store.history(limit=1_000_000)
    assert total == len(runs)
    assert runs
    covered: Counter[str] = Counter()
    unnoted = 0
    for run in runs:
        assert run.status in ("ok", "skipped", "interrupted"), run
        covered[run.job] += run.record.slots
        is_noted = (run.job, str(run.slot_ms)) in ran
        assert is_noted or run.status != "ok"
        unnoted += run.status == "interrupted" and not is_noted
    assert unnoted <= kills  # each may come between the beginning of one run and the note of it
    for id_ in ids:  # every slot up to the last planned one has exactly one outcome
        row = bench.store.get(id_)
        assert row is not None
        last = max(run.slot_ms or 0 for run in runs if run.job == id_)
        anchor: Any = row.job.schedule
        assert covered[id_] == (last - anchor.anchor_ms) // anchor.every_ms


def test_a_process_that_starts_while_another_one_works_takes_nothing_from_it(
    tmp_path: Path,
) -> None:
    store = CronStore(str(tmp_path / "cron.sqlite"))
    bench = Bench(tmp_path)
    bench.add(every="1h")
    id_ = bench.store.all()[0].job.id
    with store.owning() as owner:
        store.queue(CronRun("first", id_, None, "manual", "queued", START_MS))
        assert len(store.take(owner, START_MS, 5)) == 1
        other = CronStore(str(tmp_path / "cron.sqlite"))
        with other.owning() as second:
            assert other.take(second, START_MS, 5) == []
            assert other.orphans(START_MS) == []
    assert [run.id for run in store.orphans(START_MS)] == []  # its work had not begun
    assert store.history()[0][0].status == "queued"


async def test_many_runs_of_one_job_do_not_hold_up_others(tmp_path: Path) -> None:
    bench = Bench(tmp_path, Cron(max_concurrent_runs=2))
    many, other = bench.add(name="many", every="1h"), bench.add(name="other", every="1h")
    for number in range(5):
        bench.store.queue(CronRun(f"many {number}", many, None, "manual", "queued", START_MS))
    bench.store.queue(CronRun("other", other, None, "manual", "queued", START_MS + 1))
    with bench.store.owning() as owner:
        assert [run.id for run in bench.store.take(owner, START_MS + 1, 2)] == ["many 0", "other"]


async def test_every_outcome_also_goes_to_the_completion_destination(tmp_path: Path) -> None:
    bench = Bench(tmp_path)
    place = {"mode": "webhook", "to": "https://example.com/done"}
    bench.add(every="1h", delivery={"mode": "announce", "completionDestination": place})
    await bench.run(START_MS + HOUR)
    assert bench.worker.sent == [("announce", "done"), ("https://example.com/done", "done")]
