"""Old spellings are found and brought up to date; everything else stays as it was written."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.tables import table

from clawkit.config.json5 import parse
from clawkit.config.load import loads
from clawkit.config.migrate import Migration, apply_migrations, migrations


def migrated(text: str) -> str:
    return apply_migrations(text, migrations(parse(text).value))


@table(
    ("old", "new"),
    [
        (
            "{ tools: { media: { models: [{ type: 'cli', command: 'w', "
            "args: ['-f', '{input}'] }] } } }",
            "{ tools: { media: { models: [{ type: 'cli', command: 'w', "
            "args: ['-f', \"{{MediaPath}}\"] }] } } }",
        ),
        (
            "{ tools: { media: { audio: { models: [{ type: 'cli', command: 'w', "
            "args: ['in={input},{input}' /* a */] }] } } } }",
            "{ tools: { media: { audio: { models: [{ type: 'cli', command: 'w', "
            'args: ["in={{MediaPath}},{{MediaPath}}" /* a */] }] } } } }',
        ),
        (
            "{ tools: { toolsBySender: { bob: { deny: ['exec'] }, /* all */ '*': {} } } }",
            "{ tools: { toolsBySender: { \"id:bob\": { deny: ['exec'] }, /* all */ '*': {} } } }",
        ),
        (
            "{ channels: { irc: { groups: { g: { tools_by_sender: { '+491': {} } } } } } }",
            '{ channels: { irc: { groups: { g: { tools_by_sender: { "id:+491": {} } } } } } }',
        ),
        (
            "{ channels: { irc: { accounts: { a: { groups: { g: { toolsBySender: "
            "{ x: {} } } } } } } } }",
            "{ channels: { irc: { accounts: { a: { groups: { g: { toolsBySender: "
            '{ "id:x": {} } } } } } } } }',
        ),
        (
            "{ agents: { entries: { a: { tools: { toolsBySender: { 'user 1': {} } } } } } }",
            '{ agents: { entries: { a: { tools: { toolsBySender: { "id:user 1": {} } } } } } }',
        ),
        (
            "{ browser: { profiles: { work: { driver: 'clawd' } } } }",
            '{ browser: { profiles: { work: { driver: "openclaw" } } } }',
        ),
        (
            "{ agents: { defaults: { sandbox: { browser: { enableNoVnc: false } } } } }",
            "{ agents: { defaults: { sandbox: { browser: { noVncEnabled: false } } } } }",
        ),
        (
            "{ agents: { list: [{ id: 'a', sandbox: { browser: { 'enable_no_vnc': true } } }] } }",
            "{ agents: { list: [{ id: 'a', sandbox: { browser: { \"noVncEnabled\": true } } }] } }",
        ),
        (
            "{ gateway: { nodes: { allowCommands: ['a', 'b'], commands: { allow: ['b'] } } } }",
            "{ gateway: { nodes: { commands: { allow: ['b', \"a\"] } } } }",
        ),
        (
            "{ gateway: { nodes: { commands: {}, denyCommands: ['a'] } } }",
            '{ gateway: { nodes: { commands: {\n  deny: ["a"]\n} } } }',
        ),
    ],
)
def test_old_spellings_are_brought_up_to_date(old: str, new: str) -> None:
    loads(old)
    assert migrated(old) == new
    loads(new)
    assert migrated(new) == new


@pytest.mark.parametrize("allowed", ["true", "false"])
@pytest.mark.parametrize(
    "text",
    [
        "{ tools: { message: { allowCrossContextSend: ALLOWED } } }",
        "{ agents: { entries: { a: { tools: { message: { allow_cross_context_send: ALLOWED }}}}}}",
    ],
)
def test_one_permission_for_two_becomes_two(text: str, allowed: str) -> None:
    new = migrated(text.replace("ALLOWED", allowed))
    loads(new)
    assert f"allowWithinProvider: {allowed}" in new
    assert f"allowAcrossProviders: {allowed}" in new
    assert "CrossContextSend" not in new
    assert migrated(new) == new


def test_what_is_not_old_or_not_clear_is_left_alone(subtests: pytest.Subtests) -> None:
    cases: list[Any] = [
        "{}",
        "{ tools: { media: { models: [{ args: ['{{input}}', '{inputs}'] }] } } }",
        "{ tools: { toolsBySender: { 'id:1': {}, 'E164:+1': {}, 'channel:a:b': {}, '*': {} } } }",
        "{ tools: { toolsBySender: { 'username:@x': {}, 'name:y': {}, '': {} } } }",
        "{ tools: { toolsBySender: { bob: {}, 'ID:Bob': {} } } }",
        "{ plugins: { entries: { x: { config: { toolsBySender: { bob: {} } } } } } }",
        "{ plugins: { entries: { x: { config: { models: [{ args: ['{input}'] }] } } } } }",
        "{ mcp: { servers: { x: { command: 'c', args: ['{input}'] } } } }",
        "{ agents: { defaults: { sandbox: { browser: { enableNoVnc: 1, noVncEnabled: 2 } } } } }",
        "{ gateway: { nodes: { allowCommands: ['a'], allow_commands: ['b'] } } }",
        "{ gateway: { nodes: { allowCommands: ['a'], commands: 5 } } }",
        "{ tools: { message: { allowCrossContextSend: true, crossContext: {} } } }",
        "{ tools: { message: { allowCrossContextSend: 'maybe' } } }",
    ]
    for text in cases:
        with subtests.test(text=text):
            assert migrated(text) == text


def test_a_migration_says_what_it_does() -> None:
    found = migrations({"browser": {"profiles": {"a": {"driver": "clawd"}}}})
    path = ("browser", "profiles", "a", "driver")
    assert found == [Migration(path, path, "clawd", "openclaw", "the driver has a new name")]


def test_comments_and_layout_survive_all_of_them_together() -> None:
    text = """\
