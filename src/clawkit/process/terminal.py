"""Terminal emulation: answers to queries, the screen (pyte), and the encoding of keys."""

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
"""Maximum bytes of an incomplete sequence that are kept."""
MAX_ANSWERS = 4 * 1024
"""Maximum bytes of answers to one piece of output; a program that requests more does not read
them."""
MAX_UNREAD = 4 * 1024
"""Bytes of output that are kept, and drawn when the program queries the cursor position: programs
that do have moved the cursor shortly before."""
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
"""An escape sequence; the number of the last group, one of the four above, is its kind.

Control sequences (CSI) have a prefix, parameters, intermediates and a final byte; commands (OSC)
and other strings a text and a terminator; all others intermediates and a final byte. An empty end
means that the sequence is incomplete or invalid. Strings end before the next escape.
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
    """The parameters of a control sequence, at least one; omitted ones are 0."""
    parts = [part.partition(":")[0].lstrip("0")[:5] for part in text.split(";", 32)[:32]]
    return [min(int(digits), MAX_NUMBER) if digits.isdigit() else 0 for digits in parts]


class TerminalState:
    """State of a program's terminal: answers queries, and tracks the modes that keys depend on.

    Feed it everything that the program writes, from the start on.
    """

    def __init__(self, columns: int, rows: int) -> None:
        self.size = columns, rows
        self.application_keypad = False
        """Whether keypad keys send escape sequences instead of their characters."""
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
        """Process output of the program; returns the terminal's answer."""
        if self._string_end is not None:
            # Skip the rest of a string that was too long to keep.
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
                rest = found[0]
                if len(rest) <= MAX_TAIL:
                    self._tail = rest
                elif rest[1:2] == b"]":
                    self._string_end = rb"[\x07\x18\x1a\x1b]"
                elif rest[1:2] in b"PX^_":
                    self._string_end = rb"[\x18\x1a\x1b]"
                break
            answer = self._take(found)
            if found[0] in _ASKED_POSITION and len(answers) < MAX_ANSWERS:
                self._note(data[noted : found.start()])
                noted = found.end()
                room -= len(self._unread)
                column, row = self._cursor(draw=room >= 0)
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

    def _cursor(self, *, draw: bool) -> tuple[int, int]:
        """Column and row of the cursor, from 1; (1, 1) without pyte."""
        text = self._unread.decode("utf-8", "replace") if draw else ""
        self._unread.clear()
        try:
            self._drawing = self._drawing or Drawing(*self.size)
            self._drawing.feed(text)
            return self._drawing.cursor
        except (ImportError, *_PYTE_ERRORS):
            self._drawing = None
            return 1, 1

    def _take(self, match: re.Match[bytes]) -> bytes:
        """Apply a sequence; returns the answer to it, if any."""
        if match.lastindex == CONTROL:
            return self._control(match)
        if match.lastindex == COMMAND and match[5] in _COLOURS and match[6] in b"\x07":
            number = match[5].partition(b";")[0]
            return b"\x1b]%b;rgb:%b%b" % (number, _COLOURS[match[5]], match[6] or b"\x1b\\")
        if match.lastindex == OTHER and not match[9]:
            if match[10] in (b"=", b">", b"c"):
                self.application_keypad = match[10] == b"="
            if match[10] == b"c":
                self._modes.clear()
        return _SIMPLE_ANSWERS.get(match[0], b"")

    def _control(self, match: re.Match[bytes]) -> bytes:
        if match[4] not in _ENDS:  # mostly colors
            return b""
        text = match[2].decode()
        match match.group(1, 3, 4):
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
        return _SIMPLE_ANSWERS.get(match[0], b"")


def _modes(text: str) -> set[int]:
    given = {ALTERNATE if number in (47, 1047) else number for number in numbers(text)}
    return given & {CURSOR_KEYS, PASTE, ALTERNATE}


SCREEN_BYTES = 64 * 1024
"""Bytes at the end that are drawn, which takes about 50 ms."""
MAX_SIDE = 500
MAX_TITLE = 200
MAX_MARKS = 8
"""Maximum characters of one cell: a letter and its combining marks."""
_SAFE_LOOK = 4 * 1024

