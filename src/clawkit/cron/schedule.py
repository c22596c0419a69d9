"""Schedules of jobs, parsed from lenient input, and their slots.

A slot is a time at which a job is due. All times are milliseconds since the epoch, and the current
time is always an argument. Cron expressions follow the clocks of their zone (see `expression`);
`every` follows elapsed time, even across clock changes.
"""

from __future__ import annotations

import hashlib
import re
import shlex
from bisect import bisect_left
from collections.abc import Callable, Iterator, Mapping
from datetime import UTC, datetime, tzinfo
from itertools import islice, pairwise
from typing import Any, Literal

from msgspec import Struct, field, to_builtins

from clawkit.cron.expression import (
    find_zone,
    instant_of,
    normalize,
    slots_after,
    split_fields,
)
from clawkit.errors import ToolInputError
from clawkit.redact.redactor import compile_pattern
from clawkit.text import nearest, parse_time

MIN_INTERVAL_MS = 2_000
MAX_AHEAD_MS = 315_576_000_000
"""Ten years: the longest interval, and the latest time of a job that runs once."""
LATE_MS = 60_000
"""How far in the past the time of a new job may be, because thinking and typing take time."""
STAGGER_MS = 300_000
"""Jobs due at the full hour are spread over this window, by their ids."""
MAX_STAGGER_MS = 86_400_000
MAX_COUNTED = 1_000
MAX_COMMAND = 8_192
MAX_ARGUMENTS = 64
MAX_PATTERN = 500


class _Kind(Struct, frozen=True, tag_field="kind", rename="camel", forbid_unknown_fields=True):
    pass


class At(_Kind, frozen=True, tag="at"):
    """Once."""

    at_ms: int = field(name="at")


class Every(_Kind, frozen=True, tag="every"):
    """At the anchor and every `every_ms` after it."""

    every_ms: int
    anchor_ms: int = 0


class CronExpr(_Kind, frozen=True, tag="cron"):
    """By a cron expression."""

    expr: str
    tz: str = ""
    """IANA name; empty: the host's zone."""
    stagger_ms: int | None = None
    """Window for the job's fixed delay; 0 is exact. None: `STAGGER_MS` at the full hour, else 0."""


class OnExit(_Kind, frozen=True, tag="on-exit"):
    """Whenever a command exits."""

    command: str
    cwd: str = ""


class Stream(_Kind, frozen=True, tag="stream"):
    """Whenever a command prints lines: any, or those in which `compile_pattern(match)` is found."""

    command: tuple[str, ...]
    cwd: str = ""
    mode: Literal["line", "match"] = "line"
    match: str = ""
    batch_ms: int = 250
    max_batch_bytes: int = 16_384


Schedule = At | Every | CronExpr | OnExit | Stream


def next_after(schedule: Schedule, after_ms: int, job_id: str = "") -> int | None:
    """The first slot strictly after `after_ms`; None if there is none, or if the schedule waits for
    events."""
    return next(_slots(schedule, after_ms, job_id), None)


