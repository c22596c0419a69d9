"""What is wrong with a JSON5 text, in words for the person who wrote it.

Every function here builds the error for one mistake; the parser in `json5` decides which and
raises it. Nothing here runs for a text that is in order.
"""

from __future__ import annotations

import re
from collections.abc import Iterable

SPACE = (
    "\t\n\v\f\r \u00a0\u1680\u2000\u2001\u2002\u2003\u2004\u2005\u2006\u2007\u2008\u2009\u200a"
    "\u2028\u2029\u202f\u205f\u3000\ufeff"
)
"""What JSON5 counts as white space; a bare `str.strip()` would take more."""

WORD = re.compile(r"[+\-.$\w]++")
"""What stands where a number or `true` could, up to the next punctuation."""

# Plain texts and not patterns: compiling them would cost every start, for errors only.
_KEY_RUN = rf"[^{SPACE}:=,{{}}\[\]\"']++"
_THEN_COLON = rf"[{SPACE}]*+[:=]"
_KEY_BEFORE = rf"(?:^|[{{,{SPACE}])(?P<quote>[\"']?)(?P<key>[$\w.\-]+)(?P=quote){_THEN_COLON}"
_KEY_LOOK = 256
_MAX_INDENT = 200
_SPELLED = {"True": "true", "False": "false", "None": "null", "undefined": "null"}
_BETWEEN_BRACES = "keys must stand between '{' and '}'"
_MISTAKES = {
    "=": "use ':' between a key and its value",
    ";": "use ',' between entries",
    "#": "comments begin with //",
    "`": 'use " for quotes',
    **dict.fromkeys("\u201c\u201d\u2018\u2019", 'use the plain " for quotes'),
}


class Json5Error(ValueError):
    """The text is not usable JSON5. `line` and `column` count from 1."""

    def __init__(self, message: str, line: int, column: int) -> None:
        self.message = message
        self.line = line
        self.column = column
        super().__init__(f"line {line}, column {column}: {message}")


def line_of(text: str, offset: int) -> int:
    """The 1-based line of an offset, as editors count: LF, CRLF or a lone CR ends a line."""
    lines = text.count("\n", 0, offset) + 1
    if "\r" in text:
        lines += text.count("\r", 0, offset) - text.count("\r\n", 0, offset)
    return lines


def fault(text: str, offset: int, message: str) -> Json5Error:
    """An error at one place of the text."""
    line_start = max(text.rfind("\n", 0, offset), text.rfind("\r", 0, offset)) + 1
    return Json5Error(message, line_of(text, offset), offset - line_start + 1)


def short(text: str) -> str:
    """`text` quoted for a message, cut when it is long."""
    return repr(text if len(text) <= 40 else f"{text[:39]}…")


def brief(word: str) -> str:
    """A word quoted for a message. A long one may be a key or a token, so only its start."""
    return repr(word if len(word) <= 20 else f"{word[:6]}…")


def _found(text: str, pos: int, key: str | None = None) -> str:
    word = WORD.match(text, pos)
    if word:
        return f"found {'another word' if _is_secret(text, pos, key) else brief(word[0])}"
    hint = f": {_MISTAKES[text[pos]]}" if text[pos] in _MISTAKES else ""
    return f"found {text[pos]!r}{hint}"


def _is_secret(text: str, pos: int, key: str | None = None) -> bool:
    """Whether a word at `pos` may be part of a secret, by `key` or else by the last key before."""
    # Most of a start, and only a broken text needs it.
    from clawkit.redact import is_secret_setting

    before = text[max(0, pos - _KEY_LOOK) : pos]
    keys = [key] if key else [found["key"] for found in re.finditer(_KEY_BEFORE, before)]
    return bool(keys) and is_secret_setting(keys[-1])


def missing_comma(
    text: str, pos: int, *, opened: int, closer: str, after: str, end: int, after_text: bool
) -> Json5Error:
    """Something else than ',' or `closer` follows a value that ends at `end`."""
    expected = f"expected ',' or '{closer}' after {after}, {_found(text, pos)}"
    if text[pos] in "]}":
        line = line_of(text, opened)
        return fault(text, pos, f"{expected}: the '{text[opened]}' of line {line} is still open")
    if text[pos] in _MISTAKES or text[pos] == ":":
        return fault(text, pos, expected)
    missing = "a comma or a quote" if after_text else "a comma"
    return fault(text, end, f"{expected} on line {line_of(text, pos)}: is {missing} missing?")


def missing_key(text: str, pos: int) -> Json5Error:
    if WORD.match(text, pos):
        return unquoted_key(text, pos)
    return fault(text, pos, f"expected a key or '}}', {_found(text, pos)}")


def unquoted_key(text: str, start: int) -> Json5Error:
    written = re.compile(_KEY_RUN).match(text, start)
    return fault(text, start, f"the key {short(written[0] if written else '')} needs quotes")


def missing_colon(text: str, start: int, key_end: int, pos: int) -> Json5Error:
    """The key written in `[start, key_end)` is followed by something else than ':'."""
    if pos == key_end and text[pos] not in "=,;{}[]\"'" and text[start] not in "\"'":
        return unquoted_key(text, start)
    key = text[start:key_end].strip("\"'")
    expected = f"expected ':' after the key {short(key)}"
    return fault(text, pos, f"{expected}, {_found(text, pos, key)}")


def missing_value(text: str, pos: int, key: str | None) -> Json5Error:
    expected = "expected a value" if key is None else f"expected a value after the key {short(key)}"
    return fault(text, pos, f"{expected}, {_found(text, pos)}")


def not_a_value(text: str, pos: int, word: str, *, outermost: bool) -> Json5Error:
    digits = word.lstrip("+-")
    if word in _SPELLED:
        hint = f"write {_SPELLED[word]}"
    elif digits in ("NaN", "Infinity"):
        hint = "numbers must be finite"
    elif outermost and re.compile(_THEN_COLON).match(text, pos + len(word)):
        hint = _BETWEEN_BRACES
    elif digits[:1] == "0" and digits.isdecimal():
        hint = "a number cannot begin with 0, and text needs quotes"
    else:
        hint = "text needs quotes"
    shown = "this" if _is_secret(text, pos) else brief(word)
    return fault(text, pos, f"{shown} is not a value: {hint}")


def not_the_end(text: str, pos: int) -> Json5Error:
    if text[pos] in "]}":
        return fault(text, pos, f"this '{text[pos]}' closes nothing: is one missing above?")
    hint = f": {_BETWEEN_BRACES}" if text[pos] == ":" else ""
    return fault(text, pos, f"expected the end of the file, {_found(text, pos)}{hint}")


def unclosed(text: str, opened: int, closed: Iterable[tuple[int, int]]) -> Json5Error:
    """The text ends while the bracket at `opened` waits for its partner.

    Often a bracket further in lost its own and took one meant for this: of the spans in
    `closed`, the first to end less indented than it began is blamed instead.
    """
    takers = [span for span in closed if _is_outdented(text, *span)]
    blamed = min(takers, key=lambda span: span[1])[0] if takers else opened
    return fault(text, blamed, f"this '{text[blamed]}' is never closed")


def _is_outdented(text: str, start: int, end: int) -> bool:
    _, broken, closing = text[max(0, end - 1 - _MAX_INDENT) : end - 1].rpartition("\n")
    if not broken or closing.strip(" \t"):
        return False
    _, broken, opening = text[max(0, start - _MAX_INDENT) : start].rpartition("\n")
    indent = len(opening) - len(opening.lstrip(" \t"))
    return bool(broken) and len(closing) < indent
