"""Observes processes from outside, and reports problems."""

from __future__ import annotations

import asyncio
import os
import time
from collections.abc import Callable
from pathlib import Path

PATIENCE_S = 20.0


class FaultError(Exception):
    """Something is not as it should be."""


def expect(actual: object, wanted: object, what: str) -> None:
    if actual == wanted:
        return
    if isinstance(actual, str | bytes) and isinstance(wanted, str | bytes):
        # Where they part is what matters.
        pairs = enumerate(zip(actual, wanted, strict=False))
        parted = (index for index, (mine, other) in pairs if mine != other)
        same = next(parted, min(len(actual), len(wanted)))
        start = max(0, same - 20)
        actual, wanted = actual[start : same + 100], wanted[start : same + 100]
        what += f" from {same} on"
    raise FaultError(f"{what} is {_short(actual)} and not {_short(wanted)}")


def _short(value: object) -> str:
    said = repr(value)
    return said if len(said) < 200 else f"{said[:120]}…{said[-60:]} ({len(said)})"


def alive(marker: str) -> list[int]:
    """The living processes with a marker among their arguments or variables."""
    found = []
    for name in os.listdir("/proc"):
        if name.isdigit() and int(name) != os.getpid():
            for file in ("cmdline", "environ"):
                try:
                    said = Path("/proc", name, file).read_bytes()
                except OSError:
                    continue
                if marker.encode() in said:
                    found.append(int(name))
                    break
    return found


def children() -> set[str]:
    """Direct children of this process, the dead ones too."""
    found = set()
    for task in os.listdir("/proc/self/task"):
        try:
            found |= set(Path("/proc/self/task", task, "children").read_text("ascii").split())
        except OSError:
            continue  # a thread that has just ended
    return found


async def until(check: Callable[[], object], seconds: float = PATIENCE_S) -> bool:
    """Whether something comes to be so in time."""
    end = time.monotonic() + seconds
    while not check():
        if time.monotonic() > end:
            return False
        await asyncio.sleep(0.02)
    return True
