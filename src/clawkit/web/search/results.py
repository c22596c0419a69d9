"""Services that return results."""

from __future__ import annotations

import re
from urllib.parse import parse_qs
from uuid import uuid4

from msgspec.structs import replace

from clawkit.version import __version__
from clawkit.web.search.protocols import Query, SearchAnswer, SearchError, SearchHit
from clawkit.web.search.query import period_of, split_domains
from clawkit.web.search.search_api import Api, as_text, decode, listed, pick, results, unreadable

# Codes in Brave's spelling.
_COUNTRIES = (
    "AR AU AT BE BR CA CL DK FI FR DE GR HK IN ID IT JP KR MY MX NL NZ NO CN PL PT PH RU SA ZA ES "
    "SE CH TW TR GB US"
)
_LANGUAGES = {
    "ja": "jp", "zh": "zh-hans", "zh-cn": "zh-hans", "zh-sg": "zh-hans", "zh-tw": "zh-hant",
    "zh-hk": "zh-hant", "pt": "pt-br", "no": "nb",
}  # fmt: skip
_WITH_REGION = frozenset(("en-gb", "pt-br", "pt-pt", "zh-hans", "zh-hant"))
_PROTOCOL = "2025-06-18"
_SESSION = uuid4().hex
"""Lets Parallel recognize searches of one process as related; identifies nothing else."""
_SAFE = {"strict": "1", "moderate": "-1", "off": "-2"}
_BROWSER = {
    # DuckDuckGo refuses requests without the headers of browsers.
    "User-Agent": "Mozilla/5.0 (X11; Linux x86_64; rv:140.0) Gecko/20100101 Firefox/140.0",
    "Accept": "text/html,application/xhtml+xml,application/xml;q=0.9,*/*;q=0.8",
    "Accept-Language": "en-US,en;q=0.5",
    "Accept-Encoding": "gzip, deflate",
    "Upgrade-Insecure-Requests": "1",
    "Sec-Fetch-Dest": "document",
    "Sec-Fetch-Mode": "navigate",
    "Sec-Fetch-Site": "none",
    "Sec-Fetch-User": "?1",
}
_RESULT, _MAX_RESULTS, _MAX_RESULT = "result__body", 50, 32 * 1024
"""The start of each result; the maximum number and size of results, because parsing time is
quadratic in depth."""


async def ask_brave(query: Query, api: Api) -> SearchAnswer:
    """Brave: its web index, or excerpts for language models."""
    country = query.country.upper()
    params = {
        "q": query.query,
        "count": query.count,
        "country": country if country in _COUNTRIES.split() else country and "ALL",
        "search_lang": _language(query.search_lang or query.language),
        "ui_lang": query.ui_lang,
        "freshness": _period(query),
    }
    is_context = api.mode == "llm-context"
    path = "/res/v1/llm/context" if is_context else "/res/v1/web/search"
    data = (await api.get(path, params, {"X-Subscription-Token": api.key})).data
    if not is_context:
        # Without results, the reply contains only the query.
        found = listed(data, "web.results", optional="query" in data)
        return results(found, "description", "page_age")
    hits = results(listed(data, "grounding.generic"), "snippets").hits
    sources = data.get("sources")
    about = sources if isinstance(sources, dict) else {}
    ages = [_age(pick(about.get(hit.url), "age")) for hit in hits]
    return SearchAnswer(tuple(map(lambda hit, age: replace(hit, published=age), hits, ages)))


def _language(code: str) -> str:
    """A language in Brave's spelling."""
    code = code.lower()
    code = _LANGUAGES.get(code, code)
    return code if code in _WITH_REGION else code.partition("-")[0]


def _period(query: Query) -> str:
    after, before = period_of(query)
    return f"p{query.freshness[0]}" if query.freshness else after and f"{after}to{before}"


def _age(age: object) -> str:
    """The day, if one of several spellings is one."""
    spellings = as_text(age).split("\n")
    return next((each for each in spellings if each[:4].isdigit()), spellings[0])


