"""What a command wrote, as text: nothing that a terminal would obey, nothing that no eye sees."""

from __future__ import annotations

import re
import sys
import unicodedata

from hypothesis import given
from hypothesis import strategies as st
from tests.tables import table

from clawkit.process.output_text import STRING_MAX, clean, whole_end

UNSAFE = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f\ud800-\udfff]")
# Pieces that meet in ways that random bytes hardly do.
PIECES = st.sampled_from(
    b"\x1b [ ] 0; 31 m \x07 \x1b\\ P ( \r \n \b _ a \x00 \x18".split(b" ")
    + b"\xc2 \x9b \x9d \x9c \xe2\x80 \xae \xf0\x9f".split(b" ")
    + "\u202e \u200d \ufe0f ❤ \x85".encode().split(b" ")
    + [b" "]
)
HOSTILE = st.lists(PIECES | st.binary(max_size=4), max_size=40).map(b"".join)


@table(
    ("data", "text"),
    [
        (b"", ""),
        (b"plain\ttext\n\n  end", "plain\ttext\n\n  end"),
        (b"a\r\nb\r\n", "a\nb\n"),
        (b"a\r\r\nb\r", "a\nb"),
        ("größe 中文 😀\n".encode(), "größe 中文 😀\n"),
        ("private \ue0b0 use".encode(), "private \ue0b0 use"),
        (b"bad \xff\xfe \xc3( end\xe2\x82", "bad \ufffd\ufffd \ufffd( end\ufffd"),
        (b"\x00\x07\x0b\x7f", r"\x00\x07\x0b\x7f"),
        ("\x85\x80".encode(), r"\x85\x80"),
        (b"\xed\xa0\x80", "\ufffd\ufffd\ufffd"),
    ],
)
def test_text_stays_and_the_rest_is_spelled_out(data: bytes, text: str) -> None:
    assert clean(data) == text


@table(
    "sequence",
    [
        b"\x1b[m",
        b"\x1b[1;31m",
        b"\x1b[38:2::255:0:0m",
        b"\x1b[?25l",
        b"\x1b[2J",
        b"\x1b[1 q",
        b"\x1b[>4;2m",
        b"\x1b]0;title\x07",
        b"\x1b]0;title\x1b\\",
        b"\x1b]8;;https://example.org/a\x1b\\",
        "\x1b]2;größe\x07".encode(),
        b"\x1b]2;\xff\x07",
        b"\x1bP1$r0m\x1b\\",
        b"\x1bXsos\x1b\\",
        b"\x1b^pm\x1b\\",
        b"\x1b_Gf=100;aGVsbG8=\x1b\\",
        b"\x1bkname\x1b\\",
        b"\x1b(B",
        b"\x1b)0",
        b"\x1b#8",
        b"\x1b%G",
        b"\x1b7",
        b"\x1b=",
        b"\x1bM",
        b"\x1bc",
        "\x9b31m".encode(),
        "\x9d0;title\x9c".encode(),
        "\x90q\x1b\\".encode(),
        b"\x1b]0;" + b"t" * (STRING_MAX - 2) + b"\x07",
    ],
)
def test_control_sequences_are_left_out(sequence: bytes) -> None:
    assert clean(sequence) == ""
    assert clean(b"before" + sequence + b"after\n" + sequence * 2) == "beforeafter\n"


@table(
    ("data", "text"),
    [
        (b"\x1b]0;never ended\nnext line\n", "0;never ended\nnext line\n"),
        (b"\x1bPnever ended", "never ended"),
        (b"\x1b]0;one\x1b[31mtwo", "0;onetwo"),
        (b"\x1b]0;one\x18two\x07", r"0;one\x18two\x07"),
        ("\x9d one \x80 two".encode(), r" one \x80 two"),
        (b"\x1b[31\x1b[0mred", "red"),
        (b"\x1b[31\nred", "\nred"),
        (b"\x1b", r"\x1b"),
        (b"\x1b\nA", "\\x1b\nA"),
        (b"\x1b\x1b[1mA", r"\x1bA"),
        ("\x1b\u200b[1mA".encode(), "A"),
    ],
)
def test_a_sequence_that_is_not_one_takes_nothing_with_it(data: bytes, text: str) -> None:
    assert clean(data) == text


