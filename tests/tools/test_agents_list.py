"""agents_list: the agents that may be started."""

from __future__ import annotations

from typing import Any

from tests.tables import table

from clawkit.config.load import loads
from clawkit.core.call import CallRequest, Run, call
from clawkit.core.context import Scope
from clawkit.testing import check_tool
from clawkit.tools.agents_list import TOOL, make_tool

AGENTS = """{agents: {defaults: {model: "p/everyone", subagents: {%s}}, list: [
    {id: "Home", name: "Home", description: "everything else"},
    {id: "work", model: {primary: "p/strong", fallbacks: ["p/weak"]}, subagents: {%s}},
    {id: "ask", model: "p/quick"},
]}}"""


async def ask(config: str, agent: str = "work") -> Any:
    scope = Scope(agent=agent)
    run = Run({"agents_list": make_tool(loads(config).config, scope)}, "/", scope)
    return (await call(run, CallRequest("agents_list"))).details


def ids(details: Any) -> list[str]:
    return [each["id"] for each in details["agents"]]


def test_models_can_be_offered_it() -> None:
    assert check_tool(TOOL) == []


async def test_without_a_setting_an_agent_starts_itself_only() -> None:
    assert await ask(AGENTS % ("", "")) == {
        "requester": "work",
        "allowAny": False,
        "agents": [{"id": "work", "model": "p/strong", "configured": True}],
    }
    assert await ask("{}", "main") == {
        "requester": "main",
        "allowAny": False,
        "agents": [{"id": "main", "configured": False}],
    }


@table(
    ("general", "own", "shown", "any_"),
    [
        ("", 'allowAgents: ["*"]', ["work", "ask", "home"], True),
        ('allowAgents: ["*"]', "", ["work", "ask", "home"], True),
        ('allowAgents: ["*"]', 'allowAgents: ["ask"]', ["ask"], False),
        ("", 'allowAgents: ["HOME", "ask", "nobody"]', ["ask", "home"], False),
        ("", 'allowAgents: ["work", "ask"]', ["work", "ask"], False),
        ("", "allowAgents: []", [], False),
    ],
)
async def test_settings_decide_which_agents_are_listed(
    general: str, own: str, shown: list[str], any_: bool
) -> None:
    details = await ask(AGENTS % (general, own))
    assert ids(details) == shown
    assert details["allowAny"] is any_


async def test_each_agent_is_listed_with_purpose_and_model() -> None:
    details = await ask(AGENTS % ('allowAgents: ["*"]', ""), "ASK")
    assert details["agents"] == [
        {"id": "ask", "model": "p/quick", "configured": True},
        {
            "id": "home",
            "name": "Home",
            "description": "everything else",
            "model": "p/everyone",
            "configured": True,
        },
        {"id": "work", "model": "p/strong", "configured": True},
    ]


async def test_an_agent_that_is_not_configured_may_start_any_too() -> None:
    details = await ask('{agents: {defaults: {subagents: {allowAgents: ["*"]}}}}', "main")
    assert details["agents"] == [{"id": "main", "configured": False}]


async def test_agents_list_takes_no_parameters() -> None:
    run = Run({"agents_list": TOOL}, "/")
    result = await call(run, CallRequest("agents_list", {"agentId": "x"}))
    assert result.details["code"] == 400
