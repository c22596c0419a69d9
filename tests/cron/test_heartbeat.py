"""Whether a heartbeat beats, and what it says: tables of cases."""

from __future__ import annotations

from datetime import UTC, datetime, tzinfo
from typing import Any
from zoneinfo import ZoneInfo

import pytest
from msgspec.structs import replace

from clawkit.config.load import loads
from clawkit.config.sections.agents import Agents
from clawkit.config.sections.gateway import ActiveHours, Heartbeat
from clawkit.cron.heartbeat import (
    EVERY_MS,
    BeatFacts,
    decide_beat,
    event_due_ms,
    is_empty,
    is_within,
    midnight_ms,
    next_beat,
    settings_of,
    shape_job,
    show_beat,
    timeout_s,
    write_message,
    zone_of,
)
from clawkit.cron.jobs import HeartbeatPayload as Payload
from clawkit.cron.jobs import Job
from clawkit.cron.schedule import Every
from clawkit.cron.store import CronRun, CronRunRecord
from clawkit.errors import ConfigError

VIENNA = ZoneInfo("Europe/Vienna")
MINUTE, HOUR, DAY = 60_000, 3_600_000, 86_400_000


def at(text: str, zone: tzinfo = UTC) -> int:
    return round(datetime.fromisoformat(text).replace(tzinfo=zone).timestamp() * 1000)


NOW = at("2026-11-18 12:00")
FACTS = BeatFacts(settings=Heartbeat(), now_ms=NOW, text="Check it.", said_ms=NOW - HOUR)


def given(settings: dict[str, Any] | None = None, **changes: Any) -> BeatFacts:
    return replace(FACTS, settings=Heartbeat(**(settings or {})), **changes)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("", True),
        ("\n  \n", True),
        ("# Heartbeat\n\n## Tasks\n###### x\n#\n", True),
        ("<!-- write here\n- Check the door\n-->\n", True),
        ("<!-- never closed\n- Check the door", True),
        ("```\n```\n~~~md\n~~~", True),
        ("- \n* \n+\n1.\n2)\n- [ ]\n- [x]\n---\n***", True),
        ("# Tasks\n- Check the door", False),
        ("<!-- x --> Check the door", False),
        ("- [ ] Check the door", False),
        ("```\nmake check\n```", False),
        ("#tag is no heading", False),
        ("1.5 is a number", False),
    ],
)
def test_a_file_without_instructions_counts_as_empty(text: str, expected: bool) -> None:
    assert is_empty(text) is expected


@pytest.mark.parametrize(
    ("facts", "expected"),
    [
        (given(), None),
        (given(text=None), "off"),
        (given(text="# Tasks\n"), "off"),
        (given(text="# Tasks\n", scratch="still to do"), "off"),
        (given({"every": "0m"}), "off"),
        (given(is_meant=False), "off"),
        (given({"every": "1h"}, text=None), None),
        (given({"every": "1h"}, text=""), "empty"),
        (given({"every": "1h"}, text="- \n"), "empty"),
        (given({"every": "1h"}, text="", scratch="still to do"), None),
        (given({"every": "1h", "prompt": "Check the door."}, text=""), None),
        (given({"every": "1h"}, text="", has_mail=True), None),
        (given(paused="no credit"), "paused"),
        (given({"every": "0m"}, paused="no credit"), "off"),
        (given({"target": "telegram"}), "no-route"),
        (given({"target": "owner"}), None),
        (given({"target": "last"}), None),
        (given({"target": "none"}), None),
        (given({"active_hours": ActiveHours(start="13:00")}), "hours"),
        (given({"active_hours": ActiveHours(end="12:00")}), "hours"),
        (given({"active_hours": ActiveHours(start="12:00", end="12:01")}), None),
        (given(said_ms=NOW - 7 * DAY), None),
        (given(said_ms=NOW - 7 * DAY, last_ms=NOW - HOUR), "idle-backoff"),
        (given(said_ms=NOW - 7 * DAY, last_ms=NOW - DAY + 2_000), None),
        (given(said_ms=NOW - 7 * DAY + 1, last_ms=NOW - HOUR), None),
        (given(cost=0.99), None),
        (given(cost=1.0), "budget"),
        (given({"max_cost_per_day": 0.25}, cost=0.3), "budget"),
        (given(runs=300), "budget"),
        (given({"every": "1m"}, runs=1_439), None),
        (given({"every": "1m"}, runs=1_440), "budget"),
        (given({"max_runs_per_day": 3}, runs=3), "budget"),
        (given(last_ms=NOW - 29_999), "flood"),
        (given(last_ms=NOW - 30_000), None),
        (given(is_busy=True), "busy"),
        # Someone asks for it: it need not be due, but it must not cost or disturb more.
        (given({"every": "0m"}, text=None, is_asked=True), None),
        (given({"every": "1h"}, text="", is_asked=True), None),
        (given({"active_hours": ActiveHours(start="13:00")}, is_asked=True), None),
        (given(said_ms=0, last_ms=NOW - HOUR, is_asked=True), None),
        (given(paused="by you", is_asked=True), "paused"),
        (given(cost=1.0, is_asked=True), "budget"),
        (given(last_ms=NOW - 1_000, is_asked=True), "flood"),
        (given(is_busy=True, is_asked=True), "busy"),
        (given({"target": "telegram"}, is_asked=True), "no-route"),
    ],
)
def test_whether_it_beats(facts: BeatFacts, expected: str | None) -> None:
    skip = decide_beat(facts)
    assert (skip.reason if skip else None) == expected
    assert skip is None or skip.message


