"""Taking Markdown apart while it is being written."""

from __future__ import annotations

from itertools import pairwise

from hypothesis import given
from hypothesis import strategies as st
from tests.tables import table

from clawkit.ui.markdown import Blocks

LINES = st.sampled_from(
    [
        *("", "", "text", "more text", "# heading", "#tag", "- item", "1. item", "  inside"),
        *(
            "```",
            "```py",
            "~~~",
            "````",
            "    ```",
            "  ```",
            "| a | b |",
            "> quote",
            "---",
            "\t",
            "\r",
        ),
    ]
)
TEXTS = st.one_of(st.lists(LINES).map("\n".join), st.text("`~-#1. \n\tab", max_size=80))


def blocks_of(*pieces: str) -> list[str]:
    blocks = Blocks()
    return [block for piece in pieces for block in blocks.feed(piece)] + blocks.finish()


@given(TEXTS, st.lists(st.integers(0, 100), max_size=8))
def test_blocks_do_not_depend_on_how_a_text_is_cut(text: str, cuts: list[int]) -> None:
    at = sorted({0, len(text), *(cut for cut in cuts if cut < len(text))})
    pieces = [text[start:end] for start, end in pairwise(at)]
    assert blocks_of(*pieces) == blocks_of(text)
    assert blocks_of(*text) == blocks_of(text)


@given(TEXTS)
def test_blocks_are_the_text(text: str) -> None:
    assert "".join(blocks_of(text)) == text


@given(TEXTS)
def test_incomplete_blocks_remain_in_the_rest(text: str) -> None:
    blocks = Blocks()
    assert "".join(blocks.feed(text)) + blocks.rest == text


@table(
    ("text", "blocks"),
    [
        ("a\nb\n\nc\n", ["a\nb\n\n", "c\n"]),
        ("# h\ntext\n", ["# h\n", "text\n"]),
        ("text\n# h\n", ["text\n", "# h\n"]),
        ("text\n```\n\ncode\n\n```\nafter\n", ["text\n", "```\n\ncode\n\n```\n", "after\n"]),
        ("```\nnever closed\n\nmore", ["```\nnever closed\n\nmore"]),
        ("````\n```\n````\nx\n", ["````\n```\n````\n", "x\n"]),
        ("~~~\n```\n~~~\nx\n", ["~~~\n```\n~~~\n", "x\n"]),
        ("- a\n\n- b\n\n  more\n\ntext\n", ["- a\n\n- b\n\n  more\n\n", "text\n"]),
        ("- a\n  ```\n\n  y\n  ```\n- b\n\nz\n", ["- a\n  ```\n\n  y\n  ```\n- b\n\n", "z\n"]),
        ("```not`a fence\n\nx\n", ["```not`a fence\n\n", "x\n"]),
    ],
)  # fmt: skip
def test_a_text_is_taken_apart_where_a_block_ends(text: str, blocks: list[str]) -> None:
    assert blocks_of(text) == blocks


def test_a_block_is_given_as_soon_as_it_is_complete() -> None:
    blocks = Blocks()
    assert blocks.feed("A paragraph.\n") == []
    assert blocks.feed("\n") == ["A paragraph.\n\n"]
    assert blocks.feed("```\nx\n``") == []
    assert blocks.feed("`\n") == ["```\nx\n```\n"]
    assert blocks.rest == ""
