"""Agents that talk over HTTP to a service of our own, and what must hold of their transcripts."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any, get_args

from clawkit.agent.events import AnswerStored, Event, ResultStored, TurnEnded, TurnStarted
from clawkit.agent_session import Agent
from clawkit.content import Assistant, Message, ToolResult
from clawkit.models.protocols import Api
from clawkit.sessions.store import SessionStore
from clawkit_testkit.server import ScriptedServer

APIS: tuple[Api, ...] = get_args(Api)
KEY = "sk-scripted-0123456789abcdefghijklmnop"
MODEL: dict[str, Any] = {
    "id": "scripted-model",
    "contextWindow": 200_000,
    "input": ["text", "image"],
    "reasoning": True,
}


class NoWait:
    """A clock on which every wait is over at once."""

    def __init__(self) -> None:
        self.at = 0.0
        self.waits: list[float] = []

    def now(self) -> float:
        return self.at

    async def sleep(self, seconds: float) -> None:
        self.at += seconds
        self.waits.append(seconds)

    def chance(self) -> float:
        return 0.0


class Heard(list[Event]):
    """A listener that keeps everything."""

    def __call__(self, event: Event) -> None:
        self.append(event)

    def of(self, kind: type) -> list[Any]:
        return [event for event in self if isinstance(event, kind)]


def config_for(server: ScriptedServer, *apis: Api, **more: Any) -> dict[str, Any]:
    """The service as a provider for each API, named after it; the first one is the default."""
    providers = {
        api: {**server.provider_config(api, [MODEL]), "apiKey": KEY, **more} for api in apis
    }
    return {
        "models": {"providers": providers},
        "agents": {"defaults": {"model": f"{apis[0]}/scripted-model"}},
        "tools": {"exec": {"security": "full", "ask": "off"}},
    }


def open_agent(config: dict[str, Any], workspace: Path, **options: Any) -> Agent:
    """An agent that starts its spawn server for the first command, and not before."""
    own = {"owner": True, "clock": NoWait(), **options}
    agent = Agent.open(config, workspace=workspace, **own)
    agent.turns.warms_up = False
    return agent


def assert_consistent(messages: Sequence[Message]) -> None:
    """Every call has its result right behind the answer, in order, and no result is alone."""
    waiting: list[str] = []
    for message in messages:
        if isinstance(message, ToolResult):
            assert waiting, "a result nobody asked for"
            assert message.call_id == waiting.pop(0)
        else:
            assert waiting == []
            if isinstance(message, Assistant):
                waiting = [each.id for each in message.calls]
    assert waiting == []


def assert_sane(heard: Sequence[Event]) -> None:
    """Turns begin and end in turns, and every call of an answer has exactly one result."""
    frames = [type(event) for event in heard if isinstance(event, TurnStarted | TurnEnded)]
    assert frames == [TurnStarted, TurnEnded] * (len(frames) // 2)
    assert isinstance(heard[0], TurnStarted)
    assert isinstance(heard[-1], TurnEnded)
    open_calls: list[str] = []
    for event in heard:
        if isinstance(event, AnswerStored):
            assert open_calls == []
            open_calls = [call.id for call in event.message.calls]
        elif isinstance(event, ResultStored):
            open_calls.remove(event.message.call_id)
    assert open_calls == []


def stored(agent: Agent) -> list[Message]:
    """The conversation as it would be loaded now."""
    assert agent.store is not None
    assert agent.session is not None
    return [each.message for each in agent.store.load(agent.session.id)]


def store_of_home() -> SessionStore:
    return SessionStore(str(Path(os.environ["CLAWKIT_HOME"]) / "sessions.sqlite"))
