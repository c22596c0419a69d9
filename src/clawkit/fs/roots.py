"""The roots of a run: which root a path is below, and opening paths there."""

from __future__ import annotations

import errno
import functools
import os
import stat
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from typing import NamedTuple

from clawkit.core.paths import is_below, plain_path, real_path, ways_of
from clawkit.errors import NotFoundError, ToolAuthorizationError, ToolInputError
from clawkit.fs import containment
from clawkit.text import nearest

_WHAT = {
    errno.ENOENT: "does not exist",
    errno.ENOTDIR: "does not exist: a part of the path is not a directory",
    errno.EACCES: "cannot be opened: permission denied",
    errno.EPERM: "cannot be opened: permission denied",
    errno.ELOOP: "goes through a symbolic link that is not followed",
    errno.ENAMETOOLONG: "has a name that is too long",
}
_FOLDER = containment.O_PATH | os.O_DIRECTORY
_F_GETPATH = 50
_ATTEMPTS = 16
_LOCAL = frozenset(("ext2", "ext3", "ext4", "xfs", "btrfs", "f2fs", "zfs", "tmpfs", "overlay"))
_MAX_NAMES = 10_000
"""Names of a directory that are compared with a missing one."""


class ChangeTarget(NamedTuple):
    """The place of a change: below a root, without links. It need not exist."""

    root: str
    folder: str
    """Relative to the root; `.` is the root itself."""
    name: str
    place: str
    info: os.stat_result | None


