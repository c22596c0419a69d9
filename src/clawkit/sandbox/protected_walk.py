"""Finding the protected files of a workspace, fast enough for before and after every command."""

from __future__ import annotations

import os
import stat
import time
from collections.abc import Iterable, Sequence
from contextlib import suppress
from itertools import islice
from typing import NamedTuple

from clawkit.fs.protected_files import ANYWHERE, GIT, GIT_DIRS, HOME, SHAPES, Group, Part, fold

MAX_FOLDERS = 30_000  # that one walk looks at; names of files do not count: anybody can make many
MAX_NAMES = 100_000  # names in one directory of a tree
MAX_LISTED = 5_000  # names in one directory that is protected as a whole
_UNSETTLED_NS = 50_000_000  # what changed later could change again with the same time stamp
# Large, and rarely with repositories in them: looked at when all else has been.
_LATER = frozenset(
    ("node_modules", ".venv", "venv", "site-packages", "__pycache__", "target", ".tox", ".cache")
)
_NOT_IN_BARE = frozenset(("refs", "logs"))
_SHAPE = frozenset().union(*SHAPES)

Identity = tuple[int, int]
Step = tuple[str, "Role", str, Identity]
"""What is to be looked at: path, role, the directory that the table is about, the one it is in."""


class Role(Part):
    """What something is by its place, and what is looked for in it. What is listed is protected
    itself, everything else because of what is in it."""

    __slots__ = ("has_shape", "is_git", "is_home", "is_tree", "rest")

    def __init__(self, why: str = "", groups: Iterable[Group] = ()) -> None:
        self.rest: Role | None = None  # what every other name is; in a tree, every other directory
        self.is_tree = self.is_git = self.is_home = False
        self.has_shape = False  # whether it is a git directory when it looks like one
        super().__init__(why, groups)

    @property
    def is_passage(self) -> bool:
        """Whether only directories of certain names matter in it, so that it need not be listed."""
        has_more = self.rest or self.globs or self.is_tree or self.is_git
        return not has_more and not any(below.is_listed for below in self.names.values())

    def finish(self, *, is_home: bool = False) -> Role:
        """Settle, for all below, whether everything in it belongs to it."""
        self.is_home = is_home
        if self.is_listed and not self.names:
            self.rest = self
        for below in self.names.values():
            below.finish(is_home=is_home)
        return self


def _make_git() -> Role:
    role = Role(groups=(GIT,)).finish()
    role.is_git = True
    worktrees, modules = role.names["worktrees"], role.names["modules"]
    worktrees.is_listed = modules.is_listed = False
    worktrees.rest, modules.rest, modules.has_shape = role, modules, True
    return role


def _make_tree(git: Role, more: Role | None = None) -> Role:
    role = Role(groups=ANYWHERE).finish()
    role.names.update(dict.fromkeys(GIT_DIRS, git))
    role.is_tree = role.has_shape = True
    if more is not None:
        role.names = {**role.names, **more.names}
        role.globs += more.globs
    return role


_GIT = _make_git()
BARE = _make_git()  # like it, under a name of its own: it can be renamed like any other directory
_TREE = _make_tree(_GIT)
_TREE.rest = _TREE
_OWN = Role("clawkit reads it").finish(is_home=True)
_OWN.is_listed, _OWN.rest = True, _OWN
_HOME = _make_tree(_GIT, Role(groups=HOME).finish(is_home=True))
_HOME.rest = _TREE


class Node(NamedTuple):
    """Something that is protected, or on the way to it."""

    info: os.stat_result
    role: Role
    top: str  # what the table is about: a git directory, a home, the one it is found in
    around: Identity  # the directory that it is in
    is_cut: bool = False  # a directory with too many names to list


class _Listing(NamedTuple):
    here: Identity
    changed_ns: int  # -1 when it may have changed since
    role: Role
    steps: Sequence[Step]
    later: Sequence[Step]
    is_cut: bool  # whether it has too many names to list
    git: Role | None


class Look:
    """What one walk found."""

    def __init__(self) -> None:
        self.nodes: dict[str, Node] = {}
        self.shut: list[str] = []  # what may not be looked at
        self.left = MAX_FOLDERS
        self.is_complete = True


