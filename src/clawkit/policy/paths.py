"""Rules about files: a pattern and a path are compared by what they mean, not how they are spelled.

A restriction must hold whatever spelling, link or detour the caller chose, and however the operator
wrote the pattern (`./a`, `a//b`, `~/a`, through a link). An exception to a restriction counts only
for where the path really leads.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from typing import NamedTuple

from clawkit.policy.match import Glob

Test = Callable[[str], bool]


class Pattern(NamedTuple):
    """One compiled value of a rule."""

    text: str
    test: Test
    is_regex: bool


def restricts(pattern: Pattern, path: str, workspace: str) -> bool:
    """Whether a deny or ask rule is about this path, in any spelling of either."""
    written = os.path.join(workspace, os.path.expanduser(path))
    # Links are followed before `..` is, as the kernel does: `link/..` is not where `link` stands.
    places = tuple(dict.fromkeys((os.path.normpath(written), os.path.realpath(written))))
    if pattern.is_regex:
        return any(map(pattern.test, _shown(pattern, places, _roots(workspace))))
    forms = (path, *places, *_relative(places, _roots(workspace)))
    if any(map(pattern.test, forms)):
        return True
    return any(
        Glob(glob).match(place)
        for base in _roots(workspace)
        for glob in _absolute(pattern.text, base)
        for place in places
    )


def excepts(pattern: Pattern, path: str, workspace: str) -> bool:
    """Whether an allow rule is about the place this path really leads to."""
    root = os.path.realpath(workspace)
    real = os.path.realpath(os.path.join(workspace, os.path.expanduser(path)))
    if pattern.is_regex:
        return any(map(pattern.test, _shown(pattern, (real,), (root,))))
    return any(map(pattern.test, (real, *_relative((real,), (root,)))))


def _roots(workspace: str) -> tuple[str, ...]:
    return tuple(dict.fromkeys((workspace, os.path.realpath(workspace))))


def _shown(pattern: Pattern, places: tuple[str, ...], roots: tuple[str, ...]) -> tuple[str, ...]:
    """What a regular expression looks at: below the workspace the path from there, so that the
    names of the directories above it play no part; the whole path elsewhere, or when asked for."""
    inside = tuple(_relative(places, roots))
    whole = pattern.text.startswith(("/^/", "/^\\/"))
    return places if whole or not inside else inside


def _relative(places: tuple[str, ...], roots: tuple[str, ...]) -> Iterator[str]:
    for place in places:
        for root in roots:
            if place == root:
                yield "."
            elif place.startswith(root.rstrip("/") + "/"):
                yield os.path.relpath(place, root)


def _absolute(text: str, base: str) -> Iterator[str]:
    """The glob from the root of the file system, with what comes before its first `*` tidied up,
    and once more with links followed. `a/` and `a/*` mean the directory and all that is in it."""
    head, star, tail = text.partition("*")
    if not head:
        return
    folder = head.endswith("/")
    written = os.path.join(base, os.path.expanduser(head))
    for start in dict.fromkeys((os.path.normpath(written), os.path.realpath(written))):
        if folder and tail == "":
            yield start
            yield f"{start.rstrip('/')}/*"
        else:
            yield f"{start.rstrip('/')}/{star}{tail}" if folder else f"{start}{star}{tail}"
