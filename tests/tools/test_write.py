"""write: through the kit, on real files."""

from __future__ import annotations

import codecs
import os
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from clawkit.core.call import CallRequest, Run, call
from clawkit.core.result import Result
from clawkit.fs.local import LocalFileSystem
from clawkit.fs.protocols import Change, Changed, FileSystem, OpenFile
from clawkit.fs.read_versions import ReadVersions
from clawkit.lsp.protocols import Diagnostics, Edited, Problems
from clawkit.redact import Redactor
from clawkit.testing import check_tool, open_kit
from clawkit.tools.write import MAX_COMPARED, TOOL

KEY = "sk-abcdefghijklmnopqrstuvwxyz123456"


async def write(place: Path, content: str, path: str = "file.txt", **params: Any) -> Result:
    async with open_kit(place) as kit:
        return await kit.call("write", {"path": path, "content": content, **params})


def put(place: Path, content: str | bytes, name: str = "file.txt") -> Path:
    file = place / name
    file.write_bytes(content.encode() if isinstance(content, str) else content)
    return file


def test_the_tool_is_in_order() -> None:
    assert check_tool(TOOL) == []


async def test_a_new_file_is_made_with_its_directories(tmp_path: Path) -> None:
    result = await write(tmp_path, "a\nb", "x/y/z.txt")
    assert (tmp_path / "x/y/z.txt").read_bytes() == b"a\nb"
    assert result.as_text() == "created 'x/y/z.txt' (2 lines, 3 B)"
    assert result.details == {
        "path": "x/y/z.txt",
        "change": "created",
        "changed": True,
        "created": True,
        "bytes": 3,
        "lines": 2,
    }


async def test_a_file_is_replaced_and_the_difference_reported(tmp_path: Path) -> None:
    file = put(tmp_path, "a\nb\nc\n")
    file.chmod(0o750)
    result = await write(tmp_path, "a\nx\nc\n")
    assert file.read_bytes() == b"a\nx\nc\n"
    assert file.stat().st_mode & 0o777 == 0o750
    assert result.as_text() == "replaced the content of 'file.txt' (3 lines, 6 B)"
    assert result.details["change"] == "changed"
    assert result.details["diff"] == "@@ -1,3 +1,3 @@\n a\n-b\n+x\n c"
    assert result.details["firstChangedLine"] == 2
    assert "created" not in result.details


async def test_the_same_content_is_not_written(tmp_path: Path) -> None:
    file = put(tmp_path, "a\n")
    before = file.stat()
    result = await write(tmp_path, "a\n")
    assert (result.details["change"], result.details["changed"]) == ("unchanged", False)
    assert "nothing was written" in result.as_text()
    assert (file.stat().st_ino, file.stat().st_mtime_ns) == (before.st_ino, before.st_mtime_ns)


@pytest.mark.parametrize("name", ["content", "contents", "text", "file_text"])
async def test_parameters_have_the_names_models_use(tmp_path: Path, name: str) -> None:
    async with open_kit(tmp_path) as kit:
        await kit.call("write", {"file_path": "file.txt", name: "x"})
    assert (tmp_path / "file.txt").read_text() == "x"


@pytest.mark.parametrize(
    "content", ["", "x</content>", "x</arg_value>", "\ufeffx", "a\r\nb\n", "\0", "tab\t\x1b[0m"]
)
async def test_content_is_written_as_it_is(tmp_path: Path, content: str) -> None:
    result = await write(tmp_path, content)
    assert not result.is_error
    assert (tmp_path / "file.txt").read_bytes() == content.encode()
    (tmp_path / "file.txt").write_text("other\n")
    await write(tmp_path, content)
    assert (tmp_path / "file.txt").read_bytes() == content.encode()


async def test_half_characters_are_refused(tmp_path: Path) -> None:
    result = await write(tmp_path, "ab\udcff")
    assert result.details["code"] == 400
    assert "a lone surrogate" in result.as_text()
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("before", "content", "after", "note"),
    [
        (b"a\r\nb\r\n", "c\nd\n", b"c\r\nd\r\n", "CRLF"),
        (b"a\r\nb\r\n", "c\r\nd\n", b"c\r\nd\n", ""),
        (b"a\r\nb\n", "c\nd\n", b"c\nd\n", ""),
        (codecs.BOM_UTF8 + b"a", "b", codecs.BOM_UTF8 + b"b", "byte order mark"),
        (codecs.BOM_UTF8 + b"a", "\ufeffb", codecs.BOM_UTF8 + b"b", "byte order mark"),
        ("\ufeffa\n".encode("utf-16-be"), "b\n", "\ufeffb\n".encode("utf-16-be"), "utf-16-be"),
        (b"caf\xe9\n", "th\u00e9\n", b"th\xe9\n", "cp1252"),
        (b"caf\xe9\n", "中文\n", "中文\n".encode(), "now UTF-8"),
        (b"\0\1\2\3", "text\n", b"text\n", ""),
    ],
)
async def test_a_file_keeps_its_encoding_and_line_ends(
    tmp_path: Path, before: bytes, content: str, after: bytes, note: str
) -> None:
    file = put(tmp_path, before)
    result = await write(tmp_path, content)
    assert file.read_bytes() == after
    assert note in result.as_text()
    assert (result.as_text().count("\n") == 0) == (not note)
    assert (await write(tmp_path, content)).details["change"] == "unchanged"


