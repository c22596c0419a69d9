"""Parallel: excerpts of pages, made for language models."""

from __future__ import annotations

from clawkit.web.search.protocols import Query, SearchAnswer
from clawkit.web.search.wire import ProviderSetup, Steps, listed, post, read_hits


def search(query: Query, setup: ProviderSetup) -> Steps:
    body = {
        "objective": query.query,
        "search_queries": [query.query],
        "advanced_settings": {"max_results": query.count},
    }
    reply = yield post(setup, "/v1/search", body, {"x-api-key": setup.key})
    return SearchAnswer(read_hits(listed(reply.data, "results"), "excerpts", "publish_date"))
