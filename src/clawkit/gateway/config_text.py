"""The configuration file without its secrets, and back.

Clients see a marker in place of every secret. A marker that they send back stands for the secret
stored at the same place.
"""

from __future__ import annotations

import base64
import hmac
import json
import re
from collections.abc import Callable, Container
from typing import Any

from clawkit.config.file_edit import content
from clawkit.config.json5 import Json5Error, format_path, parse, skip_gap
from clawkit.config.masking import masked
from clawkit.config.text_edit import merged, rewrite
from clawkit.errors import EditError
from clawkit.redact import Redactor
from clawkit.text import one_line

MARKER = "__OPENCLAW_REDACTED__"
Path = tuple[str | int, ...]
_STRINGS = r""""(?:\\.|[^"\\])*"|'(?:\\.|[^'\\])*'"""
_TOKENS = re.compile(rf"{_STRINGS}|//[^\r\n]*|/\*.*?\*/", re.DOTALL)
"""Strings, which may contain slashes, and comments."""


def hash_text(key: bytes, text: str | None) -> str:
    """Identifies a text without revealing it."""
    digest = hmac.digest(key, b"config\0" + (text or "").encode(), "sha256")
    return f"hmac-sha256:v1:{base64.urlsafe_b64encode(digest).decode().rstrip('=')}"


def hide(text: str, redactor: Redactor) -> str:
    """The text with a marker for every secret; in comments, known and likely secrets are masked."""
    if skip_gap(text, 0) < len(text):
        root = parse(text)
        text = rewrite(text, root, masked(root.value, mask=MARKER))
    return _change_comments(text, redactor.strict)


def _change_comments(text: str, change: Callable[[str], str]) -> str:
    return _TOKENS.sub(
        lambda found: change(found[0]) if found[0].startswith("/") else found[0], text
    )


def restore(value: Any, old: Any, path: Path = ()) -> Any:
    """A value with the stored secrets in place of markers. Raises `EditError` for a marker where
    nothing is stored, or in a changed list, where it would be ambiguous."""
    if isinstance(value, dict):
        below = old if isinstance(old, dict) else {}
        return {key: restore(each, below.get(key), (*path, key)) for key, each in value.items()}
    if isinstance(value, list):
        return _restore_list(value, old if isinstance(old, list) else [], path)
    if value != MARKER:
        return value
    if old is None or isinstance(old, dict | list):
        raise EditError(f"{format_path(path)}: there is no stored value for {MARKER}")
    return old


def _restore_list(value: list[Any], old: list[Any], path: Path) -> list[Any]:
    """Entries with an id are matched by it; if one without an id has a marker, those must be
    unchanged."""
    by_id = _by_id(old)
    is_in_place = len(old) == len(value) and all(
        _has_id(each) or _fits(each, before) for each, before in zip(value, old, strict=True)
    )
    if not is_in_place and any(_is_marked(each) for each in value if not _has_id(each)):
        what = f"the list has changed, so {MARKER} is ambiguous"
        raise EditError(f"{format_path(path)}: {what}; write the secrets out")
    kept = old if is_in_place else value
    return [
        restore(each, by_id.get(each["id"]), (*path, index)) if _has_id(each) else kept[index]
        for index, each in enumerate(value)
    ]


def _is_marked(value: Any) -> bool:
    if isinstance(value, dict | list):
        return any(map(_is_marked, value.values() if isinstance(value, dict) else value))
    return bool(value == MARKER)


def _fits(value: Any, old: Any) -> bool:
    """Whether a value is the stored one, apart from its markers."""
    if isinstance(value, dict) and isinstance(old, dict):
        return value.keys() == old.keys() and all(_fits(value[key], old[key]) for key in value)
    if isinstance(value, list) and isinstance(old, list):
        return len(value) == len(old) and all(map(_fits, value, old))
    is_secret = value == MARKER and not (old is None or isinstance(old, dict | list))
    return is_secret or (type(value) is type(old) and bool(value == old))


def _has_id(entry: Any) -> bool:
    return isinstance(entry, dict) and isinstance(entry.get("id"), str)


def _by_id(entries: list[Any]) -> dict[str, Any]:
    return {each["id"]: each for each in entries if _has_id(each)}


def merge_lists(patch: Any, old: Any, replace: Container[str], path: Path = ()) -> Any:
    """A merge patch in which lists of entries with ids are merged by id. Raises `EditError` for any
    other list that would lose entries, unless `replace` names it."""
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
    """`restore` for a whole text, including masked comments. Raises `EditError` for an ambiguous
    comment, and `Json5Error` if the old text is needed and invalid."""
    try:
        stored = content(old)
    except Json5Error:
        if MARKER in text:
            raise
        return text  # it replaces the whole unreadable file
    if MARKER in text:
        root = parse(text)
        text = rewrite(text, root, restore(root.value, stored))
    originals: dict[str, set[str]] = {}
    for comment in (found for found in _TOKENS.findall(old) if found.startswith("/")):
        originals.setdefault(redactor.strict(comment), set()).add(comment)

    def original(comment: str) -> str:
        known = originals.get(comment, {comment})
        if len(known) > 1:
            what = "matches several comments with different secrets"
            raise EditError(f"the comment {one_line(comment, 60)!r} {what}; write them out")
        return next(iter(known))

    return _change_comments(text, original)