@pytest.mark.parametrize(
    ("before", "content", "reason"),
    [
        (b"\0\1\2\3", "text\n", "binary"),
        ("a\n" * 300_000, "b\n" * 300_000, "too much"),
        ("a\n" * 20_001, "", "too much"),
        ("".join(f"{n}\n" for n in range(1_500)), "".join(f"x{n}\n" for n in range(1_500)), "too"),
    ],
)
async def test_a_difference_of_no_use_is_left_out(
    tmp_path: Path, before: str | bytes, content: str, reason: str
) -> None:
    put(tmp_path, before)
    result = await write(tmp_path, content)
    assert not result.is_error
    assert "diff" not in result.details
    assert reason in result.details["diffOmitted"]
    assert result.details.get("firstChangedLine", 1) == 1


async def test_a_huge_file_is_replaced_without_a_look_at_it(tmp_path: Path) -> None:
    file = tmp_path / "file.txt"
    with open(file, "wb") as handle:
        handle.write(b"text\n")
        handle.truncate(MAX_COMPARED + 1)
    result = await write(tmp_path, "small\n")
    assert file.read_bytes() == b"small\n"
    assert "too large" in result.details["diffOmitted"]


async def test_a_file_that_someone_changed_since_is_left_alone(tmp_path: Path) -> None:
    async with open_kit(tmp_path) as kit:
        await kit.call("write", {"path": "file.txt", "content": "mine"})
        put(tmp_path, "theirs")
        result = await kit.call("write", {"path": "file.txt", "content": "mine again"})
        assert result.details["code"] == 409
        assert (tmp_path / "file.txt").read_text() == "theirs"


async def test_a_directory_is_refused(tmp_path: Path) -> None:
    (tmp_path / "d").mkdir()
    assert "directory" in (await write(tmp_path, "x", "d")).as_text()
    put(tmp_path, "")
    assert (await write(tmp_path, "x", "file.txt/y")).is_error


async def test_masks_are_not_written(tmp_path: Path) -> None:
    file = put(tmp_path, f"x = 1\nkey = '{KEY}'\n")
    result = await write(tmp_path, "x = 2\nkey = 'sk-abc…3456'\n")
    assert result.details["code"] == 400
    assert "line 2 ('sk-abc…3456' for 'key')" in result.as_text()
    assert KEY in file.read_text()
    assert not (await write(tmp_path, f"x = 2\nkey = '{KEY}'\n\n***\n")).is_error


@pytest.mark.parametrize("name", [".env", "settings"])
async def test_values_of_settings_files_are_neither_lost_nor_shown(
    tmp_path: Path, name: str
) -> None:
    file = put(tmp_path, "MODE=dev\nDB_PASSWORD=hunter2\n", ".env.real")
    (tmp_path / name).symlink_to(".env.real")
    result = await write(tmp_path, "MODE=test\nDB_PASSWORD=***\n", name)
    assert "line 2 ('***' for 'DB_PASSWORD')" in result.as_text()
    assert "hunter2" in file.read_text()
    result = await write(tmp_path, "MODE=test\nDB_PASSWORD=hunter3\n", name)
    assert not result.is_error
    assert "hunter" not in str(result)
    assert result.details["diffOmitted"] == "the file holds secrets"


class RottenDisk:
    """A file system that loses the end of written files."""

    def __init__(self, files: LocalFileSystem) -> None:
        self._files = files

    @asynccontextmanager
    async def open(self, path: str) -> AsyncIterator[OpenFile]:
        async with self._files.open(path) as file:
            yield file

    async def change(
        self, changes: Sequence[Change], *, allowed: frozenset[str] = frozenset()
    ) -> tuple[Changed, ...]:
        short = [replace(each, data=(each.data or b"")[:-1]) for each in changes]
        return await self._files.change(short, allowed=allowed)


class Meddler(RottenDisk):
    """A file system on which somebody else writes at the same time."""

    async def change(
        self, changes: Sequence[Change], *, allowed: frozenset[str] = frozenset()
    ) -> tuple[Changed, ...]:
        done = await self._files.change(changes, allowed=allowed)
        os.truncate(done[0].place, 0)
        return done


class NoServers:
    async def check(self, _edits: Sequence[Edited]) -> Problems:
        return Problems()


async def write_on(files: object, place: Path) -> Result:
    services: dict[type, object] = {
        FileSystem: files,
        ReadVersions: ReadVersions(),
        Diagnostics: NoServers(),
        Redactor: Redactor(),
    }
    run = Run({"write": TOOL}, str(place), services=services)
    return await call(run, CallRequest("write", {"path": "file.txt", "content": "all of it\n"}))


async def test_the_written_content_is_checked(tmp_path: Path) -> None:
    result = await write_on(RottenDisk(LocalFileSystem(str(tmp_path))), tmp_path)
    assert result.details["code"] == 500
    assert "does not contain what was written" in result.as_text()


async def test_changes_by_others_right_afterwards_are_reported(tmp_path: Path) -> None:
    result = await write_on(Meddler(LocalFileSystem(str(tmp_path))), tmp_path)
    assert result.details["change"] == "created"
    assert "another process changed it" in result.as_text()
