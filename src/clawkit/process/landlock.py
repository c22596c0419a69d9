"""Landlock: restrict a thread, and every program that it starts, to a list of paths."""

from __future__ import annotations

import ctypes
import functools
import os
import stat
import sys
from collections.abc import Iterable, Iterator
from contextlib import suppress
from typing import NamedTuple

from clawkit.process.libc import check, libc, no_new_privileges

# The same numbers on every architecture.
_CREATE_RULESET, _ADD_RULE, _RESTRICT_SELF = 444, 445, 446
_VERSION = 1
_PATH_BENEATH = 1

_EXECUTE, _WRITE_FILE, _READ_FILE, _READ_DIR = (1 << bit for bit in range(4))
_ALL_ACCESS = (1 << 13) - 1
_REFER, _TRUNCATE, _IOCTL_DEV = 1 << 13, 1 << 14, 1 << 15
_FILE_ACCESS = _EXECUTE | _WRITE_FILE | _READ_FILE | _TRUNCATE | _IOCTL_DEV
_SPECIAL = 1 << 6 | 1 << 11
"""Creating device nodes."""
_READ = _READ_FILE | _READ_DIR
_TCP = 0b11
_SCOPES = 0b11
"""Abstract sockets of programs outside, and signals to them."""

SYSTEM = ("/usr", "/lib", "/lib32", "/lib64", "/bin", "/sbin", "/etc/ld.so.cache")
"""Directories that system programs need: programs and libraries."""
HARMLESS = ("/dev/tty", "/dev/null", "/dev/zero", "/dev/full", "/dev/random", "/dev/urandom")


class Hold(NamedTuple):
    """What a confined program may access; everything else is denied. Missing paths are skipped.

    A path covers the file, or the whole directory, that it leads to at the start. Landlock does not
    cover modes, owners and times of files, and before Linux 6.2 not truncation.
    """

    read: tuple[str, ...] = ()
    """Read only; not executable."""
    run: tuple[str, ...] = ()
    """Read and execute."""
    write: tuple[str, ...] = ()
    """Read and write; not executable."""
    network: bool = False
    """Internet sockets, to any host."""
    sockets: bool = False
    """Unix sockets of programs outside."""
    hide: tuple[str, ...] = ()
    """Denied, although they are below an accessible path."""
    keep: tuple[str, ...] = ()
    """Read only, although they are below a writable path. Not enforced by Landlock."""
    hosts: tuple[str, ...] | None = None
    """The only hosts that can be reached, through a proxy; None for no proxy. Not enforced by
    Landlock."""
    private: tuple[str, ...] = ()
    """With `hosts`: private addresses that can be reached."""
    max_memory: int = 0
    """Bytes of private memory per process; 0 for no limit."""
    max_file: int = 0
    """Maximum size of a file, in bytes; 0 for no limit."""


class _Ruleset(ctypes.Structure):
    _fields_ = (("fs", ctypes.c_uint64), ("net", ctypes.c_uint64), ("scoped", ctypes.c_uint64))


class _Beneath(ctypes.Structure):
    _pack_ = 1
    _layout_ = "ms"
    _fields_ = (("access", ctypes.c_uint64), ("fd", ctypes.c_int32))


@functools.cache
def abi() -> int:
    """The kernel's Landlock ABI version; 0 for none."""
    if sys.platform != "linux":
        return 0
    return max(0, int(libc().syscall(_CREATE_RULESET, None, 0, _VERSION)))


def available() -> bool:
    return abi() > 0


def make_rules(hold: Hold, *, truncate: bool = True, tty: str = "") -> int:
    """A ruleset for a hold: a descriptor for `enter`, which the caller closes.

    Without `truncate`, truncation by path and device ioctls must be prevented elsewhere. `tty` is
    the terminal of the command. Raises OSError if the kernel cannot enforce it.
    """
    version = abi()
    if not version:
        raise OSError("this kernel has no Landlock")
    handled = _ALL_ACCESS
    for since, access in ((2, _REFER), (3, _TRUNCATE), (5, _IOCTL_DEV)):
        handled |= access if version >= since and (truncate or access == _REFER) else 0
    rules = _Ruleset(handled, 0 if hold.network else _TCP, _SCOPES)
    allowed = [
        (split(hold.read, hold.hide), _READ),
        (split(hold.run, hold.hide), _READ | _EXECUTE),
        (split(hold.write, hold.hide), handled & ~_EXECUTE & ~_IOCTL_DEV & ~_SPECIAL),
        (HARMLESS, _READ_FILE | _WRITE_FILE),
    ]
    if tty:
        allowed.append(((tty, "/dev/tty"), _READ_FILE | _WRITE_FILE | _IOCTL_DEV))
    return _make(rules, 24 if version >= 6 else 16 if version >= 4 else 8, allowed)


