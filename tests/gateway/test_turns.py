"""Turns through the gateway: events, aborting, resending, leaving."""

from __future__ import annotations

import asyncio
import base64
import io
import sys
from typing import Any

import PIL.Image
import pytest
from tests.gateway.conftest import TOKEN, Device, Ground, serve

from clawkit.content import User
from clawkit.gateway.agent_pool import IDLE_S
from clawkit.gateway.client import Target
from clawkit.gateway.client import connect as connect_to
from clawkit.models.protocols import ModelError, Request
from clawkit.testing import Gate, ScriptedModel, call, hang, say

READ_WRITE = ["operator.read", "operator.write"]


def message(text: str, key: str = "run-1", session: str = "main", **more: Any) -> dict[str, Any]:
    return {"sessionKey": session, "message": text, "idempotencyKey": key, **more}


async def test_a_turn_is_told_as_it_happens() -> None:
    model = ScriptedModel(call("ls", {}), "All done.")
    async with serve({}, model) as ground:
        peer = await ground.join(caps=["tool-events"])
        await peer.call("sessions.subscribe", {})
        started = await peer.call("chat.send", message("look"))
        assert started == {"runId": "run-1", "status": "started"}
        final = await peer.until_chat("final")
        assert final["message"]["content"] == [{"type": "text", "text": "All done."}]
        assert (final["sessionKey"], final["agentId"]) == ("agent:main:main", "main")
        await peer.until(lambda each: each["payload"].get("reason") == "agent.input.settled")
        agent = peer.of("agent")
        assert {each["runId"] for each in agent} == {"run-1"}
        assert [each["seq"] for each in agent] == list(range(1, len(agent) + 1))
        phases = [
            each["data"].get("phase") for each in agent if each["stream"] in ("lifecycle", "tool")
        ]
        assert phases == [
            *("start", "model", "start", "result", "model", "finishing", "end"),
        ]
        calls = [each["data"] for each in agent if each["stream"] == "tool"]
        assert calls[0]["name"] == "ls"
        assert calls[1]["isError"] is False
        assert {"item", "usage", "assistant", "run_status"} <= {each["stream"] for each in agent}
        texts = [each["data"]["text"] for each in agent if each["stream"] == "assistant"]
        assert texts[-1] == "All done."
        deltas = [each["deltaText"] for each in peer.of("chat") if each["state"] == "delta"]
        assert "".join(deltas) == "All done."
        said = [each["message"]["role"] for each in peer.of("session.message")]
        assert said == ["user", "assistant", "toolResult", "assistant"]
        numbers = [each["messageSeq"] for each in peer.of("session.message")]
        assert numbers == [1, 2, 3, 4]
        assert peer.of("session.message")[0]["message"]["idempotencyKey"] == "run-1:user"
        changes = peer.of("sessions.changed")
        assert changes[-1]["activeRunIds"] == []
        assert changes[-1]["session"]["status"] == "done"
        broadcast = [each["seq"] for each in peer.events if "seq" in each]
        assert broadcast == list(range(1, len(broadcast) + 1))


async def test_calls_go_to_those_who_ask_for_them_and_nothing_to_others() -> None:
    model = ScriptedModel(call("ls", {}), "done")
    async with serve({}, model) as ground:
        plain = await ground.join(READ_WRITE, Device())
        blind = await ground.join(["operator.approvals"], Device())
        scoped = await ground.join(READ_WRITE, Device(), caps=["session-scoped-events"])
        await plain.call("chat.send", message("go"))
        await plain.until_chat("final")
        assert "tool" not in {each["stream"] for each in plain.of("agent")}
        assert plain.of("session.message") == plain.of("sessions.changed") == []
        await blind.call("exec.approval.list")
        await scoped.call("health")
        assert blind.of("chat") == blind.of("agent") == scoped.of("chat") == []


