"""When cron expressions are due, compared with a second implementation that walks minute by minute
and remembers the latest time that clocks have shown."""

from __future__ import annotations

import random
from bisect import bisect_right
from collections.abc import Callable, Iterator
from datetime import UTC, date, datetime, timedelta, tzinfo
from itertools import takewhile
from pathlib import Path
from zoneinfo import ZoneInfo

import pytest
from tests.scale import FULL, scaled

from clawkit.cron.expression import find_zone, instant_of, local_zone, normalize, slots_after

ZONES = (
    *("Europe/Vienna", "America/New_York", "America/Havana", "Africa/Cairo", "America/Santiago"),
    *(
        "Australia/Lord_Howe",
        "Antarctica/Troll",
        "Asia/Kolkata",
        "Asia/Beirut",
        "Africa/Casablanca",
    ),
    *("Atlantic/Azores", "UTC", "Pacific/Chatham", "America/St_Johns"),
)
DAY_NAMES = ("SUN", "MON", "TUE", "WED", "THU", "FRI", "SAT")
MONTH_NAMES = (
    "",
    "JAN",
    "FEB",
    "MAR",
    "APR",
    "MAY",
    "JUN",
    "JUL",
    "AUG",
    "SEP",
    "OCT",
    "NOV",
    "DEC",
)
FIELDS = (
    ("0", "*", "*/15", "*/7", "5", "30", "59", "0,30", "10-20", "15-45/10", "0-59"),
    ("*", "*", "0", "1", "2", "3", "23", "*/2", "*/3", "0-4", "1,2,3", "0-23", "9-17/2"),
    ("*", "*", "*", "1", "15", "29", "31", "L", "1,15", "*/2", "10-20", "25-31"),
    ("*", "*", "*", "2", "3", "MAR", "OCT,NOV", "*/2", "4-9", "MAR-APR"),
    ("*", "*", "*", "0", "7", "SUN", "MON-FRI", "0,6", "5L", "0L", "1#1", "SUN#5", "*/2"),
)


@pytest.fixture(autouse=True)
def _own_home() -> None:
    """Nothing here looks at a home."""


def numbers(field: str, low: int, high: int, names: tuple[str, ...] = ()) -> set[int]:
    found: set[int] = set()
    for part in field.split(","):
        span, _, step = part.partition("/")
        first, _, last = span.partition("-")
        ends = [
            names.index(end) if end in names else int(end)
            for end in (first, last)
            if end != "*" and end
        ]
        start, end = (low, high) if first == "*" else (ends[0], ends[-1])
        found |= set(range(start, (high if step and not last else end) + 1, int(step or 1)))
    return found


def day_matcher(dates: str, months: str, weekdays: str) -> Callable[[int], bool]:
    """Whether an expression is due on a day, by its number since the epoch."""
    in_months = numbers(months, 1, 12, MONTH_NAMES)
    together = dates[0] == "*" or weekdays[0] == "*"
    cache: dict[int, bool] = {}

    def matches(number: int) -> bool:
        day = date(1970, 1, 1) + timedelta(number)
        weekday = day.isoweekday() % 7
        is_last = (day + timedelta(1)).day == 1
        by_date = is_last if dates == "L" else day.day in numbers(dates, 1, 31)
        if "L" in weekdays:
            by_weekday = weekday == int(weekdays[0]) and (day + timedelta(7)).month != day.month
        elif "#" in weekdays:
            name, _, nth = weekdays.partition("#")
            by_weekday = weekday in numbers(name, 0, 7, DAY_NAMES) and (day.day + 6) // 7 == int(
                nth
            )
        else:
            by_weekday = weekday in {each % 7 for each in numbers(weekdays, 0, 7, DAY_NAMES)}
        both = by_date and by_weekday if together else by_date or by_weekday
        return day.month in in_months and both

    def cached(number: int) -> bool:
        if number not in cache:
            cache[number] = matches(number)
        return cache[number]

    return cached


