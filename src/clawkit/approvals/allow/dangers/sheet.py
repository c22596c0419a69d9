"""Which flags of a program make another one of it, and how they are found among its arguments."""

from __future__ import annotations

import os
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from clawkit.approvals.base import Program, Rules
from clawkit.approvals.operands import may_be_option

RUNS = "starts other programs"
LOADS = "loads code, or settings that start programs"
WRITES = "writes a file of any name"
READS = "reads a file of any name, or sends it"
DELETES = "deletes files"
REACHES = "reaches beyond what the program is for"


def words(text: str) -> frozenset[str]:
    """The words of a text."""
    return frozenset(text.split())


_NOWHERE = frozenset({"-", "/dev/null", "/dev/stdout", "/dev/stderr"})


_MAX_LOOKS = 300
"""Files that are looked for in one call; it takes time."""
_MAX_PATH = 4096


@dataclass(slots=True, eq=False)
class Call:
    """A call of a program, and what its files are judged by."""

    program: Program
    arguments: tuple[str, ...]
    """Without the name of the program."""
    rules: Rules
    patterns: tuple[str, ...] = ()
    """Those of the arguments that the shell makes names of files of."""
    looks: int = 0

    def may_write(self, path: str, folder: str | None = None) -> bool:
        """Whether a file could be changed unasked, and is not clawkit's own. Its name is taken from
        the directory of the program, or another one."""
        if path in _NOWHERE:
            return True
        place = self._find(path, folder)
        return bool(place) and self.rules.may_write(place) and not self.rules.is_own(place)

    def may_read(self, path: str, folder: str | None = None) -> bool:
        """Whether a file could be read unasked."""
        place = self._find(path, folder)
        return bool(place) and self.rules.may_read(place) and not self.rules.is_own(place)

    def _find(self, path: str, folder: str | None) -> str:
        """Where a name leads, links followed; empty when that cannot be told."""
        start = self.program.cwd if folder is None else folder
        # Who expands a tilde that the shell left alone is not known, nor what a pattern becomes.
        if not path or path[0] == "~" or any(path in text for text in self.patterns):
            return ""
        self.looks += 1
        if self.looks > _MAX_LOOKS or len(path) > _MAX_PATH:
            return ""
        if start is None and path[0] != "/":
            return ""
        try:
            return os.path.realpath(os.path.join(start or "/", path))
        except (OSError, ValueError):
            return ""


Check = Callable[[Call], str]
"""What the arguments do beyond their flags; empty for nothing."""


@dataclass(frozen=True, slots=True, eq=False)
class Sheet:
    """What to look for among the arguments of a program."""

    long: Mapping[str, tuple[str, str]]
    """Every way to write a flag, shortened ones too, without dashes: the flag, and what it does."""
    short: Mapping[str, str]
    """Flags of one letter, and what they do."""
    values: frozenset[str]
    """Letters that take the rest of their word as a value."""
    single: bool
    """Whether one dash is followed by a whole name."""
    both: bool
    """Whether one dash may be followed by letters or by a name."""
    check: Check | None


def make_sheet(
    *,
    runs: str = "",
    loads: str = "",
    writes: str = "",
    reads: str = "",
    deletes: str = "",
    reaches: str = "",
    values: str = "",
    fine: str = "",
    single: bool = False,
    both: bool = False,
    exact: bool = False,
    check: Check | None = None,
) -> Sheet:
    """A sheet from flags as one types them; `fine` are names that are no short forms of others.

    With `exact` the program takes no shortened names.
    """
    long: dict[str, tuple[str, str]] = {}
    short: dict[str, str] = {}
    kinds = {
        RUNS: runs,
        LOADS: loads,
        WRITES: writes,
        READS: reads,
        DELETES: deletes,
        REACHES: reaches,
    }
    for why, flags in kinds.items():
        for flag in flags.split():
            name = flag.lstrip("-").replace("_", "-")
            if len(name) == 1 and not single:
                short[name] = why
                continue
            for end in range(len(name) if exact else 1, len(name) + 1):
                if end == len(name) or name[:end] not in long:
                    long[name[:end]] = flag, why
    for name in fine.split():
        long.pop(name, None)
    return Sheet(long, short, frozenset(values), single, both, check)


def find_flag(sheet: Sheet, arguments: Sequence[str]) -> str:
    """The first flag that does more than the program is for, and what; empty when there is none.

    Every word counts, also behind `--` and where a value should be: what a program takes for a
    value depends on its version.
    """
    long, short, values = sheet.long, sheet.short, sheet.values
    for text in arguments:
        if text[:1] != "-" or len(text) < 2:
            continue
        whole = text[1] == "-"
        if whole or sheet.single or sheet.both:
            name = text[2 if whole else 1 :].partition("=")[0].replace("_", "-")
            if (len(name) > 1 or whole or sheet.single) and (found := long.get(name)):
                return " ".join(found)
            if whole or sheet.single:
                continue
        for letter in text[1:]:
            if letter in short:
                return f"-{letter} {short[letter]}"
            if letter in values:
                break
    return ""


def find_pattern(program: Program) -> str:
    """Why a pattern of file names among the arguments could become a flag."""
    for arg in program.argv[1:]:
        if arg.glob and may_be_option(arg):
            return "a name that the pattern stands for could be taken for a flag; write ./* instead"
    return ""


class Option(NamedTuple):
    """An option with its value, or an operand."""

    flag: str
    """Empty for an operand."""
    value: str


def read_options(
    arguments: Sequence[str], letters: str, names: Collection[str] = ()
) -> Iterator[Option]:
    """Arguments as getopt reads them: `letters` and long `names` take values. A letter that is
    repeated in its word is told once."""
    index = 0
    while index < len(arguments):
        text = arguments[index]
        index += 1
        if text == "--":
            yield from (Option("", each) for each in arguments[index:])
            return
        if text[:1] != "-" or text == "-":
            yield Option("", text)
        elif text.startswith("--"):
            name, attached, value = text.partition("=")
            if not attached and name in names and index < len(arguments):
                value = arguments[index]
                index += 1
            yield Option(name, value)
        else:
            seen = set()
            for place, letter in enumerate(text[1:], 2):
                if letter in seen:
                    continue
                seen.add(letter)
                value = ""
                if letter in letters:
                    value = text[place:]
                    if not value and index < len(arguments):
                        value = arguments[index]
                        index += 1
                yield Option(f"-{letter}", value)
                if letter in letters:
                    break
