"""sessions_list: the sessions that a run may see."""

from __future__ import annotations

import json
import os
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.tools.sessions_ground import SECRET, Ground, at

from clawkit.content import Assistant, Image, Text, Thinking, ToolCall, ToolResult, User
from clawkit.core.context import Scope
from clawkit.testing import check_tool
from clawkit.tools import sessions_list
from clawkit.tools.sessions_list import TOOL


@pytest.fixture
def ground(tmp_path: Path) -> Iterator[Ground]:
    made = Ground(str(tmp_path / "home" / "sessions.sqlite"))
    yield made
    made.store.close()


async def rows(ground: Ground, scope: Scope | None = None, **params: Any) -> list[dict[str, Any]]:
    result = await ground.call(sessions_list, scope, **params)
    assert not result.is_error, result.as_text()
    assert result.details["count"] == len(result.details["sessions"])
    return list(result.details["sessions"])


async def names(ground: Ground, scope: Scope | None = None, **params: Any) -> list[str]:
    return [row["key"].split(":", 2)[2] for row in await rows(ground, scope, **params)]


def test_models_can_be_offered_the_seeds_parameters() -> None:
    assert check_tool(TOOL) == []
    assert list(TOOL.offered["properties"]) == ["kinds", "limit", "activeMinutes", "messageLimit"]


async def test_a_row_shows_what_is_known(ground: Ground) -> None:
    main = ground.begin("main", "hello")
    made = ground.begin(
        "telegram:group:-1", "hi", "ho", parent=main.id, label="crew", updated_ms=5, version=7
    )
    [first, row] = await rows(ground)
    assert row == {
        "key": "agent:main:telegram:group:-1",
        "sessionId": made.id,
        "agentId": "main",
        "kind": "group",
        "channel": "telegram",
        "displayName": "crew",
        "label": "crew",
        "updatedAt": 5,
        "stateVersion": 7,
        "model": "a/b",
        "contextTokens": 150,
        "totalTokens": 300,
        "parentSessionKey": "agent:main:main",
    }
    assert first["childSessions"] == ["agent:main:telegram:group:-1"]
    assert (first["kind"], first["channel"], first["displayName"]) == ("main", "unknown", "main")


async def test_kinds_choose(ground: Ground) -> None:
    by_kind = {
        "main": "main",
        "group": "irc:channel:x",
        "cron": "cron:daily",
        "hook": "hook:1",
        "node": "node-phone",
        "other": "work",
    }
    for name in by_kind.values():
        ground.begin(name)
    for kind, name in by_kind.items():
        [row] = await rows(ground, kinds=[kind])
        assert row["key"] == f"agent:main:{name}"
        assert row["kind"] == kind
        internal = kind in ("cron", "hook", "node")
        assert (row["channel"] == "internal") is internal
    assert sorted(await names(ground, kinds=["main", "cron"])) == ["cron:daily", "main"]
    assert len(await names(ground)) == 6
    assert (await ground.call(sessions_list, kinds=["robot"])).details["code"] == 400


async def test_limit_and_offset_page_through(ground: Ground) -> None:
    for n in range(5):
        ground.begin(f"s{n}", updated_ms=n)
    result = await ground.call(sessions_list, limit=2)
    assert [row["key"][-2:] for row in result.details["sessions"]] == ["s4", "s3"]
    assert result.details["hasMore"] is True
    assert (result.details["nextOffset"], result.details["limitApplied"]) == (2, 2)
    result = await ground.call(sessions_list, limit=2, offset=4)
    assert [row["key"][-2:] for row in result.details["sessions"]] == ["s0"]
    assert result.details["hasMore"] is False
    assert "nextOffset" not in result.details
    assert await names(ground, offset=9) == []
    bad: Any
    for bad in ({"limit": 0}, {"offset": -1}, {"messageLimit": -1}, {"activeMinutes": 0}):
        assert (await ground.call(sessions_list, **bad)).details["code"] == 400


async def test_at_most_200_rows_come_at_once(ground: Ground) -> None:
    for n in range(205):
        ground.begin(f"s{n}")
    result = await ground.call(sessions_list, limit=1_000)
    shown = result.details["count"]
    assert result.details["limitApplied"] == 200
    assert result.details["nextOffset"] == shown <= 200
    seen, offset = set(), 0
    while True:
        result = await ground.call(sessions_list, limit=1_000, offset=offset)
        seen |= {row["key"] for row in result.details["sessions"]}
        if not result.details["hasMore"]:
            break
        offset = result.details["nextOffset"]
    assert len(seen) == 205
    assert (await ground.call(sessions_list)).details["limitApplied"] == 100


async def test_active_minutes_leave_out_what_is_old(ground: Ground) -> None:
    now_ms = round(time.time() * 1000)
    ground.begin("new", updated_ms=now_ms)
    ground.begin("old", updated_ms=now_ms - 10 * 60_000)
    assert await names(ground, activeMinutes=5) == ["new"]
    assert await names(ground, activeMinutes=15) == ["new", "old"]


