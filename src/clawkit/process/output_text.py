"""Output of commands as clean text: no terminal sequences, no hidden characters; parts of it."""

from __future__ import annotations

import re
from typing import NamedTuple, Protocol

from msgspec import Struct

from clawkit.text import human_size

STRING_MAX = 4_096
"""Maximum length of a terminal string, such as a window title; a longer one is text."""
LOOK = STRING_MAX + 128
"""Bytes at the end in which an incomplete sequence can start."""
_PLAIN = bytes((0x09, 0x0A, *range(0x20, 0x7F)))

# Patterns are compiled on first use: most output needs none.
# No sequence contains a newline, so that lines can be cleaned one by one, and no string contains
# another one. Quantifiers are possessive, so that an incomplete sequence causes no backtracking.
_PARAMETERS = r"[0-?]{0,64}+[ -/]{0,8}+"
_BODY = rf"[^\x07\x18\x1a\x1b\n\x80-\x9f]{{0,{STRING_MAX}}}+"
_SEQUENCE = (
    rf"\x1b(?:\[{_PARAMETERS}[@-~]?"
    rf"|[\]PX^_k]{_BODY}(?:\x07|\x1b\\)"
    r"|[ -/]{1,8}+[0-~]?"
    r"|[0-~])"
)
_OPEN = (
    rf"(?:\x1b\[|\x9b){_PARAMETERS}\Z"
    rf"|(?:\x1b[\]PX^_k]|[\x90\x98\x9d-\x9f]){_BODY}\x1b?\Z"
    r"|\x1b[ -/]{0,8}+\Z"
)
_OPEN_CHARACTER = rb"(?:[\xc2-\xdf]|[\xe0-\xef][\x80-\xbf]?|[\xf0-\xf4][\x80-\xbf]{0,2})\Z"
# The possible rest of a sequence that started earlier: a guess, because `5m` can also be text.
_REST = (
    rb"[\x80-\xbf]{0,3}+(?:\[[0-9;:?]{1,64}+[A-Za-z]|[0-9;:]{1,64}+m"
    rb"|[^\x00-\x1f\x7f]{0,%d}+(?:\x07|\x1b\\))?" % STRING_MAX
)
# C1 control characters, and the same as escape sequences.
_LONG_FORMS = {
    "\x90": "\x1bP",
    "\x98": "\x1bX",
    "\x9b": "\x1b[",
    "\x9c": "\x1b\\",
    "\x9d": "\x1b]",
    "\x9e": "\x1b^",
    "\x9f": "\x1b_",
}
_TO_LINE_START = ("\x1b[G", "\x1b[0G", "\x1b[1G")
"""Used by some programs instead of a carriage return."""

# Format characters, variation selectors, tags, noncharacters, and Unicode line separators. Two
# patterns, because one with characters beyond the basic plane is ten times slower.
_HIDDEN = (
    "[\u00ad\u0600-\u0605\u061c\u06dd\u070f\u0890\u0891\u08e2\u180b-\u180f\u200b\u200c\u200e\u200f"
    "\u2028-\u202e\u2060-\u206f\ufdd0-\ufdef\ufe00-\ufe0d\ufeff\ufff0-\ufffb\ufffe\uffff]"
)
_BEYOND = "[\U00010000-\U0010ffff]"
_HIDDEN_BEYOND = (
    "[\U000110bd\U000110cd\U00013430-\U0001343f\U0001bca0-\U0001bca3\U0001d173-\U0001d17a"
    "\U000e0000-\U000e0fff"
    + "".join(
        f"{chr(plane * 0x10000 + 0xFFFE)}{chr(plane * 0x10000 + 0xFFFF)}" for plane in range(1, 17)
    )
    + "]"
)
_PICTURE = "\u00a9\u00ae\u203c\u2049\u2122\u2139\u2190-\u3299\U0001f000-\U0001faff"
# Joiners and variation selectors are kept between emoji only.
_STRAY_JOINER = (
    rf"(?<![{_PICTURE}])[\ufe0e\ufe0f]|(?<![{_PICTURE}\ufe0f])\u200d|\u200d(?![{_PICTURE}])"
)

