"""Exa: search by meaning, with highlights of each page."""

from __future__ import annotations

from clawkit.web.search.checks import period_of, split_domains
from clawkit.web.search.protocols import Query, SearchAnswer
from clawkit.web.search.wire import ProviderSetup, Steps, listed, post, read_hits


def search(query: Query, setup: ProviderSetup) -> Steps:
    only, never = split_domains(query.domain_filter)
    after, before = period_of(query)
    body = {
        "query": query.query,
        "numResults": query.count,
        "type": setup.options.get("type", "auto"),
        "contents": {"highlights": True},
        "includeDomains": only,
        "excludeDomains": never,
        "startPublishedDate": after and f"{after}T00:00:00.000Z",
        "endPublishedDate": before and f"{before}T23:59:59.999Z",
    }
    reply = yield post(setup, "/search", body, {"x-api-key": setup.key})
    hits = read_hits(listed(reply.data, "results"), "highlights summary text", "publishedDate")
    return SearchAnswer(hits)
