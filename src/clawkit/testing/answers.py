"""Scripted answers, helpers to write them, and `ScriptedModel`, a model in this process.

ScriptedModel("Hello.", call("read", {"path": "a.txt"}), [think("So."), say("Done.")])
"""

from __future__ import annotations

import asyncio
import inspect
from collections import deque
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Mapping, Sequence
from typing import Any

import msgspec
from msgspec.structs import replace

from clawkit.config.modelref import parse_ref
from clawkit.content import Assistant, Message, Part, Summary, Text, Thinking, ToolCall, Usage
from clawkit.models.protocols import (
    CallDelta,
    CallStarted,
    Delta,
    Facts,
    ModelError,
    Request,
    TextDelta,
    ThinkingDelta,
)

Saying = str | Part | Assistant | Sequence[str | Part]
"""An answer: text, one part, several parts, or a whole message."""

_CHARS_PER_TOKEN = 4
_PIECES = 4


def say(text: str) -> Text:
    """Text of an answer."""
    return Text(text)


def think(text: str, signature: str = "") -> Thinking:
    """Thinking before an answer."""
    return Thinking(text, signature)


def call(name: str, arguments: Mapping[str, Any] | str | None = None, id: str = "") -> ToolCall:  # noqa: A002
    """A tool call. A string is sent unchanged; without an id, the call gets a new one."""
    if not isinstance(arguments, str):
        arguments = dict(arguments or {})
    return ToolCall(id, name, arguments)


def calls(*wanted: ToolCall | tuple[str, Mapping[str, Any]]) -> list[ToolCall]:
    """Several calls in one answer: `calls(("ls", {}), ("read", {"path": "a.txt"}))`."""
    return [one if isinstance(one, ToolCall) else call(*one) for one in wanted]


class Gate:
    """An answer that waits until the test releases it."""

    def __init__(self, answer: Saying = "done", *, after: int = 0) -> None:
        """`after` pieces are sent before it waits; with 0, not even the headers."""
        self.answer = answer
        self.after = after
        self.reached = asyncio.Event()  # set when the answer starts to wait
        self._released = asyncio.Event()

    def release(self) -> None:
        self._released.set()

    async def wait(self) -> None:
        self.reached.set()
        await self._released.wait()


def hang() -> Callable[[object], Gate]:
    """An answer that never comes, for tests of timeouts and cancellation."""
    return lambda _: Gate()


class ScriptEndedError(Exception):
    """There were more requests than answers."""


class Script:
    """Answers in order."""

    def __init__(self, answers: Iterable[Any], then: Any = None) -> None:
        """`then` answers every request after the last answer; None for no answer."""
        self._answers = deque(answers)
        self._default = then
        self.used = 0

    @property
    def left(self) -> int:
        return len(self._answers)

    def add(self, *answers: Any) -> None:
        self._answers.extend(answers)

    async def next(self, request: object) -> Any:
        """The next answer, with functions called. Raises `ScriptEndedError` if there is none."""
        if not self._answers and self._default is None:
            raise ScriptEndedError(
                f"the script has no more answers; all {self.used} were used. Add one for this "
                "request, or use `then` to answer all further requests"
            )
        answer = self._answers.popleft() if self._answers else self._default
        self.used += 1
        while callable(answer):
            made: Callable[[Any], Any] = answer
            answer = made(request)
            if inspect.isawaitable(answer):
                awaited: Awaitable[Any] = answer
                answer = await awaited
        return answer


def whole(saying: Saying) -> Assistant:
    """An answer as a message. Raises TypeError for anything else."""
    if isinstance(saying, Assistant):
        if saying.stop == "stop" and saying.calls:
            return replace(saying, stop="tool_calls")
        return saying
    if isinstance(saying, str | Text | Thinking | ToolCall):
        saying = [saying]
    if not isinstance(saying, list | tuple):
        raise TypeError(
            f"{saying!r:.200} is not an answer; use text, parts of an answer or a fault"
        )
    content = tuple(Text(part) if isinstance(part, str) else part for part in saying)
    for part in content:
        if not isinstance(part, Text | Thinking | ToolCall):
            raise TypeError(
                f"{part!r:.200} is not a part of an answer; use Text, Thinking or ToolCall"
            )
    has_calls = any(isinstance(part, ToolCall) for part in content)
    return Assistant(content, "tool_calls" if has_calls else "stop")


