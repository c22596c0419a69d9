"""Seccomp: deny system calls to a thread and every program that it starts.

Landlock covers TCP and files. Without this, a confined program could still connect to a daemon of
the user over a Unix socket, send UDP, or attack the kernel with rarely used calls. socketpair,
which programs use internally, stays allowed for sockets that cannot be connected to others.
"""

from __future__ import annotations

import ctypes
import errno
import fcntl
import functools
import os
import resource
import struct
import sys

from clawkit.process.libc import check, libc, no_new_privileges
from clawkit.process.process_table import MARK

_PR_SET_SECCOMP, _FILTER_MODE = 22, 2
_SET_FILTER, _NEW_LISTENER = 1, 1 << 3
_LOAD, _AND, _RETURN = 0x20, 0x54, 0x06
_JUMP_EQUAL, _JUMP_GREATER_EQUAL, _JUMP_SET = 0x15, 0x35, 0x45
_ALLOW, _FAIL, _NOTIFY = 0x7FFF0000, 0x00050000, 0x7FC00000
_RECEIVE, _ANSWER = 0xC0502100, 0xC0182101
_NUMBER_AT, _ARCH_AT, _ARGUMENTS_AT = 0, 4, 16
_OTHER_ABI = 0x40000000
"""First system call number of the x32 ABI, which no ordinary program uses."""
_OPENAT2 = 437
"""Its flags are in memory, which a filter cannot read; programs fall back to openat."""
_CLONE3 = 435
"""The same problem; the C library falls back to clone."""
_NAMESPACES = 0x7E020080
"""The flags of clone that create namespaces."""
_TYPING = (0x5412, 0x541C)
"""The ioctls that put input into a terminal: TIOCSTI and TIOCLINUX."""
_KINDS, _OF_FILE_SYSTEMS = 0xFF00, (0x9400, 0xBC00)
"""The ioctls of btrfs and bcachefs. They act below all mounts and Landlock rules: a snapshot of the
home directory has the files that are hidden there."""
_CLONES = (0x40049409, 0x4020940D, 0xC0189436)
"""FICLONE, FICLONERANGE and FIDEDUPERANGE, which have numbers of btrfs: every file system that
shares data between files knows them, and they only get files that are open."""
_UNIX, _INET, _INET6, _NETLINK = 1, 2, 10, 16
_STREAM, _DATAGRAM, _PACKETS = 1, 2, 5
_FIXED = (resource.RLIMIT_DATA, resource.RLIMIT_FSIZE, resource.RLIMIT_NPROC, MARK)
"""The limits that clawkit sets for commands."""

_NEW = (452, 463, 466)
"""fchmodat2, setxattrat and removexattrat, with the same numbers on all architectures."""
_PRIVILEGED = (*range(425, 434), 438, 442)
"""io_uring, the new mount calls and pidfd_getfd, with the same numbers on all architectures."""


class _X86:
    """The audit name of an architecture, and the numbers of its system calls."""

    name = 0xC000003E
    seccomp, socket, clone, ioctl, memfd = 317, 41, 56, 16, 319
    pair, limit, own_limit = 53, 302, 160  # socketpair, prlimit64, setrlimit
    shared: tuple[int, ...] = (*range(29, 32), *range(64, 72), 220, 240, 241)
    """Calls for System V shared memory, semaphores and queues, and POSIX queues."""
    changes: tuple[int, ...] = (
        *(76, 85, 132, 235, 260, 261, 268, 280, 304),
        *(*range(90, 95), *range(188, 191), *range(197, 200), *_NEW),
    )
    """Calls that truncate a file by its path, or change its mode, owner, times or attributes."""
    opens: tuple[tuple[int, int], ...] = ((257, 2), (2, 1))
    """Calls that open a file, and the index of the argument with the flags."""
    privileged: tuple[int, ...] = (
        *(101, 310, 311, 312, 272, 308, 165, 166, 155, 161, 321, 298, 323, 248, 249, 250),
        *(175, 313, 176, 246, 320, 169, 167, 168, 163, 103, 179, 164, 227, 159, 305, 170, 171),
        *(153, 304, 172, 173, *_PRIVILEGED),
    )
    """Calls that debug other programs, create namespaces and mounts, or administer the machine:
    ptrace, process_vm_*, kcmp, unshare, setns, mount, umount2, pivot_root, chroot, bpf,
    perf_event_open, userfaultfd, the keyring, modules, kexec, reboot, swap, acct, syslog, quotactl,
    clocks, host names, vhangup, open_by_handle_at."""


