"""sessions_history: the messages of a session."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.tools.sessions_ground import SECRET, Ground, at

from clawkit.content import (
    Assistant,
    Image,
    Source,
    Summary,
    Text,
    Thinking,
    ToolCall,
    ToolResult,
    User,
)
from clawkit.core.context import Scope
from clawkit.testing import check_tool
from clawkit.tools import sessions_history
from clawkit.tools.sessions_history import TOO_LARGE, TOOL


@pytest.fixture
def ground(tmp_path: Path) -> Iterator[Ground]:
    made = Ground(str(tmp_path / "home" / "sessions.sqlite"))
    yield made
    made.store.close()


async def read(ground: Ground, scope: Scope | None = None, **params: Any) -> Any:
    given = {"sessionKey": "current", **params}
    result = await ground.call(sessions_history, scope, **given)
    assert not result.is_error, result.as_text()
    return result.details


def ids(details: Any) -> list[int]:
    return [int(each["id"]) for each in details["messages"]]


def test_models_can_be_offered_the_seeds_parameters() -> None:
    assert check_tool(TOOL) == []
    assert list(TOOL.offered["properties"]) == ["sessionKey", "limit", "includeTools"]
    assert TOOL.offered["required"] == ["sessionKey"]


async def test_a_session_is_read_by_any_of_its_names(ground: Ground) -> None:
    main = ground.begin("main", "hello")
    ground.begin("work", "other", label="build")
    said = await read(ground, at("work"))
    assert said["sessionKey"] == "agent:main:work"
    for name in ("main", "current", main.id, main.key):
        assert (await read(ground, sessionKey=name))["sessionKey"] == main.key
    for name in ("work", "build"):
        assert (await read(ground, sessionKey=name))["messages"][0]["content"] == [
            {"type": "text", "text": "other"}
        ]


@pytest.mark.parametrize("name", ["session_key", "session", "sessionId", "label"])
async def test_the_session_may_be_given_by_other_parameters(ground: Ground, name: str) -> None:
    ground.begin("work", "x")
    given: Any = {name: "work"}
    assert not (await ground.call(sessions_history, **given)).is_error


async def test_messages_are_shown_unchanged(ground: Ground) -> None:
    made = ground.begin("main")
    ground.say(
        made,
        User((Text("look"), Image("aGVsbG8=", "image/png")), at_ms=5),
        Assistant(
            (Thinking("secretly", "sig"), Text("I do"), ToolCall("c", "read", {"path": "x"})),
            "tool_calls",
        ),
        ToolResult("c", "read", (Text("content"),), details={"path": "x"}),
        Assistant((), "aborted"),
        Summary("so far"),
    )
    details = await read(ground)
    assert details["messages"] == [
        {
            "id": "1",
            "role": "user",
            "timestamp": 5,
            "content": [
                {"type": "text", "text": "look"},
                {"type": "image", "mimeType": "image/png", "bytes": 6, "omitted": True},
            ],
        },
        {
            "id": "2",
            "role": "assistant",
            "content": [
                {"type": "text", "text": "I do"},
                {"type": "toolCall", "id": "c", "name": "read", "arguments": {"path": "x"}},
            ],
        },
        {"id": "4", "role": "assistant", "stopReason": "aborted", "content": []},
        {"id": "5", "role": "summary", "content": [{"type": "text", "text": "so far"}]},
    ]
    bytes_ = details.pop("bytes")
    assert abs(bytes_ - len(json.dumps(details["messages"], separators=(",", ":")))) < 5
    del details["messages"]
    assert details == {
        "sessionKey": "agent:main:main",
        "sessionId": made.id,
        "truncated": False,
        "droppedMessages": 0,
        "contentTruncated": False,
        "offset": 0,
        "hasMore": False,
        "totalMessages": 4,
    }


async def test_messages_not_written_by_the_user_are_marked(ground: Ground) -> None:
    made = ground.begin("main", "mine")
    ground.say(made, User((Text("done"),), source=Source("subagent", ("r1",))))
    messages = (await read(ground))["messages"]
    assert [each.get("source") for each in messages] == [None, None, "subagent"]


async def test_results_of_tools_come_when_asked_for(ground: Ground) -> None:
    made = ground.begin("main")
    failed = ToolResult("c", "exec", (Text("no"),), is_error=True, details={"exitCode": 1})
    ground.say(made, Assistant((ToolCall("c", "exec"),)), failed)
    assert ids(await read(ground)) == [1]
    details = await read(ground, includeTools=True)
    assert details["messages"][1] == {
        "id": "2",
        "role": "toolResult",
        "toolName": "exec",
        "toolCallId": "c",
        "isError": True,
        "content": [{"type": "text", "text": "no"}],
    }
    assert details["totalMessages"] == 2


async def test_limit_and_offset_page_back_through_time(ground: Ground) -> None:
    made = ground.begin("main", *"abcd")
    ground.say(made, ToolResult("c", "x", (Text("y"),)))
    details = await read(ground, limit=3)
    assert ids(details) == [6, 7, 8]
    assert (details["nextOffset"], details["hasMore"], details["totalMessages"]) == (3, True, 8)
    details = await read(ground, limit=3, offset=3)
    assert (ids(details), details["offset"], details["nextOffset"]) == ([3, 4, 5], 3, 6)
    details = await read(ground, limit=3, offset=6)
    assert (ids(details), details["hasMore"], "nextOffset" in details) == ([1, 2], False, False)
    assert ids(await read(ground, offset=50)) == []
    bad: Any
    for bad in ({"limit": 0}, {"offset": -1}, {"sessionKey": ""}):
        result = await ground.call(sessions_history, **{"sessionKey": "current", **bad})
        assert result.details["code"] == 400


async def test_a_message_is_shown_with_what_led_to_it(ground: Ground) -> None:
    made = ground.begin("main", *"abcd")
    ground.say(made, ToolResult("c", "x", (Text("y"),)))
    details = await read(ground, messageId="4", limit=2)
    assert (ids(details), details["offset"], details["nextOffset"]) == ([3, 4], 4, 6)
    assert ids(await read(ground, messageId="9", limit=1, includeTools=True)) == [9]
    for bad in ("9", "10", "0", "-1", "x", "9" * 30):
        result = await ground.call(sessions_history, sessionKey="current", messageId=bad)
        assert result.details["code"] == 404
        assert "results of tools need includeTools" in result.as_text()
    given: Any = {"sessionKey": "current", "messageId": "4", "offset": 1}
    assert "cannot be combined" in (await ground.call(sessions_history, **given)).as_text()


async def test_long_texts_are_cut(ground: Ground) -> None:
    made = ground.begin("main")
    call = ToolCall("c", "write", {"content": "z" * 9_000})
    ground.say(made, User((Text("x" * 4_000),)), Assistant((Text("y" * 4_001), call)))
    details = await read(ground)
    first, second = (each["content"] for each in details["messages"])
    assert first[0]["text"] == "x" * 4_000
    assert second[0]["text"] == "y" * (4_000 - 14) + "\n…(truncated)…"
    assert len(second[1]["arguments"]) == 4_000
    assert details["contentTruncated"] is details["truncated"] is True


async def test_over_the_cap_the_oldest_go(ground: Ground) -> None:
    made = ground.begin("main", *(f"{n} " + "word " * 700 for n in range(20)))
    details = await read(ground)
    shown = ids(details)
    assert shown == list(range(41 - len(shown), 41))
    assert details["droppedMessages"] == 40 - len(shown) > 0
    assert details["truncated"] is details["hasMore"] is True
    assert details["contentTruncated"] is False
    assert details["bytes"] <= 81_920
    again = await read(ground, offset=details["nextOffset"])
    assert ids(again)[-1] == shown[0] - 1
    narrow = await read(ground, at("main", context_window=8_000))
    assert narrow["bytes"] < 10_000
    assert ids(narrow)[-1] == 40
    assert made.id


async def test_a_message_that_is_too_large_is_a_placeholder(ground: Ground) -> None:
    made = ground.begin("main", "before")
    many = tuple(Text("x" * 3_900) for _ in range(25))
    ground.say(made, User(many, at_ms=3), User((Text("after"),)))
    details = await read(ground)
    assert ids(details) == [1, 2, 3, 4]
    assert details["messages"][2] == {
        "id": "3",
        "role": "user",
        "timestamp": 3,
        "content": [{"type": "text", "text": TOO_LARGE}],
        "omitted": True,
    }
    assert details["contentTruncated"] is True


async def test_secrets_are_masked_also_where_a_text_is_cut(ground: Ground) -> None:
    made = ground.begin("main")
    ground.say(
        made,
        User((Text("x" * 3_980 + " " + SECRET + " y" * 50),)),
        Assistant((ToolCall("c", "exec", {"password": "swordfish", "command": SECRET}),)),
    )
    text = json.dumps(await read(ground))
    assert "hunter2" not in text
    assert "swordfish" not in text


async def test_a_session_that_may_not_be_seen_is_refused(ground: Ground) -> None:
    ground.begin("one", "x")
    two = ground.begin("two", "x")
    for name in ("two", two.id):
        result = await ground.call(sessions_history, at("one"), sessionKey=name)
        assert result.details["code"] == 403
        assert "tools.sessions.visibility is 'tree'" in result.as_text()
    config = "{tools: {sessions: {visibility: 'agent'}}}"
    result = await ground.call(sessions_history, at("one"), config, sessionKey="two")
    assert not result.is_error


async def test_an_unknown_session_is_an_error(ground: Ground) -> None:
    ground.begin("work", "x")
    result = await ground.call(sessions_history, sessionKey="wrok")
    assert result.details["code"] == 404
    assert "did you mean 'work'?" in result.as_text()


async def test_a_session_that_is_not_stored_has_no_history(ground: Ground) -> None:
    details = await read(ground, at("nowhere"))
    assert (details["messages"], details["totalMessages"]) == ([], 0)


async def test_parameters_without_effect_are_refused(ground: Ground) -> None:
    ground.begin("main", "hi")
    result = await ground.call(sessions_history, sessionKey="main", pendingBefore="3")
    assert "pendingBefore: not supported; pending messages" in result.as_text()
