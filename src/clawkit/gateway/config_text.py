"""The configuration file without its secrets, and back.

What clients read has a marker in the place of every secret. A marker that they send back stands
for the secret that is stored at the same place.
"""

from __future__ import annotations

import base64
import hmac
import json
import re
from collections.abc import Callable, Container, Iterator
from typing import Any

from clawkit.config.file_edit import content
from clawkit.config.json5 import Node, format_path, parse, quote, skip_gap
from clawkit.config.masking import masked
from clawkit.config.text_edit import Edit, apply, merged
from clawkit.errors import EditError
from clawkit.redact import Redactor
from clawkit.text import one_line

MARKER = "__OPENCLAW_REDACTED__"
Path = tuple[str | int, ...]
_STRINGS = r""""(?:\\.|[^"\\])*"|'(?:\\.|[^'\\])*'"""
_TOKENS = re.compile(rf"{_STRINGS}|//[^\r\n]*|/\*.*?\*/", re.DOTALL)
"""Strings, which may contain slashes, and comments."""


def hash_text(key: bytes, text: str | None) -> str:
    """Identifies a text without giving away what is in it."""
    digest = hmac.digest(key, b"config\0" + (text or "").encode(), "sha256")
    return f"hmac-sha256:v1:{base64.urlsafe_b64encode(digest).decode().rstrip('=')}"


def hide(text: str, redactor: Redactor) -> str:
    """The text with a marker for every secret; one that is known or looks like one is masked in a
    comment."""
    if skip_gap(text, 0) < len(text):
        root = parse(text)
        text = apply(text, list(_marks(root, masked(root.value))))
    return _change_comments(text, redactor.strict)


def _change_comments(text: str, change: Callable[[str], str]) -> str:
    return _TOKENS.sub(
        lambda found: change(found[0]) if found[0].startswith("/") else found[0], text
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
    where nothing is stored, or in a list that has changed: it could stand for another one."""
    if isinstance(value, dict):
        below = old if isinstance(old, dict) else {}
        return {key: restore(each, below.get(key), (*path, key)) for key, each in value.items()}
    if isinstance(value, list):
        found = _by_id(old)
        if _is_marked(value) and not _is_in_place(value, old):
            what = f"the list has changed, so it is unclear what {MARKER} stands for"
            raise EditError(f"{format_path(path)}: {what}; write the secrets out")
        return [
            restore(each, _counterpart(each, index, old, found), (*path, index))
            for index, each in enumerate(value)
        ]
    if value != MARKER:
        return value
    if old is None or isinstance(old, dict | list):
        raise EditError(f"{format_path(path)}: there is no stored value for {MARKER}")
    return old


def _is_marked(value: Any) -> bool:
    """Whether there is a marker in a value whose place is all that says what it stands for."""
    if isinstance(value, dict):
        return any(map(_is_marked, value.values()))
    if isinstance(value, list):
        return any(_is_marked(each) for each in value if not _has_id(each))
    return bool(value == MARKER)


def _is_in_place(value: list[Any], old: Any) -> bool:
    """Whether the entries without an id are where they were."""
    is_alike = isinstance(old, list) and len(old) == len(value)
    return is_alike and all(
        _has_id(each) or _fits(each, before) for each, before in zip(value, old, strict=True)
    )


def _has_id(entry: Any) -> bool:
    return isinstance(entry, dict) and isinstance(entry.get("id"), str)


def _fits(value: Any, old: Any) -> bool:
    """Whether a value is the stored one, apart from its markers."""
    if isinstance(value, dict) and isinstance(old, dict):
        return value.keys() == old.keys() and all(_fits(value[key], old[key]) for key in value)
    if isinstance(value, list) and isinstance(old, list):
        return len(value) == len(old) and all(map(_fits, value, old))
    return bool(value in (MARKER, old))


def _by_id(entries: Any) -> dict[str, Any]:
    entries = entries if isinstance(entries, list) else []
    return {each["id"]: each for each in entries if _has_id(each)}


def _counterpart(entry: Any, index: int, old: Any, by_id: dict[str, Any]) -> Any:
    """The stored entry that an entry of a list stands for: by id if it has one."""
    if _has_id(entry):
        return by_id.get(entry["id"])
    return old[index] if isinstance(old, list) and index < len(old) else None


def merge_lists(patch: Any, old: Any, replace: Container[str], path: Path = ()) -> Any:
    """A merge patch in which lists of entries with ids are merged by id. Raises `EditError` for
    another list that would lose entries, unless `replace` names it."""
    if isinstance(patch, dict):
        below = old if isinstance(old, dict) else {}
        pairs = (
            (key, merge_lists(patch[key], below.get(key), replace, (*path, key))) for key in patch
        )
        return dict(pairs)
    both = isinstance(patch, list) and isinstance(old, list)
    if not both or format_path(path) in replace:
        return patch
    if old and all(map(_has_id, (*old, *patch))):
        given = _by_id(patch)
        kept = [merged(each, given.pop(each["id"], {})) for each in old]
        return [*kept, *given.values()]
    there = {json.dumps(each, sort_keys=True) for each in patch}  # lists can be long
    if lost := sum(json.dumps(each, sort_keys=True) not in there for each in old):
        what = f"{format_path(path)}: this would remove {lost} of {len(old)} entries"
        raise EditError(f"{what}; add them, or list {format_path(path)} in replacePaths")
    return patch


def restore_text(text: str, old: str, redactor: Redactor) -> str:
    """The same for a whole text; comments that were masked are restored, too. Raises `EditError`
    for one that stands for several."""
    if MARKER in text:
        root, stored = parse(text), content(old)
        text = apply(text, list(_restored(root, restore(root.value, stored))))
    originals: dict[str, set[str]] = {}
    for comment in (found for found in _TOKENS.findall(old) if found.startswith("/")):
        originals.setdefault(redactor.strict(comment), set()).add(comment)

    def original(comment: str) -> str:
        known = originals.get(comment, {comment})
        if len(known) > 1:
            what = "stands for several comments that differ in their secrets"
            raise EditError(f"the comment {one_line(comment, 60)!r} {what}; write them out")
        return next(iter(known))

    return _change_comments(text, original)


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
