"""What may be reached: which root a path lies below, and handles for what is there."""

from __future__ import annotations

import errno
import functools
import os
import stat
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from typing import NamedTuple

from clawkit.core.paths import plain_path, real_path, ways_of
from clawkit.errors import NotFoundError, ToolAuthorizationError, ToolInputError
from clawkit.fs.containment import (
    O_PATH,
    open_anywhere,
    open_inside,
    open_near,
    open_root,
    outside,
    relative_path,
)
from clawkit.text import nearest

_WHAT = {
    errno.ENOENT: "does not exist",
    errno.ENOTDIR: "does not exist: a part of the path is not a directory",
    errno.EACCES: "cannot be opened: permission denied",
    errno.EPERM: "cannot be opened: permission denied",
    errno.ELOOP: "goes through a symbolic link that is not followed",
    errno.ENAMETOOLONG: "has a name that is too long",
}
_FOLDER = O_PATH | os.O_DIRECTORY
_F_GETPATH = 50
_ATTEMPTS = 16
_LOCAL = frozenset(("ext2", "ext3", "ext4", "xfs", "btrfs", "f2fs", "zfs", "tmpfs", "overlay"))
_MAX_NAMES = 10_000
"""Names of a directory that are looked through for ones like a missing one."""


class Target(NamedTuple):
    """Where a change goes: below a root, no link on the way. Nothing may be there yet."""

    root: str
    folder: str
    """From the root; `.` is the root itself."""
    name: str
    place: str
    info: os.stat_result | None


class _RootHandle:
    """An open root, closed with the last reference to it: others may still be using it when the
    root has to be opened anew."""

    __slots__ = ("_identity", "fd")

    def __init__(self, root: str) -> None:
        self.fd = -1
        self.fd = open_root(root)
        info = os.fstat(self.fd)
        self._identity = info.st_dev, info.st_ino

    def is_at(self, root: str) -> bool:
        """Whether the path still is that of the open directory."""
        try:
            info = os.stat(root, follow_symlinks=False)
        except OSError:
            return False
        return (info.st_dev, info.st_ino) == self._identity

    def __del__(self) -> None:
        if self.fd >= 0:
            os.close(self.fd)


