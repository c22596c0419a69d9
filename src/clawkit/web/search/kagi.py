"""Kagi: results without advertisements."""

from __future__ import annotations

from clawkit.web.search.protocols import Query, SearchAnswer
from clawkit.web.search.wire import ProviderSetup, Steps, get, listed, read_hits


def search(query: Query, setup: ProviderSetup) -> Steps:
    params = {"q": query.query, "limit": query.count}
    headers = {"Authorization": f"Bot {setup.key}"}
    reply = yield get(setup, "/api/v1/search", params, headers)
    results = [each for each in listed(reply.data, "data") if each.get("t") == 0]
    return SearchAnswer(read_hits(results, "snippet", "published"))
