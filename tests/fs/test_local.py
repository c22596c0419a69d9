"""Files on this machine, as the tools reach them."""

from __future__ import annotations

import asyncio
import errno
import os
import socket
import subprocess
import sys
import threading
import tracemalloc
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.fs.tricks import just_before, open_handles, small_disk, swapping, without_privileges
from tests.scale import scaled

from clawkit.errors import NotFoundError, ToolAuthorizationError, ToolError, ToolInputError
from clawkit.fs.local import LocalFileSystem
from clawkit.fs.protocols import Change, DirEntry


@pytest.fixture
def place(tmp_path: Path) -> Path:
    """A workspace, and a directory beside it."""
    place = tmp_path.resolve() / "root"
    (place / "dir").mkdir(parents=True)
    (place / "dir" / "f").write_text("inside")
    (place / "report.txt").write_text("report")
    (tmp_path / "outside").mkdir()
    (tmp_path / "outside" / "f").write_text("SECRET")
    return place


async def read(files: LocalFileSystem, path: str) -> str:
    async with files.open(path) as file:
        return (await file.read(1_000, 0)).decode()


async def refuse(files: LocalFileSystem, path: str) -> str:
    with pytest.raises(ToolInputError) as caught:
        await read(files, path)
    return str(caught.value)


async def names(files: LocalFileSystem, path: str) -> list[str]:
    return [entry.name for entry in (await files.list(path)).entries]


