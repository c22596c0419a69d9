"""What clients cannot do to each other, and what outlives their rights."""

from __future__ import annotations

import asyncio
import os
import threading
from pathlib import Path
from typing import Any

import pytest
from tests.gateway.conftest import TOKEN, Device, Ground, Peer, serve
from websockets.exceptions import ConnectionClosed

from clawkit.config.file_edit import change
from clawkit.errors import ConfigError, EditError, ToolError
from clawkit.gateway import connection
from clawkit.gateway.config_text import MARKER, hide, restore, restore_text
from clawkit.gateway.devices import DeviceInfo, Devices
from clawkit.gateway.methods import read_frame
from clawkit.gateway.protocol import GatewayError, now_ms
from clawkit.gateway.server import app
from clawkit.redact import Redactor
from clawkit.testing import Gate, ScriptedModel

READ_WRITE = ["operator.read", "operator.write"]


def message(text: str, key: str = "run-1", session: str = "main") -> dict[str, Any]:
    return {"sessionKey": session, "message": text, "idempotencyKey": key}


async def ended(peer: Peer) -> int | None:
    try:
        while True:
            await peer.receive()
    except ConnectionClosed:
        return peer.socket.close_code


async def stop_reading(ground: Ground, peer: Peer, device: Device) -> None:
    """Leave so much unread that disconnecting the client takes a while."""
    peer.socket.transport.pause_reading()
    [there] = ground.gateway.hub.of_device(device.id)
    async with asyncio.timeout(90):
        while len(there._frames) < 10 or there._tasks:
            if not there._tasks:
                await peer.send("config.schema")
            await asyncio.sleep(0.02)


