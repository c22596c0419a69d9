"""Whether a program may run without a question, and by which rule."""

from __future__ import annotations

import hashlib
import os
import shlex
import stat
import time
from dataclasses import dataclass, field
from functools import lru_cache
from io import BufferedReader

from msgspec.structs import replace

from clawkit.approvals.allow.arguments import check_arguments, find_steering, show
from clawkit.approvals.allow.patterns import (
    find_entries,
    is_literal,
    is_same_name,
    literal_folder,
    matches_path,
    plain_path,
)
from clawkit.approvals.allow.regex import EXACT, fits_arguments
from clawkit.approvals.allow.safebins import (
    check_safe_bin,
    is_changeable,
    is_open_place,
    is_replaceable,
    is_trusted,
)
from clawkit.approvals.base import Arg, ArgRule, Entry, Match, Miss, Program, Rules
from clawkit.approvals.interpreters import Called, how_called
from clawkit.approvals.operands import base_name
from clawkit.approvals.programs import follow
from clawkit.process.blocked import why_refused

MAX_CONTENT_BYTES = 64 * 1024 * 1024
"""Largest program file whose content is compared."""
SETTLED_NS = 2_000_000_000
"""How long ago a file must have changed last for its times to tell that it is still the same."""

UNTRUSTED_BYTES = 1024 * 1024
"""Largest file that is read whenever its content matters."""

_ALLOW_ALWAYS = "allow-always"
_ABOUT = ("--version", "--help")
_QUESTIONS = 3
"""Reasons that are told for one program; more help nobody."""


def match_program(program: Program, rules: Rules, *, home: str) -> Match | Miss:
    """The rule that allows a program, or why none does."""
    if program.wrapper:
        return _match_wrapper(program, rules)
    call = Call(program, rules, home)
    if miss := call.refuse():
        return miss
    reasons: list[str] = []
    for entry in find_entries(rules.entries, call.subject, home):
        found = call.try_entry(entry)
        if isinstance(found, Match):
            return found
        reasons.append(found)
    safe = check_safe_bin(program, rules)
    if isinstance(safe, Match):
        return safe
    if base_name(program.name) in rules.safe_bins:
        reasons.append(safe)
    if skill := _match_skill(call):
        return skill
    return Miss(call.explain(reasons), call.suggest())


def content_of(path: str) -> str:
    """`sha256:` and what stands for the content of a file; empty when it cannot be told."""
    try:
        with open(path, "rb", opener=_open_waiting_for_nobody) as file:
            info = os.fstat(file.fileno())
            if not stat.S_ISREG(info.st_mode) or info.st_size > MAX_CONTENT_BYTES:
                return ""
            # Who has a file mapped can write without a trace in its times.
            is_small = info.st_size <= UNTRUSTED_BYTES
            if is_small or time.time_ns() - info.st_ctime_ns < SETTLED_NS:
                return _digest(file)
            key = (info.st_dev, info.st_ino, info.st_size, info.st_mtime_ns, info.st_ctime_ns)
            return _digest_once(_Opened(key, file))
    except (OSError, ValueError):
        return ""


@dataclass(frozen=True)
class _Opened:
    identity: tuple[int, ...]
    file: BufferedReader = field(compare=False)


@lru_cache(maxsize=64)
def _digest_once(opened: _Opened) -> str:
    return _digest(opened.file)


def _digest(file: BufferedReader) -> str:
    return f"sha256:{hashlib.file_digest(file, 'sha256').hexdigest()}"


def _open_waiting_for_nobody(path: str, flags: int) -> int:
    return os.open(path, flags | os.O_NONBLOCK | os.O_CLOEXEC)


def _match_wrapper(program: Program, rules: Rules) -> Match | Miss:
    name = show(program.name)
    if not is_trusted(program, rules):
        return Miss(f"{name} starts other programs, and is in no directory of the system")
    return Match("wrapper", f"{name} (starts the next program)", children="named")


