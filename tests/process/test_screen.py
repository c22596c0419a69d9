"""Screens as a person would see them, of made-up output and of real programs."""

from __future__ import annotations

import fcntl
import os
import re
import select
import shutil
import struct
import subprocess
import sys
import termios
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing, contextmanager
from pathlib import Path

import pyte
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.lacking import lack
from tests.scale import scaled
from tests.tables import table

from clawkit.errors import ToolError, ToolInputError
from clawkit.installation import how_to_add
from clawkit.process.terminal import (
    MAX_SIDE,
    SCREEN_BYTES,
    Drawing,
    Screen,
    TerminalState,
    encode_keys,
    encode_paste,
    render,
)

COLUMNS, ROWS = 10, 4


def lines(data: str | bytes, columns: int = COLUMNS, rows: int = ROWS) -> list[str]:
    """What is on the screen, without the blank lines at its end."""
    shown = draw(data, columns, rows).lines
    assert len(shown) == rows
    return "\n".join(shown).rstrip("\n").split("\n")


def draw(data: str | bytes, columns: int = COLUMNS, rows: int = ROWS) -> Screen:
    return render(data.encode() if isinstance(data, str) else data, columns, rows)


@table(
    ("data", "expected"),
    [
        ("", [""]),
        ("ab\r\ncd", ["ab", "cd"]),
        ("ab\ncd", ["ab", "  cd"]),
        ("abc\rX", ["Xbc"]),
        ("abc\b\bX", ["aXc"]),
        ("a\tb", ["a       b"]),
        ("a  \r\n b  ", ["a", " b"]),
        ("0123456789ab", ["0123456789", "ab"]),
        ("0123456789\r\nab", ["0123456789", "ab"]),
        ("0123456789\x1b[31mab", ["0123456789", "ab"]),
        ("\x1b[?7l0123456789ab", ["012345678b"]),
        ("1\r\n2\r\n3\r\n4\r\n5", ["2", "3", "4", "5"]),
        ("\x1b[2;3Hx", ["", "  x"]),
        ("\x1b[99;99Hx", ["", "", "", " " * 9 + "x"]),
        ("\x1b[3dx\x1b[5Gy", ["", "", "x   y"]),
        ("a\x1b[2Bb\x1b[Ac\x1b[3Dd\x1b[2Ce", ["a", "d ce", " b"]),
        ("ab\x1b[Ecd\x1b[Fx", ["xb", "cd"]),
        ("abcdef\x1b[3G\x1b[K", ["ab"]),
        ("abcdef\x1b[3G\x1b[1K", ["   def"]),
        ("abcdef\x1b[3G\x1b[2Kx", ["  x"]),
        ("abc\r\ndef\r\nghi\x1b[2;2H\x1b[J", ["abc", "d"]),
        ("abc\r\ndef\r\nghi\x1b[2;2H\x1b[1J", ["", "  f", "ghi"]),
        ("abc\r\ndef\x1b[2Jx", ["", "   x"]),
        ("abcdef\x1b[2G\x1b[2P", ["adef"]),
        ("abcdef\x1b[2G\x1b[2@", ["a  bcdef"]),
        ("abcdef\x1b[2G\x1b[2X", ["a  def"]),
        ("abc\x1b[4h\x1b[2GXY", ["aXYbc"]),
        ("a\x1b[3b", ["aaaa"]),
        ("中\x1b[2b", ["中中中"]),
        ("1\r\n2\r\n3\x1b[2H\x1b[L", ["1", "", "2", "3"]),
        ("1\r\n2\r\n3\x1b[1H\x1b[M", ["2", "3"]),
        ("1\r\n2\x1b[4;1H4\x1b[1H\x1b[M", ["2", "", "4"]),
        ("1\r\n2\r\n3\r\n4\x1b[2;3r\x1b[3;1H\nx", ["1", "3", "x", "4"]),
        ("1\r\n2\r\n3\r\n4\x1b[2;3r\x1b[2H\x1bMx", ["1", "x", "2", "4"]),
        ("1\r\n2\r\n3\r\n4\x1b[2;3r\x1b[1H\x1b[M", ["1", "2", "3", "4"]),
        ("\x1b[2;3r\x1b[?6h\x1b[2;1Hx", ["", "", "x"]),
        ("ab\x1b[scd\x1b[uX", ["abXd"]),
        ("ab\x1b7cd\x1b8X", ["abXd"]),
        ("ab\x1b[?1048hcd\x1b[?1048lX", ["abXd"]),
        ("0\x1b[192h\x1b[224l123456789ab", ["0123456789", "ab"]),
        ("a\x1bDb\x1bEc", ["a", " b", "c"]),
        ("abc\x1bcx", ["x"]),
        ("\x1b(0lqk\r\nx\x1b(Bx", ["┌─┐", "│x"]),
        ("\x1b)0a\x0eq\x0fq", ["a─q"]),
        ("\x1b[3G\x1bH\ra\tb\x1b[3g\tc", ["a b      c"]),
    ],
)
def test_output_is_drawn(data: str, expected: list[str]) -> None:
    assert lines(data) == expected