def pieces(text: str, size: int = 0) -> list[str]:
    """Split a text into a few pieces, or into pieces of that size."""
    size = size or -(-len(text) // _PIECES) or 1
    return [text[start : start + size] for start in range(0, len(text), size)]


def tokens(chars: int) -> int:
    """Estimated tokens for a number of characters."""
    return -(-chars // _CHARS_PER_TOKEN)


def written(arguments: object) -> str:
    """Arguments as the JSON text that a model writes."""
    return arguments if isinstance(arguments, str) else encode(arguments).decode()


def encode(value: object) -> bytes:
    """Encode as JSON; lone surrogates become escapes."""
    try:
        return msgspec.json.encode(value)
    except UnicodeEncodeError:
        import json

        plain = msgspec.to_builtins(value)
        return json.dumps(plain, separators=(",", ":")).encode()


def counted(answer: Assistant, chars_asked: int) -> Usage:
    """The answer's own usage, or an estimate by the number of characters."""
    if answer.usage != Usage():
        return answer.usage
    return Usage(tokens(chars_asked), tokens(sum(map(length, answer.content))))


def length(part: Part) -> int:
    """Number of characters of a part."""
    if isinstance(part, ToolCall):
        return len(part.name) + len(written(part.arguments))
    return len(part.text)


def message_length(message: Message) -> int:
    """Number of characters of a message; images count as their data."""
    match message:
        case Summary(text=text):
            return len(text)
        case Assistant(content=parts):
            return sum(map(length, parts))
        case _:
            blocks = message.content
            return sum(len(b.text) if isinstance(b, Text) else len(b.data) for b in blocks)


Answer = Saying | ModelError | Gate | Callable[[Request], Any]
"""One answer; a function, plain or async, is given the request and returns one."""


class ScriptedModel:
    """Gives scripted answers in order, and records the requests."""

    def __init__(
        self,
        *answers: Answer,
        ref: str = "scripted/model",
        facts: Facts | None = None,
        api: str = "scripted",
        then: Answer | None = None,
    ) -> None:
        """`then` answers every request after the last answer; by default they raise ModelError."""
        self.ref, self.api, self.facts = parse_ref(ref), api, facts or Facts()
        self._script = Script(answers, then)
        self._calls = 0
        self.requests: list[Request] = []

    @property
    def left(self) -> int:
        """Number of answers not used yet."""
        return self._script.left

    def add(self, *answers: Answer) -> None:
        """Append answers to the script."""
        self._script.add(*answers)

    async def stream(self, request: Request) -> AsyncIterator[Delta | Assistant]:
        # Copy the messages: the list may grow.
        self.requests.append(replace(request, messages=tuple(request.messages)))
        try:
            answer = await self._script.next(request)
        except ScriptEndedError as error:
            raise ModelError("invalid", f"{self.ref}: {error}") from None
        if isinstance(answer, ModelError):
            raise answer
        gate = answer if isinstance(answer, Gate) else None
        answer = whole(gate.answer if gate else answer)
        asked = len(request.system) + sum(map(message_length, request.messages))
        asked += sum(len(tool.name) + len(tool.description) for tool in request.tools)
        message = replace(
            answer,
            content=tuple(map(self._with_id, answer.content)),
            model=answer.model or str(self.ref),
            api=answer.api or self.api,
            usage=counted(answer, asked),
        )
        sent = 0
        for delta in _deltas(message):
            if gate and sent == gate.after:
                await gate.wait()
            yield delta
            # Let other tasks run between two pieces, as with a real server.
            await asyncio.sleep(0)
            sent += not isinstance(delta, CallStarted)
        if gate and sent <= gate.after:
            await gate.wait()
        yield message

    def _with_id(self, part: Part) -> Part:
        if not isinstance(part, ToolCall) or part.id:
            return part
        self._calls += 1
        return replace(part, id=f"call_{self._calls}")


def _deltas(message: Assistant) -> list[Delta]:
    found: list[Delta] = []
    number = 0
    for part in message.content:
        match part:
            case Text(text=text):
                found += map(TextDelta, pieces(text))
            case Thinking(text=text):
                found += map(ThinkingDelta, pieces(text))
            case ToolCall(id=call_id, name=name, arguments=arguments):
                found.append(CallStarted(number, call_id, name))
                found += (CallDelta(number, piece) for piece in pieces(written(arguments)))
                number += 1
    return found
