"""The searches of a run: which provider is asked, and what is kept of its answers."""

from __future__ import annotations

import asyncio
import importlib
import os
import time
from collections.abc import Awaitable, Callable
from functools import partial
from pathlib import Path
from typing import NamedTuple

import msgspec
from msgspec.structs import replace

from clawkit.config.file_edit import change, set_setting
from clawkit.config.load import Loaded
from clawkit.config.paths import config_file, search_cache_file
from clawkit.config.secrets import resolve
from clawkit.config.section import SecretInput, SecretRef
from clawkit.config.sections.web import WebSearch, XSearch
from clawkit.config.sources import MAPPING
from clawkit.errors import ConfigError, EditError, SecretError
from clawkit.net.addresses import parse_url
from clawkit.net.route import NetError
from clawkit.redact import Redactor
from clawkit.text import cut
from clawkit.web.cache import Cache
from clawkit.web.search import grok
from clawkit.web.search.checks import check_posts, check_query
from clawkit.web.search.exchange import Exchange
from clawkit.web.search.protocols import (
    DOCS,
    FILTERS,
    Citation,
    PostQuery,
    Query,
    SearchAnswer,
    SearchError,
    SearchInputError,
    SearchProvider,
    WebFindings,
)
from clawkit.web.search.table import (
    PROVIDERS,
    ProviderRow,
    check_settings,
    named_provider,
    ready_providers,
    settings_of,
)
from clawkit.web.search.wire import ProviderSetup

MAX_CHARS = 20_000
"""Characters of an answer, or of all results together."""
MAX_TITLE = 300
MAX_CITATIONS = 50
NO_PROVIDER = (
    "no search service is chosen, and no key of one was found. To choose one: clawkit configure "
    "search. Or set a key, such as BRAVE_API_KEY"
)


def open_searcher(loaded: Loaded, redactor: Redactor, plugin: SearchProvider | None) -> WebSearcher:
    """The searches of a run. `plugin` is the provider that a plugin brings."""
    return WebSearcher(loaded, redactor, plugin, Path(search_cache_file(os.environ)))


class _Candidate(NamedTuple):
    """A provider that can be asked."""

    id: str
    filters: frozenset[str]
    key: object
    """What its answers depend on besides the query."""
    ask: Callable[[Query], Awaitable[SearchAnswer]]


