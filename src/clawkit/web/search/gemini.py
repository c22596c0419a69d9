"""Gemini: an answer of Google's model, with the pages it was made from."""

from __future__ import annotations

import asyncio
from contextlib import suppress

from msgspec.structs import replace

from clawkit.net.addresses import parse_url
from clawkit.net.route import NetError
from clawkit.web.search.exchange import Api, answer, listed, pick
from clawkit.web.search.protocols import Query, SearchAnswer, SearchHit
from clawkit.web.search.query import period_of

_MODEL = "gemini-3.6-flash"
_REDIRECTS = "https://vertexaisearch.cloud.google.com"
"""Addresses of sources are there, and only lead to the real ones."""


async def ask_gemini(query: Query, api: Api) -> SearchAnswer:
    after, before = period_of(query, closed=True)
    period = {"startTime": f"{after}T00:00:00Z", "endTime": f"{before}T23:59:59Z"}
    body = {
        "contents": [{"role": "user", "parts": [{"text": query.query}]}],
        "tools": [{"google_search": {"timeRangeFilter": period} if after else {}}],
    }
    path = f"/models/{api.options.get('model', _MODEL)}:generateContent"
    found = pick((await api.post(path, body, {"x-goog-api-key": api.key})).data, "candidates.0")
    parts = listed(found, "content.parts", optional=True)
    text = [part.get("text") for part in parts if not part.get("thought")]
    said = answer(text, listed(found, "groundingMetadata.groundingChunks", optional=True))
    pages = await asyncio.gather(*(_follow(page, api) for page in said.citations))
    return replace(said, citations=tuple(pages))


async def _follow(page: SearchHit, api: Api) -> SearchHit:
    with suppress(NetError):
        known = [parse_url(each).origin for each in (_REDIRECTS, api.base_url)]
        if parse_url(page.url).origin in known:
            target = await api.location(page.url)
            return replace(page, url=parse_url(target).url)
    return page
