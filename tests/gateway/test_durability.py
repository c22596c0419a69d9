"""What the gateway has accepted survives its end: gracefully stopped, restarted or killed."""

from __future__ import annotations

import asyncio
import os
import re
from pathlib import Path
from typing import Any

import apsw
import pytest
from msgspec.structs import replace
from tests.gateway.conftest import Device, Ground, serve
from tests.gateway.raw_http import send
from tests.gateway.test_approvals import RULES, ask
from tests.gateway.test_turns import READ_WRITE, message

from clawkit.approvals import broker
from clawkit.content import Text, User
from clawkit.errors import ToolError
from clawkit.gateway.agent_pool import MAX_TRIES, RESUMED
from clawkit.gateway.protocol import now_ms
from clawkit.gateway.run_store import GatewayRunStore
from clawkit.gateway.session_events import GatewayRun
from clawkit.sessions.store import LiveSession, SessionStore
from clawkit.testing import Gate, ScriptedModel, call, hang


async def said(peer: Any, session: str = "main") -> list[tuple[str, Any]]:
    found = await peer.call("chat.history", {"sessionKey": session})
    return [
        (each["role"], each["content"] if each["role"] == "user" else None)
        for each in found["messages"]
    ]


async def test_a_turn_that_a_restart_interrupts_is_resumed_once(device: Device) -> None:
    gate = Gate("never said")
    async with serve({}, ScriptedModel(call("ls", {}), gate)) as ground:
        peer = await ground.join(READ_WRITE, device)
        await peer.call("chat.send", message("work"))
        await gate.reached.wait()
    finish = Gate("finished")
    model = ScriptedModel(finish)
    async with serve({}, model) as ground:
        peer = await ground.join(READ_WRITE, device)
        assert (await peer.call("chat.send", message("work")))["status"] == "in_flight"
        finish.release()
        found = await peer.call("agent.wait", {"runId": "run-1"})
        assert (found["status"], found["terminalReply"]["text"]) == ("ok", "finished")
        roles = [("user", "work"), ("assistant", None), ("toolResult", None)]
        assert await said(peer) == [*roles, ("user", RESUMED), ("assistant", None)]
        assert len(model.requests) == 1
    again = ScriptedModel("too much")
    async with serve({}, again) as ground:
        peer = await ground.join(READ_WRITE, device)
        assert (await peer.call("chat.send", message("work")))["status"] == "ok"
        await peer.call("sessions.list")
        assert again.requests == []


async def test_a_call_interrupted_by_a_restart_is_not_attributed_to_a_person() -> None:
    waiting = call("exec", {"command": "sleep 600"})
    async with serve({}, ScriptedModel(waiting)) as ground:
        peer = await ground.join(caps=["tool-events"])
        await peer.call("chat.send", message("work"))
        await peer.until(
            lambda each: each.get("event") == "agent" and each["payload"]["stream"] == "tool"
        )
    async with serve({}, ScriptedModel("finished")) as ground:
        peer = await ground.join()
        ended = await peer.call("agent.wait", {"runId": "run-1"})
        assert ended["status"] == "ok", ended
        found = await peer.call("chat.history", {"sessionKey": "main"})
        [result] = [each for each in found["messages"] if each["role"] == "toolResult"]
        words = result["content"][0]["text"]
        assert words.startswith("interrupted by a restart of the gateway before it finished")


async def test_unread_messages_are_delivered_in_order_after_a_restart() -> None:
    gate = Gate("never said")
    async with serve({}, ScriptedModel(gate)) as ground:
        peer = await ground.join(READ_WRITE, Device())
        await peer.call("chat.send", message("first"))
        await gate.reached.wait()
        for name in ("second", "third"):
            await peer.call("chat.send", message(name, name, queueMode="followup"))
    async with serve({}, ScriptedModel(then="ok")) as ground:
        peer = await ground.join(READ_WRITE, Device())
        assert (await peer.call("agent.wait", {"runId": "third"}))["status"] == "ok"
        words = [text for role, text in await said(peer) if role == "user"]
        assert words == ["first", RESUMED, "second", "third"]


