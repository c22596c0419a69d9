"""What a person can allow for all times."""

from __future__ import annotations

from typing import Any

from msgspec import structs
from tests.tables import table

from clawkit.approvals.allow_always import make_offers
from clawkit.approvals.decide import decide
from clawkit.approvals.protocols import ExecRequest
from clawkit.approvals.types import Analysis, ApprovalRules, Arg, Decision, Policy, Program, Segment

ASKS = Policy("allowlist", "on-miss")


def program(*texts: str, **more: Any) -> Program:
    path = f"/usr/bin/{texts[0]}"
    given = {"resolved": path, "real": path, "cwd": "/w", **more}
    return Program(tuple(map(Arg, texts)), **given)


WRAPPER = program("timeout", "5", wrapper=True, resolved="/opt/timeout", real="/opt/timeout")


def judge(*programs: Program, policy: Policy = ASKS) -> Decision:
    return decide(
        Analysis("x", (Segment("x", programs),), "x"),
        policy,
        ApprovalRules(),
        ExecRequest("x", "/", {"HOME": "/h"}),
    )


def extents(decision: Decision, rules: ApprovalRules | None = None) -> list[str]:
    return [each.extent for each in make_offers(decision, rules or ApprovalRules(), home="/h")]


@table(
    ("programs", "expected"),
    [
        ((program("uname"),), ["exact", "program"]),
        ((program("git", "status"),), ["exact", "subcommand", "preset", "program"]),
        ((program("git", "push"),), ["exact", "subcommand", "preset"]),
        ((program("git", "push", "-f"),), ["exact"]),
        ((program("git"),), ["exact", "program"]),
        ((program("uname", cwd=None),), ["program"]),
        ((program("uname", resolved="", real=""),), []),
        ((program("uname", resolved="/opt/*/x", real="/opt/*/x"),), []),
        ((WRAPPER, program("uname")), []),
        ((program("python3", "-c", "1"),), []),
    ],
)
def test_every_miss_needs_a_rule_of_its_own(
    programs: tuple[Program, ...], expected: list[str]
) -> None:
    assert extents(judge(*programs)) == expected


def test_what_is_always_asked_or_has_no_miss_is_offered_nothing() -> None:
    assert extents(judge(program("uname"), policy=structs.replace(ASKS, ask="always"))) == []
    assert extents(Decision("ask", ASKS, "")) == []


def test_a_changeable_program_is_allowed_permanently_only_in_its_current_state(
    tmp_path: Any,
) -> None:
    tool = tmp_path / "tool"
    tool.write_text("#!/bin/sh\n", encoding="utf-8")
    found = program("./tool", resolved=str(tool), real=str(tool), cwd=str(tmp_path))
    rules = ApprovalRules(may_write=lambda path: path.startswith(str(tmp_path)))
    [offer] = make_offers(judge(found), rules, home="/h")
    [entry] = offer.entries
    assert (offer.extent, entry.content[:7]) == ("exact", "sha256:")


def test_a_preset_is_offered_in_words_the_narrowest_first() -> None:
    for call, words in (
        (program("git", "status"), "git, read-only commands"),
        (program("git", "add", "x"), "git, everyday commands"),
    ):
        offers = make_offers(judge(call), ApprovalRules(), home="/h")
        assert next(each.words for each in offers if each.extent == "preset") == words


def test_an_exact_call_says_if_the_agent_can_change_what_it_runs_outside_the_sandbox() -> None:
    words = {
        (name, each.extent): each.words
        for name in ("make", "uname")
        for each in make_offers(judge(program(name, "test")), ApprovalRules(), home="/h")
    }
    note = "even outside the sandbox, and it runs code from the project's files"
    assert words["make", "exact"].endswith(note)
    assert words["make", "program"] == "/usr/bin/make"  # runs in the sandbox
    assert words["uname", "exact"].endswith("even outside the sandbox")


def test_for_a_shell_the_script_is_what_is_allowed(tmp_path: Any) -> None:
    (tmp_path / "s.sh").write_text("true\n", encoding="utf-8")
    call = program("bash", "s.sh", cwd=str(tmp_path))
    [offer] = make_offers(judge(call), ApprovalRules(), home="/h")
    assert [entry.pattern for entry in offer.entries] == [f"{tmp_path}/s.sh"]