async def test_a_turn_survives_its_client() -> None:
    gate = Gate("still here")
    async with serve({}, ScriptedModel(gate)) as ground:
        peer = await ground.join(READ_WRITE, Device())
        await peer.call("chat.send", message("work"))
        await gate.reached.wait()
        peer.socket.transport.abort()
        other = await ground.join(READ_WRITE, Device())
        listed = await other.call("sessions.list")
        assert listed["sessions"][0]["activeRunIds"] == ["run-1"]
        gate.release()
        found = await other.call("agent.wait", {"runId": "run-1"})
        assert found["status"] == "ok"
        assert found["terminalReply"] == {"disposition": "visible", "text": "still here"}
        history = await other.call("chat.history", {"sessionKey": "main"})
        assert [each["role"] for each in history["messages"]] == ["user", "assistant"]


async def test_a_message_that_is_sent_again_is_said_once(device: Device) -> None:
    gate = Gate("once")
    model = ScriptedModel(gate, then="twice")
    async with serve({}, model) as ground:
        peer = await ground.join(READ_WRITE, device)
        first = [await peer.send("chat.send", message("hi")) for _ in range(5)]
        answers = [(await peer.answer(each))["payload"]["status"] for each in first]
        assert answers == ["started", *["in_flight"] * 4]
        gate.release()
        await peer.until_chat("final")
        other = await ground.join(READ_WRITE, device)
        again = await other.call("chat.send", message("hi"))
        assert again == {"runId": "run-1", "status": "ok"}
        assert len(model.requests) == 1
        elsewhere = await peer.refused("chat.send", message("hi", session="agent:main:x"))
        assert "idempotencyKey" in elsewhere["message"]


async def test_agent_answers_twice() -> None:
    gate = Gate("the end")
    async with serve({}, ScriptedModel(gate)) as ground:
        peer = await ground.join(READ_WRITE, Device())
        id_ = await peer.send("agent", {"message": "go", "idempotencyKey": "a-1"})
        accepted = (await peer.answer(id_))["payload"]
        assert accepted["status"] == "accepted"
        assert accepted["sessionKey"] == "agent:main:main"
        gate.release()
        final = (await peer.answer(id_))["payload"]
        assert (final["status"], final["summary"]) == ("ok", "completed")
        assert final["result"]["payloads"] == [{"text": "the end", "mediaUrl": None}]
        assert final["result"]["meta"]["agentMeta"]["usage"]["output"] > 0


async def test_a_session_of_its_own_by_id() -> None:
    async with serve({}) as ground:
        peer = await ground.join(READ_WRITE, Device())
        params = {"message": "go", "idempotencyKey": "a", "sessionId": "S-1", "agentId": "main"}
        id_ = await peer.send("agent", params)
        accepted = (await peer.answer(id_))["payload"]
        assert accepted["sessionKey"] == "agent:main:explicit:s-1"


@pytest.mark.parametrize(
    "more", [{"extraSystemPrompt": "x"}, {"deliver": True}, {"channel": "telegram"}]
)
async def test_what_would_be_ignored_is_refused(ground: Ground, more: dict[str, Any]) -> None:
    peer = await ground.join()
    params = {"message": "go", "idempotencyKey": "a", **more}
    assert next(iter(more)) in (await peer.refused("agent", params))["message"]


@pytest.mark.parametrize("named", [True, False])
async def test_a_run_can_be_stopped(named: bool) -> None:
    gate = Gate("never")
    async with serve({}, ScriptedModel(gate, then="next")) as ground:
        peer, watcher = await ground.join(READ_WRITE, Device()), await ground.join()
        await peer.call("chat.send", message("work"))
        await gate.reached.wait()
        which = {"runId": "run-1"} if named else {}
        stopped = await peer.call("chat.abort", {"sessionKey": "main", **which})
        assert stopped == {"ok": True, "aborted": True, "runIds": ["run-1"]}
        assert (await watcher.until_chat("aborted"))["stopReason"] == "rpc"
        again = await peer.call("chat.abort", {"sessionKey": "main"})
        assert again == {"ok": True, "aborted": False, "runIds": []}
        await peer.call("chat.send", message("more", "run-2"))
        assert (await peer.until_chat("final"))["runId"] == "run-2"
        assert (await peer.call("agent.wait", {"runId": "run-1"}))["status"] == "error"


