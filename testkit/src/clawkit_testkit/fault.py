"""Failures, to be used in a script instead of answers.

The first group are transport and API errors, for `ScriptedServer`; the second are answers that no
well-behaved model gives, for `ScriptedModel` as well.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal

import msgspec

from clawkit.content import Assistant, Text, ToolCall
from clawkit.testing.answers import Saying, call, whole, written

Kind = Literal[
    "invalid",
    "bad_key",
    "auth",
    "billing",
    "quota",
    "forbidden",
    "not_found",
    "too_large",
    "rate_limit",
    "server",
    "unavailable",
    "overloaded",
    "overflow",
]
"""Kinds of errors; each API has its own message and status for them."""

Breakage = Literal["none", "drop", "cut", "silence", "error", "garbage", "nonsense"]
KIND_OF_STATUS: dict[int, Kind] = {
    400: "invalid",
    401: "auth",
    402: "billing",
    403: "forbidden",
    404: "not_found",
    413: "too_large",
    429: "rate_limit",
    500: "server",
    503: "unavailable",
    529: "overloaded",
}
_WORDS = "One, two, three, four, five, six, seven, eight."


@dataclass(frozen=True, slots=True)
class Complaint:
    """An error instead of an answer, in the format of the API that was used."""

    kind: Kind
    status: int = 0
    """0 for the API's own status for this kind."""
    message: str = ""
    """Empty for the API's own message."""
    retry_after: float | str | None = None


@dataclass(frozen=True, slots=True)
class Raw:
    """Bytes instead of an answer."""

    body: bytes
    status: int = 200
    content_type: str = "application/json"


@dataclass(frozen=True, slots=True)
class Broken:
    """An answer that is sent late or broken."""

    answer: Saying
    breakage: Breakage = "none"
    after: int = 0
    """Pieces of content before it breaks; 0 is right after the headers."""
    kind: Kind = "server"
    form: Literal["error", "nested", "failed"] = "error"
    delay_s: float = 0.0
    """Delay before each event."""
    first_s: float = 0.0
    """Delay before the headers."""
    packet_bytes: int = 0
    """Size of the packets; 0 sends event by event."""


@dataclass(frozen=True, slots=True)
class Odd:
    """An answer whose arguments are JSON objects where the API expects text, or nothing yet."""

    answer: Saying


Fault = Complaint | Raw | Broken | Odd


def status(
    code: int,
    message: str = "",
    *,
    retry_after: float | str | None = None,
    kind: Kind | None = None,
) -> Complaint:
    """An error with that status; `retry_after` is in seconds, or the text of the header."""
    if kind is None:
        kind = KIND_OF_STATUS.get(code, "server" if code >= 500 else "invalid")
    return Complaint(kind, code, message, retry_after)


def overflow() -> Complaint:
    """The conversation does not fit into the context window."""
    return Complaint("overflow")


def quota() -> Complaint:
    """The account has no credit or quota left."""
    return Complaint("quota")


def bad_key() -> Complaint:
    """The API's error for a wrong key; not always with status 401."""
    return Complaint("bad_key")


def midstream(
    kind: Kind = "overloaded",
    *,
    after: int = 1,
    answer: Saying = _WORDS,
    form: Literal["error", "nested", "failed"] = "error",
) -> Broken:
    """An error event in the middle of an answer.

    `form` is for openai-responses only, which has three forms: an `error` event as documented, one
    with the error in a nested field, and `response.failed`.
    """
    return Broken(answer, "error", after, kind, form)


def cut(after: int = 1, answer: Saying = _WORDS) -> Broken:
    """The connection closes after so many pieces."""
    return Broken(answer, "cut", after)


def drop() -> Broken:
    """The connection closes without any answer."""
    return Broken(_WORDS, "drop")


def hang(after: int = 0, answer: Saying = _WORDS) -> Broken:
    """Sends the headers and the given number of pieces, and then nothing."""
    return Broken(answer, "silence", after)


