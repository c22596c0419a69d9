"""Firecrawl: search for crawlers; without a key, its free tier."""

from __future__ import annotations

from clawkit.web.search.protocols import Query, SearchAnswer, SearchError
from clawkit.web.search.wire import ProviderSetup, Steps, as_text, listed, pick, post, read_hits


def search(query: Query, setup: ProviderSetup) -> Steps:
    reply = yield post(
        setup, "/v2/search", {"query": query.query, "limit": query.count}, setup.bearer
    )
    data = reply.data
    if data.get("success") is False:
        raise SearchError("provider_error", "reported a failure", as_text(data.get("message")))
    path = "data" if isinstance(pick(data, "data"), list) else "data.web"
    return SearchAnswer(read_hits(listed(data, path), "description markdown"))
