"""Text on a terminal: widths, cutting, wrapping."""

from __future__ import annotations

from tests.tables import table

from clawkit.terminal_text import text_width, truncate, wrap


@table(("text", "columns"), [("", 0), ("abc", 3), ("日本", 4), ("e\u0301", 1), ("a\u200bb", 2)])
def test_text_width_counts_terminal_columns(text: str, columns: int) -> None:
    assert text_width(text) == columns


@table(
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


@table(
    ("text", "rows"),
    [
        ("", ["- "]),
        ("short", ["- short"]),
        ("it breaks behind a blank", ["- it breaks ", "+ behind a ", "+ blank"]),
        ("unbrokenunbroken", ["- unbrokenunb", "+ roken"]),
        ("漢字漢字漢字漢字", ["- 漢字漢字漢", "+ 字漢字"]),
        ("ünbrokenünbroken", ["- ünbrokenünb", "+ roken"]),
        ("e\u0301" * 6, ["- " + "e\u0301" * 5 + "e", "+ \u0301"]),
    ],
)
def test_combining_marks_can_be_given_a_column(text: str, rows: list[str]) -> None:
    assert list(wrap(text, 14, "- ", "+ ", marks=1)) == rows


@table("text", ["☰" * 12, "°" * 12, "⚠" * 12])
def test_what_only_some_terminals_draw_wide_also_fits_there(text: str) -> None:
    assert [len(row) for row in wrap(text, 14, "- ", "+ ", marks=1)] == [7, 7, 4]
