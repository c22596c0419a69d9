"""Who may have a command run outside the sandbox."""

from __future__ import annotations

import json
from collections.abc import Iterable
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.tables import table

from clawkit.approvals.effective_policy import check_elevated
from clawkit.config.load import loads
from clawkit.config.model import Config
from clawkit.core.context import Scope, Sender
from clawkit.errors import ToolAuthorizationError

PHONE = "+15551234567"
OWNER = Sender(owner=True)
ANYONE = {"allowFrom": {"telegram": ["*"]}}


def config_of(
    elevated: dict[str, Any], agent: dict[str, Any] | None = None, default: str | None = None
) -> Config:
    agents: dict[str, Any] = {"defaults": {"elevatedDefault": default} if default else {}}
    if agent is not None:
        agents["entries"] = {"Support": {"tools": {"elevated": agent}}}
    return loads(json.dumps({"tools": {"elevated": elevated}, "agents": agents})).config


def refusal(config: Config, scope: Scope, *, local: bool = False) -> str:
    """Why not; empty when it is allowed."""
    try:
        check_elevated(config, scope, local=local)
    except ToolAuthorizationError as error:
        return str(error)
    return ""


def passes(entries: list[str | int], sender: Sender, channel: str = "whatsapp") -> bool:
    config = config_of({"allowFrom": {"whatsapp": entries}})
    return not refusal(config, Scope(channel=channel, sender=sender))


def _a_listed_sender_is_allowed(entry: str | int, sender: Sender) -> None:
    assert passes([entry], sender)
    assert passes(["7", entry, "8"], sender)
    assert passes([entry], sender, "WhatsApp")
    assert not passes([entry], sender, "discord")
    assert not passes([entry], sender, "whatsapp2")


def test_a_listed_sender_is_allowed(subtests: pytest.Subtests) -> None:
    cases: Iterable[Any] = [
        ("*", Sender()),
        (" * ", Sender(id="1")),
        ("42", Sender(id="42")),
        (42, Sender(id="42")),
        ("id:42", Sender(id="42")),
        ("ID: 42 ", Sender(id="42")),
        ("from:42", Sender(id="42")),
        ("channel:whatsapp:42", Sender(id="42")),
        ("@ann:example.org", Sender(id="@ann:example.org")),
        (PHONE, Sender(id=PHONE)),
        (PHONE, Sender(id="15551234567@s.example", e164=PHONE)),
        (f"from:{PHONE}", Sender(e164=PHONE)),
        (f"e164:{PHONE}", Sender(e164=PHONE)),
        ("e164:+1 (555) 123-4567", Sender(e164=PHONE)),
        ("username:@Ann", Sender(username="ann")),
        ("name:Ann B", Sender(name="Ann B")),
        ("name:Jürgen", Sender(name="Jürgen")),
        ("name:太郎", Sender(name="太郎")),
    ]
    for entry, sender in cases:
        with subtests.test(entry=entry, sender=sender):
            _a_listed_sender_is_allowed(entry, sender)


def _whoever_is_not_listed_is_refused(entry: str | int, sender: Sender) -> None:
    assert not passes([entry], sender)