# Bold and underlined by overstriking.
_UNDERLINED = r"_\x08(?=[^\x08\r\n])"
_BOLD = r"([^\x08\r\n])\x08(?=\1)"
_CONTROL = r"[\x00-\x08\x0b-\x1f\x7f-\x9f]"
_SPELLED = {code: f"\\x{code:02x}" for code in range(0xA0) if code not in _PLAIN}

UPDATES_SHOWN = 4
_UPDATES = "[… {:,} updates of this line left out …]"


def clean(data: bytes, *, cut_start: bool = False, cut_end: bool = False) -> str:
    """The text without terminal sequences and hidden characters.

    Invalid UTF-8 becomes U+FFFD, control characters `\\xNN`. A line that was overwritten by
    carriage returns is shown as several lines, the first and the last versions. Every line is
    cleaned independently. `cut_start` and `cut_end` say that there is more before or after: then
    an incomplete character or sequence there is left out.
    """
    if cut_end:
        data = data[: whole_end(data)]
    if cut_start and (rest := re.match(_REST, data)):
        data = data[rest.end() :]
    if not data.translate(None, _PLAIN):
        return data.decode("ascii")
    text = data.decode("utf-8", "replace")
    if not text.isascii():
        text = _drop_hidden(text)
    if "\x1b" in text:
        for sequence in _TO_LINE_START:
            text = text.replace(sequence, "\r")
        text = re.sub(_SEQUENCE, "", text)
    if "\x08" in text:
        text = re.sub(_BOLD, "", re.sub(_UNDERLINED, "", text))
    if "\r" in text:
        lines = text.replace("\r\n", "\n").removesuffix("\r").split("\n")
        text = "\n".join(_split_updates(line) if "\r" in line else line for line in lines)
    return text.translate(_SPELLED) if re.search(_CONTROL, text) else text


def whole_end(data: bytes) -> int:
    """The start of an incomplete character or sequence at the end; otherwise the end."""
    end = len(data)
    if character := re.search(_OPEN_CHARACTER, data[-3:]):
        end -= len(character[0])
    look = data[max(0, end - LOOK) : end]
    if b"\x1b" not in look and b"\xc2" not in look:
        return end
    # Invalid bytes stay single bytes, so that they can be counted.
    text = look.decode("utf-8", "surrogateescape")
    unfinished = re.search(_OPEN, text)
    return end - len(unfinished[0].encode("utf-8", "surrogateescape")) if unfinished else end


def _drop_hidden(text: str) -> str:
    for short, long in _LONG_FORMS.items():
        text = text.replace(short, long)
    text = re.sub(_HIDDEN, "", text)
    if re.search(_BEYOND, text):
        text = re.sub(_HIDDEN_BEYOND, "", text)
    if any(joiner in text for joiner in "\ufe0e\ufe0f\u200d"):
        text = re.sub(_STRAY_JOINER, "", text)
    return text


def _split_updates(line: str) -> str:
    """Show the versions of a line that was overwritten by carriage returns as lines."""
    updates = [update for update in line.split("\r") if update.strip(" \t")]
    if len(updates) > UPDATES_SHOWN:
        updates[1:-2] = [_UPDATES.format(len(updates) - 3)]
    return "\n".join(updates)


LAST_LINES = 200
"""Default number of lines of a page."""
CHUNK = 1024 * 1024
"""Bytes that are read at once to count lines."""
SIDE = 512 * 1024
"""Maximum bytes that are read for the head or the tail, if most of them are not shown."""
HELD_MAX = 64
"""Maximum length of an incomplete sequence that is kept for the next call."""
_PER_CHARACTER = 4
"""Initial estimate of bytes per character: the maximum in UTF-8, or room for colors."""
_GAPS = (b" ", b"\t", b'"', b"'", b"\n", b"\r")
_WEAK_GAPS = (b",", b";", b"|", b"<", b">", b"(", b")", b"[", b"]", b"{", b"}", b"&")
"""Separators that secrets rarely contain, for lines without any other."""
_WORD = 512
"""Maximum length of a word that is not cut, in bytes."""
_LEFT_OUT = "[… {} left out here …]"
_NOTE_ROOM = len(_LEFT_OUT.format("1023.9 KB")) + 2


