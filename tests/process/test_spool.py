"""Output: in memory while it is little, in a file once it is much."""

from __future__ import annotations

import asyncio
import contextlib
import errno
import os
import platform
import stat
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from tests.fs import tricks
from tests.fs.tricks import small_disk
from tests.process.watching import open_handles

from clawkit.process import spool as spools
from clawkit.process.spool import Spool

SPLICE = {"x86_64": 275, "aarch64": 76}.get(platform.machine(), -1)


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return tmp_path / "out" / "calm-otter.log"


def made(file: Path, memory: int = 0) -> Spool:
    return Spool(str(file), memory)


async def whole(spool: Spool) -> bytes:
    return await spool.read(0, spool.size + 1)


class Pipe:
    """A pipe whose bytes a thread moves to a spool."""

    def __init__(self, spool: Spool) -> None:
        self.spool = spool
        self._source, self.sink = os.pipe()
        os.set_blocking(self._source, False)
        self._stop = threading.Event()
        self.told: list[int] = []
        self.on_tell: Callable[[], None] = lambda: None
        self._news = threading.Condition()
        move = spool.mover(self._source, self._stop, self._tell)
        self._thread = threading.Thread(target=move)
        self._thread.start()

    def _tell(self) -> None:
        with self._news:
            self.told.append(self.spool.size)
            self._news.notify_all()
        self.on_tell()

    def wait_until_told(self, size: int) -> None:
        with self._news:
            assert self._news.wait_for(lambda: size in self.told, 60), f"told only of {self.told}"

    def write(self, data: bytes) -> None:
        while data:
            data = data[os.write(self.sink, data) :]

    def end(self) -> None:
        """Everything has been written."""
        os.close(self.sink)
        self.sink = -1
        self._thread.join(60)
        assert not self._thread.is_alive()
        os.close(self._source)

    def stop(self) -> None:
        self._stop.set()
        self._thread.join(60)
        assert not self._thread.is_alive()


@contextlib.contextmanager
def moving(spool: Spool) -> Iterator[Pipe]:
    pipe = Pipe(spool)
    try:
        yield pipe
    finally:
        if pipe.sink >= 0:
            pipe.stop()
            pipe.end()


async def test_nothing_was_written_yet(file: Path) -> None:
    spool = made(file, 10)
    assert (spool.size, spool.dropped, spool.path) == (0, 0, "")
    assert spool.tail(5) == await whole(spool) == b""
    assert not file.parent.exists()


async def test_little_stays_in_memory(file: Path) -> None:
    spool = made(file, 10)
    spool.add(b"01234")
    spool.add(b"56789")
    assert (spool.size, spool.path) == (10, "")
    assert await whole(spool) == b"0123456789"
    assert spool.tail(3) == b"789"
    assert not file.exists()


async def test_much_goes_to_a_file_with_what_was_in_memory(file: Path) -> None:
    spool = made(file, 10)
    spool.add(b"0123456789")
    spool.add(b"a")
    assert (spool.size, spool.path) == (11, str(file))
    assert file.read_bytes() == await whole(spool) == b"0123456789a"
    spool.add(b"\xff\x00" * 50_000)
    assert file.stat().st_size == spool.size == 100_011
    assert spool.tail(2) == b"\xff\x00"
    spool.remove()


def test_only_the_owner_can_read_the_file(file: Path) -> None:
    old = os.umask(0)
    try:
        spool = made(file)
        spool.add(b"x")
    finally:
        os.umask(old)
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    assert stat.S_IMODE(file.parent.stat().st_mode) == 0o700
    spool.close()


@pytest.mark.parametrize("memory", [0, 100], ids=["file", "memory"])
async def test_any_part_can_be_read(file: Path, memory: int) -> None:
    spool = made(file, memory)
    spool.add(b"01234")
    spool.add(b"56789")
    assert await spool.read(3, 4) == b"3456"
    assert await spool.read(8, 100) == b"89"
    assert await spool.read(10, 1) == await spool.read(11, 1) == b""
    assert await spool.read(2, 0) == b""
    assert spool.tail(0) == b""
    assert spool.tail(4) == b"6789"
    assert spool.tail(100) == b"0123456789"
    spool.remove()


@pytest.mark.parametrize("link", ["../target", "."], ids=["a link", "a directory"])
async def test_an_existing_file_or_link_is_left_alone(
    file: Path, tmp_path: Path, link: str
) -> None:
    (tmp_path / "target").write_text("precious")
    file.parent.mkdir()
    file.symlink_to(link)
    spool = made(file, 10)
    spool.add(b"12345")
    spool.add(b"6789012345")
    assert (tmp_path / "target").read_text() == "precious"
    assert (spool.path, spool.size, spool.dropped) == ("", 10, 5)
    assert await whole(spool) == b"1234567890"
    spool.remove()
    assert file.is_symlink()


