"""Tavily: results with excerpts, and sometimes an answer."""

from __future__ import annotations

from clawkit.web.search.checks import split_domains
from clawkit.web.search.protocols import Query, SearchAnswer
from clawkit.web.search.wire import ProviderSetup, Steps, listed, post, read_hits


def search(query: Query, setup: ProviderSetup) -> Steps:
    only, never = split_domains(query.domain_filter)
    body = {
        "query": query.query,
        "max_results": query.count,
        "time_range": query.freshness,
        "include_domains": only,
        "exclude_domains": never,
    }
    reply = yield post(setup, "/search", body, setup.bearer)
    return SearchAnswer(read_hits(listed(reply.data, "results"), "content", "published_date"))
