"""Pages of text: joined together they are the file, whatever its content."""

from __future__ import annotations

import asyncio
import os
import tracemalloc
from pathlib import Path

import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from tests.tables import table

from clawkit.fs.encoding import Encoding, detect, settle
from clawkit.fs.pages import (
    COUNT_BELOW_BYTES,
    HeldFile,
    TextPage,
    Want,
    find_nth,
    fitting,
    take_page,
)
from clawkit.fs.protocols import CHUNK, Info
from clawkit.text import weigh

UTF8 = Encoding("utf-8")


class PlainFile:
    """A real file, read where it is asked to be."""

    def __init__(self, path: Path) -> None:
        self.place = str(path)
        self._fd = os.open(path, os.O_RDONLY)
        found = os.fstat(self._fd)
        self.info = Info("file", found.st_size, found.st_mtime_ns, found.st_mode, "")
        self.reads = 0

    async def read(self, size: int, at: int) -> bytes:
        self.reads += 1
        return os.pread(self._fd, size, at)

    def __del__(self) -> None:
        os.close(self._fd)


async def take(
    data: bytes | PlainFile,
    encoding: Encoding = UTF8,
    line: int = 1,
    cursor: int = 0,
    max_lines: int = 100_000,
    max_weight: int = 1_000_000,
) -> TextPage:
    file = HeldFile(data) if isinstance(data, bytes) else data
    head = await file.read(CHUNK, 0)
    return await take_page(file, encoding, head, Want(line, cursor, max_lines, max_weight))


async def follow(data: bytes, encoding: Encoding, max_lines: int, max_weight: int) -> str:
    """All of a text, by doing what each page says."""
    text, line, cursor = "", 1, 0
    while True:
        page = await take(data, encoding, line, cursor, max_lines, max_weight)
        assert weigh(page.text) <= max_weight
        assert page.text.count("\n") < max_lines
        text += page.text
        if page.next is None:
            return text if page.lines == 0 else text + "\n" * page.final_newline
        assert page.next > (line, cursor)
        line, cursor = page.next
        text += "" if cursor else "\n"


ENCODINGS = ["utf-8", "utf-8-sig", "utf-16", "utf-16-be", "utf-32", "cp1252", "cp037", "shift_jis"]
PIECES = [
    "a",
    "b c",
    "\n",
    "\n\n",
    "\r\n",
    "\r",
    "é",
    "ß\u0301",
    "中文",
    "😀👩‍👩‍👧",
    "x" * 40,
    "\t",
    "\ufeff",
]


@given(
    st.lists(st.sampled_from(PIECES), max_size=40),
    st.sampled_from(ENCODINGS),
    st.integers(1, 7),
    st.integers(12, 60),
)
@example(["\ufeff", "a"], "utf-16", 1, 12)
def test_the_pages_together_are_the_text(
    pieces: list[str], name: str, max_lines: int, max_weight: int
) -> None:
    data = "".join(pieces).encode(name, "ignore")
    encoding = settle(Encoding(name), data)
    text = data[len(encoding.mark) :].decode(encoding.name)
    look = data[:8_192]
    text = text.replace("\r\n", "\n")
    if b"\n" not in look and b"\r" in look:
        text = text.replace("\r", "\n")
    assert asyncio.run(follow(data, encoding, max_lines, max_weight)) == text


@given(st.binary(max_size=200), st.integers(1, 5), st.integers(12, 40))
def test_undecodable_bytes_do_not_shift_the_pages(
    data: bytes, max_lines: int, max_weight: int
) -> None:
    data = data.removeprefix(b"\xef\xbb\xbf") + b"\n"
    text = data.decode("utf-8", "replace").replace("\r\n", "\n")
    assert asyncio.run(follow(data, UTF8, max_lines, max_weight)) == text


