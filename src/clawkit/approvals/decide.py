"""Whether a command may run: a pure function of its analysis, the policy and the rules."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import partial, reduce
from operator import or_
from typing import Literal

from msgspec import structs

from clawkit.approvals import types
from clawkit.approvals.allowlist import match_program
from clawkit.approvals.arguments import show
from clawkit.approvals.entries import describe_grants
from clawkit.approvals.hardline import find_hardline
from clawkit.approvals.inline_code import how_called
from clawkit.approvals.protocols import ExecRequest
from clawkit.process.protocols import NO_GRANTS, Grants

_BUILTIN = types.Match("builtin", "shell builtin", children="named", changes=False)
_HARMLESS = frozenset(("builtin", "look", "safe-bin", "wrapper"))
"""Matches that may run even if the kernel cannot confine them."""
_DETACHED = "it would outlive clawkit, which could then not restore protected files"
_SHOWN = 80


def decide(
    analysis: types.Analysis, policy: types.Policy, rules: types.ApprovalRules, request: ExecRequest
) -> types.Decision:
    """Decide about a command. On the host, anything not clearly allowed is asked about or refused;
    in the sandbox, the kernel enforces the limits and no approval is needed. A confined command
    that outlives clawkit needs a person, because nothing restores what it changes."""
    decision = _decide(analysis, policy, rules, request)
    if "detach" not in request.modes or decision.verdict != "allow" or decision.place == "host":
        return decision
    return structs.replace(
        decision,
        verdict="deny" if policy.ask == "off" else "ask",
        policy=structs.replace(decision.policy, fallback="deny"),
        reason=_DETACHED,
        code="detach",
    )


def _decide(
    analysis: types.Analysis, policy: types.Policy, rules: types.ApprovalRules, request: ExecRequest
) -> types.Decision:
    if refused := types.refuse_all(policy):
        return refused
    if not rules.confines and policy.security != "full":
        # A missing answer must not allow an unconfined command that would otherwise be asked about.
        policy = structs.replace(policy, fallback="deny")
    home = request.env.get("HOME", "")
    judged = tuple(_judge(segment, rules, home) for segment in analysis.segments)
    run = analysis.rebuilt or analysis.command
    make = partial(types.Decision, policy=policy, segments=judged, doubt=analysis.doubt, run=run)
    inside = request.wanted != "host"
    # In the sandbox, the shell gets the command as it was written.
    sandboxed = partial(make, run=analysis.command, place="sandbox")
    hardline = find_hardline(analysis, rules, home=home)
    if hardline and not inside:
        reason = f"only a person can allow this: {hardline}"
        return make("ask", reason=reason, code="hardline", human_only=True)
    if rules.strict_inline_eval and (why := _find_inline(analysis)):
        reason = f"only a person can allow code on the command line: {why}"
        ask = sandboxed if inside else make
        return ask("ask", reason=reason, code="inline-eval", human_only=True)
    if policy.ask == "always":
        reason = f"every command needs approval: {types.sources_of(policy)}"
        return sandboxed("ask", reason=reason) if inside else make("ask", reason=reason)
    if policy.security == "full" and request.wanted != "sandbox" and not hardline:
        return types.allow_all(analysis.command, policy)
    missed: types.Verdict = "deny" if policy.ask == "off" else "ask"
    gap = "" if analysis.doubt is not None else find_gap(judged) or _find_mixed(judged)
    matches = _find_matches(judged) if analysis.doubt is None and not gap else []
    grants = _union_grants(matches)
    words = "; ".join(dict.fromkeys(match.rule for match in matches))
    if not inside and any(match.entry for match in matches) and all(map(may_leave, matches)):
        return make("allow", reason=f"every part is allowed: {words}", code="allowlist")
    if request.leaves:
        return make(missed, reason="it asks to run outside the sandbox", code="elevated")
    if inside:
        widened = request.wanted == "auto" and grants != NO_GRANTS and not hardline
        if request.access != NO_GRANTS:
            missing = request.access.without(request.granted)
            reason = f"it asks for more than the sandbox grants: {describe_grants(missing)}"
            if missing == NO_GRANTS:
                reason = f"a person has granted {describe_grants(request.access)}"
            verdict = "allow" if missing == NO_GRANTS else missed
            return sandboxed(verdict, reason=reason, code="access", grants=request.access)
        # Only the sandbox can filter by host.
        if not widened or not rules.confines or grants.hosts:
            grants = grants if widened else NO_GRANTS
            reason = "commands in the sandbox need no approval"
            return sandboxed("allow", reason=reason, code="sandbox", grants=grants)
    held = rules.confines or all(match.by in _HARMLESS for match in matches)
    if matches and held and not grants.hosts:
        reason = f"every part is allowed: {words}"
        named = _find_named(judged)
        found = make("allow", reason=reason, code="allowlist", programs=named, place="entry")
        return structs.replace(found, grants=grants)
    if matches and grants.hosts:
        reason, to_allow = "its grants name hosts, which only a sandbox can filter", ""
        code = "unconfined"
    elif matches:
        reason = "the kernel cannot confine commands here (tools.exec.unconfined is 'ask')"
        to_allow, code = "clawkit config set tools.exec.unconfined allow", "unconfined"
    elif gap:
        reason, to_allow, code = gap, "", "gap"
    else:
        reason, to_allow, code = _explain(analysis.doubt, judged)
    return make(missed, reason=reason, to_allow=to_allow, code=code)


def may_leave(result: types.Match | types.Miss) -> bool:
    """Whether a person has allowed a program outside the sandbox with exactly these arguments.
    Builtins and wrappers are included: they only do what their segment does."""
    if not isinstance(result, types.Match):
        return False
    return result.by in ("builtin", "wrapper") or bool(result.entry and result.entry.unconfined)


def _find_mixed(segments: Sequence[types.Judged]) -> str:
    """Why a command would pass one program's grants to another: all share one confinement."""
    matches = _find_matches(segments)
    whole = _union_grants(matches)
    if all(match.by in _HARMLESS or match.grants == whole for match in matches):
        return ""
    return "its parts have different grants, but share one confinement; run them one by one"


