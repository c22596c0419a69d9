"""A terminal for a program: the answers it waits for, its screen, and keys as they are sent."""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Sequence
from typing import TYPE_CHECKING, NamedTuple

from clawkit.errors import ToolError, ToolInputError
from clawkit.text import human_size, nearest, one_line, printable

if TYPE_CHECKING:
    import pyte


MAX_TAIL = 256
"""Bytes of a sequence whose end has not come yet."""
MAX_ANSWERS = 4 * 1024
"""Bytes of answers to one piece of output; a program that asks for more does not listen."""
MAX_UNREAD = 4 * 1024
"""Bytes of output that wait until the program asks where the cursor is, and that are drawn at most
to answer: programs that ask have said where they are shortly before."""
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
_SEQUENCE = re.compile(SEQUENCE.encode())

CURSOR_KEYS, PASTE, ALTERNATE = 1, 2004, 1049

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


class TerminalState:
    """The terminal that a program believes to be in.

    It is fed everything the program writes, from the start on, and so always knows which keys the
    program expects.
    """

    def __init__(self, columns: int, rows: int) -> None:
        self.size = columns, rows
        self.application_keypad = False
        """Whether the keys of the keypad are sent as such, not as the characters on them."""
        self._unread = bytearray()
        self._drawing: Drawing | None = None
        self._modes: set[int] = set()
        self._tail = b""
        self._string_end: bytes | None = None

    @property
    def application_keys(self) -> bool:
        return CURSOR_KEYS in self._modes

    @property
    def bracketed_paste(self) -> bool:
        return PASTE in self._modes

    def resize(self, columns: int, rows: int) -> None:
        self.size = columns, rows
        if self._drawing is not None:
            self._drawing.page.resize(rows, columns)

    def feed(self, data: bytes) -> bytes:
        """Take in what the program wrote; what the terminal answers to it."""
        if self._string_end is not None:
            # What comes after a string that was too long to keep.
            found = re.search(self._string_end, data)
            if found is None:
                return b""
            self._string_end = None
            data = data[found.start() if found[0] == b"\x1b" else found.end() :]
        if self._tail:
            data, self._tail = self._tail + data, b""
        if b"\x1b" not in data:
            self._note(data)
            return b""
        answers = bytearray()
        noted, end, room = 0, len(data), MAX_UNREAD
        for found in _SEQUENCE.finditer(data):
            if found.end() == len(data) and not found[found.lastindex or 0]:
                end = found.start()
                self._keep(found[0])
                break
            answer = self._take(found)
            if found[0] in _ASKED_POSITION and len(answers) < MAX_ANSWERS:
                self._note(data[noted : found.start()])
                noted = found.end()
                room -= len(self._unread)
                column, row = self._place(draw=room >= 0)
                answer = f"\x1b[{_ASKED_POSITION[found[0]]}{row};{column}R".encode()
            if len(answers) + len(answer) <= MAX_ANSWERS:
                answers += answer
        self._note(data[noted:end])
        return bytes(answers)

    def _note(self, data: bytes) -> None:
        self._unread += data[-MAX_UNREAD:]
        if len(self._unread) > MAX_UNREAD:
            del self._unread[:-MAX_UNREAD]
            safe = re.search(rb"[\x1b\r\n]", self._unread)
            del self._unread[: safe.start() if safe else 0]

    def _place(self, *, draw: bool) -> tuple[int, int]:
        """Column and row of the cursor, the first being 1; the first of all without pyte."""
        text = self._unread.decode("utf-8", "replace") if draw else ""
        self._unread.clear()
        try:
            self._drawing = self._drawing or Drawing(*self.size)
            self._drawing.feed(text)
            return self._drawing.cursor
        except (ImportError, *_PYTE_ERRORS):
            self._drawing = None
            return 1, 1

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
                self.application_keypad = found[10] == b"="
            if found[10] == b"c":
                self._modes.clear()
        return _SIMPLE_ANSWERS.get(found[0], b"")

    def _control(self, found: re.Match[bytes]) -> bytes:
        if found[4] not in _ENDS:  # colours, for the most part
            return b""
        text = found[2].decode()
        match found.group(1, 3, 4):
            case b"?", b"", b"h":
                self._modes |= _modes(text)
            case b"?", b"", b"l":
                self._modes -= _modes(text)
            case b"", b"!", b"p":
                self._modes -= {CURSOR_KEYS, PASTE}
                self.application_keypad = False
            case b"?", b"$", b"p":
                number, asked = numbers(text)[0], _modes(text)
                known = 0 if not asked else 1 if asked <= self._modes else 2
                return b"\x1b[?%d;%d$y" % (number, known)
            case b"", b"$", b"p":
                return b"\x1b[%d;0$y" % numbers(text)[0]
            case b"", b"", b"t" if text == "18":
                return b"\x1b[8;%d;%dt" % (self.size[1], self.size[0])
        return _SIMPLE_ANSWERS.get(found[0], b"")