class Roots:
    """The roots of one run. A relative path starts at the workspace, which is the first of them.

    Where the roots are is settled here, once: a link that is put in the place of one, or of a
    directory above it, leads nowhere.
    """

    def __init__(
        self,
        workspace: str,
        *,
        held: bool = True,
        read_roots: Sequence[str] = (),
        write_roots: Sequence[str] = (),
    ) -> None:
        self.workspace = os.path.abspath(workspace)
        self.held = held
        self._write_roots = (os.path.realpath(self.workspace), *self._resolve(write_roots))
        self._read_roots = (*self._write_roots, *self._resolve(read_roots))
        self._handles: dict[str, _RootHandle] = {}

    def _resolve(self, roots: Sequence[str]) -> Iterator[str]:
        for root in roots:
            yield os.path.realpath(os.path.join(self.workspace, os.path.expanduser(root)))

    @property
    def readable(self) -> tuple[str, ...] | None:
        """Every directory that may be read, links resolved; None for the whole machine."""
        return self._read_roots if self.held else None

    def open(self, path: str, flags: int) -> int:
        """A handle for reading what a path leads to."""
        try:
            return self._open_to_read(path, flags)
        except OSError as error:
            raise self._explain(error, path) from None

    def open_near(self, path: str, flags: int) -> int:
        """A handle for a file of the workspace that is on the same file system, by a path that is
        plain to see. Raises OSError or ToolInputError for all others: they may be there or not."""
        root = self._write_roots[0]
        is_plain = path.startswith(f"{root}/") or path[:1] not in ("", "/", "~")
        if not self.held or not is_plain or path[:5].lower() == "file:":
            raise OSError(errno.EINVAL, "has to be looked up", path)
        handle = self._handle(root)  # held until the end: its number must not mean another file
        return open_near(handle.fd, relative_path(path, root), flags)

    def _handle(self, root: str) -> _RootHandle:
        """The handle of a root, kept open; another one when the root was replaced."""
        handle = self._handles.get(root)
        if handle is None or not handle.is_at(root):
            handle = self._handles[root] = _RootHandle(root)
        return handle

    def can_read(self, place: str) -> bool:
        """Whether a resolved path lies below a root."""
        return any(is_below(place, root) for root in self._read_roots)

    @property
    def is_local(self) -> bool:
        """Whether the workspace is on a disk of this machine, where nothing keeps one waiting."""
        device = os.stat(self._write_roots[0]).st_dev
        name = f"{os.major(device)}:{os.minor(device)}"
        with suppress(OSError), open("/proc/self/mountinfo", encoding="utf-8") as mounts:
            for line in mounts:
                if line.split()[2] == name:
                    return line.partition(" - ")[2].split()[0] in _LOCAL
        return False

    def _open_to_read(self, path: str, flags: int) -> int:
        if self.held:
            return self._open(path, flags, self._read_roots)[1]
        return open_anywhere(self._anywhere(path), flags)

    def _anywhere(self, path: str) -> str:
        return os.path.join(self.workspace, os.path.expanduser(_plain(path)))

    def look_at(self, place: str) -> os.stat_result | None:
        """What is at a resolved path below a root, no link followed; None when nothing is there."""
        for root in self._read_roots:
            if is_below(place, root) and place != root:
                folder, name = os.path.split(os.path.relpath(place, root))
                with suppress(OSError, ToolInputError), opened(root, folder or ".", _FOLDER) as fd:
                    return os.stat(name, dir_fd=fd, follow_symlinks=False)
        return None

    def ways(self, path: str) -> tuple[str, ...]:
        """Every name that a path goes by on its way to where it leads. What goes up does so from
        where a link leads, as for the kernel."""
        return ways_of(self._anywhere(path))

    def _open(self, path: str, flags: int, roots: Sequence[str]) -> tuple[str, int]:
        """The root, and a handle for a path below it. Raises OSError."""
        for root, relative in self._find(path, flags, roots):
            try:
                handle = self._handle(root)
            except OSError as error:
                raise ToolInputError(f"{root!r} cannot be opened: {error.strerror}") from None
            with suppress(ToolAuthorizationError):
                return root, open_inside(handle.fd, root, relative, flags)
        raise self._refusal(path, roots)

    def _find(self, path: str, flags: int, roots: Sequence[str]) -> Iterator[tuple[str, str]]:
        """The roots that a path may lie below: as it is written, then as its links say.

        Only hints: every opening is held to its root.
        """
        root, relative = self._find_root(path, roots)
        yield root, relative
        # It may be a link that is written as an absolute path, or leads to another root.
        real = os.path.join(root, relative)
        if flags & os.O_NOFOLLOW:
            folder, name = os.path.split(real)
            real = os.path.join(real_path(folder), name)
        else:
            real = real_path(real)
        for other in roots:
            if is_below(real, other):
                yield other, os.path.relpath(real, other)

    def _find_root(self, path: str, roots: Sequence[str]) -> tuple[str, str]:
        for root in roots:
            with suppress(ToolAuthorizationError):
                return root, relative_path(path, root)
        raise self._refusal(path, roots)

    def _refusal(self, path: str, roots: Sequence[str]) -> OSError | ToolAuthorizationError:
        if not self.held:
            return OSError(errno.ELOOP, "goes through the open files of a process", path)
        real = real_path(self._anywhere(path))
        root = next((root for root in self._read_roots if is_below(real, root)), "")
        if root and root not in roots:
            return ToolAuthorizationError(
                f"{path!r} is below {root!r} of tools.fs.readRoots, which may be read but not "
                "changed",
                reason="read-only",
            )
        return outside(path, self.workspace)

    def _explain(self, error: OSError, path: str) -> ToolInputError:
        what = _WHAT.get(error.errno or 0, f"cannot be opened: {error.strerror}")
        if error.errno != errno.ENOENT:
            return ToolInputError(f"{path!r} {what}")
        folder, name = os.path.split(_plain(path).rstrip("/"))
        names = self._names_in(folder or ".")
        alike = alike_names(name, names)
        close = alike or nearest(name, names, 3)
        hint = "; near names: " + ", ".join(map(repr, close)) if close else ""
        found = [os.path.join(folder, each) for each in alike]
        return NotFoundError(f"{path!r} {what}{hint}", alike=found)

    def _names_in(self, folder: str) -> list[str]:
        """Some names in a directory; none when it cannot be listed."""
        try:
            fd = self._open_to_read(folder, os.O_RDONLY | os.O_DIRECTORY)
        except (OSError, ToolInputError):
            return []
        try:
            with os.scandir(fd) as entries:
                return [entry.name for entry, _ in zip(entries, range(_MAX_NAMES), strict=False)]
        finally:
            os.close(fd)

    def locate(self, path: str, *, follow: bool = True) -> Target:
        """Where a change of a path goes. Links are followed as long as they stay inside; without
        `follow`, a link at the end is what is changed itself."""
        written = _plain(path) if self.held else self._anywhere(path)
        if os.path.basename(written) in ("", ".", ".."):
            raise ToolInputError(f"{path!r} names a directory, not a file")
        roots = self._write_roots if self.held else ("/",)
        flags = O_PATH if follow else O_PATH | os.O_NOFOLLOW
        for _ in range(_ATTEMPTS):
            try:
                return self._locate(written, flags, roots)
            except FileExistsError:
                continue
            except OSError as error:
                raise self._explain(error, path) from None
        raise ToolInputError(f"{path!r} changed while it was being opened; try again")

    def _locate(self, path: str, flags: int, roots: Sequence[str]) -> Target:
        try:
            root, fd = self._open(path, flags, roots)
        except FileNotFoundError:
            return self._locate_new(path, roots)
        try:
            return _target(root, place_of(fd), os.fstat(fd), path)
        finally:
            os.close(fd)

    def _locate_new(self, path: str, roots: Sequence[str]) -> Target:
        root, relative = self._find_root(path, roots)
        parts = [part for part in relative.split("/") if part not in ("", ".")]
        for known in range(len(parts) - 1, -1, -1):
            top = os.path.join(root, *parts[:known])
            try:
                below, fd = self._open(top, _FOLDER, roots)
            except FileNotFoundError:
                continue
            try:
                return _target_below(below, fd, parts[known:], path)
            finally:
                os.close(fd)
        raise FileNotFoundError(errno.ENOENT, "does not exist", root)