async def test_a_waiting_message_can_be_withdrawn() -> None:
    gate = Gate("first")
    model = ScriptedModel(gate, then="second")
    async with serve({}, model) as ground:
        peer = await ground.join(READ_WRITE, Device())
        await peer.call("chat.send", message("one"))
        await gate.reached.wait()
        await peer.call("chat.send", message("two", "run-2", queueMode="followup"))
        stopped = await peer.call("sessions.abort", {"runId": "run-2"})
        assert stopped["runIds"] == ["run-2"]
        gate.release()
        assert (await peer.until_chat("final"))["runId"] == "run-1"
        assert len(model.requests) == 1


async def test_a_steered_message_gets_an_end_of_its_own() -> None:
    gate = Gate(call("ls", {}))
    async with serve({}, ScriptedModel(gate, then="both read")) as ground:
        peer = await ground.join(READ_WRITE, Device())
        await peer.call("chat.send", message("one"))
        await gate.reached.wait()
        await peer.call("chat.send", message("two", "run-2", queueMode="steer"))
        gate.release()
        ends = [await peer.until_chat("final", run) for run in ("run-1", "run-2")]
        assert [each["message"]["content"][0]["text"] for each in ends] == ["both read"] * 2


async def test_a_time_limit_stops_a_run() -> None:
    async with serve({}, ScriptedModel(hang())) as ground:
        peer = await ground.join(READ_WRITE, Device())
        await peer.call("chat.send", message("work", timeoutMs=150))
        error = await peer.until_chat("error")
        assert error["errorKind"] == "timeout"
        assert (await peer.call("agent.wait", {"runId": "run-1"}))["status"] == "timeout"


async def test_a_failed_turn_is_an_error() -> None:
    model = ScriptedModel(ModelError("invalid", "no such thing"), then="ok")
    async with serve({}, model) as ground:
        peer = await ground.join(READ_WRITE, Device())
        await peer.call("chat.send", message("work"))
        assert "no such thing" in (await peer.until_chat("error"))["errorMessage"]
        id_ = await peer.send("agent", {"message": "again", "idempotencyKey": "b"})
        await peer.answer(id_)
        assert (await peer.answer(id_))["payload"]["status"] == "ok"


async def test_waiting_for_a_run_that_is_unknown_or_slow() -> None:
    async with serve({}, ScriptedModel(hang())) as ground:
        peer = await ground.join(READ_WRITE, Device())
        unknown = await peer.call("agent.wait", {"runId": "x"})
        assert unknown == {"runId": "x", "status": "timeout"}
        await peer.call("chat.send", message("work"))
        slow = await peer.call("agent.wait", {"runId": "run-1", "timeoutMs": 50})
        assert slow["status"] == "timeout"


async def test_slash_commands_of_the_gateway() -> None:
    async with serve({}) as ground:
        peer = await ground.join()
        await peer.call("chat.send", message("hello"))
        await peer.until_chat("final")
        before = (await peer.call("chat.history", {"sessionKey": "main"}))["sessionId"]
        await peer.call("chat.send", message("/stop", "run-2"))
        await peer.until_chat("final", "run-2")
        writer = await ground.join(READ_WRITE, Device())
        error = await writer.refused("chat.send", message("/new", "run-3"))
        assert error["message"] == "missing scope: operator.admin"
        params = {"message": "/reset", "idempotencyKey": "run-4"}
        assert (await writer.refused("agent", params))["message"] == "missing scope: operator.admin"
        await peer.call("chat.send", message("/new", "run-5"))
        after = await peer.call("chat.history", {"sessionKey": "main"})
        assert after["messages"] == []
        assert after["sessionId"] != before
        kept = await peer.call("sessions.get", {"key": f"agent:main:main:before:{before}"})
        assert [each["role"] for each in kept["messages"]] == ["user", "assistant"]


