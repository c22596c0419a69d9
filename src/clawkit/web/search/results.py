"""Services that return results, and are asked with one request."""

from __future__ import annotations

from msgspec.structs import replace

from clawkit.web.search.exchange import Api, as_text, listed, pick, results
from clawkit.web.search.protocols import Query, SearchAnswer, SearchError
from clawkit.web.search.query import period_of, split_domains

# As Brave spells them.
_COUNTRIES = (
    "AR AU AT BE BR CA CL DK FI FR DE GR HK IN ID IT JP KR MY MX NL NZ NO CN PL PT PH RU SA ZA ES "
    "SE CH TW TR GB US"
)
_LANGUAGES = {
    "ja": "jp", "zh": "zh-hans", "zh-cn": "zh-hans", "zh-sg": "zh-hans", "zh-tw": "zh-hant",
    "zh-hk": "zh-hant", "pt": "pt-br", "no": "nb",
}  # fmt: skip
_WITH_REGION = frozenset(("en-gb", "pt-br", "pt-pt", "zh-hans", "zh-hant"))


async def ask_brave(query: Query, api: Api) -> SearchAnswer:
    """Its index of the web, or excerpts for language models."""
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
        # Without results, there is only what was asked.
        found = listed(data, "web.results", optional="query" in data)
        return results(found, "description", "page_age")
    hits = results(listed(data, "grounding.generic"), "snippets").hits
    sources = data.get("sources")
    about = sources if isinstance(sources, dict) else {}
    ages = [_age(pick(about.get(hit.url), "age")) for hit in hits]
    return SearchAnswer(tuple(map(lambda hit, age: replace(hit, published=age), hits, ages)))


def _language(code: str) -> str:
    """A language as Brave writes it."""
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
