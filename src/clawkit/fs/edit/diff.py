"""The difference of two texts by lines, in the form of `diff -u` without its file names."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from difflib import Match, SequenceMatcher
from itertools import islice
from typing import NamedTuple

from clawkit.fs.masks import hide_keys

CONTEXT = 3
MAX_CHARS = 1024 * 1024
"""Most characters that two texts may have together to be compared."""
MAX_LINES = 20_000
MAX_CHANGED = 2_000
"""Most changed lines that are worth showing."""
MAX_SHOWN = 100_000
MAX_WORK = 8_000_000
"""Steps of comparing lines: about half a second."""
_KEY_LINE = re.compile(r"[A-Za-z0-9+/=]+|.*PRIVATE KEY.*")

Show = Callable[[str], str]
"""Makes some lines of text fit to be seen; the lines must stay lines."""


class Diff(NamedTuple):
    """A difference, or why it is not shown."""

    text: str = ""
    first_line: int = 0
    """The first line of the new text that is not as it was, from 1; 0 when there is none."""
    left_out: str = ""

    def to_details(self) -> dict[str, object]:
        """The difference as programs get it."""
        told = {"diffOmitted": self.left_out} if self.left_out else {"diff": self.text}
        return {**told, "firstChangedLine": self.first_line} if self.first_line else {**told}


class Piece(NamedTuple):
    """A part of a text and what is put in its place."""

    start: int
    end: int
    new: str


class _Part(NamedTuple):
    """Lines to be compared, and how many come before them on either side."""

    old: Sequence[str]
    new: Sequence[str]
    skipped: int
    new_skipped: int


def diff_texts(before: str, after: str, show: Show = str) -> Diff:
    """How `after` differs from `before`. Private keys are not shown."""
    if len(before) + len(after) > MAX_CHARS:
        return Diff(left_out="the file is too large")
    if "\0" in before or "\0" in after:
        return Diff(left_out="the file is binary")
    old, new = split_lines(hide_keys(before)), split_lines(hide_keys(after))
    if len(old) + len(new) > MAX_LINES:
        return Diff(left_out="the file has too many lines")
    return _assemble([_Part(old, new, 0, 0)], show)


def diff_pieces(before: str, after: str, pieces: Sequence[Piece], show: Show = str) -> Diff:
    """The same where it is known what was replaced: only the lines around it are looked at.

    The pieces are in order and do not overlap.
    """
    if not pieces:
        return Diff()
    parts: list[_Part] = []
    line = done = moved = shift = 0
    left_out = "too many places were changed" if len(pieces) > MAX_CHANGED else ""
    for start, end, grown in _regions(before, pieces[:MAX_CHANGED]):
        line += before.count("\n", done, start)
        done = start
        if end - start > MAX_SHOWN or end - start + grown > MAX_SHOWN:
            left_out = "the changed lines are too long"
        if left_out:
            break
        old = split_lines(before[start:end])
        new = split_lines(after[start + shift : end + shift + grown])
        parts.append(_Part(old, new, line, line + moved))
        moved += len(new) - len(old)
        shift += grown
    first = parts[0].skipped if parts else line
    first += before.count("\n", _around(before, pieces[0])[0], pieces[0].start) + 1
    if left_out:
        return Diff(first_line=first, left_out=left_out)
    # A part of a key does not look like one.
    hidden = any(map(_may_be_key, parts)) and ("PRIVATE KEY" in before or "PRIVATE KEY" in after)
    diff = diff_texts(before, after, show) if hidden else _assemble(parts, show)
    return diff if diff.first_line else diff._replace(first_line=first)


def split_lines(text: str) -> list[str]:
    r"""The lines with their ends. Only `\n` ends a line."""
    lines = text.split("\n")
    last = lines.pop()
    ended = [f"{line}\n" for line in lines]
    return [*ended, last] if last else ended


def match_lines(old: Sequence[str], new: Sequence[str]) -> list[tuple[int, int, int]]:
    """Runs of lines that both have, in order: where in `old`, where in `new`, how many.

    What lies between the common ends counts as changed altogether where a closer look would take
    too long.
    """
    low, high = 0, min(len(old), len(new))
    while low < high and old[low] == new[low]:
        low += 1
    end = 0
    while end < high - low and old[-1 - end] == new[-1 - end]:
        end += 1
    middle, new_middle = old[low : len(old) - end], new[low : len(new) - end]
    runs = [(0, 0, low)] if low else []
    if middle and new_middle and _estimate(middle, new_middle) <= MAX_WORK:
        blocks = SequenceMatcher(None, middle, new_middle).get_matching_blocks()
        runs += [(i + low, j + low, length) for i, j, length in blocks if length]
    if end:
        runs.append((len(old) - end, len(new) - end, end))
    return runs


def _estimate(old: Sequence[str], new: Sequence[str]) -> int:
    """The steps that `SequenceMatcher` takes: the pairs of equal lines, those of lines that are all
    over the place aside, once for each gap between runs."""
    counts, popular = Counter(new), 1 + len(new) // 100
    gone = sum(line not in counts for line in old)
    come = len(new) - sum((counts & Counter(old)).values())
    is_popular = len(new) >= 200
    pairs = sum(n for line in old if (n := counts[line]) and not (is_popular and n > popular))
    return (pairs + len(old)) * min(gone + come + 1, len(old), len(new))


def _regions(text: str, pieces: Sequence[Piece]) -> Iterator[tuple[int, int, int]]:
    """Whole lines around the pieces: start, end, and by how much they grow."""
    start, end, grown = _around(text, pieces[0])
    for piece in pieces[1:]:
        next_start, next_end, growth = _around(text, piece)
        if next_start <= end:
            end, grown = max(end, next_end), grown + growth
            continue
        yield start, end, grown
        start, end, grown = next_start, next_end, growth
    yield start, end, grown


def _around(text: str, piece: Piece) -> tuple[int, int, int]:
    start, end = piece.start, piece.end
    # Lines are not followed for ever: where they go on for too long there is no diff.
    for _ in range(CONTEXT + 1):
        start = text.rfind("\n", max(0, start - MAX_SHOWN), start)
        if start < 0:
            start = max(0, piece.start - MAX_SHOWN - 1)
            break
    else:
        start += 1
    for _ in range(CONTEXT + 1):
        found = text.find("\n", end, end + MAX_SHOWN)
        if found < 0:
            end = min(len(text), end + MAX_SHOWN + 1)
            break
        end = found + 1
    return start, end, len(piece.new) - (piece.end - piece.start)


def _may_be_key(part: _Part) -> bool:
    lines = (*part.old, *part.new)
    return any(len(line) > 16 and _KEY_LINE.fullmatch(line.strip()) for line in lines)


class _Lines(SequenceMatcher[str]):
    """Groups what `match_lines` finds into hunks. It compares nothing itself."""

    def __init__(self, old: Sequence[str], new: Sequence[str]) -> None:
        super().__init__()
        self._runs = [*match_lines(old, new), (len(old), len(new), 0)]

    def get_matching_blocks(self) -> list[Match]:
        return [Match(*run) for run in self._runs]


def _assemble(parts: Sequence[_Part], show: Show) -> Diff:
    first = changed = size = 0
    told: list[str] = []
    for old, new, skipped, new_skipped in parts:
        matcher = _Lines(old, new)
        changes = [each for each in matcher.get_opcodes() if each[0] != "equal"]
        changed += sum(a_end - a + b_end - b for _, a, a_end, b, b_end in changes)
        if changes and not first:
            first = new_skipped + changes[0][3] + 1
        if changed > MAX_CHANGED:
            return Diff(first_line=first, left_out="too much was changed")
        for hunk in matcher.get_grouped_opcodes(CONTEXT) if changes else ():
            (_, a, _, b, _), (_, _, a_end, _, b_end) = hunk[0], hunk[-1]
            old_span, new_span = _span(a + skipped, a_end - a), _span(b + new_skipped, b_end - b)
            lines = _render(hunk, old[a:a_end], new[b:b_end], show)
            told += (f"@@ -{old_span} +{new_span} @@", *lines)
            size += sum(map(len, lines))
        if size > MAX_SHOWN:
            return Diff(first_line=first, left_out="the changed lines are too long")
    return Diff("\n".join(told), first)


def _span(skipped: int, count: int) -> str:
    at = skipped + 1 if count else skipped
    return str(at) if count == 1 else f"{at},{count}"


def _render(
    hunk: Sequence[tuple[str, int, int, int, int]],
    ours: Sequence[str],
    theirs: Sequence[str],
    show: Show,
) -> list[str]:
    ended = [line for line in (*ours, *theirs) if line.endswith("\n")]
    end = "\r\n" if all(line.endswith("\r\n") for line in ended) else "\n"
    # Before the signs are put on: a sign can hide a secret from what masks it.
    old, new = iter(_shown(ours, end, show)), iter(_shown(theirs, end, show))
    lines: list[str] = []
    for tag, a, a_end, b, b_end in hunk:
        gone, come = list(islice(old, a_end - a)), islice(new, b_end - b)
        if tag == "equal":
            lines += (f" {line}" for line in come)
        else:
            lines += (f"-{line}" for line in gone)
            lines += (f"+{line}" for line in come)
    return lines


def _shown(lines: Sequence[str], end: str, show: Show) -> list[str]:
    shown = split_lines(show("".join(lines)))
    if len(shown) != len(lines):
        shown = [show(line) for line in lines]
    return [
        line.removesuffix(end) if line.endswith("\n") else f"{line}\n\\ no newline at the end"
        for line in shown
    ]
