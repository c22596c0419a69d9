"""One simple command: the programs it starts, or the builtin it runs.

Builtins and assignments are judged by their words alone. Anything not known to be harmless is a
`Doubt`.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import cycle
from typing import NamedTuple

from clawkit.approvals.expansion import ExpansionContext, FoundProgram, ProgramFinder, quote_always
from clawkit.approvals.launchers import Carried, Inner, Opaque, look_through, read_carried
from clawkit.approvals.options import words_of
from clawkit.approvals.shell_words import RESERVED, Simple, Tilde, is_special, quote
from clawkit.approvals.types import Arg, Doubt, Program, Segment
from clawkit.process.env_blocklist import why_refused
from clawkit.text import one_line

BUILTINS = words_of(
    """. : [ alias bg bind break builtin caller cd command compgen complete compopt continue declare
    dirs disown echo enable eval exec exit export false fc fg getopts hash help history jobs kill
    let local logout mapfile popd printf pushd pwd read readarray readonly return set shift shopt
    source suspend test times trap true type typeset ulimit umask unalias unset wait"""
)
OWN_NAMES = RESERVED | BUILTINS
"""Names that bash does not look up in PATH."""
CARRIERS = frozenset(("command", "exec"))

_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
# UTF-8 only: the shell decodes the rest of a command by the current locale.
_LOCALE = re.compile(
    r"|(?:C|POSIX|[a-z]{2,3}(?:_[A-Z]{2})?(?=\.))(?:\.(?:UTF-8|utf8))?(?:@[a-z]+)?"
)

_TEST_UNARY = words_of("-b -c -d -e -f -g -h -k -n -p -r -s -t -u -w -x -z -G -L -N -O -S")
_TEST_TEXT = frozenset(("=", "==", "!=", "<", ">", "-nt", "-ot", "-ef"))
_TEST_NUMBER = words_of("-eq -ne -lt -le -gt -ge")
_TEST_NEVER = frozenset(("-v", "-R", "-a", "-o", "(", ")"))
_INTEGER = re.compile(r"[+-]?[0-9]{1,18}")

_CONVERSION = re.compile(r"%(?:%|[-+ 0#']{0,5}[0-9]{0,4}(?:\.[0-9]{0,4})?([a-zA-Z]))")
_OF_NUMBER = frozenset("aAdeEfFgGiouxX")
_CONVERSIONS = _OF_NUMBER | frozenset("bcqs")
_NUMBER = re.compile(r"[+-]?(?:0[xX][0-9a-fA-F]{1,16}|[0-9]{1,18}(?:\.[0-9]{0,18})?)?")

_SET_LETTERS = re.compile(r"[-+](?:[eu]+o?|o)")
_SET_OPTIONS = frozenset(("errexit", "nounset", "pipefail"))


def check_name(name: str, value: str, at: int, *, in_shell: bool) -> None:
    """Raise `Doubt` unless a command may set this variable. `in_shell`: it is set in the shell
    itself, not only for the programs it starts."""
    upper = name.upper()
    why = ""
    if not _NAME.fullmatch(name):
        why = "is not a valid variable name"
    elif upper.startswith("LC_") or upper in ("LANG", "LANGUAGE"):
        if in_shell:
            why = "changes how the shell reads a command; set it in front of a program"
        elif not _LOCALE.fullmatch(value):
            why = "may only name a language in UTF-8, such as C.UTF-8"
    elif is_special(upper):
        why = "is special to the shell"
    else:
        why = why_refused(name)
    if why:
        raise Doubt(f"the variable {one_line(name, 40)!r} {why}", at, "assignment")


def check_builtin(name: str, args: Sequence[Arg], at: int) -> None:
    """Raise `Doubt` unless a builtin is harmless with these arguments."""
    if name in _HARMLESS:
        return
    if (check := _CHECKS.get(name)) is None:
        raise Doubt(f"the effect of {name!r} on the shell is not tracked", at, "builtin")
    _all_literal(name, args)
    if not check([arg.text for arg in args]):
        raise Doubt(f"{name} is not understood with these arguments", at, "builtin")


def read_exports(args: Sequence[Arg], at: int) -> list[tuple[str, str]]:
    """The variables that `export` sets; the caller checks their names."""
    _all_literal("export", args)
    pairs = []
    for arg in args:
        name, equals, value = arg.text.partition("=")
        # The shell may expand ~ here.
        if not equals or value.startswith("~") or ":~" in value:
            raise Doubt("export is only understood as export NAME=value", arg.at, "builtin")
        pairs.append((name, value))
    if not pairs:
        raise Doubt("export without a variable lists all of them", at, "builtin")
    return pairs


def read_cd(args: Sequence[Arg], at: int) -> Arg:
    """The target directory of `cd`."""
    _all_literal("cd", args)
    match args:
        case [Arg(text="--"), Arg(text) as target] if text not in ("", "-"):
            return target
        case [Arg(text) as target] if text and not text.startswith("-"):
            return target
    raise Doubt("cd is only understood with one directory", at, "builtin")


def _all_literal(name: str, args: Sequence[Arg]) -> None:
    for arg in args:
        if arg.glob:
            raise Doubt(f"a pattern could expand to an option of {name}", arg.at, "builtin")


def _is_plain_set(words: list[str]) -> bool:
    rest = iter(words)
    return bool(words) and all(
        _SET_LETTERS.fullmatch(letters)
        # The option is the next word.
        and (not letters.endswith("o") or next(rest, "") in _SET_OPTIONS)
        for letters in rest
    )


def _is_plain_printf(words: list[str]) -> bool:
    if words[:1] == ["--"]:
        words = words[1:]
    elif words and words[0].startswith("-"):
        return False  # options can set variables
    if not words:
        return False
    letters = [letter for letter in _CONVERSION.findall(words[0]) if letter]
    if "%" in _CONVERSION.sub("", words[0]) or not _CONVERSIONS.issuperset(letters):
        return False
    # Some shells evaluate numeric arguments as arithmetic, which can run commands.
    return all(
        letter not in _OF_NUMBER or _NUMBER.fullmatch(text)
        for letter, text in zip(cycle(letters or "s"), words[1:])
    )


def _is_plain_test(words: list[str]) -> bool:
    """Whether it is a single test without side effects. What counts as an operator depends on the
    number of words, which POSIX defines for up to four."""
    if not _TEST_NEVER.isdisjoint(words):
        return False
    match words:
        case [] | [_]:
            return True
        case [left, operator, right] if operator in _TEST_NUMBER:
            return all(_INTEGER.fullmatch(each) for each in (left, right))
        case [_, operator, _] if operator in _TEST_TEXT:
            return True
        case ["!", *rest] if len(rest) <= 3:
            return _is_plain_test(rest)
        case [operator, _]:
            return operator in _TEST_UNARY
    return False


# They only print their arguments, or ignore them.
_HARMLESS = frozenset((":", "true", "false", "echo"))
_PWD = re.compile("-[LP]+")
_EXIT = re.compile("[0-9]|[1-9][0-9]|1[0-9][0-9]|2[0-4][0-9]|25[0-5]")
_CHECKS: dict[str, Callable[[list[str]], bool]] = {
    "pwd": lambda words: len(words) <= 2 and all(map(_PWD.fullmatch, words)),
    "exit": lambda words: len(words) <= 1 and all(map(_EXIT.fullmatch, words)),
    "printf": _is_plain_printf,
    "test": _is_plain_test,
    "[": lambda words: words[-1:] == ["]"] and _is_plain_test(words[:-1]),
    "set": _is_plain_set,
    "command": lambda words: (
        len(words) > 1 and words[0] == "-v" and not any(word[:1] == "-" for word in words[1:])
    ),
}

MAX_STEPS = 500
"""Limit for analyzed commands, including those of expanded loops."""
MAX_WRAPPERS = 4

UNREACHABLE = ""
"""The directory after a command that never returns this way."""


class CwdAfter(NamedTuple):
    """The directory in which a command leaves the shell; None if not certain."""

    success: str | None
    failure: str | None

    def merged(self, other: CwdAfter) -> CwdAfter:
        """The result after one of two alternatives."""
        return CwdAfter(*map(merge_cwd, self, other))


def merge_cwd(first: str | None, other: str | None) -> str | None:
    """The directory after one of two alternatives."""
    if first == UNREACHABLE:
        return other
    if other == UNREACHABLE:
        return first
    return first if first == other else None


class ShellState(NamedTuple):
    """The state of the shell when a command starts."""

    cwd: str | None
    piped: bool
    context: ExpansionContext

    def moved(self, cwd: str | None) -> ShellState:
        return self if cwd == self.cwd else self._replace(cwd=cwd or None)


@dataclass(slots=True)
class Shared:
    """State shared by all parts of one command, including texts it passes to other shells."""

    env: Mapping[str, str]
    finder: ProgramFinder
    assigned: dict[str, None]
    """Variables set so far, which later programs get."""
    segments: list[Segment] = field(default_factory=list)
    steps: int = 0
    nested: int = 0
    inner_chars: int = 0

    def step(self, at: int) -> None:
        """Count a command. Raises `Doubt` after too many."""
        self.steps += 1
        if self.steps > MAX_STEPS:
            raise Doubt(f"it has more than {MAX_STEPS:,} commands", at, "long")


@dataclass(slots=True)
class SimpleCommand:
    """A simple command with expanded words, and what is known about it."""

    node: Simple
    state: ShellState
    argv: tuple[Arg, ...]
    shown: list[str]
    """The words for the shell; program names are replaced by absolute paths."""
    assigned: Sequence[tuple[str, str]]
    may_fail: bool
    """Whether a failing redirection could keep it from running."""
    programs: list[Program] = field(default_factory=list)
    builtin: str = ""
    carried: Carried | None = None
    text: int = 0
    """Index of the word that is code for another shell; 0 if there is none."""

    def examine(self, shared: Shared) -> CwdAfter:
        """Find the programs it starts, and the directory afterwards. Raises `Doubt`."""
        ends = CwdAfter(self.state.cwd, self.state.cwd)
        first = self._start(shared) if self.argv else 0
        in_shell = not self.programs
        for name, value in self.assigned:
            self._check_variable(name, value, self.node.start, in_shell=in_shell)
            if in_shell or self.text:
                shared.assigned[name] = None
        if self.builtin:
            self.shown[first] = f"\\{self.builtin}"
            ends = self._run_builtin(first, shared)
        return ends

    def _start(self, shared: Shared) -> int:
        """Follow wrappers; returns the index of the word that finally runs."""
        index = 0
        by_shell = True
        for _ in range(MAX_WRAPPERS + 1):
            name = self._name(index)
            found = None
            if by_shell and name in OWN_NAMES:
                # `command -v` runs nothing.
                after = [arg.text for arg in self.argv[index + 1 : index + 2]]
                asks = name == "command" and after == ["-v"]
                if name not in CARRIERS or asks:
                    self.builtin = name
                    return index
                names = frozenset((name,))
                self.shown[index] = f"\\{name}"
            else:
                found = shared.finder.program(name, self.state.cwd, self.node.words[index].start)
                names = found.names(name)
                self.shown[index] = quote(found.resolved) if found.resolved else quote_always(name)
            length = self._look_inside(names, index)
            if found is not None and self.carried is not None:
                self._carry(found, self.carried, shared)
            elif found is not None:
                argv = self.argv[index : index + length] if length else self.argv[index:]
                self._add(found, argv, shared, wrapper=bool(length))
            elif not length:
                at = self.node.words[index].start
                raise Doubt(f"{name} is not understood in this form", at, "builtin")
            if not length or self.text:
                return index
            # Programs cannot run builtins, and exec needs a program.
            by_shell = name == "command" and found is None
            index += length
        raise Doubt(f"more than {MAX_WRAPPERS} nested wrapper programs", self.node.start, "wrapper")

    def _look_inside(self, names: frozenset[str], index: int) -> int:
        inner = look_through(names, self.argv[index:])
        match inner:
            case Opaque():
                self.carried = read_carried(self.argv[index:])
                if self.carried is not None:
                    return 0
                name = one_line(self.argv[index].text, 40)
                raise Doubt(f"{name}: {inner.reason}", self.node.words[index].start, inner.code)
            case Inner(at, is_text):
                self.text = index + at if is_text else 0
                return at + is_text
        return 0

    def _name(self, index: int) -> str:
        """The name of the program at `index`, which must be literal."""
        arg = self.argv[index]
        word = self.node.words[index]
        if arg.glob or isinstance(word.parts[0], Tilde):
            why = "the program depends on file names or the home directory; write its name"
            raise Doubt(why, word.start, "dynamic-program")
        if not arg.text:
            raise Doubt("the program name is empty", word.start, "dynamic-program")
        if arg.text.startswith("~") and self.argv[index - 1].text == "exec":
            raise Doubt("exec expands ~ even if quoted", word.start, "tilde")
        if arg.text.startswith("%"):
            raise Doubt("a name that starts with % is a shell job", word.start, "builtin")
        return arg.text

    def _carry(self, program: FoundProgram, carried: Carried, shared: Shared) -> None:
        outer, inner = carried
        self._add(program, outer, shared, wrapper=outer[0].text.endswith("xargs"))
        at = next(at for at, arg in enumerate(self.argv) if arg is inner[0])
        name, start = inner[0].text, self.node.words[at].start
        other = shared.finder.program(name, self.state.cwd, start)
        if look_through(other.names(name), inner) is not None:
            raise Doubt(f"{name} resolves to a program of another kind", start, "carrier")
        self.shown[at] = quote(other.resolved) if other.resolved else quote_always(name)
        self._add(other, inner, shared)

    def _add(
        self, program: FoundProgram, argv: tuple[Arg, ...], shared: Shared, *, wrapper: bool = False
    ) -> None:
        assigned = tuple({**shared.assigned, **dict.fromkeys(name for name, _ in self.assigned)})
        cwd, piped = self.state.cwd, self.state.piped
        resolved, real, script = program
        self.programs.append(
            Program(argv, resolved, real, cwd, assigned, piped, script, wrapper=wrapper)
        )

    def _run_builtin(self, first: int, shared: Shared) -> CwdAfter:
        at = self.node.words[first].start
        args = self.argv[first + 1 :]
        cwd = self.state.cwd
        match self.builtin:
            case "cd":
                return self._cd(first, shared, at)
            case "export":
                for name, value in read_exports(args, at):
                    self._check_variable(name, value, at, in_shell=False)
                    shared.assigned[name] = None
            case name:
                check_builtin(name, args, at)
                if name == "exit" and not self.may_fail:
                    cwd = UNREACHABLE
        return CwdAfter(cwd, cwd)

    def _cd(self, first: int, shared: Shared, at: int) -> CwdAfter:
        target = read_cd(self.argv[first + 1 :], at)
        if "CDPATH" in shared.env or "CDPATH" in shared.assigned:
            raise Doubt("CDPATH is set, so cd may go elsewhere", at, "builtin")
        cwd = self.state.cwd
        place, may_fail = shared.finder.directory(target.text, cwd, at)
        if may_fail and ".." in target.text.split("/"):
            raise Doubt("cd goes up from a directory that may not exist", at, "cwd")
        self.shown[first + 1 :] = ["--", quote(place or target.text)]
        return CwdAfter(place, cwd if may_fail or self.may_fail else UNREACHABLE)

    def _check_variable(self, name: str, value: str, at: int, *, in_shell: bool) -> None:
        if name in self.state.context.variables:
            raise Doubt(f"{name!r} is a loop variable; choose another name", at, "assignment")
        check_name(name, value, at, in_shell=in_shell)
