"""The pieces of a JSON5 text: gaps, strings, names and numbers, each read at one offset.

The `read_*` functions return the value and the offset after it, or raise `Json5Error`.
"""

from __future__ import annotations

import re
import unicodedata

from clawkit.config import json5_faults as faults
from clawkit.config.json5_faults import SPACE, brief, fault

MAX_NUMBER_CHARS = 400

_SPACES = re.compile(f"[{SPACE}]++")
_LINE_BREAKS = "\n\r\u2028\u2029"
_LINE_COMMENT = re.compile(f"//[^{_LINE_BREAKS}]*+")
# ASCII letters, digits, $ and _, anything beyond ASCII but spaces, and escapes; then `_is_name`.
_NAME = re.compile(rf"(?:[^\x00-#%-/:-@\[-\^`{{-\x7f{SPACE}]++|\\u[0-9a-fA-F]{{4}})+")
_NAME_ESCAPE = re.compile(r"\\u([0-9a-fA-F]{4})")
_NAME_START = frozenset({"Lu", "Ll", "Lt", "Lm", "Lo", "Nl"})
_NAME_PART = _NAME_START | {"Mn", "Mc", "Nd", "Pc"}
_STRING_STOP = {'"': re.compile(r'["\\\r\n]'), "'": re.compile(r"['\\\r\n]")}
_ESCAPES = {"b": "\b", "f": "\f", "n": "\n", "r": "\r", "t": "\t", "v": "\v"}
_HEX_ESCAPE = {"x": re.compile("[0-9a-fA-F]{2}"), "u": re.compile("[0-9a-fA-F]{4}")}
_LOW_SURROGATE = re.compile(r"\\u([dD][c-fC-F][0-9a-fA-F]{2})")
_INTEGER = re.compile("[+-]?(?:0|[1-9][0-9]*+)")
_HEX = re.compile("[+-]?0[xX][0-9a-fA-F]++")
_FLOAT = re.compile(r"[+-]?(?:(?:0|[1-9][0-9]*+)(?:\.[0-9]*+)?|\.[0-9]++)(?:[eE][+-]?[0-9]++)?")
_QUOTED = {code: f"\\u{code:04x}" for code in (*range(32), 0x7F, 0x2028, 0x2029)}
_QUOTED |= {ord('"'): '\\"', ord("\\"): "\\\\", 8: "\\b", 9: "\\t", 10: "\\n", 12: "\\f", 13: "\\r"}


def quote(text: str) -> str:
    """`text` as a double-quoted string that is also plain JSON."""
    return f'"{text.translate(_QUOTED)}"'


def skip_gap(text: str, pos: int) -> int:
    """The first offset from `pos` on that is neither white space nor comment."""
    while True:
        if match := _SPACES.match(text, pos):
            pos = match.end()
        if not text.startswith("/", pos):
            return pos
        if match := _LINE_COMMENT.match(text, pos):
            pos = match.end()
        elif text.startswith("/*", pos):
            close = text.find("*/", pos + 2)
            if close < 0:
                raise fault(text, pos, "the comment that begins here is never closed with '*/'")
            pos = close + 2
        else:
            return pos


def _is_name(name: str) -> bool:
    categories = [unicodedata.category(char) for char in name]
    return (name[0] in "$_" or categories[0] in _NAME_START) and all(
        category in _NAME_PART or char in "$\u200c\u200d"
        for char, category in zip(name, categories, strict=True)
    )


def read_name(text: str, pos: int) -> tuple[str, int]:
    """The unquoted key at `pos`."""
    match = _NAME.match(text, pos)
    if not match:
        raise faults.missing_key(text, pos)
    name = _NAME_ESCAPE.sub(lambda escape: chr(int(escape[1], 16)), match[0])
    if not _is_name(name):
        raise faults.unquoted_key(text, pos)
    return name, match.end()


def to_number(text: str, pos: int, word: str, *, outermost: bool) -> int | float:
    """The number that `word`, found at `pos`, stands for."""
    if len(word) > MAX_NUMBER_CHARS and word[0] in "+-.0123456789":
        raise fault(text, pos, f"a number of more than {MAX_NUMBER_CHARS} characters")
    if _INTEGER.fullmatch(word):
        return int(word)
    if _HEX.fullmatch(word):
        return int(word, 16)
    if not _FLOAT.fullmatch(word):
        raise faults.not_a_value(text, pos, word, outermost=outermost)
    number = float(word)
    if number - number != 0:
        raise fault(text, pos, f"the number {brief(word)} is too large")
    return number


def read_string(text: str, start: int) -> tuple[str, int]:
    """The string whose opening quote is at `start`."""
    mark = text[start]
    parts: list[str] = []
    pos = start + 1
    while match := _STRING_STOP[mark].search(text, pos):
        parts.append(text[pos : match.start()])
        if match[0] == mark:
            return "".join(parts), match.end()
        if match[0] != "\\" or match.end() == len(text):
            break
        escaped, pos = _read_escape(text, match.start())
        parts.append(escaped)
    raise fault(text, start, f"the string that begins here has no closing {mark} on its line")


def _read_escape(text: str, pos: int) -> tuple[str, int]:
    char = text[pos + 1]
    if char in _ESCAPES:
        return _ESCAPES[char], pos + 2
    if char in _LINE_BREAKS:
        return "", pos + (3 if text.startswith("\r\n", pos + 1) else 2)
    if char in _HEX_ESCAPE:
        match = _HEX_ESCAPE[char].match(text, pos + 2)
        if not match:
            digits = "two" if char == "x" else "four"
            raise fault(text, pos, f"expected {digits} hexadecimal digits after '\\{char}'")
        return _code_point(text, pos, match.end())
    if char == "0" and text[pos + 2 : pos + 3] not in tuple("0123456789"):
        return "\0", pos + 2
    if char in "0123456789":
        raise fault(text, pos, f"'\\{char}' is not an escape: write '\\\\' for a backslash")
    return char, pos + 2


def _code_point(text: str, pos: int, end: int) -> tuple[str, int]:
    code = int(text[pos + 2 : end], 16)
    if not 0xD800 <= code <= 0xDFFF:
        return chr(code), end
    low = _LOW_SURROGATE.match(text, end)
    if not low or code >= 0xDC00:
        raise fault(text, pos, f"'{text[pos:end]}' is half a surrogate pair")
    return chr(0x10000 + ((code & 0x3FF) << 10) + (int(low[1], 16) & 0x3FF)), low.end()
