"""Setting, unsetting and patching: what is merged, and what does not get lost unasked."""

from __future__ import annotations

from typing import Any

import pytest
from tests.tables import table

from clawkit.config.file_edit import leaves, patch_settings, set_setting, unset_setting
from clawkit.config.json5 import parse, parse_path
from clawkit.errors import EditError

PROVIDERS = """\
{
  models: {
    providers: {
      // on this machine
      local: {
        baseUrl: "http://localhost:1",
        models: [
          // the small one
          { id: "small", cost: { input: 1, output: 2 } },
          { id: "large" }, // the large one
        ],
      },
    },
  },
}
"""


def after_set(text: str, path: str, value: Any, **options: bool) -> Any:
    return parse(set_setting(text, parse_path(path), value, **options)).value


def after_patch(text: str, patch: dict[str, Any], **options: bool) -> Any:
    return parse(patch_settings(text, patch, **options)).value


def test_settings_do_not_get_lost_by_a_replacement(subtests: pytest.Subtests) -> None:
    cases: list[Any] = [
        ("{ tools: { exec: { ask: 'off', host: 'auto' } } }", "tools.exec", {"ask": "off"}, "host"),
        ("{ tools: { exec: { ask: 'off' } } }", "tools", {"exec": {}}, "tools.exec.ask"),
        ("{ tools: { exec: { ask: 'off' } } }", "tools", {}, "tools.exec"),
        ("{ tools: { exec: { ask: 'off' } } }", "tools", "none", "tools.exec"),
        ("{ channels: { telegram: {}, irc: {} } }", "channels", {"irc": {}}, "channels.telegram"),
        ("{ mcp: { servers: { a: {}, b: {} } } }", "mcp.servers", {"b": {}}, "mcp.servers.a"),
        ("{ plugins: { entries: { a: {} } } }", "plugins.entries", {}, "plugins.entries.a"),
        ("{ auth: { profiles: { a: {} } } }", "auth", {"profiles": {}}, "auth.profiles.a"),
        ("{ agents: { entries: { a: {} } } }", "agents.entries", {"b": {}}, "agents.entries.a"),
        (
            "{ agents: { defaults: { models: { 'x/y': {} } } } }",
            "agents.defaults.models",
            {},
            'agents.defaults.models["x/y"]|agents.defaults.models.x/y',
        ),
        (
            "{ agents: { list: [{ id: 'a' }, { id: 'b' }] } }",
            "agents.list",
            [{"id": "b"}],
            "agents.list entry 'a'",
        ),
        (
            "{ agents: { list: [{ id: 'a', name: 'A' }] } }",
            "agents.list",
            [{"id": "z"}, {"id": "a"}],
            "agents.list[0].name",
        ),
        (
            PROVIDERS,
            "models.providers.local.models",
            [{"id": "large"}],
            "models.providers.local.models entry 'small'",
        ),
        (PROVIDERS, "models.providers", {"other": {}}, "models.providers.local"),
        (PROVIDERS, "models.providers.local", {"models": []}, "models.providers.local.baseUrl"),
    ]
    for text, path, value, lost in cases:
        with subtests.test(text=text, path=path, value=value, lost=lost):
            with pytest.raises(EditError) as refusal:
                set_setting(text, parse_path(path), value)
            assert any(name in str(refusal.value) for name in lost.split("|"))
            assert "--merge" in str(refusal.value)
            assert "--replace" in str(refusal.value)
            found = after_set(text, path, value, replace=True)
            for step in parse_path(path):
                found = found[step]
            assert found == value


@table(
    ("text", "path", "value"),
    [
        ("{ tools: { exec: { ask: 'off' } } }", "tools.exec", {"ask": "always", "host": "auto"}),
        ("{ tools: { deny: ['exec', 'read'] } }", "tools.deny", []),
        ("{ tools: { rules: [{ tool: 'a', effect: 'deny' }] } }", "tools.rules", []),
        ("{ agents: { list: [{ id: 'a' }] } }", "agents.list", [{"id": "b"}, {"id": "a"}]),
        ("{ tools: {} }", "tools", {"profile": "full"}),
        ("{}", "tools", {"profile": "full"}),
        (
            "{ gateway: { auth: { token: { source: 'env', id: 'T' } } } }",
            "gateway.auth.token",
            "plain",
        ),
    ],
)
def test_a_replacement_without_loss_needs_no_permission(text: str, path: str, value: Any) -> None:
    assert after_set(text, path, value) == after_set(text, path, value, replace=True)


def test_at_most_six_losses_are_named() -> None:
    entries = ", ".join(f"p{number}: {{}}" for number in range(9))
    with pytest.raises(EditError, match=r"plugins\.entries\.p5 and 3 more\."):
        set_setting(f"{{ plugins: {{ entries: {{ {entries} }} }} }}", ("plugins", "entries"), {})


@table(
    ("text", "path", "value", "expected"),
    [
        (
            "{ tools: { exec: { ask: 'off', applyPatch: { enabled: true } } } }",
            "tools",
            {"exec": {"applyPatch": {"workspaceOnly": False}}, "deny": ["read"]},
            {
                "tools": {
                    "exec": {
                        "ask": "off",
                        "applyPatch": {"enabled": True, "workspaceOnly": False},
                    },
                    "deny": ["read"],
                }
            },
        ),
        (
            "{ tools: { deny: ['exec'] } }",
            "tools",
            {"deny": ["read"]},
            {"tools": {"deny": ["read"]}},
        ),
        ("{}", "tools.deny", ["read"], {"tools": {"deny": ["read"]}}),
        (
            "{ agents: { list: [{ id: 'a', tools: { deny: ['x'] } }, { name: 'odd' }] } }",
            "agents.list",
            [{"id": "a", "tools": {"allow": ["y"]}}, {"id": "b"}, {"name": "odd"}],
            {
                "agents": {
                    "list": [
                        {"id": "a", "tools": {"deny": ["x"], "allow": ["y"]}},
                        {"name": "odd"},
                        {"id": "b"},
                        {"name": "odd"},
                    ]
                }
            },
        ),
    ],
)
def test_merging_adds_to_what_is_there(text: str, path: str, value: Any, expected: Any) -> None:
    assert after_set(text, path, value, merge=True) == expected


