"""The chunks of an update applied to the text of a file.

What the patch does not change stays as the file has it: lines that were found in spite of small
differences, line endings, and whether there is a newline at the end.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import chain
from typing import NamedTuple

from clawkit.errors import ToolInputError
from clawkit.fs.edit.diff import Show
from clawkit.fs.edit.indent import Shift, find_shift, indentation
from clawkit.fs.patch.faults import unclear_indent
from clawkit.fs.patch.find import Finder, Found
from clawkit.fs.patch.parse import Chunk

MAX_LINES = 2_000_000
_MAX_WORK = 5_000_000_000
"""Lines of a file times chunks: a few seconds."""


class Applied(NamedTuple):
    """The new text, and what was done to the old one."""

    text: str
    added: int
    removed: int
    inexact: tuple[int, ...] = ()
    """Numbers of the chunks whose old lines are in the file with another indentation, or with other
    quotes and the like."""


class _Edit(NamedTuple):
    """Lines `start` to `stop` make room for others."""

    start: int
    stop: int
    lines: list[str]


def apply_chunks(text: str, chunks: Sequence[Chunk], path: str, *, show: Show = str) -> Applied:
    """Apply all the chunks, each below the one before.

    Raises `ToolInputError` when one of them has no place in the text, or several. What it tells of
    the text goes through `show`, line by line.
    """
    steps = sum(1 + len(chunk.context) for chunk in chunks)
    count = text.count("\n") + 1
    if count > MAX_LINES or count * steps > _MAX_WORK:
        raise ToolInputError(
            f"{path!r} has {count:,} lines, which is too many for a patch with {len(chunks):,} "
            f"chunks (at most {MAX_LINES:,} with a few); send the patch in parts"
        )
    lines, endings = _split(text)
    finder = Finder(lines, chunks, path, show)
    edits: list[_Edit] = []
    inexact: list[int] = []
    position = 0
    for chunk in chunks:
        found = finder.find(chunk, position)
        inexact += [] if found.exact else [chunk.number]
        made = _edits(path, chunk, found, lines)
        edits += made
        # The next chunk may begin with the lines that this one ends with.
        last = made[-1].stop if made else found.at + len(found.body)
        position = max(last, found.at + any(line[0] != "+" for line in found.body))
    marks = [line[0] for chunk in chunks for line in chunk.body]
    changed = _join(lines, endings, edits)
    return Applied(changed, marks.count("+"), marks.count("-"), tuple(inexact))


def _split(text: str) -> tuple[list[str], list[str]]:
    """Lines and their endings; only the last may have none."""
    lines = text.split("\n")
    endings = ["\n"] * (len(lines) - 1) + [""]
    if "\r\n" in text:
        for at, line in enumerate(lines[:-1]):
            if line.endswith("\r"):
                lines[at], endings[at] = line[:-1], "\r\n"
    if not lines[-1]:
        lines.pop()
        endings.pop()
    return lines, endings


def _join(lines: Sequence[str], endings: Sequence[str], edits: Sequence[_Edit]) -> str:
    """The edited text. A new line ends like the one it replaces, else like the one before it."""
    new: list[str] = []
    ends: list[str] = []
    usual = endings[0] if endings and endings[0] else "\n"
    done = 0
    for start, stop, added in edits:
        new += lines[done:start]
        ends += endings[done:start]
        replaced = endings[start : min(stop, start + len(added))]
        ends += [each or usual for each in replaced]
        ends += [ends[-1] if ends and ends[-1] else usual] * (len(added) - len(replaced))
        new += added
        done = stop
    new += lines[done:]
    ends += endings[done:]
    if new and endings and not endings[-1]:
        # The file had no newline at its end, and still has none.
        ends = [each or usual for each in ends]
        ends[-1] = ""
    return "".join(chain.from_iterable(zip(new, ends, strict=True)))


def _edits(path: str, chunk: Chunk, found: Found, lines: Sequence[str]) -> list[_Edit]:
    """What the chunk changes, from top to bottom."""
    indent = _keep if found.exact else _make_indent(found, lines)
    edits: list[_Edit] = []
    added: list[str] = []
    start = here = found.at
    for line in (*found.body, " "):
        if line[0] == "-":
            here += 1
        elif line[0] == "+":
            if indent is None and line[1:].strip():
                raise unclear_indent(path, chunk, line[1:], found.at)
            added.append(indent(line[1:]) if indent else line[1:])
        else:
            if added or here > start:
                edits.append(_Edit(start, here, added))
                added = []
            start = here = here + 1
    return edits


def _keep(line: str) -> str:
    return line


def _make_indent(found: Found, lines: Sequence[str]) -> Shift | None:
    """How lines that come are to be indented where the file indents the old ones in another way
    than the patch does; None when that cannot be told."""
    old = [line for line in found.body if line[0] != "+"]
    real = lines[found.at : found.at + len(old)]
    pairs = [(line[0], line[1:], there) for line, there in zip(old, real, strict=True)]
    going = [(line, there) for mark, line, there in pairs if mark == "-" and there.strip()]
    staying = [(line, there) for mark, line, there in pairs if mark == " " and there.strip()]
    # Lines that go are written like lines that come. A line that stays may have been written
    # without its mark, which takes a space from it and none from the others.
    unmarked = all(
        indentation(there) in (indentation(line), f" {indentation(line)}")
        for line, there in staying
    )
    same = all(indentation(line) == indentation(there) for line, there in going)
    if same and (going or unmarked):
        return _keep
    return find_shift(going if unmarked else going + staying)