async def test_more_messages_than_may_wait_are_said_after_a_restart() -> None:
    """Some were waiting, others were to be read by the turn that was under way."""
    gate, config = Gate("never said"), {"messages": {"queue": {"cap": 2}}}
    names = ("a", "b", "c", "d")
    async with serve(config, ScriptedModel(gate)) as ground:
        peer = await ground.join(READ_WRITE, Device())
        await peer.call("chat.send", message("first"))
        await gate.reached.wait()
        for name in names:
            mode = "steer" if name < "c" else "followup"
            await peer.call("chat.send", message(name, name, queueMode=mode))
        assert "cap" in (await peer.refused("chat.send", message("e", "e")))["message"]
    async with serve(config, ScriptedModel(then="ok")) as ground:
        peer = await ground.join(READ_WRITE, Device())
        ended = [await peer.call("agent.wait", {"runId": name}) for name in names]
        assert [each["status"] for each in ended] == ["ok"] * 4
        words = [text for role, text in await said(peer) if role == "user"]
        assert words == ["first", RESUMED, *names]


async def test_messages_wait_for_a_session_that_another_process_uses_after_a_restart() -> None:
    gate = Gate("never said")
    async with serve({}, ScriptedModel(gate)) as ground:
        peer = await ground.join(READ_WRITE, Device())
        await peer.call("chat.send", message("first"))
        await gate.reached.wait()
        for name in ("second", "third"):
            await peer.call("chat.send", message(name, name, queueMode="followup"))
        path = ground.gateway.store.path
    store = SessionStore(path, str)
    other = LiveSession.open(store, "main", "main", "/")
    async with serve({}, ScriptedModel(then="ok")) as ground:
        peer = await ground.join(READ_WRITE, Device())
        await peer.call("health")
        stopped = await peer.call("chat.abort", {"sessionKey": "main", "runId": "second"})
        assert stopped["runIds"] == ["second"]
        other.close()
        assert (await peer.call("agent.wait", {"runId": "third"}))["status"] == "ok"
        assert (await peer.call("agent.wait", {"runId": "run-1"}))["status"] == "ok"
        words = [text for role, text in await said(peer) if role == "user"]
        assert words == ["first", RESUMED, "third"]


async def test_messages_that_were_steered_into_a_turn_are_resumed_with_it() -> None:
    first, second = Gate(call("ls", {})), Gate("never said")
    async with serve({}, ScriptedModel(first, second)) as ground:
        peer = await ground.join(READ_WRITE, Device())
        await peer.call("chat.send", message("work"))
        await first.reached.wait()
        await peer.call("chat.send", message("faster", "run-2", queueMode="steer"))
        first.release()
        await second.reached.wait()
    model = ScriptedModel("finished")
    async with serve({}, model) as ground:
        peer = await ground.join(READ_WRITE, Device())
        for run in ("run-1", "run-2"):
            found = await peer.call("agent.wait", {"runId": run})
            assert (found["status"], found["terminalReply"]["text"]) == ("ok", "finished")
        words = [text for role, text in await said(peer) if role == "user"]
        assert words == ["work", "faster", RESUMED]
        assert len(model.requests) == 1


async def test_an_answer_that_was_stored_and_not_recorded_is_not_asked_for_again() -> None:
    async with serve({}, ScriptedModel("the answer")) as ground:
        peer = await ground.join(READ_WRITE, Device())
        ground.gateway.run_store.end = lambda run: None  # type: ignore[method-assign]
        await peer.call("chat.send", message("work"))
        await peer.until_chat("final")
    model = ScriptedModel("too much")
    async with serve({}, model) as ground:
        peer = await ground.join(READ_WRITE, Device())
        found = await peer.call("agent.wait", {"runId": "run-1"})
        assert found["terminalReply"]["text"] == "the answer"
        assert model.requests == []


async def test_a_run_that_ends_the_gateway_again_and_again_is_given_up() -> None:
    for _ in range(MAX_TRIES + 1):
        gate = Gate("never said")
        async with serve({}, ScriptedModel(gate)) as ground:
            peer = await ground.join(READ_WRITE, Device())
            if ground.gateway.live.run("run-1") is None:
                await peer.call("chat.send", message("work"))
            await gate.reached.wait()
    model = ScriptedModel("too much")
    async with serve({}, model) as ground:
        peer = await ground.join(READ_WRITE, Device())
        found = await peer.call("agent.wait", {"runId": "run-1"})
        assert found["status"] == "error"
        assert "send it again" in found["error"]
        assert model.requests == []


