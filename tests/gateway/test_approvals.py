"""Approvals: a command of an agent waits for an answer from any client."""

from __future__ import annotations

import asyncio
import os
from typing import Any

import pytest
from tests.gateway.conftest import Device, Ground, Peer, serve

from clawkit.approvals.broker import PendingStore
from clawkit.config.paths import waiting_file
from clawkit.core.approval import Lasting, Question
from clawkit.gateway.protocol import now_ms
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


async def test_questions_of_other_processes_can_be_answered(
    ground: Ground, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("clawkit.gateway.approvals.POLL_S", 0.05)
    approver = await ground.join()
    await asyncio.sleep(1.0)  # the first look was before the change
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
async def test_unknown_questions_are_told_as_such(ground: Ground, id_: str) -> None:
    peer = await ground.join()
    error = await peer.refused("exec.approval.resolve", {"id": id_, "decision": "deny"})
    assert error["message"] == "unknown or expired approval id"
    assert error["details"]["reason"] == "APPROVAL_NOT_FOUND"


async def test_a_part_of_an_id_is_not_enough() -> None:
    async with serve(RULES, ScriptedModel(call("ls", {}), "done")) as ground:
        _, approver, asked = await ask(ground)
        short = {"id": asked["id"][:8], "decision": "allow-once"}
        assert (await approver.refused("exec.approval.resolve", short))["details"]


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
