"""Files that determine which programs others run: tools may change them only with a person's
approval, even inside the workspace. Sandboxes protect the same files."""

from __future__ import annotations

import functools
import os
import re
from collections.abc import Callable, Iterable, Sequence
from typing import Self

from msgspec import Struct

from clawkit.core.paths import is_below
from clawkit.word_tables import read_words


class ProtectedGroup(Struct, frozen=True):
    """Paths that are protected for one reason."""

    why: str
    paths: tuple[str, ...]


def _read(relative_to: str) -> tuple[ProtectedGroup, ...]:
    """The groups of `protected_files.txt` whose paths are relative to one kind of directory."""
    start = f"{relative_to}: "
    groups = read_words(__file__, "protected_files.txt").items()
    return tuple(
        ProtectedGroup(name.removeprefix(start), tuple(paths))
        for name, paths in groups
        if name.startswith(start)
    )


[GIT] = _read("in a git directory")
ANYWHERE = _read("anywhere")
HOME = _read("at home")

GIT_DIRS = frozenset((".git", *(f"git~{number}" for number in range(10))))
"""Possible names of the git directory of a work tree, folded."""
# Git treats a directory of any name as a repository if it contains these.
_ALONE = frozenset(("head", "objects", "refs"))
_SHARED = frozenset(("head", "commondir"))
SHAPES = (_ALONE, _SHARED)
_SPELLED = {"head": "HEAD"}
# A rebase in progress has a list of commands.
_IN_GIT = (GIT, ProtectedGroup(GIT.why, ("rebase-merge", "rebase-apply", "sequencer")))
_FIRST = _ALONE | {path.partition("/")[0] for group in _IN_GIT for path in group.paths}
# Invisible characters that some file systems ignore in names, besides those of the category Cf.
_IGNORED = (
    "[\u034f\u115f\u1160\u17b4\u17b5\u180b-\u180f\u3164\ufe00-\ufe0f\uffa0\U000e0000-\U000e0fff]"
)

Exists = Callable[[str], bool]


class Protection(Struct, frozen=True):
    """Decides which paths are protected: those in the tables, and clawkit's own. All paths are
    resolved."""

    own: tuple[str, ...] = ()
    """clawkit's files, and directories with everything in them."""
    open: tuple[str, ...] = ()
    """Directories in there that are not protected: workspaces."""
    home: str = ""
    """The home directory, if the workspace is or contains it."""

    def explain(self, place: str, exists: Exists = os.path.lexists) -> str:
        """Why a resolved path is protected; empty if it is not. `exists` says whether a path exists
        or is about to be created."""
        folded = fold_path(place)
        own = max((len(each) for each in self.own if is_below(folded, fold_path(each))), default=-1)
        # An open directory does not open clawkit's own files in it.
        if own > max((len(each) for each in self.open if is_below(place, each)), default=-1):
            return "it belongs to clawkit's own configuration and state"
        names = folded.split("/")
        if why := _explain_git(place.split("/"), names, exists):
            return why
        _, anywhere, at_home = _tables()
        for at, name in enumerate(names):
            if anywhere.pick(name) and (why := anywhere.explain(names[at:])):
                return why
        home = fold_path(self.home).rstrip("/").split("/")
        if not self.home or list(names[: len(home)]) != home:
            return ""
        return at_home.explain(names[len(home) :])


def _explain_git(parts: Sequence[str], names: Sequence[str], exists: Exists) -> str:
    is_git = False
    for at, name in enumerate(names):
        if name in _FIRST:
            if is_git and _tables()[0].explain(names[at:]):
                return GIT.why
            if _decides("/".join(parts[:at]), names[at:], exists):
                return "it is part of a directory that git treats as a repository"
        is_git = is_git or name in GIT_DIRS
    return GIT.why if names[-1] in GIT_DIRS else ""


def _decides(folder: str, inner: Sequence[str], exists: Exists) -> bool:
    """Whether a path in a directory makes that a git directory, or determines what git does
    there."""
    name = inner[0]
    has = {each for each in _ALONE | _SHARED if exists(f"{folder}/{_SPELLED.get(each, each)}")}
    for kind in SHAPES:
        if has | {name} >= kind:
            # HEAD is always protected here: it may be the last file that makes a repository.
            is_new = name == "head" or (name in kind and name not in has)
            return is_new or bool(_tables()[0].explain(inner))
    return False


def fold_path(path: str) -> str:
    return "/".join(map(fold, path.split("/")))


def fold(name: str) -> str:
    """A name as the most permissive file systems compare it: without case, invisible characters,
    trailing dots and spaces, and NTFS streams after a colon."""
    if not name.isascii():
        import unicodedata

        name = re.sub(_IGNORED, "", unicodedata.normalize("NFKC", name))
        name = "".join(char for char in name if unicodedata.category(char) != "Cf")
    name = name.casefold()
    return name.partition(":")[0].rstrip(". ") or name


class ProtectedName:
    """A name in the tables: a listed one, or a directory above one. Replacing the directory would
    replace what is in it."""

    __slots__ = ("globs", "is_listed", "names", "why")

    def __init__(self, why: str = "", groups: Iterable[ProtectedGroup] = ()) -> None:
        self.why = why
        self.is_listed = False
        self.names: dict[str, Self] = {}
        self.globs: list[tuple[str, str, Self]] = []
        for group in groups:
            for path in group.paths:
                self._add(fold_path(path).split("/"), group.why)

    def _add(self: Self, names: Sequence[str], why: str) -> None:
        if not names:
            self.is_listed, self.why = True, why
            return
        part = self.names.get(names[0])
        if part is None:
            part = self.names[names[0]] = type(self)(why)
            start, star, end = names[0].partition("*")
            if star:
                self.globs.append((start, end, part))
        part._add(names[1:], why)

    def pick(self, name: str) -> Self | None:
        """The part for a folded name; None if the tables do not have it."""
        if (part := self.names.get(name)) is not None:
            return part
        for start, end, part in self.globs:
            if name.endswith(end) and name.startswith(start):
                return part
        return None

    def explain(self, names: Iterable[str]) -> str:
        """Why the path of these folded names is protected; empty if it is not."""
        part = self
        for name in names:
            below = part.pick(name)
            if below is None:
                return part.why if part.is_listed else ""
            part = below
        return part.why


@functools.cache
def _tables() -> tuple[ProtectedName, ProtectedName, ProtectedName]:
    """The tables for a git directory, for any directory, and for the home directory."""
    return ProtectedName(groups=_IN_GIT), ProtectedName(groups=ANYWHERE), ProtectedName(groups=HOME)
