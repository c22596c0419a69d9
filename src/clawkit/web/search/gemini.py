"""Gemini: an answer of Google's model, with the pages it was made from."""

from __future__ import annotations

from clawkit.web.search.checks import period_of
from clawkit.web.search.protocols import Query, SearchAnswer
from clawkit.web.search.wire import (
    ProviderSetup,
    Steps,
    as_text,
    listed,
    pick,
    post,
    read_citations,
    unreadable,
)

_MODEL = "gemini-3.6-flash"


def search(query: Query, setup: ProviderSetup) -> Steps:
    after, before = period_of(query, closed=True)
    period = {"startTime": f"{after}T00:00:00Z", "endTime": f"{before}T23:59:59Z"}
    body = {
        "contents": [{"role": "user", "parts": [{"text": query.query}]}],
        "tools": [{"google_search": {"timeRangeFilter": period} if after else {}}],
    }
    path = f"/models/{setup.options.get('model', _MODEL)}:generateContent"
    reply = yield post(setup, path, body, {"x-goog-api-key": setup.key})
    found = pick(reply.data, "candidates.0")
    parts = listed(found, "content.parts", optional=True)
    if not (text := as_text([part.get("text") for part in parts if not part.get("thought")])):
        raise unreadable("no answer")
    chunks = listed(found, "groundingMetadata.groundingChunks", optional=True)
    pages = [{"url": pick(each, "web.uri"), "title": pick(each, "web.title")} for each in chunks]
    return SearchAnswer(text=text, citations=read_citations(pages))
