"""What a person would see on the screen of a terminal, drawn from what the program wrote."""

from __future__ import annotations

import re
import unicodedata
from collections import deque
from functools import cache
from typing import TYPE_CHECKING, NamedTuple

from clawkit.errors import ToolError, ToolInputError
from clawkit.process.terminal import ALTERNATE, ALTERNATES, COMMAND, CONTROL, OTHER, TOKEN, numbers
from clawkit.process.terminal import width as width_of
from clawkit.text import one_line, printable

if TYPE_CHECKING:
    from pyte.screens import Char

MAX_BYTES = 64 * 1024
"""Only so much is drawn, from the end: it takes about 50 ms."""
MAX_SIDE = 500
MAX_TITLE = 200
MAX_MARKS = 8
"""Characters in one cell: a letter and its accents."""
MAX_WORK = 3_000_000
"""Rows that are moved and characters that are repeated, in all: about a second."""
_SAFE_LOOK = 4 * 1024

# What goes wrong in pyte when it is told what it did not foresee.
_PYTE_ERRORS = (AssertionError, AttributeError, LookupError, NameError, TypeError, ValueError)
_TOKEN = re.compile(TOKEN)
# Letters that stand for lines and corners where a program chose that character set.
_LINES = str.maketrans("`afgjklmnopqrstuvwxyz{|}~", "◆▒°±┘┐┌└┼⎺⎻─⎼⎽├┤┴┬│≤≥π≠£·")
# Modes under pyte's numbers: the private ones are shifted.
_INSERT, _ORIGIN, _WRAP = 4, 6 << 5, 7 << 5
# Control sequences that take one number and are what pyte takes them for.
_SIMPLE = {"C": "cursor_forward", "D": "cursor_back", "G": "cursor_to_column"}
_SIMPLE |= {"a": "cursor_forward", "g": "clear_tab_stop", "`": "cursor_to_column"}
_SIMPLE |= {"@": "insert_characters", "P": "delete_characters", "X": "erase_characters"}


class Screen(NamedTuple):
    """A screen as it was when the program had written all of it."""

    lines: tuple[str, ...]
    """As many as the terminal has rows, without the blanks at their ends."""
    cursor: tuple[int, int]
    """Column and row, the first being 1."""
    title: str
    alternate: bool
    """Whether a full-screen program has taken the screen and will give it back."""
    above: tuple[str, ...] = ()
    """The last lines that went out of the screen at its top, if they were asked for."""


def render(
    data: bytes, columns: int, rows: int, *, scrollback: int = 0, cut: bool = False
) -> Screen:
    """Draw the end of what a program wrote; `cut` says that its beginning is missing already.

    Without it, what the program wrote but once is not on the screen.
    """
    if not (1 <= columns <= MAX_SIDE and 1 <= rows <= MAX_SIDE):
        raise ToolInputError(
            f"a screen of {columns} columns and {rows} rows cannot be drawn; "
            f"both have to be from 1 to {MAX_SIDE}"
        )
    try:
        import pyte  # noqa: F401
    except ImportError:
        raise ToolError(
            "drawing the screen needs pyte, which is not installed: pip install 'clawkit[screen]'"
        ) from None
    text, cut = _end_of(data, cut)
    try:
        drawing = _Drawing(columns, rows, scrollback, cut)
        for found in _TOKEN.finditer(text):
            drawing.take(found)
        return drawing.finish()
    except _PYTE_ERRORS as error:
        raise ToolError(
            f"the screen could not be drawn ({type(error).__name__} in pyte); read the log instead"
        ) from error


def _end_of(data: bytes, cut: bool) -> tuple[str, bool]:
    """The text to draw, from a place that is in no sequence; and whether it begins in the middle"""
    reset = data.rfind(b"\x1bc", -MAX_BYTES)
    if reset >= 0:
        return data[reset:].decode("utf-8", "replace"), False
    if cut or len(data) > MAX_BYTES:
        cut = True
        data = data[-MAX_BYTES:]
        safe = re.search(rb"[\x1b\r\n]", data[:_SAFE_LOOK]) or re.search(rb"[^\x80-\xbf]", data)
        data = data[safe.start() :] if safe else b""
    return data.decode("utf-8", "replace"), cut


