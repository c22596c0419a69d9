"""An answer while it comes: careful reading of JSON, and the parts in the order they began."""

from __future__ import annotations

import os
import re
from collections.abc import Iterable
from typing import Any, Literal, TypeVar

import msgspec

from clawkit.config.sections.models import Cost
from clawkit.content import Assistant, Part, Stop, Text, Thinking, ToolCall, Usage
from clawkit.models.protocols import (
    CallDelta,
    CallStarted,
    Delta,
    Endpoint,
    ModelError,
    TextDelta,
    ThinkingDelta,
)
from clawkit.models.wire.request import clean, cleaned, encode, is_deep
from clawkit.text import one_line

MAX_TEXT = 8 * 1024 * 1024
"""Characters of an answer's text and thinking together: about two million tokens. With this and
the next limits an answer, while it is put together, takes about 64 MB of memory at the most."""
MAX_ARGUMENTS, MAX_ALL_ARGUMENTS = 4 * 1024 * 1024, 8 * 1024 * 1024
"""Characters of one call's arguments, and of all calls of an answer."""
MAX_CALLS = 512
MAX_INNER = 500_000
"""Lists and objects in one JSON text: small as they are, each takes its time and memory."""
MAX_NESTED = 200
"""Levels of a JSON text. How deep Python itself can read depends on its version."""
_MAX_SAID = 300
_MAX_NAME = 256
_MAX_PARTS = 10_000
_MAX_LOOK = 64 * 1024
"""Characters of arguments that are worth a look whether they are complete."""
_MAX_LOOKS = 100
"""How often that is worth a look."""
_JOIN_EVERY = 256
_TOO_DEEP = "nested too deeply"
_IDS = re.compile(r"[\x21-\x7e]{1,256}")


def decode(text: str) -> Any:
    """JSON from a service or a model. Raises ValueError, and nothing else, for anything invalid.

    Control characters in strings are accepted, and halves of surrogate pairs: services cut texts
    between them. Far too many or too deeply nested lists and objects are not.
    """
    opened = text.count("[") + text.count("{")
    if opened > MAX_INNER:
        raise ValueError("too many lists and objects")
    value = _decode(text)
    if opened > MAX_NESTED and is_deep(value, MAX_NESTED):
        raise ValueError(_TOO_DEEP)
    return value


def _decode(text: str) -> Any:
    try:
        return msgspec.json.decode(text)
    except (msgspec.MsgspecError, UnicodeError):
        pass
    except RecursionError:
        raise ValueError(_TOO_DEEP) from None
    import json

    try:
        return json.loads(text, strict=False, parse_constant=_not_a_number)
    except RecursionError:
        raise ValueError(_TOO_DEEP) from None


def _not_a_number(name: str) -> None:
    raise ValueError(f"{name} is not a JSON number")


def decode_event(text: str) -> dict[str, Any]:
    """The object that an event holds. Raises `ModelError` ("malformed") for anything else."""
    try:
        data = decode(text)
    except ValueError as error:
        what = _TOO_DEEP if str(error) == _TOO_DEEP else "not valid JSON"
        raise malformed(f"an event is {what}: {said(text[:200])!r}") from None
    if not isinstance(data, dict):
        raise malformed(f"an event is not a JSON object: {said(text[:200])!r}")
    return data


def read_arguments(text: str, *, is_complete: bool = True) -> dict[str, Any] | str:
    """The arguments of a call, or the text as it came where they are not a JSON object.

    Repaired is only what can mean one thing: nothing at all, a JSON text inside a JSON string, a
    code fence, control characters, and, unless the answer was cut (`is_complete` false), one
    missing brace at the end.
    """
    found = _object(text)
    if found is None and is_complete:
        found = _object(text + "}")
    if found is None or is_deep(found):
        return clean(text)
    try:
        msgspec.json.encode(found)
    except UnicodeEncodeError:
        return {clean(key): cleaned(item) for key, item in found.items()}
    return found


def _object(text: str) -> dict[str, Any] | None:
    stripped = _unfenced(text.strip())
    if not stripped or stripped == "null":
        return {}
    if stripped[0] not in '{"':
        return None
    try:
        value = decode(stripped)
        if isinstance(value, str):
            value = decode(value) if value.strip() else {}
    except ValueError:
        return None
    return value if isinstance(value, dict) else None


def _unfenced(text: str) -> str:
    """What is in a code fence; a text without one as it is."""
    if len(text) < 6 or not (text.startswith("```") and text.endswith("```")):
        return text
    kind, line_end, inner = text[3:-3].partition("\n")
    return inner.strip() if line_end and kind.rstrip(" \t").lower() in ("", "json") else text


