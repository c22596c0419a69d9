"""The configuration file without its secrets, and back.

What clients read has a marker in the place of every secret. A marker that they send back stands
for the secret that is stored at the same place.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

from clawkit.config.file_edit import content
from clawkit.config.json5 import Node, format_path, parse, quote, skip_gap
from clawkit.config.masking import masked
from clawkit.config.text_edit import Edit, apply
from clawkit.errors import EditError
from clawkit.redact import Redactor

MARKER = "__OPENCLAW_REDACTED__"
Path = tuple[str | int, ...]
_STRINGS = r""""(?:\\.|[^"\\])*"|'(?:\\.|[^'\\])*'"""
_TOKENS = re.compile(rf"{_STRINGS}|//[^\r\n]*|/\*.*?\*/", re.DOTALL)
"""Strings, which may contain slashes, and comments."""


def hide(text: str) -> str:
    """The text with a marker for every secret; what looks like one in a comment is masked."""
    if skip_gap(text, 0) >= len(text):
        return text
    root, redactor = parse(text), Redactor()
    hidden = apply(text, list(_marks(root, masked(root.value))))
    return _TOKENS.sub(
        lambda found: redactor.strict(found[0]) if found[0].startswith("/") else found[0], hidden
    )


def _marks(node: Node, shown: Any) -> Iterator[Edit]:
    for key, member in node.members.items():
        yield from _marks(member.node, shown[key])
    for index, item in enumerate(node.items):
        yield from _marks(item, shown[index])
    if not (node.members or node.items) and shown != node.value:
        yield node.start, node.end, quote(MARKER)


def hide_values(value: Any) -> Any:
    """A parsed configuration with a marker for every secret."""
    return _replace(value, masked(value))


def _replace(value: Any, shown: Any) -> Any:
    if isinstance(value, dict):
        return {key: _replace(each, shown[key]) for key, each in value.items()}
    if isinstance(value, list):
        return [_replace(each, shown[index]) for index, each in enumerate(value)]
    return value if value == shown else MARKER


def restore(value: Any, old: Any, path: Path = ()) -> Any:
    """A value with the stored secrets in the place of markers. Raises `EditError` for a marker
    where nothing is stored."""
    if isinstance(value, dict):
        below = old if isinstance(old, dict) else {}
        return {key: restore(each, below.get(key), (*path, key)) for key, each in value.items()}
    if isinstance(value, list):
        found = _by_id(old)
        return [
            restore(each, _counterpart(each, index, old, found), (*path, index))
            for index, each in enumerate(value)
        ]
    if value != MARKER:
        return value
    if old is None or isinstance(old, dict | list):
        raise EditError(f"{format_path(path)}: there is no stored value for {MARKER}")
    return old


def _by_id(entries: Any) -> dict[str, Any]:
    entries = entries if isinstance(entries, list) else []
    return {each["id"]: each for each in entries if isinstance(each, dict) and "id" in each}


def _counterpart(entry: Any, index: int, old: Any, by_id: dict[str, Any]) -> Any:
    """The stored entry that an entry of a list stands for: by id if it has one."""
    if isinstance(entry, dict) and "id" in entry:
        return by_id.get(entry["id"])
    return old[index] if isinstance(old, list) and index < len(old) else None


def restore_text(text: str, old: str) -> str:
    """The same for a whole text; comments stay."""
    if MARKER not in text:
        return text
    root, stored = parse(text), content(old)
    return apply(text, list(_restored(root, restore(root.value, stored))))


def _restored(node: Node, value: Any) -> Iterator[Edit]:
    for key, member in node.members.items():
        yield from _restored(member.node, value[key])
    for index, item in enumerate(node.items):
        yield from _restored(item, value[index])
    if not (node.members or node.items) and value != node.value:
        yield node.start, node.end, quote(value) if isinstance(value, str) else str(value)


def changed_paths(old: Any, new: Any, path: Path = ()) -> Iterator[str]:
    """The settings that differ."""
    if isinstance(old, dict) and isinstance(new, dict):
        for key in dict.fromkeys((*old, *new)):
            yield from changed_paths(old.get(key), new.get(key), (*path, key))
    elif old != new:
        yield format_path(path)
