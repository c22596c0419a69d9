"""Whether a program may run without approval, and which rule allows it."""

from __future__ import annotations

import hashlib
import os
import shlex
import stat
from contextlib import suppress

from msgspec import structs
from msgspec.structs import replace

from clawkit.approvals import entries, safe_bins
from clawkit.approvals.arguments import (
    check_arguments,
    find_code,
    find_destination,
    find_steering,
    find_top,
    show,
)
from clawkit.approvals.expansion import resolve_links
from clawkit.approvals.inline_code import how_called, is_interpreter, names_of
from clawkit.approvals.options import base_name
from clawkit.approvals.presets import FOLLOWING, PRESETS, check_preset, expand_grants
from clawkit.approvals.types import (
    AllowlistEntry,
    ApprovalRules,
    Arg,
    ArgRule,
    Match,
    Miss,
    Program,
)
from clawkit.process.env_blocklist import why_refused
from clawkit.process.protocols import NO_GRANTS, Grants

MAX_CONTENT_BYTES = 64 * 1024 * 1024
PLAIN_GRANTS = Grants(network=True)
"""Grants of an entry that does not specify any."""

_ALLOW_ALWAYS = "allow-always"
_ABOUT = ("--version", "--help")
_AT_ONCE = os.O_NONBLOCK | os.O_CLOEXEC
_MAX_REASONS = 3


def match_program(program: Program, rules: ApprovalRules, *, home: str) -> Match | Miss:
    """The rule that allows a program, or why there is none."""
    if program.wrapper:
        name = show(program.name)
        if not safe_bins.is_trusted(program, rules):
            return Miss(f"{name} starts other programs, and is not in a system directory")
        words = f"{name} (starts the next program)"
        return Match("wrapper", words, children="named", changes=False)
    call = ProgramCall(program, rules, home)
    if miss := call.refuse():
        return miss
    reasons: list[str] = []
    for entry in entries.find_entries(rules.entries, call.subject, home):
        found = call.try_entry(entry)
        if isinstance(found, Match):
            return found
        reasons.append(found)
    safe = safe_bins.check_safe_bin(program, rules)
    if isinstance(safe, Match):
        return safe
    if base_name(program.name) in rules.safe_bins:
        reasons.append(safe)
    if not rules.confines:
        look = check_preset("look", program, "", rules)
        if isinstance(look, Match):
            return look
        reasons.append(look)
    return Miss(call.explain(reasons), call.suggest())


def content_of(path: str) -> str:
    """`sha256:` and the digest of a file's content; empty if unreadable or too large."""
    try:
        with open(path, "rb", opener=lambda name, flags: os.open(name, flags | _AT_ONCE)) as file:
            info = os.fstat(file.fileno())
            if not stat.S_ISREG(info.st_mode) or info.st_size > MAX_CONTENT_BYTES:
                return ""
            return f"sha256:{hashlib.file_digest(file, 'sha256').hexdigest()}"
    except (OSError, ValueError):
        return ""