async def test_only_admins_speak_as_the_owner() -> None:
    """Exec asks differently for the owner; here the flag itself is what matters."""
    async with serve({}, ScriptedModel(then="ok")) as ground:
        admin, writer = await ground.join(), await ground.join(READ_WRITE, Device())
        live = ground.gateway.live
        for peer, run, owner in ((admin, "r1", True), (writer, "r2", False), (admin, "r3", True)):
            await peer.call("chat.send", message("hi", run))
            await peer.until_chat("final", run)
            there = live.find("agent:main:main")
            assert there is not None
            assert there.agent.kit.run.scope.sender.owner is owner


async def test_idle_agents_are_closed_and_opened_again() -> None:
    async with serve({}, ScriptedModel(then="ok")) as ground:
        peer = await ground.join()
        await peer.call("chat.send", message("one"))
        await peer.until_chat("final")
        live = ground.gateway.live
        await live.sweep(IDLE_S)
        assert live.find("agent:main:main") is not None
        await live.sweep(0)
        assert live.find("agent:main:main") is None
        await peer.call("chat.send", message("two", "run-2"))
        await peer.until_chat("final", "run-2")
        history = await peer.call("chat.history", {"sessionKey": "main"})
        assert [each["content"] for each in history["messages"][::2]] == ["one", "two"]


async def test_an_agent_that_works_is_not_closed() -> None:
    gate = Gate("done")
    async with serve({}, ScriptedModel(gate)) as ground:
        peer = await ground.join()
        await peer.call("chat.send", message("one"))
        await gate.reached.wait()
        await ground.gateway.live.sweep(0)
        gate.release()
        assert (await peer.until_chat("final"))["runId"] == "run-1"


async def test_sessions_run_side_by_side() -> None:
    gate = Gate("slow")
    async with serve({}, ScriptedModel(gate, then="quick")) as ground:
        peer = await ground.join()
        await peer.call("chat.send", message("one", "r1", "a"))
        await gate.reached.wait()
        await peer.call("chat.send", message("two", "r2", "b"))
        assert (await peer.until_chat("final"))["runId"] == "r2"
        gate.release()
        assert (await peer.until_chat("final", "r1"))["sessionKey"] == "agent:main:a"


async def test_stopping_the_gateway_stops_runs_and_keeps_what_was_said() -> None:
    gate = Gate("never")
    async with serve({}, ScriptedModel(gate)) as ground:
        peer = await ground.join()
        await peer.call("chat.send", message("remember me"))
        await gate.reached.wait()
    async with serve({}, ScriptedModel()) as ground:
        peer = await ground.join()
        history = await peer.call("chat.history", {"sessionKey": "main"})
        assert history["messages"][0]["content"] == "remember me"


async def test_long_answers_are_told_in_few_events() -> None:
    text = "word " * 4_000

    async def pieces(_request: object) -> Any:
        return say(text)

    async with serve({}, ScriptedModel(pieces)) as ground:
        peer = await ground.join()
        await peer.call("chat.send", message("write"))
        final = await peer.until_chat("final")
        assert final["message"]["content"][0]["text"] == text
        assert len([each for each in peer.of("chat") if each["state"] == "delta"]) < 20


@pytest.mark.parametrize(
    ("key", "problem"),
    [
        ("agent:ghost:main", "unknown agent id 'ghost'"),
        ("agent:main:a b", "invalid session key"),
        ("agent::x", "invalid session key"),
        ("a" * 300, "invalid name"),
        ("agent:main:agent:main:x", "invalid name"),
    ],
)
async def test_a_session_must_have_a_valid_key(ground: Ground, key: str, problem: str) -> None:
    peer = await ground.join()
    error = await peer.refused("chat.send", message("hi", session=key))
    assert error["code"] == "INVALID_REQUEST"
    assert problem in error["message"]
    await asyncio.sleep(0)


def picture(side: int = 4) -> str:
    image, data = PIL.Image.new("RGB", (side, side), "red"), io.BytesIO()
    image.save(data, "PNG")
    return base64.b64encode(data.getvalue()).decode()


