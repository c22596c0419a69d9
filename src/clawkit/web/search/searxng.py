"""SearXNG: a search engine that people run themselves."""

from __future__ import annotations

from clawkit.web.search.protocols import Query, SearchAnswer
from clawkit.web.search.wire import ProviderSetup, Steps, get, listed, read_hits


def search(query: Query, setup: ProviderSetup) -> Steps:
    params = {
        "format": "json",
        "q": query.query,
        "language": query.language or setup.options.get("language"),
        "categories": setup.options.get("categories"),
        "time_range": query.freshness,
    }
    reply = yield get(setup, "/search", params, setup.bearer)
    return SearchAnswer(read_hits(listed(reply.data, "results"), "content", "publishedDate"))
