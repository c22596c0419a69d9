"""Pictures in a terminal: by a protocol that it knows, else in one line of words."""

from __future__ import annotations

import binascii
from base64 import b64encode
from collections.abc import Mapping
from typing import Literal

from clawkit.content import Image
from clawkit.text import human_size, one_line, printable

Protocol = Literal["kitty", "iterm"]

MAX_SHOWN = 2 * 1024 * 1024
"""Bytes of a picture that are sent to a terminal."""
_ROWS = 16
_ROW_PX = 20
"""About how high a row is."""
_CHUNK = 4096
_PNG = b"\x89PNG\r\n\x1a\n"


def find_protocol(env: Mapping[str, str]) -> Protocol | None:
    """What the terminal understands, as far as its names tell; nothing inside another one."""
    if env.get("TMUX") or env.get("STY") or env.get("TERM", "").startswith(("screen", "tmux")):
        return None
    program = env.get("TERM_PROGRAM", "")
    if env.get("KITTY_WINDOW_ID") or env.get("TERM") in ("xterm-kitty", "xterm-ghostty"):
        return "kitty"
    return "iterm" if program in ("iTerm.app", "WezTerm") else None


def describe(image: Image) -> str:
    """One line: what it is and how large."""
    size = len(image.data) * 3 // 4 - image.data[-2:].count("=")
    return f"[{printable(one_line(image.mime_type, 60), '')}, {human_size(size)}]"


def draw(image: Image, protocol: Protocol | None) -> str:
    """What makes the terminal show a picture; empty when it cannot be shown."""
    if protocol is None or len(image.data) > MAX_SHOWN * 4 // 3:
        return ""
    try:
        data = binascii.a2b_base64(image.data, strict_mode=True)
    except ValueError:
        return ""
    # Written anew: what is sent to the terminal has no other letters than those of base64.
    text = b64encode(data).decode()
    if protocol == "iterm":
        return f"\x1b]1337;File=inline=1;size={len(data)};height={_rows(data)}:{text}\a\n"
    return _draw_kitty(text, _rows(data)) if data.startswith(_PNG) else ""


def _draw_kitty(text: str, rows: int) -> str:
    chunks = [text[at : at + _CHUNK] for at in range(0, len(text), _CHUNK)]
    parts = []
    for number, chunk in enumerate(chunks):
        how = f"a=T,f=100,q=2,r={rows}," if number == 0 else ""
        more = int(number < len(chunks) - 1)
        parts.append(f"\x1b_G{how}m={more};{chunk}\x1b\\")
    return "".join((*parts, "\n"))


def _rows(data: bytes) -> int:
    """Rows for a picture: those of its own height where that is known and not too many."""
    if not data.startswith(_PNG) or len(data) < 24:
        return _ROWS
    height = int.from_bytes(data[20:24])
    return max(1, min(_ROWS, -(-height // _ROW_PX)))
