"""A program that swaps a directory and a link to the outside at full speed, and attempts to be led
outside by it. Every attempt either works on what is inside or is refused."""

from __future__ import annotations

import contextlib
import stat
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

from clawkit.errors import ToolError
from clawkit.fs.local import LocalFileSystem
from clawkit.fs.protocols import Change

SECRET = b"SECRET"
# Both names exist all the time, and trade places in one act of the kernel.
_SWAP = """
import ctypes, os, sys
libc = ctypes.CDLL(None, use_errno=True)
one, two = os.fsencode(sys.argv[1]), os.fsencode(sys.argv[2])
print("swapping", flush=True)
while True:
    for _ in range(1000):
        if libc.renameat2(-100, one, -100, two, 2):
            sys.exit(ctypes.get_errno())
    if os.getppid() == 1:
        sys.exit(0)
"""


@dataclass
class Tally:
    """How many attempts had which outcome."""

    done: int = 0
    refused: int = 0
    words: set[str] = field(default_factory=set)


@dataclass
class Ground:
    """A workspace whose `dir` is a directory or a link to the outside, by turns."""

    root: Path
    outside: Path
    files: LocalFileSystem


@contextlib.contextmanager
def swapping_ground(place: Path) -> Iterator[Ground]:
    """Ends with a check that nothing outside was changed."""
    root, outside = place / "root", place / "outside"
    for folder, content in ((root / "dir", b"inside"), (outside, SECRET)):
        (folder / "sub").mkdir(parents=True)
        for name in ("f", "sub/g", "gone", "sub/gone"):
            (folder / name).write_bytes(content)
    (outside / "secret-name").write_bytes(SECRET)
    (root / "other").symlink_to(outside)
    before = snapshot(outside)
    argv = [sys.executable, "-c", _SWAP, str(root / "dir"), str(root / "other")]
    with subprocess.Popen(argv, stdout=subprocess.PIPE) as swapper:
        try:
            assert swapper.stdout is not None
            swapper.stdout.readline()
            yield Ground(
                root, outside, LocalFileSystem(str(root), journals=str(place / "journals"))
            )
            assert swapper.poll() is None, "the race was not run"
        finally:
            swapper.kill()
    assert snapshot(outside) == before


def snapshot(folder: Path) -> dict[str, tuple[int, bytes]]:
    """Everything in a directory: names, modes, contents."""
    found = {}
    for path in sorted(folder.rglob("*")):
        mode = path.lstat().st_mode
        data = path.read_bytes() if stat.S_ISREG(mode) else b""
        found[str(path.relative_to(folder))] = (mode, data)
    return found


async def race_reads(place: Path, count: int) -> Tally:
    """Attempts to read a file of the outside."""
    tally = Tally()
    with swapping_ground(place) as ground:
        paths = ("dir/f", f"{ground.root}/dir/f", "dir/sub/g", "dir/sub/../f", "other/f")
        for number in range(count):
            try:
                async with ground.files.open(paths[number % len(paths)]) as file:
                    assert await file.read(100, 0) == b"inside"
                    assert not file.place.startswith(f"{ground.outside}/")
                tally.done += 1
            except ToolError as error:
                tally.refused += 1
                tally.words.add(str(error))
    assert not any("SECRET" in words or "secret-name" in words for words in tally.words)
    return tally


async def race_lists(place: Path, count: int) -> Tally:
    """Attempts to list a directory of the outside."""
    tally = Tally()
    with swapping_ground(place) as ground:
        paths = ("dir", f"{ground.root}/dir", "other", "dir/sub/..")
        for number in range(count):
            try:
                listing = await ground.files.list(paths[number % len(paths)], details=True)
                assert [entry.name for entry in listing.entries] == ["f", "gone", "sub"]
                tally.done += 1
            except ToolError as error:
                tally.refused += 1
                tally.words.add(str(error))
    assert not any("secret-name" in words for words in tally.words)
    return tally


async def race_changes(place: Path, count: int) -> Tally:
    """Attempts to write, replace, create, delete, and make directories outside."""
    tally = Tally()
    with swapping_ground(place) as ground:
        for number in range(count):
            try:
                await ground.files.change(_changes(number))
                tally.done += 1
            except ToolError as error:
                tally.refused += 1
                tally.words.add(type(error).__name__)
    # What could not be put back while the directory was away is put back once it is there again.
    for _ in range(2):
        await LocalFileSystem(str(ground.root), journals=str(place / "journals")).list(".")
        _swap(ground.root / "dir", ground.root / "other")
    assert [name for name in snapshot(place) if ".clawkit-" in name] == []
    return tally


def _changes(number: int) -> list[Change]:
    data = b"changed %d" % number
    kinds = (
        [Change("dir/f", data)],
        [Change(f"dir/new-{number}", data)],
        [Change(f"dir/made-{number}/deep/f", data)],
        [Change("dir/gone", None)],
        [Change("dir/gone", data)],
        [Change("dir/sub/../f", data)],
        [Change("dir/f", data), Change("dir/sub/g", data), Change(f"dir/a-{number}/b", data)],
        [Change("dir/sub/gone", None), Change(f"dir/sub/gone-{number}", data, like="dir/f")],
        [Change("dir/sub/gone", data), Change("beside", data)],
    )
    return kinds[number % len(kinds)]


def _swap(one: Path, two: Path) -> None:
    aside = one.with_name("aside")
    one.rename(aside)
    two.rename(one)
    aside.rename(two)
