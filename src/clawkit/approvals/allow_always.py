"""Permanent approvals: offers in a prompt, and suggestions from the log.

Every offer is tried first, so that it really allows the same command next time.
"""

from __future__ import annotations

import json
import os
import re
import shlex
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any, NamedTuple

from msgspec.structs import replace

from clawkit.approvals import entries as listing
from clawkit.approvals.allowlist import ProgramCall, content_of
from clawkit.approvals.audit import was_asked
from clawkit.approvals.decide import may_leave
from clawkit.approvals.inline_code import is_interpreter, names_of
from clawkit.approvals.options import base_name, words_of
from clawkit.approvals.presets import PRESETS
from clawkit.approvals.safe_bins import is_replaceable
from clawkit.approvals.types import (
    AllowlistEntry,
    ApprovalRules,
    ArgRule,
    Decision,
    Miss,
    Offer,
    Program,
)
from clawkit.core.approval import StoredExtent
from clawkit.process.protocols import NO_GRANTS

MIN_TIMES = 2
"""A single prompt may never occur again."""

# Never suggested: the harm depends on their arguments, which differ from call to call.
_HARMFUL = words_of(
    """rm rmdir unlink shred dd mv cp install ln truncate tee chmod chown chgrp chattr setfacl kill
    pkill killall reboot shutdown systemctl service mount umount useradd userdel usermod passwd
    iptables nft ip ifconfig curl wget http aria2c scp sftp rsync rclone ftp lftp nc ncat netcat
    telnet openssl gpg pass patch ed ex vi vim nvim emacs nano less more man clawkit"""
)
_SUBCOMMANDS = words_of(
    """git gh glab hg svn jj docker podman kubectl helm terraform aws gcloud az brew apt apt-get npm
    pnpm yarn bun uv pip pip3 poetry hatch conda cargo rustup go make just dotnet gradle mvn ruff"""
)
# For these, the first word is only the object, and the second one the action.
_NESTED = frozenset({"gh", "glab", "aws", "gcloud", "az"})
_SUBJECTS = words_of(
    """
    stash remote worktree submodule notes bisect lfs bundle reflog sparse-checkout compose container
    image network volume system builder context pod rollout auth run run-script pm pip python cache
    mod work toolchain target component state workspace repo get services bookmark op env
    """
)
# Sub-commands that can do anything, depending on their arguments or files.
_ANYTHING = re.compile(
    r"git (filter-branch|difftool|mergetool|rebase|config)|(docker|podman) (run|exec|build|unshare)"
    r"|kubectl (exec|run|debug|attach|cp|apply|delete)|go (run|generate|tool)|cargo run"
    r"|(poetry|hatch) (run|shell)|gh (api|alias|extension|auth|secret)"
)
_PROJECT = words_of(
    """make just npm pnpm yarn bun cargo go gradle mvn pytest tox nox jest vitest mocha eslint tsc
    vite webpack cmake ninja meson bazel ctest rake bundle mix sbt poetry hatch uv dotnet"""
)
_PROJECT_NOTE = "it runs code from the project's files"
_SUBCOMMAND = re.compile(r"[a-z][a-z0-9:_-]{0,40}", re.ASCII)
_SHARED = ("/tmp/", "/var/tmp/", "/dev/", "/proc/")  # noqa: S108  # never worth a rule


class Suggestion(NamedTuple):
    """A suggested rule."""

    pattern: str
    args: dict[str, Any] | str | None
    count: int  # type: ignore[assignment]  # hides tuple.count
    """Number of prompts it would have saved, alone or with others."""
    example: str
    words: str
    """The command to type to add it."""
    agent: str = "main"
    note: str = ""