class ProgramCall:
    """One call of a program, to be compared with entries."""

    def __init__(self, program: Program, rules: ApprovalRules, home: str) -> None:
        self.program = program
        self.rules = rules
        self.home = home
        self.called = how_called(program)
        self.subject = program
        self.script = ""
        self._code: str | None = None

    def refuse(self) -> Miss | None:
        """Why no rule can allow it. Must be called before `try_entry`."""
        program, called = self.program, self.called
        name = show(program.name)
        if not program.resolved or program.argv[0].glob:
            return Miss(f"{name} was not found{' in PATH' if program.by_name else ''}")
        if called.reads:
            return Miss(f"{name}: {called.reads}", code="reads-code")
        if self.rules.strict_inline_eval and called.code:
            return Miss(f"{name}: {called.code}", code="inline-eval")
        for variable in program.assigned:
            if why := why_refused(variable):
                return Miss(f"{name}: the variable {show(variable)} {why}")
        if called.script is not None and program.cwd is not None:
            with suppress(ValueError):  # a NUL
                self.script = resolve_links(os.path.join(program.cwd, called.script.text))
        why = self._resolve_script() if called.by_shell else ""
        return Miss(why) if why else None

    def _resolve_script(self) -> str:
        """Make the script the subject, because that is what a shell runs; returns why not."""
        program, operand = self.program, self.called.script
        name = show(program.name)
        if operand is None:
            about = len(program.argv) == 2 and program.argv[1].text in _ABOUT
            return "" if about else f"cannot determine what {name} runs"
        if program.cwd is None:
            return f"the script that {name} runs depends on an unknown directory"
        # A script that does not exist would be searched in PATH.
        if not os.path.isfile(self.script) or not (
            path := entries.normalize_to(os.path.join(program.cwd, operand.text), self.script)
        ):
            return f"{name}: the script {show(operand.text)} was not found"
        at = next(index for index, each in enumerate(program.argv) if each is operand)
        self.subject = replace(
            program,
            argv=(Arg(path, at=operand.at), *program.argv[at + 1 :]),
            resolved=path,
            real=self.script,
            script=(program.resolved,),
        )
        return ""

    def is_allowed_by(self, entry: AllowlistEntry) -> bool:
        """Whether an entry matches and allows it."""
        matches = entries.matches_path(entry.pattern, self.subject, self.home)
        return matches and isinstance(self.try_entry(entry), Match)

    def try_entry(self, entry: AllowlistEntry) -> Match | str:
        """The match, or why an entry with a matching pattern does not allow the call; empty if it
        is for other programs."""
        why = self._check_binding(entry) or self._check_file(entry)
        if why:
            return why
        if entry.args != "any" and (variable := find_steering(self.program.assigned)):
            return f"the variable {show(variable)} could change what it does"
        exact = entry.arg_pattern is not None and entry.arg_pattern.startswith(entries.EXACT)
        match entry.args:
            case None if not exact:
                why = self.look_at_arguments()
            case ArgRule() as rule:
                named = rule.subcommand is not None
                why = check_arguments(rule, self.subject, self.rules)
                why = why or self.look_at_arguments(named=named)
            case str(name) if name != "any":
                found = check_preset(name, self.subject, self.script, self.rules)
                return found if isinstance(found, str) else self._complete(found, entry)
        if why:
            return why
        words = f"{show(entry.pattern)} (allowlist)"
        return self._complete(Match("entry", words, grants=PLAIN_GRANTS), entry)

    def look_at_arguments(self, *, named: bool = False) -> str:
        """Why the arguments need a broader entry; `named`: the entry names sub-commands."""
        if self._code is None:
            self._code = find_code(self.subject, self.rules)
        return self._code or find_destination(self.subject, named=named)

    def explain(self, reasons: list[str]) -> str:
        """Why nothing allows it, in one line."""
        name = show(self.program.name)
        given = list(dict.fromkeys(filter(None, reasons)))[:_MAX_REASONS]
        if not given:
            subject = self.subject.resolved
            more = "" if subject == self.program.resolved else f" ({show(subject)})"
            return f"{name}{more} is not on the allowlist"
        return f"{name} is allowed, but {'; '.join(given)}"

    def suggest(self) -> str:
        """The command to type to allow the call from now on. Empty if that would not help, or would
        allow a file that the agent can change, or all code of an interpreter."""
        if self.called.code:
            return ""
        path = entries.normalize_to(self.subject.resolved, self.subject.real)
        if not entries.is_fixed(path):
            return ""
        # A replaceable program may be allowed by name only through a preset that follows links.
        is_replaceable = safe_bins.is_replaceable(self.subject, self.rules)
        name = base_name(path) if is_replaceable and self.program.by_name else path
        for preset in FOLLOWING if is_replaceable else PRESETS:
            # `look` is for many programs, and narrower than people expect of one.
            if preset != "look" and self.is_allowed_by(AllowlistEntry(name, args=preset)):
                return f"clawkit approvals allowlist add {shlex.quote(name)} --args {preset}"
        if (
            is_interpreter(names_of(self.subject))
            or safe_bins.is_changeable(self.subject.real, self.rules)
            or isinstance(self.try_entry(AllowlistEntry(path)), str)
        ):
            return ""
        return f"clawkit approvals allowlist add {shlex.quote(path)}"

    def _complete(self, match: Match, entry: AllowlistEntry) -> Match:
        grants = match.grants if entry.grants is None else entry.grants
        return structs.replace(
            match,
            entry=entry,
            children=entry.children or match.children,
            grants=expand_grants(grants, self.home),
            depends=match.depends or self._depends(entry),
        )

    def _depends(self, entry: AllowlistEntry) -> str:
        if entry.content or safe_bins.is_replaceable(self.subject, self.rules):
            return f"the program {show(self.subject.resolved, 200)}"
        if self.script and self.rules.may_write(self.script):
            return f"the script {show(self.script, 200)}"
        cwd = self.program.cwd
        is_git = base_name(self.subject.resolved) == "git" and entry.args != "any"
        if is_git and cwd is not None and find_top(cwd) not in ("", cwd):
            return "which repository git finds"
        return ""

    def _check_binding(self, entry: AllowlistEntry) -> str:
        if entry.source == _ALLOW_ALWAYS and not _is_whole(entry):
            return "the permanent approval is incomplete"
        if entry.cwd and entry.cwd != self.program.cwd:
            return f"only in {show(entry.cwd)}"
        if entry.arg_pattern is None:
            return ""
        # A hash covers the whole call, including arguments before a script.
        whole = entry.arg_pattern.startswith("sha256:")
        if not entries.arguments_match(entry.arg_pattern, self.program if whole else self.subject):
            return "not with these arguments"
        return ""

    def _check_file(self, entry: AllowlistEntry) -> str:
        subject, rules = self.subject, self.rules
        # The agent may change a link to the program, as in a project's virtual environment, if the
        # preset checks the target of the link and grants nothing.
        is_bare = entry.args in FOLLOWING and entry.grants in (None, NO_GRANTS)
        is_followed = is_bare and not safe_bins.is_changeable(subject.real, rules)
        own = safe_bins.is_replaceable(subject, rules) and not is_followed
        is_alias = own and not entries.is_same_name(subject.resolved, subject.real)
        if is_alias and not entries.is_literal(entry.pattern):
            return f"{show(subject.resolved)} is a link to {show(subject.real)}"
        if not own and any(safe_bins.is_changeable(each, rules) for each in subject.script):
            return "its interpreter can be changed by the agent"
        given = bool(self.script) and self.script != subject.real and rules.may_write(self.script)
        if entry.content:
            if own and given:
                return "both the program and its script can be changed by the agent"
            bound = self.script if given or (self.script and not own) else subject.real
            return "" if content_of(bound) == entry.content else "the file has changed since then"
        if entry.source == _ALLOW_ALWAYS and (own or given):
            return "the file can be changed by the agent"
        folder = entries.literal_folder(entry.pattern, self.home) if own else ""
        if not own or (folder and rules.may_write(folder)):
            return ""
        # Through a link from elsewhere, any other file could be run.
        if entries.is_literal(entry.pattern) and not safe_bins.is_open_place(
            subject.resolved, rules
        ):
            return ""
        return (
            f"{show(subject.resolved)} can be changed by the agent, so only an entry with its "
            "own path allows it"
        )


def _is_whole(entry: AllowlistEntry) -> bool:
    """Whether an entry created by an approval has everything that its extent requires."""
    match entry.extent:
        case "exact":
            return entry.arg_pattern is not None and entry.arg_pattern.startswith(entries.EXACT)
        case "subcommand":
            return isinstance(entry.args, ArgRule) and bool(entry.args.subcommand)
        case "preset":
            return isinstance(entry.args, str) and entry.args != "any"
    return entry.extent == "program"
