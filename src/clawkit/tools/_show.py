"""How `read` renders a file: pages of text or bytes, images, PDFs, notebooks."""

from __future__ import annotations

import binascii
import json
import re
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

from msgspec import UNSET, UnsetType

from clawkit.content import Block, Image, Text
from clawkit.core.context import Context
from clawkit.core.result import Result
from clawkit.errors import ToolInputError
from clawkit.fs.encoding import UTF8, Encoding, detect, find_codec, settle
from clawkit.fs.magic import FileKind, ImageLimits, identify
from clawkit.fs.masks import is_env_file, mask_env
from clawkit.fs.pages import ROW, ROW_CHARS, HeldFile, TextPage, Want, fitting, hex_dump, take_page
from clawkit.fs.protocols import CHUNK, FileSystem, OpenFile, read_all
from clawkit.fs.read_versions import ReadVersions
from clawkit.media.protocols import (
    MAX_DOCUMENT_BYTES,
    MAX_PICTURE_BYTES,
    Media,
    PageReader,
    Picture,
)
from clawkit.redact import Redactor
from clawkit.text import human_size, result_cap, weigh, weight_cap
from clawkit.tools._files import MARKS_ROOM, is_saved_page, mark_outside, with_notes

if TYPE_CHECKING:
    from clawkit.tools.read import Params

PAGE_LINES = 2_000
PAGE_BYTES = 50 * 1024
MAX_JOINED = 8
"""Number of pages that are joined if no limit is given."""
MAX_PAGE_BYTES = 512 * 1024
CONTEXT_SHARE = 0.2
CHARS_PER_TOKEN = 4
MIN_PAGE_BYTES = 200
"""Even for the smallest model, a page must have some content."""
NOTICE_ROOM = 400
DOCUMENT_PAGES = 10
"""Pages of a document shown by default."""
MAX_DOCUMENT_PAGES = 20
KEY = "PRIVATE KEY-----"
MAX_MASKED_BYTES = 1024 * 1024
"""Files with secrets are masked as a whole: a page could start between a name and its value."""


class FileView(NamedTuple):
    """The part of a file to show, and the context window of the model."""

    path: str
    offset: int = 1
    limit: int | UnsetType = UNSET
    cursor: int = 0
    context_window: int | None = None
    notes: tuple[str, ...] = ()
    is_outside: bool = False
    """Whether its text is marked as external."""

    @property
    def max_weight(self) -> int:
        """Maximum weight of the result: of one page, or of several joined without a limit."""
        room = page_bytes(self.context_window, joined=self.limit is UNSET)
        taken = sum(map(weigh, self.notes)) + MARKS_ROOM * self.is_outside
        return max(MIN_PAGE_BYTES, room - taken)

    def finish(self, text: str, notes: Sequence[str]) -> str:
        """The page's text with its notices."""
        return with_notes(mark_outside(text) if text and self.is_outside else text, notes)


async def show_file(path: str, params: Params, ctx: Context, *notes: str) -> Result:
    """Render a file as the parameters of `read` say. Raises like `FileSystem`."""
    async with ctx.use(FileSystem).open(path) as file:
        head = await file.read(CHUNK, 0)
        ctx.use(ReadVersions).note(file.place, file.info, head if len(head) < CHUNK else None)
        window = ctx.scope.context_window
        part = params.offset, params.limit, params.cursor
        view = FileView(path, *part, window, notes, is_saved_page(file.place))
        if is_env_file(path) or is_env_file(file.place):
            # Shown only with masked secrets, in every format.
            if params.format == "hex" or params.encoding:
                why = f"secrets in {view.path!r} are masked, so it is only shown as plain text"
                raise ToolInputError(f"{why}: leave out 'format' and 'encoding'")
            data = await read_all(file, MAX_MASKED_BYTES)
            encoding = detect(data)
            if encoding is None:
                return _refuse(view.path, len(data), identify(data))
            text = data[len(encoding.mark) :].decode(encoding.name, "replace")
            return await _show_masked(text, mask_env(text, ctx.use(Redactor)), view)
        if params.format == "hex" and KEY.encode() in head:
            raise ToolInputError(f"{path!r} contains a private key, so its bytes are not shown")
        if params.format == "hex":
            return await show_hex(file, head, view)
        return await _show(file, head, view, params, ctx)