class Walk:
    """Walks a workspace; directories that did not change since are not listed again."""

    def __init__(self, root: str, home: str, *, skip: str, own: Sequence[str] = ()) -> None:
        """All resolved; `home` only matters when it is the root or below it, and what is in `skip`
        does not. `own` are files and directories of clawkit, which need not exist."""
        self._root, self._home, self._skip, self._own = root, home, skip, own
        self._known: dict[str, _Listing] = {}

    def look(self, also: Iterable[tuple[str, Node]] = ()) -> Look:
        """Everything protected, nearest first. `also` was found before, and is looked at again
        whatever now hides it."""
        look, seen = Look(), dict[str, _Listing]()
        role = _HOME if self._root == self._home else _TREE
        steps: list[Step] = [(self._root, role, "", (0, 0))]
        own = [(path, _OWN, self._root, up) for path in self._own if (up := parent_of(path))]
        self._visit(own, look, seen)
        while steps:
            steps = self._visit(steps, look, seen)
        missed = ((path, node) for path, node in also if path not in look.nodes)
        again = [(path, n.role, n.top, up) for path, n in missed if (up := parent_of(path))]
        self._visit(again, look, seen)
        self._known = seen
        return look

    def _visit(self, steps: list[Step], look: Look, seen: dict[str, _Listing]) -> list[Step]:
        later: list[Step] = []
        nodes, known = look.nodes, self._known
        # Grows while it is walked through: breadth first.
        for path, role, top, around in steps:
            if role.is_tree and look.left <= 0:
                look.is_complete = False
                continue
            if path in nodes:
                continue
            try:
                info = os.lstat(path)
            except PermissionError:
                look.shut.append(path)
                continue
            except OSError:
                continue
            if not role.is_tree:
                nodes[path] = Node(info, role, top, around)
            listing = known.get(path)
            if (
                listing is None
                or info.st_ctime_ns != listing.changed_ns
                or (info.st_dev, info.st_ino) != listing.here
                or listing.role is not role
            ):
                if not stat.S_ISDIR(info.st_mode):
                    continue
                listing = self._list(path, role, top, info)
            seen[path] = listing
            look.left -= 1
            is_whole = role.rest is role and not role.is_tree
            if listing.is_cut and role.rest is not None and not is_whole:
                look.is_complete = False
            if listing.git is not None:
                nodes[path] = Node(info, listing.git, top, around)
            elif listing.is_cut and is_whole:
                nodes[path] = Node(info, role, top, around, is_cut=True)
            steps += listing.steps
            later += listing.later
        return later

    def _list(self, path: str, role: Role, top: str, info: os.stat_result) -> _Listing:
        top = path if role.is_tree or role.is_git else top
        here = (info.st_dev, info.st_ino)
        start = f"{path.rstrip('/')}/"
        steps: list[Step] = []
        later: list[Step] = []
        shape: dict[str, str] = {}
        most = MAX_NAMES if role.is_tree else MAX_LISTED
        entries: list[os.DirEntry[str]] = []
        if not role.is_passage:
            with suppress(OSError), os.scandir(path) as found:
                entries = list(islice(found, most + 1))
        for entry in entries:
            name = fold(entry.name)
            if role.has_shape and (name in _SHAPE or name in _GIT.names):
                shape[name] = entry.name
            below = role.pick(name) or role.rest
            if below is None or (below is role.rest and _is_ignored(role, entry)):
                continue
            place = start + entry.name
            if place == self._skip:
                continue
            if below.is_tree and place == self._home:
                below = _HOME
            (later if name in _LATER and below.is_tree else steps).append((place, below, top, here))
        git = None
        if any(shape.keys() >= each for each in SHAPES):
            git = BARE if role.is_tree else _GIT
            # A tree is looked through as before: a few names must not hide what is in it.
            own = _NOT_IN_BARE | git.names.keys()
            steps = [
                each for each in steps if role.is_tree and fold(each[0][len(start) :]) not in own
            ]
            steps += [(start + shape[n], git.names[n], path, here) for n in shape if n in git.names]
        is_cut = len(entries) > most
        if is_cut or role.is_passage:
            steps += [(start + name, below, top, here) for name, below in role.names.items()]
        changed_ns = info.st_ctime_ns if is_settled(info) and not is_cut else -1
        return _Listing(here, changed_ns, role, steps, later, is_cut, git)


def _is_ignored(role: Role, entry: os.DirEntry[str]) -> bool:
    """Whether a name that no table has does not matter: files of a tree, what git never runs, and
    what was replaced and could not be moved elsewhere."""
    if role.is_tree:
        return not entry.is_dir(follow_symlinks=False)
    name = entry.name
    return name.endswith(".sample") or (name.startswith(".clawkit-") and name.endswith(".tmp"))


def identify(info: os.stat_result) -> Identity:
    return info.st_dev, info.st_ino


def is_settled(info: os.stat_result) -> bool:
    """Whether every further change will have another time."""
    return time.time_ns() - info.st_ctime_ns > _UNSETTLED_NS


def parent_of(path: str) -> Identity | None:
    """The directory that a path is in; None when it is reached by a link, or not at all."""
    folder = os.path.dirname(path)
    with suppress(OSError):
        info = os.lstat(folder)
        return identify(info) if os.path.realpath(folder) == folder else None
    return None
