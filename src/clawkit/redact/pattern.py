"""Expressions an operator adds to what is masked."""

from __future__ import annotations

import re
from collections.abc import Iterator

from clawkit.redact.masking import is_stand_in, mask

WINDOW = 2_048
"""Most characters such an expression sees at once, so that a slow one stays affordable."""

_ATOM = (
    r"\\(?P<escape>.)|(?P<set>\[\^?\]?(?:\\.|[^\]\\])*\])|(?P<again>\(\?P=)"
    r"|(?P<open>\((?:\?P?<\w+>)?)|(?P<close>\))|(?P<bar>\|)"
    r"|(?P<many>(?:[*+]|\{\d*,?\d*\})[?+]?)|(?P<other>.)"
)


def compile_pattern(pattern: str) -> re.Pattern[str]:
    """An operator's pattern: `/expression/flags`, or an expression in which case does not matter.

    Raises ValueError when it is broken or could take very long.
    """
    body, flags = pattern, re.IGNORECASE
    if delimited := re.fullmatch(r"/(.+)/([gims]*)", pattern, re.DOTALL):
        body, flags = delimited[1], re.RegexFlag(0)
        for letter, flag in (("i", re.IGNORECASE), ("m", re.MULTILINE), ("s", re.DOTALL)):
            flags |= flag if letter in delimited[2] else 0
    try:
        compiled = re.compile(body, flags)
    except (re.error, OverflowError, RecursionError) as error:
        raise ValueError(f"the pattern {pattern!r} is not a regular expression: {error}") from None
    if compiled.flags & re.VERBOSE or _repeats_a_repeat(body):
        raise ValueError(
            f"the pattern {pattern!r} could take very long: it repeats a group that itself repeats "
            "or has alternatives, or uses a back-reference or (?x). Write it without"
        )
    return compiled


def apply_pattern(pattern: re.Pattern[str], text: str) -> str:
    """Mask what the pattern matches: its last group if it has one, else all of it."""
    return "".join(pattern.sub(_mask_match, part) for part in _windows(text))


def _mask_match(found: re.Match[str]) -> str:
    group = found.lastindex or 0
    value = found[group]
    if not value or is_stand_in(value):
        return found[0]
    start, end = found.span(group)
    before, after = found.string[found.start() : start], found.string[end : found.end()]
    return f"{before}{mask(value)}{after}"


def _windows(text: str) -> Iterator[str]:
    """The text in pieces, divided at line ends where possible."""
    start = 0
    while start < len(text):
        end = min(len(text), start + WINDOW)
        if end < len(text):
            end = text.rfind("\n", start, end) + 1 or end
        yield text[start:end]
        start = end


def _repeats_a_repeat(body: str) -> bool:
    """Whether an expression, already known to be valid, can backtrack without bound."""
    groups = [False]
    inside = False
    for atom in re.finditer(_ATOM, body, re.DOTALL):
        kind = atom.lastgroup
        if kind == "again" or (kind == "escape" and atom["escape"] in "123456789"):
            return True
        if kind == "many" and inside:
            return True
        if kind == "close":
            inside = groups.pop()
            groups[-1] |= inside
            continue
        inside = False
        if kind == "open":
            groups.append(False)
        elif kind in ("many", "bar"):
            groups[-1] = True
    return False
