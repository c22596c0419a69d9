"""Schedules: reading what models and people write, and the slots of each kind."""

from __future__ import annotations

import subprocess
import sys
from datetime import UTC, datetime
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from clawkit.cron.schedule import (
    MAX_AHEAD_MS,
    MAX_COUNTED,
    STAGGER_MS,
    At,
    CronExpr,
    Every,
    OnExit,
    Schedule,
    Stream,
    iso_time,
    last_before,
    next_after,
    read_schedule,
    stagger_of,
    write_schedule,
)
from clawkit.errors import ToolInputError

NOW = int(datetime(2026, 11, 18, 2, tzinfo=UTC).timestamp()) * 1_000
HOUR = 3_600_000
DAY = 24 * HOUR


@pytest.fixture(autouse=True)
def _own_home() -> None:
    """Nothing here looks at a home."""


@pytest.fixture(autouse=True)
def _zone_of_the_host(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TZ", "Europe/Vienna")


def ms(text: str) -> int:
    return round(datetime.fromisoformat(text).timestamp() * 1_000)


@pytest.mark.parametrize(
    ("raw", "expected"),
    [
        ({"at": "2026-11-20T09:00:00Z"}, At(ms("2026-11-20T09:00Z"))),
        ({"at": "2026-11-20T09:00"}, At(ms("2026-11-20T09:00Z"))),
        ({"at": "2026-11-20 09:00:00.250"}, At(ms("2026-11-20T09:00:00.250Z"))),
        ({"at": "2026-11-20T09:00", "tz": "Europe/Vienna"}, At(ms("2026-11-20T08:00Z"))),
        ({"at": "2026-11-20T09:00+05:30", "tz": "UTC"}, At(ms("2026-11-20T03:30Z"))),
        ({"at": "2027-03-28T02:30", "tz": "Europe/Vienna"}, At(ms("2027-03-28T01:00Z"))),
        ({"at": NOW + 5}, At(NOW + 5)),
        ({"atMs": f" {NOW + 5} "}, At(NOW + 5)),
        ({"at_ms": float(NOW)}, At(NOW)),
        ({"at": NOW - 60_000}, At(NOW - 60_000)),
        ({"at": NOW + MAX_AHEAD_MS}, At(NOW + MAX_AHEAD_MS)),
        ({"at": "in 20 minutes"}, At(NOW + 1_200_000)),
        ({"at": "+20m"}, At(NOW + 1_200_000)),
        ({"in": "20 minutes"}, At(NOW + 1_200_000)),
        ({"in": "In 1h30m"}, At(NOW + 5_400_000)),
        ({"in": 1_500}, At(NOW + 1_500)),
        ({"every": "30m"}, Every(1_800_000, NOW)),
        ({"every": "2 days"}, Every(2 * DAY, NOW)),
        ({"everyMs": 2_000, "anchorMs": 7}, Every(2_000, 7)),
        ({"every_ms": "60000", "cron": None}, Every(60_000, NOW)),
        ({" kind ": " Every ", "every": 1.8e6}, Every(1_800_000, NOW)),
        ({"cron": "0 9 * * 1-5"}, CronExpr("0 9 * * 1-5", "Europe/Vienna")),
        ({"expr": " 0  9 * * * ", "tz": "asia/tokyo"}, CronExpr("0 9 * * *", "Asia/Tokyo")),
        ({"cron": "@Daily", "tz": "UTC", "exact": True}, CronExpr("0 0 * * *", "UTC", 0)),
        ({"cron": "5 9 * * *", "tz": "UTC", "exact": False}, CronExpr("5 9 * * *", "UTC")),
        ({"cron": "@daily", "tz": "UTC", "stagger": "2m"}, CronExpr("0 0 * * *", "UTC", 120_000)),
        ({"expr": "@daily", "tz": "UTC", "staggerMs": 0}, CronExpr("0 0 * * *", "UTC", 0)),
        ({"cron": "*/2 * * * * *", "tz": "UTC"}, CronExpr("*/2 * * * * *", "UTC")),
        ({"kind": "on-exit", "command": " make "}, OnExit("make")),
        ({"kind": "on-exit", "command": "make", "cwd": "/a"}, OnExit("make", "/a")),
        ({"kind": "stream", "command": ["tail", "a b"]}, Stream(("tail", "a b"))),
        ({"kind": "stream", "command": "tail 'a b'"}, Stream(("tail", "a b"))),
        (
            {"kind": "stream", "command": ["a"], "cwd": "/b", "match": " x", "batchMs": 50},
            Stream(("a",), "/b", "match", " x", 50),
        ),
        (
            {"kind": "stream", "command": ["a"], "mode": "line", "maxBatchBytes": "1024"},
            Stream(("a",), max_batch_bytes=1_024),
        ),
    ],
)
def test_schedules_are_read_in_every_form(raw: dict[str, Any], expected: Schedule) -> None:
    read = read_schedule(raw, NOW)
    assert read == expected
    assert read_schedule(write_schedule(read), NOW) == expected
    assert msgspec.json.decode(msgspec.json.encode(read), type=Schedule) == expected


@pytest.mark.parametrize(
    ("raw", "problem"),
    [
        ({}, "give exactly one of at, in, every and cron, or a kind"),
        ({"command": "make"}, "or a kind"),
        ({"at": NOW, "every": "1h"}, "at and every are mixed here"),
        ({"kind": "evry"}, "unknown kind 'evry'; use every"),
        ({"kind": ["at"], "at": NOW}, "unknown kind"),
        ({"evry": "1h"}, "unknown key 'evry'; did you mean every?"),
        ({"quux": 1}, "unknown key 'quux'; did you mean anchorMs, at, "),
        ({7: 1}, "unknown key '7'"),
        ({"at": NOW, " at": NOW}, "'at' is given twice"),
        ({"kind": "every", "cron": "* * * * *"}, "'cron' does not go with kind 'every'"),
        ({"every": "1h", "tz": "UTC"}, "'tz' does not go with kind 'every'"),
        ({"at": NOW, "atMs": NOW}, "give only one of at and atMs"),
        ({"expr": "@daily", "cron": "@daily"}, "give only one of expr and cron"),
        ({"kind": "at"}, "'at' is missing"),
        ({"kind": "every"}, "'every' is missing"),
        ({"kind": "cron"}, "'expr' must be a cron expression"),
        ({"cron": 5}, "'expr' must be a cron expression"),
        ({"at": "yesterday"}, "cannot read the time 'yesterday'"),
        ({"at": "2026-02-30"}, "cannot read the time"),
        ({"at": "0001-01-01T00:00", "tz": "Asia/Tokyo"}, "is in the past"),
        ({"at": "9999-12-31T23:59", "tz": "America/New_York"}, "more than 10 years ahead"),
        ({"at": True}, "'at' must be a whole number of ms"),
        ({"at": [1]}, "'at' must be a whole number of ms"),
        ({"at": -5}, "'at' must be 0 to"),
        ({"at": "9" * 5_000}, "invalid time"),
        ({"at": NOW - 60_001}, "2026-11-18T01:58:59.999Z is in the past"),
        ({"at": "2020-01-01"}, "2020-01-01T00:00:00Z is in the past"),
        ({"at": NOW + MAX_AHEAD_MS + 1}, "more than 10 years ahead"),
        ({"in": "11 years"}, "invalid time '11 years'"),
        ({"in": "600w"}, "'in' must be 0 to"),
        ({"in": "-5m"}, "invalid time"),
        ({"every": 1_999}, "'every' must be 2,000 to 315,576,000,000 ms, not 1,999"),
        ({"every": "1s"}, "'every' must be 2,000"),
        ({"every": MAX_AHEAD_MS + 1}, "'every' must be 2,000"),
        ({"every": "often"}, "invalid time 'often'"),
        ({"every": 2_000.5}, "'every' must be a whole number"),
        ({"every": float("nan")}, "'every' must be a whole number"),
        ({"every": float("inf")}, "'every' must be a whole number"),
        ({"every": "1h", "anchorMs": -1}, "'anchorMs' must be 0 to"),
        ({"cron": "61 * * * *"}, "invalid minute '61'"),
        ({"cron": "0 9 * *"}, "use 5 fields"),
        ({"cron": "0 0 30 2 *"}, "'0 0 30 2 *' never runs"),
        ({"cron": "0 0 */31 2 MON#5"}, "never runs"),
        ({"cron": "* * * * * *"}, "more often than every 2,000 ms"),
        ({"cron": "0,59 * * * * *"}, "more often than every 2,000 ms"),
        ({"cron": "@daily", "tz": "Europe/Viena"}, "unknown time zone 'Europe/Viena'"),
        ({"cron": "@daily", "tz": 5}, "'tz' must be a text"),
        ({"cron": "@daily", "exact": "yes"}, "'exact' must be true or false"),
        ({"cron": "@daily", "exact": True, "stagger": 5}, "excludes 'stagger'"),
        ({"cron": "@daily", "stagger": 1, "staggerMs": 1}, "give only one of stagger and"),
        ({"cron": "@daily", "stagger": "2d"}, "'stagger' must be 0 to 86,400,000 ms"),
        ({"kind": "on-exit"}, "'command' must not be empty"),
        ({"kind": "on-exit", "command": "  "}, "'command' must not be empty"),
        ({"kind": "on-exit", "command": ["make"]}, "'command' must be a text"),
        ({"kind": "on-exit", "command": "a\0b"}, "'command' must be a text"),
        ({"kind": "on-exit", "command": "ä" * 4_097}, "more than 8,192 bytes"),
        ({"kind": "on-exit", "command": "a", "cwd": 1}, "'cwd' must be a text"),
        ({"kind": "stream"}, "a list of 1 to 64 texts"),
        ({"kind": "stream", "command": []}, "a list of 1 to 64 texts"),
        ({"kind": "stream", "command": ["a"] * 65}, "a list of 1 to 64 texts"),
        ({"kind": "stream", "command": {"a": 1}}, "a list of 1 to 64 texts"),
        ({"kind": "stream", "command": ["a", ""]}, "'command[1]' must not be empty"),
        ({"kind": "stream", "command": ["a", 1]}, "'command[1]' must be a text"),
        ({"kind": "stream", "command": "a 'b"}, "'command': No closing quotation"),
        ({"kind": "stream", "command": ["a"], "mode": "all"}, "'mode' must be 'line', or"),
        ({"kind": "stream", "command": ["a"], "mode": "match"}, "'mode' must be 'line', or"),
        ({"kind": "stream", "command": ["a"], "mode": "line", "match": "x"}, "'mode' must be"),
        ({"kind": "stream", "command": ["a"], "match": "("}, "not a regular expression"),
        ({"kind": "stream", "command": ["a"], "match": "(a+)+b"}, "could be very slow"),
        ({"kind": "stream", "command": ["a"], "match": "x" * 501}, "more than 500 bytes"),
        ({"kind": "stream", "command": ["a"], "batchMs": 49}, "'batchMs' must be 50 to 5,000"),
        ({"kind": "stream", "command": ["a"], "maxBatchBytes": 1}, "1,024 to 65,536 bytes"),
        ({"kind": "stream", "command": ["a"], "maxBatchBytes": "9m"}, "whole number of bytes"),
    ],
)
def test_invalid_schedules_are_refused(raw: dict[str, Any], problem: str) -> None:
    with pytest.raises(ToolInputError) as error:
        read_schedule(raw, NOW)
    assert problem in str(error.value)
    assert str(error.value).endswith("(now: 2026-11-18T02:00:00Z)")


json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=20),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=2),
    max_leaves=4,
)
keys = st.sampled_from(
    [
        "kind",
        "at",
        "atMs",
        "in",
        "every",
        "everyMs",
        "anchorMs",
        "expr",
        "cron",
        "tz",
        "stagger",
        "staggerMs",
        "exact",
        "command",
        "cwd",
        "mode",
        "match",
        "batchMs",
        "maxBatchBytes",
    ]
)


