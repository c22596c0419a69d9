"""What a person can allow for all times when asked about a command.

Only what really lets the same command pass the next time is offered: every offer is tried.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from typing import NamedTuple

from clawkit.approvals.allow.entries import describe_entry
from clawkit.approvals.allow.match import Call, content_of
from clawkit.approvals.allow.patterns import is_literal
from clawkit.approvals.allow.regex import hash_call
from clawkit.approvals.base import (
    ArgRule,
    Decision,
    Entry,
    Miss,
    Offer,
    Program,
    Rules,
)
from clawkit.approvals.interpreters import Called, is_interpreter
from clawkit.approvals.languages import names_of
from clawkit.approvals.suggest import has_subcommands
from clawkit.core.approval import Extent

_SUBCOMMAND = re.compile(r"[a-z][a-z0-9-]{0,40}")
_EXTENTS: tuple[Extent, ...] = ("exact", "subcommand", "program")


class _Missed(NamedTuple):
    """A program that no rule allows yet, and what decides how far it may be allowed for good."""

    call: Call
    subject: str
    """What an entry has to name: for a shell that runs a script, the script."""
    changeable: str
    """The file of the program, or of its script, that whoever runs it could change."""


def make_offers(decision: Decision, rules: Rules, *, home: str) -> tuple[Offer, ...]:
    """The lasting answers to a question, the narrowest first; none when only once is possible."""
    if decision.doubt is not None or decision.human_only or decision.policy.ask == "always":
        return ()
    missed: list[_Missed] = []
    for program in _find_missed(decision):
        each = None if program is None else _examine(program, rules, home)
        if each is None:
            return ()
        missed.append(each)
    if not missed:
        return ()
    offers = (_offer(extent, missed) for extent in _EXTENTS)
    return tuple(offer for offer in offers if offer is not None)


def _find_missed(decision: Decision) -> Iterator[Program | None]:
    """The programs that no rule allows; None for a miss that is no program."""
    for judged in decision.segments:
        for number, result in enumerate(judged.results):
            if isinstance(result, Miss):
                programs = judged.segment.programs
                yield programs[number] if number < len(programs) else None


def _examine(program: Program, rules: Rules, home: str) -> _Missed | None:
    """None for what may never be allowed for good."""
    if program.wrapper:
        return None
    call = Call(program, rules, home)
    subject = _subject(program, call.called)
    if call.called.code or not is_literal(subject) or call.refuse():
        return None
    files = filter(None, (call.script, program.real))
    return _Missed(call, subject, next(filter(rules.may_write, files), ""))


def _offer(extent: Extent, missed: list[_Missed]) -> Offer | None:
    entries: dict[Entry, None] = {}
    for each in missed:
        entry = _entry(extent, each)
        if entry is None or not each.call.is_allowed_by(entry):
            return None
        entries[entry] = None
    words = "; ".join(describe_entry(entry) for entry in entries)
    return Offer(extent, tuple(entries), words)


def _entry(extent: Extent, missed: _Missed) -> Entry | None:
    """The entry that would allow a program, as far as it may be allowed for good."""
    program = missed.call.program
    if extent == "exact":
        if program.cwd is None:
            return None
        return Entry(
            missed.subject,
            arg_pattern=hash_call(program.cwd, program.argv[1:]),
            source="allow-always",
            extent=extent,
            cwd=program.cwd,
            content=content_of(missed.changeable) if missed.changeable else "",
        )
    names = names_of(program)
    if missed.changeable or missed.call.called.by_shell or is_interpreter(names):
        return None
    rule = None
    if extent == "subcommand":
        first = program.argv[1:2]
        if not first or first[0].glob or not _SUBCOMMAND.fullmatch(first[0].text):
            return None
        if not any(map(has_subcommands, names)):
            return None
        rule = ArgRule(subcommand=(first[0].text,))
    return Entry(program.resolved, args=rule, source="allow-always", extent=extent)


def _subject(program: Program, called: Called) -> str:
    script = called.script if called.by_shell else None
    if script is None or program.cwd is None:
        return program.resolved
    return os.path.normpath(os.path.join(program.cwd, script.text))