async def test_messages_that_were_not_read_wait_through_any_number_of_restarts() -> None:
    for _ in range(MAX_TRIES + 1):
        gate = Gate("never said")
        async with serve({}, ScriptedModel(gate)) as ground:
            peer = await ground.join(READ_WRITE, Device())
            if ground.gateway.live.run("run-1") is None:
                await peer.call("chat.send", message("work"))
                await peer.call("chat.send", message("later", "run-2", queueMode="followup"))
            await gate.reached.wait()
    async with serve({}, ScriptedModel("read")) as ground:
        peer = await ground.join(READ_WRITE, Device())
        found = await peer.call("agent.wait", {"runId": "run-2"})
        assert (found["status"], found["terminalReply"]["text"]) == ("ok", "read")


def fail_to_end(ground: Ground, run_id: str) -> None:
    """Have the end of a run not be recorded."""
    end = ground.gateway.run_store.end

    def fail(run: GatewayRun) -> None:
        if run.id == run_id:
            raise ToolError("the disk is full")
        end(run)

    ground.gateway.run_store.end = fail  # type: ignore[method-assign]


async def owner_of_what_is_resumed() -> bool:
    model = ScriptedModel(gate := Gate("finished"))
    async with serve({}, model) as ground:
        await gate.reached.wait()
        there = ground.gateway.live.find("agent:main:main")
        assert there is not None
        return there.owner


async def test_a_turn_is_not_resumed_with_the_rights_of_an_earlier_one() -> None:
    gate = Gate("never said")
    async with serve({}, ScriptedModel("done", gate)) as ground:
        fail_to_end(ground, "owner")
        owner, other = await ground.join(), await ground.join(READ_WRITE, Device())
        await owner.call("chat.send", message("hello", "owner"))
        await owner.until_chat("final")
        await other.call("chat.send", message("use the gateway", "other"))
        await gate.reached.wait()
    assert not await owner_of_what_is_resumed()


async def test_a_turn_is_not_resumed_with_the_rights_of_an_earlier_one_without_an_answer() -> None:
    first, gate = Gate("never said"), Gate("never said")
    async with serve({}, ScriptedModel(first, gate)) as ground:
        fail_to_end(ground, "owner")
        owner, other = await ground.join(), await ground.join(READ_WRITE, Device())
        await owner.call("chat.send", message("hello", "owner"))
        await first.reached.wait()
        await owner.call("chat.abort", {"sessionKey": "main"})
        await other.call("chat.send", message("use the gateway", "other"))
        await gate.reached.wait()
    assert not await owner_of_what_is_resumed()


async def test_a_later_message_of_others_does_not_resume_an_earlier_turn() -> None:
    gate, second = Gate("never said"), Gate("never said")
    async with serve({}, ScriptedModel(gate, second)) as ground:
        fail_to_end(ground, "owner")
        owner, other = await ground.join(), await ground.join(READ_WRITE, Device())
        await owner.call("chat.send", message("hello", "owner"))
        await gate.reached.wait()
        await owner.call("chat.abort", {"sessionKey": "main"})
        await other.call("chat.send", message("use the gateway", "other"))
        await second.reached.wait()
        await other.call("chat.abort", {"sessionKey": "main"})
        await other.call("agent.wait", {"runId": "other"})
    model = ScriptedModel("too much")
    async with serve({}, model) as ground:
        peer = await ground.join()
        found = await peer.call("agent.wait", {"runId": "owner"})
        assert "send it again" in found["error"]
        assert model.requests == []


async def test_an_end_that_could_not_be_recorded_is_recorded_later() -> None:
    async with serve({}, ScriptedModel(then="done")) as ground:
        ledger, peer = ground.gateway.run_store, await ground.join()
        end = ledger.end
        fail_to_end(ground, "run-1")
        await peer.call("chat.send", message("one"))
        await peer.until_chat("final", "run-1")
        assert [each.id for each in ledger.unfinished()] == ["run-1"]
        ledger.end = end  # type: ignore[method-assign]
        await ground.gateway.live.sweep()
        assert ledger.unfinished() == []
        assert (await peer.call("chat.send", message("one")))["status"] == "ok"


