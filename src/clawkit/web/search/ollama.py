"""Ollama: its web search, with a key, or through a local Ollama that is signed in."""

from __future__ import annotations

from clawkit.web.search.protocols import Query, SearchAnswer
from clawkit.web.search.wire import ProviderSetup, Steps, listed, post, read_hits


def search(query: Query, setup: ProviderSetup) -> Steps:
    path = "/api/web_search" if setup.key else "/api/experimental/web_search"
    body = {"query": query.query, "max_results": query.count}
    reply = yield post(setup, path, body, setup.bearer)
    return SearchAnswer(read_hits(listed(reply.data, "results"), "content"))
