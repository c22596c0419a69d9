"""awk, sed and make: where they find their program."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Literal, NamedTuple

from clawkit.approvals.base import Arg
from clawkit.approvals.languages import BRINGS, IS_INPUT, PATTERN, UNSURE, Call, is_input
from clawkit.approvals.operands import may_be_option

Sort = Literal["flag", "value", "attached", "code", "file", "include", "about"]
"""What an option is: without a value, with one, with one that must be in the same word; its value
is code, names a file with the program, or one with a part of it; or it only tells something."""


class Grammar(NamedTuple):
    """The options of one of them."""

    letters: Mapping[str, Sort]
    long: Mapping[str, Sort]
    permutes: bool
    """Whether options count behind operands too."""
    program: bool
    """Whether the first operand is the program, unless a file is."""


def _table(*rows: tuple[Sort, str]) -> dict[str, Sort]:
    return {name: sort for sort, names in rows for name in names.split()}


GRAMMARS: dict[str, Grammar] = {
    "awk": Grammar(
        letters=_table(
            ("flag", "b c C g k M n N O P r s S t"),
            ("value", "F v l"),
            ("attached", "d D I L o p"),
            ("code", "e"),
            ("file", "f E"),
            ("include", "i"),
            ("about", "h V"),
        ),
        long=_table(
            ("flag", "bignum characters-as-bytes csv gen-pot lint-old non-decimal-data optimize"),
            ("flag", "no-optimize posix re-interval sandbox traditional use-lc-numeric"),
            ("value", "assign field-separator load"),
            ("attached", "debug dump-variables lint pretty-print profile"),
            ("code", "source"),
            ("file", "file exec"),
            ("include", "include"),
            ("about", "help version copyright"),
        ),
        permutes=False,
        program=True,
    ),
    "sed": Grammar(
        letters=_table(
            ("flag", "n r E s u z b"),
            ("value", "l"),
            ("attached", "i I"),
            ("code", "e"),
            ("file", "f"),
            ("about", "h"),
        ),
        long=_table(
            ("flag", "binary debug follow-symlinks null-data posix quiet regexp-extended sandbox"),
            ("flag", "separate silent unbuffered zero-terminated"),
            ("value", "line-length"),
            ("attached", "in-place"),
            ("code", "expression"),
            ("file", "file"),
            ("about", "help version"),
        ),
        permutes=True,
        program=True,
    ),
    "make": Grammar(
        letters=_table(
            ("flag", "b B d e i k L m n p q r R s S t w"),
            ("value", "C I o W"),
            ("attached", "j l O"),
            ("code", "E"),
            ("file", "f"),
            ("about", "h v"),
        ),
        long=_table(
            ("flag", "always-make check-symlink-times dry-run environment-overrides ignore-errors"),
            ("flag", "just-print keep-going no-builtin-rules no-builtin-variables no-keep-going"),
            ("flag", "no-print-directory no-silent print-data-base print-directory question quiet"),
            ("flag", "recon silent stop touch trace warn-undefined-variables"),
            ("value", "assume-new assume-old directory include-dir new-file old-file what-if"),
            ("attached", "debug jobs jobserver-style load-average max-load output-sync shuffle"),
            ("code", "eval"),
            ("file", "file makefile"),
            ("about", "help version"),
        ),
        permutes=True,
        program=False,
    ),
}
# make runs `X!=command`, and what some variables say.
_ASSIGNS_CODE = re.compile(
    r"\s*(?:[^\s=]*!|(?:(?:GNU)?MAKEFLAGS|MAKEFILES|\.?SHELL(?:FLAGS)?)\s*[:+?]*)=", re.ASCII
)


def read_filter(language: str, argv: Sequence[Arg], cwd: str | None) -> Call:
    """Whether the program is among the arguments, or is the standard input."""
    walk = _Walk(GRAMMARS[language], argv, cwd)
    try:
        return walk.call()
    except LookupError:
        return Call(UNSURE, UNSURE)


class _Walk:
    __slots__ = ("argv", "cwd", "found", "from_file", "grammar", "index")

    def __init__(self, grammar: Grammar, argv: Sequence[Arg], cwd: str | None) -> None:
        self.grammar = grammar
        self.argv = argv
        self.cwd = cwd
        self.index = 1
        self.found = Call()
        self.from_file = False

    def call(self) -> Call:
        """How it was called. Raises `LookupError` when that cannot be told."""
        while self.index < len(self.argv):
            arg = self.argv[self.index]
            if arg.glob and may_be_option(arg):
                return Call(PATTERN, PATTERN)
            self.index += 1
            if arg.text == "--":
                for operand in self.argv[self.index :]:
                    self._operand(operand)
                break
            if arg.text == "-" or not may_be_option(arg):
                self._operand(arg)
                if not self.grammar.permutes:
                    return self.found
            elif self._option(arg.text):
                return self.found
        if self.grammar.program and not self.from_file:
            self.found.code = BRINGS
        return self.found

    def _operand(self, arg: Arg) -> None:
        if self.grammar.program:
            if not self.from_file:
                self.found.code = BRINGS
        elif arg.glob or "$" in arg.text or _ASSIGNS_CODE.match(arg.text):
            self.found.code = BRINGS

    def _option(self, text: str) -> bool:
        """Take one word of options; says whether it only tells something."""
        if text.startswith("--"):
            name, attached, value = text[2:].partition("=")
            return self._take(self._resolve(name), value if attached else None)
        for place, letter in enumerate(text[1:], 2):
            sort = self.grammar.letters[letter]
            if sort != "flag":
                return self._take(sort, text[place:] or None)
        return False

    def _resolve(self, name: str) -> Sort:
        """What a long option, or a short form of one, is."""
        long = self.grammar.long
        if name in long:
            return long[name]
        sorts = {sort for each, sort in long.items() if each.startswith(name)}
        if len(sorts) != 1:
            raise LookupError(name)
        return sorts.pop()

    def _take(self, sort: Sort, value: str | None) -> bool:
        if sort in ("flag", "attached"):
            return False
        if sort == "about":
            return True
        if value is None:
            arg = self.argv[self.index]
            if arg.glob:
                raise LookupError(arg.text)
            value = arg.text
            self.index += 1
        if sort == "code":
            self.found.code = BRINGS
        elif sort in ("file", "include"):
            self.from_file |= sort == "file"
            if not self.grammar.program:
                self.found.code = "its rules come from a file that the arguments name"
            if is_input(value, self.cwd):
                self.found.reads = IS_INPUT
        return False
