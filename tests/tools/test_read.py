"""read: a file's text, page by page."""

from __future__ import annotations

import asyncio
import tempfile
import tracemalloc
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from clawkit.core.call import CallRequest, Run, call
from clawkit.core.context import Context, Scope
from clawkit.core.effects import Effect
from clawkit.core.result import Result
from clawkit.fs.base import FileSystem
from clawkit.fs.local import LocalFileSystem
from clawkit.tools.read import MIN_PAGE_BYTES, PAGE_BYTES, TOOL, Params, page_bytes


async def read(place: Path, path: str = "f", window: int | None = None, **params: Any) -> Result:
    run = Run(
        {"read": TOOL},
        str(place),
        Scope(context_window=window),
        services={FileSystem: LocalFileSystem(str(place))},
    )
    return await call(run, CallRequest("read", {"path": path, **params}))


def lines(count: int) -> str:
    return "".join(f"line {number}\n" for number in range(1, count + 1))


@pytest.mark.parametrize(
    ("raw", "text", "total"),
    [
        (b"alpha\nbeta\n", "alpha\nbeta", 2),
        (b"alpha\nbeta", "alpha\nbeta", 2),
        (b"alpha\r\nbeta\r\n", "alpha\nbeta", 2),
        (b"\xef\xbb\xbfalpha\n", "alpha", 1),
        (b"a\n\nb\n", "a\n\nb", 3),
        (b"\n", "", 1),
        (b"", "[the file is empty (0 bytes)]", 0),
        (b"\xef\xbb\xbf", "[the file is empty (3 bytes)]", 0),
        (b"caf\xc3\xa9\n", "café", 1),
        (b"caf\xe9\n", "caf\ufffd", 1),
        (b"a\rb\n", "a\rb", 1),
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
    assert not result.is_error


@pytest.mark.parametrize("name", ["path", "file_path", "file", "filename", "filePath"])
async def test_the_path_has_the_names_models_use(tmp_path: Path, name: str) -> None:
    (tmp_path / "f").write_text("here")
    run = Run({"read": TOOL}, str(tmp_path), services={FileSystem: LocalFileSystem(str(tmp_path))})
    assert (await call(run, CallRequest("read", {name: "f"}))).as_text() == "here"


async def test_offset_and_limit_choose_the_lines_and_a_notice_says_how_to_go_on(
    tmp_path: Path,
) -> None:
    (tmp_path / "f").write_text(lines(10))
    result = await read(tmp_path, offset=3, limit=2)
    assert result.as_text() == "line 3\nline 4\n\n[lines 3-4 of 10; go on with offset=5]"
    assert result.details["continuation"] == {"kind": "line", "offset": 5}
    assert result.details["truncation"]["truncated"] is True
    assert result.details["truncation"]["outputLines"] == 2
    assert (await read(tmp_path, offset=9)).as_text() == "line 9\nline 10"
    assert (await read(tmp_path, limit=10)).as_text() == lines(10).rstrip()


async def test_an_offset_after_the_end_says_how_long_the_file_is(tmp_path: Path) -> None:
    (tmp_path / "f").write_text(lines(3))
    result = await read(tmp_path, offset=4)
    assert result.as_text() == "[nothing at offset=4: the file has 3 lines]"


@pytest.mark.parametrize(
    "params", [{"offset": 0}, {"limit": 0}, {"limit": 100_001}, {"offset": -1}]
)
async def test_numbers_out_of_range_are_refused(tmp_path: Path, params: dict[str, Any]) -> None:
    (tmp_path / "f").write_text("x")
    assert (await read(tmp_path, **params)).details["code"] == 400


async def test_a_page_has_at_most_two_thousand_lines(tmp_path: Path) -> None:
    (tmp_path / "f").write_text(lines(2_500))
    result = await read(tmp_path)
    assert result.as_text().endswith("line 2000\n\n[lines 1-2000 of 2500; go on with offset=2001]")


async def test_a_page_has_at_most_fifty_kilobytes(tmp_path: Path) -> None:
    (tmp_path / "f").write_text(("x" * 99 + "\n") * 1_000)
    result = await read(tmp_path)
    assert result.details["truncation"]["outputLines"] == PAGE_BYTES // 100
    assert result.details["continuation"]["offset"] == PAGE_BYTES // 100 + 1


async def test_the_end_of_a_large_file_is_not_counted(tmp_path: Path) -> None:
    (tmp_path / "f").write_text(("x" * 999 + "\n") * 20_000)
    result = await read(tmp_path, limit=1)
    assert "totalLines" not in result.details["truncation"]
    assert "[lines 1-1 of a file of 19.1 MB; go on with offset=2]" in result.as_text()
    last = await read(tmp_path, offset=20_000)
    assert last.as_text() == "x" * 999
    assert last.details["truncation"]["totalLines"] == 20_000


async def test_a_line_that_is_too_long_is_shown_in_part(tmp_path: Path) -> None:
    (tmp_path / "f").write_text("x" * 1_000_000 + "\nnext\n")
    result = await read(tmp_path)
    assert result.details["truncation"]["firstLineExceedsLimit"] is True
    assert result.details["truncation"]["truncated"] is True
    assert "a line was too long and is shown in part" in result.as_text()
    assert "go on with offset=2" in result.as_text()
    assert (await read(tmp_path, offset=2)).as_text() == "next"
    (tmp_path / "f").write_text("y" * 1_000_000)
    assert "shown in part" in (await read(tmp_path)).as_text()


@pytest.mark.parametrize("raw", [b"\0", b"text\0", "text".encode("utf-16"), b"x" * 8_191 + b"\0"])
async def test_a_binary_file_is_not_shown(tmp_path: Path, raw: bytes) -> None:
    (tmp_path / "f").write_bytes(raw)
    result = await read(tmp_path)
    assert "this is a binary file" in result.details["error"]
    assert result.details["code"] == 400


@pytest.mark.parametrize("path", ["missing", "dir", "../x", "/etc/passwd", "a\0b", "file://x/y"])
async def test_what_cannot_be_read_is_the_callers_mistake(tmp_path: Path, path: str) -> None:
    (tmp_path / "dir").mkdir()
    result = await read(tmp_path, path)
    assert result.is_error
    assert result.details.get("code") == 400 or result.details["status"] == "blocked"


async def test_a_huge_file_is_read_in_little_memory(tmp_path: Path) -> None:
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
    assert peak < 5_000_000


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


@pytest.mark.parametrize("window", [None, 0, 1, 500, 2_000, 16_000, 200_000, 10_000_000])
def test_a_page_always_holds_something_and_never_too_much(window: int | None) -> None:
    assert MIN_PAGE_BYTES <= page_bytes(window) <= 64_000


async def test_a_small_model_gets_small_pages(tmp_path: Path) -> None:
    (tmp_path / "f").write_text(lines(2_000))
    for window in (1, 1_000, 8_000):
        result = await read(tmp_path, window=window)
        assert result.details["continuation"]["offset"] > 1


ALPHABET = "ab é中😀\t\u200b"


@settings(max_examples=40, deadline=None)
@given(
    st.lists(st.text(ALPHABET, max_size=30), min_size=1, max_size=40),
    st.sampled_from([4_000, 16_000, 32_000, 200_000, None]),
    st.integers(1, 60),
    st.sampled_from(["\n", "\r\n"]),
)
def test_the_pages_together_are_the_file(
    written: list[str], window: int | None, repeat: int, ending: str
) -> None:
    expected = written * repeat

    async def pages(place: Path) -> list[str]:
        found: list[str] = []
        offset: int | None = 1
        while offset is not None:
            result = await read(place, window=window, offset=offset)
            shown = result.details["truncation"]["outputLines"]
            found += result.as_text().split("\n")[:shown]
            offset = result.details.get("continuation", {}).get("offset")
        return found

    with tempfile.TemporaryDirectory() as place:
        Path(place, "f").write_bytes("".join(line + ending for line in expected).encode())
        assert asyncio.run(pages(Path(place))) == expected


async def test_heavy_text_comes_in_smaller_pages_instead_of_being_cut(tmp_path: Path) -> None:
    (tmp_path / "f").write_text(("😀" * 50 + "\n") * 300, encoding="utf-8")
    for window in (8_000, 32_000, None):
        result = await read(tmp_path, window=window)
        assert "left out" not in result.as_text()
        assert result.as_text().endswith("]")
    (tmp_path / "f").write_bytes((b"\xe9" * 99 + b"\n") * 1_000)
    assert "left out" not in (await read(tmp_path)).as_text()


def test_a_call_says_which_file_it_reads(tmp_path: Path) -> None:
    (tmp_path / "link").symlink_to("f")
    ctx = Context("1", Scope(), str(tmp_path))
    resource = f"file:{tmp_path.resolve()}/f"
    assert list(TOOL.effects(Params(path="link"), ctx)) == [Effect("read", resource)]
