"""Commands in each sandbox against a bare spawn of the same shell, and the first in a new one."""

from __future__ import annotations

import asyncio
import os
import statistics
import subprocess
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from bench.commands import _bare, _ours, _timed
from bench.figure import Figure
from clawkit.process import landlock
from clawkit.sandbox.local import probe_bwrap
from clawkit.testing import open_kit

ONE_BY_ONE = 200
NEW = 8
IMAGE = os.environ.get("CLAWKIT_BENCH_IMAGE", "clawkit-sandbox:bookworm-slim")
"""For docker; without it, containers are left out."""


def measure() -> Iterator[Figure]:
    with tempfile.TemporaryDirectory(prefix="clawkit-bench-") as name:
        os.environ["CLAWKIT_HOME"] = str(Path(name) / "home")
        place = Path(name) / "ws"
        place.mkdir()
        if landlock.available():
            yield asyncio.run(_warm(place, "landlock", 2.5))
        if not probe_bwrap():
            yield asyncio.run(_warm(place, "bwrap", 2.5))
            yield asyncio.run(_first(place))
        if not _docker("image", "inspect", IMAGE).returncode:
            yield asyncio.run(_warm(place, "docker", 4))
            yield asyncio.run(_first_in_container(place))


def _docker(*arguments: str) -> subprocess.CompletedProcess[bytes]:
    try:
        return subprocess.run(["docker", *arguments], capture_output=True, timeout=120)
    except FileNotFoundError:
        return subprocess.CompletedProcess(arguments, 127)


def _config(backend: str) -> dict[str, Any]:
    return {"agents": {"defaults": {"sandbox": {"backend": backend, "docker": {"image": IMAGE}}}}}


async def _warm(place: Path, backend: str, limit: float) -> Figure:
    ours, base = [], []
    async with open_kit(place, config=_config(backend)) as kit:
        await _ours(kit, "true")
        for _ in range(ONE_BY_ONE):
            ours.append(await _timed(_ours(kit, "true")))
            base.append(await _timed(_bare("true")))
    mine, theirs = statistics.median(ours), statistics.median(base)
    note = f"{mine * 1e3:.2f} ms against {theirs * 1e3:.2f} ms"
    return Figure(f"exec true, {backend}", mine / theirs, "x bare spawn", limit, note)


async def _first(place: Path) -> Figure:
    """The cost of creating a sandbox, in a process that has already run commands."""
    times = []
    for _ in range(NEW):
        async with open_kit(place, config=_config("bwrap")) as kit:
            start = time.perf_counter()
            await _ours(kit, "true")
            times.append(time.perf_counter() - start)
    return Figure("first command in a new bwrap", statistics.median(times) * 1e3, "ms", 150)


async def _first_in_container(place: Path) -> Figure:
    """A command in a new container, against `docker run` of the same command."""
    ours, base = [], []
    for _ in range(NEW):
        _remove_containers()
        async with open_kit(place, config=_config("docker")) as kit:
            ours.append(await _timed(_ours(kit, "true")))
        start = time.perf_counter()
        options = ("--rm", "--init", "--read-only", "--network=none", "--cap-drop=ALL")
        _docker("run", *options, "--tmpfs=/tmp", f"--volume={place}:/workspace", IMAGE, "true")
        base.append(time.perf_counter() - start)
    _remove_containers()
    mine, theirs = statistics.median(ours), statistics.median(base)
    note = f"{mine * 1e3:.0f} ms against {theirs * 1e3:.0f} ms"
    return Figure("first command in a new container", mine / theirs, "x docker run", 1.3, note)


def _remove_containers() -> None:
    home = os.path.realpath(os.environ["CLAWKIT_HOME"])
    found = _docker("ps", "-aq", f"--filter=label=clawkit.home={home}").stdout.decode().split()
    if found:
        _docker("rm", "-f", *found)
