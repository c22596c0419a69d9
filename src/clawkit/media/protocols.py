"""What tools need to look at pictures and documents."""

from __future__ import annotations

from typing import NamedTuple, Protocol

MAX_PICTURE_BYTES = 10 * 1024 * 1024
MAX_DOCUMENT_BYTES = 64 * 1024 * 1024


class Picture(NamedTuple):
    """A picture made to fit."""

    data: bytes
    mime_type: str
    width: int
    height: int
    original: tuple[int, int]
    """Width and height before it was made to fit."""
    original_type: str


class DocumentPage(NamedTuple):
    """One page of a document: its text, or a picture of it when it has none."""

    number: int
    text: str
    picture: Picture | None = None


class Document(NamedTuple):
    """Some pages of a document."""

    pages: tuple[DocumentPage, ...]
    total: int


class Media(Protocol):
    """Decodes what may be hostile, away from this process.

    Raises `ToolInputError` for what cannot be decoded or is too large, and `ToolError` when what
    it takes is not installed or failed.
    """

    async def picture(self, data: bytes, *, max_side: int, max_bytes: int) -> Picture: ...

    async def pages(self, data: bytes, first: int, last: int) -> Document: ...
