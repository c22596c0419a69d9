"""x_search: posts on X."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from tests.net.parts import Server, answering
from tests.web.search.recorded import KEY, PAGES, RECORDED, http

from clawkit.runtime import Toolkit

ANSWER = http(next(each for each in RECORDED if each.id == "grok").answers[0])


@pytest.fixture(autouse=True)
def _no_key(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("XAI_API_KEY", raising=False)


def settings(server: Server, **more: Any) -> dict[str, Any]:
    own = {"baseUrl": server.url("").rstrip("/")}
    return {
        "tools": {"web": {"x_search": {"apiKey": KEY, "cacheTtlMinutes": 0, **more}}},
        "plugins": {"entries": {"xai": {"config": {"webSearch": own}}}},
    }


async def test_posts_are_searched_and_cited(workspace: Path) -> None:
    async with (
        answering(ANSWER) as server,
        Toolkit.open(settings(server), workspace=workspace) as kit,
    ):
        result = await kit.call(
            "x_search",
            {
                "query": " launch ",
                "allowed_x_handles": ["@one", "two"],
                "from_date": "2026-01-01",
                "to_date": "2026-02-01",
                "enable_image_understanding": True,
                "enable_video_understanding": True,
            },
        )
        details: Any = result.details
        assert details["provider"] == "xai"
        assert details["externalContent"]["source"] == "x_search"
        assert [each["url"] for each in details["citations"]] == list(PAGES)
        assert "Two things." in details["content"]
        assert f"[[1]]({PAGES[0]})" in details["content"]
        await kit.call("x_search", {"query": "x", "excluded_x_handles": ["three"]})
    first, second = (json.loads(asked.body) for asked in server.asked)
    assert server.asked[0].headers["authorization"] == f"Bearer {KEY}"
    assert server.asked[0].line.startswith("POST /responses ")
    assert first == {
        "model": "grok-4.7",
        "input": [{"role": "user", "content": "launch"}],
        "tools": [
            {
                "type": "x_search",
                "allowed_x_handles": ["one", "two"],
                "from_date": "2026-01-01",
                "to_date": "2026-02-01",
                "enable_image_understanding": True,
                "enable_video_understanding": True,
            }
        ],
    }
    assert second["tools"] == [{"type": "x_search", "excluded_x_handles": ["three"]}]


async def test_settings_have_an_effect(workspace: Path) -> None:
    given = {"model": "grok-9", "maxTurns": 3, "inlineCitations": False, "cacheTtlMinutes": 5}
    async with answering(ANSWER) as server:
        async with Toolkit.open(settings(server, **given), workspace=workspace) as kit:
            results = [await kit.call("x_search", {"query": "x"}) for _ in range(2)]
            assert [each.details["cached"] for each in results] == [False, True]
            assert "[[1]]" not in results[0].as_text()
        body = json.loads(server.asked[0].body)
        assert (body["model"], body["max_turns"]) == ("grok-9", 3)
        assert len(server.asked) == 1

    async def wait(reader: Any, _writer: Any) -> None:
        await reader.read()

    from tests.net.parts import serving

    async with serving(wait) as server:
        config = settings(server, timeoutSeconds=1)
        async with Toolkit.open(config, workspace=workspace) as kit:
            details = (await kit.call("x_search", {"query": "x"})).details
            assert details["message"] == "xAI did not answer within 1 s"


async def test_invalid_parameters_are_refused_before_anything_is_sent(workspace: Path) -> None:
    both = {"allowed_x_handles": ["a"], "excluded_x_handles": ["b"]}
    cases: list[tuple[dict[str, Any], str]] = [
        (both, "conflicting_x_handles"),
        ({"allowed_x_handles": ["not a name"]}, "invalid_x_handle"),
        ({"from_date": "yesterday"}, "invalid_date"),
        ({"from_date": "2026-02-01", "to_date": "2026-01-01"}, "invalid_date"),
        ({"query": " "}, "invalid_query"),
    ]
    async with answering(ANSWER) as server:
        async with Toolkit.open(settings(server), workspace=workspace) as kit:
            for params, code in cases:
                details = (await kit.call("x_search", {"query": "x", **params})).details
                assert details["error"] == code, params
            many = {"allowed_x_handles": [f"a{n}" for n in range(21)]}
            assert (await kit.call("x_search", {"query": "x", **many})).details["code"] == 400
        assert server.asked == []


async def test_the_tool_is_offered_only_with_a_key(
    workspace: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def reason(config: dict[str, Any]) -> str:
        async with Toolkit.open(config, workspace=workspace) as kit:
            if "x_search" in kit.run.tools:
                return ""
            return str((await kit.call("x_search", {"query": "x"})).details["reason"])

    assert "it needs an xAI API key: set XAI_API_KEY, or tools.web.x_search." in await reason({})
    assert await reason({"tools": {"web": {"x_search": {"apiKey": KEY}}}}) == ""
    monkeypatch.setenv("XAI_API_KEY", KEY)
    assert await reason({}) == ""
    off = {"tools": {"web": {"x_search": {"enabled": False}}}}
    assert "tools.web.x_search.enabled is false" in await reason(off)
    monkeypatch.delenv("XAI_API_KEY")
    unset = {"tools": {"web": {"x_search": {"apiKey": "$NO_SUCH_KEY"}}}}
    async with Toolkit.open(unset, workspace=workspace) as kit:
        details = (await kit.call("x_search", {"query": "x"})).details
        assert details["error"] == "missing_xai_api_key"
