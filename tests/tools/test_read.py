"""read: the content of a file, page by page."""

from __future__ import annotations

import asyncio
import base64
import io
import json
import os
import re
import tempfile
import tracemalloc
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec.structs import replace
from PIL import Image as Pillow
from tests.tables import table

from clawkit.content import Image, Text
from clawkit.core.call import CallRequest, Run, call
from clawkit.core.context import Context, Scope
from clawkit.core.result import Result
from clawkit.core.tool import Effect, resolve
from clawkit.errors import ConflictError
from clawkit.fs.encoding import UTF8
from clawkit.fs.local import LocalFileSystem
from clawkit.fs.magic import ImageLimits
from clawkit.fs.pages import HeldFile
from clawkit.fs.protocols import FileSystem
from clawkit.fs.read_versions import ReadVersions
from clawkit.media.local import LocalMedia
from clawkit.media.protocols import Media, PageReader
from clawkit.redact import Redactor
from clawkit.testing import check_tool, open_kit
from clawkit.tools._show import (
    MAX_JOINED,
    MIN_PAGE_BYTES,
    PAGE_BYTES,
    PAGE_LINES,
    FileView,
    page_bytes,
    show_text,
)
from clawkit.tools.read import TOOL, Params


def make_run(place: Path | str, window: int | None = None, **more: object) -> Run:
    services: dict[type, object] = {
        FileSystem: LocalFileSystem(str(place)),
        ReadVersions: ReadVersions(),
        Redactor: Redactor(),
        Media: LocalMedia(),
        PageReader: LocalMedia(),
    }
    for service in more.values():
        services[type(service)] = service
    return Run({"read": TOOL}, str(place), Scope(context_window=window), services=services)


async def read(place: Path, path: str = "f", window: int | None = None, **params: Any) -> Result:
    return await call(make_run(place, window), CallRequest("read", {"path": path, **params}))


def lines(count: int) -> str:
    return "".join(f"line {number}\n" for number in range(1, count + 1))


def test_the_tool_is_well_described() -> None:
    assert check_tool(TOOL) == []


@pytest.mark.parametrize(
    ("raw", "text", "total"),
    [
        (b"alpha\nbeta\n", "alpha\nbeta", 2),
        (b"alpha\nbeta", "alpha\nbeta", 2),
        (b"alpha\r\nbeta\r\n", "alpha\nbeta", 2),
        (b"\xef\xbb\xbfalpha\n", "alpha", 1),
        (b"a\n\nb\n", "a\n\nb", 3),
        (b"", "[the file is empty (0 bytes)]", 0),
        (b"\xef\xbb\xbf", "[the file is empty (3 bytes)]", 0),
        (b"caf\xc3\xa9\n", "café", 1),
        (b"a\rb\n", "a\rb", 1),
        (b"a\rb\r", "a\nb", 2),
        (b"\n", "[lines 1-1 of 1 are blank]", 1),
        (b"\n\r\n\n", "[lines 1-3 of 3 are blank]", 3),
        (b"  \n\t\n", "  \n\t\n\n[lines 1-2 of 2 are blank]", 2),
    ],
)
async def test_text_is_shown_as_it_is(tmp_path: Path, raw: bytes, text: str, total: int) -> None:
    (tmp_path / "f").write_bytes(raw)
    result = await read(tmp_path)
    assert result.as_text() == text
    truncation = result.details["truncation"]
    assert truncation["totalLines"] == total
    assert truncation["totalBytes"] == len(raw)
    assert truncation["truncated"] is False
    assert "continuation" not in result.details
    assert result.details["kind"] == "text"
    assert not result.is_error


@pytest.mark.parametrize(
    ("raw", "details"),
    [
        (b"a\nb\n", {}),
        (b"a\r\nb\r\n", {"lineEndings": "crlf"}),
        (b"a\r\nb\n", {"lineEndings": "mixed"}),
        (b"a\rb\r", {"lineEndings": "cr"}),
        (b"a", {"finalNewline": False}),
        (b"\xef\xbb\xbfa\n", {"encoding": "utf-8-sig"}),
        ("a\n".encode("utf-16"), {"encoding": "utf-16-le"}),
        (b"caf\xe9\n", {"encoding": "cp1252"}),
    ],
)
async def test_details_contain_what_the_text_does_not_show(
    tmp_path: Path, raw: bytes, details: dict[str, Any]
) -> None:
    (tmp_path / "f").write_bytes(raw)
    found = (await read(tmp_path)).details
    assert {**found} == {"path": "f", "kind": "text", "truncation": found["truncation"], **details}


