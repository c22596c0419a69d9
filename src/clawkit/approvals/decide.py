"""Whether a command may run: one pure function of what it does and what is allowed."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import partial
from typing import Literal

from clawkit.approvals.allow.match import match_program
from clawkit.approvals.base import (
    Analysis,
    Decision,
    Judged,
    Match,
    Miss,
    Policy,
    Rules,
    Segment,
    Verdict,
)
from clawkit.approvals.hardline import find_hardline
from clawkit.approvals.interpreters import inline_code
from clawkit.approvals.shell.nodes import Doubt
from clawkit.text import one_line, printable

_BUILTIN = Match("builtin", "the shell does it itself", children="named")
_SHOWN = 80


def decide(analysis: Analysis, policy: Policy, rules: Rules, *, home: str) -> Decision:
    """Judge a command. Whatever is not certainly allowed is asked about or refused."""
    if policy.problem:
        return Decision("deny", policy, policy.problem, code="document")
    if policy.security == "deny":
        reason = f"no command may run: {_sources(policy)}"
        return Decision("deny", policy, reason, policy.to_loosen, code="deny")
    judged = tuple(_judge(segment, rules, home) for segment in analysis.segments)
    run = analysis.rebuilt or analysis.command
    make = partial(Decision, policy=policy, segments=judged, doubt=analysis.doubt, run=run)
    if why := find_hardline(analysis, rules, home=home):
        reason = f"only a person can allow this: {why}"
        return make("ask", reason=reason, code="hardline", human_only=True)
    if rules.strict_inline_eval and (why := _find_inline(analysis)):
        reason = f"only a person can allow code on the command line: {why}"
        return make("ask", reason=reason, code="inline-eval", human_only=True)
    if policy.ask == "always":
        return make("ask", reason=f"every command is asked about: {_sources(policy)}")
    if policy.security == "full":
        return allow_all(analysis.command, policy)
    if analysis.doubt is None and (matches := _find_matches(judged)):
        words = "; ".join(dict.fromkeys(match.rule for match in matches))
        reason = f"every part is allowed: {words}"
        return make("allow", reason=reason, code="allowlist", programs=_find_named(judged))
    reason, to_allow, code = _explain(analysis.doubt, judged)
    verdict: Verdict = "deny" if policy.ask == "off" else "ask"
    return make(verdict, reason=reason, to_allow=to_allow, code=code)


def allow_all(command: str, policy: Policy) -> Decision:
    """The decision where every command may run, as it was written."""
    reason = f"every command may run: {_sources(policy)}"
    return Decision("allow", policy, reason, code="full", run=command)


def after_silence(decision: Decision) -> Literal["allow", "deny"]:
    """What counts when nobody answered the question, or nobody could be asked."""
    fallback = decision.policy.fallback
    if decision.verdict != "ask" or decision.human_only or fallback == "deny":
        return "deny"
    if fallback == "full" and decision.policy.security == "full":
        return "allow"
    return "allow" if is_listed(decision) else "deny"


def is_listed(decision: Decision) -> bool:
    """Whether every part of the command is allowed by some rule."""
    return decision.doubt is None and bool(_find_matches(decision.segments))


def named_programs(decision: Decision) -> tuple[str, ...] | None:
    """What the kernel is to let the command start; None when a rule lets its program start any."""
    return _find_named(decision.segments)


def _find_named(segments: Sequence[Judged]) -> tuple[str, ...] | None:
    named: dict[str, None] = {}
    for judged in segments:
        for program, result in zip(judged.segment.programs, judged.results, strict=False):
            if not isinstance(result, Match) or result.children == "any":
                return None
            named |= dict.fromkeys((program.real, *program.script, *result.starts))
    return tuple(named)


def _find_matches(segments: Sequence[Judged]) -> list[Match]:
    """What allows all of it; nothing when there is a part that no rule allows."""
    found: list[Match] = []
    for judged in segments:
        for result in judged.results:
            if not isinstance(result, Match):
                return []
            found.append(result)
    return found


def _explain(doubt: Doubt | None, segments: Sequence[Judged]) -> tuple[str, str, str]:
    """Why not everything is allowed, what to type to have it allowed, and a code."""
    if doubt is not None:
        reason = f"it cannot be told for certain what this runs: {doubt.reason}"
        return reason + (f" (character {doubt.at + 1})" if doubt.at else ""), "", "doubt"
    misses = [miss for judged in segments for miss in judged.misses]
    reason = "; ".join(dict.fromkeys(miss.reason for miss in misses))
    # One rule that is missing is worth telling; a command that no rule helps is not.
    hopeful = all(miss.to_allow for miss in misses)
    to_allow = " && ".join(dict.fromkeys(miss.to_allow for miss in misses)) if hopeful else ""
    return reason, to_allow, misses[0].code if misses else "miss"


def _judge(segment: Segment, rules: Rules, home: str) -> Judged:
    results: list[Match | Miss] = [
        match_program(program, rules, home=home) for program in segment.programs
    ]
    if not segment.programs:
        results.append(_BUILTIN)
    if segment.files:
        results.extend(_judge_files(segment, rules))
    return Judged(segment, tuple(results))


def _judge_files(segment: Segment, rules: Rules) -> Iterator[Miss]:
    for file in segment.files:
        shown = one_line(printable(file.path, ""), _SHOWN)
        if file.writes:
            if rules.redirects != "workspace":
                yield Miss(
                    f"it writes the file {shown!r}",
                    "clawkit config set tools.exec.redirects workspace"
                    if rules.may_write(file.path)
                    else "",
                    "redirect",
                )
            elif not rules.may_write(file.path):
                why = "which is protected or not in the workspace"
                yield Miss(f"it writes {shown!r}, {why}", "", "redirect")
        elif not rules.may_read(file.path):
            yield Miss(f"it reads {shown!r}, which is not in the workspace", "", "redirect")


def _find_inline(analysis: Analysis) -> str:
    """Why a command has, or could have, code on its command line."""
    for segment in analysis.segments:
        for program in segment.programs:
            if why := inline_code(program):
                return why
    if analysis.doubt is not None:
        return f"it cannot be told whether it has any: {analysis.doubt.reason}"
    return ""


def _sources(policy: Policy) -> str:
    return ", ".join(policy.sources) or f"security {policy.security!r}, ask {policy.ask!r}"
