"""Bytes to text and back, so that a file keeps the encoding it has."""

from __future__ import annotations

import codecs
import re
from typing import NamedTuple

from clawkit.errors import ToolInputError

LOOK = 8_192
"""Bytes at the beginning of a file that decide what it is."""
# The longer marks first: UTF-32 begins like UTF-16.
_MARKS = (
    (codecs.BOM_UTF8, "utf-8"),
    (codecs.BOM_UTF32_LE, "utf-32-le"),
    (codecs.BOM_UTF32_BE, "utf-32-be"),
    (codecs.BOM_UTF16_LE, "utf-16-le"),
    (codecs.BOM_UTF16_BE, "utf-16-be"),
)
# Bytes beyond ASCII as UTF-8 has them; anything else beyond ASCII is not UTF-8.
_MULTIBYTE = re.compile(
    rb"[\xc2-\xdf][\x80-\xbf]|[\xe0-\xef][\x80-\xbf]{2}|[\xf0-\xf4][\x80-\xbf]{3}"
)
# Not bell to carriage return, nor escape: logs and terminal recordings have those.
_CONTROLS = bytes(code for code in range(32) if code not in (*range(7, 14), 27))
_MAX_CONTROLS = 30
"""One of so many bytes may be a control character in text that is not UTF-8."""
_NOT_FILES = frozenset({"idna", "punycode", "unicode-escape", "raw-unicode-escape"})
"""Codecs for names and for program texts."""


class Encoding(NamedTuple):
    """How a file holds its text."""

    name: str
    mark: bytes = b""
    """The byte order mark the file begins with."""


UTF8 = Encoding("utf-8")


def detect(head: bytes) -> Encoding | None:
    """The encoding of a file that begins with these bytes; None when it is not text.

    A mark decides. Without one, zeros on every other byte mean UTF-16 and any other zero means that
    it is not text. The rest is UTF-8 when most of what is beyond ASCII is, else cp1252, or not text
    when control characters abound.
    """
    for mark, name in _MARKS:
        if head.startswith(mark):
            return Encoding(name, mark)
    look = head[:LOOK]
    if b"\0" in look:
        name = _utf16(look)
        return Encoding(name) if name else None
    if look.isascii() or _is_utf8(look):
        return UTF8
    if _abounds(look):
        return None
    rest, good = _MULTIBYTE.subn(b"", look)
    stray = len(rest) - len(rest.decode("ascii", "ignore"))
    return UTF8 if good >= stray else Encoding("cp1252")


def _is_utf8(look: bytes) -> bool:
    try:
        # A character may be cut off where the look ends, but not where the file does.
        codecs.utf_8_decode(look, "strict", len(look) < LOOK)
    except UnicodeDecodeError:
        return False
    return True


def _abounds(look: bytes) -> bool:
    """Whether there are more control characters than a text has."""
    return (len(look) - len(look.translate(None, _CONTROLS))) * _MAX_CONTROLS > len(look)


def _utf16(look: bytes) -> str:
    if len(look) % 2:
        return ""
    even, odd = look[::2].count(0), look[1::2].count(0)
    half = len(look) // 2
    # Of a few bytes, any might be zero by chance.
    enough = max(half * 4 // 10, min(half, 4))
    if odd >= enough and even * 20 < half:
        name = "utf-16-le"
    elif even >= enough and odd * 20 < half:
        name = "utf-16-be"
    else:
        return ""
    # Small numbers look like UTF-16 too.
    narrow = look.decode(name, "replace").encode("latin-1", "ignore")
    return "" if _abounds(narrow) else name


def find_codec(name: str) -> Encoding:
    """An encoding that a caller names. Raises `ToolInputError` for what is not one."""
    try:
        found = codecs.lookup(name)
        if found.name in _NOT_FILES or not isinstance("".encode(name), bytes):
            raise LookupError
    except (LookupError, ValueError, TypeError):
        raise ToolInputError(
            f"encoding={name[:40]!r} is not a text encoding; try 'utf-8', 'latin-1', 'utf-16', "
            "'shift_jis' or 'gb18030'"
        ) from None
    return Encoding(found.name)


def settle(encoding: Encoding, head: bytes) -> Encoding:
    """An encoding that a caller named, as a file that begins with these bytes has it: with its mark
    and, for UTF-16 and UTF-32, with its byte order."""
    name = "utf-8" if encoding.name == "utf-8-sig" else encoding.name
    for mark, marked in _MARKS:
        if head.startswith(mark) and marked.startswith(name):
            return Encoding(marked, mark)
    return Encoding(f"{name}-le" if name in ("utf-16", "utf-32") else name)


def decode_whole(data: bytes, path: str) -> tuple[str, Encoding]:
    """All of a file's text, so that `encode` gives the same bytes again.

    Raises `ToolInputError` when it is not text or is damaged.
    """
    encoding = detect(data)
    if encoding is None:
        raise ToolInputError(f"{path!r} is a binary file, so its text cannot be changed")
    body = data[len(encoding.mark) :]
    if encoding.name == "utf-8":
        return body.decode("utf-8", "surrogateescape"), encoding
    try:
        return body.decode(encoding.name), encoding
    except UnicodeDecodeError:
        if encoding.name == "cp1252":
            return body.decode("latin-1"), Encoding("latin-1")
        raise ToolInputError(f"{path!r} looks like {encoding.name}, but is damaged") from None


def encode(text: str, encoding: Encoding) -> bytes:
    """The text as the file holds it. Raises `ToolInputError` for what the encoding lacks."""
    errors = "surrogateescape" if encoding.name == "utf-8" else "strict"
    try:
        return encoding.mark + text.encode(encoding.name, errors)
    except UnicodeEncodeError as error:
        lacking = error.object[error.start : error.start + 1]
        raise ToolInputError(
            f"{lacking!r} cannot be written in the file's encoding ({encoding.name}); use other "
            "characters, or delete the file and write it again as UTF-8"
        ) from None
