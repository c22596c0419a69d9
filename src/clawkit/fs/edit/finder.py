"""Finding text that is in a file almost as it was given, for edits and for patches.

A difference is only overlooked to find the place. Lines that the new text takes over from the old
one stay as the file has them, to the byte; all others are put in as given, with the line ends and
the indentation of the place. What cannot be found is explained with what comes nearest to it.
"""

from __future__ import annotations

import re
from bisect import bisect_left, bisect_right
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import lru_cache
from itertools import islice, pairwise
from math import gcd
from typing import Literal, NamedTuple

from clawkit.errors import ToolInputError
from clawkit.fs.edit.diff import Piece, Show, match_lines
from clawkit.fs.masks import first_mask, hide_keys
from clawkit.text import printable

MAX_CHARS = 32 * 1024 * 1024
"""Most characters that are put in: a short text can be replaced by a long one very often."""
TOO_LARGE = "the file would become too large (32 MB at most), so nothing was changed"
MAX_PLACES = 10
"""Places that are looked for when there may be only one; more would not be shown."""
MAX_MISSES = 1_000
"""Places that turn out not to fit before a text is given up as too alike everywhere."""
MAX_COMPARED = 100_000
"""The same for lines whose indentation is compared."""

_ESCAPE = r"\\([nt\"'`\\])"
_ESCAPED = {"n": "\n", "t": "\t"}
MAX_NEAR = 3
MIN_LIKENESS = 0.45
LINE_CHARS = 120
SHOWN_LINES = 8
SCAN_LINES, SCAN_CHARS = 1_000, 131_072
"""How far a file is compared line by line, as the last resort."""
OLD_LINES, OLD_CHARS = 32, 4_096
"""How much of the text that is looked for decides where it is nearest."""
_LOOK = 4_096
"""Characters of a line that are looked at."""
_RAREST, _HITS = 4, 12

Shift = Callable[[str], str]
"""Indents a line as the file does."""

_MAX_SCALE = 8
Fold = Literal["line ends", "trailing", "lookalike", "indentation"]

_ODD = r"\u00a0\u1680\u2000-\u200a\u202f\u205f\u3000"
# Blanks are looked at from the first of a row only: else a long row would be looked at again and
# again from each of its blanks.
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
    """A text after folding, and where the pieces that are not as they were came from."""

    def __init__(self, original: str, fold: Fold) -> None:
        self._starts: list[int] = []
        self._ends: list[int] = []
        self._origins: list[int] = []
        self._origin_ends: list[int] = []
        self.text = self._fold(original, fold)

    def _fold(self, original: str, fold: Fold) -> str:
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
        return "".join((*parts, original[done:])) if parts else original

    def start(self, at: int) -> int | None:
        """Where in the original something begins; after what was left away there. None inside of a
        character that was replaced by several."""
        piece = bisect_right(self._starts, at) - 1
        if piece >= 0 and self._starts[piece] == at < self._ends[piece]:
            return self._origins[piece]
        return self._plain(piece, at)

    def end(self, at: int) -> int | None:
        """Where in the original something ends; before what was left away there."""
        return self._plain(bisect_left(self._starts, at) - 1, at)

    def _plain(self, piece: int, at: int) -> int | None:
        if piece < 0:
            return at
        beyond = at - self._ends[piece]
        return self._origin_ends[piece] + beyond if beyond >= 0 else None


def fold_text(text: str, fold: Fold) -> str:
    """The text after folding, when the way back is of no interest."""
    return Folded(text, fold).text


def _plain_line(line: str) -> str:
    return (line if line.isascii() else fold_text(line, "lookalike")).strip()


LINE_FOLDS: Sequence[Callable[[str], str]] = (str, str.rstrip, str.strip, _plain_line)
"""The same differences for whole lines: none, trailing, indentation, look-alikes as well."""


@lru_cache(4096)
def _alike(char: str) -> str:
    """The plainest character, or characters, that look like this one."""
    import unicodedata  # a megabyte of tables that few edits need

    known = _ALIKE.get(char)
    return unicodedata.normalize("NFKD", char) if known is None else known


def indentation(line: str) -> str:
    return line[: len(line) - len(line.lstrip(" \t"))]


def find_shift(pairs: Iterable[tuple[str, str]]) -> Shift | None:
    """How indentations in a file follow from those that were given; None when they do not.

    The pairs are lines as given and as they are in the file. Either all of them are moved by the
    same blanks, or the widths grow alike: tabs for four spaces, two spaces for four.
    """
    known: dict[str, str] = {}
    for given, real in pairs:
        if not given.strip():
            continue
        indent = indentation(real)
        if known.setdefault(indentation(given), indent) != indent:
            return None
    if not known:
        return None
    change = _moved(known) or _scaled(known)
    if change is None:
        return None

    def shift(line: str) -> str:
        indent = indentation(line)
        return change(indent) + line[len(indent) :] if len(indent) < len(line) else line

    return shift


