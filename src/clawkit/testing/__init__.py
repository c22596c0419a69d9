"""Helpers for tests of tools, hooks, plugins and agents: real parts, no mocks.

from clawkit.testing import ScriptedApprover, check_tool, open_kit

async def test_my_tool(tmp_path):
    assert check_tool(my_tool) == []
    async with open_kit(tmp_path, my_tool) as kit:
        result = await kit.call("my_tool", {"city": "Paris"})
        assert result.as_text() == "18 degrees"

Two models follow a script: `ScriptedModel` in this process, and `ScriptedServer` over HTTP with the
four APIs. `fault` simulates failures. The last two are in a separate distribution, clawkit-testkit.
"""

from __future__ import annotations

import importlib
import os
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any

from clawkit.core.approval import Answer, Question
from clawkit.core.call import Event
from clawkit.core.tool import Tool
from clawkit.errors import ClawkitError
from clawkit.runtime import Toolkit
from clawkit.schema.choose import PROVIDERS, declare

if TYPE_CHECKING:
    from clawkit.testing.answers import Gate, ScriptedModel, call, calls, hang, say, think
    from clawkit_testkit import fault
    from clawkit_testkit.server import ScriptedServer

__all__ = [
    "Events",
    "Gate",
    "ScriptedApprover",
    "ScriptedModel",
    "ScriptedServer",
    "call",
    "calls",
    "check_tool",
    "fault",
    "hang",
    "open_kit",
    "say",
    "think",
]

# Loaded on first use, because tests of tools need no models.
_HOME = {
    **dict.fromkeys(
        ("Gate", "ScriptedModel", "call", "calls", "hang", "say", "think"),
        "clawkit.testing.answers",
    ),
    "ScriptedServer": "clawkit_testkit.server",
    "fault": "clawkit_testkit.fault",
}


def __getattr__(name: str) -> Any:
    if name not in _HOME:
        raise AttributeError(f"module 'clawkit.testing' has no attribute {name!r}")
    try:
        module = importlib.import_module(_HOME[name])
    except ModuleNotFoundError as error:
        if error.name != "clawkit_testkit":
            raise
        raise ModuleNotFoundError(
            f"clawkit.testing.{name} needs clawkit-testkit, which is not installed; type "
            "`pip install clawkit-testkit`, or `pip install -e testkit` in a checkout",
            name=error.name,
        ) from None
    return module if name == "fault" else getattr(module, name)


def open_kit(
    workspace: str | os.PathLike[str],
    *tools: Tool,
    config: Mapping[str, Any] | None = None,
    owner: bool = True,
    **options: Any,
) -> Toolkit:
    """Open a toolkit that ignores the configuration of this machine."""
    return Toolkit.open(config or {}, workspace=workspace, tools=tools, owner=owner, **options)


class ScriptedApprover:
    """Gives scripted answers in order, and records the questions. Denies after the last answer."""

    def __init__(self, *answers: Answer | str) -> None:
        self._answers = [*answers]
        self.requests: list[Question] = []

    async def ask(self, request: Question) -> Answer:
        self.requests.append(request)
        answer = self._answers.pop(0) if self._answers else "no answer was prepared"
        if isinstance(answer, Answer):
            return answer
        return Answer("allow") if answer == "allow" else Answer("deny", answer)


class Events(list[Event]):
    """A listener that records every event: `open_kit(..., on_event=events)`."""

    def __call__(self, event: Event) -> None:
        self.append(event)

    def of(self, kind: str) -> list[Event]:
        """The events of one kind: `start`, `update` or `end`."""
        return [event for event in self if event["type"] == kind]


def check_tool(tool: Tool, providers: Iterable[str] = PROVIDERS) -> list[str]:
    """Problems of a tool for users or model providers; empty if there are none."""
    problems = [] if tool.description.strip() else ["the tool has no description"]
    try:
        properties = tool.schema.get("properties", {})
        tool.validator.is_valid({})
        for provider in providers:
            declare(tool.name, tool.description, tool.schema, provider)  # type: ignore[arg-type]
    except ClawkitError as error:
        return [*problems, str(error)]
    for name, schema in properties.items():
        if not (isinstance(schema, Mapping) and schema.get("description")):
            problems.append(f"parameter {name!r} has no description")
    for alias, name in tool.aliases.items():
        if name not in properties:
            problems.append(f"alias {alias!r} refers to {name!r}, which is not a parameter")
    problems += [f"path {name!r} is not a parameter" for name in tool.stray_paths]
    return problems
