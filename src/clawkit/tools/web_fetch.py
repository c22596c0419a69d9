"""web_fetch: a page of the web as readable text."""

import time
from dataclasses import replace
from functools import partial
from typing import Annotated, Any
from urllib.parse import urlsplit

import msgspec
from msgspec import UNSET, UnsetType

from clawkit.config.model import Config
from clawkit.content import Block, Text
from clawkit.core.context import Context, Scope
from clawkit.core.result import Result
from clawkit.core.tool import Effect, Tool
from clawkit.errors import ToolInputError
from clawkit.external import NOTICE, defuse, wrap_external
from clawkit.text import human_size, one_line, result_cap, weigh, weight_cap
from clawkit.tools._params import doc
from clawkit.web.protocols import MAX_TEXT, ExtractMode, FetchedPage, WebPages

MAX_CHARS = 50_000
"""Default maximum of characters in a result."""
MIN_CHARS = 100
MAX_URL, MAX_TITLE, MAX_WARNING = 2_048, 256, 256
NOTES_ROOM = 1_200
PDF_PAGES = 20
PROGRESS_S = 5.0


class Params(msgspec.Struct, frozen=True, forbid_unknown_fields=True, rename="camel"):
    url: Annotated[str, doc("Address to fetch, http or https", min_length=1)]
    extract_mode: Annotated[ExtractMode, doc("Markdown with links, or plain text")] = "markdown"
    max_chars: Annotated[int, doc("Maximum characters", ge=MIN_CHARS)] | UnsetType = UNSET
    offset: Annotated[int, doc("Characters of the page to skip", ge=0)] = 0


async def execute(
    params: Params, ctx: Context, *, default: int = MAX_CHARS, cap: int = MAX_CHARS
) -> Result:
    """Characters are limited to `default`, or to the limit in the call, at most `cap`."""
    import asyncio  # not needed to describe the tool

    async def report() -> None:
        await asyncio.sleep(PROGRESS_S)
        await ctx.update(f"Fetching {one_line(params.url, 100)} …")

    started, pages = time.monotonic(), ctx.use(WebPages)
    reporting = asyncio.create_task(report())
    try:
        page = await pages.fetch(params.url, params.extract_mode, ctx.permits)
        text, blocks = await _content(page, ctx)
    finally:
        reporting.cancel()
    if params.offset and params.offset >= len(text):
        raise ToolInputError(f"offset={params.offset}: the page has {len(text):,} characters")
    wanted = default if isinstance(params.max_chars, UnsetType) else params.max_chars
    shown, end = _fit(text, params.offset, page, min(wanted, cap), ctx)
    details: dict[str, Any] = {
        "url": one_line(params.url, MAX_URL),
        "finalUrl": one_line(page.final_url, MAX_URL),
        "status": page.status,
        "contentType": page.content_type,
        "extractMode": params.extract_mode,
        "extractor": page.extractor,
        "externalContent": {"untrusted": True, "source": "web_fetch", "wrapped": True},
        "truncated": end < len(text),
        "length": len(shown),
        "rawLength": len(text),
        "bytes": page.size,
        "fetchedAt": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(page.fetched_at)),
        "tookMs": round((time.monotonic() - started) * 1000),
        "cached": page.is_cached,
    }
    if page.title:
        details["title"] = one_line(defuse(page.title), MAX_TITLE)
    if page.signal:
        details["contentSignal"] = defuse(page.signal)
    notes = list(page.warnings)
    if notes:
        details["warning"] = one_line("; ".join(notes), MAX_WARNING)
    if page.final_url.rstrip("/") != params.url.rstrip("/"):
        notes.insert(0, f"redirected to {urlsplit(page.final_url).netloc}; see the source above")
    if end < len(text) or params.offset:
        notes.append(f"characters {params.offset:,}-{end:,} of {len(text):,}")
    if end < len(text):
        notes[-1] += f"; continue with offset={end}"
        if path := await pages.save(text, page.final_url):
            is_cut = len(page.text) >= MAX_TEXT
            details["spill"] = {"path": path, "chars": len(text), "truncated": is_cut}
            notes.append(f"saved in {path}")
    parts = (shown, f"[{'; '.join(notes)}]" if notes else "")
    return Result((*blocks, Text("\n\n".join(filter(None, parts)))), details)


