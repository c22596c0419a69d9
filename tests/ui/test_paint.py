"""Text on its way to a terminal: nothing is lost, nothing acts."""

from __future__ import annotations

import re

from hypothesis import given
from hypothesis import strategies as st
from tests.tables import table

from clawkit.ui.markdown_layout import MAX_COLOURED
from clawkit.ui.paint import MAX_MARKDOWN, Glyphs, Paint

PAINT = Paint()
OURS = re.compile(r"\x1b\[[0-9;]*m")
WORDS = st.lists(st.from_regex(r"w[0-9]{1,4}", fullmatch=True), min_size=1, max_size=6)
MARKS = st.sampled_from(
    [
        *(
            "{}",
            "# {}",
            "- {}",
            "  - {}",
            "1. {}",
            "> {}",
            "`{}`",
            "**{}**",
            "| {} |",
            "|---|",
            "---",
        ),
        *(
            "```\n{}\n```",
            "    {}",
            "<b>{}</b>",
            "![{}](x)",
            "[{}](y)",
            "[{}]: z",
            "<!-- {} -->",
            "~~{}~~",
        ),
        *(
            "- > {}",
            "> - {}",
            "| {} | b |\n|---|---|\n| c | d |",
            "{}\n===",
            "\t{}",
            "\\{}",
            "&amp;{}",
        ),
    ]
)


@given(st.lists(st.tuples(MARKS, WORDS), max_size=6), st.integers(20, 130))
def test_every_word_is_shown(lines: list[tuple[str, list[str]]], width: int) -> None:
    text = "\n".join(mark.format(" ".join(words)) for mark, words in lines)
    shown = OURS.sub("", PAINT.markdown(text, width))
    wanted = [word for mark, words in lines if "{}" in mark for word in words]
    assert [word for word in wanted if word not in shown] == []


@given(st.text())
def test_nothing_but_our_own_colours_acts_on_the_terminal(text: str) -> None:
    for shown in (PAINT.markdown(text, 60), PAINT(text, "dim"), PAINT(text)):
        assert OURS.sub("", shown).replace("\n", "").isprintable()


@table(
    ("text", "shown"),
    [
        ("\x1b[31mred", r"\u{1b}[31mred"),
        ("&#x202e;back &#27;[2J", "\\u{202e}back \ufffd[2J"),
        ("[red]x[/red]", "[red]x[/red]"),
        (":smile:", ":smile:"),
        ("[text](http://a.example/x)", "text (http://a.example/x)"),
        ("<http://a.example/%E2%80%AE>", "<http://a.example/%E2%80%AE>"),
        ("one\ntwo", "one\ntwo"),
        ("a\r\nb", "a\nb"),
    ],
)
def test_what_is_written_is_shown_and_does_nothing(text: str, shown: str) -> None:
    assert Paint(colours=False).markdown(text, 80) == shown


def test_code_is_coloured_and_can_be_copied() -> None:
    text = "```python\nif x:\n    return 'y'\n```"
    assert Paint(colours=False).markdown(text, 60) == "  if x:\n      return 'y'"
    shown = Paint().markdown(text, 60)
    assert "\x1b[" in shown
    assert OURS.sub("", shown) == "  if x:\n      return 'y'"


def test_what_is_too_long_is_shown_as_it_is() -> None:
    paint = Paint()
    long = "*a* " * (MAX_MARKDOWN // 4 + 1)
    assert paint.markdown(long, 80) == long.strip("\n")
    code = "x = 1\n" * (MAX_COLOURED // 6 + 1)
    assert not re.search(r"\x1b\[(?!49|0)", paint.markdown(f"```py\n{code}```", 80))


def test_tables_are_laid_out() -> None:
    shown = Paint(colours=False).markdown("| a | b |\n|---|---|\n| long cell | d |", 60)
    assert "long cell" in shown
    assert "|" not in shown


@table(("encoding", "yes"), [("utf-8", "✓"), ("UTF8", "✓"), ("ascii", "ok"), (None, "ok")])
def test_marks_are_those_that_the_terminal_has(encoding: str | None, yes: str) -> None:
    assert Glyphs(encoding).yes == yes


def test_lines_are_coloured_one_by_one() -> None:
    assert Paint()("a\n\nb", "good") == "\x1b[32ma\x1b[0m\n\n\x1b[32mb\x1b[0m"
    assert Paint(colours=False)("a", "good") == "a"


def test_a_table_of_nothing_but_cells_is_shown_as_it_was_written() -> None:
    text = "|a" * 50 + "|\n" + "|-" * 50 + "|\n" + "|\n" * 1_500
    shown = Paint(colours=False).markdown(text, 80)
    assert shown.count("\n") < 2_000
    assert "|a|a|a" in shown
    small = Paint(colours=False).markdown("| a | b |\n| - | - |\n| 1 | 2 |\n", 80)
    assert "|" not in small
