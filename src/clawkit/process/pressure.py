"""How hard pressed the machine is: how many tasks it has, and whether memory ran out."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress

from clawkit.process import tree


def count_tasks() -> int:
    """Processes and threads on the machine, in one go."""
    try:
        return int(tree.read_small("/proc/loadavg").split()[3].partition(b"/")[2])
    except OSError:
        return len(tree.table())


def open_score() -> int:
    """A handle of how soon this process goes when memory runs out, taken before it hides from its
    user; -1 for none."""
    try:
        return os.open("/proc/self/oom_score_adj", os.O_RDWR | os.O_CLOEXEC)
    except OSError:
        return -1


@contextmanager
def first_to_go(score: int) -> Iterator[None]:
    """What is started here, and all that it starts, goes first when memory runs out. Told to the
    child later, what it had started by then would be spared instead of it."""
    if score < 0:
        yield
        return
    before = os.pread(score, 16, 0)
    with suppress(OSError):
        os.pwrite(score, b"1000", 0)
    try:
        yield
    finally:
        with suppress(OSError):
            os.pwrite(score, before, 0)


def _oom_file() -> str:
    """Where the system counts how often it ended a process for want of memory."""
    places = []
    with suppress(OSError), open("/proc/self/cgroup", encoding="utf-8") as file:
        for line in file:
            _, controllers, path = line.strip().split(":", 2)
            if not controllers:
                places.append(f"/sys/fs/cgroup{path}/memory.events")
            elif "memory" in controllers.split(","):
                places.append(f"/sys/fs/cgroup/memory{path}/memory.oom_control")
    places += ["/sys/fs/cgroup/memory/memory.oom_control", "/proc/vmstat"]
    return next((place for place in places if os.access(place, os.R_OK)), "")


_OOM_FILE = _oom_file()


def count_oom() -> int:
    """How often it did."""
    try:
        return int(tree.read_small(_OOM_FILE).partition(b"oom_kill ")[2].split()[0])
    except (OSError, IndexError, ValueError):
        return 0
