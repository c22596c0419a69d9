"""Perplexity: its search, or an answer of its model, directly or by OpenRouter."""

from __future__ import annotations

from msgspec.structs import replace

from clawkit.web.search.protocols import Query, SearchAnswer
from clawkit.web.search.table import OPENROUTER_KEY
from clawkit.web.search.wire import (
    ProviderSetup,
    Steps,
    as_text,
    listed,
    pick,
    post,
    read_citations,
    read_hits,
    unreadable,
)

_OPENROUTER = "https://openrouter.ai/api/v1"


def search(query: Query, setup: ProviderSetup) -> Steps:
    if setup.mode == "chat":
        return (yield from _chat(query, setup))
    body = {
        "query": query.query,
        "max_results": query.count,
        "country": query.country.upper(),
        "search_recency_filter": query.freshness,
        "search_language_filter": [query.language] if query.language else [],
        "search_domain_filter": query.domain_filter,
        "search_after_date_filter": _day(query.date_after),
        "search_before_date_filter": _day(query.date_before),
        "max_tokens": query.max_tokens,
        "max_tokens_per_page": query.max_tokens_per_page,
    }
    reply = yield post(setup, "/search", body, setup.bearer)
    return SearchAnswer(read_hits(listed(reply.data, "results"), "snippet", "date"))


def _chat(query: Query, setup: ProviderSetup) -> Steps:
    model = setup.options.get("model", "perplexity/sonar-pro")
    if not setup.key.startswith(OPENROUTER_KEY):
        model = model.removeprefix("perplexity/")
    elif not setup.is_own:
        setup = replace(setup, base_url=_OPENROUTER)
    body = {
        "model": model,
        "messages": [{"role": "user", "content": query.query}],
        "search_recency_filter": query.freshness,
    }
    reply = yield post(setup, "/chat/completions", body, setup.bearer)
    message = pick(reply.data, "choices.0.message")
    if not (text := as_text(pick(message, "content"))):
        raise unreadable("no answer")
    sources = pick(reply.data, "citations") or pick(message, "annotations")
    return SearchAnswer(text=text, citations=read_citations(sources))


def _day(day: str) -> str:
    """A day as month/day/year."""
    year, _, rest = day.partition("-")
    month, _, number = rest.partition("-")
    return f"{int(month)}/{int(number)}/{year}" if day else ""
