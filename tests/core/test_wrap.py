"""Switching off single actions of a tool."""

from __future__ import annotations

from dataclasses import replace
from typing import Any, Literal

import msgspec
import pytest
from tests.tables import table

from clawkit.core.call import CallRequest, Run, call
from clawkit.core.context import Context, Scope
from clawkit.core.tool import Effect, Tool, action_values, without_actions
from clawkit.errors import ToolAuthorizationError


class Params(msgspec.Struct, forbid_unknown_fields=True, rename="camel"):
    action: Literal["list", "kill"] = "kill"
    session_id: str = ""


async def execute(params: Params, _ctx: Context) -> str:
    return f"{params.action} {params.session_id}"


def effects(params: Params, _ctx: Context) -> tuple[Effect, ...]:
    return (Effect("exec", f"process:{params.session_id}"),)


STRUCT = Tool("jobs", "Jobs.", Params, execute, effects=effects)


async def execute_dict(params: dict[str, Any], _ctx: Context) -> str:
    return str(params)


SCHEMA = Tool(
    "jobs", "Jobs.", {"properties": {"action": {"enum": ["list", "kill", 3]}}}, execute_dict
)
CTX = Context("1", Scope(), "/")


def test_a_disabled_action_is_not_advertised_and_the_tool_is_unchanged() -> None:
    limited = without_actions(STRUCT, {"kill"}, "no killing")
    assert limited.schema["properties"]["action"] == {"enum": ["list"]}
    assert STRUCT.schema["properties"]["action"]["enum"] == ["kill", "list"]
    assert STRUCT.defaults["action"] == "kill"
    assert limited.name == "jobs"


async def test_a_disabled_action_is_refused_and_the_others_run() -> None:
    for tool in (STRUCT, SCHEMA):
        limited = without_actions(tool, frozenset({"kill"}), "no killing")
        with pytest.raises(ToolAuthorizationError, match="'kill' of 'jobs' is disabled: no"):
            await limited.execute({"action": "kill"}, CTX)
        run = Run({"jobs": limited}, "/")
        assert "list" in (await call(run, CallRequest("jobs", {"action": "list"}))).as_text()
        assert (await call(run, CallRequest("jobs", {"action": "kill"}))).is_error


async def test_omitting_the_action_does_not_use_a_disabled_default() -> None:
    limited = without_actions(STRUCT, {"kill"}, "no killing")
    result = await call(Run({"jobs": limited}, "/"), CallRequest("jobs", {}))
    assert result.details["status"] == "blocked"
    only_default = without_actions(STRUCT, {"list"}, "no listing")
    result = await call(Run({"jobs": only_default}, "/"), CallRequest("jobs", {"session_id": "7"}))
    assert result.as_text() == "kill 7"


def test_effects_are_still_those_of_the_tool() -> None:
    limited = without_actions(STRUCT, {"kill"}, "")
    params = {"action": "list", "sessionId": "7"}
    assert list(limited.effects(params, CTX)) == [Effect("exec", "process:7")]
    assert list(without_actions(SCHEMA, {"kill"}, "").effects({}, CTX)) == [Effect("write")]


def test_actions_can_be_disabled_one_after_the_other() -> None:
    twice = without_actions(without_actions(SCHEMA, {"kill"}, ""), {"list"}, "")
    assert twice.schema["properties"]["action"]["enum"] == [3]


def test_hidden_parameters_stay_hidden_when_an_action_is_disabled() -> None:
    hiding = replace(STRUCT, hidden=frozenset({"sessionId"}), needs={"sessionId": "other"})
    limited = without_actions(hiding, {"kill"}, "")
    assert limited.offered["properties"] == {"action": {"enum": ["list"]}}
    assert list(limited.schema["properties"]) == ["action", "sessionId"]
    assert limited.needs == {"sessionId": "other"}


@table(
    "schema",
    [
        {},
        {"properties": []},
        {"properties": {"action": True}},
        {"properties": {"action": {"type": "string"}}},
        {"properties": {"action": {"enum": ["list"]}}},
    ],
)
def test_a_tool_without_that_action_stays_as_it_is(schema: dict[str, Any]) -> None:
    tool = Tool("jobs", "Jobs.", schema, execute_dict)
    assert without_actions(tool, {"kill"}, "") is tool
    assert "kill" not in action_values(tool)