@table(
    ("data", "expected"),
    [
        ("中文", ["中文"]),
        ("中文\x1b[3Gx", ["中x"]),
        ("中文\x1b[P", ["中文"]),
        ("e\u0301x", ["éx"]),
        ("e\x1b[0m\u0301x", ["éx"]),
        ("中\x1b[0m\u0301x", ["中\u0301x"]),
        ("\u0301x", ["x"]),
        ("ส\u0e34y", ["สy"]),
        ("❤\ufe0fx", ["❤x"]),
        ("👩\u200d👧x", ["👩👧x"]),
        ("a" + "\u0301" * 50, ["á" + "\u0301" * 7]),
        ("a\u00a0b\u3000c", ["a b c"]),
        ("\ue0b0x", ["\ufffdx"]),
        ("a\u202eb\u200bc\u2066d\ufeffe\u0085f", ["abcdef"]),
        (b"a\xffb\xe4\xb8", ["a\ufffdb\ufffd"]),
    ],
)
def test_characters_take_the_room_they_have_and_none_is_hidden(
    data: str | bytes, expected: list[str]
) -> None:
    assert lines(data) == expected


@table(
    "sequence",
    [
        "\x1b[>4;1m",
        "\x1b[>c",
        "\x1b[?1$p",
        "\x1b[!q",
        "\x1b[2 q",
        "\x1b[?25l",
        "\x1b[?2004h",
        "\x1b[?1;3;5;12;1000h",
        "\x1b[38;2;1;2;3m",
        "\x1b[38:2::1:2:3m",
        "\x1b[38;5m",
        "\x1b[48;5;999m",
        "\x1b[9J",
        "\x1b[9K",
        "\x1b[?J",
        "\x1b[5;2r",
        "\x1b[22;0;0t",
        "\x1b[<1u",
        "\x1b[?u",
        "\x1b#8",
        "\x1b%G",
        "\x1b=",
        "\x1b>",
        "\x1b]8;;http://x\x1b\\",
        "\x1b]52;c;eA==\x07",
        "\x1bP1$r0m\x1b\\",
        "\x1b_Gf=100;AAAA\x1b\\",
        "\x1b^x\x1b\\",
        "\x1bXx\x1b\\",
        "\x1b[1\x18",
        "\x00",
        "\x07",
        "\x7f",
    ],
)
def test_sequences_that_draw_nothing_leave_no_trace(sequence: str) -> None:
    assert lines(f"ab{sequence}cd") == ["abcd"]


@table("start", ["\x1b", "\x1b[", "\x1b[1;2", "\x1b]0;ti", "\x1bPx", "\x1b("])
def test_a_sequence_that_is_not_finished_is_not_seen(start: str) -> None:
    assert lines(f"ab{start}") == ["ab"]


