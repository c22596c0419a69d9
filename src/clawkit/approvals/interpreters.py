"""Programs that run code: whether a call brings the code along, and which script it runs."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import NamedTuple

from clawkit.approvals.base import Arg, Program
from clawkit.approvals.carriers import FIND_ACTIONS
from clawkit.approvals.dialects import read_dialect
from clawkit.approvals.filters import read_filter
from clawkit.approvals.languages import (
    EXACT,
    INTERPRETERS,
    IS_INPUT,
    PATTERN,
    READS,
    SHELLS,
    UNSURE,
    Call,
    Walk,
    family,
    is_input,
    languages_of,
    names_of,
)
from clawkit.approvals.nodejs import read_node
from clawkit.approvals.operands import may_be

_ABOUT = ("--version", "--help")


class Called(NamedTuple):
    """How a program was called, as far as it runs code."""

    code: str = ""
    """Why the arguments carry code, or could; empty when they do not."""
    reads: str = ""
    """Why it takes code from its standard input, or could; empty when it does not."""
    script: Arg | None = None
    """The script that it is told to run; None when that cannot be told."""
    by_shell: bool = False
    """Whether it is a shell."""


_NO_CODE = Called()


def is_interpreter(names: Collection[str]) -> bool:
    """Whether a program, by any of its base names, runs code in a language other than a shell's."""
    return any(family(name) in INTERPRETERS for name in names)


def is_shell(names: Collection[str]) -> bool:
    """Whether a program, by any of its base names, is a shell."""
    return any(family(name) in SHELLS for name in names)


def how_called(program: Program) -> Called:
    """What the names and the arguments of a program say about the code that it runs."""
    languages = languages_of(names_of(program))
    if not languages:
        return _NO_CODE
    by_shell = not languages.isdisjoint(SHELLS)
    if languages <= SHELLS:
        # All of them take a script in the same way, and `sh` is mostly a link to another one.
        languages = frozenset((min(languages),))
    calls = [_read(language, program.argv, program.cwd) for language in sorted(languages)]
    return Called(
        next((call.code for call in calls if call.code), ""),
        next((call.reads for call in calls if call.reads), ""),
        _script(program, calls[0]) if len(calls) == 1 else None,
        by_shell,
    )


def inline_code(program: Program) -> str:
    """Why the arguments of a program carry code, or could; empty when they do not."""
    return how_called(program).code


def script_operand(program: Program) -> Arg | None:
    """The script that an interpreter or shell is told to run; None when that cannot be told."""
    return how_called(program).script


def _script(program: Program, call: Call) -> Arg | None:
    if not call.script or call.loads or call.reads or call.code:
        return None
    script = program.argv[call.script]
    return None if script.glob or not script.text else script


def _read(language: str, argv: Sequence[Arg], cwd: str | None) -> Call:
    if language in EXACT:
        return Walk(language, argv, cwd).call()
    if language in SHELLS:
        return _read_shell(argv, cwd)
    match language:
        case "node":
            return read_node(argv, cwd)
        case "awk" | "sed" | "make":
            return read_filter(language, argv, cwd)
        case "find":
            starts = any(may_be(arg, FIND_ACTIONS) for arg in argv[1:])
            return Call("it starts programs that its arguments name" if starts else "")
        case "xargs":
            return Call("it starts a program with arguments from its standard input")
        case "ghc":
            return Call(read_dialect(language, argv, cwd).code)
    return read_dialect(language, argv, cwd)


def _read_shell(argv: Sequence[Arg], cwd: str | None) -> Call:
    """A shell without options; the text of `-c` is looked at as a command, not here."""
    if len(argv) == 1:
        return Call(reads=READS)
    first = argv[1]
    if first.glob:
        return Call(reads=PATTERN)
    if first.text[:1] in ("-", "+"):
        told = first.text == "-c" or (first.text in _ABOUT and len(argv) == 2)
        return Call(reads="" if told else UNSURE)
    return Call(reads=IS_INPUT if is_input(first.text, cwd) else "", script=1)
