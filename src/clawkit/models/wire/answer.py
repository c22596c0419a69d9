"""An answer while it comes: careful reading of JSON, and the parts in the order they began."""

from __future__ import annotations

import os
import re
from abc import ABC, abstractmethod
from collections.abc import Iterable
from typing import Any, ClassVar, Literal

import msgspec

from clawkit.config.sections.models import Cost
from clawkit.content import Assistant, Part, Stop, Text, Thinking, ToolCall, Usage
from clawkit.models.errors import cut_off, from_response
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
from clawkit.net.sse import ServerEvent
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
"""Characters of arguments that are worth checking for completeness."""
_MAX_LOOKS = 100
"""How often that is worth it."""
_JOIN_EVERY = 256
_TOO_DEEP = "nested too deeply"
_IDS = re.compile(r"[\x21-\x7e]{1,256}")

Kind = Literal["text", "thinking"]


def decode(text: str) -> Any:
    """JSON from a service or a model. Raises ValueError, and nothing else, for anything invalid.

    Control characters in strings are accepted, and halves of surrogate pairs: services cut texts
    between them. Far too many or too deeply nested lists and objects are not.
    """
    opened = text.count("[") + text.count("{")
    if opened > MAX_INNER:
        raise ValueError("too many lists and objects")
    try:
        value = _decode(text)
    except RecursionError:
        raise ValueError(_TOO_DEEP) from None
    if opened > MAX_NESTED and is_deep(value, MAX_NESTED):
        raise ValueError(_TOO_DEEP)
    return value


def _decode(text: str) -> Any:
    try:
        return msgspec.json.decode(text)
    except (msgspec.MsgspecError, UnicodeError):
        import json

        return json.loads(text, strict=False, parse_constant=_not_a_number)


def _not_a_number(name: str) -> None:
    raise ValueError(f"{name} is not a JSON number")


def decode_event(text: str) -> dict[str, Any]:
    """The object that an event holds. Raises `ModelError` ("malformed") for anything else."""
    try:
        data = decode(text)
        problem = "not an object"
    except ValueError as error:
        data, problem = None, str(error)
    if not isinstance(data, dict):
        raise malformed(f"invalid JSON in an event ({problem}): {said(text[:200])!r}")
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
    text = text.strip()
    if len(text) >= 6 and text.startswith("```") and text.endswith("```"):
        kind, line_end, inner = text[3:-3].partition("\n")
        is_json = line_end and kind.rstrip(" \t").lower() in ("", "json")
        text = inner.strip() if is_json else text
    if not text or text == "null":
        return {}
    if text[0] not in '{"':
        return None
    try:
        value = decode(text)
        if isinstance(value, str):
            value = decode(value) if value.strip() else {}
    except ValueError:
        return None
    return value if isinstance(value, dict) else None


def given_arguments(given: object) -> str:
    """Arguments as text, also where they came as an object. Raises `ModelError` ("malformed").

    Never less than was given: a call without the arguments it came with is another call.
    """
    if isinstance(given, str):
        return given
    if is_deep(given, MAX_NESTED):
        raise malformed(f"the arguments of a call are {_TOO_DEEP}")
    return "" if given is None else encode(given).decode()


def malformed(what: str) -> ModelError:
    """The error for an answer that is not what the API says it is."""
    return ModelError("malformed", f"the model's answer cannot be used: {what}")


def said(text: object) -> str:
    """What a service said, as part of an error message."""
    return one_line(clean(str_of(text)), _MAX_SAID)


