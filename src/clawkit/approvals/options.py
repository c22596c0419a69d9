"""Arguments of programs: one table-driven option parser, tables of flags and sub-commands to look
for, and what an argument could turn out to be.

The parser reads options as getopt does; what is not in its table is an error. What the other
tables do not list passes.
"""

from __future__ import annotations

import posixpath
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from fnmatch import fnmatchcase
from typing import NamedTuple

from clawkit.approvals.types import Arg

FIND_ACTIONS = ("-exec", "-execdir", "-ok", "-okdir")
# In a pattern, characters whose meaning depends on how the pattern is written down.
_UNSURE = re.compile(r"[^\w.,:/~*?=%-]", re.ASCII)
_DEVICES = frozenset({"dev", "proc"})
_STARS = re.compile(r"\*+")


def words_of(text: str) -> frozenset[str]:
    """The words of a table."""
    return frozenset(text.split())


def base_name(path: str) -> str:
    """What comes after the last slash."""
    return path.rpartition("/")[2]


def may_be_option(arg: Arg) -> bool:
    """Whether an argument begins with a dash, or is a pattern that could."""
    first = arg.text[:1]
    if arg.glob:
        return not (first.isalnum() or first in ("_", ".", "/", "~"))
    return first == "-"


def may_be(arg: Arg, words: Iterable[str]) -> bool:
    """Whether an argument is one of these words, or a pattern that could name such a file."""
    if not arg.glob or _UNSURE.search(arg.text):
        return arg.glob or arg.text in words
    pattern = _STARS.sub("*", arg.text)
    letters = set(pattern) - {"*", "?"}
    return any(letters.issubset(word) and fnmatchcase(word, pattern) for word in words)


def is_device(text: str, cwd: str | None = None) -> bool:
    """Whether a path leads below /dev or /proc, where a file can be the standard input."""
    start = cwd or ""
    if not any(name in text or name in start for name in _DEVICES):
        return False
    path = posixpath.normpath(posixpath.join(start, text))
    parts = path.lstrip("/").split("/")
    if path.startswith("/"):
        return parts[0] in _DEVICES and parts[:2] != ["dev", "shm"]
    # From an unknown directory, enough steps up lead anywhere.
    return parts[0] == ".." and not _DEVICES.isdisjoint(parts)


OPERAND = "operand"
FLAG = "flag"
ATTACHED = "attached"
"""The value is the rest of the word, even if that is empty."""
DENIED = "denied"
_WITHOUT_VALUE = frozenset({FLAG, DENIED, "about", "runs"})
_BLANK = re.compile(r"\s")

Table = Mapping[str, str]
"""The sort of each option: by letter (`-c`), by name (`--eval`), and with a value (`--eval=`)."""


class OptionError(LookupError):
    """Options that a table does not have, or that are incomplete."""

    def __init__(self, name: str, problem: str = "") -> None:
        super().__init__(name)
        self.name = name
        self.problem = problem


class Option(NamedTuple):
    """An option or an operand."""

    sort: str
    value: str = ""
    at: int = 0
    """Index of the word that holds it, or its value."""
    name: str = ""


def make_table(**names: str) -> Table:
    """A table from the names of each sort; letters of short options may be joined, without a dash:
    `cds --count`. A long option that takes a value is known in both forms, one of the sort
    `attached` only as it is written (`--in-place=`), and one of the sort `maybe` is a flag that
    may have a value behind `=`."""
    table: dict[str, str] = {}
    for sort, words in names.items():
        has_value = sort not in _WITHOUT_VALUE and sort != ATTACHED
        for word in words.split():
            for name in (word,) if word.startswith("-") else (f"-{letter}" for letter in word):
                table[name] = FLAG if sort == "maybe" else sort
                if has_value and name.startswith("--"):
                    table[f"{name}="] = "value" if sort == "maybe" else sort
    return table


def read_options(
    argv: Sequence[Arg],
    table: Table,
    *,
    groups: bool = True,
    permutes: bool = False,
    numbers: bool = False,
) -> Iterator[Option]:
    """The options and operands of a call, in order.

    `groups` is for programs that take `-ab` for `-a -b`, `permutes` for those that take options
    behind operands too, `numbers` for those that take `-5` for a number. Raises `OptionError` for
    an unknown option, a missing value, and a pattern where an option or a value could be.
    """
    index, only_operands = 1, False
    while index < len(argv):
        arg = argv[index]
        if only_operands or not may_be_option(arg) or (arg.text == "-" and not arg.glob):
            yield Option(OPERAND, arg.text, index)
            only_operands |= not permutes
        elif arg.glob:
            raise OptionError(arg.text, "is a pattern for files")
        elif arg.text == "--":
            only_operands = True
        elif numbers and arg.text[1:].isascii() and arg.text[1:].isdigit():
            yield Option(FLAG, "", index, arg.text)
        else:
            for name, sort, value in _read_word(arg.text, table, groups=groups):
                if value is None:
                    index += 1
                    if index == len(argv):
                        raise OptionError(name, "has no value")
                    if argv[index].glob:
                        raise OptionError(argv[index].text, "is a pattern for files")
                    value = argv[index].text
                yield Option(sort, value, index, name)
        index += 1


