"""Shared by the readers of all APIs: tolerant JSON parsing, and assembling an answer."""

from __future__ import annotations

import os
from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator
from typing import Any, ClassVar, Literal

import msgspec

from clawkit.config.sections.models import Cost
from clawkit.content import Assistant, Stop, Text, Thinking, ToolCall, Usage
from clawkit.content import Part as Content
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
from clawkit.models.providers import dict_of as dict_of
from clawkit.models.wire.request import clean, cleaned, encode, is_deep
from clawkit.net.sse import ServerEvent
from clawkit.text import one_line, regex

MAX_TEXT = 8 * 1024 * 1024
"""Maximum characters of text and thinking together: about two million tokens. With this and the
limits below, assembling an answer takes at most about 64 MB of memory."""
MAX_ARGUMENTS, MAX_ALL_ARGUMENTS = 4 * 1024 * 1024, 8 * 1024 * 1024
"""Maximum characters of the arguments of one call, and of all calls of an answer."""
MAX_CALLS = 512
MAX_INNER = 500_000
"""Maximum lists and objects in one JSON text: even empty ones take time and memory."""
MAX_NESTED = 200
"""Maximum nesting of a JSON text. Python's own limit depends on its version."""
_MAX_SAID = 300
_MAX_NAME = 256
_MAX_PARTS = 10_000
_MAX_LOOK = 64 * 1024
"""Longer arguments are not checked for completeness."""
_MAX_LOOKS = 100
"""Maximum number of such checks per call."""
_JOIN_EVERY = 256
_TOO_DEEP = "nested too deeply"
_IDS = r"[\x21-\x7e]{1,256}"

Kind = Literal["text", "thinking", "call"]