def test_models_are_merged_by_their_ids_and_comments_stay() -> None:
    path = ("models", "providers", "local", "models")
    new = [{"id": "large", "name": "L"}, {"id": "third"}, {"id": "small", "cost": {"input": 3}}]
    for where, value in ((path, new), (path[:2], {"local": {"models": new}})):
        text = set_setting(PROVIDERS, where, value, merge=True)
        assert parse(text).value["models"]["providers"]["local"]["models"] == [
            {"id": "small", "cost": {"input": 3, "output": 2}},
            {"id": "large", "name": "L"},
            {"id": "third"},
        ]
        assert all(
            words in text for words in ("// the small one", "// the large one", "// on this")
        )


@table(
    ("text", "path", "value"),
    [
        ("{ tools: { profile: 'full' } }", "tools.profile", {}),
        ("{ tools: { deny: ['a'] } }", "tools.deny", ["b"]),
        ("{ tools: { exec: {} } }", "tools.exec", "x"),
        ("{ agents: { list: [] } }", "agents.list", {"id": "a"}),
    ],
)
def test_only_objects_are_merged(text: str, path: str, value: Any) -> None:
    with pytest.raises(EditError, match=r"cannot be merged.*--replace"):
        set_setting(text, parse_path(path), value, merge=True)


@table(
    ("text", "path", "value", "expected"),
    [
        (
            "{ tools: { exec: { timeoutSeconds: 20 } } }",
            "tools.exec.timeoutSec",
            30,
            {"timeoutSeconds": 30},
        ),
        (
            "{ tools: { exec: { timeout_sec: 20, ask: 'off' } } }",
            "tools.exec",
            {"timeoutSec": 30, "ask": "off"},
            {"timeout_sec": 30, "ask": "off"},
        ),
        ("{ tools: { exec: {} } }", "tools.exec.timeout_sec", 30, {"timeout_sec": 30}),
    ],
)
def test_a_setting_keeps_the_name_the_file_uses_for_it(
    text: str, path: str, value: Any, expected: Any
) -> None:
    assert after_set(text, path, value)["tools"]["exec"] == expected


def test_a_setting_is_unset_by_any_of_its_names() -> None:
    text = "{ tools: { exec: { timeout_seconds: 20 } } }"
    assert parse(unset_setting(text, ("tools", "exec", "timeoutSec"))).value["tools"]["exec"] == {}


def test_a_missing_setting_cannot_be_unset() -> None:
    with pytest.raises(EditError, match=r"'tools\.exec' is not set"):
        unset_setting("{ tools: {} }", ("tools", "exec"))


def test_a_missing_list_is_created() -> None:
    assert after_set("{}", "tools.deny.0", "exec") == {"tools": {"deny": ["exec"]}}
    assert after_set("{}", "channels.0.enabled", True) == {"channels": {"0": {"enabled": True}}}


@table(
    ("patch", "expected"),
    [
        ({"tools": {"deny": None}}, {"tools": {"exec": {"ask": "off", "timeout_sec": 9}}}),
        (
            {"tools": {"exec": {"timeoutSec": 10}}},
            {"tools": {"exec": {"ask": "off", "timeout_sec": 10}, "deny": ["a"]}},
        ),
        (
            {"tools": {"exec": {"timeoutSeconds": None}, "deny": []}},
            {"tools": {"exec": {"ask": "off"}, "deny": []}},
        ),
        ({"tools": None}, {}),
    ],
)
def test_a_patch_merges_objects_and_removes_nulls(patch: dict[str, Any], expected: Any) -> None:
    text = "{ tools: { exec: { ask: 'off', timeout_sec: 9 }, deny: ['a'] } }"
    assert after_patch(text, patch) == expected


@pytest.mark.parametrize(
    ("text", "patch", "lost"),
    [
        ("{ tools: { exec: { ask: 'off' } } }", {"tools": {"exec": "no"}}, "tools.exec.ask"),
        (
            "{ agents: { list: [{ id: 'a' }] } }",
            {"agents": {"list": [{"id": "b"}]}},
            "agents.list entry 'a'",
        ),
    ],
)
def test_a_patch_loses_only_what_it_names(text: str, patch: dict[str, Any], lost: str) -> None:
    with pytest.raises(EditError, match="null") as refusal:
        patch_settings(text, patch)
    assert lost in str(refusal.value)
    assert after_patch(text, patch, replace=True)


def test_a_patch_is_about_its_leaves() -> None:
    patch = {"a": {"b": 1, "c": {"d": None}}, "e": {}, "f": [{"g": 1}]}
    assert list(leaves(patch)) == [
        (("a", "b"), 1),
        (("a", "c", "d"), None),
        (("e",), {}),
        (("f",), [{"g": 1}]),
    ]


def test_a_file_that_holds_no_object_is_not_patched() -> None:
    with pytest.raises(EditError, match="does not contain an object"):
        patch_settings("[]", {"tools": {}})