async def _show(
    file: OpenFile, head: bytes, view: FileView, params: Params, ctx: Context
) -> Result:
    is_auto = params.format == "auto" and not params.encoding
    kind = identify(head) if is_auto else None
    if params.pages and (kind is None or kind.family != "document"):
        raise ToolInputError(f"{view.path!r} has no pages: 'pages' is for PDFs; use 'offset'")
    if kind is not None and kind.family == "image":
        return await show_picture(file, view, ctx)
    if kind is not None and kind.family == "document":
        return await show_document(file, view, params.pages, ctx)
    encoding = settle(find_codec(params.encoding), head) if params.encoding else detect(head)
    if kind is not None or (encoding is None and is_auto):
        return _refuse(view.path, max(file.info.size, len(head)), kind)
    if is_auto and (view.path.endswith(".ipynb") or file.place.endswith(".ipynb")):
        from clawkit.fs.notebook import MAX_BYTES, notebook_text

        if file.info.size <= MAX_BYTES and (text := notebook_text(await read_all(file, MAX_BYTES))):
            return await _show_rendered(text, view, ctx, kind="notebook")
    encoding = encoding or UTF8
    if KEY.encode(encoding.name, "ignore") in head and len(head) < CHUNK:
        text = head[len(encoding.mark) :].decode(encoding.name, "replace")
        return await _show_rendered(text, view, ctx)
    return await show_text(file, head, encoding, view, detected=not params.encoding)


def _refuse(path: str, size: int, kind: FileKind | None) -> Result:
    what = f"{kind.name}, {human_size(size)}" if kind else human_size(size)
    message = f'{path!r} is a binary file ({what}), not text; format="hex" shows its bytes'
    return Result.error("read", message, code=400, kind="binary")


async def _show_rendered(text: str, view: FileView, ctx: Context, kind: str = "text") -> Result:
    # Masked as a whole: a page that starts inside a key would not be recognized.
    masked = ctx.use(Redactor).text(text) if KEY in text else text
    return await _show_masked(text, masked, view, kind)


async def _show_masked(text: str, masked: str, view: FileView, kind: str = "text") -> Result:
    more: dict[str, Any] = {"kind": kind}
    if masked != text:
        note = "secrets are masked; do not write the masks back"
        view = view._replace(notes=(*view.notes, note))
        more["redacted"] = True
    data = masked.encode("utf-8", "replace")
    return await show_text(HeldFile(data), data[:CHUNK], UTF8, view, **more)


async def show_text(
    file: OpenFile,
    head: bytes,
    encoding: Encoding,
    view: FileView,
    *,
    detected: bool = True,
    **more: Any,
) -> Result:
    """A page of a file whose first `CHUNK` bytes are `head`. `detected`: whether the encoding was
    detected, so that a notice names it; `more` goes into the details."""
    notes = [*view.notes]
    if encoding.name != "utf-8" and detected:
        notes.append(f"decoded from {encoding.name}")
    lines = PAGE_LINES * MAX_JOINED if isinstance(view.limit, UnsetType) else view.limit
    want = Want(view.offset, view.cursor, lines, view.max_weight)
    page = await take_page(file, encoding, head, want)
    size = max(file.info.size, len(head))
    if page.damaged:
        notes.append(f"bytes that are not valid {encoding.name} are shown as \ufffd")
    if page.shrank:
        notes.append("the file was truncated while it was being read")
    notes += _position(page, want, size)
    # Newlines alone would only make the notice harder to find.
    text = page.text if page.text.strip("\n") else ""
    details = {"path": view.path, "kind": "text", **_facts(page, size), **more}
    if encoding.name != "utf-8" or encoding.mark:
        details["encoding"] = "utf-8-sig" if encoding.name == "utf-8" else encoding.name
    return Result.text(view.finish(text, notes), **details)