class _Drawing:
    """Two pages of pyte's, of which one is seen, and what pyte does not do or gets wrong."""

    def __init__(self, columns: int, rows: int, scrollback: int, cut: bool) -> None:
        from pyte.screens import Char

        self.columns, self.rows = columns, rows
        self._cut = cut
        self._work = MAX_WORK
        self._above: deque[dict[int, Char] | None] = deque(maxlen=max(scrollback, 0))
        self._title = ""
        self._char = cache(Char)
        self._reset()

    def _reset(self) -> None:
        from pyte import Screen as Page

        self._main, self._alternate = (Page(self.columns, self.rows) for _ in range(2))
        self._page = self._main
        self._saved = {self._main: (0, 0), self._alternate: (0, 0)}
        self._line_drawing = [False, False]
        self._shift = 0
        self._last: list[str] = []

    def finish(self) -> Screen:
        cursor = self._page.cursor
        return Screen(
            lines=tuple(self._text(self._page.buffer.get(row)) for row in range(self.rows)),
            cursor=(min(cursor.x + 1, self.columns), cursor.y + 1),
            title=printable(one_line(self._title, MAX_TITLE), ""),
            alternate=self._page is self._alternate,
            above=tuple(map(self._text, self._above)),
        )

    def _text(self, line: dict[int, Char] | None) -> str:
        if not line:
            return ""
        cells = [line[column].data for column in range(self.columns)]
        text = "".join(cells)
        if not text.isascii() or len(text) < len(cells):
            # Half of a wide character that was written over is blank.
            wide = [bool(cell) and width_of(cell[0]) == 2 for cell in cells]
            after = [*cells[1:], "" if self.columns == 1 else " "]
            whole = [each and not cell for each, cell in zip(wide, after, strict=True)]
            text = "".join(
                " " if wide[at] != whole[at] or (not cell and not (at and whole[at - 1])) else cell
                for at, cell in enumerate(cells)
            )
        return text.rstrip(" ")

    def take(self, found: re.Match[str]) -> None:
        """Draw one token."""
        if found.lastindex is None:
            if found[0] >= " " and found[0] != "\x7f":
                self._draw(found[0])
            else:
                self._move(found[0])
        elif found.lastindex == CONTROL and found[4]:
            self._control(*found.group(1, 2, 3, 4))
        elif found.lastindex == COMMAND and found[5][:2] in ("0;", "2;"):
            if found[6] == "\x07" or (not found[6] and found.end() < len(found.string)):
                self._title = found[5][2:]
        elif found.lastindex == OTHER and found[9] in ("", "(", ")"):
            self._other(found[9], found[10])

    def _draw(self, text: str) -> None:
        if self._line_drawing[self._shift]:
            text = text.translate(_LINES)
        cells = list(text) if text.isascii() else self._cells(text)
        if cells:
            self._last = cells[-2:] if cells[-1] == "" else cells[-1:]
            self._place(cells)

    def _cells(self, text: str) -> list[str]:
        """What goes into each column; nothing into the second of a wide character."""
        cells: list[str] = []
        for char in text:
            width = width_of(char)
            if width > 0:
                shown = char if char.isprintable() else " " if char.isspace() else "\ufffd"
                cells.append(shown)
                if width == 2 and self.columns > 1:
                    cells.append("" if shown == char else " ")
            elif unicodedata.category(char) in ("Mn", "Me"):
                at = len(cells) - 1 if not cells or cells[-1] else len(cells) - 2
                if at >= 0:
                    cells[at] = (cells[at] + char)[:MAX_MARKS]
                else:
                    self._mark(char)
        return cells

    def _mark(self, mark: str) -> None:
        """Put an accent on the character before the cursor."""
        cursor = self._page.cursor
        line = self._page.buffer[cursor.y]
        at = cursor.x - 1 if line[cursor.x - 1].data else cursor.x - 2
        if at >= 0:
            line[at] = self._char((line[at].data + mark)[:MAX_MARKS])

    def _place(self, cells: list[str]) -> None:
        page, columns = self._page, self.columns
        cursor = page.cursor
        if _WRAP not in page.mode:
            room = max(columns - cursor.x, 1)
            cursor.x = columns - room
            if len(cells) > room:
                cells = [*cells[: room - 1], cells[-1] or " "]
        at = 0
        while at < len(cells):
            end = min(at + columns - cursor.x, len(cells))
            if end < len(cells) and not cells[end]:
                end -= 1
            if end <= at:
                cursor.x = 0
                self._line_feed()
                continue
            if _INSERT in page.mode:
                self._spend(columns)
                page.insert_characters(end - at)
                page.buffer[cursor.y].pop(columns, None)
            chars = map(self._char, cells[at:end])
            page.buffer[cursor.y].update(zip(range(cursor.x, columns), chars, strict=False))
            cursor.x += end - at
            at = end

    def _move(self, char: str) -> None:
        if char in "\n\v\f":
            self._line_feed()
        elif char == "\r":
            self._page.cursor.x = 0
        elif char == "\b":
            self._page.backspace()
        elif char == "\t":
            self._tab(1)
        elif char in "\x0e\x0f":
            self._shift = int(char == "\x0e")

    def _line_feed(self) -> None:
        cursor = self._page.cursor
        top, bottom = self._margins()
        if cursor.y == bottom:
            self._spend(bottom - top)
            self._put_above(top, 1)
            self._page.index()
        elif cursor.y < self.rows - 1:
            cursor.y += 1

    def _spend(self, rows: int) -> None:
        self._work -= rows
        if self._work < 0:
            raise ToolError("the program moves too much to draw its screen; read the log instead")

    def _margins(self) -> tuple[int, int]:
        return self._page.margins or (0, self.rows - 1)

    def _put_above(self, top: int, count: int) -> None:
        if self._above.maxlen and top == 0 and self._page is self._main:
            self._above.extend(self._page.buffer.get(row) for row in range(count))

    def _tab(self, count: int) -> None:
        """Go to a later tab stop, or to an earlier one if the count is negative."""
        page, now = self._page, self._page.cursor.x
        self._spend(len(page.tabstops))
        stops = sorted(stop for stop in page.tabstops if (stop < now if count < 0 else stop > now))
        if abs(count) > len(stops):
            page.cursor.x = 0 if count < 0 else self.columns - 1
        else:
            page.cursor.x = stops[count if count < 0 else count - 1]

    def _control(self, prefix: str, text: str, middle: str, end: str) -> None:
        given = numbers(text)
        if end in "hl" and prefix in ("", "?") and not middle:
            for number in given:
                self._set_mode(number, bool(prefix), end == "h")
        elif (prefix, middle, end) == ("", "!", "p"):
            page = self._page
            page.mode = (page.mode | {_WRAP}) - {_INSERT, _ORIGIN}
            page.margins = None
            self._line_drawing, self._shift = [False, False], 0
        elif not prefix and not middle and end != "m":
            if end not in "bgsST":  # those that leave alone whether the next character wraps
                self._page.cursor.x = min(self._page.cursor.x, self.columns - 1)
            second = given[1] if len(given) > 1 else 0
            self._edit(end, given[0], second)
            self._go(end, max(given[0], 1), second)

    def _edit(self, end: str, first: int, second: int) -> None:
        page, count = self._page, max(first, 1)
        if end in _SIMPLE:
            self._spend(self.columns if end in "@PX" else 0)
            getattr(page, _SIMPLE[end])(first)
            page.buffer[page.cursor.y].pop(self.columns, None)
        elif end in "JK":
            self._erase(end, first)
        elif end in "LMST":
            self._scroll(end, min(count, self.rows))
        elif end == "b":
            self._spend(self.columns)
            self._place(self._last * min(count, self.columns))
        elif end == "r" and count < (second or self.rows):
            page.set_margins(count, second or self.rows)

    def _go(self, end: str, count: int, column: int) -> None:
        cursor = self._page.cursor
        top, bottom = self._margins()
        if end in "Hf":
            self._page.cursor_position(count, column)
        elif end == "d":
            self._page.cursor_position(count, cursor.x + 1)
        elif end in "AF":
            cursor.y = max(cursor.y - count, top if cursor.y >= top else 0)
        elif end in "BEe":
            cursor.y = min(cursor.y + count, bottom if cursor.y <= bottom else self.rows - 1)
        elif end in "IZ":
            self._tab(count if end == "I" else -count)
        elif end in "su":
            self._other("", "7" if end == "s" else "8")
        if end in "EF":
            cursor.x = 0

    def _erase(self, what: str, how: int) -> None:
        page = self._page
        if what == "J" and how == 3:
            self._above.clear()
        elif what == "J" and how == 2:
            page.buffer.clear()
        elif how in (0, 1, 2):
            page.erase_in_line(how)
        if what == "J" and how in (0, 1):
            self._spend(self.rows)
            row = page.cursor.y
            for other in range(row + 1, self.rows) if how == 0 else range(row):
                page.buffer.pop(other, None)

    def _scroll(self, end: str, count: int) -> None:
        """Move lines down (L, T) or up (M, S), from the cursor (L, M) or the top (S, T) on."""
        page, cursor = self._page, self._page.cursor
        column, row = cursor.x, cursor.y
        top, bottom = self._margins()
        first = row if end in "LM" else top
        if not top <= first <= bottom:
            return
        self._spend(self.rows)
        if end == "S":
            self._put_above(top, min(count, bottom + 1))
        if end in "LT":
            cursor.y = first
            page.insert_lines(count)
        else:  # pyte forgets to delete a line if the one that takes its place was never written
            lines = [page.buffer.pop(each, None) for each in range(first, bottom + 1)]
            page.buffer.update({first + at: line for at, line in enumerate(lines[count:]) if line})
        cursor.x, cursor.y = (column if end in "ST" else 0), row

    def _set_mode(self, number: int, private: bool, on: bool) -> None:
        if private and number in ALTERNATES:
            self._switch(number, on)
        elif private and number == 1048:
            self._other("", "7" if on else "8")
        elif number << 5 in (_ORIGIN, _WRAP) if private else number == _INSERT:
            (self._page.set_mode if on else self._page.reset_mode)(number, private=private)

    def _switch(self, number: int, on: bool) -> None:
        """Show the other page."""
        before, after = self._page, self._alternate if on else self._main
        if not on and before is after and self._cut:
            # All that was drawn so far was on the other page, and this one is not known.
            after.buffer.clear()
            after.cursor_position()
        self._cut = False
        if before is after:
            return
        if on and number == ALTERNATE:
            self._other("", "7")
        if on and number in (1047, ALTERNATE):
            after.buffer.clear()
        after.cursor.x, after.cursor.y = before.cursor.x, before.cursor.y
        after.mode, after.margins, after.tabstops = before.mode, before.margins, before.tabstops
        self._page = after
        if not on and number == ALTERNATE:
            self._other("", "8")

    def _other(self, middle: str, end: str) -> None:
        page = self._page
        if middle:
            self._line_drawing[middle == ")"] = end == "0"
        elif end in ("D", "E"):
            self._line_feed()
            page.cursor.x = page.cursor.x if end == "D" else 0
        elif end == "M":
            self._spend(self.rows)
            if page.cursor.y == self._margins()[0]:
                page.reverse_index()
            else:
                page.cursor.y = max(page.cursor.y - 1, 0)
        elif end == "H":
            page.set_tab_stop()
        elif end == "7":
            self._saved[page] = (page.cursor.x, page.cursor.y)
        elif end == "8":
            page.cursor.x, page.cursor.y = self._saved[page]
        elif end == "c":
            self._reset()