def _modes(text: str) -> set[int]:
    """The modes of a sequence that matter."""
    given = {ALTERNATE if number in (47, 1047) else number for number in numbers(text)}
    return given & {CURSOR_KEYS, PASTE, ALTERNATE}


SCREEN_BYTES = 64 * 1024
"""Only so much is drawn, from the end: it takes about 50 ms."""
MAX_SIDE = 500
MAX_TITLE = 200
MAX_MARKS = 8
"""Characters in one cell: a letter and its accents."""
_SAFE_LOOK = 4 * 1024

# What pyte raises for output that it did not expect.
_PYTE_ERRORS = (AssertionError, AttributeError, LookupError, NameError, TypeError, ValueError)
_SEQUENCE_TEXT = re.compile(SEQUENCE)
_HIDDEN_TEXT = re.compile(r"[^\x07-\x0f\x1b-\x7e]+")
_REPEATED = re.compile(r"([^\x00-\x1f\x7f])\x1b\[(\d{1,3})b")
_MAX_REPEATS = 2_000
_SWITCH = re.compile(r"\x1b\[\?(?:\d{1,4};)*(?:47|1047|1049)(?:;\d{1,4})*([hl])")
_ARITY = dict.fromkeys("@ABCDEFGJKLMPXade`g", 1) | dict.fromkeys("Hfr", 2)
"""Control sequences that pyte draws, and how many numbers each takes."""
_MODES = {("", 4), ("?", 6), ("?", 7)}
"""Those that change what is drawn: insert, origin, wrap."""


class Screen(NamedTuple):
    """A screen as it was when the program had written all of it."""

    lines: tuple[str, ...]
    """As many as the terminal has rows, without the blanks at their ends."""
    cursor: tuple[int, int]
    """Column and row, the first being 1."""
    title: str
    alternate: bool
    """Whether a full-screen program has taken the screen and will give it back."""


class Drawing:
    """One pyte screen. Colours and what pyte does not know are left out before it sees them."""

    def __init__(self, columns: int, rows: int) -> None:
        """Raises ImportError when pyte is not installed."""
        import pyte

        self.page: pyte.Screen = pyte.Screen(columns, rows)
        self._stream = pyte.Stream(self.page)
        # In UTF-8 mode pyte ignores the character set that full-screen programs draw lines with.
        self._stream.use_utf8 = False

    @property
    def cursor(self) -> tuple[int, int]:
        return min(self.page.cursor.x + 1, self.page.columns), self.page.cursor.y + 1

    def feed(self, text: str) -> None:
        """Raises one of `_PYTE_ERRORS` when pyte does."""
        most = self.page.columns
        text = _REPEATED.sub(lambda it: it[1] * (1 + min(int(it[2]), most)), text, _MAX_REPEATS)
        self._stream.feed(_HIDDEN_TEXT.sub(_visible, _SEQUENCE_TEXT.sub(_known, text)))

    def line(self, row: int) -> str:
        cells = self.page.buffer[row]
        text = "".join(cells[column].data[:MAX_MARKS] for column in range(self.page.columns))
        if not text.isprintable():
            text = "".join(
                char if char.isprintable() else " " if char.isspace() else "\ufffd" for char in text
            )
        return text.rstrip(" ")


def _known(found: re.Match[str]) -> str:
    """A sequence as pyte takes it; empty for one that draws nothing, or that it does not know."""
    if found.lastindex == COMMAND:
        is_ended = found[6] == "\x07" or (not found[6] and found.end() < len(found.string))
        is_title = is_ended and found[5][:2] in ("0;", "2;")
        return f"\x1b]2;{one_line(found[5][2:], MAX_TITLE)}\x07" if is_title else ""
    if found.lastindex == OTHER:
        if found[9] in ("(", ")") and found[10]:
            return found[0]
        if found[0] == "\x1bE":
            return "\r\x1bD"
        return found[0] if not found[9] and found[10] in tuple("78DMHc") else ""
    if found.lastindex != CONTROL or found[3]:
        return ""
    prefix, end, given = found[1], found[4], numbers(found[2])
    if end and end in "hl" and prefix in ("", "?"):
        if prefix and not {1048, 1049}.isdisjoint(given):
            return "\x1b7" if end == "h" else "\x1b8"
        kept = [number for number in given if (prefix, number) in _MODES]
        return f"\x1b[{prefix}{';'.join(map(str, kept))}{end}" if kept else ""
    if prefix or not end:
        return ""
    if end in "su":
        return "\x1b7" if end == "s" else "\x1b8"
    if end in "JK" and given[0] > 2:
        return ""
    count = _ARITY.get(end, 0)
    return f"\x1b[{';'.join(map(str, given[:count]))}{end}" if count else ""