def test_an_unlisted_sender_is_refused(subtests: pytest.Subtests) -> None:
    cases: Iterable[Any] = [
        # A part of a number, or a number with more behind it.
        (PHONE, Sender(id="+1555123456", e164="+1555123456")),
        (PHONE, Sender(id="+155512345678", e164="+155512345678")),
        (f"e164:{PHONE}", Sender(e164="+1555123456")),
        ("+1555123456*", Sender(id=PHONE, e164=PHONE)),
        (PHONE, Sender(e164="15551234567")),
        (15551234567, Sender(e164=PHONE)),
        # What somebody can choose for themselves, where the entry does not say so.
        (PHONE, Sender(id="1", name=PHONE, username=PHONE)),
        ("42", Sender(id="1", name="42", username="42")),
        ("@ann", Sender(id="1", username="ann")),
        ("@ann", Sender(id="1", username="@ann")),
        ("id:42", Sender(e164="42", username="42", name="42")),
        ("name:42", Sender(id="42", username="42")),
        ("username:42", Sender(id="42", name="42")),
        ("e164:+15551234567", Sender(id=PHONE)),
        # Kinds nobody has, and patterns that are none.
        ("tag:admin", Sender(id="tag:admin", name="admin", username="admin")),
        ("id:*", Sender(id="42")),
        ("from:*", Sender(id="42")),
        ("name:*", Sender(name="x")),
        ("e164:*", Sender(e164=PHONE)),
        ("4?", Sender(id="42")),
        (".*", Sender(id="42")),
        ("whatsapp:42", Sender(id="42")),
        ("channel:telegram:42", Sender(id="42")),
        # Nothing is never equal to nothing.
        ("", Sender()),
        (" ", Sender(id=" ")),
        ("id:", Sender()),
        ("from:", Sender()),
        ("e164:", Sender(e164="+")),
        ("e164:none", Sender(e164="unknown")),
        ("username:@", Sender(username="@")),
        ("username:", Sender(username="@")),
        ("name: ", Sender(name=" ")),
        # Letters and blanks that only look, or fold, like others.
        ("username:steve", Sender(username="ſteve")),
        ("username:kate", Sender(username="\u212aate")),
        ("name:strasse", Sender(name="straße")),
        ("name:Jürgen", Sender(name="JÜRGEN")),
        ("name:Jürgen", Sender(name="Ju\u0308rgen")),
        ("id:42", Sender(id="４２")),
        ("42", Sender(id="42\n")),
        ("42", Sender(id=" 42")),
        ("42", Sender(id="42\0")),
        ("42", Sender(id="42\u200b")),
        (f"e164:{PHONE}", Sender(e164="+1555123456 7")),
        (f"e164:{PHONE}", Sender(e164="+1555123456７")),
        (f"e164:{PHONE}", Sender(e164=f"{PHONE}\n")),
        # An owner elsewhere is a sender like others.
        ("7", Sender(owner=True, id="42")),
    ]
    for entry, sender in cases:
        with subtests.test(entry=entry, sender=sender):
            _whoever_is_not_listed_is_refused(entry, sender)


ODD = st.text("aAkK\u212asſß *:@+1２\0\n\u200b", max_size=4)
KINDS = st.sampled_from(["", "id:", "from:", "e164:", "username:", "name:", "tag:", "ID:", "x:"])


@given(kind=KINDS, entry=ODD, sender=st.builds(Sender, id=ODD, e164=ODD, username=ODD, name=ODD))
def test_only_named_senders_are_allowed(kind: str, entry: str, sender: Sender) -> None:
    if not passes([kind + entry], sender) or (kind + entry).strip() == "*":
        return
    names = {
        each.strip().removeprefix("@").encode().lower()
        for each in (entry, kind + entry, "+" + entry.strip("+ "), (kind + entry).partition(":")[2])
    }
    mine = {sender.id, sender.e164, sender.username, sender.name}
    assert names & {each.removeprefix("@").encode().lower() for each in mine if each}


