"""Which problems a change brought into a file."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator, Sequence
from typing import NamedTuple

import msgspec

from clawkit.lsp.base import Problem, Severity
from clawkit.text import one_line

MAX_MESSAGE = 500
MAX_CODE = 100
_SEVERITIES: dict[int, Severity] = {1: "error", 2: "warning"}
_LINE_END = re.compile(r"\r\n|\r|\n")


class _Position(msgspec.Struct):
    line: int
    character: int


class _Range(msgspec.Struct):
    start: _Position


class Diagnostic(msgspec.Struct):
    """What a server says about one place of a document."""

    range: _Range
    message: str
    severity: int = 1
    code: int | str | None = None


class State(NamedTuple):
    """A text and what a server finds wrong with it."""

    text: str
    found: Sequence[Diagnostic]


def new_problems(
    place: str, server: str, before: State, after: State, *, utf16: bool
) -> Iterator[Problem]:
    """The problems of a text that its earlier state did not have.

    A problem is the same when it is worded the same and its line is, wherever that line is now.
    `utf16` says how the server counts columns.
    """
    old = Counter(key for key, _, _ in _keyed(before))
    for key, each, line in _keyed(after):
        if old[key] > 0:
            old[key] -= 1
            continue
        start = each.range.start
        column = _characters(line, start.character) if utf16 else start.character
        yield Problem(
            place=place,
            line=max(start.line, 0) + 1,
            column=min(max(column, 0), len(line)) + 1,
            severity=_SEVERITIES[each.severity],
            # What follows a blank line is help for people who look at a screen.
            message=one_line(each.message.partition("\n\n")[0], MAX_MESSAGE),
            code=one_line("" if each.code is None else str(each.code), MAX_CODE),
            server=server,
        )


def _keyed(state: State) -> Iterator[tuple[tuple[object, ...], Diagnostic, str]]:
    """Errors and warnings, each with what it is known by and the line it is about."""
    lines = _LINE_END.split(state.text) if state.found else []
    for each in state.found:
        if each.severity not in _SEVERITIES:
            continue
        number = each.range.start.line
        line = lines[number] if 0 <= number < len(lines) else ""
        yield (each.severity, each.code, each.message, line.strip()), each, line


def _characters(line: str, units: int) -> int:
    """How many characters of a line make that many UTF-16 units."""
    if line.isascii():
        return units
    at = 0
    for count, char in enumerate(line):
        if at >= units:
            return count
        at += 2 if char > "\uffff" else 1
    return len(line)