async def ask_minimax(query: Query, api: Api) -> SearchAnswer:
    """MiniMax: the search of its coding plans."""
    data = (await api.post("/v1/coding_plan/search", {"q": query.query}, api.bearer)).data
    if pick(data, "base_resp.status_code"):
        said = as_text(pick(data, "base_resp.status_msg"))
        raise SearchError("provider_error", "reported an error", said)
    return results(listed(data, "organic"), "snippet", "date", url="link")


async def ask_firecrawl(query: Query, api: Api) -> SearchAnswer:
    """Firecrawl's search; its free tier without a key."""
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
    """Ollama's web search, with a key, or through a local Ollama that is signed in."""
    path = "/api/web_search" if api.key else "/api/experimental/web_search"
    body = {"query": query.query, "max_results": query.count}
    return results(listed((await api.post(path, body, api.bearer)).data, "results"), "content")


async def ask_parallel_free(query: Query, api: Api) -> SearchAnswer:
    """Parallel without a key: its public MCP server, asked anonymously."""
    headers = {"Accept": "application/json, text/event-stream"}
    client = {"name": "clawkit", "version": __version__}
    hello = {"protocolVersion": _PROTOCOL, "capabilities": {}, "clientInfo": client}
    message = {"jsonrpc": "2.0", "id": 1, "method": "initialize", "params": hello}
    reply = await api.post("", message, headers)
    agreed = as_text(pick(reply.data, "result.protocolVersion"))
    headers["MCP-Protocol-Version"] = agreed if re.fullmatch(r"[\d-]{8,10}", agreed) else _PROTOCOL
    if session := reply.headers.get("mcp-session-id"):
        headers["Mcp-Session-Id"] = session
    ready = {"jsonrpc": "2.0", "method": "notifications/initialized"}
    await api.post("", ready, headers)
    asked = {"objective": query.query, "search_queries": [query.query], "session_id": _SESSION}
    call = {"name": "web_search", "arguments": asked}
    message |= {"id": 2, "method": "tools/call", "params": call}
    result = (await api.post("", message, headers)).data.get("result")
    text = as_text([each.get("text") for each in listed(result, "content", optional=True)])
    if pick(result, "isError"):
        raise SearchError("provider_error", "reported an error", text)
    found = pick(result, "structuredContent") or decode(text)
    return results(listed(found, "results"), "excerpts", "publish_date")


async def ask_duckduckgo(query: Query, api: Api) -> SearchAnswer:
    """DuckDuckGo's page for browsers without scripts, because it has no API."""
    safe = _SAFE[api.options.get("safeSearch", "moderate")]
    params = {"q": query.query, "kl": api.options.get("region", "wt-wt"), "kp": safe}
    reply = await api.get("/html", params, _BROWSER)
    page = reply.body.decode("utf-8", "replace")
    parts = page.split(_RESULT, _MAX_RESULTS)[1:]
    hits = tuple(hit for part in parts if (hit := _read_result(part[:_MAX_RESULT])) is not None)
    if not hits and (reply.status == 202 or "anomaly-modal" in page or "anomaly.js" in page):
        words = "requires a CAPTCHA; try later, or choose another service"
        raise SearchError("bot_challenge", words)
    if not hits and "no-results" not in page:
        raise unreadable("a page without results that clawkit can read")
    return SearchAnswer(hits)


def _read_result(html: str) -> SearchHit | None:
    from selectolax.lexbor import LexborHTMLParser

    tree = LexborHTMLParser(f'<div class="{html}')
    link, snippet = tree.css_first("a.result__a"), tree.css_first(".result__snippet")
    if link is None:
        return None
    target = link.attributes.get("href") or ""
    inner = parse_qs(target.partition("?")[2]).get("uddg")
    text = snippet.text() if snippet is not None else ""
    return SearchHit(link.text(), inner[0] if inner else target, " ".join(text.split()))