class WebSearcher:
    """Searches with the provider that the person chose, and with no other."""

    def __init__(
        self, loaded: Loaded, redactor: Redactor, plugin: SearchProvider | None, cache_file: Path
    ) -> None:
        self._redactor, self._plugin = redactor, plugin
        self._cache = Cache(cache_file)
        self.may_offer = True
        self.configure(loaded)
        self._exchange = Exchange(self._env, redactor.strict)

    def configure(self, loaded: Loaded) -> None:
        """Use other settings from now on."""
        self._loaded, self._config = loaded, loaded.config
        self._env = {**os.environ, **loaded.env}
        web = loaded.config.tools.web
        self._settings = web.search if web else WebSearch()
        self._x = web.x_search if web else XSearch()
        self._chosen = named_provider(loaded.config)

    def decline(self) -> None:
        self.may_offer = False

    async def choose(self, provider: str) -> str:
        self._chosen = provider
        return await asyncio.to_thread(_save, self._loaded.file, provider)

    async def search(self, query: Query) -> WebFindings:
        query = check_query(query, self._settings.max_results)
        candidates = self._candidates()
        able = [each for each in candidates if each.filters.issuperset(query.filters)]
        if not able:
            first = candidates[0]
            extra = sorted(set(query.filters) - first.filters)
            known = [name for name in FILTERS if name in first.filters]
            raise SearchInputError(
                "unsupported_filter",
                f"{first.id} cannot filter by {', '.join(extra)}; it has "
                f"{', '.join(known) or 'no filters'}",
                provider=first.id,
                supported=known,
            )
        failures: list[SearchError] = []
        for each in able:
            try:
                return await self._cached(each, query)
            except SearchError as error:
                failures.append(error)
        last = failures[-1]
        if len(failures) == 1:
            raise last
        raise SearchError("all_failed", "; ".join(map(str, failures)), last.detail, **last.more)

    async def search_posts(self, query: PostQuery) -> WebFindings:
        query, settings = check_posts(query), self._x
        row = PROVIDERS["grok"]
        setup = self._setup(row, settings.api_key, "xai")
        if not setup.key:
            raise _missing("xai", row, "tools.web.x_search.apiKey")
        options = {"model": settings.model, "maxTurns": settings.max_turns}
        given = {name: str(value) for name, value in options.items() if value}
        if settings.inline_citations is False:
            given["inlineCitations"] = "false"
        setup = replace(setup, id="xai", options=given)

        def ask() -> Awaitable[SearchAnswer]:
            steps = grok.search_posts(query, setup)
            return self._exchange.run("xAI", setup, steps, settings.timeout_seconds)

        key, ttl_s = ("x", setup.base_url, given, query), settings.cache_ttl_minutes * 60
        return await self._kept("xai", query.query, key, ttl_s, ask)

    async def _cached(self, candidate: _Candidate, query: Query) -> WebFindings:
        key = ("web", candidate.id, candidate.key, query)
        ttl_s = self._settings.cache_ttl_minutes * 60
        ask = partial(candidate.ask, query)
        return await self._kept(candidate.id, query.query, key, ttl_s, ask)

    async def _kept(
        self,
        provider: str,
        text: str,
        key: object,
        ttl_s: float,
        ask: Callable[[], Awaitable[SearchAnswer]],
    ) -> WebFindings:
        """The answer to an earlier call with the same key, or a new one. Failures are not kept."""
        started = time.monotonic()
        name = msgspec.json.encode(key, order="deterministic").decode()
        kept = await asyncio.to_thread(self._cache.get, name) if ttl_s else None
        if kept is not None:
            answer = msgspec.json.decode(kept, type=SearchAnswer)
        else:
            answer = await ask()
            if ttl_s:
                data = msgspec.json.encode(answer)
                await asyncio.to_thread(self._cache.put, name, data, ttl_s)
        took_ms = round((time.monotonic() - started) * 1000)
        return WebFindings(text, provider, answer, took_ms, cached=kept is not None)

    def _candidates(self) -> list[_Candidate]:
        """The providers to ask, in this order; more than one only if none was named."""
        plugin, named = self._plugin, self._chosen
        if plugin is not None and named in ("", plugin.id):
            timeout_s = self._settings.timeout_seconds
            filters = frozenset(plugin.filters).intersection(FILTERS)
            ask = partial(_ask_plugin, plugin, timeout_s=timeout_s)
            return [_Candidate(plugin.id, filters, "plugin", ask)]
        if named:
            if named not in PROVIDERS:
                why = f"the plugin {named!r} is not loaded, or provides no search"
                raise SearchError("missing_search_provider", f"{why}; see clawkit plugins list")
            return [self._candidate(PROVIDERS[named])]
        ready = ready_providers(self._config, self._env)
        if not ready:
            raise SearchError("missing_search_provider", NO_PROVIDER, docs=DOCS)
        return [self._candidate(PROVIDERS[each]) for each in ready]

    def _candidate(self, row: ProviderRow) -> _Candidate:
        is_named_or_default = row.id == (self._chosen or "brave")
        setup = self._setup(row, self._settings.api_key if is_named_or_default else None)
        if row.needs_key and not setup.key:
            raise _missing(row.id, row, "tools.web.search.apiKey")
        if not setup.base_url:
            where = f"plugins.entries.{row.entry}.config.webSearch.baseUrl"
            why = f"{row.name} has no address: set {where} or {row.env[0]}"
            raise SearchError(f"missing_{row.id}_base_url", why, docs=DOCS)
        key = (setup.base_url, setup.options, setup.mode)
        return _Candidate(row.id, row.filters_in(setup.mode), key, partial(self._ask, row, setup))

    async def _ask(self, row: ProviderRow, setup: ProviderSetup, query: Query) -> SearchAnswer:
        steps = importlib.import_module(row.module).search(query, setup)
        timeout_s = self._settings.timeout_seconds
        answer = await self._exchange.run(row.name, setup, steps, timeout_s)
        if row.redirects:
            pages = answer.citations[:MAX_CITATIONS]
            urls = await self._exchange.resolve([each.url for each in pages], row.redirects, setup)
            pages = tuple(map(Citation, urls, (each.title for each in pages)))
            answer = replace(answer, citations=pages)
        return tidy(answer, query.count or 1)

    def _setup(
        self, row: ProviderRow, general: SecretInput | None, name: str = ""
    ) -> ProviderSetup:
        """How to reach a provider, from its settings. `general` is a key from elsewhere; that of
        another tool, which has a `name`, comes first. Raises `SearchError`."""
        options = check_settings(settings_of(self._config, row), row)
        own = options.pop("apiKey", None)
        secret = general or own if name else own or general
        base = str(options.pop("baseUrl", "")).strip()
        env = self._env
        found = next(filter(None, (env.get(name, "").strip() for name in row.env)), "")
        if row.needs_address:
            base = base or found
        try:
            given = resolve(_secret(secret), self._config, env).strip() if secret else ""
        except SecretError as error:
            words = f"the key of {row.name} is not available: {error}"
            raise SearchError(f"missing_{name or row.id}_api_key", words, docs=DOCS) from None
        key = given or ("" if row.needs_address else found)
        self._redactor.learn([key])
        usual = row.local_url if row.local_url and not key else row.base_url
        is_own = bool(base) or usual == row.local_url != ""
        texts = {name: str(value) for name, value in options.items()}
        mode = row.mode_of(options, key)
        return ProviderSetup(row.id, (base or usual).rstrip("/"), key, texts, mode, is_own)

    async def close(self) -> None:
        self._cache.close()
        await self._exchange.close()