class _RootHandle:
    """An open root. Closed with its last reference: another thread may still use it when the root
    has to be reopened."""

    __slots__ = ("_identity", "fd")

    def __init__(self, root: str) -> None:
        self.fd = -1
        self.fd = containment.open_root(root)
        info = os.fstat(self.fd)
        self._identity = info.st_dev, info.st_ino

    def is_at(self, root: str) -> bool:
        """Whether the path still leads to the open directory."""
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

    Roots are resolved once, here: a link that replaces one, or a directory above it, is not
    followed.
    """

    def __init__(
        self,
        workspace: str,
        *,
        held: bool = True,
        read_roots: Sequence[str] = (),
        write_roots: Sequence[str] = (),
        hidden: Sequence[str] = (),
    ) -> None:
        """`hidden` are directories that cannot be opened, wherever they are."""
        self.workspace = os.path.abspath(workspace)
        self.held = held
        self._write_roots = (os.path.realpath(self.workspace), *self._resolve(write_roots))
        self._read_roots = (*self._write_roots, *self._resolve(read_roots))
        self._handles: dict[str, _RootHandle] = {}
        self._hidden = hidden_in(self.readable, hidden)

    def _resolve(self, roots: Sequence[str]) -> Iterator[str]:
        for root in roots:
            yield os.path.realpath(os.path.join(self.workspace, os.path.expanduser(root)))

    @property
    def readable(self) -> tuple[str, ...] | None:
        """All readable directories, with links resolved; None for the whole machine."""
        return self._read_roots if self.held else None

    def open(self, path: str, flags: int) -> int:
        """Open a path for reading. Raises `ToolInputError` and its subclasses."""
        try:
            return self._open_to_read(path, flags)
        except OSError as error:
            raise self._explain(error, path) from None

    def open_near(self, path: str, flags: int) -> int:
        """The fast way to open a file of the workspace, on its file system and by a simple path.
        Raises OSError or ToolInputError for all others, whether they exist or not."""
        root = self._write_roots[0]
        is_plain = path.startswith(f"{root}/") or path[:1] not in ("", "/", "~")
        if not self.held or not is_plain or path[:5].lower() == "file:":
            raise OSError(errno.EINVAL, "has to be looked up", path)
        handle = self._handle(root)  # keep a reference: the descriptor must not be reused
        return self._check_hidden(
            path, containment.open_near(handle.fd, containment.relative_path(path, root), flags)
        )

    def _handle(self, root: str) -> _RootHandle:
        """The open root, reopened if it was replaced."""
        handle = self._handles.get(root)
        if handle is None or not handle.is_at(root):
            handle = self._handles[root] = _RootHandle(root)
        return handle

    def can_read(self, place: str) -> bool:
        return any(is_below(place, root) for root in self._read_roots)

    @property
    def is_local(self) -> bool:
        """Whether the workspace is on a local file system, where opening does not block."""
        device = os.stat(self._write_roots[0]).st_dev
        name = f"{os.major(device)}:{os.minor(device)}"
        # As bytes: the path of a mount may have any, such as a carriage return.
        with suppress(OSError), open("/proc/self/mountinfo", "rb") as mounts:
            for line in mounts:
                if line.split()[2] == name.encode():
                    return line.partition(b" - ")[2].split()[0].decode() in _LOCAL
        return False

    def _open_to_read(self, path: str, flags: int) -> int:
        if self.held:
            return self._check_hidden(path, self._open(path, flags, self._read_roots)[1])
        return self._check_hidden(path, containment.open_anywhere(self._anywhere(path), flags))

    def _check_hidden(self, path: str, fd: int) -> int:
        """Return the descriptor; if it belongs to a hidden path, close it and raise."""
        if self._hidden:
            try:
                self._check_place(path, place_of(fd))
            except BaseException:
                os.close(fd)
                raise
        return fd

    def _check_place(self, path: str, place: str) -> None:
        if any(is_below(place, each) for each in self._hidden):
            raise ToolAuthorizationError(
                f"{path!r} belongs to clawkit's own secrets, which tools cannot use",
                reason="hidden",
            )

    def _anywhere(self, path: str) -> str:
        return os.path.join(self.workspace, os.path.expanduser(_plain(path)))

    def look_at(self, place: str) -> os.stat_result | None:
        """Stat a resolved path below a root, without following links; None if it does not exist."""
        for root in self._read_roots:
            if is_below(place, root) and place != root:
                folder, name = os.path.split(os.path.relpath(place, root))
                with suppress(OSError, ToolInputError), opened(root, folder or ".", _FOLDER) as fd:
                    return os.stat(name, dir_fd=fd, follow_symlinks=False)
        return None

    def ways(self, path: str) -> tuple[str, ...]:
        """All paths that a path goes through while its links are resolved. As in the kernel, `..`
        applies to the target of a link."""
        return ways_of(self._anywhere(path))

    def _open(self, path: str, flags: int, roots: Sequence[str]) -> tuple[str, int]:
        """Open a path below one of the roots; returns the root too. Raises OSError."""
        for root, relative in self._find(path, flags, roots):
            try:
                handle = self._handle(root)
            except OSError as error:
                raise ToolInputError(f"{root!r} cannot be opened: {error.strerror}") from None
            with suppress(ToolAuthorizationError):
                return root, containment.open_inside(handle.fd, root, relative, flags)
        raise self._refusal(path, roots)

    def _find(self, path: str, flags: int, roots: Sequence[str]) -> Iterator[tuple[str, str]]:
        """Candidates for the root of a path, with the path relative to it: as written, then with
        links resolved. Only hints: opening is confined to the root."""
        root, relative = self._find_root(path, roots)
        yield root, relative
        # It may be a link with an absolute target, or one that leads to another root.
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
                return root, containment.relative_path(path, root)
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
        return containment.outside(path, self.workspace)

    def _explain(self, error: OSError, path: str) -> ToolInputError:
        what = _WHAT.get(error.errno or 0, f"cannot be opened: {error.strerror}")
        if error.errno != errno.ENOENT:
            return ToolInputError(f"{path!r} {what}")
        folder, name = os.path.split(_plain(path).rstrip("/"))
        names = self._names_in(folder or ".")
        alike = alike_names(name, names)
        close = alike or nearest(name, names, 3)
        hint = "; similar names: " + ", ".join(map(repr, close)) if close else ""
        found = [os.path.join(folder, each) for each in alike]
        return NotFoundError(f"{path!r} {what}{hint}", alike=found)

    def _names_in(self, folder: str) -> list[str]:
        """Names in a directory, up to a limit; empty if it cannot be listed."""
        try:
            fd = self._open_to_read(folder, os.O_RDONLY | os.O_DIRECTORY)
        except (OSError, ToolInputError):
            return []
        try:
            with os.scandir(fd) as entries:
                return [entry.name for entry, _ in zip(entries, range(_MAX_NAMES), strict=False)]
        finally:
            os.close(fd)

    def locate(self, path: str, *, follow: bool = True) -> ChangeTarget:
        """The target of a change. Links are followed if they stay inside; without `follow`, a link
        at the end is the target itself. Raises `ToolInputError` and its subclasses."""
        written = _plain(path) if self.held else self._anywhere(path)
        if os.path.basename(written) in ("", ".", ".."):
            raise ToolInputError(f"{path!r} names a directory, not a file")
        roots = self._write_roots if self.held else ("/",)
        flags = containment.O_PATH if follow else containment.O_PATH | os.O_NOFOLLOW
        for _ in range(_ATTEMPTS):
            try:
                target = self._locate(written, flags, roots)
                self._check_place(path, target.place)
                return target
            except FileExistsError:
                continue
            except OSError as error:
                raise self._explain(error, path) from None
        raise ToolInputError(f"{path!r} changed while it was being opened; try again")

    def _locate(self, path: str, flags: int, roots: Sequence[str]) -> ChangeTarget:
        try:
            root, fd = self._open(path, flags, roots)
        except FileNotFoundError:
            return self._locate_new(path, roots)
        try:
            return _target(root, place_of(fd), os.fstat(fd), path)
        finally:
            os.close(fd)

    def _locate_new(self, path: str, roots: Sequence[str]) -> ChangeTarget:
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


def hidden_in(readable: Sequence[str] | None, hidden: Iterable[str]) -> tuple[str, ...]:
    """The hidden directories, with links resolved, that matter for what is readable."""
    roots = ("/",) if readable is None else readable
    return tuple(
        folder
        for folder in map(os.path.realpath, hidden)
        if any(is_below(folder, root) or is_below(root, folder) for root in roots)
    )


def _plain(path: str) -> str:
    if not path:
        raise ToolInputError("the path is empty; '.' is the workspace")
    return plain_path(path)


def _target_below(root: str, fd: int, missing: Sequence[str], path: str) -> ChangeTarget:
    """A target in directories that do not exist yet, below an open one."""
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


def _target(root: str, place: str, info: os.stat_result | None, path: str) -> ChangeTarget:
    if not is_below(place, root):
        raise containment.outside(path, root)
    folder, name = os.path.split(os.path.relpath(place, root))
    if place == root:
        raise ToolInputError(f"{path!r} names a directory, not a file")
    return ChangeTarget(root, folder or ".", name, place, info)


@contextmanager
def opened(root: str, path: str, flags: int) -> Iterator[int]:
    """Open a path relative to a resolved root, without following links. Raises OSError and
    `ToolInputError`."""
    try:
        root_fd = containment.open_root(root)
    except OSError as error:
        raise ToolInputError(f"{root!r} cannot be opened: {error.strerror}") from None
    try:
        fd = containment.open_inside(root_fd, root, path, flags, links=False)
    finally:
        os.close(root_fd)
    try:
        yield fd
    finally:
        os.close(fd)


@contextmanager
def open_folder(target: ChangeTarget) -> Iterator[int]:
    """Open the directory of a target with containment.O_PATH. Raises OSError if it was moved."""
    with opened(target.root, target.folder, _FOLDER) as fd:
        if place_of(fd) != os.path.dirname(target.place):
            raise OSError(errno.ESTALE, "was moved in the meantime", target.place)
        yield fd


def check_folder(folder: int) -> None:
    """Raises PermissionError for a read-only directory, even if we could change it, as root can."""
    if not os.fstat(folder).st_mode & 0o222:
        raise PermissionError(errno.EACCES, "is in a read-only directory")


def make_folders(target: ChangeTarget, note: Callable[[str], None] = lambda _: None) -> list[str]:
    """Create the missing directories above a target; returns those created, outermost first.

    `note` is called with each, relative to the root, before it is created. On OSError, all are
    removed again.
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
    """Remove what `make_folders` created, as far as it is still empty."""
    for folder in reversed(made):
        above, name = os.path.split(folder)
        with suppress(OSError, ToolInputError), opened(root, above or ".", _FOLDER) as fd:
            os.rmdir(name, dir_fd=fd)


