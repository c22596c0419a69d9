"""Start commands that the kernel confines: to a hold, to named programs, or to both.

Named programs are a second barrier behind the analysis of a command: a program that the analysis
overlooked is not executed by the kernel. They do not stop a malicious named program: that can use
the loader to execute any file, load code itself, or change a named file.
"""

from __future__ import annotations

import _thread
import functools
import os
import stat
import struct
import subprocess
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from typing import IO, NamedTuple, TypeVar

from clawkit.process import landlock, seccomp
from clawkit.process.landlock import Hold, restrict_thread
from clawkit.process.libc import check, libc

_HEADER = 4096
_LONGEST = 65_536
"""Maximum size of the program header table, as in the kernel."""
_LOADER = 3
_CAP_VERSION = 0x20080522
_CAPABILITIES = 1 << 0 | 1 << 1 | 1 << 3 | 1 << 4
"""Capabilities that root keeps: chown, dac_override, fowner and fsetid, so that files of other
users in the workspace stay accessible."""
_PR_CAPBSET_DROP, _PR_CAP_AMBIENT, _AMBIENT_CLEAR = 24, 47, 4
_MAX_RULES = 32
T = TypeVar("T")


class NotConfinedError(RuntimeError):
    """The kernel refused to confine a command."""


class Started(NamedTuple):
    """A confined command."""

    pid: int
    listener: int = -1
    """Reports attempts to create a forbidden socket; -1 for none."""


class Confiner:
    """Starts confined commands. Caches rulesets, because most commands have the same.

    A rule refers to the file that a path led to when it was created. So the cache key includes
    what the paths led to: a ruleset is rebuilt if a path leads to another file, if a program was
    changed (it may need another loader), and if a directory with something hidden has other
    entries.
    """

    def __init__(self) -> None:
        self._rulesets: dict[object, int] = {}

    def start(
        self,
        spawn: Callable[[], int],
        *,
        hold: Hold | None = None,
        programs: Sequence[str] | None = None,
        shell: str = "",
        tty: str = "",
    ) -> Started:
        """Call `spawn`, which starts the shell, confined. With `programs`, only these, files in
        those that are directories, the shell, and the loaders of all of them can be executed;
        without Landlock in the kernel, anything can. A hold is always enforced.

        Raises `NotConfinedError` if the kernel cannot confine it.
        """
        rules: list[int] = []
        own = -1

        def work() -> Started:
            try:
                listener = _enter(rules, hold, named=programs is not None)
            except OSError as error:
                raise NotConfinedError(error.strerror or str(error)) from None
            try:
                return Started(spawn(), listener)
            except BaseException:
                if listener >= 0:
                    os.close(listener)
                raise

        try:
            try:
                if programs is not None and landlock.available():
                    rules.append(self._start_rules((shell, *programs)))
                if hold is not None and tty:
                    # A rule about one terminal is useless for the next command, so do not cache it.
                    own = landlock.make_rules(hold, tty=tty)
                    rules.append(own)
                elif hold is not None:
                    rules.append(self._hold_rules(hold))
            except OSError as error:
                raise NotConfinedError(error.strerror or str(error)) from None
            return _in_thread(work) if rules else Started(spawn())
        finally:
            if own >= 0:
                os.close(own)

    def _start_rules(self, named: tuple[str, ...]) -> int:
        stamps = {path: _stamp(path) for path in named}
        loaders = {_recall_loader(*each) for each in stamps.items()} - {""}
        seen = (*stamps.values(), *map(_stamp, sorted(loaders)))
        return self._recall((named, seen), lambda: landlock.make_start_rules(add_loaders(named)))

    def _hold_rules(self, hold: Hold) -> int:
        around = {os.path.dirname(path) for path in hold.hide}
        paths = (*hold.write, *hold.read, *sorted(around))
        seen = tuple(_stamp(path, "st_mtime_ns" if path in around else "") for path in paths)
        return self._recall((hold, seen), lambda: landlock.make_rules(hold))

    def _recall(self, key: object, make: Callable[[], int]) -> int:
        """The ruleset for a key, made if needed. The key says what the paths led to before that: if
        they change in the meantime, the next command has another key."""
        known = self._rulesets.pop(key, None)
        self._rulesets[key] = known = make() if known is None else known
        while len(self._rulesets) > _MAX_RULES:
            os.close(self._rulesets.pop(next(iter(self._rulesets))))
        return known


def _stamp(path: str, time: str = "st_ctime_ns") -> tuple[int, ...] | None:
    """Differs if the path leads to another file, or if the given time of the file has changed."""
    try:
        info = os.stat(path)
    except (OSError, ValueError):
        return None
    return info.st_dev, info.st_ino, getattr(info, time) if time else 0


@functools.lru_cache(maxsize=512)
def _recall_loader(path: str, stamp: tuple[int, ...] | None) -> str:
    return loader_of(path) if stamp and _kind(path) == stat.S_IFREG else ""


