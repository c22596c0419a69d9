"""Which provider is asked, with which key, and what is kept."""

from __future__ import annotations

import json
import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from tests.net.parts import Server, answering
from tests.plugins.kit import add, open_kit
from tests.web.search.recorded import KEY, RECORDED, Q, Recorded, http, provider, settings

from clawkit import Result
from clawkit.config.json5 import parse
from clawkit.config.load import load, loads
from clawkit.core import approval
from clawkit.core.context import Scope
from clawkit.errors import ConfigError
from clawkit.runtime import Toolkit
from clawkit.tools.web_search import make_tool
from clawkit.web.search.protocols import FILTERS, Searcher
from clawkit.web.search.table import PROVIDERS, ready_providers


def recorded(id_: str) -> Recorded:
    return next(each for each in RECORDED if each.says == id_)


def entries(servers: dict[str, Server], keys: Sequence[str] = ()) -> dict[str, Any]:
    """Settings of several providers, of which those in `keys` have one."""
    found = {}
    for id_, server in servers.items():
        own = {"baseUrl": server.url("").rstrip("/")} | ({"apiKey": KEY} if id_ in keys else {})
        found[PROVIDERS[id_].entry] = {"config": {"webSearch": own}}
    return {"plugins": {"entries": found}, "tools": {"web": {"search": {"cacheTtlMinutes": 0}}}}


async def search(config: Any, workspace: Path, **params: Any) -> Result:
    async with Toolkit.open(config, workspace=workspace, owner=True) as kit:
        return await kit.call("web_search", {"query": Q, **params})


async def test_the_first_provider_with_a_key_is_asked_and_the_next_if_it_fails(
    workspace: Path,
) -> None:
    exa, tavily, brave = map(recorded, ("exa", "tavily", "brave"))
    async with provider(exa) as one, provider(tavily) as two, provider(brave) as three:
        servers = {"tavily": two, "brave": three, "exa": one}
        result = await search(entries(servers, ["tavily", "exa"]), workspace)
        assert result.details["provider"] == "exa"
        assert [len(each.asked) for each in (one, two, three)] == [1, 0, 0]
        # Only those that can do what is asked.
        result = await search(entries(servers, ["tavily", "brave"]), workspace, country="DE")
        assert result.details["provider"] == "brave"
        result = await search(entries(servers, ["tavily"]), workspace, country="DE")
        assert result.details["error"] == "unsupported_filter"
        assert result.details["supported"] == ["freshness", "domain_filter"]
        assert (
            "tavily cannot filter by country; supported filters: freshness, domain_filter"
            in (result.details["message"])
        )
    async with answering(http("", 500)) as broken, provider(tavily) as two:
        servers = {"exa": broken, "tavily": two}
        result = await search(entries(servers, ["exa", "tavily"]), workspace)
        assert result.details["provider"] == "tavily"
        config = entries(servers, ["exa", "tavily"])
        config["tools"]["web"]["search"]["provider"] = "exa"
        result = await search(config, workspace)
        assert result.details["error"] == "provider_error"
        assert len(two.asked) == 1
    async with answering(http("", 500)) as broken, answering(http("", 401)) as closed:
        result = await search(
            entries({"exa": broken, "tavily": closed}, ["exa", "tavily"]), workspace
        )
        assert result.details["error"] == "all_failed"
        assert "Exa failed (HTTP 500); Tavily refused the key" in result.details["message"]


async def test_nothing_is_sent_without_a_choice(workspace: Path) -> None:
    """A service that needs no key is asked only if it is named."""
    free = ["firecrawl", "parallel-free", "duckduckgo", "ollama"]
    async with provider(recorded("duckduckgo")) as server:
        result = await search(entries(dict.fromkeys(free, server)), workspace)
        assert result.details["error"] == "missing_search_provider"
        assert "clawkit configure search" in result.details["message"]
        assert server.asked == []


async def test_a_named_provider_without_its_key_says_what_to_do(workspace: Path) -> None:
    for row in PROVIDERS.values():
        if row.needs_key:
            config = {"tools": {"web": {"search": {"provider": row.id}}}}
            details: Any = (await search(config, workspace)).details
            assert details["error"] == f"missing_{row.id}_api_key"
            assert f"set {' or '.join(row.env)}, or tools.web.search.apiKey" in details["message"]
            assert details["docs"] == "docs/web-search.md"
    config = {"tools": {"web": {"search": {"provider": "searxng"}}}}
    details = (await search(config, workspace)).details
    assert details["error"] == "missing_searxng_base_url"
    assert "or SEARXNG_BASE_URL" in details["message"]


