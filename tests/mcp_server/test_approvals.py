"""Approvals: by elicitation in both eras, elsewhere, or refused at once."""

from __future__ import annotations

import asyncio
import os
from pathlib import Path
from typing import Any

import pytest
from tests.mcp_server.wire import FORMS, Wire, connect, modern, opener

from clawkit.approvals.broker import PendingStore
from clawkit.config.paths import waiting_file
from clawkit.core.approval import Answer, Lasting, Question
from clawkit.core.call import CallRequest, Run
from clawkit.mcp import protocol as mcp
from clawkit.mcp_server.served_call import (
    Elicited,
    ServedCall,
    SuspendedCalls,
    read_answer,
    show_question,
)

ASK: dict[str, Any] = {"tools": {"rules": [{"tool": "write", "effect": "ask"}]}}
WRITE: dict[str, Any] = {"name": "write", "arguments": {"path": "a.txt", "content": "new"}}
YES = {"action": "accept", "content": {"decision": "allow-once"}}
QUESTION = Question("exec", {}, "run a command", command="ls")
LASTING = Question(
    "exec",
    {},
    "run a command",
    lasting=(Lasting("exact", "exactly this"), Lasting("session", "it for this session")),
)


@pytest.mark.parametrize(
    ("answer", "is_written"),
    [
        ({"result": YES}, True),
        ({"result": {"action": "accept", "content": {"decision": "deny"}}}, False),
        ({"result": {"action": "accept", "content": {}}}, False),
        ({"result": {"action": "accept"}}, False),
        ({"result": {"action": "accept", "content": {"decision": "allow-always"}}}, False),
        ({"result": {"action": "decline"}}, False),
        ({"result": {"action": "cancel"}}, False),
        ({"result": {"action": "other", "content": {"decision": "allow-once"}}}, False),
        ({"result": "yes"}, False),
        ({"error": {"code": -1, "message": "not now"}}, False),
    ],
)
async def test_a_client_with_sessions_is_asked_while_the_call_waits(
    tmp_path: Path, answer: dict[str, Any], is_written: bool
) -> None:
    async with connect(opener(ASK, tmp_path)) as wire:
        await wire.initialize(FORMS)
        number = await wire.start("tools/call", WRITE)
        asked = await wire.receive()
        assert asked["method"] == "elicitation/create"
        assert "a.txt" in asked["params"]["message"]
        await wire.send({"jsonrpc": "2.0", "id": asked["id"], **answer})
        result = await wire.receive()
    assert result["id"] == number
    assert result["result"].get("isError", False) is not is_written
    assert (tmp_path / "a.txt").exists() is is_written


async def begin(wire: Wire, **more: Any) -> dict[str, Any]:
    answer = await wire.ask("tools/call", modern(FORMS, **WRITE, **more))
    result: dict[str, Any] = answer["result"]
    return result


async def test_a_client_without_sessions_is_asked_by_the_result_and_repeats_the_call(
    tmp_path: Path,
) -> None:
    async with connect(opener(ASK, tmp_path)) as wire:
        asked = await begin(wire)
        [(name, request)] = asked["inputRequests"].items()
        assert (asked["resultType"], request["method"]) == ("input_required", "elicitation/create")
        assert not (tmp_path / "a.txt").exists()
        again = await begin(wire, requestState=asked["requestState"], inputResponses={"other": 1})
        assert (again["resultType"], [*again["inputRequests"]]) == ("input_required", [name])
        assert again["requestState"] != asked["requestState"]
        invalid = {name: {"action": "sure"}}
        again = await begin(wire, requestState=again["requestState"], inputResponses=invalid)
        assert again["resultType"] == "input_required"
        state = again["requestState"]
        done = await begin(wire, requestState=state, inputResponses={name: YES})
        assert (done["resultType"], done.get("isError")) == ("complete", None)
        assert (tmp_path / "a.txt").read_text() == "new"
        used = {"requestState": state, "inputResponses": {name: YES}}
        twice = await wire.ask("tools/call", modern(FORMS, **WRITE, **used))
        assert twice["error"]["code"] == mcp.INVALID_PARAMS


