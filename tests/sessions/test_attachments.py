"""Files that go to a sub-agent: what is refused, and how they are kept."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest
from tests.tables import table

from clawkit.config.sections.tools import Attachments
from clawkit.content import Assistant, ToolCall
from clawkit.errors import ToolError, ToolInputError
from clawkit.sessions.attachments import (
    MANIFEST,
    AttachedFile,
    check_attachments,
    list_files,
    write_attachments,
)
from clawkit.sessions.encode import encode
from clawkit.sessions.subagent_protocols import Attachment, RunOutcome, SubagentRun
from clawkit.spawn_setup import wind_up

LIMITS = Attachments(max_files=3, max_file_bytes=10, max_total_bytes=15)


def text(name: str, content: str = "x") -> Attachment:
    return Attachment(name, content)


def bytes64(content: str) -> Attachment:
    return Attachment("f", content, "base64")


@table(
    ("given", "code"),
    [
        ([text("")], "invalid_name"),
        ([text(".")], "invalid_name"),
        ([text("..")], "invalid_name"),
        ([text(MANIFEST)], "invalid_name"),
        ([text("a/b")], "invalid_name"),
        ([text("/etc/passwd")], "invalid_name"),
        ([text("a\\b")], "invalid_name"),
        ([text("<b>")], "invalid_name"),
        ([text("a\nb")], "invalid_name"),
        ([text("a\0b")], "invalid_name"),
        ([text("a\x1b[31m")], "invalid_name"),
        ([text("a\u202egpj.exe")], "invalid_name"),
        ([text("a\u2028b")], "invalid_name"),
        ([text("\ud800")], "invalid_name"),
        ([text("n" * 256)], "invalid_name"),
        ([text("ä" * 128)], "invalid_name"),
        ([text("a"), text("a")], "duplicate_name"),
        ([text(each) for each in "abcd"], "file_count_exceeded: maxFiles=3"),
        ([text("a", "x" * 11)], "file_bytes_exceeded"),
        ([text("a", "ä" * 6)], "file_bytes_exceeded"),
        ([text("a", "x" * 9), text("b", "x" * 9)], "total_bytes_exceeded: maxTotalBytes=15"),
        ([text("a", "\ud800")], "materialization_failed"),
        ([bytes64("")], "invalid_base64_or_too_large"),
        ([bytes64(" \n")], "invalid_base64_or_too_large"),
        ([bytes64("eA")], "invalid_base64_or_too_large"),
        ([bytes64("eA=")], "invalid_base64_or_too_large"),
        ([bytes64("eA==eA==")], "invalid_base64_or_too_large"),
        ([bytes64("=eA=")], "invalid_base64_or_too_large"),
        ([bytes64("====")], "invalid_base64_or_too_large"),
        ([bytes64("e-A_")], "invalid_base64_or_too_large"),
        ([bytes64("éA==")], "invalid_base64_or_too_large"),
        ([bytes64("A" * 20)], "invalid_base64_or_too_large"),
        ([bytes64(" " * 40 + "eA==")], "invalid_base64_or_too_large"),
        ([bytes64("A" * 16)], "file_bytes_exceeded"),
    ],
)
def test_what_cannot_be_attached_is_refused_with_a_code(given: list[Attachment], code: str) -> None:
    with pytest.raises(ToolInputError, match=f"^attachments_{code}"):
        check_attachments(given, LIMITS)


@table(
    ("given", "data"),
    [
        (text("a", ""), b""),
        (text("a", "ä\r\n"), b"\xc3\xa4\r\n"),
        (Attachment("a", "eA==", "hex"), b"eA=="),
        (bytes64("eA=="), b"x"),
        (bytes64(" e\nA = =\t"), b"x"),
        (bytes64("AP+/"), b"\x00\xff\xbf"),
        (bytes64("A" * 12 + "AA=="), bytes(10)),
    ],
)
def test_contents_are_decoded(given: Attachment, data: bytes) -> None:
    assert [each.data for each in check_attachments([given], LIMITS)] == [data]


def test_names_that_would_fill_a_prompt_are_refused() -> None:
    given = [text(f"{number}{'n' * 200}") for number in range(20)]
    with pytest.raises(ToolInputError, match="attachments_prompt_paths_exceeded"):
        check_attachments(given, Attachments())
    assert len(check_attachments(given[:8], Attachments())) == 8


def test_files_are_private_and_named_in_a_manifest(tmp_path: Path) -> None:
    place = tmp_path / "attachments" / "x"
    old = os.umask(0)
    try:
        write_attachments(str(place), [AttachedFile("a b.csv", b"1,2\n", "text/csv")])
    finally:
        os.umask(old)
    modes = {each.name: each.stat().st_mode & 0o777 for each in place.iterdir()}
    assert modes == {"a b.csv": 0o600, MANIFEST: 0o600}
    assert [each.stat().st_mode & 0o777 for each in (place, place.parent)] == [0o700, 0o700]
    digest = "58f4be57fc784e9b7de88c6a55ccf0a5bd4d0c94bd1e62dbb13e6f2d6fdb4ee1"
    manifest = json.loads((place / MANIFEST).read_text())
    [listed] = manifest.pop("files")
    assert manifest == {"count": 1, "totalBytes": 4}
    assert listed | {"sha256": digest} == {
        "name": "a b.csv",
        "bytes": 4,
        "sha256": digest,
        "mimeType": "text/csv",
    }
    assert len(listed["sha256"]) == 64
    run = SubagentRun("r", "s", "requester", "root", "", "label", "task", attachments=str(place))
    for _ in range(2):
        wind_up(run, RunOutcome("completed"))
    assert not place.exists()


def test_files_that_cannot_be_written_leave_nothing(tmp_path: Path) -> None:
    (tmp_path / "taken").write_text("a file")
    with pytest.raises(ToolError, match="attachments_materialization_failed"):
        write_attachments(str(tmp_path / "taken" / "x"), [AttachedFile("a", b"")])
    assert (tmp_path / "taken").read_text() == "a file"


@table(
    ("mount", "is_told"),
    [("/data/in", True), ("a.b-c:d", True), ("", False), ("/a b", False), ("x\nNow obey", False)],
)
def test_a_name_for_the_directory_is_told_if_it_is_plain(mount: str, is_told: bool) -> None:
    assert (f"call it {mount})" in list_files("k", ["a"], mount)) == is_told


@pytest.mark.parametrize(
    "arguments",
    [
        {"attachments": [{"name": "a", "content": "s3cret", "encoding": "utf8"}]},
        {"Attachments": [{"name": "a", "content": "s3cret", "also": {"x": "s3cret"}}]},
        {"claude_attachments": [{"name": "a", "content": "s3cret"}]},
        {"attachments": [{"name": "a"}, "s3cret"]},
        {"attachments": '[{"name": "a", "content": "s3cret"}]'},
        {"attachments": {"name": "a", "content": "s3cret"}},
        '{"task": "t", "Attachments": [{"content": "s3cret',
    ],
)
@pytest.mark.parametrize("tool", ["sessions_spawn", " Sessions_Spawn "])
def test_contents_are_not_stored(tool: str, arguments: dict[str, object] | str) -> None:
    stored = encode(Assistant((ToolCall("1", tool, arguments),)))
    assert b"s3cret" not in stored
    assert b"left out: contents of attachments" in stored


def test_everything_else_is_stored_as_it_came() -> None:
    for tool, arguments in (
        ("sessions_spawn", {"task": "attachments", "label": "l"}),
        ("sessions_spawn", "{broken"),
        ("other", {"attachments": [{"content": "kept"}]}),
    ):
        stored = json.loads(encode(Assistant((ToolCall("1", tool, arguments),))))
        assert stored["content"][0]["arguments"] == arguments
