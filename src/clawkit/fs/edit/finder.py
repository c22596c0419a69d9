"""Fuzzy search for the old text of edits and patches.

Differences are ignored only to find the place. Lines that the new text shares with the old one stay
byte for byte as in the file; all others are inserted as given, with the line endings and the
indentation of the place. If nothing is found, the error shows the closest match.
"""

from __future__ import annotations

import re
from bisect import bisect_left, bisect_right
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import lru_cache
from itertools import pairwise, zip_longest
from math import gcd
from typing import Literal, NamedTuple

from clawkit.errors import ToolInputError
from clawkit.fs.edit.diff import Show, match_lines
from clawkit.fs.masks import first_mask, hide_keys
from clawkit.text import printable

MAX_CHARS = 32 * 1024 * 1024
"""Maximum of inserted characters: a short text can be replaced by a long one very often."""
TOO_LARGE = "the file would become too large (32 MB at most), so nothing was changed"
MAX_PLACES = 10
"""Maximum places to find if only one is allowed; more would not be shown."""
MAX_COMPARED, COST_OF_MISS = 100_000, 100
"""Bounds the work: lines whose indentation is compared, and the cost of a place that does not
match. Beyond that, the text is too repetitive."""
MAX_NEAR = 3
MIN_LIKENESS = 0.45
LINE_CHARS = 120
SHOWN_LINES = 8
SCAN_LINES, SCAN_CHARS = 1_000, 131_072
"""Maximum part of a file compared line by line, as the last resort."""
OLD_LINES = 32
"""Lines of the old text that are compared to find the closest match."""
_LOOK = 4_096
"""Characters of a line that are compared."""
_RAREST, _HITS = 8, 12

Shift = Callable[[str], str]
"""Indents a line like the file."""

_MAX_SCALE = 8
Fold = Literal["line ends", "trailing", "lookalike", "indentation"]

_ODD = r"\u00a0\u1680\u2000-\u200a\u202f\u205f\u3000"
# A match can only start at the first blank of a run: otherwise a long run would be scanned again
# from each of its blanks.
_TRAILING = r"(?<![ \t])[ \t]*+\r(?=\n)|(?<![ \t])[ \t]++(?=\n|\Z)"
_PATTERNS: dict[Fold, str] = {
    "line ends": r"\r(?=\n)",
    "trailing": _TRAILING,
    "lookalike": (
        rf"(?<![ \t{_ODD}])[ \t{_ODD}]*+\r(?=\n)|(?<![ \t{_ODD}])[ \t{_ODD}]++(?=\n|\Z)"
        r"|(?P<other>[^\x00-\x7f])"
    ),
    "indentation": rf"(?<![^\n])[ \t]++|{_TRAILING}|\r(?=\n)",
}
_ALIKE = {
    **dict.fromkeys("‘’‚‛ʼ′´", "'"),
    **dict.fromkeys("“”„‟″«»", '"'),
    **dict.fromkeys("‐‑‒–—―−﹣－", "-"),
    # Invisible.
    **dict.fromkeys("\u00ad\u200b\u200c\u200d\u2060\ufeff", ""),
}


class Folded:
    """A folded text, and a mapping of positions back to the original."""

    def __init__(self, original: str, fold: Fold) -> None:
        self._starts: list[int] = []
        self._ends: list[int] = []
        self._origins: list[int] = []
        self._origin_ends: list[int] = []
        parts: list[str] = []
        done = size = 0
        for found in re.finditer(_PATTERNS[fold], original):
            piece = found[0]
            instead = _alike(piece) if found.lastgroup else ""
            if instead == piece:
                continue
            start, end = found.span()
            parts += (original[done:start], instead)
            size += start - done
            self._starts.append(size)
            size += len(instead)
            self._ends.append(size)
            self._origins.append(start)
            self._origin_ends.append(end)
            done = end
        self.text = "".join((*parts, original[done:])) if parts else original

    def start(self, at: int) -> int | None:
        """The original position of a start, after characters that were removed there. None inside
        of a character that was replaced by several."""
        piece = bisect_right(self._starts, at) - 1
        if piece >= 0 and self._starts[piece] == at < self._ends[piece]:
            return self._origins[piece]
        return self._plain(piece, at)

    def end(self, at: int) -> int | None:
        """The original position of an end, before characters that were removed there."""
        return self._plain(bisect_left(self._starts, at) - 1, at)

    def _plain(self, piece: int, at: int) -> int | None:
        if piece < 0:
            return at
        beyond = at - self._ends[piece]
        return self._origin_ends[piece] + beyond if beyond >= 0 else None


def fold_text(text: str, fold: Fold) -> str:
    return Folded(text, fold).text