def restrict_thread(hold: Hold, *, truncate: bool = True) -> None:
    """Restrict the calling thread permanently, and every program that it starts from now on. Raises
    OSError if the kernel cannot."""
    ruleset = make_rules(hold, truncate=truncate)
    try:
        enter(ruleset)
    finally:
        os.close(ruleset)


def split(paths: Iterable[str], hide: Iterable[str]) -> Iterator[str]:
    """The paths, with directories that contain something hidden replaced by their other entries.

    Landlock rules can only add access, so everything around a hidden path is allowed piece by
    piece. A directory that was split can therefore not be listed or added to.
    """
    hidden = frozenset(map(os.path.realpath, hide))
    for path in paths:
        yield from _split(path, os.path.realpath(path), hidden)


def _split(path: str, real: str, hidden: frozenset[str]) -> Iterator[str]:
    start = f"{real.rstrip('/')}/"
    if not any(each.startswith(start) for each in hidden):
        yield path
        return
    with suppress(OSError), os.scandir(real) as entries:
        for entry in entries:
            # The target of a link has its own rule, or is hidden.
            if not entry.is_symlink() and entry.path not in hidden:
                yield from _split(entry.path, entry.path, hidden)


def make_start_rules(paths: Iterable[str]) -> int:
    """A ruleset that lets only these files, and files in these directories, be executed: a
    descriptor for `enter`, which the caller closes. Missing paths are skipped.

    Reading and writing are not restricted; mounting, and tracing processes with other restrictions,
    are denied. A rule is about the file that a path leads to now, not about one that replaces it,
    and no file can be linked or moved to where it could be executed. Before Linux 5.19 no file can
    be linked or moved to another directory at all. Landlock does not cover files without a path,
    such as those of memfd_create. Raises OSError if the kernel cannot enforce it.
    """
    # A ruleset that does not handle REFER denies it.
    handled = _EXECUTE | (_REFER if abi() >= 2 else 0)
    return _make(_Ruleset(handled, 0, 0), 8, [(paths, _EXECUTE), (("/",), handled & _REFER)])


def leave_programs_outside_alone() -> None:
    """Deny the calling thread, and every program that it starts from now on, abstract sockets of
    programs outside and signals to them; before Linux 6.12, without effect. Raises OSError."""
    if abi() >= 6:
        ruleset = _make(_Ruleset(0, 0, _SCOPES), 24, ())
        try:
            enter(ruleset)
        finally:
            os.close(ruleset)


def enter(ruleset: int) -> None:
    """Restrict the calling thread permanently, and every program that it starts from now on. None
    of them can gain privileges by setuid programs."""
    no_new_privileges()
    check(libc().syscall(_RESTRICT_SELF, ruleset, 0), "Landlock")


def _make(rules: _Ruleset, size: int, allowed: Iterable[tuple[Iterable[str], int]]) -> int:
    ruleset = check(libc().syscall(_CREATE_RULESET, ctypes.byref(rules), size, 0), "Landlock")
    try:
        for paths, access in allowed:
            if access := access & rules.fs:
                for path in paths:
                    _allow(ruleset, path, access)
    except BaseException:
        os.close(ruleset)
        raise
    return ruleset


def _allow(ruleset: int, path: str, access: int) -> None:
    try:
        fd = os.open(path, os.O_PATH | os.O_CLOEXEC)
    except (FileNotFoundError, NotADirectoryError):
        return
    try:
        is_dir = stat.S_ISDIR(os.fstat(fd).st_mode)
        rule = _Beneath(access if is_dir else access & _FILE_ACCESS, fd)
        result = libc().syscall(_ADD_RULE, ruleset, _PATH_BENEATH, ctypes.byref(rule), 0)
        check(result, "Landlock")
    finally:
        os.close(fd)
