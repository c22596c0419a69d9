"""Protected files stay unchanged by commands that no person approved.

If the backend mounts them read-only, changes are prevented; otherwise they are detected when a
command ends, and reverted. New files in protected places are moved aside, or reported. Files are
copied and restored through descriptors below the root of the workspace, without following links.
"""

from __future__ import annotations

import errno
import os
import re
import stat
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, suppress

from msgspec import Struct
from msgspec.structs import replace

from clawkit.core.paths import is_below
from clawkit.errors import ToolInputError
from clawkit.fs.protected_files import GIT_DIRS, fold
from clawkit.fs.roots import look, opened, version_of
from clawkit.fs.staged_file import put_new, temp_name
from clawkit.sandbox.protected_walk import (
    BARE,
    Look,
    ProtectedNode,
    ProtectedWalk,
    identify,
    is_settled,
    parent_of,
)
from clawkit.store import private_dir
from clawkit.text import printable

MAX_LINES = 10
_MAX_GONE = 1_000
_MAX_SHOWN = 200
_ASK = "ask the person to change it, or retry with elevated: true"
MAX_COPIES = 64 << 20  # bytes of all copies; files beyond that cannot be restored, only moved aside
_FOLDER = os.O_PATH | os.O_DIRECTORY
_READ = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC
_CREATE = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC


class Saved(Struct, frozen=True):
    """The saved state of something protected."""

    node: ProtectedNode
    content: bytes | None  # of a file, or the target of a link; None for anything else
    version: str  # empty if it could change without getting another version

    @property
    def is_folder(self) -> bool:
        return stat.S_ISDIR(self.node.info.st_mode)


class ProtectedPaths(Struct, frozen=True):
    """Paths for a backend to mount: absolute, without links, sorted."""

    files: tuple[str, ...]  # files and directories to mount read-only
    pins: tuple[str, ...]
    """Directories to mount separately, so that they cannot be renamed: git directories, and the
    parents of protected files."""
    complete: bool  # false if the workspace was too large to walk completely


