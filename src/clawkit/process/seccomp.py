"""Seccomp: system calls that a thread, and every program it starts, can no longer make.

Landlock knows TCP and files; without this, a held program could still talk to a daemon of the user
over a socket file, send UDP, or reach into the kernel by calls that few programs need. Pairs of
connected sockets, which programs use to talk to themselves, are another system call and stay.
"""

from __future__ import annotations

import ctypes
import errno
import fcntl
import functools
import os
import platform
import struct
from typing import NamedTuple

from clawkit.process.landlock import check, libc, no_new_privileges

_PR_SET_SECCOMP, _FILTER_MODE = 22, 2
_SET_FILTER, _NEW_LISTENER = 1, 1 << 3
_LOAD, _AND, _RETURN = 0x20, 0x54, 0x06
_JUMP_EQUAL, _JUMP_GREATER_EQUAL, _JUMP_SET = 0x15, 0x35, 0x45
_ALLOW, _FAIL, _NOTIFY = 0x7FFF0000, 0x00050000, 0x7FC00000
_RECEIVE, _ANSWER = 0xC0502100, 0xC0182101
_NUMBER_AT, _ARCH_AT, _ARGUMENTS_AT = 0, 4, 16
_OTHER_ABI = 0x40000000
"""From here on the numbers of x86's third calling convention, which no ordinary program uses."""
_OPENAT2 = 437
"""Its flags lie where a filter cannot look; programs do without it where it is missing."""
_CLONE3 = 435
"""The same; the C library falls back to clone."""
_NAMESPACES = 0x7E020080
"""The flags of clone that make namespaces."""
_STEERING = (0x5412, 0x541C)
"""The ioctls by which a program types into its terminal: TIOCSTI and TIOCLINUX."""
_UNIX, _INET, _INET6, _NETLINK = 1, 2, 10, 16
_STREAM, _DATAGRAM = 1, 2


class Sockets(NamedTuple):
    """Which sockets may be made."""

    internet: bool = False
    unix: bool = False


class _Arch(NamedTuple):
    """What the kernel calls an architecture, and the numbers of its system calls."""

    name: int
    seccomp: int
    socket: int
    clone: int
    ioctl: int
    memfd: int
    changes: tuple[int, ...]
    """Those that truncate a file by its name, or change its mode, owner, times or attributes."""
    opens: tuple[tuple[int, int], ...]
    """Those that open a file, and which argument has the flags."""
    privileged: tuple[int, ...]
    """Those that debug other programs, make namespaces and mounts, or administer the machine:
    ptrace, process_vm_*, kcmp, unshare, setns, mount, umount2, pivot_root, chroot, bpf,
    perf_event_open, userfaultfd, the keyring, modules, kexec, reboot, swap, acct, syslog, quotactl,
    clocks, host names, vhangup, open_by_handle_at."""


_NEW = (452, 463, 466)
"""fchmodat2, setxattrat and removexattrat have the same numbers everywhere."""
_PRIVILEGED = (*range(425, 434), 438, 442)
"""The same everywhere: io_uring, the new mount calls, pidfd_getfd."""
_ARCHES = {
    "x86_64": _Arch(
        0xC000003E,
        *(317, 41, 56, 16, 319),
        (
            *(76, 85, 132, 235, 260, 261, 268, 280, 304),
            *(*range(90, 95), *range(188, 191), *range(197, 200), *_NEW),
        ),
        ((257, 2), (2, 1)),
        (
            *(101, 310, 311, 312, 272, 308, 165, 166, 155, 161, 321, 298, 323, 248, 249, 250),
            *(175, 313, 176, 246, 320, 169, 167, 168, 163, 103, 179, 164, 227, 159, 305, 170, 171),
            *(153, 304, 172, 173, *_PRIVILEGED),
        ),
    ),
    "aarch64": _Arch(
        0xC00000B7,
        *(277, 198, 220, 29, 279),
        (45, 265, *range(52, 56), 88, *range(5, 8), *range(14, 17), *_NEW),
        ((56, 2),),
        (
            *(117, 270, 271, 272, 97, 268, 40, 39, 41, 51, 280, 241, 282, 217, 218, 219),
            *(105, 273, 106, 104, 294, 142, 224, 225, 89, 116, 60, 170, 112, 171, 266, 161, 162),
            *(58, 265, *_PRIVILEGED),
        ),
    ),
}
_Step = tuple[int, int, int, int]
_ALLOWED: _Step = (_RETURN, 0, 0, _ALLOW)


class _Program(ctypes.Structure):
    _fields_ = (("length", ctypes.c_uint16), ("filter", ctypes.c_char_p))


def available() -> bool:
    """Whether the numbers of this machine's system calls are known."""
    return platform.system() == "Linux" and platform.machine() in _ARCHES