def suggest(
    records: Iterable[Mapping[str, Any]],
    rules_for: Callable[[Mapping[str, Any]], Iterable[AllowlistEntry | None]],
) -> list[Suggestion]:
    """Rules for commands that people allowed repeatedly and never refused, the most useful first.
    `records` come from the log, oldest first; `rules_for` applies `find_rules` to one of them."""
    prompts: list[tuple[str, set[tuple[str, AllowlistEntry]]]] = []
    refused: set[tuple[str, AllowlistEntry]] = set()
    for record in filter(was_asked, records):
        agent, command = record.get("agent"), record.get("command")
        if not isinstance(agent, str) or not isinstance(command, str) or record.get("cut"):
            continue
        if record.get("verdict") == "deny":
            refused.update((agent, entry) for entry in rules_for(record) if entry)
        elif record.get("verdict") == "allow" and record.get("code") == "miss":
            found = list(rules_for(record))
            entries = {(agent, entry) for entry in found if entry}
            prompts.append((command, set() if None in found else entries))
    left = [each for each in prompts if each[1] and refused.isdisjoint(each[1])]
    prompts = []
    # A prompt is saved only if there are rules for all of its programs.
    while len(left) != len(prompts):
        prompts = left
        times = Counter(rule for _, rules in prompts for rule in rules)
        left = [each for each in prompts if all(times[rule] >= MIN_TIMES for rule in each[1])]
    newest = {rule: command for command, rules in prompts for rule in rules}
    made = [_suggestion(*rule, times[rule], command) for rule, command in newest.items()]
    return sorted(made, key=lambda each: (-each.count, each.agent, each.words))


def _suggestion(agent: str, entry: AllowlistEntry, count: int, example: str) -> Suggestion:
    args = listing.entry_to_json(entry).get("args")
    words = ["clawkit", "approvals", "allowlist", "add", entry.pattern, "--agent", agent]
    if args is not None:
        words += ["--args", args if isinstance(args, str) else json.dumps(args)]
    note = _PROJECT_NOTE if base_name(entry.pattern) in _PROJECT else ""
    return Suggestion(entry.pattern, args, count, example, shlex.join(words), agent, note)


def find_rules(
    decision: Decision, rules: ApprovalRules, *, home: str
) -> list[AllowlistEntry | None]:
    """The narrowest rule for each program that needs approval; None if none is worthwhile."""
    found: list[AllowlistEntry | None] = []
    for each in _find_all(decision, rules, home) if decision.code == "miss" else ():
        subcommand, preset, program = (
            _entry(extent, each, leaves=False) for extent in _EXTENTS[1:]
        )
        inside = program and replace(program, args=ArgRule(paths="workspace"))
        entries = (preset, subcommand, inside, program)
        entry = next((one for one in entries if one and each.call.is_allowed_by(one)), None)
        is_worth_it = entry is not None and _is_worth_it(entry, each.call.program)
        found.append(replace(entry, source="", extent=None) if entry and is_worth_it else None)
    return found


def _is_worth_it(entry: AllowlistEntry, program: Program) -> bool:
    names = names_of(program)
    words = entry.args.subcommand or () if isinstance(entry.args, ArgRule) else ()
    return (
        not listing.validate_pattern(entry.pattern)
        and not entry.pattern.startswith(_SHARED)
        and _HARMFUL.isdisjoint(names)
        and not is_interpreter(names)
        and not any(_ANYTHING.match(f"{name} {word}") for name in names for word in words)
    )


_EXTENTS: tuple[StoredExtent, ...] = ("exact", "subcommand", "preset", "program")
"""What a permanent approval may cover, narrow extents first."""


class _Missed(NamedTuple):
    """A program that no rule allows yet, and the limits of its permanent approval."""

    call: ProgramCall
    subject: str
    """The path for an entry: the program, or the script that a shell runs."""
    changeable: str
    """The file of the program or its script, if the agent can change it."""
    linked: bool


def make_offers(decision: Decision, rules: ApprovalRules, *, home: str) -> tuple[Offer, ...]:
    """The permanent answers on offer, the narrowest first; none if only a one-time approval is
    possible. Leaving the sandbox can be approved only for the exact call."""
    missed = _find_all(decision, rules, home)
    if not missed or (decision.code == "elevated" and any(each.linked for each in missed)):
        return ()
    is_single = sum(len(judged.segment.programs) for judged in decision.segments) == 1
    # An entry covers one program: with several, each could later leave the sandbox on its own.
    leaving = _EXTENTS[:1] if is_single else ()
    extents = leaving if decision.code == "elevated" else _EXTENTS
    offers = (_offer(extent, missed, leaves=is_single) for extent in extents)
    return tuple(offer for offer in offers if offer is not None)


