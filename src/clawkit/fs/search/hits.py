"""Reading what a search program prints, as it comes.

    content   path NUL number ':' text LF, '-' for the lines around matches, '--' LF between groups
    count     path NUL number LF
    files     path NUL

There may be a CR before each LF that the program prints itself.

Every path begins with `./`. Only the program's own words, never a name or a line of a file, decide
where a record ends: names cannot hold NUL, and lines cannot hold LF.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterable, Iterator
from typing import Protocol

from clawkit.errors import ToolError
from clawkit.fs.search.query import MAX_LINE, Hits, Line, Output

MAX_HELD = 32 * 1024 * 1024
"""Bytes of lines that are kept before a search is said to have found enough."""
MAX_RECORD = 64 * 1024
"""Longer than any path and number, and what is kept of a line."""

_LINE = re.compile(rb"(?:--\r?\n)?([^\0]*+)\0(\d++)([:-])([^\n]*+)\n")
_COUNT = re.compile(rb"([^\0]*+)\0(\d++)\r?\n")
_NAME = re.compile(rb"([^\0]*+)\0")
# Told after the lines of a file that turned out not to be text; nothing is between it and the next
# path but perhaps the mark between groups.
_WARNING = re.compile(
    rb": WARNING: stopped searching binary file after match \([^\n)]*+\)\r?\n(?:--\r?\n)?(?=\./)"
)
_BINARY = re.compile(rb": binary file matches \([^\n)]*+\)\r?\n\Z")


class Gate(Protocol):
    """Decides about files, by their path from the start of the search."""

    def admits(self, path: str) -> bool: ...

    def is_there(self, path: str) -> bool: ...

    def shown(self, path: str) -> str: ...


class Gathering:
    """The hits of one search, of files that are admitted. What is not admitted leaves no trace."""

    def __init__(self, output: Output, gate: Gate, enough: int) -> None:
        self._gate = gate
        self._enough = enough
        self._record = {"content": _LINE, "count": _COUNT, "files": _NAME}[output]
        self._take: Callable[[re.Match[bytes]], None] = {
            "content": self._take_line,
            "count": self._take_count,
            "files": self._take_name,
        }[output]
        self._rest = b""
        self._skipping = False
        self._held = 0
        self._raw = b""
        self._path = ""
        self._lines: list[Line] | None = None
        self._files: dict[str, list[Line]] = {}
        self._counts: dict[str, int] = {}
        self.total = 0
        """Matching lines; files when only those are wanted."""

    def feed(self, data: bytes) -> bool:
        """Takes a piece of output, cut anywhere; False when enough was found."""
        if self._skipping:
            end = data.find(b"\n")
            if end < 0:
                return True
            data, self._skipping = data[end:], False
        data = self._rest + data
        match, take = self._record.match, self._take
        done = 0
        while (record := match(data, done)) is not None:
            done = record.end()
            take(record)
            if self.total >= self._enough or self._held >= MAX_HELD:
                return False
        self._rest = data[done:]
        if len(self._rest) > MAX_RECORD:
            if b"\0" not in self._rest[:MAX_RECORD]:
                raise ToolError("the search program printed what cannot be understood")
            # Nobody wants the rest of this line.
            self._rest, self._skipping = self._rest[:MAX_RECORD], True
        return True

    @property
    def is_binary(self) -> bool:
        """Whether the program said that the one file it searched has a match but is not text."""
        return _BINARY.search(self._rest) is not None

    def _take_line(self, record: re.Match[bytes]) -> None:
        raw, number, sign, text = record.groups()
        if raw != self._raw:
            self._turn_to(raw)
        if self._lines is None:
            return
        is_match = sign == b":"
        self._lines.append(Line(int(number), is_match, text[: MAX_LINE + 1]))
        self._held += len(text) + 64
        if is_match:
            self.total += 1
            self._counts[self._path] += 1

    def _turn_to(self, raw: bytes) -> None:
        if self._raw and raw.startswith(self._raw):
            warning = _WARNING.match(raw, len(self._raw))
            # A directory may bear the very words of the warning.
            if warning is not None and not self._gate.is_there(_decode(raw)):
                raw = raw[warning.end() :]
        self._raw, self._path = raw, _decode(raw)
        path = self._path
        self._lines = self._files.get(path)
        if self._lines is None and self._gate.admits(path):
            self._lines = self._files[path] = []
            self._counts[path] = 0

    def _take_count(self, record: re.Match[bytes]) -> None:
        path, count = _decode(record[1]), record[2]
        if self._gate.admits(path):
            self._counts[path] = int(count)
            self._held += len(path) + 64
            self.total += 1

    def _take_name(self, record: re.Match[bytes]) -> None:
        path = _decode(record[1])
        if self._gate.admits(path):
            self._counts[path] = 1
            self._held += len(path) + 64
            self.total += 1

    def first(self, limit: int) -> Iterator[Hits]:
        """The hits in order of path and line, up to a number of matching lines or files."""
        left = limit
        for path in sorted(self._counts):
            if left <= 0:
                return
            count = self._counts[path]
            if path not in self._files:
                left -= 1
                yield Hits(self._gate.shown(path), (), count)
            elif count:
                lines = tuple(_head(self._files[path], left))
                left -= count
                yield Hits(self._gate.shown(path), lines, count)


def _decode(raw: bytes) -> str:
    return os.fsdecode(raw.removeprefix(b"./"))


def _head(lines: Iterable[Line], matches: int) -> Iterator[Line]:
    """The lines up to the last wanted match, and those around it."""
    last = 0
    for line in lines:
        if line.is_match:
            matches -= 1
            if matches < 0:
                return
        elif matches <= 0 and line.number != last + 1:
            return
        last = line.number
        yield line
