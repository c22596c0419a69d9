"""Open files below a root, without a race between check and use.

The kernel resolves the path from an open directory and refuses to leave it (`openat2` with
RESOLVE_BENEATH). If it cannot, components are opened one by one, and links and `..` are refused.
"""

from __future__ import annotations

import ctypes
import errno
import functools
import os
import stat
from contextlib import suppress

from clawkit.core.paths import is_below, plain_path
from clawkit.errors import ToolAuthorizationError, ToolInputError
from clawkit.process.libc import libc

_SYS_OPENAT2 = 437  # the same number on every architecture
_RESOLVE_NO_XDEV = 0x01
_RESOLVE_NO_MAGICLINKS = 0x02
_RESOLVE_NO_SYMLINKS = 0x04
_RESOLVE_BENEATH = 0x08
_HELD = _RESOLVE_BENEATH | _RESOLVE_NO_MAGICLINKS
_AT_FDCWD = -100
O_PATH: int = getattr(os, "O_PATH", os.O_RDONLY | os.O_NONBLOCK)
"""Opens a path without access to its content, if the system supports that."""


class _OpenHow(ctypes.Structure):
    _fields_ = (("flags", ctypes.c_uint64), ("mode", ctypes.c_uint64), ("resolve", ctypes.c_uint64))


def relative_path(path: str, root: str) -> str:
    """Make a path as people and models write it relative to the root. Raises `ToolInputError` for
    an invalid path, `ToolAuthorizationError` for an absolute path that is not below the root."""
    if not path:
        raise ToolInputError("the path is empty; '.' is the workspace")
    path = plain_path(path)
    if path == "~" or path.startswith("~/"):
        path = os.path.expanduser(path)
    if not os.path.isabs(path):
        return path
    if is_below(path, root):
        return path[len(root) :].lstrip("/") or "."
    parts = path.split("/")
    for end in range(1, len(parts) + 1):
        # Another name of the root is only a hint: opening is confined to the root.
        with suppress(OSError):
            if os.path.samefile("/".join(parts[:end]) or "/", root):
                return "/".join(parts[end:]).lstrip("/") or "."
    raise outside(path, root)


def outside(path: str, root: str) -> ToolAuthorizationError:
    return ToolAuthorizationError(
        f"{path!r} is outside the workspace {root!r}; use a path below it. To open more, the "
        "user can add directories to tools.fs.readRoots or writeRoots",
        reason="outside-workspace",
    )


def open_inside(root_fd: int, root: str, path: str, flags: int, *, links: bool = True) -> int:
    """Open a path below the root, safe against links and races.

    Without `links`, no link is followed, so the path is the real path of the file. Raises
    `ToolAuthorizationError` for a path that leads, or may lead, outside.
    """
    flags |= os.O_CLOEXEC
    try:
        if _has_openat2():
            return _openat2(root_fd, path, flags, _HELD if links else _HELD | _RESOLVE_NO_SYMLINKS)
        return _open_by_hand(root_fd, path, flags)
    except OSError as error:
        if error.errno in (errno.EXDEV, errno.ELOOP):
            raise outside(path, root) from None
        raise


def open_near(root_fd: int, path: str, flags: int) -> int:
    """Open a path below the root and on the same file system. Raises OSError for any other path,
    and if the kernel cannot check that."""
    if not _has_openat2():
        raise OSError(errno.ENOSYS, "the kernel has no openat2", path)
    return _openat2(root_fd, path, flags | os.O_CLOEXEC, _HELD | _RESOLVE_NO_XDEV)


def open_root(path: str) -> int:
    """Open a directory by its real path with O_PATH: no link in it is followed."""
    flags = O_PATH | os.O_DIRECTORY | os.O_CLOEXEC
    if _has_openat2():
        return _openat2(_AT_FDCWD, path, flags, _RESOLVE_NO_SYMLINKS)
    top = os.open("/", flags)
    try:
        return _open_by_hand(top, path, flags)
    finally:
        os.close(top)


def open_anywhere(path: str, flags: int) -> int:
    """Open an absolute path. Magic links in `/proc` are not followed: their target is unknown
    before they are opened."""
    flags |= os.O_CLOEXEC
    if _has_openat2():
        return _openat2(_AT_FDCWD, path, flags, _RESOLVE_NO_MAGICLINKS)
    real = os.path.realpath(path)
    if any(each.startswith(("/proc/", "/dev/fd/")) for each in (os.path.abspath(path), real)):
        raise OSError(errno.ELOOP, "goes through the open files of a process", path)
    return os.open(real, flags)


def await_changes(path: str) -> None:
    """Wait until no change of a path's directory, such as a removal, is under way. For a moment,
    the kernel counts fewer hard links while an open file still has the path that is being removed.

    A link to a directory of another file system always fails, but waits for the lock of the
    directory it would be in.
    """
    with suppress(OSError):
        os.link("/proc", path)


def _openat2(root_fd: int, path: str, flags: int, resolve: int = _HELD) -> int:
    how, name = ctypes.byref(_how(flags, resolve)), os.fsencode(path)
    for _ in range(64):
        fd: int = libc().syscall(_SYS_OPENAT2, root_fd, name, how, ctypes.sizeof(_OpenHow))
        if fd >= 0:
            return fd
        code = ctypes.get_errno()
        # EAGAIN: a rename during resolution, so that the kernel could not be sure.
        if code not in (errno.EAGAIN, errno.EINTR):
            raise OSError(code, os.strerror(code), path)
    raise OSError(errno.EXDEV, "the path keeps changing", path)


@functools.cache
def _how(flags: int, resolve: int) -> _OpenHow:
    return _OpenHow(flags, 0, resolve)


def _open_by_hand(root_fd: int, path: str, flags: int) -> int:
    parts = [part for part in path.split("/") if part not in ("", ".")]
    if ".." in parts:
        raise OSError(errno.EXDEV, "goes up", path)
    if path.endswith(("/", "/.")):
        flags |= os.O_DIRECTORY
    here = os.dup(root_fd)
    try:
        for part in parts[:-1]:
            below = _open_one(here, part, O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)
            os.close(here)
            here = below
        return _open_one(here, parts[-1] if parts else ".", flags)
    finally:
        os.close(here)


def _open_one(folder: int, name: str, flags: int) -> int:
    """Open a name in a directory. A link is refused or, with O_NOFOLLOW, opened itself."""
    try:
        fd = os.open(name, flags | os.O_NOFOLLOW, dir_fd=folder)
    except NotADirectoryError:
        now = os.stat(name, dir_fd=folder, follow_symlinks=False).st_mode
        # A directory now was a link just before.
        if stat.S_ISLNK(now) or stat.S_ISDIR(now):
            raise OSError(errno.ELOOP, "is a link", name) from None
        raise
    if not flags & os.O_NOFOLLOW and stat.S_ISLNK(os.fstat(fd).st_mode):
        os.close(fd)
        raise OSError(errno.ELOOP, "is a link", name)
    return fd


@functools.cache
def _has_openat2() -> bool:
    if os.uname().sysname != "Linux":
        return False
    here = os.open("/", O_PATH | os.O_CLOEXEC)
    try:
        os.close(_openat2(here, ".", O_PATH | os.O_CLOEXEC))
    except OSError:
        return False
    finally:
        os.close(here)
    return True