def _save(file: str | None, provider: str) -> str:
    """Save the provider that a person chose; returns what was done."""
    where = ("tools", "web", "search", "provider")
    file = file or config_file(os.environ)
    if file == MAPPING:
        return f"{provider} is used for this session: the configuration is not a file"
    try:
        change(file, lambda text: set_setting(text, where, provider), paths=[where])
    except (EditError, ConfigError) as error:
        return f"{provider} is used for this session; it was not saved: {error}"
    return f"Saved: {'.'.join(where)} is {provider} in {file}"


def _secret(value: object) -> SecretInput:
    try:
        return msgspec.convert(value, str | SecretRef)
    except msgspec.ValidationError:
        raise SecretError("it is neither a string nor a secret reference") from None


def _missing(name: str, row: ProviderRow, setting: str) -> SearchError:
    words = f"{row.name} needs a key: set {' or '.join(row.env)}, or {setting}"
    return SearchError(f"missing_{name}_api_key", words, docs=DOCS)


async def _ask_plugin(plugin: SearchProvider, query: Query, *, timeout_s: float) -> SearchAnswer:
    try:
        async with asyncio.timeout(timeout_s):
            answer = await plugin.search(query)
        # As strict as an answer that came as JSON: it is foreign data in our types.
        return tidy(msgspec.convert(msgspec.to_builtins(answer), SearchAnswer), query.count or 1)
    except TimeoutError:
        words = f"{plugin.id} did not answer within {timeout_s:g} s"
        raise SearchError("timeout", words, provider=plugin.id) from None
    except (msgspec.ValidationError, TypeError):
        words = f"the plugin {plugin.id} returned something that is not a SearchAnswer"
        raise SearchError("unreadable_answer", words, provider=plugin.id) from None


def tidy(answer: SearchAnswer, count: int) -> SearchAnswer:
    """What is kept of an answer: results with web addresses, each once, and cut to size."""
    hits = {hit.url: hit for hit in reversed(answer.hits) if is_web_address(hit.url)}
    chosen = [*reversed(hits.values())][:count]
    room = MAX_CHARS // max(1, len(chosen))
    return SearchAnswer(
        tuple(
            replace(
                hit,
                title=cut(hit.title, MAX_TITLE),
                description=cut(hit.description, room),
                published=cut(hit.published, 40),
            )
            for hit in chosen
        ),
        cut(answer.text, MAX_CHARS),
        tuple(
            replace(each, title=cut(each.title, MAX_TITLE))
            for each in answer.citations[:MAX_CITATIONS]
            if is_web_address(each.url)
        ),
    )


def is_web_address(url: str) -> bool:
    try:
        return len(url) <= 2_048 and bool(parse_url(url))
    except NetError:
        return False
