"""Whether a command may run: what it does against what is allowed."""

from __future__ import annotations

from itertools import product
from typing import Any, Literal, get_args

import pytest
from msgspec.structs import replace

from clawkit.approvals.base import (
    Analysis,
    Arg,
    Decision,
    Entry,
    FileUse,
    Policy,
    Program,
    Rules,
    Segment,
)
from clawkit.approvals.decide import after_silence, decide, is_listed, named_programs
from clawkit.approvals.shell.nodes import Doubt
from clawkit.config.sections.exec import Ask, Security

HOME = "/home/ann"
ALLOWLIST = Policy("allowlist", "on-miss", sources=("tools.exec.ask is 'on-miss'",))


def start(*texts: str, **more: Any) -> Program:
    path = f"/usr/bin/{texts[0]}"
    argv = tuple(Arg(text) for text in texts)
    return Program(argv, more.pop("resolved", path), more.pop("real", path), "/w", **more)


def analysis(*segments: Segment, doubt: Doubt | None = None) -> Analysis:
    return Analysis("typed", segments, "" if doubt else "rebuilt", doubt)


LS = analysis(Segment("ls", (start("ls"),)))
TOUCH = analysis(Segment("touch x", (start("touch", "x"),)))
BOTH = analysis(Segment("ls", (start("ls"),)), Segment("touch x", (start("touch", "x"),)))
UNCLEAR = analysis(Segment("ls", (start("ls"),)), doubt=Doubt("the output of a command", 3))
EVAL = analysis(Segment("python3 -c 1", (start("python3", "-c", "1"),)))
WIPE = analysis(Segment("mkfs /dev/sda", (start("mkfs", "/dev/sda"),)))
RULES = Rules(entries=(Entry("/usr/bin/ls", id="1"), Entry("/usr/bin/python3", id="2")))


def judge(found: Analysis, policy: Policy = ALLOWLIST, rules: Rules = RULES) -> Decision:
    return decide(found, policy, rules, home=HOME)


CASES: list[tuple[Analysis, Security, Ask, str, str]] = [
    *((each, "deny", ask, "deny", "deny") for each in (LS, TOUCH) for ask in get_args(Ask)),
    (LS, "allowlist", "off", "allow", "allowlist"),
    (LS, "allowlist", "on-miss", "allow", "allowlist"),
    (LS, "allowlist", "always", "ask", ""),
    (TOUCH, "allowlist", "off", "deny", "miss"),
    (TOUCH, "allowlist", "on-miss", "ask", "miss"),
    (TOUCH, "allowlist", "always", "ask", ""),
    (BOTH, "allowlist", "on-miss", "ask", "miss"),
    (UNCLEAR, "allowlist", "off", "deny", "doubt"),
    (UNCLEAR, "allowlist", "on-miss", "ask", "doubt"),
    (LS, "full", "off", "allow", "full"),
    (TOUCH, "full", "off", "allow", "full"),
    (TOUCH, "full", "on-miss", "allow", "full"),
    (UNCLEAR, "full", "on-miss", "allow", "full"),
    (TOUCH, "full", "always", "ask", ""),
    *((WIPE, "full", ask, "ask", "hardline") for ask in get_args(Ask)),
    *((WIPE, "allowlist", ask, "ask", "hardline") for ask in get_args(Ask)),
    (EVAL, "allowlist", "on-miss", "allow", "allowlist"),
    (analysis(doubt=Doubt("nothing", code="empty")), "allowlist", "on-miss", "ask", "doubt"),
    (analysis(), "allowlist", "on-miss", "ask", "miss"),
]


@pytest.mark.parametrize(("found", "security", "ask", "verdict", "code"), CASES)
def test_the_verdict(
    found: Analysis, security: Security, ask: Ask, verdict: str, code: str
) -> None:
    decision = judge(found, Policy(security, ask))
    assert (decision.verdict, decision.code) == (verdict, code)
    assert decision.reason or not found.segments


@pytest.mark.parametrize(("security", "ask"), list(product(get_args(Security), get_args(Ask))))
def test_strict_inline_evaluation_always_needs_a_person(security: Security, ask: Ask) -> None:
    rules = replace(RULES, strict_inline_eval=True)
    decision = judge(EVAL, Policy(security, ask, "full"), rules)
    if security == "deny":
        assert decision.verdict == "deny"
        return
    assert (decision.verdict, decision.code) == ("ask", "inline-eval")
    assert decision.human_only
    assert after_silence(decision) == "deny"
    assert judge(LS, Policy(security, "off"), rules).verdict == "allow"


def test_strict_inline_evaluation_does_not_trust_what_it_cannot_read() -> None:
    rules = replace(RULES, strict_inline_eval=True)
    decision = judge(UNCLEAR, Policy("full", "off"), rules)
    assert decision.verdict == "ask"
    assert "the output of a command" in decision.reason


def test_a_document_that_cannot_be_read_refuses_everything() -> None:
    decision = judge(LS, Policy("deny", "off", problem="it is broken"))
    assert (decision.verdict, decision.code, decision.reason) == (
        "deny",
        "document",
        "it is broken",
    )