def _moved(known: Mapping[str, str]) -> Shift | None:
    given, real = next(iter(known.items()))
    if real.endswith(given):
        more = real[: len(real) - len(given)]
        if all(real == more + given for given, real in known.items()):
            return lambda indent: more + indent
    if given.endswith(real):
        less = given[: len(given) - len(real)]
        if all(given == less + real for given, real in known.items()):
            # A line that is further out than all that is known goes out as far as it can.
            return lambda indent: indent.removeprefix(less) if indent.startswith(less) else ""
    return None


def _scaled(known: Mapping[str, str]) -> Shift | None:
    blank, real_blank = _one_kind(known.keys()), _one_kind(known.values())
    if not blank or not real_blank:
        return None
    widths = sorted((len(given), len(real)) for given, real in known.items())
    (first, real_first), (last, real_last) = widths[0], widths[-1]
    # One width alone says nothing about a common offset, so there is none.
    grown, real_grown = (
        (first, real_first) if first == last else (last - first, real_last - real_first)
    )
    if real_grown <= 0:
        return None
    up, down = real_grown // gcd(grown, real_grown), grown // gcd(grown, real_grown)
    offset = real_first * down - first * up
    if min(up, down) > 1 or max(up, down) > _MAX_SCALE:
        return None
    if any(width * up + offset != real * down for width, real in widths):
        return None

    def change(indent: str) -> str:
        if indent.strip(blank):
            return indent
        full, rest = divmod(max(0, len(indent) * up + offset), down)
        # What is left of a tab is aligned by the blanks that were given.
        return real_blank * full + blank * (rest // up)

    return change


def _one_kind(indents: Iterable[str]) -> str:
    """The character that all of them are made of; empty when there are several or none."""
    kinds = {char for indent in indents for char in indent}
    return kinds.pop() if len(kinds) == 1 else ""


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


def find_almost(haystack: Haystack, old: str, new: str, *, every: bool) -> tuple[list[Piece], str]:
    """The places of a text that is not there as given, and what had to be overlooked for it: the
    least tolerant way that finds any.

    When not `every` place is wanted, more than `MAX_PLACES` are not looked for. Raises
    `ToolInputError` when the text would become too large.
    """
    for overlooked, find in _WAYS:
        places = list(islice(find(haystack, old, new, every), None if every else MAX_PLACES))
        if places:
            haystack.room -= len(places) * len(new)
            if haystack.room < 0:
                raise ToolInputError(TOO_LARGE)
            return [_rewrite(haystack.text, place) for place in places], overlooked
    return [], ""


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
                # Half a line end cannot be replaced.
                start -= haystack.text[start - 1 : start + 1] == "\r\n"
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
    # The line end marks the beginning of a line.
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
    old, new = (
        re.sub(_ESCAPE, lambda found: _ESCAPED.get(found[1], found[1]), each) for each in (old, new)
    )
    for given in dict.fromkeys((old, old.replace("\n", "\r\n"))):
        for at in find_all(haystack.text, given, every=every):
            yield _Place(at, at + len(given), old, new)


_Find = Callable[[Haystack, str, str, bool], Iterable[_Place]]
_WAYS: Sequence[tuple[str, _Find]] = (
    ("line ends", _by_fold("line ends")),
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


class _Wanted(NamedTuple):
    at: int
    line: str
    pairs: Counter[str]


def explain_missing(text: str, old: str, show: Show = str) -> str:
    """Where a text that was not found may be meant to be: the nearest places with their line
    numbers, and how the best of them differs. `show` makes a line of the file fit to be seen."""
    hint = _describe_near(text, old, show) or "Nothing in it is like that; read it again"
    mask = first_mask(old)
    if mask and mask not in text:
        hint += f"\n{mask!r} is how secrets are shown, not what the file holds; leave that part out"
    return hint


def _describe_near(text: str, old: str, show: Show) -> str:
    lines = text.split("\n")
    wanted = old.replace("\r\n", "\n").split("\n")
    near = find_near(text, lines, old)
    if not near:
        return ""
    # As many lines as before; none of them gives away a private key.
    visible = hide_keys(text).split("\n")

    def tell(number: int) -> str:
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
            how = f"line {best + at + 1} differs in what is not shown of it"
    last = min(len(lines), best + len(wanted) + 1, first + SHOWN_LINES)
    told = [f"Nearest is line {best + 1}; {how}:", *map(tell, range(first, last))]
    if others := near[1:]:
        told += ("Also near:", *map(tell, others))
    return "\n".join(told)


def find_near(text: str, lines: Sequence[str], old: str) -> list[int]:
    """The first lines, from 0, of at most `MAX_NEAR` places that may be meant, best first. The work
    is bounded, whatever the texts are."""
    wanted = [line.strip()[:_LOOK] for line in old[:OLD_CHARS].split("\n")[:OLD_LINES]]
    parts = [_Wanted(at, line, _pairs(line)) for at, line in enumerate(wanted) if line]
    found: dict[int, float] = {}
    for leads in (_by_lines, _by_words, _by_scan):
        for start in leads(text, lines, wanted):
            start = max(0, start)
            if start not in found:
                found[start] = _likeness(parts, lines[start : start + len(wanted)])
        if found and max(found.values()) >= MIN_LIKENESS:
            break
    apart: list[int] = []
    for start in sorted(found, key=lambda start: -found[start]):
        overlaps = any(abs(start - other) < len(wanted) for other in apart)
        if found[start] >= MIN_LIKENESS and not overlaps and len(apart) < MAX_NEAR:
            apart.append(start)
    return apart


def _by_lines(text: str, _lines: Sequence[str], wanted: Sequence[str]) -> Iterator[int]:
    """Where lines of the text occur that are rare in the file."""
    yield from _by_rarest(text, {line: at for at, line in enumerate(wanted) if len(line) > 3})


def _by_words(text: str, _lines: Sequence[str], wanted: Sequence[str]) -> Iterator[int]:
    words: dict[str, int] = {}
    for at, line in enumerate(wanted):
        for word in re.findall(r"\w{3,64}", line):
            words.setdefault(word, at)
    longest = sorted(words, key=len, reverse=True)[:64]
    yield from _by_rarest(text, {word: words[word] for word in longest})
    for word in longest[:4]:
        # Written otherwise: `MAX_SIZE` for `max_size`.
        for hit in islice(re.finditer(re.escape(word), text, re.IGNORECASE), _HITS):
            yield text.count("\n", 0, hit.start()) - words[word]


def _by_rarest(text: str, needles: dict[str, int]) -> Iterator[int]:
    """The first line of the text, seen from the rarest of its parts that the file has."""
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


def _by_scan(_text: str, lines: Sequence[str], wanted: Sequence[str]) -> Iterator[int]:
    first = next((at for at, line in enumerate(wanted) if line), 0)
    sought = _pairs(wanted[first])
    chars = 0
    likely: list[tuple[float, int]] = []
    for number, line in enumerate(lines[:SCAN_LINES]):
        chars += len(line)
        if chars > SCAN_CHARS:
            break
        likely.append((-_likeness_of(sought, _pairs(line)), number - first))
    yield from (start for _, start in sorted(likely)[:_HITS])


def _likeness(wanted: Sequence[_Wanted], lines: Sequence[str]) -> float:
    """How much of the wanted lines is there, from 0 to 1."""
    like = 0.0
    for at, line, pairs in wanted:
        there = lines[at] if at < len(lines) else ""
        like += 1 if there.strip() == line else _likeness_of(pairs, _pairs(there))
    return like / len(wanted) if wanted else 0.0


def _pairs(line: str) -> Counter[str]:
    squeezed = "".join(line[: LINE_CHARS * 2].split()).casefold()
    return Counter(map("".join, pairwise(squeezed))) or Counter([squeezed])


def _likeness_of(first: Counter[str], second: Counter[str]) -> float:
    return 2 * (first & second).total() / (first.total() + second.total())


def _squeeze(line: str) -> str:
    return "".join(line.split())


_KINDS: Sequence[tuple[str, Callable[[str], str]]] = (
    ("blanks at line ends", str.rstrip),
    ("indentation", str.strip),
    ("whitespace", _squeeze),
    ("upper and lower case", lambda line: _squeeze(line).casefold()),
    ("quotes", lambda line: re.sub(r"[\"'`]", "'", _squeeze(line))),
    ("look-alike characters", lambda line: fold_text(_squeeze(line), "lookalike")),
    ("punctuation", lambda line: re.sub(r"[\W_]", "", line)),
)


def _difference(wanted: Sequence[str], lines: Sequence[str]) -> tuple[str, int]:
    """The kind of difference; or no kind, and which line is the first that differs."""
    there = lines[: len(wanted)]
    for kind, same in _KINDS:
        if len(there) == len(wanted) and all(map(lambda a, b: same(a) == same(b), wanted, there)):
            return kind, 0
    full, full_there = [list(filter(None, map(_squeeze, each))) for each in (wanted, lines)]
    if full == full_there[: len(full)]:
        return "blank lines", 0
    if full and "".join(full_there).startswith("".join(full)):
        return "line breaks", 0
    pairs = enumerate(zip(wanted, there, strict=False))
    return "", next((at for at, (a, b) in pairs if a.strip() != b.strip()), len(there))


def _cut(line: str) -> str:
    line = printable(line.removesuffix("\r"), keep="\t")
    return line if len(line) <= LINE_CHARS else f"{line[: LINE_CHARS - 1]}…"
