"""What in a file comes nearest to a text that is not there, and how it differs."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from itertools import islice, pairwise
from typing import NamedTuple

from clawkit.fs.edit.diff import Show
from clawkit.fs.edit.fold import fold_text
from clawkit.fs.masks import hide_keys
from clawkit.text import printable

MAX_PLACES = 3
MIN_LIKENESS = 0.45
LINE_CHARS = 120
SHOWN_LINES = 8
SCAN_LINES, SCAN_CHARS = 1_000, 131_072
"""How far a file is compared line by line, when nothing better leads to a place."""
OLD_LINES, OLD_CHARS = 32, 4_096
"""How much of the text that is looked for decides where it is nearest."""
_LOOK = 4_096
"""Characters of a line that are looked at."""
_RAREST, _HITS = 4, 12


class Near(NamedTuple):
    """Lines of a file that a text may be meant to be."""

    line: int
    """The first of them, from 0."""
    likeness: float


class _Wanted(NamedTuple):
    at: int
    line: str
    pairs: Counter[str]


def describe_near(text: str, old: str, show: Show = str) -> str:
    """The nearest places with their line numbers, and how the best of them differs.

    Empty when nothing is near. `show` makes a line of the file fit to be seen.
    """
    lines = text.split("\n")
    wanted = old.replace("\r\n", "\n").split("\n")
    near = find_near(text, lines, old)
    if not near:
        return ""
    # As many lines as before; none of them gives away a private key.
    visible = hide_keys(text).split("\n")

    def tell(number: int) -> str:
        return f"{number + 1}: {_cut(show(visible[number][:_LOOK]))}"

    best = near[0].line
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
        told += ("Also near:", *(tell(each.line) for each in others))
    return "\n".join(told)


def find_near(text: str, lines: Sequence[str], old: str) -> list[Near]:
    """At most `MAX_PLACES`, best first. The work is bounded, whatever the texts are."""
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
    ranked = sorted((Near(*each) for each in found.items()), key=lambda each: -each.likeness)
    apart: list[Near] = []
    for each in ranked:
        overlaps = any(abs(each.line - other.line) < len(wanted) for other in apart)
        if each.likeness >= MIN_LIKENESS and not overlaps and len(apart) < MAX_PLACES:
            apart.append(each)
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
        likely.append((-_alike(sought, _pairs(line)), number - first))
    yield from (start for _, start in sorted(likely)[:_HITS])


def _likeness(wanted: Sequence[_Wanted], lines: Sequence[str]) -> float:
    """How much of the wanted lines is there, from 0 to 1."""
    like = 0.0
    for at, line, pairs in wanted:
        there = lines[at] if at < len(lines) else ""
        like += 1 if there.strip() == line else _alike(pairs, _pairs(there))
    return like / len(wanted) if wanted else 0.0


def _pairs(line: str) -> Counter[str]:
    squeezed = "".join(line[: LINE_CHARS * 2].split()).casefold()
    return Counter(map("".join, pairwise(squeezed))) or Counter([squeezed])


def _alike(first: Counter[str], second: Counter[str]) -> float:
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
