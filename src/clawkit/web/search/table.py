"""The table of providers: addresses, keys, settings and supported filters."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import suppress
from importlib import import_module
from typing import Any

from msgspec import Struct, ValidationError, convert

from clawkit.config.model import Config
from clawkit.config.search_services import SEARCH_ENTRIES
from clawkit.config.section import SecretInput, suggest
from clawkit.errors import Issue
from clawkit.web.search.protocols import FILTERS, SearchError

OPENROUTER_KEY = "sk-or-"
_ANSWERS = ("gemini", "grok", "kimi", "perplexity")
_PERIOD = "freshness date_after date_before"


class ProviderRow(Struct, frozen=True):
    """One provider."""

    id: str
    name: str
    order: int | None = None
    """Its rank if no provider is set and it has a key; None if it must be configured."""
    env: tuple[str, ...] = ()
    """Variables that may hold its key or, if it needs one, its address."""
    base_url: str = ""
    """Empty if it has no default address, so the person must set one."""
    local_url: str = ""
    """Its address on this machine, for use without a key."""
    needs_key: bool = True
    filters: str = ""
    """The filters that it supports."""
    by_mode: Mapping[str, str] = {}
    """Filters in other modes than the default one."""
    options: Mapping[str, tuple[str, ...]] = {}
    """Settings besides key and address, with their allowed values; empty for any."""
    description: str = ""
    """Description for people: what they get, and who sees their queries."""

    @property
    def entry(self) -> str:
        """Its entry in `plugins.entries`."""
        return SEARCH_ENTRIES[self.id]

    @property
    def where(self) -> str:
        return f"plugins.entries.{self.entry}.config.webSearch"

    def load(self) -> Any:
        """Its search function, `async (Query, Api) -> SearchAnswer`."""
        where = "answers" if self.id in _ANSWERS else "results"
        module = import_module(f"clawkit.web.search.{where}")
        return getattr(module, f"ask_{self.id.replace('-', '_')}")

    @property
    def needs_address(self) -> bool:
        return not self.base_url

    def filters_in(self, mode: str) -> frozenset[str]:
        return frozenset(self.by_mode.get(mode, self.filters).split())

    def mode_of(self, options: Mapping[str, object], key: str = "") -> str:
        """The mode selected by its settings and key; empty for the default one."""
        is_chat = options.get("model") or key.startswith(OPENROUTER_KEY)
        said = "chat" if is_chat else str(options.get("mode", ""))
        return said if said in self.by_mode else ""


_MODEL: Mapping[str, tuple[str, ...]] = {"model": ()}
# fmt: off
_ROWS = (
    ProviderRow("brave", "Brave", 10, ("BRAVE_API_KEY",), "https://api.search.brave.com",
        filters=f"country language search_lang ui_lang {_PERIOD}",
        by_mode={"llm-context": f"country language search_lang {_PERIOD}"},
        options={"mode": ("web", "llm-context")}),
    ProviderRow("minimax", "MiniMax", 15,
        ("MINIMAX_CODE_PLAN_KEY", "MINIMAX_CODING_API_KEY", "MINIMAX_API_KEY"), "https://api.minimax.io"),
    ProviderRow("gemini", "Gemini", 20, ("GEMINI_API_KEY", "GOOGLE_API_KEY"),
        "https://generativelanguage.googleapis.com/v1beta", filters=_PERIOD, options=_MODEL),
    ProviderRow("grok", "Grok", 30, ("XAI_API_KEY",), "https://api.x.ai/v1", options=_MODEL),
    ProviderRow("kimi", "Kimi", 40, ("KIMI_API_KEY", "MOONSHOT_API_KEY"), "https://api.moonshot.ai/v1",
        options=_MODEL),
    ProviderRow("perplexity", "Perplexity", 50, ("PERPLEXITY_API_KEY", "OPENROUTER_API_KEY"),
        "https://api.perplexity.ai", options=_MODEL, by_mode={"chat": "freshness"},
        filters=f"country language {_PERIOD} domain_filter max_tokens max_tokens_per_page"),
    ProviderRow("firecrawl", "Firecrawl", 60, ("FIRECRAWL_API_KEY",), "https://api.firecrawl.dev",
        needs_key=False, description="its free tier; Firecrawl sees your queries"),
    ProviderRow("exa", "Exa", 65, ("EXA_API_KEY",), "https://api.exa.ai",
        filters=f"{_PERIOD} domain_filter",
        options={"type": ("auto", "neural", "keyword", "fast", "deep")}),
    ProviderRow("tavily", "Tavily", 70, ("TAVILY_API_KEY",), "https://api.tavily.com",
        filters="freshness domain_filter"),
    ProviderRow("parallel", "Parallel", 75, ("PARALLEL_API_KEY",), "https://api.parallel.ai"),
    ProviderRow("kagi", "Kagi", 80, ("KAGI_API_KEY",), "https://kagi.com"),
    ProviderRow("serper", "Serper", 85, ("SERPER_API_KEY",), "https://google.serper.dev",
        filters="country language freshness"),
    ProviderRow("searxng", "SearXNG", 200, ("SEARXNG_BASE_URL",), needs_key=False,
        filters="language freshness", options={"categories": (), "language": ()},
        description="a server of your own, which passes your queries on to search engines"),
    ProviderRow("parallel-free", "Parallel (free)", base_url="https://search.parallel.ai/mcp",
        needs_key=False, description="free and anonymous; Parallel sees your queries"),
    ProviderRow("duckduckgo", "DuckDuckGo", base_url="https://html.duckduckgo.com",
        needs_key=False, options={"region": (), "safeSearch": ("strict", "moderate", "off")},
        description="free, but it often refuses programs; DuckDuckGo sees your queries"),
    ProviderRow("ollama", "Ollama", None, ("OLLAMA_API_KEY",), "https://ollama.com",
        local_url="http://127.0.0.1:11434", needs_key=False),
)
# fmt: on
PROVIDERS = {row.id: row for row in _ROWS}
OFFERED = ("parallel-free", "firecrawl", "searxng", "duckduckgo")
"""Providers without a key, in the order they are offered."""
OFFERED_IN_CHAT = tuple(each for each in OFFERED if not PROVIDERS[each].needs_address)
"""Providers that can be offered in a chat, where an address cannot be entered."""


def settings_of(config: Config, row: ProviderRow) -> dict[str, object]:
    """The configured settings of a provider, unchecked."""
    entry = config.plugins.entries.get(row.entry) if config.plugins else None
    found = entry.config.get("webSearch") if entry else None
    return found if isinstance(found, dict) else {}


def named_provider(config: Config) -> str:
    """The configured provider; empty if the available keys decide."""
    return (config.tools.web.search.provider or "") if config.tools.web else ""


def ready_providers(config: Config, env: Mapping[str, str]) -> tuple[str, ...]:
    """The providers that have a key or, if they need one, an address, in the order in which they
    are tried; whether a key is valid is not known."""
    general = config.tools.web.search.api_key if config.tools.web else None
    found = []
    for row in _ROWS:
        own = settings_of(config, row).get("baseUrl" if row.needs_address else "apiKey")
        own = own or (general if row.id == (named_provider(config) or "brave") else None)
        if row.order and (own or any(env.get(name, "").strip() for name in row.env)):
            found.append(row.id)
    return tuple(found)


def possible_filters(config: Config, ready: tuple[str, ...]) -> frozenset[str]:
    """The filters that the provider of a run can do; all of them if a plugin may provide it."""
    named = named_provider(config)
    ids = (named,) if named else ready or OFFERED_IN_CHAT
    may_be_plugin = config.plugins is not None and not named
    if may_be_plugin or not PROVIDERS.keys() >= set(ids):
        return frozenset(FILTERS)
    rows = [PROVIDERS[each] for each in ids]
    return frozenset().union(
        *(row.filters_in(row.mode_of(settings_of(config, row))) for row in rows)
    )


def find_issues(config: Config) -> Iterator[Issue]:
    """Errors in the settings of all providers."""
    for row in _ROWS:
        yield from _issues(config, row)


def _issues(config: Config, row: ProviderRow) -> Iterator[Issue]:
    known = ["apiKey", "baseUrl", *row.options]
    for name, value in settings_of(config, row).items():
        allowed, problem, hint = row.options.get(name, ()), "", ""
        if name not in known:
            problem, hint = "unknown setting", suggest(name, known, "Settings here")
        elif name == "apiKey":
            problem = "must be a string or a secret reference"
            with suppress(ValidationError):
                convert(value, SecretInput | None)
                problem = ""
        elif not (isinstance(value, str) and value):
            problem = "must be a string"
        elif allowed and value not in allowed:
            problem = f"use one of {', '.join(allowed)}"
        if problem:
            yield Issue(f"{row.where}.{name}", problem, hint=hint)


def read_settings(
    config: Config, row: ProviderRow
) -> tuple[SecretInput | None, str, dict[str, str]]:
    """The key, the address and the other settings of a provider. Raises `SearchError` for an
    unknown setting."""
    for issue in _issues(config, row):
        raise SearchError("invalid_setting", str(issue))
    given = settings_of(config, row)
    key = convert(given.get("apiKey"), SecretInput | None)
    options = {name: str(given[name]) for name in row.options if name in given}
    return key, str(given.get("baseUrl", "")).strip(), options
