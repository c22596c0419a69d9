"""Arguments of programs: a table-driven option parser, and tables of flags and sub-commands.

The parser reads options as getopt does, and unknown options are errors. The other tables list cases
to detect; anything not listed passes.
"""

from __future__ import annotations

import posixpath
from collections.abc import Iterable, Iterator, Mapping, Sequence

from msgspec import Struct

from clawkit.approvals.types import Arg
from clawkit.globs import Glob
from clawkit.text import regex

FIND_ACTIONS = ("-exec", "-execdir", "-ok", "-okdir")
# In a glob, characters whose meaning depends on how the glob is written.
_UNSURE = r"(?a)[^\w.,:/~*?=%-]"
_DEVICES = frozenset({"dev", "proc"})


def words_of(text: str) -> frozenset[str]:
    return frozenset(text.split())


def base_name(path: str) -> str:
    return path.rpartition("/")[2]


def may_be_option(arg: Arg) -> bool:
    """Whether an argument starts with a dash, or is a glob that may expand to one that does."""
    first = arg.text[:1]
    if arg.glob:
        return not (first.isalnum() or first in ("_", ".", "/", "~"))
    return first == "-"


def may_be(arg: Arg, words: Iterable[str]) -> bool:
    """Whether an argument is one of these words, or a glob that could match such a file."""
    if not arg.glob or regex(_UNSURE).search(arg.text):
        return arg.glob or arg.text in words
    letters = set(arg.text) - {"*", "?"}
    # None of the words contains a slash.
    return any(letters.issubset(word) and Glob(arg.text, path=True).match(word) for word in words)


def is_device(text: str, cwd: str | None = None) -> bool:
    """Whether a path is below /dev or /proc, where a file can be the standard input."""
    start = cwd or ""
    if not any(name in text or name in start for name in _DEVICES):
        return False
    path = posixpath.normpath(posixpath.join(start, text))
    parts = path.lstrip("/").split("/")
    if path.startswith("/"):
        return parts[0] in _DEVICES and parts[:2] != ["dev", "shm"]
    # From an unknown directory, enough `..` lead anywhere.
    return parts[0] == ".." and not _DEVICES.isdisjoint(parts)


OPERAND = "operand"
FLAG = "flag"
ATTACHED = "attached"
"""The value is the rest of the word, even if that is empty."""
DENIED = "denied"
_WITHOUT_VALUE = frozenset({FLAG, DENIED, "about", "runs"})
_BLANK = r"\s"

Table = Mapping[str, str]
"""The kind of each option: by letter (`-c`), by name (`--eval`), and with a value (`--eval=`)."""


class OptionError(LookupError):
    """An unknown or incomplete option."""

    def __init__(self, name: str, problem: str = "") -> None:
        super().__init__(name)
        self.name = name
        self.problem = problem


class Option(Struct, frozen=True):
    """An option or an operand."""

    kind: str
    value: str = ""
    at: int = 0
    """Index of the word that contains it, or its value."""
    name: str = ""


def make_table(**names: str) -> Table:
    """A table from the options of each kind. Short options may be given as joined letters without a
    dash: `cds --count`. A long option with a value is accepted in both forms; one of the kind
    `attached` only as given (`--in-place=`); one of the kind `maybe` is a flag that may have a
    value after `=`."""
    table: dict[str, str] = {}
    for kind, words in names.items():
        has_value = kind not in _WITHOUT_VALUE and kind != ATTACHED
        for word in words.split():
            for name in (word,) if word.startswith("-") else (f"-{letter}" for letter in word):
                table[name] = FLAG if kind == "maybe" else kind
                if has_value and name.startswith("--"):
                    table[f"{name}="] = "value" if kind == "maybe" else kind
    return table


