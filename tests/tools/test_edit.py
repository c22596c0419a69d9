"""edit: through the kit, on real files."""

from __future__ import annotations

import codecs
import json
import os
from pathlib import Path
from typing import Any

import pytest

from clawkit.core.call import CallRequest
from clawkit.core.result import Result
from clawkit.testing import check_tool, open_kit
from clawkit.tools.edit import MAX_BYTES, TOOL

KEY = "sk-abcdefghijklmnopqrstuvwxyz123456"


async def edit(place: Path, **params: Any) -> Result:
    async with open_kit(place) as kit:
        return await kit.call("edit", {"path": "file.txt", **params})


def put(place: Path, content: str | bytes, name: str = "file.txt") -> Path:
    file = place / name
    file.write_bytes(content.encode() if isinstance(content, str) else content)
    return file


def test_the_tool_is_in_order() -> None:
    assert check_tool(TOOL) == []


async def test_one_text_is_replaced(tmp_path: Path) -> None:
    file = put(tmp_path, "a = 1\nb = 2\n")
    result = await edit(tmp_path, oldText="b = 2", newText="b = 3")
    assert file.read_text() == "a = 1\nb = 3\n"
    assert result.as_text() == "replaced 1 place in 'file.txt' (line 2)"
    assert result.details == {
        "changed": True,
        "path": "file.txt",
        "edits": 1,
        "places": 1,
        "diff": "@@ -1,2 +1,2 @@\n a = 1\n-b = 2\n+b = 3",
        "firstChangedLine": 2,
    }


async def test_several_texts_are_replaced_at_once(tmp_path: Path) -> None:
    file = put(tmp_path, "a\nb\na\nc\n")
    edits = [
        {"oldText": "a", "newText": "x", "replaceAll": True},
        {"oldText": "c", "newText": "a"},
    ]
    result = await edit(tmp_path, edits=edits)
    assert file.read_text() == "x\nb\nx\na\n"
    assert result.as_text() == "replaced 3 places in 'file.txt' (lines 1, 3, 4)"
    assert result.details["edits"] == 2


@pytest.mark.parametrize(
    "names",
    [
        ("path", "oldText", "newText", "replaceAll"),
        ("file_path", "old_string", "new_string", "replace_all"),
        ("filename", "old_text", "new_text", "replace_all"),
        ("filepath", "old_str", "new_str", "replaceAll"),
    ],
)
async def test_parameters_have_the_names_models_use(
    tmp_path: Path, names: tuple[str, str, str, str]
) -> None:
    file = put(tmp_path, "a a")
    params = dict(zip(names, ("file.txt", "a", "b", True), strict=True))
    async with open_kit(tmp_path) as kit:
        assert not (await kit.call("edit", params)).is_error
    assert file.read_text() == "b b"


@pytest.mark.parametrize(
    "names", [("old_string", "new_string", "replace_all"), ("old_text", "new_text", "replace_all")]
)
@pytest.mark.parametrize("as_text", [False, True])
async def test_so_have_those_of_each_edit(
    tmp_path: Path, names: tuple[str, str, str], as_text: bool
) -> None:
    file = put(tmp_path, "a a")
    edits: Any = [dict(zip(names, ("a", "b", True), strict=True))]
    result = await edit(tmp_path, edits=json.dumps(edits) if as_text else edits)
    assert not result.is_error, result.as_text()
    assert file.read_text() == "b b"


@pytest.mark.parametrize(
    ("params", "words"),
    [
        ({}, "nothing to replace"),
        ({"edits": []}, "nothing to replace"),
        ({"oldText": "a"}, "newText is missing"),
        ({"newText": "a"}, "oldText is missing"),
        ({"edits": [{"oldText": "a", "newText": "b"}], "oldText": "b"}, "not both"),
        ({"edits": [{"oldText": "a", "newText": "b"}], "replaceAll": True}, "not both"),
        ({"edits": [{"oldText": "a"}]}, "edits[0].newText: missing"),
        ({"oldText": "a", "newText": "\ud800"}, "newText has a lone surrogate"),
    ],
)
async def test_a_call_without_a_clear_meaning_is_refused(
    tmp_path: Path, params: dict[str, Any], words: str
) -> None:
    file = put(tmp_path, "a")
    result = await edit(tmp_path, **params)
    assert result.details["code"] == 400
    assert words in result.as_text()
    assert file.read_text() == "a"


async def test_parameters_that_are_filled_in_for_no_reason_do_not_matter(tmp_path: Path) -> None:
    file = put(tmp_path, "a")
    edits = [{"oldText": "a", "newText": "b"}]
    await edit(tmp_path, edits=edits, oldText="", newText="", replaceAll=False)
    assert file.read_text() == "b"
    await edit(tmp_path, edits=[], oldText="b", newText="c")
    assert file.read_text() == "c"


