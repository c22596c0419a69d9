"""Text on a terminal: how many columns it takes, cutting it and wrapping it."""

from __future__ import annotations

from collections.abc import Iterator


def char_width(char: str) -> int:
    """How many columns a character takes: 0, 1 or 2."""
    # A megabyte of tables that only text of other alphabets needs.
    import unicodedata

    if unicodedata.east_asian_width(char) in "WF":
        return 2
    return 0 if unicodedata.category(char) in ("Mn", "Me", "Cf", "Cc") else 1


def text_width(text: str) -> int:
    """How many columns a text takes."""
    return len(text) if text.isascii() else sum(map(char_width, text))


def truncate(text: str, columns: int) -> str:
    """The beginning of a text that fits, ended by `…` if that is not all."""
    if text_width(text) <= columns:
        return text
    return f"{text[: _count_fitting(text, columns - 1)]}…"


def wrap(text: str, columns: int, first: str = "", rest: str | None = None) -> Iterator[str]:
    """A line as rows of a terminal, the last column of which stays empty.

    Rows end behind a blank where possible; `first` and `rest` begin the first row and the others.
    """
    text = text.expandtabs(4)
    start = first
    while True:
        room = max(columns - 1 - len(start), 1)
        end = max(_count_fitting(text, room), 1)
        if end < len(text):
            blank = text.rfind(" ", end // 2, end)
            end = blank + 1 if blank > 0 else end
        yield start + text[:end]
        text, start = text[end:], first if rest is None else rest
        if not text:
            return


def _count_fitting(text: str, columns: int) -> int:
    """How many characters fit into columns."""
    if text.isascii():
        return min(len(text), max(columns, 0))
    for count, char in enumerate(text):
        columns -= char_width(char)
        if columns < 0:
            return count
    return len(text)
