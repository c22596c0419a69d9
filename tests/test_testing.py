"""The test kit for authors of tools."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import pytest
from tests.tables import table

import clawkit.testing
from clawkit import Context, Hooks, Tool, tool
from clawkit.core.approval import Answer, Ask, Question
from clawkit.testing import Events, ScriptedApprover, check_tool, open_kit


@tool
async def weather(city: str, ctx: Context) -> str:
    """Tell the weather.

    Args:
        city: Where.
    """
    await ctx.update(f"looking at {city}")
    return "18 degrees"


async def nothing(_params: Any, _ctx: Context) -> None:
    return None


async def test_a_kit_runs_a_tool_as_owner_and_ignores_the_users_configuration(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    broken = tmp_path / "broken.json5"
    broken.write_text("{")
    monkeypatch.setenv("CLAWKIT_CONFIG", str(broken))
    events = Events()
    async with open_kit(tmp_path, weather, on_event=events) as kit:
        assert (await kit.call("weather", {"city": "Paris"})).as_text() == "18 degrees"
        assert (await kit.call("session_status")).details["senderIsOwner"] is True
    assert events.of("update")[0]["content"][0]["text"] == "looking at Paris"
    assert [event["type"] for event in events[:3]] == ["start", "update", "end"]
    assert events.of("other") == []


async def test_a_kit_takes_settings_and_options(tmp_path: Path) -> None:
    config = {"tools": {"deny": ["weather"]}}
    async with open_kit(tmp_path, weather, config=config, owner=False) as kit:
        assert (await kit.call("weather", {"city": "Paris"})).details["status"] == "blocked"
        assert (await kit.call("session_status")).details["senderIsOwner"] is False


async def test_a_scripted_approver_answers_in_order_and_then_says_no() -> None:
    approver = ScriptedApprover("allow", "too late", Answer("deny", "never"))
    request = Question("weather", {}, "May it?")
    answers = [await approver.ask(request) for _ in range(4)]
    assert answers == [
        Answer("allow"),
        Answer("deny", "too late"),
        Answer("deny", "never"),
        Answer("deny", "no answer was prepared"),
    ]
    assert approver.requests == [request] * 4


async def test_a_scripted_approver_works_in_a_kit(tmp_path: Path) -> None:
    hooks = Hooks()
    hooks.before(lambda _call: Ask("May it?"))
    approver = ScriptedApprover("allow", "no")
    async with open_kit(tmp_path, weather, hooks=hooks, approver=approver) as kit:
        assert not (await kit.call("weather", {"city": "Paris"})).is_error
        assert "refused (no)" in (await kit.call("weather", {"city": "Paris"})).as_text()


def test_a_good_tool_has_no_problems() -> None:
    assert check_tool(weather) == []
    assert check_tool(weather, ["anthropic"]) == []


@table(
    ("made", "words"),
    [
        (Tool("a", " ", {}, nothing), ["no description"]),
        (
            Tool("a", "A.", {"properties": {"x": {}, "y": True}}, nothing),
            ["parameter 'x' has no description", "parameter 'y' has no description"],
        ),
        (Tool("a", "A.", {}, nothing, aliases={"p": "path"}), ["alias 'p' refers to 'path'"]),
        (Tool("a", "A.", {}, nothing, paths=("path",)), ["path 'path' is not a parameter"]),
        (Tool("a", "", {"type": "array"}, nothing), ["no description", "must be an object"]),
        (Tool("a", "A.", {"properties": {"x": {"type": "odd"}}}, nothing), ["schema is invalid"]),
        (
            Tool(
                "a",
                "A.",
                {
                    "properties": {"x": {"$ref": "#/$defs/x", "description": "X."}},
                    "$defs": {"x": {"properties": {"x": {"$ref": "#/$defs/x"}}}},
                },
                nothing,
            ),
            ["a: "],
        ),
    ],
)
def test_check_tool_reports_each_problem(made: Tool, words: list[str]) -> None:
    problems = check_tool(made)
    assert len(problems) == len(words)
    for problem, expected in zip(problems, words, strict=True):
        assert expected in problem


@pytest.mark.parametrize("name", ["ScriptedServer", "fault"])
def test_a_missing_test_kit_is_an_error_that_names_the_package(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    for module in [each for each in sys.modules if each.partition(".")[0] == "clawkit_testkit"]:
        monkeypatch.delitem(sys.modules, module)
    others = [each for each in sys.path if not each.endswith("testkit/src")]
    monkeypatch.setattr(sys, "path", others)
    with pytest.raises(ModuleNotFoundError, match="pip install clawkit-testkit") as caught:
        getattr(clawkit.testing, name)
    assert f"clawkit.testing.{name} needs clawkit-testkit" in str(caught.value)
    assert clawkit.testing.ScriptedModel("Hello.").left == 1


def test_an_unknown_name_of_the_kit_is_an_attribute_error() -> None:
    with pytest.raises(AttributeError, match="no attribute 'nothing'"):
        clawkit.testing.nothing  # noqa: B018