def _enter(rules: Iterable[int], hold: Hold | None, *, named: bool) -> int:
    """Confine the calling thread; returns the listener for refused sockets, or -1. With `named`,
    files in memory are forbidden: they have no path that a rule could refer to."""
    for each in rules:
        landlock.enter(each)
    if hold is None:
        return -1
    drop_capabilities()
    if not seccomp.available():
        if not hold.network:
            raise OSError("the system calls of this architecture are unknown")
        return -1
    if not hold.network and not hold.sockets:
        reporting = seccomp.make_filter(notify=True, named=named, limited=True)
        with suppress(OSError):  # only one listener is possible, and an outer sandbox may have it
            return seccomp.enter(reporting, listen=True)
    internet, unix = hold.network, hold.sockets
    seccomp.enter(seccomp.make_filter(internet=internet, unix=unix, named=named, limited=True))
    return -1


def drop_capabilities() -> None:
    """Drop almost all capabilities of the calling thread if it is root. Raises OSError."""
    if os.geteuid() != 0:
        return
    libc().prctl(_PR_CAP_AMBIENT, _AMBIENT_CLEAR, 0, 0, 0)
    for number in range(64):
        is_kept = _CAPABILITIES >> number & 1
        if not is_kept and libc().prctl(_PR_CAPBSET_DROP, number, 0, 0, 0) < 0:
            break  # the kernel has no more capabilities
    kept = struct.pack("3I", _CAPABILITIES, _CAPABILITIES, 0) + bytes(12)
    check(libc().capset(struct.pack("Ii", _CAP_VERSION, 0), kept), "capabilities")


def _in_thread(work: Callable[[], T]) -> T:
    """Run `work` in a thread that ends afterwards, and with it the restrictions of that thread. Its
    children then belong to the first thread. `_thread` is much faster than `threading`."""
    results: list[T] = []
    failed: list[BaseException] = []
    done = _thread.allocate_lock()

    def run() -> None:
        try:
            results.append(work())
        except BaseException as error:  # noqa: BLE001  # a thread's root: handed to the waiter
            failed.append(error)
        finally:
            done.release()

    done.acquire()
    try:
        _thread.start_new_thread(run, ())
    except RuntimeError as error:
        raise NotConfinedError(str(error)) from None
    done.acquire()
    if failed:
        raise failed[0]
    return results[0]


def add_loaders(paths: Iterable[str]) -> set[str]:
    """The absolute paths that lead to a file or directory, and the loaders of the files."""
    kinds = {path: _kind(path) for path in paths if path.startswith("/")}
    loaders = {loader_of(path) for path, kind in kinds.items() if kind == stat.S_IFREG}
    found = {path for path, kind in kinds.items() if kind}
    return found | {path for path in loaders if _kind(path) == stat.S_IFREG}


def _kind(path: str) -> int:
    """S_IFREG, S_IFDIR, or 0 for anything else."""
    try:
        kind = stat.S_IFMT(os.stat(path).st_mode)
    except (OSError, ValueError):
        return 0
    return kind if kind in (stat.S_IFREG, stat.S_IFDIR) else 0


def loader_of(path: str) -> str:
    """The ELF interpreter of a program; empty if it has none."""
    try:
        # Opening must not block, whatever the path leads to by now.
        fd = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC)
    except (OSError, ValueError):
        return ""
    try:
        head = os.pread(fd, _HEADER, 0)
        if head[:4] != b"\x7fELF":
            return ""
        order = ">" if head[5:6] == b"\x02" else "<"
        wide = head[4:5] == b"\x02"
        [table] = struct.unpack_from(f"{order}Q" if wide else f"{order}I", head, 32 if wide else 28)
        size, count = struct.unpack_from(f"{order}HH", head, 54 if wide else 42)
        row = struct.Struct(f"{order}I4xQ16xQ16x" if wide else f"{order}II8xI12x")
        if size != row.size or size * count > _LONGEST:
            return ""
        for kind, start, length in row.iter_unpack(os.pread(fd, size * count, table)):
            if kind == _LOADER:
                name = os.pread(fd, min(length, _HEADER), start).partition(b"\0")[0]
                return os.fsdecode(name) if name.startswith(b"/") else ""
        return ""
    except (OSError, OverflowError, struct.error):
        return ""
    finally:
        os.close(fd)


Stream = int | IO[bytes]


def start_helper(
    argv: Sequence[str],
    *,
    cwd: str | int,
    env: Mapping[str, str],
    hold: Hold | None,
    stdin: Stream = subprocess.DEVNULL,
    stdout: Stream = subprocess.PIPE,
    stderr: Stream = subprocess.DEVNULL,
) -> subprocess.Popen[bytes]:
    """Start a program, given as an absolute path, in its own session; blocks until it runs.

    `cwd` is a directory or an open descriptor of one. `hold` confines the program. Raises OSError
    if the kernel cannot confine it, or the program does not exist.
    """

    def start() -> subprocess.Popen[bytes]:
        if hold is not None:
            # Confine the calling thread. For a read-only helper, seccomp prevents changes: Landlock
            # could prevent truncation too, but at a cost for every file that is read, and it does
            # not cover modes and owners.
            filtered = seccomp.available() and not hold.network
            quick = filtered and not hold.write
            restrict_thread(hold, truncate=not quick)
            if filtered:
                seccomp.enter(seccomp.make_filter(changes=quick))
        return subprocess.Popen(
            argv,
            cwd=f"/proc/self/fd/{cwd}" if isinstance(cwd, int) else cwd,
            env=dict(env),
            stdin=stdin,
            stdout=stdout,
            stderr=stderr,
            start_new_session=True,
        )

    return start() if hold is None else _in_thread(start)
