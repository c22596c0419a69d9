"""Keys in sections that leave room for others: which of them are mistakes all the same."""

from __future__ import annotations

from typing import Any

from clawkit.config.shape import Layout

_MIN_LETTERS = 4
_LONG = 8
"""From this many letters on a name is still the same with two mistakes in it."""
_POLICIES = {"tool", "tools", "toolbysender", "toolsbysender"}
_POLICY_KEYS = {"allow", "alsoallow", "deny"}


def meant(key: str, value: Any, layout: Layout) -> str | None:
    """The setting that an unknown key was meant to be, if there can be little doubt.

    Capitals and underscores are never a difference. A key that is only similar must have a value
    that could stand there: `account: "+1555"` is no misspelt map of accounts.
    """
    written = _folded(key)
    names = {name: name.casefold() for name in layout.shapes}
    same = [name for name, folded in names.items() if folded == written]
    near = (
        name
        for name, folded in names.items()
        if len(folded) >= _MIN_LETTERS
        and _is_near(written, folded, 2 if len(folded) >= _LONG else 1)
        and layout.shapes[name].is_kind_of(value)
    )
    return same[0] if same else next(near, None)


def is_tool_policy(key: str | int, value: dict[str, Any]) -> bool:
    """Whether an object is called like a tool policy and holds what only such a one would."""
    name = _folded(str(key))
    if name not in _POLICIES:
        return False
    holders = [value, *value.values()] if name.endswith("sender") else [value]
    return any(
        isinstance(holder, dict) and not _POLICY_KEYS.isdisjoint(map(_folded, holder))
        for holder in holders
    )


def _folded(key: str) -> str:
    return key.replace("_", "").replace("-", "").casefold()


def _is_near(a: str, b: str, edits: int) -> bool:
    """Whether that many letters added, dropped, changed or swapped make one word the other."""
    if abs(len(a) - len(b)) > edits:
        return False
    at = next((i for i, (x, y) in enumerate(zip(a, b, strict=False)) if x != y), None)
    if at is None:
        return True
    a, b = a[at:], b[at:]
    return edits > 0 and (
        _is_near(a[1:], b[1:], edits - 1)
        or _is_near(a[1:], b, edits - 1)
        or _is_near(a, b[1:], edits - 1)
        or (a[:2] == b[1::-1] and _is_near(a[2:], b[2:], edits - 1))
    )
