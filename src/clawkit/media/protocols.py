"""The interface for tools: images and documents."""

from __future__ import annotations

from typing import Annotated, Literal, Protocol

from msgspec import Meta, Struct

MAX_PICTURE_BYTES = 10 * 1024 * 1024
MAX_DOCUMENT_BYTES = 64 * 1024 * 1024


Side = Annotated[int, Meta(ge=1)]
Shown = Literal["image/png", "image/jpeg", "image/gif", "image/webp"]
Original = Literal[Shown, "image/bmp", "image/tiff", "image/x-icon", "application/pdf"]


class Picture(Struct, frozen=True):
    """An image, scaled and converted if necessary."""

    data: bytes
    mime_type: Shown
    width: Side
    height: Side
    original: tuple[Side, Side]
    """Width and height before scaling."""
    original_type: Original


class DocumentPage(Struct, frozen=True):
    """One page of a document: its text, or an image of it if it has none."""

    number: Side
    text: str
    picture: Picture | None = None


class DocumentPages(Struct, frozen=True):
    pages: tuple[DocumentPage, ...]
    total: int


class Media(Protocol):
    """Decodes untrusted images, outside of this process. Raises `ToolInputError` for files that are
    broken or too large, and `ToolError` if a library is missing or the decoder fails."""

    async def picture(self, data: bytes, *, max_side: int, max_bytes: int) -> Picture: ...


class PageReader(Protocol):
    """Reads untrusted documents; raises as `Media` does."""

    async def pages(self, data: bytes, first: int, last: int) -> DocumentPages: ...
