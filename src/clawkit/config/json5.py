"""JSON5 with positions: the one parser behind loading, error lines and edits.

A configuration has to mean one thing to every reader, so this is stricter than the format:
a key twice in one object, `__proto__` and its kin as keys, NaN and Infinity, half a surrogate
pair, numbers of more than 400 characters and nesting beyond 128 levels are errors.

Time is linear in the text. The parser keeps its own stack, so depth never costs Python frames.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import Any, NamedTuple

from clawkit.config import json5_faults as faults
from clawkit.config.json5_faults import SPACE, WORD, Json5Error, fault, line_of, short
from clawkit.config.json5_tokens import quote, read_name, read_string, skip_gap, to_number

__all__ = [
    "MAX_DEPTH",
    "SPACE",
    "UNSAFE_KEYS",
    "Json5Error",
    "Member",
    "Node",
    "PathError",
    "child",
    "format_path",
    "line_of",
    "locate",
    "parse",
    "parse_path",
    "quote",
    "skip_gap",
]

MAX_DEPTH = 128
UNSAFE_KEYS = frozenset({"__proto__", "constructor", "prototype"})

_MEMBER = re.compile(r'(?:([A-Za-z_$][A-Za-z0-9_$]*+)|"([^"\\\r\n]*+)")[ \t]*+:')
_SCALAR = re.compile(rf'[ \t]*+(?:"([^"\\\r\n]*+)"|({WORD.pattern}))')
_LITERALS = {"true": True, "false": False, "null": None}
_INDEX = re.compile("0|[1-9][0-9]{0,8}")
_PATH_NAME = re.compile(rf"[^.\[\]\"'{SPACE}\x00-\x1f]++")
_PATH_BRACKET = re.compile(r"[^\[\]\"'\x00-\x1f]++(?=\])")


class PathError(ValueError):
    """The text is not a path of keys. `column` counts from 1."""

    def __init__(self, message: str, path: str, column: int) -> None:
        self.message = message
        self.column = column
        super().__init__(f"the path {short(path)} is wrong at character {column}: {message}")


_NO_MEMBERS: Mapping[str, Member] = MappingProxyType({})


class Node:
    """A value and the span `[start, end)` of the text that wrote it.

    `members` is filled for objects and `items` for arrays; both are read-only to callers.
    """

    __slots__ = ("end", "items", "members", "start", "value")

    def __init__(
        self,
        value: Any,
        start: int,
        end: int,
        members: Mapping[str, Member] = _NO_MEMBERS,
        items: Sequence[Node] = (),
    ) -> None:
        self.value = value
        self.start = start
        self.end = end
        self.members = members
        self.items = items


class Member(NamedTuple):
    """One `key: value` of an object; the span is that of the key as written."""

    key_start: int
    key_end: int
    node: Node


class _Object(Node):
    __slots__ = ()
    members: dict[str, Member]

    def __init__(self, start: int) -> None:
        super().__init__({}, start, start + 1, {})


class _Array(Node):
    __slots__ = ()
    items: list[Node]

    def __init__(self, start: int) -> None:
        super().__init__([], start, start + 1, _NO_MEMBERS, [])


_OPENERS: dict[str, type[_Object] | type[_Array]] = {"{": _Object, "[": _Array}


def parse(text: str) -> Node:
    """The value of a whole text, with the place of every part. Raises `Json5Error`."""
    if not text.isascii():
        try:
            text.encode()
        except UnicodeEncodeError as error:
            raise fault(text, error.start, "this character is half a surrogate pair") from None
    return _Parser(text).run()


def child(node: Node, part: str | int) -> Node | None:
    """The member or element that `part` names; 0 and "0" both fit a list and an object."""
    name = str(part)
    if isinstance(node.value, dict):
        member = node.members.get(name)
        return member.node if member else None
    if _INDEX.fullmatch(name) and int(name) < len(node.items):
        return node.items[int(name)]
    return None


def locate(node: Node, path: Sequence[str | int]) -> Node | None:
    """The node at `path` below `node`, or None."""
    found: Node | None = node
    for part in path:
        found = child(found, part) if found else None
    return found


def parse_path(text: str) -> tuple[str | int, ...]:
    """The keys of `a.b[0]["x.y"]`: names are strings, a number in brackets is an index.

    Brackets without quotes work too, `["x.y"]` loses its own in a shell. Raises `PathError`.
    """
    parts: list[str | int] = []
    pos = 0
    while pos < len(text) or not parts:
        start = pos
        if text.startswith("[", pos):
            part, pos = _bracket_part(text, pos)
        else:
            if parts:
                if text[pos] != ".":
                    raise PathError("expected '.' or '['", text, pos + 1)
                pos += 1
            match = _PATH_NAME.match(text, pos)
            if not match:
                raise PathError("expected a name, or a key in brackets and quotes", text, pos + 1)
            part, pos = match[0], match.end()
        if part in UNSAFE_KEYS:
            raise PathError(f"the key {part!r} is not allowed", text, start + 1)
        parts.append(part)
    if len(parts) > MAX_DEPTH:
        raise PathError(f"more than {MAX_DEPTH} keys", text, len(text))
    return tuple(parts)


def _bracket_part(text: str, pos: int) -> tuple[str | int, int]:
    part: str | int
    if text.startswith(('"', "'"), pos + 1):
        try:
            part, end = read_string(text, pos + 1)
        except Json5Error as error:
            raise PathError(error.message, text, error.column) from None
    else:
        match = _PATH_BRACKET.match(text, pos + 1)
        if not match:
            raise PathError("expected a number or a key, then ']'", text, pos + 2)
        part, end = match[0], match.end()
        if _INDEX.fullmatch(part):
            part = int(part)
    if not text.startswith("]", end):
        raise PathError("expected ']'", text, end + 1)
    return part, end + 1


def format_path(path: Sequence[str | int]) -> str:
    """The text of a path, such that `parse_path` gives the same path back."""
    parts: list[str] = []
    for part in path:
        if isinstance(part, int):
            parts.append(f"[{part}]")
        elif _PATH_NAME.fullmatch(part):
            parts.append(f".{part}" if parts else part)
        else:
            parts.append(f"[{quote(part)}]")
    return "".join(parts)


class _Parser:
    """One pass over one text."""

    def __init__(self, text: str) -> None:
        self.text = text
        self.open: list[_Object | _Array] = []

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
            if complete and char == ",":
                pos += 1
                complete = False
            elif char == ("}" if isinstance(holder, _Object) else "]"):
                pos += 1
                holder.end = pos
                open_.pop()
                complete = True
            elif complete:
                raise self.missing_comma(holder, pos)
            else:
                pos = self.add(holder, pos).end
                complete = open_[-1] is holder
        pos = skip_gap(text, pos)
        if pos < len(text):
            raise faults.not_the_end(text, pos)
        return root

    def add(self, holder: _Object | _Array, pos: int) -> Node:
        """Reads the next member or element of `holder`."""
        if isinstance(holder, _Object):
            return self.add_member(holder, pos)
        node = self.value(pos)
        holder.items.append(node)
        holder.value.append(node.value)
        return node

    def add_member(self, holder: _Object, pos: int) -> Node:
        text = self.text
        if match := _MEMBER.match(text, pos):
            key, key_end, value_at = match[1], match.end(1), match.end()
            if key is None:
                key, key_end = match[2], match.end(2) + 1
        else:
            key, key_end = self.key(pos)
            value_at = skip_gap(text, key_end) + 1
            if not text.startswith(":", value_at - 1):
                self.expect_more(value_at - 1)
                raise faults.missing_colon(text, pos, key_end, value_at - 1)
        if key in UNSAFE_KEYS:
            raise fault(text, pos, f"the key {key!r} is not allowed")
        if key in holder.members:
            first = line_of(text, holder.members[key].key_start)
            raise fault(text, pos, f"the key {short(key)} is already set on line {first}")
        node = self.value(value_at, key)
        holder.members[key] = Member(pos, key_end, node)
        holder.value[key] = node.value
        return node

    def key(self, pos: int) -> tuple[str, int]:
        if self.text.startswith(('"', "'"), pos):
            return read_string(self.text, pos)
        self.expect_more(pos)
        return read_name(self.text, pos)

    def value(self, pos: int, key: str | None = None) -> Node:
        """A scalar, or an object or array that is now open and ends (so far) at its bracket."""
        text = self.text
        match = _SCALAR.match(text, pos)
        if not match:
            pos = skip_gap(text, pos)
            if text[pos : pos + 1] in _OPENERS:
                return self.open_at(pos)
            match = _SCALAR.match(text, pos)
            if not match:
                return self.rare_string(pos, key)
        group = match.lastindex or 0
        content = match[group]
        start, end = match.span(group)
        if group == 1:
            return Node(content, start - 1, end + 1)
        if content in _LITERALS:
            return Node(_LITERALS[content], start, end)
        return Node(to_number(text, start, content, outermost=not self.open), start, end)

    def open_at(self, pos: int) -> Node:
        if len(self.open) == MAX_DEPTH:
            raise fault(self.text, pos, f"more than {MAX_DEPTH} levels of nesting")
        node = _OPENERS[self.text[pos]](pos)
        self.open.append(node)
        return node

    def rare_string(self, pos: int, key: str | None) -> Node:
        """A string in single quotes or with escapes; anything else is no value at all."""
        if self.text.startswith(('"', "'"), pos):
            value, end = read_string(self.text, pos)
            return Node(value, pos, end)
        self.expect_more(pos)
        raise faults.missing_value(self.text, pos, key)

    def missing_comma(self, holder: _Object | _Array, pos: int) -> Json5Error:
        self.expect_more(pos)
        if isinstance(holder, _Object):
            key, member = next(reversed(holder.members.items()))
            closer, after, last = "}", f"the value of {short(key)}", member.node
        else:
            closer, after, last = "]", f"item {len(holder.items)} of the list", holder.items[-1]
        return faults.missing_comma(
            self.text,
            pos,
            opened=holder.start,
            closer=closer,
            after=after,
            end=last.end,
            after_text=isinstance(last.value, str),
        )

    def expect_more(self, pos: int) -> None:
        """Raises when the text has ended."""
        if pos < len(self.text):
            return
        if not self.open:
            raise fault(self.text, 0, "there is nothing here: expected a value, such as {}")
        still_open = {holder.start for holder in self.open}
        nodes: list[Node] = [self.open[0]]
        for node in nodes:
            nodes += (*node.items, *(member.node for member in node.members.values()))
        closed = [(node.start, node.end) for node in nodes if node.start not in still_open]
        raise faults.unclosed(self.text, self.open[-1].start, closed)
