"""Shell commands as data."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import pytest
from tests.approvals.shell.cases import DOUBTS, SHAPES, WORDS
from tests.approvals.shell.views import show_script, show_word
from tests.tables import table

from clawkit.approvals.shell_parse import (
    MAX_BYTES,
    MAX_CHOSEN_WORDS,
    MAX_COMMANDS,
    MAX_DEPTH,
    MAX_HERE_DOCUMENTS,
    MAX_WORDS,
    parse,
)
from clawkit.approvals.shell_words import (
    MAX_CHOICES,
    MAX_CHOSEN,
    MAX_PIECES,
    For,
    If,
    LiteralText,
    Simple,
    Variable,
    Word,
)
from clawkit.approvals.types import Doubt


def only(text: str) -> Simple:
    """The single command of a text."""
    (chain,) = parse(text).chains
    assert not chain.rest
    (command,) = chain.first.commands
    assert isinstance(command, Simple)
    return command


def doubt(text: str) -> Doubt:
    with pytest.raises(Doubt) as caught:
        parse(text)
    return caught.value


def _words_are_decoded(text: str, expected: list[str]) -> None:
    command = only(text)
    assert [show_word(word) for word in command.words] == expected
    assert not command.assignments
    assert not command.redirects


def test_words_are_decoded(subtests: pytest.Subtests) -> None:
    cases: Iterable[Any] = WORDS
    for text, expected in cases:
        with subtests.test(text=text, expected=expected):
            _words_are_decoded(text, expected)


def _commands_are_combined(text: str, expected: str) -> None:
    assert show_script(parse(text)) == expected


def test_commands_are_combined(subtests: pytest.Subtests) -> None:
    cases: Iterable[Any] = SHAPES
    for text, expected in cases:
        with subtests.test(text=text, expected=expected):
            _commands_are_combined(text, expected)


def _unsupported_syntax_is_in_doubt(text: str, code: str, at: int) -> None:
    found = doubt(text)
    assert (found.code, found.at) == (code, at)
    assert found.reason.isprintable()
    assert not found.reason.endswith(".")


def test_unsupported_syntax_is_in_doubt(subtests: pytest.Subtests) -> None:
    cases: Iterable[Any] = DOUBTS
    for text, code, at in cases:
        with subtests.test(text=text, code=code, at=at):
            _unsupported_syntax_is_in_doubt(text, code, at)


def test_a_word_has_its_position() -> None:
    text = "A=1 B='x' \\\n gi't' \"a b\"\\\n {c,d} 2>f\\\n <<<'g' # h"
    command = only(text)
    assert (command.start, command.end) == (0, text.index(" # h"))
    assert [text[word.start : word.end] for word in command.words] == [
        "gi't'",
        '"a b"',
        "{c,d}",
        "{c,d}",
    ]
    values = [each.value for each in command.assignments]
    assert [text[word.start : word.end] for word in values] == ["1", "'x'"]
    assert [text[each.start : each.end] for each in command.redirects] == ["2>f", "<<<'g'"]
    targets = [each.target for each in command.redirects]
    assert [text[each.start : each.end] for each in targets if each] == ["f", "'g'"]


def test_a_loop_has_its_position() -> None:
    text = "a; for x in b; do c; done 2>&1 ; d"
    loop = parse(text).chains[1].first.commands[0]
    assert isinstance(loop, For)
    assert text[loop.start : loop.end] == "for x in b; do c; done 2>&1"


def test_texts_side_by_side_are_one_part() -> None:
    assert only("a'b'\"c\"\\d$'e'").words == (Word((LiteralText("abcde"),), 0, 13),)
    assert only("\"\"''").words[0].parts == (LiteralText(""),)


def test_an_empty_quote_beside_a_variable_is_kept() -> None:
    assert only('""$x').words[0].parts == (LiteralText(""), Variable("x", False))
    assert only('"$x"').words[0].parts == (Variable("x", True),)
    assert only('"$x"').words[0].literal is None


def test_an_assignment_holds_only_its_value() -> None:
    (assignment,) = only("A=$x").assignments
    assert assignment.value == Word((Variable("x", False),), 2, 4)
    (assignment,) = only("A=").assignments
    assert assignment.value == Word((LiteralText(""),), 2, 2)


def test_branches_without_an_else_have_none() -> None:
    branch = parse("if a; then b; fi").chains[0].first.commands[0]
    assert isinstance(branch, If)
    assert branch.otherwise is None


@table("char", ["a", "é", "日"])
def test_64_kib_of_utf_8_are_the_limit(char: str) -> None:
    size = len(char.encode())
    fits = "x" * (MAX_BYTES % size) + char * (MAX_BYTES // size)
    assert only(fits).words[0].literal == fits
    assert (doubt(fits + "x").code, doubt("\ud800" * MAX_BYTES).code) == ("long", "long")


@table(
    ("opening", "closing"),
    [
        ("( ", ")"),
        ("{ ", ";}"),
        ("if ", ";then b;fi"),
        ("if a;then ", ";fi"),
        ("for x in a;do ", ";done"),
    ],
)
def test_nesting_has_a_limit(opening: str, closing: str) -> None:
    assert parse(opening * MAX_DEPTH + "a" + closing * MAX_DEPTH)
    for depth in (MAX_DEPTH + 1, MAX_BYTES // len(opening)):
        found = doubt(opening * depth)
        assert found.code == "deep"
        assert found.at // len(opening) == MAX_DEPTH


def test_adjacent_constructs_do_not_count_as_nested() -> None:
    assert len(parse("(a);" * 200).chains) == 200
    assert parse("if a;then b;" + "elif c;then d;" * 200 + "fi")


@pytest.mark.parametrize(
    ("fits", "more"),
    [
        ("a;" * MAX_COMMANDS, "a"),
        ("a|" * (MAX_COMMANDS - 1) + "a", "|a"),
        ("a " * MAX_WORDS, "a"),
        ("a " + "'b' " * (MAX_WORDS - 1), "'c'"),
        ("a " + "$b " * (MAX_WORDS - 1), "$c"),
        ("a" + ">b" * (MAX_WORDS - 1), ">c"),
        ("a " + "''" * MAX_PIECES, "''"),
        ('a "' + "\\a" * (MAX_PIECES // 2), '\\a"'),
        ("a " + "{b,c}{b,c} " * (MAX_CHOSEN_WORDS // 4), "{b,c}"),
    ],
)
def test_every_construct_has_a_size_limit(fits: str, more: str) -> None:
    assert parse(fits + '"' * fits.count('"'))
    assert doubt(fits + more).code == "long"


def test_the_number_of_words_from_braces_is_limited() -> None:
    choices = ",".join("a" * MAX_CHOICES)
    assert len(only(f"{{{choices}}}").words) == MAX_CHOICES
    assert doubt(f"{{{choices},a}}").code == "brace"
    prefix = "a" * (MAX_CHOSEN // 2 - 5)
    assert len(only(prefix + "{b,c}").words) == 2
    assert doubt(prefix + "a{b,c}").code == "brace"


def test_as_many_here_documents_as_bash_takes() -> None:
    text = "a" + " <<'E'" * MAX_HERE_DOCUMENTS + "\nE" * MAX_HERE_DOCUMENTS
    assert len(only(text).redirects) == MAX_HERE_DOCUMENTS
    assert len(parse(f"{text}\n{text}").chains) == 2


def _hostile_sizes_end_in_doubt(text: str) -> None:
    assert doubt(text).at <= len(text)


def test_hostile_sizes_end_in_doubt(subtests: pytest.Subtests) -> None:
    cases: Iterable[Any] = [
        "(" * MAX_BYTES,
        "( " * (MAX_BYTES // 2),
        "\n" * MAX_BYTES,
        "#\n" * (MAX_BYTES // 2),
        "\\\n" * (MAX_BYTES // 2),
        "[" * MAX_BYTES,
        "{" * MAX_BYTES,
        "{a,b}" * (MAX_BYTES // 5),
        "a <<-'E'\n" + "\t" * (MAX_BYTES - 9),
        "a <<'E'\n" + "bE\n" * 20_000,
        "a '" + "b" * 60_000,
        'a "' + "$b" * 30_000,
        "a $'" + "\\n" * 30_000,
        "! " * (MAX_BYTES // 2),
        "a;" * (MAX_BYTES // 2),
        "`" * MAX_BYTES,
    ]
    for text in cases:
        with subtests.test(text=text):
            _hostile_sizes_end_in_doubt(text)


def test_a_closing_bracket_is_not_a_command_even_behind_a_redirection() -> None:
    with pytest.raises(Doubt) as caught:
        parse("> f ]] x")
    assert (caught.value.code, caught.value.at) == ("syntax", 4)
    parse("> f ls ]]")
