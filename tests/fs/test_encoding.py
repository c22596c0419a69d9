"""Bytes to text and back."""

from __future__ import annotations

import codecs
import os
import random

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.tables import table

from clawkit.errors import ToolInputError
from clawkit.fs.encoding import (
    LOOK,
    Encoding,
    decode_whole,
    detect,
    encode,
    find_codec,
    settle,
)

FRENCH = "Déjà vu: l'été à Besançon, où naquit « Victor » – cœur\n"
GERMAN = "Größe, Maß, Übermut: „Spaß”\n"


def test_the_encoding_of_a_text_is_found_out(subtests: pytest.Subtests) -> None:
    for data, encoding in [
        (b"", Encoding("utf-8")),
        (b"plain", Encoding("utf-8")),
        ("naïve 中文 😀".encode(), Encoding("utf-8")),
        (codecs.BOM_UTF8 + b"x", Encoding("utf-8", codecs.BOM_UTF8)),
        ("x".encode("utf-16"), Encoding("utf-16-le", codecs.BOM_UTF16_LE)),
        (codecs.BOM_UTF16_BE + b"\0x", Encoding("utf-16-be", codecs.BOM_UTF16_BE)),
        ("x".encode("utf-32"), Encoding("utf-32-le", codecs.BOM_UTF32_LE)),
        (codecs.BOM_UTF32_BE + b"\0\0\0x", Encoding("utf-32-be", codecs.BOM_UTF32_BE)),
        ("no mark at all\r\n".encode("utf-16-le"), Encoding("utf-16-le")),
        ("no mark at all\r\n".encode("utf-16-be"), Encoding("utf-16-be")),
        (FRENCH.encode("cp1252"), Encoding("cp1252")),
        (GERMAN.encode("cp1252"), Encoding("cp1252")),
        (b"caf\xe9", Encoding("cp1252")),
        # One bad byte does not make Latin of it.
        ("viel Grün, Blau, Weiß".encode() + b"\xff", Encoding("utf-8")),
        # A character that is cut off where the look ends.
        (b"x" * (LOOK - 1) + "é".encode(), Encoding("utf-8")),
        (b"\x1b[31mred\x1b[0m \x07\n" + "é".encode(), Encoding("utf-8")),
    ]:
        with subtests.test(data=data):
            assert detect(data) == encoding


def test_binary_data_has_no_encoding(subtests: pytest.Subtests) -> None:
    for data in [
        b"\0",
        b"text\0text",
        b"x" * (LOOK - 1) + b"\0",
        bytes(range(256)),
        b"".join(number.to_bytes(2, "little") for number in range(1, 200)),
        b"".join(number.to_bytes(2, "big") for number in range(1, 20)),
        random.Random(1).randbytes(10_000).replace(b"\0", b""),
    ]:
        with subtests.test(data=data):
            assert detect(data) is None


def test_only_the_beginning_is_examined() -> None:
    assert detect(b"x" * LOOK + b"\0\xff") == Encoding("utf-8")


@table(
    ("name", "found"),
    [
        ("UTF8", "utf-8"),
        ("latin1", "iso8859-1"),
        ("sjis", "shift_jis"),
        ("utf-16", "utf-16"),
        ("windows-1252", "cp1252"),
    ],
)
def test_encodings_have_many_names(name: str, found: str) -> None:
    assert find_codec(name).name == found


@table(
    "name",
    [
        *("", "nonsense", "rot13", "base64", "zip", "undefined", "idna", "punycode"),
        *("unicode_escape", "raw_unicode_escape", "utf-8\0", "../x", "é", "a" * 10_000, "aliases"),
    ],
)
def test_unknown_encodings_are_refused(name: str) -> None:
    with pytest.raises(ToolInputError, match="is not a text encoding"):
        find_codec(name)


def test_a_named_encoding_takes_the_byte_order_of_the_file(subtests: pytest.Subtests) -> None:
    for name, data, found in [
        ("utf-16", "x".encode("utf-16"), Encoding("utf-16-le", codecs.BOM_UTF16_LE)),
        ("utf-16", codecs.BOM_UTF16_BE, Encoding("utf-16-be", codecs.BOM_UTF16_BE)),
        ("utf-16", b"x\0", Encoding("utf-16-le")),
        ("utf-16-be", b"\0x", Encoding("utf-16-be")),
        ("utf-16-le", codecs.BOM_UTF16_LE, Encoding("utf-16-le", codecs.BOM_UTF16_LE)),
        ("utf-32", "x".encode("utf-32"), Encoding("utf-32-le", codecs.BOM_UTF32_LE)),
        ("utf-8", codecs.BOM_UTF8, Encoding("utf-8", codecs.BOM_UTF8)),
        ("utf-8-sig", b"x", Encoding("utf-8")),
        ("cp1252", codecs.BOM_UTF8, Encoding("cp1252")),
    ]:
        with subtests.test(name=name):
            assert settle(find_codec(name), data) == found


@pytest.mark.parametrize(
    "name", ["utf-8", "utf-8-sig", "utf-16", "utf-32", "cp1252", "utf-16-le", "utf-16-be"]
)
@pytest.mark.parametrize("text", [FRENCH, GERMAN, "plain\r\ntext\n", "plain without an end"])
def test_a_text_keeps_the_encoding_it_has(name: str, text: str) -> None:
    data = text.encode(name)
    found, encoding = decode_whole(data, "f")
    assert found == text
    assert encode(found, encoding) == data


@given(st.binary(max_size=200))
def test_decoded_text_encodes_to_the_same_bytes(data: bytes) -> None:
    try:
        text, encoding = decode_whole(data, "f")
    except ToolInputError:
        return
    assert encode(text, encoding) == data


def test_a_binary_or_damaged_file_has_no_text_to_change() -> None:
    with pytest.raises(ToolInputError, match="binary file"):
        decode_whole(os.urandom(100) + b"\0\0\0", "f")
    with pytest.raises(ToolInputError, match="looks like utf-16-le, but is damaged"):
        decode_whole("x".encode("utf-16") + b"\0", "f")


def test_bytes_that_cp1252_lacks_survive() -> None:
    data = b"\xe9t\xe9 \x81\n"
    text, encoding = decode_whole(data, "f")
    assert encode(text, encoding) == data


def test_characters_that_an_encoding_lacks_are_named() -> None:
    with pytest.raises(ToolInputError, match="'中' cannot be written in the file's encoding"):
        encode("ab中", Encoding("cp1252"))
