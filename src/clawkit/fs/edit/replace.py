"""Replacements in a text: all are located in the original text, then applied at once."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from functools import lru_cache
from itertools import islice, pairwise
from typing import NamedTuple

from clawkit.errors import ToolInputError
from clawkit.fs.edit import finder
from clawkit.fs.edit.diff import Show

_MAX_LINES = 5
_MAX_MISSES, _MAX_PROBLEMS = 3, 20
_MAX_RANGES = 10


class Replacement(NamedTuple):
    """A text to replace. It must occur exactly once, unless `every` is set."""

    old: str
    new: str
    every: bool = False


class Replaced(NamedTuple):
    """The new text, and the places that changed, in order."""

    text: str
    found: tuple[finder.TextMatch, ...]


def apply(text: str, edits: Sequence[Replacement], *, path: str, show: Show = str) -> Replaced:
    """Apply all replacements; if there is no exact match, similar texts are found as well.

    Raises `ToolInputError` with all problems, up to a limit. Lines of the text in its message are
    passed through `show`.
    """
    haystack = finder.Haystack(text)
    found: list[finder.TextMatch] = []
    problems: list[str] = []
    for number, edit in enumerate(edits):
        name = "oldText" if len(edits) == 1 else f"edits[{number}].oldText"
        places = _locate(haystack, edit, number)
        if not places:
            near = show if len(problems) < _MAX_MISSES else None
            problems.append(_explain_missing(text, edit.old, name, path, near))
        elif len(places) > 1 and not edit.every:
            problems.append(_explain_several(text, edit, places, name, path))
        if len(problems) == _MAX_PROBLEMS:
            break
        found += places
    if problems:
        raise ToolInputError("\n".join(problems))
    return _make(text, found)


def changed_lines(outcome: Replaced) -> str:
    """The changed lines, by their new numbers: `lines 3, 10-12`."""
    ranges: list[str] = []
    line, done, shift = 1, 0, 0
    for start, end, new, *_ in outcome.found[:_MAX_RANGES]:
        line += outcome.text.count("\n", done, start + shift)
        done = start + shift
        shift += len(new) - (end - start)
        last = line + new.count("\n", 0, max(0, len(new) - 1))
        ranges.append(str(line) if last == line else f"{line}-{last}")
    one = len(set(ranges)) == 1 and "-" not in ranges[0]
    said = f"line{'' if one else 's'} {', '.join(dict.fromkeys(ranges))}"
    more = len(outcome.found) - len(ranges)
    return f"{said} and {more} more places" if more else said


def _locate(haystack: finder.Haystack, edit: Replacement, number: int) -> list[finder.TextMatch]:
    text = haystack.text
    if not edit.old:
        return [finder.TextMatch(0, 0, edit.new, number)] if not text else []
    places = finder.find_all(text, edit.old, every=edit.every)
    exact = list(places if edit.every else islice(places, 2))
    if exact:
        return [_fit(text, at, edit, number) for at in exact]
    return haystack.find_almost(edit.old, edit.new, every=edit.every, edit=number)


def _fit(text: str, at: int, edit: Replacement, number: int) -> finder.TextMatch:
    """The replacement at a place, with the line endings that are used there.

    If the old text contains `\\r`, the line endings are taken as given.
    """
    start, end, new = at, at + len(edit.old), edit.new
    if "\r" in edit.old:
        return finder.TextMatch(start, end, new, number)
    if edit.old[0] == "\n" and text[start - 1 : start] == "\r":
        start -= 1  # do not split a CRLF
    if "\n" in new and (usual := finder.line_end_at(text, at)):
        new = _end_lines(new, usual)
    return finder.TextMatch(start, end, new, number)


@lru_cache(2)
def _end_lines(text: str, end: str) -> str:
    return text.replace("\r\n", "\n").replace("\n", end)


def _make(text: str, found: Iterable[finder.TextMatch]) -> Replaced:
    changes = sorted(each for each in found if text[each.start : each.end] != each.new)
    for before, change in pairwise(changes):
        if change.start < before.end:
            line = text.count("\n", 0, change.start) + 1
            one, other = sorted((before.edit, change.edit))
            raise ToolInputError(
                f"edits[{one}] and edits[{other}] overlap in line {line}, so nothing was changed. "
                "Combine them into one edit"
            )
    if sum(len(each.new) for each in changes) > finder.MAX_CHARS:
        raise ToolInputError(finder.TOO_LARGE)
    parts: list[str] = []
    done = 0
    for start, end, new, *_ in changes:
        parts += (text[done:start], new)
        done = end
    return Replaced("".join((*parts, text[done:])), tuple(changes))


def _explain_missing(text: str, old: str, name: str, path: str, show: Show | None) -> str:
    if not old:
        return f"{name} is empty, but {path!r} is not; give the text to replace, or use write"
    problem = f"{name} is not in {path!r}, so nothing was changed"
    return f"{problem}. {finder.explain_missing(text, old, show)}" if show else problem


def _explain_several(
    text: str, edit: Replacement, found: Sequence[finder.TextMatch], name: str, path: str
) -> str:
    if overlooked := found[0].overlooked:
        starts = [each.start for each in found]
        count, how = len(starts), f" apart from {overlooked}"
    else:
        # Overlapping places count separately.
        starts = list(islice(finder.find_all(text, edit.old), _MAX_LINES + 1))
        count, how = max(text.count(edit.old), 2), ""
    lines = dict.fromkeys(text.count("\n", 0, start) + 1 for start in starts[:_MAX_LINES])
    said = ", ".join(map(str, lines)) + (", …" if len(starts) > _MAX_LINES else "")
    return (
        f"{name} occurs {count} times in {path!r}{how} (line{'s' if len(lines) > 1 else ''} {said})"
        ", so nothing was changed. Add more of the text around the right place, or set replaceAll"
    )
