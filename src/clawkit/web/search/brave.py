"""Brave: its index of the web, or excerpts for language models."""

from __future__ import annotations

import re

from msgspec.structs import replace

from clawkit.web.search.exchange import Api, as_text, listed, pick, results
from clawkit.web.search.protocols import Query, SearchAnswer

_COUNTRIES = (
    "AR AU AT BE BR CA CL DK FI FR DE GR HK IN ID IT JP KR MY MX NL NZ NO CN PL PT PH RU SA ZA ES "
    "SE CH TW TR GB US"
)
_LANGUAGES = {
    "ja": "jp", "zh": "zh-hans", "zh-cn": "zh-hans", "zh-sg": "zh-hans", "zh-tw": "zh-hant",
    "zh-hk": "zh-hant", "pt": "pt-br", "no": "nb",
}  # fmt: skip
_WITH_REGION = frozenset(("en-gb", "pt-br", "pt-pt", "zh-hans", "zh-hant"))
_EARLIEST, _LATEST = "1970-01-01", "9999-12-31"


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
    return SearchAnswer(
        tuple(replace(hit, published=_age(pick(about.get(hit.url), "age"))) for hit in hits)
    )


def _language(code: str) -> str:
    """A language as Brave writes it."""
    code = code.lower()
    code = _LANGUAGES.get(code, code)
    return code if code in _WITH_REGION else code.partition("-")[0]


def _period(query: Query) -> str:
    if query.date_after or query.date_before:
        return f"{query.date_after or _EARLIEST}to{query.date_before or _LATEST}"
    return query.freshness and f"p{query.freshness[0]}"


def _age(age: object) -> str:
    """The day, if one of several spellings is one."""
    said = as_text(age)
    day = re.search(r"^\d{4}-\d{2}-\d{2}.*$", said, re.MULTILINE)
    return day[0] if day else said.partition("\n")[0]
