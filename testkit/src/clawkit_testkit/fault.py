"""What can go wrong with an answer, to be put into a script in place of one.

The first group goes wrong on the way, and is for `ScriptedServer`; the second is answers that no
well-behaved model gives, and is for `ScriptedModel` too.
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
"""What a service complains about; each API has its own words, and its own status, for it."""

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
    """An error in place of an answer, in the words of the API that was used."""

    kind: Kind
    status: int = 0
    """The API's own for this kind when 0."""
    message: str = ""
    """The API's own words when empty."""
    retry_after: float | str | None = None


@dataclass(frozen=True, slots=True)
class Raw:
    """Bytes in place of an answer."""

    body: bytes
    status: int = 200
    content_type: str = "application/json"


@dataclass(frozen=True, slots=True)
class Broken:
    """An answer that does not come as it should."""

    answer: Saying
    breakage: Breakage = "none"
    after: int = 0
    """Pieces of content that come before it breaks; 0 is right after the headers."""
    kind: Kind = "server"
    form: Literal["error", "nested", "failed"] = "error"
    delay_s: float = 0.0
    """Before each event."""
    first_s: float = 0.0
    """Before the headers."""
    packet_bytes: int = 0
    """Size of the packets in which it is sent; 0 sends event by event."""


@dataclass(frozen=True, slots=True)
class Odd:
    """An answer whose arguments are JSON objects where the API has text, or has nothing yet."""

    answer: Saying


Fault = Complaint | Raw | Broken | Odd


def status(
    code: int,
    message: str = "",
    *,
    retry_after: float | str | None = None,
    kind: Kind | None = None,
) -> Complaint:
    """An error with that status; `retry_after` is seconds, or the header's text as it is."""
    if kind is None:
        kind = KIND_OF_STATUS.get(code, "server" if code >= 500 else "invalid")
    return Complaint(kind, code, message, retry_after)


def overflow() -> Complaint:
    """The conversation does not fit into the context."""
    return Complaint("overflow")


def quota() -> Complaint:
    """No money, or no quota, is left."""
    return Complaint("quota")


def bad_key() -> Complaint:
    """What the API says when the key is wrong; not every one has status 401."""
    return Complaint("bad_key")


def midstream(
    kind: Kind = "overloaded",
    *,
    after: int = 1,
    answer: Saying = _WORDS,
    form: Literal["error", "nested", "failed"] = "error",
) -> Broken:
    """An error event in the middle of an answer.

    `form` matters for openai-responses only, whose services have three: an `error` event as it is
    documented, one with the error in a field of its own, and `response.failed`.
    """
    return Broken(answer, "error", after, kind, form)


def cut(after: int = 1, answer: Saying = _WORDS) -> Broken:
    """The connection closes after so many pieces."""
    return Broken(answer, "cut", after)


def drop() -> Broken:
    """The connection closes without any answer."""
    return Broken(_WORDS, "drop")


def hang(after: int = 0, answer: Saying = _WORDS) -> Broken:
    """Headers, so many pieces, and then nothing any more."""
    return Broken(answer, "silence", after)


def slow(delay_s: float, answer: Saying = _WORDS, *, first_s: float = 0.0) -> Broken:
    """Waits before each event, and `first_s` before the headers."""
    return Broken(answer, delay_s=delay_s, first_s=first_s)


def torn(packet_bytes: int = 7, answer: Saying = _WORDS) -> Broken:
    """Comes in small packets that end in the middle of events, lines and characters."""
    return Broken(answer, packet_bytes=packet_bytes)


def malformed(after: int = 1, answer: Saying = _WORDS) -> Broken:
    """Events that are no JSON, after so many good pieces."""
    return Broken(answer, "garbage", after)


def wrong_json(after: int = 0, answer: Saying = _WORDS) -> Broken:
    """Events that are JSON with everything of the wrong type, after so many good pieces."""
    return Broken(answer, "nonsense", after)


def html(code: int = 200) -> Raw:
    """A web page, as proxies and login walls send it."""
    page = (
        b"<!DOCTYPE html>\n<html><head><title>Gateway</title></head><body>Sign in</body></html>\n"
    )
    return Raw(page, code, "text/html; charset=utf-8")


def empty(code: int = 200) -> Raw:
    """No body at all."""
    return Raw(b"", code, "text/event-stream; charset=utf-8")


def raw(body: bytes | str, code: int = 200, content_type: str = "text/event-stream") -> Raw:
    """Exactly these bytes."""
    return Raw(body.encode() if isinstance(body, str) else body, code, content_type)


def object_arguments(*wanted: ToolCall) -> Odd:
    """Calls whose arguments come as an object at once, not as JSON text in pieces."""
    return Odd(wanted or (call("read", {"path": "a.txt"}),))


def empty_reply() -> Assistant:
    """An answer that ends as it should, with nothing in it."""
    return Assistant()


def refusal(text: str = "I can't help with that.") -> Assistant:
    """The model, or a filter above it, refuses; without text it is the filter."""
    return Assistant((Text(text),) if text else (), "refusal")


def unknown_tool(name: str = "no_such_tool") -> ToolCall:
    """A call of a tool that nobody offered."""
    return call(name, {"query": "anything"})


def duplicate_ids(*wanted: ToolCall, id: str = "call_same") -> list[ToolCall]:  # noqa: A002
    """Calls of one answer, all with the same id."""
    wanted = wanted or tuple(call("read", {"path": path}) for path in ("a.txt", "b.txt"))
    return [msgspec.structs.replace(one, id=id) for one in wanted]


def double_encoded(wanted: ToolCall | None = None) -> ToolCall:
    """A call whose arguments are a JSON string that holds the JSON."""
    wanted = wanted or call("read", {"path": "a.txt"})
    text = msgspec.json.encode(written(wanted.arguments)).decode()
    return msgspec.structs.replace(wanted, arguments=text)


def truncated(wanted: ToolCall | None = None, keep: int | None = None) -> Assistant:
    """A call whose arguments break off, because the answer got too long."""
    wanted = wanted or call("write", {"path": "a.txt", "content": _WORDS})
    text = written(wanted.arguments)
    text = text[: len(text) // 2 if keep is None else keep]
    return Assistant((msgspec.structs.replace(wanted, arguments=text),), "length")


def too_long(answer: Saying = _WORDS) -> Assistant:
    """An answer that ends because it may not be longer."""
    return msgspec.structs.replace(whole(answer), stop="length")


def many_calls(
    count: int, name: str = "read", arguments: dict[str, Any] | None = None
) -> list[ToolCall]:
    """That many calls in one answer, told apart by `number` where no arguments are given."""
    return [
        call(name, {"number": number} if arguments is None else arguments)
        for number in range(count)
    ]


def enormous(size: int, name: str = "write", key: str = "content") -> ToolCall:
    """A call with an argument of that many characters."""
    return call(name, {"path": "a.txt", key: "x" * size})
