"""Lines as rows of a terminal."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st
from tests.tables import table

from clawkit.terminal_text import text_width
from clawkit.text import printable
from clawkit.ui.paint import Paint, PaintedRow, fold_line, fold_parts, fold_rows

PAINT = Paint(colours=False)


def spelled(text: str) -> str:
    return printable(text, "")


@table(
    ("line", "rows"),
    [
        ("short", ["short"]),
        ("", [""]),
        ("use pytest instead of it", ["use pytest instead", "  of it"]),
        ("  use pytest and more", ["  use pytest and", "    more"]),
        ("x" * 25, ["x" * 19, f"  {'x' * 6}"]),
        (f"{' ' * 18}far right", ["", f"{' ' * 10}far right"]),
    ],
)
def test_a_line_is_folded_at_blanks(line: str, rows: list[str]) -> None:
    assert list(fold_line(line, 20)) == rows


@table(
    ("columns", "rows"),
    [
        (25, ["/policy   why a tool is", f"{' ' * 10}in force"]),
        (20, ["/policy   why a", f"{' ' * 10}tool is", f"{' ' * 10}in force"]),
        (19, ["/policy   why a", f"{' ' * 10}tool is", f"{' ' * 10}in force"]),
    ],
)
def test_a_row_of_a_table_goes_on_in_its_column(columns: int, rows: list[str]) -> None:
    row = PaintedRow("/policy   why a tool is in force", "", 10)
    assert list(fold_rows([row], PAINT, columns)) == rows
    too_far = PaintedRow("/policy   why a tool is in force", "", 11)
    assert list(fold_rows([too_far], PAINT, 20))[1].startswith("  tool")


@table("columns", [0, 1, 5, 20])
def test_a_terminal_without_room_is_tolerated(columns: int) -> None:
    row = PaintedRow(f"{' ' * 30}far to the right")
    assert "".join("".join(fold_rows([row], PAINT, columns)).split()) == "fartotheright"


@given(st.lists(st.text(max_size=30), min_size=1, max_size=6), st.integers(20, 60))
def test_of_a_line_of_parts_nothing_is_lost(texts: list[str], columns: int) -> None:
    parts = [PaintedRow(text, "good") for text in texts]
    rows = list(fold_parts(parts, PAINT, columns))
    assert "".join("".join(rows).split()) == "".join("".join(map(spelled, texts)).split())
    assert all(text_width(row) < columns for row in rows)


def test_every_part_keeps_its_style_when_it_goes_on_in_another_row() -> None:
    parts = [
        PaintedRow("x", "error"),
        PaintedRow(""),
        PaintedRow("refused: use pytest", "warning"),
        PaintedRow("ok\nno", ""),
    ]
    assert list(fold_parts(parts, Paint(), 20)) == [
        "\x1b[31mx \x1b[0m\x1b[33mrefused: use\x1b[0m",
        "  \x1b[33mpytest \x1b[0mok\\u{a}no",
    ]