@pytest.mark.parametrize("name", ["path", "file_path", "file", "filename", "filePath"])
async def test_the_path_has_the_names_models_use(tmp_path: Path, name: str) -> None:
    (tmp_path / "f").write_text("here")
    result = await call(make_run(tmp_path), CallRequest("read", {name: "f"}))
    assert result.as_text() == "here"


async def test_offset_and_limit_select_lines_and_a_notice_tells_how_to_continue(
    tmp_path: Path,
) -> None:
    (tmp_path / "f").write_text(lines(10))
    result = await read(tmp_path, offset=3, limit=2)
    assert result.as_text() == "line 3\nline 4\n\n[lines 3-4 of 10; continue with offset=5]"
    assert result.details["continuation"] == {"kind": "line", "offset": 5}
    assert result.details["truncation"]["truncated"] is True
    assert result.details["truncation"]["outputLines"] == 2
    assert (await read(tmp_path, offset=9)).as_text() == "line 9\nline 10"
    assert (await read(tmp_path, limit=10)).as_text() == lines(10).rstrip()


async def test_offsets_after_the_end_get_a_notice(tmp_path: Path) -> None:
    (tmp_path / "f").write_text(lines(3))
    cases: tuple[tuple[dict[str, Any], str], ...] = (
        ({"offset": 4}, "[nothing at offset=4: the file has 3 lines]"),
        ({"offset": 10**30}, f"[nothing at offset={10**30}: the file has 3 lines]"),
        (
            {"cursor": 6},
            "[nothing at cursor=6: line 1 has 6 characters; continue with offset=2]",
        ),
        ({"offset": 3, "cursor": 99}, "[nothing at cursor=99: line 3 has 6 characters]"),
    )
    for params, notice in cases:
        result = await read(tmp_path, **params)
        assert result.as_text() == notice
        assert not result.is_error


@pytest.mark.parametrize(
    "params",
    [
        {"offset": 0},
        {"offset": -1},
        {"limit": 0},
        {"limit": 100_001},
        {"cursor": -1},
        {"format": "octal"},
        {"encoding": "klingon"},
        {"pages": "1"},
        {"optional": "perhaps"},
    ],
)
async def test_meaningless_parameters_are_refused(tmp_path: Path, params: dict[str, Any]) -> None:
    (tmp_path / "f").write_text("x")
    assert (await read(tmp_path, **params)).details["code"] == 400


async def test_pages_are_joined_unless_a_limit_is_given(tmp_path: Path) -> None:
    (tmp_path / "f").write_text("x\n" * 20_000)
    most = PAGE_LINES * MAX_JOINED
    result = await read(tmp_path)
    assert result.details["continuation"]["offset"] == most + 1
    assert f"[lines 1-{most} of 20000; continue with offset={most + 1}]" in result.as_text()
    result = await read(tmp_path, limit=3_000)
    assert result.details["truncation"]["outputLines"] == 3_000


@pytest.mark.parametrize(
    ("window", "limit", "size"),
    [(None, None, PAGE_BYTES), (200_000, None, 63_600), (200_000, 2_000, PAGE_BYTES)],
)
async def test_a_page_has_fifty_kilobytes_and_joined_ones_a_fifth_of_the_window(
    tmp_path: Path, window: int | None, limit: int | None, size: int
) -> None:
    (tmp_path / "f").write_text(("x" * 99 + "\n") * 1_000)
    result = await read(tmp_path, window=window, limit=limit)
    assert result.details["truncation"]["outputLines"] == size // 100
    assert result.details["continuation"]["offset"] == size // 100 + 1


async def test_the_end_of_a_large_file_is_not_counted(tmp_path: Path) -> None:
    (tmp_path / "f").write_text(("x" * 999 + "\n") * 20_000)
    result = await read(tmp_path, limit=1)
    assert "totalLines" not in result.details["truncation"]
    assert "[lines 1-1 of a file of 19.1 MB; continue with offset=2]" in result.as_text()
    last = await read(tmp_path, offset=20_000)
    assert last.as_text() == "x" * 999
    assert last.details["truncation"]["totalLines"] == 20_000


