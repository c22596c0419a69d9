"""Keys, bytes and pasted text as a terminal sends them to the program in it."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import NamedTuple

from clawkit.errors import ToolInputError
from clawkit.text import human_size, nearest

MAX_KEYS = 1_000
MAX_BYTES = 64 * 1024
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
# The letters of the keypad as a keypad, and what stands on its keys.
_KEYPAD = {f"kp{digit}": (chr(ord("p") + digit), str(digit)) for digit in range(10)}
_KEYPAD |= {"kp/": ("o", "/"), "kp*": ("j", "*"), "kp-": ("m", "-"), "kp+": ("k", "+")}
_KEYPAD |= {"kp.": ("n", "."), "kpenter": ("M", "\r")}
_ARROWS = ("up", "down", "left", "right")
_OTHER_NAMES = {f"arrow{name}": name for name in _ARROWS}
_OTHER_NAMES |= {f"{name}arrow": name for name in _ARROWS} | {"backtab": "btab"}
KEYS = frozenset(_CHARS | _CURSOR | _EDIT | _FUNCTION | _KEYPAD | _OTHER_NAMES | {"btab": ""})

_PREFIX = r"(?ais)(?:(c|ctrl|control)|(m|alt|meta|option)|(s|shift))[-+](?=.)"
_ESCAPED = r"(?ai)(?:\\(?:[nrte]|x[0-9a-f]{2}|0?33|u001b))+"
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
        modifiers, name = _split(key)
        if name in KEYS or (len(name) == 1 and (modifiers or name == key)):
            parts.append(_encode(name, modifiers, application, keypad, where))
            continue
        parts.append(key)
        # Looking for what was meant takes a while, and ten times are enough.
        if len(warnings) <= MAX_WARNINGS and (doubt := _doubt(key, name, bool(modifiers))):
            warnings.append(f"{where} is no key and was sent as text; {doubt}")
    return Encoded(_to_bytes("".join(parts), "the keys"), _few(warnings))


def _split(key: str) -> tuple[int, str]:
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
    return modifiers, _name(rest)


def _name(text: str) -> str:
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
    if modifiers & _SHIFT:
        raise ToolInputError(f"{where}: terminals have no code for this; {_instead(char)}")
    if modifiers & _CTRL:
        char = _control(char, where)
    return meta + char


def _control(char: str, where: str) -> str:
    if char == "\x7f":
        return "\x08"
    if char == "?":
        return "\x7f"
    code = 0x40 if char == " " else ord(char.upper()) if char.isascii() else 0
    if not 0x40 <= code < 0x60:
        raise ToolInputError(f"{where}: terminals have no code for this; {_instead(char)}")
    return chr(code & 0x1F)


def _instead(char: str) -> str:
    hints = {"\r": "send enter, or C-j for a new line without it", "/": "send C-_"}
    return hints.get(char, "C- goes with a to z, space and @ [ \\ ] ^ _ ?, S- with letters and tab")


def _doubt(key: str, name: str, modified: bool) -> str:
    """Why a text may have been meant as a key; empty if it does not look like one."""
    if len(key) > MAX_NAME:
        return ""
    word = re.sub(r"[-_ ]", "", name.lower())
    close = nearest(word, [known for known in KEYS if len(known) > 3], 1) if len(word) > 3 else []
    if close and word.isascii() and word.isalnum():
        return f"did you mean {close[0]}?"
    if re.fullmatch(r"(?ai)f\d{1,2}", key):
        return "there are f1 to f12"
    if modified:
        return "after C-, M- and S- comes one character or the name of a key"
    if key[0] == "^":
        return "^ goes with one character"
    if re.fullmatch(_ESCAPED, key):
        return "write enter, tab or escape, or send bytes as hex"
    return ""


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
            if len(data) + len(warnings) > MAX_BYTES:
                raise _too_much("hex")
    return Encoded(bytes(data), _few(warnings))


def encode_paste(text: str, *, bracketed: bool) -> bytes:
    """What a terminal sends when a text is pasted, marked as such if the program asked for it."""
    if len(text) > MAX_BYTES:
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
        raise ToolInputError(f"{what}: {bad!r} is half a character and cannot be sent") from None
    if len(data) > MAX_BYTES:
        raise _too_much(what)
    return data


def _too_much(what: str) -> ToolInputError:
    return ToolInputError(f"{what}: more than {human_size(MAX_BYTES)} at once; send it in parts")


def _quote(text: str) -> str:
    return repr(text) if len(text) <= 40 else f"{text[:40]!r}…"


def _few(warnings: list[str]) -> tuple[str, ...]:
    left = len(warnings) - MAX_WARNINGS
    more = ("and more like these",) if left > 0 else ()
    return (*warnings[:MAX_WARNINGS], *more)
