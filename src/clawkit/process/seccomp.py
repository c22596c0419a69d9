"""Seccomp: system calls that a thread, and every program it starts, can no longer make.

Landlock knows TCP and files; without this, a held program could still talk to a daemon of the user
over a socket file, or send UDP. Pairs of connected sockets, which programs use to talk to
themselves, are another system call and stay.
"""

from __future__ import annotations

import ctypes
import errno
import functools
import os
import platform
from typing import NamedTuple

_PR_SET_SECCOMP, _PR_SET_NO_NEW_PRIVS, _FILTER_MODE = 22, 38, 2
_LOAD, _JUMP_EQUAL, _JUMP_GREATER_EQUAL, _JUMP_SET, _RETURN = 0x20, 0x15, 0x35, 0x45, 0x06
_ALLOW, _FAIL = 0x7FFF0000, 0x00050000
_NUMBER_AT, _ARCH_AT, _ARGUMENTS_AT = 0, 4, 16
_OTHER_ABI = 0x40000000
"""From here on the numbers of x86's third calling convention, which no ordinary program uses."""
_IO_URING_SETUP = 425
"""Rings open sockets without the system call for it."""
_OPENAT2 = 437
"""Its flags lie where a filter cannot look; programs do without it where it is missing."""


class _Arch(NamedTuple):
    """What the kernel calls an architecture, and the numbers of its system calls."""

    name: int
    socket: int
    changes: tuple[int, ...]
    """Those that cut a file by its name, or change its mode, owner, times or attributes."""
    opens: tuple[tuple[int, int], ...]
    """Those that open a file, and which argument has the flags."""


_NEW = (452, 463, 466)
"""fchmodat2, setxattrat and removexattrat have the same numbers everywhere."""
_ARCHES = {
    "x86_64": _Arch(
        0xC000003E,
        41,
        (
            *(76, 85, 132, 235, 260, 261, 268, 280, 304),
            *(*range(90, 95), *range(188, 191), *range(197, 200), *_NEW),
        ),
        ((257, 2), (2, 1)),
    ),
    "aarch64": _Arch(
        0xC00000B7,
        198,
        (45, 265, *range(52, 56), 88, *range(5, 8), *range(14, 17), *_NEW),
        ((56, 2),),
    ),
}


class _Instruction(ctypes.Structure):
    _fields_ = (
        ("code", ctypes.c_uint16),
        ("if_true", ctypes.c_uint8),
        ("if_false", ctypes.c_uint8),
        ("value", ctypes.c_uint32),
    )


class _Program(ctypes.Structure):
    _fields_ = (("length", ctypes.c_uint16), ("filter", ctypes.POINTER(_Instruction)))


def available() -> bool:
    """Whether the numbers of this machine's system calls are known."""
    return platform.system() == "Linux" and platform.machine() in _ARCHES


def forbid_sockets(*, changes: bool = False) -> None:
    """Let the calling thread, for good, and every program that it starts from now on, make no
    sockets; with `changes`, neither cut files nor change their modes, owners, times or attributes.
    Raises OSError when the kernel cannot."""
    arch = _ARCHES[platform.machine()]
    refused = (arch.socket, _IO_URING_SETUP, *(arch.changes if changes else ()))
    refuse = (_RETURN, 0, 0, _FAIL | errno.EACCES)
    steps = [
        (_LOAD, 0, 0, _ARCH_AT),
        (_JUMP_EQUAL, 1, 0, arch.name),
        refuse,
        (_LOAD, 0, 0, _NUMBER_AT),
        (_JUMP_GREATER_EQUAL, 0, 1, _OTHER_ABI),
        refuse,
    ]
    # What is called most often is asked about first.
    for number, argument in arch.opens if changes else ():
        steps += [
            (_JUMP_EQUAL, 0, 4, number),
            (_LOAD, 0, 0, _ARGUMENTS_AT + 8 * argument),
            (_JUMP_SET, 0, 1, os.O_TRUNC),
            refuse,
            (_RETURN, 0, 0, _ALLOW),
        ]
    for number in refused:
        steps += [(_JUMP_EQUAL, 0, 1, number), refuse]
    if changes:
        steps += [(_JUMP_EQUAL, 0, 1, _OPENAT2), (_RETURN, 0, 0, _FAIL | errno.ENOSYS)]
    steps.append((_RETURN, 0, 0, _ALLOW))
    filter_ = (_Instruction * len(steps))(*(_Instruction(*step) for step in steps))
    program = _Program(len(steps), filter_)
    _check(_libc().prctl(_PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0))
    _check(_libc().prctl(_PR_SET_SECCOMP, _FILTER_MODE, ctypes.byref(program), 0, 0))


def _check(code: int) -> None:
    if code < 0:
        error = ctypes.get_errno()
        raise OSError(error, f"seccomp: {os.strerror(error)}")


@functools.cache
def _libc() -> ctypes.CDLL:
    return ctypes.CDLL(None, use_errno=True)
