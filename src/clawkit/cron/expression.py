"""Cron expressions and their time zones.

An expression has 5 fields, or 6 with seconds first. If both days of the month and weekdays are
restricted, either suffices; if one of these fields starts with `*`, as in `*/2`, both must match.

When clocks go forward, a skipped time is due at the end of the gap. When they go back, a repeated
time is due once, the first time. An expression for every hour (`*/15 * * * *`) follows elapsed time
instead: otherwise it would pause during the repeated hour.
"""

from __future__ import annotations

import os
from bisect import bisect_left, bisect_right
from collections.abc import Iterator
from copy import copy
from datetime import UTC, datetime, timedelta, tzinfo
from functools import lru_cache
from typing import TYPE_CHECKING
from zoneinfo import ZoneInfo, available_timezones

from clawkit.text import nearest

if TYPE_CHECKING:
    from cronsim import CronSim

MAX_EXPRESSION = 200
_EPOCH = datetime(1970, 1, 1)
_SECOND = timedelta(seconds=1)
_NICKNAMES = {
    "@hourly": "0 * * * *",
    "@daily": "0 0 * * *",
    "@midnight": "0 0 * * *",
    "@weekly": "0 0 * * 0",
    "@monthly": "0 0 1 * *",
    "@yearly": "0 0 1 1 *",
    "@annually": "0 0 1 1 *",
}


def slots_after(expr: str, zone: tzinfo, after_s: int) -> Iterator[int]:
    """The times at which an expression is due, strictly after `after_s`, unique and in order, in
    seconds since the epoch. Ends if nothing is due for 50 years. Raises ValueError for an invalid
    expression."""
    sim = copy(_compile(expr))
    find = _next_by_elapsed_time if len(sim.hours) == 24 else _next_by_wall_clock
    slot = find(sim, zone, after_s)
    while slot is not None:
        yield slot
        slot = find(sim, zone, slot)


def _next_by_wall_clock(sim: CronSim, zone: tzinfo, after_s: int) -> int | None:
    sim.dt = datetime.fromtimestamp(after_s, zone).replace(tzinfo=None)
    # Several times in a gap share one slot; times in a repeated hour have slots in the past.
    return next((slot for wall in sim if (slot := instant_of(wall, zone)) > after_s), None)


def _next_by_elapsed_time(sim: CronSim, zone: tzinfo, after_s: int) -> int | None:
    offset = _offset(zone, after_s)
    while True:
        sim.dt = _EPOCH + after_s * _SECOND + offset
        wall = next(sim, None)
        if wall is None:
            return None
        slot = (wall - offset - _EPOCH) // _SECOND
        if _offset(zone, slot) == offset:
            return slot
        # The offset changes in between: continue from there with the new one.
        changed_s = _next_change(zone, offset, range(after_s + 1, slot))
        offset, after_s = _offset(zone, changed_s), changed_s - 1


def _next_change(zone: tzinfo, offset: timedelta, ahead: range) -> int:
    """The first second with another offset; the end of the range if there is none."""
    return ahead.start + bisect_left(ahead, True, key=lambda at_s: _offset(zone, at_s) != offset)


def _offset(zone: tzinfo, at_s: int) -> timedelta:
    return datetime.fromtimestamp(at_s, zone).utcoffset() or timedelta()


def instant_of(wall: datetime, zone: tzinfo) -> int:
    """The time at which clocks in `zone` show `wall`, in seconds since the epoch: the first of two,
    or the end of the gap if `wall` is skipped."""
    first = int(wall.replace(tzinfo=zone).timestamp())
    other = int(wall.replace(tzinfo=zone, fold=1).timestamp())
    if first <= other:
        return first

    def clock(at_s: int) -> datetime:
        return datetime.fromtimestamp(at_s, zone).replace(tzinfo=None)

    return other + bisect_right(range(other, first), wall, key=clock)


def normalize(expr: str) -> str:
    """The expression with single spaces; nicknames such as `@daily` are expanded."""
    text = " ".join(expr.split())
    return _NICKNAMES.get(text.lower(), text)


@lru_cache(maxsize=1_024)
def split_fields(expr: str) -> tuple[str, ...]:
    """Six fields, as written; with only five, the seconds are 0."""
    parts = normalize(expr).split()
    return ("0", *parts) if len(parts) == 5 else tuple(parts)


@lru_cache(maxsize=1_024)
def _compile(expr: str) -> CronSim:
    """Cached, so copy it before use. Raises a ValueError that names the invalid field."""
    # Imported here, because most runs have no cron expression.
    from cronsim.cronsim import FIELD_NAMES, CronSim, CronSimError, Field

    parts = split_fields(expr)
    if len(expr) > MAX_EXPRESSION or len(parts) != 6:
        raise ValueError(
            f"invalid cron expression {expr[:MAX_EXPRESSION]!r}: use 5 fields (minute, hour, day, "
            f"month, weekday), 6 with seconds first, or one of {', '.join(_NICKNAMES)}"
        )
    for part, kind in zip(parts, Field, strict=True):
        try:
            kind.parse(part.upper())
        except CronSimError:
            message = f"invalid {FIELD_NAMES[kind]} {part!r} in the cron expression {expr!r}"
            raise ValueError(message) from None
    try:
        return CronSim(" ".join(parts), _EPOCH)
    except CronSimError:
        raise ValueError(f"{expr!r} never runs: no date matches it") from None


def find_zone(name: str) -> tzinfo:
    """A time zone by its IANA name; empty: the host's. Raises ValueError for an unknown one."""
    return _load_zone(name or local_zone())


@lru_cache(maxsize=64)
def _load_zone(name: str) -> tzinfo:
    if zone := known_zone(name):
        return zone
    known = {zone.lower(): zone for zone in available_timezones()}
    if name.lower() in known:
        return ZoneInfo(known[name.lower()])
    # People name a city: `Vienna`.
    cities = [zone for key, zone in sorted(known.items()) if key.endswith(f"/{name.lower()}")]
    close = cities or nearest(name, known.values()) or ["Europe/Vienna", "America/New_York"]
    raise ValueError(f"unknown time zone {name[:64]!r}; use one such as {', '.join(close)}")


def known_zone(name: str) -> tzinfo | None:
    """The time zone of exactly this name, if there is one."""
    if name == "UTC":
        return UTC
    try:
        return ZoneInfo(name)
    except (KeyError, ValueError, OSError):
        return None


def local_zone(localtime: str = "/etc/localtime") -> str:
    """The IANA name of the host's zone, by `TZ`, else by the link `localtime`. Raises ValueError if
    it has none."""
    name = os.environ.get("TZ", localtime).removeprefix(":") or "UTC"
    if name.startswith("/"):
        target = os.path.realpath(name)
        name = target.partition("/zoneinfo/")[2] if os.path.exists(target) else "UTC"
    name = "UTC" if name == "Etc/UTC" else name
    if known_zone(name) is None:
        raise ValueError("the time zone of this host has no IANA name; give one")
    return name
