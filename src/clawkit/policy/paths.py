"""Rules about files: a pattern and a path are compared by what they mean, not how they are spelled.

A restriction must hold whatever spelling, link or detour the caller chose, and however the operator
wrote the pattern (`./a`, `a//b`, `a/**`, `~/a`, through a link). An exception to a restriction
counts only for where the path really leads.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterator
from typing import NamedTuple

from clawkit.core.paths import plain_path, real_path
from clawkit.errors import ToolInputError
from clawkit.policy.match import Glob

Test = Callable[[str], bool]

# Not the `^` of `[^a]`, nor an escaped one.
_ANCHOR = re.compile(r"(?<![\\\[])\^|\\A")
_META = re.compile(r"[\\^$.|?*+()\[\]{}]")


class Pattern(NamedTuple):
    """One compiled value of a rule."""

    text: str
    test: Test
    is_regex: bool


class Places(NamedTuple):
    """Where a path may be said to lead."""

    written: str
    real: str
    """With every link followed."""
    absolute: tuple[str, ...]
    """Every absolute spelling, also through other names of the workspace."""
    inside: tuple[str, ...]
    """The same from the workspace, for what lies in it."""
    roots: tuple[str, ...]


def places_of(path: str, workspace: str) -> Places | None:
    """None for what cannot be a path at all."""
    try:
        whole = os.path.join(workspace, os.path.expanduser(plain_path(path)))
        # Links are followed before `..` is, as the kernel does: `link/..` is not where it stands.
        real = real_path(whole)
    except ToolInputError:
        return None
    roots = tuple(dict.fromkeys((workspace, os.path.realpath(workspace))))
    found = (os.path.normpath(whole), real)
    inside = tuple(dict.fromkeys(_relative(found, roots)))
    again = (os.path.normpath(os.path.join(root, each)) for root in roots for each in inside)
    return Places(path, real, tuple(dict.fromkeys((*found, *again))), inside, roots)


def restricts(pattern: Pattern, places: Places | None) -> bool:
    """Whether a deny or ask rule is about a path, in any spelling of either."""
    if places is None:
        return True
    if pattern.is_regex:
        return any(map(pattern.test, _shown(pattern, places))) or _restricts_folder(pattern, places)
    return any(_covers(glob, places) for glob in _variants(pattern.text))


def excepts(pattern: Pattern, places: Places | None) -> bool:
    """Whether an allow rule is about the place a path really leads to.

    Links in the pattern are not followed, and a regular expression never sees the directories
    above the workspace: both could make an exception wider than it reads.
    """
    if places is None:
        return False
    root = places.roots[-1]
    inside = tuple(_relative((places.real,), (root,)))
    if pattern.is_regex:
        return any(map(pattern.test, inside or (places.real,)))
    glob = f"{pattern.text}*" if pattern.text.endswith("/") else pattern.text
    globs = (glob, *_absolute(glob, root, follow=False))
    return any(Glob(each).match(form) for each in globs for form in (places.real, *inside))


def _restricts_folder(pattern: Pattern, places: Places) -> bool:
    """`/abs/dir/` reads as a regular expression, but may well be meant as a directory."""
    meant = not _META.search(pattern.text) and "/" in pattern.text.strip("/")
    return meant and any(_covers(glob, places) for glob in _variants(pattern.text))


def _shown(pattern: Pattern, places: Places) -> tuple[str, ...]:
    """What the regular expression of a restriction looks at: below the workspace the path from
    there, so that the names of the directories above it play no part; the whole path elsewhere, or
    when anchored."""
    if not places.inside:
        return places.absolute
    inside = (*places.inside, *(f"/{each}" for each in places.inside))
    return (*inside, *places.absolute) if _ANCHOR.search(pattern.text) else inside


def _relative(places: tuple[str, ...], roots: tuple[str, ...]) -> Iterator[str]:
    for place in places:
        for root in roots:
            if place == root:
                yield "."
            elif place.startswith(root.rstrip("/") + "/"):
                yield os.path.relpath(place, root)


def _variants(text: str) -> tuple[str, ...]:
    """Everything a glob means: `a/` and `a/*` are the directory and all that is in it, `*/a` may
    stand at the top, and `/**/` may be nothing."""
    tidy = re.sub(r"/(?:\./)+|/{2,}", "/", re.sub(r"\*+", "*", text))
    found = [tidy if not tidy.endswith("/") else f"{tidy}*"]
    found += [each.replace("/*/", "/") for each in found if "/*/" in each]
    found += [each[2:] for each in found if each.startswith("*/") and len(each) > 2]
    found += [re.sub(r"(?:/\*)+\Z", "", each) for each in found if each.endswith("/*")]
    return tuple(dict.fromkeys(filter(None, found)))


def _covers(glob: str, places: Places) -> bool:
    forms = (places.written, *places.absolute, *places.inside)
    if any(map(Glob(glob).match, forms)):
        return True
    return any(
        Glob(each).match(place)
        for root in places.roots
        for each in _absolute(glob, root, follow=True)
        for place in places.absolute
    )


def _absolute(glob: str, root: str, *, follow: bool) -> Iterator[str]:
    """The glob from the root of the file system: what comes before its first `*` as it stands, and
    if wanted once more with links followed."""
    head, star, tail = glob.partition("*")
    if not head:
        return
    written = os.path.join(root, os.path.expanduser(head))
    starts = (os.path.normpath(written), *([real_path(written)] if follow else []))
    for start in dict.fromkeys(starts):
        slash = "/" if head.endswith("/") and start != "/" else ""
        yield f"{start}{slash}{star}{tail}"