@table(
    ("elevated", "agent", "default", "keys"),
    [
        ({}, None, None, ["tools.elevated.allowFrom.telegram must list"]),
        ({"allowFrom": {}}, None, None, ["tools.elevated.allowFrom.telegram must list"]),
        ({"allowFrom": {"*": ["*"]}}, None, None, ["tools.elevated.allowFrom.telegram must list"]),
        ({"allowFrom": {"telegram": []}}, None, None, ["tools.elevated.allowFrom.telegram must"]),
        ({**ANYONE, "enabled": False}, None, None, ["tools.elevated.enabled must be true"]),
        (ANYONE, {"enabled": False}, None, ["tools.elevated.enabled of the agent 'support' must"]),
        (
            ANYONE,
            {"allowFrom": {"telegram": ["7"]}},
            None,
            ["tools.elevated.allowFrom.telegram of the agent 'support' must list this sender"],
        ),
        (ANYONE, {"allowFrom": {}}, None, ["allowFrom.telegram of the agent 'support' must list"]),
        (ANYONE, None, "off", ["agents.defaults.elevatedDefault must not be 'off'"]),
        (
            {"enabled": False},
            {"enabled": False, "allowFrom": {"discord": ["*"]}},
            "off",
            [
                "tools.elevated.enabled must be true",
                "tools.elevated.allowFrom.telegram must list this sender",
                "tools.elevated.enabled of the agent 'support' must be true",
                "tools.elevated.allowFrom.telegram of the agent 'support' must list this sender",
                "agents.defaults.elevatedDefault must not be 'off'",
            ],
        ),
    ],
)
def test_a_refusal_names_every_setting_that_prevents_it(
    elevated: dict[str, Any], agent: dict[str, Any] | None, default: str | None, keys: list[str]
) -> None:
    scope = Scope(agent="support", channel="telegram", sender=Sender(id="42"))
    with pytest.raises(ToolAuthorizationError) as caught:
        check_elevated(config_of(elevated, agent, default), scope, local=False)
    said = str(caught.value)
    assert caught.value.reason == "elevated"
    assert said.startswith("elevated is refused; to allow it, ")
    assert all(key in said for key in keys)
    assert said.count(" must ") == len(keys)


def test_an_agent_can_only_narrow() -> None:
    scope = Scope(agent="support", channel="telegram", sender=Sender(id="42"))
    for agent in ({}, {"enabled": True}, ANYONE, {"allowFrom": {"telegram": [42]}}):
        assert not refusal(config_of(ANYONE, agent), scope)
        assert refusal(config_of({}, agent), scope)
        assert refusal(config_of({**ANYONE, "enabled": False}, agent), scope)
    narrow = config_of(ANYONE, {"enabled": False})
    assert refusal(narrow, scope)
    assert not refusal(narrow, Scope(channel="telegram"))


@table(
    ("scope", "local", "allowed"),
    [
        (Scope(sender=OWNER), True, True),
        (Scope(sender=OWNER), False, False),
        (Scope(sender=Sender(id="42")), True, False),
        (Scope(), True, False),
        (Scope(sender=OWNER, channel="telegram"), True, False),
        (Scope(sender=OWNER, channel=" "), True, False),
        (Scope(sender=OWNER, group="g"), True, False),
    ],
)
def test_the_owner_at_the_local_terminal_needs_no_list(
    scope: Scope, local: bool, allowed: bool
) -> None:
    assert bool(refusal(Config(), scope, local=local)) is not allowed


@table("lists", [{"": ["*"]}, {" ": ["*"]}, {"*": ["*"]}, {"telegram": ["*"]}])
def test_without_a_channel_no_allow_list_applies_to_the_sender(lists: dict[str, Any]) -> None:
    said = refusal(config_of({"allowFrom": lists}), Scope(sender=Sender(id="42")), local=True)
    assert "must come from the owner at the local terminal" in said
    assert "tools.elevated.allowFrom" in said


def test_the_other_gates_hold_at_the_local_terminal_too() -> None:
    mine = Scope(agent="support", sender=OWNER)
    assert "tools.elevated.enabled must" in refusal(config_of({"enabled": False}), mine, local=True)
    assert "of the agent" in refusal(config_of({}, {"enabled": False}), mine, local=True)
    assert "elevatedDefault" in refusal(config_of({}, default="off"), mine, local=True)
    assert not refusal(config_of({}, {"allowFrom": {"telegram": ["7"]}}), mine, local=True)


@table(("default", "level"), [(None, "ask"), ("on", "ask"), ("ask", "ask"), ("full", "full")])
def test_the_level_is_the_configured_one_and_asks_by_default(
    default: str | None, level: str
) -> None:
    config = config_of(ANYONE, default=default)
    assert check_elevated(config, Scope(channel="telegram"), local=False) == level
    assert check_elevated(config, Scope(sender=OWNER), local=True) == level


def test_names_from_outside_cannot_garble_the_refusal() -> None:
    scope = Scope(agent="a\nb" * 1000, channel="c\x1b[2J\n" * 1000, sender=Sender(id="\n" * 9))
    said = refusal(config_of({"enabled": False}), scope)
    assert said.isprintable()
    assert len(said) < 300