def test_reasons_say_what_to_do() -> None:
    said = decide_beat(given({"target": "telegram"}))
    assert said is not None
    assert said.message == (
        "unknown channel 'telegram'; set heartbeat.target to owner, last or none"
    )
    spent = decide_beat(given({"max_runs_per_day": 3, "max_cost_per_day": 0.5}, runs=3, cost=0.2))
    assert spent is not None
    assert spent.message == (
        "today's 3 beats cost $0.20; the limits are 3 (maxRunsPerDay) and $0.5 (maxCostPerDay)"
    )


@pytest.mark.parametrize(
    ("start", "end", "clock", "expected"),
    [
        (None, None, "00:00", True),
        ("08:00", "22:00", "07:59", False),
        ("08:00", "22:00", "08:00", True),
        ("08:00", "22:00", "21:59", True),
        ("08:00", "22:00", "22:00", False),
        ("08:00", "24:00", "23:59", True),
        ("08:00", None, "23:59", True),
        (None, "06:00", "05:59", True),
        (None, "06:00", "06:00", False),
        ("22:00", "06:00", "23:00", True),
        ("22:00", "06:00", "05:59", True),
        ("22:00", "06:00", "06:00", False),
        ("22:00", "06:00", "12:00", False),
        ("09:00", "09:00", "09:00", False),
    ],
)
def test_active_hours(start: str | None, end: str | None, clock: str, expected: bool) -> None:
    hours = ActiveHours(start=start, end=end)
    assert is_within(hours, at(f"2026-11-18 {clock}", VIENNA), VIENNA) is expected


@pytest.mark.parametrize(
    ("utc", "expected"),
    [
        # Clocks in Vienna go from 02:00 to 03:00 on 29 March 2026, at 01:00 UTC.
        ("2026-03-29 00:59", False),  # 01:59
        ("2026-03-29 01:00", True),  # 03:00
        # They go from 03:00 back to 02:00 on 25 October 2026, at 01:00 UTC.
        ("2026-10-25 00:30", True),  # 02:30
        ("2026-10-25 01:30", True),  # 02:30 again
        ("2026-10-25 02:30", False),  # 03:30
    ],
)
def test_active_hours_follow_the_clocks_when_these_change(utc: str, expected: bool) -> None:
    hours = ActiveHours(start="02:00", end="03:30")
    assert is_within(hours, at(utc), VIENNA) is expected


def test_a_day_begins_at_midnight_of_the_zone_also_when_clocks_change() -> None:
    assert midnight_ms(at("2026-03-29 12:00"), VIENNA) == at("2026-03-28 23:00")
    assert midnight_ms(at("2026-03-29 12:00"), VIENNA, 1) == at("2026-03-29 22:00")
    assert midnight_ms(at("2026-11-18 23:30"), VIENNA) == at("2026-11-18 23:00")