class Bytes(Protocol):
    """The output of a command so far, stdout and stderr together."""

    @property
    def size(self) -> int: ...

    async def read(self, start: int, size: int) -> bytes:
        """At most `size` bytes from `start`; fewer only at the end."""


class ShownOutput(Struct, frozen=True):
    """The output of a finished command, truncated in the middle."""

    text: str
    truncated: bool
    omitted: int
    """Bytes between head and tail that are not shown."""


class News(NamedTuple):
    """Output since the last poll."""

    text: str
    end: int
    """The offset where it ends."""
    skipped: int
    """Bytes before the text that are left out, because there are too many."""


class OutputPage(Struct, frozen=True):
    """Some lines of the output, without the last newline.

    An overwritten or cut line may be shown as several lines; it counts once.
    """

    text: str
    first: int
    """Number of the first line, from 0."""
    lines: int
    total_lines: int
    truncated: bool
    """Whether not all requested lines fit."""
    next_offset: int | None
    """Where to continue: the first line that is not shown."""
    counted: tuple[int, int]
    """Bytes, and newlines in them, to pass as `known` to the next call."""


async def news(output: Bytes, start: int, cap: int, *, final: bool = False) -> News:
    """The output after `start`, or its last `cap` characters.

    Unless `final`, an incomplete character or short sequence at the end is left for the next call.
    """
    size = output.size
    start = min(start, size)
    # The last call dropped a long incomplete sequence: its rest must not be shown either.
    low = await _whole_place(output, 0, start)
    end = size
    if not final:
        whole = await _whole_place(output, low, size)
        end = size if size - whole > HELD_MAX else max(start, whole)
    place, text = await _tail(output, low, end, cap, cut_end=not final)
    return News(text, end, max(0, place - start))


async def page(
    output: Bytes,
    offset: int | None,
    limit: int | None,
    cap: int,
    *,
    hint: tuple[int, int] | None = None,
) -> OutputPage:
    """`limit` lines from `offset` on, or to the end; without `offset` the last lines.

    If they do not fit into `cap` characters, the lines nearest to the requested end are shown; a
    single line that does not fit is cut. `hint` is the `counted` of an earlier page.
    """
    counted = await _count(output, hint)
    end, newlines = counted
    total = newlines + (await output.read(end - 1, 1) != b"\n" if end else 0)
    if offset is None:
        want = min(total, LAST_LINES if limit is None else max(0, limit))
        text, lines, is_cut = await _lines_before(output, counted, want, cap)
        missing = total - want if lines < want else None
        return OutputPage(
            text, total - lines, lines, total, is_cut or lines < want, missing, counted
        )
    first = min(total, max(0, offset))
    want = total - first if limit is None else min(total - first, max(0, limit))
    at, before = hint if hint and hint[0] <= end and hint[1] < first else (0, 0)
    place = await _skip_lines(output, at, end, first - before) if want else end
    text, lines, is_cut = await _lines_after(output, place, end, want, cap)
    missing = first + lines if first + lines < total else None
    return OutputPage(text, first, lines, total, is_cut or lines < want, missing, counted)


def tail_text(data: bytes, cap: int, *, cut_start: bool = False) -> str:
    """The last `cap` characters, without the last newline.

    Pass more bytes than `cap`, so that the start falls on a line; `cut_start` says that there is
    even more before `data`.
    """
    start = _last(data, cap + data.endswith(b"\n"))
    text = clean(data[start:], cut_start=cut_start and start == 0, cut_end=True)
    return _end_of(text.removesuffix("\n"), cap)


