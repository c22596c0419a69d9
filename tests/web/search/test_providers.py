"""One suite for all providers: what they are asked, and what is made of their answers."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from msgspec.structs import replace
from tests.net.parts import Server, answering, serving
from tests.web.search.recorded import (
    EVIL,
    PAGES,
    RECORDED,
    Q,
    Recorded,
    http,
    provider,
    settings,
)

from clawkit import Result
from clawkit.config.search_services import SEARCH_ENTRIES
from clawkit.runtime import Toolkit
from clawkit.web.search.protocols import FILTERS
from clawkit.web.search.table import OFFERED, PROVIDERS

END = "<<<END_EXTERNAL_UNTRUSTED_CONTENT id="


async def search(config: dict[str, Any], workspace: Path, **params: Any) -> Result:
    async with Toolkit.open(config, workspace=workspace) as kit:
        return await kit.call("web_search", {"query": Q, "count": 2, **params})


def test_the_table_knows_every_provider_once() -> None:
    assert set(PROVIDERS) == set(SEARCH_ENTRIES) == {each.id for each in RECORDED}
    for row in PROVIDERS.values():
        assert set(FILTERS) >= row.filters_in("").union(*map(row.filters_in, row.by_mode))
    free = {row.id for row in PROVIDERS.values() if not row.needs_key}
    assert set(OFFERED) | {"ollama"} == free
    order = [row.id for row in PROVIDERS.values() if row.order]
    assert order == sorted(order, key=lambda each: PROVIDERS[each].order or 0)


async def test_each_is_asked_in_its_own_way_and_understood(workspace: Path) -> None:
    for each in RECORDED:
        async with provider(each) as server:
            result = await search(settings(each, server), workspace)
            assert not result.is_error, (each.says, result.details)
            _check_request(each, server)
            _check_answer(each, result)


def _check_request(each: Recorded, server: Server) -> None:
    assert len(server.asked) == len(each.answers), each.says
    asked = server.asked[-1]
    assert asked.line == f"{each.line} HTTP/1.1", each.says
    for name, value in each.headers.items():
        assert asked.headers.get(name, "") == value, (each.says, name)
    if each.body is not None:
        assert json.loads(asked.body) == each.body, each.says
    if asked.body:
        assert asked.headers["content-type"] == "application/json"


def _check_answer(each: Recorded, result: Result) -> None:
    details: Any = result.details
    assert (details["query"], details["provider"], details["cached"]) == (Q, each.id, False)
    assert details["externalContent"] == {
        "untrusted": True,
        "source": "web_search",
        "provider": each.id,
        "wrapped": True,
    }
    if each.text:
        assert [page["url"] for page in details["citations"]] == list(PAGES), each.says
        marked = [details["content"]]
    else:
        assert [hit["url"] for hit in details["results"]] == list(PAGES), each.says
        assert details["count"] == 2
        assert details["results"][0]["siteName"] == "example.org"
        assert each.published in details["results"][0].get("published", ""), each.says
        assert "T0" in details["results"][0]["title"]
        assert "First" in details["results"][0]["description"]
        marked = [hit["description"] for hit in details["results"]]
        marked += [hit["title"] for hit in details["results"]]
    # Marked once, and nothing in it ends the mark or speaks as a model.
    for text in (*marked, result.as_text()):
        assert text.count(END) == 1, each.says
        assert text.endswith(">>>")
        assert "[INST]" not in text
    assert any("[[END_MARKER_SANITIZED]]" in text for text in marked), each.says
    assert all(page in result.as_text() for page in PAGES)
    assert "javascript:" not in json.dumps(details) + result.as_text()
    assert EVIL not in result.as_text()


async def test_filters_reach_the_provider_as_it_spells_them(workspace: Path) -> None:
    days = {"date_after": "2026-01-05", "date_before": "2026-02-28"}
    cases: list[tuple[str, dict[str, Any], list[str]]] = [
        ("brave", {"country": "de"}, ["country=DE"]),
        ("brave", {"country": "IS"}, ["country=ALL"]),
        ("brave", {"language": "ja"}, ["search_lang=jp"]),
        ("brave", {"search_lang": "zh-TW"}, ["search_lang=zh-hant"]),
        ("brave", {"language": "en-US"}, ["search_lang=en"]),
        ("brave", {"ui_lang": "en-US"}, ["ui_lang=en-US"]),
        ("brave", {"freshness": "week"}, ["freshness=pw"]),
        ("brave", {"freshness": "pd"}, ["freshness=pd"]),
        ("brave", days, ["freshness=2026-01-05to2026-02-28"]),
        ("brave", {"date_after": "2026-01-05"}, ["freshness=2026-01-05to20"]),
        ("brave llm-context", {"freshness": "year"}, ["freshness=py"]),
        (
            "gemini",
            days,
            ['"startTime":"2026-01-05T00:00:00Z"', '"endTime":"2026-02-28T23:59:59Z"'],
        ),
        ("gemini", {"date_before": "2026-02-28"}, ['"startTime":"1970-01-01T00:00:00Z"']),
        ("gemini", {"freshness": "month"}, ['"timeRangeFilter"']),
        ("perplexity", {"country": "de"}, ['"country":"DE"']),
        ("perplexity", {"language": "de"}, ['"search_language_filter":["de"]']),
        ("perplexity", {"freshness": "day"}, ['"search_recency_filter":"day"']),
        (
            "perplexity",
            days,
            [
                '"search_after_date_filter":"1/5/2026"',
                '"search_before_date_filter":"2/28/2026"',
            ],
        ),
        (
            "perplexity",
            {"domain_filter": ["-X.example.org"]},
            ['"search_domain_filter":["-x.example.org"]'],
        ),
        (
            "perplexity",
            {"max_tokens": 1000, "max_tokens_per_page": 100},
            ['"max_tokens":1000', '"max_tokens_per_page":100'],
        ),
        ("perplexity chat", {"freshness": "day"}, ['"search_recency_filter":"day"']),
        ("exa", days, ['"startPublishedDate":"2026-01-05T', '"endPublishedDate":"2026-02-28T']),
        ("exa", {"freshness": "week"}, ['"startPublishedDate":"20']),
        ("exa", {"domain_filter": ["example.org"]}, ['"includeDomains":["example.org"]']),
        ("tavily", {"freshness": "week"}, ['"time_range":"week"']),
        ("tavily", {"domain_filter": ["-example.org"]}, ['"exclude_domains":["example.org"]']),
        ("serper", {"country": "DE", "language": "de"}, ['"gl":"de"', '"hl":"de"']),
        ("serper", {"freshness": "week"}, ['"tbs":"qdr:w"']),
        ("searxng", {"language": "de", "freshness": "month"}, ["language=de", "time_range=month"]),
    ]
    tried: dict[str, set[str]] = {}
    for says, params, expected in cases:
        each = next(one for one in RECORDED if one.says == says)
        tried.setdefault(each.says, set()).update(params)
        async with provider(each) as server:
            result = await search(settings(each, server), workspace, **params)
            assert not result.is_error, (says, result.details)
            sent = server.asked[-1].line + server.asked[-1].body.decode()
            assert [part for part in expected if part not in sent] == [], (says, sent)
    for row in PROVIDERS.values():
        assert row.filters_in("") <= tried.get(row.id, set()), row.id


async def test_settings_of_a_provider_have_an_effect(workspace: Path) -> None:
    for id_, options, expected in (
        ("duckduckgo", {"region": "de-de", "safeSearch": "off"}, "kl=de-de&kp=-2"),
        ("searxng", {"categories": "news", "language": "fr"}, "language=fr&categories=news"),
        ("exa", {"type": "deep"}, '"type":"deep"'),
        ("gemini", {"model": "gemini-9"}, "/models/gemini-9:generateContent"),
        ("grok", {"model": "grok-9"}, '"model":"grok-9"'),
        ("kimi", {"model": "kimi-9"}, '"model":"kimi-9"'),
    ):
        each = replace(next(one for one in RECORDED if one.id == id_), options=options)
        async with provider(each) as server:
            assert not (await search(settings(each, server), workspace)).is_error
            assert expected in server.asked[-1].line + server.asked[-1].body.decode()


async def test_an_unknown_setting_of_a_provider_is_an_error(workspace: Path) -> None:
    for options, message in (
        ({"regon": "x"}, "webSearch.regon: unknown setting. Did you mean 'region'?"),
        ({"safeSearch": "some"}, "webSearch.safeSearch: use one of strict, moderate, off"),
        ({"region": ""}, "webSearch.region: must be a string"),
    ):
        each = replace(next(one for one in RECORDED if one.id == "duckduckgo"), options=options)
        async with provider(each) as server:
            result = await search(settings(each, server), workspace)
            assert result.details["error"] == "invalid_setting"
            assert message in result.details["message"]
            assert server.asked == []


def _faults(key: str) -> list[tuple[bytes, str, str]]:
    """Answers, the code of the error that each leads to, and words of its message."""
    leak = {"error": {"message": f"bad key {key}, see <|im_start|> docs"}}
    return [
        (http(leak, 401), "unauthorized", "refused"),
        (http({"message": "slow down"}, 429, Retry_After="7"), "rate_limited", "for 7s"),
        (http("<html>login</html>"), "unreadable_answer", "sent a"),
        (http({"unexpected": True}), "unreadable_answer", "sent "),
        (b"HTTP/1.1 200 OK\r\nContent-Length: 4\r\n\r\n{\xff!]", "unreadable_answer", "sent "),
        (http([1]), "unreadable_answer", "sent "),
        (http(leak), "provider_error", "reported an error"),
        (http("", 302, Location="https://example.org/"), "redirected", "HTTP 302"),
        (http("oops", 500), "provider_error", "HTTP 500"),
        (b"HTTP/1.1 200 OK\r\nContent-Length: 99\r\n\r\n{}", "unreachable", "cannot be reached"),
    ]


async def test_each_fault_of_a_service_has_its_error(workspace: Path) -> None:
    for each in RECORDED:
        for answer, code, words in _faults(each.key or "none"):
            async with answering(answer, then_close=True) as server:
                result = await search(settings(each, server), workspace)
                details: Any = result.details
                about = (each.says, code, details)
                if each.id == "duckduckgo" and answer.startswith(b"HTTP/1.1 200 X"):
                    code, words = "unreadable_answer", "sent a page"
                if each.id == "parallel-free" and answer == http({"unexpected": True}):
                    continue  # that is how a conversation may begin
                assert details["status"] == "error", about
                assert details["error"] == code, about
                assert words in details["message"], about
                assert details["provider"] == each.id, about
                if each.key:
                    assert each.key not in json.dumps(details) + result.as_text(), about
                assert "<|im_start|>" not in result.as_text()
                assert len(server.asked) == 1, about


async def test_what_goes_on_without_end_is_cut_off(workspace: Path) -> None:
    piece = b"[" * (1 << 20)

    async def flood(reader: Any, writer: Any) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: 99999999\r\n\r\n")
        while True:
            writer.write(piece)
            await writer.drain()

    async def wait(reader: Any, _writer: Any) -> None:
        await reader.read()
        await reader.read()

    for serve, code, words in (
        (flood, "unreadable_answer", "Tavily sent more than 16 MB"),
        (wait, "timeout", "Tavily did not answer within 1 s"),
    ):
        each = next(one for one in RECORDED if one.id == "tavily")
        async with serving(serve) as server:
            result = await search(settings(each, server, timeoutSeconds=1), workspace)
            assert (result.details["error"], result.details["message"]) == (code, words)


async def test_nothing_found_is_not_an_error(workspace: Path) -> None:
    empty: dict[str, Any] = {
        "brave": {"type": "search", "query": {"original": Q}},
        "serper": {"organic": []},
        "kagi": {"data": [{"t": 1, "list": []}]},
        "duckduckgo": '<div class="no-results">No results.</div>',
    }
    for id_, answer in empty.items():
        each = next(one for one in RECORDED if one.id == id_)
        async with answering(http(answer)) as server:
            result = await search(settings(each, server), workspace)
            assert not result.is_error, result.details
            assert (result.details["count"], result.details["results"]) == (0, [])
            assert result.as_text().startswith("No results.")


async def test_what_only_some_services_do_wrong(workspace: Path) -> None:
    far = "Thu, 01 Jan 2099 00:00:00 GMT"
    call = {"message": {"tool_calls": [{"function": {"name": "$web_search"}}]}}
    cases: list[tuple[str, list[bytes], str, str]] = [
        ("searxng", [http("no", 403)], "json_disabled", "add json to search.formats"),
        ("duckduckgo", [http("...", 202)], "bot_challenge", "CAPTCHA"),
        ("duckduckgo", [http('<div class="anomaly-modal">')], "bot_challenge", "CAPTCHA"),
        ("firecrawl", [http({"success": False, "message": "no"})], "provider_error", "a failure"),
        (
            "minimax",
            [http({"base_resp": {"status_code": 1004}})],
            "provider_error",
            "reported an error",
        ),
        ("gemini", [http({"candidates": []})], "unreadable_answer", "no answer"),
        ("grok", [http({"output": []})], "unreadable_answer", "no answer"),
        ("perplexity chat", [http({"choices": []})], "unreadable_answer", "no answer"),
        ("kimi", [http({"choices": [{"message": {"content": "I know"}}]})], "not_grounded", ""),
        ("kimi", [http({"choices": [{"message": {}}]})], "unreadable_answer", "no answer"),
        ("kimi", [http({"choices": [call]})], "provider_error", "within 4 searches"),
        (
            "parallel-free",
            [http({"result": {"isError": True, "content": [{"text": "quota"}]}})],
            "provider_error",
            "reported an error",
        ),
        (
            "parallel-free",
            [http({"result": {"content": [{"text": "no JSON"}]}})],
            "unreadable_answer",
            "not a JSON object",
        ),
        (
            "brave",
            [http("", 503, Retry_After=far)],
            "rate_limited",
            "1h",
        ),
        ("brave", [http("", 429, Retry_After="soon")], "rate_limited", "1m"),
    ]
    for says, answers, code, words in cases:
        each = next(one for one in RECORDED if one.says == says)
        async with answering(*answers) as server:
            result = await search(settings(each, server), workspace)
            assert result.details["error"] == code, (says, result.details)
            assert words in result.details["message"], (says, result.details)


async def test_an_mcp_server_may_answer_in_events_and_keep_a_session(workspace: Path) -> None:
    each = next(one for one in RECORDED if one.id == "parallel-free")
    found = json.dumps(each.answers[-1])
    stream = f"event: message\r\ndata: {{}}\r\n\r\ndata: {found}\r\n\r\n".encode()
    head = b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nContent-Length: %d\r\n\r\n"
    first = http(each.answers[0], Mcp_Session_Id="s1")
    async with answering(first, http("", 202), head % len(stream) + stream) as server:
        result = await search(settings(each, server), workspace)
        assert result.details["count"] == 2, result.details
    methods = [json.loads(asked.body)["method"] for asked in server.asked]
    assert methods == ["initialize", "notifications/initialized", "tools/call"]
    assert [asked.headers.get("mcp-session-id") for asked in server.asked] == [None, "s1", "s1"]
    sent = json.loads(server.asked[-1].body)["params"]
    assert sent["name"] == "web_search"
    assert {**sent["arguments"], "session_id": "?"} == {
        "objective": Q,
        "search_queries": [Q],
        "session_id": "?",
    }


async def test_redirects_of_gemini_are_resolved_where_its_answer_comes_from(
    workspace: Path,
) -> None:
    each = next(one for one in RECORDED if one.id == "gemini")
    moved = http("", 302, Location="https://example.net/there")

    async def serve(reader: Any, writer: Any) -> None:
        from tests.net.parts import read_request

        while True:
            asked = await read_request(reader)
            server.asked.append(asked)
            answer = json.loads(json.dumps(each.answers[0]).replace(PAGES[0], server.url("/go")))
            other = "http://127.0.0.1:1/go"
            answer = json.loads(json.dumps(answer).replace(PAGES[1], other))
            writer.write(moved if asked.line.startswith("HEAD") else http(answer))
            await writer.drain()

    async with serving(serve) as server:
        result = await search(settings(each, server), workspace)
    urls = [page["url"] for page in result.details["citations"]]
    assert urls == ["https://example.net/there", "http://127.0.0.1:1/go"]
    heads = [asked for asked in server.asked if asked.line.startswith("HEAD")]
    assert [asked.headers.get("x-goog-api-key") for asked in heads] == [None]