def find_gap(segments: Sequence[types.Judged]) -> str:
    """Why a part of a command might do something else by the time it runs: an earlier part can
    change the files its match depends on. Empty if none can, or if some part is not allowed."""
    earlier, anything = "", False
    for number, judged in enumerate(segments):
        if judged.misses:
            return ""
        is_last = number == len(segments) - 1
        if earlier and (what := _find_dependency(judged, anything=anything, is_last=is_last)):
            shown = show(earlier, _SHOWN)
            return f"an earlier part ({shown}) could change {what}"
        changes = any(match.changes for match in _find_matches((judged,)))
        writes = any(file.writes for file in judged.segment.files)
        if (changes and not anything) or (writes and not earlier):
            earlier = judged.segment.text
        anything = anything or changes
    return ""


def _find_dependency(judged: types.Judged, *, anything: bool, is_last: bool) -> str:
    """What a part's match depends on that earlier parts could change: file contents and, if they
    can do `anything`, where paths lead. The shell alone cannot turn a file into a link."""
    segment = judged.segment
    if anything and segment.files:
        return f"the file {show(segment.files[0].path, _SHOWN)}"
    if anything and segment.builtin == "cd" and not is_last:
        return "where cd goes"
    matches = (each for each in _find_matches((judged,)) if anything or each.by != "look")
    return next((each.depends for each in matches if each.depends), "")


def fallback_verdict(decision: types.Decision) -> Literal["allow", "deny"]:
    """Decision when no one answers or no approver is attached."""
    fallback = decision.policy.fallback
    if decision.verdict != "ask" or decision.human_only or fallback == "deny":
        return "deny"
    if fallback == "full" and decision.policy.security == "full":
        return "allow"
    return "allow" if is_listed(decision) else "deny"


def is_listed(decision: types.Decision) -> bool:
    """Whether every part of the command is allowed by some rule."""
    parts = decision.segments
    is_clear = decision.doubt is None and not find_gap(parts) and not _find_mixed(parts)
    return is_clear and bool(_find_matches(parts))


def as_listed(decision: types.Decision) -> types.Decision:
    """The decision with the programs and grants of the matching rules, if every part has one."""
    if not is_listed(decision):
        return decision
    grants = _union_grants(_find_matches(decision.segments))
    programs = _find_named(decision.segments)
    place = decision.place if decision.place == "sandbox" else "entry"
    return structs.replace(decision, programs=programs, place=place, grants=grants)


def _union_grants(matches: Sequence[types.Match]) -> Grants:
    return reduce(or_, (match.grants for match in matches), NO_GRANTS)


def _find_named(segments: Sequence[types.Judged]) -> tuple[str, ...] | None:
    named: dict[str, None] = {}
    for judged in segments:
        for program, result in zip(judged.segment.programs, judged.results, strict=False):
            if not isinstance(result, types.Match) or result.children == "any":
                return None
            named |= dict.fromkeys((program.real, *program.script, *result.starts))
    return tuple(named)


def _find_matches(segments: Sequence[types.Judged]) -> list[types.Match]:
    results = [result for judged in segments for result in judged.results]
    matches = [result for result in results if isinstance(result, types.Match)]
    return matches if len(matches) == len(results) else []


def _explain(doubt: types.Doubt | None, segments: Sequence[types.Judged]) -> tuple[str, str, str]:
    if doubt is not None:
        reason = f"cannot determine what this runs: {doubt.reason}"
        return reason + (f" (character {doubt.at + 1})" if doubt.at else ""), "", "doubt"
    misses = [miss for judged in segments for miss in judged.misses]
    reason = "; ".join(dict.fromkeys(miss.reason for miss in misses))
    # Suggest rules only if together they would allow the whole command.
    helps = all(miss.to_allow for miss in misses)
    to_allow = " && ".join(dict.fromkeys(miss.to_allow for miss in misses)) if helps else ""
    return reason, to_allow, misses[0].code if misses else "miss"


def _judge(segment: types.Segment, rules: types.ApprovalRules, home: str) -> types.Judged:
    programs = [match_program(program, rules, home=home) for program in segment.programs]
    return types.Judged(segment, (*(programs or [_BUILTIN]), *_judge_files(segment, rules)))


def _judge_files(segment: types.Segment, rules: types.ApprovalRules) -> Iterator[types.Miss]:
    for file in segment.files:
        shown = show(file.path, _SHOWN)
        if file.writes and rules.redirects != "workspace":
            helps = rules.may_write(file.path)
            to_allow = "clawkit config set tools.exec.redirects workspace" if helps else ""
            yield types.Miss(f"it writes the file {shown!r}", to_allow, "redirect")
        elif file.writes and not rules.may_write(file.path):
            why = "which is protected or not in the workspace"
            yield types.Miss(f"it writes {shown!r}, {why}", "", "redirect")
        elif not file.writes and not rules.may_read(file.path):
            yield types.Miss(f"it reads {shown!r}, which is not in the workspace", "", "redirect")


def _find_inline(analysis: types.Analysis) -> str:
    programs = (program for segment in analysis.segments for program in segment.programs)
    code = next(filter(None, (how_called(program).code for program in programs)), "")
    if analysis.doubt is not None:
        return code or f"cannot determine whether it has any: {analysis.doubt.reason}"
    return code
