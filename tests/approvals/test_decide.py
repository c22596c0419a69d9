"""The decision whether a command may run: its analysis compared with the rules."""

from __future__ import annotations

from collections.abc import Iterable
from itertools import product
from typing import Any, Literal, get_args

import pytest
from msgspec import structs
from msgspec.structs import replace
from tests.tables import table

from clawkit.approvals.decide import (
    as_listed,
    decide,
    fallback_verdict,
    find_gap,
    is_listed,
)
from clawkit.approvals.judge import Judge
from clawkit.approvals.protocols import ExecRequest
from clawkit.approvals.types import (
    AllowlistEntry,
    Analysis,
    ApprovalRules,
    Arg,
    Decision,
    Doubt,
    FileUse,
    Policy,
    Program,
    Segment,
)
from clawkit.config.sections.tools import Ask, Exec, Security
from clawkit.process.protocols import Grants

HOST = ExecRequest("", "/", {"HOME": "/home/ann"})
AUTO, INSIDE = structs.replace(HOST, wanted="auto"), structs.replace(HOST, wanted="sandbox")
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
RULES = ApprovalRules(
    entries=(AllowlistEntry("/usr/bin/ls", id="1"), AllowlistEntry("/usr/bin/python3", id="2"))
)
UNCONFINED = replace(RULES, confines=False)


def judge(found: Analysis, policy: Policy = ALLOWLIST, rules: ApprovalRules = RULES) -> Decision:
    return decide(found, policy, rules, HOST)


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


def _the_verdict_follows_from_analysis_security_and_ask(
    found: Analysis, security: Security, ask: Ask, verdict: str, code: str
) -> None:
    decision = judge(found, Policy(security, ask))
    assert (decision.verdict, decision.code) == (verdict, code)
    assert decision.reason or not found.segments


def test_the_verdict_follows_from_analysis_security_and_ask(subtests: pytest.Subtests) -> None:
    cases: Iterable[Any] = CASES
    for found, security, ask, verdict, code in cases:
        with subtests.test(found=found, security=security, ask=ask, verdict=verdict, code=code):
            _the_verdict_follows_from_analysis_security_and_ask(found, security, ask, verdict, code)


def _strict_inline_evaluation_always_needs_a_person(security: Security, ask: Ask) -> None:
    rules = replace(RULES, strict_inline_eval=True)
    decision = judge(EVAL, Policy(security, ask, "full"), rules)
    if security == "deny":
        assert decision.verdict == "deny"
        return
    assert (decision.verdict, decision.code) == ("ask", "inline-eval")
    assert decision.human_only
    assert fallback_verdict(decision) == "deny"
    assert judge(LS, Policy(security, "off"), rules).verdict == "allow"


def test_strict_inline_evaluation_always_needs_a_person(subtests: pytest.Subtests) -> None:
    cases: Iterable[Any] = list(product(get_args(Security), get_args(Ask)))
    for security, ask in cases:
        with subtests.test(security=security, ask=ask):
            _strict_inline_evaluation_always_needs_a_person(security, ask)


def test_strict_inline_evaluation_does_not_trust_what_it_cannot_read() -> None:
    rules = replace(RULES, strict_inline_eval=True)
    decision = judge(UNCLEAR, Policy("full", "off"), rules)
    assert decision.verdict == "ask"
    assert "the output of a command" in decision.reason


def test_a_denial_states_the_reason_and_the_command_that_allows_it() -> None:
    decision = judge(LS, Policy("deny", "off", sources=("a is 'deny'",), to_loosen="type this"))
    assert decision.reason == "no command may run: a is 'deny'"
    assert decision.to_allow == "type this"
    decision = judge(analysis(Segment("uname", (start("uname"),))))
    assert "uname" in decision.reason
    assert decision.to_allow == "clawkit approvals allowlist add /usr/bin/uname"


def test_a_doubt_states_its_position() -> None:
    assert judge(UNCLEAR).reason.endswith("the output of a command (character 4)")


def test_no_rule_is_proposed_where_none_would_help() -> None:
    lost = Segment("gone x", (start("gone", "x", resolved="", real=""),))
    decision = judge(analysis(Segment("touch x", (start("touch", "x"),)), lost))
    assert decision.verdict == "ask"
    assert decision.to_allow == ""


def test_an_allowed_command_runs_as_it_was_understood_any_other_as_typed() -> None:
    assert judge(LS).run == "rebuilt"
    assert judge(TOUCH).run == "rebuilt"
    assert judge(UNCLEAR).run == "typed"
    assert judge(LS, Policy("full", "off")).run == "typed"


