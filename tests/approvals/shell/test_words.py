"""Single words of a shell command."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import pytest
from tests.tables import table

from clawkit.approvals.shell_words import LiteralText, Tilde, Wildcard, WordReader
from clawkit.approvals.types import Doubt


def _a_word_ends_at_gaps_and_operators(end: str) -> None:
    reader = WordReader(f"x a'b'{end}c", 2)
    assert reader.read() == [(LiteralText("ab" if end else "abc"),)]
    assert reader.end == (6 if end else 7)


def test_a_word_ends_at_gaps_and_operators(subtests: pytest.Subtests) -> None:
    cases: Iterable[Any] = ["", *" \t\n;&|<>()"]
    for end in cases:
        with subtests.test(end=end):
            _a_word_ends_at_gaps_and_operators(end)


@table("char", ["\0", "\x01", "\r", "\x7f"])
def test_a_control_character_is_never_part_of_a_word(char: str) -> None:
    with pytest.raises(Doubt) as caught:
        WordReader(f"a{char}b", 0).read()
    assert (caught.value.code, caught.value.at) == ("control", 1)


def test_continued_line_ends_behind_a_word_are_passed_but_not_part_of_it() -> None:
    reader = WordReader("a\\\nb\\\n\\\n c", 0)
    assert reader.read() == [(LiteralText("ab"),)]
    assert (reader.end, reader.at, reader.joined) == (4, 8, True)


def test_braces_and_patterns_are_recognized() -> None:
    reader = WordReader("~/{a,b}*", 0)
    assert reader.read() == [
        (Tilde(), LiteralText("/a"), Wildcard("*")),
        (Tilde(), LiteralText("/b"), Wildcard("*")),
    ]
    assert (reader.wild, reader.braces) == (True, "choice")
    reader = WordReader("HEAD@{1}", 0)
    assert reader.read() == [(LiteralText("HEAD@{1}"),)]
    assert (reader.wild, reader.braces) == (False, "literal")
