"""Files on this machine, as the tools reach them."""

from __future__ import annotations

import asyncio
import os
import socket
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.fs.tricks import swapping, without_privileges

from clawkit.errors import ToolAuthorizationError, ToolInputError
from clawkit.fs.base import DirEntry
from clawkit.fs.local import LocalFileSystem


@pytest.fixture
def place(tmp_path: Path) -> Path:
    """A workspace, and a directory beside it."""
    place = tmp_path / "root"
    (place / "dir").mkdir(parents=True)
    (place / "dir" / "f").write_text("inside")
    (place / "report.txt").write_text("report")
    (tmp_path / "outside").mkdir()
    (tmp_path / "outside" / "f").write_text("SECRET")
    return place


async def read(files: LocalFileSystem, path: str) -> str:
    async with files.open(path) as file:
        assert file.size >= 0
        return (await file.read(1_000)).decode()


async def refuse(files: LocalFileSystem, path: str) -> str:
    with pytest.raises(ToolInputError) as caught:
        await read(files, path)
    return str(caught.value)


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
        for path in (f"{link}/dir/f", f"{place}/dir/f", "dir/f"):
            assert await read(files, path) == "inside"


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
async def test_what_is_outside_is_refused(
    place: Path, tmp_path: Path, path: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HOME", "/root-of-nobody")
    files = LocalFileSystem(str(place))
    with pytest.raises(ToolAuthorizationError, match="outside the workspace"):
        await read(files, path.format(tmp=tmp_path))
    with pytest.raises(ToolAuthorizationError, match="outside the workspace"):
        await files.list(os.path.dirname(path.format(tmp=tmp_path)))


async def test_further_roots_may_be_read_by_their_absolute_paths(
    place: Path, tmp_path: Path
) -> None:
    for root in (str(tmp_path / "outside"), "../outside"):
        files = LocalFileSystem(str(place), read_roots=[root])
        assert await read(files, f"{tmp_path}/outside/f") == "SECRET"
        assert await files.list(f"{tmp_path}/outside") == [DirEntry("f", "file")]
        with pytest.raises(ToolAuthorizationError):
            await read(files, "../outside/f")
        with pytest.raises(ToolAuthorizationError):
            await read(files, "/etc/passwd")


async def test_a_file_with_a_second_name_may_come_from_outside_and_is_refused(
    place: Path, tmp_path: Path
) -> None:
    os.link(tmp_path / "outside" / "f", place / "hard")
    with pytest.raises(ToolAuthorizationError, match="hard links") as caught:
        await read(LocalFileSystem(str(place)), "hard")
    assert caught.value.reason == "hard-link"
    assert await read(LocalFileSystem(str(place), workspace_only=False), "hard") == "SECRET"


async def test_held_to_nothing_every_path_opens(
    place: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    (place / "~odd").write_text("odd")
    files = LocalFileSystem(str(place), workspace_only=False)
    for path in (
        "../outside/f",
        f"{tmp_path}/outside/f",
        f"FILE://{tmp_path}/outside/f",
        "~/outside/f",
    ):
        assert await read(files, path) == "SECRET"
    assert await read(files, "dir/f") == "inside"
    assert await read(files, "~odd") == "odd"
    assert "does not exist" in await refuse(files, "missing")


@pytest.fixture
def kinds(place: Path) -> Iterator[Path]:
    os.mkfifo(place / "pipe")
    server = socket.socket(socket.AF_UNIX)
    server.bind(str(place / "socket"))
    yield place
    server.close()


async def test_only_regular_files_are_read(kinds: Path) -> None:
    files = LocalFileSystem(str(kinds))
    assert "is a directory (use ls), not a file" in await refuse(files, "dir")
    assert "is a named pipe, not a file" in await refuse(files, "pipe")
    assert "'socket'" in await refuse(files, "socket")
    assert "is a device, not a file" in await refuse(LocalFileSystem("/dev"), "null")


async def test_only_directories_are_listed(kinds: Path) -> None:
    files = LocalFileSystem(str(kinds))
    for path, words in (("dir/f", "is a file"), ("pipe", "is a named pipe")):
        with pytest.raises(ToolInputError, match=f"{words}, not a directory; use read"):
            await files.list(path)


async def test_a_listing_says_what_each_name_is_in_byte_order(kinds: Path) -> None:
    (kinds / "link").symlink_to("/etc")
    (kinds / "gone").symlink_to("nowhere")
    (kinds / "Z").touch()
    os.close(os.open(os.fsencode(kinds) + b"/\xff", os.O_CREAT))
    assert await LocalFileSystem(str(kinds)).list(".") == [
        DirEntry("Z", "file"),
        DirEntry("dir", "directory"),
        DirEntry("gone", "link"),
        DirEntry("link", "link"),
        DirEntry("pipe", "other"),
        DirEntry("report.txt", "file"),
        DirEntry("socket", "other"),
        DirEntry("\udcff", "file"),
    ]


@pytest.mark.parametrize(
    ("path", "words"),
    [
        ("repotr.txt", "does not exist; near names: 'report.txt'"),
        ("dri", "does not exist; near names: 'dir'"),
        ("dir/g", "does not exist; near names: 'f'"),
        ("entirely-different", "'entirely-different' does not exist"),
        ("no/such/dir", "does not exist"),
        ("dir/f/x", "does not exist: a part of the path is not a directory"),
        ("x" * 300, "has a name that is too long"),
        ("", "an empty text is not a path"),
        ("a\0b", "is not a usable path"),
    ],
)
async def test_what_cannot_be_opened_says_why(place: Path, path: str, words: str) -> None:
    message = await refuse(LocalFileSystem(str(place)), path)
    assert words in message
    assert "Errno" not in message


async def test_names_near_a_missing_one_are_never_looked_for_outside(place: Path) -> None:
    (place / "out").symlink_to("../outside")
    files = LocalFileSystem(str(place))
    with pytest.raises(ToolAuthorizationError) as caught:
        await read(files, "out/g")
    assert "near names" not in str(caught.value)


def test_what_may_not_be_read_says_so(place: Path) -> None:
    (place / "dir" / "f").chmod(0)
    files = LocalFileSystem(str(place))
    message = without_privileges(lambda: asyncio.run(refuse(files, "dir/f")))
    assert message == "'dir/f' may not be read"


async def test_a_workspace_that_is_gone_says_so(tmp_path: Path) -> None:
    assert "cannot be opened" in await refuse(LocalFileSystem(str(tmp_path / "gone")), "a")


async def test_what_is_read_comes_from_the_file_that_was_opened(place: Path) -> None:
    async with LocalFileSystem(str(place)).open("report.txt") as file:
        (place / "report.txt").unlink()
        (place / "report.txt").symlink_to("../outside/f")
        assert await file.read(100) == b"report"


async def test_no_race_ever_shows_what_is_outside(place: Path) -> None:
    files = LocalFileSystem(str(place))
    seen: set[object] = set()
    with swapping(place):
        for _ in range(1_000):
            try:
                seen.add(await read(files, f"{place}/dir/f"))
                seen.update(await files.list("dir"))
            except ToolInputError as error:
                assert "SECRET" not in str(error)  # noqa: PT017
    assert seen <= {"inside", DirEntry("f", "file")}


async def test_no_handle_is_left_open(kinds: Path) -> None:
    files = LocalFileSystem(str(kinds))
    before = len(os.listdir("/proc/self/fd"))
    for path in ("dir/f", "dir", "pipe", "missing", "../outside/f", "", "socket"):
        for _ in range(10):
            for work in (read(files, path), files.list(path)):
                try:
                    await work
                except ToolInputError:
                    continue
    assert len(os.listdir("/proc/self/fd")) == before