def offer_access(decision: Decision) -> tuple[Offer, ...]:
    """The permanent answer for access beyond the sandbox, which any command may then request."""
    entry = AllowlistEntry("", source="allow-always", extent="access", grants=decision.grants)
    words = f"{listing.describe_grants(decision.grants)}, for every command that requests it"
    return (Offer("access", (entry,), words),)


def _find_all(decision: Decision, rules: ApprovalRules, home: str) -> list[_Missed]:
    """The programs that must be allowed; empty if some part cannot be."""
    if decision.doubt is not None or decision.human_only or decision.policy.ask == "always":
        return []
    found: list[_Missed] = []
    for program in _find_missed(decision):
        each = None if program is None else _examine(program, rules, home)
        if each is None:
            return []
        found.append(each)
    return found


def _find_missed(decision: Decision) -> Iterator[Program | None]:
    """The programs that no rule allows; None if anything else is not allowed. If the command asks
    to leave the sandbox, includes allowed programs that may not leave it."""
    for judged in decision.segments:
        programs = judged.segment.programs
        for number, result in enumerate(judged.results):
            is_program = number < len(programs)
            leaves = decision.code == "elevated" and is_program and not may_leave(result)
            if isinstance(result, Miss) or (leaves and not programs[number].wrapper):
                yield programs[number] if is_program else None


def _examine(program: Program, rules: ApprovalRules, home: str) -> _Missed | None:
    """None for programs that can never be allowed permanently."""
    if program.wrapper:
        return None
    call = ProgramCall(program, rules, home)
    subject, called = program.resolved, call.called
    if called.by_shell and called.script is not None and program.cwd is not None:
        subject = os.path.normpath(os.path.join(program.cwd, called.script.text))
    if call.called.code or not listing.is_literal(subject) or call.refuse():
        return None
    files = filter(None, (call.script, program.real))
    changeable = next(filter(rules.may_write, files), "")
    linked = not changeable and is_replaceable(program, rules)
    return _Missed(call, subject, program.real if linked else changeable, linked)


def _offer(extent: StoredExtent, missed: list[_Missed], *, leaves: bool) -> Offer | None:
    entries: dict[AllowlistEntry, str] = {}
    for each in missed:
        entry = _entry(extent, each, leaves=leaves)
        if entry is None or not each.call.is_allowed_by(entry):
            return None
        preset = PRESETS.get(entry.args) if isinstance(entry.args, str) else None
        words = listing.describe_entry(entry) if preset is None else preset.words
        risky = entry.unconfined and base_name(entry.pattern) in _PROJECT
        entries[entry] = f"{words}, and {_PROJECT_NOTE}" if risky else words
    return Offer(extent, tuple(entries), "; ".join(entries.values()))


def _entry(extent: StoredExtent, missed: _Missed, *, leaves: bool) -> AllowlistEntry | None:
    program = missed.call.program
    if extent == "exact":
        if program.cwd is None:
            return None
        return AllowlistEntry(
            missed.subject,
            arg_pattern=listing.hash_call(program.cwd, program.argv[1:]),
            source="allow-always",
            extent=extent,
            cwd=program.cwd,
            content=content_of(missed.changeable) if missed.changeable else "",
            # It was approved to run outside the sandbox, and must run there again next time.
            unconfined=leaves and not missed.linked,
            grants=NO_GRANTS if missed.linked else None,
        )
    if extent == "preset":
        entries = (
            AllowlistEntry(program.resolved, args=preset, source="allow-always", extent=extent)
            for preset in PRESETS
        )
        return next(filter(missed.call.is_allowed_by, entries), None)
    names = names_of(program)
    if missed.changeable or missed.call.called.by_shell or is_interpreter(names):
        return None
    rule = None
    if extent == "subcommand":
        words = program.argv[1:3]
        if words and not (names & _NESTED or words[0].text in _SUBJECTS):
            words = words[:1]
        plain = all(not word.glob and _SUBCOMMAND.fullmatch(word.text) for word in words)
        if not words or not plain or _SUBCOMMANDS.isdisjoint(names):
            return None
        rule = ArgRule(subcommand=(" ".join(word.text for word in words),))
    return AllowlistEntry(program.resolved, args=rule, source="allow-always", extent=extent)