# Exceptions that pyte raises for unexpected output.
_PYTE_ERRORS = (AssertionError, AttributeError, LookupError, NameError, TypeError, ValueError)
_SEQUENCE_TEXT = re.compile(SEQUENCE)
_MOVES = re.compile(r"\x1b(?!\[[\d;:]*[mK])|[\x0e\x0f\x80-\x9f]")
"""Anything but text, colors, and erasing to the end of a line."""
_HIDDEN_TEXT = re.compile(r"[^\x07-\x0f\x1b-\x7e]+")
_REPEATED = re.compile(r"([^\x00-\x1f\x7f])\x1b\[(\d{1,3})b")
_MAX_REPEATS = 2_000
_SWITCH = re.compile(r"\x1b\[\?(?:\d{1,4};)*(?:47|1047|1049)(?:;\d{1,4})*([hl])")
_ARITY = dict.fromkeys("@ABCDEFGJKLMPXade`g", 1) | dict.fromkeys("Hfr", 2)
"""Control sequences that pyte draws, and the number of parameters of each."""
_MODES = {("", 4), ("?", 6), ("?", 7)}
"""Modes that change what is drawn: insert, origin, wrap."""


class Screen(NamedTuple):
    """The content of a terminal's screen."""

    lines: tuple[str, ...]
    """One per row of the terminal, without trailing blanks."""
    cursor: tuple[int, int]
    """Column and row, from 1."""
    title: str
    alternate: bool
    """Whether a full-screen program uses the alternate screen."""


class Drawing:
    """A pyte screen. Colors and sequences that pyte does not support are removed first."""

    def __init__(self, columns: int, rows: int) -> None:
        """Raises ImportError if pyte is not installed."""
        import pyte

        self.page: pyte.Screen = pyte.Screen(columns, rows)
        self._stream = pyte.Stream(self.page)
        # In UTF-8 mode pyte ignores the character set that full-screen programs draw lines with.
        self._stream.use_utf8 = False

    @property
    def cursor(self) -> tuple[int, int]:
        return min(self.page.cursor.x + 1, self.page.columns), self.page.cursor.y + 1

    def feed(self, text: str) -> None:
        """May raise any of `_PYTE_ERRORS`."""
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


def _known(match: re.Match[str]) -> str:
    """The sequence in a form that pyte supports; empty if it draws nothing or is unsupported."""
    if match.lastindex == COMMAND:
        is_ended = match[6] == "\x07" or (not match[6] and match.end() < len(match.string))
        is_title = is_ended and match[5][:2] in ("0;", "2;")
        return f"\x1b]2;{one_line(match[5][2:], MAX_TITLE)}\x07" if is_title else ""
    if match.lastindex == OTHER:
        if match[9] in ("(", ")") and match[10]:
            return match[0]
        if match[0] == "\x1bE":
            return "\r\x1bD"
        return match[0] if not match[9] and match[10] in tuple("78DMHc") else ""
    if match.lastindex != CONTROL or match[3]:
        return ""
    prefix, end, given = match[1], match[4], numbers(match[2])
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


def _visible(match: re.Match[str]) -> str:
    """Remove characters of zero width: pyte drops all text after one."""
    from wcwidth import wcwidth

    return "".join(
        char for char in match[0] if wcwidth(char) > 0 or unicodedata.combining(char) > 0
    )


def render(data: bytes, columns: int, rows: int, *, cut: bool = False) -> Screen:
    """Draw the screen from the end of a program's output; `cut` says that the start is missing.

    What was drawn once, before that end, is then not on the screen. Raises `ToolInputError` for an
    invalid size, `ToolError` if pyte is missing or fails.
    """
    if not (1 <= columns <= MAX_SIDE and 1 <= rows <= MAX_SIDE):
        raise ToolInputError(
            f"cannot draw a screen of {columns} columns and {rows} rows; both must be from 1 to "
            f"{MAX_SIDE}"
        )
    try:
        drawing = Drawing(columns, rows)
    except ImportError:
        from clawkit.installation import how_to_add

        raise ToolError(f"drawing the screen needs pyte: {how_to_add('screen')}") from None
    text, alternate = _shown_page(*_end_of(data, cut))
    if not _MOVES.search(text):
        text = "\r\n".join(text.split("\r\n")[-rows:])  # the rest has scrolled away
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
    """The text to draw, not starting inside a sequence, and whether the start is missing."""
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
    """What was drawn on the visible screen, and whether that is the alternate one, which pyte does
    not support. If the start is missing, it may have been drawn on either."""
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
"""Maximum length of the name of a key; anything longer is text."""

PASTE_START, PASTE_END = "\x1b[200~", "\x1b[201~"

_SHIFT, _ALT, _CTRL = 1, 2, 4

