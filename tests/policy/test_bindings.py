"""Which agent answers: the most specific binding, and the default agent without any."""

from __future__ import annotations

from typing import Any

import pytest
from tests.tables import table

from clawkit import Agent, Toolkit
from clawkit.config.load import loads
from clawkit.core.context import Sender
from clawkit.errors import ConfigError
from clawkit.policy.selectors import AgentChoice, Origin, choose_agent
from clawkit.runtime import load_config

CHANNEL = {"channel": "discord", "accountId": "*"}
ACCOUNT = {"channel": "discord", "accountId": "work"}
DEFAULT = {"channel": "discord"}
TEAM = {"channel": "discord", "accountId": "*", "teamId": "T1"}
GUILD = {"channel": "discord", "accountId": "*", "guildId": "G1"}
ROLES = {**GUILD, "roles": ["admin", "staff"]}
GROUP = {"channel": "discord", "accountId": "*", "peer": {"kind": "group", "id": -100}}
TOPIC = {"channel": "discord", "accountId": "*", "peer": {"kind": "channel", "id": "-100:topic:5"}}
PERSON = {"channel": "discord", "accountId": "*", "peer": {"kind": "direct", "id": "ada"}}
ALL = {
    "by-channel": CHANNEL,
    "by-account": ACCOUNT,
    "by-default-account": DEFAULT,
    "by-team": TEAM,
    "by-guild": GUILD,
    "by-roles": ROLES,
    "by-group": GROUP,
    "by-topic": TOPIC,
    "by-person": PERSON,
}
ADA = Sender(id="ada")
STAFF = Sender(id="bob", roles=("guest", "staff"))


def config_of(bindings: dict[str, Any], **more: Any) -> Any:
    rows = [{"agentId": agent, "match": match, **more} for agent, match in bindings.items()]
    agents = {"list": [{"id": agent} for agent in (*bindings, "other")]}
    return load_config({"agents": agents, "bindings": rows}).config


@table(
    ("origin", "agent"),
    [
        (Origin(), "main"),
        (Origin("telegram"), "main"),
        (Origin("discord"), "by-default-account"),
        (Origin("Discord", "default"), "by-default-account"),
        (Origin("discord", "work"), "by-account"),
        (Origin("discord", "home"), "by-channel"),
        (Origin("discord", "home", "-7", ADA, "T1"), "by-team"),
        (Origin("discord", "work", "-7", ADA, "T1"), "by-team"),
        (Origin("discord", "work", "-7", ADA, "G1"), "by-guild"),
        (Origin("discord", "work", "-7", STAFF, "G1"), "by-roles"),
        (Origin("discord", "work", "-7", STAFF, "G2"), "by-account"),
        (Origin("discord", "work", "-100", STAFF, "G1"), "by-group"),
        (Origin("discord", "work", "-100:topic:5", STAFF, "G1"), "by-topic"),
        (Origin("discord", "work", "-100:topic:6", STAFF, "G1"), "by-group"),
        (Origin("discord", "work", "", ADA), "by-person"),
        (Origin("discord", "work", "-7", ADA), "by-account"),
        (Origin("discord", "work", "", Sender(id="-100")), "by-account"),
    ],
)
def test_the_most_specific_binding_that_fits_decides(origin: Origin, agent: str) -> None:
    for bindings in (ALL, dict(reversed(ALL.items()))):
        choice = choose_agent(config_of(bindings), None, origin)
        assert choice.agent == agent
        index = list(bindings).index(agent) if agent != "main" else -1
        assert choice.by == (f"bindings[{index}]" if agent != "main" else "")


def test_all_conditions_of_a_binding_must_match() -> None:
    match = {**PERSON, "guildId": "G1", "teamId": "G1", "accountId": "work", "roles": ["staff"]}
    config = config_of({"a": match})
    staff = Sender(id="ada", roles=("staff",))
    assert choose_agent(config, None, Origin("discord", "work", "", staff, "G1")).agent == "a"
    for origin in (
        Origin("slack", "work", "", staff, "G1"),
        Origin("discord", "", "", staff, "G1"),
        Origin("discord", "work", "", staff, "G2"),
        Origin("discord", "work", "", ADA, "G1"),
        Origin("discord", "work", "", Sender(roles=("staff",)), "G1"),
    ):
        assert choose_agent(config, None, origin) == AgentChoice("main")


