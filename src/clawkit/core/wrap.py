"""Tool -> Tool: changes to what a tool offers, without touching the tool."""

from __future__ import annotations

import copy
from collections.abc import Mapping, Set
from dataclasses import replace
from typing import Any

from clawkit.core.context import Context
from clawkit.core.tool import Tool
from clawkit.errors import ToolAuthorizationError


def action_values(tool: Tool) -> tuple[str, ...]:
    """The actions a tool offers; none when it has no such list."""
    properties = tool.schema.get("properties")
    action = properties.get("action") if isinstance(properties, Mapping) else None
    values = action.get("enum") if isinstance(action, Mapping) else None
    return tuple(each for each in values or () if isinstance(each, str))


def without_actions(tool: Tool, actions: Set[str], reason: str) -> Tool:
    """The tool with some of its actions switched off: not advertised, and refused if called."""
    if actions.isdisjoint(action_values(tool)):
        return tool
    schema = copy.deepcopy(tool.schema)
    action = schema["properties"]["action"]
    action["enum"] = [value for value in action["enum"] if value not in actions]
    default = action.get("default")
    if default in actions:
        del action["default"]

    why = {each: f"the action {each!r} of {tool.name!r} is off: {reason}" for each in actions}

    async def execute(params: Any, ctx: Context) -> object:
        asked = params.get("action", default)
        if asked in actions:
            raise ToolAuthorizationError(why[asked], reason="rule")
        return await tool.execute(tool.typed(params), ctx)

    def effects(params: Any, ctx: Context) -> Any:
        return tool.effects(tool.typed(params), ctx)

    off = {**tool.off, **why}
    return replace(tool, parameters=schema, execute=execute, effects=effects, off=off)