def test_the_next_heartbeat_is_the_first_slot_that_nothing_prevents() -> None:
    schedule = Every(EVERY_MS, at("2026-11-18 00:00"))
    first = at("2026-11-18 12:30")
    assert next_beat(FACTS, schedule, first) == first
    night = given({"active_hours": ActiveHours(start="22:00", end="06:00")})
    assert next_beat(night, schedule, first) == at("2026-11-18 22:00")
    spent = replace(FACTS, cost=5.0)
    assert next_beat(spent, schedule, first) == at("2026-11-19 00:00")
    idle = replace(FACTS, said_ms=0, last_ms=at("2026-11-18 12:00"))
    assert next_beat(idle, schedule, first) == at("2026-11-19 12:00")
    assert next_beat(given({"target": "x"}), schedule, first) is None
    assert next_beat(FACTS, schedule, None) is None
    never = given({"active_hours": ActiveHours(start="09:00", end="09:00")})
    assert next_beat(never, schedule, first) is None


@pytest.mark.parametrize(
    ("own", "others", "expected"),
    [
        ([], [], 0),
        ([-1], [-1], 29_999),
        ([-30_000], [-30_000], 0),
        ([-90_000, -20_000], [-90_000, -20_000], 10_000),
        ([], [-50, -40, -30, -20], 0),
        ([], [-50, -40, -30, -20, -10], 59_950),
        ([], [-90_000, -50, -40, -30, -20, -10], 59_950),
        ([], [-60_000, -40, -30, -20, -10], 0),
        ([-10], [-50, -40, -30, -20, -10], 59_950),
    ],
)
def test_turns_for_events_are_apart_and_not_too_many(
    own: list[int], others: list[int], expected: int
) -> None:
    times = [[NOW + each for each in some] for some in (own, others)]
    assert event_due_ms(times[0], times[1], NOW) == NOW + expected


def test_a_burst_of_events_in_many_sessions_never_has_more_than_five_turns_in_a_minute() -> None:
    done: list[int] = []
    for number in range(40):
        done.append(event_due_ms([], done, NOW + number * 100))
    assert done == sorted(done)
    pairs = zip(done, done[5:], strict=False)
    assert all(later - earlier >= MINUTE for earlier, later in pairs)


def test_the_limit_of_a_turn_is_the_interval_and_at_most_ten_minutes() -> None:
    assert timeout_s(given()) == 600
    assert timeout_s(given({"every": "5m"})) == 300
    assert timeout_s(given({"every": "0m"})) == 600
    assert timeout_s(given({"every": "5m", "timeout_seconds": 900})) == 900


def test_the_message_has_the_file_the_time_the_notes_and_the_last_summary() -> None:
    facts = replace(FACTS, zone=VIENNA, scratch="door: closed")
    file, said = write_message(facts, "All was quiet.")
    assert file == "Check it."
    assert said.startswith("[The above is HEARTBEAT.md.]\n\nThis is a heartbeat")
    assert "The time is Wednesday, 2026-11-18 13:00 (Europe/Vienna, UTC+0100)." in said
    assert "door: closed" in said
    assert "Your summary of the last heartbeat: All was quiet." in said
    [own] = write_message(given({"prompt": "Only look."}, text="# Tasks\n"), "")
    assert own.startswith("Only look.\n\nThe time is")
    assert "HEARTBEAT.md" not in own
    assert "last heartbeat" not in own


def job(**changes: Any) -> Job:
    plain = Job(
        id="j",
        name="heartbeat-main",
        schedule=Every(EVERY_MS),
        session_target="main",
        payload=Payload(),
        created_at_ms=NOW,
    )
    return replace(plain, **changes)


def test_the_job_follows_the_settings_and_keeps_what_people_gave_it() -> None:
    shaped = shape_job(job(grants=("ls",)), given({"every": "45m", "target": "none"}))
    assert (shaped.enabled, shaped.schedule) == (True, Every(45 * MINUTE, NOW))
    assert (shaped.delivery.mode, shaped.grants) == ("none", ("ls",))
    assert shape_job(shaped, given({"every": "45m", "target": "none"})) == shaped
    off = shape_job(shaped, given({"every": "0m"}))
    assert (off.enabled, off.delivery.mode) == (False, "announce")


