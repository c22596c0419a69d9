"""What `config set`, `unset` and `patch` do to the text of a file, and what they refuse to do.

A list replaces a list. An object replaces an object only if no setting is lost by it, at any
depth; so do the two lists whose entries have ids. Whoever means it says so (`replace`), or has
the new settings added to the old ones (`merge`).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from clawkit.config.edit import merge_patch, set_value, unset_value
from clawkit.config.json5 import format_path, parse, skip_gap
from clawkit.config.known import ROOT, Path, aligned, below, find, is_secret, spelled, value_at
from clawkit.config.shape import Shape
from clawkit.errors import EditError

MAX_LISTED = 6


def set_setting(
    text: str, path: Path, value: Any, *, merge: bool = False, replace: bool = False
) -> str:
    """`text` with one setting set. Raises EditError."""
    found = find(path)
    if found.shape is None:
        raise EditError(f"there is no setting {format_path(path)!r}. {found.hint}")
    root = content(text)
    where = spelled(path, root)
    old = value_at(root, where)
    if merge and old is not None:
        value = _combined(old, value, found.shape, found.path)
        text = _update_entries(text, where, old, value, found.shape, found.path)
    else:
        value = aligned(value, old, found.shape)
        if not replace:
            lost = list(_lost(old, value, found.shape, found.path))
            _refuse_loss(lost, "Add --merge to keep them, or --replace to let them go")
    return set_value(text, where, value)


def unset_setting(text: str, path: Path) -> str:
    """`text` without one setting. Raises EditError if it is not there."""
    return unset_value(text, spelled(path, content(text)))


def patch_settings(text: str, patch: Mapping[str, Any], *, replace: bool = False) -> str:
    """`text` with a patch merged in, in which null removes a setting. Raises EditError."""
    root = content(text)
    if not isinstance(root, dict):
        raise EditError("the file does not hold an object, so there is nothing to merge into")
    patch = aligned(dict(patch), root, ROOT)
    if not replace:
        lost = list(_lost_to_patch(root, patch, ROOT, ()))
        _refuse_loss(lost, "Write null for what is to go, or add --replace")
    return merge_patch(text, patch)


def patched_paths(patch: Mapping[str, Any], above: Path = ()) -> Iterator[Path]:
    """The settings that a patch is about."""
    for key, value in patch.items():
        if isinstance(value, dict) and value:
            yield from patched_paths(value, (*above, key))
        else:
            yield (*above, key)


def content(text: str) -> Any:
    """The value of a text; an empty object when it holds none yet. Raises Json5Error."""
    return parse(text).value if skip_gap(text, 0) < len(text) else {}


def _has_ids(path: Path) -> bool:
    """Whether this is a list whose entries are known by their ids, not by their places."""
    return path == ("agents", "list") or (
        len(path) == 4 and path[:2] == ("models", "providers") and path[3] == "models"
    )


def _ids(entries: Any) -> dict[str, int]:
    """Id to the index of its entry."""
    found: dict[str, int] = {}
    for index, entry in enumerate(entries if isinstance(entries, list) else ()):
        if isinstance(entry, dict) and isinstance(entry.get("id"), str):
            found.setdefault(entry["id"], index)
    return found


def _refuse_loss(lost: list[str], advice: str) -> None:
    if lost:
        more = len(lost) - MAX_LISTED
        names = ", ".join(lost[:MAX_LISTED]) + (f" and {more} more" if more > 0 else "")
        raise EditError(f"this would remove {names}. {advice}")


def _lost(old: Any, new: Any, shape: Shape, path: Path) -> Iterator[str]:
    """The settings in `old` for which `new` has no place."""
    if isinstance(old, dict) and not is_secret(shape):
        for key, value in old.items():
            name, inner = below(shape, key)
            if not isinstance(new, dict) or key not in new:
                yield format_path((*path, key))
            else:
                yield from _lost(value, new[key], inner, (*path, name))
    elif isinstance(old, list) and _has_ids(path):
        kept = _ids(new)
        for key, index in _ids(old).items():
            if key not in kept:
                yield f"{format_path(path)} entry {key!r}"
            else:
                entry = new[kept[key]]
                inner = below(shape, index)[1]
                yield from _lost(old[index], entry, inner, (*path, index))


def _lost_to_patch(
    old: dict[str, Any], patch: Mapping[str, Any], shape: Shape, path: Path
) -> Iterator[str]:
    for key, value in patch.items():
        if value is None or key not in old:
            continue
        name, inner = below(shape, key)
        where = (*path, name)
        if isinstance(value, dict) and isinstance(old[key], dict):
            yield from _lost_to_patch(old[key], value, inner, where)
        else:
            yield from _lost(old[key], value, inner, where)


def _combined(old: Any, new: Any, shape: Shape, path: Path) -> Any:
    """`new` merged into `old`. Raises EditError when the outermost two cannot be merged."""
    both_lists = isinstance(old, list) and isinstance(new, list) and _has_ids(path)
    if not both_lists and not (isinstance(old, dict) and isinstance(new, dict)):
        raise EditError(
            f"{format_path(path)!r} cannot be merged: only objects can, and lists whose entries "
            "have ids. Use --replace instead of --merge"
        )
    return _merged(old, new, shape, path)


def _merged(old: Any, new: Any, shape: Shape, path: Path) -> Any:
    if isinstance(old, dict) and isinstance(new, dict):
        result = dict(old)
        for key, value in aligned(new, old, shape).items():
            name, inner = below(shape, key)
            result[key] = _merged(old[key], value, inner, (*path, name)) if key in old else value
        return result
    if isinstance(old, list) and isinstance(new, list) and _has_ids(path):
        entries, places = list(old), _ids(old)
        for entry in new:
            at = places.get(entry["id"]) if _ids([entry]) else None
            if at is None:
                entries.append(entry)
            else:
                entries[at] = _merged(old[at], entry, below(shape, at)[1], (*path, at))
        return entries
    return new


def _update_entries(text: str, where: Path, old: Any, new: Any, shape: Shape, path: Path) -> str:
    """`text` with changed entries of lists with ids changed one by one, which keeps comments."""
    if isinstance(old, dict) and isinstance(new, dict):
        for key, value in old.items():
            name, inner = below(shape, key)
            text = _update_entries(text, (*where, key), value, new[key], inner, (*path, name))
    elif isinstance(old, list) and isinstance(new, list) and _has_ids(path):
        for index, entry in enumerate(old):
            if entry != new[index]:
                text = set_value(text, (*where, index), new[index])
    return text
