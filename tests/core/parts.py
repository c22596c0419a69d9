"""Tools, people and listeners for the tests of the call path."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any

from clawkit.core.approval import Answer, Ask, Deny, Question
from clawkit.core.call import CallRequest, Event, Run, call
from clawkit.core.context import Context
from clawkit.core.result import Result
from clawkit.core.tool import Tool

Execute = Callable[[Any, Context], Awaitable[object]]
SECRET = "correct-horse-battery-staple"
QUESTION = Ask("Pay 5?", "It is much", asked_by="tools.rules[3]", to_allow="clawkit config set x")


class OwnError(BaseException):
    """Not an ordinary exception."""


class Listener(list[Event]):
    """Keeps every event."""

    def __call__(self, event: Event) -> None:
        self.append(event)

    @property
    def kinds(self) -> list[str]:
        return [event["type"] for event in self]


def make(name: str, execute: Execute, **options: Any) -> Tool:
    schema = {"properties": {"path": {"type": "string"}, "env": {}, "size": {"default": 10}}}
    return Tool(name, "A tool.", schema, execute, **options)


def run_of(*tools: Tool, **options: Any) -> Run:
    return Run({tool.name.lower(): tool for tool in tools}, "/ws", **options)


async def echo(params: dict[str, Any], _ctx: Context) -> dict[str, Any]:
    return {"params": params}


async def once(execute: Execute, params: object = None, **options: Any) -> Result:
    """One call of a tool that does that."""
    return await call(run_of(make("probe", execute), **options), CallRequest("probe", params))


def always(verdict: Deny | Ask | None) -> Callable[..., Deny | Ask | None]:
    return lambda _tool, _params, _ctx: verdict


class Answering:
    """Somebody with an answer; a class that raises it when it is an exception."""

    def __init__(self, answer: object) -> None:
        self.answer = answer
        self.requests: list[Question] = []

    async def ask(self, request: Question) -> Answer:
        self.requests.append(request)
        if isinstance(self.answer, BaseException):
            raise self.answer
        return self.answer  # type: ignore[return-value]
