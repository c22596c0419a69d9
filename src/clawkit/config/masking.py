"""Configuration as it may be shown: secrets in it masked."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import suppress
from itertools import pairwise
from typing import Any

from clawkit.config.json5 import Json5Error, Node, parse, quote
from clawkit.config.schema import ROOT, below, is_secret
from clawkit.config.section import Shape
from clawkit.config.text_edit import Edit, apply
from clawkit.redact import MASK, Redactor, is_secret_name, is_secret_setting
from clawkit.text import printable

CONTEXT_LINES = 2

_BAGS = ("env", "vars", "headers")
"""Maps whose values are often secrets, whatever their names."""
_REFERENCE = re.compile(r"\$[A-Z][A-Z0-9_]{0,127}|(?:\$\{[A-Z_][A-Z0-9_]{0,127}\})+|")
_VARIABLE = re.compile(r"(\$?)(?:([A-Z][A-Z0-9_]{0,127})|\{([A-Z_][A-Z0-9_]{0,127})\})")
_REFERENCE_KEYS = {"source", "provider", "id"}
_RANDOM = re.compile(r"(?=.*[0-9])(?=.*[A-Za-z])[A-Za-z0-9_+=-]+")
_FLAG = re.compile(r"--?([A-Za-z][A-Za-z0-9_-]*)")


def masked(value: Any, shape: Shape = ROOT, *, hide: bool = False) -> Any:
    """A copy of a value with the secrets in it masked; references to secrets stay."""
    return _Mask().value(value, shape, hide)


def secrets_of(
    value: Any, shape: Shape = ROOT, *, hide: bool = False, bag: bool = False
) -> Iterator[str]:
    """The texts in a value that `masked` would not show and that are worth looking for elsewhere:
    what a bag holds under any name is often an ordinary word, such as `production`."""
    hide = hide or is_secret(shape)
    if bag and isinstance(value, dict):
        value = {key: item for key, item in value.items() if _is_telling(key, item)}
    if isinstance(value, dict):
        if not _is_reference(value):
            for key, item in value.items():
                inner, hidden = _inside(key, item, shape, hide)
                yield from secrets_of(item, inner, hide=hidden, bag=key in _BAGS)
    elif isinstance(value, list):
        inner, flagged = shape.items or shape, _flagged(value)
        for at, item in enumerate(value):
            yield from secrets_of(item, inner, hide=hide or at in flagged)
    elif (
        hide
        and isinstance(value, str)
        and not (value in shape.words or _REFERENCE.fullmatch(value))
    ):
        yield value


def variables_of(
    value: Any, shape: Shape = ROOT, *, hide: bool = False, bag: bool = False
) -> Iterator[str]:
    """Names of the variables that stand for secrets in a value, as it is written."""
    hide = hide or is_secret(shape)
    if isinstance(value, dict):
        if _is_reference(value):
            if value["source"] == "env":
                yield str(value.get("id"))
            return
        for key, item in value.items():
            inner, hidden = _inside(key, item, shape, hide)
            yield from variables_of(item, inner, hide=hidden, bag=bag or key in _BAGS)
    elif isinstance(value, list):
        for item in value:
            yield from variables_of(item, shape.items or shape, hide=hide)
    elif hide and isinstance(value, str):
        found = _VARIABLE.fullmatch(value)
        # Without the sign it is a name only where nothing but a secret can be.
        if found and (found[1] or (is_secret(shape) and not bag)):
            yield found[2] or found[3]


def _is_telling(key: str, value: Any) -> bool:
    """Whether a member of a bag is a secret by its name, or looks as random as one."""
    random = isinstance(value, str) and len(value) >= 16 and _RANDOM.fullmatch(value) is not None
    return is_secret_setting(key) or isinstance(value, dict) or random


class _Mask:
    def __init__(self) -> None:
        self.redactor = Redactor()

    def value(self, value: Any, shape: Shape, hide: bool) -> Any:
        hide = hide or is_secret(shape)
        if isinstance(value, dict):
            if _is_reference(value):
                return value
            return {
                key: self.value(item, *_inside(key, item, shape, hide))
                for key, item in value.items()
            }
        if isinstance(value, list):
            inner, flagged = shape.items or shape, _flagged(value)
            return [self.value(item, inner, hide or at in flagged) for at, item in enumerate(value)]
        return self.scalar(value, shape, hide)

    def scalar(self, value: Any, shape: Shape, hide: bool) -> Any:
        if isinstance(value, str):
            if not hide:
                return self.redactor.strict(value)
            return value if value in shape.words or _REFERENCE.fullmatch(value) else MASK
        if isinstance(value, bool) or value is None:
            return value
        return value if shape.number or shape.whole or not hide else MASK

    def edits(self, text: str, node: Node, shape: Shape, hide: bool, part: range) -> Iterator[Edit]:
        """The edits that mask what is in one part of a text; no line moves by them."""
        if node.end <= part.start or node.start >= part.stop:
            return
        hide = hide or is_secret(shape)
        if isinstance(node.value, dict):
            if not _is_reference(node.value):
                for key, member in node.members.items():
                    inner, hidden = _inside(key, member.node.value, shape, hide)
                    yield from self.edits(text, member.node, inner, hidden, part)
        elif isinstance(node.value, list):
            inner, flagged = shape.items or shape, _flagged(node.value)
            for at, item in enumerate(node.items):
                yield from self.edits(text, item, inner, hide or at in flagged, part)
        elif (shown := self.scalar(node.value, shape, hide)) != node.value:
            lines = text.count("\n", node.start, node.end)
            yield node.start, node.end, quote(str(shown)) + "\n" * lines


def _is_reference(value: dict[str, Any]) -> bool:
    return "source" in value and value.keys() <= _REFERENCE_KEYS


def _inside(key: str, value: Any, shape: Shape, hide: bool) -> tuple[Shape, bool]:
    """Shape of a member, and whether what is in it is to be hidden."""
    inner = below(shape, key)[1]
    if isinstance(value, dict):
        return inner, hide or key in _BAGS or is_secret_name(key)
    # Where plugins and channels add settings, more names are worth hiding than in our own.
    secret = is_secret_setting(key) if inner.anything else is_secret_name(key)
    return inner, hide or secret


def _flagged(items: list[Any]) -> set[int]:
    """The places in a list of arguments that hold the value of a flag such as `--token`."""
    found: set[int] = set()
    for at, (item, following) in enumerate(pairwise(items), 1):
        flag = _FLAG.fullmatch(item) if isinstance(item, str) else None
        if flag and is_secret_setting(flag[1]) and not _is_flag(following):
            found.add(at)
    return found


def _is_flag(item: Any) -> bool:
    return isinstance(item, str) and _FLAG.fullmatch(item) is not None


def diff(before: str, after: str, name: str) -> list[str]:
    """The changed lines in unified form. Compared as they are, shown with secrets masked."""
    from difflib import SequenceMatcher

    if before == after:
        return []
    old, new = _lines(before), _lines(after)
    start, end = _common_ends(old, new)
    old, new = old[start : len(old) - end], new[start : len(new) - end]
    mask = _Mask()
    shown_old = _shown(before, start, len(old), mask)
    shown_new = _shown(after, start, len(new), mask)
    lines = [f"--- {name}", f"+++ {name}"]
    for group in SequenceMatcher(None, old, new).get_grouped_opcodes(CONTEXT_LINES):
        (_, i1, _, j1, _), (_, _, i2, _, j2) = group[0], group[-1]
        lines.append(f"@@ -{start + i1 + 1},{i2 - i1} +{start + j1 + 1},{j2 - j1} @@")
        for tag, a, b, c, d in group:
            lines += ((" " if tag == "equal" else "-") + line for line in shown_old[a:b])
            if tag != "equal":
                lines += (f"+{line}" for line in shown_new[c:d])
    return [printable(mask.redactor.strict(line)) for line in lines]


def _lines(text: str) -> list[str]:
    lines = text.split("\n")
    return lines[:-1] if lines[-1] == "" else lines


def _common_ends(old: list[str], new: list[str]) -> tuple[int, int]:
    """How many lines at the start and at the end need no comparing, context left over."""
    most = min(len(old), len(new))
    start = next((i for i in range(most) if old[i] != new[i]), most)
    most -= start
    end = next((i for i in range(most) if old[-1 - i] != new[-1 - i]), most)
    return max(0, start - CONTEXT_LINES), max(0, end - CONTEXT_LINES)


def _shown(text: str, first: int, count: int, mask: _Mask) -> list[str]:
    """Some lines of a text with the secret values in them masked."""
    ends = [-1, *(at for at, char in enumerate(text) if char == "\n"), len(text)]
    part = range(ends[first] + 1, ends[min(first + count, len(ends) - 1)])
    # What cannot be parsed has no values to mask; every line is still searched for secrets.
    with suppress(Json5Error):
        text = apply(text, mask.edits(text, parse(text), ROOT, False, part))
    return [line.removesuffix("\r") for line in text.split("\n")[first : first + count]]
