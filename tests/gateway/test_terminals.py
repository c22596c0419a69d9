"""The methods of clawkit's own commands: turns, chats, and commands in the home of the gateway."""

from __future__ import annotations

import asyncio
import base64
import io
import json
import os
import sys
from pathlib import Path
from typing import Any

import PIL.Image
import pytest
from tests.gateway.conftest import TOKEN, Device, Ground, Peer, serve

from clawkit.cli.gateway import LazyRooms
from clawkit.content import Image, User
from clawkit.errors import ToolAuthorizationError
from clawkit.gateway import agent_pool
from clawkit.gateway.agent_pool import LiveSessions
from clawkit.gateway.methods import terminals
from clawkit.gateway.protocol import aside
from clawkit.gateway.server import Gateway
from clawkit.media.local import LocalMedia
from clawkit.testing import Gate, ScriptedModel, call

RULES: dict[str, Any] = {"tools": {"rules": [{"tool": "ls", "effect": "ask"}]}}


def turn(place: Path, key: str = "one", **more: Any) -> dict[str, Any]:
    return {"cwd": str(place), "message": "go", "idempotencyKey": key, **more}


async def end_of(peer: Peer, id_: str) -> Any:
    """The second answer to a request."""
    while (frame := await peer.answer(id_))["ok"] and "ended" not in frame["payload"]:
        pass
    assert frame["ok"], frame
    return frame["payload"]["ended"]


def events_of(peer: Peer) -> list[str]:
    return [each["event"]["type"] for each in peer.of("clawkit.event") if "event" in each]


async def test_a_turn_sends_every_event_to_its_client_and_to_no_other(tmp_path: Path) -> None:
    async with serve({}, ScriptedModel(call("ls", {}), "All done.")) as ground:
        peer, other = await ground.join(), await ground.join()
        id_ = await peer.send("clawkit.turn", turn(tmp_path, session="named"))
        ended = await end_of(peer, id_)
        assert (ended["how"], ended["text"]) == ("done", "All done.")
        told = events_of(peer)
        assert (told[0], told[-1]) == ("turn_start", "turn_end")
        assert {"user", "request", "assistant", "tool", "tool_result", "text"} <= set(told)
        assert {each["run"] for each in peer.of("clawkit.event")} == {"one"}
        await other.call("health")
        assert other.of("clawkit.event") == []
        stranger = await ground.join(device=Device())
        again = await stranger.refused("clawkit.turn", turn(tmp_path))
        assert (
            again["message"]
            == "idempotencyKey was already used by another client or for another message"
        )


async def test_a_plain_terminal_is_told_what_it_shows_and_no_results(tmp_path: Path) -> None:
    (tmp_path / "seen.txt").write_text("the content", encoding="utf-8")
    calls = (call("read", {"path": "seen.txt"}), call("read", {"path": "none.txt"}))
    async with serve({}, ScriptedModel(*calls, "All done.", *calls, "Done.")) as ground:
        plain = await ground.join(caps=["session-scoped-events"])
        params = turn(tmp_path, session="s", shows="plain")
        ended = await end_of(plain, await plain.send("clawkit.turn", params))
        assert ended["text"] == "All done."
        told = [each["event"] for each in plain.of("clawkit.event")]
        assert {each["type"] for each in told} == {
            *("turn_start", "user", "text", "assistant", "tool", "turn_end")
        }
        tools = [each["event"] for each in told if each["type"] == "tool"]
        assert [each["type"] for each in tools] == ["start", "start", "end"]
        assert "does not exist" in tools[-1]["error"]
        assert "the content" not in json.dumps(plain.events)
        assert plain.of("agent") == plain.of("chat") == []
        # One that shows them, and one of another kind, are told of them as ever.
        full, other = await ground.join(), await ground.join(caps=["tool-events"])
        await full.call("clawkit.chat.open", {"session": "s", "cwd": str(tmp_path)})
        again = turn(tmp_path, "two", session="s", shows="plain")
        await end_of(plain, await plain.send("clawkit.turn", again))
        await full.call("health")
        await other.call("health")
        results = [each for each in full.of("clawkit.event") if each.get("event", {})]
        ends = [each["event"]["event"] for each in results if each["event"]["type"] == "tool"]
        assert "the content" in json.dumps(next(each for each in ends if each["type"] == "end"))
        found = [each["data"] for each in other.of("agent") if each["stream"] == "tool"]
        done = [each for each in found if each["phase"] == "result"]
        assert "the content" in done[0]["result"]["content"][0]["text"]
        assert "the content" not in json.dumps(plain.events)


