"""The chunks of an update applied to the text of a file.

A chunk belongs where its old lines are, if there is exactly one such place. When they are nowhere,
they are looked for again without spaces at line ends, then without indentation, and at last with
typographic characters as plain ones. A chunk that could belong in two places is refused.

What the patch does not change stays as the file has it: lines that were found in spite of small
differences, line endings, and whether there is a newline at the end.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import cached_property
from itertools import chain
from typing import NamedTuple

from clawkit.errors import ToolInputError
from clawkit.fs.edit.diff import Show
from clawkit.fs.edit.finder import LINE_FOLDS, Shift, explain_missing, find_shift, indentation
from clawkit.fs.edit.patch_format import Chunk
from clawkit.text import printable

MAX_LINES = 2_000_000
_MAX_WORK = 5_000_000_000
"""Lines of a file times chunks: a few seconds."""
_SHOWN_LINES = 8
_SHOWN_CHARS = 160
_SHOWN_PLACES = 10
_COUNTED = 1_000
"""Places that are counted where there is one too many."""
_EXACT = 2
"""So many of the folds take a line as it is, but for spaces at its end."""


class Applied(NamedTuple):
    """The new text, and what was done to the old one."""

    text: str
    added: int
    removed: int
    inexact: tuple[int, ...] = ()
    """Numbers of the chunks whose old lines are in the file with another indentation, or with other
    quotes and the like."""


def apply_chunks(text: str, chunks: Sequence[Chunk], path: str, *, show: Show = str) -> Applied:
    """Apply all the chunks, each below the one before.

    Raises `ToolInputError` when one of them has no place in the text, or several. What it tells of
    the text goes through `show`, line by line.
    """
    steps = sum(1 + len(chunk.context) for chunk in chunks)
    count = text.count("\n") + 1
    if count > MAX_LINES or count * steps > _MAX_WORK:
        raise ToolInputError(
            f"{path!r} has {count:,} lines, which is too many for a patch with {len(chunks):,} "
            f"chunks (at most {MAX_LINES:,} with a few); send the patch in parts"
        )
    lines, endings = _split(text)
    usual = (endings[0] if endings else "") or "\n"
    finder = Finder(lines, chunks, path, show)
    new: list[str] = []
    ends: list[str] = []
    inexact: list[int] = []
    done = position = 0
    for chunk in chunks:
        at, body, is_exact = finder.find(chunk, position)
        indent = str if is_exact else finder.indent(at, body)
        inexact += [] if is_exact else [chunk.number]
        stop = at + len(body)
        for start, stop, added in _runs(at, body):
            if indent is None and (line := next(filter(str.strip, added), "")):
                raise finder.misfit(
                    chunk,
                    f"fits line {at + 1} of the file only if indentation is ignored, and how deep "
                    f"to indent {quote(line)} is unclear; write the old lines as they are in the "
                    "file",
                )
            new += lines[done:start]
            ends += endings[done:start]
            for number, line in enumerate(added, start):
                # It ends like the line that it replaces, else like the one before it.
                end = endings[number] if number < stop else ends[-1] if ends else ""
                ends.append(end or usual)
                new.append(indent(line) if indent else line)
            done = stop
        # The next chunk may begin with the lines that this one ends with.
        position = max(stop, at + any(line[0] != "+" for line in body))
    new += lines[done:]
    ends += endings[done:]
    if new and endings and not endings[-1]:
        # The file had no newline at its end, and still has none.
        ends = [each or usual for each in ends]
        ends[-1] = ""
    marks = [line[0] for chunk in chunks for line in chunk.body]
    changed = "".join(chain.from_iterable(zip(new, ends, strict=True)))
    return Applied(changed, marks.count("+"), marks.count("-"), tuple(inexact))


def _runs(at: int, body: Sequence[str]) -> Iterator[tuple[int, int, list[str]]]:
    """The lines from one number to before another that make room for others, top to bottom."""
    added: list[str] = []
    start = here = at
    for line in (*body, " "):
        if line[0] == "-":
            here += 1
        elif line[0] == "+":
            added.append(line[1:])
        else:
            if added or here > start:
                yield start, here, added
            added = []
            start = here = here + 1


class _Spot(NamedTuple):
    """Where the context of a chunk leads."""

    start: int
    opened: int | None = None
    """The last line of the context, where there is no doubt which one it is."""


def _split(text: str) -> tuple[list[str], list[str]]:
    """Lines and their endings; only the last may have none."""
    lines = text.split("\n")
    endings = ["\n"] * (len(lines) - 1) + [""]
    if "\r\n" in text:
        for at, line in enumerate(lines[:-1]):
            if line.endswith("\r"):
                lines[at], endings[at] = line[:-1], "\r\n"
    if not lines[-1]:
        lines.pop()
        endings.pop()
    return lines, endings


class _View:
    """The file in one of the ways to compare lines: a text with one character for each line.

    Lines that the patch does not speak of all have the same. To look for lines is then to look for
    a text, which is quick however many lines and chunks there are.
    """

    def __init__(self, fold: Callable[[str], str], lines: Sequence[str], wanted: set[str]) -> None:
        self._fold = fold
        self._letters: dict[str, str] = {}
        for line in wanted:
            self._letters.setdefault(fold(line), chr(len(self._letters) + 1))
        letter = self._letters.get
        self.text = "".join([letter(fold(line), "\0") for line in lines])
        self._present = frozenset(self.text)

    def word(self, lines: Sequence[str]) -> str | None:
        """The lines as they would be in the text; None when they are not in it."""
        word = "".join([self._letters[self._fold(line)] for line in lines])
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

    def find(self, chunk: Chunk, position: int) -> tuple[int, tuple[str, ...], bool]:
        """The place of a chunk, at the position or below; its lines, without empty ones that only
        part it from the next; and whether the file has the old ones as they are, but for spaces at
        their ends.

        Raises `ToolInputError` when there is none, or more than one.
        """
        spot = self._enter(chunk, position)
        if not (old := _old(chunk.body)):
            return self._insertion(chunk, spot), chunk.body, True
        for way, view in enumerate(self._views()):
            # All of the empty lines at the end are meant, or all but the last, or none.
            for loose in sorted({0, min(1, chunk.loose), chunk.loose}):
                at = self._search(view, chunk, old[: len(old) - loose], spot)
                if at >= 0:
                    return at, chunk.body[: len(chunk.body) - loose], way < _EXACT
        raise self._missing(chunk, old, spot.start)

    def indent(self, at: int, body: Sequence[str]) -> Shift | None:
        """How lines that come are to be indented where the file indents the old ones in another way
        than the patch does; None when that is unclear."""
        old = [line for line in body if line[0] != "+"]
        real = self._lines[at : at + len(old)]
        pairs = [(line[0], line[1:], there) for line, there in zip(old, real, strict=True)]
        going = [(line, there) for mark, line, there in pairs if mark == "-" and there.strip()]
        staying = [(line, there) for mark, line, there in pairs if mark == " " and there.strip()]
        # Lines that go are written like lines that come. A line that stays may have been written
        # without its mark, which takes a space from it and none from the others.
        unmarked = all(
            indentation(there) in (indentation(line), f" {indentation(line)}")
            for line, there in staying
        )
        same = all(indentation(line) == indentation(there) for line, there in going)
        if same and (going or unmarked):
            return str
        return find_shift(going if unmarked else going + staying)

    def _enter(self, chunk: Chunk, position: int) -> _Spot:
        """Go past the lines of context."""
        spot = _Spot(position)
        for line in chunk.context:
            past = self._past(line, spot)
            if past is None:
                below = f" below line {spot.start}" if spot.start else ""
                what = f"has the context {quote(line)}, which is not a line of the file{below}"
                raise self.misfit(chunk, f"{what}. {self._hint((line,))}")
            spot = past
        return spot

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
        if chunk.is_numbered and self._lines:
            what = "has line numbers but no old lines; add the lines around the place"
            raise self.misfit(chunk, what)
        if chunk.at_end or not chunk.context:
            return len(self._lines)
        if spot.opened != spot.start - 1:
            line = quote(chunk.context[-1])
            what = f"adds lines below {line}, which may be several; add the lines around the place"
            raise self.misfit(chunk, what)
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
            # The only one in the block that the context opens; where that opens none, the one
            # right below it.
            if block := self._block(spot):
                at = view.only(word, *block)
            elif spot.opened != spot.start - 1 or at != spot.start:
                at = -1
            if at < 0:
                raise self._too_many(chunk, view.all(word, spot.start))
        return at

    def misfit(self, chunk: Chunk, what: str) -> ToolInputError:
        where = f"chunk {chunk.number} (line {chunk.line} of the patch)"
        return ToolInputError(f"{self._path!r}: {where} {what}")

    def _too_many(self, chunk: Chunk, places: Sequence[int]) -> ToolInputError:
        count = f"{_COUNTED:,} or more" if len(places) == _COUNTED else str(len(places))
        shown = ", ".join(str(at + 1) for at in places[:_SHOWN_PLACES])
        more = ", …" if len(places) > _SHOWN_PLACES else ""
        return self.misfit(
            chunk,
            f"fits {count} places, at lines {shown}{more} of the file; add old lines around it, or "
            "'@@' and a line above it, until only one is left",
        )

    def _missing(self, chunk: Chunk, old: Sequence[str], start: int) -> ToolInputError:
        for view in self._views():
            word = view.word(old)
            at = -1 if word is None else view.text.find(word)
            if at >= 0:
                where = f"does not fit: its lines are at line {at + 1} of the file, "
                return self.misfit(
                    chunk,
                    f"{where}which is not its end"
                    if chunk.at_end
                    else f"{where}above those of the previous chunk or of its context; put the "
                    "chunks in the order of the file",
                )
        place = " at its end" if chunk.at_end else f" below line {start}" if start else ""
        shown = "".join(f"\n  {quote(line)}" for line in old[:_SHOWN_LINES])
        more = f"\n  and {len(old) - _SHOWN_LINES} more" if len(old) > _SHOWN_LINES else ""
        what = f"does not fit: these lines are not in the file{place}:{shown}{more}"
        return self.misfit(chunk, f"{what}\n{self._hint(old)}")

    def _hint(self, old: Sequence[str]) -> str:
        return explain_missing("\n".join(self._lines), "\n".join(old), self._show)

    def _views(self) -> Iterator[_View]:
        for number, fold in enumerate(LINE_FOLDS):
            if number == len(self._built):
                self._built.append(_View(fold, self._lines, self._wanted))
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


def quote(line: str) -> str:
    """A line on which every blank counts."""
    line = printable(line)
    return repr(line if len(line) <= _SHOWN_CHARS else f"{line[: _SHOWN_CHARS - 1]}…")


def _old(body: Sequence[str]) -> list[str]:
    return [line[1:] for line in body if line[0] != "+"]
