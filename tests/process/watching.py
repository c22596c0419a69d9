"""Looking at processes from outside, without the code under test."""

from __future__ import annotations

import asyncio
import gc
import os
import random
import signal
import time
from collections.abc import Callable
from pathlib import Path

PATIENCE_S = 60.0
"""Long enough for a machine that is busy; whoever waits goes on at once when it is so."""


def new_marker() -> str:
    """Seconds to sleep that no other process has among its arguments."""
    return f"98765.{random.randrange(10**12):012}"


def own(name: str) -> str:
    """An id of a command that no other run of the tests has at the same moment: whatever bears it
    is ended with it, wherever on this machine it is."""
    return f"{name}-{os.getpid()}"


def alive(marker: str) -> list[int]:
    """The processes that live and have a marker among their arguments."""
    found = []
    for pid in _pids():
        try:
            arguments = Path(f"/proc/{pid}/cmdline").read_bytes()
        except OSError:
            continue
        if marker.encode() in arguments and pid != os.getpid():
            found.append(pid)
    return found


def state_of(pid: int) -> str:
    """The letter of the system for what a process does; empty when there is none."""
    try:
        return Path(f"/proc/{pid}/stat").read_bytes().rpartition(b")")[2].split()[0].decode()
    except OSError:
        return ""


def name_of(pid: int) -> str:
    """The name of a process; empty when there is none."""
    try:
        return Path(f"/proc/{pid}/comm").read_text().strip()
    except OSError:
        return ""


def children(parent: int) -> dict[int, str]:
    """The children of a process by number, with their names; a `Z` before those that are dead."""
    found = {}
    for pid in _pids():
        try:
            before, _, after = Path(f"/proc/{pid}/stat").read_bytes().rpartition(b")")
        except OSError:
            continue
        state, above = after.split()[:2]
        if int(above) == parent:
            name = before.partition(b"(")[2].decode("utf-8", "replace")
            found[pid] = f"{'Z ' if state == b'Z' else ''}{name}"
    return found


def keepers(parent: int) -> list[int]:
    """The keepers that a process has started and that live."""
    return [pid for pid, name in children(parent).items() if name == "clawkit-spawn"]


def open_handles() -> int:
    """How many files this process has open, but for those that only garbage holds."""
    gc.collect()
    return len(os.listdir("/proc/self/fd"))


async def halt(pid: int) -> None:
    """Make a process stand still; returns when it does."""
    os.kill(pid, signal.SIGSTOP)
    await until(lambda: state_of(pid) == "T", f"{pid} stands still")


async def until(check: Callable[[], object], what: str = "") -> None:
    """Until something is so."""
    end = time.monotonic() + PATIENCE_S
    while not check():
        assert time.monotonic() < end, f"it did not come to be: {what or check}"
        await asyncio.sleep(0.01)


def _pids() -> list[int]:
    return [int(name) for name in os.listdir("/proc") if name.isdigit()]
