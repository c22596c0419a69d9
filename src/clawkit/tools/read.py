"""read: a file's text, page by page."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Annotated

import msgspec
from msgspec import Meta

from clawkit.core.context import Context
from clawkit.core.effects import Effect, file_resource
from clawkit.core.result import Result
from clawkit.core.tool import Tool
from clawkit.errors import ToolInputError
from clawkit.fs.base import File, FileSystem
from clawkit.text import human_size, result_cap, weigh, weight_cap

PAGE_LINES = 2000
PAGE_BYTES = 50 * 1024
MAX_PAGE_BYTES = 512 * 1024
CONTEXT_SHARE = 0.2
CHARS_PER_TOKEN = 4
COUNT_BELOW_BYTES = 16 * 1024 * 1024
MIN_PAGE_BYTES = 200
"""Even for the smallest of models: a page must hold something."""
NOTICE_ROOM = 400
CHUNK = 256 * 1024


class Params(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Parameters of read."""

    path: Annotated[
        str, Meta(description="File to read, relative to the workspace or absolute", min_length=1)
    ]
    offset: Annotated[int, Meta(description="First line to show, counted from 1", ge=1)] = 1
    limit: Annotated[int, Meta(description="How many lines to show at most", ge=1, le=100_000)] = (
        PAGE_LINES
    )


class _Page(msgspec.Struct):
    """What was taken from the file."""

    lines: list[str] = []
    size: int = 0
    seen: int = 0
    more: bool = False
    cut_line: bool = False
    counted: bool = True


async def execute(params: Params, ctx: Context) -> Result:
    budget = page_bytes(ctx.scope.context_window)
    async with ctx.use(FileSystem).open(params.path) as file:
        page = await _take(file, params, budget)
        return _render(params, page, file.size)


def page_bytes(context_window: int | None) -> int:
    """A fifth of the model's window, within bounds, and never more than a result holds."""
    share = int((context_window or 0) * CHARS_PER_TOKEN * CONTEXT_SHARE)
    page = max(PAGE_BYTES, min(share, MAX_PAGE_BYTES))
    room = min(result_cap(context_window), weight_cap(context_window)) - NOTICE_ROOM
    return max(MIN_PAGE_BYTES, min(page, room))


async def _take(file: File, params: Params, budget: int) -> _Page:
    """The wanted lines, in constant memory; lines after them are counted in small files only."""
    page = _Page(lines=[])
    last = params.offset + params.limit - 1
    async for line, whole in _lines(file, budget):
        page.seen += 1
        if page.more or page.seen < params.offset:
            continue
        text = line.decode("utf-8", "replace").removesuffix("\r")
        # By what it costs the model, or the result would be cut where no notice says so.
        size = max(len(line), weigh(text)) + 1
        if page.seen > last or (page.lines and page.size + size > budget):
            page.more = True
            page.counted = file.size <= COUNT_BELOW_BYTES
            if not page.counted:
                break
            continue
        page.lines.append(text)
        page.size += size
        page.cut_line = page.cut_line or not whole
    return page


async def _lines(file: File, max_line: int) -> AsyncIterator[tuple[bytes, bool]]:
    """Each line without its newline, long ones cut; False with a line that was cut."""
    rest, cut, first = b"", False, True
    while chunk := await file.read(CHUNK):
        if first and b"\0" in chunk[:8192]:
            raise ToolInputError(f"this is a binary file ({human_size(file.size)}), not text")
        if first:
            chunk, first = chunk.removeprefix(b"\xef\xbb\xbf"), False
        head, *others = chunk.split(b"\n")
        rest, cut = rest + head[: max_line - len(rest)], cut or len(rest) + len(head) > max_line
        for line in others:
            yield rest, not cut
            rest, cut = line[:max_line], len(line) > max_line
        await _breathe()
    if rest or cut:
        yield rest, not cut


async def _breathe() -> None:
    """Let others run, and a cancellation come through, while a large file is read."""
    import asyncio

    await asyncio.sleep(0)


def _render(params: Params, page: _Page, size: int) -> Result:
    shown = len(page.lines)
    end = params.offset + shown - 1
    truncation = {
        "truncated": page.more or page.cut_line,
        "outputLines": shown,
        "firstLineExceedsLimit": page.cut_line and shown == 1,
        "totalBytes": size,
    }
    if page.counted:
        truncation["totalLines"] = page.seen
    if not shown:
        notes = [_nothing(params, page, size)]
    else:
        notes = []
        if page.cut_line:
            notes.append("a line was too long and is shown in part")
        if page.more:
            total = f"of {page.seen}" if page.counted else f"of a file of {human_size(size)}"
            notes.append(f"lines {params.offset}-{end} {total}; go on with offset={end + 1}")
    text = "\n".join(page.lines)
    if notes:
        text += ("\n\n" if text else "") + f"[{'; '.join(notes)}]"
    details: dict[str, object] = {"path": params.path, "truncation": truncation}
    if page.more:
        details["continuation"] = {"kind": "line", "offset": end + 1}
    return Result.text(text, **details)


def _nothing(params: Params, page: _Page, size: int) -> str:
    if size == 0 or page.seen == 0:
        return f"the file is empty ({size} bytes)"
    return f"nothing at offset={params.offset}: the file has {page.seen} lines"


def effects(params: Params, ctx: Context) -> tuple[Effect, ...]:
    return (Effect("read", file_resource(ctx.workspace, params.path)),)


TOOL = Tool(
    name="read",
    label="Read",
    description=(
        "Read a text file. Long files come in pages of up to 2000 lines or 50 KB; a notice at the "
        "end says how to go on."
    ),
    parameters=Params,
    execute=execute,
    effects=effects,
    aliases={"file_path": "path", "file": "path", "filename": "path", "filepath": "path"},
    paths=("path",),
)
