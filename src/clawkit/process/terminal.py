"""What a terminal has to know of the program in it, and the answers the program waits for."""

from __future__ import annotations

import re
import unicodedata

MAX_TAIL = 256
"""Bytes of a sequence whose end has not come yet."""
MAX_ANSWERS = 4 * 1024
"""Bytes of answers to one piece of output; a program that asks for more does not listen."""
MAX_UNREAD = 32 * 1024
"""Bytes of output that wait until the program asks where the cursor is."""
MAX_NUMBER = 9_999

CONTROL, COMMAND, STRING, OTHER = 4, 6, 8, 10
SEQUENCE = (
    r"\x1b(?:"
    r"\[([<-?]?)([0-?]*)([ -/]*)([@-~]?)"
    r"|\]([^\x07\x18\x1a\x1b]*)([\x07\x18\x1a]|(?=\x1b)|)"
    r"|[PX^_]([^\x18\x1a\x1b]*)([\x18\x1a]|(?=\x1b)|)"
    r"|([ -/]*)([0-~]?)"
    r")"
)
"""A sequence; the number of the last group, one of the four above, says of which kind.

Control sequences have a prefix, numbers, a middle and an end, commands to the system and other
strings a text and an end, all others a middle and an end. An end that is empty has not come yet,
or something came that cannot be in such a sequence. Strings end before the next escape.
"""
TOKEN = SEQUENCE + r"|[^\x00-\x1f\x7f]+|[\x00-\x1a\x1c-\x1f\x7f]"
"""A sequence, text, or one control character; the last two have no groups."""
_SEQUENCE = re.compile(SEQUENCE.encode())
_TOKEN = re.compile(TOKEN)

CURSOR_KEYS, PASTE, ALTERNATE = 1, 2004, 1049
ALTERNATES = (47, 1047, ALTERNATE)

_ATTRIBUTES = b"\x1b[?62;22c"
_SIMPLE_ANSWERS = {
    **dict.fromkeys((b"\x1b[c", b"\x1b[0c", b"\x1bZ"), _ATTRIBUTES),
    **dict.fromkeys((b"\x1b[>c", b"\x1b[>0c"), b"\x1b[>1;10;0c"),
    **dict.fromkeys((b"\x1b[>q", b"\x1b[>0q"), b"\x1bP>|clawkit\x1b\\"),
    b"\x1b[5n": b"\x1b[0n",
}
_ENDS = frozenset((b"h", b"l", b"p", b"t", b"c", b"n", b"q"))
_ASKED_POSITION = {b"\x1b[6n": "", b"\x1b[?6n": "?"}
_COLOURS = {b"10;?": b"e5e5/e5e5/e5e5", b"11;?": b"0000/0000/0000", b"12;?": b"e5e5/e5e5/e5e5"}


def numbers(text: str) -> list[int]:
    """The numbers of a control sequence, at least one; those left out are 0."""
    parts = [part.partition(":")[0].lstrip("0")[:5] for part in text.split(";", 32)[:32]]
    return [min(int(digits), MAX_NUMBER) if digits.isdigit() else 0 for digits in parts]


def width(char: str) -> int:
    """How many columns a character takes: 0, 1 or 2."""
    if unicodedata.east_asian_width(char) in "WF":
        return 2
    return 0 if unicodedata.category(char) in ("Mn", "Me", "Cf", "Cc") else 1