async def test_a_picture_can_be_attached() -> None:
    model = ScriptedModel("red")
    async with serve({}, model) as ground:
        peer = await ground.join()
        given = [{"mimeType": "image/png", "fileName": "a.png", "content": picture()}]
        await peer.call("chat.send", message("what is this?", attachments=given))
        await peer.until_chat("final")
        [said] = model.requests[0].messages
        assert isinstance(said, User)
        assert [type(part).__name__ for part in said.content] == ["Text", "Image"]


@pytest.mark.parametrize("content", ["no base64!", base64.b64encode(b"not an image").decode(), ""])
async def test_what_is_not_a_picture_is_refused(ground: Ground, content: str) -> None:
    peer = await ground.join()
    given = [{"content": content, "fileName": "a.bin"}]
    error = await peer.refused("chat.send", message("look", attachments=given))
    assert error["message"].startswith("a.bin: ")
    assert (await peer.call("chat.history", {"sessionKey": "main"}))["messages"] == []


async def test_results_of_sub_agents_are_read_in_a_turn_of_their_own() -> None:
    def answer(request: Request) -> Any:
        text = str(request.messages[-1])
        if "reports of sub-agents" in text:
            return "the sub-agent says three"
        if "text='count the files'" in text:
            return "there are three"
        is_first = len(request.messages) == 1
        return call("sessions_spawn", {"task": "count the files"}) if is_first else "started one"

    async with serve({}, ScriptedModel(then=answer)) as ground:
        peer = await ground.join()
        await peer.call("chat.send", message("go"))
        wanted = "the sub-agent says three"
        final = await peer.until(
            lambda each: (
                each.get("event") == "chat"
                and each["payload"]["state"] == "final"
                and each["payload"]["message"]["content"][0]["text"] == wanted
            )
        )
        assert final["payload"]["sessionKey"] == "agent:main:main"


async def test_a_kill_in_mid_turn_loses_nothing_that_was_acknowledged() -> None:
    """Kills a real process while its model hangs; the next one has the message."""
    code = (
        "import asyncio, sys\n"
        "from clawkit.gateway.serve import listen, make_server\n"
        "from clawkit.gateway.server import app\n"
        "from clawkit.testing import ScriptedModel, hang\n"
        f"config = {{'gateway': {{'auth': {{'token': '{TOKEN}'}}}}}}\n"
        "made = app(config, model=ScriptedModel(hang()))\n"
        "sock = listen('127.0.0.1', 0)\n"
        "port = sock.getsockname()[1]\n"
        "made.state.gateway.on_started = lambda: print(port, flush=True)\n"
        "asyncio.run(make_server(made, '127.0.0.1', port).serve([sock]))\n"
    )
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-c", code, stdout=asyncio.subprocess.PIPE
    )
    assert process.stdout is not None
    port = int(await process.stdout.readline())
    with connect_to(Target("127.0.0.1", port, secret=TOKEN, is_own=True)) as link:
        link.call("chat.send", message("do not forget"))
        async with asyncio.timeout(10):
            while not link.call("sessions.get", {"key": "main"})["messages"]:
                await asyncio.sleep(0.02)
        process.kill()
        await process.wait()
    async with serve({}, ScriptedModel(then="go on")) as ground:
        peer = await ground.join()
        history = await peer.call("chat.history", {"sessionKey": "main"})
        assert history["messages"][0]["content"] == "do not forget"
        await peer.call("chat.send", message("still there?", "run-2"))
        await peer.until_chat("final", "run-2")


async def test_a_client_that_is_killed_leaves_no_trace() -> None:
    gate = Gate("done")
    async with serve({}, ScriptedModel(gate)) as ground:
        peer = await ground.join()
        id_ = await peer.send("agent", {"message": "go", "idempotencyKey": "a"})
        await peer.answer(id_)
        await gate.reached.wait()
        peer.socket.transport.abort()
        async with asyncio.timeout(5):
            while ground.gateway.hub.clients:
                await asyncio.sleep(0.02)
        gate.release()
        other = await ground.join()
        again = await other.send("agent", {"message": "go", "idempotencyKey": "a"})
        assert (await other.answer(again))["payload"]["status"] == "accepted"
        assert (await other.answer(again))["payload"]["status"] == "ok"
