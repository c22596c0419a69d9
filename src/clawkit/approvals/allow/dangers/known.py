"""Programs of which only what is known to be harmless passes: their flags, one by one."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import Literal, NamedTuple

from clawkit.approvals.allow.dangers.sheet import READS, WRITES, Call, Option
from clawkit.text import one_line, printable

Kind = Literal["flag", "value", "attached", "read", "write"]
"""A flag alone; with a value; with one that may only follow `=`; with a file that is read, or
written."""

_KINDS: dict[str, Kind] = {
    "": "flag",
    "=": "value",
    "[=]": "attached",
    "=<": "read",
    "=>": "write",
}
_FLAG = re.compile(r"(--?[A-Za-z0-9#][A-Za-z0-9.+_-]*)(\[=\]|=[<>]?|)")


class Known(NamedTuple):
    """The flags of a program that are harmless."""

    kinds: Mapping[str, Kind]
    single: bool
    """Whether one dash is followed by a whole name."""


def make_known(text: str, *, single: bool = False) -> Known:
    """Flags as one types them: `-q`, `-o=>` with a file to write, `-i=<` with one to read, `-n=`
    with another value, `--color[=]` with one that may be missing."""
    found: dict[str, Kind] = {}
    for word in text.split():
        flag = _FLAG.fullmatch(word)
        if flag is None:
            raise ValueError(f"{word!r} describes no flag")
        found[flag[1]] = _KINDS[flag[2]]
    return Known(MappingProxyType(found), single)


class Given(NamedTuple):
    """The flags and operands of a call."""

    options: list[Option]
    why: str = ""
    """What is wrong with them; the rest is not read then."""

    @property
    def operands(self) -> list[str]:
        return [value for flag, value in self.options if not flag]

    def has(self, *flags: str) -> bool:
        """Whether one of these flags was given."""
        return any(flag in flags for flag, _ in self.options)

    def values(self, *flags: str) -> list[str]:
        """The values of these flags."""
        return [value for flag, value in self.options if flag in flags]


def read_known(
    call: Call, known: Known, arguments: Sequence[str] | None = None, *, stops: bool = False
) -> Given:
    """The arguments of a call, or all behind some; with `stops` no flags come behind operands."""
    rest = list(reversed(call.arguments if arguments is None else arguments))
    given = Given([])
    while rest:
        text = rest.pop()
        if text == "--":
            given.options.extend(Option("", each) for each in reversed(rest))
            break
        if text[:1] != "-" or text == "-":
            given.options.append(Option("", text))
            if stops:
                given.options.extend(Option("", each) for each in reversed(rest))
                break
        elif why := _read_flag(call, known, text, rest, given.options):
            return Given(given.options, why)
    return given


def _read_flag(call: Call, known: Known, text: str, rest: list[str], found: list[Option]) -> str:
    if text.startswith("--") or known.single:
        name, attached, value = text.partition("=")
        kind = known.kinds.get(name)
        if kind is None or (attached and kind == "flag"):
            return unknown(name)
        return take(call, name, kind, value if attached else None, rest, found)
    for place, letter in enumerate(text[1:], 2):
        name = f"-{letter}"
        kind = known.kinds.get(name)
        if kind is None:
            return unknown(name)
        if kind != "flag":
            return take(call, name, kind, text[place:] or None, rest, found)
        # Repeating a letter is no news, and there can be many.
        if Option(name, "") not in found[-8:]:
            found.append(Option(name, ""))
    return ""


def take(
    call: Call, name: str, kind: Kind, value: str | None, rest: list[str], found: list[Option]
) -> str:
    """Note a flag with its value, which may be the last of the rest; says what is wrong with it."""
    if value is None and kind not in ("flag", "attached"):
        if not rest:
            return f"{name} has no value"
        value = rest.pop()
    value = value or ""
    found.append(Option(name, value))
    if kind == "write" and not call.may_write(value):
        return f"{name} {WRITES}"
    if kind == "read" and not call.may_read(value):
        return f"{name} {READS}"
    return ""


def unknown(flag: str) -> str:
    """The reason for a flag that is not listed."""
    return f"{one_line(printable(flag, keep=''), 40)} is not among its flags known to be harmless"