async def show_hex(file: OpenFile, head: bytes, view: FileView) -> Result:
    size = max(file.info.size, len(head))
    at = (view.offset - 1) * ROW
    # Offsets in large files have more than eight digits.
    count = view.max_weight // (ROW_CHARS - 8 + max(8, len(f"{size:x}")))
    if not isinstance(view.limit, UnsetType):
        count = min(count, view.limit)
    lines = hex_dump(await file.read(count * ROW, at), at) if at < size else []
    total = -(-size // ROW)
    following = view.offset + len(lines)
    goes_on = bool(lines) and following <= total
    page = TextPage("\n".join(lines), len(lines), (following, 0) if goes_on else None, total)
    notes = [*view.notes, *(["16 bytes per line"] if goes_on else [])]
    notes += _position(page, Want(view.offset, 0, count, 0), size)
    text = view.finish(page.text, notes)
    return Result.text(text, path=view.path, kind="hex", **_facts(page, size))


def page_bytes(context_window: int | None, *, joined: bool = True) -> int:
    """Maximum weight of one result: one page or, if joined, a fifth of the model's context window
    within bounds; never more than a result may have."""
    share = int((context_window or 0) * CHARS_PER_TOKEN * CONTEXT_SHARE) if joined else 0
    page = max(PAGE_BYTES, min(share, MAX_PAGE_BYTES, MAX_JOINED * PAGE_BYTES))
    room = min(result_cap(context_window), weight_cap(context_window)) - NOTICE_ROOM
    return max(MIN_PAGE_BYTES, min(page, room))


def _position(page: TextPage, want: Want, size: int) -> list[str]:
    """Position of the page in the file, and how to continue; empty at the end of the file."""
    line, cursor = page.next or (0, 0)
    total = page.total_lines
    of = f"of {total}" if total is not None else f"of a file of {human_size(size)}"
    if page.lines:
        end = want.line + page.lines - 1
        said = f"lines {want.line}-{end} {of}" if page.next else ""
        if cursor:
            of = f"of {page.line_chars}" if page.line_chars is not None else of
            said = f"line {line} is shown in part (characters {want.cursor}-{cursor} {of})"
        elif not page.text.strip():
            said = f"lines {want.line}-{end} {of} are blank"
    elif page.line_chars is not None:
        said = f"nothing at cursor={want.cursor}: line {want.line} has {page.line_chars} characters"
    elif total:
        said = f"nothing at offset={want.line}: the file has {total} line{'s' * (total > 1)}"
    else:
        said = f"the file is empty ({size} bytes)"
    if page.next:
        said += f"; continue with offset={line}" + (f" cursor={cursor}" if cursor else "")
    return [said] if said else []


def _facts(page: TextPage, size: int) -> dict[str, Any]:
    line, cursor = page.next or (0, 0)
    truncation: dict[str, Any] = {
        "truncated": page.next is not None,
        "outputLines": page.lines,
        "firstLineExceedsLimit": cursor > 0,
        "totalBytes": size,
    }
    if page.total_lines is not None:
        truncation["totalLines"] = page.total_lines
    facts: dict[str, Any] = {"truncation": truncation}
    if page.endings != "lf":
        facts["lineEndings"] = page.endings
    if not page.final_newline:
        facts["finalNewline"] = False
    if page.next:
        facts["continuation"] = {"kind": "line", "offset": line}
    if cursor:
        facts["continuation"] = {"kind": "cursor", "offset": line, "cursor": cursor}
    return facts


async def show_picture(file: OpenFile, view: FileView, ctx: Context) -> Result:
    data = await read_all(file, MAX_PICTURE_BYTES)
    picture = await fit_picture(data, ctx)
    width, height = picture.original
    details = {
        "path": view.path,
        "kind": "image",
        "mimeType": picture.mime_type,
        "width": picture.width,
        "height": picture.height,
        "original": {"width": width, "height": height, "mimeType": picture.original_type},
        "totalBytes": len(data),
    }
    notice = with_notes("", (*view.notes, _sizes(picture, len(data))))
    return Result((image_block(picture), Text(notice)), details)


async def fit_picture(data: bytes, ctx: Context) -> Picture:
    """An image scaled to what the model accepts. Raises `ToolError`."""
    given = ctx.services.get(ImageLimits)
    limits = given if isinstance(given, ImageLimits) else ImageLimits()
    media = ctx.use(Media)
    return await media.picture(data, max_side=limits.max_side, max_bytes=limits.max_bytes)


def _sizes(picture: Picture, size: int) -> str:
    width, height = picture.original
    text = f"{picture.original_type}, {width}x{height} pixels, {human_size(size)}"
    if (picture.width, picture.height) != picture.original:
        factor = f"{width / picture.width:.3g}"
        shown = f"{picture.width}x{picture.height}"
        return f"{text}; shown at {shown}: multiply coordinates by {factor} for the original"
    changed = picture.mime_type != picture.original_type
    return f"{text}; shown as {picture.mime_type}" if changed else text


def image_block(picture: Picture) -> Image:
    return Image(binascii.b2a_base64(picture.data, newline=False).decode(), picture.mime_type)


def read_range(text: str) -> tuple[int, int]:
    """Parse `3`, `1-5` or `7-` into the first and the last page; an empty text means the first
    pages. Raises `ToolInputError`."""
    if not text.strip():
        return 1, DOCUMENT_PAGES
    found = re.fullmatch(r"\s*([0-9]{1,6})\s*(?:(-)\s*([0-9]{1,6})?)?\s*", text)
    first = last = int(found[1]) if found else 0
    if found and found[2]:
        last = int(found[3]) if found[3] else first + DOCUMENT_PAGES - 1
    if first < 1 or last < first:
        raise ToolInputError(f"pages={text[:40]!r} is not a page range; try '3' or '1-5'")
    return first, min(last, first + MAX_DOCUMENT_PAGES - 1)


async def show_document(file: OpenFile, view: FileView, pages: str, ctx: Context) -> Result:
    """Pages of a document: their text, or images of pages without text. `cursor` skips that many
    characters of the first page."""
    first, last = read_range(pages)
    data = await read_all(file, MAX_DOCUMENT_BYTES)
    document = await ctx.use(PageReader).pages(data, first, last)
    blocks: list[Block] = []
    room, shown, cut, part_of = view.max_weight, 0, 0, ""
    for page in document.pages:
        cursor = view.cursor if page.number == first else 0
        text = page.text[cursor:].rstrip()
        if not text and page.picture is None:
            # The number of images in one result is limited.
            is_drawn = any(isinstance(block, Image) for block in blocks)
            drawn = f'; pages="{page.number}" may show it as an image' if is_drawn else ""
            text = f"(no text on this page{drawn})"
        part = f"[page {page.number}]" + (text and f"\n{text}")
        if weigh(part) + 2 > room:
            if shown:
                break
            size = fitting(part, room)
            cut = cursor + size - len(part) + len(text)
            part, part_of = part[:size], f"characters {cursor}-{cut} of {len(page.text)}"
        room -= weigh(part) + 2
        _add_text(blocks, part)
        if page.picture is not None:
            blocks.append(image_block(page.picture))
        shown = page.number
        if cut:
            break
    total, following = document.total, shown + (not cut)
    details: dict[str, Any] = {"pages": f"{first}-{shown}", "totalPages": total}
    notes = view.notes
    if following <= total:
        end = min(following + last - first, total)
        again: dict[str, Any] = {"pages": f"{following}-{end}" if end > following else f"{end}"}
        said = f"pages {first}-{shown} of {total}"
        if cut:
            again["cursor"] = cut
            said = f"page {shown} is shown in part ({part_of})"
        details["continuation"] = {"kind": "pages", **again}
        how = " ".join(f"{key}={json.dumps(value)}" for key, value in again.items())
        notes = (*notes, f"{said}; continue with {how}")
    if notes:
        _add_text(blocks, with_notes("", notes))
    truncation = {"truncated": following <= total, "totalBytes": len(data)}
    facts = {"path": view.path, "kind": "document", "truncation": truncation, **details}
    return Result(tuple(blocks), facts)


def _add_text(blocks: list[Block], text: str) -> None:
    last = blocks[-1] if blocks else None
    if isinstance(last, Text):
        blocks[-1] = Text(f"{last.text}\n\n{text}")
    else:
        blocks.append(Text(text))
