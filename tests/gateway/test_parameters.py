"""Parameters that change what a method does: each with its effect."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
from tests.gateway.conftest import Device, Ground, Peer, serve
from tests.skills.writing import write_skill
from tests.tables import table

from clawkit.gateway import formats
from clawkit.testing import ScriptedModel, call

MINE = {"agents": {"list": [{"id": "main"}, {"id": "second"}]}}


@pytest.fixture
async def place() -> AsyncIterator[Ground]:
    """A gateway whose store has sessions of three agents, one of them no longer configured."""
    async with serve(MINE) as ground:
        store = ground.gateway.store
        parent = store.create("main", workspace="/tmp", name="a")
        store.update(parent.id, title="About a")
        child = store.create("main", workspace="/tmp", name="subagent:x", parent=parent.id)
        store.create("second", workspace="/tmp", name="b")
        store.create("gone", workspace="/tmp", name="c")
        assert child.parent == parent.id
        yield ground


def keys(found: dict[str, Any]) -> list[str]:
    return sorted(row["key"] for row in found["sessions"])


async def test_the_list_can_leave_out_agents_that_are_not_configured(place: Ground) -> None:
    peer = await place.join()
    assert "agent:gone:c" in keys(await peer.call("sessions.list"))
    found = await peer.call("sessions.list", {"configuredAgentsOnly": True})
    assert keys(found) == ["agent:main:a", "agent:main:subagent:x", "agent:second:b"]
    assert found["totalCount"] == 3


async def test_the_list_can_have_the_sessions_that_another_one_started(place: Ground) -> None:
    peer = await place.join()
    found = await peer.call("sessions.list", {"spawnedBy": "a", "limit": 1})
    assert keys(found) == ["agent:main:subagent:x"]
    assert found["sessions"][0]["spawnedBy"] == "agent:main:a"
    assert (found["totalCount"], found["hasMore"]) == (1, False)
    assert keys(await peer.call("sessions.list", {"spawnedBy": "agent:second:b"})) == []
    beyond = await peer.call("sessions.list", {"spawnedBy": "a", "offset": 1})
    assert (keys(beyond), beyond["totalCount"]) == ([], 1)


async def test_titles_are_listed_on_request(place: Ground) -> None:
    peer = await place.join()
    for wanted in (True, False):
        found = await peer.call("sessions.list", {"includeDerivedTitles": wanted})
        titles = [row["derivedTitle"] for row in found["sessions"] if "derivedTitle" in row]
        assert titles == (["About a"] if wanted else [])


async def test_flags_without_a_meaning_are_named_in_the_answer(place: Ground) -> None:
    peer = await place.join()
    given = {"includeGlobal": False, "includeUnknown": True, "ownerFirst": True}
    assert (await peer.call("sessions.list", given))["ignored"] == list(given)
    assert "ignored" not in await peer.call("sessions.list", {"limit": 5})
    assert (await peer.call("tools.catalog", {"includePlugins": True}))["ignored"]
    assert (await peer.call("models.list", {"refresh": True}))["ignored"] == ["refresh"]
    wrong = await peer.refused("sessions.list", {"includeGlobal": []})
    assert "includeGlobal" in wrong["message"]


async def test_the_order_of_the_list_is_named_and_checked(place: Ground) -> None:
    peer = await place.join()
    assert (await peer.call("sessions.list"))["sortBy"] == "updatedAt"
    assert (await peer.call("sessions.list", {"sortBy": "activity"}))["sortBy"] == "activity"
    assert "sortBy" in (await peer.refused("sessions.list", {"sortBy": "size"}))["message"]


async def test_a_subscription_with_parameters_has_the_list(place: Ground) -> None:
    peer = await place.join()
    assert await peer.call("sessions.subscribe", {}) == {"subscribed": True}
    found = await peer.call("sessions.subscribe", {"agentId": "second"})
    assert keys(found["list"]) == ["agent:second:b"]


async def test_status_commands_and_models_follow_their_parameters(place: Ground) -> None:
    peer = await place.join()
    assert "channelSummary" in await peer.call("status")
    assert "channelSummary" not in await peer.call("status", {"includeChannelSummary": False})
    for args in (True, False):
        found = await peer.call("commands.list", {"includeArgs": args, "scope": "text"})
        assert all(("args" in each) == args for each in found["commands"])
    assert "scope" in (await peer.refused("commands.list", {"scope": "x"}))["message"]
    assert "unknown agent" in (await peer.refused("commands.list", {"agentId": "x"}))["message"]
    assert "view" in (await peer.refused("models.list", {"view": "x"}))["message"]


async def test_the_models_of_a_session_come_with_the_hello(place: Ground) -> None:
    wish = {"sessionKey": "agent:second:x"}
    peer = await place.join(modelCatalog=wish)
    event = await peer.until(lambda each: each.get("event") == "models.snapshot")
    assert event["payload"]["target"] == wish
    assert "seq" not in event
    listed = await peer.call("models.list", {"agentId": "second"})
    assert event["payload"]["catalog"]["models"] == listed["models"]
    blind = await place.join(["operator.approvals"], modelCatalog=wish)
    gone = await place.join(modelCatalog={"sessionKey": "agent:none:x"})
    for other in (blind, gone):
        assert await other.call("exec.approval.list") == []
        assert other.of("models.snapshot") == []


async def test_features_that_clawkit_lacks_are_reported_as_empty(place: Ground) -> None:
    peer = await place.join()
    found = await peer.call("channels.status", {"probe": False, "timeoutMs": 5000})
    assert (found["channels"], found["ignored"]) == ({}, ["probe", "timeoutMs"])
    assert "unknown agent" in (await peer.refused("skills.status", {"agentId": "x"}))["message"]
    assert await peer.call("last-heartbeat") is None


async def test_the_skills_of_an_agent_are_listed(place: Ground) -> None:
    peer = await place.join()
    found = await peer.call("skills.status", {"agentId": "second"})
    assert found["skills"] == []
    needs = "metadata: {openclaw: {emoji: '*', os: ['linux'], requires: {bins: ['gone-program']}}}"
    write_skill(Path(found["managedSkillsDir"]), "weather", needs)
    write_skill(Path(found["workspaceDir"]) / "skills", "here")
    here, weather = (await peer.call("skills.status", {"agentId": "second"}))["skills"]
    assert (here["name"], here["source"], here["eligible"]) == ("here", "workspace", True)
    assert (weather["eligible"], weather["disabled"]) == (False, False)
    assert weather["reason"] == "it needs the program gone-program"
    assert weather["requirements"]["bins"] == ["gone-program"]
    assert weather["emoji"] == "*"


async def test_secrets_are_read_again(tmp_path: Path) -> None:
    file = tmp_path / "clawkit.json"
    auth = '{"gateway": {"auth": {"token": "T0KEN-for-tests"}}, "models": {"providers": %s}}'
    file.write_text(auth % "{}")
    async with serve(str(file)) as ground:
        peer = await ground.join()
        lab = '{"lab": {"baseUrl": "http://127.0.0.1:9/v1", "apiKey": "%s", "models": []}}'
        file.write_text(auth % (lab % ("k" * 20)))
        assert await peer.call("secrets.reload") == {"ok": True, "warningCount": 0}
        assert "k" * 20 not in ground.gateway.redactor.text("key " + "k" * 20)
        file.write_text("{ nonsense")
        assert await peer.refused("secrets.reload")


async def test_a_new_session_can_have_a_key_and_follow_another_one(place: Ground) -> None:
    peer = await place.join()
    await peer.call("sessions.patch", {"key": "a", "thinkingLevel": "high"})
    wish = {"key": "tui-1", "agentId": "main", "parentSessionKey": "a", "succeedsParent": True}
    made = await peer.call("sessions.create", {**wish, "emitCommandHooks": True})
    assert made["key"] == "agent:main:tui-1"
    assert made["entry"]["thinkingLevel"] == "high"
    assert made["ignored"] == ["succeedsParent", "emitCommandHooks"]
    assert "already exists" in (await peer.refused("sessions.create", wish))["message"]
    lost = {"key": "tui-2", "parentSessionKey": "none"}
    assert (await peer.refused("sessions.create", lost))["message"] == "session not found"
    foreign = {"key": "agent:second:x", "agentId": "main"}
    assert "does not belong" in (await peer.refused("sessions.create", foreign))["message"]
    own = {"key": "agent:second:x", "agentId": "second"}
    assert (await peer.call("sessions.create", own))["key"] == "agent:second:x"


async def test_a_reset_tells_its_reason(place: Ground) -> None:
    peer = await place.join()
    await peer.call("sessions.subscribe")
    await peer.call("sessions.reset", {"key": "a", "reason": "new"})
    event = await peer.until(lambda each: each.get("event") == "sessions.changed")
    assert event["payload"]["reason"] == "new"


async def say(peer: Peer, run: str, **more: Any) -> None:
    params = {"sessionKey": "s", "message": run, "idempotencyKey": run, **more}
    await peer.call("chat.send", params)
    await peer.until_chat("final", run)


async def test_a_message_can_name_the_conversation_it_was_written_in(place: Ground) -> None:
    peer = await place.join()
    message = {"sessionKey": "s", "message": "x", "idempotencyKey": "x"}
    error = await peer.refused("chat.send", {**message, "expectedLeafEntryId": "nope"})
    assert error["details"] == {"reason": "active-leaf-changed"}
    await say(peer, "1", expectedLeafEntryId=None)
    seen = await peer.call("chat.history", {"sessionKey": "s"})
    ids, own = [each["__openclaw"]["id"] for each in seen["messages"]], seen["sessionId"]
    assert len(ids) == 2
    for leaf in (None, ids[0], f"{own}-9", f"other-{2}", f"{own}-٢"):
        assert await peer.refused("chat.send", {**message, "expectedLeafEntryId": leaf})
    await say(peer, "2", expectedLeafEntryId=ids[1])
    await say(peer, "3", sessionId=own, expectedLeafEntryId=ids[0])
    assert await peer.refused("chat.send", {**message, "sessionId": "other"})
    ahead = {"sessionId": own, "expectedLeafEntryId": f"{own}-99"}
    assert await peer.refused("chat.send", {**message, **ahead})
    assert "deliver" in (await peer.refused("chat.send", {**message, "deliver": True}))["message"]


@table(
    ("id_", "number"),
    [(None, 0), ("s-1", 1), ("s-12", 12), ("t-1", None), ("s", None), ("s-", None), ("s--1", None)],
)
def test_an_id_of_a_message_names_its_session(id_: str | None, number: int | None) -> None:
    assert formats.message_number("s", id_) == number


async def test_a_cursor_returns_the_messages_since(place: Ground) -> None:
    peer = await place.join()
    empty = await peer.call("chat.history", {"sessionKey": "s", "cursor": "s-1"})
    assert empty == {"kind": "reset"}
    await say(peer, "1")
    first = await peer.call("chat.history", {"sessionKey": "s"})
    nothing = {"sessionKey": "s", "cursor": first["deltaCursor"]}
    delta = await peer.call("chat.history", nothing)
    assert (delta["kind"], delta["messages"]) == ("delta", [])
    assert delta["deltaCursor"] == first["deltaCursor"]
    await say(peer, "2")
    delta = await peer.call("chat.startup", nothing)
    assert [each["messageSeq"] for each in delta["messages"]] == [3, 4]
    told = delta["messages"][0]
    assert (told["sessionKey"], told["message"]["content"]) == ("agent:main:s", "2")
    assert delta["sessionInfo"]["key"] == "agent:main:s"
    again = await peer.call("chat.history", {**nothing, "cursor": delta["deltaCursor"]})
    assert again["messages"] == []
    for more in ({"limit": 1}, {"cursor": f"{first['sessionId']}-99"}, {"cursor": "x-1"}):
        assert (await peer.call("chat.history", {**nothing, **more}))["kind"] == "reset"
    cut = await peer.call("chat.history", {**nothing, "maxChars": 5})
    assert cut["messages"][1]["message"]["content"][0]["text"].startswith("Hello\n")
    await peer.call("sessions.reset", {"key": "s"})
    assert (await peer.call("chat.history", nothing))["kind"] == "reset"


async def test_older_pages_follow_the_last_one(place: Ground) -> None:
    peer = await place.join()
    for run in "123":
        await say(peer, run)
    pages: list[list[int]] = []
    offset: int | None = 0
    while offset is not None:
        page = await peer.call("chat.history", {"sessionKey": "s", "limit": 4, "offset": offset})
        pages.append([each["__openclaw"]["seq"] for each in page["messages"]])
        assert (page["deltaCursor"] is None) == (offset != 0)
        assert page["hasMore"] == ("nextOffset" in page)
        offset = page.get("nextOffset")
    assert pages == [[3, 4, 5, 6], [1, 2]]


async def test_events_of_a_sub_agent_belong_to_its_session() -> None:
    def answer(request: Any) -> Any:
        said, is_first = str(request.messages), len(request.messages) == 1
        if "text='count the files'" in said:
            return call("ls", {}) if is_first else "42 files"
        return call("sessions_spawn", {"task": "count the files"}) if is_first else "started"

    async with serve({}, ScriptedModel(then=answer)) as ground:
        peer = await ground.join(caps=["tool-events"])
        await peer.call("sessions.subscribe")
        params = {"sessionKey": "main", "message": "go", "idempotencyKey": "r"}
        await peer.call("chat.send", params)
        final = await peer.until(
            lambda each: (
                each.get("event") == "chat"
                and ":subagent:" in each["payload"]["sessionKey"]
                and each["payload"]["state"] == "final"
            )
        )
        key, run = final["payload"]["sessionKey"], final["payload"]["runId"]
        told = [each for each in peer.of("agent") if each["sessionKey"] == key]
        assert {each["runId"] for each in told} == {run}
        phases = [each["data"]["phase"] for each in told if each["stream"] == "lifecycle"]
        assert (phases[0], phases[-1]) == ("start", "end")
        assert {each["data"]["name"] for each in told if each["stream"] == "tool"} == {"ls"}
        messages = [each for each in peer.of("session.message") if each["sessionKey"] == key]
        assert [each["message"]["role"] for each in messages][:2] == ["user", "assistant"]
        assert messages[0]["activeRunIds"] == [run]
        assert messages[0]["session"]["spawnedBy"] == "agent:main:main"


async def test_a_conversation_is_summarized_between_turns(place: Ground) -> None:
    peer = await place.join()
    lost = await peer.refused("sessions.compact", {"key": "none"})
    assert lost["message"] == "session not found"
    empty = await peer.call("sessions.compact", {"key": "a"})
    assert (empty["compacted"], empty["key"]) == (False, "agent:main:a")
    await say(peer, "1")
    await peer.call("sessions.subscribe")
    done = await peer.call("sessions.compact", {"key": "s"})
    assert done["result"]["summary"] == "Hello there, friend."
    event = await peer.until(lambda each: each.get("event") == "sessions.changed")
    assert event["payload"]["reason"] == "compact"
    stored = await peer.call("chat.history", {"sessionKey": "s"})
    assert stored["messages"][-1]["role"] == "system"
    there = place.gateway.live.find("agent:main:s")
    assert there is not None
    with there.agent.conversation._alone():
        busy = await peer.refused("sessions.compact", {"key": "s"})
    assert busy["code"] == "UNAVAILABLE"


async def test_tools_are_called_with_the_rights_of_the_client() -> None:
    async with serve({"gateway": {"tools": {"allow": ["gateway"]}}}) as ground:
        owner, guest = await ground.join(), await ground.join(["operator.write"], Device())
        plan = {"name": "find", "args": {"pattern": "*.none"}}
        done = await owner.call("tools.invoke", {**plan, "idempotencyKey": "k"})
        assert (done["ok"], done["toolName"], done["ignored"]) == (
            True,
            "find",
            ["idempotencyKey"],
        )
        assert done["output"]["content"]
        tried = await owner.call("tools.invoke", {**plan, "dryRun": True})
        assert tried["output"]["args"] == plan["args"]
        for peer, name, code in (
            (owner, "exec", "not_found"),
            (owner, "", "invalid_request_error"),
            (guest, "gateway", "not_found"),
        ):
            refused = await peer.call("tools.invoke", {"name": name, "agentId": "main"})
            assert (refused["ok"], refused["error"]["code"]) == (False, code), refused
        own = {"name": "gateway", "args": {"action": "config.schema.lookup", "path": "agents"}}
        assert (await owner.call("tools.invoke", own))["ok"]
        session = {"name": "ls", "sessionKey": "agent:none:x"}
        assert "unknown agent" in (await owner.refused("tools.invoke", session))["message"]


async def test_a_restart_can_be_asked_for(place: Ground) -> None:
    peer, gateway = await place.join(), place.gateway
    refused = await peer.call("gateway.restart.request")
    assert (refused["ok"], "program" in refused["reason"]) == (False, True)
    gateway.on_restart = lambda: None
    asked = {"reason": "new certificate", "skipDeferral": True}
    done = await peer.call("gateway.restart.request", asked)
    assert (done["ok"], done["reason"], done["coalesced"]) == (True, "new certificate", False)
    assert done["ignored"] == ["skipDeferral"]
    assert (await peer.call("gateway.restart.request"))["coalesced"] is True
    assert gateway.is_restarting
    gateway.forget_restart()


async def test_credentials_are_listed_without_their_secrets() -> None:
    lab: dict[str, Any] = {"baseUrl": "http://127.0.0.1:9/v1", "models": [{"id": "one"}]}
    providers = {"lab": {**lab, "apiKey": "k" * 20}, "bare": lab}
    async with serve({"models": {"providers": providers}}) as ground:
        found = await (await ground.join()).call("models.authStatus", {"refresh": True})
        rows = {each["provider"]: each for each in found["providers"]}
        assert rows["lab"]["status"] == "static"
        assert rows["lab"]["apiKey"]["source"].endswith("apiKey")
        assert "k" * 20 not in str(found)
        assert found["ignored"] == ["refresh"]
        assert rows["bare"]["status"] in ("missing", "static")