def _read_word(text: str, table: Table, *, groups: bool) -> Iterator[tuple[str, str, str | None]]:
    """The options of one word: name, sort, and value; None for a value that is the next word."""
    name, equals, value = text.partition("=")
    if text.startswith("--") or not groups or (len(name) > 2 and name in table):
        sort = table.get(name + equals)
        if sort is None:
            raise OptionError(name, "takes no value" if name in table else "")
        yield name, sort, value if equals or sort in _WITHOUT_VALUE else None
        return
    for place in range(1, len(text)):
        name, rest = f"-{text[place]}", text[place + 1 :]
        sort = table.get(name)
        if sort is None:
            raise OptionError(name)
        if sort not in _WITHOUT_VALUE:
            # After a blank, perl goes on with further options in the same word.
            if sort in (ATTACHED, "loads") and _BLANK.search(rest):
                raise OptionError(name)
            yield name, sort, rest if rest or sort == ATTACHED else None
            return
        yield name, sort, ""


ALWAYS = "*"


class Row(NamedTuple):
    """What a table says of a program, or of one of its sub-commands."""

    long: tuple[str, ...] = ()
    """`--output`, and every short form of it."""
    dashed: tuple[str, ...] = ()
    """`-exec`, and what begins like it."""
    letters: frozenset[str] = frozenset()
    """Letters of `-x`, alone or among others."""
    words: frozenset[str] = frozenset()
    """Sub-commands; `*` for every call."""


CommandTable = Mapping[str, Row]
"""Rows by program and sub-commands: `git`, `git bisect`."""


class Hit(NamedTuple):
    """What of a call is in a table."""

    what: str
    """The flag or the sub-command; `*` when it is the program itself."""
    rest: tuple[Arg, ...]
    """The arguments behind a sub-command, all of them for a flag."""


def read_table(rows: Mapping[str, str]) -> CommandTable:
    """Rows as people write them: `{"tar,gtar": "-I --to-command", "git bisect": "run"}`."""
    found: dict[str, Row] = {}
    for key, text in rows.items():
        given = text.split()
        short = [each for each in given if each[0] == "-" and each[:2] != "--"]
        row = Row(
            tuple(each for each in given if each[:2] == "--"),
            tuple(each for each in short if len(each) > 2),
            frozenset(each[1] for each in short if len(each) == 2),
            frozenset(each for each in given if each[0] != "-"),
        )
        programs, _, subcommand = key.partition(" ")
        for name in programs.split(","):
            found[f"{name} {subcommand}".rstrip()] = row
    return found


def search_table(table: CommandTable, key: str, arguments: tuple[Arg, ...]) -> Hit | None:
    """What a table has of arguments under a key, and under those of its sub-commands."""
    row = table.get(key)
    if row is None:
        return None
    if ALWAYS in row.words:
        return Hit(ALWAYS, arguments)
    for arg in arguments:
        if _has_flag(row, arg):
            return Hit(arg.text, arguments)
    for at in _find_words(arguments):
        word, rest = arguments[at].text, arguments[at + 1 :]
        if word in row.words:
            return Hit(word, rest)
        if hit := search_table(table, f"{key} {word}", rest):
            return hit
    return None


def _has_flag(row: Row, arg: Arg) -> bool:
    """Whether an argument is a flag of a row, is short for one, or could become one."""
    text = arg.text
    if arg.glob:
        return may_be_option(arg) and bool(row.long or row.dashed or row.letters)
    if text.startswith("--"):
        name = text.partition("=")[0]
        return len(name) > 2 and any(flag.startswith(name) for flag in row.long)
    if not text.startswith("-"):
        return False
    return text.startswith(row.dashed) or not row.letters.isdisjoint(text[1:])


def _find_words(arguments: Sequence[Arg]) -> Iterator[int]:
    before = ""
    for at, arg in enumerate(arguments):
        if not arg.text.startswith("-"):
            yield at
            if not before.startswith("-") or "=" in before:
                return
        before = arg.text
