"""sessions_search: messages of all sessions that a run may see."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.tools.sessions_ground import SECRET, Ground, at

from clawkit.content import Text, User
from clawkit.testing import check_tool
from clawkit.tools import sessions_history, sessions_search
from clawkit.tools.sessions_search import TOOL


@pytest.fixture
def ground(tmp_path: Path) -> Iterator[Ground]:
    made = Ground(str(tmp_path / "home" / "sessions.sqlite"))
    yield made
    made.store.close()


def test_models_can_be_offered_it() -> None:
    assert check_tool(TOOL) == []


async def test_a_match_has_its_session_and_message(ground: Ground) -> None:
    made = ground.begin("work", "fix the login page")
    result = await ground.call(sessions_search, query='"login page" fix')
    assert result.details == {
        "query": '"login page" fix',
        "count": 2,
        "results": [
            {
                "sessionKey": "agent:main:work",
                "sessionId": made.id,
                "title": "fix the login page",
                "messageId": str(number),
                "role": role,
                "timestamp": at_ms,
                "snippet": snippet,
            }
            for number, role, at_ms, snippet in (
                (2, "assistant", 0, "yes, fix the login page"),
                (1, "user", 1_000, "fix the login page"),
            )
        ],
        "hasMore": False,
        "limitApplied": 10,
        "visibility": {
            "mode": "tree",
            "restricted": True,
            "warning": "sessions that this one may not see are left out: "
            "tools.sessions.visibility is 'tree'",
        },
    }
    read = await ground.call(sessions_history, sessionKey="work", messageId="2", limit=1)
    assert read.details["messages"][0]["content"][0]["text"] == "yes, fix the login page"


async def test_limit_bounds_what_is_shown(ground: Ground) -> None:
    ground.begin("work", *["needle"] * 20)
    result = await ground.call(sessions_search, query="needle", limit=3)
    assert (result.details["count"], result.details["hasMore"]) == (3, True)
    result = await ground.call(sessions_search, query="needle")
    assert result.details["count"] == 10
    result = await ground.call(sessions_search, query="needle", limit=100)
    assert (result.details["count"], result.details["limitApplied"]) == (25, 25)
    assert (await ground.call(sessions_search, query="needle", limit=0)).details["code"] == 400


async def test_a_small_model_gets_fewer(ground: Ground) -> None:
    ground.begin("work", *["needle and much more " * 20] * 20)
    scope = at("main", context_window=3_000)
    result = await ground.call(sessions_search, scope, query="needle", limit=25)
    assert 1 <= result.details["count"] < 25
    assert (result.details["truncationReason"], result.details["hasMore"]) == ("byte-limit", True)


async def test_only_visible_sessions_are_searched(ground: Ground) -> None:
    one = ground.begin("one", "needle", label="first")
    ground.begin("child", "needle", parent=one.id, archived_ms=5)
    ground.begin("two", "needle")
    ground.begin("hers", "needle", agent="other")
    result = await ground.call(sessions_search, at("one"), query="needle")
    shown = {(row["sessionKey"], row["title"]) for row in result.details["results"]}
    assert shown == {("agent:main:one", "first"), ("agent:main:child", "needle")}
    archived = [row for row in result.details["results"] if row.get("archived")]
    assert {row["sessionKey"] for row in archived} == {"agent:main:child"}
    result = await ground.call(sessions_search, at("main", sandboxed=True), query="needle")
    assert result.details["count"] == 0
    config = "{tools: {sessions: {visibility: 'all'}, agentToAgent: {enabled: true}}}"
    result = await ground.call(sessions_search, at("two"), config, query="needle")
    assert len({row["sessionKey"] for row in result.details["results"]}) == 4
    assert "visibility" not in result.details


@pytest.mark.parametrize("query", ["", "…", '""'])
async def test_a_query_needs_words(ground: Ground, query: str) -> None:
    assert (await ground.call(sessions_search, query=query)).details["code"] == 400


async def test_secrets_are_masked(ground: Ground) -> None:
    made = ground.begin("work")
    ground.say(made, User((Text(f"needle {SECRET}"),)))
    result = await ground.call(sessions_search, query="needle")
    assert result.details["count"] == 1
    assert "hunter2" not in result.as_text()
