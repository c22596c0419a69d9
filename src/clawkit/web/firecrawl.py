"""Firecrawl, a service that renders pages that cannot be read otherwise."""

from __future__ import annotations

import time

import msgspec

from clawkit.config.sections.web import Firecrawl
from clawkit.errors import ToolError
from clawkit.external import defuse
from clawkit.net.client import Client
from clawkit.net.route import NetError
from clawkit.text import one_line
from clawkit.web.protocols import FetchedPage
from clawkit.web.search.protocols import SearchError
from clawkit.web.search.search_api import as_text, decode, pick

_MAX_BYTES = 16_000_000


async def scrape(client: Client, url: str, key: str, settings: Firecrawl) -> FetchedPage:
    """A page as rendered by Firecrawl, not validated. Raises `ToolError`."""
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
    data, wait_s = msgspec.json.encode(body), settings.timeout_seconds + 5
    try:
        async with client.stream(
            "POST", where, headers=headers, body=data, timeout_s=wait_s
        ) as response:
            answer, status = decode(await response.read(_MAX_BYTES)), response.status
    except NetError as error:
        raise ToolError(f"Firecrawl cannot be reached: {error}") from None
    except SearchError:
        raise ToolError(f"Firecrawl answered {response.status} without a valid result") from None
    markdown = as_text(pick(answer, "data.markdown"))
    if status != 200 or answer.get("success") is not True or not markdown:
        said = one_line(defuse(str(answer.get("error") or "")), 200, whole_words=True)
        raise ToolError(f"Firecrawl answered {status}: {said}")
    about = pick(answer, "data.metadata")
    seen = pick(about, "statusCode")
    return FetchedPage(
        final_url=as_text(pick(about, "sourceURL")) or url,
        status=seen if isinstance(seen, int) else status,
        content_type="text/markdown",
        extractor="firecrawl",
        fetched_at=time.time(),
        title=as_text(pick(about, "title")),
        text=markdown,
        size=len(markdown),
    )
