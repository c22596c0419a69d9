"""Firecrawl, a service that renders pages: for those that cannot be read otherwise."""

from __future__ import annotations

from typing import Any

import msgspec

from clawkit.config.sections.web import Firecrawl
from clawkit.errors import ToolError
from clawkit.external import defuse
from clawkit.net.client import Client
from clawkit.net.route import NetError
from clawkit.text import one_line

_MAX_BYTES = 16_000_000


class _PageMetadata(msgspec.Struct, frozen=True):
    title: str | list[str] | None = None
    source_url: str | None = msgspec.field(default=None, name="sourceURL")
    status_code: int | None = msgspec.field(default=None, name="statusCode")


class _ScrapedData(msgspec.Struct, frozen=True):
    markdown: str | None = None
    metadata: _PageMetadata = _PageMetadata()


class _ScrapeAnswer(msgspec.Struct, frozen=True):
    success: bool = False
    data: _ScrapedData | None = None
    error: Any = None


class Scraped(msgspec.Struct, frozen=True):
    title: str
    markdown: str
    url: str
    status: int


async def scrape(client: Client, url: str, key: str, settings: Firecrawl) -> Scraped:
    """A page as Firecrawl sees it. Raises `ToolError`."""
    body = {
        "url": url,
        "formats": ["markdown"],
        "onlyMainContent": settings.only_main_content,
        "maxAge": settings.max_age_ms,
        "proxy": settings.proxy,
        "storeInCache": settings.store_in_cache,
        "timeout": round(settings.timeout_seconds * 1000),
    }
    headers = {"Authorization": f"Bearer {key}", "Content-Type": "application/json"}
    where = f"{settings.base_url.rstrip('/')}/v2/scrape"
    try:
        async with client.stream(
            "POST",
            where,
            headers=headers,
            body=msgspec.json.encode(body),
            timeout_s=settings.timeout_seconds + 5,
        ) as response:
            raw = await response.read(_MAX_BYTES)
            status = response.status
    except NetError as error:
        raise ToolError(f"Firecrawl cannot be reached: {error}") from None
    try:
        answer = msgspec.json.decode(raw, type=_ScrapeAnswer)
    except (msgspec.DecodeError, RecursionError, UnicodeDecodeError):
        raise ToolError(f"Firecrawl answered {status} without a valid result") from None
    if status != 200 or not answer.success or answer.data is None or not answer.data.markdown:
        raise ToolError(
            f"Firecrawl answered {status}: {one_line(defuse(str(answer.error or '')), 200)}"
        )
    about = answer.data.metadata
    title = about.title if isinstance(about.title, str) else " ".join(about.title or ())
    return Scraped(title, answer.data.markdown, about.source_url or url, about.status_code or 200)