def priced(usage: Usage, cost: Cost) -> Usage:
    """The same tokens with what they cost in dollars, unless the service said it."""
    if usage.cost:
        return usage
    total = (
        usage.input * cost.input
        + usage.output * cost.output
        + usage.cache_read * cost.cache_read
        + usage.cache_write * cost.cache_write
    )
    return msgspec.structs.replace(usage, cost=total / 1_000_000)


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

    def __init__(self, kind: Kind, *, is_hidden: bool | None = None) -> None:
        """A thought of which nothing is shown counts as hidden unless `is_hidden` says it."""
        self.kind = kind
        self.pieces: list[str] = Growing()
        self.signature = ""
        self.signed: list[str] = Growing()
        """The signature, where it comes in pieces."""
        self.is_hidden = is_hidden
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

    def part(self, *, is_cut: bool) -> Part | None:
        text, signature = clean("".join(self.pieces)), self.signature
        if self.kind == "text":
            return Text(text, signature) if self.pieces else None
        signature = signature or clean("".join(self.signed))
        if not self.pieces and not signature:
            return None
        hidden = not self.pieces if self.is_hidden is None else self.is_hidden
        return Thinking(text, signature, hidden)


class Call:
    """A call whose arguments grow."""

    def __init__(self, number: int, call_id: str, name: str) -> None:
        self.number = number
        self.id = call_id
        self.given_id = ""
        """The id as the service gave it, which may be that of another call, too."""
        self.name = name
        self.signature = ""
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
        """Whether the arguments are an object already; large ones are not checked."""
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
        arguments = read_arguments(text, is_complete=not is_cut)
        return ToolCall(self.id, self.name, arguments, self.signature)


class Answer:
    """The parts of an answer. Raises `ModelError` ("malformed") for one that grows too large."""

    def __init__(self, endpoint: Endpoint) -> None:
        self._endpoint = endpoint
        self._chars = 0
        self._calls = 0
        self._argument_chars = 0
        self._ids: set[str] = set()
        self.parts: list[Words | Call] = []

    @property
    def last(self) -> Words | Call | None:
        return self.parts[-1] if self.parts else None

    def words(self, kind: Kind, *, is_hidden: bool | None = None) -> Words:
        """A new text or thought."""
        if len(self.parts) >= _MAX_PARTS:
            raise malformed(f"its answer has more than {_MAX_PARTS:,} parts")
        words = Words(kind, is_hidden=is_hidden)
        self.parts.append(words)
        return words

    def count(self, text: str) -> None:
        """Text, thinking or a signature of so many characters has come."""
        self._chars += len(text)
        if self._chars > MAX_TEXT:
            raise malformed(f"its answer is longer than {MAX_TEXT:,} characters")

    def say(self, words: Words, text: str) -> Iterable[Delta]:
        if not text:
            return ()
        self.count(text)
        return words.add(text)

    def call(self, given_id: object, name: object) -> Call:
        """A new call, with an id that no other call of the answer has."""
        call = Call(self._calls, self._unique(given_id), read_name(name))
        call.given_id = str_of(given_id)
        self._calls += 1
        if self._calls > MAX_CALLS:
            raise malformed(f"its answer has more than {MAX_CALLS} calls")
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
        call.size += len(text)
        self._argument_chars += len(text)
        if call.size > MAX_ARGUMENTS:
            raise malformed(f"the arguments of a call exceed {MAX_ARGUMENTS:,} characters")
        if self._argument_chars > MAX_ALL_ARGUMENTS:
            raise malformed(f"the arguments of its calls exceed {MAX_ALL_ARGUMENTS:,} characters")
        call.pieces.append(text)
        return (CallDelta(call.number, clean(text)),) if call.is_told else ()

    def _unique(self, given: object) -> str:
        is_usable = isinstance(given, str) and _IDS.fullmatch(given)
        base = str(given) if is_usable else f"call_{os.urandom(12).hex()}"
        found, count = base, 1
        while found in self._ids:
            count += 1
            found = f"{base}_{count}"
        self._ids.add(found)
        return found

    def close_all(self) -> None:
        for part in self.parts:
            part.is_closed = True

    def whole(self, stop: Stop, usage: Usage, error: str = "") -> Assistant:
        """The answer when everything has come."""
        # Only the last part can have been cut by a limit.
        parts = [part.part(is_cut=stop == "length" and part is self.last) for part in self.parts]
        content = tuple(part for part in parts if part is not None)
        if stop == "refusal":
            # Nothing is done for an answer that was taken back.
            content = tuple(part for part in content if not isinstance(part, ToolCall))
        elif stop in ("stop", "tool_calls"):
            called = any(isinstance(part, ToolCall) for part in content)
            stop = "tool_calls" if called else "stop"
        return self._assistant(content, stop, usage, error)

    def partial(self, usage: Usage) -> Assistant:
        """What is complete by now, and text that is not."""
        content: list[Part] = []
        for each in self.parts:
            is_text = isinstance(each, Words) and each.kind == "text"
            part = each.part(is_cut=True) if is_text or each.is_closed else None
            if part and not (isinstance(part, ToolCall) and isinstance(part.arguments, str)):
                content.append(part)
        return self._assistant(tuple(content), "aborted", usage, "")

    def _assistant(
        self, content: tuple[Part, ...], stop: Stop, usage: Usage, error: str
    ) -> Assistant:
        endpoint = self._endpoint
        usage = priced(usage, endpoint.facts.cost)
        return Assistant(content, stop, str(endpoint.ref), endpoint.api, usage, error)


