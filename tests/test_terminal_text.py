"""Text on a terminal: widths, cutting, wrapping."""

from __future__ import annotations

import pytest

from clawkit.approvals.prompt import fold
from clawkit.terminal_text import text_width, truncate, wrap


@pytest.mark.parametrize(
    ("text", "columns"), [("", 0), ("abc", 3), ("日本", 4), ("e\u0301", 1), ("a\u200bb", 2)]
)
def test_a_text_takes_columns(text: str, columns: int) -> None:
    assert text_width(text) == columns


@pytest.mark.parametrize(
    ("text", "columns", "shown"),
    [
        ("abc", 3, "abc"),
        ("abcd", 3, "ab…"),
        ("日本語", 5, "日本…"),
        ("日本語", 4, "日…"),
        ("ab", 0, "…"),
    ],
)
def test_a_text_is_cut_to_columns(text: str, columns: int, shown: str) -> None:
    assert truncate(text, columns) == shown


def test_a_line_is_wrapped_behind_blanks() -> None:
    rows = list(wrap("one two three four", 10, "> ", "  "))
    assert rows == ["> one ", "  two ", "  three ", "  four"]
    assert list(wrap("", 10, "> ")) == ["> "]
    assert list(wrap("日本語日本語", 6)) == ["日本", "語日", "本語"]
    assert list(wrap("ab", 1)) == ["a", "b"]


@pytest.mark.parametrize("columns", [20, 31, 80])
def test_plain_text_is_wrapped_as_in_questions(columns: int) -> None:
    text = "the quick brown fox jumps over a very-long-word-that-fits-nowhere and rests " * 3
    assert list(wrap(text, columns, "  ", "    ")) == list(fold(text, columns, "  ", "    "))
