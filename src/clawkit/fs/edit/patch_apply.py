"""Apply the chunks of an update to the text of a file.

A chunk applies where its old lines are, if there is exactly one such place. If there is none, they
are compared again without trailing whitespace, then without indentation, and finally with
typographic characters folded. An ambiguous chunk is refused.

Everything that the patch does not change stays as in the file: lines that were found despite small
differences, line endings, and a missing newline at the end.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import cached_property
from itertools import chain, islice
from typing import NamedTuple

from clawkit.errors import ToolInputError
from clawkit.fs.edit import finder as fuzzy
from clawkit.fs.edit.diff import Show
from clawkit.fs.edit.patch_format import Chunk
from clawkit.text import printable

MAX_LINES = 2_000_000
_MAX_WORK = 5_000_000_000
"""Maximum of lines times chunks: a few seconds."""
_SHOWN_LINES = 8
_SHOWN_CHARS = 160
_SHOWN_PLACES = 10
_COUNTED = 1_000
"""Maximum of places that are counted for an ambiguous chunk."""
_EXACT = 2
"""The first folds, which compare exactly except for trailing whitespace."""


class Applied(NamedTuple):
    text: str
    added: int
    removed: int
    inexact: tuple[int, ...] = ()
    """Numbers of the chunks whose old lines have another indentation or look-alike characters in
    the file."""


def apply_chunks(text: str, chunks: Sequence[Chunk], path: str, *, show: Show = str) -> Applied:
    """Apply all chunks, each below the previous one. Raises `ToolInputError` if a chunk does not
    match, or matches several places. Lines of the text in its message are passed through `show`."""
    steps = sum(1 + len(chunk.context) for chunk in chunks)
    count = text.count("\n") + 1
    if count > MAX_LINES or count * steps > _MAX_WORK:
        raise ToolInputError(
            f"{path!r} has {count:,} lines, which is too many for a patch with {len(chunks):,} "
            f"chunks (at most {MAX_LINES:,} with a few); send the patch in parts"
        )
    lines, endings = _split(text)
    usual = (endings[0] if endings else "") or "\n"
    finder = ChunkFinder(lines, chunks, path, show)
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
                    f"matches line {at + 1} of the file only if indentation is ignored, and how to "
                    f"indent {quote(line)} is unclear; write the old lines as they are in the "
                    "file",
                )
            new += lines[done:start]
            ends += endings[done:start]
            for number, line in enumerate(added, start):
                # The line ending of the replaced line, otherwise of the previous one.
                end = endings[number] if number < stop else ends[-1] if ends else ""
                ends.append(end or usual)
                new.append(indent(line) if indent else line)
            done = stop
        # The next chunk may start with the last lines of this one.
        position = max(stop, at + any(line[0] != "+" for line in body))
    new += lines[done:]
    ends += endings[done:]
    if new and endings and not endings[-1]:
        # The file had no newline at the end: keep it that way.
        ends = [each or usual for each in ends]
        ends[-1] = ""
    marks = [line[0] for chunk in chunks for line in chunk.body]
    changed = "".join(chain.from_iterable(zip(new, ends, strict=True)))
    return Applied(changed, marks.count("+"), marks.count("-"), tuple(inexact))


def _runs(at: int, body: Sequence[str]) -> Iterator[tuple[int, int, list[str]]]:
    """Replaced ranges of lines, top to bottom: start, end (exclusive), new lines."""
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
    """The position after the context of a chunk."""

    start: int
    opened: int | None = None
    """The last line of the context, if it is unambiguous."""


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
    """The file under one way to compare lines, as a string with one character per line.

    All lines that do not occur in the patch have the same character. Searching for lines is then a
    string search, which is fast for any number of lines and chunks.
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
        """The string for some lines; None if one of them is not in the file."""
        word = "".join([self._letters[self._fold(line)] for line in lines])
        return word if self._present.issuperset(word) else None

    def only(self, word: str, start: int, stop: int) -> int:
        """The position of the word in a range, if it occurs exactly once; otherwise -1."""
        at = self.text.find(word, start, stop)
        return at if at >= 0 and self.text.find(word, at + 1, stop) < 0 else -1