def _visible(found: re.Match[str]) -> str:
    """Without characters of no width: pyte leaves out all text that follows one."""
    from wcwidth import wcwidth

    return "".join(
        char for char in found[0] if wcwidth(char) > 0 or unicodedata.combining(char) > 0
    )


def render(data: bytes, columns: int, rows: int, *, cut: bool = False) -> Screen:
    """Draw the end of what a program wrote; `cut` says that its beginning is missing already.

    Without it, what the program wrote but once is not on the screen.
    """
    if not (1 <= columns <= MAX_SIDE and 1 <= rows <= MAX_SIDE):
        raise ToolInputError(
            f"cannot draw a screen of {columns} columns and {rows} rows; both must be from 1 to "
            f"{MAX_SIDE}"
        )
    try:
        drawing = Drawing(columns, rows)
    except ImportError:
        raise ToolError(
            "drawing the screen needs pyte, which is not installed: pip install 'clawkit[screen]'"
        ) from None
    text, alternate = _shown_page(*_end_of(data, cut))
    try:
        drawing.feed(text)
        lines = tuple(map(drawing.line, range(rows)))
    except _PYTE_ERRORS as error:
        raise ToolError(
            f"the screen could not be drawn ({type(error).__name__} in pyte); read the log instead"
        ) from error
    title = printable(one_line(drawing.page.title, MAX_TITLE), "")
    return Screen(lines, drawing.cursor, title, alternate)


def _end_of(data: bytes, cut: bool) -> tuple[str, bool]:
    """The text to draw, from outside of a sequence; and whether it begins in the middle."""
    reset = data.rfind(b"\x1bc", -SCREEN_BYTES)
    if reset >= 0:
        return data[reset:].decode("utf-8", "replace"), False
    if cut or len(data) > SCREEN_BYTES:
        cut = True
        data = data[-SCREEN_BYTES:]
        safe = re.search(rb"[\x1b\r\n]", data[:_SAFE_LOOK]) or re.search(rb"[^\x80-\xbf]", data)
        data = data[safe.start() :] if safe else b""
    return data.decode("utf-8", "replace"), cut


def _shown_page(text: str, cut: bool) -> tuple[str, bool]:
    """What was drawn on the page that is seen now, and whether that is the alternate one, which
    pyte does not have. Where the beginning is missing, it may have been drawn there."""
    main: list[str] = []
    at, alternate = 0, False
    for found in _SWITCH.finditer(text):
        on = found[1] == "h"
        if not alternate and (on or at or not cut):
            main.append(text[at : found.start()])
        at, alternate = found.end(), on
    rest = text[at:]
    return (rest, True) if alternate else ("".join((*main, rest)), False)


MAX_KEYS = 1_000
MAX_SENT_BYTES = 64 * 1024
MAX_WARNINGS = 10
MAX_NAME = 64
"""What is longer is text."""

PASTE_START, PASTE_END = "\x1b[200~", "\x1b[201~"

_SHIFT, _ALT, _CTRL = 1, 2, 4