class ProtectedFiles:
    """The protected files of one workspace. All hosts of this process must share one object."""

    def __init__(self, workspace: str, *, home: str, aside: str, own: Sequence[str] = ()) -> None:
        """`aside` is a private directory that commands cannot access, for files that are replaced
        or removed; `own` are files and directories of clawkit in the workspace."""
        self._root = os.path.realpath(workspace)
        user = os.path.realpath(home) if home else ""
        self._walk = ProtectedWalk(self._root, user, skip=os.path.realpath(aside), own=own)
        self._aside = aside
        self._lock, self._running = threading.Lock(), 0
        self._saved: dict[str, Saved] = {}
        self._held: dict[str, tuple[int, int]] = {}
        self._gone: dict[str, None] = {}
        """Paths that were removed during a command together with their repository or directory.
        They are not restored, but must have the saved state if a command creates them again."""
        self._owed: set[str] = set()  # paths that could not be restored yet
        self._named: set[tuple[str, tuple[int, int]]] = set()
        self._is_complete, self._started = True, 0

    def find(self, *, prevented: bool = False) -> ProtectedPaths:
        """The paths to mount. With `prevented`, commands are assumed to be unable to change them
        until the next call; everything else is restored as usual."""
        with self._lock:
            seen = self._look()
            files: dict[str, tuple[int, int]] = {}
            folders: dict[str, ProtectedNode] = {}
            for path, node in sorted(seen.nodes.items(), key=lambda each: _parts(each[0])):
                is_file = stat.S_ISREG(node.info.st_mode)
                is_covered = any(up in files for up in _above(path))
                if is_covered or not (is_file or stat.S_ISDIR(node.info.st_mode)):
                    continue
                if is_file or node.role.is_listed:
                    files[path] = identify(node.info)
                elif node.role is not BARE:
                    folders[path] = node
            self._held = files if prevented else {}
        above = {up for path in files for up in _above(path)}
        pins = (path for path, node in folders.items() if node.role.is_git or path in above)
        return ProtectedPaths(tuple(sorted(files)), tuple(sorted(pins)), seen.is_complete)

    def before(self) -> None:
        """Save the state right before a command starts. Blocks."""
        with self._lock:
            # A new snapshot would include changes of a running command.
            if not self._running:
                self._save()
            self._running += 1

    def after(self, *, all_exited: bool) -> tuple[str, ...]:
        """Restore what running commands have changed; returns lines for a result. Blocks. Pass
        `all_exited` once for each `before`, when no process of that command is left: until then no
        new snapshot is taken, because it would include changes of that command."""
        with self._lock:
            if not self._running:
                return ()
            lines = self._check()
            self._running -= all_exited
        if len(lines) > MAX_LINES:
            lines[MAX_LINES:] = [f"and {len(lines) - MAX_LINES} more"]
        return tuple(lines)

    def _look(self) -> Look:
        return self._walk.look((path, saved.node) for path, saved in self._saved.items())

    def _save(self) -> None:
        seen, old = self._look(), self._saved
        self._is_complete, self._started, self._named = seen.is_complete, time.time_ns(), set()
        self._gone = {path: None for path in self._gone if path not in seen.nodes}
        kept = {path: old[path] for path in (*self._owed, *self._gone) if path in old}
        fresh = []
        for path, node in seen.nodes.items():
            saved = old.get(path)
            if path in kept:
                continue
            if saved is None or saved.version != version_of(node.info):
                fresh.append((path, node))
            else:
                kept[path] = replace(saved, node=node)
        # Known files keep their copies: many new files must not use up the space.
        room = MAX_COPIES - sum(len(saved.content or b"") for saved in kept.values())
        for path, node in fresh:
            kept[path] = saved = self._copy(path, node, room)
            room -= len(saved.content or b"")
        self._saved = kept

    def _check(self) -> list[str]:
        lines: list[str] = []
        seen = self._look()
        while self._open_up(seen, lines):
            seen = self._look()
        replaced: tuple[str, ...] = ()
        for path in sorted(self._saved, key=_parts):
            saved, node = self._saved[path], seen.nodes.get(path)
            is_git = saved.is_folder and saved.node.role.is_git
            if path in seen.shut:
                self._owed.add(path)
                lines.append(f"Could not check {self._show(path)}, which is protected")
            elif path.startswith(replaced):
                said = self._put_back(path, saved)
                lines += [said] if path in self._owed else []
            elif node is not None and self._is_same(path, saved, node):
                self._owed.discard(path)
            elif self._is_held(path, node):
                if node is None:
                    del self._saved[path]
                else:
                    self._saved[path] = self._copy(path, node)
            elif node is None and (is_git or path in self._gone or not _is_folder(saved.node.top)):
                self._gone.setdefault(path)
            else:
                lines.append(self._put_back(path, saved))
                replaced += () if is_git else (f"{path}/",)
        for path in list(self._gone)[:-_MAX_GONE]:
            del self._gone[path]
            self._saved.pop(path, None)
        lines += self._check_new(seen, replaced)
        if self._is_complete and not seen.is_complete:
            lines.append("The workspace is now too large to look for new repositories everywhere")
        return lines

    def _open_up(self, look: Look, lines: list[str]) -> bool:
        """Make directories accessible again whose modes were changed; returns whether any was."""
        is_changed = False
        for path, saved in self._saved.items():
            node, mode = look.nodes.get(path), saved.node.info.st_mode
            if not saved.is_folder or node is None or not stat.S_ISDIR(node.info.st_mode):
                continue
            is_other = node.info.st_mode != mode and not self._is_held(path, node)
            if is_other and self._change_mode(path, stat.S_IMODE(mode)):
                lines.append(f"Reverted the mode of {self._show(path)}: it is protected")
                is_changed = True
        closed = {up for path in look.shut for up in _above(path) if is_below(up, self._root)}
        for path in sorted(closed, key=_parts):
            is_changed |= self._change_mode(path, 0, add=0o700)
        return is_changed

    def _is_same(self, path: str, saved: Saved, node: ProtectedNode) -> bool:
        old, now = saved.node.info, node.info
        # A file can be changed through a mapping without getting another version.
        is_fixed = not stat.S_ISREG(now.st_mode) or self._is_held(path, node)
        if saved.version == version_of(now) and (is_fixed or saved.content is None):
            return True
        if stat.S_IFMT(old.st_mode) == stat.S_IFMT(now.st_mode) == stat.S_IFDIR:
            return saved.node.is_cut or not node.is_cut
        if old.st_mode != now.st_mode or old.st_size != now.st_size:
            return False
        if saved.content is None:
            is_special = not stat.S_ISREG(now.st_mode) and identify(old) == identify(now)
            return is_special or version_of(old) == version_of(now)
        fresh = self._copy(path, node)
        if saved.content != fresh.content:
            return False
        self._saved[path] = replace(saved, node=fresh.node, version=fresh.version)
        return True

    def _is_held(self, path: str, node: ProtectedNode | None) -> bool:
        """Whether commands cannot have changed a path, so that a person must have."""
        if not self._held:
            return False
        saved = self._saved.get(path)
        if saved is not None:
            # It may be changed through another hard link, or a directory above it replaced.
            if saved.node.info.st_nlink > 1 and not saved.is_folder:
                return False
            if saved.node.parent != (node.parent if node else parent_of(path)):
                return False
            if self._held.get(path) == identify(saved.node.info):
                return True
        with suppress(OSError):
            ups = (up for up in _above(path) if up in self._held)
            return any(identify(os.lstat(up)) == self._held[up] for up in ups)
        return False

    def _put_back(self, path: str, saved: Saved) -> str:
        """Restore a path, whatever is there now; returns a line for the result."""
        shown, name, temp = self._show(path), os.path.basename(path), temp_name()
        self._owed.add(path)
        kept = why = ""
        try:
            with self._open(os.path.dirname(path), _FOLDER) as folder:
                try:
                    _make(folder, temp, saved)
                except OSError as error:
                    why = error.strerror or str(error)
                try:
                    if look(name, folder) is not None:
                        kept = self._set_aside(folder, path)
                    if not why:
                        put_new(temp, name, folder)
                finally:
                    with suppress(OSError):
                        os.unlink(temp, dir_fd=folder)
                now = None if why else look(name, folder)
        except (OSError, ToolInputError) as error:
            return f"Could not restore {shown}, which is protected and was changed: {error}"
        if now is None:
            if saved.content is None:
                self._owed.discard(path)
                self._gone.setdefault(path)
            kept = f". {kept}" if kept else ""
            return f"Removed {shown}: it is protected, and could not be restored: {why}{kept}"
        self._owed.discard(path)
        self._saved[path] = replace(saved, node=replace(saved.node, info=now), version="")
        if not kept:
            return f"Restored {shown}: it is protected and had been removed; {_ASK}"
        return f"Reverted {shown}: it is protected. {kept}; {_ASK}"

    def _check_new(self, look: Look, covered: tuple[str, ...]) -> list[str]:
        """Move aside or report new paths, except those below one that was handled already."""
        moved, named = [], []
        fresh: set[str] = set()
        for path in sorted(look.nodes, key=_parts):
            node, saved = look.nodes[path], self._saved.get(path)
            is_folder = stat.S_ISDIR(node.info.st_mode)
            is_repository = node.role.is_git and is_folder
            mark = (path, identify(node.info))
            if saved is not None and (not is_repository or identify(saved.node.info) == mark[1]):
                continue
            if f"{path}/".startswith(covered) or not (
                is_repository or node.role.is_listed or not is_folder
            ):
                continue
            top = look.nodes.get(node.top)
            is_in_git = top is not None and top.role.is_git
            if is_repository:
                fresh.add(path)
            else:
                covered += (f"{path}/",)
            if is_in_git and node.top in fresh and node.top not in self._saved:
                continue
            if not is_repository and (is_in_git or node.role.is_home):
                moved += [] if self._is_held(path, node) else self._take_away(path, node)
            elif mark not in self._named and (
                # It may have existed before, where an incomplete walk did not reach it.
                self._is_complete or node.info.st_ctime_ns >= self._started
            ):
                self._named.add(mark)
                named.append(self._name(path, node))
        return moved + named

    def _take_away(self, path: str, node: ProtectedNode) -> list[str]:
        """Move a path aside, unless it was replaced since; returns lines for the result."""
        shown = self._show(path)
        try:
            with self._open(os.path.dirname(path), _FOLDER) as folder:
                now = look(os.path.basename(path), folder)
                if now is None or identify(now) != identify(node.info):
                    return []
                kept = self._set_aside(folder, path)
        except (OSError, ToolInputError) as error:
            return [f"Could not remove {shown}, which is new and protected: {error}"]
        return [f"Removed {shown}: it is protected. {kept}; {_ASK}"]

    def _copy(self, path: str, node: ProtectedNode, room: int = MAX_COPIES) -> Saved:
        """Save the state of a path; the content only if it has at most `room` bytes."""
        info = node.info
        content = None
        with suppress(OSError, ToolInputError):
            if stat.S_ISLNK(info.st_mode):
                with self._open(os.path.dirname(path), _FOLDER) as folder:
                    content = os.fsencode(os.readlink(os.path.basename(path), dir_fd=folder))
            elif stat.S_ISREG(info.st_mode) and info.st_size <= room:
                with self._open(path, _READ) as fd, open(fd, "rb", closefd=False) as file:
                    info = os.fstat(fd)
                    content = file.read(min(info.st_size, room))
        version = version_of(info) if is_settled(info) else ""
        return Saved(replace(node, info=info), content, version)

    def _change_mode(self, path: str, mode: int, *, add: int = 0) -> bool:
        """Change the mode of a directory; returns whether that was necessary."""
        with suppress(OSError, ToolInputError), self._open(path, _FOLDER) as fd:
            now = stat.S_IMODE(os.fstat(fd).st_mode)
            if now != (wanted := (mode or now) | add):
                os.chmod(f"/proc/self/fd/{fd}", wanted)
                return True
        return False

    def _set_aside(self, folder: int, path: str) -> str:
        """Move a path to the private directory; returns a sentence about it. Raises OSError."""
        name, temp = os.path.basename(path), temp_name()
        os.rename(name, temp, src_dir_fd=folder, dst_dir_fd=folder)
        plain = re.sub(r"[^A-Za-z0-9._-]", "_", name)[:60]
        place = f"{self._aside}/{time.strftime('%Y%m%d-%H%M%S')}-{os.urandom(4).hex()}-{plain}"
        info = os.stat(temp, dir_fd=folder, follow_symlinks=False)
        try:
            private_dir(self._aside)
            try:
                os.rename(temp, place, src_dir_fd=folder)
            except OSError as error:
                if error.errno != errno.EXDEV:
                    raise
                _move(folder, temp, info, place)
        except OSError as error:
            if not stat.S_ISDIR(info.st_mode):
                os.unlink(temp, dir_fd=folder)
                return f"The changed version could not be kept: {error.strerror}"
            # It has no effect under this name, and may be too large to copy or remove.
            place = os.path.join(os.path.dirname(path), temp)
        return f"The changed version is kept in {printable(place, keep='')}"

    def _open(self, path: str, flags: int) -> AbstractContextManager[int]:
        return opened(self._root, os.path.relpath(path, self._root), flags)

    def _name(self, path: str, node: ProtectedNode) -> str:
        if not node.role.is_git:
            return f"New: {self._show(path)} ({node.role.why}; check it before you use it)"
        place = os.path.dirname(path) if fold(os.path.basename(path)) in GIT_DIRS else path
        what = "its settings and hooks come from the command; check them before you run git in it"
        return f"New repository: {self._show(place)}/ ({what})"

    def _show(self, path: str) -> str:
        shown = printable(os.path.relpath(path, self._root), keep="")
        return shown if len(shown) <= _MAX_SHOWN else f"{shown[: _MAX_SHOWN - 1]}…"


