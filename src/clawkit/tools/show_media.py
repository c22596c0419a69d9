"""How pictures and documents are shown to a model."""

from __future__ import annotations

import binascii
import json
import re
from collections.abc import Sequence
from typing import NamedTuple

from clawkit.content import Block, Image, Text
from clawkit.core.context import Context
from clawkit.core.result import Result
from clawkit.errors import ToolInputError
from clawkit.fs.base import File, read_all
from clawkit.fs.kinds import ImageLimits
from clawkit.fs.pages import fitting
from clawkit.media.base import (
    MAX_DOCUMENT_BYTES,
    MAX_PICTURE_BYTES,
    Document,
    Media,
    Page,
    Picture,
)
from clawkit.text import human_size, weigh
from clawkit.tools.show_text import Wish, with_notes

PAGES = 10
"""Pages of a document that are shown when nobody says how many."""
MAX_PAGES = 20


async def show_picture(file: File, wish: Wish, ctx: Context) -> Result:
    """The picture, made to fit, and its sizes."""
    data = await read_all(file, MAX_PICTURE_BYTES)
    limits = ctx.services.get(ImageLimits)
    max_side, max_bytes = limits if isinstance(limits, ImageLimits) else ImageLimits()
    picture = await ctx.use(Media).picture(data, max_side=max_side, max_bytes=max_bytes)
    width, height = picture.original
    details = {
        "path": wish.path,
        "kind": "image",
        "mimeType": picture.mime_type,
        "width": picture.width,
        "height": picture.height,
        "original": {"width": width, "height": height, "mimeType": picture.original_type},
        "totalBytes": len(data),
    }
    notice = with_notes("", (*wish.notes, _sizes(picture, len(data))))
    return Result((_block(picture), Text(notice)), details)


def _sizes(picture: Picture, size: int) -> str:
    width, height = picture.original
    text = f"{picture.original_type}, {width}x{height} pixels, {human_size(size)}"
    if (picture.width, picture.height) != picture.original:
        factor = f"{width / picture.width:.3g}"
        shown = f"{picture.width}x{picture.height}"
        return f"{text}; shown at {shown}: coordinates in it times {factor} are the original's"
    changed = picture.mime_type != picture.original_type
    return f"{text}; shown as {picture.mime_type}" if changed else text


def _block(picture: Picture) -> Image:
    return Image(binascii.b2a_base64(picture.data, newline=False).decode(), picture.mime_type)


class Range(NamedTuple):
    """Pages of a document, counted from 1, both ends included."""

    first: int
    last: int

    @classmethod
    def parse(cls, text: str) -> Range:
        """`3`, `1-5` or `7-`; empty for the first ones. Raises `ToolInputError` for other texts."""
        if not text.strip():
            return cls(1, PAGES)
        found = re.fullmatch(r"\s*([0-9]{1,6})\s*(?:(-)\s*([0-9]{1,6})?)?\s*", text)
        first = int(found[1]) if found else 0
        last = first
        if found and found[2]:
            last = int(found[3]) if found[3] else first + PAGES - 1
        if first < 1 or last < first:
            raise ToolInputError(f"pages={text[:40]!r} is not a range of pages; try '3' or '1-5'")
        return cls(first, min(last, first + MAX_PAGES - 1))

    def after(self, page: int, total: int) -> str:
        """As many pages again, from that one on."""
        last = min(page + self.last - self.first, total)
        return f"{page}-{last}" if last > page else f"{page}"


async def show_document(file: File, wish: Wish, pages: str, ctx: Context) -> Result:
    """Some pages of a document: their text, and pictures of those that have none.

    The cursor of the wish leaves out that many characters of the first page.
    """
    wanted = Range.parse(pages)
    data = await read_all(file, MAX_DOCUMENT_BYTES)
    document = await ctx.use(Media).pages(data, wanted.first, wanted.last)
    shown = _Shown(wish.max_weight)
    for page in document.pages:
        if not shown.add(page, wish.cursor if page.number == wanted.first else 0):
            break
    facts = shown.close(document, wanted, wish.notes)
    truncation = {"truncated": "continuation" in facts, "totalBytes": len(data)}
    details = {"path": wish.path, "kind": "document", "truncation": truncation, **facts}
    return Result(tuple(shown.blocks()), details)


class _Shown:
    """What fits of a document."""

    def __init__(self, max_weight: int) -> None:
        self._room = max_weight
        self._parts: list[str | Image] = []
        self._pictures = 0
        self._last = 0
        self._cut = 0
        """Where the last page was cut, if it was."""
        self._part = ""

    def add(self, page: Page, cursor: int) -> bool:
        """Show a page, or as much of it as fits when it is the first; False when no more fits."""
        text = page.text[cursor:].rstrip()
        if not text and page.picture is None:
            # Only so many pictures are made at once.
            drawn = f'; pages="{page.number}" may show it as a picture' if self._pictures else ""
            text = f"(no text on this page{drawn})"
        part = f"[page {page.number}]" + (text and f"\n{text}")
        if weigh(part) + 2 > self._room:
            if self._last:
                return False
            room = fitting(part, self._room)
            self._cut = cursor + room - len(part) + len(text)
            part = part[:room]
            self._part = f"characters {cursor}-{self._cut} of {len(page.text)}"
        self._room -= weigh(part) + 2
        self._parts.append(part)
        if page.picture is not None:
            self._pictures += 1
            self._parts.append(_block(page.picture))
        self._last = page.number
        return not self._cut

    def close(self, document: Document, wanted: Range, notes: Sequence[str]) -> dict[str, object]:
        """Say what is shown and how to go on, in words and for programs."""
        total = document.total
        following = self._last + (not self._cut)
        goes_on = following <= total
        details: dict[str, object] = {
            "pages": f"{wanted.first}-{self._last}",
            "totalPages": total,
        }
        if goes_on:
            again: dict[str, object] = {"pages": wanted.after(following, total)}
            said = f"pages {wanted.first}-{self._last} of {total}"
            if self._cut:
                again["cursor"] = self._cut
                said = f"page {self._last} is shown in part ({self._part})"
            details["continuation"] = {"kind": "pages", **again}
            how = " ".join(f"{key}={json.dumps(value)}" for key, value in again.items())
            notes = (*notes, f"{said}; go on with {how}")
        if notes:
            self._parts.append(with_notes("", notes))
        return details

    def blocks(self) -> list[Block]:
        """Texts that follow each other as one."""
        blocks: list[Block] = []
        texts: list[str] = []
        for part in (*self._parts, None):
            if isinstance(part, str):
                texts.append(part)
                continue
            if texts:
                blocks.append(Text("\n\n".join(texts)))
                texts = []
            if part is not None:
                blocks.append(part)
        return blocks