async def test_a_failing_edit_changes_nothing_and_reports_all_problems(tmp_path: Path) -> None:
    file = put(tmp_path, "one line\nanother line\nx\nx\n")
    before = file.stat()
    edits = [
        {"oldText": "one line", "newText": "1"},
        {"oldText": "another lime", "newText": "2"},
        {"oldText": "x", "newText": "3"},
    ]
    result = await edit(tmp_path, edits=edits)
    assert result.details["code"] == 400
    error = result.details["error"]
    assert "edits[1].oldText is not in 'file.txt'" in error
    assert "2: another line" in error
    assert "edits[2].oldText occurs 2 times in 'file.txt' (lines 3, 4)" in error
    assert (file.stat().st_ino, file.stat().st_mtime_ns) == (before.st_ino, before.st_mtime_ns)


async def test_tolerated_differences_are_reported(tmp_path: Path) -> None:
    file = put(tmp_path, "class A:\n\tdef f(self):\n\t\treturn 1\n")
    old = "    def f(self):\n        return 1"
    result = await edit(tmp_path, oldText=old, newText=old.replace("1", "2"))
    assert file.read_text() == "class A:\n\tdef f(self):\n\t\treturn 2\n"
    assert result.as_text() == (
        "replaced 1 place in 'file.txt' (lines 2-3)\n"
        "oldText is not in the file as given; a text that differs only in indentation was "
        "replaced\n"
        "Changed:\n"
        "@@ -1,3 +1,3 @@\n class A:\n \tdef f(self):\n-\t\treturn 1\n+\t\treturn 2"
    )
    assert result.details["overlooked"] == [{"edit": 0, "what": "indentation"}]


async def test_a_replacement_by_the_same_writes_nothing(tmp_path: Path) -> None:
    file = put(tmp_path, "a\n")
    before = file.stat()
    result = await edit(tmp_path, oldText="a", newText="a")
    assert result.details == {"changed": False, "path": "file.txt", "edits": 1}
    assert "nothing was written" in result.as_text()
    assert (file.stat().st_ino, file.stat().st_mtime_ns) == (before.st_ino, before.st_mtime_ns)


@pytest.mark.parametrize(
    ("before", "after"),
    [
        (codecs.BOM_UTF8 + b"a\r\nb\r\n", codecs.BOM_UTF8 + b"x\r\ny\r\nb\r\n"),
        ("\ufeffa\nb\n".encode("utf-16-le"), "\ufeffx\ny\nb\n".encode("utf-16-le")),
        (b"caf\xe9 a\n", b"caf\xe9 x\ny\n"),
        ("é".encode() * 40 + b"\xff a\n", "é".encode() * 40 + b"\xff x\ny\n"),
    ],
    ids=["mark", "utf-16", "cp1252", "stray byte"],
)
async def test_all_that_is_not_replaced_stays_to_the_byte(
    tmp_path: Path, before: bytes, after: bytes
) -> None:
    file = put(tmp_path, before)
    old, new = (
        ("a", "x\ny") if before.startswith((codecs.BOM_UTF8, b"\xff\xfe")) else (" a", " x\ny")
    )
    result = await edit(tmp_path, oldText=old, newText=new)
    assert not result.is_error, result.as_text()
    assert file.read_bytes() == after


async def test_mode_stays_and_links_are_followed(tmp_path: Path) -> None:
    script = put(tmp_path, "echo a\n", "script.sh")
    script.chmod(0o755)
    (tmp_path / "file.txt").symlink_to("script.sh")
    await edit(tmp_path, oldText="a", newText="b")
    assert script.read_text() == "echo b\n"
    assert script.stat().st_mode & 0o777 == 0o755
    assert (tmp_path / "file.txt").is_symlink()


async def test_files_that_cannot_be_edited_are_refused(tmp_path: Path) -> None:
    put(tmp_path, b"\x7fELF\0\0\1\2")
    assert "binary" in (await edit(tmp_path, oldText="ELF", newText="x")).as_text()
    with open(tmp_path / "file.txt", "wb") as file:
        file.truncate(MAX_BYTES + 1)
    result = await edit(tmp_path, oldText="a", newText="b")
    assert "too large for edit" in result.as_text()
    assert os.path.getsize(tmp_path / "file.txt") == MAX_BYTES + 1
    assert "directory" in (await edit(tmp_path, path=".", oldText="a", newText="b")).as_text()


async def test_a_file_that_hides_its_size_is_read_to_its_end() -> None:
    result = await edit(Path("/proc/self"), path="status", oldText="", newText="x")
    assert "'status' is not" in result.as_text()


async def test_a_missing_file_is_an_error(tmp_path: Path) -> None:
    result = await edit(tmp_path, oldText="a", newText="b")
    assert result.details["code"] == 404
    result = await edit(tmp_path, oldText="", newText="b")
    assert result.details["code"] == 404
    assert "use write" in result.as_text()
    assert list(tmp_path.iterdir()) == []