def _is_folder(path: str) -> bool:
    """Whether a path is a directory and contains no link."""
    return os.path.isdir(path) and os.path.realpath(path) == path


def _above(path: str) -> Iterator[str]:
    """The parents of a path, nearest first."""
    while (up := os.path.dirname(path)) != path:
        yield (path := up)


def _parts(path: str) -> list[str]:
    return path.split("/")


def _make(folder: int, name: str, saved: Saved) -> None:
    """Create the saved file, directory or link under a new name. Raises OSError."""
    info, content = saved.node.info, saved.content
    if saved.is_folder and not saved.node.role.is_git:
        os.mkdir(name, 0o700, dir_fd=folder)
        os.chmod(name, stat.S_IMODE(info.st_mode), dir_fd=folder)
    elif content is None:
        raise OSError(0, "there is no copy of it")
    elif stat.S_ISLNK(info.st_mode):
        os.symlink(content, name, dir_fd=folder)
    else:
        with open(os.open(name, _CREATE, 0o600, dir_fd=folder), "wb") as file:
            file.write(content)
            file.flush()
            with suppress(PermissionError):
                os.fchown(file.fileno(), info.st_uid, info.st_gid)
            os.fchmod(file.fileno(), stat.S_IMODE(info.st_mode))


def _move(folder: int, name: str, info: os.stat_result, target: str) -> None:
    """Move a file or a link to another file system. Raises OSError."""
    if stat.S_ISLNK(info.st_mode):
        os.symlink(os.readlink(name, dir_fd=folder), target)
    elif stat.S_ISREG(info.st_mode) and info.st_size <= MAX_COPIES:
        with (
            open(os.open(name, _READ, dir_fd=folder), "rb") as source,
            open(os.open(target, _CREATE, 0o600), "wb") as copy,
        ):
            copy.writelines(source)
    else:
        raise OSError(errno.EXDEV, "too large or not a file, and on another file system")
    os.unlink(name, dir_fd=folder)
