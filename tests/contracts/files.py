"""What every FileSystem does, wherever its files are.

A test module for an implementation derives from `FileSystemContract` and says by the fixture
`ground` where the files are and how to look at them without the FileSystem.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Protocol

import pytest

from clawkit.errors import (
    ConflictError,
    NotFoundError,
    ProtectedError,
    ToolAuthorizationError,
    ToolInputError,
)
from clawkit.fs.protocols import ABSENT, Change, Changed, FileSystem, read_all


class Ground(Protocol):
    """A workspace and what is beside it, reached without the FileSystem. Paths are relative to the
    workspace; `../outside` is a directory beside it."""

    workspace: str

    def open(self) -> FileSystem:
        """A FileSystem that is held to the workspace."""
        ...

    def put(self, path: str, data: bytes, mode: int = 0o644) -> None:
        """Write a file; its directories are made."""
        ...

    def get(self, path: str) -> bytes | None:
        """What is in a file; None when there is none."""
        ...

    def mode(self, path: str) -> int: ...

    def link(self, path: str, target: str) -> None:
        """Make a symbolic link."""
        ...

    def names(self, path: str) -> list[str]:
        """Everything in a directory, at any depth, sorted."""
        ...


async def read(files: FileSystem, path: str) -> bytes:
    async with files.open(path) as file:
        return await read_all(file, 10_000_000)


async def version(files: FileSystem, path: str) -> str:
    async with files.open(path) as file:
        return file.info.version


async def names(files: FileSystem, path: str, **options: str | int) -> list[str]:
    listing = await files.list(path, **options)  # type: ignore[arg-type]
    return [entry.name for entry in listing.entries]


class FileSystemContract:
    """The suite."""

    @pytest.fixture
    def files(self, ground: Ground) -> FileSystem:
        ground.put("a.txt", b"alpha\n")
        ground.put("dir/f", b"inside")
        ground.put("../outside/f", b"SECRET")
        return ground.open()

    @pytest.fixture
    def before(self, files: FileSystem, ground: Ground) -> dict[str, bytes | None]:
        """Everything, as it was at first."""
        return self.everything(ground)

    def everything(self, ground: Ground) -> dict[str, bytes | None]:
        return {path: ground.get(path) for path in ground.names("..")}

    # Reading

    async def test_a_file_is_read_by_every_spelling_of_its_path(
        self, files: FileSystem, ground: Ground
    ) -> None:
        places = set()
        for path in ("dir/f", "./dir//f", "dir/../dir/f", f"{ground.workspace}/dir/f"):
            async with files.open(path) as file:
                places.add(file.place)
                assert await file.read(100, 0) == b"inside"
        assert len(places) == 1

    async def test_any_part_of_a_file_can_be_read(self, files: FileSystem, ground: Ground) -> None:
        data = bytes(range(256)) * 2_000
        ground.put("big", data)
        async with files.open("big") as file:
            assert file.info.size == len(data)
            for at, size in ((0, 10), (5, 70_000), (65_530, 20), (500_000, 50_000), (511_990, 99)):
                assert await file.read(size, at) == data[at : at + size]
            assert await file.read(10, len(data)) == b""
            assert await file.read(10, len(data) + 5) == b""
            assert await read_all(file, len(data)) == data
            with pytest.raises(ToolInputError, match="larger than"):
                await read_all(file, len(data) - 1)

    async def test_an_empty_file_is_empty(self, files: FileSystem, ground: Ground) -> None:
        ground.put("empty", b"")
        assert await read(files, "empty") == b""

    async def test_what_is_read_comes_from_the_file_that_was_opened(
        self, files: FileSystem, ground: Ground
    ) -> None:
        data = b"x" * 300_000
        ground.put("big", data)
        async with files.open("big") as file:
            await files.change([Change("big", b"other")])
            assert await read_all(file, len(data)) == data

    async def test_facts_about_a_file(self, files: FileSystem, ground: Ground) -> None:
        ground.put("tool", b"#!", 0o755)
        async with files.open("tool") as file:
            assert file.info.kind == "file"
            assert file.info.size == 2
            assert file.info.mode & 0o777 == 0o755
            assert file.info.mtime_ns > 0

    async def test_links_inside_are_followed_to_one_place(
        self, files: FileSystem, ground: Ground
    ) -> None:
        ground.link("relative", "dir/f")
        ground.link("absolute", f"{ground.workspace}/dir/f")
        ground.link("folder", "dir")
        ground.link("chain", "folder/../absolute")
        for path in ("relative", "absolute", "folder/f", "chain"):
            async with files.open(path) as file:
                assert await file.read(9, 0) == b"inside"
                assert file.place == f"{ground.workspace}/dir/f"

    @pytest.mark.parametrize(
        "path",
        ["missing", "missing/f", "dir/missing", "dir/../missing", " a.txt", "a.txt ", "a.txt."],
    )
    async def test_a_missing_file_is_not_found(self, files: FileSystem, path: str) -> None:
        for work in (read(files, path), files.list(path)):
            with pytest.raises(NotFoundError):
                await work

    async def test_the_wrong_kind_is_the_callers_mistake(self, files: FileSystem) -> None:
        for work in (read(files, "dir"), files.list("a.txt"), read(files, "a.txt/b")):
            with pytest.raises(ToolInputError) as caught:
                await work
            assert not isinstance(caught.value, ToolAuthorizationError)

    # Listing

    async def test_a_directory_is_listed_in_byte_order(
        self, files: FileSystem, ground: Ground
    ) -> None:
        for name in ("Z", "é", "_", ".hidden"):
            ground.put(name, b"")
        ground.link("link", "nowhere")
        listing = await files.list(".")
        assert [(entry.name, entry.kind) for entry in listing.entries] == [
            (".hidden", "file"),
            ("Z", "file"),
            ("_", "file"),
            ("a.txt", "file"),
            ("dir", "directory"),
            ("link", "link"),
            ("é", "file"),
        ]
        assert (listing.total, listing.left) == (7, 0)

    async def test_pages_together_are_the_directory(
        self, files: FileSystem, ground: Ground
    ) -> None:
        expected = sorted(f"{number:02}é" for number in range(23))
        for name in expected:
            ground.put(f"many/{name}", b"")
        found: list[str] = []
        while True:
            listing = await files.list("many", after=found[-1] if found else "", limit=5)
            found += [entry.name for entry in listing.entries]
            assert listing.total == 23
            assert listing.left == 23 - len(found)
            if not listing.left:
                break
        assert found == expected
        assert await names(files, "many", after="22é") == []

    async def test_details_are_told_when_asked_for(self, files: FileSystem, ground: Ground) -> None:
        ground.link("link", "../outside/f")
        plain = await files.list(".")
        assert all(entry.info is None and not entry.target for entry in plain.entries)
        found = {each.name: each for each in (await files.list(".", details=True)).entries}
        assert found["link"].target == "../outside/f"
        info = found["a.txt"].info
        assert info is not None
        assert (info.kind, info.size) == ("file", 6)
        assert info.version == await version(files, "a.txt")

    # Being held

    @pytest.mark.parametrize(
        "path",
        [
            "../outside/f",
            "dir/../../outside/f",
            "{ws}/../outside/f",
            "out/f",
            "out-file",
            "chain",
            "root{ws}/../outside/f",
            "/etc/passwd",
            "/proc/self/root/etc/passwd",
            "file:///etc/passwd",
            "file://{ws}/%2e%2e/outside/f",
            "out/../outside/f",
            "magic/etc/passwd",
            "new-link",
        ],
    )
    async def test_nothing_outside_is_reached(
        self, files: FileSystem, ground: Ground, path: str
    ) -> None:
        ground.link("out", "../outside")
        ground.link("out-file", f"{ground.workspace}/../outside/f")
        ground.link("chain", "dir/../out/f")
        ground.link("root", "/")
        ground.link("magic", "/proc/self/root")
        ground.link("new-link", "../outside/new")
        before = self.everything(ground)
        path = path.format(ws=ground.workspace)
        for look in (read(files, path), files.list(path)):
            with pytest.raises(ToolAuthorizationError):
                await look
        for change in (Change(path, b"PWNED"), Change(f"{path}/new/deep", b"PWNED")):
            for changes in ([change], [Change("other", b""), change]):
                with pytest.raises(ToolInputError):
                    await files.change(changes)
        assert self.everything(ground) == before

    @pytest.mark.parametrize(
        "path",
        ["../pwn", "out/pwn", "out/pwn/deep", "{ws}/../pwn", "/pwn/deep", "root/pwn", "~/pwn"],
    )
    async def test_nothing_is_made_outside(
        self, files: FileSystem, ground: Ground, path: str
    ) -> None:
        ground.link("out", "../outside")
        ground.link("root", "/")
        before = self.everything(ground)
        change = Change(path.format(ws=ground.workspace), b"PWNED")
        for changes in ([change], [Change("other", b""), change]):
            with pytest.raises(ToolAuthorizationError):
                await files.change(changes)
        assert self.everything(ground) == before

    @pytest.mark.parametrize("path", ["a\0b", "", "x" * 5_000, "\ud800", "x" * 300])
    async def test_what_cannot_be_a_path_is_the_callers_mistake(
        self, files: FileSystem, path: str, ground: Ground, before: dict[str, bytes | None]
    ) -> None:
        for work in (
            read(files, path),
            files.list(path),
            files.change([Change(path, b"")]),
            files.change([Change("new/a", b""), Change(path, b"")]),
        ):
            with pytest.raises(ToolInputError):
                await work
        assert self.everything(ground) == before

    # Changing

    async def test_a_new_file_is_made_with_its_directories(
        self, files: FileSystem, ground: Ground
    ) -> None:
        (done,) = await files.change([Change("x/y/z", b"new", ABSENT)])
        assert ground.get("x/y/z") == b"new"
        assert done.place == f"{ground.workspace}/x/y/z"
        assert done.info is not None
        assert done.info.version == await version(files, "x/y/z")

    async def test_a_file_is_replaced_and_keeps_its_mode(
        self, files: FileSystem, ground: Ground
    ) -> None:
        ground.put("tool", b"#!old", 0o750)
        (done,) = await files.change([Change("tool", b"#!new", await version(files, "tool"))])
        assert ground.get("tool") == b"#!new"
        assert ground.mode("tool") == 0o750
        assert done.info is not None
        assert done.info.version == await version(files, "tool")

    async def test_a_file_is_deleted(self, files: FileSystem, ground: Ground) -> None:
        (done,) = await files.change([Change("a.txt", None)])
        assert done == Changed(f"{ground.workspace}/a.txt", None)
        assert ground.get("a.txt") is None
        with pytest.raises(NotFoundError):
            await files.change([Change("a.txt", None)])

    async def test_what_is_written_goes_to_where_a_link_leads(
        self, files: FileSystem, ground: Ground
    ) -> None:
        ground.link("link", f"{ground.workspace}/dir/f")
        ground.link("folder", "dir")
        (done,) = await files.change([Change("link", b"through")])
        assert done.place == f"{ground.workspace}/dir/f"
        assert ground.get("dir/f") == b"through"
        await files.change([Change("folder/new", b"beside")])
        assert ground.get("dir/new") == b"beside"
        assert [name for name in ground.names(".") if name == "link"]

    async def test_of_a_link_only_itself_is_deleted(
        self, files: FileSystem, ground: Ground
    ) -> None:
        ground.link("link", "dir/f")
        ground.link("out", "../outside/f")
        ground.link("dangling", "nowhere")
        await files.change([Change("link", None, await version(files, "link"))])
        await files.change([Change("out", None), Change("dangling", None)])
        assert ground.names(".") == ["a.txt", "dir", "dir/f"]
        assert ground.get("../outside/f") == b"SECRET"

    async def test_versions_are_told_apart(self, files: FileSystem, ground: Ground) -> None:
        seen = [await version(files, "a.txt")]
        assert await version(files, "a.txt") == seen[0]
        for data in (b"one", b"two", b"two"):
            await files.change([Change("a.txt", data)])
            seen.append(await version(files, "a.txt"))
        assert len(set(seen)) == 4
        assert ABSENT not in seen

    @pytest.mark.parametrize("several", [False, True])
    async def test_a_version_that_is_not_there_any_more_is_a_conflict(
        self, files: FileSystem, ground: Ground, several: bool
    ) -> None:
        old = await version(files, "a.txt")
        ground.put("a.txt", b"theirs")
        more = [Change("dir/f", b"x"), Change("new/file", b"x")] if several else []
        before = self.everything(ground)
        for change in (
            Change("a.txt", b"mine", old),
            Change("a.txt", b"mine", ABSENT),
            Change("a.txt", None, old),
            Change("missing", b"mine", old),
        ):
            with pytest.raises(ConflictError):
                await files.change([*more, change])
        assert self.everything(ground) == before

    async def test_several_files_change_together(self, files: FileSystem, ground: Ground) -> None:
        ground.put("moved", b"#!", 0o755)
        done = await files.change(
            [
                Change("a.txt", b"A", await version(files, "a.txt")),
                Change("dir/f", None),
                Change("deep/er/new", b"N", ABSENT),
                Change("moved", None),
                Change("to", b"#!", ABSENT, like="moved"),
            ]
        )
        assert ground.names(".") == ["a.txt", "deep", "deep/er", "deep/er/new", "dir", "to"]
        assert [ground.get(name) for name in ("a.txt", "deep/er/new", "to")] == [b"A", b"N", b"#!"]
        assert ground.mode("to") == 0o755
        assert [each.info is None for each in done] == [False, True, False, True, False]
        assert done[2].info is not None
        assert done[2].info.version == await version(files, "deep/er/new")

    @pytest.mark.parametrize(
        "wrong",
        [
            Change("dir", b"x"),
            Change("missing", None),
            Change("../outside/f", b"x"),
            Change("a.txt/below", b"x"),
            Change("a.txt", b"x", ABSENT),
            Change("new/other", b"twice"),
            Change("./new/../new/other", b"twice"),
            Change("new", b"a file and a directory"),
            Change("", b"x"),
            Change("new/", b"x"),
            Change("dir/..", b"x"),
            Change(".", None),
            Change("dir", None),
        ],
        ids=lambda change: f"{change.path!r}",
    )
    async def test_one_change_that_cannot_be_made_keeps_all_from_being_made(
        self,
        files: FileSystem,
        ground: Ground,
        before: dict[str, bytes | None],
        wrong: Change,
    ) -> None:
        good = [Change("dir/f", b"x"), Change("new/other", b"x"), Change("new/deep/one", b"x")]
        for changes in ([*good, wrong], [wrong, *good]):
            with pytest.raises(ToolInputError):
                await files.change(changes)
            assert self.everything(ground) == before

    async def test_a_read_only_file_is_left_alone(self, files: FileSystem, ground: Ground) -> None:
        ground.put("fixed", b"old", 0o444)
        for changes in self.alone_and_with_others(Change("fixed", b"new"), Change("fixed", None)):
            with pytest.raises(ToolInputError, match="read-only"):
                await files.change(changes)
        assert ground.get("fixed") == b"old"

    async def test_protected_files_need_to_be_allowed_by_their_place(
        self, files: FileSystem, ground: Ground, before: dict[str, bytes | None]
    ) -> None:
        hook = Change(".git/hooks/pre-commit", b"#!/bin/sh\n")
        for changes in self.alone_and_with_others(hook):
            with pytest.raises(ProtectedError) as caught:
                await files.change(changes)
            assert caught.value.places == {f"{ground.workspace}/.git/hooks/pre-commit"}
            with pytest.raises((ProtectedError, ConflictError)):
                await files.change(changes, allowed=frozenset({f"{ground.workspace}/dir"}))
            assert self.everything(ground) == before
        await files.change([hook], allowed=caught.value.places)
        assert ground.get(".git/hooks/pre-commit") == b"#!/bin/sh\n"

    def alone_and_with_others(self, *changes: Change) -> Sequence[Sequence[Change]]:
        others = [Change("dir/f", b"x"), Change("new/other", b"x")]
        return [*([each] for each in changes), *([*others, each] for each in changes)]

    async def test_nothing_to_do_is_done(self, files: FileSystem) -> None:
        assert await files.change([]) == ()

    async def test_odd_names_are_names(self, files: FileSystem, ground: Ground) -> None:
        odd = [
            "new\nline",
            'quo"te',
            "back\\slash",
            "~",
            "~root",
            "file:x",
            "a..b",
            "...",
            "é",
            " ",
        ]
        odd = [*odd, "-rf", "*", "\u202etxt", "a b", ".clawkit-x", "\udcff"]
        content = {name: name.encode("utf-8", "surrogateescape") for name in odd}
        await files.change([Change(f"odd/{name}", data) for name, data in content.items()])
        assert sorted(await names(files, "odd")) == sorted(odd)
        for name in odd:
            assert await read(files, f"odd/{name}") == content[name]
            (done,) = await files.change([Change(f"odd/{name}", b"again")])
            assert done.place == f"{ground.workspace}/odd/{name}"
        await files.change([Change(f"odd/{name}", None) for name in odd])
        assert ground.names("odd") == []

    # Being cancelled

    async def test_a_change_that_was_begun_is_finished_when_it_is_cancelled(
        self, files: FileSystem, ground: Ground
    ) -> None:
        task = asyncio.create_task(files.change([Change("x", b"1"), Change("y", b"2")]))
        await asyncio.sleep(0)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        assert {ground.get("x"), ground.get("y")} in ({b"1", b"2"}, {None})

    async def test_many_at_once_do_not_disturb_each_other(
        self, files: FileSystem, ground: Ground
    ) -> None:
        async def work(number: int) -> None:
            path = f"many/{number % 5}/{number}"
            await files.change([Change(path, b"%d" % number), Change(f"{path}-", b"")])
            assert await read(files, path) == b"%d" % number

        await asyncio.gather(*(work(number) for number in range(20)))
        assert len(ground.names("many")) == 5 + 40
