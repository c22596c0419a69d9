"""Methods about sessions, agents and tools."""

from __future__ import annotations

import json
import logging
from typing import Any

import pytest
from tests.gateway.conftest import Device, Ground, Peer, serve

from clawkit.content import Text, User
from clawkit.testing import Gate, ScriptedModel


async def talk(peer: Peer, session: str, *texts: str) -> None:
    for number, text in enumerate(texts):
        run = f"{session}-{number}"
        params = {"sessionKey": session, "message": text, "idempotencyKey": run}
        await peer.call("chat.send", params)
        await peer.until_chat("final", run)


async def test_sessions_are_listed_in_pages(ground: Ground) -> None:
    peer = await ground.join()
    for name in ("a", "b", "c"):
        await talk(peer, name, f"talk about {name}")
    page = await peer.call("sessions.list", {"limit": 2})
    assert [each["key"] for each in page["sessions"]] == ["agent:main:c", "agent:main:b"]
    assert (page["count"], page["totalCount"]) == (2, 3)
    assert (page["hasMore"], page["nextOffset"]) == (True, 2)
    rest = await peer.call("sessions.list", {"limit": 2, "offset": 2})
    assert [each["key"] for each in rest["sessions"]] == ["agent:main:a"]
    assert (rest["hasMore"], rest["nextOffset"]) == (False, None)
    found = await peer.call(
        "sessions.list",
        {"search": "about b", "includeLastMessage": True, "includeDerivedTitles": True},
    )
    [row] = found["sessions"]
    assert row["lastMessagePreview"] == "Hello there, friend."
    assert row["derivedTitle"] == "talk about b"
    assert (row["status"], row["hasActiveRun"], row["activeRunIds"]) == ("done", False, [])
    assert (row["modelProvider"], row["model"]) == ("scripted", "model")
    assert (await peer.call("sessions.list", {"agentId": "other"}))["sessions"] == []


async def test_a_reset_thinking_level_is_the_configured_one() -> None:
    config = {"agents": {"defaults": {"thinkingDefault": "adaptive"}}}
    async with serve(config, ScriptedModel(then="y")) as ground:
        peer = await ground.join()
        await talk(peer, "a", "x")
        there = ground.gateway.live.find("agent:main:a")
        assert there is not None
        for level, used in (("high", "high"), (None, "medium")):
            await peer.call("sessions.patch", {"key": "a", "thinkingLevel": level})
            assert there.agent.conversation.thinking == used


async def test_a_running_session_is_marked() -> None:
    gate = Gate("x")
    async with serve({}, ScriptedModel(gate, then="y")) as ground:
        peer = await ground.join()
        params = {"sessionKey": "busy", "message": "go", "idempotencyKey": "r"}
        await peer.call("chat.send", params)
        await gate.reached.wait()
        await talk(peer, "idle", "hi")
        active = await peer.call("sessions.list", {"activeOnly": True})
        assert [each["key"] for each in active["sessions"]] == ["agent:main:busy"]
        described = await peer.call("sessions.describe", {"key": "busy"})
        assert described["session"]["activeRunIds"] == ["r"]
        gate.release()


async def test_a_session_is_created_changed_reset_and_deleted(ground: Ground) -> None:
    peer, follower = await ground.join(), await ground.join()
    await follower.call("sessions.subscribe", {})
    made = await peer.call("sessions.create", {"label": "lab one", "message": "begin"})
    key = made["key"]
    assert key.startswith("agent:main:dashboard:")
    assert made["runStarted"] is True
    assert made["entry"]["label"] == "lab one"
    await peer.until_chat("final")
    error = await peer.refused("sessions.create", {"label": "lab one"})
    assert error["message"] == "label already in use: lab one"
    resolved = await peer.call("sessions.resolve", {"label": "lab one"})
    assert resolved == {"ok": True, "key": key, "agentId": "main"}
    by_id = await peer.call("sessions.resolve", {"sessionId": made["sessionId"]})
    assert by_id["key"] == key
    patch = {"key": key, "label": "lab two", "thinkingLevel": "high"}
    patched = await peer.call("sessions.patch", patch)
    assert patched["entry"]["label"] == "lab two"
    assert patched["resolved"]["thinkingLevel"] == "high"
    there = ground.gateway.live.find(key)
    assert there is not None
    assert there.agent.conversation.thinking == "high"
    cleared = await peer.call("sessions.patch", {"key": key, "label": None})
    assert "label" not in cleared["entry"]
    preview = await peer.call("sessions.preview", {"keys": [key, "nothing"]})
    first, second = preview["previews"]
    assert [each["role"] for each in first["items"]] == ["user", "assistant"]
    assert second["status"] == "missing"
    fresh = await peer.call("sessions.reset", {"key": key})
    assert fresh["key"] == key
    assert (await peer.call("sessions.get", {"key": key}))["messages"] == []
    stale = {"key": key, "expectedSessionId": made["sessionId"]}
    assert "reload" in (await peer.refused("sessions.reset", stale))["message"]
    keeping = {"key": key, "deleteTranscript": False}
    assert "export" in (await peer.refused("sessions.delete", keeping))["message"]
    assert (await peer.call("sessions.describe", {"key": key}))["session"] is not None
    deleted = await peer.call("sessions.delete", {"key": key})
    assert deleted["deleted"] is True
    assert (await peer.call("sessions.describe", {"key": key})) == {"session": None}
    assert (await peer.call("sessions.delete", {"key": key}))["deleted"] is False
    await follower.call("health")
    reasons = [each.get("reason") for each in follower.of("sessions.changed")]
    assert {"create", "patch", "reset", "delete", "send"} <= set(reasons)


