"""Measuring, truncating and wrapping text by terminal columns."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from typing import TextIO

_held_back: list[list[Callable[[], None]]] = []
"""Output for after each open question."""


def char_width(char: str, marks: int = 0) -> int:
    """Columns of a character: 1, 2, or `marks` for one drawn over its predecessor. With `marks`,
    symbols that only some terminals draw wide count as wide."""
    # Imported on use: a megabyte of tables that ASCII text does not need.
    import unicodedata

    width, category = unicodedata.east_asian_width(char), unicodedata.category(char)
    # Newer versions of Unicode have more wide symbols.
    is_doubtful = category == "So" or (width == "A" and category[0] not in "LM")
    if width in "WF" or (marks and is_doubtful):
        return 2
    return marks if category in ("Mn", "Me", "Cf", "Cc") else 1


def text_width(text: str) -> int:
    return len(text) if text.isascii() else sum(map(char_width, text))


def truncate(text: str, columns: int) -> str:
    """The text, cut to fit and ending with `…` if it is too long."""
    if text_width(text) <= columns:
        return text
    return f"{text[: _count_fitting(text, columns - 1)]}…"


def wrap(
    text: str, columns: int, first: str = "", continuation: str | None = None, *, marks: int = 0
) -> Iterator[str]:
    """Wrap a line into rows that leave the last column empty.

    Rows end after a space if possible; `first` prefixes the first row, `continuation` the others.
    With `marks=1`, rows also fit in a terminal that gives combining marks their own column, or two
    columns to symbols.
    """
    text = text.expandtabs(4)
    start = first
    while True:
        room = max(columns - 1 - len(start), 1)
        end = max(_count_fitting(text, room, marks), 1)
        if end < len(text):
            blank = text.rfind(" ", end // 2, end)
            end = blank + 1 if blank > 0 else end
        yield start + text[:end]
        text, start = text[end:], first if continuation is None else continuation
        if not text:
            return


def _count_fitting(text: str, columns: int, marks: int = 0) -> int:
    """Number of characters that fit into so many columns."""
    if text.isascii():
        return min(len(text), max(columns, 0))
    for count, char in enumerate(text):
        columns -= char_width(char, marks)
        if columns < 0:
            return count
    return len(text)


@contextmanager
def output_held_back() -> Iterator[None]:
    """Within this block, a question is open on the terminal. Other text below it could imitate its
    choices, so that text is printed at the end."""
    _held_back.append([])
    try:
        yield
    finally:
        with suppress(OSError):  # the next output reports that the terminal is gone
            for write in _held_back.pop():
                write()


def hold_back(stream: TextIO, write: Callable[[], None]) -> bool:
    """Whether a terminal's output is held back: `write` is then called later."""
    if not _held_back or not stream.isatty():
        return False
    _held_back[-1].append(write)
    return True