def given_arguments(given: object) -> str:
    """Arguments as text, also where they came as an object. Raises `ModelError` ("malformed").

    Never less than was given: a call without the arguments it came with is another call.
    """
    if isinstance(given, str):
        return given
    if is_deep(given, MAX_NESTED):
        raise malformed("the arguments of a call are nested too deeply")
    return "" if given is None else encode(given).decode()


class Limits:
    """How large an answer may get. Raises `ModelError` ("malformed") for one that is larger."""

    def __init__(self) -> None:
        self._text = 0
        self._calls: dict[int, int] = {}
        self._arguments = 0

    def add_text(self, text: str) -> None:
        self._text += len(text)
        if self._text > MAX_TEXT:
            raise malformed(f"its answer is longer than {MAX_TEXT:,} characters")

    def add_call(self, number: int) -> None:
        self._calls[number] = 0
        if len(self._calls) > MAX_CALLS:
            raise malformed(f"its answer has more than {MAX_CALLS} calls")

    def add_arguments(self, number: int, text: str) -> None:
        size = self._calls[number] = self._calls.get(number, 0) + len(text)
        self._arguments += len(text)
        if size > MAX_ARGUMENTS:
            raise malformed(f"the arguments of a call exceed {MAX_ARGUMENTS:,} characters")
        if self._arguments > MAX_ALL_ARGUMENTS:
            raise malformed(f"the arguments of its calls exceed {MAX_ALL_ARGUMENTS:,} characters")


def malformed(what: str) -> ModelError:
    """The error for an answer that is not what the API says it is."""
    return ModelError("malformed", f"the model's answer cannot be used: {what}")


def said(text: object) -> str:
    """What a service said, as part of an error message."""
    return one_line(clean(text) if isinstance(text, str) else "", _MAX_SAID)


def cost_of(usage: Usage, cost: Cost) -> float:
    """What the tokens cost, in dollars."""
    return (
        usage.input * cost.input
        + usage.output * cost.output
        + usage.cache_read * cost.cache_read
        + usage.cache_write * cost.cache_write
    ) / 1_000_000


def priced(usage: Usage, cost: Cost) -> Usage:
    """The same tokens with what they cost."""
    return msgspec.structs.replace(usage, cost=cost_of(usage, cost))


class Growing(list[str]):
    """A text in pieces. Small pieces are joined now and then: each costs more than it holds."""

    _loose = 0

    def append(self, text: str) -> None:
        super().append(text)
        self._loose += 1
        if self._loose >= _JOIN_EVERY:
            self[-self._loose :] = ["".join(self[-self._loose :])]
            self._loose = 0

    def clear(self) -> None:
        super().clear()
        self._loose = 0


class Words:
    """A text or a thought that grows."""

    def __init__(self, kind: Literal["text", "thinking"]) -> None:
        self.kind = kind
        self.pieces: list[str] = Growing()
        self.signature = ""
        self.is_closed = False
        self._half = ""

    def add(self, text: str) -> Iterable[Delta]:
        """What there is to tell of it; half a surrogate pair waits for its other half."""
        self.pieces.append(text)
        text, self._half = self._half + text, ""
        if "\ud800" <= text[-1:] <= "\udbff":
            text, self._half = text[:-1], text[-1]
        text = clean(text)
        if not text:
            return ()
        return (TextDelta(text),) if self.kind == "text" else (ThinkingDelta(text),)

    @property
    def text(self) -> str:
        return clean("".join(self.pieces))

    def part(self, *, is_cut: bool) -> Part | None:
        if self.kind == "text":
            return Text(self.text, self.signature) if self.pieces else None
        if not self.pieces and not self.signature:
            return None
        return Thinking(self.text, self.signature, hidden=not self.pieces)


W = TypeVar("W", bound=Words)


class Call:
    """A call whose arguments grow."""

    def __init__(self, number: int, call_id: str, name: str) -> None:
        self.number = number
        self.id = call_id
        self.given_id = ""
        """The id as the service gave it, which may be that of another call, too."""
        self.name = name
        self.pieces: list[str] = Growing()
        self.size = 0
        """Characters that have come."""
        self.is_closed = False
        self.is_told = False
        self._looks = 0

    @property
    def text(self) -> str:
        return "".join(self.pieces)

    def looks_whole(self) -> bool:
        """Whether the arguments are an object already; for large ones nobody looks."""
        if not self.pieces or not self.pieces[-1].rstrip().endswith("}"):
            return False
        self._looks += 1
        if self.size > _MAX_LOOK or self._looks > _MAX_LOOKS:
            return False
        return isinstance(read_arguments(self.text, is_complete=False), dict)

    def part(self, *, is_cut: bool) -> Part | None:
        text = self.text
        if not self.name and not text.strip():
            return None
        return ToolCall(self.id, self.name, read_arguments(text, is_complete=not is_cut))


