"""What scripted models and services say: answers in order, and short ways to write them.

ScriptedModel("Hello.", call("read", {"path": "a.txt"}), [think("So."), say("Done.")])
"""

from __future__ import annotations

import asyncio
import inspect
from collections import deque
from collections.abc import Awaitable, Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import msgspec

from clawkit.content import Assistant, Message, Part, Summary, Text, Thinking, ToolCall, Usage

Saying = str | Part | Assistant | Sequence[str | Part]
"""What a model can say: text, one part of an answer, all its parts, or the whole of it."""

_CHARS_PER_TOKEN = 4
_PIECES = 4


def say(text: str) -> Text:
    """Text of an answer."""
    return Text(text)


def think(text: str, signature: str = "") -> Thinking:
    """What the model thinks before it answers."""
    return Thinking(text, signature)


def call(name: str, arguments: Mapping[str, Any] | str | None = None, id: str = "") -> ToolCall:  # noqa: A002
    """A call of a tool. A string is sent as it is; without an id the call gets a new one."""
    if not isinstance(arguments, str):
        arguments = dict(arguments or {})
    return ToolCall(id, name, arguments)


def calls(*wanted: ToolCall | tuple[str, Mapping[str, Any]]) -> list[ToolCall]:
    """Several calls in one answer: `calls(("ls", {}), ("read", {"path": "a.txt"}))`."""
    return [one if isinstance(one, ToolCall) else call(*one) for one in wanted]


@dataclass(frozen=True, slots=True)
class Hang:
    """No answer, ever: only the one who asked can end it."""


def hang() -> Hang:
    """An answer that never comes; for tests of what happens when somebody gives up."""
    return Hang()


class Gate:
    """An answer that waits until the test lets it go."""

    def __init__(self, answer: Saying = "done", *, after: int = 0) -> None:
        """`after` pieces are sent before it waits; with 0 not even the headers are."""
        self.answer = answer
        self.after = after
        self.reached = asyncio.Event()
        """Set as soon as somebody waits for the answer."""
        self._released = asyncio.Event()

    def release(self) -> None:
        self._released.set()

    async def wait(self) -> None:
        self.reached.set()
        await self._released.wait()


class ScriptEndedError(Exception):
    """More was asked than there are answers."""


class Script:
    """Answers in the order in which they are given."""

    def __init__(self, answers: Iterable[Any], then: Any = None) -> None:
        """`then` is the answer to every request after the last; None when there is none."""
        self._answers = deque(answers)
        self._then = then
        self.used = 0

    @property
    def left(self) -> int:
        return len(self._answers)

    def add(self, *answers: Any) -> None:
        self._answers.extend(answers)

    async def next(self, asked: object) -> Any:
        """The next answer, functions called. Raises `ScriptEndedError` when there is none."""
        if not self._answers and self._then is None:
            raise ScriptEndedError(
                f"the script has no more answers; all {self.used} were given, add one for this "
                "request or say with `then` what comes after the last"
            )
        answer = self._answers.popleft() if self._answers else self._then
        self.used += 1
        while callable(answer):
            made: Callable[[Any], Any] = answer
            answer = made(asked)
            if inspect.isawaitable(answer):
                awaited: Awaitable[Any] = answer
                answer = await awaited
        return answer


def whole(saying: Saying) -> Assistant:
    """What is said, as the message it makes. Raises TypeError for what cannot be said."""
    if isinstance(saying, Assistant):
        content, stop = saying.content, saying.stop
        if stop == "stop" and saying.calls:
            return msgspec.structs.replace(saying, stop="tool_calls")
        return saying
    if isinstance(saying, str | Text | Thinking | ToolCall):
        saying = [saying]
    if not isinstance(saying, list | tuple):
        raise TypeError(f"{saying!r:.200} is no answer: give text, parts of an answer or a fault")
    content = tuple(Text(part) if isinstance(part, str) else part for part in saying)
    for part in content:
        if not isinstance(part, Text | Thinking | ToolCall):
            raise TypeError(f"{part!r:.200} is no part of an answer: give Text, Thinking, ToolCall")
    has_calls = any(isinstance(part, ToolCall) for part in content)
    return Assistant(content, "tool_calls" if has_calls else "stop")


def pieces(text: str, size: int = 0) -> Iterator[str]:
    """A text in a few pieces, or in pieces of that size."""
    size = size or -(-len(text) // _PIECES) or 1
    for start in range(0, len(text), size):
        yield text[start : start + size]


def tokens(chars: int) -> int:
    """About how many tokens so many characters are."""
    return -(-chars // _CHARS_PER_TOKEN)


def written(arguments: object) -> str:
    """Arguments as the text that a model writes."""
    return arguments if isinstance(arguments, str) else encode(arguments).decode()


def encode(value: object) -> bytes:
    """JSON, whatever is in it: half of a surrogate pair becomes an escape."""
    try:
        return msgspec.json.encode(value)
    except UnicodeEncodeError:
        import json

        plain = msgspec.to_builtins(value)
        return json.dumps(plain, separators=(",", ":")).encode()


def counted(answer: Assistant, chars_asked: int) -> Usage:
    """The answer's own usage, or else an estimate from the number of characters."""
    if answer.usage != Usage():
        return answer.usage
    return Usage(tokens(chars_asked), tokens(sum(map(length, answer.content))))


def length(part: Part) -> int:
    """Characters of a part."""
    if isinstance(part, ToolCall):
        return len(part.name) + len(written(part.arguments))
    return len(part.text)


def message_length(message: Message) -> int:
    """Characters of a message; an image counts as its data."""
    match message:
        case Summary(text=text):
            return len(text)
        case Assistant(content=parts):
            return sum(map(length, parts))
        case _:
            blocks = message.content
            return sum(len(b.text) if isinstance(b, Text) else len(b.data) for b in blocks)