class _Arm(_X86):
    name = 0xC00000B7
    seccomp, socket, clone, ioctl, memfd = 277, 198, 220, 29, 279
    pair, limit, own_limit = 199, 261, 164
    shared = (180, 181, *range(186, 198))
    changes = (45, 265, *range(52, 56), 88, *range(5, 8), *range(14, 17), *_NEW)
    opens = ((56, 2),)
    privileged = (
        *(117, 270, 271, 272, 97, 268, 40, 39, 41, 51, 280, 241, 282, 217, 218, 219),
        *(105, 273, 106, 104, 294, 142, 224, 225, 89, 116, 60, 170, 112, 171, 266, 161, 162),
        *(58, 265, *_PRIVILEGED),
    )


_ARCHES: dict[str, type[_X86]] = {"x86_64": _X86, "aarch64": _Arm}
_Step = tuple[int, int, int, int]
_ALLOWED: _Step = (_RETURN, 0, 0, _ALLOW)


class _Program(ctypes.Structure):
    _fields_ = (("length", ctypes.c_uint16), ("filter", ctypes.c_char_p))


def available() -> bool:
    """Whether the system call numbers of this machine are known."""
    return sys.platform == "linux" and os.uname().machine in _ARCHES


@functools.cache
def make_filter(
    *,
    internet: bool = False,
    unix: bool = False,
    changes: bool = False,
    notify: bool = False,
    named: bool = False,
    separate: bool = False,
    limited: bool = False,
) -> bytes:
    """A filter for `enter`. `internet` and `unix` are the sockets that may be created. `changes`
    also denies truncating files and changing their modes, owners, times and attributes; `notify`
    reports attempts to use the network; `named` denies files in memory, which could be executed
    without a path. Unless namespaces `separate` it from other processes, it can neither share
    memory with them nor set their limits, which kills them. `limited` denies changing those limits
    that the server sets for commands."""
    arch = _ARCHES[os.uname().machine]
    steps: list[_Step] = [
        (_LOAD, 0, 0, _ARCH_AT),
        (_JUMP_EQUAL, 1, 0, arch.name),
        _fail(errno.EPERM),
        (_LOAD, 0, 0, _NUMBER_AT),
        (_JUMP_GREATER_EQUAL, 0, 1, _OTHER_ABI),
        _fail(errno.EPERM),
    ]
    # The most frequent calls come first.
    for number, argument in arch.opens if changes else ():
        truncates = [(_JUMP_SET, 0, 1, os.O_TRUNC), _fail(errno.EACCES)]
        steps += _on(number, [_argument(argument), *truncates, _ALLOWED])
    steps += _on(arch.ioctl, _judge_ioctl())
    namespaces = [(_JUMP_SET, 0, 1, _NAMESPACES), _fail(errno.EPERM)]
    steps += _on(arch.clone, [_argument(0), *namespaces, _ALLOWED])
    steps += _on(arch.socket, _judge_socket(internet, unix, notify))
    steps += _on(arch.pair, _judge_pair(unix))
    if not separate:
        steps += _on(arch.limit, _judge_limit(limited))
    if limited:
        steps += _on(arch.own_limit, [_argument(0), *_judge_kind()])
    refused = (*arch.privileged, *(arch.changes if changes else ()))
    refused += () if separate else arch.shared
    for number in (*refused, arch.memfd) if named else refused:
        steps += _on(number, [_fail(errno.EPERM)])
    for number in (_CLONE3, _OPENAT2) if changes else (_CLONE3,):
        steps += _on(number, [_fail(errno.ENOSYS)])
    steps.append(_ALLOWED)
    return b"".join(struct.pack("HBBI", *step) for step in steps)


