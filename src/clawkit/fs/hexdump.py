"""Bytes for people to look at."""

from __future__ import annotations

ROW = 16
ROW_CHARS = 79
"""What a row takes, with its newline, in a file below 4 GB."""
_SHOWN = "".join(chr(byte) if 32 <= byte < 127 else "." for byte in range(256))


def dump(data: bytes, at: int) -> list[str]:
    """One line for every 16 bytes: where they stand, their values, and the letters among them."""
    digits = max(8, len(f"{at + len(data):x}"))
    rows = (data[start : start + ROW] for start in range(0, len(data), ROW))
    return [
        f"{at + ROW * number:0{digits}x}  {_values(row)}  |{_letters(row)}|"
        for number, row in enumerate(rows)
    ]


def _values(row: bytes) -> str:
    return f"{row[:8].hex(' '):<23}  {row[8:].hex(' '):<23}"


def _letters(row: bytes) -> str:
    return row.decode("latin-1").translate(_SHOWN)