def last_before(
    schedule: Schedule, after_ms: int, upto_ms: int, job_id: str = ""
) -> tuple[int, int] | None:
    """The latest slot after `after_ms` and up to `upto_ms`, and the number of slots. Slots of a
    cron expression are counted up to `MAX_COUNTED`."""
    if isinstance(schedule, Every):
        first = max(0, (after_ms - schedule.anchor_ms) // schedule.every_ms + 1)
        last = (upto_ms - schedule.anchor_ms) // schedule.every_ms
        found = schedule.anchor_ms + last * schedule.every_ms
        return (found, last - first + 1) if first <= last else None
    count, latest = 0, after_ms
    for slot in islice(_slots(schedule, after_ms, job_id), MAX_COUNTED):
        if slot > upto_ms:
            break
        count, latest = count + 1, slot
    if count == MAX_COUNTED:
        # The first time that is followed by no slot up to `upto_ms` is the latest slot itself.
        latest += bisect_left(
            range(latest, upto_ms),
            True,
            key=lambda at: (next_after(schedule, at, job_id) or upto_ms + 1) > upto_ms,
        )
    return (latest, count) if count else None


def stagger_of(schedule: Schedule, job_id: str) -> int:
    """The constant delay of all slots of a job. 0 without an id, as in a preview."""
    if not isinstance(schedule, CronExpr) or not job_id:
        return 0
    window = schedule.stagger_ms
    if window is None:
        window = STAGGER_MS if split_fields(schedule.expr)[:2] == ("0", "0") else 0
    return int.from_bytes(hashlib.sha256(job_id.encode()).digest()[:8], "big") % (window + 1)


def _slots(schedule: Schedule, after_ms: int, job_id: str) -> Iterator[int]:
    """All slots strictly after `after_ms`, unique and in order."""
    if isinstance(schedule, At):
        if schedule.at_ms > after_ms:
            yield schedule.at_ms
    elif isinstance(schedule, Every):
        step, anchor = schedule.every_ms, schedule.anchor_ms
        count = max(0, (after_ms - anchor) // step + 1)
        while True:
            yield anchor + count * step
            count += 1
    elif isinstance(schedule, CronExpr):
        delay = stagger_of(schedule, job_id)
        for slot in slots_after(schedule.expr, find_zone(schedule.tz), (after_ms - delay) // 1_000):
            yield slot * 1_000 + delay


_KEYS = {
    "at": ("at", "atMs", "in", "tz"),
    "every": ("every", "everyMs", "anchorMs"),
    "cron": ("expr", "cron", "tz", "stagger", "staggerMs", "exact"),
    "on-exit": ("command", "cwd"),
    "stream": ("command", "cwd", "mode", "match", "batchMs", "maxBatchBytes"),
}
_IMPLIES = {
    **dict.fromkeys(("at", "atMs", "in"), "at"),
    **dict.fromkeys(("every", "everyMs"), "every"),
    **dict.fromkeys(("cron", "expr"), "cron"),
}


def read_schedule(raw: Mapping[str, Any], now_ms: int) -> Schedule:
    """Parse a schedule written by a model or a person. Raises ToolInputError.

    Keys may be snake_case, `kind` is optional if another key implies it, and values may be texts:
    `{"every": "1h30m"}`, `{"in": "20 minutes"}`, `{"cron": "0 9 * * 1-5", "exact": true}`.
    """
    try:
        fields = _read_keys(raw)
        return _READERS[_read_kind(fields)](fields, now_ms)
    except ValueError as error:
        raise ToolInputError(f"schedule: {error} (now: {iso_time(now_ms)})") from None


def write_schedule(schedule: Schedule) -> dict[str, Any]:
    """The schedule in the format for clients, without empty fields."""
    raw = to_builtins(schedule)
    if isinstance(schedule, At):
        raw["at"] = iso_time(schedule.at_ms)
    return {
        key: list(value) if isinstance(value, tuple) else value
        for key, value in raw.items()
        if value is not None and value != ""
    }


def iso_time(at_ms: int) -> str:
    """`2026-11-18T02:00:00Z`, with milliseconds only if they are not 0."""
    at = datetime.fromtimestamp(at_ms // 1_000, UTC).replace(microsecond=at_ms % 1_000 * 1_000)
    text = at.isoformat(timespec="milliseconds" if at.microsecond else "seconds")
    return text.replace("+00:00", "Z")


def _read_keys(raw: Mapping[str, Any]) -> dict[str, Any]:
    known = {"kind", *(key for keys in _KEYS.values() for key in keys)}
    fields: dict[str, Any] = {}
    for key, value in raw.items():
        name = re.sub("_([a-z])", lambda found: found[1].upper(), str(key).strip())
        if name not in known:
            close = nearest(name, known, n=1) or sorted(known)
            raise ValueError(f"unknown key {name[:64]!r}; did you mean {', '.join(close)}?")
        if value is not None:
            if name in fields:
                raise ValueError(f"{name!r} is given twice")
            is_plain = isinstance(value, str) and name != "match"
            fields[name] = value.strip() if is_plain else value
    return fields


def _read_kind(fields: dict[str, Any]) -> str:
    implied = sorted({_IMPLIES[key] for key in fields if key in _IMPLIES})
    if "kind" not in fields and len(implied) != 1:
        several = f" ({' and '.join(implied)} are mixed here)" if implied else ""
        raise ValueError(f"give exactly one of at, in, every and cron, or a kind{several}")
    kind = str(fields.pop("kind", implied and implied[0])).lower()
    if kind not in _KEYS:
        close = nearest(kind, _KEYS, n=1) or list(_KEYS)
        raise ValueError(f"unknown kind {kind[:64]!r}; use {', '.join(close)}")
    for key in fields:
        if key not in _KEYS[kind]:
            raise ValueError(f"{key!r} does not go with kind {kind!r}")
    return kind


def _one_of(fields: Mapping[str, Any], *names: str) -> Any:
    """The value of the only given alias; None if none is given."""
    given = [name for name in names if name in fields]
    if len(given) > 1:
        raise ValueError(f"give only one of {' and '.join(given)}")
    return fields[given[0]] if given else None


def _text(fields: Mapping[str, Any], name: str, max_bytes: int = MAX_COMMAND) -> str:
    value = fields.get(name, "")
    if not isinstance(value, str) or "\0" in value:
        raise ValueError(f"{name!r} must be a text")
    if len(value.encode("utf-8", "surrogatepass")) > max_bytes:
        raise ValueError(f"{name!r} has more than {max_bytes:,} bytes")
    return value


def _number(value: Any, name: str, least: int, most: int, unit: str = "ms") -> int:
    """A whole number, possibly as a string; milliseconds may also be a duration."""
    number = value
    if isinstance(value, str) and re.fullmatch(r"-?[0-9]{1,15}", value):
        number = int(value)
    elif isinstance(value, str) and unit == "ms":
        number = round(parse_time(value) * 1_000)
    elif isinstance(value, float) and value.is_integer():
        number = int(value)
    if value is None:
        raise ValueError(f"{name!r} is missing")
    if not isinstance(number, int) or isinstance(number, bool):
        raise ValueError(f"{name!r} must be a whole number of {unit}, not {str(value)[:64]!r}")
    if not least <= number <= most:
        raise ValueError(f"{name!r} must be {least:,} to {most:,} {unit}, not {number:,}")
    return number


_DELAY = r"(?i)(?:in\s+|\+)(.+)"


def read_time(value: Any, zone: tzinfo, now_ms: int) -> int:
    """A point in time: ISO 8601 (by default in `zone`), milliseconds since the epoch, or relative
    to now: `in 20 minutes`, `+20m`."""
    if not isinstance(value, str) or re.fullmatch("-?[0-9]+", value):
        return _number(value, "at", 0, 10**14)
    if delay := re.fullmatch(_DELAY, value):
        return now_ms + _number(delay[1], "at", 0, MAX_AHEAD_MS)
    try:
        at = datetime.fromisoformat(value)
        at_s = int(at.timestamp()) if at.tzinfo else instant_of(at.replace(microsecond=0), zone)
    except (ValueError, OverflowError):
        raise ValueError(
            f"cannot read the time {value[:64]!r}; use one such as 2026-12-24T18:00:00Z, or +20m"
        ) from None
    return at_s * 1_000 + at.microsecond // 1_000


def _read_at(fields: Mapping[str, Any], now_ms: int) -> At:
    value = _one_of(fields, "at", "atMs", "in")
    if "in" in fields:
        delay = re.fullmatch(_DELAY, value) if isinstance(value, str) else None
        at_ms = now_ms + _number(delay[1] if delay else value, "in", 0, MAX_AHEAD_MS)
    else:
        at_ms = read_time(value, find_zone(_text(fields, "tz") or "UTC"), now_ms)
    check_once(at_ms, now_ms)
    return At(at_ms)


def check_once(at_ms: int, now_ms: int) -> None:
    """Raises ValueError if a new job cannot be due then."""
    if at_ms < now_ms - LATE_MS:
        raise ValueError(f"{iso_time(max(0, at_ms))} is in the past")
    if at_ms > now_ms + MAX_AHEAD_MS:
        raise ValueError("that is more than 10 years ahead")


def _read_every(fields: Mapping[str, Any], now_ms: int) -> Every:
    every_ms = _number(_one_of(fields, "every", "everyMs"), "every", MIN_INTERVAL_MS, MAX_AHEAD_MS)
    anchor = fields.get("anchorMs", now_ms)
    return Every(every_ms, _number(anchor, "anchorMs", 0, now_ms + MAX_AHEAD_MS))


def _read_cron(fields: Mapping[str, Any], now_ms: int) -> CronExpr:
    window = _one_of(fields, "stagger", "staggerMs")
    exact = fields.get("exact", False)
    if not isinstance(exact, bool) or (exact and window is not None):
        raise ValueError("'exact' must be true or false, and excludes 'stagger'")
    if exact or window is not None:
        window = _number(window or 0, "stagger", 0, MAX_STAGGER_MS)
    expr = _one_of(fields, "expr", "cron")
    if not isinstance(expr, str) or not expr:
        raise ValueError("'expr' must be a cron expression, such as '0 9 * * 1-5'")
    return make_cron(expr, _text(fields, "tz"), window, now_ms)


def make_cron(expr: str, tz: str, stagger_ms: int | None, now_ms: int) -> CronExpr:
    """A validated cron schedule with the name of its zone. Raises ValueError."""
    schedule = CronExpr(normalize(expr), str(find_zone(tz)), stagger_ms)
    # With a single value for seconds, slots are at least a minute apart.
    several = 61 if not split_fields(expr)[0].isdigit() else 1
    slots = list(islice(_slots(schedule, now_ms, ""), several))
    if not slots:
        raise ValueError(f"{expr!r} never runs: no date matches it")
    if min((b - a for a, b in pairwise(slots)), default=MIN_INTERVAL_MS) < MIN_INTERVAL_MS:
        raise ValueError(f"{expr!r} runs more often than every {MIN_INTERVAL_MS:,} ms")
    return schedule


def _read_on_exit(fields: Mapping[str, Any], now_ms: int) -> OnExit:
    command = _text(fields, "command")
    if not command:
        raise ValueError("'command' must not be empty")
    return OnExit(command, _text(fields, "cwd"))


def _read_stream(fields: Mapping[str, Any], now_ms: int) -> Stream:
    command = fields.get("command", ())
    try:
        argv = shlex.split(_text(fields, "command")) if isinstance(command, str) else command
    except ValueError as error:
        raise ValueError(f"'command': {error}") from None
    if not isinstance(argv, list | tuple) or not 1 <= len(argv) <= MAX_ARGUMENTS:
        raise ValueError(f"'command' must be a list of 1 to {MAX_ARGUMENTS} texts")
    for index, each in enumerate(argv):
        if not _text({f"command[{index}]": each}, f"command[{index}]"):
            raise ValueError(f"'command[{index}]' must not be empty")
    match = _text(fields, "match", MAX_PATTERN)
    mode = fields.get("mode", "match" if match else "line")
    if mode not in ("line", "match") or (mode == "match") != bool(match):
        raise ValueError("'mode' must be 'line', or 'match' with a regular expression in 'match'")
    if match:
        compile_pattern(match)
    return Stream(
        tuple(argv),
        _text(fields, "cwd"),
        mode,
        match,
        _number(fields.get("batchMs", 250), "batchMs", 50, 5_000),
        _number(fields.get("maxBatchBytes", 16_384), "maxBatchBytes", 1_024, 65_536, "bytes"),
    )


_READERS: dict[str, Callable[[Mapping[str, Any], int], Schedule]] = {
    "at": _read_at,
    "every": _read_every,
    "cron": _read_cron,
    "on-exit": _read_on_exit,
    "stream": _read_stream,
}