def _plain(path: str) -> str:
    if not path:
        raise ToolInputError("the path is empty; '.' is the workspace")
    return plain_path(path)


def _target_below(root: str, fd: int, missing: Sequence[str], path: str) -> Target:
    """A target in directories that are still to be made below an open one."""
    if ".." in missing:
        raise NotFoundError(f"{path!r} does not exist: it goes up from a missing directory")
    found = look(missing[0], fd)
    if found is None:
        return _target(root, os.path.join(place_of(fd), *missing), None, path)
    if stat.S_ISLNK(found.st_mode):
        raise ToolAuthorizationError(
            f"{path!r} goes through a dangling symbolic link; name the file itself",
            reason="outside-workspace",
        )
    raise FileExistsError(errno.EEXIST, "was created by another process in the meantime", path)


def _target(root: str, place: str, info: os.stat_result | None, path: str) -> Target:
    if not is_below(place, root):
        raise outside(path, root)
    folder, name = os.path.split(os.path.relpath(place, root))
    if place == root:
        raise ToolInputError(f"{path!r} names a directory, not a file")
    return Target(root, folder or ".", name, place, info)


@contextmanager
def opened(root: str, path: str, flags: int) -> Iterator[int]:
    """What is at a path from a resolved root, as long as no link is on the way. Raises OSError and
    `ToolInputError`."""
    root_fd = fd = -1
    try:
        try:
            root_fd = open_root(root)
        except OSError as error:
            raise ToolInputError(f"{root!r} cannot be opened: {error.strerror}") from None
        fd = open_inside(root_fd, root, path, flags, links=False)
        yield fd
    finally:
        for each in (fd, root_fd):
            if each >= 0:
                os.close(each)


