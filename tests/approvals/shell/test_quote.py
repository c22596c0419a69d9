"""Words that mean exactly a text."""

from __future__ import annotations

import subprocess
from collections.abc import Iterable
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from clawkit.approvals.shell_parse import parse
from clawkit.approvals.shell_words import RESERVED, Simple, quote

NASTY = st.text(
    st.one_of(
        st.sampled_from("ab01 \t\n'\"\\$`!#~*?[]{},=;&|<>()-+@%^:./é日\x01\x7f\u00a0"),
        st.characters(exclude_characters="\0", exclude_categories=["Cs"]),
    ),
    max_size=12,
)


def _only_words_that_need_it_are_quoted(value: str, expected: str) -> None:
    assert quote(value) == expected


def test_only_words_that_need_it_are_quoted(subtests: pytest.Subtests) -> None:
    cases: Iterable[Any] = [
        ("git", "git"),
        ("/usr/bin/git", "/usr/bin/git"),
        ("--a,b:c@d%e+f_1.2", "--a,b:c@d%e+f_1.2"),
        ("", "''"),
        ("a b", "'a b'"),
        ("it's", "'it'\\''s'"),
        ("'", "''\\'''"),
        ("a\nb", "'a\nb'"),
        ("A=1", "'A=1'"),
        ("~", "'~'"),
        ("{a,b}", "'{a,b}'"),
        ("#", "'#'"),
        ("*", "'*'"),
        ("if", "'if'"),
        ("é", "'é'"),
        ("日2", "'日''2'"),
    ]
    for value, expected in cases:
        with subtests.test(value=value, expected=expected):
            _only_words_that_need_it_are_quoted(value, expected)


def test_no_word_of_the_shell_is_left_bare() -> None:
    assert all(quote(word) == f"'{word}'" for word in RESERVED)


def test_a_nul_cannot_be_quoted() -> None:
    with pytest.raises(ValueError, match="NUL"):
        quote("a\0b")


def ask_bash(values: list[str]) -> list[str]:
    text = f"printf '%s\\0' {' '.join(map(quote, values))}"
    command = ["/bin/bash", "--noprofile", "--norc", "-c", text]
    done = subprocess.run(command, env={}, capture_output=True, check=True)
    return done.stdout.decode().split("\0")[:-1]


@given(st.lists(NASTY, min_size=1, max_size=30))
def test_bash_reads_back_what_was_quoted(values: list[str]) -> None:
    assert ask_bash(values) == values


@given(NASTY.filter(str.isprintable))
def test_quoted_text_is_parsed_back(value: str) -> None:
    (command,) = parse(f"a {quote(value)}").chains[0].first.commands
    assert isinstance(command, Simple)
    assert command.words[1].literal == value
