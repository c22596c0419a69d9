"""The searches of a run: the choice of provider, and the cache of answers."""

from __future__ import annotations

import asyncio
import os
import time
from collections.abc import Awaitable, Callable
from functools import partial
from pathlib import Path
from urllib.parse import quote

import msgspec
from msgspec.structs import replace

from clawkit.config.file_edit import change, set_setting
from clawkit.config.load import Loaded
from clawkit.config.paths import config_file, search_cache_file
from clawkit.config.secrets import resolve
from clawkit.config.section import SecretInput
from clawkit.config.sections.web import Web
from clawkit.config.sources import MAPPING
from clawkit.errors import ConfigError, EditError, SecretError
from clawkit.net.addresses import parse_url
from clawkit.net.client import Client
from clawkit.net.route import NetError
from clawkit.redact import Redactor
from clawkit.text import cut, one_line
from clawkit.web.cache import Cache
from clawkit.web.search import table
from clawkit.web.search.answers import search_posts
from clawkit.web.search.protocols import (
    NO_PROVIDER,
    PostQuery,
    Query,
    SearchAnswer,
    SearchError,
    SearchHit,
    SearchProvider,
    WebFindings,
)
from clawkit.web.search.query import check_filters, check_posts, check_query
from clawkit.web.search.search_api import Api

MAX_CHARS = 20_000
"""Maximum characters of an answer, or of all results together."""
MAX_TITLE, MAX_DATE, MAX_URL = 300, 40, 2_048
MAX_CITATIONS = 50
_Ask = Callable[[], Awaitable[SearchAnswer]]


class WebSearcher:
    """Searches only with the provider that the person chose."""

    def __init__(self, loaded: Loaded, redactor: Redactor, plugin: SearchProvider | None) -> None:
        """`plugin` is the provider of a plugin."""
        self._redactor, self._plugin = redactor, plugin
        self._cache, self._client = Cache(Path(search_cache_file(os.environ))), Client()
        self.may_offer = True
        self._loaded, self._config = loaded, loaded.config
        self._env = {**os.environ, **loaded.env}
        web = loaded.config.tools.web or Web()
        self._settings, self._x = web.search, web.x_search
        self._chosen = table.named_provider(loaded.config)

    async def choose(self, provider: str) -> str:
        self._chosen = provider
        return await asyncio.to_thread(_save, self._loaded.file, provider)

    async def search(self, query: Query) -> WebFindings:
        query = check_query(query, self._settings.max_results)
        failures: list[SearchError] = []
        for ask in self._askable():
            try:
                return await ask(query)
            except SearchError as error:
                # Errors in the settings are reported rather than worked around.
                if error.status == 400 and error.code != "unsupported_filter":
                    raise
                failures.append(error)
        tried = [each for each in failures if each.code != "unsupported_filter"]
        if len(tried) < 2:
            raise (tried or failures)[0]
        last = tried[-1]
        raise SearchError("all_failed", "; ".join(map(str, tried)), last.detail, **last.more)

    def _askable(self) -> list[Callable[[Query], Awaitable[WebFindings]]]:
        """The search functions of providers, in order; more than one only if none is configured."""
        plugin, named = self._plugin, self._chosen
        if named in table.PROVIDERS:
            return [partial(self._ask, table.PROVIDERS[named])]
        if plugin is not None and named in ("", plugin.id):
            return [partial(self._ask_plugin, plugin)]
        if named:
            why = f"the plugin {named!r} is not loaded, or provides no search"
            raise SearchError("missing_search_provider", f"{why}; see clawkit plugins list")
        ready = table.ready_providers(self._config, self._env)
        if not ready:
            raise SearchError("missing_search_provider", NO_PROVIDER)
        return [partial(self._ask, table.PROVIDERS[each]) for each in ready]

    async def _ask(self, row: table.ProviderRow, query: Query) -> WebFindings:
        general = self._settings.api_key if row.id == (self._chosen or "brave") else None
        api = self._api(row, general, self._settings.timeout_seconds)
        check_filters(query, row.id, row.filters_in(api.mode))
        key = (api.base_url, api.options, api.mode)
        return await self._search_cached(
            row.id, query, key, lambda: api.run(row.load()(query, api))
        )

    async def _ask_plugin(self, plugin: SearchProvider, query: Query) -> WebFindings:
        check_filters(query, plugin.id, plugin.filters)
        ask = partial(_run_plugin, plugin, query, self._settings.timeout_seconds)
        return await self._search_cached(plugin.id, query, "plugin", ask)

    async def search_posts(self, query: PostQuery) -> WebFindings:
        query, settings, row = check_posts(query), self._x, table.PROVIDERS["grok"]
        api = self._api(row, settings.api_key, settings.timeout_seconds, "xai")
        options = {"inlineCitations": str(settings.inline_citations).lower()}
        given = {"model": settings.model, "maxTurns": settings.max_turns}
        options |= {name: str(value) for name, value in given.items() if value}
        api = replace(api, id="xai", name="xAI", options=options)
        key = (api.base_url, options)
        return await self._search_cached(
            "xai", query, key, lambda: api.run(search_posts(query, api))
        )

    async def _search_cached(
        self, provider: str, query: Query | PostQuery, key: object, ask: _Ask
    ) -> WebFindings:
        """A cached or new answer to a query with these settings. Failures are not cached."""
        started = time.monotonic()
        count = query.count if isinstance(query, Query) else None
        ttl_s = (self._settings if count else self._x).cache_ttl_minutes * 60
        name = msgspec.json.encode((provider, key, query), order="deterministic").decode()
        kept = await asyncio.to_thread(self._cache.get, name) if ttl_s else None
        if kept is not None:
            answer = msgspec.json.decode(kept, type=SearchAnswer)
        else:
            answer = tidy(await ask(), count or 1)
            data = msgspec.json.encode(answer)
            await asyncio.to_thread(self._cache.put, name, data, ttl_s)
        took_ms = round((time.monotonic() - started) * 1000)
        return WebFindings(query.query, provider, answer, took_ms, cached=kept is not None)

    def _api(
        self, row: table.ProviderRow, general: SecretInput | None, timeout_s: float, name: str = ""
    ) -> Api:
        """The API of a provider, from its settings. `general` is a fallback key; a key of a tool
        with a `name` takes precedence. Raises `SearchError`."""
        own, base, options = table.read_settings(self._config, row)
        secret = general or own if name else own or general
        found = next(filter(None, (self._env.get(each, "").strip() for each in row.env)), "")
        if row.needs_address:
            base, found = base or found, ""
        try:
            key = (resolve(secret, self._config, self._env).strip() if secret else "") or found
        except SecretError as error:
            words = f"the key of {row.name} is not available: {error}"
            raise SearchError(f"missing_{name or row.id}_api_key", words) from None
        if row.needs_key and not key:
            setting = f"tools.web.{'x_search' if name else 'search'}.apiKey"
            words = f"{row.name} needs a key: set {' or '.join(row.env)}, or {setting}"
            raise SearchError(f"missing_{name or row.id}_api_key", words)
        if row.needs_address and not base:
            words = f"{row.name} has no address: set {row.where}.baseUrl or {row.env[0]}"
            raise SearchError(f"missing_{row.id}_base_url", words)
        self._redactor.learn([key])
        usual = row.local_url if row.local_url and not key else row.base_url
        return Api(
            id=row.id,
            name=row.name,
            base_url=(base or usual).rstrip("/"),
            key=key,
            options=options,
            mode=row.mode_of(options, key),
            is_own=bool(base) or usual == row.local_url != "",
            timeout_s=timeout_s,
            env=self._env,
            redact=self._redactor.strict,
            client=self._client,
            cache=self._cache,
        )

    async def close(self) -> None:
        self._cache.close()
        await self._client.close()


