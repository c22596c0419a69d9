"""Schedules in English: `every weekday at 9:00 Europe/Vienna`, `tomorrow at noon`, `in 20 minutes`.

A phrase can end with a time zone. A cron expression, or a phrase that becomes one, may be followed
by `exactly` or `within 10m`: the window over which jobs are spread. A phrase without date and
`every`, such as `at 9` or `friday at noon`, is due once, at the next such time.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from datetime import UTC, datetime, time, timedelta
from functools import cache

from clawkit.cron.expression import find_zone, instant_of, known_zone
from clawkit.cron.schedule import (
    At,
    CronExpr,
    Every,
    OnExit,
    Schedule,
    Stream,
    iso_time,
    read_schedule,
    read_time,
)
from clawkit.errors import ToolInputError
from clawkit.text import nearest

MAX_PHRASE = 300

_DAYS = ("sunday", "monday", "tuesday", "wednesday", "thursday", "friday", "saturday")
_MONTHS = (
    *("january", "february", "march", "april", "may", "june"),
    *("july", "august", "september", "october", "november", "december"),
)
_NTH = ("first", "second", "third", "fourth", "fifth", "last")
_DAY = "(?:mon|tues?|wed(?:nes)?|thu(?:rs?)?|fri|sat(?:ur)?|sun)(?:day)?"
_EACH = "(?:mon|tues|wednes|thurs|fri|satur|sun)days"
_MONTH = "(?:" + "|".join(f"{name[:3]}(?:{name[3:]})?" for name in _MONTHS) + ")"
_DATE = "[0-9]{1,2}(?:st|nd|rd|th)"
_AND = "(?:, and |, | and )"
_SPAN = "[0-9][0-9.]* ?[a-z]+"
_SLOTS = {
    "time": "noon|midnight|[0-9]{1,2}(?::[0-9]{2})?(?: ?[ap]m)?",
    "clock": "noon|midnight|[0-9]{1,2}(?::[0-9]{2}(?: ?[ap]m)?| ?[ap]m)",
    "minute": ":[0-5][0-9]",
    "unit": "second|minute|hour",
    "length": f"{_SPAN}(?: ?{_SPAN})*",
    "start": "[0-9]{4}-[^ ]+",
    "moment": "[0-9]{4}-[^ ]+(?: [0-9][^ ]*)?",
    "day": _DAY,
    "days": f"weekday|weekend|{_DAY}(?:{_AND}{_DAY})*",
    "each": f"weekdays|weekends|{_EACH}(?:{_AND}{_EACH})*",
    "dates": f"{_DATE}(?:{_AND}{_DATE})*",
    "date": f"[0-9]{{1,2}} {_MONTH}|{_MONTH} [0-9]{{1,2}}",
    "nth": "|".join(_NTH),
    "which": "today|tomorrow",
    "next": "next",
}
# Words in brackets are optional, slashes separate alternatives, and names in angle brackets are
# slots.
_FORMS = (
    ("interval", "every <length>", "every 15 minutes"),
    ("interval", "every <length> from <start>", "every 90 minutes from 2026-11-20T09:00Z"),
    ("interval", "every <unit>", "every hour"),
    ("interval", "every <unit> from <start>", "every hour from 2026-11-20T09:00Z"),
    ("interval", "hourly", "hourly"),
    ("hour", "every hour at <minute>", "every hour at :15"),
    ("hour", "hourly at <minute>", "hourly at :15"),
    ("day", "every day at <time>", "every day at 9:00"),
    ("day", "daily at <time>", "daily at 18:30"),
    ("days", "every <days> at <time>", "every monday and thursday at 8:15"),
    ("days", "[on] <each> at <time>", "weekdays at 9am"),
    ("dates", "[on] [the] <dates> of the/every/each month at <time>", "1st of every month at 6:00"),
    ("last", "[on] [the] last day of the/every/each month at <time>", "last day of the month at 9"),
    (
        "nth",
        "[on] [the] <nth> <day> of the/every/each month at <time>",
        "last friday of the month at 9",
    ),
    ("year", "every year on <date> at <time>", "every year on 24 December at 18:00"),
    ("year", "yearly on <date> at <time>", "yearly on 24 December at 18:00"),
    ("delay", "in <length>", "in 20 minutes"),
    ("moment", "[at] <moment>", "at 2026-12-24 18:00"),
    ("once", "<which> at <time>", "tomorrow at 9"),
    ("once", "[on] [<next>] <day> at <time>", "next friday at noon"),
    ("once", "at <time>", "at 9"),
    ("once", "<clock>", "midnight"),
)
_FIELD = "(?:[0-9*,/#LW-]|" + "|".join(name[:3] for name in (*_DAYS, *_MONTHS)) + ")+"


def read_phrase(text: str, now_ms: int, tz: str = "") -> Schedule:
    """Parse a phrase or a cron expression. Times are in the zone that it names, else in `tz`, else
    in the host's. Raises ToolInputError."""
    try:
        return _read(" ".join(text.split()), now_ms, tz)
    except ValueError as error:
        shown = f"cannot read the schedule {text[:MAX_PHRASE]!r}: {error}"
        raise ToolInputError(f"{shown} (now: {iso_time(now_ms)})") from None


