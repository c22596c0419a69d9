from __future__ import annotations

import msgspec
from tests.tables import table

from clawkit.lsp.client import Diagnostic, State, new_problems
from clawkit.lsp.protocols import Problem


def found(*at: tuple[int, str], severity: int = 1, character: int = 0) -> list[Diagnostic]:
    raw = [
        {
            "range": {"start": {"line": line, "character": character}},
            "message": message,
            "severity": severity,
            "code": 7,
        }
        for line, message in at
    ]
    return msgspec.convert(raw, list[Diagnostic])


def compare(before: State, after: State, *, utf16: bool = False) -> list[Problem]:
    return list(new_problems("/p", "s", before, after, utf16=utf16))


def test_a_problem_is_known_by_its_words_and_its_line() -> None:
    before = State("a\nb\n", found((0, "x"), (1, "y")))
    after = State("new\n  a\nb2\n", found((1, "x"), (2, "y")))
    assert [(each.line, each.message, each.code) for each in compare(before, after)] == [
        (3, "y", "7")
    ]


def test_one_more_of_the_same_is_one_new_problem() -> None:
    before = State("a\n", found((0, "x")))
    after = State("a\na\na\n", found((0, "x"), (1, "x"), (2, "x")))
    assert len(compare(before, after)) == 2


def test_a_warning_that_became_an_error_is_new() -> None:
    before, after = found((0, "x"), severity=2), found((0, "x"), severity=1)
    assert [each.severity for each in compare(State("a", before), State("a", after))] == ["error"]


@table("severity", [0, 3, 4, -1])
def test_hints_are_not_problems(severity: int) -> None:
    assert compare(State("", ()), State("a", found((0, "x"), severity=severity))) == []


@table(("line", "units", "column"), [("abc", 2, 3), ("🙂b", 2, 2), ("ü🙂b", 3, 3), ("🙂", 9, 2)])
def test_columns_in_utf16_become_characters(line: str, units: int, column: int) -> None:
    after = State(line, found((0, "x"), character=units))
    assert [each.column for each in compare(State("", ()), after, utf16=True)] == [column]


def test_lines_end_as_servers_count_them() -> None:
    text = "a\r\nb\rc\nd\u2028d\x0bd\n"
    after = State(text, found((3, "x"), character=2))
    assert [(each.line, each.column) for each in compare(State("", ()), after)] == [(4, 3)]


def test_messages_are_one_line_without_the_help() -> None:
    after = State("a", found((0, "first\n  second\x1b[0m\n\nhelp: third")))
    assert [each.message for each in compare(State("", ()), after)] == ["first second [0m"]