async def test_messages_come_without_results_thinking_images_and_secrets(ground: Ground) -> None:
    made = ground.begin("main", "one", "two")
    ground.say(
        made,
        User((Text(f"it is {SECRET}"), Image("aGVsbG8=", "image/png"))),
        Assistant((Thinking("hm"), Text("I look"), ToolCall("c", "read", {"path": "x"}))),
        ToolResult("c", "read", (Text("content"),)),
        Assistant((Text("y" * 5_000),)),
    )
    assert "messages" not in (await rows(ground))[0]
    [row] = await rows(ground, messageLimit=3)
    roles = [each["role"] for each in row["messages"]]
    assert roles == ["user", "assistant", "assistant"]
    asked, looked, answered = (each["content"] for each in row["messages"])
    assert SECRET not in json.dumps(row)
    assert asked[1] == {"type": "image", "mimeType": "image/png", "bytes": 6, "omitted": True}
    assert [part["type"] for part in looked] == ["text", "toolCall"]
    assert len(answered[0]["text"]) == 4_000
    assert answered[0]["text"].endswith("…(truncated)…")
    assert len((await rows(ground, messageLimit=4))[0]["messages"]) == 4
    for _ in range(30):
        ground.say(made, User((Text("more"),)))
    assert len((await rows(ground, messageLimit=1_000))[0]["messages"]) == 20


async def test_a_result_has_at_most_64_kb(ground: Ground) -> None:
    for n in range(30):
        ground.begin(f"s{n}", *["word " * 700] * 2)
    result = await ground.call(sessions_list, messageLimit=4)
    assert len(result.as_text().encode()) <= 64 * 1024
    assert result.details["truncationReason"] == "byte-limit"
    assert 1 < result.details["count"] < 30
    assert result.details["nextOffset"] == result.details["count"]
    small = await ground.call(sessions_list, at("main", context_window=8_000), messageLimit=4)
    assert len(small.as_text()) < 10_000
    assert small.details["count"] >= 1


async def test_a_row_that_is_too_long_alone_loses_old_messages(ground: Ground) -> None:
    ground.begin("main", *["word " * 900] * 12)
    [row] = await rows(ground, messageLimit=20)
    assert row["messagesOmitted"] + len(row["messages"]) == 20
    assert row["messages"][-1]["id"] == "24"


async def test_search_looks_at_key_label_and_title(ground: Ground) -> None:
    ground.begin("alpha", label="Nightly build")
    ground.begin("beta", "about Gamma rays")
    assert await names(ground, search="ALPH") == ["alpha"]
    assert await names(ground, search="nightly B") == ["alpha"]
    assert await names(ground, search="gamma") == ["beta"]
    assert await names(ground, search="%") == []


async def test_label_is_exact(ground: Ground) -> None:
    ground.begin("alpha", label="build")
    ground.begin("beta", label="builds")
    assert await names(ground, label="build") == ["alpha"]
    assert (await ground.call(sessions_list, label="x" * 513)).details["code"] == 400


async def test_agent_id_chooses_the_agent(ground: Ground) -> None:
    ground.begin("mine")
    ground.begin("hers", agent="work")
    config = "{tools: {sessions: {visibility: 'all'}, agentToAgent: {enabled: true}}}"
    result = await ground.call(sessions_list, config=config, agentId="Work")
    assert [row["agentId"] for row in result.details["sessions"]] == ["work"]
    assert await names(ground, agentId="work") == []


async def test_archived_ones_are_listed_when_asked_for(ground: Ground) -> None:
    ground.begin("new")
    ground.begin("old", archived_ms=5, updated_ms=1)
    assert await names(ground) == ["new"]
    [row] = await rows(ground, archived=True)
    assert (row["displayName"], row["archived"]) == ("old", True)
    assert await names(ground, archived="all") == ["new", "old"]
    assert (await ground.call(sessions_list, archived="some")).details["code"] == 400


async def test_titles_and_last_messages_come_when_asked_for(ground: Ground) -> None:
    made = ground.begin("main", "about cats")
    ground.say(made, Assistant((ToolCall("c", "ls"),)), ToolResult("c", "ls", (Text("x"),)))
    [row] = await rows(ground, includeDerivedTitles=True, includeLastMessage=True)
    assert row["derivedTitle"] == "about cats"
    assert row["lastMessagePreview"] == "yes, about cats"
    [row] = await rows(ground)
    assert not row.keys() & {"derivedTitle", "lastMessagePreview"}
    ground.begin("empty")
    assert (await rows(ground, includeLastMessage=True, search="empty"))[0][
        "lastMessagePreview"
    ] is None