def _plain_line(line: str) -> str:
    return (line if line.isascii() else fold_text(line, "lookalike")).strip()


LINE_FOLDS: Sequence[Callable[[str], str]] = (str, str.rstrip, str.strip, _plain_line)
"""Ways to compare whole lines: exactly, without trailing whitespace, without indentation, and with
look-alike characters folded."""


@lru_cache(4096)
def _alike(char: str) -> str:
    import unicodedata  # imported on use: a megabyte of tables that few edits need

    known = _ALIKE.get(char)
    return unicodedata.normalize("NFKD", char) if known is None else known


def indentation(line: str) -> str:
    return line[: len(line) - len(line.lstrip(" \t"))]


def find_shift(pairs: Iterable[tuple[str, str]]) -> Shift | None:
    """A function that converts the given indentation to that of the file; None if there is none.

    The pairs are lines as given and as they are in the file. Either all are shifted by the same
    blanks, or the widths are scaled: tabs for four spaces, two spaces for four.
    """
    known: dict[str, str] = {}
    for given, real in pairs:
        indent = indentation(real)
        if given.strip() and known.setdefault(indentation(given), indent) != indent:
            return None
    if not known:
        return None
    (first, real_first), *others = sorted(known.items(), key=lambda each: len(each[0]))
    step = real_step = ""
    if others:
        step, real_step = others[0][0].removeprefix(first), others[0][1].removeprefix(real_first)
    is_moved = first.endswith(real_first) or real_first.endswith(first)
    if step != real_step or not is_moved:
        if len({*"".join(known)}) != 1 or len({*"".join(known.values())}) != 1:
            return None
        if not others:
            step, real_step = first, real_first
        common = gcd(len(step), len(real_step))
        step, real_step = step[: len(step) // common], real_step[: len(real_step) // common]
        if min(len(step), len(real_step)) != 1 or max(len(step), len(real_step)) > _MAX_SCALE:
            return None

    def change(indent: str) -> str:
        if indent.startswith(first):
            rest = indent[len(first) :]
            return real_first + (rest.replace(step, real_step) if step else rest)
        if not first.startswith(indent):
            return indent
        # A line that is indented less than all known ones is moved out as far as possible.
        missing = first[len(indent) :]
        missing = missing.replace(step, real_step) if step else missing
        return real_first.removesuffix(missing) if real_first.endswith(missing) else ""

    def shift(line: str) -> str:
        indent = indentation(line)
        return change(indent) + line[len(indent) :] if len(indent) < len(line) else line

    return shift if all(change(indent) == real for indent, real in known.items()) else None


class TextMatch(NamedTuple):
    """A place in a text, and its replacement."""

    start: int
    end: int
    new: str
    edit: int = 0
    """The index of the edit."""
    overlooked: str = ""
    """The difference that was ignored to find it; empty for an exact match."""


_Place = tuple[int, int, Shift | None]
_WAYS: Sequence[tuple[str, Fold | None]] = (
    ("line ends", "line ends"),
    ("the missing newline at the end of the file", None),
    ("trailing whitespace", "trailing"),
    ("look-alike characters (quotes, dashes, spaces)", "lookalike"),
    ("indentation", "indentation"),
)


class Haystack:
    """A text to search; its folded versions are cached for all searches."""

    def __init__(self, text: str) -> None:
        self.text = text
        self._room = MAX_CHARS
        self._folded: dict[Fold, Folded] = {}

    def find_almost(self, old: str, new: str, *, every: bool, edit: int = 0) -> list[TextMatch]:
        """The places of a text without an exact match, by the strictest way that finds any.

        Unless `every` place is wanted, the search stops after `MAX_PLACES`. Raises
        `ToolInputError` if the text would become too large.
        """
        for overlooked, fold in _WAYS:
            places = self._by_fold(old, fold, every) if fold else self._at_end(old)
            self._room -= len(places) * len(new)
            if self._room < 0:
                raise ToolInputError(TOO_LARGE)
            if places:
                return [
                    TextMatch(*place[:2], self._rewrite(old, new, place), edit, overlooked)
                    for place in places
                ]
        return []

    def _fold(self, fold: Fold) -> Folded:
        if fold not in self._folded:
            self._folded[fold] = Folded(self.text, fold)
        return self._folded[fold]

    def _at_end(self, old: str) -> list[_Place]:
        """The last lines, if the given text differs only by a newline after them."""
        folded, wanted = self._fold("line ends"), fold_text(old, "line ends")
        is_there = wanted.strip() and wanted.endswith("\n") and folded.text.endswith(wanted[:-1])
        start = folded.start(len(folded.text) - len(wanted) + 1) if is_there else None
        return [] if start is None else [(start, len(self.text), None)]

    def _by_fold(self, old: str, fold: Fold, every: bool) -> list[_Place]:
        if fold == "lookalike" and old.isascii() and self.text.isascii():
            return []
        folded, wanted = self._fold(fold), fold_text(old, fold)
        if not wanted.strip():
            return []
        places: list[_Place] = []
        given, left = _lines(old), MAX_COMPARED
        is_ended = wanted.endswith("\n")
        # Only whole lines have an indentation: the match must start after a newline.
        lead = "\n" if fold == "indentation" else ""
        # Blanks at the end of the text are removed like those of a line: a line must end there.
        ends_line = not is_ended if lead else old[-1:].isspace() and not old.endswith("\n")
        shared = len(lead) if is_ended else 0
        for at in find_all(lead + folded.text, lead + wanted, every=every, shared=shared):
            stop = at + len(wanted)
            # Start before the removed blanks if they are an indentation.
            start, end = folded.end(at) if lead else folded.start(at), folded.end(stop)
            is_whole = not ends_line or folded.text[stop : stop + 1] in ("", "\n")
            shift = None
            if lead and is_whole:
                left -= len(given)
                shift = find_shift(zip(given, _lines(self.text[start:end]), strict=True))
                is_whole = shift is not None
            if start is not None and end is not None and is_whole:
                # Do not split a CRLF.
                places.append((start - (self.text[start - 1 : start + 1] == "\r\n"), end, shift))
            else:
                left -= COST_OF_MISS
            if left < 0:
                return []
            if len(places) == MAX_PLACES and not every:
                break
        return places

    def _rewrite(self, old: str, new: str, place: _Place) -> str:
        start, end, shift = place
        found = self.text[start:end].split("\n")
        given, lines = _lines(old), _lines(new)
        if len(given) > len(found):  # only the given text has a newline at the end
            given.pop()
            lines = lines[:-1] if len(lines) > 1 and not lines[-1] else lines
        same = match_lines(given, lines)
        ends = [line_end_at(self.text, start) or "\n"] * len(lines)
        if shift is not None:
            lines = [shift(line) for line in lines]
        for i, j, length in same:
            for there, here in zip(range(i, i + length), range(j, j + length), strict=True):
                line = found[there]
                if there < len(found) - 1:
                    ends[here] = "\r\n" if line.endswith("\r") else "\n"
                    line = line.removesuffix("\r")
                lines[here] = line
        ends[-1] = ""
        return "".join(part for pair in zip(lines, ends, strict=True) for part in pair)


def find_all(
    text: str, old: str, *, every: bool = False, shared: int = 0, start: int = 0
) -> Iterator[int]:
    """The positions of a text: non-overlapping ones if all are to be replaced (`every`), else all.
    The last `shared` characters of a match may be the start of the next one."""
    step = len(old) - shared if every else 1
    at = text.find(old, start)
    while at >= 0:
        yield at
        at = text.find(old, at + step)


def line_end_at(text: str, at: int) -> str:
    """The line ending used around `at`; empty if the text has none."""
    found = text.find("\n", at)
    if found < 0:
        found = text.rfind("\n", 0, at)
    if found < 0:
        return ""
    return "\r\n" if text[found - 1 : found] == "\r" else "\n"


def _lines(text: str) -> list[str]:
    return text.replace("\r\n", "\n").split("\n")


def explain_missing(text: str, old: str, show: Show = str) -> str:
    """A hint for a text that was not found: the closest matches with their line numbers, and how
    the best one differs. `show` masks secrets in a line of the file."""
    hint = _describe_near(text, old, show) or "Nothing in it is similar; read it again"
    mask = first_mask(old)
    if mask and mask not in text:
        hint += f"\n{mask!r} is a masked secret, not the content of the file; leave that part out"
    return hint


def _describe_near(text: str, old: str, show: Show) -> str:
    lines = text.split("\n")
    wanted = old.replace("\r\n", "\n").split("\n")
    near = _find_near(text, lines, wanted[:OLD_LINES])
    if not near:
        return ""
    # The same number of lines, without private keys.
    visible = hide_keys(text).split("\n")

    def show_line(number: int) -> str:
        return f"{number + 1}: {_cut(show(visible[number][:_LOOK]))}"

    best = near[0]
    while wanted[0].strip() and best < len(lines) - 1 and not lines[best].strip():
        best += 1
    kind, at = _difference(wanted, lines[best : best + len(wanted) + OLD_LINES])
    first = best if kind else max(best, best + at - 2)
    if kind:
        how = f"it differs in {kind}"
    else:
        expected = _cut(wanted[at]) if at < len(wanted) else ""
        found = _cut(show(visible[best + at][:_LOOK])) if best + at < len(lines) else ""
        how = f"line {best + at + 1} differs: expected {expected!r}, found {found!r}"
        if expected == found:
            how = f"line {best + at + 1} differs in a part that is not shown"
    last = min(len(lines), best + len(wanted) + 1, first + SHOWN_LINES)
    said = [f"The closest match is line {best + 1}; {how}:", *map(show_line, range(first, last))]
    if others := near[1:]:
        said += ("Also similar:", *map(show_line, others))
    return "\n".join(said)


def _find_near(text: str, lines: Sequence[str], wanted: Sequence[str]) -> list[int]:
    """The first lines, from 0, of at most `MAX_NEAR` similar places, best first. The work is
    bounded for any text."""
    wanted = [line.strip()[:_LOOK] for line in wanted]
    found: dict[int, float] = {}
    for leads in (_by_rarest(text, wanted), _by_scan(lines, wanted)):
        for start in leads:
            if (start := max(0, start)) not in found:
                there = zip_longest(wanted, lines[start : start + len(wanted)], fillvalue="")
                alike = [_likeness_of(a, b) for a, b in there if a]
                found[start] = sum(alike) / max(1, len(alike))
        if found and max(found.values()) >= MIN_LIKENESS:
            break
    apart: list[int] = []
    for start in sorted(found, key=lambda start: -found[start]):
        overlaps = any(abs(start - other) < len(wanted) for other in apart)
        if found[start] >= MIN_LIKENESS and not overlaps and len(apart) < MAX_NEAR:
            apart.append(start)
    return apart


def _by_rarest(text: str, wanted: Sequence[str]) -> Iterator[int]:
    """Candidates for the first line, by the lines and words that are rarest in the file."""
    words: dict[str, int] = {}
    for at, line in enumerate(wanted):
        for word in re.findall(r"\w{3,64}", line):
            words.setdefault(word, at)
    needles = {line: at for at, line in enumerate(wanted) if len(line) > 3}
    needles |= {word: words[word] for word in sorted(words, key=len, reverse=True)[:64]}
    counts = {needle: text.count(needle) for needle in needles}
    there = sorted((needle for needle in needles if counts[needle]), key=lambda n: counts[n])
    for needle in there[:_RAREST]:
        at = text.find(needle)
        for _ in range(_HITS):
            if at < 0:
                break
            yield text.count("\n", 0, at) - needles[needle]
            end = text.find("\n", at + len(needle))
            at = text.find(needle, end) if end >= 0 else -1


def _by_scan(lines: Sequence[str], wanted: Sequence[str]) -> Iterator[int]:
    """Candidates for the first line, by similarity, near the start of the file."""
    first = next((at for at, line in enumerate(wanted) if line), 0)
    chars = 0
    likely: list[tuple[float, int]] = []
    for number, line in enumerate(lines[:SCAN_LINES]):
        chars += len(line)
        if chars > SCAN_CHARS:
            break
        likely.append((-_likeness_of(wanted[first], line), number - first))
    yield from (start for _, start in sorted(likely)[:_HITS])


def _likeness_of(line: str, there: str) -> float:
    if line == there.strip():
        return 1.0
    first, second = _pairs(line), _pairs(there)
    return 2 * (first & second).total() / (first.total() + second.total())


@lru_cache(256)
def _pairs(line: str) -> Counter[str]:
    squeezed = "".join(line[: LINE_CHARS * 2].split()).casefold()
    return Counter(map("".join, pairwise(squeezed))) or Counter([squeezed])


def _squeeze(line: str) -> str:
    return "".join(line.split())


_KINDS: Sequence[tuple[str, Callable[[str], str]]] = (
    ("whitespace", _squeeze),
    ("upper and lower case", lambda line: _squeeze(line).casefold()),
    ("quotes or punctuation", lambda line: re.sub(r"[\W_]", "", line)),
)


def _difference(wanted: Sequence[str], lines: Sequence[str]) -> tuple[str, int]:
    """The kind of difference; or an empty kind and the index of the first line that differs."""
    there = lines[: len(wanted)]
    for kind, same in _KINDS:
        if [*map(same, there)] == [*map(same, wanted)]:
            return kind, 0
    whole = "".join(map(_squeeze, wanted))
    if whole and "".join(map(_squeeze, lines)).startswith(whole):
        return "line breaks", 0
    pairs = enumerate(zip(wanted, there, strict=False))
    return "", next((at for at, (a, b) in pairs if a.strip() != b.strip()), len(there))


def _cut(line: str) -> str:
    line = printable(line.removesuffix("\r"), keep="\t")
    return line if len(line) <= LINE_CHARS else f"{line[: LINE_CHARS - 1]}…"
