"""Parse the output of search programs as it arrives, filter it, and keep it in bounded memory.

    content   path NUL number ':' text LF, '-' for context lines, '--' LF between groups
    count     path NUL number LF
    files     path NUL

There may be a CR before each LF that the program prints itself. Every path starts with `./`. No
name and no line can forge the end of a record: names cannot contain NUL, and lines no LF.
"""

from __future__ import annotations

import os
import re
import stat
import time
from collections.abc import Callable, Iterable, Iterator, Sequence

from clawkit.core.paths import is_below
from clawkit.errors import ToolError
from clawkit.fs.protocols import MAX_LINE, Admit, FileHits, Find, Line, Output, Start
from clawkit.fs.search.ripgrep_globs import Accepts

MAX_HELD = 32 * 1024 * 1024
"""Bytes of lines after which a search is stopped."""
MAX_RECORD = 64 * 1024
"""Longer than any path and number; also the maximum that is kept of a line."""

_LINE = re.compile(rb"(?:--\r?\n)?([^\0]*+)\0(\d++)([:-])([^\n]*+)\n")
_COUNT = re.compile(rb"([^\0]*+)\0(\d++)\r?\n")
_NAME = re.compile(rb"([^\0]*+)\0")
# Follows the lines of a file that turned out to be binary, directly before the next path or a group
# separator.
_WARNING = re.compile(
    rb": WARNING: stopped searching binary file after match \([^\n)]*+\)\r?\n(?:--\r?\n)?(?=\./)"
)
_BINARY = re.compile(rb": binary file matches \([^\n)]*+\)\r?\n\Z")

BATCH = 4_096


class ResultFilter:
    """Decides which paths, relative to the start of a search, may be shown, and how."""

    def __init__(
        self,
        start: Start,
        workspace: str,
        *,
        accepts: Accepts | None,
        admit: Admit,
        one_name: bool,
    ) -> None:
        """Files in the resolved `workspace` are shown relative to it. With `one_name`, files with
        several hard links are left out, and files that were renamed or changed since the start:
        they may have had several before."""
        self._since = time.time_ns()
        self._fd = start.fd
        self._accepts = None if start.name else accepts
        self._admit = admit
        self._one_name = one_name
        if start.place == workspace:
            self._prefix = ""
        elif is_below(start.place, workspace):
            self._prefix = os.path.relpath(start.place, workspace) + "/"
        else:
            self._prefix = start.place.rstrip("/") + "/"

    def admits(self, path: str) -> bool:
        is_selected = self._accepts is None or bool(self._accepts(path))
        return is_selected and not self.leaves_out(path) and self._admit(self.shown(path))

    def leaves_out(self, path: str) -> bool:
        """Whether a file has, or may have had, several hard links although that is not allowed."""
        if not self._one_name:
            return False
        try:
            info = os.stat(path, dir_fd=self._fd, follow_symlinks=False)
        except OSError:
            return True
        is_one = info.st_nlink == 1 and stat.S_ISREG(info.st_mode)
        return not is_one or info.st_ctime_ns > self._since

    def is_there(self, path: str) -> bool:
        try:
            os.stat(path, dir_fd=self._fd, follow_symlinks=False)
        except OSError:
            return False
        return True

    def shown(self, path: str) -> str:
        """The path as the file tools accept it."""
        shown = self._prefix + path
        # Otherwise it would be taken for the home directory or a URL.
        return f"./{shown}" if shown.startswith("~") or shown[:5].lower() == "file:" else shown