async def test_a_deleted_session_stops_what_runs_in_it() -> None:
    gate = Gate("never")
    async with serve({}, ScriptedModel(gate, then="x")) as ground:
        peer = await ground.join()
        params = {"sessionKey": "gone", "message": "go", "idempotencyKey": "r"}
        await peer.call("chat.send", params)
        await gate.reached.wait()
        await peer.call("sessions.delete", {"key": "gone"})
        assert (await peer.until_chat("aborted"))["runId"] == "r"
        assert (await peer.call("sessions.list"))["sessions"] == []


async def test_the_main_session_is_not_deleted(ground: Ground) -> None:
    peer = await ground.join()
    error = await peer.refused("sessions.delete", {"key": "main"})
    assert "main session" in error["message"]


@pytest.mark.parametrize(
    ("patch", "problem"),
    [
        ({"thinkingLevel": "enormous"}, "invalid sessions.patch params: at /thinkingLevel"),
        ({"model": "nobody/nothing"}, "invalid model: "),
        ({"pinned": True}, "invalid sessions.patch params: at root: unexpected property"),
        ({"label": ""}, "invalid sessions.patch params: at /label"),
    ],
)
async def test_a_bad_change_changes_nothing(
    ground: Ground, patch: dict[str, Any], problem: str
) -> None:
    peer = await ground.join()
    await talk(peer, "main", "hi")
    before = await peer.call("sessions.describe", {"key": "main"})
    error = await peer.refused("sessions.patch", {"key": "main", **patch})
    assert error["message"].startswith(problem)
    after = await peer.call("sessions.describe", {"key": "main"})
    assert {**after["session"], "snapshotAt": 0} == {**before["session"], "snapshotAt": 0}


async def test_sending_into_a_session_and_following_it(ground: Ground) -> None:
    peer = await ground.join()
    made = await peer.call("sessions.create", {})
    followed = await peer.call("sessions.messages.subscribe", {"key": made["key"]})
    assert followed == {"subscribed": True, "key": made["key"]}
    params = {"key": made["key"], "message": "hi", "idempotencyKey": "r1"}
    assert await peer.call("sessions.send", params) == {"runId": "r1", "status": "started"}
    await peer.until_chat("final")
    assert len(peer.of("session.message")) == 2
    await peer.call("sessions.messages.unsubscribe", {"key": made["key"]})
    await peer.call("sessions.send", {**params, "idempotencyKey": "r2"})
    await peer.until_chat("final", "r2")
    assert len(peer.of("session.message")) == 2
    error = await peer.refused("sessions.send", {"key": "unknown", "message": "x"})
    assert error["message"] == "session not found"


async def test_history_comes_in_pages_and_within_a_size(ground: Ground) -> None:
    peer = await ground.join()
    await talk(peer, "main", "one", "two " * 400, "three")
    last = await peer.call("chat.history", {"sessionKey": "main", "limit": 2})
    assert [each["content"] for each in last["messages"][:1]] == ["three"]
    assert (last["hasMore"], last["nextOffset"], last["totalMessages"]) == (True, 2, 6)
    more = await peer.call("chat.history", {"sessionKey": "main", "limit": 10, "offset": 2})
    assert [each["__openclaw"]["seq"] for each in more["messages"]] == [1, 2, 3, 4]
    small = await peer.call("chat.history", {"sessionKey": "main", "maxBytes": 1_024})
    assert 1 <= len(small["messages"]) < 6
    assert small["nextOffset"] == len(small["messages"])
    cut = await peer.call("chat.history", {"sessionKey": "main", "maxChars": 10})
    assert cut["messages"][2]["content"] == "two two tw\n[… cut]"
    reset = await peer.call("chat.history", {"sessionKey": "main", "cursor": "x"})
    assert reset == {"kind": "reset"}
    empty = await peer.call("chat.startup", {"sessionKey": "never-used"})
    assert (empty["sessionId"], empty["messages"], empty["sessionInfo"]) == (None, [], None)
    assert {"models", "commands"} <= set(empty["metadata"])


