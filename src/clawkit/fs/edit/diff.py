"""Unified diffs of two texts, without file names, in bounded time."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from difflib import Match, SequenceMatcher
from itertools import islice
from typing import NamedTuple

from clawkit.fs.masks import hide_keys

CONTEXT = 3
MAX_CHARS = 1024 * 1024
"""Maximum compared characters, between the common prefix and suffix."""
MAX_LINES = 20_000
MAX_CHANGED = 2_000
"""Maximum changed lines to show."""
MAX_SHOWN = 100_000
MAX_WORK = 8_000_000
"""Steps of comparing lines: about half a second."""

_BLOCK = 64 * 1024

Show = Callable[[str], str]
"""Masks secrets in some lines of text; must keep the lines."""


class Diff(NamedTuple):
    """A diff, or in `left_out` why it is not shown."""

    text: str = ""
    first_line: int = 0
    """The first changed line of the new text, from 1; 0 if there is none."""
    left_out: str = ""

    def to_details(self) -> dict[str, object]:
        shown = {"diffOmitted": self.left_out} if self.left_out else {"diff": self.text}
        return {**shown, "firstChangedLine": self.first_line} if self.first_line else {**shown}


def diff_texts(before: str, after: str, show: Show = str) -> Diff:
    """The diff of two texts, without private keys."""
    if before == after:
        return Diff()
    start = _common_start(before, after)
    first = before.count("\n", 0, start) + 1
    end = len(before) - _common_end(before, after, min(len(before), len(after)) - start)
    skipped = max(0, first - 1 - CONTEXT)
    for _ in range(CONTEXT + 1):
        start = before.rfind("\n", 0, max(start, 0))
        end = before.find("\n", end) + 1 or len(before)
    new_end = len(after) - len(before) + end
    if end + new_end - 2 * start > MAX_CHARS:
        return Diff(first_line=first, left_out="too much was changed")
    part, new_part = hide_keys(before, start + 1, end), hide_keys(after, start + 1, new_end)
    if "\0" in part or "\0" in new_part:
        return Diff(first_line=first, left_out="the file is binary")
    if part.count("\n") + new_part.count("\n") > MAX_LINES:
        return Diff(first_line=first, left_out="too much was changed")
    old, new = split_lines(part), split_lines(new_part)
    matcher = _Lines(old, new)
    opcodes = matcher.get_opcodes()
    changed = sum(b - a + d - c for tag, a, b, c, d in opcodes if tag != "equal")
    if changed > MAX_CHANGED:
        return Diff(first_line=first, left_out="too much was changed")
    rows: list[str] = []
    for hunk in matcher.get_grouped_opcodes(CONTEXT) if changed else ():
        (_, a, _, b, _), (_, _, a_end, _, b_end) = hunk[0], hunk[-1]
        spans = f"-{_span(a + skipped, a_end - a)} +{_span(b + skipped, b_end - b)}"
        rows += (f"@@ {spans} @@", *_render(hunk, old[a:a_end], new[b:b_end], show))
    if sum(map(len, rows)) > MAX_SHOWN:
        return Diff(first_line=first, left_out="the changed lines are too long")
    return Diff("\n".join(rows), first)


def _common_start(a: str, b: str) -> int:
    found, step = 0, _BLOCK
    while step:
        if a[found : found + step] == b[found : found + step] and found + step <= len(a):
            found += step
        else:
            step //= 2
    return found


def _common_end(a: str, b: str, most: int) -> int:
    found, step = 0, _BLOCK
    while step:
        end, new_end = len(a) - found, len(b) - found
        if found + step <= most and a[end - step : end] == b[new_end - step : new_end]:
            found += step
        else:
            step //= 2
    return found


def split_lines(text: str) -> list[str]:
    r"""The lines with their endings. Only `\n` ends a line."""
    lines = text.split("\n")
    last = lines.pop()
    ended = [f"{line}\n" for line in lines]
    return [*ended, last] if last else ended


def match_lines(old: Sequence[str], new: Sequence[str]) -> list[tuple[int, int, int]]:
    """Runs of common lines, in order: index in `old`, index in `new`, length. If comparing would
    take too long, everything between the common start and end counts as changed."""
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
    """Estimate the steps of `SequenceMatcher`: pairs of equal lines, except popular ones, once for
    each gap between runs."""
    counts, popular = Counter(new), 1 + len(new) // 100
    gone = sum(line not in counts for line in old)
    come = len(new) - sum((counts & Counter(old)).values())
    is_popular = len(new) >= 200
    pairs = sum(n for line in old if (n := counts[line]) and not (is_popular and n > popular))
    return (pairs + len(old)) * min(gone + come + 1, len(old), len(new))


class _Lines(SequenceMatcher[str]):
    """Groups the result of `match_lines` into hunks, without comparing anything itself."""

    def __init__(self, old: Sequence[str], new: Sequence[str]) -> None:
        super().__init__()
        self._runs = [*match_lines(old, new), (len(old), len(new), 0)]

    def get_matching_blocks(self) -> list[Match]:
        return [Match(*run) for run in self._runs]


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
    # Mask before adding the signs: a sign could prevent a secret from being recognized.
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
