"""An answer while it comes: texts, thinking and calls, in the order in which they began."""

from __future__ import annotations

import os
import re
from collections.abc import Iterable
from typing import Any, Literal, TypeVar

import msgspec

from clawkit.content import Assistant, Part, Stop, Text, Thinking, ToolCall, Usage
from clawkit.models.base import CallDelta, CallStarted, Delta, Endpoint, TextDelta, ThinkingDelta
from clawkit.models.wire.shared import Limits, clean, encode, malformed, read_arguments

_MAX_NAME = 256
_MAX_PARTS = 10_000
_MAX_LOOK = 64 * 1024
"""Characters of arguments that are worth a look whether they are complete."""
_MAX_LOOKS = 100
"""How often that is worth a look."""
_IDS = re.compile(r"[\x21-\x7e]{1,256}")


class Words:
    """A text or a thought that grows."""

    def __init__(self, kind: Literal["text", "thinking"]) -> None:
        self.kind = kind
        self.pieces: list[str] = []
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
        self.pieces: list[str] = []
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


def as_text(arguments: object) -> str:
    """Arguments of a call as text, also where they came as an object."""
    if isinstance(arguments, str):
        return arguments
    try:
        return "" if arguments is None else encode(arguments).decode()
    except RecursionError:
        return ""


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