@given(st.dictionaries(keys | st.text(max_size=5), json_values, max_size=4))
def test_anything_else_is_refused_in_plain_words(raw: dict[str, Any]) -> None:
    try:
        schedule = read_schedule(raw, NOW)
    except ToolInputError:
        return
    assert read_schedule(write_schedule(schedule), NOW) == schedule


def test_the_zone_of_the_host_is_fixed_when_a_job_is_read(monkeypatch: pytest.MonkeyPatch) -> None:
    schedule = read_schedule({"cron": "5 9 * * *"}, NOW)
    monkeypatch.setenv("TZ", "Asia/Tokyo")
    assert write_schedule(schedule)["tz"] == "Europe/Vienna"
    assert next_after(schedule, NOW) == ms("2026-11-18T08:05Z")


def test_schedules_are_written_for_clients() -> None:
    assert write_schedule(At(NOW)) == {"kind": "at", "at": "2026-11-18T02:00:00Z"}
    assert write_schedule(Every(5_000)) == {"kind": "every", "everyMs": 5_000, "anchorMs": 0}
    assert write_schedule(CronExpr("@daily", "UTC", 0)) == {
        "kind": "cron",
        "expr": "@daily",
        "tz": "UTC",
        "staggerMs": 0,
    }
    assert write_schedule(Stream(("a", "b"))) == {
        "kind": "stream",
        "command": ["a", "b"],
        "mode": "line",
        "batchMs": 250,
        "maxBatchBytes": 16_384,
    }
    assert iso_time(NOW + 7) == "2026-11-18T02:00:00.007Z"