def _save(file: str | None, provider: str) -> str:
    """Save the provider that a person chose; returns a message."""
    where = ("tools", "web", "search", "provider")
    file = file or config_file(os.environ)
    if file == MAPPING:
        return f"{provider} is used for this session: the configuration is not a file"
    try:
        change(file, lambda text: set_setting(text, where, provider), paths=[where])
    except (EditError, ConfigError) as error:
        return f"{provider} is used for this session; it was not saved: {error}"
    return f"Saved: {'.'.join(where)} is {provider} in {file}"


async def _run_plugin(plugin: SearchProvider, query: Query, timeout_s: float) -> SearchAnswer:
    try:
        async with asyncio.timeout(timeout_s):
            answer = await plugin.search(query)
        # Validate as strictly as JSON: it is foreign data in our types.
        return msgspec.json.decode(msgspec.json.encode(answer), type=SearchAnswer)
    except TimeoutError:
        code, words = "timeout", f"did not answer within {timeout_s:g} s"
    except (msgspec.ValidationError, TypeError, UnicodeEncodeError):
        code, words = "unreadable_answer", "returned something that is not a SearchAnswer"
    raise SearchError(code, f"the plugin {plugin.id} {words}", provider=plugin.id)


def tidy(answer: SearchAnswer, count: int) -> SearchAnswer:
    """A cleaned answer: unique results with web addresses, truncated to the limits."""
    hits, citations = _tidy(answer.hits, count), _tidy(answer.citations, MAX_CITATIONS)
    return SearchAnswer(hits, cut(answer.text, MAX_CHARS), citations)


def _tidy(hits: tuple[SearchHit, ...], count: int) -> tuple[SearchHit, ...]:
    found: dict[str, SearchHit] = {}
    for hit in hits:
        if url := _web_address(hit.url):
            found.setdefault(url, hit)
    kept = [*found.items()][:count]
    room = MAX_CHARS // max(1, len(kept))

    def trim(url: str, hit: SearchHit) -> SearchHit:
        title, date = one_line(hit.title, MAX_TITLE), one_line(hit.published, MAX_DATE)
        return SearchHit(title, url, cut(hit.description, room), date)

    return tuple(trim(url, hit) for url, hit in kept)


def _web_address(url: str) -> str:
    """A URL in ASCII that all programs parse alike; empty if it is not a web address."""
    _, mark, fragment = url.partition("#")
    try:
        found = parse_url(url)
    except NetError:
        return ""
    safe = "%/?#:@!$+&,;='~*()"
    shown = f"{found.scheme}://{found.authority}{quote(found.path + mark + fragment, safe)}"
    return shown if len(shown) <= MAX_URL else ""