def read_options(
    argv: Sequence[Arg],
    table: Table,
    *,
    groups: bool = True,
    permutes: bool = False,
    numbers: bool = False,
) -> Iterator[Option]:
    """The options and operands of a call, in order. Raises `OptionError` for an unknown option, a
    missing value, and a glob in the place of an option or a value.

    `groups`: `-ab` means `-a -b`. `permutes`: options may follow operands. `numbers`: `-5` is one.
    """
    index, only_operands = 1, False
    while index < len(argv):
        arg = argv[index]
        if only_operands or not may_be_option(arg) or (arg.text == "-" and not arg.glob):
            yield Option(OPERAND, arg.text, index)
            only_operands |= not permutes
        elif arg.glob:
            raise OptionError(arg.text, "is a glob pattern")
        elif arg.text == "--":
            only_operands = True
        elif numbers and arg.text[1:].isascii() and arg.text[1:].isdigit():
            yield Option(FLAG, "", index, arg.text)
        else:
            for name, kind, value in _read_word(arg.text, table, groups=groups):
                if value is None:
                    index += 1
                    if index == len(argv):
                        raise OptionError(name, "has no value")
                    if argv[index].glob:
                        raise OptionError(argv[index].text, "is a glob pattern")
                    value = argv[index].text
                yield Option(kind, value, index, name)
        index += 1


def _read_word(text: str, table: Table, *, groups: bool) -> Iterator[tuple[str, str, str | None]]:
    """The options in one word: name, kind and value; None if the value is the next word."""
    name, equals, value = text.partition("=")
    if text.startswith("--") or not groups or (len(name) > 2 and name in table):
        kind = table.get(name + equals)
        if kind is None:
            raise OptionError(name, "takes no value" if name in table else "")
        yield name, kind, value if equals or kind in _WITHOUT_VALUE else None
        return
    for place in range(1, len(text)):
        name, rest = f"-{text[place]}", text[place + 1 :]
        kind = table.get(name)
        if kind is None:
            raise OptionError(name)
        if kind not in _WITHOUT_VALUE:
            # After a blank, perl reads further options from the same word.
            if kind in (ATTACHED, "loads") and regex(_BLANK).search(rest):
                raise OptionError(name)
            yield name, kind, rest if rest or kind == ATTACHED else None
            return
        yield name, kind, ""


ALWAYS = "*"


class OptionRow(Struct, frozen=True):
    """The flags and sub-commands listed for a program or a sub-command."""

    long: tuple[str, ...] = ()
    """`--output`, matched with all its abbreviations."""
    dashed: tuple[str, ...] = ()
    """`-exec`, matched as a prefix."""
    letters: frozenset[str] = frozenset()
    """Letters of `-x`, alone or combined."""
    words: frozenset[str] = frozenset()
    """Sub-commands; `*` for every call."""


CommandTable = Mapping[str, OptionRow]
"""Rows by program and sub-commands: `git`, `git bisect`."""


class OptionHit(Struct, frozen=True):
    """The part of a call that a table lists."""

    what: str
    """The flag or sub-command; `*` for the program itself."""
    rest: tuple[Arg, ...]
    """The arguments after a sub-command; for a flag, all of them."""


def read_table(rows: Mapping[str, Sequence[str]]) -> CommandTable:
    """Parse rows such as `{"tar,gtar": ["-I", "--to-command"], "git bisect": ["run"]}`."""
    found: dict[str, OptionRow] = {}
    for key, given in rows.items():
        short = [each for each in given if each[0] == "-" and each[:2] != "--"]
        row = OptionRow(
            tuple(each for each in given if each[:2] == "--"),
            tuple(each for each in short if len(each) > 2),
            frozenset(each[1] for each in short if len(each) == 2),
            frozenset(each for each in given if each[0] != "-"),
        )
        programs, _, subcommand = key.partition(" ")
        for name in programs.split(","):
            found[f"{name} {subcommand}".rstrip()] = row
    return found


def search_table(table: CommandTable, key: str, arguments: tuple[Arg, ...]) -> OptionHit | None:
    """The first match for the arguments under a key, including its sub-commands."""
    row = table.get(key)
    if row is None:
        return None
    if ALWAYS in row.words:
        return OptionHit(ALWAYS, arguments)
    for arg in arguments:
        if _has_flag(row, arg):
            return OptionHit(arg.text, arguments)
    for at in _find_words(arguments):
        word, rest = arguments[at].text, arguments[at + 1 :]
        if word in row.words:
            return OptionHit(word, rest)
        if hit := search_table(table, f"{key} {word}", rest):
            return hit
    return None


def _has_flag(row: OptionRow, arg: Arg) -> bool:
    """Whether an argument is a flag of a row, an abbreviation of one, or may expand to one."""
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