@table("name", ["Ross", "roß", "ro\u017fs", " ross ", "ross\u200b", "ross:topic:1"])
def test_names_that_only_look_the_same_do_not_match(name: str) -> None:
    rows: list[dict[str, Any]] = [
        {"peer": {"kind": "direct", "id": "ross"}},
        {"peer": {"kind": "group", "id": "ross"}},
        {"accountId": "ross"},
        {"guildId": "ross"},
        {"teamId": "ross"},
        {"guildId": "G", "roles": ["ross"]},
    ]

    def origins(name: str) -> list[Origin]:
        return [
            Origin("irc", sender=Sender(id=name)),
            Origin("irc", group=name),
            Origin("irc", name),
            Origin("irc", space=name),
            Origin("irc", space=name),
            Origin("irc", sender=Sender(roles=(name,)), space="G"),
        ]

    for row, same, other in zip(rows, origins("ross"), origins(name), strict=True):
        config = config_of({"a": {"channel": "irc", **row}})
        assert choose_agent(config, None, same).agent == "a"
        assert choose_agent(config, None, other).agent == "main"


@table(
    ("id_", "group", "agent"),
    [
        ("ops", "ops", "a"),
        ("ops", "ops:topic:x", "main"),
        ("#ops", "#ops:thread:5", "main"),
        (-100, "-100:topic:5", "a"),
        (-100, "-100:topic:5:sender:7", "a"),
        ("!room:matrix.org", "!room:matrix.org:thread:$x", "a"),
        ("C0AB", "C0AB:thread:17.5", "a"),
        ("C0AB", "c0ab:thread:17.5", "main"),
    ],
)
def test_topics_belong_to_groups_whose_ids_people_cannot_choose(
    id_: str | int, group: str, agent: str
) -> None:
    config = config_of({"a": {"channel": "irc", "peer": {"kind": "group", "id": id_}}})
    assert choose_agent(config, None, Origin("irc", group=group)).agent == agent


def test_the_name_of_a_channel_is_compared_without_case_in_ascii_alone() -> None:
    config = config_of({"a": {"channel": "kik"}, "b": {"channel": "\u212aik"}})
    assert choose_agent(config, None, Origin("KIK")).agent == "a"
    assert choose_agent(config, None, Origin("\u212aik")).agent == "b"
    assert choose_agent(config_of({"a": {"channel": "kik"}}), None, Origin("\u212aik")).by == ""


def test_of_two_equally_specific_bindings_the_first_decides() -> None:
    config = config_of({"a": DEFAULT, "b": DEFAULT})
    assert choose_agent(config, None, Origin("discord")) == AgentChoice("a", "bindings[0]")


def test_a_named_agent_needs_no_binding() -> None:
    config = config_of({"a": DEFAULT})
    assert choose_agent(config, "other", Origin("discord")) == AgentChoice("other")
    with pytest.raises(ConfigError, match="there is no agent 'nobody'"):
        choose_agent(config, "nobody", Origin("discord"))


def test_bindings_to_other_programs_are_ignored() -> None:
    config = config_of({"a": DEFAULT}, type="acp")
    assert choose_agent(config, None, Origin("discord")) == AgentChoice("main")


@table(
    ("agents", "hint"),
    [
        ("{ list: [{ id: 'support' }] }", "Did you mean 'support'?"),
        ("{ entries: { support: {} } }", "Did you mean 'support'?"),
        ("{ list: [{ id: 'x' }] }", "Known agents: x, main"),
        ("{}", "Known agents: main"),
    ],
)
def test_a_binding_to_an_unknown_agent_is_an_error_with_its_line(agents: str, hint: str) -> None:
    binding = "{ agentId: 'suport', match: { channel: 'a' } }"
    fine = "{ agentId: 'Main', match: { channel: 'b' } }"
    with pytest.raises(ConfigError) as error:
        loads(f"{{ agents: {agents},\n bindings: [{fine},\n  {binding}] }}")
    [issue] = error.value.issues
    assert issue.path == "bindings[1].agentId"
    assert issue.message == "there is no agent 'suport'"
    assert issue.hint == hint
    assert issue.line == 3


async def test_programs_open_the_agent_that_bindings_choose(tmp_path: Any) -> None:
    config = {
        "agents": {"list": [{"id": "support", "tools": {"deny": ["exec"]}}]},
        "bindings": [{"agentId": "support", "match": ROLES}],
    }
    place: Any = {"channel": "discord", "account": "work", "space": "G1", "sender": STAFF}
    kit = Toolkit.open(config, workspace=tmp_path, **place)
    assert kit.run.scope.agent == "support"
    assert "exec" not in kit.run.tools
    async with Agent.open(config, workspace=tmp_path, **place) as agent:
        assert agent.kit.run.scope.agent == "support"
        assert agent.kit.run.scope.account == "work"
        assert agent.session is not None
        assert agent.session.agent == "support"
    for others in ({}, {**place, "space": ""}, {**place, "agent": "main"}):
        assert Toolkit.open(config, workspace=tmp_path, **others).run.scope.agent == "main"
