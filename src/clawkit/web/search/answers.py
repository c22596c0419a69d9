"""Services that answer with text and sources: models that search."""

from __future__ import annotations

import asyncio
import re
from contextlib import suppress

from msgspec.structs import asdict, replace

from clawkit.net.addresses import parse_url
from clawkit.net.route import NetError
from clawkit.web.search.protocols import PostQuery, Query, SearchAnswer, SearchError, SearchHit
from clawkit.web.search.query import period_of
from clawkit.web.search.search_api import Api, answer, as_text, listed, pick, results
from clawkit.web.search.table import OPENROUTER_KEY

GEMINI_MODEL, GROK_MODEL, KIMI_MODEL = "gemini-3.6-flash", "grok-4.7", "kimi-k2.6"
_REDIRECTS = "https://vertexaisearch.cloud.google.com"
"""Host of Gemini's source URLs, which redirect to the real ones."""
_KIMI_TOOL, _ROUNDS = "$web_search", 4
_OPENROUTER = "https://openrouter.ai/api/v1"


async def ask_gemini(query: Query, api: Api) -> SearchAnswer:
    """Google's model."""
    after, before = period_of(query)
    period = {"startTime": f"{after}T00:00:00Z", "endTime": f"{before}T23:59:59Z"}
    body = {
        "contents": [{"role": "user", "parts": [{"text": query.query}]}],
        "tools": [{"google_search": {"timeRangeFilter": period} if after else {}}],
    }
    path = f"/models/{api.options.get('model', GEMINI_MODEL)}:generateContent"
    found = pick((await api.post(path, body, {"x-goog-api-key": api.key})).data, "candidates.0")
    parts = listed(found, "content.parts", optional=True)
    text = [part.get("text") for part in parts if not part.get("thought")]
    said = answer(text, listed(found, "groundingMetadata.groundingChunks", optional=True))
    pages = await asyncio.gather(*(_follow(page, api) for page in said.citations))
    return replace(said, citations=tuple(pages))


async def _follow(page: SearchHit, api: Api) -> SearchHit:
    with suppress(NetError):
        known = [parse_url(each).origin for each in (_REDIRECTS, api.base_url)]
        if parse_url(page.url).origin in known:
            target = await api.location(page.url)
            return replace(page, url=parse_url(target).url)
    return page


async def ask_grok(query: Query, api: Api) -> SearchAnswer:
    """xAI's model."""
    return await _ask_xai(api, query.query, {"type": "web_search"})


async def search_posts(query: PostQuery, api: Api) -> SearchAnswer:
    """Like `ask_grok`, about posts on X."""
    filters = {name: value for name, value in asdict(query).items() if value and name != "query"}
    return await _ask_xai(api, query.query, {"type": "x_search", **filters})


async def _ask_xai(api: Api, text: str, tool: dict[str, object]) -> SearchAnswer:
    body = {
        "model": api.options.get("model", GROK_MODEL),
        "input": [{"role": "user", "content": text}],
        "tools": [tool],
        "max_turns": int(api.options.get("maxTurns", "0")),
    }
    data = (await api.post("/responses", body, api.bearer)).data
    parts = [
        part
        for item in listed(data, "output")
        for part in listed(item, "content", optional=True)
        if part.get("type") == "output_text"
    ]
    texts = [part["text"] for part in parts if isinstance(part.get("text"), str)]
    if api.options.get("inlineCitations") == "false":
        texts = [re.sub(r" ?\[\[\d{1,4}\]\]\([^()\s]{1,2000}\)", "", each) for each in texts]
    noted = [note for part in parts for note in listed(part, "annotations", optional=True)]
    every = pick(data, "citations")
    return answer(texts, [*noted, *(every if isinstance(every, list) else ())])


async def ask_kimi(query: Query, api: Api) -> SearchAnswer:
    """Moonshot's model, which searches on its own server on request."""
    messages: list[dict[str, object]] = [{"role": "user", "content": query.query}]
    sources: list[object] = []
    for number in range(_ROUNDS):
        body = {
            "model": api.options.get("model", KIMI_MODEL),
            "messages": messages,
            "tools": [{"type": "builtin_function", "function": {"name": _KIMI_TOOL}}],
            # With thinking, it would have to be sent back with each call.
            "thinking": {"type": "disabled"},
        }
        data = (await api.post("/chat/completions", body, api.bearer)).data
        message = pick(data, "choices.0.message")
        sources += listed(data, "search_results", optional=True)
        calls = listed(message, "tool_calls", optional=True)
        calls = [call for call in calls if pick(call, "function.name") == _KIMI_TOOL]
        if not calls:
            found = answer(pick(message, "content"), sources)
            if not number:
                raise SearchError("not_grounded", "answered without searching")
            return found
        messages.append({"role": "assistant", "content": "", "tool_calls": calls})
        # The server searches when it gets its own arguments back.
        for call in calls:
            said = as_text(pick(call, "function.arguments"))
            about = {"role": "tool", "tool_call_id": call.get("id"), "name": _KIMI_TOOL}
            messages.append({**about, "content": said})
    raise SearchError("provider_error", f"did not answer within {_ROUNDS} searches")


async def ask_perplexity(query: Query, api: Api) -> SearchAnswer:
    """Its search, or an answer of its model, directly or by OpenRouter."""
    if api.mode == "chat":
        return await _ask_sonar(query, api)
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


async def _ask_sonar(query: Query, api: Api) -> SearchAnswer:
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
