"""Functions of the C library that `os` lacks, and what they set for the calling process."""

from __future__ import annotations

import ctypes
import functools
import os

_PR_SET_DUMPABLE, _PR_SET_NO_NEW_PRIVS = 4, 38


@functools.cache
def libc() -> ctypes.CDLL:
    return ctypes.CDLL(None, use_errno=True)


def check(code: int, operation: str) -> int:
    """Return the result of a system call; raises OSError if it failed."""
    if code < 0:
        error = ctypes.get_errno()
        raise OSError(error, f"{operation}: {os.strerror(error)}")
    return code


def no_new_privileges() -> None:
    """Keep the calling thread, and what it starts, from gaining privileges by setuid programs."""
    check(libc().prctl(_PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0), "no_new_privs")


def hide_memory() -> None:
    """Prevent other programs of the user, such as commands, from reading our memory and
    environment, or tracing us. Root still can."""
    libc().prctl(_PR_SET_DUMPABLE, 0, 0, 0, 0)
