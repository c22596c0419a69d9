"""The named set of tools."""

from __future__ import annotations

from typing import Any

import pytest
from tests.tables import table

from clawkit.core.context import Context
from clawkit.core.tool import CALLER, CORE, Registered, Registry, Tool
from clawkit.errors import RegistryError


async def nothing(_params: Any, _ctx: Context) -> None:
    return None


def make(name: str, source: str = CALLER) -> Registered:
    return Registered(Tool(name, "A tool.", {}, nothing), source)


def test_tools_are_held_by_their_canonical_name_in_the_order_they_came() -> None:
    registry = Registry()
    given = make("exec", CORE), make("Weather", "plugin:sky")
    for each in given:
        registry.add(each)
    assert registry == dict(zip(("exec", "weather"), given, strict=True))


@pytest.mark.parametrize("source", ["caller", "plugin:sky", "mcp:files"])
def test_a_built_in_tool_cannot_be_shadowed(source: str, subtests: pytest.Subtests) -> None:
    registry = Registry()
    for name, words in (
        ("exec", "a built-in tool"),
        ("EXEC", "a built-in tool"),
        ("bash", "an old name of 'exec'"),
        ("Bash", "an old name of 'exec'"),
        ("apply-patch", "an old name of 'apply_patch'"),
        ("gateway", "a built-in tool"),
    ):
        with subtests.test(name), pytest.raises(RegistryError, match=words):
            registry.add(make(name, source))
    assert not registry


def test_the_first_owner_of_a_name_keeps_it() -> None:
    registry = Registry()
    registry.add(make("sky"))
    with pytest.raises(RegistryError, match="'SKY' from plugin:b is already provided by caller"):
        registry.add(make("SKY", "plugin:b"))
    with pytest.raises(RegistryError, match="already provided"):
        registry.add(make("sky", CORE))
    assert [each.source for each in registry.values()] == ["caller"]


@table("source", ["plugin:exec", "plugin:BASH", "mcp:read"])
def test_a_plugin_with_the_id_of_a_built_in_tool_is_refused(source: str) -> None:
    registry = Registry()
    with pytest.raises(RegistryError, match="has the id of a built-in tool"):
        registry.add(make("one", source))
    assert not registry


def test_the_name_for_all_mcp_servers_is_reserved() -> None:
    with pytest.raises(RegistryError, match="has a reserved name"):
        Registry().add(make("bundle-mcp", "mcp:files"))
