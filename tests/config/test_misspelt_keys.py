"""Sections that leave room for others' settings, and mistakes in them."""

from __future__ import annotations

import json
from typing import Any

import pytest
from tests.tables import table

from clawkit.config.load import loads
from clawkit.errors import ConfigError, Issue

POLICY = {"deny": ["exec"]}


def load(raw: dict[str, Any]) -> list[Issue]:
    """The warnings; all of the configuration is taken."""
    return loads(json.dumps(raw), file="<test>", env={}).warnings


def problem(raw: dict[str, Any]) -> Issue:
    with pytest.raises(ConfigError) as caught:
        load(raw)
    (issue,) = caught.value.issues
    return issue


@table(
    ("key", "value", "meant"),
    [
        ("tool", POLICY, "tools"),
        ("Tools", POLICY, "tools"),
        ("toosl", POLICY, "tools"),
        ("toolBySender", {"id:1": POLICY}, "toolsBySender"),
        ("tool_by_sender", {"id:1": POLICY}, "toolsBySender"),
        ("ToolsBySender", {"id:1": POLICY}, "toolsBySender"),
        ("toolsbysendr", {"id:1": POLICY}, "toolsBySender"),
        ("REQUIRE_MENTION", True, "requireMention"),
        ("requireMentions", True, "requireMention"),
        ("enable", False, "enabled"),
    ],
)
def test_a_misspelt_setting_of_a_group_is_an_error(key: str, value: Any, meant: str) -> None:
    groups = {"groups": {"g1": {key: value, "topics": {"5": {}}}}}
    places: dict[str, dict[str, Any]] = {
        "channels.telegram": groups,
        "channels.telegram.accounts.main": {"accounts": {"main": groups}},
    }
    for place, channel in places.items():
        issue = problem({"channels": {"telegram": channel}})
        assert issue.path == f"{place}.groups.g1.{key}"
        assert issue.message == "unknown setting"
        assert issue.hint == f"Did you mean {meant!r}?"


@table(
    ("key", "value"),
    [
        ("group", {"g1": {"tools": POLICY}}),
        ("Groups", {"g1": {"tools": POLICY}}),
        ("GROUPS", "of another kind"),
        ("grops", {"g1": {"tools": POLICY}}),
        ("acounts", {"main": {}}),
        ("grouppolicy", "open"),
        ("group-policy", "open"),
        ("dmPolcy", "open"),
        ("allow_form", ["1"]),
    ],
)
def test_a_misspelt_setting_of_a_channel_is_an_error(key: str, value: Any) -> None:
    issue = problem({"channels": {"telegram": {key: value}}})
    assert issue.message == "unknown setting"
    assert issue.hint.startswith("Did you mean ")


@table(
    "channel",
    [
        {"account": "+15555550123", "accountUuid": "x"},
        {"botToken": "x", "guilds": {}, "channels": {}, "teams": {}, "rooms": {}, "dms": {}},
        {"reactions": {}, "dm": {"policy": "open"}, "groupId": "1", "name": "x", "tool": 5},
        {"groups": {"*": {"topics": {}, "skills": [], "systemPrompt": "x", "roles": []}}},
        {"tools": {"doc": True, "wiki": False}},
    ],
)
def test_settings_of_the_channels_own_are_left_to_them(channel: dict[str, Any]) -> None:
    assert load({"channels": {"signal": channel}}) == []


def test_variables_may_be_named_like_settings() -> None:
    assert load({"env": {"CARS": "1", "VAR": "2", "VARZ": "3", "SHELL_ENVY": "x"}}) == []
    issue = problem({"env": {"var": {"A": "1"}}})
    assert (issue.path, issue.hint) == ("env.var", "Did you mean 'vars'?")


def test_settings_of_a_service_may_resemble_ours() -> None:
    raw = {"tts": {"providers": {"x": {"apiKeyId": "1", "apiUrl": "http://x", "voice": "y"}}}}
    assert load(raw) == []
    hooks = {"timeouts": {"before": 5}}
    assert load({"plugins": {"entries": {"x": {"hooks": hooks}}}}) == []
    assert problem({"tts": {"providers": {"x": {"apikey": "1"}}}}).hint == "Did you mean 'apiKey'?"


@table(
    ("channel", "place"),
    [
        ({"tools": POLICY}, "tools"),
        ({"tools": {"also_allow": []}}, "tools"),
        ({"tool": POLICY}, "tool"),
        ({"toolsBySender": {"id:1": POLICY}}, "toolsBySender"),
        ({"toolsBySender": POLICY}, "toolsBySender"),
        ({"tools_by_sender": {"*": POLICY}}, "tools_by_sender"),
        ({"channels": {"C1": {"tools": POLICY}}}, "channels.C1.tools"),
        ({"guilds": {"1": {"channels": {"2": {"tools": POLICY}}}}}, "guilds.1.channels.2.tools"),
        ({"groups": {"g": {"topics": {"5": {"tools": POLICY}}}}}, "groups.g.topics.5.tools"),
        ({"accounts": {"a": {"tools": POLICY}}}, "accounts.a.tools"),
        ({"rooms": [{"tools": POLICY}]}, "rooms[0].tools"),
    ],
)
def test_a_tool_policy_without_effect_is_a_warning(channel: dict[str, Any], place: str) -> None:
    (warning,) = load({"channels": {"slack": channel}})
    assert (warning.path, warning.file, warning.line) == (f"channels.slack.{place}", "<test>", 1)
    assert warning.message == "a tool policy has no effect here"
    assert "channels.slack.groups.<id>.tools" in warning.hint


def test_each_such_policy_has_its_own_warning() -> None:
    places = {f"C{number}": {"tools": POLICY} for number in range(60)}
    warnings = load({"channels": {"slack": {"channels": places, "botToken": "${GONE}"}}})
    assert [warning.path for warning in warnings[:2]] == [
        "channels.slack.channels.C0.tools",
        "channels.slack.channels.C1.tools",
    ]
    assert len(warnings) == 51
    assert warnings[50].message == "there are 11 more warnings like these"


def test_an_effective_tool_policy_is_no_warning() -> None:
    groups = {"g": {"tools": POLICY, "toolsBySender": {"id:1": POLICY}}}
    channel = {"groups": groups, "accounts": {"a": {"groups": groups}}}
    assert load({"channels": {"slack": channel}}) == []
    assert load({"plugins": {"entries": {"x": {"config": {"tools": POLICY}}}}}) == []