def test_shell_builtins_are_allowed() -> None:
    decision = judge(analysis(Segment("cd /w", builtin="cd"), Segment("ls", (start("ls"),))))
    assert decision.verdict == "allow"
    [match] = decision.segments[0].results
    assert match.by == "builtin"  # type: ignore[union-attr]


@table(
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


@table(
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
def test_without_an_answer_the_configured_fallback_applies(
    fallback: Any, found: Analysis, security: Security, ask: Ask, verdict: str
) -> None:
    assert fallback_verdict(judge(found, Policy(security, ask, fallback))) == verdict


def test_the_kernel_is_told_what_may_start_unless_a_rule_lets_a_program_start_any() -> None:
    wc = start("wc", "-l", piped=True, script=("/usr/bin/env",))
    timeout = start("timeout", "5", "wc", "-l", wrapper=True)
    rules = ApprovalRules(safe_bins=("wc",))
    safe = judge(analysis(Segment("timeout 5 wc -l", (timeout, wc))), rules=rules)
    assert safe.verdict == "allow"
    assert safe.programs == ("/usr/bin/timeout", "/usr/bin/wc", "/usr/bin/env")
    assert judge(LS).programs is None
    mixed = analysis(Segment("ls", (start("ls"),)), Segment("wc -l", (wc,)))
    assert judge(mixed, rules=replace(RULES, safe_bins=("wc",))).programs is None
    only_builtins = judge(analysis(Segment("cd /w", builtin="cd")))
    assert only_builtins.programs == ()


def test_a_decision_is_listed_only_when_every_part_is() -> None:
    assert is_listed(judge(LS, structs.replace(ALLOWLIST, ask="always")))
    assert not is_listed(judge(BOTH))
    assert not is_listed(judge(UNCLEAR))
    assert as_listed(judge(BOTH)).programs is None


def sort(out: str) -> Segment:
    return Segment(f"sort > {out}", (start("sort"),), files=(FileUse(f"/w/{out}", True),))


CD = Segment("cd src", builtin="cd")
SORT = Segment("sort", (start("sort"),))
COPY = Segment("cp a b", (start("cp", "a", "b"),))
SHOW = Segment("cat a", (start("cat", "a"),))
SCRIPT = Segment("python3 a.py", (start("python3", "a.py"),))
LOOK_AT = Segment("git log", (start("git", "log"),))
READ_FILE = Segment("sort < a", (start("sort"),), files=(FileUse("/w/a", False),))
LISTED = ApprovalRules(
    entries=(
        *(AllowlistEntry(f"/usr/bin/{name}") for name in ("cp", "ls", "python3")),
        AllowlistEntry("/usr/bin/git", args="git-read", grants=Grants(network=True)),
        AllowlistEntry("/usr/bin/cat", args="look", grants=Grants(network=True)),
    ),
    safe_bins=("sort",),
    redirects="workspace",
    may_read=lambda path: path.startswith("/w"),
    may_write=lambda path: path.startswith("/w"),
)


def _an_earlier_part_must_not_change_what_a_later_one_is_allowed_for(
    segments: list[Segment], gap: str
) -> None:
    found = analysis(*segments)
    decision = judge(found, rules=LISTED)
    if not gap:
        assert (decision.verdict, decision.code) == ("allow", "allowlist")
        assert find_gap(decision.segments) == ""
        return
    reason = f"an earlier part ({segments[0].text}) could change {gap}"
    assert (decision.verdict, decision.code, decision.reason) == ("ask", "gap", reason)
    assert (decision.to_allow, is_listed(decision)) == ("", False)
    assert fallback_verdict(decision) == "deny"
    assert judge(found, Policy("allowlist", "off"), LISTED).verdict == "deny"
    auto = decide(found, ALLOWLIST, LISTED, AUTO)
    assert (auto.verdict, auto.place, auto.grants) == ("allow", "sandbox", Grants())


def test_an_earlier_part_must_not_change_what_a_later_one_is_allowed_for(
    subtests: pytest.Subtests,
) -> None:
    cases: Iterable[Any] = [
        ([COPY], ""),
        ([COPY, COPY], ""),
        ([COPY, SORT], ""),
        ([COPY, LOOK_AT], ""),
        ([SHOW, SCRIPT], ""),
        ([LOOK_AT, SHOW], ""),
        ([SORT, READ_FILE], ""),
        ([CD, SHOW, SCRIPT], ""),
        ([COPY, CD], ""),
        ([SCRIPT], ""),
        ([COPY, SHOW], "the files it reads"),
        ([COPY, SCRIPT], "the script /w/a.py"),
        ([SCRIPT, SCRIPT], "the script /w/a.py"),
        ([COPY, CD, SORT], "where cd goes"),
        ([COPY, SORT, READ_FILE], "the file /w/a"),
        ([COPY, sort("x")], "the file /w/x"),
        ([sort("x"), SHOW], ""),
        ([sort("x"), READ_FILE], ""),
        ([sort("x"), CD, SHOW], ""),
        ([sort("x"), SCRIPT], "the script /w/a.py"),
        ([COPY, sort("x"), SHOW], "the file /w/x"),
    ]
    for segments, gap in cases:
        with subtests.test(segments=segments, gap=gap):
            _an_earlier_part_must_not_change_what_a_later_one_is_allowed_for(segments, gap)


def test_the_part_that_can_do_most_is_named() -> None:
    decision = judge(analysis(sort("x"), COPY, SHOW), rules=LISTED)
    assert decision.reason == "an earlier part (cp a b) could change the files it reads"


def test_a_part_that_is_not_allowed_at_all_is_the_reason() -> None:
    decision = judge(analysis(COPY, Segment("touch x", (start("touch", "x"),)), SHOW), rules=LISTED)
    assert (decision.code, decision.reason) == ("miss", "touch is not on the allowlist")


@table(
    ("grants", "mixed"),
    [
        ((None, None), False),
        ((None, Grants(network=True)), False),
        ((Grants(), Grants()), False),
        ((None, Grants()), True),
        ((Grants(read=("/a",)), Grants(read=("/b",))), True),
        ((Grants(sockets=True, network=True), None), True),
    ],
)
def test_parts_with_different_grants_do_not_share_them(
    grants: tuple[Grants | None, Grants | None], mixed: bool
) -> None:
    rules = ApprovalRules(
        entries=(
            AllowlistEntry("/usr/bin/ls", grants=grants[0]),
            AllowlistEntry("/usr/bin/touch", grants=grants[1]),
        ),
        safe_bins=("sort",),
    )
    found = analysis(Segment("cd /w", builtin="cd"), *BOTH.segments, SORT)
    decision = judge(found, rules=rules)
    assert (decision.verdict == "ask") is mixed
    assert is_listed(decision) is not mixed
    assert ("different grants" in decision.reason) is mixed
    auto = decide(found, ALLOWLIST, rules, AUTO)
    assert auto.place == ("entry" if not mixed and grants != (Grants(), Grants()) else "sandbox")


@table(
    ("found", "rules", "verdict"),
    [
        (analysis(SHOW), replace(LISTED, entries=(), confines=False), "allow"),
        (analysis(CD, SHOW, SORT), replace(LISTED, entries=(), confines=False), "allow"),
        (analysis(SHOW), replace(LISTED, entries=(AllowlistEntry("*", args="look"),)), "allow"),
        (LS, RULES, "ask"),
        (analysis(SHOW, *LS.segments), replace(LISTED, confines=False), "ask"),
    ],
)
def test_without_confinement_only_what_shows_files_runs_unasked(
    found: Analysis, rules: ApprovalRules, verdict: str
) -> None:
    assert decide(found, ALLOWLIST, replace(rules, confines=False), HOST).verdict == verdict


NAMED = replace(
    RULES, entries=(AllowlistEntry("/usr/bin/ls", grants=Grants(hosts=("a.example",))),)
)
PLAIN = replace(RULES, entries=(AllowlistEntry("/usr/bin/ls", grants=Grants()),))
MORE = Grants(network=True)


def _where_a_command_runs(
    found: Analysis, rules: ApprovalRules, where: ExecRequest, expected: tuple[Any, ...]
) -> None:
    decision = decide(found, ALLOWLIST, rules, where)
    assert (decision.verdict, decision.code, decision.place, decision.grants) == expected
    if decision.place == "sandbox":
        assert decision.run == "typed"


def test_where_a_command_runs(subtests: pytest.Subtests) -> None:
    cases: Iterable[Any] = [
        (LS, RULES, AUTO, ("allow", "allowlist", "entry", MORE)),
        (LS, PLAIN, AUTO, ("allow", "sandbox", "sandbox", Grants())),
        (LS, NAMED, AUTO, ("allow", "sandbox", "sandbox", Grants(hosts=("a.example",)))),
        (LS, UNCONFINED, AUTO, ("allow", "sandbox", "sandbox", MORE)),
        (LS, RULES, INSIDE, ("allow", "sandbox", "sandbox", Grants())),
        (TOUCH, RULES, AUTO, ("allow", "sandbox", "sandbox", Grants())),
        (UNCLEAR, RULES, AUTO, ("allow", "sandbox", "sandbox", Grants())),
        (WIPE, RULES, AUTO, ("allow", "sandbox", "sandbox", Grants())),
        (LS, RULES, structs.replace(AUTO, leaves=True), ("ask", "elevated", "host", Grants())),
        (LS, RULES, structs.replace(AUTO, access=MORE), ("ask", "access", "sandbox", MORE)),
        (LS, PLAIN, HOST, ("allow", "allowlist", "entry", Grants())),
        (LS, NAMED, HOST, ("ask", "unconfined", "host", Grants())),
        (LS, UNCONFINED, HOST, ("ask", "unconfined", "host", Grants())),
    ]
    for found, rules, where, expected in cases:
        with subtests.test(found=found, rules=rules, where=where, expected=expected):
            _where_a_command_runs(found, rules, where, expected)


OUTLIVES = "it would outlive clawkit, which could then not restore protected files"


@pytest.mark.parametrize(
    ("found", "rules", "where", "place"),
    [
        (LS, RULES, AUTO, "entry"),
        (LS, PLAIN, HOST, "entry"),
        (LS, NAMED, AUTO, "sandbox"),
        (LS, RULES, INSIDE, "sandbox"),
        (TOUCH, RULES, AUTO, "sandbox"),
        (UNCLEAR, RULES, AUTO, "sandbox"),
        (LS, RULES, structs.replace(AUTO, access=MORE, granted=MORE), "sandbox"),
    ],
)
@pytest.mark.parametrize("fallback", ["deny", "allowlist", "full"])
def test_what_is_confined_and_detached_takes_a_person(
    found: Analysis, rules: ApprovalRules, where: ExecRequest, place: str, fallback: Any
) -> None:
    before = decide(found, ALLOWLIST, rules, where)
    assert before.verdict == "allow"
    where = structs.replace(where, modes=("detach",))
    policy = structs.replace(ALLOWLIST, fallback=fallback)
    asked = decide(found, policy, rules, where)
    assert (asked.verdict, asked.code, asked.reason) == ("ask", "detach", OUTLIVES)
    assert (asked.place, asked.run, asked.programs) == (place, before.run, before.programs)
    assert (asked.grants, asked.human_only) == (before.grants, False)
    assert fallback_verdict(asked) == "deny"
    refused = decide(found, structs.replace(policy, ask="off"), rules, where)
    assert (refused.verdict, refused.code, refused.reason) == ("deny", "detach", OUTLIVES)


@table(
    ("found", "policy", "where", "expected"),
    [
        (TOUCH, Policy("full", "off"), AUTO, ("allow", "full")),
        (TOUCH, Policy("full", "off"), HOST, ("allow", "full")),
        (TOUCH, ALLOWLIST, HOST, ("ask", "miss")),
        (TOUCH, ALLOWLIST, structs.replace(AUTO, leaves=True), ("ask", "elevated")),
        (TOUCH, ALLOWLIST, structs.replace(AUTO, access=MORE), ("ask", "access")),
        (TOUCH, Policy("allowlist", "always"), AUTO, ("ask", "")),
        (TOUCH, Policy("deny", "off"), AUTO, ("deny", "deny")),
    ],
)
def test_what_is_asked_about_or_unconfined_may_be_detached_as_before(
    found: Analysis, policy: Policy, where: ExecRequest, expected: tuple[str, str]
) -> None:
    for each in (where, structs.replace(where, modes=("detach",))):
        decision = decide(found, policy, RULES, each)
        assert (decision.verdict, decision.code) == expected


def test_what_is_always_asked_about_is_so_in_the_sandbox_too() -> None:
    for policy, rules, code in (
        (Policy("allowlist", "always"), RULES, ""),
        (ALLOWLIST, replace(RULES, strict_inline_eval=True), "inline-eval"),
    ):
        decision = decide(EVAL, policy, rules, AUTO)
        assert (decision.verdict, decision.code, decision.place) == ("ask", code, "sandbox")
    full = decide(LS, Policy("full", "off"), RULES, AUTO)
    assert (full.code, full.place) == ("full", "host")
    assert Judge(Exec(), "/nowhere/exec-approvals.json").judge(AUTO).place == "sandbox"


def test_listed_commands_run_when_no_one_answers() -> None:
    asked = judge(LS, structs.replace(ALLOWLIST, ask="always"))
    assert (asked.place, asked.grants) == ("host", Grants())
    assert (as_listed(asked).place, as_listed(asked).grants) == ("entry", MORE)
    inside = decide(LS, structs.replace(ALLOWLIST, ask="always"), RULES, AUTO)
    assert as_listed(inside).place == "sandbox"


@pytest.mark.parametrize("ask", ["always", "on-miss"])
@pytest.mark.parametrize("fallback", ["allowlist", "full"])
def test_without_confinement_a_timeout_denies(ask: Ask, fallback: Any) -> None:
    policy = Policy("allowlist", ask, fallback)
    asked = decide(LS, policy, UNCONFINED, HOST)
    assert (asked.verdict, fallback_verdict(asked)) == ("ask", "deny")