def test_the_position_of_the_cursor_is_reported() -> None:
    assert draw("").cursor == (1, 1)
    assert draw("ab\r\nc").cursor == (2, 2)
    assert draw("0123456789").cursor == (10, 1)
    assert draw("\x1b[3;7H").cursor == (7, 3)
    assert draw("\n" * 50).cursor == (1, 4)


def test_the_title_is_one_line_of_printable_text() -> None:
    assert draw("\x1b]0;one\x07\x1b]2;two \u202etitle\nx\x1b\\text").title == "two title x"
    assert draw("\x1b]0;one\x07\x1b]0;two\x18\x1b]1;icon\x07\x1b]0;thr").title == "one"
    assert len(draw("\x1b]2;" + "x" * 5_000 + "\x07").title) <= 200
    assert draw("").title == ""


@table("number", [47, 1047, 1049])
def test_a_full_screen_program_has_its_own_screen(number: int) -> None:
    taken = f"shell\x1b[?{number}h\x1b[H\x1b[2Jvim"
    assert (lines(taken), draw(taken).alternate) == (["vim"], True)
    given_back = taken + f"\x1b[?{number}l"
    assert (lines(given_back), draw(given_back).alternate) == (["shell"], False)


def test_the_cursor_goes_back_to_where_it_was_when_the_screen_was_taken() -> None:
    assert lines("$ vim\r\n\x1b[?1049h\x1b[3;5Hx\x1b[?1049l$ ") == ["$ vim", "$"]
    assert draw("$ vim\r\n\x1b[?1049h\x1b[3;5Hx\x1b[?1049l$ ").cursor == (3, 2)


def test_giving_back_a_screen_that_was_not_taken_leaves_it_alone() -> None:
    assert lines("ab\x1b[?1049lcd") == ["abcd"]


def test_where_the_beginning_is_missing_the_screen_may_have_been_taken() -> None:
    data = b"of vim\r\n~\r\n\x1b[?1049l$ "
    assert render(data, COLUMNS, ROWS, cut=True).lines[:2] == ("$", "")
    again = data + b"\x1b[?1049hx\x1b[?1049ly"
    assert render(again, COLUMNS, ROWS, cut=True).lines[:2] == ("$ y", "")


@table(
    "data", [b"2;5Hx\x1b[2;1Hab", b"\x1b[2;1Hab", b"\xb8\xadx\x1b[2;1Hab", b"title\x07x\x1b[2;1Hab"]
)
def test_what_begins_in_the_middle_is_drawn_from_a_safe_place(data: bytes) -> None:
    assert render(data, COLUMNS, ROWS, cut=True).lines == ("", "ab", "", "")


def test_a_character_that_was_cut_is_left_out() -> None:
    assert render("中文".encode()[1:], COLUMNS, ROWS, cut=True).lines[0] == "文"
    assert render(b"\x80\x80", COLUMNS, ROWS, cut=True).lines[0] == ""


