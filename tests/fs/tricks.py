"""Races, full disks, and a kernel that refuses: real ones, for the thread they are needed in."""

from __future__ import annotations

import contextlib
import ctypes
import errno
import functools
import gc
import os
import platform
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TypeVar

import pytest
from tests.lacking import lack

from clawkit.fs import containment

T = TypeVar("T")

_OPENAT2 = 437
_OPENAT, _LINKAT, _RENAMEAT2 = {"x86_64": (257, 265, 316), "aarch64": (56, 37, 276)}.get(
    platform.machine(), (-1, -1, -1)
)
_PR_SET_SECCOMP, _PR_SET_NO_NEW_PRIVS, _FILTER_MODE = 22, 38, 2
_LOAD, _JUMP_IF_EQUAL, _JUMP_IF_SET, _RETURN = 0x20, 0x15, 0x45, 0x06
_ALLOW, _FAIL_WITH = 0x7FFF0000, 0x00050000
_NUMBER_AT, _ARGUMENTS_AT = 0, 16
_TMPFILE = os.O_TMPFILE & ~os.O_DIRECTORY


class _Instruction(ctypes.Structure):
    _fields_ = (
        ("code", ctypes.c_uint16),
        ("jt", ctypes.c_uint8),
        ("jf", ctypes.c_uint8),
        ("k", ctypes.c_uint32),
    )


class _Program(ctypes.Structure):
    _fields_ = (("len", ctypes.c_uint16), ("filter", ctypes.POINTER(_Instruction)))


_REAL = os.uname()


def on(system: str) -> os.uname_result:
    """What `os.uname` says on another system."""
    return os.uname_result((system, *_REAL[1:]))


@contextlib.contextmanager
def resolving_by_hand() -> Iterator[None]:
    """The kernel does not resolve paths for us: every part of a path is opened by hand."""
    containment._has_openat2.cache_clear()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(os, "uname", lambda: on("Darwin"))
        assert not containment._has_openat2()
        yield
    containment._has_openat2.cache_clear()


def with_failing_openat2(error: int, work: Callable[[], T]) -> T:
    """The work's result, done where every openat2 fails with that error."""
    return _in_thread(lambda: _refuse(_OPENAT2, error), work)


def without_hard_links(work: Callable[[], T]) -> T:
    """The work's result, done where no file can have a second name."""
    return _in_thread(lambda: _refuse(_LINKAT, errno.EPERM), work)


def without_nameless_files(work: Callable[[], T]) -> T:
    """The work's result, done where every file has a name."""
    return _in_thread(lambda: _refuse(_OPENAT, errno.EOPNOTSUPP, 3, _TMPFILE), work)


def without_trading_names(work: Callable[[], T]) -> T:
    """The result of the work, done in a thread where renameat2 supports no flags."""
    return _in_thread(lambda: _refuse(_RENAMEAT2, errno.EINVAL, 5, 3), work)


def on_the_poorest_file_system(work: Callable[[], T]) -> T:
    """The result of the work, done in a thread where none of these operations work."""
    return _in_thread(become_poor, work)


def become_poor() -> None:
    """For the calling thread, and all that it starts, file systems can do little from now on."""
    _refuse(_LINKAT, errno.EPERM)
    _refuse(_OPENAT, errno.EOPNOTSUPP, 3, _TMPFILE)
    _refuse(_RENAMEAT2, errno.EINVAL, 5, 3)


def without_privileges(work: Callable[[], T]) -> T:
    """The work's result, done where even the superuser is held to the permissions of files."""
    return _in_thread(_drop_capabilities, work)


def _in_thread(prepare: Callable[[], None], work: Callable[[], T]) -> T:
    outcome: list[T] = []
    failure: list[BaseException] = []

    def body() -> None:
        try:
            prepare()
            outcome.append(work())
        except BaseException as raised:  # noqa: BLE001  # handed to the one who waits
            failure.append(raised)

    thread = threading.Thread(target=body)
    thread.start()
    thread.join()
    if failure:
        raise failure[0]
    return outcome[0]