async def test_a_reused_key_stands_for_the_new_message() -> None:
    async with serve({}, ScriptedModel("old answer")) as ground:
        peer = await ground.join(READ_WRITE, Device())
        await peer.call("chat.send", message("first"))
        await peer.until_chat("final")
    gate = Gate("never said")
    async with serve({}, ScriptedModel(gate)) as ground:
        peer = await ground.join(READ_WRITE, Device())
        ground.gateway.run_store.remove("run-1")  # as after a while
        await peer.call("chat.send", message("other", "run-2"))
        await gate.reached.wait()
        await peer.call("chat.send", message("second", queueMode="followup"))
    async with serve({}, ScriptedModel("finished", "new answer")) as ground:
        peer = await ground.join(READ_WRITE, Device())
        found = await peer.call("agent.wait", {"runId": "run-1"})
        assert found["terminalReply"]["text"] == "new answer"
        words = [text for role, text in await said(peer) if role == "user"]
        assert words == ["first", "other", RESUMED, "second"]


async def test_the_same_answers_after_a_restart(device: Device) -> None:
    params = {"message": "hi", "idempotencyKey": "run-1"}
    async with serve({}, ScriptedModel("the end")) as ground:
        peer = await ground.join(READ_WRITE, device)
        id_ = await peer.send("agent", params)
        await peer.answer(id_)
        first = await peer.answer(id_)
        stopped = await peer.call("chat.send", message("/stop", "stop"))
        assert stopped["status"] == "started"
    model = ScriptedModel("too much")
    async with serve({}, model) as ground:
        peer = await ground.join(READ_WRITE, device)
        id_ = await peer.send("agent", params)
        assert (await peer.answer(id_))["payload"]["status"] == "accepted"
        assert (await peer.answer(id_))["payload"] == first["payload"]
        assert (await peer.call("chat.send", message("/stop", "stop")))["status"] == "ok"
        elsewhere = await peer.refused("chat.send", message("hi", session="agent:main:x"))
        assert "idempotencyKey" in elsewhere["message"]
        assert model.requests == []


async def test_a_turn_gets_time_to_end_and_its_client_hears_the_answer() -> None:
    gate = Gate("just in time")
    async with serve({}, ScriptedModel(gate)) as ground:
        peer = await ground.join(READ_WRITE, Device())
        await peer.call("chat.send", message("work"))
        await peer.call("chat.send", message("later", "run-2", queueMode="followup"))
        await gate.reached.wait()
        leaving = asyncio.create_task(ground.gateway.say_goodbye())
        while not ground.gateway.live.is_closed:
            await asyncio.sleep(0)
        refused = await peer.refused("chat.send", message("more", "run-3"))
        assert (refused["code"], refused["retryable"]) == ("UNAVAILABLE", True)
        gate.release()
        await peer.until_chat("final", "run-1")
        await peer.until(lambda each: each.get("event") == "shutdown")
        await leaving
    model = ScriptedModel("read")
    async with serve({}, model) as ground:
        peer = await ground.join(READ_WRITE, Device())
        assert (await peer.call("agent.wait", {"runId": "run-2"}))["status"] == "ok"
        words = [text for role, text in await said(peer) if role == "user"]
        assert words == ["work", "later"]
        assert ground.gateway.live.run("run-3") is None


async def test_a_turn_of_an_http_request_is_not_resumed() -> None:
    config = {"gateway": {"http": {"endpoints": {"chatCompletions": {"enabled": True}}}}}
    gate = Gate("never said")
    async with serve(config, ScriptedModel(gate)) as ground:
        body = b'{"model": "openclaw", "messages": [{"role": "user", "content": "hi"}]}'
        asked = asyncio.create_task(send(ground, "POST", "/v1/chat/completions", body))
        await gate.reached.wait()
        ground.gateway.live.hurry.set()
        await ground.gateway.live.close()
        await asyncio.wait({asked})
    model = ScriptedModel("too much")
    async with serve(config, model) as ground:
        assert ground.gateway.run_store.unfinished() == []
        assert model.requests == []


async def test_a_turn_stopped_by_a_person_is_not_resumed() -> None:
    async with serve({}, ScriptedModel(hang())) as ground:
        peer = await ground.join(READ_WRITE, Device())
        await peer.call("chat.send", message("work"))
        await peer.call("chat.abort", {"sessionKey": "main"})
        await peer.call("agent.wait", {"runId": "run-1"})
        assert ground.gateway.run_store.unfinished() == []