def forbid_sockets(*, changes: bool = False) -> None:
    """Let the calling thread, permanently, and every program that it starts from now on, make no
    sockets; with `changes`, neither truncate files nor change their modes, owners, times or
    attributes. Raises OSError when the kernel cannot."""
    enter(make_filter(Sockets(), changes=changes))


@functools.cache
def make_filter(
    sockets: Sockets, *, changes: bool = False, notify: bool = False, named: bool = False
) -> bytes:
    """A filter for `enter`. With `changes`, files can also not be truncated or their modes, owners,
    times and attributes be changed; with `notify`, attempts to use the network are reported; with
    `named`, no files can be made in memory, which could be started without a name."""
    arch = _ARCHES[platform.machine()]
    steps: list[_Step] = [
        (_LOAD, 0, 0, _ARCH_AT),
        (_JUMP_EQUAL, 1, 0, arch.name),
        _fail(errno.EPERM),
        (_LOAD, 0, 0, _NUMBER_AT),
        (_JUMP_GREATER_EQUAL, 0, 1, _OTHER_ABI),
        _fail(errno.EPERM),
    ]
    # What is called most often is asked about first.
    for number, argument in arch.opens if changes else ():
        truncates = [(_JUMP_SET, 0, 1, os.O_TRUNC), _fail(errno.EACCES)]
        steps += _on(number, [_argument(argument), *truncates, _ALLOWED])
    steers = [step for each in _STEERING for step in _on(each, [_fail(errno.EPERM)])]
    steps += _on(arch.ioctl, [_argument(1), *steers, _ALLOWED])
    namespaces = [(_JUMP_SET, 0, 1, _NAMESPACES), _fail(errno.EPERM)]
    steps += _on(arch.clone, [_argument(0), *namespaces, _ALLOWED])
    steps += _on(arch.socket, _judge_socket(sockets, notify))
    refused = (*arch.privileged, *(arch.changes if changes else ()))
    for number in (*refused, arch.memfd) if named else refused:
        steps += _on(number, [_fail(errno.EPERM)])
    for number in (_CLONE3, _OPENAT2) if changes else (_CLONE3,):
        steps += _on(number, [_fail(errno.ENOSYS)])
    steps.append(_ALLOWED)
    return b"".join(struct.pack("HBBI", *step) for step in steps)


def enter(filter_: bytes, *, listen: bool = False) -> int:
    """Hold the calling thread, permanently, and every program that it starts from now on. With
    `listen`, a handle on which reported calls can be taken with `answer`. Raises OSError when the
    kernel cannot."""
    program = _Program(len(filter_) // 8, filter_)
    no_new_privileges()
    if listen:
        number = _ARCHES[platform.machine()].seccomp
        result = libc().syscall(number, _SET_FILTER, _NEW_LISTENER, ctypes.byref(program))
    else:
        result = libc().prctl(_PR_SET_SECCOMP, _FILTER_MODE, ctypes.byref(program), 0, 0)
    return check(result, "seccomp")


def answer(listener: int) -> bool:
    """Take a call that waits and refuse it; whether there was one. Raises OSError when no program
    is left that could make one."""
    try:
        call = fcntl.ioctl(listener, _RECEIVE, bytes(80))
        [id_] = struct.unpack_from("Q", call)
        fcntl.ioctl(listener, _ANSWER, struct.pack("QqiI", id_, 0, -errno.EACCES, 0))
    except OSError as error:
        if error.errno in (errno.ENOENT, errno.EINTR):  # it ended before it was answered
            return False
        raise
    return True


def _fail(number: int) -> _Step:
    return (_RETURN, 0, 0, _FAIL | number)


def _argument(index: int) -> _Step:
    return (_LOAD, 0, 0, _ARGUMENTS_AT + 8 * index)


def _judge_socket(sockets: Sockets, notify: bool) -> list[_Step]:
    denied = _fail(errno.EACCES)
    steps: list[_Step] = [_argument(0)]
    if notify:  # not about Unix sockets: most programs look for a name service by one
        for family in (_INET, _INET6):
            steps += _on(family, [(_RETURN, 0, 0, _NOTIFY)])
    if sockets.unix:
        steps += _on(_UNIX, [_ALLOWED])
    if sockets.internet:
        # Of the netlink sockets, only the one by which programs list addresses.
        steps += _on(_NETLINK, [_argument(2), *_on(0, [_ALLOWED]), denied])
        kinds = [_argument(1), (_AND, 0, 0, 0xF)]
        kinds += [*_on(_STREAM, [_ALLOWED]), *_on(_DATAGRAM, [_ALLOWED]), denied]
        for family in (_INET, _INET6):
            steps += _on(family, kinds)
    return [*steps, denied]


def _on(value: int, body: list[_Step]) -> list[_Step]:
    """What is done when the value that was loaded last is this one; it must return."""
    return [(_JUMP_EQUAL, 0, len(body), value), *body]