async def test_a_plain_terminal_is_told_how_commands_end(tmp_path: Path) -> None:
    late = "until [ -e go ]; do sleep 0.01; done; touch over; exit 3"
    wait = "touch go; until [ -e over ]; do sleep 0.01; done; sleep 1"
    commands = (
        call("exec", {"command": "echo what it printed; exit 7"}),
        call("exec", {"command": late, "background": True}),
        call("exec", {"command": wait}),
    )
    free = {"tools": {"exec": {"security": "full", "ask": "off", "host": "gateway"}}}
    async with serve(free, ScriptedModel(*commands, "Done.")) as ground:
        plain = await ground.join(caps=["session-scoped-events"])
        params = turn(tmp_path, session="s", shows="plain")
        await end_of(plain, await plain.send("clawkit.turn", params))
        told = [each["event"] for each in plain.of("clawkit.event")]
        ends = [each["event"] for each in told if each["type"] == "tool"]
        [end] = [each for each in ends if each["type"] == "end"]
        assert (end["details"]["exitCode"], end["details"]["exitReason"]) == (7, "exit")
        assert "what it printed" not in json.dumps(end)
        [notice] = [each for each in ends if each["type"] == "notice"]
        assert notice["details"]["exitCode"] == 3


async def test_results_are_made_for_those_who_show_them(tmp_path: Path) -> None:
    async with serve({}, ScriptedModel(then="Done.")) as ground:
        plain = await ground.join(caps=["session-scoped-events"])
        params = turn(tmp_path, session="s", shows="plain")
        await end_of(plain, await plain.send("clawkit.turn", params))
        there = ground.gateway.live.find("agent:main:s")
        assert there is not None
        tell: Any = there.agent.conversation.tell
        assert tell.is_brief
        other = await ground.join()
        assert not tell.is_brief
        await other.socket.close()
        while len(ground.gateway.hub.clients) > 1:
            await asyncio.sleep(0.01)
        scoped = await ground.join(caps=["session-scoped-events"])
        assert tell.is_brief
        await scoped.call("sessions.messages.subscribe", {"key": "s"})
        assert not tell.is_brief


def numbered(peer: Peer) -> list[tuple[str, int]]:
    """The messages of its turn that a client was told of."""
    kinds = ("user", "assistant", "tool_result")
    told = [each for each in peer.of("clawkit.event") if each["run"] == "one"]
    found = [(each["event"]["type"], each["number"]) for each in told]
    return [each for each in found if each[0] in kinds]


async def test_a_client_that_lost_its_connection_follows_its_turn(tmp_path: Path) -> None:
    gate = Gate("All done.")
    model = ScriptedModel("Of another.", call("ls", {}), gate)
    async with serve({}, model) as ground:
        peer = await ground.join()
        id_ = await peer.send("clawkit.turn", turn(tmp_path, "zero", session="s"))
        await end_of(peer, id_)
        given = turn(tmp_path, session="s")
        await peer.call("clawkit.turn", given)
        await gate.reached.wait()
        await peer.call("health")
        said, answered, result = numbered(peer)
        await peer.socket.close()
        late, later = await ground.join(), await ground.join()
        lost = await late.send("clawkit.turn", given)  # it does not know whether it was accepted
        first = await late.answer(lost)
        assert (first["payload"]["status"], first["payload"]["name"]) == ("accepted", "s")
        again = await later.send("clawkit.turn", given | {"after": answered[1]})
        await later.call("health")
        assert numbered(later) == [result]
        gate.release()
        for client, id_ in ((late, lost), (later, again)):
            assert (await end_of(client, id_))["text"] == "All done."
        assert numbered(late)[:3] == [said, answered, result]
        assert {each["run"] for each in late.of("clawkit.event")} == {"one"}, "not what was before"
        assert numbered(later)[1:] == numbered(late)[3:] == [("assistant", result[1] + 1)]
        assert len(model.requests) == 3
        unknown = await later.refused("clawkit.turn", turn(tmp_path, "new", after=0))
        assert unknown["message"] == "the gateway no longer knows this turn"