def _drop_capabilities() -> None:
    header = (ctypes.c_uint32 * 2)(0x20080522, 0)
    _succeed(ctypes.CDLL(None, use_errno=True).capset(header, (ctypes.c_uint32 * 6)()))


def _refuse(number: int, error: int, argument: int = 0, flags: int = 0) -> None:
    """A system call fails from now on; or only when an argument of it has one of the flags."""
    at = _ARGUMENTS_AT + 8 * (argument - 1)
    only = ((_LOAD, 0, 0, at), (_JUMP_IF_SET, 0, 1, flags)) if flags else ()
    steps = (
        (_LOAD, 0, 0, _NUMBER_AT),
        (_JUMP_IF_EQUAL, 0, len(only) + 1, number),
        *only,
        (_RETURN, 0, 0, _FAIL_WITH | error),
        (_RETURN, 0, 0, _ALLOW),
    )
    code = (_Instruction * len(steps))(*(_Instruction(*step) for step in steps))
    libc = ctypes.CDLL(None, use_errno=True)
    for arguments in (
        (_PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0),
        (_PR_SET_SECCOMP, _FILTER_MODE, ctypes.byref(_Program(len(steps), code)), 0, 0),
    ):
        _succeed(libc.prctl(*arguments))


def _succeed(code: int) -> None:
    if code != 0:
        raise OSError(ctypes.get_errno(), "the kernel does not let this test prepare itself")


_listeners: list[Callable[[str, tuple[object, ...]], None]] = []


@functools.cache
def _listen() -> None:
    """A hook of the interpreter cannot be taken back, so there is one for all tests."""

    def hear(event: str, arguments: tuple[object, ...]) -> None:
        for listener in tuple(_listeners):
            listener(event, arguments)

    sys.addaudithook(hear)


@contextlib.contextmanager
def just_before(event: str, name: str, act: Callable[[], object], skip: int = 0) -> Iterator[None]:
    """Do something at the moment before the interpreter makes such a system call about such a name:
    `os.link`, `os.rename`, `os.remove`, `os.mkdir`, `open`. What it raises, the call raises."""
    left = skip

    def listener(heard: str, arguments: tuple[object, ...]) -> None:
        nonlocal left
        if heard != event or not any(str(each).endswith(name) for each in arguments):
            return
        if left:
            left -= 1
            return
        _listeners.remove(listener)
        act()

    _listen()
    _listeners.append(listener)
    try:
        yield
        assert listener not in _listeners, f"there was no {event} of {name!r}"
    finally:
        if listener in _listeners:
            _listeners.remove(listener)


def fail(error: int) -> Callable[[], None]:
    """Something for `just_before`: the call fails."""

    def act() -> None:
        raise OSError(error, os.strerror(error))

    return act


@contextlib.contextmanager
def small_disk(place: Path, size: str = "256k") -> Iterator[Path]:
    """A disk of its own that is soon full."""
    place.mkdir()
    options = f"size={size},mode=755"
    made = subprocess.run(["mount", "-t", "tmpfs", "-o", options, "none", str(place)], check=False)
    if made.returncode:
        lack("no disk can be mounted here")
    try:
        yield place
    finally:
        subprocess.run(["umount", "-l", str(place)], check=True)


def open_handles() -> int:
    """How many files this process has open, but for those that only garbage holds."""
    gc.collect()
    return len(os.listdir("/proc/self/fd"))


@contextlib.contextmanager
def swapping(root: Path) -> Iterator[None]:
    """`dir` turns from a directory into a link to the outside and back, as fast as it can."""
    stop = threading.Event()
    aside, link, place = root / "aside", root / "link", root / "dir"
    link.symlink_to("../outside")

    def swap() -> None:
        while not stop.is_set():
            place.rename(aside)
            link.rename(place)
            place.rename(link)
            aside.rename(place)

    thread = threading.Thread(target=swap)
    thread.start()
    try:
        yield
    finally:
        stop.set()
        thread.join()
