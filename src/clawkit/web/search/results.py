"""Services that return results, and are asked with one request."""

from __future__ import annotations

from clawkit.web.search.exchange import Api, as_text, listed, pick, results
from clawkit.web.search.protocols import Query, SearchAnswer, SearchError
from clawkit.web.search.query import period_of, split_domains


async def ask_minimax(query: Query, api: Api) -> SearchAnswer:
    """The search of its plans for coding."""
    data = (await api.post("/v1/coding_plan/search", {"q": query.query}, api.bearer)).data
    if pick(data, "base_resp.status_code"):
        said = as_text(pick(data, "base_resp.status_msg"))
        raise SearchError("provider_error", "reported an error", said)
    return results(listed(data, "organic"), "snippet", "date", url="link")


async def ask_firecrawl(query: Query, api: Api) -> SearchAnswer:
    """Search for crawlers; without a key, its free tier."""
    body = {"query": query.query, "limit": query.count}
    data = (await api.post("/v2/search", body, api.bearer)).data
    if data.get("success") is False:
        raise SearchError("provider_error", "reported a failure", as_text(data.get("message")))
    path = "data" if isinstance(data.get("data"), list) else "data.web"
    return results(listed(data, path), "description markdown")


async def ask_exa(query: Query, api: Api) -> SearchAnswer:
    """Search by meaning, with highlights of each page."""
    only, never = split_domains(query.domain_filter)
    after, before = period_of(query)
    body = {
        "query": query.query,
        "numResults": query.count,
        "type": api.options.get("type", "auto"),
        "contents": {"highlights": True},
        "includeDomains": only,
        "excludeDomains": never,
        "startPublishedDate": after and f"{after}T00:00:00.000Z",
        "endPublishedDate": before and f"{before}T23:59:59.999Z",
    }
    data = (await api.post("/search", body, {"x-api-key": api.key})).data
    return results(listed(data, "results"), "highlights summary text", "publishedDate")


async def ask_tavily(query: Query, api: Api) -> SearchAnswer:
    """Results with excerpts."""
    only, never = split_domains(query.domain_filter)
    body = {
        "query": query.query,
        "max_results": query.count,
        "time_range": query.freshness,
        "include_domains": only,
        "exclude_domains": never,
    }
    data = (await api.post("/search", body, api.bearer)).data
    return results(listed(data, "results"), "content", "published_date")


async def ask_parallel(query: Query, api: Api) -> SearchAnswer:
    """Excerpts of pages, made for language models."""
    body = {
        "objective": query.query,
        "search_queries": [query.query],
        "advanced_settings": {"max_results": query.count},
    }
    data = (await api.post("/v1/search", body, {"x-api-key": api.key})).data
    return results(listed(data, "results"), "excerpts", "publish_date")


async def ask_kagi(query: Query, api: Api) -> SearchAnswer:
    """Results without advertisements."""
    params = {"q": query.query, "limit": query.count}
    data = (await api.get("/api/v1/search", params, {"Authorization": f"Bot {api.key}"})).data
    found = [each for each in listed(data, "data") if each.get("t") == 0]
    return results(found, "snippet", "published")


async def ask_serper(query: Query, api: Api) -> SearchAnswer:
    """Results of Google."""
    body = {
        "q": query.query,
        "num": query.count,
        "gl": query.country.lower(),
        "hl": query.language.lower(),
        "tbs": query.freshness and f"qdr:{query.freshness[0]}",
    }
    data = (await api.post("/search", body, {"X-API-KEY": api.key})).data
    return results(listed(data, "organic"), "snippet", "date", url="link")


async def ask_searxng(query: Query, api: Api) -> SearchAnswer:
    """A search engine that people run themselves."""
    params = {
        "format": "json",
        "q": query.query,
        "language": query.language or api.options.get("language"),
        "categories": api.options.get("categories"),
        "time_range": query.freshness,
    }
    data = (await api.get("/search", params, api.bearer)).data
    return results(listed(data, "results"), "content", "publishedDate")


async def ask_ollama(query: Query, api: Api) -> SearchAnswer:
    """Its web search, with a key, or through a local Ollama that is signed in."""
    path = "/api/web_search" if api.key else "/api/experimental/web_search"
    body = {"query": query.query, "max_results": query.count}
    return results(listed((await api.post(path, body, api.bearer)).data, "results"), "content")