def describe(schedule: Schedule) -> str:
    """The phrase that `read_phrase` parses to an equal schedule. Schedules that wait for a command
    have none and are only described."""
    match schedule:
        case At():
            return f"at {iso_time(schedule.at_ms)}"
        case Every():
            length = re.sub("^1 (?!day)", "", _length(schedule.every_ms))
            return f"every {length} from {iso_time(schedule.anchor_ms)}"
        case OnExit():
            return f"when `{schedule.command}` exits"
        case Stream():
            which = f"matches {schedule.match!r}" if schedule.match else "is printed"
            return f"when a line of `{shlex.join(schedule.command)}` {which}"
        case CronExpr(stagger_ms=window):
            spread = "" if window is None else f"within {_length(window)}" if window else "exactly"
            return " ".join(filter(None, (_phrase_of(schedule.expr), schedule.tz, spread)))


def _read(text: str, now_ms: int, tz: str) -> Schedule:
    if not 0 < len(text) <= MAX_PHRASE:
        raise ValueError(f"it must have 1 to {MAX_PHRASE} characters, such as 'every day at 9:00'")
    body, zone, spread = _split_end(text)
    if re.fullmatch(f"(?i)cron .*|@.*|{_FIELD}(?: {_FIELD}){{4,5}}", body):
        kind, expr = "cron", re.sub("(?i)^cron ", "", body)
    else:
        kind, found = _match(body)
        expr = _expression(kind, found)
    if expr:
        return read_schedule({"expr": expr, "tz": zone or tz, **spread}, now_ms)
    if spread or (zone and kind in ("interval", "delay")):
        raise ValueError(f"{text[len(body) :].strip()!r} has no effect on {body!r}")
    if kind == "delay":
        return read_schedule({"in": found["length"]}, now_ms)
    if kind == "moment":
        return read_schedule(
            {"at": found["moment"].upper(), "tz": str(find_zone(zone or tz))}, now_ms
        )
    if kind == "once":
        return read_schedule({"at": _next_time(found, now_ms, zone or tz)}, now_ms)
    length = found.get("length") or f"1 {found.get('unit', 'hour')}"
    start = read_time(found["start"].upper(), UTC, now_ms) if "start" in found else now_ms
    return read_schedule({"every": length, "anchorMs": start}, now_ms)


def _split_end(text: str) -> tuple[str, str, dict[str, str | bool]]:
    """The phrase without time zone and window, and these two."""
    spread: dict[str, str | bool] = {}
    if ends := re.fullmatch(f"(?i)(.+?) (?:exactly|within ({_SLOTS['length']}))", text):
        spread = {"stagger": ends[2]} if ends[2] else {"exact": True}
        text = ends[1]
    body, _, last = text.rpartition(" ")
    looks_like_one = re.fullmatch("[A-Za-z_]+(?:/[A-Za-z_]+[-+0-9]*)+|(?i:utc|gmt)", last)
    if body and (looks_like_one or known_zone(last)):
        return body, str(find_zone(last)), spread
    return text, "", spread


@cache
def _compiled(form: str) -> list[re.Pattern[str]]:
    parts = []
    for word in form.split():
        bare = word.strip("[]")
        body = f"(?P{bare}{_SLOTS[bare[1:-1]]})" if bare[0] == "<" else bare.replace("/", "|")
        parts.append(re.compile(f"(?:(?:{body}) )" + "?" * (word[0] == "[")))
    return [*parts, re.compile("$")]


