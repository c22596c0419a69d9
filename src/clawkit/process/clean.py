"""Bytes that a command wrote, as text that shows all of them that mean something and obeys none."""

from __future__ import annotations

import re

STRING_MAX = 4_096
"""Characters of a terminal string, such as a window title, before it counts as text."""
LOOK = STRING_MAX + 128
"""Bytes at the end of a piece in which an unfinished sequence can begin."""
_PLAIN = bytes((0x09, 0x0A, *range(0x20, 0x7F)))

# Nothing in a sequence matches a newline, and no string holds another one: lines can be cleaned one
# by one, and what is not ended costs one look. Possessive, so that there is nothing to try again.
_PARAMETERS = r"[0-?]{0,64}+[ -/]{0,8}+"
_BODY = rf"[^\x07\x18\x1a\x1b\n\x80-\x9f]{{0,{STRING_MAX}}}+"
_SEQUENCE = re.compile(
    rf"\x1b(?:\[{_PARAMETERS}[@-~]?"
    rf"|[\]PX^_k]{_BODY}(?:\x07|\x1b\\)"
    r"|[ -/]{1,8}+[0-~]?"
    r"|[0-~])"
)
_OPEN = re.compile(
    rf"(?:\x1b\[|\x9b){_PARAMETERS}\Z"
    rf"|(?:\x1b[\]PX^_k]|[\x90\x98\x9d-\x9f]){_BODY}\x1b?\Z"
    r"|\x1b[ -/]{0,8}+\Z"
)
_OPEN_CHARACTER = re.compile(
    rb"(?:[\xc2-\xdf]|[\xe0-\xef][\x80-\xbf]?|[\xf0-\xf4][\x80-\xbf]{0,2})\Z"
)
# What a sequence that began earlier may end with: a guess, as `5m` can also be text.
_REST = re.compile(
    rb"[\x80-\xbf]{0,3}+(?:\[[0-9;:?]{1,64}+[A-Za-z]|[0-9;:]{1,64}+m"
    rb"|[^\x00-\x1f\x7f]{0,%d}+(?:\x07|\x1b\\))?" % STRING_MAX
)
# The one-character forms of what else begins with an escape.
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
"""What some programs write instead of a carriage return."""

# Format characters, variation selectors, tags, noncharacters, and Unicode's own line ends. Two
# patterns, because one with characters beyond the basic plane is ten times slower.
_HIDDEN = re.compile(
    "[\u00ad\u0600-\u0605\u061c\u06dd\u070f\u0890\u0891\u08e2\u180b-\u180f\u200b\u200c\u200e\u200f"
    "\u2028-\u202e\u2060-\u206f\ufdd0-\ufdef\ufe00-\ufe0d\ufeff\ufff0-\ufffb\ufffe\uffff]"
)
_BEYOND = re.compile("[\U00010000-\U0010ffff]")
_HIDDEN_BEYOND = re.compile(
    "[\U000110bd\U000110cd\U00013430-\U0001343f\U0001bca0-\U0001bca3\U0001d173-\U0001d17a"
    "\U000e0000-\U000e0fff"
    + "".join(
        f"{chr(plane * 0x10000 + 0xFFFE)}{chr(plane * 0x10000 + 0xFFFF)}" for plane in range(1, 17)
    )
    + "]"
)
_PICTURE = "\u00a9\u00ae\u203c\u2049\u2122\u2139\u2190-\u3299\U0001f000-\U0001faff"
# What makes one picture of two, or colours one, may stay where pictures are.
_STRAY_JOINER = re.compile(
    rf"(?<![{_PICTURE}])[\ufe0e\ufe0f]|(?<![{_PICTURE}\ufe0f])\u200d|\u200d(?![{_PICTURE}])"
)

# Bold and underlined as printers once did it.
_UNDERLINED = re.compile(r"_\x08(?=[^\x08\r\n])")
_BOLD = re.compile(r"([^\x08\r\n])\x08(?=\1)")
_CONTROL = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f]")
_SPELLED = {code: f"\\x{code:02x}" for code in range(0xA0) if _CONTROL.match(chr(code))}

UPDATES_SHOWN = 4
_UPDATES = "[… {:,} updates of this line left out …]"


def clean(data: bytes, *, cut_start: bool = False, cut_end: bool = False) -> str:
    """The text without what is meant for a terminal or for no eye.

    What is not UTF-8 becomes U+FFFD, control characters `\\xNN`; a line that was written over is
    shown once for every time, or the first and the last times. Every line is cleaned on its own.
    `cut_start` and `cut_end` say that more came before, or comes after: then a character or
    sequence that was cut there is left out.
    """
    if cut_end:
        data = data[: whole_end(data)]
    if cut_start and (rest := _REST.match(data)):
        data = data[rest.end() :]
    if not data.translate(None, _PLAIN):
        return data.decode("ascii")
    text = data.decode("utf-8", "replace")
    if not text.isascii():
        text = _drop_hidden(text)
    if "\x1b" in text:
        for sequence in _TO_LINE_START:
            text = text.replace(sequence, "\r")
        text = _SEQUENCE.sub("", text)
    if "\x08" in text:
        text = _BOLD.sub("", _UNDERLINED.sub("", text))
    if "\r" in text:
        text = _show_updates(text)
    return text.translate(_SPELLED) if _CONTROL.search(text) else text


def whole_end(data: bytes) -> int:
    """Where a character or a sequence begins that is not finished at the end; else the end."""
    end = len(data)
    if character := _OPEN_CHARACTER.search(data, max(0, end - 3)):
        end = character.start()
    look = data[max(0, end - LOOK) : end]
    if b"\x1b" not in look and b"\xc2" not in look:
        return end
    # Every byte that is not UTF-8 stays one, so that they can be counted.
    text = look.decode("utf-8", "surrogateescape")
    unfinished = _OPEN.search(text)
    return end - len(unfinished[0].encode("utf-8", "surrogateescape")) if unfinished else end


def _drop_hidden(text: str) -> str:
    """The text without characters that are not seen, and with the long forms of controls."""
    for short, long in _LONG_FORMS.items():
        text = text.replace(short, long)
    text = _HIDDEN.sub("", text)
    if _BEYOND.search(text):
        text = _HIDDEN_BEYOND.sub("", text)
    if any(joiner in text for joiner in "\ufe0e\ufe0f\u200d"):
        text = _STRAY_JOINER.sub("", text)
    return text


def _show_updates(text: str) -> str:
    """Every line that was written over as lines of what stood there."""
    text = text.replace("\r\n", "\n").removesuffix("\r")
    if "\r" not in text:
        return text
    lines = text.split("\n")
    return "\n".join(_split_updates(line) if "\r" in line else line for line in lines)


def _split_updates(line: str) -> str:
    updates = [update for update in line.split("\r") if update.strip(" \t")]
    if len(updates) > UPDATES_SHOWN:
        updates[1:-2] = [_UPDATES.format(len(updates) - 3)]
    return "\n".join(updates)