async def test_where_no_file_can_be_made_memory_keeps_the_beginning(tmp_path: Path) -> None:
    (tmp_path / "out").write_text("in the way")
    spool = made(tmp_path / "out" / "x.log", 4)
    for piece in (b"abc", b"defg", b"h"):
        spool.add(piece)
    assert (spool.path, spool.size, spool.dropped) == ("", 4, 4)
    assert await whole(spool) == b"abcd"
    spool.to_file()
    spool.settle()
    with moving(spool) as pipe:
        pipe.write(b"more")
        pipe.end()
    assert (spool.size, spool.dropped) == (4, 8)
    assert await whole(spool) == b"abcd"


async def test_a_full_disk_leaves_what_memory_has(tmp_path: Path) -> None:
    with small_disk(tmp_path / "disk", "64k") as disk:
        (disk / "filler").write_bytes(b"x" * 65_536)
        spool = made(disk / "x.log", 10)
        spool.add(b"01234567")
        spool.to_file()
        assert (spool.path, spool.size) == ("", 8)
        spool.add(b"89abc")
        assert (spool.size, spool.dropped) == (10, 3)
        assert await whole(spool) == b"0123456789"
        assert [file.name for file in disk.iterdir()] == ["filler"]


async def test_little_that_went_to_a_file_goes_back_to_memory(file: Path) -> None:
    before = open_handles()
    spool = made(file, 10)
    spool.add(b"abc")
    spool.to_file()
    spool.to_file()
    assert file.read_bytes() == b"abc"
    spool.add(b"def")
    assert await whole(spool) == b"abcdef"
    spool.settle()
    assert (spool.path, spool.size) == ("", 6)
    assert await whole(spool) == b"abcdef"
    assert spool.tail(2) == b"ef"
    assert not file.exists()
    assert open_handles() <= before  # threads of earlier tests may still be closing theirs


async def test_much_stays_in_its_file(file: Path) -> None:
    spool = made(file, 10)
    spool.add(b"x" * 11)
    spool.settle()
    assert spool.path == str(file)
    assert await whole(spool) == b"x" * 11
    spool.remove()
    assert not file.exists()
    spool.remove()


async def test_reads_that_are_under_way_when_output_settles_are_answered(file: Path) -> None:
    for number in range(100):
        spool = made(file, 100)
        spool.add(b"%03d" % number)
        spool.to_file()
        reads = [asyncio.create_task(spool.read(0, 10)) for _ in range(5)]
        await asyncio.sleep(0)
        spool.settle()
        with open(os.devnull, "rb"), open(os.devnull, "rb"):
            assert await asyncio.gather(*reads) == [b"%03d" % number] * 5