def look(name: str, folder: int) -> os.stat_result | None:
    """Stat a name in a directory, without following links; None if it does not exist. Raises
    OSError."""
    try:
        return os.stat(name, dir_fd=folder, follow_symlinks=False)
    except FileNotFoundError:
        return None


def version_of(info: os.stat_result) -> str:
    """Differs after the file was replaced or written to, even if its mtime was reset afterwards."""
    return f"{mark_of(info)}-{info.st_ctime_ns}"


def mark_of(info: os.stat_result) -> str:
    """Differs for another file or content, but not after the file was moved."""
    return f"{info.st_dev}-{info.st_ino}-{info.st_size}-{info.st_mtime_ns}"


def reopen(fd: int, flags: int) -> int:
    """Open an containment.O_PATH descriptor with other flags. Raises OSError."""
    if _has_proc():
        return os.open(f"/proc/self/fd/{fd}", flags | os.O_CLOEXEC)
    return os.dup(fd)


def place_of(fd: int) -> str:
    """The current path of an open file. Raises OSError if the system cannot tell."""
    if _has_proc():
        return os.readlink(f"/proc/self/fd/{fd}")
    import fcntl

    return os.fsdecode(fcntl.fcntl(fd, _F_GETPATH, bytes(1024)).rstrip(b"\0"))


def has_kept_path(fd: int, place: str, info: os.stat_result) -> bool:
    """Whether an open file still has the path that `place_of` said after `info` was read. Until its
    last change is certainly complete, this waits for it."""
    if place.endswith(_GONE):
        return False
    if time.time() - info.st_ctime > _SETTLED_S:
        return True
    containment.await_changes(place)
    return place_of(fd) == place


@functools.cache
def _has_proc() -> bool:
    return os.path.exists("/proc/self/fd")


_GONE = " (deleted)"
"""Suffix that the kernel adds to the path of an open file that was removed."""
_SETTLED_S = 10.0
_TYPOGRAPHIC = str.maketrans("‘’‚‛“”„‟′″‐‑‒–—―−", "''''\"\"\"\"'\"-------")


def fold_name(name: str) -> str:
    """A name with spaces, quotes, dashes and accents normalized."""
    if name.isascii():
        return name
    import unicodedata

    plain = unicodedata.normalize("NFKC", name.translate(_TYPOGRAPHIC)).translate(_TYPOGRAPHIC)
    return "".join(" " if char.isspace() else char for char in plain)


def alike_names(name: str, names: Iterable[str]) -> list[str]:
    """The names that look the same as a missing one."""
    wanted = fold_name(name)
    return sorted(each for each in names if each != name and fold_name(each) == wanted)
