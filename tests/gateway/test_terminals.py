"""The methods of clawkit's own commands: turns, chats, and commands in the home of the gateway."""

from __future__ import annotations

import base64
import io
import json
from pathlib import Path
from typing import Any

import PIL.Image
from tests.gateway.conftest import TOKEN, Ground, Peer, serve

from clawkit.cli.gateway import LazyRooms
from clawkit.content import Image, User
from clawkit.gateway.server import Gateway
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
        again = await peer.refused("clawkit.turn", turn(tmp_path))
        assert again["message"] == "idempotencyKey was already used"


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
        assert "not configured by a file" in unknown["message"]


async def test_a_gateway_without_chats_says_so(ground: Ground, tmp_path: Path) -> None:
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


async def test_what_is_piped_into_a_chat_is_not_what_a_person_typed(tmp_path: Path) -> None:
    """Without a keyboard, a command that was typed needs the approval that any other needs."""
    async with serve(RULES, ScriptedModel(then="ok")) as ground:
        host(ground.gateway)
        for keyboard in (True, False):
            peer = await ground.join()
            params = {"cwd": str(tmp_path), "keyboard": keyboard}
            key = (await peer.call("clawkit.chat.open", params))["key"]
            typed = {"key": key, "line": "/tool ls {}", "idempotencyKey": f"k{keyboard}"}
            id_ = await peer.send("clawkit.chat.type", typed)
            asked = await peer.until(lambda each: each.get("event") == "exec.approval.requested")
            answer = {"id": asked["payload"]["id"], "decision": "deny"}
            await peer.call("exec.approval.resolve", answer)
            assert (await peer.answer(id_))["ok"]


async def test_a_session_in_which_nothing_was_said_ends_with_its_chat(tmp_path: Path) -> None:
    async with serve({}, ScriptedModel(then="ok")) as ground:
        host(ground.gateway)
        peer = await ground.join()
        first = (await peer.call("clawkit.chat.open", {"cwd": str(tmp_path)}))["key"]
        second = (await peer.call("clawkit.chat.open", {"cwd": str(tmp_path)}))["key"]
        await peer.call("health")
        assert ground.gateway.store.find(first) is None
        assert ground.gateway.store.find(second) is not None


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
