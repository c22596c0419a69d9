"""Parse the text of a patch: which files it adds, deletes and updates, and how.

    *** Begin Patch
    *** Add File: new.txt
    +its first line
    *** Update File: old.py
    *** Move to: better.py
    @@ class Shop:
    @@ def open(self):
     a context line
    -a removed line
    +an added line
    *** Delete File: gone.txt
    *** End Patch

No file is accessed here.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from typing import Literal, NamedTuple, NoReturn

from clawkit.core.paths import plain_path
from clawkit.errors import ToolInputError
from clawkit.text import human_size, one_line

MAX_CHARS = 8 * 1024 * 1024
MAX_LINES = 500_000
MAX_CHUNKS = 20_000
MAX_FILES = 1_000

_BEGIN, _END, _END_OF_FILE = "*** Begin Patch", "*** End Patch", "*** End of File"
_MOVE = "*** Move to:"
_HEADER = re.compile(r"\*\*\* (Add|Delete|Update) File:(.*)")
_FENCE = re.compile(r"(```+|~~~+)[\w+-]*")
_HEREDOC = re.compile(r"(?:apply_?patch\s+)?<<-?\s*(['\"]?)([A-Za-z_]\w*)\1")
_NUMBERED = re.compile(r"@@ -\d+(?:,\d+)? \+\d+(?:,\d+)? @@.*")


class Chunk(NamedTuple):
    """One place of a file that changes."""

    number: int
    """Counted from 1 in its section."""
    line: int
    """Its first line in the patch."""
    context: tuple[str, ...]
    """Lines of the file above the place, from the outermost in."""
    body: tuple[str, ...]
    """Lines with their marks: ` ` for context, `-` for removed, `+` for added."""
    at_end: bool = False
    """Whether the place is the end of the file."""
    is_numbered: bool = False
    """Whether the header is in the style of `diff -u`, whose numbers and heading are ignored."""
    loose: int = 0
    """Empty lines at the end of the body that may only separate the chunk from the next."""


class FilePatch(NamedTuple):
    kind: Literal["Add", "Delete", "Update"]
    path: str
    line: int
    """Its first line in the patch."""
    content: str = ""
    """Of a new file."""
    chunks: tuple[Chunk, ...] = ()
    move_to: str = ""


def parse(text: str) -> tuple[FilePatch, ...]:
    """The sections of a patch, in order. Raises `ToolInputError` for an invalid patch."""
    if len(text) > MAX_CHARS:
        raise ToolInputError(f"the patch is larger than {human_size(MAX_CHARS)}; send it in parts")
    lines = text.split("\n")
    if len(lines) > MAX_LINES:
        raise ToolInputError(f"the patch has more than {MAX_LINES:,} lines; send it in parts")
    begin, end = _unwrap(lines)
    if lines[begin].endswith("\r"):
        lines = [line.removesuffix("\r") for line in lines]
    headers = {
        at: found
        for at in range(begin + 1, end)
        if lines[at].startswith("*** ") and (found := _HEADER.fullmatch(lines[at].rstrip()))
    }
    stops = [*headers, end]
    for at in range(begin + 1, stops[0]):
        if lines[at].strip():
            _refuse(
                at, lines[at], "'*** Add File: …', '*** Update File: …' or '*** Delete File: …'"
            )
    if not headers:
        raise ToolInputError("the patch names no file, so nothing was changed")
    if len(headers) > MAX_FILES:
        raise ToolInputError(f"the patch has more than {MAX_FILES:,} sections; send it in parts")
    sections = tuple(
        _section(lines, at, stop, found)
        for (at, found), stop in zip(headers.items(), stops[1:], strict=True)
    )
    if sum(len(each.chunks) for each in sections) > MAX_CHUNKS:
        raise ToolInputError(f"the patch has more than {MAX_CHUNKS:,} chunks; send it in parts")
    return sections


def paths_of(sections: Sequence[FilePatch]) -> tuple[str, ...]:
    """All paths in the sections, without duplicates."""
    named = (path for each in sections for path in (each.path, each.move_to) if path)
    return tuple(dict.fromkeys(named))


def _unwrap(lines: Sequence[str]) -> tuple[int, int]:
    """The first and the last line of the envelope, without a code fence or shell here-document
    around it."""
    begin, end = _trim(lines, 0, len(lines) - 1)
    while begin < end:
        first, last = lines[begin].strip(), lines[end].strip()
        fence, heredoc = _FENCE.fullmatch(first), _HEREDOC.fullmatch(first)
        if last != (fence[1] if fence else heredoc[2] if heredoc else None):
            break
        begin, end = _trim(lines, begin + 1, end - 1)
    if begin > end:
        raise ToolInputError(f"the patch is empty; send one that starts with {_BEGIN!r}")
    if lines[begin].startswith(("--- ", "diff --git ", "Index: ")):
        raise ToolInputError(
            f"this is a unified diff; use the format that starts with {_BEGIN!r}, with a section "
            "like '*** Update File: path' for each file. Nothing was changed"
        )
    if lines[begin].strip() != _BEGIN:
        _refuse(begin, lines[begin], repr(_BEGIN))
    if begin == end or lines[end].strip() != _END:
        _refuse(end, lines[end], f"{_END!r} as the last line: the patch seems to be cut off")
    return begin, end


def _trim(lines: Sequence[str], begin: int, end: int) -> tuple[int, int]:
    while begin <= end and not lines[begin].strip():
        begin += 1
    while begin <= end and not lines[end].strip():
        end -= 1
    return begin, end


def _section(lines: Sequence[str], at: int, stop: int, header: re.Match[str]) -> FilePatch:
    path = _path(at, header[2])
    if header[1] == "Add":
        return FilePatch("Add", path, at + 1, "".join(_new_lines(lines, at + 1, stop)))
    first, _ = _trim(lines, at + 1, stop - 1)
    if header[1] == "Delete":
        if first < stop:
            _refuse(first, lines[first], "another section: a deletion has no lines")
        return FilePatch("Delete", path, at + 1)
    move_to, body = "", at + 1
    if first < stop and lines[first].startswith(_MOVE):
        move_to, body = _path(first, lines[first][len(_MOVE) :]), first + 1
    chunks = tuple(_chunks(lines, body, stop))
    if not chunks and not move_to:
        _refuse(at, lines[at], "lines after it that say what changes")
    return FilePatch("Update", path, at + 1, chunks=chunks, move_to=move_to)


def _new_lines(lines: Sequence[str], start: int, stop: int) -> Iterator[str]:
    """The content of a new file. An empty line may lack its mark."""
    first, last = _trim(lines, start, stop - 1)
    for at in range(first, last + 1):
        line = lines[at]
        if line.strip() and not line.startswith("+"):
            _refuse(at, line, "'+' at the start, like every line of a new file")
        yield f"{line[1:] if line.startswith('+') else ''}\n"


def _chunks(lines: Sequence[str], start: int, stop: int) -> Iterator[Chunk]:
    """The chunks of an update. Consecutive headers belong to one chunk."""
    number, at = 0, start
    head: int | None = None
    context: list[str] = []
    is_numbered = False
    while at < stop:
        if lines[at].startswith("@@"):
            heading = lines[at].rstrip("\r")
            is_numbered = _NUMBERED.fullmatch(heading) is not None
            if heading[2:3].strip():
                _refuse(at, heading, "a space after '@@'")
            if heading[3:].strip() and not is_numbered:
                context.append(heading[3:])
            head = at if head is None else head
            at += 1
            continue
        ends = (
            each
            for each in range(at, stop)
            if lines[each].startswith("@@") or lines[each].rstrip() == _END_OF_FILE
        )
        end = next(ends, stop)
        at_end = end < stop and not lines[end].startswith("@@")
        body, loose = _body(lines, at, end)
        if body:
            if number and head is None:
                _refuse(at, lines[at], "'@@' before it, as every chunk but the first")
            number += 1
            line = (at if head is None else head) + 1
            yield Chunk(number, line, tuple(context), body, at_end, is_numbered, loose)
            head, context, is_numbered = None, [], False
        elif at_end:
            _refuse(end, lines[end], "lines before it")
        at = end + at_end
    if head is not None:
        _refuse(head, lines[head], "lines after it")


def _body(lines: Sequence[str], start: int, stop: int) -> tuple[tuple[str, ...], int]:
    """Lines with their marks, and how many empty ones at the end may only be separators; no lines
    if there are only such."""
    body: list[str] = []
    loose = 0
    for at in range(start, stop):
        line = lines[at].removesuffix("\r")
        if line.startswith("\\ No newline"):
            continue
        if line[:1] not in ("", " ", "-", "+", "\t"):
            _refuse(at, line, "' ', '-', '+' or '@@' at the start")
        loose = 0 if line else loose + 1
        # A line that starts with a tab must have lost its mark.
        body.append(line if line[:1] in (" ", "-", "+") else f" {line}")
    solid = body[: len(body) - loose]
    marks = {line[0] for line in solid if line.strip()}
    if marks == {"+"} and solid[0][0] == solid[-1][0] == "+":
        if any(line[0] == " " for line in solid):
            blank = start + next(at for at, line in enumerate(solid) if line[0] == " ")
            _refuse(blank, lines[blank], "'+' at the start, like the added lines around it")
        # After lines that are only added, an empty line does not say where to add them.
        return tuple(solid), 0
    return tuple(body) if solid else (), loose


def _path(at: int, text: str) -> str:
    path = text.strip()
    if not path:
        _refuse(at, text, "a path after the colon")
    try:
        return plain_path(path)
    except ToolInputError as error:
        raise ToolInputError(f"line {at + 1} of the patch: {error}") from None


def _refuse(at: int, line: str, expected: str) -> NoReturn:
    raise ToolInputError(
        f"line {at + 1} of the patch is {one_line(line, 80)!r}, but must have {expected}; "
        "nothing was changed"
    )
