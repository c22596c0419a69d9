"""Which calls are the same, and which results are equivalent.

Calls are the same if tool and parameters are; the order of keys, and whether the parameters came as
an object or as JSON text, make no difference. Results are equivalent if they differ only in values
that vary every time: times, durations, process ids, names of temporary files.

Nothing here raises, whatever the input.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping
from functools import cache
from typing import Any

import msgspec

from clawkit.content import Image
from clawkit.core.result import Result

MAX_DEPTH = 64
MAX_NODES = 200_000
"""Maximum compared part of a value. Calls with more are not executed."""
EDGE = 16_000
"""Characters at both ends of a text in which variable parts are ignored."""

_TRIES = r"(?i)\b(?:attempt|retry|try)\W{0,3}\d+(?:(?:/|[ ]of[ ])\d+)?"
_POLLS = frozenset(("poll", "log", "status"))
_CHANGING = frozenset(("write", "edit", "apply_patch"))
_SENDING = frozenset(
    (
        *("send", "broadcast", "reply", "thread-reply", "sendWithEffect", "sendAttachment"),
        *("upload-file", "sticker", "poll"),
    )
)
"""Actions of `message` that send something."""
_OF_A_SENDING = frozenset(
    (
        *("id", "messageId", "message_id", "messageIds", "platformMessageId"),
        *("platformMessageIds", "fileId", "file_id", "fileKey", "pollId", "poll_id", "receipt"),
        *("runId", "idempotencyKey", "ts", "timestamp", "sentAt", "deliveredAt", "createdAt"),
    )
)
"""Details that differ for everything that is sent."""
_OF_A_PROCESS = (
    *("status", "exitCode", "exitSignal", "waitingForInput", "aggregated"),
    *("output", "total", "truncated", "screen", "cursor"),
)
_OF_A_QUESTION = ("status", "reason", "host", "command", "warningText")


class CallOutcome(msgspec.Struct, frozen=True):
    mark: str  # equal for equivalent results
    failure: str = ""  # equal for commands that failed alike, ignoring retry counters
    fruitless: bool = False  # it failed, or should have changed something but did not


def parse_params(params: object) -> object:
    """The intended parameters: models also send objects as JSON text, and nothing for none."""
    if isinstance(params, str) and params:
        try:
            return json.loads(params)
        except (ValueError, RecursionError):
            return params
    return {} if params is None or params == "" else params


def is_poll(tool: str, params: object) -> bool:
    """Whether a call only checks the progress of something."""
    return tool == "command_status" or (tool == "process" and _action(params) in _POLLS)


def call_key(tool: str, params: object) -> str:
    """Equal for the same calls."""
    return f"{tool[:80]}:{_digest((tool, params))}"


def outcome_of(tool: str, params: object, result: Result) -> CallOutcome:
    details = result.details
    if tool in _CHANGING and details.get("changed") is False:
        return CallOutcome("unchanged", fruitless=True)
    failed = result.is_error
    if tool == "exec" and (of_a_command := _command(result)):
        return of_a_command
    if tool == "process" and "status" in details and _action(params) in _POLLS:
        return CallOutcome(_digest(_picked(details, _OF_A_PROCESS)), fruitless=failed)
    sends = tool == "sessions_send" or (tool == "message" and _action(params) in _SENDING)
    if details and sends:
        return CallOutcome(_digest(details, _OF_A_SENDING), fruitless=failed)
    if not result.content:
        return CallOutcome(_digest([dict(details)]), fruitless=failed)
    read = [
        (block.mime_type, block.data) if isinstance(block, Image) else _normalize(block.text)
        for block in result.content
    ]
    return CallOutcome(_digest(read), fruitless=failed)


def _command(result: Result) -> CallOutcome | None:
    """The outcome of a command; None if the result is not about one."""
    details = result.details
    status, code = details.get("status"), details.get("exitCode")
    if status == "running":
        return CallOutcome(_digest((status, _normalize(details.get("tail")))))
    if isinstance(status, str) and status.startswith("approval-"):
        return CallOutcome(_digest(_picked(details, _OF_A_QUESTION)), fruitless=result.is_error)
    if status not in ("completed", "failed"):
        return None
    output = details.get("aggregated")
    text = _normalize(output if isinstance(output, str) else result.as_text())
    timed_out = details.get("timedOut") is True
    mark = _digest((status, code, timed_out, text))
    if not code or timed_out or not str(text).strip():
        return CallOutcome(mark, fruitless=result.is_error)
    return CallOutcome(mark, _digest((code, re.sub(_TRIES, "#", str(text)))), fruitless=True)


def _action(params: object) -> str:
    action = params.get("action") if isinstance(params, Mapping) else None
    return action if isinstance(action, str) else ""


def _picked(details: Mapping[str, Any], names: Iterable[str]) -> dict[str, object]:
    return {name: _normalize(details[name]) for name in names if name in details}


def _normalize(value: object) -> object:
    """Replace the variable parts of a text; other values are returned unchanged."""
    if not isinstance(value, str):
        return value
    if len(value) <= 2 * EDGE:
        return _generalize(value)
    # The middle of a long text is compared as it is, because searching all of it takes too long.
    return f"{_generalize(value[:EDGE])}{value[EDGE:-EDGE]}{_generalize(value[-EDGE:])}"


def _generalize(text: str) -> str:
    return _names().sub("#", _times().sub("#", text))


# Each alternative starts with a literal character, so that the engine can skip ahead.
@cache
def _times() -> re.Pattern[str]:
    """Times, durations, memory addresses, but not `a.py:12:34`."""
    date = r"\d{3}-\d\d-\d\d[T ]\d\d:\d\d(?::\d\d(?:[.,]\d+)?)?(?:Z|[ ]?[+-]\d\d:?\d\d)?"
    clock = r"\d?:\d\d:\d\d(?:[.,]\d+)?"
    address = r"(?<=0)x[0-9a-fA-F]{6,}"
    since_1970 = r"(?<=1)[6-9]\d{11}(?:\d{3}|\d{6})?(?!\d)"
    units = r"ns|us|µs|ms|s|secs?|seconds?|min(?:s|utes?)?|h(?:rs?|ours?)?"
    span = rf"\d{{0,11}}(?:[hm][ ]?\d{{1,2}}){{0,2}}(?:\.\d{{1,12}})?(?:[ ]?(?:{units})|m)\b"
    kinds = "|".join((date, clock, address, since_1970, span))
    return re.compile(rf"[0-9](?<![\w.:][0-9])(?:{kinds})", re.ASCII)


@cache
def _names() -> re.Pattern[str]:
    span = r"\w{0,8}[\"']?[ ]?[:=][ ]?[0-9.]+"
    pids = (rf"{name}(?<!\w{name})\W{{0,3}}\d+" for name in ("pid", "ppid", "PID", "PPID"))
    spans = (rf"{name}{span}" for name in ("duration", "elapsed", "took", "latency"))
    files = (r"/tm[p](?:\.\w{6,12}|[a-z0-9_]{8})(?!\w)", r"/pytest-\d+")
    return re.compile("|".join((*pids, *spans, *files)), re.ASCII)


def _digest(value: object, skip: frozenset[str] = frozenset()) -> str:
    """Equal for equal values, ignoring keys to skip; ends for circular and endless values too."""
    from hashlib import sha256  # slow to import

    sink = sha256()
    todo: list[tuple[object, int]] = [(value, 0)]
    nodes = 0
    while todo and nodes < MAX_NODES:
        node, depth = todo.pop()
        nodes += 1
        if isinstance(node, str):
            data = node.encode("utf-8", "surrogatepass")
            sink.update(b"s%d:" % len(data))
            sink.update(data)
        elif isinstance(node, (Mapping, list, tuple)) and depth < MAX_DEPTH:
            parts = _in_order(node, skip) if isinstance(node, Mapping) else node
            kind = b"{%d:" if isinstance(node, Mapping) else b"[%d:"
            sink.update(kind % len(parts))
            todo += ((part, depth + 1) for part in reversed(parts))
        else:
            sink.update(_word(node))
    return sink.hexdigest()


def _in_order(mapping: Mapping[Any, object], skip: frozenset[str]) -> list[object]:
    named = {key if isinstance(key, str) else repr(_word(key)): mapping[key] for key in mapping}
    return [part for key in sorted(named) if key not in skip for part in (key, named[key])]


def _word(value: object) -> bytes:
    """A scalar value; anything that is not JSON counts by type only."""
    if isinstance(value, bool | float) or value is None:
        return b"%a;" % value
    if isinstance(value, int):
        return b"%x;" % value
    return b"<%b>" % type(value).__qualname__.encode("utf-8", "replace")
