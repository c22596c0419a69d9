"""Find the protected files of a workspace, fast enough to run before and after every command."""

from __future__ import annotations

import os
import stat
import time
from collections.abc import Iterable, Sequence
from contextlib import suppress
from itertools import islice

from msgspec import Struct

from clawkit.fs.protected_files import (
    ANYWHERE,
    GIT,
    GIT_DIRS,
    HOME,
    SHAPES,
    ProtectedGroup,
    ProtectedName,
    fold,
)

MAX_FOLDERS = 30_000  # directories per walk; files do not count, because anyone can create many
MAX_NAMES = 100_000  # names in one directory of a tree
MAX_LISTED = 5_000  # names in one directory that is protected as a whole
_UNSETTLED_NS = 50_000_000  # after a more recent change, another one may get the same timestamp
# Large, and rarely containing repositories: walked last.
_LATER = frozenset(
    ("node_modules", ".venv", "venv", "site-packages", "__pycache__", "target", ".tox", ".cache")
)
_NOT_IN_BARE = frozenset(("refs", "logs"))
_SHAPE = frozenset().union(*SHAPES)

Identity = tuple[int, int]
Step = tuple[str, "Role", str, Identity]
"""A path to visit, its role, the directory that the table refers to, and its parent directory."""


class Role(ProtectedName):
    """The role of a path according to the tables, and the names to look for below it. A listed path
    is protected itself, any other because of its content."""

    __slots__ = ("has_shape", "is_git", "is_home", "is_tree", "rest")

    def __init__(self, why: str = "", groups: Iterable[ProtectedGroup] = ()) -> None:
        self.rest: Role | None = None  # role of all other names; in a tree, of other directories
        self.is_tree = self.is_git = self.is_home = False
        self.has_shape = False  # whether it is a git directory if it looks like one
        super().__init__(why, groups)

    @property
    def is_passage(self) -> bool:
        """Whether only certain names matter below it, so that it need not be listed."""
        has_more = self.rest or self.globs or self.is_tree or self.is_git
        return not has_more and not any(below.is_listed for below in self.names.values())

    def finish(self, *, is_home: bool = False) -> Role:
        """Complete all roles: what is listed without further names is protected as a whole."""
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
BARE = _make_git()  # a bare repository: unlike .git, it may be renamed like any other directory
_TREE = _make_tree(_GIT)
_TREE.rest = _TREE
_OWN = Role("clawkit reads it").finish(is_home=True)
_OWN.is_listed, _OWN.rest = True, _OWN
_HOME = _make_tree(_GIT, Role(groups=HOME).finish(is_home=True))
_HOME.rest = _TREE


class ProtectedNode(Struct, frozen=True):
    """A protected path, or a directory above one."""

    info: os.stat_result
    role: Role
    top: str  # the directory that the table refers to: a git directory, a home, or its parent
    parent: Identity  # its parent directory
    is_cut: bool = False  # a directory with too many names to list


class _Listing(Struct, frozen=True):
    here: Identity
    changed_ns: int  # -1 if it may have changed since
    role: Role
    steps: Sequence[Step]
    later: Sequence[Step]
    is_cut: bool  # whether it has too many names to list
    git: Role | None


class Look:
    """The result of one walk."""

    def __init__(self) -> None:
        self.nodes: dict[str, ProtectedNode] = {}
        self.shut: list[str] = []  # paths that cannot be accessed
        self.left = MAX_FOLDERS
        self.is_complete = True


class ProtectedWalk:
    """Walks a workspace; unchanged directories are not listed again."""

    def __init__(self, root: str, home: str, *, skip: str, own: Sequence[str] = ()) -> None:
        """All paths are resolved. `home` only matters if it is the root or below it; `skip` is not
        walked. `own` are files and directories of clawkit, which need not exist."""
        self._root, self._home, self._skip, self._own_files = root, home, skip, own
        self._known: dict[str, _Listing] = {}

    def look(self, also: Iterable[tuple[str, ProtectedNode]] = ()) -> Look:
        """Everything protected, nearest first. `also` was found earlier, and is visited again even
        if the walk no longer reaches it."""
        look, seen = Look(), dict[str, _Listing]()
        role = _HOME if self._root == self._home else _TREE
        steps: list[Step] = [(self._root, role, "", (0, 0))]
        own = [(path, _OWN, self._root, up) for path in self._own_files if (up := parent_of(path))]
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
        # The list grows during the loop: breadth first.
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
                nodes[path] = ProtectedNode(info, role, top, around)
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
                nodes[path] = ProtectedNode(info, listing.git, top, around)
            elif listing.is_cut and is_whole:
                nodes[path] = ProtectedNode(info, role, top, around, is_cut=True)
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
            # Still walk a tree that looks like a repository: a few names must not hide its content.
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
    """Whether a name that is in no table can be ignored: files of a tree, samples that git never
    runs, and replaced files that could not be moved elsewhere."""
    if role.is_tree:
        return not entry.is_dir(follow_symlinks=False)
    name = entry.name
    return name.endswith(".sample") or (name.startswith(".clawkit-") and name.endswith(".tmp"))


def identify(info: os.stat_result) -> Identity:
    return info.st_dev, info.st_ino


def is_settled(info: os.stat_result) -> bool:
    """Whether any further change will get another timestamp."""
    return time.time_ns() - info.st_ctime_ns > _UNSETTLED_NS


def parent_of(path: str) -> Identity | None:
    """The parent directory of a path; None if it does not exist or contains a link."""
    folder = os.path.dirname(path)
    with suppress(OSError):
        info = os.lstat(folder)
        return identify(info) if os.path.realpath(folder) == folder else None
    return None