def due_minutes(expr: str, zone: tzinfo, first: int, last: int) -> list[int]:
    """The minutes since the epoch, `first` to before `last`, at which an expression is due."""
    minute_field, hour_field, *days = expr.split()
    in_minutes, in_hours = numbers(minute_field, 0, 59), numbers(hour_field, 0, 23)
    due_on = day_matcher(*days)
    goes_by_elapsed_time = len(in_hours) == 24
    found, shown = list[int](), 0

    def is_due(wall: int) -> bool:
        day, minute = divmod(wall, 1_440)
        return minute % 60 in in_minutes and minute // 60 in in_hours and due_on(day)

    def may_be_due(wall: int) -> bool:
        return wall % 1_440 // 60 in in_hours and due_on(wall // 1_440)

    # Clocks change at quarters of an hour.
    for quarter in range((first - 2_880) // 15 * 15, last, 15):
        local = datetime.fromtimestamp(quarter * 60, zone).utcoffset()
        assert local is not None
        wall = quarter + round(local.total_seconds()) // 60
        if shown == wall - 1 and not may_be_due(wall):
            shown += 15
            continue
        for minute in range(quarter, quarter + 15):
            new = range(shown + 1 if shown else wall, wall + 1)
            due = is_due(wall) if goes_by_elapsed_time else any(map(is_due, new))
            shown = max(shown, wall)
            wall += 1
            if due and first <= minute < last:
                found.append(minute)
    return found


def minute_of(*when: int) -> int:
    return int(datetime(*when, tzinfo=UTC).timestamp()) // 60  # type: ignore[misc,arg-type]


def changes(zone: tzinfo, first_year: int, years: int) -> list[int]:
    """Minutes in the days after those in which clocks change."""
    days = range(minute_of(first_year, 1, 1), minute_of(first_year + years, 1, 1), 1_440)
    offsets = [datetime.fromtimestamp(minute * 60, zone).utcoffset() for minute in days]
    return [days[at] for at in range(1, len(days)) if offsets[at] != offsets[at - 1]]


def random_expr(chance: random.Random) -> str:
    return " ".join(chance.choice(field) for field in FIELDS)


def assert_same(expr: str, zone: tzinfo, first: int, last: int, chance: random.Random) -> None:
    expected = due_minutes(expr, zone, first, last)
    slots = takewhile(lambda slot: slot < last * 60, slots_after(expr, zone, first * 60 - 1))
    try:
        found = [slot / 60 for slot in slots]
    except ValueError as error:  # such as on February 31
        if "never runs" not in str(error):
            raise
        found = []
    assert found == expected, (expr, zone)
    if not found:
        return
    # From any second in between, also within a gap or a repeated hour.
    for _ in range(20):
        at_s = chance.randrange(first * 60, last * 60)
        later = bisect_right(expected, at_s / 60)
        if later < len(expected):
            assert next(slots_after(expr, zone, at_s)) == expected[later] * 60, (expr, zone, at_s)


@pytest.mark.long
@pytest.mark.parametrize("name", ZONES)
def test_around_every_change_of_clocks_slots_are_those_of_a_walk_by_the_minute(name: str) -> None:
    zone = find_zone(name)
    chance = random.Random(name)
    around = changes(zone, 2020, 20) or [minute_of(2028, 2, 29)]
    for _ in range(scaled(100)):
        middle = chance.choice(around)
        assert_same(random_expr(chance), zone, middle - 2_000, middle + 1_000, chance)


@pytest.mark.long
@pytest.mark.parametrize("seed", range(24 if FULL else 2))
def test_over_years_slots_are_those_of_a_walk_by_the_minute(seed: int) -> None:
    chance = random.Random(seed)
    years = 20 if FULL else 0.25
    minute, hour = chance.choice(("0", "15", "0,30", "59")), chance.choice(FIELDS[1][2:])
    days = " ".join(chance.choice(field) for field in FIELDS[2:])
    zone = find_zone(chance.choice(ZONES))
    first = minute_of(2020 if FULL else 2020 + chance.randrange(20), 1, 1)
    assert_same(f"{minute} {hour} {days}", zone, first, first + round(years * 525_960), chance)


def slots(expr: str, zone: str, start: str, count: int) -> list[str]:
    tz = ZoneInfo(zone)
    after = int(datetime.fromisoformat(start).replace(tzinfo=tz).timestamp())
    found: Iterator[int] = slots_after(expr, tz, after)
    return [datetime.fromtimestamp(next(found), tz).strftime("%m-%d %H:%M%z") for _ in range(count)]


SLOTS = """
    Clocks go from 02:00 to 03:00, and from 03:00 to 02:00.
30 2 * * *     | Europe/Vienna       | 2026-03-28 12:00 | 03-29 03:00+0200, 03-30 02:30+0200
0,30 2-3 * * * | Europe/Vienna       | 2026-03-29 01:00 | 03-29 03:00+0200, 03-29 03:30+0200
0 */2 * * *    | Europe/Vienna       | 2026-03-29 00:30 | 03-29 03:00+0200, 03-29 04:00+0200
30 2 * * *     | Europe/Vienna       | 2026-10-24 12:00 | 10-25 02:30+0200, 10-26 02:30+0100
15 * * * *     | Europe/Vienna       | 2026-03-29 01:00 | 03-29 01:15+0100, 03-29 03:15+0200
*/30 * * * *   | Europe/Vienna       | 2026-10-25 02:10 | 10-25 02:30+0200, 10-25 02:00+0100
    At midnight, by half an hour, by two hours.
0 0 * * *      | America/Havana      | 2026-03-07 12:00 | 03-08 01:00-0400, 03-09 00:00-0400
30 0 * * *     | America/Havana      | 2026-10-31 12:00 | 11-01 00:30-0400, 11-02 00:30-0500
15 2 * * *     | Australia/Lord_Howe | 2026-10-03 12:00 | 10-04 02:30+1100, 10-05 02:15+1100
45 1 * * *     | Australia/Lord_Howe | 2026-04-04 12:00 | 04-05 01:45+1100, 04-06 01:45+1030
30 1,2 * * *   | Antarctica/Troll    | 2026-03-28 12:00 | 03-29 03:00+0200, 03-30 01:30+0200
    A day that was left out; a day that began twice.
0 9 30 12 *    | Pacific/Apia        | 2011-12-01 00:00 | 12-31 00:00+1400, 12-30 09:00+1400
0 * 29 2 *     | Pacific/Apia        | 2010-08-01 00:00 | 02-29 00:00+1400, 02-29 01:00+1400
0 * * * SUN    | America/St_Johns    | 2010-11-06 23:30 | 11-07 00:00-0230, 11-07 00:00-0330
    Days.
0 0 29 2 *     | UTC                 | 2026-01-01 00:00 | 02-29 00:00+0000, 02-29 00:00+0000
0 9 L 2 *      | UTC                 | 2027-01-01 00:00 | 02-28 09:00+0000, 02-29 09:00+0000
0 9 LW * *     | UTC                 | 2026-05-01 00:00 | 05-29 09:00+0000, 06-30 09:00+0000
0 9 13 * FRI   | UTC                 | 2026-11-06 10:00 | 11-13 09:00+0000, 11-20 09:00+0000
0 9 */2 * FRI  | UTC                 | 2026-11-06 10:00 | 11-13 09:00+0000, 11-27 09:00+0000
0 9 * * tue#1  | UTC                 | 2026-11-06 10:00 | 12-01 09:00+0000, 01-05 09:00+0000
0 9 * feb 5L   | UTC                 | 2026-11-06 10:00 | 02-26 09:00+0000, 02-25 09:00+0000
"""


@pytest.mark.parametrize("row", [row for row in SLOTS.splitlines() if "|" in row])
def test_slots(row: str) -> None:
    expr, zone, start, expected = (part.strip() for part in row.split("|"))
    assert ", ".join(slots(expr, zone, start, 2)) == expected


def test_seconds_follow_the_same_rules() -> None:
    zone = ZoneInfo("Europe/Vienna")
    night = int(datetime(2026, 10, 25, 1, tzinfo=zone).timestamp())
    found = takewhile(
        lambda slot: slot < night + 36_000, slots_after("10,40 30 2 * * *", zone, night)
    )
    assert [slot - night for slot in found] == [5_410, 5_440]
    morning = int(datetime(2026, 3, 29, 1, tzinfo=zone).timestamp())
    assert next(slots_after("10,40 30 2 * * *", zone, morning)) == morning + 3_600
    every = slots_after("*/20 * * * * *", zone, night)
    assert [next(every) - night for _ in range(600)] == list(range(20, 12_001, 20))


def test_the_second_pass_of_an_hour_has_no_slots() -> None:
    zone = ZoneInfo("Europe/Vienna")
    for minute in range(60):
        again = int(datetime(2026, 10, 25, 2, minute, tzinfo=zone, fold=1).timestamp())
        later = datetime.fromtimestamp(next(slots_after("*/10 2 * * *", zone, again)), zone)
        assert later == datetime(2026, 10, 26, 2, tzinfo=zone)


def test_nothing_is_due_at_what_is_never_the_case() -> None:
    assert list(slots_after("0 0 */31 2 MON#5", UTC, 0)) == []
    assert list(slots_after("0 * */31 2 MON#5", ZoneInfo("Europe/Vienna"), 0)) == []


def test_a_wall_time_in_a_gap_is_its_end_and_a_doubled_one_the_first() -> None:
    zone = ZoneInfo("Europe/Vienna")
    for wall, expected in [
        (datetime(2026, 3, 29, 2, 0), "2026-03-29T03:00:00+02:00"),
        (datetime(2026, 3, 29, 2, 59, 59), "2026-03-29T03:00:00+02:00"),
        (datetime(2026, 10, 25, 2, 30), "2026-10-25T02:30:00+02:00"),
        (datetime(2026, 7, 1, 12, 0), "2026-07-01T12:00:00+02:00"),
    ]:
        assert datetime.fromtimestamp(instant_of(wall, zone), zone).isoformat() == expected


def test_names_of_expressions_are_written_out() -> None:
    assert normalize(" @Hourly ") == "0 * * * *"
    assert normalize("0  9 * * mon") == "0 9 * * mon"
    assert slots("@weekly", "UTC", "2026-11-18T00:00", 1) == ["11-22 00:00+0000"]
    assert slots("@annually", "UTC", "2026-11-18T00:00", 1) == ["01-01 00:00+0000"]


@pytest.mark.parametrize(
    ("expr", "problem"),
    [
        ("60 * * * *", "invalid minute '60'"),
        ("* 24 * * *", "invalid hour '24'"),
        ("* * 0 * *", "invalid day-of-month '0'"),
        ("* * * FOO *", "invalid month 'FOO'"),
        ("* * * * 8", "invalid day-of-week '8'"),
        ("* * * * MON#6", "invalid day-of-week 'MON#6'"),
        ("61 * * * * *", "invalid second '61'"),
        ("*/0 * * * *", "invalid minute"),
        ("5-1 * * * *", "invalid minute"),
        ("1, * * * *", "invalid minute"),
        ("- * * * *", "invalid minute"),
        ("٣ * * * *", "invalid minute"),
        ("* * * *", "use 5 fields"),
        ("* * * * * * *", "use 5 fields"),
        ("", "use 5 fields"),
        ("@reboot", "use 5 fields"),
        ("1," * 200 + "1 * * * *", "use 5 fields"),
        ("0 0 30 2 *", "never runs"),
        ("0 0 31 2,4,6 *", "never runs"),
    ],
)
def test_an_error_names_the_field(expr: str, problem: str) -> None:
    with pytest.raises(ValueError, match=problem):
        next(slots_after(expr, UTC, 0))


def test_an_unknown_zone_is_refused_with_the_nearest_names() -> None:
    with pytest.raises(ValueError, match=r"unknown time zone 'Europe/Viena'.*Europe/Vienna"):
        find_zone("Europe/Viena")
    with pytest.raises(ValueError, match="use one such as America/New_York"):
        find_zone("New_York")
    for name in ("../etc/passwd", "America", "x" * 5_000, "\0", "/etc/localtime"):
        with pytest.raises(ValueError, match="unknown time zone"):
            find_zone(name)
    assert str(find_zone("europe/VIENNA")) == "Europe/Vienna"


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        ("Europe/Vienna", "Europe/Vienna"),
        (":America/New_York", "America/New_York"),
        ("/usr/share/zoneinfo/Asia/Tokyo", "Asia/Tokyo"),
        ("Etc/UTC", "UTC"),
        ("", "UTC"),
    ],
)
def test_the_zone_of_the_host_is_that_of_tz(
    value: str, expected: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TZ", value)
    assert local_zone() == expected
    assert str(find_zone("")) == expected


def test_the_zone_of_the_host_is_that_of_the_link(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("TZ", raising=False)
    link = tmp_path / "localtime"
    assert local_zone(str(link)) == "UTC"
    link.symlink_to("/usr/share/zoneinfo/Pacific/Auckland")
    assert local_zone(str(link)) == "Pacific/Auckland"
    link.unlink()
    link.write_bytes(b"TZif")
    with pytest.raises(ValueError, match="no IANA name; give one"):
        local_zone(str(link))


def test_a_zone_without_a_name_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TZ", "CET-1CEST,M3.5.0,M10.5.0/3")
    with pytest.raises(ValueError, match="no IANA name"):
        find_zone("")
