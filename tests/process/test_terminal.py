"""What a terminal knows of the program in it, and what it answers."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st
from tests.tables import table

from clawkit.process.terminal import (
    MAX_ANSWERS,
    MAX_TAIL,
    MAX_UNREAD,
    TerminalState,
    numbers,
)

ASK = b"\x1b[6n"


def place(data: bytes, columns: int = 20, rows: int = 5) -> tuple[int, int]:
    """Column and row as a program learns them that wrote some data."""
    answer = TerminalState(columns, rows).feed(data + ASK)
    row, column = answer.removeprefix(b"\x1b[").removesuffix(b"R").split(b";")
    return int(column), int(row)


def test_a_terminal_is_one_and_knows_its_keys_from_the_start() -> None:
    terminal = TerminalState(80, 24)
    assert terminal.size == (80, 24)
    assert (terminal.application_keys, terminal.bracketed_paste) == (False, False)


@table(
    ("asked", "answer"),
    [
        (b"\x1b[5n", b"\x1b[0n"),
        (b"\x1b[6n", b"\x1b[1;1R"),
        (b"\x1b[?6n", b"\x1b[?1;1R"),
        (b"\x1b[c", b"\x1b[?62;22c"),
        (b"\x1b[0c", b"\x1b[?62;22c"),
        (b"\x1bZ", b"\x1b[?62;22c"),
        (b"\x1b[>c", b"\x1b[>1;10;0c"),
        (b"\x1b[>0c", b"\x1b[>1;10;0c"),
        (b"\x1b[>q", b"\x1bP>|clawkit\x1b\\"),
        (b"\x1b[18t", b"\x1b[8;24;80t"),
        (b"\x1b]10;?\x07", b"\x1b]10;rgb:e5e5/e5e5/e5e5\x07"),
        (b"\x1b]11;?\x1b\\", b"\x1b]11;rgb:0000/0000/0000\x1b\\"),
        (b"\x1b[?2026$p", b"\x1b[?2026;0$y"),
        (b"\x1b[?2004$p", b"\x1b[?2004;2$y"),
        (b"\x1b[?2004h\x1b[?2004$p", b"\x1b[?2004;1$y"),
        (b"\x1b[?1047h\x1b[?1049$p", b"\x1b[?1049;1$y"),
        (b"\x1b[4$p", b"\x1b[4;0$y"),
        (b"a\x1b[5nb\x1b[cc", b"\x1b[0n\x1b[?62;22c"),
    ],
)
def test_questions_are_answered(asked: bytes, answer: bytes) -> None:
    assert TerminalState(80, 24).feed(asked) == answer


@table(
    "data",
    [
        b"plain text\r\n",
        b"\x1b[?u",
        b"\x1b[=c",
        b"\x1b[1c",
        b"\x1b[?5n",
        b"\x1b[7n",
        b"\x1b[>4;1m",
        b"\x1b[21t",
        b"\x1b]11;#fff\x07",
        b"\x1b]0;?\x07",
        b"\x1b]11;?\x18",
        b"\x1bP+q544e\x1b\\",
        b"\x1b[1\n5n",
        b"\x1b[5\x18n",
        b"\x1b[\x9b5n",
        b"\x1b_Gi=31\x1b\\",
        b"[5n",
    ],
)
def test_unknown_queries_are_not_answered(data: bytes) -> None:
    assert TerminalState(80, 24).feed(data) == b""


def is_alternate(terminal: TerminalState) -> bool:
    return terminal.feed(b"\x1b[?1049$p") == b"\x1b[?1049;1$y"


def test_modes_are_followed() -> None:
    terminal = TerminalState(80, 24)
    terminal.feed(b"\x1b[?1049h\x1b[?1h\x1b=\x1b[?2004h")
    assert is_alternate(terminal)
    assert terminal.application_keys
    assert terminal.application_keypad
    assert terminal.bracketed_paste
    terminal.feed(b"\x1b[?1l\x1b>")
    assert (terminal.application_keys, terminal.application_keypad) == (False, False)
    assert (is_alternate(terminal), terminal.bracketed_paste) == (True, True)
    terminal.feed(b"\x1b[?2004;1049l")
    assert (is_alternate(terminal), terminal.bracketed_paste) == (False, False)


def test_several_modes_are_set_at_once() -> None:
    terminal = TerminalState(80, 24)
    terminal.feed(b"\x1b[?25;1;2004;12h")
    assert (terminal.application_keys, terminal.bracketed_paste) == (True, True)


@table("sequence", [b"\x1b[1h", b"\x1b[>1h", b"\x1b[?1$h", b"\x1b[?11h", b"[?1h"])
def test_sequences_that_only_look_like_modes_are_ignored(sequence: bytes) -> None:
    terminal = TerminalState(80, 24)
    terminal.feed(sequence)
    assert not terminal.application_keys


@table(("reset", "alternate"), [(b"\x1bc", False), (b"\x1b[!p", True)])
def test_a_reset_sets_the_modes_back(reset: bytes, alternate: bool) -> None:
    terminal = TerminalState(80, 24)
    terminal.feed(b"\x1b[?1049h\x1b[?1h\x1b=\x1b[?2004h" + reset)
    assert not terminal.application_keys
    assert not terminal.application_keypad
    assert not terminal.bracketed_paste
    assert is_alternate(terminal) is alternate


@table("number", [47, 1047, 1049])
def test_there_are_three_ways_to_take_the_screen_and_any_gives_it_back(number: int) -> None:
    terminal = TerminalState(80, 24)
    terminal.feed(b"\x1b[?%dh" % number)
    assert is_alternate(terminal)
    terminal.feed(b"\x1b[?1049l")
    assert not is_alternate(terminal)


TALK = (
    b"a\x1b[31mb\x1b]0;title\x07\x1b[?1h\x1bP1$tx\x1b\\\x1b[6n\x1b(0\x1b]11;?\x1b\\"
    b"\xe4\xb8\xad\x1b[c\x1b[>c\x1b[?2004h\x1b=\x1b[?2004$p\x1b[3;4H\x1b[6n"
)


@table("size", [1, 2, 3, 7])
def test_output_can_be_split_anywhere(size: int) -> None:
    whole, pieces = TerminalState(80, 24), TerminalState(80, 24)
    expected = whole.feed(TALK)
    answers = b"".join(pieces.feed(TALK[at : at + size]) for at in range(0, len(TALK), size))
    assert answers == expected
    assert expected.endswith(b"\x1b[3;4R")
    assert expected.count(b"\x1b") == 7
    for terminal in (whole, pieces):
        assert terminal.application_keys
        assert terminal.bracketed_paste
        assert terminal.application_keypad


@given(
    st.lists(
        st.sampled_from([b"\x1b", b"[", b"]", b"P", b"?", b"6n", b"c", b"11;?", b"\x07", b"\\"])
        | st.sampled_from([b"1h", b"1l", b";", b"$p", b"x", b"\x18", b"\n", b"\xe4\xb8", b"\xad"])
        | st.binary(max_size=3),
        max_size=30,
    )
)
def test_no_output_is_understood_differently_in_pieces(parts: list[bytes]) -> None:
    whole, pieces = TerminalState(9, 4), TerminalState(9, 4)
    assert whole.feed(b"".join(parts)) == b"".join(map(pieces.feed, parts))
    assert whole.application_keys == pieces.application_keys
    # A sequence that was left unfinished is ended, to see that both are in the same state.
    assert whole.feed(b"\x18\x1b[5n") == pieces.feed(b"\x18\x1b[5n") == b"\x1b[0n"


@table(
    ("start", "end"),
    [(b"\x1b]0;", b"\x07"), (b"\x1b]0;", b"\x1b\\"), (b"\x1bP", b"\x1b\\"), (b"\x1b_", b"\x18")],
)
def test_an_endless_string_is_discarded(start: bytes, end: bytes) -> None:
    terminal = TerminalState(80, 24)
    terminal.feed(b"ab" + start)
    for _ in range(100):
        assert terminal.feed(b"x[5n" * 1_000) == b""
        assert len(terminal._tail) <= MAX_TAIL
    assert terminal.feed(end + ASK) == b"\x1b[1;3R"


def test_only_commands_to_the_system_end_with_a_bell() -> None:
    terminal = TerminalState(80, 24)
    terminal.feed(b"\x1bP" + b"x" * 2 * MAX_TAIL)
    terminal.feed(b"\x07 still inside")
    assert terminal.feed(b"\x1b\\" + ASK) == b"\x1b[1;1R"


def test_an_endless_number_is_given_up() -> None:
    terminal = TerminalState(80, 24)
    terminal.feed(b"\x1b[?1h\x1b[")
    for _ in range(1_000):
        assert terminal.feed(b"9" * 100) == b""
        assert len(terminal._tail) <= MAX_TAIL
    assert terminal.feed(b"n\x1b[5n") == b"\x1b[0n"


def test_answers_to_one_piece_of_output_are_bounded() -> None:
    terminal = TerminalState(80, 24)
    answers = terminal.feed(b"\x1b[c" * 10_000)
    assert MAX_ANSWERS - 9 <= len(answers) <= MAX_ANSWERS
    assert answers == b"\x1b[?62;22c" * (len(answers) // 9)
    assert len(terminal.feed(ASK * 10_000)) <= MAX_ANSWERS
    assert terminal.feed(b"\x1b[5n") == b"\x1b[0n"


def test_waiting_output_does_not_grow_without_end() -> None:
    terminal = TerminalState(80, 24)
    for _ in range(200):
        terminal.feed(b"line\r\n" * 100)
        assert len(terminal._unread) <= MAX_UNREAD
    assert terminal.feed(b"abc" + ASK) == b"\x1b[24;4R"
    terminal.feed(b"x" * 3 * MAX_UNREAD)
    assert terminal.feed(b"\x1b[2;9H" + ASK) == b"\x1b[2;9R"


@table(
    ("data", "expected"),
    [
        (b"", (1, 1)),
        (b"abc", (4, 1)),
        ("é中".encode(), (4, 1)),
        (b"e\xcc\x81", (2, 1)),
        (b"abc\r\n", (1, 2)),
        (b"abc\n", (4, 2)),
        (b"abc\b\b", (2, 1)),
        (b"\b", (1, 1)),
        (b"\t", (9, 1)),
        (b"ab\tc", (10, 1)),
        (b"\t\t\t\t", (20, 1)),
        (b"\n" * 9, (1, 5)),
        (b"x" * 20, (20, 1)),
        (b"x" * 21, (2, 2)),
        (b"x" * 200, (20, 5)),
        (b"x" * 20 + b"\r\n", (1, 2)),
        (b"\x1b[3;7H", (7, 3)),
        (b"\x1b[3H", (1, 3)),
        (b"\x1b[;7f", (7, 1)),
        (b"\x1b[999;999H", (20, 5)),
        (b"\x1b[99999999999999999999;1H", (1, 5)),
        (b"\x1b[3;7H\x1b[A\x1b[2C", (9, 2)),
        (b"\x1b[3;7H\x1b[9B\x1b[3D", (4, 5)),
        (b"\x1b[3;7H\x1b[99D\x1b[99A", (1, 1)),
        (b"\x1b[3;7H\x1b[E", (1, 4)),
        (b"\x1b[3;7H\x1b[F", (1, 2)),
        (b"\x1b[3;7H\x1b[5G", (5, 3)),
        (b"\x1b[3;7H\x1b[2d", (7, 2)),
        (b"\x1b[3;7H\x1b7\x1b[H\x1b8", (7, 3)),
        (b"\x1b[3;7H\x1b[s\x1b[H\x1b[u", (7, 3)),
        (b"\x1b[3;7H\x1bD", (7, 4)),
        (b"\x1b[3;7H\x1bE", (1, 4)),
        (b"\x1b[3;7H\x1bM", (7, 2)),
        (b"\x1b[3;7H\x1bc", (1, 1)),
        (b"\x1b[3;7H\x1b[2;4r", (1, 1)),
        (b"\x1b[2;3r\x1b[3;1H\n\n", (1, 3)),
        (b"\x1b[2;3r\x1b[3;1H\x1b[9A", (1, 2)),
        (b"ab\x1b[?1049h\x1b[3;7H\x1b[?1049l", (3, 1)),
        (b"a\x1b[31;1mb\x1b[0m\x1b]0;title\x07c\x1b(B", (4, 1)),
        (b"\x1b[2J\x1b[K", (1, 1)),
        (b"\xff\xfe", (3, 1)),
    ],
)
def test_the_cursor_is_where_it_would_be_seen(data: bytes, expected: tuple[int, int]) -> None:
    assert place(data) == expected


def test_programs_measure_the_screen_by_going_to_its_end() -> None:
    terminal = TerminalState(80, 24)
    assert terminal.feed(b"\x1b7\x1b[999;999H\x1b[6n\x1b8") == b"\x1b[24;80R"
    terminal.resize(132, 50)
    assert terminal.size == (132, 50)
    assert terminal.feed(b"\x1b7\x1b[999;999H\x1b[6n\x1b8") == b"\x1b[50;132R"
    assert terminal.feed(b"\x1b[18t") == b"\x1b[8;50;132t"


def test_a_smaller_screen_has_the_cursor_in_it() -> None:
    terminal = TerminalState(80, 24)
    terminal.feed(b"\x1b[24;80H")
    terminal.resize(40, 10)
    assert terminal.feed(ASK) == b"\x1b[10;40R"


@table(
    ("text", "expected"),
    [
        ("", [0]),
        ("1", [1]),
        ("1;2", [1, 2]),
        (";", [0, 0]),
        ("007", [7]),
        ("9" * 5_000, [9_999]),
        ("0" * 5_000 + "3", [3]),
        ("38:2:1;4", [38, 4]),
        ("1?;<2", [0, 0]),
    ],
)
def test_numbers_are_bounded(text: str, expected: list[int]) -> None:
    assert numbers(text) == expected
    assert len(numbers("1;" * 10_000)) == 32
