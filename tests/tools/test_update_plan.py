"""update_plan: the steps before the agent, and how far it is."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from tests.tables import table

from clawkit.agent.assemble import assemble
from clawkit.config.load import loads
from clawkit.config.modelref import parse_ref
from clawkit.core.catalog import CONTROLS, GROUPS
from clawkit.core.context import Scope
from clawkit.core.result import Result
from clawkit.runtime import Toolkit
from clawkit.sessions.protocols import Plan, PlannedStep
from clawkit.testing import check_tool, open_kit
from clawkit.tools.update_plan import MAX_STEPS, TOOL

ON = {"tools": {"updatePlan": True}}
STRICT = {"embeddedPi": {"executionContract": "strict-agentic"}}


def step(text: str, status: str | None = None) -> dict[str, str]:
    return {"step": text} if status is None else {"step": text, "status": status}


async def update(kit: Toolkit, *steps: Any, **more: Any) -> Result:
    return await kit.call("update_plan", {"plan": list(steps), **more})


def plan_of(kit: Toolkit) -> Any:
    return kit.run.services[Plan]


def test_models_can_be_offered_it() -> None:
    assert check_tool(TOOL) == []


async def test_the_plan_is_kept_and_each_call_replaces_it(tmp_path: Path) -> None:
    async with open_kit(tmp_path, config=ON) as kit:
        assert plan_of(kit).steps == ()
        first = await update(kit, step("look", "in_progress"), step(" fix "), explanation="why")
        assert first.as_text() == "Plan updated: 0 of 2 steps completed; now: look"
        assert first.details == {
            "plan": [step("look", "in_progress"), step("fix", "pending")],
            "explanation": "why",
        }
        assert plan_of(kit).steps == (PlannedStep("look", "in_progress"), PlannedStep("fix"))
        assert plan_of(kit).explanation == "why"
        second = await update(kit, step("look", "completed"))
        assert second.as_text() == "Plan updated: 1 of 1 steps completed"
        assert plan_of(kit).steps == (PlannedStep("look", "completed"),)
        assert plan_of(kit).explanation == ""


@pytest.mark.parametrize(
    ("params", "message"),
    [
        ({}, "plan"),
        ({"plan": []}, "has less than 1 item"),
        ({"plan": [step("a")] * (MAX_STEPS + 1)}, "the plan has 51 steps, more than 50"),
        ({"plan": [step("a", "done")]}, 'plan[0].status: "done" is not one of'),
        ({"plan": [{"status": "pending"}]}, "step"),
        ({"plan": [step("a"), step(" \n")]}, "step 2 of the plan is empty"),
        ({"plan": [step("x" * 501)]}, "step 1 has 501 characters"),
        ({"plan": [step("a") | {"owner": "me"}]}, "owner"),
        ({"plan": [step("a")], "explanation": "x" * 2_001}, "explanation has 2,001 characters"),
        (
            {"plan": [step("a", "in_progress"), step("b\n", "in_progress")]},
            "2 steps are in_progress ('a', 'b'); at most one can be",
        ),
    ],
)
async def test_an_invalid_plan_is_refused_and_the_old_one_kept(
    tmp_path: Path, params: dict[str, Any], message: str
) -> None:
    async with open_kit(tmp_path, config=ON) as kit:
        await update(kit, step("old"))
        result = await kit.call("update_plan", params)
        assert result.details["code"] == 400
        assert message in result.details["error"]
        assert plan_of(kit).steps == (PlannedStep("old"),)


@pytest.mark.parametrize("name", ["update_plan", "progress_card"])
async def test_the_alias_of_update_plan_works(tmp_path: Path, name: str) -> None:
    async with open_kit(tmp_path, config=ON) as kit:
        assert not (await kit.call(name, {"plan": [step("a")]})).is_error


def on(**tools: Any) -> dict[str, Any]:
    return {"tools": tools}


@table(
    ("config", "model", "offered"),
    [
        ({}, None, False),
        ({}, "openai/gpt-5", False),
        (on(updatePlan=True), None, True),
        (on(updatePlan=True), "anthropic/claude-opus-4-6", True),
        (on(experimental={"planTool": True}), None, True),
        (on(updatePlan=False) | {"agents": {"defaults": STRICT}}, "openai/gpt-5", False),
        (on(experimental={"planTool": False}), "openai/gpt-5", False),
        ({"agents": {"defaults": STRICT}}, "openai/gpt-5", True),
        ({"agents": {"defaults": STRICT}}, "openai/GPT-5.2", True),
        ({"agents": {"defaults": STRICT}}, "openai-codex/gpt-5-codex", True),
        ({"agents": {"defaults": STRICT}}, "openai/gpt-51", False),
        ({"agents": {"defaults": STRICT}}, "openai/gpt-4.1", False),
        ({"agents": {"defaults": STRICT}}, "openrouter/openai/gpt-5", False),
        ({"agents": {"defaults": STRICT}}, None, False),
        ({"agents": {"entries": {"main": STRICT}}}, "openai/gpt-5", True),
        (
            {
                "agents": {
                    "defaults": STRICT,
                    "entries": {"main": {"embeddedPi": {"executionContract": "default"}}},
                }
            },
            "openai/gpt-5",
            False,
        ),
    ],
)
def test_settings_and_model_decide_who_is_offered_it(
    config: dict[str, Any], model: str | None, offered: bool
) -> None:
    scope = Scope(model=parse_ref(model) if model else None)
    assembly = assemble(loads(json.dumps(config)).config, scope)
    assert ("update_plan" in assembly.tools) is offered
    assert ("update_plan" in assembly.off) is not offered
    if not offered:
        assert "tools.updatePlan" in assembly.refused["update_plan"]


def test_a_tool_that_policy_removes_is_not_called_off() -> None:
    config = loads(json.dumps({"tools": {"deny": ["update_plan", "ls"]}})).config
    assembly = assemble(config, Scope(delegates=True))
    assert assembly.off == {
        *("heartbeat_respond", "web_search", "x_search"),
        *GROUPS["group:memory"],
        *CONTROLS,
    }
    assert "tools.deny denies it" in assembly.refused["update_plan"]
    owners = sum(
        name in assembly.refused for name in ("cron", "gateway", "nodes", "whatsapp_login")
    )
    assert (assembly.in_force.removed, assembly.in_force.off) == (2 + owners, 8)