@pytest.mark.parametrize("name", ["utf-8", "utf-16-le", "utf-32-be", "gb18030"])
@pytest.mark.parametrize("shift", range(4))
async def test_a_character_at_the_border_of_two_chunks_stays_whole(name: str, shift: int) -> None:
    text = "x" * shift + "é😀中\r\n" * (CHUNK // 8)
    data = text.encode(name)
    assert len(data) > CHUNK
    page = await take(data, Encoding(name), max_weight=50_000_000)
    assert page.text == text.replace("\r\n", "\n")[:-1]
    assert not page.damaged
    assert page.endings == "crlf"
    last = await take(data, Encoding(name), line=CHUNK // 8)
    assert last.text == "é😀中"
    assert last.total_lines == CHUNK // 8


@pytest.mark.parametrize("name", ["utf-8", "utf-16-le"])
@pytest.mark.parametrize("end", ["", "\n"])
@pytest.mark.parametrize("size", [CHUNK - 1, CHUNK, CHUNK + 1, 2 * CHUNK])
async def test_lines_are_counted_alike_wherever_a_chunk_ends(
    name: str, end: str, size: int
) -> None:
    unit = len("x".encode(name))
    text = ("x" * 99 + "\n") * (size // 100 // unit)
    text += "y" * (size // unit - len(text) - len(end)) + end
    data = text.encode(name)
    total = text.count("\n") + (not text.endswith("\n"))
    first = await take(data, Encoding(name), max_lines=1, max_weight=1_000)
    assert (first.text, first.next, first.total_lines) == ("x" * 99, (2, 0), total)
    last = await take(data, Encoding(name), line=total)
    assert last.text == text.removesuffix("\n").rpartition("\n")[2]
    assert (last.next, last.total_lines) == (None, total)
    assert last.final_newline == (end == "\n")
    past = await take(data, Encoding(name), line=total + 1)
    assert (past.lines, past.total_lines) == (0, total)


@table(
    ("data", "text", "endings"),
    [
        (b"a\nb\n", "a\nb", "lf"),
        (b"a\r\nb\r\n", "a\nb", "crlf"),
        (b"a\r\nb\n", "a\nb", "mixed"),
        (b"a\rb\r", "a\nb", "cr"),
        (b"a\rb\n", "a\rb", "lf"),
        (b"a\r", "a", "cr"),
        (b"a\r\r\nb", "a\r\nb", "crlf"),
        (b"no end", "no end", "lf"),
    ],
)
async def test_line_ends_are_shown_as_newlines(data: bytes, text: str, endings: str) -> None:
    page = await take(data)
    assert (page.text, page.endings) == (text, endings)


async def test_a_line_too_long_for_a_page_is_cut_with_its_length() -> None:
    data = ("é" * 100 + "\nnext\n").encode()
    page = await take(data, max_weight=50)
    assert (page.text, page.next) == ("é" * 25, (1, 25))
    assert (page.line_chars, page.total_lines) == (100, 2)
    page = await take(data, cursor=90, max_weight=50)
    assert (page.text, page.next) == ("é" * 10 + "\nnext", None)
    assert page.total_lines == 2


async def test_only_whole_lines_follow_each_other_on_a_page() -> None:
    page = await take(b"aaa\nbbb\nccccccc\n", max_weight=10)
    assert (page.text, page.next) == ("aaa\nbbb", (3, 0))
    page = await take(b"aaa\nbbb\n", max_weight=7)
    assert (page.text, page.next) == ("aaa\nbbb", None)


@table(("cursor", "following"), [(3, (2, 0)), (4, (2, 0)), (10**9, (2, 0))])
async def test_a_cursor_past_the_end_of_its_line_finds_nothing(
    cursor: int, following: tuple[int, int]
) -> None:
    page = await take(b"abc\nd\n", cursor=cursor)
    assert (page.lines, page.line_chars, page.next) == (0, 3, following)
    for last in (b"d\nabc\n", b"d\nabc"):
        page = await take(last, line=2, cursor=cursor)
        assert (page.lines, page.line_chars, page.next) == (0, 3, None)


async def test_an_empty_text_has_no_lines() -> None:
    assert await take(b"") == TextPage("", 0, total_lines=0)
    assert (await take(b"\xef\xbb\xbf", Encoding("utf-8", b"\xef\xbb\xbf"))).lines == 0


async def test_undecodable_bytes_are_reported_only_if_shown() -> None:
    data = b"fine\nca\xff\n"
    assert (await take(data)).damaged
    assert (await take(data)).text == "fine\nca\ufffd"
    assert not (await take(data, max_lines=1)).damaged
    assert not (await take("\ufffd is a character\n".encode())).damaged


async def test_large_files_are_not_counted(tmp_path: Path) -> None:
    path = tmp_path / "f"
    path.write_bytes(b"line\n" * (COUNT_BELOW_BYTES // 5 + 1))
    file = PlainFile(path)
    page = await take(file, max_lines=1, max_weight=50_000)
    assert (page.text, page.next, page.total_lines) == ("line", (2, 0), None)
    assert file.reads == 1
    end = COUNT_BELOW_BYTES // 5 + 1
    assert (await take(file, line=end)).total_lines == end
    page = await take(file, max_weight=3)
    assert (page.next, page.total_lines, page.line_chars) == ((1, 3), None, None)


async def test_a_file_of_any_size_takes_little_memory(tmp_path: Path) -> None:
    path = tmp_path / "f"
    with path.open("wb") as out:
        out.write(b"first\n" + b"x" * 9_000)
        out.truncate(5 * 1024**3)
    file = PlainFile(path)
    tracemalloc.start()
    try:
        first = await take(file, max_lines=1)
        long = await take(file, line=2, max_weight=50_000)
        far = await take(file, line=2, cursor=50_000_000, max_weight=50_000)
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert (first.text, first.next) == ("first", (2, 0))
    assert long.next == (2, 50_000)
    assert far.next == (2, 50_050_000)
    assert peak < 3_000_000


async def test_looking_for_a_line_can_be_cancelled(tmp_path: Path) -> None:
    path = tmp_path / "f"
    with path.open("wb") as out:
        out.truncate(1 << 40)
    task = asyncio.create_task(take(PlainFile(path), line=2))
    for _ in range(20):
        await asyncio.sleep(0)
    assert not task.done()
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task


async def test_a_file_that_gets_shorter_ends_where_it_ends(tmp_path: Path) -> None:
    path = tmp_path / "f"
    path.write_bytes(b"line\n" * CHUNK)
    file = PlainFile(path)
    head = await file.read(CHUNK, 0)
    os.truncate(path, CHUNK + 5)
    page = await take_page(file, UTF8, head, Want(1, 0, 10**9, 10**9))
    assert page.shrank
    assert page.next is None
    assert len(page.text) >= CHUNK


async def test_a_file_that_grows_is_read_to_its_new_end(tmp_path: Path) -> None:
    path = tmp_path / "f"
    path.write_bytes(b"line\n" * CHUNK)
    file = PlainFile(path)
    with path.open("ab") as out:
        out.write(b"more\n")
    page = await take(file, line=CHUNK + 1)
    assert (page.text, page.shrank) == ("more", False)


@given(st.text("a\n", min_size=1, max_size=60).filter(lambda text: "\n" in text), st.data())
def test_the_nth_newline_is_found(text: str, data: st.DataObject) -> None:
    n = data.draw(st.integers(1, text.count("\n")))
    places = [at for at, char in enumerate(text) if char == "\n"]
    assert find_nth(text, "\n", n) == places[n - 1]


@given(st.text("aé中😀", min_size=1, max_size=60), st.integers(1, 200))
def test_as_much_fits_as_weighs_no_more(text: str, max_weight: int) -> None:
    size = fitting(text, max_weight)
    assert size == 1 or weigh(text[:size]) <= max_weight
    assert size == len(text) or weigh(text[: size + 1]) > max_weight


async def test_what_is_found_out_about_a_file_can_be_paged() -> None:
    data = "ein schöner Tag\n".encode("utf-16")
    encoding = detect(data)
    assert encoding is not None
    assert (await take(data, encoding)).text == "ein schöner Tag"
