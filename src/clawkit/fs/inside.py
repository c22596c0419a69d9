"""Opening files below a root, so that the check and the use are one act.

The kernel resolves the path from an open directory handle and refuses to leave it (`openat2` with
RESOLVE_BENEATH); where it cannot, every component is opened by hand and links are refused.
"""

from __future__ import annotations

import ctypes
import errno
import functools
import os
import platform

from clawkit.core.paths import plain_path
from clawkit.errors import ToolAuthorizationError, ToolInputError

_SYS_OPENAT2 = 437  # the same number on every architecture
_RESOLVE_NO_MAGICLINKS = 0x02
_RESOLVE_BENEATH = 0x08
_HELD = _RESOLVE_BENEATH | _RESOLVE_NO_MAGICLINKS
_AT_FDCWD = -100
O_PATH: int = getattr(os, "O_PATH", os.O_RDONLY)
"""A handle that only marks a place, where the system has such a thing."""


class _OpenHow(ctypes.Structure):
    _fields_ = (("flags", ctypes.c_uint64), ("mode", ctypes.c_uint64), ("resolve", ctypes.c_uint64))


def relative_path(path: str, root: str) -> str:
    """A path as people and models write it, as a path from the root.

    Raises for what cannot be a path, and for an absolute path that is not below the root.
    """
    if not path:
        raise ToolInputError("an empty text is not a path; '.' is the workspace")
    path = plain_path(path)
    if path == "~" or path.startswith("~/"):
        path = os.path.expanduser(path)
    if not os.path.isabs(path):
        return path
    if path == root or path.startswith(root.rstrip("/") + "/"):
        return path[len(root) :].lstrip("/") or "."
    parts = path.split("/")
    for end in range(1, len(parts) + 1):
        if _same("/".join(parts[:end]) or "/", root):
            return "/".join(parts[end:]).lstrip("/") or "."
    raise outside(path, root)


def _same(path: str, root: str) -> bool:
    """Whether a path is another name of the root. Only a hint: the opening itself is held to it."""
    try:
        return os.path.samefile(path, root)
    except OSError:
        return False


def outside(path: str, root: str) -> ToolAuthorizationError:
    return ToolAuthorizationError(
        f"{path!r} is outside the workspace {root!r}; use a path below it, or have "
        "tools.fs.workspaceOnly set to false",
        reason="outside-workspace",
    )


def open_inside(root_fd: int, root: str, path: str, flags: int) -> int:
    """A handle for a path below the root, whatever links and races say."""
    flags |= os.O_CLOEXEC
    try:
        if _has_openat2():
            return _openat2(root_fd, path, flags)
        return _open_by_hand(root_fd, path, flags)
    except OSError as error:
        if error.errno in (errno.EXDEV, errno.ELOOP):
            raise outside(path, root) from None
        raise


def open_anywhere(path: str, flags: int) -> int:
    """A handle for an absolute path. Links of `/proc` into open files are not followed: what they
    lead to cannot be told before they are opened."""
    flags |= os.O_CLOEXEC
    if _has_openat2():
        return _openat2(_AT_FDCWD, path, flags, _RESOLVE_NO_MAGICLINKS)
    real = os.path.realpath(path)
    if any(each.startswith(("/proc/", "/dev/fd/")) for each in (os.path.abspath(path), real)):
        raise OSError(errno.ELOOP, "leads through open files", path)
    return os.open(real, flags)


def _openat2(root_fd: int, path: str, flags: int, resolve: int = _HELD) -> int:
    how = _OpenHow(flags, 0, resolve)
    for _ in range(64):
        fd = int(
            _libc().syscall(
                _SYS_OPENAT2, root_fd, os.fsencode(path), ctypes.byref(how), ctypes.sizeof(how)
            )
        )
        if fd >= 0:
            return fd
        code = ctypes.get_errno()
        # EAGAIN: something was renamed while the kernel looked; it could not be sure.
        if code not in (errno.EAGAIN, errno.EINTR):
            raise OSError(code, os.strerror(code), path)
    raise OSError(errno.EXDEV, "the path keeps changing", path)


def _open_by_hand(root_fd: int, path: str, flags: int) -> int:
    parts = [part for part in path.split("/") if part not in ("", ".")]
    if ".." in parts:
        raise OSError(errno.EXDEV, "goes up", path)
    here = os.dup(root_fd)
    try:
        for part in parts[:-1]:
            below = os.open(part, os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC, dir_fd=here)
            os.close(here)
            here = below
        return os.open(parts[-1] if parts else ".", flags | os.O_NOFOLLOW, dir_fd=here)
    finally:
        os.close(here)


@functools.cache
def _libc() -> ctypes.CDLL:
    return ctypes.CDLL(None, use_errno=True)


@functools.cache
def _has_openat2() -> bool:
    """Whether the kernel knows the call; asked once, with a path that cannot do harm."""
    if platform.system() != "Linux":
        return False
    here = os.open("/", O_PATH | os.O_CLOEXEC)
    try:
        os.close(_openat2(here, ".", O_PATH | os.O_CLOEXEC))
    except OSError:
        return False
    finally:
        os.close(here)
    return True