def test_the_settings_of_an_agent_override_those_of_all() -> None:
    text = """{ agents: {
        defaults: { userTimezone: "Asia/Tokyo", heartbeat: { every: "1h", model: "a/b",
            activeHours: { start: "08:00", end: "20:00" } } },
        list: [{ id: "own", heartbeat: { every: "2h", activeHours: { start: "10:00" } } },
               { id: "other" }] } }"""
    agents: Agents = loads(text).config.agents
    own, other = settings_of(agents, "own"), settings_of(agents, "other")
    assert (own.every, own.model, own.active_hours.start) == ("2h", "a/b", "10:00")
    assert (own.active_hours.end, other.every) == ("20:00", "1h")
    assert str(zone_of(agents, own)) == "Asia/Tokyo"
    utc = Heartbeat(active_hours=ActiveHours(timezone="Europe/Vienna"))
    assert str(zone_of(agents, utc)) == "Europe/Vienna"
    here = zone_of(agents, Heartbeat(active_hours=ActiveHours(timezone="local")))
    assert str(here) == str(zone_of(Agents(), Heartbeat()))
    wrong = loads('{ agents: { defaults: { userTimezone: "Mars/Base" } } }').config.agents
    assert str(zone_of(wrong, Heartbeat())) == str(here)


@pytest.mark.parametrize(
    ("settings", "expected"),
    [
        ("every: '30'", "use a duration such as 30s, 5m or 1h"),
        ("every: '10s'", "'10s' is not between 1m and 30d"),
        ("every: '31d'", "'31d' is not between 1m and 30d"),
        ("activeHours: { start: '8:00' }", "'8:00' is not a time of day"),
        ("activeHours: { start: '24:00' }", "'24:00' is not a time of day"),
        ("activeHours: { end: '24:01' }", "'24:01' is not a time of day"),
        ("activeHours: { start: '08:00', end: '08:00' }", "the same as start"),
        ("activeHours: { timezone: 'Vienna' }", "unknown time zone 'Vienna'"),
        ("activeHours: { timezone: '../../etc/passwd' }", "unknown time zone"),
        ("maxCostPerDay: 0", "maxCostPerDay"),
        ("maxRunsPerDay: 0", "maxRunsPerDay"),
        ("timeoutSeconds: 0", "timeoutSeconds"),
    ],
)
@pytest.mark.parametrize("place", ["defaults: { %s }", "list: [{ id: 'a', %s }]"])
def test_invalid_settings_are_refused(settings: str, expected: str, place: str) -> None:
    with pytest.raises(ConfigError) as caught:
        loads("{ agents: { " + place % f"heartbeat: {{ {settings} }}" + " } }")
    assert expected in str(caught.value)


@pytest.mark.parametrize(
    "settings",
    [
        "every: '0m'",
        "every: '1m'",
        "every: '30d'",
        "activeHours: { start: '22:00', end: '06:00', timezone: 'user' }",
        "activeHours: { end: '24:00', timezone: 'local' }",
        "target: 'telegram', to: '1', accountId: 'x', directPolicy: 'block'",
    ],
)
def test_valid_settings_are_taken(settings: str) -> None:
    loads(f"{{ agents: {{ defaults: {{ heartbeat: {{ {settings} }} }} }} }}")


@pytest.mark.parametrize(
    ("status", "delivery", "expected"),
    [
        ("ok", "silent", "ok-token"),
        ("ok", "delivered", "sent"),
        ("ok", "not-delivered", "failed"),
        ("ok", "not-requested", "ok-empty"),
        ("skipped", "not-requested", "skipped"),
        ("error", "not-requested", "failed"),
        ("interrupted", "not-requested", "failed"),
    ],
)
def test_what_clients_see_of_a_beat(status: Any, delivery: Any, expected: str) -> None:
    record = CronRunRecord(summary="The door\nis open.", reason="hours", error="later")
    run = CronRun("r", "j", None, "schedule", status, 1, started_ms=100, ended_ms=350)
    assert show_beat(replace(run, delivery=delivery, record=record)) == {
        "ts": 350,
        "status": expected,
        "reason": "hours",
        "preview": "The door is open.",
        "durationMs": 250,
        "hasMedia": False,
        "message": "later",
    }