# Keys that are characters.
_CHARS = {"enter": "\r", "return": "\r", "tab": "\t", "escape": "\x1b", "esc": "\x1b"}
_CHARS |= {"space": " ", "bspace": "\x7f", "backspace": "\x7f"}
# Keys whose form depends on the mode of the terminal, by the letter that ends their sequence.
_CURSOR = {"up": "A", "down": "B", "right": "C", "left": "D", "home": "H", "end": "F"}
# Keys by the number in their sequence.
_EDIT = {"insert": 2, "ic": 2, "delete": 3, "del": 3, "dc": 3}
_EDIT |= {"pageup": 5, "pgup": 5, "ppage": 5, "pagedown": 6, "pgdn": 6, "npage": 6}
_EDIT |= {"f5": 15, "f6": 17, "f7": 18, "f8": 19, "f9": 20, "f10": 21, "f11": 23, "f12": 24}
_FUNCTION = {"f1": "P", "f2": "Q", "f3": "R", "f4": "S"}
# The letters of the keypad as a keypad, and the characters on its keys.
_KEYPAD = {f"kp{digit}": (chr(ord("p") + digit), str(digit)) for digit in range(10)}
_KEYPAD |= {"kp/": ("o", "/"), "kp*": ("j", "*"), "kp-": ("m", "-"), "kp+": ("k", "+")}
_KEYPAD |= {"kp.": ("n", "."), "kpenter": ("M", "\r")}
_CONTROLS = {"\x7f": "\x08", "?": "\x7f", " ": "\0"}
_OTHER_NAMES = {"backtab": "btab"}
for _name in ("up", "down", "left", "right"):
    _OTHER_NAMES |= {f"arrow{_name}": _name, f"{_name}arrow": _name}
KEYS = frozenset(_CHARS | _CURSOR | _EDIT | _FUNCTION | _KEYPAD | _OTHER_NAMES | {"btab": ""})

_PREFIX = r"(?ais)(?:(c|ctrl|control)|(m|alt|meta|option)|(s|shift))[-+](?=.)"
_HINTS = {
    r"(?ai)f\d{1,2}": "the function keys are f1 to f12",
    r"(?s)\^.*": "^ goes with one character",
    r"(?ai)(?:\\(?:[nrte]|x[0-9a-f]{2}|0?33|u001b))+": "write enter, tab or escape, or send bytes"
    " as hex",
}
_HEX = r"(?ai)(?:0x|\\x)?([0-9a-f]{1,2})"


class Encoded(NamedTuple):
    """What goes to the program."""

    data: bytes
    warnings: tuple[str, ...] = ()
    """What may not be as it was meant."""


def encode_keys(keys: Sequence[str], *, application: bool, keypad: bool | None = None) -> Encoded:
    """What a terminal sends for some keys; text that names no key is sent as it is.

    `application` is the form of arrows, Home and End that full-screen programs ask for. `keypad`
    says the same of the keypad; programs that ask for one ask for the other, so it follows if it
    is left out.
    """
    if len(keys) > MAX_KEYS:
        raise ToolInputError(f"{len(keys):,} keys are too many at once; send {MAX_KEYS:,} at most")
    keypad = application if keypad is None else keypad
    parts: list[str] = []
    warnings: list[str] = []
    for index, key in enumerate(keys):
        where = f"keys[{index}] {_quote(key)}"
        if not key:
            raise ToolInputError(f"keys[{index}] is empty; name a key, or leave it out")
        modifiers, name = _split_key(key)
        if name in KEYS or (len(name) == 1 and (modifiers or name == key)):
            parts.append(_encode(name, modifiers, application, keypad, where))
            continue
        parts.append(key)
        # Looking for what was meant takes a while, and ten times are enough.
        if len(warnings) <= MAX_WARNINGS and (doubt := _doubt(key, name, bool(modifiers))):
            warnings.append(f"{where} is not a key and was sent as text; {doubt}")
    return Encoded(_to_bytes("".join(parts), "the keys"), _few(warnings))


def _split_key(key: str) -> tuple[int, str]:
    """The modifiers, and the name of the key: one that is known, a character, or neither."""
    if len(key) > MAX_NAME:
        return 0, key
    # A space may be the key itself.
    rest = key.lstrip() if key.endswith(("- ", "+ ")) else key.strip()
    if len(rest) > 3 and rest[0] == "<" and rest[-1] == ">":
        rest = rest[1:-1]
    modifiers = 0
    while found := re.match(_PREFIX, rest):
        modifiers |= _CTRL if found[1] else _ALT if found[2] else _SHIFT
        rest = rest[found.end() :]
    if len(rest) == 2 and rest[0] == "^":
        return modifiers | _CTRL, rest[1]
    if not modifiers and len(key) == 1:
        return 0, key
    return modifiers, _key_name(rest)


def _key_name(text: str) -> str:
    """The key that is meant, as it is called here, or the text."""
    folded = text.lower()
    for name in (folded, re.sub(r"[-_ ]", "", folded)):
        if name in KEYS:
            return _OTHER_NAMES.get(name, name)
    return text