async def _content(page: FetchedPage, ctx: Context) -> tuple[str, tuple[Block, ...]]:
    """The text of a page, and its pictures."""
    if page.extractor == "image":
        from clawkit.tools._show import fit_picture, image_block

        picture = await fit_picture(page.data, ctx)
        width, height = picture.original
        size = human_size(len(page.data))
        about = f"{picture.original_type}, {width}x{height} pixels, {size}"
        return about, (image_block(picture),)
    if page.extractor == "pdf":
        from clawkit.media.protocols import PageReader
        from clawkit.tools._show import image_block

        found = await ctx.use(PageReader).pages(page.data, 1, PDF_PAGES)
        parts = [f"[page {each.number} of {found.total}]\n{each.text}" for each in found.pages]
        if found.total > PDF_PAGES:
            parts.append(f"[the other {found.total - PDF_PAGES} pages are not shown]")
        pictures = (image_block(each.picture) for each in found.pages if each.picture)
        return "\n\n".join(parts), tuple(pictures)
    if page.extractor == "binary":
        type_ = page.content_type or "unknown type"
        return f"(not text: {type_}, {human_size(page.size)}; not shown)", ()
    return page.text, ()


def _fit(
    text: str, offset: int, page: FetchedPage, max_chars: int, ctx: Context
) -> tuple[str, int]:
    """The part of a text from `offset` on, marked as external, and its end offset. With marks it
    has at most `max_chars` and fits the model, but always contains some of the text."""
    window = ctx.scope.context_window
    max_weight = min(result_cap(window), weight_cap(window)) - NOTES_ROOM
    title = f"Title: {page.title}\n\n" if page.title and not offset else ""
    room = max_chars
    while True:
        end = offset + max(MIN_CHARS, room)
        if end < len(text):
            line = text.rfind("\n", offset + (end - offset) * 4 // 5, end)
            end = line + 1 if line > 0 else end
        part = text[offset:end]
        shown = f"{NOTICE}\n{wrap_external(title + part, page.final_url)}"
        over = max(len(shown) - max_chars, (weigh(shown) - max_weight) * len(part) // weigh(shown))
        if over <= 0 or room <= MIN_CHARS:
            return shown, min(end, len(text))
        room = min(room, len(part)) - over


def effects(params: Params, _ctx: Context) -> tuple[Effect, ...]:
    return (Effect("network", f"url:{params.url}"),)


TOOL = Tool(
    name="web_fetch",
    label="Fetch",
    description=(
        "Fetch a URL as readable text: web pages, JSON, feeds, PDFs, images. Long pages come in "
        "parts; a notice at the end says how to continue."
    ),
    parameters=Params,
    execute=execute,
    effects=effects,
    aliases={
        **dict.fromkeys(("uri", "link", "address", "href"), "url"),
        **dict.fromkeys(("mode", "format"), "extractMode"),
        "start_index": "offset",
        "max_length": "maxChars",
    },
    urls=("url",),
    unsupported={
        "headers": "headers are set in tools.web.fetch.headers",
        "prompt": "it returns the page itself; read it",
    },
)


def make_tool(config: Config, _scope: Scope) -> Tool | str:
    if config.tools.web is None:
        return TOOL
    settings = config.tools.web.fetch
    if not settings.enabled:
        return "tools.web.fetch.enabled is false"
    limited = partial(execute, default=settings.max_chars, cap=settings.max_chars_cap)
    return replace(TOOL, execute=limited)