# Keys that send characters.
_CHARS = {"enter": "\r", "return": "\r", "tab": "\t", "escape": "\x1b", "esc": "\x1b"}
_CHARS |= {"space": " ", "bspace": "\x7f", "backspace": "\x7f"}
# Keys whose sequence depends on the terminal mode, with its final letter.
_CURSOR = {"up": "A", "down": "B", "right": "C", "left": "D", "home": "H", "end": "F"}
# Keys with the number in their sequence.
_EDIT = {"insert": 2, "ic": 2, "delete": 3, "del": 3, "dc": 3}
_EDIT |= {"pageup": 5, "pgup": 5, "ppage": 5, "pagedown": 6, "pgdn": 6, "npage": 6}
_EDIT |= {"f5": 15, "f6": 17, "f7": 18, "f8": 19, "f9": 20, "f10": 21, "f11": 23, "f12": 24}
_FUNCTION = {"f1": "P", "f2": "Q", "f3": "R", "f4": "S"}
# Final letters in application mode, and the characters on the keys.
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
    r"(?s)\^.*": "^ takes one character",
    r"(?ai)(?:\\(?:[nrte]|x[0-9a-f]{2}|0?33|u001b))+": "write enter, tab or escape, or send bytes"
    " as hex",
}
_HEX = r"(?ai)(?:0x|\\x)?([0-9a-f]{1,2})"


class Encoded(NamedTuple):
    """Input for a program, and warnings about what may not be as intended."""

    data: bytes
    warnings: tuple[str, ...] = ()


def encode_keys(keys: Sequence[str], *, application: bool, keypad: bool | None = None) -> Encoded:
    """The bytes that a terminal sends for keys; text that is not the name of a key is sent as is.

    `application` is the mode for arrows, Home and End that full-screen programs enable, `keypad`
    the one for the keypad. Programs usually enable both, so `keypad` defaults to `application`.
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
        # Looking for similar names is slow, and ten warnings are enough.
        if len(warnings) <= MAX_WARNINGS and (doubt := _doubt(key, name, bool(modifiers))):
            warnings.append(f"{where} is not a key and was sent as text; {doubt}")
    return Encoded(_to_bytes("".join(parts), "the keys"), _few(warnings))


def _split_key(key: str) -> tuple[int, str]:
    """The modifiers, and the rest: the name of a key, a character, or neither."""
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
    """The canonical name of a key, or the text unchanged."""
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
    hints = {"\r": "send enter, or C-j for a line feed", "/": "send C-_"}
    hint = hints.get(char, "C- takes a to z, space and @ [ \\ ] ^ _ ?, S- takes letters and tab")
    raise ToolInputError(f"{where}: terminals have no code for this; {hint}")


def _doubt(key: str, name: str, modified: bool) -> str:
    """Why a text may have been intended as a key; empty if it does not look like one."""
    if len(key) > MAX_NAME:
        return ""
    word = re.sub(r"[-_ ]", "", name.lower())
    close = nearest(word, [known for known in KEYS if len(known) > 3], 1) if len(word) > 3 else []
    if close and word.isascii() and word.isalnum():
        return f"did you mean {close[0]}?"
    if modified:
        return "C-, M- and S- take one character or the name of a key"
    return next((hint for form, hint in _HINTS.items() if re.fullmatch(form, key)), "")


def encode_hex(pieces: Sequence[str]) -> Encoded:
    """Decode bytes of one or two hexadecimal digits each; others are skipped with a warning."""
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
    """The bytes that a terminal sends for pasted text; `bracketed` adds marks around it."""
    if len(text) > MAX_SENT_BYTES:
        raise _too_much("text")
    # An end mark inside the text would make programs take the rest for typed keys.
    for _ in range(4):
        text = text.replace(PASTE_END, "").replace("\x9b201~", "")
    if PASTE_END in text or "\x9b201~" in text:
        text = text.replace("\x1b", "").replace("\x9b", "")
    if not text:
        raise ToolInputError("text: empty; there is nothing to paste")
    text = text.replace("\r\n", "\r").replace("\n", "\r")
    data = _to_bytes(text, "text")
    return PASTE_START.encode() + data + PASTE_END.encode() if bracketed else data


def _to_bytes(text: str, label: str) -> bytes:
    try:
        data = text.encode()
    except UnicodeEncodeError as error:
        bad = text[error.start]
        raise ToolInputError(f"{label}: {bad!r} is a lone surrogate and cannot be sent") from None
    if len(data) > MAX_SENT_BYTES:
        raise _too_much(label)
    return data


def _too_much(label: str) -> ToolInputError:
    return ToolInputError(
        f"{label}: more than {human_size(MAX_SENT_BYTES)} at once; send it in parts"
    )


def _quote(text: str) -> str:
    return repr(text) if len(text) <= 40 else f"{text[:40]!r}…"


def _few(warnings: list[str]) -> tuple[str, ...]:
    more = ["and more like these"] if len(warnings) > MAX_WARNINGS else []
    return (*warnings[:MAX_WARNINGS], *more)