async def test_a_removed_device_that_does_not_read_cannot_go_on(
    device: Device, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(connection, "_CLOSE_S", 60.0)  # not before it was looked at
    gate = Gate("done")
    async with serve({}, ScriptedModel(gate, then="ok")) as ground:
        owner, peer = await ground.join(), await ground.join(READ_WRITE, device)
        await owner.call("chat.send", message("long"))
        await gate.reached.wait()
        await stop_reading(ground, peer, device)
        await peer.send("chat.send", message("under way", "early"))
        async with asyncio.timeout(10):
            while ground.gateway.live.run("early") is None:
                await asyncio.sleep(0.01)
        await owner.call("device.pair.remove", {"deviceId": device.id})
        await peer.send("chat.send", message("still here", "late", "after-removal"))
        await asyncio.sleep(0.3)
        assert ground.gateway.hub.of_device(device.id), "it is still being disconnected"
        assert ground.gateway.live.run("early") is None
        assert ground.gateway.live.run("late") is None
        gate.release()
        peer.socket.transport.resume_reading()
        assert await ended(peer) == 4001


async def test_what_a_removed_device_has_sent_and_was_not_yet_read_is_not_done(
    ground: Ground, device: Device, monkeypatch: pytest.MonkeyPatch
) -> None:
    is_read, may_go_on = threading.Event(), threading.Event()

    def slowly(text: str) -> Any:
        is_read.set()
        may_go_on.wait(30)
        return read_frame(text)

    monkeypatch.setattr(connection, "_CLOSE_S", 60.0)
    owner, peer = await ground.join(), await ground.join(READ_WRITE, device)
    await stop_reading(ground, peer, device)
    monkeypatch.setattr(connection, "read_frame", slowly)
    # Large frames are read in a thread.
    await peer.send("chat.send", message("x" * 300_000, "late"))
    await asyncio.to_thread(is_read.wait, 30)
    monkeypatch.setattr(connection, "read_frame", read_frame)
    await owner.call("device.pair.remove", {"deviceId": device.id})
    may_go_on.set()
    await asyncio.sleep(0.3)
    assert ground.gateway.hub.of_device(device.id), "it is still being disconnected"
    assert ground.gateway.live.run("late") is None
    peer.socket.transport.resume_reading()
    assert await ended(peer) == 4001


async def test_a_device_that_is_narrowed_has_to_log_in_again(
    ground: Ground, device: Device
) -> None:
    owner, peer = (
        await ground.join(),
        await ground.join(["operator.admin", "operator.read"], device),
    )
    less = {"deviceId": device.id, "scopes": ["operator.read"]}
    await owner.call("device.token.rotate", less)
    assert await ended(peer) == 4001


async def test_a_device_that_narrows_itself_is_narrowed_at_once(
    ground: Ground, device: Device
) -> None:
    peer = await ground.join(["operator.admin", "operator.read"], device)
    less = {"deviceId": device.id, "scopes": ["operator.read"]}
    hub = ground.gateway.hub
    assert len(hub.wants("exec.approval.requested")) == 1
    await peer.call("device.token.rotate", less)
    assert (await peer.refused("exec.approvals.get"))["message"] == "missing scope: operator.admin"
    assert hub.wants("exec.approval.requested") == []
    await peer.call("health")


async def test_a_device_that_removes_itself_is_disconnected(ground: Ground, device: Device) -> None:
    peer = await ground.join(["operator.pairing"], device)
    await peer.call("device.pair.remove", {"deviceId": device.id})
    assert await ended(peer) == 4001


async def test_a_session_is_not_opened_under_its_id(ground: Ground) -> None:
    peer, live = await ground.join(), ground.gateway.live
    await peer.call("chat.send", message("x", session="agent:main:subagent:u1"))
    await peer.until_chat("final")
    there = live.find("agent:main:subagent:u1")
    assert there is not None
    id_, tools = there.agent.session_id, there.agent.kit.run.tools.keys()
    await live.close_session("agent:main:subagent:u1")
    for index, name in enumerate((id_, f"agent:main:{id_}", f"agent:main:{id_.upper()}")):
        await peer.call("chat.send", message("x", f"run-by-id-{index}", name))
        await peer.until_chat("final", f"run-by-id-{index}")
        there = live.find("agent:main:subagent:u1")
        assert there is not None
        assert there.agent.kit.run.scope.depth == 1
        assert there.agent.kit.run.tools.keys() == tools
        assert list(live._open) == ["agent:main:subagent:u1"]


async def test_an_id_is_not_the_key_of_another_agent() -> None:
    agents = {"list": [{"id": "main", "default": True}, {"id": "other"}]}
    async with serve({"agents": agents}) as ground:
        peer = await ground.join()
        made = await peer.call("sessions.create", {"agentId": "other"})
        for name in (made["sessionId"], made["key"]):
            error = await peer.refused("chat.send", message("x", session=f"agent:main:{name}"))
            assert error["code"] == "INVALID_REQUEST"
        assert not ground.gateway.live._open


async def test_an_agent_opens_no_other_session_than_that_of_the_key(ground: Ground) -> None:
    peer, live = await ground.join(), ground.gateway.live
    made = await peer.call("sessions.create", {})
    with pytest.raises(ToolError, match="under its key"):
        await live.open(f"agent:main:{made['sessionId']}", owner=True)
    await peer.call("chat.send", message("x", session=made["key"]))


async def test_waiting_for_a_turn_does_not_prevent_others_from_steering(device: Device) -> None:
    gate = Gate("done")
    async with serve({}, ScriptedModel(gate, then="ok")) as ground:
        owner, other = await ground.join(), await ground.join(READ_WRITE, device)
        await owner.call("chat.send", message("long"))
        await gate.reached.wait()
        waiting = await other.send("chat.send", message("me, too", "other"))
        async with asyncio.timeout(5):
            while ground.gateway.live.run("other") is None:
                await asyncio.sleep(0.01)
            await owner.call("chat.send", message("faster", "steer"))
        gate.release()
        assert (await other.answer(waiting))["payload"]["status"] == "started"
        await other.until_chat("final", "other")
        run = ground.gateway.live.run("steer")
        assert run is not None
        assert run.status == "ok"


async def test_no_one_gets_the_agent_of_others_between_the_end_of_a_turn_and_of_its_run() -> None:
    gate = Gate("done")
    async with serve({}, ScriptedModel(gate, then="ok")) as ground:
        owner, live = await ground.join(), ground.gateway.live
        await owner.call("chat.send", message("long"))
        await gate.reached.wait()
        there = live.find("agent:main:main")
        assert there is not None
        gate.release()
        while there.agent.turns.lane.is_busy:
            await asyncio.sleep(0)
        assert there.runs
        assert not (await live.open("agent:main:main", owner=False)).owner


async def test_no_one_gets_the_agent_of_others_while_their_messages_are_held(
    ground: Ground, device: Device
) -> None:
    owner, other = await ground.join(), await ground.join(READ_WRITE, device)
    there = await ground.gateway.live.open("agent:main:main", owner=True)
    with there.agent.turns.lane.paused():
        await owner.call("chat.send", message("mine", "owner"))
        sent = [await other.send("chat.send", message(text, text)) for text in ("one", "two")]
        await asyncio.sleep(0.1)
        assert list(there.runs) == ["owner"]
    for id_ in sent:
        assert (await other.answer(id_))["payload"]["status"] == "started"
    now = ground.gateway.live.find("agent:main:main")
    assert now is not None
    assert not now.owner
    await other.until_chat("final", "two")
    shown = await other.call("chat.history", {"sessionKey": "main"})
    said = [each["content"] for each in shown["messages"] if each["role"] == "user"]
    assert said == ["mine", "one\ntwo"]


async def test_a_message_that_is_sent_again_while_it_waits_is_not_lost(device: Device) -> None:
    gate = Gate("done")
    async with serve({}, ScriptedModel(gate, then="ok")) as ground:
        owner, first = await ground.join(), await ground.join(READ_WRITE, device)
        await owner.call("chat.send", message("long"))
        await gate.reached.wait()
        await first.send("chat.send", message("important", "key"))
        async with asyncio.timeout(5):
            while ground.gateway.live.run("key") is None:
                await asyncio.sleep(0.01)
        second = await ground.join(READ_WRITE, device)
        again = await second.send("chat.send", message("important", "key"))
        await asyncio.sleep(0.1)
        await first.socket.close()
        gate.release()
        assert (await second.answer(again))["payload"]["status"] == "started"
        found = await second.call("agent.wait", {"runId": "key"})
        assert (found["status"], found["terminalReply"]["text"]) == ("ok", "ok")


async def test_a_message_that_waits_for_the_turn_of_others_can_be_stopped(device: Device) -> None:
    gate = Gate("done")
    model = ScriptedModel(gate, then="too much")
    async with serve({}, model) as ground:
        owner, other = await ground.join(), await ground.join(READ_WRITE, device)
        await owner.call("chat.send", message("long"))
        await gate.reached.wait()
        waiting = await other.send("chat.send", message("later", "key"))
        async with asyncio.timeout(5):
            while ground.gateway.live.run("key") is None:
                await asyncio.sleep(0.01)
        stopped = await other.call("chat.abort", {"sessionKey": "main", "runId": "key"})
        assert stopped["runIds"] == ["key"]
        assert (await other.call("chat.send", message("later", "key")))["status"] == "aborted"
        gate.release()
        await other.answer(waiting)
        await owner.call("agent.wait", {"runId": "run-1"})
        assert len(model.requests) == 1


async def test_a_key_in_use_is_not_taken_by_another_run(ground: Ground) -> None:
    live = ground.gateway.live
    run = await live.start("agent:main:main", "key", "first", owner=True, client="one")
    with pytest.raises(GatewayError, match="already used"):
        await live.start("agent:main:main", "key", "second", owner=True, client="two")
    await run.over.wait()
    assert run.status == "ok"


async def test_the_session_of_a_group_has_the_rights_of_the_group() -> None:
    deny = {"groups": {"-100": {"tools": {"deny": ["exec"]}}}}
    key = "agent:main:telegram:group:-100"
    async with serve({"channels": {"telegram": deny}}) as ground:
        peer = await ground.join()
        trace = await peer.call("tools.effective", {"sessionKey": key})
        await peer.call("chat.send", message("x", session=key))
        there = ground.gateway.live.find(key)
        assert there is not None
        scope = there.agent.kit.run.scope
        assert (scope.channel, scope.group, scope.sender.owner) == ("telegram", "-100", False)
        assert "exec" not in there.agent.kit.run.tools
        assert "exec" not in {each["id"] for each in trace["groups"][0]["tools"]}


async def test_a_client_cannot_make_the_gateway_forget_the_runs_of_others(
    ground: Ground, device: Device, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("clawkit.gateway.run_store.KEEP_RUNS", 5)
    owner, other = await ground.join(), await ground.join(READ_WRITE, device)
    await owner.call("chat.send", message("pay the bill", "pay"))
    await owner.until_chat("final", "pay")
    for index in range(10):
        await other.call("chat.send", message("/stop", f"stop-{index}", "z"))
    assert (await owner.call("chat.send", message("pay the bill", "pay")))["status"] == "ok"
    kept = [index for index in range(10) if ground.gateway.live.run(f"stop-{index}")]
    assert kept == [5, 6, 7, 8, 9]


async def test_commands_without_a_turn_do_not_displace_stored_runs(
    ground: Ground, device: Device, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("clawkit.gateway.run_store.KEEP_RUNS", 5)
    peer = await ground.join(READ_WRITE, device)
    await peer.call("chat.send", message("pay the bill", "pay"))
    await peer.until_chat("final", "pay")
    for index in range(10):
        await peer.call("chat.send", message("/stop", f"stop-{index}"))
    assert (await peer.call("chat.send", message("pay the bill", "pay")))["status"] == "ok"


async def test_a_clock_that_is_set_makes_the_gateway_forget_no_runs(
    ground: Ground, device: Device, monkeypatch: pytest.MonkeyPatch
) -> None:
    peer = await ground.join(READ_WRITE, device)
    await peer.call("chat.send", message("pay the bill", "pay"))
    await peer.until_chat("final", "pay")
    monkeypatch.setattr("clawkit.gateway.run_store.now_ms", lambda: now_ms() + 3_600_000)
    await peer.call("chat.send", message("more", "more"))
    assert (await peer.call("chat.send", message("pay the bill", "pay")))["status"] == "ok"


async def test_runs_of_an_earlier_boot_are_forgotten_by_the_clock(
    ground: Ground, monkeypatch: pytest.MonkeyPatch
) -> None:
    peer = await ground.join()
    await peer.call("chat.send", message("one", "one"))
    await peer.until_chat("final", "one")
    monkeypatch.setattr("clawkit.gateway.run_store.here", lambda: "another boot")
    await peer.call("chat.send", message("two", "two"))
    assert ground.gateway.live.run("one") is not None
    monkeypatch.setattr("clawkit.gateway.run_store.now_ms", lambda: now_ms() + 3_600_000)
    await peer.call("chat.send", message("three", "three"))
    assert ground.gateway.live.run("one") is None


async def test_a_key_identifies_one_message_of_one_client(device: Device) -> None:
    gate = Gate("done")
    async with serve({}, ScriptedModel(gate)) as ground:
        owner, other = await ground.join(), await ground.join(READ_WRITE, device)
        await owner.call("chat.send", message("pay", "key"))
        await gate.reached.wait()
        for is_over in (False, True):
            for peer, text in ((other, "pay"), (other, "tea"), (owner, "tea")):
                error = await peer.refused("chat.send", message(text, "key"))
                assert "idempotencyKey was already used" in error["message"]
            again = await owner.call("chat.send", message("pay", "key"))
            assert again["status"] == ("ok" if is_over else "in_flight")
            gate.release()
            await owner.until_chat("final", "key")


TEXT = f"""{{
  gateway: {{ auth: {{ token: "{TOKEN}" }} }}, // the token is {TOKEN}, and nothing else
}}
"""


@pytest.fixture
def file() -> Path:
    path = Path(os.environ["CLAWKIT_HOME"]) / "clawkit.json5"
    path.write_text(TEXT, encoding="utf-8")
    return path


async def test_settings_of_a_client_that_leaves_are_taken_up(
    file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    written, go_on = threading.Event(), threading.Event()

    def slow(*given: Any, **more: Any) -> Any:
        done = change(*given, **more)
        written.set()
        go_on.wait(10)
        return done

    monkeypatch.setattr("clawkit.gateway.methods.config.change", slow)
    async with serve(str(file)) as ground:
        peer = await ground.join()
        found = await peer.call("config.get")
        raw = TEXT.replace("{\n", '{\n  session: { mainKey: "other" },\n', 1)
        await peer.send("config.set", {"raw": raw, "baseHash": found["hash"]})
        await asyncio.to_thread(written.wait, 10)
        peer.socket.transport.abort()
        await asyncio.wait_for(ground.gateway.hub.empty.wait(), 10)
        go_on.set()
        async with asyncio.timeout(10):
            while ground.gateway.loaded.config.session.main_key != "other":
                await asyncio.sleep(0.01)


async def test_a_new_token_is_not_logged_and_comments_keep_theirs(file: Path) -> None:
    async with serve(str(file)) as ground:
        peer = await ground.join()
        found = await peer.call("config.get")
        assert TOKEN not in found["raw"]
        await peer.call("config.set", {"raw": found["raw"], "baseHash": found["hash"]})
        assert file.read_text(encoding="utf-8") == TEXT
        raw = TEXT.replace(TOKEN, "BRAND-NEW-token")
        await peer.call("config.set", {"raw": raw, "baseHash": found["hash"]})
        assert "BRAND-NEW-token" not in ground.gateway.redactor.text("it is BRAND-NEW-token")
        assert "BRAND-NEW-token" not in (await peer.call("config.get"))["raw"]


def test_a_masked_comment_that_stands_for_several_is_refused() -> None:
    redactor = Redactor(["first-secret-1", "other-secret-2"])
    old = "// it is first-secret-1\n// it is other-secret-2\n{}"
    with pytest.raises(EditError, match="matches several"):
        restore_text(hide(old, redactor), old, redactor)


def test_a_marker_in_a_list_that_has_changed_is_refused() -> None:
    old = {"args": ["--api-key", "one", "--token", "two"], "list": [{"url": "a", "key": "s"}]}
    same = {"args": ["--api-key", MARKER, "--token", MARKER], "list": [{"url": "a", "key": MARKER}]}
    assert restore(same, old) == old
    assert restore({"args": ["new"]}, old) == {"args": ["new"]}
    changed: list[Any] = [
        {"args": ["--token", MARKER]},
        {"args": ["--token", MARKER, "--api-key", MARKER]},
        {"args": ["--url", MARKER, "--token", MARKER]},
        {"list": [{"url": "b", "key": MARKER}]},
        {"list": [{"url": "b", "key": "t"}, {"url": "a", "key": MARKER}]},
    ]
    for each in changed:
        with pytest.raises(EditError, match="the list has changed"):
            restore(each, old)


async def test_the_hello_reveals_nothing_to_clients_that_may_not_read(ground: Ground) -> None:
    owner = await ground.join()
    await owner.call("sessions.create", {"label": "private"})
    peer = await ground.join(["operator.approvals"], Device())
    snapshot = peer.hello["snapshot"]
    assert snapshot["presence"] == []
    assert snapshot["health"]["sessions"] == {"path": "", "count": 0, "recent": []}
    assert "dashboard:" not in str(peer.hello)
    assert os.environ["CLAWKIT_HOME"] not in str(peer.hello)
    reader = await ground.join(["operator.read"], Device())
    assert reader.hello["snapshot"]["health"]["sessions"]["count"] == 1
    assert reader.hello["snapshot"]["presence"]


@pytest.mark.parametrize(
    "auth", [{"mode": "token"}, {"mode": "password", "password": "one-secret-for-all"}]
)
def test_the_token_of_hooks_is_not_the_secret_of_the_gateway(
    auth: dict[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("CLAWKIT_GATEWAY_TOKEN", "one-secret-for-all")
    monkeypatch.setenv("HOOKS", "one-secret-for-all")
    config = {"gateway": {"auth": auth}}
    for token in ("one-secret-for-all", "$HOOKS"):
        with pytest.raises(ConfigError, match="is also the secret of the gateway"):
            app({**config, "hooks": {"enabled": True, "token": token}})
    app({**config, "hooks": {"enabled": True, "token": "another-secret"}})


def test_requests_from_one_address_do_not_push_out_others(tmp_path: Path) -> None:
    store = Devices(str(tmp_path / "devices.sqlite"), bytes(32))
    victim = store.request(DeviceInfo("victim", "k", remote_ip="10.0.0.1"), "operator", [], 1_000)
    for index in range(150):
        about = DeviceInfo(f"d{index}", "k", remote_ip="10.0.0.2")
        store.request(about, "operator", [], 1_001 + index)
    waiting = store.pending(2_000)
    assert [each.about.device_id for each in waiting] == [
        "victim",
        *(f"d{index}" for index in range(140, 150)),
    ]
    assert store.get_pending(victim.id, 2_000) == victim
    store.close()


async def test_only_the_owner_can_touch_nodes(ground: Ground, device: Device) -> None:
    about = DeviceInfo(device.id, device.public_key)
    ground.gateway.devices.approve(about, "node", [], 1_000, "owner")
    helper = await ground.join(["operator.pairing"], Device())
    given = {"deviceId": device.id}
    for method in ("device.token.rotate", "device.token.revoke"):
        error = await helper.refused(method, {**given, "role": "node"})
        assert error["message"] == "missing scope: operator.admin"
    error = await helper.refused("device.pair.remove", given)
    assert error["message"] == "missing scope: operator.admin"
    owner = await ground.join()
    await owner.call("device.pair.remove", given)
