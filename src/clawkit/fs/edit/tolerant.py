"""Finding a text that is in the file almost as it was given.

A difference is only overlooked to find the place. Lines that the new text takes over from the old
one stay as the file has them, to the byte; all others are put in as given, with the line ends and
the indentation of the place.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import islice
from typing import NamedTuple

from clawkit.errors import ToolInputError
from clawkit.fs.edit.diff import Piece, match_lines
from clawkit.fs.edit.fold import Fold, Folded, fold_text
from clawkit.fs.edit.indent import Shift, find_shift

MAX_CHARS = 32 * 1024 * 1024
"""Most characters that are put in: a short text can be replaced by a long one very often."""
TOO_LARGE = "the file would become too large (32 MB at most), so nothing was changed"
MAX_PLACES = 10
"""Places that are looked for when there may be only one; more would not be told."""
MAX_MISSES = 1_000
"""Places that turn out not to fit before a text is given up as too alike everywhere."""
MAX_COMPARED = 100_000
"""The same for lines whose indentation is compared."""

_ESCAPE = r"\\([nt\"'`\\])"
_ESCAPED = {"n": "\n", "t": "\t"}


class Almost(NamedTuple):
    """Where a text was found, and what had to be overlooked for it."""

    pieces: list[Piece]
    overlooked: str


class _Place(NamedTuple):
    """A part of the text that is `old` in all that counts, to be replaced by `new`."""

    start: int
    end: int
    old: str
    new: str
    shift: Shift | None = None


class Haystack:
    """A text to look in. What it takes to overlook a difference is done once for all searches."""

    def __init__(self, text: str) -> None:
        self.text = text
        self.room = MAX_CHARS
        """Characters that may still be put in."""
        self._folded: dict[Fold, Folded] = {}

    def folded(self, fold: Fold) -> Folded:
        if fold not in self._folded:
            self._folded[fold] = Folded(self.text, fold)
        return self._folded[fold]


def find_almost(haystack: Haystack, old: str, new: str, *, every: bool) -> Almost | None:
    """The places of a text that is not there as given; the least tolerant way that finds any.

    When not `every` place is wanted, more than `MAX_PLACES` are not looked for. Raises
    `ToolInputError` when the text would become too large.
    """
    for overlooked, find in _WAYS:
        places = list(islice(find(haystack, old, new, every), None if every else MAX_PLACES))
        if places:
            haystack.room -= len(places) * len(new)
            if haystack.room < 0:
                raise ToolInputError(TOO_LARGE)
            return Almost([_rewrite(haystack.text, place) for place in places], overlooked)
    return None


def find_all(text: str, old: str, *, every: bool, shared: int = 0) -> Iterator[int]:
    """Where a text occurs: those that do not overlap when all are to be replaced, else all.

    `shared` characters at its end may be the beginning of the next one.
    """
    step = len(old) - shared if every else 1
    at = text.find(old)
    while at >= 0:
        yield at
        at = text.find(old, at + step)


def line_end_at(text: str, at: int) -> str:
    """The line end in use where `at` is; empty when the text has none."""
    found = text.find("\n", at)
    if found < 0:
        found = text.rfind("\n", 0, at)
    if found < 0:
        return ""
    return "\r\n" if text[found - 1 : found] == "\r" else "\n"


def _by_line_ends(haystack: Haystack, old: str, new: str, every: bool) -> Iterator[_Place]:
    plain = old.replace("\r\n", "\n")
    if "\n" not in plain:
        return
    for given in (plain, plain.replace("\n", "\r\n")):
        if given != old:
            for at in find_all(haystack.text, given, every=every):
                yield _Place(at, at + len(given), plain, new)


def _at_end(haystack: Haystack, old: str, new: str, _every: bool) -> Iterator[_Place]:
    """The last line, when only the given text has a line end after it."""
    text, plain = haystack.text, old.replace("\r\n", "\n")
    if not plain.endswith("\n") or not plain.strip():
        return
    old, new = plain[:-1], new.removesuffix("\n").removesuffix("\r")
    for given in (old, old.replace("\n", "\r\n")):
        if text.endswith(given):
            yield _Place(len(text) - len(given), len(text), old, new)
            return


def _by_fold(fold: Fold) -> _Find:
    def find(haystack: Haystack, old: str, new: str, every: bool) -> Iterator[_Place]:
        if fold == "lookalike" and old.isascii() and haystack.text.isascii():
            return
        folded, wanted = haystack.folded(fold), fold_text(old, fold)
        if not wanted.strip():
            return
        misses = 0
        # Blanks at the end of the text are left away as those of a line are: a line must end there.
        ends_line = old[-1:].isspace() and not old.endswith("\n")
        for at in find_all(folded.text, wanted, every=every):
            stop = at + len(wanted)
            start, end = folded.start(at), folded.end(stop)
            is_whole = not ends_line or folded.text[stop : stop + 1] in ("", "\n")
            if start is not None and end is not None and is_whole:
                yield _Place(start, end, old, new)
            elif (misses := misses + 1) > MAX_MISSES:
                return

    return find


def _by_indentation(haystack: Haystack, old: str, new: str, every: bool) -> list[_Place]:
    """Whole lines that are all indented further, less far, or with other blanks."""
    folded, wanted = haystack.folded("indentation"), fold_text(old, "indentation")
    if not wanted.strip():
        return []
    places: list[_Place] = []
    given = _lines(old)
    ended, compared = wanted.endswith("\n"), 0
    # The line end stands for the beginning of a line.
    for at in find_all(f"\n{folded.text}", f"\n{wanted}", every=every, shared=ended):
        stop = at + len(wanted)
        if not ended and folded.text[stop : stop + 1] not in ("", "\n"):
            continue
        compared += len(given)
        if compared > MAX_COMPARED:
            return []
        # From before the blanks that were left away.
        start, end = folded.end(at), folded.end(stop)
        shift = find_shift(zip(given, _lines(haystack.text[start:end]), strict=True))
        if shift is not None and start is not None and end is not None:
            places.append(_Place(start, end, old, new, shift))
            if len(places) == MAX_PLACES and not every:
                break
    return places


def _by_escapes(haystack: Haystack, old: str, new: str, every: bool) -> Iterator[_Place]:
    r"""Texts that were escaped once too often: `\n` for a line end, `\"` for a quote."""
    kinds = set(re.findall(_ESCAPE, old))
    # What the new text has to mean must be certain from the old one.
    if not kinds or not kinds.issuperset(re.findall(_ESCAPE, new)):
        return
    if "n" in kinds and ("\n" in old or "\n" in new):
        return
    old, new = _unescape(old), _unescape(new)
    for given in dict.fromkeys((old, old.replace("\n", "\r\n"))):
        for at in find_all(haystack.text, given, every=every):
            yield _Place(at, at + len(given), old, new)


def _unescape(text: str) -> str:
    return re.sub(_ESCAPE, lambda found: _ESCAPED.get(found[1], found[1]), text)


_Find = Callable[[Haystack, str, str, bool], Iterable[_Place]]
_WAYS: Sequence[tuple[str, _Find]] = (
    ("line ends", _by_line_ends),
    ("the missing line end at the end of the file", _at_end),
    ("blanks at line ends", _by_fold("trailing")),
    ("look-alike characters (quotes, dashes, spaces)", _by_fold("lookalike")),
    ("indentation", _by_indentation),
    ("backslashes before quotes and line ends", _by_escapes),
)


def _rewrite(text: str, place: _Place) -> Piece:
    """What takes the place of that part of the text."""
    found = text[place.start : place.end].split("\n")
    given, lines = _lines(place.old), _lines(place.new)
    same = match_lines(given, lines)
    ends = [line_end_at(text, place.start) or "\n"] * len(lines)
    if place.shift is not None:
        lines = [place.shift(line) for line in lines]
    for i, j, length in same:
        for there, here in zip(range(i, i + length), range(j, j + length), strict=True):
            line = found[there]
            if there < len(found) - 1:
                ends[here] = "\r\n" if line.endswith("\r") else "\n"
                line = line.removesuffix("\r")
            lines[here] = line
    ends[-1] = ""
    new = "".join(part for pair in zip(lines, ends, strict=True) for part in pair)
    return Piece(place.start, place.end, new)


def _lines(text: str) -> list[str]:
    r"""The lines without their ends, be they `\n` or `\r\n`."""
    return text.replace("\r\n", "\n").split("\n")
