"""Masks the secrets in a configuration for display, and lists the secrets it contains."""

from __future__ import annotations

import re
from collections.abc import Iterator
from itertools import pairwise
from typing import Any

from clawkit.config.lookup import ROOT, below, is_secret
from clawkit.config.section import Shape
from clawkit.redact import MASK, Redactor, is_secret_name, is_secret_setting

_BAGS = ("env", "vars", "headers")
"""Maps whose values are often secrets, whatever their names."""
_REFERENCE = r"\$[A-Z][A-Z0-9_]{0,127}|(?:\$\{[A-Z_][A-Z0-9_]{0,127}\})+|"
_VARIABLE = r"(\$?)(?:([A-Z][A-Z0-9_]{0,127})|\{([A-Z_][A-Z0-9_]{0,127})\})"
_REFERENCE_KEYS = {"source", "provider", "id"}
_RANDOM = r"(?=.*[0-9])(?=.*[A-Za-z])[A-Za-z0-9_+=-]+"
_FLAG = r"--?([A-Za-z][A-Za-z0-9_-]*)"

Leaf = tuple[str, Any, Shape, bool, bool]
"""Key, value and shape of a scalar or secret reference, whether it is hidden, and whether it is in
a bag."""


def secrets_of(value: Any) -> Iterator[str]:
    """The secret strings in a configuration, to be redacted elsewhere.

    Fewer than `masked` hides: in a bag, many values are ordinary words such as `production`.
    """
    for key, text, shape, hide, in_bag in _leaves(value, ROOT):
        if hide and isinstance(text, str) and not _is_shown(text, shape):
            looks_random = len(text) >= 16 and re.fullmatch(_RANDOM, text)
            if not in_bag or looks_random or is_secret_setting(key):
                yield text


def variables_of(value: Any) -> Iterator[str]:
    """Names of the environment variables that hold secrets of a configuration (as written)."""
    for _, leaf, shape, hide, in_bag in _leaves(value, ROOT):
        if isinstance(leaf, dict):
            if leaf["source"] == "env":
                yield str(leaf.get("id"))
        elif hide and isinstance(leaf, str):
            found = re.fullmatch(_VARIABLE, leaf)
            # Without `$`, it is a variable name only in a setting that can only be a secret.
            if found and (found[1] or (is_secret(shape) and not in_bag)):
                yield found[2] or found[3]


def _leaves(
    value: Any, shape: Shape, hide: bool = False, key: str = "", in_bag: bool = False
) -> Iterator[Leaf]:
    hide = hide or is_secret(shape)
    if isinstance(value, dict) and not _is_reference(value):
        for name, item in value.items():
            yield from _leaves(item, *_inside(name, item, shape, hide), name, key in _BAGS)
    elif isinstance(value, list):
        inner, flagged = shape.items or shape, _flagged(value)
        for at, item in enumerate(value):
            name = "" if isinstance(item, dict) else key  # maps inside a list are not bags
            yield from _leaves(item, inner, hide or at in flagged, name, in_bag)
    else:
        yield key, value, shape, hide, in_bag


def masked(value: Any, shape: Shape = ROOT, *, hide: bool = False, mask: str = "") -> Any:
    """A copy of a value with its secrets masked; references to secrets stay. `mask` replaces every
    string that contains a secret completely."""
    redactor = Redactor()

    def show(value: Any, shape: Shape, hide: bool) -> Any:
        hide = hide or is_secret(shape)
        if isinstance(value, dict) and not _is_reference(value):
            pairs = value.items()
            return {key: show(item, *_inside(key, item, shape, hide)) for key, item in pairs}
        if isinstance(value, list):
            inner, flagged = shape.items or shape, _flagged(value)
            return [show(item, inner, hide or at in flagged) for at, item in enumerate(value)]
        if isinstance(value, str) and not hide:
            shown = redactor.strict(value)
            return mask if mask and shown != value else shown
        if isinstance(value, str):
            return value if _is_shown(value, shape) else mask or MASK
        is_open = value is None or isinstance(value, bool | dict) or shape.number or shape.whole
        return value if is_open or not hide else mask or MASK

    return show(value, shape, hide)


def _is_shown(text: str, shape: Shape) -> bool:
    """Whether the value of a secret setting is not a secret: a reference, or a fixed word."""
    return text in shape.words or re.fullmatch(_REFERENCE, text) is not None


def _is_reference(value: dict[str, Any]) -> bool:
    return "source" in value and value.keys() <= _REFERENCE_KEYS


def _inside(key: str, value: Any, shape: Shape, hide: bool) -> tuple[Shape, bool]:
    """The shape of a member, and whether to hide its content."""
    inner = below(shape, key)[1]
    if isinstance(value, dict):
        return inner, hide or key in _BAGS or is_secret_name(key)
    # In settings of plugins and channels, more names are suspicious than in our own.
    secret = is_secret_setting(key) if inner.anything else is_secret_name(key)
    return inner, hide or secret


def _flagged(items: list[Any]) -> set[int]:
    """Indexes in an argument list of the values of flags such as `--token`."""
    found: set[int] = set()
    for at, (item, following) in enumerate(pairwise(items), 1):
        flag = re.fullmatch(_FLAG, item) if isinstance(item, str) else None
        is_flag = isinstance(following, str) and re.fullmatch(_FLAG, following)
        if flag and is_secret_setting(flag[1]) and not is_flag:
            found.add(at)
    return found
