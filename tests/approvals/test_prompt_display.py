"""Questions as people see them."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, get_args

import pytest
from tests.tables import table

from clawkit.approvals.prompt import (
    MANY_LINES,
    MAX_SHOWN,
    Surface,
    render,
    show_command,
    warnings_about,
)
from clawkit.core.approval import Lasting, Question

SURFACES: tuple[Surface, ...] = get_args(Surface)


def ask(command: str, **more: object) -> Question:
    return Question("exec", {}, f"run: {command[:40]}", command=command, **more)  # type: ignore[arg-type]


@pytest.mark.parametrize("surface", SURFACES)
@pytest.mark.parametrize(
    ("command", "hidden"),
    [
        ("touch x\rls     ", "\r"),
        ("ls \u202egnp.x hcuot\u202c", "\u202e"),
        ("to\u200buch x", "\u200b"),
        ("ls \x1b[2Kx", "\x1b"),
        ("ls \x07", "\x07"),
        ("ls a\u3164b", "\u3164"),
        ("ls a\ufe0fb", "\ufe0f"),
        ("ls a\u2028b", "\u2028"),
        ("ls a\xa0b", "\xa0"),
        ("ls a\U000e0041b", "\U000e0041"),
    ],
)
def test_nothing_is_hidden_and_nothing_acts_on_the_screen(
    command: str, hidden: str, surface: Surface
) -> None:
    shown = render(ask(command, notes=(command,), description=command, cwd=command), surface)
    assert hidden not in shown
    spelled = f"{ord(hidden):x}"
    assert f"u{{{spelled}}}" in shown.replace("\\{", "{").replace("\\}", "}")
    assert "reverse the order" if hidden == "\u202e" else "invisible characters" in shown


def _what_reverses_the_order_of_text_is_spelled_out_and_pointed_out(control: str) -> None:
    shown = render(ask(f"ls {control}gnp.x"), width=80)
    assert control not in shown
    assert f"| ls \\u{{{ord(control):x}}}gnp.x" in shown
    assert "warning: it has characters that reverse the order of text" in shown


def test_what_reverses_the_order_of_text_is_spelled_out_and_pointed_out(
    subtests: pytest.Subtests,
) -> None:
    cases: Iterable[Any] = "\u061c\u200e\u200f\u202a\u202b\u202c\u202d\u202e\u2066\u2069"
    for control in cases:
        with subtests.test(control=control):
            _what_reverses_the_order_of_text_is_spelled_out_and_pointed_out(control)


@table(
    ("command", "marked"),
    [
        ("echo שלום", "echo [rtl:שלום]"),
        ("echo שלום עולם; ls", "echo [rtl:שלום עולם]; ls"),
        ("cat مرحبا.txt", "cat [rtl:مرحبا].txt"),
    ],
)
def test_right_to_left_text_is_marked_and_pointed_out(command: str, marked: str) -> None:
    assert show_command(command) == marked
    assert any("right-to-left text" in each for each in warnings_about(command))


def test_a_long_command_shows_its_beginning_and_its_end() -> None:
    command = f"ls {'a' * 50_000}; touch x"
    shown = render(ask(command))
    assert "    ls aaa" in shown
    assert "; touch x" in shown
    assert f"{50_012 - MAX_SHOWN:,} characters are not shown" in shown
    assert "50,012 characters long" in shown
    assert len(shown) < MAX_SHOWN + 1_000


def test_a_name_with_foreign_letters_is_flagged() -> None:
    [warning] = warnings_about("  есho hi")
    assert warning.endswith("\\u{435}\\u{441}ho")
    assert list(warnings_about("echo grün")) == []
    assert list(warnings_about("")) == []


@pytest.mark.parametrize("surface", ["plain", "markdown"])
def test_text_does_not_mention_people_in_a_chat(surface: Surface) -> None:
    shown = render(Question("exec", {}, "run: @everyone <@1>", description="@here"), surface)
    assert "@" not in shown
    assert "@everyone" not in render(ask("ls x", notes=("@everyone",)), surface)


def test_a_command_stays_as_it_is_in_a_fence_that_it_cannot_close() -> None:
    shown = render(ask("echo '```' @everyone *bold*"), "markdown")
    assert "````\necho '```' @everyone *bold*\n````" in shown


def test_markup_outside_the_fence_is_plain() -> None:
    shown = render(Question("exec", {}, "[a](b) *c* `d`"), "markdown")
    assert shown.split("\n")[0] == "\\[a\\](b) \\*c\\* \\`d\\`"


def test_a_person_sees_what_where_who_and_why() -> None:
    question = ask(
        "ls",
        cwd="/w",
        host="gateway",
        agent="ann",
        session="s1",
        description="ls is not allowed",
        asked_by="tools.exec.ask",
        place="on the host, unconfined",
        modes=("in the background", "in a terminal"),
        notes=("2 other parts are allowed",),
        lasting=(Lasting("exact", "ls in /w"), Lasting("session", "ls")),
    )
    assert render(question).split("\n") == [
        "run: ls",
        "agent: ann, session s1",
        "asked by: tools.exec.ask",
        "always (exact): ls in /w",
        "this session: ls",
        "note: 2 other parts are allowed",
        "where: /w, on the host, unconfined",
        "how: in the background, in a terminal",
        "    ls",
        "why: ls is not allowed",
    ]
    assert "agent: main\n" in render(ask("ls", description="x"))
    assert "where: /w on node\n" in render(ask("ls", cwd="/w", host="node"))
    assert "where" not in render(ask("ls"))


def test_lines_of_a_command_stay_lines() -> None:
    assert show_command("a\n\tb") == "a\n\tb"
    assert render(ask("a\nb")).split("\n")[-2:] == ["    a", "    b"]


@table(
    ("command", "said"),
    [
        (
            "ls; \u0435\u0441ho hi",
            ["it has look-alike letters: \\u{435}\\u{441}ho"],
        ),
        ("ls \uff4cs", ["it has look-alike letters: \\u{ff4c}s"]),
        ("git commit -m 'привет grüße 漢字'", []),
        ("curl https://g\u0131thub.com/x", ["look-alike letters: https://g\\u{131}thub.com/x"]),
        ("git clone git@\u0261ithub.com:a/b", ["look-alike letters"]),
        ("curl https://example.org/grüße", []),
        ("echo " + "a " * 1_300, ["it is 2,605 characters long; check its beginning too"]),
        ("ls\n" * MANY_LINES, [f"it has {MANY_LINES + 1} lines; check the first ones too"]),
        ("ls\n" * (MANY_LINES - 1), []),
        (f"touch x{' ' * 200}; ls", ["long run of blanks"]),
        ("touch x" + "\n" * 40 + "ls", ["long run of blanks", "it has 41 lines"]),
        (" \u00a0", ["invisible characters"]),
        ("'", []),
    ],
)
def test_misleading_text_is_pointed_out(command: str, said: list[str]) -> None:
    found = list(warnings_about(command))
    assert len(found) == len(said), found
    assert [words for words, warning in zip(said, found, strict=True) if words not in warning] == []


def test_a_long_text_on_one_line_stays_on_one_line() -> None:
    shown = show_command("a" * (MAX_SHOWN + 10), keep="")
    assert "\n" not in shown
    assert " [… 10 characters are not shown …] " in shown


@pytest.mark.parametrize("width", [0, 20, 33, 80])
@pytest.mark.parametrize(
    "command",
    [
        "ls",
        f"ls {'a' * 300}",
        f"ls {'b' * 10} {'why: it is safe ' * 30}",
        f"echo {'漢字' * 60}",
        "a\n\tb\n\nc",
        f"ls{' ' * 500}; touch x",
    ],
)
def test_every_row_of_a_terminal_is_begun_by_us(command: str, width: int) -> None:
    question = ask(command, description="x" * 200, cwd="/w", notes=("漢" * 99, "b"), host="h")
    title, *rows = render(question, width=width).split("\n")
    assert title == "Run this command?"
    used = max(width, 20)
    for row in rows:
        assert row.startswith(("  | ", "  ", "      "))
        wide = sum(2 if char in "漢字" else 1 for char in row)
        assert wide < used, row
    shown = "".join(row.removeprefix("  | ") for row in rows if row.startswith("  | "))
    assert shown == command.replace("\n", "").replace("\t", "    ")


def test_parameters_are_shown() -> None:
    shown = render(Question("write", {"path": "é.txt", "mode": 1}, "a call"), "plain")
    assert 'parameters: {"path": "é.txt", "mode": 1}' in shown


def test_a_question_without_a_command_has_its_title() -> None:
    question = Question("read", {}, "a call of 'read'", description="mine")
    assert render(question, width=80).split("\n") == [
        "a call of 'read'",
        "  agent: main",
        "  why: mine",
    ]