async def test_a_long_history_is_read_a_few_messages_at_a_time(ground: Ground) -> None:
    store = ground.gateway.store
    made = store.create("main", workspace="/tmp", name="long")
    for number in range(130):
        store.append(made.id, User((Text(f"message {number}"),)))
    peer = await ground.join()
    found = await peer.call("chat.history", {"sessionKey": "long", "limit": 120, "offset": 5})
    assert [each["content"] for each in found["messages"]] == [
        f"message {n}" for n in range(5, 125)
    ]
    assert (found["nextOffset"], found["totalMessages"]) == (125, 130)
    assert len((await peer.call("sessions.get", {"key": "long", "limit": 1000}))["messages"]) == 130


async def test_names_of_sessions_are_those_of_the_terminal(ground: Ground) -> None:
    store = ground.gateway.store
    made = store.create("main", workspace="/tmp", name="Tour")
    peer = await ground.join()
    found = await peer.call("sessions.describe", {"key": "agent:main:Tour"})
    assert found["session"]["sessionId"] == made.id
    assert (await peer.call("sessions.describe", {"key": "Tour"}))["session"] is not None


async def test_agents_have_their_own_sessions() -> None:
    config = {"agents": {"list": [{"id": "home", "name": "Home"}, {"id": "work", "default": True}]}}
    async with serve(config) as ground:
        peer = await ground.join()
        listed = await peer.call("agents.list")
        assert listed["defaultId"] == "work"
        assert [each["id"] for each in listed["agents"]] == ["work", "home"]
        identity = await peer.call("agent.identity.get", {"agentId": "home"})
        assert (identity["name"], identity["nameSource"]) == ("Home", "config")
        made = await peer.call("sessions.create", {"agentId": "home"})
        assert made["key"].startswith("agent:home:dashboard:")
        wrong = {"key": made["key"], "agentId": "work"}
        assert "does not belong" in (await peer.refused("sessions.describe", wrong))["message"]
        assert (await peer.refused("sessions.create", {"agentId": "x"}))[
            "code"
        ] == "INVALID_REQUEST"


async def test_every_tool_comes_with_the_reason() -> None:
    async with serve({"tools": {"deny": ["write"]}}) as ground:
        peer = await ground.join()
        shown = await peer.call("tools.effective", {"sessionKey": "main"})
        tools = {each["id"] for each in shown["groups"][0]["tools"]}
        assert "read" in tools
        assert "write" not in tools
        [trace] = [each for each in shown["trace"] if each["tool"] == "write"]
        assert trace["inForce"] is False
        assert trace["steps"][-1]["key"] == "tools.deny"
        assert trace["steps"][-1]["entry"] == "write"
        catalog = await peer.call("tools.catalog")
        ids = {tool["id"] for group in catalog["groups"] for tool in group["tools"]}
        assert {"read", "write", "exec"} <= ids


async def test_owner_only_tools_are_traced_for_the_one_who_asks(ground: Ground) -> None:
    reader = await ground.join(["operator.read"], Device())
    shown = await reader.call("tools.effective", {"sessionKey": "main"})
    [trace] = [each for each in shown["trace"] if each["tool"] == "gateway"]
    assert trace["steps"][-1]["step"] == "owner-only"


async def test_a_policy_can_be_explained_for_a_situation_that_is_assumed() -> None:
    config = {
        "tools": {"byProvider": {"google": {"deny": ["grep"]}}, "deny": ["nodes"]},
        "channels": {
            "telegram": {
                "groups": {
                    "-1": {"tools": {"deny": ["ls"]}, "toolsBySender": {"7": {"deny": ["find"]}}}
                },
                "accounts": {"two": {"groups": {"-1": {"tools": {"deny": ["read"]}}}}},
            }
        },
        "agents": {
            "list": [{"id": "main"}, {"id": "work", "tools": {"deny": ["edit"]}}],
            "defaults": {"sandbox": {"workspaceAccess": "ro"}},
        },
    }
    async with serve(config) as ground:
        peer = await ground.join()

        async def removed(**assumed: Any) -> dict[str, str]:
            shown = await peer.call("tools.effective", {"sessionKey": "main", **assumed})
            rows = [each for each in shown["trace"] if not each["allowed"]]
            return {each["tool"]: each["removedBy"]["key"] for each in rows}

        usual = await removed()
        assert usual["nodes"] == "tools.deny"

        async def more(**assumed: Any) -> dict[str, str]:
            found = await removed(**assumed)
            return {tool: found[tool] for tool in found.keys() - usual.keys()}

        google = await more(model="google/gemini-3-pro")
        assert google["grep"] == "tools.byProvider.google.deny"
        group = {"channel": "telegram", "groupId": "-1"}
        below = "channels.telegram"
        assert (await more(**group))["ls"] == f"{below}.groups.-1.tools.deny"
        assert (await more(**group, senderId="7"))["find"].startswith(f"{below}.groups.-1.toolsBy")
        assert (await more(**group, accountId="two"))["read"].startswith(f"{below}.accounts.two")
        assert (await more(senderIsOwner=False)).keys() >= {"gateway"}
        assert (await more(sandboxed=True)).keys() >= {"write"}
        assert (await more(agentId="work"))["edit"] == "agents.work.tools.deny"
        error = await peer.refused("tools.effective", {"sessionKey": "main", "model": "/"})
        assert error["message"].startswith("model: ")