// head
{
  tools: { // tools
    toolsBySender: {
      "123": {},   // one two three
    }, // senders
  },

  browser: { profiles: { a: { color: "#fff",   driver: "clawd" /* old */ } } },
}
"""
    assert migrated(text) == text.replace('"123"', '"id:123"').replace("clawd", "openclaw")


def test_two_names_for_one_sender_do_not_become_one_key() -> None:
    text = "{ tools: { toolsBySender: { 'bob': { deny: ['a'] }, ' bob': { deny: ['b'] } } } }"
    senders = parse(migrated(text)).value["tools"]["toolsBySender"]
    assert senders == {"id:bob": {"deny": ["a"]}, " bob": {"deny": ["b"]}}


def test_thousands_of_old_spellings_take_one_pass() -> None:
    senders = ",\n".join(f'      "{number}": {{}}' for number in range(3000))
    text = f"{{ tools: {{ toolsBySender: {{\n{senders}\n}} }} }}"
    new = migrated(text)
    assert new.count('"id:') == 3000
    assert migrated(new) == new


_KEYS = st.sampled_from(
    [
        *(
            "tools",
            "media",
            "models",
            "args",
            "audio",
            "toolsBySender",
            "message",
            "agents",
            "list",
        ),
        *("allowCrossContextSend", "gateway", "nodes", "allowCommands", "commands", "allow"),
        *("browser", "profiles", "driver", "sandbox", "enableNoVnc"),
    ]
)
_JSON: st.SearchStrategy[Any] = st.recursive(
    st.sampled_from([None, True, 1, "clawd", "{input}", "bob"]),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(_KEYS, inner, max_size=4),
    max_leaves=12,
)


@given(_JSON)
def test_migrating_never_fails_and_twice_is_once(raw: Any) -> None:
    new = migrated(json.dumps({"tools": raw, "agents": raw, "gateway": raw, "browser": raw}))
    assert migrated(new) == new
