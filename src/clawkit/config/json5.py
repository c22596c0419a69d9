"""JSON5 parser with positions, used for loading, error messages and edits.

It is stricter than JSON5, so that a configuration has one meaning for every reader: duplicate keys,
`__proto__` and similar keys, NaN and Infinity, lone surrogates, numbers of more than 400 characters
and nesting deeper than 128 levels are errors.

Takes linear time, and does not recurse. Errors name keys, but never a value, which may be a secret.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any

import msgspec

from clawkit.errors import Issue
from clawkit.text import regex

SPACE = (
    "\t\n\v\f\r \u00a0\u1680\u2000\u2001\u2002\u2003\u2004\u2005\u2006\u2007\u2008\u2009\u200a"
    "\u2028\u2029\u202f\u205f\u3000\ufeff"
)
"""White space in JSON5; `str.strip()` without arguments removes more."""
MAX_DEPTH = 128
MAX_NUMBER_CHARS = 400
UNSAFE_KEYS = frozenset({"__proto__", "constructor", "prototype"})

# Anything where a number or `true` may be, up to the next punctuation.
_WORD = r"[+\-.$\w]++"
_MEMBER = re.compile(r'(?:([A-Za-z_$][A-Za-z0-9_$]*+)|"([^"\\\r\n]*+)")[ \t]*+:')
_SCALAR = re.compile(rf'[ \t]*+(?:"([^"\\\r\n]*+)"|({_WORD}))')
_SPACES = re.compile(f"[{SPACE}]++")
_LINE_BREAKS = "\n\r\u2028\u2029"
_LINE_COMMENT = f"//[^{_LINE_BREAKS}]*+"
_LITERALS = {"true": True, "false": False, "null": None}

# Strings, not compiled patterns: few files need them, and compiling would slow down every start.
_INDEX = "0|[1-9][0-9]{0,8}"
_PATH_NAME = rf"[^.\[\]\"'{SPACE}\x00-\x1f]++"
_PATH_PART = rf"\.({_PATH_NAME})|\[([^\[\]\"'\x00-\x1f]++)\]"
_KEY_RUN = rf"[^{SPACE}:=,{{}}\[\]\"']*+"
# ASCII letters, digits, $ and _, non-ASCII characters except spaces, and escapes.
_NAME = rf"(?:[^\x00-#%-/:-@\[-\^`{{-\x7f{SPACE}]++|\\u[0-9a-fA-F]{{4}})+"
_NAME_ESCAPE = r"\\u([0-9a-fA-F]{4})"
_AS_IDENTIFIER = {ord("$"): "_", 0x200C: "0", 0x200D: "0"}
"""Characters of JSON5 names that Python identifiers lack, mapped to equivalents."""
_STRING_STOP = {'"': r'["\\\r\n]', "'": r"['\\\r\n]"}
_ESCAPES = {"b": "\b", "f": "\f", "n": "\n", "r": "\r", "t": "\t", "v": "\v"}
_HEX_ESCAPE = {"x": "[0-9a-fA-F]{2}", "u": "[0-9a-fA-F]{4}"}
_LOW_SURROGATE = r"\\u([dD][c-fC-F][0-9a-fA-F]{2})"
_INTEGER = "[+-]?(?:0|[1-9][0-9]*+)"
_HEX = "[+-]?0[xX][0-9a-fA-F]++"
_FLOAT = r"[+-]?(?:(?:0|[1-9][0-9]*+)(?:\.[0-9]*+)?|\.[0-9]++)(?:[eE][+-]?[0-9]++)?"
_QUOTED = {code: f"\\u{code:04x}" for code in (*range(32), 0x7F, 0x2028, 0x2029)}
_QUOTED |= {ord('"'): '\\"', ord("\\"): "\\\\", 8: "\\b", 9: "\\t", 10: "\\n", 12: "\\f", 13: "\\r"}

_SPELLED = {"True": "true", "False": "false", "None": "null", "undefined": "null"}
_BETWEEN_BRACES = "keys must be between '{' and '}'"
_MISTAKES = {
    "=": "use ':' between a key and its value",
    ";": "use ',' between entries",
    "#": "comments start with //",
    "`": 'use " for quotes',
    **dict.fromkeys("\u201c\u201d\u2018\u2019", 'use the plain " for quotes'),
}


class Json5Error(ValueError):
    """The text is not valid JSON5. `line` and `column` count from 1."""

    def __init__(self, message: str, line: int, column: int) -> None:
        self.message = message
        self.line = line
        self.column = column
        super().__init__(f"line {line}, column {column}: {message}")

    def issue(self, file: str, hint: str = "") -> Issue:
        return Issue("", f"{self.message} (column {self.column})", file, self.line, hint)


class PathError(ValueError):
    def __init__(self, message: str, path: str, column: int) -> None:
        super().__init__(f"invalid path {short(path)}, at character {column}: {message}")


def line_of(text: str, offset: int) -> int:
    """The 1-based line of an offset, as editors count: lines end with LF, CRLF or a lone CR."""
    lines = text.count("\n", 0, offset) + 1
    if "\r" in text:
        lines += text.count("\r", 0, offset) - text.count("\r\n", 0, offset)
    return lines


def fault(text: str, offset: int, message: str) -> Json5Error:
    line_start = max(text.rfind("\n", 0, offset), text.rfind("\r", 0, offset)) + 1
    return Json5Error(message, line_of(text, offset), offset - line_start + 1)


def short(text: str) -> str:
    """`text` quoted for a message, truncated if it is long."""
    return repr(text if len(text) <= 40 else f"{text[:39]}…")


class Node(msgspec.Struct, eq=False, gc=False):
    """A value and its span `[start, end)` in the text.

    `source` is what was passed to `parse`. Objects have `members`, arrays have `items`; callers
    must not change them. Nodes are exempt from garbage collection, which would stop all threads for
    a large file; they contain no cycles.
    """

    value: Any
    start: int
    end: int
    source: Any = None
    members: dict[str, Member] = {}
    items: list[Node] = []


class Member(msgspec.Struct, frozen=True, gc=False):
    """One `key: value` of an object; the span is that of the key."""

    key_start: int
    key_end: int
    node: Node
    source: Any = None


_NOTHING: tuple[dict[str, Member], list[Node]] = {}, []
"""The members and items of all scalars."""


def parse(text: str, source: Any = None) -> Node:
    """Parse a whole text, with the position of every part. Raises `Json5Error`."""
    if not text.isascii():
        try:
            text.encode()
        except UnicodeEncodeError as error:
            raise fault(text, error.start, "this character is a lone surrogate") from None
    return _Json5Parser(text, source).run()


def child(node: Node, part: str | int) -> Node | None:
    """The member or element named by `part`; 0 and "0" are the same for lists and objects."""
    name = str(part)
    if isinstance(node.value, dict):
        member = node.members.get(name)
        return member.node if member else None
    if regex(_INDEX).fullmatch(name) and int(name) < len(node.items):
        return node.items[int(name)]
    return None


def locate(node: Node, path: Sequence[str | int]) -> Node | None:
    found: Node | None = node
    for part in path:
        found = child(found, part) if found else None
    return found


def parse_path(text: str) -> tuple[str | int, ...]:
    """Parse `a.b[0]["x.y"]`: names are strings, a number in brackets is an index.

    Quotes in brackets are optional, because a shell removes them. Raises `PathError`.
    """
    parts: list[str | int] = []
    # Add the dot that the first name lacks.
    dotted = text if text.startswith("[") else f".{text}"
    pos, shift = 0, len(text) - len(dotted) + 1
    while pos < len(dotted):
        part: str | int
        start = pos
        if dotted.startswith(('["', "['"), pos):
            try:
                part, pos = read_string(dotted, pos + 1)
            except Json5Error as error:
                raise PathError(error.message, text, error.column - 1 + shift) from None
            if not dotted.startswith("]", pos):
                raise PathError("expected ']'", text, pos + shift)
            pos += 1
        elif match := regex(_PATH_PART).match(dotted, pos):
            part, pos = match[1] or match[2], match.end()
            if match[2] and regex(_INDEX).fullmatch(part):
                part = int(part)
        else:
            raise PathError('expected .name, [number] or ["key"]', text, max(1, pos + shift))
        if part in UNSAFE_KEYS:
            raise PathError(f"the key {part!r} is not allowed", text, start + shift)
        parts.append(part)
    if len(parts) > MAX_DEPTH:
        raise PathError(f"more than {MAX_DEPTH} keys", text, len(text))
    return tuple(parts)


def format_path(path: Sequence[str | int]) -> str:
    """The text of a path; the inverse of `parse_path`."""
    parts: list[str] = []
    for part in path:
        if isinstance(part, int):
            parts.append(f"[{part}]")
        elif part.isidentifier() or regex(_PATH_NAME).fullmatch(part):
            parts.append(f".{part}" if parts else part)
        else:
            parts.append(f"[{quote(part)}]")
    return "".join(parts)


class _Json5Parser:
    def __init__(self, text: str, source: Any) -> None:
        self.text = text
        self.source = source
        self.open: list[Node] = []

    def run(self) -> Node:
        text, open_ = self.text, self.open
        root = self.value(0)
        pos = root.end
        complete = not open_
        while open_:
            char = text[pos : pos + 1]
            if not "!" <= char <= "~" or char == "/":
                pos = skip_gap(text, pos)
                char = text[pos : pos + 1]
            holder = open_[-1]
            is_object = isinstance(holder.value, dict)
            if complete and char == ",":
                pos += 1
                complete = False
            elif char == ("}" if is_object else "]"):
                pos += 1
                holder.end = pos
                open_.pop()
                complete = True
            elif complete:
                raise self.missing_comma(holder, pos)
            else:
                if is_object:
                    node = self.add_member(holder, pos)
                else:
                    node = self.value(pos)
                    holder.items.append(node)
                    holder.value.append(node.value)
                pos = node.end
                complete = open_[-1] is holder
        pos = skip_gap(text, pos)
        if text[pos : pos + 1] in ("]", "}"):
            raise fault(text, pos, f"unmatched '{text[pos]}': is a bracket missing above?")
        if pos < len(text):
            hint = f": {_BETWEEN_BRACES}" if text[pos] == ":" else ""
            raise fault(text, pos, f"expected the end of the file, {_found(text, pos)}{hint}")
        return root

    def add_member(self, holder: Node, pos: int) -> Node:
        text = self.text
        if match := _MEMBER.match(text, pos):
            key, key_end, value_at = match[1], match.end(1), match.end()
            if key is None:
                key, key_end = match[2], match.end(2) + 1
        else:
            if text.startswith(('"', "'"), pos):
                key, key_end = read_string(text, pos)
            else:
                self.expect_more(pos)
                match = regex(_NAME).match(text, pos)
                if not match:
                    if regex(_WORD).match(text, pos):
                        raise _unquoted_key(text, pos)
                    raise fault(text, pos, f"expected a key or '}}', {_found(text, pos)}")
                name = regex(_NAME_ESCAPE).sub(lambda escape: chr(int(escape[1], 16)), match[0])
                if not name.translate(_AS_IDENTIFIER).isidentifier():
                    raise _unquoted_key(text, pos)
                key, key_end = name, match.end()
            value_at = skip_gap(text, key_end) + 1
            if not text.startswith(":", value_at - 1):
                self.expect_more(value_at - 1)
                raise _missing_colon(text, pos, key_end, value_at - 1)
        if key in UNSAFE_KEYS:
            raise fault(text, pos, f"the key {key!r} is not allowed")
        if key in holder.members:
            first = line_of(text, holder.members[key].key_start)
            raise fault(text, pos, f"the key {short(key)} is already set on line {first}")
        node = self.value(value_at, f" after the key {short(key)}")
        holder.members[key] = Member(pos, key_end, node, self.source)
        holder.value[key] = node.value
        return node

    def value(self, pos: int, after: str = "") -> Node:
        """A scalar, or a newly opened object or array, whose end is not known yet."""
        text, source = self.text, self.source
        match = _SCALAR.match(text, pos)
        if not match:
            pos = skip_gap(text, pos)
            if text.startswith(("{", "["), pos):
                if len(self.open) == MAX_DEPTH:
                    raise fault(text, pos, f"more than {MAX_DEPTH} levels of nesting")
                self.open.append(Node({} if text[pos] == "{" else [], pos, pos + 1, source))
                return self.open[-1]
            match = _SCALAR.match(text, pos)
        if not match and text.startswith(('"', "'"), pos):
            content, end = read_string(text, pos)
            return Node(content, pos, end, source, *_NOTHING)
        if not match:
            self.expect_more(pos)
            raise fault(text, pos, f"expected a value{after}, {_found(text, pos)}")
        group = match.lastindex or 0
        content = match[group]
        start, end = match.span(group)
        if group == 1:
            return Node(content, start - 1, end + 1, source, *_NOTHING)
        if content in _LITERALS:
            return Node(_LITERALS[content], start, end, source, *_NOTHING)
        number = _to_number(text, start, content, not self.open)
        return Node(number, start, end, source, *_NOTHING)

    def missing_comma(self, holder: Node, pos: int) -> Json5Error:
        self.expect_more(pos)
        text = self.text
        if holder.members:
            key, member = next(reversed(holder.members.items()))
            closer, after, last = "}", f"the value of {short(key)}", member.node
        else:
            closer, after, last = "]", f"item {len(holder.items)} of the list", holder.items[-1]
        expected = f"expected ',' or '{closer}' after {after}, {_found(text, pos)}"
        if text[pos] in "]}":
            opened = f"the '{text[holder.start]}' of line {line_of(text, holder.start)}"
            return fault(text, pos, f"{expected}: {opened} is still open")
        if text[pos] in _MISTAKES or text[pos] == ":":
            return fault(text, pos, expected)
        missing = "a comma or a quote" if isinstance(last.value, str) else "a comma"
        line = line_of(text, pos)
        return fault(text, last.end, f"{expected} on line {line}: is {missing} missing?")

    def expect_more(self, pos: int) -> None:
        if pos < len(self.text):
            return
        if not self.open:
            raise fault(self.text, 0, "the text is empty: expected a value, such as {}")
        at = self.open[-1].start
        raise fault(self.text, at, f"this '{self.text[at]}' is never closed")


def quote(text: str) -> str:
    """`text` as a double-quoted string that is also plain JSON."""
    return f'"{text.translate(_QUOTED)}"'


def skip_gap(text: str, pos: int) -> int:
    """The first offset from `pos` on that is not white space or a comment."""
    while True:
        if match := _SPACES.match(text, pos):
            pos = match.end()
        if not text.startswith("/", pos):
            return pos
        if match := regex(_LINE_COMMENT).match(text, pos):
            pos = match.end()
        elif text.startswith("/*", pos):
            close = text.find("*/", pos + 2)
            if close < 0:
                raise fault(text, pos, "the comment that starts here is never closed with '*/'")
            pos = close + 2
        else:
            return pos


def _to_number(text: str, pos: int, word: str, outermost: bool) -> int | float:
    if len(word) > MAX_NUMBER_CHARS and word[0] in "+-.0123456789":
        raise fault(text, pos, f"a number of more than {MAX_NUMBER_CHARS} characters")
    if regex(_INTEGER).fullmatch(word):
        return int(word)
    if regex(_HEX).fullmatch(word):
        return int(word, 16)
    if regex(_FLOAT).fullmatch(word):
        number = float(word)
        if number - number != 0:
            raise fault(text, pos, "this number is too large")
        return number
    digits = word.lstrip("+-")
    if word in _SPELLED:
        hint = f"write {_SPELLED[word]}"
    elif digits in ("NaN", "Infinity"):
        hint = "numbers must be finite"
    elif outermost and text.startswith((":", "="), skip_gap(text, pos + len(word))):
        hint = _BETWEEN_BRACES
    elif digits[:1] == "0" and digits.isdecimal():
        hint = "a number cannot start with 0, and text needs quotes"
    else:
        hint = "text needs quotes"
    raise fault(text, pos, f"invalid value: {hint}")


def read_string(text: str, start: int) -> tuple[str, int]:
    """The string whose opening quote is at `start`, and the offset after it."""
    mark = text[start]
    parts: list[str] = []
    pos = start + 1
    while match := regex(_STRING_STOP[mark]).search(text, pos):
        parts.append(text[pos : match.start()])
        if match[0] == mark:
            return "".join(parts), match.end()
        if match[0] != "\\" or match.end() == len(text):
            break
        escaped, pos = _read_escape(text, match.start())
        parts.append(escaped)
    raise fault(text, start, f"the string that starts here has no closing {mark} on its line")


def _read_escape(text: str, pos: int) -> tuple[str, int]:
    char = text[pos + 1]
    if char in _ESCAPES:
        return _ESCAPES[char], pos + 2
    if char in _LINE_BREAKS:
        return "", pos + (3 if text.startswith("\r\n", pos + 1) else 2)
    if char in _HEX_ESCAPE:
        match = regex(_HEX_ESCAPE[char]).match(text, pos + 2)
        if not match:
            digits = "two" if char == "x" else "four"
            raise fault(text, pos, f"expected {digits} hexadecimal digits after '\\{char}'")
        end = match.end()
        code = int(text[pos + 2 : end], 16)
        if not 0xD800 <= code <= 0xDFFF:
            return chr(code), end
        low = regex(_LOW_SURROGATE).match(text, end)
        if not low or code >= 0xDC00:
            raise fault(text, pos, f"'{text[pos:end]}' is a lone surrogate")
        return chr(0x10000 + ((code & 0x3FF) << 10) + (int(low[1], 16) & 0x3FF)), low.end()
    if char == "0" and text[pos + 2 : pos + 3] not in tuple("0123456789"):
        return "\0", pos + 2
    if char in "0123456789":
        raise fault(text, pos, f"invalid escape '\\{char}': write '\\\\' for a backslash")
    return char, pos + 2


def _found(text: str, pos: int) -> str:
    if regex(_WORD).match(text, pos):
        return "found a word"
    hint = f": {_MISTAKES[text[pos]]}" if text[pos] in _MISTAKES else ""
    return f"found {text[pos]!r}{hint}"


def _unquoted_key(text: str, start: int) -> Json5Error:
    written = regex(_KEY_RUN).match(text, start)
    return fault(text, start, f"the key {short(written[0] if written else '')} needs quotes")


def _missing_colon(text: str, start: int, key_end: int, pos: int) -> Json5Error:
    if pos == key_end and text[pos] not in "=,;{}[]\"'" and text[start] not in "\"'":
        return _unquoted_key(text, start)
    key = short(text[start:key_end].strip("\"'"))
    return fault(text, pos, f"expected ':' after the key {key}, {_found(text, pos)}")