async def test_rules_and_costs_of_tools_are_explained() -> None:
    rule = {"tool": "exec", "params": {"command": "rm *"}, "effect": "deny"}
    async with serve({"tools": {"rules": [rule]}}) as ground:
        peer = await ground.join()
        shown = await peer.call("tools.effective", {"sessionKey": "main"})
        rows = {each["tool"]: each for each in shown["trace"]}
        assert rows["exec"]["rules"][0]["key"] == "tools.rules[0]"
        assert rows["exec"]["tokens"] > 0
        assert shown["warnings"] == []


async def test_models_of_the_configuration_are_listed() -> None:
    provider = {
        "baseUrl": "http://127.0.0.1:9/v1",
        "apiKey": "k" * 20,
        "api": "openai-completions",
        "models": [{"id": "m-1", "name": "One", "contextWindow": 5000}],
    }
    config = {"models": {"providers": {"lab": provider}}}
    async with serve(config) as ground:
        peer = await ground.join()
        found = await peer.call("models.list", {"provider": "lab"})
        [row] = found["models"]
        assert (row["id"], row["name"], row["contextWindow"]) == ("m-1", "One", 5000)
        assert row["available"] is True
        assert "k" * 20 not in str(found)
        everything = await peer.call("models.list", {"view": "all"})
        assert len(everything["models"]) > 50


async def test_a_session_that_another_process_holds_is_reported(ground: Ground) -> None:
    made = ground.gateway.store.create("main", workspace="/tmp", name="held")
    peer = await ground.join()
    with ground.gateway.store.hold(made.id):
        params = {"sessionKey": "held", "message": "hi", "idempotencyKey": "r"}
        error = await peer.refused("chat.send", params)
        assert error["code"] == "UNAVAILABLE"
        assert "in use by" in error["message"]
    await peer.call("chat.send", params)
    await peer.until_chat("final")


async def test_what_a_stranger_sends_cannot_look_like_a_line_of_the_log(ground: Ground) -> None:
    peer = await ground.join()
    for mark in "\u2028\u2029\x85\x0b\x0c\x1c":
        logging.getLogger("clawkit.gateway.x").warning(
            "sent: %s", f'{mark}{{"level":"info","message":"forged"}}{mark}'
        )
    found = await peer.call("logs.tail", {"limit": 6})
    assert ["sent: " in json.loads(line)["message"] for line in found["lines"]] == [True] * 6
    for wanted in ({"level": "warning", "text": "forged"}, {"text": "sent: "}):
        assert len((await peer.call("logs.tail", wanted))["lines"]) == 6


async def test_the_log_can_be_followed(ground: Ground) -> None:
    peer = await ground.join()
    first = await peer.call("logs.tail", {"limit": 5})
    assert "the gateway is ready" in first["lines"][-1]
    assert (await peer.call("logs.tail", {"cursor": first["cursor"]}))["lines"] == []
    reset = await peer.call("logs.tail", {"cursor": first["cursor"] + 10_000})
    assert reset["reset"] is True


async def test_the_log_can_be_filtered(ground: Ground) -> None:
    peer = await ground.join()
    for line in ("one", "two", "Three <b>"):
        logging.getLogger("clawkit.gateway.x").warning(line)
    logging.getLogger("clawkit.gateway.y").info("three")
    with open(ground.gateway.log.path, "a", encoding="utf-8") as file:
        file.write("three, not JSON\n")

    async def lines(**wanted: Any) -> list[str]:
        found: list[str] = (await peer.call("logs.tail", wanted))["lines"]
        return found

    assert len(await lines(text="THREE")) == 3
    warnings = await lines(level="warning")
    assert [json.loads(each)["message"] for each in warnings[:-1]] == ["one", "two", "Three <b>"]
    assert len(await lines(level="warning", text="three")) == 2
    assert len(await lines(text="gateway.y")) == 1
    assert await lines(level="error") == ["three, not JSON"]
    cut = await peer.call("logs.tail", {"level": "warning", "limit": 2})
    assert (len(cut["lines"]), cut["truncated"]) == (2, True)
