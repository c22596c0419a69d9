"""The answer of the program that reads pages. Does not import msgspec, which took a third of its
start."""

from __future__ import annotations

from typing import NamedTuple


class Page(NamedTuple):
    """The content of a page."""

    title: str
    text: str
    note: str
    """A note for the reader about the text; empty if there is none."""
