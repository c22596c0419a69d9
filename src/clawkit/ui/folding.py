"""Lines as rows of a terminal, folded where words end."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import groupby

from clawkit.approvals.display import MIN_WIDTH, fold
from clawkit.text import printable
from clawkit.ui.calls import Row
from clawkit.ui.paint import Paint, Style

_DEEPEST = 20
"""Blanks that the rows in which a line goes on begin with, unless it says where."""


def fold_rows(rows: Iterable[Row], paint: Paint, columns: int) -> Iterator[str]:
    """Lines in one style each."""
    for row in rows:
        for line in printable(row.text.replace("\r\n", "\n")).split("\n"):
            for part in fold_line(line, columns, row.column):
                yield paint(part, row.style)


def fold_line(line: str, columns: int, column: int = 0) -> Iterator[str]:
    """One line; it goes on in that column, else a little to the right of where it begins."""
    width = max(columns, MIN_WIDTH)
    start = len(line) - len(line.lstrip(" "))
    rest = column if 0 < column <= width // 2 else min(start + 2, _DEEPEST, width // 2)
    return (part.rstrip(" ") for part in fold(line, width, "", " " * rest))


def fold_parts(parts: Iterable[Row], paint: Paint, columns: int) -> Iterator[str]:
    """One line of several parts, each in its style."""
    shown = [Row(printable(part.text, ""), part.style) for part in parts if part.text]
    styles: list[Style] = [part.style for part in shown for _ in f"{part.text} "]
    rest, at = "", 0
    for row in fold(" ".join(part.text for part in shown), max(columns, MIN_WIDTH), "", "  "):
        text = row[len(rest) :]
        pairs = zip(text.rstrip(" "), styles[at:], strict=False)
        pieces = (
            paint("".join(char for char, _ in each), style)
            for style, each in groupby(pairs, lambda pair: pair[1])
        )
        yield rest + "".join(pieces)
        rest, at = "  ", at + len(text)