async def test_sub_agents_can_be_left_out(ground: Ground) -> None:
    main = ground.begin("main")
    ground.begin("subagent:1b9f0e16", parent=main.id, updated_ms=1)
    assert await names(ground) == ["main", "subagent:1b9f0e16"]
    assert await names(ground, excludeSubagents=True) == ["main"]


async def test_active_only_shows_what_a_process_works_in(ground: Ground) -> None:
    made = ground.begin("busy")
    idle = ground.begin("idle")
    assert await names(ground, activeOnly=True) == []
    with ground.store.hold(idle.id):
        pass
    with ground.store.hold(made.id):
        assert await names(ground, activeOnly=True) == ["busy"]
        # Looking took no lock away.
        assert await names(ground, activeOnly=True) == ["busy"]
    assert await names(ground, activeOnly=True) == []


async def test_only_visible_sessions_are_listed_and_counted(ground: Ground) -> None:
    one = ground.begin("one")
    child = ground.begin("child", parent=one.id)
    ground.begin("grandchild", parent=child.id)
    ground.begin("two")
    ground.begin("hers", agent="other", parent=one.id)
    ground.begin("theirs", agent="other")
    result = await ground.call(sessions_list, at("one"))
    shown = {row["key"]: row for row in result.details["sessions"]}
    assert sorted(shown) == [
        "agent:main:child",
        "agent:main:grandchild",
        "agent:main:one",
        "agent:other:hers",
    ]
    assert result.details["visibility"] == {
        "mode": "tree",
        "restricted": True,
        "warning": "sessions that this one may not see are left out: "
        "tools.sessions.visibility is 'tree'",
    }
    # A child does not learn who started it from a list.
    [row] = await rows(ground, at("child"), search="main:child")
    assert "parentSessionKey" not in row
    main = await names(ground, at("main"))
    assert sorted(main) == ["child", "grandchild", "one", "two"]
    sandboxed = await ground.call(sessions_list, at("main", sandboxed=True))
    assert sandboxed.details["count"] == 0
    assert "sessionToolsVisibility" in sandboxed.details["visibility"]["warning"]
    config = "{tools: {sessions: {visibility: 'self'}}}"
    alone = await ground.call(sessions_list, at("one"), config)
    assert [row["key"] for row in alone.details["sessions"]] == ["agent:main:one"]
    assert "childSessions" not in alone.details["sessions"][0]
    assert alone.details["visibility"]["mode"] == "self"
    config = "{tools: {sessions: {visibility: 'all'}, agentToAgent: {enabled: true}}}"
    everything = await ground.call(sessions_list, at("two"), config)
    assert everything.details["count"] == 6
    assert "visibility" not in everything.details


async def test_many_children_are_counted(ground: Ground) -> None:
    main = ground.begin("main")
    for n in range(25):
        ground.begin(f"c{n}", parent=main.id)
    [row] = await rows(ground, kinds=["main"])
    assert len(row["childSessions"]) == 20
    assert row["childSessionsOmitted"] == 5


async def test_internal_sessions_are_hidden(ground: Ground) -> None:
    ground.begin("unknown")
    ground.begin("global")
    ground.begin("main")
    assert await names(ground) == ["main"]
    result = await ground.call(sessions_list, config="{session: {mainKey: 'global'}}")
    assert "agent:main:global" not in {row["key"] for row in result.details["sessions"]}
    scope = at("global")
    result = await ground.call(sessions_list, scope, config="{session: {mainKey: 'global'}}")
    assert "agent:main:global" in {row["key"] for row in result.details["sessions"]}


async def test_without_a_file_nothing_is_listed_and_no_file_is_created(
    ground: Ground, tmp_path: Path
) -> None:
    assert await rows(ground) == []
    assert not (tmp_path / "home").exists()


@pytest.mark.parametrize(
    ("name", "why"),
    [
        ("pinned", "sessions cannot be pinned"),
        ("projectId", "sessions do not belong to projects"),
        ("group", "sessions do not belong to projects"),
        ("relationship", "sessions have no owners"),
        ("ownerId", "sessions have no owners"),
        ("creatorId", "sessions have no owners"),
    ],
)
async def test_parameters_without_effect_are_refused(ground: Ground, name: str, why: str) -> None:
    given: Any = {name: "x"}
    result = await ground.call(sessions_list, **given)
    assert result.details["code"] == 400
    assert f"{name}: not supported; {why}" in result.as_text()


async def test_only_sessions_of_a_directory(ground: Ground, tmp_path: Path) -> None:
    ground.begin("main", workspace=b"/ws")
    ground.begin("two", workspace=os.fsencode(tmp_path))
    assert await names(ground, workspaceDir=f"{tmp_path}/../{tmp_path.name}/") == ["two"]
    assert await names(ground, workspaceDir=".") == ["main"]
    assert await names(ground, workspaceDir="/nowhere") == []