async def test_a_line_that_is_too_long_is_shown_in_parts(tmp_path: Path) -> None:
    (tmp_path / "f").write_text("x" * 60_000 + "y" * 10_000 + "\nnext\n")
    result = await read(tmp_path)
    notice = (
        f"\n\n[line 1 is shown in part (characters 0-{PAGE_BYTES} of 70000); "
        f"continue with offset=1 cursor={PAGE_BYTES}]"
    )
    assert result.as_text() == "x" * PAGE_BYTES + notice
    assert result.details["truncation"]["firstLineExceedsLimit"] is True
    assert result.details["truncation"]["truncated"] is True
    assert result.details["continuation"] == {"kind": "cursor", "offset": 1, "cursor": PAGE_BYTES}
    rest = await read(tmp_path, offset=1, cursor=PAGE_BYTES)
    assert rest.as_text() == "x" * (60_000 - PAGE_BYTES) + "y" * 10_000 + "\nnext"


async def test_a_huge_file_shows_its_first_page_at_once_and_in_little_memory(
    tmp_path: Path,
) -> None:
    with (tmp_path / "f").open("wb") as file:
        file.write(b"first\n" + b"x" * 9_000)
        file.truncate(5 * 1024**3)
    tracemalloc.start()
    try:
        first = await read(tmp_path, limit=1)
        long = await read(tmp_path, offset=2)
        seek = await read(tmp_path, format="hex", offset=5 * 1024**3 // 16)
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert first.as_text() == "first\n\n[lines 1-1 of a file of 5 GB; continue with offset=2]"
    assert "(characters 0-51200 of a file of 5 GB); continue with offset=2 cursor=51200]" in (
        long.as_text()
    )
    assert seek.as_text() == f"13ffffff0{'  00' + ' 00' * 7}{'  00' + ' 00' * 7}  |{'.' * 16}|"
    assert peak < 5_000_000


async def test_a_far_line_is_found_in_little_memory(tmp_path: Path) -> None:
    with (tmp_path / "f").open("wb") as file:
        file.write(b"x" * 9_000 + b"\n")
        file.seek(100 * 1024 * 1024)
        file.write(b"\nthe end\n")
    tracemalloc.start()
    try:
        result = await read(tmp_path, offset=3)
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert result.as_text() == "the end"
    assert peak < 20_000_000


async def test_reading_a_huge_file_can_be_cancelled(tmp_path: Path) -> None:
    with (tmp_path / "f").open("wb") as file:
        file.write(b"x" * 9_000)
        file.truncate(1 << 40)
    task = asyncio.create_task(read(tmp_path, offset=1_000_000))
    for _ in range(50):
        await asyncio.sleep(0)
    assert not task.done()
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task


@table("window", [None, 0, 1, 500, 2_000, 16_000, 200_000, 10_000_000])
def test_a_page_always_holds_something_and_never_too_much(window: int | None) -> None:
    assert MIN_PAGE_BYTES <= page_bytes(window, joined=False) <= page_bytes(window) <= 64_000


async def test_a_small_model_gets_small_pages(tmp_path: Path) -> None:
    (tmp_path / "f").write_text(lines(2_000))
    for window in (1, 1_000, 8_000):
        result = await read(tmp_path, window=window)
        assert result.details["continuation"]["offset"] > 1


def take_notice(text: str) -> tuple[str, str]:
    """The page and its notice."""
    found = re.search(r"(?:\A|\n\n)\[([^\n]*)\]\Z", text)
    return (text[: found.start()], found[1]) if found else (text, "")


async def follow(run: Run) -> list[str]:
    """The lines of a file, by doing what each notice says."""
    params: dict[str, Any] = {"path": "f"}
    whole = ""
    while True:
        result = await call(run, CallRequest("read", params))
        page, notice = take_notice(result.as_text())
        if blank := re.search(r"lines (\d+)-(\d+) .* are blank", notice):
            page = page or "\n" * (int(blank[2]) - int(blank[1]))
        if not (going := re.search(r"continue with offset=(\d+)(?: cursor=(\d+))?", notice)):
            return (whole + page).split("\n")
        cursor = int(going[2] or 0)
        params |= {"offset": int(going[1]), "cursor": cursor}
        whole += page + ("" if cursor else "\n")


ALPHABET = "ab é中😀\t\u200b"


@settings(max_examples=40, deadline=None)
@given(
    st.lists(st.text(ALPHABET, max_size=30), min_size=1, max_size=40),
    st.sampled_from([1_500, 4_000, 16_000, 200_000, None]),
    st.integers(1, 60),
    st.sampled_from(["\n", "\r\n"]),
    st.sampled_from(["utf-8", "utf-16"]),
    st.integers(0, 3_000),
)
def test_following_the_notices_gives_the_file(
    written: list[str], window: int | None, repeat: int, ending: str, name: str, long: int
) -> None:
    expected = ["é" * long, *written * repeat, "end"]

    async def pages(place: str) -> list[str]:
        return await follow(make_run(place, window))

    with tempfile.TemporaryDirectory() as place:
        Path(place, "f").write_bytes(ending.join(expected).encode(name))
        assert asyncio.run(pages(place)) == expected


async def test_heavy_text_comes_in_smaller_pages_instead_of_being_cut(tmp_path: Path) -> None:
    (tmp_path / "f").write_text(("😀" * 50 + "\n") * 300, encoding="utf-8")
    for window in (8_000, 32_000, None):
        result = await read(tmp_path, window=window)
        assert "left out" not in result.as_text()
        assert result.as_text().endswith("]")
    (tmp_path / "f").write_bytes((b"\xe9" * 99 + b"\n") * 1_000)
    assert "left out" not in (await read(tmp_path)).as_text()


@pytest.mark.parametrize(
    ("raw", "text"),
    [
        ("schön\r\n".encode("utf-16"), "schön\n\n[decoded from utf-16-le]"),
        (b"caf\xe9\n", "café\n\n[decoded from cp1252]"),
        (
            "grün ".encode() + b"\xff\n",
            "grün \ufffd\n\n[bytes that are not valid utf-8 are shown as \ufffd]",
        ),
    ],
)
async def test_the_encoding_of_a_text_is_reported(tmp_path: Path, raw: bytes, text: str) -> None:
    (tmp_path / "f").write_bytes(raw)
    assert (await read(tmp_path)).as_text() == text


async def test_the_encoding_can_be_named(tmp_path: Path) -> None:
    (tmp_path / "f").write_bytes("日本\n".encode("shift_jis"))
    result = await read(tmp_path, encoding="sjis")
    assert result.as_text() == "日本"
    assert result.details["encoding"] == "shift_jis"
    (tmp_path / "f").write_bytes("日本\n語".encode("utf-16-le"))
    assert (await read(tmp_path)).details["kind"] == "binary"
    assert (await read(tmp_path, encoding="utf-16")).as_text() == "日本\n語"


@pytest.mark.parametrize("raw", [b"\0", b"text\0", b"x" * 8_191 + b"\0"])
async def test_a_binary_file_is_not_shown(tmp_path: Path, raw: bytes) -> None:
    (tmp_path / "f").write_bytes(raw)
    result = await read(tmp_path)
    assert "'f' is a binary file (" in result.details["error"]
    assert result.details["code"] == 400
    assert result.details["kind"] == "binary"


async def test_a_binary_file_is_named_and_can_be_looked_at(tmp_path: Path) -> None:
    (tmp_path / "f").write_bytes(b"SQLite format 3\0" + bytes(100))
    result = await read(tmp_path)
    assert result.is_error
    assert result.details["error"] == (
        "'f' is a binary file (SQLite database, 116 B), not text; format=\"hex\" shows its bytes"
    )
    assert (await read(tmp_path, format="raw")).as_text() == "SQLite format 3\0" + "\0" * 100


async def test_hex_shows_any_bytes_line_by_line(tmp_path: Path) -> None:
    (tmp_path / "f").write_bytes(bytes(range(40)))
    result = await read(tmp_path, format="hex")
    assert result.as_text() == (
        "00000000  00 01 02 03 04 05 06 07  08 09 0a 0b 0c 0d 0e 0f  |................|\n"
        "00000010  10 11 12 13 14 15 16 17  18 19 1a 1b 1c 1d 1e 1f  |................|\n"
        "00000020  20 21 22 23 24 25 26 27                           | !\"#$%&'|"
    )
    assert result.details["kind"] == "hex"
    result = await read(tmp_path, format="hex", offset=2, limit=1)
    notice = "\n\n[16 bytes per line; lines 2-2 of 3; continue with offset=3]"
    assert result.as_text().endswith(notice)
    assert result.details["continuation"] == {"kind": "line", "offset": 3}
    assert "nothing at offset=9" in (await read(tmp_path, format="hex", offset=9)).as_text()
    (tmp_path / "f").write_bytes(b"")
    assert (await read(tmp_path, format="hex")).as_text() == "[the file is empty (0 bytes)]"


@pytest.mark.parametrize("window", [1_000, 100_000, None])
async def test_a_hex_dump_comes_in_pages_too(tmp_path: Path, window: int | None) -> None:
    data = os.urandom(20_000)
    (tmp_path / "f").write_bytes(data)
    found, offset = b"", 1
    while offset:
        result = await read(tmp_path, window=window, format="hex", offset=offset)
        page, _ = take_notice(result.as_text())
        found += b"".join(bytes.fromhex(row[10:59]) for row in page.split("\n"))
        offset = result.details.get("continuation", {}).get("offset", 0)
    assert found == data


@pytest.mark.parametrize("path", ["missing", "dir", "../x", "/etc/passwd", "a\0b", "file://x/y"])
async def test_a_path_that_cannot_be_read_is_an_input_error(tmp_path: Path, path: str) -> None:
    (tmp_path / "dir").mkdir()
    result = await read(tmp_path, path)
    assert result.is_error
    assert result.details.get("code") in (400, 404) or result.details["status"] == "blocked"


async def test_a_missing_file_is_an_answer_when_it_is_optional(tmp_path: Path) -> None:
    result = await read(tmp_path, "nope.txt", optional=True)
    assert not result.is_error
    assert result.as_text() == "[no such file: 'nope.txt']"
    assert result.details == {
        "kind": "not_found",
        "status": "not_found",
        "path": "nope.txt",
        "optional": True,
    }
    assert (await read(tmp_path, "../nope.txt", optional=True)).is_error


@pytest.mark.parametrize(
    ("path", "soft"),
    [
        ("memory/2026-01-31.md", True),
        ("././memory/2026-01-31.md", True),
        ("memory/2026-1-31.md", False),
        ("x/memory/2026-01-31.md", False),
        ("memory/2026-01-31.md.txt", False),
    ],
)
async def test_a_days_notes_may_always_be_missing(tmp_path: Path, path: str, soft: bool) -> None:
    result = await read(tmp_path, path)
    assert (result.details.get("kind") == "not_found") is soft
    assert result.is_error is not soft


async def test_a_name_that_looks_the_same_is_found(tmp_path: Path) -> None:
    (tmp_path / "sub").mkdir()
    (tmp_path / "sub" / "It\u2019s 9\u202fAM.txt").write_text("found")
    result = await read(tmp_path, "sub/It's 9 AM.txt")
    assert result.as_text().startswith("found\n\n[")
    assert "-> 'sub/It’s 9\\u202fAM.txt'" in result.as_text()
    assert result.details["path"] == "sub/It\u2019s 9\u202fAM.txt"
    (tmp_path / "sub" / "It\u2018s 9\u00a0AM.txt").write_text("other")
    result = await read(tmp_path, "sub/It's 9 AM.txt")
    assert result.details["code"] == 404
    assert "several similar names do: " in result.details["error"]


async def test_an_at_sign_in_front_marks_a_file(tmp_path: Path) -> None:
    (tmp_path / "a.py").write_text("a")
    assert (await read(tmp_path, "@a.py")).as_text() == "a"
    (tmp_path / "@a.py").write_text("literally")
    assert (await read(tmp_path, "@a.py")).as_text() == "literally"
    assert (await read(tmp_path, "@@a.py")).as_text() == "literally"
    assert (await read(tmp_path, "@b.py")).details["code"] == 404
    assert (await read(tmp_path, "@../x")).details["status"] == "blocked"
    assert (await read(tmp_path, "@")).is_error


async def test_another_spelling_of_a_name_does_not_bypass_a_rule(tmp_path: Path) -> None:
    (tmp_path / "secret\u00a0plan").write_text("secret")
    (tmp_path / "secret").write_text("secret")
    (tmp_path / "open").write_text("open")
    rule = {"tool": "read", "effect": "deny", "params": {"path": "secret*"}}
    async with open_kit(tmp_path, config={"tools": {"rules": [rule]}}) as kit:
        assert (await kit.call("read", {"path": "@open"})).as_text() == "open"
        for path in ("secret", "@secret", "secret plan", "@secret plan"):
            result = await kit.call("read", {"path": path})
            assert result.is_error
            assert result.as_text() != "secret"


def png(width: int, height: int) -> bytes:
    buffer = io.BytesIO()
    Pillow.effect_noise((width, height), 50).convert("RGB").save(buffer, "PNG")
    return buffer.getvalue()


async def test_a_picture_is_shown_by_its_content(tmp_path: Path) -> None:
    data = png(40, 30)
    (tmp_path / "f").write_bytes(data)
    result = await read(tmp_path)
    image, text = result.content
    assert isinstance(image, Image)
    assert base64.b64decode(image.data) == data
    assert image.mime_type == "image/png"
    assert text == Text(f"[image/png, 40x30 pixels, {len(data) / 1024:.1f} KB]")
    assert result.details["kind"] == "image"
    assert result.details["mimeType"] == "image/png"
    assert (result.details["width"], result.details["height"]) == (40, 30)
    raw = await read(tmp_path, format="raw")
    assert "PNG" in raw.as_text()
    assert raw.details["kind"] == "text"


async def test_a_large_picture_is_scaled_and_the_factor_reported(tmp_path: Path) -> None:
    (tmp_path / "f").write_bytes(png(2_000, 1_000))
    result = await read(tmp_path)
    assert "image/png, 2000x1000 pixels, " in result.as_text()
    assert result.as_text().endswith(
        "; shown at 1200x600: multiply coordinates by 1.67 for the original]"
    )
    original = {"width": 2_000, "height": 1_000, "mimeType": "image/png"}
    assert result.details["original"] == original
    run = make_run(tmp_path, limits=ImageLimits(max_side=100))
    result = await call(run, CallRequest("read", {"path": "f"}))
    assert (result.details["width"], result.details["height"]) == (100, 50)


async def test_a_type_that_models_do_not_take_is_changed(tmp_path: Path) -> None:
    Pillow.new("RGB", (4, 3), "red").save(tmp_path / "f.bmp")
    result = await read(tmp_path, "f.bmp")
    assert result.as_text() == "[image/bmp, 4x3 pixels, 90 B; shown as image/png]"


async def test_pictures_that_are_too_large_or_broken_are_refused(tmp_path: Path) -> None:
    (tmp_path / "f").write_bytes(b"\x89PNG\r\n\x1a\n" + bytes(100))
    assert "cannot be decoded" in (await read(tmp_path)).details["error"]
    with (tmp_path / "f").open("r+b") as file:
        file.truncate(10 * 1024 * 1024 + 1)
    assert "is larger than 10 MB" in (await read(tmp_path)).details["error"]


async def test_an_svg_is_text(tmp_path: Path) -> None:
    (tmp_path / "f.svg").write_text("<svg/>")
    assert (await read(tmp_path, "f.svg")).as_text() == "<svg/>"


def pdf(*pages: str) -> bytes:
    """A document with these texts on its pages; a page without text has a drawing."""
    count = len(pages)
    objects = [
        "<< /Type /Catalog /Pages 2 0 R >>",
        "<< /Type /Pages /Count {} /Kids [{}] >>".format(
            count, " ".join(f"{4 + 2 * n} 0 R" for n in range(count))
        ),
        "<< /Type /Font /Subtype /Type1 /BaseFont /Helvetica >>",
    ]
    for n, text in enumerate(pages):
        shown = " T* ".join(f"({line}) Tj" for line in text.split("\n"))
        drawn = f"BT /F1 10 Tf 12 TL 10 900 Td {shown} ET" if text else "10 10 50 50 re f"
        objects.append(
            "<< /Type /Page /Parent 2 0 R /MediaBox [0 0 1000 1000] "
            f"/Resources << /Font << /F1 3 0 R >> >> /Contents {5 + 2 * n} 0 R >>"
        )
        objects.append(f"<< /Length {len(drawn)} >>\nstream\n{drawn}\nendstream")
    out, places = b"%PDF-1.4\n", []
    for number, body in enumerate(objects, 1):
        places.append(len(out))
        out += f"{number} 0 obj\n{body}\nendobj\n".encode()
    start = len(out)
    out += f"xref\n0 {len(objects) + 1}\n0000000000 65535 f \n".encode()
    out += b"".join(f"{place:010} 00000 n \n".encode() for place in places)
    trailer = f"trailer << /Size {len(objects) + 1} /Root 1 0 R >>\nstartxref\n{start}\n%%EOF\n"
    return out + trailer.encode()


async def test_a_document_is_shown_page_by_page(tmp_path: Path) -> None:
    (tmp_path / "f").write_bytes(pdf(*(f"this is {n}" for n in range(1, 13))))
    result = await read(tmp_path)
    assert result.details["kind"] == "document"
    assert result.as_text().startswith("[page 1]\nthis is 1\n\n[page 2]\nthis is 2\n\n")
    notice = '[pages 1-10 of 12; continue with pages="11-12"]'
    assert result.as_text().endswith(f"this is 10\n\n{notice}")
    assert result.details["continuation"] == {"kind": "pages", "pages": "11-12"}
    assert result.details["totalPages"] == 12
    assert result.details["truncation"]["truncated"] is True
    rest = await read(tmp_path, pages="11-12")
    assert rest.as_text() == "[page 11]\nthis is 11\n\n[page 12]\nthis is 12"
    assert "continuation" not in rest.details
    assert (await read(tmp_path, pages="12")).as_text() == "[page 12]\nthis is 12"
    assert (await read(tmp_path, pages="9-")).details["pages"] == "9-12"
    assert "no page 13" in (await read(tmp_path, pages="13")).details["error"]
    assert (await read(tmp_path, format="raw")).as_text().startswith("%PDF-1.4\n1 0 obj")


@pytest.mark.parametrize("pages", ["0", "3-2", "x", "-3", "1,2", "1-2-3", "٣", "9" * 20])
async def test_ranges_that_make_no_sense_are_refused(tmp_path: Path, pages: str) -> None:
    (tmp_path / "f").write_bytes(pdf("x"))
    assert "is not a page range" in (await read(tmp_path, pages=pages)).details["error"]


async def test_a_page_without_text_is_a_picture(tmp_path: Path) -> None:
    (tmp_path / "f").write_bytes(pdf("one", "", "three", *[""] * 6))
    result = await read(tmp_path)
    first, picture, *_ = result.content
    assert first == Text("[page 1]\none\n\n[page 2]")
    assert isinstance(picture, Image)
    assert sum(isinstance(block, Image) for block in result.content) == 5
    assert result.as_text().endswith(
        '[page 9]\n(no text on this page; pages="9" may show it as an image)'
    )


async def test_long_pages_are_shown_in_parts_that_fit_together(tmp_path: Path) -> None:
    long = "\n".join(f"this is line {n} of a page" for n in range(70))
    (tmp_path / "f").write_bytes(pdf("short", long, "last"))
    params: dict[str, Any] = {}
    texts: list[str] = []
    while True:
        result = await read(tmp_path, window=1_300, **params)
        page, notice = take_notice(result.as_text())
        texts.append(page)
        if "continuation" not in result.details:
            break
        going = result.details["continuation"]
        params = {key: going[key] for key in ("pages", "cursor") if key in going}
        for key, value in params.items():
            assert f"{key}={json.dumps(value)}" in notice
    assert texts[0] == "[page 1]\nshort"
    assert len(texts) > 3
    parts = "".join(text.removeprefix("[page 2]\n") for text in texts[1:])
    assert parts == long + "\n\n[page 3]\nlast"


async def test_a_document_that_is_broken_or_too_large_is_refused(tmp_path: Path) -> None:
    (tmp_path / "f").write_bytes(b"%PDF-1.4\nnothing else")
    assert "cannot be decoded" in (await read(tmp_path)).details["error"]
    with (tmp_path / "f").open("r+b") as file:
        file.truncate(64 * 1024 * 1024 + 1)
    assert "is larger than 64 MB" in (await read(tmp_path)).details["error"]


async def test_a_notebook_is_shown_as_text(tmp_path: Path) -> None:
    cells = [{"cell_type": "code", "execution_count": 5, "source": f"x = {n}"} for n in range(3)]
    (tmp_path / "f.ipynb").write_text(json.dumps({"cells": cells}))
    result = await read(tmp_path, "f.ipynb", limit=3)
    assert result.as_text() == (
        "[cell 1, code, run 5]\nx = 0\n\n\n[lines 1-3 of 8; continue with offset=4]"
    )
    assert result.details["kind"] == "notebook"
    raw = await read(tmp_path, "f.ipynb", format="raw")
    assert raw.as_text().startswith('{"cells"')
    assert raw.details["kind"] == "text"
    (tmp_path / "f.ipynb").write_text('{"cells": [')
    broken = await read(tmp_path, "f.ipynb")
    assert broken.as_text() == '{"cells": ['
    assert broken.details["kind"] == "text"


SETTINGS = "API_KEY=abcdefgh12345678\nPORT=80\n"


@pytest.mark.parametrize("name", [".env", ".env.local", "prod.env", ".envrc"])
async def test_secrets_of_a_settings_file_are_masked(tmp_path: Path, name: str) -> None:
    (tmp_path / name).write_text(SETTINGS)
    (tmp_path / "f").symlink_to(name)
    for path in (name, "f"):
        result = await read(tmp_path, path)
        assert result.as_text() == (
            "API_KEY=***\nPORT=80\n\n[secrets are masked; do not write the masks back]"
        )
        assert result.details["redacted"] is True


async def test_no_parameter_shows_the_secrets_of_a_settings_file(tmp_path: Path) -> None:
    (tmp_path / ".env").write_text(SETTINGS)
    for params in (
        {"cursor": 8},
        {"cursor": 8, "limit": 1},
        {"format": "raw"},
        {"format": "hex"},
        {"encoding": "utf-16"},
        {"encoding": "cp037"},
    ):
        result = await read(tmp_path, ".env", **params)
        assert "abcdefgh" not in json.dumps(result.to_json())
        assert "12345678" not in json.dumps(result.to_json())
    for form in ("hex", "raw"):
        shown = await read(tmp_path, ".env", format=form)
        assert shown.is_error is (form == "hex")
    with (tmp_path / ".env").open("a") as file:
        file.write("# more\n" * 200_000)
    assert "is larger than 1 MB" in (await read(tmp_path, ".env")).details["error"]


async def test_settings_without_secrets_are_shown_as_they_are(tmp_path: Path) -> None:
    (tmp_path / ".env").write_text("PORT=80\n")
    result = await read(tmp_path, ".env")
    assert result.as_text() == "PORT=80"
    assert "redacted" not in result.details
    (tmp_path / ".env").write_bytes(b"\0\1")
    assert "is a binary file" in (await read(tmp_path, ".env")).details["error"]


@pytest.mark.parametrize("encoding", ["utf-8", "utf-16", "utf-32"])
async def test_a_page_that_begins_inside_a_key_shows_none_of_it(
    tmp_path: Path, encoding: str
) -> None:
    body = "\n".join(f"MIIEowIBAAKCAQEAsecret{n:042}" for n in range(10))
    key = f"-----BEGIN RSA PRIVATE KEY-----\n{body}\n-----END RSA PRIVATE KEY-----\n"
    (tmp_path / "f").write_text(f"before\n{key}after\n", encoding=encoding)
    cases: list[dict[str, Any]] = [{}, {"offset": 4}, {"offset": 2, "cursor": 3}, {"limit": 3}]
    for params in cases:
        assert "secret" not in (await read(tmp_path, **params)).as_text().replace("secrets", "")
    assert (await read(tmp_path)).as_text().startswith("before\n-----BEGIN")


async def test_reading_records_the_version_of_a_file(tmp_path: Path) -> None:
    (tmp_path / "f").write_text("one\n")
    run = make_run(tmp_path)
    await call(run, CallRequest("read", {"path": "f"}))
    seen = run.services[ReadVersions]
    assert isinstance(seen, ReadVersions)
    files = LocalFileSystem(str(tmp_path))
    (tmp_path / "f").write_text("one\n")
    async with files.open("f") as file:
        seen.check(file.place, file.info, b"one\n")
    (tmp_path / "f").write_text("two\n")
    async with files.open("f") as file:
        with pytest.raises(ConflictError):
            seen.check(file.place, file.info, b"two\n")


async def test_a_file_that_is_replaced_while_it_is_read_stays_the_one_that_was_opened(
    tmp_path: Path,
) -> None:
    (tmp_path / "f").write_text("old\n" * 200_000)
    run = make_run(tmp_path)
    task = asyncio.create_task(call(run, CallRequest("read", {"path": "f", "offset": 199_999})))
    await asyncio.sleep(0)
    (tmp_path / "g").write_text("new\n" * 200_000)
    os.replace(tmp_path / "g", tmp_path / "f")
    assert (await task).as_text() in ("old\nold", "new\nnew")


async def test_a_file_that_gets_shorter_is_reported() -> None:
    file = HeldFile(b"what is left\n")
    file.info = replace(file.info, size=100)
    result = await show_text(file, b"what is left\n", UTF8, FileView("f"))
    assert result.as_text() == "what is left\n\n[the file was truncated while it was being read]"


def test_effects_name_the_files_that_may_be_read(tmp_path: Path) -> None:
    (tmp_path / "link").symlink_to("f")
    ctx = Context("1", Scope(), str(tmp_path))
    resource = f"file:{tmp_path.resolve()}/f"
    assert list(resolve(TOOL.effects(Params(path="link"), ctx))) == [Effect("read", resource)]