class TerminalState:
    """The terminal that a program believes to be in.

    It is fed everything the program writes, from the start on, and so always knows which keys the
    program expects.
    """

    def __init__(self, columns: int, rows: int) -> None:
        self._cursor = _Cursor(columns, rows)
        self._modes: set[int] = set()
        self._keypad = False
        self._tail = b""
        self._string_end: bytes | None = None

    @property
    def application_keys(self) -> bool:
        return CURSOR_KEYS in self._modes

    @property
    def application_keypad(self) -> bool:
        """Whether the keys of the keypad are sent as such, not as what stands on them."""
        return self._keypad

    @property
    def bracketed_paste(self) -> bool:
        return PASTE in self._modes

    @property
    def alternate(self) -> bool:
        """Whether a full-screen program has taken the screen and will give it back."""
        return ALTERNATE in self._modes

    @property
    def size(self) -> tuple[int, int]:
        return self._cursor.columns, self._cursor.rows

    def resize(self, columns: int, rows: int) -> None:
        self._cursor.resize(columns, rows)

    def feed(self, data: bytes) -> bytes:
        """Take in what the program wrote; what the terminal answers to it."""
        if self._string_end is not None:
            data = self._skip_string(data, self._string_end)
        if self._tail:
            data, self._tail = self._tail + data, b""
        if b"\x1b" not in data:
            self._cursor.note(data)
            return b""
        answers = bytearray()
        noted, end = 0, len(data)
        for found in _SEQUENCE.finditer(data):
            if found.end() == len(data) and not found[found.lastindex or 0]:
                end = found.start()
                self._keep(found[0])
                break
            answer = self._take(found)
            if found[0] in _ASKED_POSITION and len(answers) < MAX_ANSWERS:
                self._cursor.note(data[noted : found.start()])
                noted = found.end()
                column, row = self._cursor.place()
                answer = f"\x1b[{_ASKED_POSITION[found[0]]}{row};{column}R".encode()
            if len(answers) + len(answer) <= MAX_ANSWERS:
                answers += answer
        self._cursor.note(data[noted:end])
        return bytes(answers)

    def _skip_string(self, data: bytes, end: bytes) -> bytes:
        """What comes after a string that was too long to keep."""
        found = re.search(end, data)
        if found is None:
            return b""
        self._string_end = None
        return data[found.start() if found[0] == b"\x1b" else found.end() :]

    def _keep(self, rest: bytes) -> None:
        if len(rest) <= MAX_TAIL:
            self._tail = rest
        elif rest[1:2] == b"]":
            self._string_end = rb"[\x07\x18\x1a\x1b]"
        elif rest[1:2] in b"PX^_":
            self._string_end = rb"[\x18\x1a\x1b]"

    def _take(self, found: re.Match[bytes]) -> bytes:
        """Do what a sequence says; the answer to it, if it has one of its own."""
        if found.lastindex == CONTROL:
            return self._control(found)
        if found.lastindex == COMMAND and found[5] in _COLOURS and found[6] in b"\x07":
            number = found[5].partition(b";")[0]
            return b"\x1b]%b;rgb:%b%b" % (number, _COLOURS[found[5]], found[6] or b"\x1b\\")
        if found.lastindex == OTHER and not found[9]:
            if found[10] in (b"=", b">", b"c"):
                self._keypad = found[10] == b"="
            if found[10] == b"c":
                self._modes.clear()
        return _SIMPLE_ANSWERS.get(found[0], b"")

    def _control(self, found: re.Match[bytes]) -> bytes:
        if found[4] not in _ENDS:  # colours, for the most part
            return b""
        text = found[2].decode()
        match found.group(1, 3, 4):
            case b"?", b"", b"h":
                self._modes.update(_mode(number) for number in numbers(text))
            case b"?", b"", b"l":
                self._modes.difference_update(_mode(number) for number in numbers(text))
            case b"", b"!", b"p":
                self._modes -= {CURSOR_KEYS, PASTE}
                self._keypad = False
            case b"?", b"$", b"p":
                number = numbers(text)[0]
                known = 0 if _mode(number) == 0 else 1 if _mode(number) in self._modes else 2
                return b"\x1b[?%d;%d$y" % (number, known)
            case b"", b"$", b"p":
                return b"\x1b[%d;0$y" % numbers(text)[0]
            case b"", b"", b"t" if text == "18":
                return b"\x1b[8;%d;%dt" % (self._cursor.rows, self._cursor.columns)
        return _SIMPLE_ANSWERS.get(found[0], b"")


def _mode(number: int) -> int:
    """The mode that is kept under a number, 0 for one that does not matter."""
    if number in ALTERNATES:
        return ALTERNATE
    return number if number in (CURSOR_KEYS, PASTE) else 0


