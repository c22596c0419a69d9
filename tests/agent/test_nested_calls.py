"""Calls that a tool makes for itself: no more rights, and no end of nesting."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from clawkit.agent.nested_calls import MAX_DEPTH, NestedCalls
from clawkit.core.context import Context
from clawkit.core.hooks import Hooks
from clawkit.core.result import Result
from clawkit.core.tool import Tool, tool
from clawkit.runtime import Toolkit


def relay(name: str, target: str, params: Any = None) -> Tool:
    @tool(name=name)
    async def pass_on(ctx: Context) -> Result:
        """Call another tool."""
        return await ctx.use(NestedCalls).call(target, params or {}, by=name)

    return pass_on


async def test_a_nested_call_has_the_policy_the_rules_and_the_hooks_of_the_run(
    workspace: Path,
) -> None:
    seen: list[str] = []
    hooks = Hooks()
    hooks.before(lambda call: seen.append(call.tool))
    config = {
        "tools": {
            "deny": ["write"],
            "rules": [{"tool": "read", "params": {"path": "b.txt"}, "effect": "deny"}],
        }
    }
    tools = [
        relay("one", "read", {"path": "a.txt"}),
        relay("two", "read", {"path": "b.txt"}),
        relay("three", "write", {"path": "c.txt", "content": "x"}),
    ]
    async with Toolkit.open(config, workspace=workspace, tools=tools, hooks=hooks) as kit:
        assert "alpha" in (await kit.call("one")).as_text()
        assert (await kit.call("two")).details["status"] == "blocked"
        assert (await kit.call("three")).details["status"] == "blocked"
    assert seen[:2] == ["one", "read"]
    assert not (workspace / "c.txt").exists()


async def test_tools_do_not_call_each_other_without_end(workspace: Path) -> None:
    chain = [relay(f"t{number}", f"t{number + 1}") for number in range(MAX_DEPTH + 1)]
    ring = [relay("ping", "pong"), relay("pong", "ping"), relay("own", "own")]
    last = relay(f"t{MAX_DEPTH + 1}", "ls")
    async with Toolkit.open({}, workspace=workspace, tools=[*chain, *ring, last]) as kit:
        for name, said in (
            ("own", "own cannot be called from own"),
            ("ping", "ping cannot be called from pong from ping"),
            ("t0", f"t{MAX_DEPTH + 1} cannot be called from t{MAX_DEPTH} from"),
        ):
            result = await kit.call(name)
            assert said in result.as_text(), name
            assert result.details["deniedReason"] == "nested-call"
        assert not (await kit.call(f"t{MAX_DEPTH + 1}")).is_error


async def test_a_changed_policy_applies_to_nested_calls(workspace: Path) -> None:
    tools = [relay("one", "read", {"path": "a.txt"})]
    async with Toolkit.open({}, workspace=workspace, tools=tools) as kit:
        assert not (await kit.call("one")).is_error
        kit.alter(config=Toolkit.open({"tools": {"deny": ["read"]}}).config)
        assert (await kit.call("one")).details["status"] == "blocked"


async def test_withheld_tools_stay_withheld_when_settings_change(workspace: Path) -> None:
    tools = [relay("one", "read", {"path": "a.txt"}), relay("two", "one")]
    why = {"read": "not here", "one": "not here", "unknown": "not here"}
    async with Toolkit.open({}, workspace=workspace, tools=tools, withheld=why) as kit:
        for _ in range(2):
            assert {"read", "one"}.isdisjoint(tool.name for tool in (*kit.tools, *kit.offered))
            for name in ("read", "one", "two"):
                result = await kit.call(name, {"path": "a.txt"} if name == "read" else None)
                assert result.details["status"] == "blocked", name
                assert "not here" in result.as_text(), name
            kit.alter(config=Toolkit.open({"tools": {"alsoAllow": ["read"]}}).config)


async def test_a_tool_cannot_call_itself_through_tool_call(workspace: Path) -> None:
    again = relay("own", "tool_call", {"name": "own", "args": {}})
    config = {"tools": {"toolSearch": True}}
    async with Toolkit.open(config, workspace=workspace, tools=[again]) as kit:
        result = await kit.call("own")
    assert result.as_text() == "own cannot be called from own"
