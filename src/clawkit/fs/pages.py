"""Pages of text: files of any size in constant memory, in any encoding, without gaps."""

from __future__ import annotations

import codecs
from math import inf
from typing import NamedTuple

from clawkit.fs.encoding import LOOK, Encoding
from clawkit.fs.protocols import CHUNK, Info, OpenFile
from clawkit.text import weigh

COUNT_BELOW_BYTES = 16 * 1024 * 1024
"""In larger files, lines and characters after the page are not counted."""
ROW = 16
ROW_CHARS = 79
"""Characters of a row of a hex dump, with its newline, in a file below 4 GB."""
_SHOWN = "".join(chr(byte) if 32 <= byte < 127 else "." for byte in range(256))


class Want(NamedTuple):
    line: int
    """The first line, counted from 1."""
    cursor: int
    """Characters to skip at the start of that line."""
    max_lines: int
    max_weight: int
    """See `clawkit.text.weigh`."""


class TextPage(NamedTuple):
    """A part of a text: whole lines, or a piece of one line that is too long for a page.

    Consecutive pages have no gap: there is a newline between them, unless the second one starts
    inside a line.
    """

    text: str
    """Without the last newline. Line endings are `\\n`, whatever the file has."""
    lines: int
    """Lines in the text; 0 if the start is beyond the end."""
    next: tuple[int, int] | None = None
    """Line and cursor of the next page; None at the end."""
    total_lines: int | None = None
    line_chars: int | None = None
    """Length of the line that is shown in part, or that ends before the cursor."""
    endings: str = "lf"
    """Line endings of the part that was read: `lf`, `crlf`, `cr` or `mixed`."""
    final_newline: bool = True
    """False if the end is shown and has no newline."""
    damaged: bool = False
    """Whether invalid bytes are shown as U+FFFD."""
    shrank: bool = False
    """Whether the file was truncated while it was read."""


class HeldFile:
    """Bytes in memory that can be paged like a file."""

    place = ""

    def __init__(self, data: bytes) -> None:
        self.info = Info("file", len(data), 0, 0, "")
        self._data = data

    async def read(self, size: int, at: int) -> bytes:
        return self._data[at : at + size]


async def take_page(file: OpenFile, encoding: Encoding, head: bytes, want: Want) -> TextPage:
    """The requested part of a file. `head` are its first `CHUNK` bytes, or all of it."""
    text = _Text(file, encoding, head)
    before = await text.skip_lines(want.line - 1) if want.line > 1 else 0
    if not await text.has_more():
        return TextPage("", 0, total_lines=before, shrank=text.shrank)
    if want.cursor and (length := await text.skip_in_line(want.cursor)) is not None:
        after = (want.line + 1, 0) if await text.has_more() else None
        return TextPage("", 0, after, line_chars=length, endings=text.endings)
    while not text.ended and len(text.held) <= want.max_weight:
        await text.more()
    held = text.held
    room = fitting(held, want.max_weight)
    is_whole = text.ended and room >= len(held) - held.endswith("\n")
    end = len(held) - held.endswith("\n") if is_whole else held.rfind("\n", 0, room + 1)
    if end < 0:
        return await _cut_line(text, want, room)
    if held.count("\n", 0, end) >= want.max_lines:
        end = find_nth(held, "\n", want.max_lines)
    lines = held.count("\n", 0, end) + 1
    is_end = len(held) <= end + 1 and (text.ended or not await text.more())
    return TextPage(
        held[:end],
        lines,
        None if is_end else (want.line + lines, 0),
        _sum(want.line - 1, lines if is_end else await text.count_lines()),
        endings=text.endings,
        final_newline=not is_end or held.endswith("\n"),
        damaged=text.damaged and "\ufffd" in held[:end],
        shrank=text.shrank,
    )


async def _cut_line(text: _Text, want: Want, room: int) -> TextPage:
    shown = text.held[:room]
    length: int | None = None
    after: int | None = None
    if text.is_countable:
        length = await text.skip_in_line(inf)
        after = await text.count_lines()
    return TextPage(
        shown,
        1,
        (want.line, want.cursor + room),
        _sum(want.line, after),
        _sum(want.cursor, length),
        endings=text.endings,
        damaged=text.damaged and "\ufffd" in shown,
        shrank=text.shrank,
    )


def _sum(known: int, more: int | None) -> int | None:
    return None if more is None else known + more


