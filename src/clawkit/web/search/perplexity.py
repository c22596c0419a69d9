"""Perplexity: its search, or an answer of its model, directly or by OpenRouter."""

from __future__ import annotations

import re

from msgspec.structs import replace

from clawkit.web.search.exchange import Api, answer, listed, pick, results
from clawkit.web.search.protocols import Query, SearchAnswer
from clawkit.web.search.table import OPENROUTER_KEY

_OPENROUTER = "https://openrouter.ai/api/v1"


async def ask_perplexity(query: Query, api: Api) -> SearchAnswer:
    if api.mode == "chat":
        return await _chat(query, api)
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
    data = (await api.post("/search", body, api.bearer)).data
    return results(listed(data, "results"), "snippet", "date")


async def _chat(query: Query, api: Api) -> SearchAnswer:
    model = api.options.get("model", "perplexity/sonar-pro")
    if not api.key.startswith(OPENROUTER_KEY):
        model = model.removeprefix("perplexity/")
    elif not api.is_own:
        api = replace(api, base_url=_OPENROUTER)
    body = {
        "model": model,
        "messages": [{"role": "user", "content": query.query}],
        "search_recency_filter": query.freshness,
    }
    data = (await api.post("/chat/completions", body, api.bearer)).data
    message = pick(data, "choices.0.message")
    return answer(pick(message, "content"), data.get("citations") or pick(message, "annotations"))


def _day(day: str) -> str:
    """A day as month/day/year."""
    return re.sub("(.+)-0?(.+)-0?(.+)", r"\2/\3/\1", day)
