"""Keeping the wanted ones of any number of names, in bounded memory."""

from __future__ import annotations

import heapq
import os
from collections.abc import Callable, Sequence
from math import inf

from clawkit.fs.search.query import Find
from clawkit.fs.search.select import Accepts

BATCH = 4_096
SPARE = 1_000
"""Names kept beyond those wanted, in case some may not be shown."""


class Collector:
    """Takes the output of a search program, NUL after each path, and keeps the `keep` names that
    come first in order."""

    def __init__(self, keep: int, accepts: Accepts | None) -> None:
        self._keep = keep
        self._accepts = accepts
        self._rest = b""
        self._kept: list[str] = []
        self._last: str | None = None
        self.total = 0

    def feed(self, data: bytes) -> bool:
        """Takes a piece of output, cut anywhere; False when enough was found."""
        whole, nul, self._rest = (self._rest + data).rpartition(b"\0")
        if not nul:
            return True
        # All of it at once: this is done for every file of a tree.
        plain = whole.removeprefix(b"./").replace(b"\0./", b"\0")
        names = os.fsdecode(plain).split("\0")
        return self._add(names if self._accepts is None else [*filter(self._accepts, names)])

    def _add(self, names: Sequence[str]) -> bool:
        self.total += len(names)
        for at in range(0, len(names), BATCH):
            batch, last = names[at : at + BATCH], self._last
            self._kept += batch if last is None else [name for name in batch if name < last]
            if len(self._kept) >= 2 * self._keep:
                self._kept.sort()
                del self._kept[self._keep :]
                self._last = self._kept[-1]
        return True

    def names(self) -> Sequence[str]:
        """What was kept, in order."""
        return sorted(self._kept)[: self._keep]

    def first(self, query: Find, admit: Callable[[str], bool]) -> tuple[list[str], int]:
        """The names that a query is to give back, as far as they are admitted, and how many there
        are in all as far as that is known."""
        shown: list[str] = []
        refused, room = 0, query.max_chars
        for name in self.names():
            if len(shown) == query.limit or room < 0:
                break
            if admit(name):
                shown.append(name)
                room -= len(name)
            else:
                refused += 1
        return shown, self.total - refused


class AsTheyCome(Collector):
    """Keeps the names that come first, and ends the search with them, or with as many as can be
    shown."""

    def __init__(self, keep: int, accepts: Accepts | None, max_chars: float = inf) -> None:
        super().__init__(keep, accepts)
        self._room = max_chars

    def _add(self, names: Sequence[str]) -> bool:
        self.total += len(names)
        self._kept += names[: self._keep - len(self._kept)]
        self._room -= sum(map(len, names))
        return len(self._kept) < self._keep and self._room > 0

    def names(self) -> Sequence[str]:
        return self._kept


class Newest(Collector):
    """Keeps the files that were changed last."""

    def __init__(self, keep: int, accepts: Accepts | None, fd: int) -> None:
        super().__init__(keep, accepts)
        self._fd = fd
        self._timed: list[tuple[int, str]] = []

    def _add(self, names: Sequence[str]) -> bool:
        self.total += len(names)
        self._timed += [(-self._time(name), name) for name in names]
        if len(self._timed) > 2 * self._keep + 10_000:
            self._timed = heapq.nsmallest(self._keep, self._timed)
        return True

    def _time(self, name: str) -> int:
        try:
            return os.stat(name, dir_fd=self._fd, follow_symlinks=False).st_mtime_ns
        except OSError:
            return 0

    def names(self) -> Sequence[str]:
        return [name for _, name in heapq.nsmallest(self._keep, self._timed)]


class Folders(Collector):
    """Keeps the directories that the files lie in."""

    def __init__(self, inner: Collector, accepts: Accepts | None) -> None:
        super().__init__(0, None)
        self._inner = inner
        self._fits = accepts
        self._seen: set[str] = {""}

    def _add(self, names: Sequence[str]) -> bool:
        new: list[str] = []
        for folder in {name.rpartition("/")[0] for name in names}:
            while folder not in self._seen:
                self._seen.add(folder)
                new.append(folder)
                folder = folder.rpartition("/")[0]
        fits = self._fits
        more = self._inner._add(new if fits is None else [*filter(fits, new)])
        self.total = self._inner.total
        return more

    def names(self) -> Sequence[str]:
        return self._inner.names()


def make_collector(query: Find, fd: int, accepts: Accepts | None) -> Collector:
    """What keeps the names that a query asks for; `fd` is the directory that is searched."""
    keep = query.limit + SPARE
    of_files = accepts if query.kind == "file" else None
    collector: Collector
    match query.sort:
        case "time":
            collector = Newest(keep, of_files, fd)
        case "path":
            collector = Collector(keep, of_files)
        case "none":
            # Twice what can be shown, in case some may not.
            collector = AsTheyCome(keep, of_files, 2 * query.max_chars)
    return collector if query.kind == "file" else Folders(collector, accepts)