def test_a_string_that_does_not_end_soon_is_text() -> None:
    body = "x" * (STRING_MAX + 1)
    assert clean(f"\x1b]{body}\x07end".encode()) == body + r"\x07end"
    assert clean(f"\x1b[{'1' * 5_000}m".encode()).endswith("111m")


@table(
    ("data", "text"),
    [
        (b"10%\r20%\r30%\r100%\n", "10%\n20%\n30%\n100%\n"),
        (b"\r10%\r\r20%", "10%\n20%"),
        (b"0%\r1%\r2%\r3%\r4%\n", "0%\n[… 2 updates of this line left out …]\n3%\n4%\n"),
        (b"working\r       \rdone\n", "working\ndone\n"),
        (b"\x1b[2K\x1b[1Gone\x1b[2K\x1b[Gtwo\x1b[K\r\n", "one\ntwo\n"),
        (b"before\na\rb\r\nafter", "before\na\nb\nafter"),
        (b"a\r\x0c\rb", "a\n\\x0c\nb"),
    ],
)
def test_a_line_that_was_written_over_shows_what_stood_there(data: bytes, text: str) -> None:
    assert clean(data) == text


def test_of_many_updates_the_first_and_the_last_two_are_shown() -> None:
    progress = "\r".join(f"{n}/5000" for n in range(5_001))
    assert clean(progress.encode()).split("\n") == [
        "0/5000",
        "[… 4,998 updates of this line left out …]",
        "4999/5000",
        "5000/5000",
    ]


@table(
    ("data", "text"),
    [
        (b"N\bNA\bAM\bME\bE", "NAME"),
        (b"B\bB\bB\bBold", "Bold"),
        (b"_\bf_\bi_\bl_\be", "file"),
        (b"_\bX\bX", "X"),
        ("é\bé".encode(), "é"),
        (b"a\bb", r"a\x08b"),
        (b"a\n\bb", "a\n\\x08b"),
        (b"_\b\nb", "_\\x08\nb"),
    ],
)
def test_letters_struck_twice_are_shown_once(data: bytes, text: str) -> None:
    assert clean(data) == text


def test_no_format_character_passes() -> None:
    for code in range(0x80, sys.maxunicode + 1):
        is_hidden = unicodedata.category(chr(code)) in ("Cf", "Zl", "Zp")
        is_nonchar = code & 0xFFFE == 0xFFFE or 0xFDD0 <= code <= 0xFDEF
        if is_hidden or is_nonchar or 0xE0000 <= code <= 0xE007F:
            assert clean(f"a{chr(code)}b".encode()) == "ab", hex(code)


def test_everything_that_is_seen_passes() -> None:
    chars = [chr(code) for code in range(0xA0, sys.maxunicode + 1)]
    seen = "".join(char for char in chars if unicodedata.category(char)[0] in "LNPS")
    assert clean(seen.encode()) == seen


@table("picture", ["👩‍👩‍👧", "❤️‍🔥", "🏳️‍🌈", "👍🏽", "☎︎", "✔️ done"])
def test_pictures_stay_whole(picture: str) -> None:
    assert clean(picture.encode()) == picture


@table(
    ("data", "text"),
    [
        ("a\u200db\ufe0f", "ab"),
        ("❤\ufe0f\ufe0e\ufe0f\ufe0e", "❤\ufe0f"),
        ("😀\u200d\u200d\u200dx", "😀x"),
        ("\u2060\ufe0f\u2060\ufe0e", ""),
        ("x\U000e0101\U000e0102\U000e0061", "x"),
    ],
)
def test_joiners_cannot_carry_a_message(data: str, text: str) -> None:
    assert clean(data.encode()) == text


