"""Detect and preserve the encoding of files."""

from __future__ import annotations

import codecs
import re
from contextlib import suppress
from typing import NamedTuple

from clawkit.errors import ToolInputError

LOOK = 8_192
"""Bytes at the start of a file that determine its encoding."""
# The longer marks first: the one of UTF-32 starts with the one of UTF-16.
_MARKS = (
    (codecs.BOM_UTF8, "utf-8"),
    (codecs.BOM_UTF32_LE, "utf-32-le"),
    (codecs.BOM_UTF32_BE, "utf-32-be"),
    (codecs.BOM_UTF16_LE, "utf-16-le"),
    (codecs.BOM_UTF16_BE, "utf-16-be"),
)
# Multi-byte characters in UTF-8; any other byte beyond ASCII is invalid.
_MULTIBYTE = re.compile(
    rb"[\xc2-\xdf][\x80-\xbf]|[\xe0-\xef][\x80-\xbf]{2}|[\xf0-\xf4][\x80-\xbf]{3}"
)
# Without bell to carriage return, and escape: logs and terminal recordings have those.
_CONTROLS = bytes(code for code in range(32) if code not in (*range(7, 14), 27))
_MAX_CONTROLS = 30
"""In text that is not UTF-8, at most one of this many bytes may be a control character."""
_NOT_FILES = frozenset({"idna", "punycode", "unicode-escape", "raw-unicode-escape"})
"""Codecs for names and source code, not for files."""


class Encoding(NamedTuple):
    name: str
    mark: bytes = b""
    """The byte order mark at the start of the file."""


UTF8 = Encoding("utf-8")


def detect(head: bytes) -> Encoding | None:
    """The encoding of a file that starts with these bytes; None if it is not text.

    A byte order mark decides. Without one, zeros in every other byte mean UTF-16, and any other
    zero a binary file. The rest is UTF-8 if most bytes beyond ASCII are valid, otherwise cp1252, or
    binary if there are too many control characters.
    """
    for mark, name in _MARKS:
        if head.startswith(mark):
            return Encoding(name, mark)
    look = head[:LOOK]
    if b"\0" in look:
        name = _utf16(look)
        return Encoding(name) if name else None
    with suppress(UnicodeDecodeError):
        # A character may be incomplete at the end of the sample, but not of the file.
        codecs.utf_8_decode(look, "strict", len(look) < LOOK)
        return UTF8
    if _has_many_controls(look):
        return None
    rest, good = _MULTIBYTE.subn(b"", look)
    stray = len(rest) - len(rest.decode("ascii", "ignore"))
    return UTF8 if good >= stray else Encoding("cp1252")


def _has_many_controls(look: bytes) -> bool:
    return (len(look) - len(look.translate(None, _CONTROLS))) * _MAX_CONTROLS > len(look)


def _utf16(look: bytes) -> str:
    if len(look) % 2:
        return ""
    even, odd = look[::2].count(0), look[1::2].count(0)
    half = len(look) // 2
    # In a few bytes, zeros may be a coincidence.
    enough = max(half * 4 // 10, min(half, 4))
    if odd >= enough and even * 20 < half:
        name = "utf-16-le"
    elif even >= enough and odd * 20 < half:
        name = "utf-16-be"
    else:
        return ""
    # Small integers look like UTF-16 too.
    narrow = look.decode(name, "replace").encode("latin-1", "ignore")
    return "" if _has_many_controls(narrow) else name


def find_codec(name: str) -> Encoding:
    """Look up an encoding by name. Raises `ToolInputError` if it is unknown."""
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
    """Add the byte order mark and, for UTF-16 and UTF-32, the byte order of a file that starts with
    `head`."""
    name = "utf-8" if encoding.name == "utf-8-sig" else encoding.name
    for mark, marked in _MARKS:
        if head.startswith(mark) and marked.startswith(name):
            return Encoding(marked, mark)
    return Encoding(f"{name}-le" if name in ("utf-16", "utf-32") else name)


def decode_whole(data: bytes, path: str) -> tuple[str, Encoding]:
    """Decode a whole file; `encode` returns the same bytes again. Raises `ToolInputError` if it is
    binary or damaged."""
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
    """Encode a text for a file. Raises `ToolInputError` for characters that the encoding lacks."""
    errors = "surrogateescape" if encoding.name == "utf-8" else "strict"
    try:
        return encoding.mark + text.encode(encoding.name, errors)
    except UnicodeEncodeError as error:
        lacking = error.object[error.start : error.start + 1]
        raise ToolInputError(
            f"{lacking!r} cannot be written in the file's encoding ({encoding.name}); use other "
            "characters, or delete the file and write it again as UTF-8"
        ) from None