async def test_the_size_of_the_file_is_limited(file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(spools, "MAX_FILE", 1000)
    spool = made(file, 10)
    for _ in range(3):
        spool.add(b"x" * 450)
    assert (spool.size, spool.dropped) == (1000, 350)
    assert file.stat().st_size == len(await whole(spool)) == 1000
    with moving(spool) as pipe:
        pipe.write(b"y" * 100_000)
        pipe.end()
    assert (spool.size, spool.dropped) == (1000, 100_350)
    assert spool.tail(5) == b"xxxxx"
    spool.remove()


async def test_a_thread_moves_a_pipe_to_the_file(file: Path) -> None:
    spool = made(file)
    spool.add(b"first ")
    with moving(spool) as pipe:
        pipe.write(bytes(range(256)) * 10_000)
        pipe.end()
        assert pipe.told[-1] == spool.size
    assert await whole(spool) == file.read_bytes() == b"first " + bytes(range(256)) * 10_000
    assert spool.dropped == 0
    spool.remove()


async def test_moved_output_ends_at_the_size_limit(
    file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(spools, "MAX_FILE", 100_000)
    spool = made(file)
    spool.to_file()
    with moving(spool) as pipe:
        pipe.write(b"x" * 300_000)
        pipe.end()
    assert (spool.size, spool.dropped, file.stat().st_size) == (100_000, 200_000, 100_000)
    spool.remove()


async def test_some_room_is_left_on_the_disk(file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(spools, "MIN_FREE", 1 << 60)
    monkeypatch.setattr(spools, "_CHUNK", 1 << 10)
    spool = made(file)
    spool.to_file()
    with moving(spool) as pipe:
        pipe.write(b"x" * 500_000)
        pipe.end()
    assert spool.size < 200_000
    assert spool.size + spool.dropped == 500_000
    assert file.stat().st_size == spool.size
    spool.remove()


@pytest.mark.parametrize("by_thread", [False, True], ids=["added", "moved"])
async def test_when_the_disk_is_full_the_rest_is_counted(tmp_path: Path, by_thread: bool) -> None:
    with small_disk(tmp_path / "disk", "256k") as disk:
        spool = made(disk / "x.log")
        data = bytes(range(256)) * 4_000
        if by_thread:
            spool.to_file()
            with moving(spool) as pipe:
                pipe.write(data)
                pipe.end()
        else:
            for start in range(0, len(data), 10_000):
                spool.add(data[start : start + 10_000])
        assert 100_000 < spool.size <= 256 * 1024
        assert spool.size + spool.dropped == len(data)
        assert await whole(spool) == data[: spool.size]
        spool.remove()


def test_a_limit_on_the_size_of_files_ends_nothing(tmp_path: Path) -> None:
    program = (
        "import asyncio, resource, sys\n"
        "from clawkit.process.spool import Spool\n"
        "resource.setrlimit(resource.RLIMIT_FSIZE, (50_000, 50_000))\n"
        "spool = Spool(sys.argv[1])\n"
        "for _ in range(10): spool.add(b'x' * 9_999)\n"
        "print(spool.size, spool.dropped)\n"
    )
    argv = (sys.executable, "-c", program, str(tmp_path / "x.log"))
    done = subprocess.run(argv, capture_output=True, check=True)
    assert done.stdout.split() == [b"50000", b"49990"]


@pytest.mark.skipif(SPLICE < 0, reason="the number of the system call is not known here")
async def test_bytes_are_moved_where_the_kernel_cannot_do_it(file: Path) -> None:
    spool = made(file)
    spool.to_file()
    source, sink = os.pipe()
    os.write(sink, b"x" * 60_000)
    os.close(sink)
    move = spool.mover(source, threading.Event(), lambda: None)
    tricks._in_thread(lambda: tricks._refuse(SPLICE, errno.EINVAL), move)
    os.close(source)
    assert (spool.size, spool.dropped) == (60_000, 0)
    assert file.read_bytes() == b"x" * 60_000
    spool.remove()


def test_the_thread_stops_on_request(file: Path) -> None:
    spool = made(file)
    spool.to_file()
    with moving(spool) as pipe:
        pipe.write(b"some")
        pipe.wait_until_told(4)
        pipe.stop()
    spool.remove()


def test_every_new_output_is_announced(file: Path) -> None:
    spool = made(file)
    spool.to_file()
    with moving(spool) as pipe:

        def more() -> None:
            pipe.on_tell = lambda: None
            pipe.write(b"2")

        pipe.on_tell = more
        pipe.write(b"1")
        pipe.wait_until_told(2)
    spool.remove()


async def test_everybody_who_waits_is_woken(file: Path) -> None:
    spool = made(file, 100)
    waiting = [asyncio.create_task(spool.changed(None)) for _ in range(3)]
    await asyncio.sleep(0)
    waiting.pop().cancel()
    spool.add(b"x")
    await asyncio.gather(*waiting)
    assert not spool._waiting


async def test_a_wait_ends_at_its_timeout(file: Path) -> None:
    spool = made(file, 100)
    await spool.changed(0.01)
    await spool.changed(0)
    assert not spool._waiting
    spool.add(b"x")
    spool.note()


async def test_news_are_noted_with_their_time(file: Path) -> None:
    spool = made(file, 100)
    before = spool.last_at
    await asyncio.sleep(0.01)
    spool.add(b"x")
    assert spool.last_at > before


async def test_a_file_that_someone_else_writes_is_looked_at(tmp_path: Path) -> None:
    file = tmp_path / "x.log"
    file.write_bytes(b"one")
    spool = Spool.of_file(str(file))
    assert (spool.size, spool.path) == (3, str(file))
    waiting = asyncio.create_task(spool.changed(None))
    await asyncio.sleep(0)
    assert spool.size == 3
    await asyncio.sleep(0)
    assert not waiting.done()
    with file.open("ab") as more:
        more.write(b" two")
    assert spool.size == 7
    await waiting
    assert await whole(spool) == b"one two"
    assert spool.tail(3) == b"two"
    spool.close()
    assert file.exists()


def test_a_link_is_not_followed(tmp_path: Path) -> None:
    (tmp_path / "target").write_text("secret")
    (tmp_path / "x.log").symlink_to("target")
    with pytest.raises(OSError, match="symbolic links"):
        Spool.of_file(str(tmp_path / "x.log"))


async def test_a_spool_that_was_closed_does_not_come_back(file: Path) -> None:
    before = open_handles()
    spool = made(file, 2)
    spool.add(b"abc")
    spool.close()
    spool.close()
    spool.add(b"more")
    assert file.read_bytes() == b"abc"
    assert open_handles() <= before  # threads of earlier tests may still be closing theirs
