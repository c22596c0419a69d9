"""Where the chunks of an update belong in a file.

A chunk belongs where its old lines are, if there is exactly one such place. When they are nowhere,
they are looked for again without spaces at line ends, then without indentation, and at last with
typographic characters as plain ones. A chunk that could belong in two places is refused.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import cached_property
from typing import NamedTuple

from clawkit.errors import ToolInputError
from clawkit.fs.edit.diff import Show
from clawkit.fs.edit.fold import fold_text
from clawkit.fs.patch.faults import misfit, no_context, no_lines, quote, too_many
from clawkit.fs.patch.parse import Chunk

_COUNTED = 1_000
"""Places that are counted where there is one too many."""


class Found(NamedTuple):
    """The place of a chunk."""

    at: int
    """The line where it begins, counted from 0."""
    body: tuple[str, ...]
    """The lines of the chunk, without empty ones that only part it from the next."""
    exact: bool = True
    """Whether the file has the old lines as the chunk has them, but for spaces at their ends."""


class _Spot(NamedTuple):
    """Where the context of a chunk leads."""

    start: int
    opened: int | None = None
    """The last line of the context, where there is no doubt which one it is."""


def _same(line: str) -> str:
    return line


def _plain(line: str) -> str:
    """A line as it can be typed on a simple keyboard."""
    return (line if line.isascii() else fold_text(line, "lookalike")).strip()


_WAYS: tuple[Callable[[str], str], ...] = (_same, str.rstrip, str.strip, _plain)
_EXACT = 2
"""So many of the ways take a line as it is, but for spaces at its end."""


class _View:
    """The file in one of the ways to compare lines: a text with one character for each line.

    Lines that the patch does not speak of all have the same. To look for lines is then to look for
    a text, which is quick however many lines and chunks there are.
    """

    def __init__(self, way: Callable[[str], str], lines: Sequence[str], wanted: set[str]) -> None:
        self.way = way
        self._letters: dict[str, str] = {}
        for line in wanted:
            self._letters.setdefault(way(line), chr(len(self._letters) + 1))
        letter = self._letters.get
        self.text = "".join([letter(way(line), "\0") for line in lines])
        self._present = frozenset(self.text)

    def word(self, lines: Sequence[str]) -> str | None:
        """The lines as they would be in the text; None when they cannot be in it."""
        word = "".join([self._letters[self.way(line)] for line in lines])
        return word if self._present.issuperset(word) else None

    def only(self, word: str, start: int, stop: int) -> int:
        """Where the word is in a part of the text, if it is there once; else -1."""
        at = self.text.find(word, start, stop)
        return at if at >= 0 and self.text.find(word, at + 1, stop) < 0 else -1

    def all(self, word: str, start: int = 0) -> list[int]:
        """The places of the word, up to a limit."""
        found: list[int] = []
        while len(found) < _COUNTED and (start := self.text.find(word, start)) >= 0:
            found.append(start)
            start += 1
        return found


class Finder:
    """Finds the places of the chunks in one file."""

    def __init__(
        self, lines: Sequence[str], chunks: Sequence[Chunk], path: str, show: Show
    ) -> None:
        self._lines = lines
        self._path = path
        self._show = show
        self._wanted = {line for chunk in chunks for line in (*chunk.context, *_old(chunk.body))}
        self._built: list[_View] = []

    def find(self, chunk: Chunk, position: int) -> Found:
        """The place of a chunk, at the position or below.

        Raises `ToolInputError` when there is none, or more than one.
        """
        spot = self._enter(chunk, position)
        if not (old := _old(chunk.body)):
            return Found(self._insertion(chunk, spot), chunk.body)
        for way, view in enumerate(self._views()):
            # All of the empty lines at the end are meant, or all but the last, or none.
            for loose in sorted({0, min(1, chunk.loose), chunk.loose}):
                at = self._search(view, chunk, old[: len(old) - loose], spot)
                if at >= 0:
                    body = chunk.body[: len(chunk.body) - loose]
                    return Found(at, body, way < _EXACT)
        raise self._missing(chunk, old, spot.start)

    def _enter(self, chunk: Chunk, position: int) -> _Spot:
        """Go past the lines of context."""
        spot = _Spot(position)
        for line in chunk.context:
            past = self._past(line, spot)
            if past is None and chunk.hint is None:
                raise no_context(self._path, chunk, line, self._lines, spot.start, self._show)
            spot = past or _Spot(position)
        # The heading in a header of `diff -u` may be above the chunk before this one, and another
        # one like it below the place that is meant.
        return spot if chunk.hint is None else spot._replace(start=position)

    def _past(self, line: str, spot: _Spot) -> _Spot | None:
        block = self._block(spot)
        for view in self._views():
            if (word := view.word((line,))) is None:
                continue
            if block and (at := view.only(word, *block)) >= 0:
                return _Spot(at + 1, at)
            at = view.text.find(word, spot.start)
            before = view.text.rfind(word, 0, spot.start)
            if before >= 0 and (at < 0 or self._reaches(before, spot.start)):
                # We may be below this line already: it led to the chunk before.
                alone = at < 0 and view.text.find(word) == before
                return _Spot(spot.start, before if alone else None)
            if at >= 0:
                alone = block is None and view.text.find(word, at + 1) < 0
                return _Spot(at + 1, at if alone else None)
        return None

    def _insertion(self, chunk: Chunk, spot: _Spot) -> int:
        """Where lines go that come with no old ones."""
        if chunk.hint is not None and self._lines:
            what = "has line numbers but no old lines; add the lines around the place"
            raise misfit(self._path, chunk, what)
        if chunk.at_end or not chunk.context:
            return len(self._lines)
        if spot.opened != spot.start - 1:
            line = quote(chunk.context[-1])
            what = f"adds lines below {line}, which may be several; add the lines around the place"
            raise misfit(self._path, chunk, what)
        return spot.start

    def _search(self, view: _View, chunk: Chunk, old: Sequence[str], spot: _Spot) -> int:
        """The line where the old lines begin, or -1."""
        if (word := view.word(old)) is None:
            return -1
        if chunk.at_end:
            at = len(self._lines) - len(old)
            return at if at >= spot.start and view.text.startswith(word, at) else -1
        at = view.text.find(word, spot.start)
        if at >= 0 and view.text.find(word, at + 1) >= 0:
            at = self._choose(view, word, spot, chunk.hint)
            if at < 0:
                raise too_many(self._path, chunk, view.all(word, spot.start), _COUNTED)
        return at

    def _choose(self, view: _View, word: str, spot: _Spot, hint: int | None) -> int:
        """The one of several places that the chunk leaves no doubt about, or -1: the only one in
        the block that its context opens (where that opens none, the one right below it), or else
        the one at the line number that the chunk gives."""
        if block := self._block(spot):
            if (at := view.only(word, *block)) >= 0:
                return at
        elif spot.opened == spot.start - 1 and view.text.startswith(word, spot.start):
            return spot.start
        at = -1 if hint is None else hint - 1
        return at if at >= spot.start and view.text.startswith(word, at) else -1

    def _missing(self, chunk: Chunk, old: Sequence[str], start: int) -> ToolInputError:
        for view in self._views():
            word = view.word(old)
            at = -1 if word is None else view.text.find(word)
            if at >= 0:
                where = f"does not fit: its lines are at line {at + 1} of the file, "
                if chunk.at_end:
                    return misfit(self._path, chunk, f"{where}which is not its end")
                return misfit(
                    self._path,
                    chunk,
                    f"{where}above those of the chunk before or of its context; put the chunks in "
                    "the order of the file",
                )
        return no_lines(self._path, chunk, old, self._lines, start, self._show)

    def _views(self) -> Iterator[_View]:
        for number, way in enumerate(_WAYS):
            if number == len(self._built):
                self._built.append(_View(way, self._lines, self._wanted))
            yield self._built[number]

    def _block(self, spot: _Spot) -> tuple[int, int] | None:
        """Of the lines below the context that are indented deeper, those that lie ahead; None when
        there never were any, as in a list or in prose."""
        if spot.opened is None or not self._opens(spot.opened):
            return None
        return max(spot.opened + 1, spot.start), self._ends[spot.opened]

    def _opens(self, line: int) -> bool:
        return self._solid[self._ends[line]] > line + 1

    def _reaches(self, line: int, position: int) -> bool:
        """Whether lines at the position or after it may belong below another line."""
        return not self._opens(line) or self._solid[self._ends[line]] > position

    @cached_property
    def _ends(self) -> list[int]:
        """For each line, where the block below it ends: at a line that is not indented deeper."""
        ends = [len(self._lines)] * len(self._lines)
        unended: list[tuple[int, int]] = []
        for at, line in enumerate(self._lines):
            if not line.strip():
                continue
            depth = len(line[: len(line) - len(line.lstrip())].expandtabs())
            while unended and unended[-1][0] >= depth:
                ends[unended.pop()[1]] = at
            unended.append((depth, at))
        return ends

    @cached_property
    def _solid(self) -> list[int]:
        """For each line, where the last line before it ends that is not blank."""
        solid = [0]
        for at, line in enumerate(self._lines, 1):
            solid.append(at if line.strip() else solid[-1])
        return solid


def _old(body: Sequence[str]) -> list[str]:
    return [line[1:] for line in body if line[0] != "+"]
