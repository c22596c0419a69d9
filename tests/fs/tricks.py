"""Races, and a kernel that refuses: real ones, for the thread they are needed in."""

from __future__ import annotations

import contextlib
import ctypes
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TypeVar

T = TypeVar("T")

_OPENAT2 = 437
_PR_SET_SECCOMP, _PR_SET_NO_NEW_PRIVS, _FILTER_MODE = 22, 38, 2
_LOAD_NUMBER, _JUMP_IF_EQUAL, _RETURN = 0x20, 0x15, 0x06
_ALLOW, _FAIL_WITH = 0x7FFF0000, 0x00050000


class _Instruction(ctypes.Structure):
    _fields_ = (
        ("code", ctypes.c_uint16),
        ("jt", ctypes.c_uint8),
        ("jf", ctypes.c_uint8),
        ("k", ctypes.c_uint32),
    )


class _Program(ctypes.Structure):
    _fields_ = (("len", ctypes.c_uint16), ("filter", ctypes.POINTER(_Instruction)))


def with_failing_openat2(error: int, work: Callable[[], T]) -> T:
    """The work's result, done where every openat2 fails with that error."""
    return _in_thread(lambda: _install(error), work)


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


def _install(error: int) -> None:
    code = (_Instruction * 4)(
        _Instruction(_LOAD_NUMBER, 0, 0, 0),
        _Instruction(_JUMP_IF_EQUAL, 0, 1, _OPENAT2),
        _Instruction(_RETURN, 0, 0, _FAIL_WITH | error),
        _Instruction(_RETURN, 0, 0, _ALLOW),
    )
    libc = ctypes.CDLL(None, use_errno=True)
    for arguments in (
        (_PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0),
        (_PR_SET_SECCOMP, _FILTER_MODE, ctypes.byref(_Program(4, code)), 0, 0),
    ):
        _succeed(libc.prctl(*arguments))


def _succeed(code: int) -> None:
    if code != 0:
        raise OSError(ctypes.get_errno(), "the kernel does not let this test prepare itself")


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
