"""Lines that are indented in another way than somebody wrote them down."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from math import gcd

Shift = Callable[[str], str]
"""Makes a line fit in that was indented as somebody wrote it down."""

_MAX_SCALE = 8


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
            return lambda indent: _without(indent, less)
    return None


def _without(indent: str, less: str) -> str:
    # A line that is further out than all that is known goes out as far as it can.
    return indent.removeprefix(less) if indent.startswith(less) else ""


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