class _Text:
    """Decodes a file from its start, chunk by chunk."""

    def __init__(self, file: OpenFile, encoding: Encoding, head: bytes) -> None:
        self.held = ""
        """Decoded text with `\\n` line endings that was not skipped."""
        self.ended = False
        """Whether `held` reaches the end of the file."""
        self.damaged = False
        self.shrank = False
        self._file = file
        self._raw: bytes | None = head[len(encoding.mark) :]
        """Bytes that were read but not decoded."""
        self._at = len(head)
        self._read_all = len(head) < CHUNK
        self._decoder = codecs.getincrementaldecoder(encoding.name)()
        self._pending = ""
        """A carriage return whose line feed may be in the next chunk."""
        self._seen: set[str] = set()
        look = head[:LOOK]
        # Classic Mac OS. Otherwise a lone carriage return is an ordinary character.
        self._is_old = b"\n" not in look and b"\r" in look

    @property
    def endings(self) -> str:
        return "mixed" if len(self._seen) > 1 else next(iter(self._seen), "lf")

    @property
    def is_countable(self) -> bool:
        # A file may grow faster than it is counted.
        return max(self._file.info.size, self._at) <= COUNT_BELOW_BYTES

    async def more(self) -> bool:
        """Decode another chunk; False at the end."""
        before = len(self.held)
        while len(self.held) == before and not self.ended:
            chunk, self._raw = self._raw, None
            if chunk is None:
                import asyncio  # here, because describing a tool does not need it

                # Let other tasks run, and a cancellation through, while a large file is read.
                await asyncio.sleep(0)
                chunk = await self._file.read(CHUNK, self._at)
                self._at += len(chunk)
                self._read_all = len(chunk) < CHUNK
            self.ended = self._read_all
            self.shrank = self.ended and self._at < self._file.info.size
            self.held += self._unify(self._decode(chunk))
        return len(self.held) > before

    def _decode(self, chunk: bytes) -> str:
        decoder = self._decoder
        state = decoder.getstate()
        try:
            return decoder.decode(chunk, self.ended)
        except UnicodeError:
            self.damaged = True
            decoder.errors = "replace"
            decoder.setstate(state)
            return decoder.decode(chunk, self.ended)

    def _unify(self, text: str) -> str:
        """Normalize line endings to `\\n`."""
        if self._pending:
            text, self._pending = self._pending + text, ""
        if "\r" not in text:
            if "\n" in text:
                self._seen.add("lf")
            return text
        if text.endswith("\r") and not self.ended:
            text, self._pending = text[:-1], "\r"
        if pairs := text.count("\r\n"):
            self._seen.add("crlf")
        if text.count("\n") > pairs:
            self._seen.add("lf")
        text = text.replace("\r\n", "\n")
        if self._is_old and "\r" in text:
            self._seen.add("cr")
            text = text.replace("\r", "\n")
        return text

    async def has_more(self) -> bool:
        """Whether there is text that was not skipped."""
        return bool(self.held) or await self.more()

    async def skip_lines(self, count: int) -> int:
        """Skip lines; returns how many there were."""
        skipped = 0
        while skipped < count and await self.has_more():
            found = self.held.count("\n")
            if skipped + found >= count:
                self.held = self.held[find_nth(self.held, "\n", count - skipped) + 1 :]
                return count
            skipped += found
            is_open = not self.held.endswith("\n")
            self.held = ""
            if is_open and not await self.has_more():
                return skipped + 1
        return skipped

    async def skip_in_line(self, count: float) -> int | None:
        """Skip characters of the current line; if it is not longer, skip all of it and return its
        length."""
        length = 0
        while await self.has_more():
            end = self.held.find("\n")
            part = len(self.held) if end < 0 else end
            if length + part > count:
                self.held = self.held[int(count) - length :]
                return None
            length += part
            self.held = self.held[part + 1 :]
            if end >= 0:
                break
        return length

    async def count_lines(self) -> int | None:
        """The number of remaining lines; None if the file is too large to count."""
        count, is_open = 0, False
        while self.held or await self.more():
            count += self.held.count("\n")
            is_open = not self.held.endswith("\n")
            self.held = ""
            if not self.is_countable:
                return None
        return count + is_open


def find_nth(text: str, char: str, n: int) -> int:
    """The position of the n-th occurrence of a character, which must exist."""
    return len(text) - len(text.split(char, n)[n]) - 1


def fitting(text: str, max_weight: int) -> int:
    """How many characters fit into `max_weight`; at least one, so that paging makes progress."""
    low, high = 0, min(len(text), max(1, max_weight))
    if text.isascii() or weigh(text[:high]) <= max_weight:
        return high
    while high - low > 1:
        middle = (low + high) // 2
        weight = weigh(text[low:middle])
        if weight <= max_weight:
            low, max_weight = middle, max_weight - weight
        else:
            high = middle
    return max(1, low)


def hex_dump(data: bytes, at: int) -> list[str]:
    """One line per 16 bytes: offset, hexadecimal values, printable characters."""
    digits = max(8, len(f"{at + len(data):x}"))
    rows = (data[start : start + ROW] for start in range(0, len(data), ROW))
    return [
        f"{at + ROW * number:0{digits}x}  {row[:8].hex(' '):<23}  {row[8:].hex(' '):<23}  "
        f"|{row.decode('latin-1').translate(_SHOWN)}|"
        for number, row in enumerate(rows)
    ]