async def test_an_empty_file_is_filled(tmp_path: Path) -> None:
    file = put(tmp_path, "")
    await edit(tmp_path, oldText="", newText="new\n")
    assert file.read_text() == "new\n"
    assert "use write" in (await edit(tmp_path, oldText="", newText="x")).as_text()


async def test_a_file_that_someone_changed_since_is_left_alone(tmp_path: Path) -> None:
    file = put(tmp_path, "a\n")
    async with open_kit(tmp_path) as kit:
        await kit.call("edit", {"path": "file.txt", "oldText": "a", "newText": "b"})
        put(tmp_path, "b\nsomebody else\n")
        result = await kit.call("edit", {"path": "file.txt", "oldText": "b", "newText": "c"})
        assert result.details["code"] == 409
        assert file.read_text() == "b\nsomebody else\n"


async def test_a_file_that_was_never_seen_can_be_edited(tmp_path: Path) -> None:
    file = put(tmp_path, "a\n")
    async with open_kit(tmp_path) as kit:
        for old, new in ("ab", "bc", "cd"):
            result = await kit.call("edit", {"path": "file.txt", "oldText": old, "newText": new})
            assert not result.is_error
    assert file.read_text() == "d\n"


async def test_edits_of_one_message_are_made_in_order(tmp_path: Path) -> None:
    file = put(tmp_path, "0")
    calls = [
        CallRequest("edit", {"path": "file.txt", "oldText": str(n), "newText": str(n + 1)})
        for n in range(8)
    ]
    async with open_kit(tmp_path) as kit:
        results = await kit.call_all(calls)
    assert not any(result.is_error for result in results)
    assert file.read_text() == "8"


@pytest.mark.parametrize("name", [".env", "prod.env", "settings"])
async def test_values_of_settings_files_are_not_shown(tmp_path: Path, name: str) -> None:
    put(tmp_path, "MODE=dev\nDB_PASSWORD=hunter2\nPORT=1\n", ".env.real")
    (tmp_path / name).symlink_to(".env.real")
    result = await edit(tmp_path, path=name, oldText="PORT=1", newText="PORT=2")
    assert result.details["diffOmitted"] == "the file holds secrets"
    assert result.details["firstChangedLine"] == 3
    assert "hunter2" not in str(result)
    bared = await edit(tmp_path, path=name, oldText="DB_PASSWORD=", newText="x ")
    assert "hunter2" not in str(bared)
    await edit(tmp_path, path=name, oldText="x h", newText="DB_PASSWORD=h")
    result = await edit(tmp_path, path=name, oldText="DB_PASSWORD=hunter1\nPORT=2", newText="x")
    assert "DB_PASSWORD=***" in result.as_text()
    assert "hunter2" not in str(result)


async def test_secrets_of_other_files_are_not_shown_either(tmp_path: Path) -> None:
    put(tmp_path, f"x = 1\nkey = '{KEY}'\n")
    result = await edit(tmp_path, oldText="x = 1", newText="x = 2")
    assert "-x = 1\n+x = 2\n key = 'sk-abc…3456'" in result.details["diff"]
    result = await edit(tmp_path, oldText="x = 2\nkey = 'sk-other'", newText="x")
    assert KEY not in str(result)


async def test_masks_are_not_written(tmp_path: Path) -> None:
    text = f"x = 1\nkey = '{KEY}'\n"
    file = put(tmp_path, text)
    result = await edit(tmp_path, oldText="x = 1", newText="x = 1\nother_key = 'sk-abc…3456'")
    assert result.details["code"] == 400
    assert "line 2 ('sk-abc…3456' for 'other_key')" in result.as_text()
    assert file.read_text() == text
    result = await edit(tmp_path, oldText="key = 'sk-abc…3456'", newText="key = 'new'")
    assert "is a masked secret" in result.as_text()
    assert file.read_text() == text
    result = await edit(tmp_path, oldText="x = 1", newText="# *** x ***")
    assert not result.is_error


async def test_large_files_are_edited(tmp_path: Path) -> None:
    file = put(tmp_path, "some line\n" * 600_000 + "the end\n")
    result = await edit(tmp_path, oldText="the end", newText="no end")
    assert result.details["firstChangedLine"] == 600_001
    assert file.read_bytes().endswith(b"line\nno end\n")


async def test_a_difference_that_is_too_long_is_left_out(tmp_path: Path) -> None:
    put(tmp_path, "a\n" * 5_000)
    result = await edit(tmp_path, oldText="a", newText="b", replaceAll=True)
    assert "diff" not in result.details
    assert result.details["diffOmitted"] == "too much was changed"
    assert result.as_text().endswith("and 4990 more places)")