def enter(filter_: bytes, *, listen: bool = False) -> int:
    """Install the filter permanently, for the calling thread and every program that it starts from
    now on. With `listen`, returns a descriptor for `answer`. Raises OSError."""
    program = _Program(len(filter_) // 8, filter_)
    no_new_privileges()
    if listen:
        number = _ARCHES[os.uname().machine].seccomp
        result = libc().syscall(number, _SET_FILTER, _NEW_LISTENER, ctypes.byref(program))
    else:
        result = libc().prctl(_PR_SET_SECCOMP, _FILTER_MODE, ctypes.byref(program), 0, 0)
    return check(result, "seccomp")


def answer(listener: int) -> bool:
    """Deny a reported call that is pending; returns whether there was one. Raises OSError if no
    process with the filter is left."""
    try:
        call = fcntl.ioctl(listener, _RECEIVE, bytes(80))
        [id_] = struct.unpack_from("Q", call)
        fcntl.ioctl(listener, _ANSWER, struct.pack("QqiI", id_, 0, -errno.EACCES, 0))
    except OSError as error:
        if error.errno in (errno.ENOENT, errno.EINTR):  # the caller ended in the meantime
            return False
        raise
    return True


def _fail(number: int) -> _Step:
    return (_RETURN, 0, 0, _FAIL | number)


def _argument(index: int) -> _Step:
    return (_LOAD, 0, 0, _ARGUMENTS_AT + 8 * index)


def _judge_ioctl() -> list[_Step]:
    refused = [_fail(errno.EPERM)]
    steps = [step for each in _TYPING for step in _on(each, refused)]
    steps += [step for each in _CLONES for step in _on(each, [_ALLOWED])]
    kinds = [step for each in _OF_FILE_SYSTEMS for step in _on(each, refused)]
    return [_argument(1), *steps, (_AND, 0, 0, _KINDS), *kinds, _ALLOWED]


def _judge_socket(internet: bool, unix: bool, notify: bool) -> list[_Step]:
    denied = _fail(errno.EACCES)
    steps: list[_Step] = [_argument(0)]
    if notify:  # not for Unix sockets: most programs try one for name lookups
        for family in (_INET, _INET6):
            steps += _on(family, [(_RETURN, 0, 0, _NOTIFY)])
    if unix:
        steps += _on(_UNIX, [_ALLOWED])
    if internet:
        # Of the netlink sockets, only NETLINK_ROUTE, with which programs list addresses.
        steps += _on(_NETLINK, [_argument(2), *_on(0, [_ALLOWED]), denied])
        kinds = [_argument(1), (_AND, 0, 0, 0xF)]
        kinds += [*_on(_STREAM, [_ALLOWED]), *_on(_DATAGRAM, [_ALLOWED]), denied]
        for family in (_INET, _INET6):
            steps += _on(family, kinds)
    return [*steps, denied]


def _judge_pair(unix: bool) -> list[_Step]:
    """One of a pair of datagram sockets can be connected to the socket of another program."""
    kinds = [_argument(1), (_AND, 0, 0, 0xF)]
    kinds += [*_on(_STREAM, [_ALLOWED]), *_on(_PACKETS, [_ALLOWED])]
    denied = _fail(errno.EACCES)
    return [_argument(0), *_on(_UNIX, [_ALLOWED] if unix else [*kinds, denied]), denied]


def _judge_limit(limited: bool) -> list[_Step]:
    """Whether it reads limits, or sets its own: if `limited`, only others than the fixed ones."""
    high_half = (_LOAD, 0, 0, _ARGUMENTS_AT + 8 * 2 + 4)
    has_no_new_limits = [_argument(2), *_on(0, [high_half, *_on(0, [_ALLOWED])])]
    kinds = [_argument(1), *_judge_kind()] if limited else [_ALLOWED]
    is_own = [_argument(0), *_on(0, kinds)]
    return [*has_no_new_limits, *is_own, _fail(errno.EPERM)]


def _judge_kind() -> list[_Step]:
    """Refuse the fixed limits. Until the server has lowered the hard ones, just after the start, a
    command could raise them for its children."""
    return [*(step for each in _FIXED for step in _on(each, [_fail(errno.EPERM)])), _ALLOWED]


def _on(value: int, body: list[_Step]) -> list[_Step]:
    """Run `body`, which must return, if the loaded value equals `value`."""
    return [(_JUMP_EQUAL, 0, len(body), value), *body]
