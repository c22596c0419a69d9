"""A model that says what a test wants it to say."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from typing import Any

import msgspec
from msgspec.structs import replace

from clawkit.config.modelref import ModelRef, parse_ref
from clawkit.content import Assistant, Part, Text, Thinking, ToolCall
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
from clawkit.testing.answers import (
    Gate,
    Hang,
    Saying,
    Script,
    ScriptEndedError,
    counted,
    message_length,
    pieces,
    whole,
    written,
)

Answer = Saying | ModelError | Hang | Gate | Callable[[Request], Any]
"""One answer; a function, plain or async, is given the request and returns one."""


class ScriptedModel:
    """Gives prepared answers in order, and keeps the requests."""

    def __init__(
        self,
        *answers: Answer,
        ref: str = "scripted/model",
        facts: Facts | None = None,
        api: str = "scripted",
        then: Answer | None = None,
    ) -> None:
        """`then` answers every request after the last; without it they raise `ModelError`."""
        self._ref = parse_ref(ref)
        self._facts = facts or Facts()
        self._api = api
        self._script = Script(answers, then)
        self._calls = 0
        self.requests: list[Request] = []

    @property
    def ref(self) -> ModelRef:
        return self._ref

    @property
    def api(self) -> str:
        return self._api

    @property
    def facts(self) -> Facts:
        return self._facts

    @property
    def left(self) -> int:
        """Answers that were not used yet."""
        return self._script.left

    def add(self, *answers: Answer) -> None:
        """More answers, after those there are."""
        self._script.add(*answers)

    async def stream(self, request: Request) -> AsyncIterator[Delta | Assistant]:
        # The messages are kept as they are now: the list may be one that grows.
        self.requests.append(replace(request, messages=tuple(request.messages)))
        try:
            answer = await self._script.next(request)
        except ScriptEndedError as error:
            raise ModelError("invalid", f"{self._ref}: {error}") from None
        if isinstance(answer, ModelError):
            raise answer
        if isinstance(answer, Hang):
            await asyncio.Event().wait()
        gate = answer if isinstance(answer, Gate) else None
        message = self._finish(whole(gate.answer if gate else answer), request)
        sent = 0
        for delta in _deltas(message):
            if gate and sent == gate.after:
                await gate.wait()
            yield delta
            # Others get their turn between two pieces, as they do with a real service.
            await asyncio.sleep(0)
            sent += not isinstance(delta, CallStarted)
        if gate and sent <= gate.after:
            await gate.wait()
        yield message

    def _finish(self, answer: Assistant, request: Request) -> Assistant:
        asked = len(request.system) + sum(map(message_length, request.messages))
        asked += sum(len(tool.name) + len(tool.description) for tool in request.tools)
        return msgspec.structs.replace(
            answer,
            content=tuple(map(self._with_id, answer.content)),
            model=answer.model or str(self._ref),
            api=answer.api or self._api,
            usage=counted(answer, asked),
        )

    def _with_id(self, part: Part) -> Part:
        if not isinstance(part, ToolCall) or part.id:
            return part
        self._calls += 1
        return msgspec.structs.replace(part, id=f"call_{self._calls}")


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