class ChunkFinder:
    def __init__(
        self, lines: Sequence[str], chunks: Sequence[Chunk], path: str, show: Show
    ) -> None:
        self._lines = lines
        self._path = path
        self._show = show
        self._wanted = {line for chunk in chunks for line in (*chunk.context, *_old(chunk.body))}
        self._built: list[_View] = []

    def find(self, chunk: Chunk, position: int) -> tuple[int, tuple[str, ...], bool]:
        """The place of a chunk, at `position` or below; its lines, without empty ones that only
        separate it from the next chunk; and whether the old lines match exactly except for trailing
        whitespace.

        Raises `ToolInputError` if there is no place, or more than one.
        """
        spot = _Spot(position)
        for line in chunk.context:
            past = self._past(line, spot)
            if past is None:
                below = f" below line {spot.start}" if spot.start else ""
                what = f"has the context {quote(line)}, which is not a line of the file{below}"
                raise self.misfit(chunk, f"{what}. {self._hint((line,))}")
            spot = past
        if not (old := _old(chunk.body)):
            return self._insertion(chunk, spot), chunk.body, True
        for way, view in enumerate(self._views()):
            # The empty lines at the end may all belong to the chunk, all but one, or none.
            for loose in sorted({0, min(1, chunk.loose), chunk.loose}):
                at = self._search(view, chunk, old[: len(old) - loose], spot)
                if at >= 0:
                    return at, chunk.body[: len(chunk.body) - loose], way < _EXACT
        raise self._missing(chunk, old, spot.start)

    def indent(self, at: int, body: Sequence[str]) -> fuzzy.Shift | None:
        """How to indent added lines if the file indents the old ones differently than the patch;
        None if that is unclear."""
        old = [line for line in body if line[0] != "+"]
        real = self._lines[at : at + len(old)]
        pairs = [(line[0], line[1:], there) for line, there in zip(old, real, strict=True)]
        removed = [(line, there) for mark, line, there in pairs if mark == "-" and there.strip()]
        context = [(line, there) for mark, line, there in pairs if mark == " " and there.strip()]
        # Removed lines are written like added ones. A context line may have been written without
        # its mark, so that it lacks one space, unlike the others.
        unmarked = all(
            fuzzy.indentation(there) in (fuzzy.indentation(line), f" {fuzzy.indentation(line)}")
            for line, there in context
        )
        same = all(fuzzy.indentation(line) == fuzzy.indentation(there) for line, there in removed)
        if same and (removed or unmarked):
            return str
        return fuzzy.find_shift(removed if unmarked else removed + context)

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
                # We may already be below this line: it was the context of the previous chunk.
                alone = at < 0 and view.text.find(word) == before
                return _Spot(spot.start, before if alone else None)
            if at >= 0:
                alone = block is None and view.text.find(word, at + 1) < 0
                return _Spot(at + 1, at if alone else None)
        return None

    def _insertion(self, chunk: Chunk, spot: _Spot) -> int:
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
        """The line where the old lines start, or -1."""
        if (word := view.word(old)) is None:
            return -1
        if chunk.at_end:
            at = len(self._lines) - len(old)
            return at if at >= spot.start and view.text.startswith(word, at) else -1
        at = view.text.find(word, spot.start)
        if at >= 0 and view.text.find(word, at + 1) >= 0:
            # Prefer the only one in the block that the context opens or, if it opens none, the one
            # right below it.
            if block := self._block(spot):
                at = view.only(word, *block)
            elif spot.opened != spot.start - 1 or at != spot.start:
                at = -1
            if at < 0:
                found = fuzzy.find_all(view.text, word, start=spot.start)
                raise self._too_many(chunk, [*islice(found, _COUNTED)])
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
            f"matches {count} places, at lines {shown}{more} of the file; add old lines around it, "
            "or '@@' and a line above it, until it matches only one",
        )

    def _missing(self, chunk: Chunk, old: Sequence[str], start: int) -> ToolInputError:
        for view in self._views():
            word = view.word(old)
            at = -1 if word is None else view.text.find(word)
            if at >= 0:
                where = f"does not match: its lines are at line {at + 1} of the file, "
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
        what = f"does not match: these lines are not in the file{place}:{shown}{more}"
        return self.misfit(chunk, f"{what}\n{self._hint(old)}")

    def _hint(self, old: Sequence[str]) -> str:
        return fuzzy.explain_missing("\n".join(self._lines), "\n".join(old), self._show)

    def _views(self) -> Iterator[_View]:
        for number, fold in enumerate(fuzzy.LINE_FOLDS):
            if number == len(self._built):
                self._built.append(_View(fold, self._lines, self._wanted))
            yield self._built[number]

    def _block(self, spot: _Spot) -> tuple[int, int] | None:
        """The remaining lines of the block that the context opens, by indentation; None if it opens
        none, as in a list or in prose."""
        if spot.opened is None or not self._opens(spot.opened):
            return None
        return max(spot.opened + 1, spot.start), self._ends[spot.opened]

    def _opens(self, line: int) -> bool:
        return self._solid[self._ends[line]] > line + 1

    def _reaches(self, line: int, position: int) -> bool:
        """Whether the block below `line` may extend to `position` or beyond."""
        return not self._opens(line) or self._solid[self._ends[line]] > position

    @cached_property
    def _ends(self) -> list[int]:
        """For each line, the end of the block below it: a line that is not indented more."""
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
        """For each line, the end of the last non-blank line before it."""
        solid = [0]
        for at, line in enumerate(self._lines, 1):
            solid.append(at if line.strip() else solid[-1])
        return solid


def quote(line: str) -> str:
    line = printable(line)
    return repr(line if len(line) <= _SHOWN_CHARS else f"{line[: _SHOWN_CHARS - 1]}…")


def _old(body: Sequence[str]) -> list[str]:
    return [line[1:] for line in body if line[0] != "+"]