def _encode(name: str, modifiers: int, application: bool, keypad: bool, where: str) -> str:
    if name == "btab":
        name, modifiers = "tab", modifiers | _SHIFT
    number = 1 + modifiers
    if name in _CURSOR or name in _FUNCTION:
        letter = _CURSOR.get(name) or _FUNCTION[name]
        if modifiers:
            return f"\x1b[1;{number}{letter}"
        return f"\x1bO{letter}" if application or name in _FUNCTION else f"\x1b[{letter}"
    if name in _EDIT:
        return f"\x1b[{_EDIT[name]};{number}~" if modifiers else f"\x1b[{_EDIT[name]}~"
    if name in _KEYPAD:
        letter, name = _KEYPAD[name]
        if keypad:
            return f"\x1bO{number if modifiers else ''}{letter}"
    meta = "\x1b" if modifiers & _ALT else ""
    if name == "tab" and modifiers & ~_ALT == _SHIFT:
        return f"{meta}\x1b[Z"
    char = _CHARS.get(name, name)
    if modifiers & _SHIFT and not modifiers & _CTRL and (char == " " or char.isalpha()):
        char, modifiers = char.upper(), modifiers & ~_SHIFT
    if not modifiers & (_SHIFT | _CTRL):
        return meta + char
    code = ord(char.upper()) if char.isascii() else 0
    if not modifiers & _SHIFT and char in _CONTROLS:
        return meta + _CONTROLS[char]
    if not modifiers & _SHIFT and 0x40 <= code < 0x60:
        return meta + chr(code & 0x1F)
    hints = {"\r": "send enter, or C-j for a new line without it", "/": "send C-_"}
    hint = hints.get(char, "C- goes with a to z, space and @ [ \\ ] ^ _ ?, S- with letters and tab")
    raise ToolInputError(f"{where}: terminals have no code for this; {hint}")


def _doubt(key: str, name: str, modified: bool) -> str:
    """Why a text may have been meant as a key; empty if it does not look like one."""
    if len(key) > MAX_NAME:
        return ""
    word = re.sub(r"[-_ ]", "", name.lower())
    close = nearest(word, [known for known in KEYS if len(known) > 3], 1) if len(word) > 3 else []
    if close and word.isascii() and word.isalnum():
        return f"did you mean {close[0]}?"
    if modified:
        return "after C-, M- and S- comes one character or the name of a key"
    return next((hint for form, hint in _HINTS.items() if re.fullmatch(form, key)), "")


def encode_hex(pieces: Sequence[str]) -> Encoded:
    """The bytes that are written as one or two hexadecimal digits each; others are left out."""
    data = bytearray()
    warnings: list[str] = []
    for index, piece in enumerate(pieces):
        for digits in piece.split():
            if found := re.fullmatch(_HEX, digits):
                data.append(int(found[1], 16))
            else:
                where = f"hex[{index}] {_quote(digits)}"
                warnings.append(f"{where} is not a byte and was left out; write it as 1b or 0x1b")
            if len(data) + len(warnings) > MAX_SENT_BYTES:
                raise _too_much("hex")
    return Encoded(bytes(data), _few(warnings))


def encode_paste(text: str, *, bracketed: bool) -> bytes:
    """What a terminal sends when a text is pasted, marked as such if the program asked for it."""
    if len(text) > MAX_SENT_BYTES:
        raise _too_much("text")
    # Programs take the end mark for the end of the text, and what follows for keys.
    for _ in range(4):
        text = text.replace(PASTE_END, "").replace("\x9b201~", "")
    if PASTE_END in text or "\x9b201~" in text:
        text = text.replace("\x1b", "").replace("\x9b", "")
    if not text:
        raise ToolInputError("text is empty; there is nothing to paste")
    text = text.replace("\r\n", "\r").replace("\n", "\r")
    data = _to_bytes(text, "text")
    return PASTE_START.encode() + data + PASTE_END.encode() if bracketed else data


def _to_bytes(text: str, what: str) -> bytes:
    try:
        data = text.encode()
    except UnicodeEncodeError as error:
        bad = text[error.start]
        raise ToolInputError(f"{what}: {bad!r} is a lone surrogate and cannot be sent") from None
    if len(data) > MAX_SENT_BYTES:
        raise _too_much(what)
    return data


def _too_much(what: str) -> ToolInputError:
    return ToolInputError(
        f"{what}: more than {human_size(MAX_SENT_BYTES)} at once; send it in parts"
    )


def _quote(text: str) -> str:
    return repr(text) if len(text) <= 40 else f"{text[:40]!r}…"


def _few(warnings: list[str]) -> tuple[str, ...]:
    more = ["and more like these"] if len(warnings) > MAX_WARNINGS else []
    return (*warnings[:MAX_WARNINGS], *more)