class AnswerDecoder(ABC):
    """What the decoders of all APIs have in common."""

    STOP_WHEN_DONE: ClassVar[Stop | None] = None
    """What `[DONE]` means where no reason to stop was given; None where it ends nothing."""

    def __init__(self, endpoint: Endpoint) -> None:
        self._endpoint = endpoint
        self._answer = Answer(endpoint)
        self._usage = Usage()
        self._stop: Stop | None = None
        """Why the answer is over; None until it is."""
        self._is_refused = False
        self._explanation = ""
        """Why it was refused."""
        self._is_over = False
        """Whether everything that follows is ignored."""

    def feed(self, event: ServerEvent) -> Iterable[Delta]:
        """What the event adds."""
        text = event.data.strip()
        if self._is_over or not text:
            return ()
        if text == "[DONE]":
            self._stop = self._stop or self.STOP_WHEN_DONE
            self._is_over = True
            return ()
        try:
            return self._read(decode_event(text), event.name)
        except ModelError as error:
            error.partial = self.partial()
            raise

    def finish(self) -> Assistant:
        """The whole answer. Raises "cut" when the stream ended before it."""
        try:
            if self._stop is None:
                raise ModelError("cut", cut_off(self._endpoint.ref.provider))
            return self._finish("refusal" if self._is_refused else self._stop)
        except ModelError as error:
            error.partial = self.partial()
            raise

    def partial(self) -> Assistant:
        """What has come so far: complete parts and open text."""
        self._settle()
        return self._answer.partial(self._usage)

    def _finish(self, stop: Stop) -> Assistant:
        self._settle()
        explanation = self._explanation if stop == "refusal" else ""
        return self._answer.whole(stop, self._usage, explanation)

    def _settle(self) -> None:  # noqa: B027  # there may be nothing to settle
        """Decide what is known only when nothing more comes."""

    @abstractmethod
    def _read(self, data: dict[str, Any], name: str) -> Iterable[Delta]:
        """What an event of that name adds; evaluated when this returns."""

    def _failure(self, data: dict[str, Any]) -> ModelError:
        """The error that an event reports."""
        return from_response(self._endpoint.ref.provider, 200, {}, encode(data))


def read_name(name: object) -> str:
    """A tool's name as it came, within reason."""
    return clean(str_of(name).strip()[:_MAX_NAME])


def dict_of(value: object) -> dict[str, Any]:
    """The value where it is an object; else an empty one."""
    return value if isinstance(value, dict) else {}


def list_of(value: object) -> list[Any]:
    """The value where it is a list; else an empty one."""
    return value if isinstance(value, list) else []


def str_of(value: object) -> str:
    """The value where it is a text; else an empty one."""
    return value if isinstance(value, str) else ""
