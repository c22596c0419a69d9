"""Files that decide what other programs run: a person has to release them before a tool changes
them, even inside the workspace."""

from __future__ import annotations

import os
import re
from collections.abc import Callable
from typing import NamedTuple

_GIT_DIR = re.compile(r"\.git|git~\d")
# Of a git directory: what makes git start programs, or take its settings from elsewhere. A rebase
# that waits to be continued has a list of commands.
_RUNS = ("hooks", "rebase-merge", "rebase-apply", "sequencer")
_GIT = frozenset(("config", "config.worktree", "commondir", "gitdir", *_RUNS))
# Git takes a directory of any name for its own when these are in it.
_ALONE = frozenset(("head", "objects", "refs"))
_SHARED = frozenset(("head", "commondir"))
_SPELLED = {"head": "HEAD"}
# Shapeless characters that some file systems do not tell names apart by, beside those of the
# category Cf.
_IGNORED = re.compile(
    "[\u034f\u115f\u1160\u17b4\u17b5\u180b-\u180f\u3164\ufe00-\ufe0f\uffa0\U000e0000-\U000e0fff]"
)

Exists = Callable[[str], bool]


class Protection(NamedTuple):
    """What is clawkit's own, by resolved path, and what in it is not."""

    own: tuple[str, ...] = ()
    """Files, and directories with all that is in them."""
    open: tuple[str, ...] = ()
    """Directories in there that are ordinary: workspaces."""

    def explain(self, place: str, exists: Exists = os.path.lexists) -> str:
        """Why a resolved path is protected; empty when it is not.

        `exists` says whether something is, or is about to be, at a path.
        """
        folded = fold_path(place)
        own = max((len(each) for each in self.own if _is_in(folded, fold_path(each))), default=-1)
        # A directory that is released does not release what is clawkit's own in it.
        if own > max((len(each) for each in self.open if _is_in(place, each)), default=-1):
            return "it belongs to clawkit's own configuration and state"
        return _explain_git(place, exists)


def _is_in(place: str, folder: str) -> bool:
    return place == folder or place.startswith(folder.rstrip("/") + "/")


def _explain_git(place: str, exists: Exists) -> str:
    parts = place.split("/")
    folded = [fold(part) for part in parts]
    for at, name in enumerate(folded):
        inner = folded[at + 1 :]
        if _GIT_DIR.fullmatch(name) and (not inner or not _GIT.isdisjoint(inner)):
            return "git takes settings or programs to run from it"
        if name in _GIT | _ALONE and _decides("/".join(parts[:at]), name, exists):
            return "it is part of a directory that git takes for a repository"
    return ""


def _decides(folder: str, name: str, exists: Exists) -> bool:
    """Whether a name in a directory makes it a git directory, or decides what git does there."""
    has = {each for each in _ALONE | _SHARED if exists(f"{folder}/{_SPELLED.get(each, each)}")}
    for kind in (_ALONE, _SHARED):
        if has | {name} >= kind:
            # The head is asked about every time: with it, all others may have come before.
            return name in _GIT or name == "head" or (name in kind and name not in has)
    return False


def fold_path(path: str) -> str:
    return "/".join(map(fold, path.split("/")))


def fold(name: str) -> str:
    """A name as the most forgiving of file systems reads it: no case, no invisible characters, no
    dots and spaces at its end, no stream after a colon."""
    if not name.isascii():
        import unicodedata

        name = _IGNORED.sub("", unicodedata.normalize("NFKC", name))
        name = "".join(char for char in name if unicodedata.category(char) != "Cf")
    name = name.casefold()
    return name.partition(":")[0].rstrip(". ") or name
