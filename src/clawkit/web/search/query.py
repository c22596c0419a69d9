"""Parameters of searches, checked before anything is sent."""

from __future__ import annotations

import re
from collections.abc import Sequence
from datetime import date, timedelta

from msgspec import ValidationError, convert
from msgspec.structs import replace

from clawkit.web.search.protocols import FILTERS, PostQuery, Query, SearchError

PERIODS = {"day": 1, "week": 7, "month": 31, "year": 366}
_SHORT = {f"p{name[0]}": name for name in PERIODS}
"""Brave's abbreviations, which models know."""
_DOMAIN = r"-?(?:[a-z0-9_](?:[a-z0-9_-]{0,61}[a-z0-9])?\.)+[a-z0-9-]{2,63}"
_MAX_DOMAINS = 20
_LANGUAGE = r"(?i)[a-z]{2,3}(-[a-z]{2,4})?"
_FORMATS = {
    "country": (r"(?i)[a-z]{2}|all", "a two-letter country code, such as DE"),
    "language": (_LANGUAGE, "a language code, such as de"),
    "search_lang": (_LANGUAGE, "a language code, such as de"),
    "ui_lang": (r"[a-z]{2}-[A-Z]{2}", "a language with its country, such as en-US"),
}


def check_query(query: Query, max_results: int) -> Query:
    """The query in normal form, with a count. Raises `SearchError`."""
    text = _text(query.query)
    freshness = query.freshness.strip().lower()
    freshness = _SHORT.get(freshness, freshness)
    if freshness and freshness not in PERIODS:
        known = ", ".join(PERIODS)
        raise _bad("freshness", f"unknown freshness {query.freshness[:40]!r}; use one of {known}")
    _check_days(query, "date_after", "date_before")
    if freshness and (query.date_after or query.date_before):
        raise SearchError(
            "conflicting_time_filters", "freshness cannot be combined with date_after, date_before"
        )
    for name, (pattern, expected) in _FORMATS.items():
        given: str = getattr(query, name)
        if given and not re.fullmatch(pattern, given):
            raise _bad(name, f"{name}: {given[:40]!r} is not {expected}")
    domains = [each.strip().lower() for each in query.domain_filter]
    for each in domains:
        if not re.fullmatch(_DOMAIN, each):
            raise _bad("domain_filter", f"domain_filter: {each[:80]!r} is not a domain name")
    if len(domains) > _MAX_DOMAINS or len({each.startswith("-") for each in domains}) > 1:
        raise _bad(
            "domain_filter",
            f"domain_filter takes up to {_MAX_DOMAINS} domains: either all of them to search in, "
            "or all of them, each with a leading -, to leave out",
        )
    count = query.count or max_results
    return replace(query, query=text, count=count, freshness=freshness, domain_filter=domains)


def check_filters(query: Query, provider: str, filters: frozenset[str]) -> None:
    """Refuse filters that a provider does not support. Raises `SearchError`."""
    if extra := [name for name in query.filters if name not in filters]:
        known = [name for name in FILTERS if name in filters]
        words = f"{provider} cannot filter by {', '.join(extra)}; supported filters: "
        words += ", ".join(known) or "none"
        raise SearchError("unsupported_filter", words, provider=provider, supported=known)


def check_posts(query: PostQuery) -> PostQuery:
    """The query in normal form. Raises `SearchError`."""
    handles: dict[str, list[str]] = {}
    for name in ("allowed_x_handles", "excluded_x_handles"):
        handles[name] = [each.strip().removeprefix("@") for each in getattr(query, name)]
        for each in handles[name]:
            if not re.fullmatch(r"\w{1,15}", each, re.ASCII):
                raise _bad("x_handle", f"{name}: {each[:40]!r} is not the name of an account")
    if all(handles.values()):
        raise SearchError(
            "conflicting_x_handles", "use one of allowed_x_handles and excluded_x_handles, not both"
        )
    _check_days(query, "from_date", "to_date")
    return replace(query, query=_text(query.query), **handles)


def _text(text: str) -> str:
    if not (found := text.strip()):
        raise _bad("query", "query is empty; say what to search for")
    return found


def _check_days(query: Query | PostQuery, first: str, last: str) -> None:
    days = []
    for name in (first, last):
        given: str = getattr(query, name)
        try:
            days.append(convert(given or None, date | None))
        except ValidationError:
            raise _bad("date", f"{name}: {given[:40]!r} is not a day such as 2026-01-31") from None
    after, before = days
    if after and before and after > before:
        raise _bad("date", f"{first} must not be later than {last}")


def _bad(field: str, message: str) -> SearchError:
    return SearchError(f"invalid_{field}", message)


def period_of(query: Query) -> tuple[str, str]:
    """The first and last day of a query's period; empty if unlimited."""
    after, before = query.date_after, query.date_before
    today = date.today()
    if query.freshness:
        after = (today - timedelta(days=PERIODS[query.freshness])).isoformat()
    if after or before:
        after, before = after or "1970-01-01", before or today.isoformat()
    return after, before


def split_domains(domains: Sequence[str]) -> tuple[list[str], list[str]]:
    """The domains to search in, and those to leave out."""
    only = [each for each in domains if not each.startswith("-")]
    return only, [each[1:] for each in domains if each.startswith("-")]