def decode(text: str) -> Any:
    """Decode JSON from a provider or a model. Raises only ValueError.

    Accepts control characters in strings, and lone surrogates, because providers split texts
    between them. Rejects too many or too deeply nested lists and objects.
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

        def refuse(name: str) -> None:
            raise ValueError(f"{name} is not a JSON number")

        return json.loads(text, strict=False, parse_constant=refuse)


def decode_event(text: str) -> dict[str, Any]:
    """Decode the object in an event. Raises `ModelError` ("malformed")."""
    try:
        data = decode(text)
        problem = "not an object"
    except ValueError as error:
        data, problem = None, str(error)
    if not isinstance(data, dict):
        shown = one_line(clean(text[:1_000]), 200, whole_words=True)
        raise malformed(f"invalid JSON in an event ({problem}): {shown!r}")
    return data


def read_arguments(text: str, *, is_complete: bool = True) -> dict[str, Any] | str:
    """The arguments of a call, or the unchanged text if they are not a JSON object.

    Repairs only what is unambiguous: an empty text, JSON inside a JSON string, a code fence,
    control characters, and, unless the answer was cut off (`is_complete` is false), one missing
    brace at the end.
    """
    found = _object(text)
    if found is None and is_complete:
        found = _object(text + "}")
    if found is None or is_deep(found):
        return clean(text)
    if text.isascii() and "\\u" not in text:
        return found
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


def arguments_text(arguments: object) -> str:
    """Arguments as text, even if they were sent as an object. Raises `ModelError` ("malformed").
    Never drops anything: a call without its arguments would be a different call."""
    if isinstance(arguments, str):
        return arguments
    if is_deep(arguments, MAX_NESTED):
        raise malformed(f"the arguments of a call are {_TOO_DEEP}")
    return "" if arguments is None else encode(arguments).decode()


def malformed(problem: str) -> ModelError:
    """The error for an answer that does not follow the API."""
    return ModelError("malformed", f"the model's answer cannot be used: {problem}")


def said(text: object) -> str:
    """Text from a provider, for an error message."""
    return one_line(clean(str_of(text)), _MAX_SAID)


def priced(usage: Usage, cost: Cost) -> Usage:
    """The usage with its cost in dollars, unless the provider reported it."""
    if usage.cost:
        return usage
    total = usage.input * cost.input + usage.output * cost.output
    total = total + usage.cache_read * cost.cache_read + usage.cache_write * cost.cache_write
    return msgspec.structs.replace(usage, cost=total / 1_000_000) if total else usage


class Growing(list[str]):
    """A list of text pieces. Small ones are joined regularly, because of their overhead."""

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


class AnswerPart:
    """A part of an answer while it is received: text, thinking, or a call with its arguments."""

    def __init__(self, kind: Kind, *, is_hidden: bool | None = None) -> None:
        """With `is_hidden` None, thinking without text counts as hidden."""
        self.kind = kind
        self.pieces: list[str] = Growing()
        self.signed: list[str] = Growing()
        """Pieces of its signature."""
        self.half = ""
        """The first half of a surrogate pair, until the other half arrives."""
        self.is_hidden = is_hidden
        self.is_closed = False
        # The rest is for calls only.
        self.number = 0
        self.id = self.name = ""
        self.given_id = ""
        """The id from the provider, which may not be unique."""
        self.size = 0
        """Characters of arguments received."""
        self.is_told = False
        self._looks = 0

    def looks_whole(self) -> bool:
        """Whether the arguments are a complete object; large ones are not checked."""
        if not self.pieces or not self.pieces[-1].rstrip().endswith("}"):
            return False
        self._looks += 1
        if self.size > _MAX_LOOK or self._looks > _MAX_LOOKS:
            return False
        return isinstance(read_arguments("".join(self.pieces), is_complete=False), dict)

    def to_content(self, *, is_cut: bool) -> Content | None:
        """The content so far; None if it is empty."""
        text, signature = "".join(self.pieces), clean("".join(self.signed))
        if self.kind == "call":
            if not self.name and not text.strip():
                return None
            arguments = read_arguments(text, is_complete=not is_cut)
            return ToolCall(self.id, self.name, arguments, signature)
        if self.kind == "text":
            return Text(clean(text), signature) if self.pieces else None
        if not self.pieces and not signature:
            return None
        hidden = not self.pieces if self.is_hidden is None else self.is_hidden
        return Thinking(clean(text), signature, hidden)


class AnswerDecoder(ABC):
    """Assembles one answer from the events of a stream.

    Raises `ModelError` ("malformed", or the kind of an error event). Tolerates what compatible
    servers do: missing fields, repeated ids, arguments as objects, unknown events, endless answers.
    """

    STOP_WHEN_DONE: ClassVar[Stop | None] = None
    """The stop reason if `[DONE]` comes without one; None if `[DONE]` does not end the answer."""

    def __init__(self, endpoint: Endpoint) -> None:
        self._endpoint = endpoint
        self.parts: list[AnswerPart] = []
        """In order of their start."""
        self._chars = self._argument_chars = self._calls = 0
        self._ids: set[str] = set()
        self._usage = Usage()
        self._stop: Stop | None = None
        """Why the answer ended; None while it has not."""
        self._is_refused = False
        self._explanation = ""
        """Why it was refused."""
        self._is_over = False
        """Whether further events are ignored."""

    def feed(self, event: ServerEvent) -> Iterable[Delta]:
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

    def feed_whole(self, body: bytes) -> Iterator[Delta]:
        """Read an answer that was not streamed. Raises ModelError for anything else."""
        try:
            events = self._events(decode(body.decode()))
        except ValueError:
            events = []
        if not events:
            raise from_response(self._endpoint.ref.provider, 200, {}, body)
        for event in events:
            yield from self._read(event, "")

    def finish(self) -> Assistant:
        """The whole answer, after the last event. Raises "cut" if the stream ended too early."""
        try:
            if self._stop is None:
                raise ModelError("cut", cut_off(self._endpoint.ref.provider))
            return self._finish("refusal" if self._is_refused else self._stop)
        except ModelError as error:
            error.partial = self.partial()
            raise

    def partial(self) -> Assistant:
        """The answer received so far: complete parts and unfinished text; never raises."""
        self._settle()
        content: list[Content] = []
        for part in self.parts:
            made = part.to_content(is_cut=True) if part.kind == "text" or part.is_closed else None
            if made and not (isinstance(made, ToolCall) and isinstance(made.arguments, str)):
                content.append(made)
        return self._assistant(content, "aborted")

    @abstractmethod
    def _read(self, data: dict[str, Any], name: str) -> Iterable[Delta]:
        """Read an event; the result must not be lazy."""

    @abstractmethod
    def _events(self, data: Any) -> list[dict[str, Any]]:
        """The events equivalent to an answer that was not streamed; empty if it is not one."""

    def _settle(self) -> None:  # noqa: B027  # optional
        """Finish everything that can only be decided at the end."""

    def _finish(self, stop: Stop) -> Assistant:
        self._settle()
        # A limit can only have truncated the last part.
        cut = self.parts[-1] if stop == "length" and self.parts else None
        made = [part.to_content(is_cut=part is cut) for part in self.parts]
        content = [part for part in made if part is not None]
        if stop == "refusal":
            # Calls of a refused answer must not run.
            content = [part for part in content if not isinstance(part, ToolCall)]
        elif stop in ("stop", "tool_calls"):
            called = any(isinstance(part, ToolCall) for part in content)
            stop = "tool_calls" if called else "stop"
        return self._assistant(content, stop, self._explanation if stop == "refusal" else "")

    def _assistant(self, content: list[Content], stop: Stop, error: str = "") -> Assistant:
        endpoint = self._endpoint
        usage = priced(self._usage, endpoint.facts.cost)
        return Assistant(tuple(content), stop, str(endpoint.ref), endpoint.api, usage, error)

    def _failure(self, data: dict[str, Any]) -> ModelError:
        return from_response(self._endpoint.ref.provider, 200, {}, encode(data))

    def begin(self, kind: Kind, *, is_hidden: bool | None = None) -> AnswerPart:
        """Start a new text or thinking part."""
        if len(self.parts) >= _MAX_PARTS:
            raise malformed(f"its answer has more than {_MAX_PARTS:,} parts")
        self.parts.append(AnswerPart(kind, is_hidden=is_hidden))
        return self.parts[-1]

    def call(self, given_id: object, name: object) -> AnswerPart:
        """Start a new call, with a unique id."""
        part = AnswerPart("call")
        part.number, part.name = self._calls, read_name(name)
        self.rename(part, str_of(given_id))
        self._calls += 1
        if self._calls > MAX_CALLS:
            raise malformed(f"its answer has more than {MAX_CALLS} calls")
        self.parts.append(part)
        return part

    def rename(self, call: AnswerPart, given_id: str) -> None:
        """Set the id of a call, made unique; it may arrive after the start of the call."""
        self._ids.discard(call.id)
        base = given_id if regex(_IDS).fullmatch(given_id) else f"call_{os.urandom(12).hex()}"
        found, count = base, 1
        while found in self._ids:
            count += 1
            found = f"{base}_{count}"
        self._ids.add(found)
        call.id, call.given_id = found, given_id

    def tell(self, call: AnswerPart) -> Iterable[Delta]:
        """Report the start of a call when its name is known."""
        if call.is_told or not call.name:
            return ()
        call.is_told = True
        # Arguments may have arrived before the name.
        text = clean("".join(call.pieces))
        before = [CallDelta(call.number, text)] if text else []
        return (CallStarted(call.number, call.id, call.name), *before)

    def add(self, part: AnswerPart, text: str) -> Iterable[Delta]:
        if not text:
            return ()
        if part.kind == "call":
            part.size += len(text)
            self._argument_chars += len(text)
            if part.size > MAX_ARGUMENTS:
                raise malformed(f"the arguments of a call exceed {MAX_ARGUMENTS:,} characters")
            if self._argument_chars > MAX_ALL_ARGUMENTS:
                most = f"{MAX_ALL_ARGUMENTS:,} characters"
                raise malformed(f"the arguments of its calls exceed {most}")
            part.pieces.append(text)
            return (CallDelta(part.number, clean(text)),) if part.is_told else ()
        self.count(text)
        part.pieces.append(text)
        text, part.half = part.half + text, ""
        if "\ud800" <= text[-1:] <= "\udbff":
            text, part.half = text[:-1], text[-1]
        text = clean(text)
        if not text:
            return ()
        return (TextDelta(text),) if part.kind == "text" else (ThinkingDelta(text),)

    def count(self, text: str) -> None:
        """Count text, thinking or a signature towards the limit."""
        self._chars += len(text)
        if self._chars > MAX_TEXT:
            raise malformed(f"its answer is longer than {MAX_TEXT:,} characters")


def read_name(name: object) -> str:
    """A tool name as received, truncated."""
    return clean(str_of(name).strip()[:_MAX_NAME])


# Providers may send values of any type. A value of an unexpected type counts as empty.


def list_of(value: object) -> list[Any]:
    return value if isinstance(value, list) else []


def str_of(value: object) -> str:
    return value if isinstance(value, str) else ""
