"""Thousands of commands of every kind at once: each ends as planned, and leaves nothing behind."""

from __future__ import annotations

import asyncio
import ctypes
import gc
import logging
import os
import random
import sys
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Iterable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple

from bench.commands import FULL, handles, memory
from bench.figure import Figure
from bench.soak_cases import Soak
from bench.soak_plans import Makers
from bench.soak_watch import alive, children, until
from clawkit.testing import open_kit

COUNT = 5_000
AT_ONCE = 20
WARM = 500
"""Commands before memory is looked at: what is kept on purpose is full by then."""
POOLED = "clawkit"
"""Threads that wait a while for more work."""


class Outcome(NamedTuple):
    """What a soak came to."""

    faults: list[str]
    kinds: Counter[str]
    more_memory: int
    seconds: float


class Watch(logging.Handler):
    """What goes wrong where nobody looks."""

    def __init__(self) -> None:
        super().__init__(logging.WARNING)
        self.seen: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        self.seen.append(record.getMessage())


class Traces(NamedTuple):
    """What this process has of the system."""

    handles: int
    threads: list[str]
    children: set[str]

    @classmethod
    def now(cls) -> Traces:
        gc.collect()
        names = (each.name for each in threading.enumerate())
        return cls(handles(), sorted(name for name in names if name != POOLED), children())


async def soak(place: Path, count: int, seed: int, only: Iterable[int] = ()) -> Outcome:
    """Run that many commands, or only some of them, and check what they leave behind."""
    makers = await asyncio.to_thread(Makers, place, seed)
    run = f"{random.SystemRandom().randrange(10**9):09}"
    async with open_kit(place, config=FULL) as kit:
        await kit.call("exec", {"command": "true"})  # everything is imported now
    before = Traces.now()
    loose = Watch()
    logging.getLogger().addHandler(loose)
    start = time.monotonic()
    warm = 0
    try:
        async with open_kit(place, config=FULL) as kit:
            one = Soak(kit, makers, seed, run)
            numbers = iter(only or range(count))

            async def work() -> None:
                nonlocal warm
                for number in numbers:
                    await one.case(number)
                    if number == min(WARM, count // 2):
                        warm = _used()
                    if sys.stderr.isatty():
                        done = one.kinds.total()
                        print(f"\rsoak: {done:,} of {count:,} ", end="", file=sys.stderr)

            await asyncio.gather(*(work() for _ in range(AT_ONCE)))
    finally:
        logging.getLogger().removeHandler(loose)
    seconds = time.monotonic() - start
    after = Traces.now()
    faults = one.faults + [f"logged: {each}" for each in loose.seen]
    faults += [
        f"{what}: {was} before, {now} after"
        for what, was, now in zip(Traces._fields, before, after, strict=True)
        if now != was
    ]
    if found := alive(run):
        faults.append(f"processes that are left: {found}")
    folder = os.path.join(os.environ["CLAWKIT_HOME"], "commands")
    files = [os.path.join(folder, name) for name in os.listdir(folder)]
    if strange := [file for file in files if file not in one.told]:
        faults.append(f"files that nobody was told of: {strange}")
    return Outcome(faults, one.kinds, _used() - warm, seconds)


def _used() -> int:
    """Bytes of memory, without those that the allocator keeps for later."""
    with suppress(AttributeError):
        ctypes.CDLL(None).malloc_trim(0)
    return memory()


async def _soak(place: Path, count: int, seed: int, only: Iterable[int]) -> Outcome:
    outcome = await soak(place, count, seed, only)
    if not await until(lambda: POOLED not in [each.name for each in threading.enumerate()]):
        outcome.faults.append("the threads that wait for work do not end")
    return outcome


def measure(count: int = COUNT, seed: int = 1, only: Iterable[int] = ()) -> Iterator[Figure]:
    with tempfile.TemporaryDirectory(prefix="clawkit-bench-") as name:
        os.environ["CLAWKIT_HOME"] = str(Path(name) / "home")
        place = Path(name, "ws")
        place.mkdir()
        outcome = asyncio.run(_soak(place, count, seed, only))
    for fault in outcome.faults:
        print(fault, file=sys.stderr)
    kinds = ", ".join(f"{name} {number}" for name, number in outcome.kinds.most_common())
    note = f"{outcome.seconds:.0f} s, {kinds}"
    yield Figure(f"soak, {count:,} commands", len(outcome.faults), "faults", 0, note)
    yield Figure("soak, memory", outcome.more_memory / 1e6, "MB more", 20)


if __name__ == "__main__":
    count_, seed_, *numbers_ = (*map(int, sys.argv[1:]), *(COUNT, 1)[len(sys.argv) - 1 :])
    for figure in measure(count_, seed_, numbers_):
        print(figure)