def test_what_may_not_run_says_why_and_what_to_type() -> None:
    decision = judge(LS, Policy("deny", "off", sources=("a is 'deny'",), to_loosen="type this"))
    assert decision.reason == "no command may run: a is 'deny'"
    assert decision.to_allow == "type this"
    decision = judge(analysis(Segment("uname", (start("uname"),))))
    assert "uname" in decision.reason
    assert decision.to_allow == "clawkit approvals allowlist add /usr/bin/uname"


def test_a_doubt_says_where_it_begins() -> None:
    assert judge(UNCLEAR).reason.endswith("the output of a command (character 4)")


def test_what_no_rule_would_help_proposes_none() -> None:
    lost = Segment("gone x", (start("gone", "x", resolved="", real=""),))
    decision = judge(analysis(Segment("touch x", (start("touch", "x"),)), lost))
    assert decision.verdict == "ask"
    assert decision.to_allow == ""


def test_an_allowed_command_runs_as_it_was_understood_any_other_as_typed() -> None:
    assert judge(LS).run == "rebuilt"
    assert judge(TOUCH).run == "rebuilt"
    assert judge(UNCLEAR).run == "typed"
    assert judge(LS, Policy("full", "off")).run == "typed"


def test_what_the_shell_does_itself_is_allowed() -> None:
    decision = judge(analysis(Segment("cd /w", builtin="cd"), Segment("ls", (start("ls"),))))
    assert decision.verdict == "allow"
    [match] = decision.segments[0].results
    assert match.by == "builtin"  # type: ignore[union-attr]


@pytest.mark.parametrize(
    ("file", "redirects", "verdict"),
    [
        (FileUse("/w/x", True), "ask", "ask"),
        (FileUse("/w/x", True), "workspace", "allow"),
        (FileUse("/etc/x", True), "workspace", "ask"),
        (FileUse("", True), "workspace", "ask"),
        (FileUse("/w/x", False), "ask", "allow"),
        (FileUse("/etc/x", False), "workspace", "ask"),
    ],
)
def test_files_the_shell_opens_are_judged(
    file: FileUse, redirects: Literal["ask", "workspace"], verdict: str
) -> None:
    rules = replace(
        RULES,
        redirects=redirects,
        may_read=lambda path: path.startswith("/w/"),
        may_write=lambda path: path.startswith("/w/"),
    )
    decision = judge(analysis(Segment("ls > x", (start("ls"),), files=(file,))), rules=rules)
    assert decision.verdict == verdict
    proposes = file == FileUse("/w/x", True) and redirects == "ask"
    assert ("tools.exec.redirects workspace" in decision.to_allow) is proposes


@pytest.mark.parametrize(
    ("fallback", "found", "security", "ask", "verdict"),
    [
        ("deny", LS, "allowlist", "always", "deny"),
        ("allowlist", LS, "allowlist", "always", "allow"),
        ("full", LS, "allowlist", "always", "allow"),
        ("full", TOUCH, "allowlist", "on-miss", "deny"),
        ("allowlist", TOUCH, "allowlist", "on-miss", "deny"),
        ("full", UNCLEAR, "allowlist", "on-miss", "deny"),
        ("full", TOUCH, "full", "always", "allow"),
        ("allowlist", TOUCH, "full", "always", "deny"),
        ("allowlist", LS, "full", "always", "allow"),
        ("full", WIPE, "full", "always", "deny"),
        ("full", TOUCH, "deny", "off", "deny"),
        ("full", TOUCH, "allowlist", "off", "deny"),
    ],
)
def test_silence_means_what_was_settled_beforehand(
    fallback: Any, found: Analysis, security: Security, ask: Ask, verdict: str
) -> None:
    assert after_silence(judge(found, Policy(security, ask, fallback))) == verdict


def test_the_kernel_is_told_what_may_start_unless_a_rule_lets_a_program_start_any() -> None:
    wc = start("wc", "-l", input="pipe", script=("/usr/bin/env",))
    timeout = start("timeout", "5", "wc", "-l", wrapper=True)
    rules = Rules(safe_bins=("wc",))
    safe = judge(analysis(Segment("timeout 5 wc -l", (timeout, wc))), rules=rules)
    assert safe.verdict == "allow"
    assert safe.programs == ("/usr/bin/timeout", "/usr/bin/wc", "/usr/bin/env")
    assert judge(LS).programs is None
    mixed = analysis(Segment("ls", (start("ls"),)), Segment("wc -l", (wc,)))
    assert judge(mixed, rules=replace(RULES, safe_bins=("wc",))).programs is None
    only_builtins = judge(analysis(Segment("cd /w", builtin="cd")))
    assert only_builtins.programs == ()


def test_a_decision_is_listed_only_when_every_part_is() -> None:
    assert is_listed(judge(LS, ALLOWLIST._replace(ask="always")))
    assert not is_listed(judge(BOTH))
    assert not is_listed(judge(UNCLEAR))
    assert named_programs(judge(BOTH)) is None