async def test_how_a_turn_ended_before_a_restart_is_known(tmp_path: Path) -> None:
    given = turn(tmp_path, session="s")
    async with serve({}, ScriptedModel("All done.")) as ground:
        peer = await ground.join()
        await end_of(peer, await peer.send("clawkit.turn", given))
    async with serve({}, ScriptedModel()) as ground:
        peer = await ground.join()
        ended = await end_of(peer, await peer.send("clawkit.turn", given | {"after": 1}))
        assert (ended["how"], ended["text"]) == ("done", "All done.")
        assert [kind for kind, _ in numbered(peer)] == ["assistant"]


async def test_a_turn_takes_its_directory_model_thinking_and_pictures(tmp_path: Path) -> None:
    model = ScriptedModel(then="fine")
    async with serve({}, model) as ground:
        peer = await ground.join()
        data = io.BytesIO()
        PIL.Image.new("RGB", (4, 4)).save(data, "PNG")
        picture = {"content": base64.b64encode(data.getvalue()).decode(), "fileName": "a.png"}
        given = turn(tmp_path, session="seen", thinking="low", attachments=[picture])
        await end_of(peer, await peer.send("clawkit.turn", given))
        said = model.requests[0].messages[-1]
        assert isinstance(said, User)
        assert [type(each) for each in said.content][1:] == [Image]
        session = ground.gateway.store.get("seen", "main")
        assert (session.workspace, session.thinking) == (str(tmp_path), "low")
        bad = await peer.refused("clawkit.turn", turn(tmp_path, "two", model="nope/x"))
        assert bad["details"]["exitCode"] == 2
        # A session that was made for a turn that could not start is gone.
        assert len(ground.gateway.store.recent("main", str(tmp_path))) == 1
        on = turn(tmp_path, "three", goOn=True)
        await end_of(peer, await peer.send("clawkit.turn", on))
        assert ground.gateway.store.get("seen", "main").turns == 2
        elsewhere = await peer.refused("clawkit.turn", turn(tmp_path.parent, "4", session="seen"))
        assert elsewhere["details"]["code"] == "LOCAL_ONLY"
        none = await peer.refused("clawkit.turn", turn(tmp_path.parent, "5", goOn=True))
        assert "has no session in" in none["message"]