@table("pad", range(12))
def test_only_the_end_is_drawn_wherever_it_begins(pad: int) -> None:
    frame = "\x1b[38;5;12m中\x1b[0m\x1b[2;3Hé\x1b[H".encode()
    data = b"once\r\n" + frame * (2 * SCREEN_BYTES // len(frame)) + b"x" * pad
    shown = render(data, 20, ROWS).lines
    assert shown[1] == "  é"
    assert shown[0] == ("中", "x", *("x" * number for number in range(2, 12)))[pad]


def test_plain_output_is_seen_to_its_last_line() -> None:
    data = b"".join(b"line %d\r\n" % number for number in range(50_000))
    assert render(data, COLUMNS, ROWS).lines == ("line 49997", "line 49998", "line 49999", "")
    assert lines(b"x" * 4 * SCREEN_BYTES, 16) == ["x" * 16] * ROWS


def test_nothing_before_the_last_reset_counts() -> None:
    assert lines(b"\x1b[2;3r\x1b(0junk\x1bcone\r\ntwo") == ["one", "two"]
    assert lines(b"x" * 4 * SCREEN_BYTES + b"\x1bcend") == ["end"]


@table("size", [(0, 5), (5, 0), (-1, 5), (MAX_SIDE + 1, 5), (5, MAX_SIDE + 1)])
def test_a_screen_that_cannot_be_is_refused(size: tuple[int, int]) -> None:
    with pytest.raises(ToolInputError, match=f"{size[0]} columns and {size[1]} rows"):
        render(b"", *size)


def test_without_pyte_the_error_tells_how_to_install_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pyte", None)
    with pytest.raises(ToolError, match=re.escape(how_to_add("screen"))):
        render(b"", 80, 24)


def test_a_failure_of_pyte_is_an_error_of_the_call(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: object) -> None:
        raise UnboundLocalError("interval")

    monkeypatch.setattr(pyte.Screen, "erase_in_line", fail)
    with pytest.raises(ToolError, match="UnboundLocalError in pyte"):
        render(b"\x1b[K", 80, 24)


@pytest.mark.long
@pytest.mark.parametrize(
    "data",
    [
        b"\x1b[999999999L",
        b"\x1b[999999999P",
        b"\x1b[999999999@",
        b"\x1b[999999999X",
        b"\x1b[999999999S",
        b"\x1b[999999999T",
        b"x\x1b[999999999b",
        b"\x1b[" + b"9" * 60_000 + b"C",
        b"\x1b[99I",
        b"\n",
        b"\x1bM",
        b"\x1b[2J",
        b"x\x1b[J",
        b"\x1b[4hx",
        b"\x1b[?6h\x1b[d",
        b"\x1b7",
        b"x\xcc\x81\x1b[2G",
        b"\xcc\x81",
        b"\x1b[?1049h\x1b[?1049l",
        b"\x1b[" + b"1;" * 30_000 + b"m",
        b"\x1b]0;",
    ],
)
@pytest.mark.parametrize("size", [(1, 1), (80, 24), (MAX_SIDE, MAX_SIDE)])
@pytest.mark.timeout(600)
def test_nothing_takes_for_ever(data: bytes, size: tuple[int, int]) -> None:
    flood = data * (scaled(SCREEN_BYTES) // len(data) + 1)
    # Of the processor's time: how long that takes depends on what else the machine does.
    begun = time.thread_time()
    try:
        shown = render(flood, *size).lines
    except ToolError as error:
        text = str(error)
    else:
        text = "read the log instead"
        assert len(shown) == size[1]
    assert "read the log instead" in text
    assert time.thread_time() - begun < 15 * scaled(10) / 10


PIECES = st.one_of(
    st.binary(max_size=20),
    st.text(max_size=10).map(str.encode),
    st.sampled_from(["中文", "e\u0301", "\r\n", "\n", "\t", "\b", "\x0e", "\x1b7", "\x1b8"]).map(
        str.encode
    ),
    st.sampled_from([b"\x1bM", b"\x1bD", b"\x1bE", b"\x1bH", b"\x1b(0", b"\x1b#8", b"\x1b%@"]),
    st.builds(
        lambda prefix, given, middle, end: f"\x1b[{prefix}{given}{middle}{end}".encode(),
        st.sampled_from(["", "", "", "?", ">", "=", "<"]),
        st.sampled_from(["", "0", "1", "2", "3", "2;3", ";", "4", "6", "7", "1049", "99999999"]),
        st.sampled_from(["", "", "", "$", "!", " "]),
        st.characters(min_codepoint=0x40, max_codepoint=0x7E),
    ),
)


@given(st.lists(PIECES, max_size=30), st.integers(1, 12), st.integers(1, 5), st.booleans())
def test_any_output_can_be_drawn(pieces: list[bytes], columns: int, rows: int, cut: bool) -> None:
    screen = render(b"".join(pieces), columns, rows, cut=cut)
    assert len(screen.lines) == rows
    assert 1 <= screen.cursor[0] <= columns
    assert 1 <= screen.cursor[1] <= rows
    for line in (*screen.lines, screen.title):
        assert line.isprintable()
        assert line == line.rstrip(" ")
    assert all(len(line) <= columns * 8 for line in screen.lines)


MOVES = st.one_of(
    st.sampled_from(["abc", "x" * 13, "\r\n", "\n", "\r", "\b", "\t", "\x1b7", "\x1b8", "\x1bM"]),
    st.sampled_from(["\x1bD", "\x1bE", "\x1b[2;4r", "\x1b[r", "\x1b[s", "\x1b[u", "é中"]),
    st.sampled_from(["\x1b[31m", "\x1b]0;t\x07", "\x1b[K", "\x1b[2J", "\x1bc"]),
    st.builds(
        lambda first, second, end: f"\x1b[{first};{second}{end}",
        st.integers(0, 12),
        st.integers(0, 12),
        st.sampled_from("ABCDEFGHade`f"),
    ),
)


@given(st.lists(MOVES, max_size=25))
def test_the_terminal_tells_programs_the_place_that_is_seen(moves: list[str]) -> None:
    data = "".join(moves).encode()
    answer = TerminalState(11, 6).feed(data + b"\x1b[6n")
    column, row = render(data, 11, 6).cursor
    assert answer == b"\x1b[%d;%dR" % (row, column)


class Session:
    """A program in a terminal, as it is seen and typed at."""

    def __init__(self, master: int, columns: int, rows: int) -> None:
        self.master = master
        self.terminal = TerminalState(columns, rows)
        self.data = b""

    def see(self, there: Callable[[Screen], bool]) -> Screen:
        """The screen, as soon as something is there."""
        while not there(screen := render(self.data, *self.terminal.size)):
            ready, _, _ = select.select([self.master], [], [], 30)
            assert ready, screen.lines
            data = os.read(self.master, 65_536)
            self.data += data
            os.write(self.master, self.terminal.feed(data))
        return screen

    def see_text(self, text: str) -> Screen:
        return self.see(lambda screen: text in "\n".join(screen.lines))

    def press(self, *keys: str) -> None:
        application = self.terminal.application_keys
        os.write(self.master, encode_keys(keys, application=application).data)

    def paste(self, text: str) -> None:
        os.write(self.master, encode_paste(text, bracketed=self.terminal.bracketed_paste))


@contextmanager
def running(argv: Sequence[str], cwd: Path, columns: int = 80, rows: int = 24) -> Iterator[Session]:
    program = shutil.which(argv[0])
    if program is None:
        lack(f"{argv[0]} is not installed")
    master, slave = os.openpty()
    fcntl.ioctl(slave, termios.TIOCSWINSZ, struct.pack("HHHH", rows, columns, 0, 0))
    env = {"TERM": "xterm-256color", "LC_ALL": "C.UTF-8", "HOME": str(cwd), "PATH": os.defpath}
    process = subprocess.Popen(
        [program, *argv[1:]],
        cwd=cwd,
        env=env,
        stdin=slave,
        stdout=slave,
        stderr=slave,
        start_new_session=True,
    )
    os.close(slave)
    try:
        with closing(os.fdopen(master, "rb", buffering=0)):
            yield Session(master, columns, rows)
    finally:
        process.kill()
        process.wait()


def test_vim_is_seen_and_typed_at(tmp_path: Path) -> None:
    file = tmp_path / "poem.txt"
    file.write_text("".join(f"verse {number}\n" for number in range(1, 100)))
    with running(["vim", "-u", "NONE", "-i", "NONE", "-n", "poem.txt"], tmp_path) as vim:
        screen = vim.see(lambda seen: seen.lines[22] == "verse 23" and seen.cursor == (1, 1))
        assert screen.lines[0] == "verse 1"
        assert '"poem.txt"' in screen.lines[23]
        assert (screen.alternate, screen.cursor) == (True, (1, 1))
        assert vim.terminal.application_keys
        vim.press("down", "down", "right")
        vim.see(lambda screen: screen.cursor == (2, 3))
        vim.press("G")
        screen = vim.see_text("verse 99")
        assert screen.lines[22] == "verse 99"
        vim.press("dd", "O", "neu: 中é", "escape", ":w", "enter")
        vim.see_text("written")
        assert file.read_text().splitlines()[-2:] == ["neu: 中é", "verse 98"]
        assert vim.see_text("neu: 中é").lines[21] == "neu: 中é"
        vim.press(":q", "enter")
        vim.see(lambda screen: not screen.alternate)


def test_top_is_seen_and_typed_at(tmp_path: Path) -> None:
    with running(["top", "-d", "60"], tmp_path, 100, 30) as top:
        screen = top.see_text("COMMAND")
        assert screen.lines[0].startswith("top - ")
        assert screen.lines[1].startswith("Tasks:")
        assert screen.lines[6].split()[:2] == ["PID", "USER"]
        top.press("h")
        top.see_text("Help for Interactive Commands")
        top.press("escape")
        assert top.see_text("COMMAND").lines[0].startswith("top - ")


def test_a_python_prompt_is_seen_and_typed_at(tmp_path: Path) -> None:
    with running([sys.executable, "-q", "-I"], tmp_path, 60, 20) as python:
        # The prompt of Python 3.13 begins in the second row.
        assert ">>>" in python.see_text(">>>").lines[:2]
        python.press("print('é' * 3, 6 * 7)", "enter")
        lines = python.see_text("ééé 42").lines
        at = lines.index(">>> print('é' * 3, 6 * 7)")
        assert lines[at + 1] == "ééé 42"
        python.press("up", "home", "C-k", "1 +", "enter")
        python.see_text("SyntaxError")


def test_less_scrolls_its_screen(tmp_path: Path) -> None:
    (tmp_path / "text").write_text("".join(f"row {number}\n" for number in range(1, 200)))
    with running(["less", "text"], tmp_path, 40, 10) as less:
        assert less.see_text("row 9").lines[:2] == ("row 1", "row 2")
        less.press("down", "down")
        assert less.see_text("row 11").lines[:2] == ("row 3", "row 4")
        less.press("up")
        assert less.see(lambda screen: screen.lines[0] == "row 2").lines[8] == "row 10"
        less.press("end")
        assert less.see_text("row 199").lines[8] == "row 199"


def test_a_shell_is_given_pasted_text_as_one(tmp_path: Path) -> None:
    with running(["bash", "--norc", "--noprofile", "-i"], tmp_path, 60, 20) as bash:
        bash.see_text("bash-")
        assert bash.terminal.bracketed_paste
        bash.paste("echo on\x1b[201~e\necho two\n")
        bash.see_text("echo two")
        assert "one" not in render(bash.data, 60, 20).lines
        bash.press("enter")
        screen = bash.see(lambda screen: "two" in screen.lines)
        assert "one" in screen.lines


def test_a_program_that_asks_for_its_place_gets_an_answer(tmp_path: Path) -> None:
    ask = "printf 'ab\\033[6n'; stty raw -echo; head -c 6 | tr '\\033' E"
    with running(["sh", "-c", f"stty -echo; {ask}"], tmp_path) as shell:
        shell.see_text("E[1;3R")


SCROLLING = (
    "word",
    "äö日",
    "\r\n",
    "\n",
    "\r",
    "\t",
    "\x08",
    "\x1b[31m",
    "\x1b[K",
    "\x1b[m",
    "x" * 30,
)


@given(st.lists(st.sampled_from(SCROLLING), max_size=120), st.integers(1, 6))
def test_lines_that_scrolled_away_do_not_change_the_screen(pieces: list[str], rows: int) -> None:
    text = "".join(pieces)
    drawing = Drawing(20, rows)
    drawing.feed(text)
    drawn = render(text.encode(), 20, rows)
    assert drawn.lines == tuple(map(drawing.line, range(rows)))
    assert drawn.cursor == drawing.cursor