class _Cursor:
    """Where the next character goes, as well as this can be told without drawing the screen.

    Output is only looked at when somebody wants to know.
    """

    def __init__(self, columns: int, rows: int) -> None:
        self._unread = bytearray()
        self.resize(columns, rows)
        self._reset()

    def resize(self, columns: int, rows: int) -> None:
        if self._unread:
            self.place()
        self.columns, self.rows = columns, rows
        self._top, self._bottom = 0, rows - 1

    def _reset(self) -> None:
        # The column is the number of columns where the next character begins a new row.
        self._column = self._row = 0
        self._alternate = False
        self._saved = {False: (0, 0), True: (0, 0)}
        self._top, self._bottom = 0, self.rows - 1

    def note(self, data: bytes) -> None:
        self._unread += data
        if len(self._unread) <= MAX_UNREAD:
            return
        # Programs that ask say where they are before they do, so little is lost.
        dropped = bytes(self._unread[: -MAX_UNREAD // 2])
        del self._unread[: -MAX_UNREAD // 2]
        safe = re.search(rb"[\x1b\r\n]", self._unread)
        del self._unread[: safe.start() if safe else 0]
        self._column, self._row = 0, min(self._row + dropped.count(b"\n"), self.rows - 1)

    def place(self) -> tuple[int, int]:
        """Column and row, the first being 1."""
        text = self._unread.decode("utf-8", "replace")
        self._unread.clear()
        for found in _TOKEN.finditer(text):
            if found.lastindex is None:
                self._write(found[0])
            elif found.lastindex == CONTROL:
                self._control(found)
            elif found.lastindex == OTHER and not found[9]:
                self._other(found[10])
        self._column = min(self._column, self.columns)
        self._row = min(self._row, self.rows - 1)
        return min(self._column + 1, self.columns), self._row + 1

    def _write(self, text: str) -> None:
        if text >= " " and text != "\x7f":
            self._advance(text)
        elif text in "\n\v\f":
            self._down(1)
        elif text == "\r":
            self._column = 0
        elif text == "\b":
            self._left(1)
        elif text == "\t":
            self._column = min(self._column // 8 * 8 + 8, self.columns - 1)

    def _advance(self, text: str) -> None:
        if text.isascii():
            lines, rest = divmod(self._column + len(text) - 1, self.columns)
            self._column = rest + 1
            self._down(lines)
            return
        for char in text:
            if self._column + width(char) > self.columns:
                self._column = 0
                self._down(1)
            self._column += width(char)

    def _control(self, found: re.Match[str]) -> None:
        prefix, text, middle, end = found.group(1, 2, 3, 4)
        given = numbers(text)
        if prefix == "?" and not middle and end in ("h", "l"):
            for number in given:
                self._switch(number, end == "h")
        if prefix or middle:
            return
        first, second = max(given[0], 1), max(given[1], 1) if len(given) > 1 else 1
        if end in ("A", "F"):
            self._up(first)
        elif end in ("B", "E", "e"):
            self._down(first)
        elif end in ("C", "a"):
            self._column = min(self._column + first, self.columns - 1)
        elif end == "D":
            self._left(first)
        elif end in ("G", "`"):
            self._column = min(first, self.columns) - 1
        elif end == "d":
            self._row = min(first, self.rows) - 1
        elif end in ("H", "f"):
            self._row, self._column = min(first, self.rows) - 1, min(second, self.columns) - 1
        elif end in ("s", "u"):
            self._other("7" if end == "s" else "8")
        elif end == "r":
            bottom = min(given[1] if len(given) > 1 and given[1] else self.rows, self.rows)
            if first < bottom:
                self._top, self._bottom = first - 1, bottom - 1
                self._row = self._column = 0
        if end in ("E", "F"):
            self._column = 0

    def _switch(self, number: int, on: bool) -> None:
        """Go to the other screen or back, which have a saved place each."""
        switches = number in ALTERNATES and on != self._alternate
        if on and (number == 1048 or (switches and number == ALTERNATE)):
            self._other("7")
        self._alternate = on if switches else self._alternate
        if not on and (number == 1048 or (switches and number == ALTERNATE)):
            self._other("8")

    def _other(self, end: str) -> None:
        if end == "7":
            self._saved[self._alternate] = (self._column, self._row)
        elif end == "8":
            self._column, self._row = self._saved[self._alternate]
        elif end in ("D", "E"):
            self._down(1)
            self._column = self._column if end == "D" else 0
        elif end == "M":
            self._up(1)
        elif end == "c":
            self._reset()

    def _left(self, count: int) -> None:
        self._column = max(0, min(self._column, self.columns - 1) - count)

    def _up(self, count: int) -> None:
        top = self._top if self._row >= self._top else 0
        self._row = max(self._row - count, top)

    def _down(self, count: int) -> None:
        bottom = self._bottom if self._row <= self._bottom else self.rows - 1
        self._row = min(self._row + count, bottom)
