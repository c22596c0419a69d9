"""Brave: its index of the web, or excerpts for language models."""

from __future__ import annotations

from msgspec.structs import replace

from clawkit.web.search.exchange import Api, as_text, listed, pick, results
from clawkit.web.search.protocols import Query, SearchAnswer
from clawkit.web.search.query import period_of

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
