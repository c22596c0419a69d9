"""Whether a command may run at all."""

from __future__ import annotations

import itertools
import json
import shlex
from pathlib import Path
from typing import Any, get_args

import pytest
from click.testing import CliRunner

from clawkit.approvals.decide import Decision, decide, most_asking, strictest
from clawkit.cli.main import main
from clawkit.config.load import load, loads
from clawkit.config.sections.exec import Ask, Exec, Security

SECURITIES: tuple[Security, ...] = get_args(Security)
ASKS: tuple[Ask, ...] = get_args(Ask)
EVERY_PAIR = list(itertools.product((None, *SECURITIES), (None, *ASKS)))
EVERY_SETTING: list[dict[str, Any]] = [
    *({"mode": mode} for mode in ("deny", "allowlist", "ask", "auto", "full")),
    *(
        {key: value for key, value in zip(("security", "ask"), pair, strict=True) if value}
        for pair in EVERY_PAIR
    ),
]
SET_MODE = "clawkit config set tools.exec.mode full"
SET_SECURITY = "clawkit config set tools.exec.security full"
SET_ASK = "clawkit config set tools.exec.ask off"


def settings_of(**exec_: Any) -> Exec:
    return loads(json.dumps({"tools": {"exec": exec_}})).config.tools.exec


def judge(
    exec_: dict[str, Any], security: Security | None = None, ask: Ask | None = None
) -> Decision:
    return decide(settings_of(**exec_), security=security, ask=ask, host="gateway")


@pytest.mark.parametrize(
    ("a", "b", "expected"),
    [
        ("deny", "full", "deny"),
        ("full", "deny", "deny"),
        ("allowlist", "full", "allowlist"),
        ("full", "allowlist", "allowlist"),
        ("deny", "allowlist", "deny"),
        ("allowlist", "deny", "deny"),
        ("full", "full", "full"),
        ("full", None, "full"),
        ("deny", None, "deny"),
    ],
)
def test_the_stricter_security_wins(a: Security, b: Security | None, expected: str) -> None:
    assert strictest(a, b) == expected


@pytest.mark.parametrize(
    ("a", "b", "expected"),
    [
        ("off", "always", "always"),
        ("always", "off", "always"),
        ("on-miss", "off", "on-miss"),
        ("off", "on-miss", "on-miss"),
        ("on-miss", "always", "always"),
        ("always", "on-miss", "always"),
        ("off", "off", "off"),
        ("off", None, "off"),
        ("always", None, "always"),
    ],
)
def test_the_one_that_asks_more_wins(a: Ask, b: Ask | None, expected: str) -> None:
    assert most_asking(a, b) == expected


@pytest.mark.parametrize("odd", ["", "FULL", "full ", "none", "off\0"])
def test_what_is_no_such_word_never_becomes_a_decision(odd: Any) -> None:
    settings = Exec(mode="full")
    for judged in (
        lambda: strictest("full", odd),
        lambda: strictest(odd, "full"),
        lambda: most_asking("off", odd),
        lambda: most_asking(odd, "off"),
        lambda: decide(settings, security=odd, ask=None, host="gateway"),
        lambda: decide(settings, security=None, ask=odd, host="gateway"),
    ):
        with pytest.raises(ValueError, match="not in tuple"):
            judged()


@pytest.mark.parametrize("exec_", EVERY_SETTING)
def test_only_full_and_off_on_both_sides_lets_a_command_run(exec_: dict[str, Any]) -> None:
    configured = settings_of(**exec_).policy()
    for security, ask in EVERY_PAIR:
        decision = judge(exec_, security, ask)
        free = configured == ("full", "off") and security in (None, "full") and ask in (None, "off")
        assert decision.verdict == ("allow" if free else "deny")
        assert bool(decision.to_allow) is not free
        assert decision.security == strictest(configured[0], security)
        assert decision.ask == most_asking(configured[1], ask)
        assert f"security is {decision.security!r} and ask is {decision.ask!r}" in decision.reason


def test_a_call_cannot_loosen_what_is_configured() -> None:
    assert judge({}, "full", "off") == judge({})
    assert judge({"mode": "deny"}, "full", "off") == judge({"mode": "deny"})


@pytest.mark.parametrize(
    ("exec_", "security", "ask", "reason", "to_allow"),
    [
        ({}, None, None, "are refused by default: security is 'allowlist'", SET_MODE),
        (
            {},
            "deny",
            None,
            "security is 'deny' and ask is 'on-miss' (this call asked for security 'deny');",
            f"{SET_MODE}, and call it without security",
        ),
        ({"mode": "deny"}, None, None, "(tools.exec.mode is 'deny')", SET_MODE),
        ({"mode": "auto"}, None, None, "(tools.exec.mode is 'auto')", SET_MODE),
        (
            {"mode": "full"},
            "deny",
            None,
            "ask is 'off' (this call asked for security 'deny');",
            "call it without security",
        ),
        (
            {"mode": "full"},
            "allowlist",
            "always",
            "(this call asked for security 'allowlist' and ask 'always');",
            "call it without security and ask",
        ),
        ({"security": "full"}, None, None, "(tools.exec.ask is not set)", SET_ASK),
        ({"ask": "off"}, None, None, "(tools.exec.security is not set)", SET_SECURITY),
        (
            {"security": "deny", "ask": "always"},
            None,
            "always",
            "(tools.exec.security is 'deny', tools.exec.ask is 'always')",
            f"{SET_SECURITY} && {SET_ASK}",
        ),
        (
            {"security": "full"},
            None,
            "always",
            "(tools.exec.ask is not set, this call asked for ask 'always')",
            f"{SET_ASK}, and call it without ask",
        ),
    ],
)
def test_a_refusal_says_who_made_it_so_and_what_would_change_it(
    exec_: dict[str, Any], security: Security | None, ask: Ask | None, reason: str, to_allow: str
) -> None:
    decision = judge(exec_, security, ask)
    assert reason in decision.reason
    assert decision.reason.startswith("commands on the host 'gateway' are refused")
    assert "every one of them unasked" in decision.reason
    assert ("by default" in decision.reason) == (exec_ == {})
    assert decision.to_allow == to_allow


def test_settings_of_an_agent_are_named_by_their_own_key() -> None:
    decision = decide(
        Exec(mode="ask"), security=None, ask=None, host="node", key="agents.list[0].tools.exec"
    )
    assert "(agents.list[0].tools.exec.mode is 'ask')" in decision.reason
    assert decision.to_allow == "clawkit config set 'agents.list[0].tools.exec.mode' full"
    assert "the host 'node'" in decision.reason


@pytest.mark.parametrize("exec_", EVERY_SETTING)
def test_what_the_refusal_says_to_do_works(exec_: dict[str, Any], tmp_path: Path) -> None:
    file = tmp_path / "clawkit.json5"
    file.write_text(json.dumps({"tools": {"exec": exec_}}), encoding="utf-8")
    commands = judge(exec_).to_allow.split(" && ")
    for command in filter(None, commands):
        arguments = shlex.split(command)[1:]
        done = CliRunner().invoke(main, [*arguments, "--config", str(file)])
        assert done.exit_code == 0, done.output
    settings = load(str(file)).config.tools.exec
    assert decide(settings, security=None, ask=None, host="gateway").verdict == "allow"