def _match(text: str) -> tuple[str, dict[str, str]]:
    """The kind of a phrase, and its slots. The error shows how far the best match got."""
    words = re.sub(r"^\+ ?", "in ", text).lower() + " "
    reached = []
    for kind, form, _ in _FORMS:
        at, found = 0, dict[str, str]()
        for part in _compiled(form):
            piece = part.match(words, at)
            if piece is None:
                break
            at = piece.end()
            found |= {name: value for name, value in piece.groupdict().items() if value}
        else:
            return kind, found
        reached.append(at)
    best = max(reached)
    examples = [example for (*_, example), at in zip(_FORMS, reached, strict=True) if at == best]
    known, rest = words[:best].strip(), words[best:].strip()
    words_known = {word for *_, example in _FORMS for word in example.lower().split()}
    vocabulary = {word for word in words_known.union(_DAYS, _MONTHS) if word.isalpha()}
    wrong = rest.partition(" ")[0]
    close = [] if wrong in vocabulary else nearest(wrong, vocabulary, n=1)
    problem = f"not {rest!r}" if rest else "something is missing after that"
    understood = f"understood {known!r}, but {problem}" if known else f"did not understand {rest!r}"
    hint = f"did you mean {close[0]!r}? Write" if close else "write"
    few = examples[:: -(-len(examples) // 4)]
    raise ValueError(f"{understood}; {hint} for example {', '.join(map(repr, few))}")


def _expression(kind: str, groups: Mapping[str, str]) -> str:
    """The cron expression for a phrase; empty if it has none."""
    match kind:
        case "hour":
            return f"{int(groups['minute'][1:])} * * * *"
        case "day":
            days = "* * *"
        case "days":
            days = f"* * {_weekdays(groups.get('days') or groups['each'])}"
        case "dates":
            days = f"{_list(map(int, re.findall('[0-9]+', groups['dates'])))} * *"
        case "last":
            days = "L * *"
        case "nth":
            nth = _NTH.index(groups["nth"]) + 1
            days = f"* * {_index(groups['day'], _DAYS)}" + ("L" if nth == 6 else f"#{nth}")
        case "year":
            month = _index(re.sub("[0-9 ]", "", groups["date"]), _MONTHS) + 1
            days = f"{int(re.sub('[^0-9]', '', groups['date']))} {month} *"
        case _:
            return ""
    at = _clock(groups["time"])
    return f"{at.minute} {at.hour} {days}"


def _phrase_of(expr: str) -> str:
    """The phrase for an expression in canonical form; other expressions have none."""
    if fields := re.fullmatch(r"([0-9]{1,2}) ([0-9]{1,2}|\*) ([^ ]+) ([^ ]+) ([^ ]+)", expr):
        minute, hour, *days = fields.groups()
        time_ = f"{hour.zfill(2)}:{minute.zfill(2)}"
        for phrase in (
            f"every hour at {time_[-3:]}",
            *(f"{each} at {time_}" for each in _days(*days)),
        ):
            with suppress(ValueError):
                if _expression(*_match(phrase)) == expr:
                    return phrase
    return f"cron {expr}"


def _days(date: str, month: str, weekday: str) -> Iterator[str]:
    """Candidate phrases for days, at most one of which matches these fields."""
    yield from ("every day", "every weekday", "every weekend", "on the last day of every month")
    days = [_DAYS[int(number)] for number in re.findall("[0-6]", weekday)]
    yield f"every {_join(days)}"
    yield f"on the {_join(map(_ordinal, re.findall('[0-9]+', date)))} of every month"
    yield from (f"on the {nth} {_join(days[:1])} of every month" for nth in _NTH)
    yield from (f"every year on {date} {name}" for name in _MONTHS)


def _join(words: Iterable[str]) -> str:
    return re.sub(", ([^,]+)$", r" and \1", ", ".join(words))


def _ordinal(number: str) -> str:
    suffixes = {"1": "st", "2": "nd", "3": "rd"}
    return number + (
        "th" if len(number) == 2 and number[0] == "1" else suffixes.get(number[-1], "th")
    )


def _weekdays(names: str) -> str:
    if names.startswith("week"):
        return "1-5" if names.startswith("weekday") else "0,6"
    return _list(_index(name, _DAYS) for name in re.findall(_DAY, names))


def _list(numbers: Iterable[int]) -> str:
    return ",".join(map(str, sorted(set(numbers))))


def _index(name: str, names: Sequence[str]) -> int:
    return next(index for index, each in enumerate(names) if each.startswith(name[:3]))


def _clock(text: str) -> time:
    if text in ("noon", "midnight"):
        return time(12 if text == "noon" else 0)
    hour, minute, half = re.findall("([0-9]+):?([0-9]*) ?([ap]m)?", text)[0]
    hours, minutes = int(hour), int(minute or 0)
    if hours > 23 or minutes > 59 or (half and not 1 <= hours <= 12):
        raise ValueError(f"invalid time {text!r}")
    return time(hours % 12 + 12 * (half == "pm") if half else hours, minutes)


def _next_time(groups: Mapping[str, str], now_ms: int, tz: str) -> int:
    zone = find_zone(tz)
    today = datetime.fromtimestamp(now_ms // 1_000, zone).date()
    at = _clock(groups.get("time") or groups["clock"])
    ahead = int(groups.get("which") == "tomorrow")
    if "day" in groups:
        ahead = (_index(groups["day"], _DAYS) - today.isoweekday()) % 7
        ahead = 7 if "next" in groups and not ahead else ahead

    def due_ms(days: int) -> int:
        return instant_of(datetime.combine(today + timedelta(days), at), zone) * 1_000

    if "which" not in groups and due_ms(ahead) <= now_ms:
        ahead += 7 if "day" in groups else 1
    return due_ms(ahead)


def _length(length_ms: int) -> str:
    for size_ms, unit in ((86_400_000, "day"), (3_600_000, "hour"), (60_000, "minute")):
        if length_ms % size_ms == 0:
            count = length_ms // size_ms
            return f"{count} {unit}" if count == 1 else f"{count} {unit}s"
    return f"{length_ms} ms" if length_ms % 1_000 else f"{length_ms // 1_000} seconds"