def test_once_is_once() -> None:
    job = At(NOW)
    assert next_after(job, NOW - 1) == NOW
    assert next_after(job, NOW) is None
    assert last_before(job, NOW - 1, NOW) == (NOW, 1)
    assert last_before(job, NOW, NOW + 1) is None
    assert last_before(job, NOW - 2, NOW - 1) is None


def test_an_interval_counts_from_its_anchor() -> None:
    job = Every(10_000, 5_000)
    assert [next_after(job, at) for at in (-99, 4_999, 5_000, 14_999, 15_000)] == [
        *(5_000, 5_000, 15_000, 15_000, 25_000)
    ]
    assert last_before(job, 5_000, 35_000) == (35_000, 3)
    assert last_before(job, 0, 4_999) is None
    assert last_before(job, 5_000, 14_999) is None
    assert last_before(Every(2_000, 0), 0, MAX_AHEAD_MS) == (MAX_AHEAD_MS, MAX_AHEAD_MS // 2_000)


def test_commands_are_not_due_by_time() -> None:
    for job in (OnExit("make"), Stream(("tail",))):
        assert next_after(job, 0, "job") is None
        assert last_before(job, 0, NOW, "job") is None
        assert stagger_of(job, "job") == 0


def test_jobs_at_the_full_hour_are_spread_by_their_id() -> None:
    ids = [f"job-{number}" for number in range(300)]
    for expr in ("0 9 * * *", "@hourly", "0 */2 * * 1-5", "0 0 9 * * *"):
        offsets = [stagger_of(CronExpr(expr, "UTC"), id_) for id_ in ids]
        assert offsets == [stagger_of(CronExpr("@weekly", "UTC"), id_) for id_ in ids]
        assert 0 <= min(offsets) < STAGGER_MS // 20
        assert STAGGER_MS * 19 // 20 < max(offsets) <= STAGGER_MS
    for expr in ("5 9 * * *", "0,30 * * * *", "*/15 * * * *", "30 0 9 * * *", "00 9 * * *"):
        assert {stagger_of(CronExpr(expr, "UTC"), id_) for id_ in ids} == {0}
    assert {stagger_of(CronExpr("@daily", "UTC", 0), id_) for id_ in ids} == {0}
    wide = [stagger_of(CronExpr("5 9 * * *", "UTC", 1_000), id_) for id_ in ids]
    assert len(set(wide)) > 200
    assert 0 <= min(wide) < max(wide) <= 1_000
    assert stagger_of(CronExpr("@daily", "UTC"), "") == 0
    assert stagger_of(Every(HOUR), "job") == stagger_of(At(NOW), "job") == 0


schedules = st.one_of(
    st.builds(Every, st.integers(2_000, 10 * DAY), st.integers(0, NOW)),
    st.builds(
        CronExpr,
        st.sampled_from(
            [
                "* * * * *",
                "*/7 * * * *",
                "0 * * * *",
                "0 9 * * 1-5",
                "30 2 * * *",
                "0 0 L * *",
                "15,45 1-3 * 3,10 SUN",
                "*/20 30 * * * *",
                "0 12 29 2 *",
                "0 */2 * * *",
            ]
        ),
        st.sampled_from(["UTC", "Europe/Vienna", "America/Havana", "Australia/Lord_Howe"]),
        st.none() | st.sampled_from([0, 1_000, 300_000, DAY]),
    ),
)
times = st.integers(ms("2020-01-01T00:00Z"), ms("2040-01-01T00:00Z"))


@given(schedules, times, st.sampled_from(["", "a", "job-7"]))
def test_each_slot_is_visited_once_from_wherever_one_begins(
    job: Schedule, start: int, job_id: str
) -> None:
    at, slots = start, list[int]()
    for _ in range(30):
        found = next_after(job, at, job_id)
        assert found is not None
        assert found > at
        assert next_after(job, found - 1, job_id) == found
        assert next_after(job, (at + found) // 2, job_id) == found
        slots.append(at := found)
    for index in (0, 7, 29):
        assert last_before(job, start, slots[index], job_id) == (slots[index], index + 1)
        assert last_before(job, slots[0], slots[index], job_id) == (
            (slots[index], index) if index else None
        )
    assert last_before(job, start, slots[0] - 1, job_id) is None


@given(st.data(), times, st.integers(0, 10 * 366 * DAY), st.sampled_from(["", "job-7"]))
def test_the_last_slot_of_a_long_gap_is_followed_by_none(
    data: st.DataObject, start: int, length: int, job_id: str
) -> None:
    job = data.draw(schedules)
    found = last_before(job, start, start + length, job_id)
    after = next_after(job, start, job_id)
    assert after is not None
    if found is None:
        assert after > start + length
        return
    latest, count = found
    assert after <= latest <= start + length
    following = next_after(job, latest, job_id)
    assert following is not None
    assert following > start + length
    assert next_after(job, latest - 1, job_id) == latest
    assert isinstance(job, Every) or count <= MAX_COUNTED
    assert (count == 1) == (latest == after)


def test_what_is_counted_ends_at_a_thousand() -> None:
    job = CronExpr("*/2 * * * * *", "Europe/Vienna")
    assert last_before(job, NOW - 2_000 * 999, NOW) == (NOW, 999)
    assert last_before(job, NOW - MAX_AHEAD_MS, NOW) == (NOW, MAX_COUNTED)


def test_the_library_is_only_imported_for_expressions() -> None:
    code = (
        "import sys; from clawkit.cron.schedule import *; from clawkit.cron.phrases import *;"
        "next_after(read_schedule({'every': '1h'}, 0), 0); assert 'cronsim' not in sys.modules;"
        "next_after(CronExpr('@daily', 'UTC'), 0); assert 'cronsim' in sys.modules"
    )
    subprocess.run([sys.executable, "-c", code], check=True)