class Answer:
    """The parts of an answer, held to the limits of one."""

    def __init__(self, endpoint: Endpoint) -> None:
        self._endpoint = endpoint
        self.limits = Limits()
        self._ids: set[str] = set()
        self._calls = 0
        self.parts: list[Words | Call] = []

    def words(self, kind: Literal["text", "thinking"]) -> Words:
        """A new text or thought."""
        return self.add(Words(kind))

    def add(self, words: W) -> W:
        if len(self.parts) >= _MAX_PARTS:
            raise malformed(f"its answer has more than {_MAX_PARTS:,} parts")
        self.parts.append(words)
        return words

    def say(self, words: Words, text: str) -> Iterable[Delta]:
        if not text:
            return ()
        self.limits.add_text(text)
        return words.add(text)

    def call(self, given_id: object, name: object) -> Call:
        """A new call, with an id that no other call of the answer has."""
        call = Call(self._calls, self._unique(given_id), read_name(name))
        call.given_id = given_id if isinstance(given_id, str) else ""
        self._calls += 1
        self.limits.add_call(call.number)
        self.parts.append(call)
        return call

    def rename(self, call: Call, given_id: str) -> None:
        """The id of a call came after its beginning."""
        self._ids.discard(call.id)
        call.id, call.given_id = self._unique(given_id), given_id

    def tell(self, call: Call) -> Iterable[Delta]:
        """That the call began, once its name is known."""
        if call.is_told or not call.name:
            return ()
        call.is_told = True
        # What came before the name was known is told now.
        before = [CallDelta(call.number, text)] if (text := clean(call.text)) else []
        return (CallStarted(call.number, call.id, call.name), *before)

    def argue(self, call: Call, text: str) -> Iterable[Delta]:
        """More of a call's arguments came."""
        if not text:
            return ()
        self.limits.add_arguments(call.number, text)
        call.pieces.append(text)
        call.size += len(text)
        return (CallDelta(call.number, clean(text)),) if call.is_told else ()

    def _unique(self, given: object) -> str:
        base = given if isinstance(given, str) and _IDS.fullmatch(given) else _new_id()
        found, count = base, 1
        while found in self._ids:
            count += 1
            found = f"{base}_{count}"
        self._ids.add(found)
        return found

    def whole(self, stop: Stop, usage: Usage) -> Assistant:
        """The answer when everything has come."""
        # Only the last part can have been cut by a limit.
        parts = [
            part.part(is_cut=stop == "length" and part is self.parts[-1]) for part in self.parts
        ]
        content = tuple(part for part in parts if part is not None)
        called = any(isinstance(part, ToolCall) for part in content)
        if stop in ("stop", "tool_calls"):
            stop = "tool_calls" if called else "stop"
        return self._assistant(content, stop, usage)

    def partial(self, usage: Usage) -> Assistant:
        """What is complete by now, and text that is not."""
        content: list[Part] = []
        for open_part in self.parts:
            if isinstance(open_part, Words) and open_part.kind == "text":
                part = open_part.part(is_cut=True)
            else:
                part = open_part.part(is_cut=True) if open_part.is_closed else None
            if part and not (isinstance(part, ToolCall) and isinstance(part.arguments, str)):
                content.append(part)
        return self._assistant(tuple(content), "aborted", usage)

    @staticmethod
    def failed(answer: Assistant) -> Assistant:
        """What had come when the rest could not be had."""
        return msgspec.structs.replace(answer, stop="error")

    def _assistant(self, content: tuple[Part, ...], stop: Stop, usage: Usage) -> Assistant:
        return Assistant(
            content, stop, model=str(self._endpoint.ref), api=self._endpoint.api, usage=usage
        )


def read_name(name: object) -> str:
    """A tool's name as it came, within reason."""
    return clean(name.strip()[:_MAX_NAME]) if isinstance(name, str) else ""


def _new_id() -> str:
    return f"call_{os.urandom(12).hex()}"


def dict_of(value: object) -> dict[str, Any]:
    """The value where it is an object; else an empty one."""
    return value if isinstance(value, dict) else {}


def list_of(value: object) -> list[Any]:
    """The value where it is a list; else an empty one."""
    return value if isinstance(value, list) else []


def str_of(value: object) -> str:
    """The value where it is a text; else an empty one."""
    return value if isinstance(value, str) else ""