@contextmanager
def open_folder(target: Target) -> Iterator[int]:
    """A mark of the directory of a target, which is still where it was. Raises OSError."""
    with opened(target.root, target.folder, _FOLDER) as fd:
        if place_of(fd) != os.path.dirname(target.place):
            raise OSError(errno.ESTALE, "was moved in the meantime", target.place)
        yield fd


def check_folder(folder: int) -> None:
    """A directory that is marked as read-only is left alone, also by those who could change it."""
    if not os.fstat(folder).st_mode & 0o222:
        raise PermissionError(errno.EACCES, "is in a read-only directory")


def make_folders(target: Target, note: Callable[[str], None] = lambda _: None) -> list[str]:
    """Make the missing directories above a target; those made, outermost first.

    `note` is called with each, from the root, before it is made. Raises OSError, and then leaves
    none.
    """
    made: list[str] = []
    parts = target.folder.split("/")
    try:
        for depth, name in enumerate(parts):
            folder = "/".join(parts[: depth + 1])
            with (
                opened(target.root, "/".join(parts[:depth]) or ".", _FOLDER) as above,
                suppress(FileExistsError),
            ):
                if look(name, above) is None:
                    check_folder(above)
                    note(folder)
                    os.mkdir(name, dir_fd=above)
                    made.append(folder)
    except BaseException:
        remove_folders(target.root, made)
        raise
    return made


def remove_folders(root: str, made: Sequence[str]) -> None:
    """Take back what `make_folders` made, as far as it is still empty."""
    for folder in reversed(made):
        above, name = os.path.split(folder)
        with suppress(OSError, ToolInputError), opened(root, above or ".", _FOLDER) as fd:
            os.rmdir(name, dir_fd=fd)


def look(name: str, folder: int) -> os.stat_result | None:
    """What a name in a directory is, links not followed; None for nothing. Raises OSError."""
    try:
        return os.stat(name, dir_fd=folder, follow_symlinks=False)
    except FileNotFoundError:
        return None


def version_of(info: os.stat_result) -> str:
    """Another text whenever the file was replaced or written to, also when its time was set back
    afterwards."""
    return f"{mark_of(info)}-{info.st_ctime_ns}"


def mark_of(info: os.stat_result) -> str:
    """Another text for another file or content; the same one wherever the file is moved to."""
    return f"{info.st_dev}-{info.st_ino}-{info.st_size}-{info.st_mtime_ns}"


def reopen(fd: int, flags: int) -> int:
    """A handle for the use of what another one only marks. Raises OSError."""
    if _has_proc():
        return os.open(f"/proc/self/fd/{fd}", flags | os.O_CLOEXEC)
    return os.dup(fd)


def is_below(place: str, base: str) -> bool:
    """Whether a resolved path is a resolved directory or lies in it."""
    return place == base or place.startswith(base.rstrip("/") + "/")


def place_of(fd: int) -> str:
    """The path that an open file has now. Raises OSError where the system does not tell."""
    if _has_proc():
        return os.readlink(f"/proc/self/fd/{fd}")
    import fcntl

    return os.fsdecode(fcntl.fcntl(fd, _F_GETPATH, bytes(1024)).rstrip(b"\0"))


@functools.cache
def _has_proc() -> bool:
    return os.path.exists("/proc/self/fd")


_TYPOGRAPHIC = str.maketrans("‘’‚‛“”„‟′″‐‑‒–—―−", "''''\"\"\"\"'\"-------")


def fold_name(name: str) -> str:
    """What is left of a name when spaces, quotes, dashes and accents are written in one way."""
    if name.isascii():
        return name
    import unicodedata

    plain = unicodedata.normalize("NFKC", name.translate(_TYPOGRAPHIC)).translate(_TYPOGRAPHIC)
    return "".join(" " if char.isspace() else char for char in plain)


def alike_names(name: str, names: Iterable[str]) -> list[str]:
    """The names that read the same as one that is missing."""
    wanted = fold_name(name)
    return sorted(each for each in names if each != name and fold_name(each) == wanted)
