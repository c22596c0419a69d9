"""exec against a bare spawn of the same shell, and the memory kept after many commands."""

from __future__ import annotations

import asyncio
import itertools
import os
import shutil
import statistics
import subprocess
import tempfile
import threading
import time
from collections.abc import Awaitable, Callable, Iterator
from pathlib import Path
from typing import Any

from bench.figure import Figure
from clawkit.process import landlock
from clawkit.process.local_host import LocalHost
from clawkit.process.protocols import Launch
from clawkit.runtime import Toolkit
from clawkit.testing import open_kit

SHELL = ("/bin/bash", "--noprofile", "--norc", "-c")
ONE_BY_ONE = 300
AT_ONCE = 200
BIG = 1_000_000_000
MANY = 10_000
PROGRAMS = ("ls", "cat", "grep", "git", "env")
FULL = {"tools": {"exec": {"mode": "full"}}}


def measure() -> Iterator[Figure]:
    with tempfile.TemporaryDirectory(prefix="clawkit-bench-") as name:
        os.environ["CLAWKIT_HOME"] = str(Path(name) / "home")
        yield from asyncio.run(_measure(Path(name)))


async def _measure(place: Path) -> list[Figure]:
    async with open_kit(place, config=FULL) as kit:
        await _ours(kit, "true")  # the keeper starts with the first one
        return [
            await _single(kit),
            await _side_by_side(kit),
            await _confined(place),
            *await _big_output(kit, place),
            *await _many(kit),
        ]


async def _bare(command: str) -> bytes:
    process = await asyncio.create_subprocess_exec(
        *SHELL,
        command,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    )
    out, _ = await process.communicate()
    return out


async def _ours(kit: Toolkit, command: str, **params: Any) -> str:
    result = await kit.call("exec", {"command": command, **params})
    if result.details["status"] != "completed":
        raise RuntimeError(result.as_text())
    return result.as_text()


async def _timed(work: Awaitable[object]) -> float:
    start = time.perf_counter()
    await work
    return time.perf_counter() - start


async def _single(kit: Toolkit) -> Figure:
    ours, base = [], []
    for _ in range(ONE_BY_ONE):
        ours.append(await _timed(_ours(kit, "true")))
        base.append(await _timed(_bare("true")))
    mine, theirs = statistics.median(ours), statistics.median(base)
    note = f"{mine * 1e3:.2f} ms against {theirs * 1e3:.2f} ms"
    return Figure("exec true", mine / theirs, "x bare spawn", 1.3, note)


async def _side_by_side(kit: Toolkit) -> Figure:
    async def all_of(run: Callable[[str], Awaitable[Any]]) -> None:
        said = await asyncio.gather(*(run(f"echo {number}") for number in range(AT_ONCE)))
        texts = [text.decode().strip() if isinstance(text, bytes) else text for text in said]
        if texts != [str(number) for number in range(AT_ONCE)]:
            raise RuntimeError("output was lost")

    ours, base = [], []
    for _ in range(7):
        ours.append(await _timed(all_of(lambda command: _ours(kit, command))))
        base.append(await _timed(all_of(_bare)))
    note = f"{min(ours) * 1e3:.0f} ms against {min(base) * 1e3:.0f} ms; all output there"
    return Figure("200 commands at once", min(ours) / min(base), "x bare", 1.3, note)


async def _confined(place: Path) -> Figure:
    """The overhead of confining a command to some programs, compared with an unconfined start."""
    host = LocalHost(str(place / "spool"))
    if not landlock.available():
        return Figure("confined start", 0, "x bare spawn more", 1.0, "no Landlock here")
    found = (shutil.which(name, path="/usr/bin:/bin") for name in PROGRAMS)
    free = Launch("true", str(place), {"PATH": os.environ["PATH"]})
    held = free._replace(programs=tuple(path for path in found if path))
    ids = itertools.count()

    async def run(launch: Launch) -> None:
        running = await host.start(launch, f"bench-{os.getpid()}-{next(ids)}")
        await running.wait()
        running.close()

    for launch in (free, held):
        await run(launch)
    times: list[list[float]] = [[], [], []]
    for _ in range(ONE_BY_ONE):
        for each, work in zip(times, (run(held), run(free), _bare("true")), strict=True):
            each.append(await _timed(work))
    await host.close()
    ours, plain, base = map(statistics.median, times)
    note = f"{ours * 1e3:.2f} ms, free {plain * 1e3:.2f} ms, bare {base * 1e3:.2f} ms"
    return Figure("confined start", (ours - plain) / base, "x bare spawn more", 1.0, note)


async def _big_output(kit: Toolkit, place: Path) -> list[Figure]:
    command = f"head -c {BIG} /dev/zero"
    ours, base = [], []
    before = memory()
    most = before
    for _ in range(3):
        file = place / "out"
        run = asyncio.to_thread(subprocess.run, [*SHELL, f"{command} > {file}"], check=True)
        base.append(await _timed(run))
        file.unlink()
        start = time.perf_counter()
        result = await kit.call("exec", {"command": command})
        ours.append(time.perf_counter() - start)
        most = max(most, memory())
        if result.details["spillBytes"] != BIG:
            raise RuntimeError("output was lost")
        session = {"action": "remove", "sessionId": result.details["sessionId"]}
        await kit.call("process", session)
    ratio = min(ours) / min(base)
    note = f"{BIG / min(ours) / 1e6:.0f} MB/s against {BIG / min(base) / 1e6:.0f} MB/s"
    return [
        Figure("1 GB of output", ratio, "x cmd > file", 2, note),
        Figure("1 GB of output, memory", (most - before) / 1e6, "MB more", 20),
    ]


async def _many(kit: Toolkit) -> list[Figure]:
    """The memory kept after many commands; the first few fill the intended caches."""
    for _ in range(200):
        await _ours(kit, "echo x")
    before = memory(), handles(), threading.active_count()
    done = 0
    while done < MANY:
        await asyncio.gather(*(_ours(kit, "echo x") for _ in range(20)))
        done += 20
    after = memory(), handles(), threading.active_count()
    return [
        Figure("10,000 commands, memory", (after[0] - before[0]) / 1e6, "MB more", 5),
        Figure("10,000 commands, descriptors", after[1] - before[1], "more", 0),
        Figure("10,000 commands, threads", max(0, after[2] - before[2]), "more", 0),
    ]


def memory() -> int:
    """Bytes that this process has in memory."""
    with open("/proc/self/statm", encoding="ascii") as file:
        return int(file.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")


def handles() -> int:
    return len(os.listdir("/proc/self/fd"))
