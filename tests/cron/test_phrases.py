"""Schedules in English, both ways."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest
from hypothesis import given
from hypothesis import strategies as st

from clawkit.cron.phrases import describe, read_phrase
from clawkit.cron.schedule import At, CronExpr, Every, OnExit, Schedule, Stream
from clawkit.errors import ToolInputError

# A Wednesday; in Vienna it is three o'clock, in New York still Tuesday evening.
NOW = int(datetime(2026, 11, 18, 2, tzinfo=UTC).timestamp()) * 1_000
ZONE = "Europe/Vienna"


@pytest.fixture(autouse=True)
def _own_home() -> None:
    """Nothing here looks at a home."""


def at(text: str) -> At:
    return At(round(datetime.fromisoformat(text).timestamp()) * 1_000)


def cron(expr: str, tz: str = ZONE, stagger_ms: int | None = None) -> CronExpr:
    return CronExpr(expr, tz, stagger_ms)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("every 15 minutes", Every(900_000, NOW)),
        ("Every  1h30m", Every(5_400_000, NOW)),
        ("every 2 days", Every(172_800_000, NOW)),
        ("every 2500 ms", Every(2_500, NOW)),
        ("every hour", Every(3_600_000, NOW)),
        ("every minute", Every(60_000, NOW)),
        ("hourly", Every(3_600_000, NOW)),
        ("every 30 minutes from 2026-11-18T00:10:00.5Z", Every(1_800_000, NOW - 6_599_500)),
        ("every hour at :15", cron("15 * * * *")),
        ("hourly at :00", cron("0 * * * *")),
        ("every day at 9", cron("0 9 * * *")),
        ("daily at 18:30", cron("30 18 * * *")),
        ("daily at 12am", cron("0 0 * * *")),
        ("daily at 12:05 pm UTC", cron("5 12 * * *", "UTC")),
        ("every weekday at 9:00 america/new_york", cron("0 9 * * 1-5", "America/New_York")),
        ("weekdays at 9", cron("0 9 * * 1-5")),
        ("weekends at 10am", cron("0 10 * * 0,6")),
        ("every weekend at noon", cron("0 12 * * 0,6")),
        ("mondays and thursdays at 8:15", cron("15 8 * * 1,4")),
        ("every monday at 9", cron("0 9 * * 1")),
        ("every Sat, tues, and Thursday at 7:05", cron("5 7 * * 2,4,6")),
        ("on sundays at midnight utc", cron("0 0 * * 0", "UTC")),
        ("on the 1st of every month at 6:00", cron("0 6 1 * *")),
        ("the 31st, 2nd and 13th of each month at 6:00", cron("0 6 2,13,31 * *")),
        ("last day of the month at 23:00", cron("0 23 L * *")),
        ("first monday of every month at 9", cron("0 9 * * 1#1")),
        ("on the last friday of the month at 17:45", cron("45 17 * * 5L")),
        ("every year on 24 December at 18:00", cron("0 18 24 12 *")),
        ("yearly on feb 29 at 8", cron("0 8 29 2 *")),
        ("every day at 9 exactly", cron("0 9 * * *", stagger_ms=0)),
        ("every day at 9 Asia/Tokyo within 10m", cron("0 9 * * *", "Asia/Tokyo", 600_000)),
        ("0 9 * * 1-5", cron("0 9 * * 1-5")),
        ("0 9 * * mon-fri UTC", cron("0 9 * * mon-fri", "UTC")),
        ("*/10 0 9 L jan * exactly", cron("*/10 0 9 L jan *", stagger_ms=0)),
        ("@daily", cron("0 0 * * *")),
        ("@Hourly UTC", cron("0 * * * *", "UTC")),
        ("cron 5 4 * * SUN#1 Asia/Tokyo", cron("5 4 * * SUN#1", "Asia/Tokyo")),
        ("in 20 minutes", at("2026-11-18T02:20Z")),
        ("+ 1h30m", at("2026-11-18T03:30Z")),
        ("at 2026-12-24 18:00 America/New_York", at("2026-12-24T23:00Z")),
        ("2026-12-24T18:00", at("2026-12-24T17:00Z")),
        ("2026-12-24t18:00:00z", at("2026-12-24T18:00Z")),
        ("at 2026-12-24", at("2026-12-23T23:00Z")),
        ("today at 17:00", at("2026-11-18T16:00Z")),
        ("tomorrow at 9", at("2026-11-19T08:00Z")),
        ("tomorrow at 9 America/New_York", at("2026-11-18T14:00Z")),
        ("next friday at noon", at("2026-11-20T11:00Z")),
        ("friday at noon", at("2026-11-20T11:00Z")),
        ("on wednesday at 3:01", at("2026-11-18T02:01Z")),
        ("wednesday at 3:00", at("2026-11-25T02:00Z")),
        ("next wednesday at 9", at("2026-11-25T08:00Z")),
        ("at 9", at("2026-11-18T08:00Z")),
        ("at 3", at("2026-11-19T02:00Z")),
        ("9:15 pm", at("2026-11-18T20:15Z")),
        ("midnight", at("2026-11-18T23:00Z")),
        ("noon UTC", at("2026-11-18T12:00Z")),
    ],
)
def test_phrases_become_schedules(text: str, expected: Schedule) -> None:
    assert read_phrase(text, NOW, ZONE) == expected
    assert read_phrase(describe(expected), NOW) == expected


def test_a_time_in_the_gap_is_its_end() -> None:
    before = int(datetime(2026, 3, 28, 12, tzinfo=UTC).timestamp()) * 1_000
    assert read_phrase("tomorrow at 2:30", before, ZONE) == at("2026-03-29T03:00+02:00")


def test_without_a_zone_times_are_those_of_the_host(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TZ", "Asia/Tokyo")
    assert read_phrase("every day at 9", NOW) == cron("0 9 * * *", "Asia/Tokyo")
    assert read_phrase("at 2026-11-20 09:00", NOW) == at("2026-11-20T00:00Z")
    assert read_phrase("tomorrow at 9", NOW) == at("2026-11-19T00:00Z")


@pytest.mark.parametrize(
    ("schedule", "expected"),
    [
        (cron("0 9 * * 1-5"), "every weekday at 09:00 Europe/Vienna"),
        (cron("0 9 * * 1,3,5", "UTC"), "every monday, wednesday and friday at 09:00 UTC"),
        (cron("0 9 * * *", "UTC", 0), "every day at 09:00 UTC exactly"),
        (cron("5 0 1,2,3,11,22 * *"), "on the 1st, 2nd, 3rd, 11th and 22nd of every month at 00:05 "
         "Europe/Vienna"),
        (cron("0 18 24 12 *"), "every year on 24 december at 18:00 Europe/Vienna"),
        (cron("0 9 * * 0L", "UTC", 90_000), "on the last sunday of every month at 09:00 UTC within "
         "90 seconds"),
        (cron("0 9 * * 7"), "cron 0 9 * * 7 Europe/Vienna"),
        (cron("00 9 * * *"), "cron 00 9 * * * Europe/Vienna"),
        (cron("0 9,17 * * *"), "cron 0 9,17 * * * Europe/Vienna"),
        (cron("0 9 1 * 1"), "cron 0 9 1 * 1 Europe/Vienna"),
        (cron("0 * 1 * *"), "cron 0 * 1 * * Europe/Vienna"),
        (cron("0 9 * 2 1"), "cron 0 9 * 2 1 Europe/Vienna"),
        (cron("0 0 9 * * *"), "cron 0 0 9 * * * Europe/Vienna"),
        (Every(3_600_000, 5), "every hour from 1970-01-01T00:00:00.005Z"),
        (Every(2_500, 0), "every 2500 ms from 1970-01-01T00:00:00Z"),
        (at("2026-12-24T18:00Z"), "at 2026-12-24T18:00:00Z"),
        (OnExit("make test"), "when `make test` exits"),
        (Stream(("tail", "a b")), "when a line of `tail 'a b'` is printed"),
        (Stream(("tail",), match="x"), "when a line of `tail` matches 'x'"),
    ],
)  # fmt: skip
def test_the_phrase_for_a_schedule(schedule: Schedule, expected: str) -> None:
    assert describe(schedule) == expected
    if not isinstance(schedule, OnExit | Stream):
        assert read_phrase(expected, NOW) == schedule


def numbers(low: int, high: int) -> st.SearchStrategy[str]:
    one = st.integers(low, high)
    lists = st.lists(one, min_size=2, max_size=4).map(lambda all_: ",".join(map(str, all_)))
    return st.one_of(st.just("*"), one.map(str), lists, st.just(f"{low}-{high}"), st.just("*/2"))


expressions = st.builds(
    lambda *fields: " ".join(fields),
    numbers(0, 59),
    numbers(0, 23),
    numbers(1, 28) | st.just("L"),
    numbers(1, 12),
    numbers(0, 7) | st.sampled_from(["MON", "5L", "0L", "3#2", "TUE#1"]),
)
zones = st.sampled_from(["UTC", ZONE, "America/Argentina/Buenos_Aires", "Etc/GMT+5", "EST5EDT"])


@given(
    st.one_of(
        st.builds(At, st.integers(NOW - 60_000, NOW + 300_000_000_000)),
        st.builds(Every, st.integers(2_000, 10**11), st.integers(0, NOW)),
        st.builds(CronExpr, expressions, zones, st.none() | st.integers(0, 86_400_000)),
    )
)
def test_descriptions_are_read_back(schedule: Schedule) -> None:
    assert read_phrase(describe(schedule), NOW, "Asia/Tokyo") == schedule


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("", "it must have 1 to 300 characters"),
        ("x" * 301, "it must have 1 to 300 characters"),
        ("whenever", "did not understand 'whenever'; write for example 'every 15 minutes'"),
        ("every", "understood 'every', but something is missing after that"),
        ("every mondya at 9", "understood 'every', but not 'mondya at 9'; did you mean 'monday'?"),
        ("every day", "understood 'every day', but something is missing after that; write for "
         "example 'every day at 9:00'"),
        ("every day at", "understood 'every day at', but something is missing"),
        ("every day at nine", "understood 'every day at', but not 'nine'"),
        ("daily at 9 sharp", "understood 'daily at 9', but not 'sharp'"),
        ("every blue monday at 9", "understood 'every', but not 'blue monday at 9'"),
        ("monday and friday at 9", "understood 'monday', but not 'and friday at 9'"),
        ("9", "did not understand '9'"),
        ("* * * *", "did not understand '* * * *'; write for example 'every 15 minutes'"),
        ("tomorrow 9:00", "but not '9:00'; write for example 'tomorrow at 9'"),
        ("every 2 days at 9", "understood 'every 2 days', but not 'at 9'; write"),
        ("every second wendesday", "but not 'wendesday'; did you mean 'wednesday'? Write"),
        ("every day at 9 PST", "but not 'pst'; write"),
        ("UTC", "did not understand 'utc'"),
        ("24 december at 18:00", "did not understand '24 december at 18:00'"),
        ("at 25:00", "invalid time '25:00'"),
        ("at 9:60", "invalid time '9:60'"),
        ("daily at 13pm", "invalid time '13pm'"),
        ("daily at 0am", "invalid time '0am'"),
        ("every 15 minutes Europe/Vienna", "'Europe/Vienna' has no effect on 'every 15 minutes'"),
        ("in 20 minutes exactly", "'exactly' has no effect on 'in 20 minutes'"),
        ("at 9 within 5m", "'within 5m' has no effect on 'at 9'"),
        ("every day at 9 Europe/Viena", "unknown time zone 'Europe/Viena'"),
        ("every day at 9 within 3 days", "'stagger' must be 0 to 86,400,000 ms"),
        ("today at 1:00", "2026-11-18T00:00:00Z is in the past"),
        ("2020-01-01", "is in the past"),
        ("2046-01-01", "more than 10 years ahead"),
        ("at 2026-13-01", "cannot read the time '2026-13-01'"),
        ("every 2 months", "invalid time '2 months'"),
        ("every 1 second", "'every' must be 2,000"),
        ("every 1 hour from 2026-99-99", "cannot read the time"),
        ("in 5 parsecs", "invalid time '5 parsecs'"),
        ("every year on 30 february at 9", "'0 9 30 2 *' never runs"),
        ("32nd of every month at 9", "invalid day-of-month '32'"),
        ("cron whatever", "invalid cron expression 'whatever'"),
        ("99 9 * * *", "invalid minute '99'"),
        ("* * * * * *", "more often than every 2,000 ms"),
        ("@reboot", "invalid cron expression '@reboot'"),
    ],
)  # fmt: skip
def test_nothing_is_guessed(text: str, problem: str) -> None:
    with pytest.raises(ToolInputError) as error:
        read_phrase(text, NOW, ZONE)
    assert problem in str(error.value)
    assert str(error.value).endswith("(now: 2026-11-18T02:00:00Z)")


words = st.sampled_from(
    [
        "every",
        "day",
        "weekday",
        "monday",
        "mondays",
        "and",
        "at",
        "9",
        "9:00",
        "10am",
        "noon",
        "on",
        "the",
        "1st",
        "last",
        "of",
        "month",
        "hour",
        "minutes",
        "15",
        "in",
        "next",
        "tomorrow",
        "2026-12-24",
        "UTC",
        "exactly",
        "cron",
        "*",
        "@daily",
        "from",
        "within",
        "+",
    ]
)


@given(st.lists(words, max_size=8).map(" ".join) | st.text(max_size=40))
def test_any_text_is_a_schedule_or_refused(text: str) -> None:
    try:
        schedule = read_phrase(text, NOW, ZONE)
    except ToolInputError:
        return
    assert read_phrase(describe(schedule), NOW) == schedule
