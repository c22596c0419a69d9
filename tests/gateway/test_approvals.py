"""Approvals: a command of an agent waits for an answer from any client."""

from __future__ import annotations

import os
import subprocess
from typing import Any

import apsw
import pytest
from tests.gateway.conftest import Device, Ground, Peer, serve

from clawkit.approvals.broker import PendingStore
from clawkit.config.paths import waiting_file
from clawkit.core.approval import Lasting, Question
from clawkit.gateway.protocol import now_ms
from clawkit.process import records
from clawkit.testing import ScriptedModel, call

RULES: dict[str, Any] = {"tools": {"rules": [{"tool": "ls", "effect": "ask"}]}}


async def ask(ground: Ground) -> tuple[Peer, Peer, dict[str, Any]]:
    """A client whose agent asks, an approver, and the question."""
    peer = await ground.join(["operator.read", "operator.write"], Device())
    approver = await ground.join(["operator.approvals"], Device())
    params = {"sessionKey": "main", "message": "look", "idempotencyKey": "r"}
    await peer.call("chat.send", params)
    event = await approver.until(lambda each: each.get("event") == "exec.approval.requested")
    return peer, approver, event["payload"]


@pytest.mark.parametrize(("decision", "is_error"), [("allow-once", False), ("deny", True)])
async def test_an_agent_waits_for_the_answer(decision: str, is_error: bool) -> None:
    async with serve(RULES, ScriptedModel(call("ls", {}), "done")) as ground:
        peer, approver, asked = await ask(ground)
        assert asked["approvalKind"] == "exec"
        assert asked["request"]["sessionKey"] == "agent:main:main"
        assert asked["request"]["allowedDecisions"][0] == "allow-once"
        assert [each["id"] for each in await approver.call("exec.approval.list")] == [asked["id"]]
        shown = await approver.call("exec.approval.get", {"id": asked["id"]})
        assert shown["commandText"] == asked["request"]["command"]
        waiting = await peer.until(
            lambda each: each.get("payload", {}).get("data", {}).get("phase") == "waiting-approval"
        )
        assert waiting["payload"]["data"]["approvalId"] == asked["id"]
        answer = {"id": asked["id"], "decision": decision}
        assert await approver.call("exec.approval.resolve", answer) == {"ok": True}
        await peer.until_chat("final")
        phases = [each["data"].get("phase") for each in peer.of("agent")]
        assert phases.index("waiting-approval") < phases.index("approval-resolved")
        event = await approver.until(lambda each: each.get("event") == "exec.approval.resolved")
        assert event["payload"]["decision"] == decision
        assert event["payload"]["resolvedBy"]
        history = await peer.call("chat.history", {"sessionKey": "main"})
        [result] = [each for each in history["messages"] if each["role"] == "toolResult"]
        assert result["isError"] is is_error
        assert await approver.call("exec.approval.list") == []
        assert peer.of("exec.approval.requested") == []


async def test_only_the_first_answer_counts() -> None:
    async with serve(RULES, ScriptedModel(call("ls", {}), "done")) as ground:
        peer, approver, asked = await ask(ground)
        other = await ground.join(["operator.approvals"], Device())
        await approver.call("exec.approval.resolve", {"id": asked["id"], "decision": "allow-once"})
        again = {"id": asked["id"], "decision": "deny"}
        error = await other.refused("exec.approval.resolve", again)
        assert error["details"]["reason"] == "APPROVAL_ALREADY_RESOLVED"
        await peer.until_chat("final")


async def test_a_question_outlives_the_one_who_asked_and_its_approvers() -> None:
    async with serve(RULES, ScriptedModel(call("ls", {}), "done")) as ground:
        peer, approver, asked = await ask(ground)
        peer.socket.transport.abort()
        approver.socket.transport.abort()
        late = await ground.join()
        assert [each["id"] for each in await late.call("exec.approval.list")] == [asked["id"]]
        await late.call("exec.approval.resolve", {"id": asked["id"], "decision": "allow-once"})
        assert (await late.call("agent.wait", {"runId": "r"}))["status"] == "ok"


