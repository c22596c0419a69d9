"""Keys, bytes and pasted text as a terminal sends them."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.tables import table

from clawkit.errors import ToolInputError
from clawkit.process.terminal import (
    KEYS,
    MAX_KEYS,
    MAX_SENT_BYTES,
    MAX_WARNINGS,
    encode_hex,
    encode_keys,
    encode_paste,
)


def send(*keys: str, application: bool = False) -> bytes:
    """The bytes of keys about which there is no doubt."""
    encoded = encode_keys(keys, application=application)
    assert encoded.warnings == ()
    return encoded.data


@table(
    ("names", "expected"),
    [
        ("enter return Enter RETURN", b"\r"),
        ("tab", b"\t"),
        ("escape esc", b"\x1b"),
        ("space", b" "),
        ("bspace backspace", b"\x7f"),
        ("up arrowup ArrowUp up_arrow arrow-up <Up>", b"\x1b[A"),
        ("down", b"\x1b[B"),
        ("right", b"\x1b[C"),
        ("left", b"\x1b[D"),
        ("home", b"\x1b[H"),
        ("end", b"\x1b[F"),
        ("insert ic", b"\x1b[2~"),
        ("delete del dc", b"\x1b[3~"),
        ("pageup pgup ppage PageUp page_up page-up", b"\x1b[5~"),
        ("pagedown pgdn npage", b"\x1b[6~"),
        ("btab S-tab shift+tab S-btab backtab", b"\x1b[Z"),
        ("f1", b"\x1bOP"),
        ("f2", b"\x1bOQ"),
        ("f3", b"\x1bOR"),
        ("f4", b"\x1bOS"),
        ("f5", b"\x1b[15~"),
        ("f6", b"\x1b[17~"),
        ("f7", b"\x1b[18~"),
        ("f8", b"\x1b[19~"),
        ("f9", b"\x1b[20~"),
        ("f10", b"\x1b[21~"),
        ("f11", b"\x1b[23~"),
        ("F12", b"\x1b[24~"),
    ],
)
def test_a_key_has_one_code_and_many_names(names: str, expected: bytes) -> None:
    for name in names.split():
        assert send(name) == expected, name


@table(
    ("names", "expected"),
    [
        ("C-c c-C ctrl+c ctrl-c Ctrl-C control-c ^c ^C <C-c>", b"\x03"),
        ("C-a", b"\x01"),
        ("C-z", b"\x1a"),
        ("C-@ C-space ctrl+space ^@", b"\x00"),
        ("C-[ ^[", b"\x1b"),
        ("C-\\ ^\\", b"\x1c"),
        ("C-] ^]", b"\x1d"),
        ("C-^ ^^", b"\x1e"),
        ("C-_ ^_", b"\x1f"),
        ("C-? ^?", b"\x7f"),
        ("C-bspace", b"\x08"),
        ("M-x alt+x Alt-x meta-x option+x", b"\x1bx"),
        ("M-X", b"\x1bX"),
        ("M-é", b"\x1b\xc3\xa9"),
        ("M-enter", b"\x1b\r"),
        ("M-bspace", b"\x1b\x7f"),
        ("S-a S-A shift+a", b"A"),
        ("S-space", b" "),
        ("C-M-x M-C-x ctrl+alt+x M-^x", b"\x1b\x18"),
        ("M-S-tab S-M-tab", b"\x1b\x1b[Z"),
        ("S-up", b"\x1b[1;2A"),
        ("M-up", b"\x1b[1;3A"),
        ("M-S-up", b"\x1b[1;4A"),
        ("C-up ctrl+ArrowUp", b"\x1b[1;5A"),
        ("C-S-left", b"\x1b[1;6D"),
        ("C-M-S-end C-M-S-C-end", b"\x1b[1;8F"),
        ("C-f1", b"\x1b[1;5P"),
        ("S-f5", b"\x1b[15;2~"),
        ("C-delete", b"\x1b[3;5~"),
        ("M-pgup", b"\x1b[5;3~"),
    ],
)
def test_modifiers_combine(names: str, expected: bytes) -> None:
    for name in names.split():
        assert send(name) == expected, name


def test_a_space_after_a_modifier_is_the_key() -> None:
    assert send("C- ", "M- ") == b"\x00\x1b "


def test_full_screen_programs_get_their_own_form_of_arrows_home_and_end() -> None:
    keys = ("up", "down", "right", "left", "home", "end")
    assert send(*keys, application=True) == b"\x1bOA\x1bOB\x1bOC\x1bOD\x1bOH\x1bOF"
    others = ("C-up", "pgup", "f1", "delete", "enter")
    assert send(*others, application=True) == send(*others)


@table(
    ("key", "as_text", "as_key"),
    [
        ("kp0", b"0", b"\x1bOp"),
        ("kp5", b"5", b"\x1bOu"),
        ("KP9", b"9", b"\x1bOy"),
        ("kp/", b"/", b"\x1bOo"),
        ("kp*", b"*", b"\x1bOj"),
        ("kp-", b"-", b"\x1bOm"),
        ("kp+", b"+", b"\x1bOk"),
        ("kp.", b".", b"\x1bOn"),
        ("kpenter", b"\r", b"\x1bOM"),
        ("M-kp+", b"\x1b+", b"\x1bO3k"),
    ],
)
def test_the_keypad_sends_what_stands_on_it_unless_it_is_asked_for(
    key: str, as_text: bytes, as_key: bytes
) -> None:
    assert send(key) == as_text
    assert send(key, application=True) == as_key
    assert encode_keys([key], application=True, keypad=False).data == as_text
    assert encode_keys([key], application=False, keypad=True).data == as_key


@table(
    "text",
    ["ls", "ls -la", "git status", "é", "^", "C-", "->", "\n", " ", "  a", "👍🏽", ":wq", "x>"],
)
def test_text_that_names_no_key_is_sent_as_it_is(text: str) -> None:
    assert send(text) == text.encode()
    assert send(text, "enter") == text.encode() + b"\r"


@table(
    ("key", "hint"),
    [
        ("Entr", "did you mean enter"),
        ("escpae", "did you mean escape"),
        ("PageUpp", "did you mean pageup"),
        ("<entr>", "did you mean enter"),
        ("C-detele", "did you mean delete"),
        ("f13", "f1 to f12"),
        ("C-foo", "one character or the name of a key"),
        ("ctrl+foo", "one character or the name of a key"),
        ("^ab", "one character"),
        ("\\n", "write enter"),
        ("\\x1b", "write enter"),
    ],
)
def test_text_that_looks_like_a_misspelt_key_is_sent_with_a_warning(key: str, hint: str) -> None:
    encoded = encode_keys(["enter", key], application=False)
    assert encoded.data == b"\r" + key.encode()
    (warning,) = encoded.warnings
    assert warning.startswith(f"keys[1] {key!r} is not a key and was sent as text; ")
    assert hint in warning


@table(
    "key",
    [
        *("C-1", "C-é", "C-`", "C-{", "C-~", "C-/", "^1", "C--", "C-M-;", "C-kp5", "C-S-a", "S-1"),
        *("C-enter", "S-enter", "C-tab", "C-btab", "S-esc", "S-bspace"),
    ],
)
def test_what_terminals_have_no_code_for_is_refused(key: str) -> None:
    with pytest.raises(ToolInputError, match="no code") as caught:
        encode_keys(["a", key], application=False)
    assert str(caught.value).startswith(f"keys[1] {key!r}: ")


def test_a_refusal_names_what_to_send_instead() -> None:
    for key, hint in (("S-enter", "C-j"), ("C-/", "C-_"), ("C-1", "a to z")):
        with pytest.raises(ToolInputError, match=hint):
            encode_keys([key], application=False)


def test_an_empty_key_and_half_a_character_are_refused() -> None:
    with pytest.raises(ToolInputError, match=r"keys\[1\] is empty"):
        encode_keys(["a", ""], application=False)
    with pytest.raises(ToolInputError, match="lone surrogate"):
        encode_keys(["\ud83d"], application=False)


def test_the_number_of_keys_and_bytes_is_limited() -> None:
    assert len(send(*["a"] * MAX_KEYS)) == MAX_KEYS
    with pytest.raises(ToolInputError, match="1,001 keys"):
        encode_keys(["a"] * (MAX_KEYS + 1), application=False)
    assert len(send("é" * (MAX_SENT_BYTES // 2))) == MAX_SENT_BYTES
    with pytest.raises(ToolInputError, match="64 KB"):
        encode_keys(["é" * (MAX_SENT_BYTES // 2), "a"], application=False)


def test_a_very_long_key_is_text() -> None:
    assert send("C-" * 30_000) == b"C-" * 30_000
    assert send("^" + "x" * 100)[:2] == b"^x"


def test_warnings_are_few_and_show_no_hidden_characters() -> None:
    encoded = encode_keys(["C-\u202efoo\x1b"] * MAX_KEYS, application=False)
    assert len(encoded.warnings) == MAX_WARNINGS + 1
    assert encoded.warnings[-1] == "and more like these"
    assert all(warning.isprintable() for warning in encoded.warnings)


@given(st.lists(st.text(max_size=8), max_size=5), st.booleans())
def test_keys_are_encoded_or_refused_whatever_they_are(keys: list[str], application: bool) -> None:
    try:
        encoded = encode_keys(keys, application=application)
    except ToolInputError:
        return
    assert len(encoded.data) >= len(keys)


@given(st.sampled_from(sorted(KEYS)), st.sets(st.sampled_from(["C-", "M-", "S-"])))
def test_every_key_with_every_modifier_is_a_code_or_refused(key: str, prefixes: set[str]) -> None:
    name = "".join(sorted(prefixes)) + key
    try:
        data = send(name)
    except ToolInputError:
        data = b""
    assert data or prefixes & {"C-", "S-"}
    assert data.decode() != name
    assert len(data) <= 7


@table(
    ("pieces", "expected"),
    [
        (["1b", "5b", "41"], b"\x1b[A"),
        (["0x1B", "0X5b", "\\x41"], b"\x1b[A"),
        (["1b 5b 41"], b"\x1b[A"),
        (["1b 0x5b\t41\n"], b"\x1b[A"),
        (["3", "0", "00", "ff"], b"\x03\x00\x00\xff"),
        ([], b""),
        (["", " "], b""),
    ],
)
def test_bytes_are_written_in_hex(pieces: list[str], expected: bytes) -> None:
    assert encode_hex(pieces) == (expected, ())


@table("bad", ["xyz", "0x", "100", "1b5b", "-1", "１b", "0x1b,", "²"])
def test_invalid_hex_is_left_out_with_a_warning(bad: str) -> None:
    encoded = encode_hex(["41", f"42 {bad}", "43"])
    assert encoded.data == b"ABC"
    (warning,) = encoded.warnings
    assert warning.startswith(f"hex[1] {bad!r} is not a byte and was left out")


def test_the_length_of_hex_is_limited() -> None:
    assert len(encode_hex(["ff " * MAX_SENT_BYTES]).data) == MAX_SENT_BYTES
    for pieces in (["ff"] * (MAX_SENT_BYTES + 1), ["fg "] * (MAX_SENT_BYTES + 1)):
        with pytest.raises(ToolInputError, match="64 KB"):
            encode_hex(pieces)


def test_pasted_text_is_marked_if_the_program_asked_for_it() -> None:
    assert encode_paste("a b", bracketed=True) == b"\x1b[200~a b\x1b[201~"
    assert encode_paste("a b", bracketed=False) == b"a b"


def test_new_lines_are_pasted_as_the_enter_key_sends_them() -> None:
    assert encode_paste("a\nb\r\nc\rd\n", bracketed=True) == b"\x1b[200~a\rb\rc\rd\r\x1b[201~"
    assert encode_paste("a\nb\r\n", bracketed=False) == b"a\rb\r"


@table(
    "text",
    [
        "safe\x1b[201~rm -rf /\r",
        "safe\x1b[20\x1b[201~1~rm\r",
        "safe" + "\x1b[20" * 50 + "1~" * 50 + "rm\r",
        "safe\x1b\x1b[201~[201~rm\r",
        "safe\x9b201~rm\r",
        "safe\x1b[2\x9b201~01~rm\r",
    ],
)
def test_pasted_text_cannot_end_the_paste(text: str) -> None:
    data = encode_paste(text, bracketed=True)
    assert data.startswith(b"\x1b[200~safe")
    assert data.find(b"\x1b[201~") == len(data) - 6
    assert "\x9b201~" not in data.decode()


@given(st.lists(st.sampled_from(["\x1b", "[", "20", "1~", "\x9b", "201~", "\x1b[201~", "x"])))
def test_no_text_can_end_the_paste(parts: list[str]) -> None:
    data = encode_paste("x" + "".join(parts), bracketed=True)
    assert data.find(b"\x1b[201~") == len(data) - 6
    assert "\x9b201~" not in data.decode()


def test_empty_long_and_invalid_text_cannot_be_pasted() -> None:
    for text in ("", "\x1b[201~"):
        with pytest.raises(ToolInputError, match="empty"):
            encode_paste(text, bracketed=True)
    assert len(encode_paste("x" * MAX_SENT_BYTES, bracketed=False)) == MAX_SENT_BYTES
    for text in ("x" * (MAX_SENT_BYTES + 1), "é" * (MAX_SENT_BYTES // 2 + 1)):
        with pytest.raises(ToolInputError, match="64 KB"):
            encode_paste(text, bracketed=False)
    with pytest.raises(ToolInputError, match="lone surrogate"):
        encode_paste("a\udc00", bracketed=True)
