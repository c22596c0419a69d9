"""Parts of what a command wrote, as text of a limited length."""

from __future__ import annotations

import asyncio
import re

import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from tests.tables import table

from clawkit.process.output_text import (
    CHUNK,
    HELD_MAX,
    SIDE,
    News,
    OutputPage,
    ShownOutput,
    clean,
    news,
    page,
    shown,
    tail_text,
)
from clawkit.text import human_size

LINES = b"".join(b"line %d of the output\n" % n for n in range(20_000))
NOTE = re.compile(r"(?:\A|\n)\[… ([0-9.]+ [KMG]?B) left out here …\]\n")
FLOOD = b"\x1b[31m"


class Held:
    """Output in memory that remembers what was read of it."""

    def __init__(self, data: bytes) -> None:
        self.data = data
        self.reads: list[tuple[int, int]] = []

    @property
    def size(self) -> int:
        return len(self.data)

    async def read(self, start: int, size: int) -> bytes:
        assert start >= 0
        assert size >= 0
        self.reads.append((start, size))
        return self.data[start : start + size]


class Endless:
    """Gigabytes of lines that nobody has to hold: every line has 64 bytes."""

    def __init__(self, size: int) -> None:
        self.size = size
        self.largest = 0

    async def read(self, start: int, size: int) -> bytes:
        self.largest = max(self.largest, size)
        size = max(0, min(size, self.size - start))
        lines = range(start // 64, (start + size) // 64 + 1)
        if len(lines) > 10_000:
            # Numbers matter only where text is taken from.
            return (b"x" * (63 - start % 64) + b"\n" + (b"x" * 63 + b"\n") * len(lines))[:size]
        text = b"".join(b"%063d\n" % line for line in lines)
        return text[start % 64 :][:size]


# shown


@table(
    ("data", "text"),
    [(b"", ""), (b"ok\n", "ok\n"), (b"\x1b[1mok\x1b[0m\xff", "ok\ufffd"), (b"x" * 100, "x" * 100)],
)
async def test_output_that_fits_is_shown_whole(data: bytes, text: str) -> None:
    assert await shown(Held(data), 100) == ShownOutput(text, False, 0)


async def test_of_long_output_head_and_tail_are_shown_and_the_note_counts() -> None:
    output = Held(LINES)
    result = await shown(output, 10_000)
    head, size, tail = NOTE.split(result.text)
    assert result.truncated
    assert len(result.text) <= 10_000
    assert LINES.startswith(head.encode())
    assert LINES.endswith(tail.encode())
    assert result.omitted == len(LINES) - len(head) - 1 - len(tail)
    assert size == human_size(result.omitted)
    assert head.endswith("of the output")
    assert tail.startswith("line ")
    assert 2_400 <= len(head) <= 3_000
    assert 6_400 <= len(tail) <= 7_000
    assert sum(size for _, size in output.reads) <= 80_000


async def test_a_line_without_end_is_cut_where_the_room_ends() -> None:
    result = await shown(Held(b"a" * 50_000 + b"z" * 50_000), 1_000)
    head, _, tail = NOTE.split(result.text)
    assert len(result.text) == 1_000 - len("1023.9 KB") + len("97.7 KB")
    assert (set(head), set(tail)) == ({"a"}, {"z"})
    assert result.omitted == 100_000 - len(head) - len(tail)


async def test_no_cut_falls_into_a_character_or_a_sequence() -> None:
    unit = "é\x1b[38;5;196m中\x1b]8;;https://example.org/\x07😀".encode()
    data = unit * 2_000
    for cap in range(200, 230):
        head, _, tail = NOTE.split((await shown(Held(data), cap)).text)
        assert ("é中😀" * 100).startswith(head)
        assert ("é中😀" * 100).endswith(tail)
        assert min(len(head), len(tail)) > 30


@table("size", [SIDE - 100, SIDE + 100, 2 * SIDE - 100])
async def test_output_of_which_little_is_text_is_shown_whole(size: int) -> None:
    flood = FLOOD * (size // len(FLOOD))
    assert await shown(Held(b"begin\n" + flood + b"\nend\n"), 1_000) == ShownOutput(
        "begin\n\nend\n", False, 0
    )


async def test_a_flood_of_sequences_is_not_read_to_its_end() -> None:
    output = Held(b"begin\n" + FLOOD * 1_000_000 + b"\nend\n")
    result = await shown(output, 1_000)
    assert NOTE.split(result.text)[::2] == ["begin", "\nend\n"]
    assert result.omitted > 3_000_000
    assert sum(size for _, size in output.reads) <= 3 * SIDE


@table("cap", [0, 1, 10, 30, 40, 50, 60])
async def test_even_little_room_is_kept_to(cap: int) -> None:
    result = await shown(Held(LINES), cap)
    assert len(result.text) <= cap
    assert result.truncated
    assert result.omitted > len(LINES) - 100


@given(
    st.lists(st.sampled_from([b"a", b"\n", b"\r", FLOOD, b"\0", b"\xff", "中".encode(), b"b" * 50]))
    .map(b"".join)
    .map(lambda data: data * 20),
    st.integers(0, 500),
)
def test_shown_output_never_exceeds_the_cap(data: bytes, cap: int) -> None:
    result = asyncio.run(shown(Held(data), cap))
    assert len(result.text) <= cap
    assert result.truncated == (result.omitted > 0)
    assert 0 <= result.omitted <= len(data)
    # With more updates of a line, less of it is shown.
    if len(clean(data)) <= cap and b"\r" not in data:
        assert result == ShownOutput(clean(data), False, 0)


@given(st.integers(0, 3_000), st.integers(100, 1_000), st.integers(1, 80))
def test_head_note_and_tail_together_are_the_output(count: int, cap: int, width: int) -> None:
    data = b"".join(b"%d\n" % n if n % width == 0 else b"%d " % n for n in range(count))
    result = asyncio.run(shown(Held(data), cap))
    if not result.truncated:
        assert result.text == data.decode()
        return
    head, _, tail = NOTE.split(result.text)
    assert data.startswith(head.encode())
    assert data.endswith(tail.encode())
    cut = len(data) - len(head) - len(tail) - result.omitted
    assert data[len(head) : len(head) + cut] in (b"", b"\n")


# news


async def test_news_are_what_came_since() -> None:
    assert await news(Held(b"old\nnew\n"), 4, 100) == ("new\n", 8, 0)
    assert await news(Held(b"old\n"), 4, 100) == ("", 4, 0)
    assert await news(Held(b"old\n"), 9, 100) == ("", 4, 0)


async def test_long_new_output_is_cut_to_its_end() -> None:
    output = Held(LINES)
    text, end, skipped = await news(output, 100, 1_000)
    assert end == len(LINES)
    assert text.startswith("line ")
    assert 800 <= len(text) <= 1_000
    assert LINES.endswith(text.encode())
    assert skipped == len(LINES) - 100 - len(text)
    assert sum(size for _, size in output.reads) < 20_000


@table("unfinished", ["😀".encode()[:3], b"\x1b", b"\x1b[3", b"\x1b]0;title", b"\x1b]0;title\x1b"])
async def test_incomplete_sequences_are_left_for_the_next_read(unfinished: bytes) -> None:
    assert await news(Held(b"text" + unfinished), 0, 100) == ("text", 4, 0)
    whole = clean(b"text" + unfinished)
    told = News(whole, 4 + len(unfinished), 0)
    assert await news(Held(b"text" + unfinished), 0, 100, final=True) == told


async def test_a_long_unfinished_sequence_does_not_wait_and_is_lost_to_no_one() -> None:
    link = b"\x1b]8;;https://example.org/" + b"x" * HELD_MAX
    first = await news(Held(b"text" + link), 0, 1_000)
    assert first == ("text", 4 + len(link), 0)
    assert (await news(Held(b"text" + link + b"\x07link"), first.end, 1_000)).text == "link"
    given_up = await news(Held(b"text" + link + b"\nmore"), first.end, 1_000)
    assert given_up.text == clean(link + b"\nmore")
    assert (await news(Held(b"text" + link), first.end, 1_000, final=True)).text == clean(link)


async def test_news_after_a_flood_of_sequences_are_found() -> None:
    output = Held(b"long ago\n" + FLOOD * 500_000 + b"now\n")
    text, end, skipped = await news(output, 0, 100)
    assert (text, end) == ("now\n", output.size)
    assert 0 < skipped < output.size
    assert sum(size for _, size in output.reads) <= 2 * SIDE


async def test_news_do_not_begin_inside_a_long_sequence() -> None:
    title = b"\x1b]0;" + b"t" * 3_000 + b"\x07"
    output = Held(b"x" * 20_000 + title + FLOOD * 1_100 + b"y" * 200)
    assert (await news(output, 0, 1_000)).text == "x" * 800 + "y" * 200


TOLD = st.sampled_from(
    [b"word ", b"\n", b"\t", b"\x1b[31m", b"\x1b[0;1;38;5;196m", b"\x1b[m", b"\x1b(B", b"[31m"]
)


@given(st.lists(TOLD, max_size=30).map(b"".join), st.data())
def test_news_together_are_the_output(data: bytes, draw: st.DataObject) -> None:
    stops = draw.draw(st.lists(st.integers(0, len(data)), max_size=20).map(sorted))

    async def tell() -> str:
        text, at = "", 0
        for stop in [*stops, len(data)]:
            told = await news(Held(data[:stop]), at, 10_000)
            assert at <= told.end <= stop
            assert not told.skipped
            text, at = text + told.text, told.end
        return text + (await news(Held(data), at, 10_000, final=True)).text

    assert asyncio.run(tell()) == clean(data)


@given(
    st.lists(TOLD | st.sampled_from([b"\x1b]0;title\x07", "größe 😀".encode()])).map(b"".join),
    st.integers(1, 200),
)
def test_news_byte_by_byte_are_the_output_too(data: bytes, longest: int) -> None:
    data = data.replace(b"title", b"title" * longest)

    async def tell() -> str:
        text, at = "", 0
        for stop in range(0, len(data), max(1, longest // 20)):
            told = await news(Held(data[:stop]), at, 10_000)
            text, at = text + told.text, told.end
        return text + (await news(Held(data), at, 10_000, final=True)).text

    assert asyncio.run(tell()) == clean(data)


@given(st.binary(max_size=300), st.integers(0, 300), st.integers(0, 100), st.booleans())
def test_news_keep_to_their_room(data: bytes, start: int, cap: int, final: bool) -> None:
    told = asyncio.run(news(Held(data), start, cap, final=final))
    assert len(told.text) <= cap
    assert min(start, len(data)) <= told.end <= len(data)
    assert 0 <= told.skipped <= len(data)
    assert told.end == len(data) or not final


# page


@pytest.mark.parametrize(
    ("offset", "limit", "text", "first", "next_offset"),
    [
        (0, 2, "a\nb", 0, 2),
        (1, None, "b\nc\nd", 1, None),
        (None, 2, "c\nd", 2, None),
        (None, None, "a\nb\nc\nd", 0, None),
        (3, 9, "d", 3, None),
        (None, 9, "a\nb\nc\nd", 0, None),
        (4, None, "", 4, None),
        (99, 1, "", 4, None),
        (-1, 1, "a", 0, 1),
        (1, 0, "", 1, 1),
        (None, 0, "", 4, None),
    ],
)
@pytest.mark.parametrize("data", [b"a\nb\nc\nd\n", b"a\nb\r\n\x1b[1mc\nd"])
async def test_a_page_has_the_lines_asked_for(
    data: bytes,
    offset: int | None,
    limit: int | None,
    text: str,
    first: int,
    next_offset: int | None,
) -> None:
    result = await page(Held(data), offset, limit, 100)
    lines = len(text.split("\n")) if text else 0
    counted = (len(data), data.count(b"\n"))
    assert result == OutputPage(text, first, lines, 4, False, next_offset, counted)


async def test_without_numbers_the_last_200_lines_are_the_page() -> None:
    result = await page(Held(LINES), None, None, 64_000)
    assert (result.first, result.lines, result.total_lines) == (19_800, 200, 20_000)
    assert result.text.startswith("line 19800 ")
    assert result.text.endswith("line 19999 of the output")
    assert not result.truncated


async def test_output_without_bytes_has_no_lines() -> None:
    for offset in (None, 0, 5):
        assert await page(Held(b""), offset, None, 10) == OutputPage(
            "", 0, 0, 0, False, None, (0, 0)
        )


async def test_lines_that_do_not_fit_are_on_the_next_page() -> None:
    first = await page(Held(LINES), 10, None, 1_000)
    assert first.truncated
    assert first.next_offset == 10 + first.lines
    assert 950 < len(first.text) <= 1_000
    assert first.text.startswith("line 10 ")
    after = await page(Held(LINES), first.next_offset, 3, 1_000)
    assert after.text.startswith(f"line {first.next_offset} ")


async def test_of_the_last_lines_the_very_last_are_shown() -> None:
    result = await page(Held(LINES), None, 500, 1_000)
    assert result.truncated
    assert result.text.endswith("line 19999 of the output")
    assert result.first + result.lines == 20_000
    assert result.next_offset == 19_500
    assert 950 < len(result.text) <= 1_000


@pytest.mark.parametrize("length", [5_000, 3 * CHUNK])
@pytest.mark.parametrize("end", [b"", b"\n"])
async def test_a_line_that_is_too_long_alone_is_cut(length: int, end: bytes) -> None:
    data = b"one\n" + b"x" * length + b"\nthree\n" + b"y" * length + end
    result = await page(Held(data), 1, 2, 1_000)
    assert (result.first, result.lines, result.truncated, result.next_offset) == (1, 1, True, 2)
    assert "left out here" in result.text
    assert len(result.text) <= 1_000
    assert set(NOTE.sub("", result.text)) == {"x"}
    last = await page(Held(data), None, 2, 1_000)
    assert (last.first, last.lines, last.truncated, last.next_offset) == (3, 1, True, 2)
    assert set(NOTE.sub("", last.text)) == {"y"}
    alone = await page(Held(data), 3, None, 1_000)
    assert (alone.text, alone.truncated, alone.next_offset) == (last.text, True, None)


async def test_a_page_reads_no_more_than_its_share_and_no_half_lines() -> None:
    line = b"two " + FLOOD * 2_000 + b"words\n"
    lines = SIDE // len(line)
    for offset, first, missing in ((None, 200 - lines, 0), (0, 0, lines)):
        result = await page(Held(line * 200), offset, None, 1_000)
        assert result.text.split("\n") == ["two words"] * lines
        assert (result.first, result.lines, result.next_offset) == (first, lines, missing)
        assert result.truncated


async def test_a_line_that_just_fits_is_not_cut() -> None:
    for data in (b"x" * 100 + b"\n", b"x" * 100, b"a\n" + b"x" * 98 + b"\n", b"\n" + b"x" * 99):
        for offset in (None, 0):
            result = await page(Held(data), offset, None, 100)
            assert (result.text, result.truncated) == (data.decode().removesuffix("\n"), False)


async def test_counted_lines_are_not_counted_again() -> None:
    before = await page(Held(LINES), None, 1, 100)
    output = Held(LINES + b"more\n")
    result = await page(output, None, 1, 100, hint=before.counted)
    assert (result.text, result.total_lines) == ("more", 20_001)
    assert not [start for start, _ in output.reads if start < len(LINES) - SIDE]
    # Of another output, that is: shorter than what was counted.
    for known in (before.counted, (100, 0)):
        result = await page(Held(b"a\nb\n"), 1, 1, 100, hint=known)
        assert (result.text, result.total_lines) == ("b", 2)


@table(("offset", "limit"), [(None, 1), (0, 1), (3, 1), (9, None)])
async def test_lost_output_is_tolerated(offset: int | None, limit: int | None) -> None:
    output = Endless(64 * 10)
    counted = (await page(output, None, 1, 100)).counted
    output.read = Held(b"").read  # type: ignore[method-assign]
    result = await page(output, offset, limit, 100, hint=counted)
    assert (result.text, result.total_lines) == ("", 11)
    assert (await shown(output, 100)).text == ""
    assert (await news(output, 64, 100)).text == ""


@table(("offset", "limit"), [(None, 3), (2**25 - 3, None), (2**25 - 10, 3), (7, 3)])
async def test_gigabytes_are_paged_a_chunk_at_a_time(offset: int | None, limit: int | None) -> None:
    total = 2**25
    output = Endless(total * 64)
    # Most of it is known, so that the test is quick; the same chunks would be counted.
    result = await page(output, offset, limit, 1_000, hint=((total - 2**16) * 64, total - 2**16))
    first = total - 3 if offset is None else offset
    assert (result.first, result.lines, result.total_lines) == (first, 3, total)
    assert [int(line) for line in result.text.split("\n")] == [first, first + 1, first + 2]
    assert output.largest <= CHUNK


NUMBERED = b"".join(b"%07d\n" % n for n in range(400_000))


@table("line", [0, 131_071, 131_072, 131_073, 150_000, 250_000, 399_999])
async def test_a_line_is_found_beyond_the_first_chunk_and_before_the_last(line: int) -> None:
    output = Held(NUMBERED)
    for known in (None, (CHUNK, CHUNK // 8), (8, 1), (line * 8, line), (line * 8 + 3, line)):
        result = await page(output, line, 1, 100, hint=known)
        assert (result.text, result.total_lines) == (f"{line:07}", 400_000)


async def test_others_run_while_lines_are_counted() -> None:
    turns = 0

    async def others() -> None:
        nonlocal turns
        while True:
            turns += 1
            await asyncio.sleep(0)

    task = asyncio.create_task(others())
    await page(Held(b"x" * (8 * CHUNK)), None, 1, 100)
    task.cancel()
    assert turns >= 8


NUMBERS = st.none() | st.integers(0, 30)


@given(
    st.lists(st.sampled_from([b"\n", b"a", b"bc", b"\r\n", b"\r", FLOOD]) | st.binary(max_size=3))
    .map(b"".join)
    .filter(lambda data: len(data) < 400),
    NUMBERS,
    NUMBERS,
    st.data(),
)
@example(b"a", 0, None, None)
def test_a_page_is_what_splitting_lines_gives(
    data: bytes, offset: int | None, limit: int | None, draw: st.DataObject | None
) -> None:
    known_bytes = draw.draw(st.integers(0, len(data))) if draw else 0
    known = (known_bytes, data.count(b"\n", 0, known_bytes))
    result = asyncio.run(page(Held(data), offset, limit, 10_000, hint=known))
    lines = data.removesuffix(b"\n").split(b"\n") if data else []
    if offset is None:
        wanted = lines[-(200 if limit is None else limit) :] if limit != 0 else []
        first = len(lines) - len(wanted)
    else:
        first = min(offset, len(lines))
        wanted = lines[first:] if limit is None else lines[first : first + limit]
    assert result.text == "\n".join(clean(line) for line in wanted)
    assert (result.first, result.lines, result.total_lines) == (first, len(wanted), len(lines))
    assert result.counted == (len(data), data.count(b"\n"))
    assert not result.truncated


@given(
    st.lists(st.sampled_from([b"\n", b"word", b"\xff", b"\r", FLOOD, b"x" * 30])).map(b"".join),
    st.integers(60, 200),
)
def test_pages_one_after_the_other_have_every_line(data: bytes, cap: int) -> None:
    async def read() -> list[str]:
        texts: list[str] = []
        offset: int | None = 0
        while offset is not None:
            result = await page(Held(data), offset, None, cap)
            assert len(result.text) <= cap
            assert result.truncated == (result.next_offset is not None) or "left out" in result.text
            texts += [result.text] * (result.lines > 0)
            offset = result.next_offset
        return texts

    whole = clean(data.removesuffix(b"\n"))
    texts = asyncio.run(read())
    if not any("left out" in text for text in texts):
        assert "\n".join(texts) == whole


# tail_text


@table(
    ("data", "cap", "text"),
    [
        (b"", 10, ""),
        (b"ok\n", 10, "ok"),
        (b"ok\n\n", 10, "ok\n"),
        (b"one\ntwo two\n", 8, "two two"),
        (b"one\ntwo two\n", 7, "two two"),
        (b"one\ntwo two\n", 5, "two"),
        (b"\x1b[31mred\x1b[0m", 3, "red"),
        ("größe".encode(), 3, "öße"),
        (b"text\x1b[3", 10, "text"),
        (b"5m ago", 10, "5m ago"),
        (b"text", 0, ""),
    ],
)
def test_the_tail_is_the_last_characters(data: bytes, cap: int, text: str) -> None:
    assert tail_text(data, cap) == text


def test_the_tail_begins_at_a_line_when_one_is_near() -> None:
    text = tail_text(LINES, 1_000)
    assert text.startswith("line ")
    assert text.endswith("line 19999 of the output")
    assert 800 < len(text) <= 1_000


def test_the_tail_of_what_was_cut_begins_with_text() -> None:
    assert tail_text(b"\x98\x80 smile", 100, cut_start=True) == " smile"
    assert tail_text(b"0;31mred", 100, cut_start=True) == "red"


@given(st.binary(max_size=300), st.integers(0, 100))
def test_the_tail_keeps_to_its_room(data: bytes, cap: int) -> None:
    assert len(tail_text(data, cap)) <= cap


@table("cap", range(60, 400, 7))
async def test_no_word_is_cut_in_two(cap: int) -> None:
    """Half a secret would not be recognised as one."""
    words = [f"word{number:03d}secret" for number in range(300)]
    output = Held(" ".join(words).encode())
    for text in (
        (await shown(output, cap)).text,
        (await news(output, 0, cap)).text,
        tail_text(output.data, cap),
    ):
        told = re.sub(r"\[.*\]", " ", text).split()
        assert told
        assert set(told) <= set(words)


@table("cap", range(60, 400, 7))
async def test_a_line_without_blanks_is_cut_at_other_separators(cap: int) -> None:
    words = [f"word{number:03d}secret" for number in range(300)]
    output = Held(",".join(words).encode())
    for text in ((await shown(output, cap)).text, tail_text(output.data, cap)):
        told = [each for each in re.split(r"[\n,]|\[.*\]", text) if each]
        assert told
        assert set(told) <= set(words)
