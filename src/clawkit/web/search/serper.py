"""Serper: results of Google."""

from __future__ import annotations

from clawkit.web.search.protocols import Query, SearchAnswer
from clawkit.web.search.wire import ProviderSetup, Steps, listed, post, read_hits


def search(query: Query, setup: ProviderSetup) -> Steps:
    body = {
        "q": query.query,
        "num": query.count,
        "gl": query.country.lower(),
        "hl": query.language.lower(),
        "tbs": query.freshness and f"qdr:{query.freshness[0]}",
    }
    reply = yield post(setup, "/search", body, {"X-API-KEY": setup.key})
    return SearchAnswer(read_hits(listed(reply.data, "organic"), "snippet", "date", url="link"))
