"""Files that are either the old ones or the new ones, never half of each.

Everything here raises OSError: what the system said, or a refusal in the same form, so that a
caller has one thing to catch.
"""

from __future__ import annotations

import errno
import os
import stat
from contextlib import suppress
from itertools import pairwise

_READ = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
_CREATE = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC


def write_atomic(path: str | os.PathLike[str], data: bytes, *, mode: int = 0o600) -> None:
    """Replaces the file at `path`, or makes it; on any failure it is as it was.

    The new file has `mode` without the bits that an existing one lacks, and, when root writes,
    the owner of the existing one. Symbolic links and anything but a regular file are refused.
    Returns after the data and the directory entry are on disk.
    """
    folder, name = os.path.split(os.fspath(path))
    folder_fd = os.open(folder or ".", os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        old = _stat_regular(name, folder_fd, path)
        temp = f".clawkit-{os.urandom(8).hex()}.tmp"
        placed = False
        try:
            fd = os.open(temp, _CREATE, 0o600, dir_fd=folder_fd)
            with os.fdopen(fd, "wb", buffering=0):
                _fill(fd, data, mode, old)
            os.replace(temp, name, src_dir_fd=folder_fd, dst_dir_fd=folder_fd)
            placed = True
        finally:
            if not placed:
                with suppress(OSError):
                    os.unlink(temp, dir_fd=folder_fd)
        os.fsync(folder_fd)
    finally:
        os.close(folder_fd)


def _fill(fd: int, data: bytes, mode: int, old: os.stat_result | None) -> None:
    if old:
        mode &= old.st_mode
        if os.geteuid() == 0 != old.st_uid:
            os.fchown(fd, old.st_uid, old.st_gid)
    rest = memoryview(data)
    while rest:
        rest = rest[os.write(fd, rest) :]
    os.fchmod(fd, mode & 0o777)
    os.fsync(fd)


def _stat_regular(
    name: str, folder_fd: int | None, path: str | os.PathLike[str]
) -> os.stat_result | None:
    """What is at `name`: a regular file, or None for nothing. Anything else is refused."""
    try:
        info = os.stat(name, dir_fd=folder_fd, follow_symlinks=False)
    except FileNotFoundError:
        if name:
            return None
        raise
    if stat.S_ISLNK(info.st_mode):
        raise OSError(errno.ELOOP, "is a symbolic link; give the path of the file itself", path)
    if stat.S_ISDIR(info.st_mode):
        raise IsADirectoryError(errno.EISDIR, "is a directory, not a file", path)
    if not stat.S_ISREG(info.st_mode):
        raise OSError(errno.EINVAL, "is not a regular file", path)
    return info


def private_dir(path: str | os.PathLike[str]) -> None:
    """Makes a directory, and missing parents, that only the owner can enter.

    One that exists is left as it is, and refused when others could change what is in it.
    """
    missing = os.path.abspath(path)
    to_make: list[str] = []
    while not os.path.lexists(missing):
        to_make.append(missing)
        missing = os.path.dirname(missing)
    for folder in reversed(to_make):
        with suppress(FileExistsError):
            os.mkdir(folder, 0o700)
    info = os.stat(path)
    if not stat.S_ISDIR(info.st_mode):
        raise NotADirectoryError(errno.ENOTDIR, "is not a directory", path)
    if os.geteuid() not in (0, info.st_uid):
        raise PermissionError(errno.EPERM, "belongs to another user", path)
    if info.st_mode & 0o022:
        raise PermissionError(errno.EPERM, "can be written by others; run `chmod go-w` on it", path)


def why_foreign(info: os.stat_result) -> str:
    """Why others may have written a file; empty when only its user, or root, can have."""
    if os.geteuid() != 0 and info.st_uid not in (0, os.geteuid()):
        return "belongs to another user"
    return "can be written by others" if info.st_mode & 0o022 else ""


def rotate_backups(path: str | os.PathLike[str], keep: int = 5) -> None:
    """Copies the file to `.bak` and what was there to `.bak.1`, up to `keep` in all.

    Without a file there is nothing to do. The copies have the mode of the file, 0600 at most.
    """
    info = _stat_regular(os.fspath(path), None, path)
    if not info:
        return
    with os.fdopen(os.open(path, _READ), "rb") as file:
        data = file.read()
    first = f"{os.fspath(path)}.bak"
    names = [first, *(f"{first}.{number}" for number in range(1, keep))]
    for newer, older in reversed(list(pairwise(names))):
        if os.path.lexists(newer):
            os.replace(newer, older)
    write_atomic(first, data, mode=info.st_mode & 0o600)
