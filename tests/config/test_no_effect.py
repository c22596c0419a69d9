"""Warnings about settings that nothing acts on."""

from __future__ import annotations

import ast
import re
from pathlib import Path

from tests.tables import table

from clawkit.config.load import loads
from clawkit.config.lookup import find as find_setting
from clawkit.config.no_effect import NO_EFFECT, find

# Notes for people, what is read under another name, and what `find` or `doctor` reports otherwise.
EXCEPTIONS = (
    *("$schema", "bindings.*.comment", "auth.profiles.*.email"),
    *("env.vars", "models.providers.*.injectNumCtxForOpenAICompat"),
    *("agents.defaults.sandbox.browser", "channels"),
)
WHOLE = "this section has no effect in this version of clawkit"


def warned(text: str) -> list[tuple[str, str]]:
    return find(loads(text, env={"HOME": "/nowhere"}).config)


def test_there_is_one_warning_for_each_section() -> None:
    text = """{
        browser: { enabled: true },
        cron: { enabled: true, triggers: { enabled: true }, failureAlert: { channel: "x" } },
        tools: { media: { concurrency: 1 }, exec: { reviewer: { model: "a/b" } } },
    }"""
    assert warned(text) == [
        ("browser", WHOLE),
        (
            "cron",
            "these settings have no effect in this version of clawkit: "
            "cron.triggers, cron.failureAlert.channel",
        ),
        (
            "tools",
            "these settings have no effect in this version of clawkit: "
            "tools.media, tools.exec.reviewer",
        ),
    ]


def test_settings_of_agents_are_named_with_their_path() -> None:
    [(section, message)] = warned(
        """{ agents: {
            defaults: {
                heartbeat: { every: "1h", to: "me", accountId: "x", directPolicy: "allow" },
            },
            list: [{ id: "a" }, { id: "b", tools: { message: {} } }],
            entries: { c: { models: { "x/y": { streaming: true } } } },
        } }"""
    )
    assert section == "agents"
    assert message.endswith(
        ": agents.defaults.heartbeat.accountId, agents.defaults.heartbeat.directPolicy, "
        "agents.defaults.heartbeat.to, agents.list[1].tools.message, "
        "agents.entries.c.models.x/y.streaming"
    )


def test_settings_of_sub_agents_without_effect_are_named() -> None:
    text = """{ agents: {
        defaults: { subagents: { model: { primary: "a/b", timeoutMs: 5 }, maxConcurrent: 2 } },
        list: [{ id: "a", subagents: { delegationMode: "prefer", announceTimeoutMs: 5 } }],
    } }"""
    [(_, message)] = warned(text)
    assert message.endswith(
        ": agents.defaults.subagents.model.timeoutMs, agents.list[0].subagents.announceTimeoutMs"
    )


def test_secrets_of_plugins_are_named() -> None:
    of_plugin = "{ source: 'exec', pluginIntegration: { pluginId: 'x', integrationId: 'y' } }"
    [(section, message)] = warned(f"{{ secrets: {{ providers: {{ p: {of_plugin} }} }} }}")
    assert section == "secrets"
    assert message.endswith(": secrets.providers.p.pluginIntegration")


def test_many_settings_are_counted() -> None:
    agents = ", ".join(f'{{ id: "a{number}", groupChat: {{}} }}' for number in range(20))
    [(_, message)] = warned(f"{{ agents: {{ list: [{agents}] }} }}")
    assert message.endswith("agents.list[7].groupChat and 12 more")


@table(
    "text",
    [
        "{}",
        "{ tools: { profile: 'coding', exec: { ask: 'always' } } }",
        "{ tools: { sessions: { visibility: 'all' }, loopDetection: { enabled: true } } }",
        "{ agents: { defaults: { workspace: '~', subagents: { maxSpawnDepth: 2 } } } }",
        "{ session: { store: '/a', mainKey: 'm' }, approvals: { timeoutSeconds: 5 } }",
        "{ logging: { redactPatterns: ['a'] }, env: { vars: { A: 'b' } } }",
        "{ diagnostics: { otel: { enabled: false } }, models: { mode: 'merge' } }",
        "{ channels: { telegram: { groups: { a: { tools: { deny: ['exec'] } } } } } }",
        "{ channels: { a: { accounts: { b: { groups: { c: { toolsBySender: {} } } } } } } }",
    ],
)
def test_settings_that_work_are_not_warned_about(text: str) -> None:
    assert warned(text) == []


@table(
    "channel",
    [
        "{ botToken: 'x' }",
        "{ enabled: true, groups: { a: { tools: {} } } }",
        "{ groups: { '*': { requireMention: true } } }",
        "{ accounts: { a: { dmPolicy: 'open' } } }",
    ],
)
def test_a_channel_has_no_effect_beyond_the_policy_of_its_groups(channel: str) -> None:
    [(section, message)] = warned(f"{{ channels: {{ telegram: {channel} }} }}")
    assert section == "channels"
    assert "only the tool policies of groups" in message


def test_everything_in_the_table_is_a_setting() -> None:
    paths = [
        tuple(
            0 if step == "*" and ("list" in key or "mappings" in key) else step
            for step in key.split(".")
        )
        for key in NO_EFFECT
    ]
    assert [path for path in paths if find_setting(path).shape is None] == []


def test_every_other_setting_is_read_somewhere() -> None:
    root = Path(__file__).parents[2]
    read: set[str] = set()
    for path in (root / "src").rglob("*.py"):
        tree = ast.parse(path.read_text(encoding="utf-8"))
        read |= {node.attr for node in ast.walk(tree) if isinstance(node, ast.Attribute)}
    rows = (root / "docs/reference/settings.md").read_text(encoding="utf-8")
    settings = [
        re.sub(r"<\w+>", "*", path).replace("[]", ".*")
        for path in re.findall(r"^\| `(.+?)`", rows, re.M)
    ]
    known = (*NO_EFFECT, *EXCEPTIONS)
    quiet = [
        setting
        for setting in settings
        if _attribute(setting) not in read
        and not any(f"{setting}.".startswith(f"{each}.") for each in known)
    ]
    assert quiet == []


def _attribute(setting: str) -> str:
    return re.sub(r"(?=[A-Z])", "_", setting.removesuffix(".*").rpartition(".")[2]).lower()
