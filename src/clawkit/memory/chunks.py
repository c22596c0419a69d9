"""Splits a note into passages, with their line numbers."""

from __future__ import annotations

import re
from collections.abc import Iterator

from msgspec import Struct

from clawkit.text import weigh

TOKENS, OVERLAP_TOKENS = 400, 80
_PER_TOKEN = 4
"""Weight of a token, see `weigh`."""
MAX_WEIGHT, OVERLAP = TOKENS * _PER_TOKEN, OVERLAP_TOKENS * _PER_TOKEN
_HEADING = re.compile(r"(#{1,6})\s+(\S.*)")
_FENCE = re.compile(r"\s{0,3}(```|~~~)")
_MAX_TRAIL = 200


class NoteChunk(Struct, frozen=True):
    start_line: int
    """Counted from 1; both are inclusive."""
    end_line: int
    text: str
    trail: str = ""
    """The headings above it, except those in its text."""


class _Line(Struct, frozen=True):
    number: int
    text: str
    weight: int
    level: int = 0
    """Level of a heading; else 0."""


def split_note(text: str) -> Iterator[NoteChunk]:
    """Passages of about 400 tokens. Neighbours overlap, unless a heading separates them."""
    trail: list[tuple[int, str]] = []
    above = ""
    held: list[_Line] = []
    weight = fresh = 0
    for line in _lines(text):
        starts_section = line.level > 0 and weight > MAX_WEIGHT // 2
        if held and fresh and (starts_section or weight + line.weight > MAX_WEIGHT):
            yield _chunk(held, above)
            held = [] if line.level else _tail(held)
            weight, fresh = sum(each.weight for each in held), 0
            if weight + line.weight > MAX_WEIGHT:
                held, weight = [], 0
            above = _join(trail)
        if line.level:
            trail = [each for each in trail if each[0] < line.level]
            if not held:
                above = _join(trail)
            trail.append((line.level, line.text.lstrip("# ").strip()))
        held.append(line)
        weight += line.weight
        fresh += bool(line.text.strip())
    if fresh:
        yield _chunk(held, above)


def _lines(text: str) -> Iterator[_Line]:
    """The lines; one longer than a passage is split."""
    fenced = ""
    for number, line in enumerate(text.split("\n"), 1):
        level = 0
        if ("```" in line or "~~~" in line) and (fence := _FENCE.match(line)):
            fenced = "" if fenced == fence[1] else fenced or fence[1]
        elif line[:1] == "#" and not fenced and (heading := _HEADING.match(line)):
            level = len(heading[1])
        weight = weigh(line) + 1
        if weight <= MAX_WEIGHT:
            yield _Line(number, line.rstrip("\r"), weight, level)
            continue
        for piece in _pieces(line):
            yield _Line(number, piece, weigh(piece) + 1)


def _pieces(line: str) -> Iterator[str]:
    """Parts of a long line, cut at a blank if one is near. Each has at most half the weight of a
    passage, to leave room for an overlap."""
    at, step = 0, MAX_WEIGHT // 2
    while at < len(line):
        piece = line[at : at + step]
        while weigh(piece) > step:
            piece = piece[: max(1, len(piece) * step // weigh(piece))]
        end = at + len(piece)
        if end < len(line) and (blank := line.rfind(" ", at + len(piece) * 3 // 4, end)) > 0:
            end = blank + 1
        yield line[at:end]
        at = end


def _tail(lines: list[_Line]) -> list[_Line]:
    """The last lines, as far as they fit into the overlap."""
    weight, start = 0, len(lines)
    while start > 1 and weight + lines[start - 1].weight <= OVERLAP:
        start -= 1
        weight += lines[start].weight
    return lines[start:]


def _chunk(lines: list[_Line], above: str) -> NoteChunk:
    pieces: list[str] = []
    last = 0
    filled = [at for at, line in enumerate(lines) if line.text.strip()]
    lines = lines[filled[0] : filled[-1] + 1]
    for line in lines:
        if pieces and line.number == last:  # parts of one line
            pieces[-1] += line.text
        else:
            pieces.append(line.text)
        last = line.number
    return NoteChunk(lines[0].number, lines[-1].number, "\n".join(pieces), above)


def _join(trail: list[tuple[int, str]]) -> str:
    return " > ".join(name for _, name in trail)[-_MAX_TRAIL:]