class Gathering:
    """The matches of one search, in admitted files only. Others leave no trace."""

    def __init__(self, output: Output, gate: ResultFilter, enough: int) -> None:
        self._gate = gate
        self._enough = enough
        self._record = {"content": _LINE, "count": _COUNT, "files": _NAME}[output]
        self._take = self._take_line if output == "content" else self._take_file
        self._rest = b""
        self._skipping = False
        self._held = 0
        self._raw = b""
        self._path = ""
        self._lines: list[Line] | None = None
        self._files: dict[str, list[Line]] = {}
        self._counts: dict[str, int] = {}
        self.total = 0
        """Matching lines, or files for other outputs."""

    def feed(self, data: bytes) -> bool:
        """Process a piece of output, cut anywhere; returns False to stop the search."""
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
                raise ToolError("the search program printed invalid output")
            # The rest of this line is not needed.
            self._rest, self._skipping = self._rest[:MAX_RECORD], True
        return True

    @property
    def is_binary(self) -> bool:
        """Whether the program reported that the only searched file has a match but is binary."""
        return _BINARY.search(self._rest) is not None

    def _take_line(self, record: re.Match[bytes]) -> None:
        raw, number, sign, text = record.groups()
        if raw != self._raw:
            if self._raw and raw.startswith(self._raw):
                warning = _WARNING.match(raw, len(self._raw))
                # The name of a directory may contain the very text of the warning.
                if warning is not None and not self._gate.is_there(_decode(raw)):
                    raw = raw[warning.end() :]
            self._raw, self._path = raw, _decode(raw)
            path = self._path
            self._lines = self._files.get(path)
            if self._lines is None and self._gate.admits(path):
                self._lines = self._files[path] = []
                self._counts[path] = 0
        if self._lines is None:
            return
        is_match = sign == b":"
        self._lines.append(Line(int(number), is_match, text[: MAX_LINE + 1]))
        self._held += len(text) + 64
        if is_match:
            self.total += 1
            self._counts[self._path] += 1

    def _take_file(self, record: re.Match[bytes]) -> None:
        path = _decode(record[1])
        if self._gate.admits(path):
            self._counts[path] = int(record[2]) if self._record is _COUNT else 1
            self._held += len(path) + 64
            self.total += 1

    def first(self, limit: int) -> Iterator[FileHits]:
        """The first matches in order of path and line, up to `limit` matching lines or files."""
        left = limit
        for path in sorted(self._counts):
            if left <= 0:
                return
            count = self._counts[path]
            if path not in self._files:
                left -= 1
                yield FileHits(self._gate.shown(path), (), count)
            elif count:
                lines = tuple(_head(self._files[path], left))
                left -= count
                yield FileHits(self._gate.shown(path), lines, count)


def _decode(raw: bytes) -> str:
    return os.fsdecode(raw.removeprefix(b"./"))


def _head(lines: Iterable[Line], matches: int) -> Iterator[Line]:
    """The lines up to the last of `matches` matches, with its context."""
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


class Collector:
    """Processes a list of paths, each followed by NUL, and keeps the requested ones: the first by
    path, the most recently changed, or the first to arrive, which then stops the search."""

    def __init__(
        self, query: Find, accepts: Accepts | None = None, fd: int = -1, *, spare: int = 0
    ) -> None:
        """`fd` is the searched directory. `spare` more names than the limit are kept, in case some
        may not be shown."""
        self._query = query
        self._accepts = accepts
        self._fd = fd
        self._keep = query.limit + spare
        self._room = 2 * query.max_chars
        self._rest = b""
        # Directories are derived from the paths of files.
        self._folders: set[str] | None = {""} if query.kind == "directory" else None
        self._kept: list[tuple[int, str]] = []
        self.total = 0

    def feed(self, data: bytes) -> bool:
        """Process a piece of output, cut anywhere; returns False to stop the search."""
        whole, nul, self._rest = (self._rest + data).rpartition(b"\0")
        if not nul:
            return True
        # All names at once, for speed: there is one for every file of a tree.
        plain = whole.removeprefix(b"./").replace(b"\0./", b"\0")
        names: Sequence[str] = os.fsdecode(plain).split("\0")
        if self._folders is not None:
            new: list[str] = []
            for folder in {name.rpartition("/")[0] for name in names}:
                while folder not in self._folders:
                    self._folders.add(folder)
                    new.append(folder)
                    folder = folder.rpartition("/")[0]
            names = new
        if self._accepts is not None:
            names = [*filter(self._accepts, names)]
        self.total += len(names)
        for at in range(0, len(names), BATCH):
            self._kept += [(self._rank(name), name) for name in names[at : at + BATCH]]
            if len(self._kept) > 2 * self._keep + BATCH and self._query.sort != "none":
                self._kept.sort()
                del self._kept[self._keep :]
        self._room -= sum(map(len, names))
        is_full = len(self._kept) >= self._keep or self._room <= 0
        return not is_full or self._query.sort != "none"

    def _rank(self, name: str) -> int:
        if self._query.sort != "time":
            return 0
        try:
            return -os.stat(name, dir_fd=self._fd, follow_symlinks=False).st_mtime_ns
        except OSError:
            return 0

    def names(self) -> Sequence[str]:
        if self._query.sort != "none":
            self._kept.sort()
        return [name for _, name in self._kept[: self._keep]]

    def first(self, admit: Callable[[str], bool]) -> tuple[list[str], int]:
        """The admitted names up to the limits, and the total as far as it is known."""
        shown: list[str] = []
        refused, room = 0, self._query.max_chars
        for name in self.names():
            if len(shown) == self._query.limit or room < 0:
                break
            if admit(name):
                shown.append(name)
                room -= len(name)
            else:
                refused += 1
        return shown, self.total - refused
