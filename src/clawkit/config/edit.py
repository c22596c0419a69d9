"""Edits to a JSON5 text that leave the rest of it as the person wrote it.

Each function takes a text and returns a text. Only the span of the changed value, its comma and
the line break around it are touched; comments, blank lines, quotes and order stay. An object
set over an object keeps the members that did not change, a list that only grows keeps its
items; every other value is written anew. New text follows the style around it.

Raises `EditError` when the edit makes no sense and `Json5Error` when the text cannot be read.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from clawkit.config.edit_layout import (
    Edit,
    Entry,
    Style,
    apply,
    indent_of,
    insert,
    is_one_line,
    newline_of,
    remove,
    render,
    style_of,
)
from clawkit.config.json5 import (
    MAX_DEPTH,
    SPACE,
    UNSAFE_KEYS,
    Node,
    child,
    format_path,
    locate,
    parse,
    skip_gap,
)
from clawkit.errors import EditError

MAX_INT_BITS = 1300
"""As many as fit in the 400 characters that the parser reads back."""

_TOO_DEEP = f"more than {MAX_DEPTH} levels of nesting"

Path = Sequence[str | int]


def set_value(text: str, path: Path, value: Any) -> str:
    """`text` with the value at `path` set. Missing parents are created."""
    for part in path:
        if part in UNSAFE_KEYS:
            raise EditError(f"the key {part!r} is not allowed")
    if len(path) > MAX_DEPTH:
        raise EditError(_TOO_DEEP)
    value = _plain(value, len(path))
    text = _with_root(text)
    root = node = parse(text)
    depth = 0
    while depth < len(path) and (below := child(node, path[depth])):
        node, depth = below, depth + 1
    if depth == len(path):
        return _assign(text, path, value)
    entry = _new_entry(node, path, depth, value)
    return apply(text, insert(text, node, [entry], style_of(text, root)).edits)


def unset_value(text: str, path: Path) -> str:
    """`text` without the member or element at `path`, its comma and a comment on its line."""
    root = parse(_with_root(text))
    if not path:
        raise EditError("the file as a whole cannot be unset")
    node = _find(root, path)
    return apply(text, remove(text, _find(root, path[:-1]), {node.start}))


def merge_patch(text: str, patch: Mapping[str, Any]) -> str:
    """`text` with `patch` merged in: objects merge, null deletes, everything else replaces."""
    text = _with_root(text)
    root = parse(text)
    if not isinstance(root.value, dict):
        raise EditError("the file does not hold an object, so there is nothing to merge into")
    return _assign(text, (), _merged(root.value, _plain(patch, 0)))


def _merged(old: Any, patch: Any) -> Any:
    if not isinstance(patch, dict):
        return patch
    result = dict(old) if isinstance(old, dict) else {}
    for key, value in patch.items():
        if value is None:
            result.pop(key, None)
        else:
            result[key] = _merged(result.get(key), value)
    return result


def _plain(value: Any, depth: int) -> Any:
    """A copy that a JSON5 text can hold, inside `depth` containers. Raises EditError."""
    if value is None or isinstance(value, bool):
        return value
    if isinstance(value, str):
        if not value.isascii() and any("\ud800" <= char <= "\udfff" for char in value):
            raise EditError("a text with half a surrogate pair cannot be written")
        return str(value)
    if isinstance(value, int):
        if value.bit_length() > MAX_INT_BITS:
            raise EditError(f"a number of {value.bit_length()} bits is too large")
        return int(value)
    if isinstance(value, float):
        if value - value != 0:
            raise EditError(f"{value!r} cannot be written: numbers must be finite")
        return float(value)
    if not isinstance(value, Mapping | list | tuple):
        raise EditError(f"a value of type {type(value).__name__} cannot be written")
    if depth == MAX_DEPTH:
        raise EditError(_TOO_DEEP)
    if not isinstance(value, Mapping):
        return [_plain(item, depth + 1) for item in value]
    for key in value:
        if not isinstance(key, str) or key in UNSAFE_KEYS:
            raise EditError(f"the key {key!r} is not allowed")
    return {_plain(key, depth): _plain(item, depth + 1) for key, item in value.items()}


def _with_root(text: str) -> str:
    """`text`, with an empty object at its end when it holds no value yet."""
    if skip_gap(text, 0) < len(text):
        return text
    newline = newline_of(text)
    if not text.strip(SPACE):
        text = text[: text.startswith("\ufeff")]
    elif not text.endswith("\n"):
        text += newline
    return f"{text}{{}}{newline}"


def _new_entry(node: Node, path: Path, depth: int, value: Any) -> Entry:
    """What to add to `node`, the deepest that exists, so that `path` leads to `value`."""
    part, where = path[depth], format_path(path)
    if not isinstance(node.value, dict | list):
        above = format_path(path[:depth]) or "the file"
        raise EditError(f"cannot set {where!r}: {above!r} is neither an object nor a list")
    if isinstance(node.value, list) and str(part) != str(len(node.items)):
        raise EditError(f"cannot set {where!r}: the next free index is {len(node.items)}")
    for below in reversed(path[depth + 1 :]):
        if isinstance(below, int) and below != 0:
            raise EditError(f"cannot set {where!r}: a new list begins with [0]")
        value = {below: value} if isinstance(below, str) else [value]
    return (str(part) if isinstance(node.value, dict) else None, value)


def _assign(text: str, path: Path, value: Any) -> str:
    """Makes the existing value at `path` equal to `value`.

    In two passes, so that the place of an addition never lies inside a removal.
    """
    root = parse(text)
    style = style_of(text, root)
    text = apply(text, _changes(text, _find(root, path), value, style))
    return apply(text, _additions(text, _find(parse(text), path), value, style))


def _find(root: Node, path: Path) -> Node:
    node = locate(root, path)
    if not node:
        raise EditError(f"{format_path(path)!r} is not set")
    return node


def _changes(text: str, node: Node, value: Any, style: Style) -> Iterator[Edit]:
    old = node.value
    if isinstance(old, dict) and isinstance(value, dict):
        gone = {member.node.start for key, member in node.members.items() if key not in value}
        yield from remove(text, node, gone)
        for key, member in node.members.items():
            if key in value:
                yield from _changes(text, member.node, value[key], style)
    elif not (_same(old, value) or _grows(old, value)):
        yield node.start, node.end, render(value, indent_of(text, node.start), style)


def _same(old: Any, new: Any) -> bool:
    if isinstance(old, dict) and isinstance(new, dict):
        return old.keys() == new.keys() and all(_same(old[key], new[key]) for key in old)
    if isinstance(old, list) and isinstance(new, list):
        return len(old) == len(new) and all(map(_same, old, new))
    return type(old) is type(new) and bool(old == new)


def _grows(old: Any, new: Any) -> bool:
    return isinstance(old, list) and isinstance(new, list) and _same(old, new[: len(old)])


def _additions(
    text: str, node: Node, value: Any, style: Style, indent: str | None = None
) -> Iterator[Edit]:
    """The edits that add what `value` has and `node` lacks, at any depth.

    `indent` is that of the line `node` will stand on, when another edit moves it to a new one.
    """
    below: list[tuple[Node, Any]] = []
    entries: list[Entry] = []
    if isinstance(node.value, dict):
        below = [(member.node, value[key]) for key, member in node.members.items()]
        entries = [(key, item) for key, item in value.items() if key not in node.members]
    elif isinstance(node.value, list):
        below = list(zip(node.items, value, strict=False))
        entries = [(None, item) for item in value[len(below) :]]
    inner = indent if indent is not None and is_one_line(text, node) else None
    if entries:
        insertion = insert(text, node, entries, style, indent)
        yield from insertion.edits
        inner = inner if insertion.moved is None else insertion.moved
    for item, item_value in below:
        yield from _additions(text, item, item_value, style, inner)
