"""The file tools against what people would use instead."""

from __future__ import annotations

import asyncio
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from bench.figure import Figure
from clawkit.fs.protocols import Grep
from clawkit.fs.search.engines import command, find_ripgrep, grep_options
from clawkit.fs.search.ripgrep_globs import select
from clawkit.runtime import Toolkit
from clawkit.testing import open_kit

FILES = 100_000
ROUNDS = 9


def measure() -> Iterator[Figure]:
    with tempfile.TemporaryDirectory(prefix="clawkit-bench-") as name:
        place = Path(name)
        yield small_read(place)
        yield many_edits(place)
        yield large_read(place)
        make_tree(place / "tree")
        yield from searches(place / "tree")


def make_tree(tree: Path) -> None:
    """Small files in a thousand directories; one in a hundred contains the pattern."""
    text = "".join(f"line {n} of some text that is like code\n" for n in range(20))
    for folder in range(FILES // 100):
        place = tree / f"part{folder // 50}" / f"dir{folder}"
        place.mkdir(parents=True)
        for number in range(100):
            needle = f"needle {folder}\n" if number == 50 and folder % 10 else ""
            suffix = "py" if number % 2 else "txt"
            (place / f"file{number}.{suffix}").write_text(text + needle)


def compare(ours: Callable[[], object], base: Callable[[], object]) -> tuple[float, float]:
    """The least disturbed of several rounds each, taken in turns."""
    mine: list[float] = []
    theirs: list[float] = []
    for _ in range(ROUNDS):
        for work, times in ((ours, mine), (base, theirs)):
            start = time.perf_counter()
            work()
            times.append(time.perf_counter() - start)
    return min(mine), min(theirs)


def searches(tree: Path) -> Iterator[Figure]:
    rg = find_ripgrep(None, ())
    if rg is None:
        raise RuntimeError("there is no ripgrep")
    kit = open_kit(tree)
    loop = asyncio.new_event_loop()

    def call(tool: str, **params: Any) -> Callable[[], object]:
        def work() -> None:
            result = loop.run_until_complete(kit.call(tool, params))
            if result.is_error or not result.as_text():
                raise RuntimeError(result.as_text())

        return work

    def by_hand(*args: str, glob: str = "") -> Callable[[], object]:
        """The same program with the same flags."""
        selection = select([glob] if glob else [], [str(tree)])
        argv = [*command(rg, selection, ignored=False, file_type=""), *args]
        return lambda: subprocess.run(argv, cwd=tree, stdout=subprocess.PIPE, check=False)

    pattern = "needle [0-9]+"
    options = grep_options(Grep(pattern), enough=1_000)
    listing = by_hand("--files", glob="*.py")
    for name, ours, base, limit in (
        ("grep", call("grep", pattern=pattern), by_hand(*options, "--", "."), 1.15),
        ("find, unsorted", call("find", pattern="*.py", sort="none"), listing, 1.15),
        ("find, sorted by path", call("find", pattern="*.py"), listing, 2),
    ):
        mine, theirs = compare(ours, base)
        note = f"{mine * 1e3:.0f} ms against {theirs * 1e3:.0f} ms on {FILES:,} files"
        yield Figure(name, mine / theirs, "x ripgrep by hand", limit, note)
    loop.close()


def small_read(place: Path) -> Figure:
    file = place / "small.txt"
    file.write_text("a line of text\n" * 20)
    kit = open_kit(place)

    async def calls() -> tuple[float, float]:
        ours, base = [], []
        for _ in range(2_000):
            start = time.perf_counter()
            await kit.call("read", {"path": "small.txt"})
            ours.append(time.perf_counter() - start)
            start = time.perf_counter()
            file.read_text()
            base.append(time.perf_counter() - start)
        return statistics.median(ours), statistics.median(base)

    ours, base = asyncio.run(calls())
    note = f"{ours * 1e6:.0f} us against {base * 1e6:.0f} us"
    return Figure("read of a small file", (ours - base) * 1e6, "us above plain", 250, note)


def many_edits(place: Path) -> Figure:
    text = "".join(f"{n:06} some text that stays as it is\n" for n in range(29_000))
    file, other = place / "edited.txt", place / "plain.txt"
    file.write_text(text)
    other.write_text(text)
    kit = open_kit(place)

    async def edit(kit: Toolkit, number: int) -> None:
        old, new = f"{number:06} some", f"{number:06} any"
        params = {"path": "edited.txt", "oldText": old, "newText": new}
        result = await kit.call("edit", params)
        if result.is_error:
            raise RuntimeError(result.as_text())

    async def edits() -> tuple[float, float]:
        ours, base = [], []
        for number in range(1_000):
            start = time.perf_counter()
            await edit(kit, number)
            ours.append(time.perf_counter() - start)
            start = time.perf_counter()
            old = other.read_text()
            other.write_text(old.replace(f"{number:06} some", f"{number:06} any"))
            base.append(time.perf_counter() - start)
        return sum(ours), sum(base)

    ours, base = asyncio.run(edits())
    if file.read_bytes() != other.read_bytes():
        raise RuntimeError("the edited files differ")
    note = f"{ours:.2f} s against {base:.2f} s for 1,000 edits of {len(text) / 1e6:.1f} MB"
    return Figure("edits of a large file", ours / base, "x read-replace-write", 3, note)


READ_LARGE = """
import asyncio, resource, sys
from clawkit.testing import open_kit
async def main():
    async with open_kit(sys.argv[1]) as kit:
        await kit.call("read", {"path": "small.txt"})
        before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        result = await kit.call("read", {"path": "large.txt"})
        assert not result.is_error, result.as_text()
        print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before)
asyncio.run(main())
"""


def large_read(place: Path) -> Figure:
    chunk = b"one line of a very large file\n" * 35_000
    with open(place / "large.txt", "wb") as file:
        while file.tell() < 1 << 30:
            file.write(chunk)
    argv = [sys.executable, "-c", READ_LARGE, str(place)]
    start = time.perf_counter()
    grown = int(subprocess.run(argv, capture_output=True, check=True).stdout) / 1024
    note = f"the first page of 1 GB, {time.perf_counter() - start:.2f} s with the start of Python"
    os.unlink(place / "large.txt")
    return Figure("memory of a large read", grown, "MB more", 20, note)