async def test_a_turn_stopped_by_a_person_during_shutdown_is_not_resumed() -> None:
    gate = Gate("never said")
    async with serve({}, ScriptedModel(gate)) as ground:
        peer = await ground.join()
        await peer.call("chat.send", message("work"))
        await gate.reached.wait()
        for name in ("second", "third"):
            await peer.call("chat.send", message(name, name, queueMode="followup"))
        ending = asyncio.ensure_future(ground.gateway.say_goodbye())
        await peer.call("health")
        for name in ("second", "run-1"):
            stopped = await peer.call("chat.abort", {"sessionKey": "main", "runId": name})
            assert stopped["runIds"] == [name]
        ground.gateway.live.hurry.set()
        await ending
    async with serve({}, ScriptedModel(then="ok")) as ground:
        peer = await ground.join()
        assert (await peer.call("agent.wait", {"runId": "third"}))["status"] == "ok"
        words = [text for role, text in await said(peer) if role == "user"]
        assert words == ["work", "third"]


async def test_a_full_disk_keeps_no_one_from_stopping_what_runs_and_waits(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def fail(*_given: Any, **_more: Any) -> None:
        raise ToolError("the disk is full")

    async with serve({}, ScriptedModel(hang(), then="ok")) as ground:
        owner, other = await ground.join(), await ground.join(READ_WRITE, Device())
        await owner.call("chat.send", message("work"))
        waiting = await other.send("chat.send", message("then this", "run-2"))
        await other.call("health")
        for name in ("add", "end"):
            monkeypatch.setattr(ground.gateway.run_store, name, fail)
        stopped = await owner.call("chat.abort", {"sessionKey": "main"})
        assert stopped["runIds"] == ["run-2", "run-1"]
        assert (await other.answer(waiting))["ok"]
        for name in ("run-1", "run-2"):
            assert (await owner.call("agent.wait", {"runId": name}))["error"] == "aborted"
        monkeypatch.undo()
        assert len(await said(owner)) == 1


async def test_the_limits_of_a_turn_hold_after_a_restart(tmp_path: Path) -> None:
    gate = Gate("never said")
    given = {"cwd": str(tmp_path), "session": "s", "message": "work", "idempotencyKey": "run-1"}
    async with serve({}, ScriptedModel(gate)) as ground:
        peer = await ground.join()
        await peer.send("clawkit.turn", given | {"maxTurns": 2})
        await gate.reached.wait()
        await peer.call("chat.send", message("more", "run-2", sessionKey="s", queueMode="followup"))
    calls = [call("ls", {"path": each}) for each in (".", "..", "/", "/usr", "/etc")]
    async with serve({}, ScriptedModel(*calls, then="done")) as ground:
        peer = await ground.join()
        ended = await peer.call("agent.wait", {"runId": "run-1"})
        assert "reached the limit of answers (2)" in ended["error"]
        assert (await peer.call("agent.wait", {"runId": "run-2"}))["status"] == "ok"


async def test_a_question_survives_a_restart_and_its_answer_counts() -> None:
    async with serve(RULES, ScriptedModel(call("ls", {}))) as ground:
        _, _, asked = await ask(ground)
    broker._asked.clear()  # as in a new process
    model = ScriptedModel(call("ls", {}), "done")
    async with serve(RULES, model) as ground:
        approver = await ground.join()
        while not (listed := await approver.call("exec.approval.list")):
            await asyncio.sleep(0.02)
        assert [(each["id"], each["createdAtMs"]) for each in listed] == [
            (asked["id"], asked["createdAtMs"]),
        ]
        await approver.call("exec.approval.resolve", {"id": asked["id"], "decision": "allow-once"})
        assert (await approver.call("agent.wait", {"runId": "r"}))["status"] == "ok"
        history = await approver.call("chat.history", {"sessionKey": "main"})
        results = [each for each in history["messages"] if each["role"] == "toolResult"]
        assert results[-1]["isError"] is False


async def test_a_question_about_a_command_survives_a_restart_unless_the_command_changes() -> None:
    config = {"tools": {"exec": {"security": "allowlist", "ask": "always"}}}
    touch = call("exec", {"command": "touch one"})
    async with serve(config, ScriptedModel(touch)) as ground:
        _, _, asked = await ask(ground)
    broker._asked.clear()  # as in a new process
    async with serve(config, ScriptedModel(touch)) as ground:
        approver = await ground.join()
        while not (listed := await approver.call("exec.approval.list")):
            await asyncio.sleep(0.02)
        assert [each["id"] for each in listed] == [asked["id"]]
        assert len(ground.gateway.desk.store.pending(now_ms())) == 1
    broker._asked.clear()
    model = ScriptedModel(call("exec", {"command": "touch two"}), "done")
    async with serve(config, model) as ground:
        approver = await ground.join()
        while not (listed := await approver.call("exec.approval.list")):
            await asyncio.sleep(0.02)
        assert [each["request"]["command"] for each in listed] == ["touch two"]
        assert listed[0]["id"] != asked["id"]
        answer = {"id": asked["id"], "decision": "allow-once"}
        error = await approver.refused("exec.approval.resolve", answer)
        assert "can no longer be answered: the process that asked has ended" in error["message"]
        await approver.call("exec.approval.resolve", answer | {"id": listed[0]["id"]})
        assert (await approver.call("agent.wait", {"runId": "r"}))["status"] == "ok"
        assert ground.gateway.desk.store.get(asked["id"]).state == "withdrawn"


async def test_a_question_of_a_sub_agent_ends_when_its_requester_is_done() -> None:
    async with serve(RULES, ScriptedModel(call("ls", {}))) as ground:
        _, _, asked = await ask(ground)
        store, pending = ground.gateway.store, ground.gateway.desk.store
        root = store.find("agent:main:main")
        assert root is not None
        store.create("main", workspace="/tmp", name="subagent:x", parent=root.id)
        store.create("main", workspace="/tmp", name="other")
        question = pending.get(asked["id"]).question
        left = {
            key: pending.add(replace(question, session=key), {}, now_ms(), 600_000).id
            for key in ("agent:main:subagent:x", "agent:main:other")
        }
    broker._asked.clear()  # as in a new process
    async with serve(RULES, ScriptedModel("done")) as ground:
        peer = await ground.join()
        assert (await peer.call("agent.wait", {"runId": "r"}))["status"] == "ok"
        states = {key: ground.gateway.desk.store.get(id_).state for key, id_ in left.items()}
        assert states == {"agent:main:subagent:x": "withdrawn", "agent:main:other": "pending"}


@pytest.mark.parametrize(
    "record",
    [
        *(b"", b"[]", b"{}", b'{"id": "a"}', b'{"id": "a", "session": "s", "later": 1}'),
        *(b'{"id": "a", "session": 5}', b'{"id": "a", "session": "s", "usage": []}'),
    ],
)
def test_a_damaged_run_is_reported_and_the_others_are_not_lost(
    tmp_path: Path, record: bytes, caplog: pytest.LogCaptureFixture
) -> None:
    path = str(tmp_path / "runs.sqlite")
    ledger = GatewayRunStore(path, str)
    for name in "abc":
        ledger.add(GatewayRun(name, "agent:main:main"))
    assert [each.id for each in ledger.unfinished()] == ["a", "b", "c"]
    apsw.Connection(path).execute("UPDATE run SET record = ? WHERE id = 'a'", (record,))
    assert [each.id for each in ledger.unfinished()] == ["b", "c"]
    assert re.search(r"runs\.sqlite: .* a run in it is damaged", caplog.text)
    caplog.clear()
    assert [each.id for each in ledger.unfinished()] == ["b", "c"]
    assert caplog.text == "", "once is enough"
    with pytest.raises(ToolError, match="a run in it is damaged"):
        ledger.get("a")


def test_a_damaged_message_is_not_resumed(tmp_path: Path) -> None:
    path = str(tmp_path / "runs.sqlite")
    ledger = GatewayRunStore(path, str)
    said = User((Text("hi"),), 1, ids=("a", "mark"))
    for name, body in {"a": ledger.pack(said), "b": b"{", "c": ledger.pack(User((), 1))}.items():
        ledger.add(GatewayRun(name, "agent:main:main"), body)
    assert [each.message for each in ledger.unfinished()] == [said, None, None]


async def test_a_damaged_record_of_runs_is_reported_and_the_gateway_serves() -> None:
    path = Path(os.environ["CLAWKIT_HOME"]) / "gateway" / "runs.sqlite"
    path.parent.mkdir(mode=0o700)
    path.write_bytes(b"nonsense")
    path.chmod(0o600)
    async with serve({}) as ground:
        peer = await ground.join()
        error = await peer.refused("chat.send", message("hi"))
        assert error["code"] == "UNAVAILABLE"
        assert "runs.sqlite" in error["message"]
        assert (await peer.call("health"))["ok"]
