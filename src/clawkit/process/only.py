"""Starting a command that can only start the programs that were named.

This is the second barrier behind the analysis of a command: where the analysis has overlooked a
program, the kernel does not start it. It does not hold a program that was named and is up to no
good: that one can have the loader start any file, load one itself, or change what was named.
"""

from __future__ import annotations

import _thread
import os
import stat
import struct
from collections.abc import Callable, Iterable

from clawkit.process import landlock

_HEADER = 4096
_LONGEST = 65_536
"""Of the table in a program, and so it is for the kernel."""
_LOADER = 3


class NotConfinedError(RuntimeError):
    """The kernel can confine commands and would not do it."""


def start(shell: str, programs: Iterable[str], spawn: Callable[[], int]) -> int:
    """What `spawn`, which starts the shell, returns. From then on nothing can be started but the
    programs, what is in those that are directories, the shell, and the loaders of all of them.

    Where the kernel has no Landlock, anything can. Raises `NotConfinedError` when it has and fails.
    """
    if not landlock.available():
        return spawn()
    try:
        rules = landlock.make_start_rules(add_loaders((shell, *programs)))
    except OSError as error:
        raise NotConfinedError(error.strerror or str(error)) from None
    try:
        return _in_thread(rules, spawn)
    finally:
        os.close(rules)


def _in_thread(rules: int, spawn: Callable[[], int]) -> int:
    """The thread ends with the call, and with it what holds it. Its child passes to the first
    thread then, which takes in orphans even before. The low-level way is much the quicker one."""
    started: list[int] = []
    failed: list[BaseException] = []
    done = _thread.allocate_lock()

    def work() -> None:
        try:
            try:
                landlock.enter(rules)
            except OSError as error:
                raise NotConfinedError(error.strerror or str(error)) from None
            started.append(spawn())
        except BaseException as error:  # noqa: BLE001  # a thread's root: handed to the waiter
            failed.append(error)
        finally:
            done.release()

    done.acquire()
    try:
        _thread.start_new_thread(work, ())
    except RuntimeError as error:
        raise NotConfinedError(str(error)) from None
    done.acquire()
    if failed:
        raise failed[0]
    return started[0]


def add_loaders(paths: Iterable[str]) -> set[str]:
    """Those of the absolute paths that lead to a file or directory, and the loaders the kernel
    needs to start the files."""
    kinds = {path: _kind(path) for path in paths if path.startswith("/")}
    loaders = {loader_of(path) for path, kind in kinds.items() if kind == stat.S_IFREG}
    found = {path for path, kind in kinds.items() if kind}
    return found | {path for path in loaders if _kind(path) == stat.S_IFREG}


def _kind(path: str) -> int:
    """Whether it is a file or a directory; 0 for anything else."""
    try:
        kind = stat.S_IFMT(os.stat(path).st_mode)
    except (OSError, ValueError):
        return 0
    return kind if kind in (stat.S_IFREG, stat.S_IFDIR) else 0


def loader_of(path: str) -> str:
    """The program that the kernel starts a program with; empty when there is none."""
    try:
        # Whatever the name leads to by now, nobody waits for it.
        fd = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC)
    except (OSError, ValueError):
        return ""
    try:
        return _read_loader(fd)
    except (OSError, OverflowError, struct.error):
        return ""
    finally:
        os.close(fd)


def _read_loader(fd: int) -> str:
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