async def test_keys_come_from_the_settings_and_from_variables(
    workspace: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with provider(recorded("brave")) as server:

        async def sent(config: dict[str, Any]) -> str:
            result = await search(config, workspace)
            assert not result.is_error, result.details
            return server.asked[-1].headers["x-subscription-token"]

        plain = entries({"brave": server})
        with_key = entries({"brave": server})
        with_key["tools"]["web"]["search"]["apiKey"] = "general-key"
        assert await sent(with_key) == "general-key"
        monkeypatch.setenv("BRAVE_API_KEY", "key-of-the-variable")
        assert await sent(plain) == "key-of-the-variable"
        assert await sent(with_key) == "general-key"
        with_key["plugins"]["entries"]["brave"]["config"]["webSearch"]["apiKey"] = {
            "source": "env",
            "id": "OTHER_KEY",
        }
        monkeypatch.setenv("OTHER_KEY", "key-that-is-referred-to")
        assert await sent(with_key) == "key-that-is-referred-to"
        monkeypatch.delenv("OTHER_KEY")
        details = (await search(with_key, workspace)).details
        assert details["error"] == "missing_brave_api_key"
        assert "'OTHER_KEY'" in details["message"]
        with_key["plugins"]["entries"]["brave"]["config"]["webSearch"]["apiKey"] = 7
        details = (await search(with_key, workspace)).details
        assert "must be a string or a secret reference" in details["message"]
        # An entry that other programs need is no plugin here.
        plain["plugins"]["entries"]["brave"]["enabled"] = True
        async with Toolkit.open(plain, workspace=workspace) as kit:
            assert kit.warnings == ()


def test_the_order_follows_the_table() -> None:
    env = {name: "x" for row in PROVIDERS.values() for name in row.env}
    config = loads("{}").config
    ready = ready_providers(config, env)
    assert ready[:3] == ("brave", "minimax", "gemini")
    assert ready[-1] == "searxng"
    assert not {"ollama", "duckduckgo", "parallel-free"} & set(ready)
    assert ready_providers(config, {}) == ()


async def test_answers_are_kept_for_a_while(workspace: Path) -> None:
    async with provider(recorded("tavily")) as server:
        config = settings(recorded("tavily"), server, cacheTtlMinutes=15, maxResults=1)
        first = await search(config, workspace)
        again = await search(config, workspace)
        assert [each.details["cached"] for each in (first, again)] == [False, True]
        assert first.details["count"] == again.details["count"] == 1
        assert (first.details["results"][0]["url"]) == again.details["results"][0]["url"]
        assert len(server.asked) == 1
        for params in ({"count": 2}, {"freshness": "day"}):
            assert not (await search(config, workspace, **params)).details["cached"]
        assert len(server.asked) == 3
    async with answering(http("", 500), http(recorded("tavily").answers[0])) as server:
        config = settings(recorded("tavily"), server, cacheTtlMinutes=15)
        assert (await search(config, workspace)).is_error
        assert not (await search(config, workspace)).is_error


async def test_a_service_that_has_too_many_requests_is_left_alone(workspace: Path) -> None:
    async with answering(http("", 429, Retry_After="30")) as server:
        config = settings(recorded("tavily"), server)
        async with Toolkit.open(config, workspace=workspace) as kit:
            for _ in range(3):
                details = (await kit.call("web_search", {"query": Q})).details
                assert details["error"] == "rate_limited"
                assert 25 <= details["retryAfterSeconds"] <= 30
        assert len(server.asked) == 1


async def test_private_addresses_are_reached_only_where_a_person_set_them(workspace: Path) -> None:
    config = {"tools": {"web": {"search": {"provider": "searxng"}}}}
    for url, message in (
        ("http://169.254.169.254", "metadata service"),
        ("http://203.0.113.5", "documentation"),
        ("ftp://x", "SearXNG cannot be reached"),
    ):
        own = {"searxng": {"config": {"webSearch": {"baseUrl": url}}}}
        details = (await search({**config, "plugins": {"entries": own}}, workspace)).details
        assert details["error"] == "unreachable", details
        assert message in details["message"]


async def test_parameters_are_checked_before_anything_is_sent(workspace: Path) -> None:
    cases: list[tuple[dict[str, Any], str, str]] = [
        ({"freshness": "hour"}, "invalid_freshness", "use one of day, week, month, year"),
        ({"date_after": "2026-02-30"}, "invalid_date", "'2026-02-30' is not a day"),
        ({"date_before": "20260201"}, "invalid_date", "date_before"),
        ({"date_after": "2026-03-01", "date_before": "2026-02-01"}, "invalid_date", "later than"),
        ({"date_after": "2026-03-01", "freshness": "day"}, "conflicting_time_filters", ""),
        ({"country": "Germany"}, "invalid_country", "a two-letter country code"),
        ({"language": "german!"}, "invalid_language", "a language code"),
        ({"search_lang": "x"}, "invalid_search_lang", "a language code"),
        ({"ui_lang": "en"}, "invalid_ui_lang", "such as en-US"),
        ({"domain_filter": ["http://x.org/"]}, "invalid_domain_filter", "not a domain name"),
        ({"domain_filter": ["a.org", "-b.org"]}, "invalid_domain_filter", "either all"),
        ({"domain_filter": [f"a{n}.org" for n in range(21)]}, "invalid_domain_filter", "up to 20"),
        ({"query": "  "}, "invalid_query", "is empty"),
    ]
    async with provider(recorded("perplexity")) as server:
        config = settings(recorded("perplexity"), server)
        for params, code, message in cases:
            details = (await search(config, workspace, **params)).details
            assert details["error"] == code, (params, details)
            assert message in details["message"], (params, details)
        for params in ({"count": 0}, {"count": 11}, {"max_tokens": 1_000_001}, {"query": ""}):
            assert (await search(config, workspace, **params)).details["code"] == 400
        assert server.asked == []


def test_only_what_the_provider_can_do_is_advertised() -> None:
    def offered(text: str, ready: tuple[str, ...] = ()) -> set[str]:
        tool = make_tool(loads(text).config, Scope(search=ready))
        assert not isinstance(tool, str), tool
        return set(tool.offered["properties"]) - {"query", "count"}

    def named(id_: str, options: str = "{}") -> str:
        web = f"{{search: {{provider: '{id_}'}}}}"
        entry = f"{{{PROVIDERS[id_].entry}: {{config: {{webSearch: {options}}}}}}}"
        return f"{{tools: {{web: {web}}}, plugins: {{entries: {entry}}}}}"

    assert offered(named("tavily")) == {"freshness", "domain_filter"}
    assert offered(named("kagi")) == set()
    assert "ui_lang" in offered(named("brave"))
    assert "ui_lang" not in offered(named("brave", "{mode: 'llm-context'}"))
    assert offered(named("perplexity", "{model: 'sonar'}")) == {"freshness"}
    assert offered("{}", ("tavily", "searxng")) == {"freshness", "domain_filter", "language"}
    plugin = "{tools: {web: {search: {provider: 'mine'}}}, plugins: {entries: {mine: {}}}}"
    assert offered(plugin) == set(FILTERS)
    assert isinstance(make_tool(loads("{}").config, Scope()), str)
    off = loads("{tools: {web: {search: {enabled: false}}}}").config
    assert make_tool(off, Scope(search=("brave",))) == "tools.web.search.enabled is false"


def test_an_unknown_provider_is_refused_with_the_nearest() -> None:
    for name, hint in (("brav", "Did you mean 'brave'?"), ("altavista-x", "Search services: ")):
        with pytest.raises(ConfigError) as error:
            loads(f"{{tools: {{web: {{search: {{provider: '{name}'}}}}}}}}")
        assert "tools.web.search.provider: unknown search service" in str(error.value)
        assert hint in str(error.value)
    plugin = "{tools: {web: {search: {provider: 'mine'}}}, plugins: {entries: {mine: {}}}}"
    assert loads(plugin).warnings == []
    (warning,) = loads("{tools: {web: {search: {openaiCodex: {mode: 'live'}}}}}").warnings
    assert "clawkit does not use these settings: tools.web.search.openaiCodex" in str(warning)


class Person:
    """Answers each question in turn."""

    def __init__(self, *answers: str) -> None:
        self.answers = list(answers)
        self.asked: list[approval.Question] = []

    async def ask(self, request: approval.Question) -> approval.Answer:
        self.asked.append(request)
        return approval.Answer("allow" if self.answers.pop(0) == "yes" else "deny")


async def test_the_first_use_offers_what_needs_no_key(workspace: Path) -> None:
    person = Person("no", "yes")
    async with provider(recorded("firecrawl, free")) as server:
        config = entries({"firecrawl": server})
        file = Path(os.environ["CLAWKIT_HOME"], "clawkit.json5")
        file.parent.mkdir(exist_ok=True)
        file.write_text(f"// mine\n{json.dumps(config)}")
        async with Toolkit.open(file, workspace=workspace, owner=True, approver=person) as kit:
            result = await kit.call("web_search", {"query": Q})
            assert result.details["provider"] == "firecrawl", result.details
            assert f"Saved: tools.web.search.provider is firecrawl in {file}" in result.as_text()
            assert not (await kit.call("web_search", {"query": "more"})).is_error
    assert [each.title for each in person.asked] == [
        "search the web with Parallel (free) from now on (saved in the configuration)",
        "search the web with Firecrawl from now on (saved in the configuration)",
    ]
    first, second = person.asked
    assert "If you refuse, you are offered Firecrawl and DuckDuckGo." in first.description
    assert "your own SearXNG" in first.description
    assert second.to_allow == "clawkit config set tools.web.search.provider firecrawl"
    text = file.read_text()
    assert text.startswith("// mine")
    assert parse(text).value["tools"]["web"]["search"]["provider"] == "firecrawl"
    assert load(str(file)).config.tools.web


async def test_who_wants_none_is_not_asked_again(workspace: Path) -> None:
    person = Person("no", "no", "no")
    async with Toolkit.open({}, workspace=workspace, owner=True, approver=person) as kit:
        for _ in range(2):
            details = (await kit.call("web_search", {"query": Q})).details
            assert details["error"] == "missing_search_provider"
    assert len(person.asked) == 3


async def test_a_choice_that_cannot_be_saved_counts_for_the_session(
    workspace: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with answering(*map(http, recorded("parallel-free").answers)) as server:
        config = entries({"parallel-free": server})
        async with Toolkit.open(
            config, workspace=workspace, owner=True, approver=Person("yes")
        ) as kit:
            result = await kit.call("web_search", {"query": Q})
            assert "is used for this session: the configuration is not a file" in result.as_text()
    monkeypatch.setenv("CLAWKIT_CONFIG_READONLY", "1")
    async with Toolkit.open(workspace=workspace, owner=True, approver=Person("yes")) as kit:
        searcher: Any = kit.run.services[Searcher]
        said = await searcher.choose("duckduckgo")
        assert "it was not saved: the configuration is read-only" in said


PLUGIN = '''"""Searches a library."""
from clawkit.plugins import Plugin, PluginContext
from clawkit.web.search.protocols import SearchAnswer, SearchHit

plugin = Plugin("library", services=["search"])


class Library:
    id = "library"
    filters = frozenset(["language"])

    async def search(self, query):
        {body}


@plugin.service("search")
def make(ctx: PluginContext):
    return Library()
'''


async def test_a_plugin_may_bring_a_provider(workspace: Path) -> None:
    body = (
        "return SearchAnswer((SearchHit('Book ' + query.language, 'https://example.org/b'), "
        "SearchHit('x', 'file:///etc/passwd')))"
    )
    add(PLUGIN.format(body=body))
    off = {"cacheTtlMinutes": 0}
    for search_settings in (off, {"provider": "library", **off}):
        kit = open_kit(workspace, "library", config={"tools": {"web": {"search": search_settings}}})
        async with kit:
            result = await kit.call("web_search", {"query": Q, "language": "de"})
            assert result.details["provider"] == "library", result.details
            assert [hit["url"] for hit in result.details["results"]] == ["https://example.org/b"]
            assert "Book de" in result.details["results"][0]["title"]
            result = await kit.call("web_search", {"query": Q, "country": "DE"})
            assert result.details["error"] == "unsupported_filter"
    config = {"tools": {"web": {"search": {"provider": "library"}}}}
    config["plugins"] = {"entries": {"library": {}}}
    details = (await search(config, workspace)).details
    assert "the plugin 'library' is not loaded" in details["message"]


async def test_a_plugin_that_fails_is_an_error_and_no_more(workspace: Path) -> None:
    for body, message in (
        ("return 'text'", "returned something that is not a SearchAnswer"),
        (
            "return SearchAnswer((SearchHit(1, 2),))",
            "returned something that is not a SearchAnswer",
        ),
        ("import asyncio; await asyncio.sleep(60)", "the plugin library did not answer within 1 s"),
        ("raise ValueError('broken')", "broken"),
    ):
        add(PLUGIN.format(body=body), "library")
        web = {"search": {"timeoutSeconds": 1, "cacheTtlMinutes": 0}}
        async with open_kit(workspace, "library", config={"tools": {"web": web}}) as kit:
            result = await kit.call("web_search", {"query": Q})
            assert result.is_error
            assert message in result.as_text(), body


async def test_a_plugin_cannot_take_the_place_of_a_service_that_was_chosen(workspace: Path) -> None:
    body = "return SearchAnswer((SearchHit('x', 'https://example.org/'),))"
    add(PLUGIN.format(body=body).replace('id = "library"', 'id = "brave"'))
    web = {"search": {"provider": "brave", "cacheTtlMinutes": 0}}
    async with open_kit(workspace, "library", config={"tools": {"web": web}}) as kit:
        details = (await kit.call("web_search", {"query": Q})).details
        assert details["error"] == "missing_brave_api_key"