async def shown(output: Bytes, cap: int, low: int = 0, high: int | None = None) -> ShownOutput:
    """The output between two offsets if it has at most `cap` characters; otherwise its head and
    tail, with a line in between that says how much is left out."""
    high = output.size if high is None else high
    size = high - low
    head = await output.read(low, min(size, cap * _PER_CHARACTER))
    if len(head) < min(size, SIDE) and _first(head, cap) == len(head):
        head += await output.read(low + len(head), min(size, SIDE) - len(head))
    if len(head) == size and len(text := clean(head)) <= cap:
        return ShownOutput(text, False, 0)
    room = cap - _NOTE_ROOM
    if room <= 0:
        place, text = await _tail(output, low, high, cap)
        return ShownOutput(text, place > low, place - low)
    end = _first(head[: whole_end(head)], room * 3 // 10)
    text = clean(head[:end])[: room * 3 // 10]
    place, rest = await _tail(output, low + end, high, room - len(text))
    omitted = place - low - end
    if not omitted:
        return ShownOutput(text + rest, False, 0)
    if text and not text.endswith("\n"):
        text += "\n"
    return ShownOutput(f"{text}{_LEFT_OUT.format(human_size(omitted))}\n{rest}", True, omitted)


async def _tail(
    output: Bytes, low: int, high: int, room: int, *, cut_end: bool = False
) -> tuple[int, str]:
    """The last `room` characters between two offsets, and the offset where they start."""
    size = high - low
    # Enough to recognize a sequence at the start of the text.
    wanted = room * _PER_CHARACTER + LOOK
    for limit in (wanted, max(wanted, SIDE)):
        begin = high - min(size, limit)
        data = await output.read(begin, high - begin)
        start = _last(data, room)
        if start >= LOOK or begin == low:
            break
    text = clean(data[start:], cut_start=not start and begin > low, cut_end=cut_end)
    return begin + start, _end_of(text, room)


def _end_of(text: str, room: int) -> str:
    return text[max(0, len(text) - room) :]


async def _whole_place(output: Bytes, low: int, at: int) -> int:
    """The start of an incomplete character or sequence that ends at `at`; otherwise `at`."""
    begin = max(low, at - LOOK)
    return begin + whole_end(await output.read(begin, at - begin))


def _first(data: bytes, room: int) -> int:
    """The number of bytes from the start with at most `room` characters; whole lines if those use
    most of the room."""
    at, left = _first_lines(data, room)
    if at == len(data) or left <= room // 5:
        return at
    line_end = data.find(b"\n", at) + 1 or len(data)
    stride = LOOK
    while stride:
        # Cut before a sequence, not inside it.
        end = at + whole_end(data[at : min(line_end, at + stride)])
        length = len(clean(data[at:end]))
        if at < end and length <= left:
            at, left = end, left - length
        else:
            stride //= 2
    # Cut between words: redaction would not recognize half of a secret.
    for gaps in (_GAPS, _WEAK_GAPS):
        end = max(data.rfind(gap, max(0, at - _WORD), at) for gap in gaps) + 1
        # A first "word" without any end is cut anyway.
        has_gap = any(each in data[: 2 * _WORD] for each in gaps)
        if (end and whole_end(data[:end]) == end) or (at < _WORD and has_gap):
            return end
    return at


def _last(data: bytes, room: int) -> int:
    """The start of the last bytes with at most `room` characters; at a line if whole lines use most
    of the room."""
    at, left = _last_lines(data, room)
    if at == 0 or left <= room // 5:
        return at
    line_start = data.rfind(b"\n", 0, at - 1) + 1
    stride = LOOK
    while stride:
        low = max(line_start, at - stride)
        look = max(line_start, low - LOOK)
        start = look + whole_end(data[look:low])
        length = len(clean(data[start:at]))
        if start < at and length <= left:
            at, left = start, left - length
        else:
            stride //= 2
    for gaps in (_GAPS, _WEAK_GAPS):
        found = [data.find(gap, at - 1, at + _WORD) + 1 for gap in gaps]
        start = min(filter(None, found), default=0)
        if start and whole_end(data[:start]) == start:
            return start
    return at


def _first_lines(data: bytes, room: int) -> tuple[int, int]:
    """The end of the first lines with at most `room` characters, and the remaining room."""
    at = 0
    while at < len(data):
        end = data.find(b"\n", at) + 1 or len(data)
        length = len(clean(data[at:end]))
        if length > room:
            break
        at, room = end, room - length
    return at, room


def _last_lines(data: bytes, room: int) -> tuple[int, int]:
    """The start of the last lines with at most `room` characters, and the remaining room."""
    at = len(data)
    while at > 0:
        start = data.rfind(b"\n", 0, at - 1) + 1
        length = len(clean(data[start:at]))
        if length > room:
            break
        at, room = start, room - length
    return at, room


async def _lines_after(
    output: Bytes, at: int, end: int, want: int, cap: int
) -> tuple[str, int, bool]:
    """Lines from `at` on, their number, and whether one is cut."""
    if not want:
        return "", 0, False
    data = await output.read(at, min(end - at, max(SIDE, cap * _PER_CHARACTER)))
    if at + len(data) < end:
        data = data[: data.rfind(b"\n") + 1]
    elif not data.endswith(b"\n"):
        data += b"\n"
    if data.count(b"\n") > want:
        data = data[: _nth_newline(data, want) + 1]
    # The newline at the end is not shown.
    stop, _ = _first_lines(data, cap + 1)
    if stop:
        return clean(data[:stop])[:-1], data.count(b"\n", 0, stop), False
    stop = await _skip_lines(output, at, end, 1)
    if stop > at and await output.read(stop - 1, 1) == b"\n":
        stop -= 1
    line = await shown(output, cap, at, stop)
    return line.text, 1, line.truncated


async def _lines_before(
    output: Bytes, counted: tuple[int, int], want: int, cap: int
) -> tuple[str, int, bool]:
    """The last lines, their number, and whether one is cut."""
    if not want:
        return "", 0, False
    end, newlines = counted
    low = max(0, end - max(SIDE, cap * _PER_CHARACTER))
    data = await output.read(low, end - low)
    is_open = not data.endswith(b"\n")
    if is_open:
        data += b"\n"
    if low:
        data = data[data.find(b"\n") + 1 :]
    if (lines := data.count(b"\n")) > want:
        data = data[_nth_newline(data, lines - want) + 1 :]
    start, _ = _last_lines(data, cap + 1)
    if start < len(data):
        return clean(data[start:])[:-1], data.count(b"\n", start), False
    at = await _skip_lines(output, 0, end, newlines - (not is_open))
    line = await shown(output, cap, at, end - (not is_open))
    return line.text, 1, line.truncated


async def _count(output: Bytes, hint: tuple[int, int] | None) -> tuple[int, int]:
    size = output.size
    at, newlines = hint if hint and hint[0] <= size else (0, 0)
    while chunk := await _chunk(output, at, size):
        newlines += chunk.count(b"\n")
        at += len(chunk)
    return at, newlines


async def _skip_lines(output: Bytes, at: int, end: int, lines: int) -> int:
    """The offset `lines` lines after `at`, or the end."""
    while lines > 0 and (chunk := await _chunk(output, at, end)):
        found = chunk.count(b"\n")
        if found >= lines:
            return at + _nth_newline(chunk, lines) + 1
        at, lines = at + len(chunk), lines - found
    return at


async def _chunk(output: Bytes, at: int, end: int) -> bytes:
    import asyncio

    # Let other tasks run, and a cancellation through, while gigabytes are counted.
    await asyncio.sleep(0)
    return await output.read(at, min(CHUNK, end - at))


def _nth_newline(data: bytes, n: int) -> int:
    """The position of the n-th newline, which must exist."""
    return len(data) - len(data.split(b"\n", n)[-1]) - 1