@table(
    ("data", "text"),
    [
        (b"\x9f\x98\x80 smile", " smile"),
        (b"\x80\x94dash", "dash"),
        (b"31mred", "red"),
        (b"[0;1mbold", "bold"),
        (b"[?25hshown", "shown"),
        (b"itle\x07text", "text"),
        (b"example.org\x1b\\link\x1b]8;;\x1b\\", "link"),
        (b"[INFO] text", "[INFO] text"),
        (b"2024-01-01 text", "2024-01-01 text"),
        (b"text\nmore\x07", "text\nmore\\x07"),
        (b"", ""),
    ],
)
def test_the_rest_of_what_was_cut_at_the_start_is_left_out(data: bytes, text: str) -> None:
    assert clean(data, cut_start=True) == text


@table(
    "unfinished",
    [
        b"",
        b"\xc3",
        b"\xe2\x82",
        b"\xf0\x9f\x98",
        b"\x1b",
        b"\x1b[",
        b"\x1b[38;5;",
        b"\x1b[1 ",
        b"\x1b(",
        b"\x1b]",
        b"\x1b]0;tit",
        b"\x1b]0;title\x1b",
        b"\x1bPq",
        b"\x1b]0;caf\xc3",
        b"\x1b]0;\xff\xfe",
        "\x9b31".encode(),
        "\x9d0;größe".encode(),
        b"\x1b]8;;" + b"u" * 4_000,
    ],
)
def test_incomplete_sequences_at_the_end_are_left_out(unfinished: bytes) -> None:
    for before in (
        b"",
        b"text",
        b"bad \xff\n",
        b"\x1b[1mbold\x1b[0m",
        b"\x1b]0;t\x07",
        b"x" * 9_000,
    ):
        assert whole_end(before + unfinished) == len(before)
        assert clean(before + unfinished, cut_end=True) == clean(before)


@table(
    "data",
    [
        b"",
        b"text",
        b"\xff",
        "é".encode(),
        b"\x1b[0m",
        b"\x1b(B",
        b"\x1b7",
        b"\x1b]0;t\x07",
        b"\x1b]0;\n",
        "\x9b0m".encode(),
        "\x9d0;t\x9c.".encode(),
        b"\x1b]" + b"x" * 5_000,
    ],
)
def test_what_is_finished_is_kept(data: bytes) -> None:
    assert whole_end(data) == len(data)


@given(HOSTILE, st.booleans(), st.booleans())
def test_nothing_unsafe_ever_passes(data: bytes, cut_start: bool, cut_end: bool) -> None:
    text = clean(data, cut_start=cut_start, cut_end=cut_end)
    assert not UNSAFE.search(text)
    assert not {char for char in text if unicodedata.category(char) in ("Cf", "Zl", "Zp")} - {
        "\u200d"
    }
    assert clean(text.encode()) == text


@given(HOSTILE)
def test_every_line_is_cleaned_separately(data: bytes) -> None:
    assert clean(data) == "\n".join(clean(line) for line in data.split(b"\n"))


@given(HOSTILE)
def test_text_beside_sequences_is_not_lost(data: bytes) -> None:
    assert clean(data + b"\nsentinel").endswith("\nsentinel")
    assert clean(b"sentinel\n" + data).startswith("sentinel\n")


@given(st.text(st.characters(codec="ascii", categories=["L", "N", "P", "S", "Zs"])))
def test_plain_text_is_the_same_by_both_ways(text: str) -> None:
    assert clean(text.encode()) == text
    assert clean(b"\x1b[m" + text.encode()) == text


@table(
    ("unit", "count", "length"),
    [
        (b"\x1b[31m", 200_000, 0),
        (b"\x1b]", 200_000, 0),
        ("\x90".encode(), 200_000, 0),
        (b"\x1b]" + b"a" * 4_000, 200, 200 * 4_000),
        (b"\r", 200_000, 0),
        (b"\r\n", 200_000, 200_000),
        ("\u202e".encode(), 200_000, 0),
        ("😀\u200d".encode(), 200_000, 399_999),
        (b"\x00", 200_000, 800_000),
        (b"\xff", 200_000, 200_000),
        (b"_\b", 200_000, len(r"_\x08")),
        (b"a\r", 200_000, len("a\n[… 199,997 updates of this line left out …]\na\na")),
    ],
)
def test_a_flood_is_cleaned_like_a_drop(unit: bytes, count: int, length: int) -> None:
    assert len(clean(unit * count)) == length