async def test_no_session_is_made_for_a_turn_with_a_broken_picture(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with serve({}) as ground:
        peer, store, made = await ground.join(), ground.gateway.store, []
        decode = LocalMedia.picture

        async def picture(media: LocalMedia, data: bytes, **limits: int) -> Any:
            made.append(store.find("new", "main"))
            return await decode(media, data, **limits)

        monkeypatch.setattr(LocalMedia, "picture", picture)
        text = {"content": base64.b64encode(b"no picture").decode()}
        error = await peer.refused(
            "clawkit.turn", turn(tmp_path, session="new", attachments=[text])
        )
        assert "only images can be attached" in error["message"]
        assert (made, store.find("new", "main")) == ([None], None)


async def test_limits_are_those_of_one_turn_and_not_of_what_others_run(tmp_path: Path) -> None:
    gate = Gate("done")
    async with serve({}, ScriptedModel(call("ls", {}), gate, then="free")) as ground:
        peer = await ground.join()
        id_ = await peer.send("clawkit.turn", turn(tmp_path, session="s", maxTurns=1))
        assert (await end_of(peer, id_))["how"] == "max-turns"
        id_ = await peer.send("clawkit.turn", turn(tmp_path, "two", session="s"))
        await gate.reached.wait()
        for limit in ({"maxTurns": 1}, {"maxCost": 0.01}):
            busy = await peer.refused("clawkit.turn", turn(tmp_path, "3", session="s", **limit))
            assert busy["message"].startswith("the session is busy")
        which = {"id": ground.gateway.store.get("s", "main").id}
        held = await peer.refused("clawkit.release", which)
        assert held["message"] == "the gateway is working in that session"
        gate.release()
        assert (await end_of(peer, id_))["how"] == "done"
        assert await peer.call("clawkit.release", which) == {"released": True}
        assert await peer.call("clawkit.release", which) == {"released": False}


async def test_a_session_is_not_released_under_a_message_that_is_being_accepted(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    entered, go_on = asyncio.Event(), asyncio.Event()

    async def slowly(*given: Any) -> Any:
        """As it is for a large message."""
        entered.set()
        await go_on.wait()
        return await aside(*given)

    gate = Gate("done")
    async with serve({}, ScriptedModel("hello", gate)) as ground:
        peer = await ground.join()
        said = {"sessionKey": "main", "message": "hi"}
        await peer.call("agent", said | {"idempotencyKey": "one"})
        await peer.call("agent.wait", {"runId": "one"})
        monkeypatch.setattr(agent_pool, "aside", slowly)
        sent = await peer.send("chat.send", said | {"idempotencyKey": "two"})
        await entered.wait()
        release = await peer.send("clawkit.release", {"id": "agent:main:main"})
        await peer.call("health")
        go_on.set()
        assert (await peer.answer(sent))["payload"]["status"] == "started"
        refused = (await peer.answer(release))["error"]
        assert refused["message"] == "the gateway is working in that session"
        gate.release()
        assert (await peer.call("agent.wait", {"runId": "two"}))["status"] == "ok"


async def test_a_client_that_was_not_told_that_its_turn_was_accepted_misses_none_of_it(
    tmp_path: Path,
) -> None:
    async with serve({}, ScriptedModel(then="the answer")) as ground:
        peer = await ground.join()
        await end_of(peer, await peer.send("clawkit.turn", turn(tmp_path, session="s")))
        again = await ground.join()
        id_ = await again.send("clawkit.turn", turn(tmp_path, session="s"))
        seen = (await again.answer(id_))["payload"]["number"]
        assert (await end_of(again, id_))["text"] == "the answer"
        # A terminal shows what has a higher number than it has seen.
        told = [
            each["event"]["type"] for each in again.of("clawkit.event") if each["number"] > seen
        ]
        assert told == ["user", "assistant"]


async def test_limits_hold_when_the_client_has_left(tmp_path: Path) -> None:
    gate = Gate(call("ls", {}))
    async with serve({}, ScriptedModel(gate, then="free")) as ground:
        peer, other = await ground.join(), await ground.join()
        await peer.call("clawkit.turn", turn(tmp_path, session="s", maxTurns=1))
        await gate.reached.wait()
        await peer.socket.close()
        while len(ground.gateway.hub.clients) > 1:
            await other.call("health")
        gate.release()
        assert (await other.call("agent.wait", {"runId": "one"}))["status"] == "error"
        said = {"sessionKey": "s", "message": "go", "idempotencyKey": "2"}
        await other.call("chat.send", said)
        assert (await other.call("agent.wait", {"runId": "2"}))["status"] == "ok"


async def test_limits_of_a_turn_that_cannot_start_do_not_stay(tmp_path: Path) -> None:
    model = ScriptedModel("one", call("ls", {}), "two")
    async with serve({}, model) as ground:
        peer = await ground.join()
        await end_of(peer, await peer.send("clawkit.turn", turn(tmp_path, session="s")))
        wrong = turn(tmp_path, "2", session="s", maxTurns=1, maxCost=0.001, model="nope/x")
        assert (await peer.refused("clawkit.turn", wrong))["details"]["exitCode"] == 2
        await peer.call("chat.send", {"sessionKey": "s", "message": "go", "idempotencyKey": "3"})
        assert (await peer.call("agent.wait", {"runId": "3"}))["status"] == "ok"
        assert len(model.requests) == 3


async def test_a_turn_that_cannot_start_takes_no_message_of_others_with_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    gate = Gate("done")
    async with serve({}, ScriptedModel(gate)) as ground:
        peer, other = await ground.join(), await ground.join()
        start = LiveSessions.start

        async def late(live: LiveSessions, key: str, run_id: str, *given: Any, **more: Any) -> Any:
            """Others say something in the new session before the turn turns out to be wrong."""
            if run_id == "wrong":
                said = {"sessionKey": "new", "message": "important", "idempotencyKey": "right"}
                await other.call("chat.send", said)
            return await start(live, key, run_id, *given, **more)

        monkeypatch.setattr(LiveSessions, "start", late)
        wrong = turn(tmp_path, "wrong", session="new", model="nope/x")
        assert (await peer.refused("clawkit.turn", wrong))["details"]["exitCode"] == 2
        gate.release()
        assert (await other.call("agent.wait", {"runId": "right"}))["status"] == "ok"
        assert ground.gateway.store.get("new", "main").workspace == str(tmp_path)
        history = await other.call("chat.history", {"sessionKey": "new"})
        assert [each["role"] for each in history["messages"]] == ["user", "assistant"]


async def test_a_question_has_all_its_offers_and_takes_a_reason(tmp_path: Path) -> None:
    async with serve(RULES, ScriptedModel(call("ls", {}), "well")) as ground:
        peer = await ground.join()
        id_ = await peer.send("clawkit.turn", turn(tmp_path, session="asked"))
        asked = await peer.until(lambda each: each.get("event") == "exec.approval.requested")
        question = asked["payload"]["clawkit"]
        assert (question["tool"], question["session"]) == ("ls", "agent:main:asked")
        answer = {"id": asked["payload"]["id"], "decision": "deny", "reason": "not today"}
        wrong = await peer.refused("exec.approval.resolve", answer | {"extent": "program"})
        assert "an extent requires allow-always" in wrong["message"]
        await peer.call("exec.approval.resolve", answer)
        await end_of(peer, id_)
        stored = ground.gateway.store.history(ground.gateway.store.get("asked", "main").id, 5)
        assert any("not today" in str(each.message) for each in stored)


async def test_a_command_runs_in_the_home_of_the_gateway(tmp_path: Path) -> None:
    file = tmp_path / "own.json5"
    file.write_text(json.dumps({"gateway": {"auth": {"token": TOKEN}}}), encoding="utf-8")
    file.chmod(0o600)
    async with serve(str(file), ScriptedModel(then="ok")) as ground:
        peer = await ground.join()
        id_ = await peer.send("clawkit.turn", turn(tmp_path, session="listed"))
        await end_of(peer, id_)
        params = {"argv": ["sessions", "list"]}
        done = await peer.call("clawkit.command", params)
        assert (done["code"], done["stderr"]) == (0, "")
        assert "listed" in done["stdout"]
        wrong = await peer.call("clawkit.command", {"argv": ["sessions", "show", "nope"]})
        assert wrong["code"] == 2
        assert "nope" in wrong["stderr"]
    async with serve({}) as ground:
        peer = await ground.join()
        unknown = await peer.refused("clawkit.command", params)
        assert "has no configuration file" in unknown["message"]


async def test_a_command_that_prints_too_much_is_ended(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    program = tmp_path / "python"
    text = "import sys, time\nprint('x' * 20_000_000, flush=True)\ntime.sleep(600)\n"
    program.write_text(f"#!{sys.executable}\n{text}", encoding="utf-8")
    program.chmod(0o755)
    file = tmp_path / "own.json5"
    file.write_text(json.dumps({"gateway": {"auth": {"token": TOKEN}}}), encoding="utf-8")
    file.chmod(0o600)
    async with serve(str(file)) as ground:
        peer = await ground.join()
        monkeypatch.setattr(sys, "executable", str(program))
        monkeypatch.setattr(terminals, "COMMAND_S", 10.0)
        refused = await peer.refused("clawkit.command", {"argv": ["ps"]})
        assert "larger than" in refused["message"]


async def test_a_gateway_without_chats_says_so(ground: Ground, tmp_path: Path) -> None:
    ground.gateway.chats = None
    peer = await ground.join()
    error = await peer.refused("clawkit.chat.open", {"cwd": str(tmp_path)})
    assert error["message"] == "this gateway has no chat"
    typed = {"key": "agent:main:main", "line": "hi", "idempotencyKey": "k"}
    assert (await peer.refused("clawkit.chat.type", typed))["message"] == "open the chat first"


def host(gateway: Gateway) -> None:
    gateway.chats = LazyRooms()


async def test_messages_wait_for_their_turn_or_their_time(tmp_path: Path) -> None:
    gate = Gate("first")
    async with serve({}, ScriptedModel(gate, then="next")) as ground:
        host(ground.gateway)
        peer = await ground.join()
        opened = await peer.call("clawkit.chat.open", {"cwd": str(tmp_path), "keyboard": True})
        key = opened["key"]

        def line(text: str, id_: str, **more: Any) -> dict[str, Any]:
            return {"key": key, "line": text, "idempotencyKey": id_, **more}

        id_ = await peer.send("clawkit.chat.type", line("one", "1", wait=True))
        await gate.reached.wait()
        later = await peer.call("clawkit.chat.type", line("two", "2", later=True))
        assert later["state"]["waiting"] == ["two"]
        assert later["state"]["busy"]
        back = await peer.call("clawkit.chat.takeBack", {"key": key})
        assert (back["text"], back["state"]["waiting"]) == ("two", [])
        alone = await peer.refused("clawkit.chat.type", line("/compact", "3"))
        assert alone["message"].startswith("the agent is working")
        gate.release()
        assert (await end_of(peer, id_))["text"] == "first"
        new = await peer.call("clawkit.chat.type", line("/new", "4"))
        assert new["session"] == ""
        state = await peer.call("clawkit.chat.state", {"key": key})
        assert not state["busy"]
        assert await peer.call("clawkit.chat.stop", {"key": key}) == {"stopped": False}
        assert (await peer.call("clawkit.chat.type", line("exit", "5")))["over"]


async def test_a_line_that_is_sent_again_is_said_once(tmp_path: Path) -> None:
    model = ScriptedModel(then="ok")
    async with serve({}, model) as ground:
        peer = await ground.join()
        key = (await peer.call("clawkit.chat.open", {"cwd": str(tmp_path)}))["key"]
        typed = {"key": key, "line": "go", "idempotencyKey": "same"}
        ids = [await peer.send("clawkit.chat.type", typed) for _ in range(2)]
        for each in ids:
            assert (await peer.answer(each))["payload"]["runId"] == "same"
        ended = await end_of(peer, await peer.send("clawkit.chat.type", typed | {"wait": True}))
        assert ended["text"] == "ok"
        assert len(model.requests) == 1
        other = (await peer.call("clawkit.chat.open", {"session": "other"}))["key"]
        error = await peer.refused("clawkit.chat.type", typed | {"key": other})
        assert error["message"] == "idempotencyKey was already used in another session"


async def test_a_command_that_is_sent_again_runs_once(tmp_path: Path) -> None:
    file = tmp_path / "runs"
    async with serve({}) as ground:
        peer, key = await open_chat(ground, tmp_path)
        typed = {"key": key, "line": f"!echo x >> {file}", "idempotencyKey": "same"}
        first = await peer.call("clawkit.chat.type", typed)
        new = {"key": key, "line": "/new other", "idempotencyKey": "new"}
        assert (await peer.call("clawkit.chat.type", new))["session"] == "other"
        stopped = {"key": key, "line": f"!echo y >> {file}; sleep 60", "idempotencyKey": "stopped"}
        await peer.send("clawkit.chat.type", stopped)
        await peer.until(
            lambda each: each.get("payload", {}).get("call", {}).get("params") is not None
        )
        await peer.socket.close()
    async with serve({}) as ground:
        peer, _ = await open_chat(ground, tmp_path)
        again = await peer.call("clawkit.chat.type", typed)
        assert again.keys() == first.keys()
        assert "It ran, but its output was lost" in str(peer.of("clawkit.event")[-1]["rows"])
        assert (await peer.call("clawkit.chat.type", new))["session"] == "other"
        error = await peer.refused("clawkit.chat.type", stopped)
        assert "the command ran, so it was stopped; type it again" in error["message"]
        stranger = await ground.join(device=Device())
        given = {"workspace": str(tmp_path), "session": "s"}
        await stranger.call("clawkit.chat.open", given)
        refused = await stranger.refused("clawkit.chat.type", typed)
        assert (
            refused["message"]
            == "idempotencyKey was already used by another client or for another message"
        )
    assert file.read_text(encoding="utf-8").count("x") == 1


async def test_a_chat_that_is_opened_again_is_told_what_it_missed(tmp_path: Path) -> None:
    async with serve({}, ScriptedModel("one", call("ls", {}), "two")) as ground:
        peer, key = await open_chat(ground, tmp_path)
        line = {"key": key, "line": "first", "idempotencyKey": "1"}
        await end_of(peer, await peer.send("clawkit.chat.type", line | {"wait": True}))
        # What is not stored has no number, and may come last.
        seen = max(each.get("number", 0) for each in peer.of("clawkit.event"))
        await peer.socket.close()
        other, _ = await open_chat(ground, tmp_path)
        line = {"key": key, "line": "second", "idempotencyKey": "2"}
        await end_of(other, await other.send("clawkit.chat.type", line | {"wait": True}))
        back = await ground.join()
        given = {"workspace": str(tmp_path), "session": "s", "after": seen}
        opened = await back.call("clawkit.chat.open", given)
        told = [(each["event"]["type"], each["number"]) for each in back.of("clawkit.event")]
        kinds = ["user", "assistant", "tool_result", "assistant"]
        assert told == list(zip(kinds, range(seen + 1, seen + 5), strict=True))
        assert opened["number"] == told[-1][1]


@pytest.mark.parametrize("how", ["typed", "given", "piped"])
async def test_only_what_a_person_typed_runs_without_a_question(tmp_path: Path, how: str) -> None:
    """What is piped or was given with the program may have been written by somebody else."""
    made = tmp_path / "made"
    params = {"path": str(made), "content": "x"}
    async with serve({"tools": {"rules": [{"tool": "write", "effect": "ask"}]}}) as ground:
        peer = await ground.join()
        opened = {"cwd": str(tmp_path), "keyboard": how != "piped"}
        key = (await peer.call("clawkit.chat.open", opened))["key"]
        line = {"key": key, "line": f"/tool write {json.dumps(params)}", "idempotencyKey": "k"}
        id_ = await peer.send("clawkit.chat.type", line | {"given": how == "given"})
        if how != "typed":
            asked = await peer.until(lambda each: each.get("event") == "exec.approval.requested")
            answer = {"id": asked["payload"]["id"], "decision": "deny"}
            await peer.call("exec.approval.resolve", answer)
        assert (await peer.answer(id_))["ok"]
        assert made.exists() == (how == "typed")


async def open_chat(ground: Ground, place: Path, session: str = "s") -> tuple[Peer, str]:
    peer = await ground.join()
    params = {"workspace": str(place), "session": session, "keyboard": True}
    return peer, (await peer.call("clawkit.chat.open", params))["key"]


async def notice(peer: Peer, text: str) -> None:
    await peer.until(lambda each: text in str(each.get("payload", {}).get("event")))


async def test_what_a_person_runs_is_not_ended_by_the_message_of_another_client(
    tmp_path: Path,
) -> None:
    fifo = tmp_path / "fifo"
    os.mkfifo(fifo)
    async with serve({}) as ground:
        owner, key = await open_chat(ground, tmp_path)
        other = await ground.join(["operator.read", "operator.write"], Device())
        line = {"key": key, "line": f"!cat {fifo}", "idempotencyKey": "typed"}
        typed = await owner.send("clawkit.chat.type", line)
        end = await asyncio.to_thread(os.open, fifo, os.O_WRONLY)  # cat has opened it
        said = {"sessionKey": key, "message": "hello", "idempotencyKey": "said"}
        error = await other.refused("chat.send", said)
        assert "busy with background work of another client" in error["message"]
        os.write(end, b"to the end")
        os.close(end)
        assert (await owner.answer(typed))["ok"]
        assert "to the end" in str(owner.of("clawkit.event"))
        assert (await other.call("chat.send", said))["status"] == "started"


async def test_what_a_terminal_sets_for_a_session_ends_with_it_and_all_are_told(
    tmp_path: Path,
) -> None:
    async with serve({"tools": {"exec": {"ask": "always"}}}) as ground:
        (one, key), (other, _) = [await open_chat(ground, tmp_path) for _ in range(2)]
        live = ground.gateway.live

        async def settings() -> tuple[Any, Any]:
            config = (await live.open(key, owner=True)).agent.kit.config
            return config.tools.exec.ask, config.agents.defaults.elevated_default

        for line in ("/exec security=full ask=off", "/elevated full"):
            typed = {"key": key, "line": line, "idempotencyKey": line}
            await one.call("clawkit.chat.type", typed)
        await notice(other, "no sandbox: all commands run, elevated full")
        await live.sweep(0)
        assert live.find(key) is None
        assert await settings() == ("off", "full"), "it holds while the terminal is there"
        await one.socket.close()
        await notice(other, "has left")
        assert await settings() == ("always", None)
        await live.sweep(0)
        assert await settings() == ("always", None)


async def test_a_turn_under_way_asks_again_when_the_terminal_has_left(tmp_path: Path) -> None:
    gate = Gate(call("exec", {"command": "touch made"}))
    config = {"tools": {"exec": {"ask": "always"}}}
    async with serve(config, ScriptedModel(gate, then="done")) as ground:
        (one, key), (other, _) = [await open_chat(ground, tmp_path) for _ in range(2)]
        for line in ("/exec security=full ask=off", "go"):
            typed = {"key": key, "line": line, "idempotencyKey": line}
            await one.call("clawkit.chat.type", typed)
        await gate.reached.wait()
        await one.socket.close()
        await notice(other, "has left")
        gate.release()
        await other.until(lambda each: each.get("event") == "exec.approval.requested")
        assert not (tmp_path / "made").exists()


async def test_what_another_terminal_set_stays(tmp_path: Path) -> None:
    async with serve({}) as ground:
        (one, key), (other, _) = [await open_chat(ground, tmp_path) for _ in range(2)]
        for peer, line in ((other, "/exec ask=always"), (one, "/elevated full")):
            typed = {"key": key, "line": line, "idempotencyKey": line}
            await peer.call("clawkit.chat.type", typed)
        await one.call("clawkit.chat.open", {"session": "t", "workspace": str(tmp_path)})
        config = (await ground.gateway.live.open(key, owner=True)).agent.kit.config
        assert config.tools.exec.ask == "always"
        assert config.agents.defaults.elevated_default is None


async def test_a_chat_that_was_left_sets_nothing(tmp_path: Path) -> None:
    async with serve({}) as ground:
        peer, key = await open_chat(ground, tmp_path)
        chat: Any = next(iter(ground.gateway.hub.clients.values())).chats[key]
        await peer.call("clawkit.chat.open", {"session": "t", "workspace": str(tmp_path)})
        with pytest.raises(ToolAuthorizationError):
            await chat.run("/exec security=full ask=off")


@pytest.mark.parametrize("line", ["/exec security=full ask=off", "/elevated full"])
@pytest.mark.parametrize("how", ["given", "piped"])
async def test_only_a_person_sets_how_commands_run(tmp_path: Path, how: str, line: str) -> None:
    async with serve({}) as ground:
        peer = await ground.join()
        opened = {"cwd": str(tmp_path), "keyboard": how == "given"}
        key = (await peer.call("clawkit.chat.open", opened))["key"]
        typed = {"key": key, "line": line, "idempotencyKey": "k", "given": how == "given"}
        error = await peer.refused("clawkit.chat.type", typed)
        assert error["message"].startswith("in a gateway, only a person can set that")
        shown = {"key": key, "line": line.split()[0], "idempotencyKey": "l"}
        await peer.call("clawkit.chat.type", shown)
        there = ground.gateway.live.find(key)
        assert there is not None
        assert not there.agent.has_overrides


async def test_a_session_in_which_nothing_was_said_ends_with_its_chat(tmp_path: Path) -> None:
    async with serve({}, ScriptedModel(then="ok")) as ground:
        host(ground.gateway)
        peer = await ground.join()
        first = (await peer.call("clawkit.chat.open", {"cwd": str(tmp_path)}))["key"]
        second = (await peer.call("clawkit.chat.open", {"cwd": str(tmp_path)}))["key"]
        await peer.call("health")
        assert ground.gateway.store.find(first) is None
        assert ground.gateway.store.find(second) is not None


async def test_a_session_in_which_another_client_says_something_stays(tmp_path: Path) -> None:
    async with serve({}, ScriptedModel()) as ground:
        other, live = await ground.join(), ground.gateway.live
        said = {"sessionKey": "s", "message": "important", "idempotencyKey": "kept"}
        peer = await ground.join()
        given = {"cwd": str(tmp_path), "session": "s"}
        key = (await peer.call("clawkit.chat.open", given))["key"]
        async with live._lock(key):  # the message is there before it is known that no one spoke
            await peer.socket.close()
            sent = await other.send("chat.send", said)
            await other.call("health")
        assert (await other.answer(sent))["ok"]
        await other.call("agent.wait", {"runId": "kept"})
        assert ground.gateway.store.get("s", "main").workspace == str(tmp_path)
        await live.discard(key)  # nothing is going on, and no turn was completed
        history = await other.call("chat.history", {"sessionKey": "s"})
        assert history["messages"][0]["role"] == "user"


async def test_a_chat_is_told_what_was_said_and_not_what_tools_did(tmp_path: Path) -> None:
    calls = [call("ls", {}, id=str(number)) for number in range(25)]
    async with serve({}, ScriptedModel(*calls, "done")) as ground:
        peer = await ground.join()
        given = {"cwd": str(tmp_path), "session": "long"}
        turn = {"message": "work", "idempotencyKey": "k", **given}
        assert (await peer.call("clawkit.turn", turn))["status"] == "accepted"
        await peer.call("agent.wait", {"runId": "k"})
        opened = await peer.call("clawkit.chat.open", given)
        assert opened["total"] == 2
        assert [each["type"] for each in opened["history"]] == ["user", "assistant"]