async def test_a_stopped_run_withdraws_its_question() -> None:
    async with serve(RULES, ScriptedModel(call("ls", {}), "done")) as ground:
        peer, approver, asked = await ask(ground)
        await peer.call("chat.abort", {"sessionKey": "main"})
        event = await approver.until(lambda each: each.get("event") == "exec.approval.resolved")
        assert (event["payload"]["id"], event["payload"]["decision"]) == (asked["id"], "deny")
        error = await approver.refused("exec.approval.get", {"id": asked["id"]})
        assert error["details"]["reason"] == "APPROVAL_NOT_FOUND"


@pytest.fixture
def often(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("clawkit.gateway.approvals.POLL_S", 0.05)


@pytest.mark.usefixtures("often")
async def test_questions_of_other_processes_can_be_answered(ground: Ground) -> None:
    approver = await ground.join()
    store = PendingStore(waiting_file(os.environ))
    lasting = (Lasting("exact", "this command"),)
    question = Question("exec", {}, "run it", command="git push", lasting=lasting)
    pending = store.add(question, {}, now_ms(), 60_000)
    event = await approver.until(lambda each: each.get("event") == "exec.approval.requested")
    assert event["payload"]["id"] == pending.id
    assert event["payload"]["request"]["allowedDecisions"] == ["allow-once", "allow-always", "deny"]
    answer = {"id": pending.id, "decision": "allow-always"}
    await approver.call("exec.approval.resolve", answer)
    found = store.answer(pending.id)
    assert found is not None
    assert (found.verdict, found.extent) == ("allow", "exact")
    store.close()


@pytest.mark.parametrize("id_", ["nope", "", "ffff", "'; DROP TABLE question; --"])
async def test_unknown_questions_are_an_error(ground: Ground, id_: str) -> None:
    peer = await ground.join()
    error = await peer.refused("exec.approval.resolve", {"id": id_, "decision": "deny"})
    assert error["message"] == "unknown or expired approval id"
    assert error["details"]["reason"] == "APPROVAL_NOT_FOUND"


async def test_a_part_of_an_id_is_not_enough() -> None:
    async with serve(RULES, ScriptedModel(call("ls", {}), "done")) as ground:
        _, approver, asked = await ask(ground)
        short = {"id": asked["id"][:8], "decision": "allow-once"}
        assert (await approver.refused("exec.approval.resolve", short))["details"]


async def test_an_answer_can_be_read_and_given_by_the_id_alone() -> None:
    async with serve(RULES, ScriptedModel(call("ls", {}), "done")) as ground:
        peer, approver, asked = await ask(ground)
        id_ = {"id": asked["id"]}
        found = (await approver.call("approval.get", id_))["approval"]
        assert (found["status"], found["presentation"]["kind"]) == ("pending", "exec")
        assert found["presentation"]["allowedDecisions"] == asked["request"]["allowedDecisions"]
        assert "resolvedAtMs" not in found
        params = {**id_, "kind": "exec", "decision": "allow-once"}
        first = await approver.call("approval.resolve", params)
        assert (first["applied"], first["approval"]["status"]) == (True, "allowed")
        late = await approver.call("approval.resolve", {**params, "decision": "deny"})
        assert (late["applied"], late["approval"]["decision"]) == (False, "allow-once")
        assert late["approval"]["resolver"]["kind"] == "runtime"
        assert (await approver.refused("approval.resolve", {**params, "kind": "plugin"}))["message"]
        await peer.until_chat("final")
        [item] = (await approver.call("approval.history"))["items"]
        assert (item["id"], item["decision"]) == (asked["id"], "allow-once")
        assert item["source"] == {"agentId": "main", "sessionKey": "agent:main:main"}
        for kind in ("plugin", "system-agent"):
            assert (await approver.call("approval.history", {"kind": kind}))["items"] == []
        for kind in ("plugin", "openclaw"):
            assert await approver.call(f"{kind}.approval.list") == []


async def test_who_follows_a_session_can_follow_its_approvals() -> None:
    async with serve(RULES, ScriptedModel(call("ls", {}), "done")) as ground:
        peer = await ground.join(["operator.read", "operator.write"], Device())
        wanted = {"key": "main", "includeApprovals": True}
        error = await peer.refused("sessions.messages.subscribe", wanted)
        assert error["message"] == "missing scope: operator.approvals"
        follower, other = await ground.join(), await ground.join()
        replay = (await follower.call("sessions.messages.subscribe", wanted))["approvalReplay"]
        assert (replay["sessionKey"], replay["approvals"]) == ("agent:main:main", [])
        await other.call("sessions.messages.subscribe", {"key": "main"})
        await peer.call(
            "chat.send", {"sessionKey": "main", "message": "look", "idempotencyKey": "r"}
        )
        event = await follower.until(lambda each: each.get("event") == "session.approval")
        told = event["payload"]
        assert (told["phase"], told["approval"]["status"]) == ("pending", "pending")
        late = await ground.join()
        again = (await late.call("sessions.messages.subscribe", wanted))["approvalReplay"]
        assert [each["id"] for each in again["approvals"]] == [told["approval"]["id"]]
        await late.call("sessions.messages.unsubscribe", {"key": "main"})
        params = {"id": told["approval"]["id"], "decision": "deny"}
        await other.call("exec.approval.resolve", params)
        ended = await follower.until(
            lambda each: each.get("payload", {}).get("phase") == "terminal"
        )
        assert ended["payload"]["approval"]["decision"] == "deny"
        await other.until_chat("final")
        await late.call("health")
        assert other.of("session.approval") == late.of("session.approval") == []


@pytest.fixture
async def pair(ground: Ground) -> tuple[Peer, Peer]:
    return await ground.join(), await ground.join()


async def test_a_client_can_ask_for_an_approval(pair: tuple[Peer, Peer]) -> None:
    asker, approver = pair
    wish: dict[str, Any] = {"command": "git push", "cwd": "/w", "warningText": "careful"}
    wish |= {"host": "node", "nodeId": "n1", "toolCallId": "c1", "sessionKey": "work"}
    accepted = await asker.call("exec.approval.request", {**wish, "twoPhase": True})
    assert (accepted["status"], accepted["deliveryRoute"]) == ("accepted", "approval-client")
    event = await approver.until(lambda each: each.get("event") == "exec.approval.requested")
    request = event["payload"]["request"]
    assert (request["command"], request["cwd"], request["nodeId"]) == ("git push", "/w", "n1")
    assert (request["host"], request["toolCallId"]) == ("node", "c1")
    assert request["sessionKey"] == "agent:main:work"
    assert "careful" in request["warningText"]
    assert "asked by the client" in request["warningText"]
    assert request["allowedDecisions"] == ["allow-once", "deny"]
    waiting = await asker.send("exec.approval.waitDecision", {"id": accepted["id"]})
    answer = {"id": accepted["id"], "decision": "allow-once"}
    await approver.call("exec.approval.resolve", answer)
    decided = (await asker.answer(waiting))["payload"]
    assert (decided["decision"], decided["terminalReason"]) == ("allow-once", "user")
    assert asker.of("exec.approval.requested") == []
    again = await asker.call("exec.approval.waitDecision", {"id": accepted["id"]})
    assert again["decision"] == "allow-once"
    for bad in ("none", accepted["id"][:8]):
        error = await asker.refused("exec.approval.waitDecision", {"id": bad})
        assert error["message"] == "approval expired or not found"


async def test_a_request_without_an_answer_ends(pair: tuple[Peer, Peer]) -> None:
    asker, approver = pair
    wish = {"command": "git push", "timeoutMs": 50}
    decided = await asker.call("exec.approval.request", wish)
    assert (decided["decision"], decided["terminalReason"]) == (None, "timeout")
    error = await asker.refused("exec.approval.request", {"command": "x", "host": "node"})
    assert error["message"] == "nodeId is required for host=node"
    error = await asker.refused("exec.approval.request", {"command": "x", "agentId": "none"})
    assert "unknown agent" in error["message"]
    waiting = await asker.send("exec.approval.request", {"command": "sleep"})
    event = await approver.until(
        lambda each: each.get("payload", {}).get("request", {}).get("command") == "sleep"
    )
    asker.socket.transport.abort()
    ended = await approver.until(
        lambda each: (
            each.get("event") == "exec.approval.resolved"
            and each["payload"]["id"] == event["payload"]["id"]
        )
    )
    assert waiting
    assert ended["payload"]["decision"] == "deny"
    [last, first] = (await approver.call("approval.history"))["items"]
    assert (last["status"], last["reason"]) == ("cancelled", "run-aborted")
    assert (first["status"], first["reason"]) == ("expired", "timeout")


async def test_the_history_has_pages(pair: tuple[Peer, Peer]) -> None:
    asker, approver = pair
    ids = []
    for number in range(3):
        wish = {"command": f"echo {number}", "twoPhase": True}
        ids.append((await asker.call("exec.approval.request", wish))["id"])
        answer = {"id": ids[-1], "decision": "deny"}
        await approver.call("exec.approval.resolve", answer)
    page = await approver.call("approval.history", {"limit": 2})
    rest = await approver.call("approval.history", {"limit": 2, "cursor": page["nextCursor"]})
    found = [each["id"] for each in (*page["items"], *rest["items"])]
    assert sorted(found) == sorted(ids)
    assert "nextCursor" not in rest
    for cursor in ("x", "-", "9" * 30, "1 OR 1"):
        assert (await approver.refused("approval.history", {"cursor": cursor}))["message"]


async def test_a_request_of_a_client_survives_a_restart() -> None:
    async with serve({}) as ground:
        asker = await ground.join()
        wish = {"command": "git push", "twoPhase": True}
        id_ = (await asker.call("exec.approval.request", wish))["id"]
    # What another process has asked, whatever became of that process.
    _disown()
    async with serve({}) as ground:
        peer = await ground.join()
        [found] = await peer.call("exec.approval.list")
        assert found["id"] == id_
        waiting = await peer.send("exec.approval.waitDecision", {"id": id_})
        await peer.call("exec.approval.resolve", {"id": id_, "decision": "allow-once"})
        assert (await peer.answer(waiting))["payload"]["decision"] == "allow-once"


async def test_a_question_of_an_agent_ends_with_its_process(ground: Ground) -> None:
    store = PendingStore(waiting_file(os.environ))
    asked = store.add(Question("exec", {}, "run it", command="x"), {}, now_ms(), 60_000)
    store.close()
    _disown()
    peer = await ground.join()
    assert await peer.call("exec.approval.list") == []
    found = (await peer.call("approval.get", {"id": asked.id}))["approval"]
    assert (found["status"], found["reason"]) == ("cancelled", "gateway-restart")
    for decision in ("allow-once", "deny"):
        answer = {"id": asked.id, "decision": decision}
        error = await peer.refused("exec.approval.resolve", answer)
        assert "the process that asked has ended" in error["message"]
        assert await peer.call("approval.resolve", answer) == {"applied": False, "approval": found}


def _disown() -> None:
    """Make all questions those of a process that has ended."""
    process = subprocess.Popen(["true"])
    process.wait()
    place = records.here()
    db = apsw.Connection(waiting_file(os.environ))
    db.execute("UPDATE question SET owner = ?", (f"{process.pid} 1 {place}",))
    db.close()


async def test_the_approvals_file_is_read_and_replaced(ground: Ground) -> None:
    peer = await ground.join()
    found = await peer.call("exec.approvals.get")
    assert found["exists"] is False
    entry = {"pattern": "/usr/bin/uname"}
    file = {
        "version": 1,
        "defaults": {"security": "deny"},
        "agents": {"main": {"allowlist": [entry]}},
    }
    written = await peer.call("exec.approvals.set", {"file": file, "baseHash": found["hash"]})
    assert written["exists"] is True
    assert written["resolvedDefaults"]["security"] == "deny"
    patterns = [each["pattern"] for each in written["file"]["agents"]["main"]["allowlist"]]
    assert patterns == ["/usr/bin/uname"]
    stale = await peer.refused("exec.approvals.set", {"file": file, "baseHash": "zzz"})
    text = "exec approvals changed since last load; re-run exec.approvals.get and retry"
    assert stale["message"] == text
    assert (await peer.refused("exec.approvals.set", {"file": file}))["code"] == "INVALID_REQUEST"
    bad = {"file": {"version": 1, "defaults": {"security": "x"}}, "baseHash": written["hash"]}
    assert (await peer.refused("exec.approvals.set", bad))["code"] == "INVALID_REQUEST"
    assert (await peer.call("exec.approvals.get"))["hash"] == written["hash"]
