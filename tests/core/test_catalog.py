"""The one table of tools."""

from __future__ import annotations

from collections.abc import Iterable

import pytest
from tests.tables import table

from clawkit.agent.assemble import load_tool
from clawkit.config.model import Config
from clawkit.config.sections.tools import Tools
from clawkit.core.catalog import ALIASES, CATALOG, GROUPS, PROFILES, CatalogEntry, canonical
from clawkit.core.context import Scope, Sender
from clawkit.core.tool import Tool, is_tool_name

ENTRIES = list(CATALOG.values())


@pytest.mark.parametrize("entry", ENTRIES, ids=lambda entry: entry.id)
def test_every_entry_is_a_usable_canonical_name_with_a_description(entry: CatalogEntry) -> None:
    assert is_tool_name(entry.id)
    assert canonical(entry.id) == entry.id
    assert entry.description
    assert not entry.description.endswith(".")
    for alias in entry.aliases:
        assert alias not in CATALOG
        assert canonical(f" {alias.upper()} ") == entry.id


def test_every_available_entry_leads_to_the_tool_of_that_name(subtests: pytest.Subtests) -> None:
    cases: Iterable[CatalogEntry] = [entry for entry in ENTRIES if entry.available]
    for entry in cases:
        with subtests.test(f"{entry!r:.80}"):
            scope = Scope(
                sender=Sender(owner=True),
                delegates=True,
                in_gateway=True,
                in_heartbeat=True,
                search=("grok",),
            )
            tool = load_tool(entry, Config(tools=Tools(update_plan=True)), scope)
            assert isinstance(tool, Tool)
            assert tool.name == entry.id
            assert tool.owner_only <= entry.owner_only


def test_no_alias_belongs_to_two_tools() -> None:
    assert len(ALIASES) == sum(len(entry.aliases) for entry in ENTRIES)


def test_groups_and_profiles_hold_known_tools_only() -> None:
    for names in GROUPS.values():
        assert set(names) <= set(CATALOG)
    for profile in ("minimal", "coding", "messaging"):
        assert set(PROFILES[profile]) <= set(CATALOG)
    assert PROFILES["minimal"] == ("session_status",)
    assert PROFILES["full"] == ("*",)


def test_one_group_holds_every_built_in_tool() -> None:
    assert GROUPS["group:openclaw"] == tuple(CATALOG)


@table(
    ("written", "name"),
    [("Read", "read"), (" BASH\n", "exec"), ("apply-patch", "apply_patch"), ("My_Tool", "my_tool")],
)
def test_names_are_compared_without_case_space_and_aliases(written: str, name: str) -> None:
    assert canonical(written) == name