async def test_files_open_by_every_spelling_of_their_place(
    place: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HOME", str(place))
    files = LocalFileSystem(str(place))
    for path in ("dir/f", f"{place}/dir/f", f"file://{place}/dir/f", "~/dir/f", "dir/../dir/f"):
        assert await read(files, path) == "inside"


async def test_the_workspace_may_be_a_link_and_reached_by_both_names(
    place: Path, tmp_path: Path
) -> None:
    link = tmp_path / "link"
    link.symlink_to(place)
    for workspace in (link, place):
        files = LocalFileSystem(str(workspace))
        assert files.workspace == str(workspace)
        for path in (f"{link}/dir/f", f"{place}/dir/f", "dir/f"):
            assert await read(files, path) == "inside"
        (done,) = await files.change([Change(f"{link}/dir/f", b"inside")])
        assert done.place == f"{place}/dir/f"


@pytest.mark.parametrize(
    "path",
    [
        "../outside/f",
        "{tmp}/outside/f",
        "{tmp}/root/../outside/f",
        "file://{tmp}/outside/f",
        "/etc/passwd",
        "/proc/self/root/etc/passwd",
        "/proc/self/environ",
        "~/x",
    ],
)
async def test_paths_outside_are_refused(
    place: Path, tmp_path: Path, path: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HOME", "/root-of-nobody")
    files = LocalFileSystem(str(place))
    with pytest.raises(ToolAuthorizationError, match="outside the workspace") as caught:
        await read(files, path.format(tmp=tmp_path))
    assert caught.value.reason == "outside-workspace"
    with pytest.raises(ToolAuthorizationError, match="outside the workspace"):
        await files.list(os.path.dirname(path.format(tmp=tmp_path)))


async def test_a_file_with_a_second_name_may_come_from_outside_and_is_refused(
    place: Path, tmp_path: Path
) -> None:
    os.link(tmp_path / "outside" / "f", place / "hard")
    with pytest.raises(ToolAuthorizationError, match="hard links") as caught:
        await read(LocalFileSystem(str(place)), "hard")
    assert caught.value.reason == "hard-link"
    with pytest.raises(ToolAuthorizationError, match="hard links"):
        LocalFileSystem(str(place)).start("hard")
    for files in (
        LocalFileSystem(str(place), workspace_only=False),
        LocalFileSystem(str(place), hard_links=True),
    ):
        assert await read(files, "hard") == "SECRET"


async def test_without_a_limit_every_path_opens(
    place: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    (place / "~odd").write_text("odd")
    files = LocalFileSystem(str(place), workspace_only=False)
    assert files.readable is None
    for path in (
        "../outside/f",
        f"{tmp_path}/outside/f",
        f"FILE://{tmp_path}/outside/f",
        "~/outside/f",
    ):
        assert await read(files, path) == "SECRET"
    assert await read(files, "dir/f") == "inside"
    assert await read(files, "~odd") == "odd"
    assert "similar names: 'report.txt'" in await refuse(files, "repotr.txt")
    assert "similar names: 'f'" in await refuse(files, f"{tmp_path}/outside/g")
    assert "the path is empty" in await refuse(files, "")
    await files.change([Change("../outside/f", b"new"), Change(f"{tmp_path}/more/x", b"x")])
    assert (tmp_path / "outside" / "f").read_bytes() == b"new"
    assert (tmp_path / "more" / "x").read_bytes() == b"x"


async def test_without_a_limit_reading_and_writing_use_the_same_file(
    place: Path, tmp_path: Path
) -> None:
    (tmp_path / "outside" / "deep").mkdir()
    (place / "link").symlink_to(tmp_path / "outside" / "deep")
    files = LocalFileSystem(str(place), workspace_only=False)
    (done,) = await files.change([Change("link/../f", b"new")])
    assert done.place == str(tmp_path.resolve() / "outside" / "f")
    assert await read(files, "link/../f") == "new"


async def test_a_path_through_open_files_never_leads_outside(place: Path) -> None:
    root, inner = os.open("/", os.O_RDONLY), os.open(place / "dir", os.O_RDONLY)
    files = LocalFileSystem(str(place))
    try:
        for path in (f"/proc/self/fd/{root}/etc/passwd", f"/dev/fd/{inner}/../../outside/f"):
            with pytest.raises(ToolAuthorizationError):
                await read(files, path)
            with pytest.raises(ToolAuthorizationError):
                await files.change([Change(path, b"x")])
        (place / "link").symlink_to(f"/proc/self/fd/{inner}")
        async with files.open("link/f") as file:
            # It is opened by the name that it really has.
            assert file.place == f"{place}/dir/f"
        unheld = LocalFileSystem(str(place), workspace_only=False)
        assert "link that is not followed" in await refuse(
            unheld, f"/proc/self/fd/{root}/etc/passwd"
        )
    finally:
        os.close(root)
        os.close(inner)


@pytest.fixture
def kinds(place: Path) -> Iterator[Path]:
    """The workspace, with a pipe and a socket."""
    os.mkfifo(place / "pipe")
    server = socket.socket(socket.AF_UNIX)
    server.bind(str(place / "socket"))
    yield place
    server.close()


async def test_only_regular_files_are_read(kinds: Path) -> None:
    files = LocalFileSystem(str(kinds))
    assert "is a directory (use ls), not a file" in await refuse(files, "dir")
    assert "is a named pipe, not a file" in await refuse(files, "pipe")
    assert "is a socket, not a file" in await refuse(files, "socket")
    assert "is a device, not a file" in await refuse(LocalFileSystem("/dev"), "null")


async def test_a_pipe_is_not_even_opened(kinds: Path) -> None:
    files = LocalFileSystem(str(kinds))
    await refuse(files, "pipe")
    with pytest.raises(OSError, match="No such device or address"):
        # Somebody who reads would let a writer in.
        os.open(kinds / "pipe", os.O_WRONLY | os.O_NONBLOCK)


async def test_only_directories_are_listed(kinds: Path) -> None:
    files = LocalFileSystem(str(kinds))
    for path, words in (
        ("dir/f", "is a file"),
        ("pipe", "is a named pipe"),
        ("socket", "is a socket"),
    ):
        with pytest.raises(ToolInputError, match=f"{words}, not a directory; use read"):
            await files.list(path)


async def test_a_listing_has_the_kind_of_each_name_in_byte_order(kinds: Path) -> None:
    (kinds / "link").symlink_to("/etc")
    (kinds / "gone").symlink_to("nowhere")
    (kinds / "Z").touch()
    os.close(os.open(os.fsencode(kinds) + b"/\xff", os.O_CREAT))
    files = LocalFileSystem(str(kinds))
    listing = await files.list(".")
    assert listing.entries == (
        DirEntry("Z", "file"),
        DirEntry("dir", "directory"),
        DirEntry("gone", "link"),
        DirEntry("link", "link"),
        DirEntry("pipe", "other"),
        DirEntry("report.txt", "file"),
        DirEntry("socket", "other"),
        DirEntry("\udcff", "file"),
    )
    detailed = await files.list(".", details=True)
    assert [(each.name, each.kind) for each in detailed.entries] == [
        (each.name, each.kind) for each in listing.entries
    ]
    assert {each.name: each.target for each in detailed.entries if each.target} == {
        "gone": "nowhere",
        "link": "/etc",
    }


@pytest.mark.parametrize(
    ("path", "words"),
    [
        ("repotr.txt", "does not exist; similar names: 'report.txt'"),
        ("dri", "does not exist; similar names: 'dir'"),
        ("dir/g", "does not exist; similar names: 'f'"),
        ("abs/g", "does not exist; similar names: 'f'"),
        ("file:dir/g", "does not exist; similar names: 'f'"),
        ("entirely-different", "'entirely-different' does not exist"),
        ("no/such/dir", "does not exist"),
        ("dir/f/x", "does not exist: a part of the path is not a directory"),
        ("x" * 300, "has a name that is too long"),
        ("", "the path is empty"),
        ("a\0b", "is not a usable path"),
    ],
)
async def test_a_file_that_cannot_be_opened_is_an_error_with_the_reason(
    place: Path, path: str, words: str
) -> None:
    (place / "abs").symlink_to(place / "dir")
    message = await refuse(LocalFileSystem(str(place)), path)
    assert words in message
    assert "Errno" not in message


async def test_an_error_lists_names_that_look_the_same(place: Path) -> None:
    (place / "dir" / "Screenshot 9\u202fPM.png").touch()
    with pytest.raises(NotFoundError) as caught:
        await read(LocalFileSystem(str(place)), "dir/Screenshot 9 PM.png")
    assert caught.value.alike == ("dir/Screenshot 9\u202fPM.png",)


async def test_names_near_a_missing_one_are_never_looked_for_outside(place: Path) -> None:
    (place / "out").symlink_to("../outside")
    files = LocalFileSystem(str(place))
    with pytest.raises(ToolAuthorizationError) as caught:
        await read(files, "out/g")
    assert "near names" not in str(caught.value)


def test_an_unreadable_file_is_an_error_with_the_reason(place: Path) -> None:
    (place / "dir" / "f").chmod(0)
    (place / "dir2").mkdir(mode=0o300)
    (place / "closed").mkdir(mode=0o0)
    files = LocalFileSystem(str(place))

    def refused(path: str) -> str:
        with pytest.raises(ToolInputError) as caught:
            files._open_file(path)
        return str(caught.value)

    def not_listed(path: str) -> str:
        with pytest.raises(ToolInputError) as caught:
            files._list(path, "", 10, False)
        return str(caught.value)

    assert without_privileges(lambda: refused("dir/f")) == (
        "'dir/f' cannot be read: permission denied"
    )
    assert without_privileges(lambda: not_listed("dir2")) == (
        "'dir2' cannot be read: permission denied"
    )
    assert without_privileges(lambda: refused("closed/f")) == (
        "'closed/f' cannot be opened: permission denied"
    )


async def test_an_error_during_reading_is_reported() -> None:
    files = LocalFileSystem("/proc/self")
    before = open_handles()
    assert await refuse(files, "mem") == "'mem' cannot be read: input/output error"
    assert open_handles() <= before + 1  # the root's, which is kept


async def test_a_missing_workspace_is_an_error(tmp_path: Path) -> None:
    files = LocalFileSystem(str(tmp_path / "gone"))
    assert "cannot be opened" in await refuse(files, "a")
    with pytest.raises(ToolInputError, match="cannot be opened"):
        await files.change([Change("a", b"")])
    assert not (tmp_path / "gone").exists()


async def test_a_disk_mounted_inside_is_a_part_of_the_workspace(place: Path) -> None:
    files = LocalFileSystem(str(place))
    await files.list(".")
    with small_disk(place / "disk") as disk:
        (disk / "f").write_text("mounted")
        assert await read(files, "disk/f") == "mounted"
        await files.change([Change("disk/f", b"new"), Change("beside", b"")])
        assert await names(files, "disk") == ["f"]
        assert await read(files, "disk/f") == "new"


async def test_a_failed_rollback_is_repeated_before_a_file_is_read(
    place: Path, tmp_path: Path
) -> None:
    files = LocalFileSystem(str(place), journals=str(tmp_path / "journals"))
    (place / "z").write_text("z")

    def swap() -> None:
        (place / "dir").rename(place / "away")
        (place / "dir").symlink_to("away")
        raise OSError(errno.EIO, "failed")

    with just_before("os.rename", "-1.old", swap), pytest.raises(ToolError, match="restored yet"):
        await files.change([Change("dir/f", b"new"), Change("z", None)])
    (place / "dir").unlink()
    (place / "away").rename(place / "dir")
    assert await read(files, "dir/f") == "inside"


async def test_no_race_ever_shows_what_is_outside(place: Path) -> None:
    files = LocalFileSystem(str(place))
    seen: set[object] = set()
    with swapping(place):
        for _ in range(1_000):
            try:
                seen.add(await read(files, f"{place}/dir/f"))
                seen.update((await files.list("dir")).entries)
            except ToolInputError as error:
                assert "SECRET" not in str(error)  # noqa: PT017
    assert seen <= {"inside", DirEntry("f", "file")}


async def test_no_handle_is_left_open(kinds: Path) -> None:
    files = LocalFileSystem(str(kinds))
    (kinds / "out").symlink_to("../outside")
    await files.list(".")
    before = open_handles()
    for path in ("dir/f", "dir", "pipe", "missing", "../outside/f", "", "socket", "out/f", "a/b"):
        for _ in range(10):
            changes = [Change(path, b"x")]
            more = [Change(path, b"x"), Change("other", b"y"), Change("new/one", b"")]
            for work in (read(files, path), files.list(path), files.change(changes)):
                try:
                    await work
                except ToolInputError:
                    continue
        try:
            await files.change(more)
        except ToolInputError:
            continue
    assert open_handles() <= before  # threads of earlier tests may still be closing theirs


async def test_no_handle_is_left_open_when_no_one_waits_for_it_any_more(place: Path) -> None:
    files = LocalFileSystem(str(place))
    (place / "big").write_bytes(b"x" * 1_000_000)
    await files.list(".")
    before = open_handles()

    async def look(path: str) -> None:
        async with files.open(path) as file:
            await file.read(900_000, 100)

    for delay in range(200):
        task = asyncio.create_task(look("big"))
        await asyncio.sleep(delay * 0.000_01)
        task.cancel()
        await asyncio.wait({task})
    async with asyncio.timeout(60):
        while open_handles() > before:
            await asyncio.sleep(0.01)


async def test_the_event_loop_runs_while_files_are_examined(place: Path) -> None:
    for number in range(3_000):
        (place / "dir" / f"{number}").touch()
    files = LocalFileSystem(str(place))
    turns = 0
    done = False

    async def turn() -> None:
        nonlocal turns
        while not done:
            turns += 1
            await asyncio.sleep(0)

    ticker = asyncio.create_task(turn())
    await files.list("dir", details=True)
    done = True
    await ticker
    assert turns > 3


async def test_the_blocking_work_is_done_in_another_thread(place: Path) -> None:
    seen: list[bool] = []

    class Watching(LocalFileSystem):
        def _recover(self) -> None:
            seen.append(threading.current_thread() is threading.main_thread())

    files = Watching(str(place))
    await read(files, "dir/f")
    await files.list(".")
    await files.change([Change("x", b"")])
    assert seen == [False, False, False]


@pytest.fixture
def crowd(tmp_path: Path) -> Iterator[Path]:
    """A directory with 100,000 names, in memory where there is room."""
    base = Path("/dev/shm") if os.access("/dev/shm", os.W_OK) else tmp_path
    place = base / f"clawkit-crowd-{os.getpid()}"
    place.mkdir()
    folder = os.open(place, os.O_RDONLY)
    try:
        for number in range(100_000):
            os.mknod(f"{number * 7919 % 100_000:06}", dir_fd=folder)
        yield place
        for number in range(100_000):
            os.unlink(f"{number:06}", dir_fd=folder)
    finally:
        os.close(folder)
        place.rmdir()


async def test_a_huge_directory_is_listed_in_little_memory_and_every_name_once(
    crowd: Path,
) -> None:
    files = LocalFileSystem(str(crowd))
    tracemalloc.start()
    try:
        first = await files.list(".", limit=500)
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert peak < 5_000_000
    assert (first.total, first.left) == (100_000, 99_500)
    found = [entry.name for entry in first.entries]
    for _ in range(3):
        listing = await files.list(".", after=found[-1], limit=10_000)
        found += [entry.name for entry in listing.entries]
        assert listing.left == 100_000 - len(found)
    assert found == [f"{number:06}" for number in range(30_500)]
    last = await files.list(".", after="099998")
    assert [entry.name for entry in last.entries] == ["099999"]


async def test_a_name_that_went_away_is_listed_without_details(place: Path) -> None:
    files = LocalFileSystem(str(place))
    stop = threading.Event()

    def flicker() -> None:
        while not stop.is_set():
            (place / "flicker").touch()
            (place / "flicker").unlink()

    thread = threading.Thread(target=flicker)
    thread.start()
    try:
        for _ in range(500):
            listing = await files.list(".", details=True)
            found = {each.name: each.info for each in listing.entries}
            assert found["report.txt"] is not None
            assert set(found) <= {"report.txt", "dir", "flicker"}
    finally:
        stop.set()
        thread.join()


def test_a_search_begins_at_a_directory_or_at_a_file(place: Path, tmp_path: Path) -> None:
    files = LocalFileSystem(str(place))
    for path, expected in (
        (".", (str(place), "")),
        ("dir", (f"{place}/dir", "")),
        ("dir/f", (f"{place}/dir", "f")),
    ):
        start = files.start(path)
        try:
            assert (start.place, start.name) == expected
            assert os.path.samestat(os.fstat(start.fd), os.stat(start.place))
        finally:
            os.close(start.fd)
    before = open_handles()
    os.mkfifo(place / "pipe")
    for path in ("missing", "../outside", "pipe"):
        with pytest.raises(ToolInputError):
            files.start(path)
    assert open_handles() <= before  # threads of earlier tests may still be closing theirs
    assert files.readable == (str(place),)
    more = LocalFileSystem(str(place), read_roots=[str(tmp_path / "outside")])
    assert more.readable == (str(place), str(tmp_path.resolve() / "outside"))


async def test_a_file_that_is_replaced_all_the_time_can_be_read(place: Path) -> None:
    swap = (
        "import os, sys\n"
        "print(flush=True)\n"
        "while os.getppid() != 1:\n"
        "    open(sys.argv[1] + '.new', 'w').write('inside')\n"
        "    os.replace(sys.argv[1] + '.new', sys.argv[1])\n"
    )
    argv = [sys.executable, "-c", swap, str(place / "dir" / "f")]
    with subprocess.Popen(argv, stdout=subprocess.PIPE) as writer:
        try:
            assert writer.stdout is not None
            writer.stdout.readline()
            files = LocalFileSystem(str(place))
            for _ in range(2_000):
                async with files.open("dir/f") as file:
                    assert await file.read(100, 0) == b"inside"
        finally:
            writer.kill()


async def test_a_hard_link_that_comes_and_goes_shows_nothing_from_outside(
    place: Path, tmp_path: Path
) -> None:
    swap = (
        "import os, sys\n"
        "file, outside = sys.argv[1:]\n"
        "print(flush=True)\n"
        "while os.getppid() != 1:\n"
        "    os.link(outside, file + '.out')\n"
        "    os.replace(file + '.out', file)\n"
        "    open(file + '.in', 'w').write('inside')\n"
        "    os.replace(file + '.in', file)\n"
    )
    argv = [sys.executable, "-c", swap, str(place / "dir" / "f"), str(tmp_path / "outside" / "f")]
    seen = set[bytes]()
    with subprocess.Popen(argv, stdout=subprocess.PIPE) as writer:
        try:
            assert writer.stdout is not None
            writer.stdout.readline()
            files = LocalFileSystem(str(place))
            tries = 0
            # The kernel is at a bad moment in a few of 100,000; on a busy machine one may be late.
            while tries < scaled(500_000) or len(seen) < 2:
                tries += 1
                try:
                    async with files.open("dir/f") as file:
                        seen.add(await file.read(100, 0))
                except ToolInputError:
                    seen.add(b"refused")
        finally:
            writer.kill()
    assert seen == {b"inside", b"refused"}


async def test_a_replaced_workspace_is_noticed_although_its_handle_is_kept(tmp_path: Path) -> None:
    place, aside = tmp_path / "ws", tmp_path / "aside"
    place.mkdir()
    (place / "a").write_text("old")
    files = LocalFileSystem(str(place))

    async def content() -> bytes:
        async with files.open("a") as file:
            return await file.read(100, 0)

    assert [await content(), await content()] == [b"old", b"old"]
    place.rename(aside)
    with pytest.raises(ToolInputError):
        await content()
    place.mkdir()
    (place / "a").write_text("new")
    assert [await content(), await content()] == [b"new", b"new"]
    (place / "a").unlink()
    place.rmdir()
    place.symlink_to(aside)
    with pytest.raises(ToolInputError):
        await content()