def slow(delay_s: float, answer: Saying = _WORDS, *, first_s: float = 0.0) -> Broken:
    """Waits before each event, and `first_s` before the headers."""
    return Broken(answer, delay_s=delay_s, first_s=first_s)


def torn(packet_bytes: int = 7, answer: Saying = _WORDS) -> Broken:
    """Sends small packets that end in the middle of events, lines and characters."""
    return Broken(answer, packet_bytes=packet_bytes)


def malformed(after: int = 1, answer: Saying = _WORDS) -> Broken:
    """Sends events that are not JSON, after so many good pieces."""
    return Broken(answer, "garbage", after)


def wrong_json(after: int = 0, answer: Saying = _WORDS) -> Broken:
    """Sends JSON events with values of wrong types, after so many good pieces."""
    return Broken(answer, "nonsense", after)


def html(code: int = 200) -> Raw:
    """A web page, as proxies and login walls send it."""
    page = (
        b"<!DOCTYPE html>\n<html><head><title>Gateway</title></head><body>Sign in</body></html>\n"
    )
    return Raw(page, code, "text/html; charset=utf-8")


def empty(code: int = 200) -> Raw:
    """An empty body."""
    return Raw(b"", code, "text/event-stream; charset=utf-8")


def raw(body: bytes | str, code: int = 200, content_type: str = "text/event-stream") -> Raw:
    """Exactly these bytes."""
    return Raw(body.encode() if isinstance(body, str) else body, code, content_type)


def object_arguments(*wanted: ToolCall) -> Odd:
    """Calls whose arguments are sent as an object, not as JSON text in pieces."""
    return Odd(wanted or (call("read", {"path": "a.txt"}),))


def empty_reply() -> Assistant:
    """An empty answer that ends normally."""
    return Assistant()


def refusal(text: str = "I can't help with that.") -> Assistant:
    """The model refuses, or, without text, a content filter does."""
    return Assistant((Text(text),) if text else (), "refusal")


def unknown_tool(name: str = "no_such_tool") -> ToolCall:
    """A call of a tool that was not offered."""
    return call(name, {"query": "anything"})


def duplicate_ids(*wanted: ToolCall, id: str = "call_same") -> list[ToolCall]:  # noqa: A002
    """Calls of one answer, all with the same id."""
    wanted = wanted or tuple(call("read", {"path": path}) for path in ("a.txt", "b.txt"))
    return [msgspec.structs.replace(one, id=id) for one in wanted]


def double_encoded(wanted: ToolCall | None = None) -> ToolCall:
    """A call whose arguments are JSON inside a JSON string."""
    wanted = wanted or call("read", {"path": "a.txt"})
    text = msgspec.json.encode(written(wanted.arguments)).decode()
    return msgspec.structs.replace(wanted, arguments=text)


def truncated(wanted: ToolCall | None = None, keep: int | None = None) -> Assistant:
    """A call with incomplete arguments, because the answer reached its limit."""
    wanted = wanted or call("write", {"path": "a.txt", "content": _WORDS})
    text = written(wanted.arguments)
    text = text[: len(text) // 2 if keep is None else keep]
    return Assistant((msgspec.structs.replace(wanted, arguments=text),), "length")


def too_long(answer: Saying = _WORDS) -> Assistant:
    """An answer that ends because it reached its limit."""
    return msgspec.structs.replace(whole(answer), stop="length")


def many_calls(
    count: int, name: str = "read", arguments: dict[str, Any] | None = None
) -> list[ToolCall]:
    """So many calls in one answer, numbered by `number` if no arguments are given."""
    return [
        call(name, {"number": number} if arguments is None else arguments)
        for number in range(count)
    ]


def enormous(size: int, name: str = "write", key: str = "content") -> ToolCall:
    """A call with an argument of so many characters."""
    return call(name, {"path": "a.txt", key: "x" * size})
