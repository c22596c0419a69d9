"""The named set of tools."""

from __future__ import annotations

from typing import Any

import pytest

from clawkit.core.context import Context
from clawkit.core.registry import CORE, Registered, Registry
from clawkit.core.tool import Tool
from clawkit.errors import RegistryError


async def nothing(_params: Any, _ctx: Context) -> None:
    return None


def make(name: str) -> Tool:
    return Tool(name, "A tool.", {}, nothing)


def test_a_tool_is_found_by_any_spelling_with_its_origin() -> None:
    registry = Registry()
    registry.add(make("exec"), CORE)
    registry.add(make("Weather"), "plugin:sky", optional=True)
    assert "BASH" in registry
    assert "weather" in registry
    assert "rain" not in registry
    assert len(registry) == 2
    assert registry.get("wEATHER") == Registered(registry.get("weather").tool, "plugin:sky", True)  # type: ignore[union-attr]
    assert registry.get("rain") is None
    assert [each.source for each in registry] == ["core", "plugin:sky"]


@pytest.mark.parametrize("source", ["caller", "plugin:sky", "mcp:files"])
@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("exec", "a built-in tool"),
        ("EXEC", "a built-in tool"),
        ("bash", "an old name of 'exec'"),
        ("Bash", "an old name of 'exec'"),
        ("apply-patch", "an old name of 'apply_patch'"),
        ("gateway", "a built-in tool"),
    ],
)
def test_nobody_can_stand_in_front_of_a_built_in_tool(name: str, words: str, source: str) -> None:
    registry = Registry()
    with pytest.raises(RegistryError, match=words):
        registry.add(make(name), source)
    assert len(registry) == 0


def test_the_first_owner_of_a_name_keeps_it() -> None:
    registry = Registry()
    registry.add(make("sky"), "caller")
    with pytest.raises(RegistryError, match="'SKY' from plugin:b is already provided by caller"):
        registry.add(make("SKY"), "plugin:b")
    with pytest.raises(RegistryError, match="already provided"):
        registry.add(make("sky"), CORE)
    assert [each.source for each in registry] == ["caller"]


def test_what_cannot_be_added_is_noted_and_the_rest_goes_on() -> None:
    registry = Registry()
    registry.add_all([make("one"), make("exec"), make("ONE"), make("two")], "plugin:p")
    assert [each.tool.name for each in registry] == ["one", "two"]
    assert len(registry.conflicts) == 2
    assert "'exec'" in registry.conflicts[0]
    assert "'ONE'" in registry.conflicts[1]


@pytest.mark.parametrize("source", ["plugin:exec", "plugin:BASH", "mcp:read"])
def test_a_plugin_called_like_a_built_in_tool_brings_nothing(source: str) -> None:
    registry = Registry()
    registry.add_all([make("one")], source)
    assert len(registry) == 0
    assert "has the id of a built-in tool" in registry.conflicts[0]


def test_tools_of_the_caller_need_no_id() -> None:
    registry = Registry()
    registry.add_all([make("one")], "caller", optional=True)
    assert [each.optional for each in registry] == [True]
    assert registry.conflicts == []


def test_no_tool_may_be_called_like_the_word_for_all_servers() -> None:
    with pytest.raises(RegistryError, match="reserved for all servers"):
        Registry().add(make("bundle-mcp"), "mcp:files")