def _refuse(program: Program, called: Called, rules: Rules) -> Miss | None:
    """What no rule can allow."""
    if not program.resolved or program.argv[0].glob:
        where = " in PATH" if program.by_name else ""
        return Miss(f"{show(program.name)} was not found{where}")
    if called.reads:
        return Miss(f"{show(program.name)}: {called.reads}", code="reads-code")
    if rules.strict_inline_eval and called.code:
        return Miss(f"{show(program.name)}: {called.code}", code="inline-eval")
    for variable in program.assigned:
        if why := why_refused(variable):
            return Miss(f"{show(program.name)}: the variable {show(variable)} {why}")
    return None


class Call:
    """One call of a program, and what entries are compared with."""

    def __init__(self, program: Program, rules: Rules, home: str) -> None:
        self.program = program
        self.rules = rules
        self.home = home
        self.called = how_called(program)
        self.subject = program
        self.script = ""
        self._danger: str | None = None

    def refuse(self) -> Miss | None:
        """Why no rule can allow it; to be asked before anything else."""
        if miss := _refuse(self.program, self.called, self.rules):
            return miss
        self.script = self._find_script()
        why = self._look_at_script() if self.called.by_shell else ""
        return Miss(why) if why else None

    def _find_script(self) -> str:
        """The file an interpreter is given, links followed; empty when there is none."""
        operand = self.called.script
        if operand is None or self.program.cwd is None:
            return ""
        try:
            return follow(os.path.join(self.program.cwd, operand.text))
        except ValueError:  # a NUL
            return ""

    def _look_at_script(self) -> str:
        """A shell does what its script says, so that is what has to be allowed; why that cannot
        be told."""
        program, operand = self.program, self.called.script
        name = show(program.name)
        if operand is None:
            about = len(program.argv) == 2 and program.argv[1].text in _ABOUT
            return "" if about else f"it is not certain what {name} runs"
        if program.cwd is None:
            return f"which script {name} runs depends on the directory"
        # What is not there, it looks for in PATH.
        if not os.path.isfile(self.script) or not (
            path := plain_path(os.path.join(program.cwd, operand.text), self.script)
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

    def is_allowed_by(self, entry: Entry) -> bool:
        """Whether an entry is about it, and allows it."""
        is_meant = matches_path(entry.pattern, self.subject, self.home)
        return is_meant and isinstance(self.try_entry(entry), Match)

    def try_entry(self, entry: Entry) -> Match | str:
        """The match, or why an entry whose pattern fits does not allow the call."""
        why = self._check_binding(entry) or self._check_file(entry)
        if why:
            return why
        if entry.args != "any" and (why := self._check_surroundings()):
            return why
        exact = entry.arg_pattern is not None and entry.arg_pattern.startswith(EXACT)
        match entry.args:
            case None if not exact:
                why = self.find_danger()
            case ArgRule() as rule:
                why = check_arguments(rule, self.subject, self.rules) or self.find_danger()
            case str(name) if name != "any":
                return self._try_preset(entry, name)
        return why or self._found(entry)

    def find_danger(self) -> str:
        """What an argument makes of the program; looked for once."""
        if self._danger is None:
            from clawkit.approvals.allow.dangers import find_danger

            why = find_danger(self.subject, self.rules)
            self._danger = why.removeprefix(f"{base_name(self.subject.name)}: ")
        return self._danger

    def explain(self, reasons: list[str]) -> str:
        """Why nothing allows it, in one line."""
        name = show(self.program.name)
        told = list(dict.fromkeys(reasons))[:_QUESTIONS]
        if not told:
            subject = self.subject.resolved
            more = "" if subject == self.program.resolved else f" ({show(subject)})"
            return f"{name}{more} is not on the allowlist"
        return f"{name} is allowed, but {'; '.join(told)}"

    def suggest(self) -> str:
        """What to type to have the call allowed from now on; empty when that would not do, or
        would allow whatever somebody makes of it."""
        path = plain_path(self.subject.resolved, self.subject.real)
        changes = self.called.code or is_changeable(self.subject.real, self.rules)
        if changes or not is_literal(path) or isinstance(self.try_entry(Entry(path)), str):
            return ""
        return f"clawkit approvals allowlist add {shlex.quote(path)}"

    def _found(self, entry: Entry) -> Match:
        return Match("entry", f"{show(entry.pattern)} (allowlist)", entry, entry.children or "any")

    def _try_preset(self, entry: Entry, name: str) -> Match | str:
        from clawkit.approvals.allow import presets

        found = presets.check(name, self.subject, self.rules)
        if isinstance(found, str):
            return found
        return found._replace(entry=entry, children=entry.children or found.children)

    def _check_surroundings(self) -> str:
        if variable := find_steering(self.program.assigned):
            return f"the variable {show(variable)} could change what it does"
        return self.program.notes[0] if self.program.notes else ""

    def _check_binding(self, entry: Entry) -> str:
        """What a lasting yes was given for, and the arguments an entry names."""
        if entry.source == _ALLOW_ALWAYS and not _is_whole(entry):
            return "the yes that was given for good does not say to what"
        if entry.cwd and entry.cwd != self.program.cwd:
            return f"only in {show(entry.cwd)}"
        if entry.arg_pattern is None:
            return ""
        # A hash is that of the whole call, also of what comes before a script.
        whole = entry.arg_pattern.startswith("sha256:")
        if not fits_arguments(entry.arg_pattern, self.program if whole else self.subject):
            return "not with these arguments"
        return ""

    def _check_file(self, entry: Entry) -> str:
        """A program that whoever runs it can change is another one at any time."""
        subject, rules = self.subject, self.rules
        own = is_replaceable(subject, rules)
        if (
            own
            and not is_literal(entry.pattern)
            and not is_same_name(subject.resolved, subject.real)
        ):
            return f"{show(subject.resolved)} is a link to {show(subject.real)}"
        if not own and any(is_changeable(each, rules) for each in subject.script):
            return "its interpreter can be changed by whoever runs it"
        given = bool(self.script) and self.script != subject.real and rules.may_write(self.script)
        if entry.content:
            if own and given:
                return "both the program and its script can be changed by whoever runs it"
            bound = self.script if given or (self.script and not own) else subject.real
            return "" if content_of(bound) == entry.content else "the file has changed since"
        if entry.source == _ALLOW_ALWAYS and (own or given):
            return "the file can be changed by whoever runs it"
        if own and not self._is_explicit(entry.pattern):
            return (
                f"{show(subject.resolved)} can be changed by whoever runs it, so only its own path "
                "allows it"
            )
        return ""

    def _is_explicit(self, pattern: str) -> bool:
        """Whether the operator pointed at a file that can be changed, or at its directory."""
        folder = literal_folder(pattern, self.home)
        if folder and self.rules.may_write(folder):
            return True
        # Through a link from elsewhere, another file would do as well.
        return is_literal(pattern) and not is_open_place(self.subject.resolved, self.rules)


def _is_whole(entry: Entry) -> bool:
    """Whether an entry that a person's answer made says how far the answer goes."""
    match entry.extent:
        case "exact":
            return entry.arg_pattern is not None and entry.arg_pattern.startswith(EXACT)
        case "subcommand":
            return isinstance(entry.args, ArgRule) and bool(entry.args.subcommand)
    return entry.extent == "program"


def _match_skill(call: Call) -> Match | None:
    """A program that an installed skill brought along."""
    program, rules = call.program, call.rules
    path = rules.skills.get(program.name) if program.by_name else None
    if path is None or path != program.resolved or call.subject is not program:
        return None
    if isinstance(call.try_entry(Entry("*")), str):
        return None
    return Match("skill", f"{show(program.name)} (skill)")
