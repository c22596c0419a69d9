"""Splits streaming Markdown into blocks that can be shown.

Pure: the blocks do not depend on how the text is cut into pieces, and joined they are the text.
"""

from __future__ import annotations

import re

_FENCE = re.compile(r"( *)(`{3,}(?=[^`]*$)|~{3,})")
_ITEM = re.compile(r" *(?:[-*+]|[0-9]{1,9}[.)])(?:[ \t]|$)")
_HEADING = re.compile(r" {0,3}#{1,6}(?:[ \t]|$)")
_MOST_INDENT = 3
"""A line with more leading spaces is code in Markdown."""


class Blocks:
    """Takes pieces of text and returns complete blocks: paragraphs, lists, code, tables."""

    def __init__(self) -> None:
        self._lines: list[str] = []
        self._part: list[str] = []
        """Pieces of the unfinished line."""
        self._fence: tuple[int, str] | None = None
        """Indent and marks of the opening fence, inside a code block."""
        self._is_list = False
        self._has_text = False
        """Whether the open block has more than blank lines."""
        self._after_blank = False

    @property
    def rest(self) -> str:
        return "".join((*self._lines, *self._part))

    def feed(self, piece: str) -> list[str]:
        head, newline, tail = piece.rpartition("\n")
        if not newline:
            self._part.append(piece)
            return []
        text = "".join((*self._part, head))
        self._part = [tail]
        return [block for line in text.split("\n") for block in self._take(f"{line}\n")]

    def finish(self) -> list[str]:
        """The remaining blocks at the end of the text."""
        last = "".join(self._part)
        self._part = []
        found = self._take(last) if last else []
        found += self._close()
        self._fence = None
        return found

    def _take(self, line: str) -> list[str]:
        """The blocks that a line completes; the line is part of the last or of the open one."""
        if self._fence is not None:
            return self._take_code(line, *self._fence)
        if not line.strip():
            self._lines.append(line)
            self._after_blank = True
            # After a blank line, a list may still continue.
            return self._close() if self._has_text and not self._is_list else []
        is_inside = self._is_list and line.startswith(("  ", "\t"))
        is_item = _ITEM.match(line) is not None
        ends = self._after_blank and not is_inside and not (self._is_list and is_item)
        found = self._close() if ends and self._has_text else []
        self._after_blank, self._has_text = False, True
        if not is_inside and _HEADING.match(line):
            found += self._close()
            self._lines.append(line)
            return found + self._close()
        fence = _FENCE.match(line.rstrip())
        if fence and (is_inside or len(fence[1]) <= _MOST_INDENT):
            if not is_inside:
                found += self._close()
            self._fence = (len(fence[1]), fence[2])
        self._lines.append(line)
        self._is_list = self._is_list or (is_item and not fence)
        return found

    def _take_code(self, line: str, indent: int, marks: str) -> list[str]:
        self._lines.append(line)
        text = line.strip()
        is_indented = len(line) - len(line.lstrip(" ")) > indent + _MOST_INDENT
        if is_indented or len(text) < len(marks) or text.strip(marks[0]):
            return []
        self._fence = None
        return [] if self._is_list else self._close()

    def _close(self) -> list[str]:
        block = "".join(self._lines)
        self._lines = []
        self._is_list = self._has_text = self._after_blank = False
        return [block] if block else []
