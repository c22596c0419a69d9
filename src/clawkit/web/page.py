"""What the program that reads pages answers. It does not import msgspec, which was a third of its
start."""

from __future__ import annotations

from typing import NamedTuple


class Page(NamedTuple):
    """What a page says."""

    title: str
    text: str
    note: str
    """What the reader must know about the text; empty if there is nothing."""
