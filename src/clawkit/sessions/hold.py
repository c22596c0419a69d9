"""One process at a time: a lock that is free again as soon as its holder is gone."""

from __future__ import annotations

import fcntl
import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress

from clawkit.errors import ConflictError, ToolError
from clawkit.store import private_dir

_FLAGS = os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC


@contextmanager
def hold(path: str, what: str) -> Iterator[None]:
    """Keep the lock at `path`. Raises `ConflictError` that names the process which has it."""
    try:
        fd = _take(path, what)
    except OSError as error:
        reason = f"{error.filename or path} {error.strerror}"
        raise ToolError(f"{what} cannot be kept for this process: {reason}") from error
    try:
        yield
    finally:
        os.close(fd)


def forget(path: str) -> None:
    """Remove a lock that this process holds; from then on, others can take it."""
    with suppress(FileNotFoundError):
        os.unlink(path)


def _take(path: str, what: str) -> int:
    private_dir(os.path.dirname(path))
    while True:
        fd = os.open(path, _FLAGS, 0o600)
        try:
            fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
            if _is_at(path, fd):
                os.ftruncate(fd, 0)
                os.pwrite(fd, b"%d\n" % os.getpid(), 0)
                return fd
        except BlockingIOError:
            who = _holder(fd)
            os.close(fd)
            raise ConflictError(f"{what} is in use by {who}; wait until it is done there") from None
        except OSError:
            os.close(fd)
            raise
        os.close(fd)  # somebody removed the file between opening and locking it


def _is_at(path: str, fd: int) -> bool:
    try:
        there = os.lstat(path)
    except FileNotFoundError:
        return False
    return os.path.samestat(there, os.fstat(fd))


def _holder(fd: int) -> str:
    pid = os.pread(fd, 20, 0).decode("ascii", "replace").strip()
    if not pid.isdigit():
        return "another process"
    return "this process" if int(pid) == os.getpid() else f"process {pid}"