async def test_a_state_is_good_for_the_same_call_of_the_same_client_alone(tmp_path: Path) -> None:
    async with connect(opener(ASK, tmp_path)) as wire:
        asked = await begin(wire)
        state, [name] = asked["requestState"], asked["inputRequests"]
        answers = {"inputResponses": {name: YES}}
        other = {"name": "write", "arguments": {"path": "b.txt", "content": "new"}}
        stranger = {"_meta": {mcp.META_CLIENT: {"name": "another", "version": "1"}}}
        flipped = state[:-1] + ("0" if state[-1] != "0" else "1")
        for params in [
            modern(FORMS, **other, **answers, requestState=state),
            modern(FORMS, **WRITE, **answers, **stranger, requestState=state),
            modern(FORMS, **WRITE, **answers, requestState=flipped),
            modern(FORMS, **WRITE, **answers, requestState=state[:-1]),
            modern(FORMS, **WRITE, **answers, requestState="é.0"),
            modern(FORMS, **WRITE, **answers, requestState=""),
        ]:
            answer = await wire.ask("tools/call", params)
            assert answer["error"]["code"] == mcp.INVALID_PARAMS
        assert not any(tmp_path.glob("*.txt"))
        done = await begin(wire, requestState=state, **answers)
        assert done["resultType"] == "complete"


async def test_without_anyone_to_ask_a_call_is_refused_at_once(tmp_path: Path) -> None:
    async with connect(opener(ASK, tmp_path)) as wire:
        await wire.initialize({"elicitation": {"url": {}}})
        old = (await wire.ask("tools/call", WRITE))["result"]
        new = (await wire.ask("tools/call", modern(**WRITE)))["result"]
    for result in (old, new):
        assert result["isError"] is True
        assert "no one can be asked here" in result["content"][0]["text"]


async def test_a_question_can_be_answered_elsewhere(tmp_path: Path) -> None:
    store = PendingStore(waiting_file(os.environ))
    async with connect(opener(ASK, tmp_path)) as wire:
        await wire.initialize(FORMS)
        number = await wire.start("tools/call", WRITE)
        asked = await wire.receive()
        [pending] = store.pending(0)
        store.decide(pending.id, Answer("allow", by="a terminal"), pending.created_ms + 1)
        cancelled, result = await wire.receive(), await wire.receive()
        assert cancelled["params"] == {"requestId": asked["id"]}
        assert (result["id"], "isError" in result["result"]) == (number, False)
        suspended = await begin(wire)
        [pending] = store.pending(0)
        store.decide(pending.id, Answer("allow", by="a terminal"), pending.created_ms + 1)
        while suspended["resultType"] == "input_required":  # the store is read now and then
            suspended = await begin(wire, requestState=suspended["requestState"])
        assert "isError" not in suspended
    store.close()


async def test_a_suspended_call_ends_with_the_server(tmp_path: Path) -> None:
    store = PendingStore(waiting_file(os.environ))
    async with connect(opener(ASK, tmp_path)) as wire:
        await begin(wire)
        assert len(store.pending(0)) == 1
        wire.hang_up()
        await wire.serving
        assert store.pending(0) == []
    store.close()


async def test_a_client_that_never_answers_is_not_busy_for_ever() -> None:
    run = Run({}, "/")
    served = ServedCall(run, CallRequest("a"), lambda _data: None, None, None, can_ask=True)
    served.task = asyncio.ensure_future(asyncio.Event().wait())  # type: ignore[arg-type]
    calls = SuspendedCalls()
    calls.put(served, b"")
    seen = [calls.is_empty]
    for suspended in calls._suspended.values():
        suspended.until = 0.0
    assert [*seen, calls.is_empty] == [False, True]
    await asyncio.wait([served.task])


def test_what_a_client_says_never_becomes_permanent() -> None:
    form = show_question(LASTING)
    choices = form["requestedSchema"]["properties"]["decision"]["enum"]
    assert choices == ["deny", "allow-once", "allow-session"]
    assert "always" not in form["message"]
    plain = show_question(QUESTION)["requestedSchema"]["properties"]["decision"]
    assert plain["enum"] == ["deny", "allow-once"]
    session = Elicited("accept", {"decision": "allow-session"})
    assert read_answer(session, LASTING, "x") == Answer("allow", extent="session", by="x")
    assert read_answer(session, QUESTION, "x").verdict == "deny"
    for chosen in ("allow-always", "exact", True, None, ["allow-once"]):
        assert read_answer(Elicited("accept", {"decision": chosen}), LASTING, "x").verdict == "deny"
