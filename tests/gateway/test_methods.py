"""Requests and answers: scopes, roles, parameters, limits."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest
from tests.gateway.conftest import Device, Ground, Peer, serve
from websockets.exceptions import ConnectionClosed

from clawkit.gateway import connection, protocol
from clawkit.gateway.methods import METHODS, NODE_METHODS
from clawkit.gateway.methods.method import NODE
from clawkit.gateway.scopes import ALL, satisfies

PARAMS: dict[str, Any] = {
    "clawkit.release": {"id": "none"},
    "clawkit.command": {"argv": ["ps"]},
    "clawkit.chat.open": {"cwd": "/"},
    "clawkit.chat.type": {"key": "none", "line": "/help", "idempotencyKey": "typed"},
    "clawkit.chat.stop": {"key": "none"},
    "clawkit.chat.state": {"key": "none"},
    "clawkit.chat.takeBack": {"key": "none"},
    "clawkit.turn": {"cwd": "/", "message": "hi", "idempotencyKey": "turn", "session": "own"},
    "cron.describe": {"schedule": "every day at 9:00"},
    "config.schema.lookup": {"path": "gateway"},
    "config.set": {"raw": "{}"},
    "config.patch": {"raw": "{}"},
    "config.apply": {"raw": "{}"},
    "sessions.messages.subscribe": {"key": "main"},
    "sessions.messages.unsubscribe": {"key": "main"},
    "sessions.describe": {"key": "main"},
    "sessions.resolve": {"key": "main"},
    "sessions.preview": {"keys": ["main"]},
    "sessions.get": {"key": "main"},
    "sessions.patch": {"key": "nothing"},
    "sessions.reset": {"key": "x"},
    "sessions.compact": {"key": "nothing"},
    "sessions.delete": {"key": "y"},
    "sessions.send": {"key": "nothing", "message": "hi"},
    "sessions.abort": {"key": "main"},
    "chat.history": {"sessionKey": "main"},
    "chat.startup": {"sessionKey": "main"},
    "chat.send": {"sessionKey": "main", "message": "hi", "idempotencyKey": "k"},
    "chat.abort": {"sessionKey": "main"},
    "agent": {"message": "hi", "idempotencyKey": "k2"},
    "agent.wait": {"runId": "none"},
    "tools.effective": {"sessionKey": "main"},
    "exec.approval.get": {"id": "none"},
    "exec.approval.resolve": {"id": "none", "decision": "deny"},
    "exec.approvals.check": {"command": "ls"},
    "exec.approval.request": {"command": "ls", "timeoutMs": 1},
    "exec.approval.waitDecision": {"id": "none"},
    "approval.get": {"id": "none"},
    "approval.resolve": {"id": "none", "decision": "deny"},
    "exec.approvals.set": {"file": {"version": 1}},
    "device.pair.approve": {"requestId": "none"},
    "device.pair.reject": {"requestId": "none"},
    "device.pair.remove": {"deviceId": "none"},
    "device.pair.rename": {"deviceId": "none", "label": "n"},
    "device.token.rotate": {"deviceId": "none"},
    "device.token.revoke": {"deviceId": "none"},
    "memory.search": {"query": "tea"},
    "node.describe": {"nodeId": "none"},
    "node.invoke": {"nodeId": "none", "command": "fs.listDir", "idempotencyKey": "k"},
    "node.pair.approve": {"requestId": "none"},
    "node.pair.reject": {"requestId": "none"},
    "node.pair.remove": {"nodeId": "none"},
    "node.rename": {"nodeId": "none", "displayName": "n"},
    "exec.approvals.node.get": {"nodeId": "none"},
    "cron.get": {"id": "none"},
    "cron.update": {"id": "none", "patch": {"enabled": False}},
    "cron.remove": {"id": "none"},
    "cron.run": {"id": "none"},
    "wake": {"text": "hi", "mode": "next-heartbeat"},
    "exec.approvals.node.set": {"nodeId": "none", "file": {}},
    "set-heartbeats": {"enabled": True},
    "system-event": {"text": "It rings."},
}
OPERATOR_METHODS = {name: each for name, each in METHODS.items() if each.scope != NODE}
MORE = {"sessions.delete": "operator.admin", "node.invoke": "operator.admin"}


async def joined(ground: Ground, scope: str) -> Peer:
    return await ground.join([scope] if scope else [], Device())


async def test_every_method_needs_its_scope_and_every_scope_opens_its_methods(
    ground: Ground,
) -> None:
    """Calls every method with no scope and with each scope alone."""
    for scope in ("", *ALL):
        peer = await joined(ground, scope)
        held = [scope] if scope else []
        for name, method in OPERATOR_METHODS.items():
            frame = await peer.ask(name, PARAMS.get(name, {}))
            wanted = [method.scope, *filter(None, [MORE.get(name)])]
            missing = [each for each in wanted if not satisfies(held, each)]
            error = frame.get("error", {})
            if missing:
                assert error.get("code") == "FORBIDDEN", (scope, name, frame)
                assert error["message"] == f"missing scope: {missing[0]}"
                assert error["details"] == {
                    "code": "MISSING_SCOPE",
                    "missingScope": missing[0],
                    "requiredScopes": [missing[0]],
                }
            else:
                assert error.get("code") != "FORBIDDEN", (scope, name, frame)
        await peer.socket.close()


async def test_every_method_refuses_an_unknown_key(ground: Ground) -> None:
    peer = await ground.join()
    for name in OPERATOR_METHODS.keys() - {"health", "wake"}:
        error = await peer.refused(name, {**PARAMS.get(name, {}), "bogus": 1})
        text = f"invalid {name} params: at root: unexpected property 'bogus'"
        assert (error["code"], error["message"]) == ("INVALID_REQUEST", text)
    assert (await peer.call("health", {"bogus": 1}))["ok"]
    assert (await peer.call("wake", {"text": "x", "bogus": 1}))["ok"]


async def test_every_method_answers_without_parameters(ground: Ground) -> None:
    peer = await ground.join()
    for name in OPERATOR_METHODS:
        given: list[Any] = [None, [], "text", 7]
        for params in given:
            frame = await peer.ask(name, params)
            if params is not None:
                assert frame["error"]["message"].startswith(f"invalid {name} params: ")


def test_every_method_is_described() -> None:
    page = Path(__file__).parents[2] / "docs" / "gateway-protocol.md"
    text = page.read_text(encoding="utf-8")
    assert [name for name in METHODS if f"#### `{name}`" not in text] == []


async def test_a_missing_parameter_is_named(ground: Ground) -> None:
    peer = await ground.join()
    error = await peer.refused("chat.send", {"sessionKey": "main", "message": "x"})
    expected = "invalid chat.send params: must have required property 'idempotencyKey'"
    assert error["message"] == expected


async def test_only_admins_learn_that_a_method_is_unknown(ground: Ground) -> None:
    admin, reader = await joined(ground, "operator.admin"), await joined(ground, "operator.read")
    for name in ("nope.x", "cron.scratch.get", "chat.inject", "__class__"):
        error = await admin.refused(name)
        assert (error["code"], error["message"]) == ("INVALID_REQUEST", f"unknown method: {name}")
        assert (await reader.refused(name))["message"] == "missing scope: operator.admin"


async def test_roles_have_their_own_methods(ground: Ground) -> None:
    operator, node = await ground.join(), await ground.join([], Device(), role="node")
    assert METHODS.keys() - OPERATOR_METHODS.keys() <= NODE_METHODS
    for name in NODE_METHODS:
        assert (await operator.refused(name))["message"] == "unauthorized role: operator"
        await operator.call("health")
    error = await node.refused("health")
    assert (error["code"], error["message"]) == ("INVALID_REQUEST", "unauthorized role: node")


async def test_a_client_that_insists_on_another_role_is_disconnected(ground: Ground) -> None:
    node = await ground.join([], Device(), role="node")
    for _ in range(11):
        await node.refused("health")
    with pytest.raises(ConnectionClosed):
        await node.refused("health")
    assert node.socket.close_code == 1008


@pytest.mark.parametrize(
    "text", ["{bad", "[]", '{"type":"req"}', "[" * 100_000, '{"type":"event","event":"x"}']
)
async def test_a_bad_frame_after_the_hello_is_answered(ground: Ground, text: str) -> None:
    peer = await ground.join()
    await peer.socket.send(text)
    frame = await peer.answer("invalid")
    assert frame["error"]["message"].startswith("invalid request frame: ")
    assert await peer.call("health")


async def test_deep_parameters_are_refused(ground: Ground) -> None:
    peer = await ground.join()
    deep = '{"a":' * 90_000 + "1" + "}" * 90_000
    frame = f'{{"type":"req","id":"d","method":"exec.approvals.set","params":{{"file":{deep}}}}}'
    await peer.socket.send(frame)
    error = (await peer.receive())["error"]
    assert error["code"] == "INVALID_REQUEST"
    assert await peer.call("health")


async def test_large_frames_are_accepted_after_the_hello(ground: Ground) -> None:
    peer = await ground.join()
    error = await peer.refused("config.schema.lookup", {"path": "x" * 1_000_000})
    assert error["message"].startswith("invalid config.schema.lookup params: at /path")


async def test_a_frame_beyond_the_limit_ends_the_connection(
    ground: Ground, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(protocol, "MAX_FRAME", 200_000)
    peer = await ground.join()
    with pytest.raises(ConnectionClosed):
        await peer.ask("health", {"x": "y" * 200_001})
    assert peer.socket.close_code == 1009


async def test_requests_of_one_client_run_at_the_same_time_up_to_a_limit(
    ground: Ground, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(connection, "MAX_AT_ONCE", 3)
    peer = await ground.join()
    await peer.send("chat.send", {"sessionKey": "x", "message": "hi", "idempotencyKey": "r"})
    run = {"runId": "r", "timeoutMs": 5_000}
    await asyncio.gather(*(peer.send("agent.wait", run, f"w{n}") for n in range(6)))
    seen = [await peer.answer(f"w{n}") for n in (5,)]
    assert seen[0]["ok"] or seen[0]["error"]["code"] == "UNAVAILABLE"


async def test_writes_of_the_configuration_are_limited(ground: Ground) -> None:
    peer = await ground.join()
    for _ in range(30):
        await peer.refused("config.patch", {"raw": "{}"})
    error = await peer.refused("config.patch", {"raw": "{}"})
    assert error["code"] == "UNAVAILABLE"
    assert "rate limit" in error["message"]
    assert 0 < error["retryAfterMs"] <= 60_000


async def test_presence_reaches_readers_with_sequence_and_version(ground: Ground) -> None:
    reader = await ground.join(["operator.read"], Device())
    blind = await ground.join([], Device())
    await ground.join([], Device(), client=("openclaw-tui", "ui"))
    event = await reader.until(lambda each: each.get("event") == "presence")
    assert event["seq"] == 1
    assert event["stateVersion"]["presence"] >= 2
    assert event["payload"]["presence"][0]["mode"] == "gateway"
    listed = await reader.call("system-presence")
    assert [each.get("clientId") for each in listed[1:]] == ["cli", "cli", "openclaw-tui"]
    await blind.refused("health")
    assert blind.of("presence") == []


async def test_ticks_go_to_everyone(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("clawkit.gateway.server.TICK_MS", 50)
    async with serve({}) as ground:
        node = await ground.join([], Device(), role="node")
        ticks = [await node.receive() for _ in range(3)]
        assert [(each["event"], each["seq"]) for each in ticks] == [
            *(("tick", 1), ("tick", 2), ("tick", 3)),
        ]


async def test_a_reader_that_never_reads_is_dropped_and_others_go_on(
    ground: Ground, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(protocol, "MAX_BUFFERED", 300_000)
    slow, quick = await ground.join(), await ground.join()
    slow.socket.transport.pause_reading()
    hub, frame = ground.gateway.hub, {"text": "x" * 50_000}
    [mine] = [each for each in hub.clients.values() if each.id == slow.hello["server"]["connId"]]
    for _ in range(400):
        hub.broadcast("chat", frame, lambda each: each is mine, droppable=True)
        await asyncio.sleep(0)
    assert mine.id in hub.clients
    assert mine._buffered <= 300_000
    for _ in range(400):
        hub.broadcast("chat", frame, lambda each: each is mine)
    assert mine._closing == (1008, "slow consumer")
    await asyncio.wait_for(_gone(ground, mine.id), 5)
    assert await quick.call("health")


async def _gone(ground: Ground, id_: str) -> None:
    while id_ in ground.gateway.hub.clients:
        await asyncio.sleep(0.02)


async def test_missed_events_leave_a_gap(ground: Ground, monkeypatch: pytest.MonkeyPatch) -> None:
    peer = await ground.join()
    hub = ground.gateway.hub
    monkeypatch.setattr(protocol, "MAX_BUFFERED", 1_000)
    hub.broadcast("chat", {"n": 1, "state": "x"})
    hub.broadcast("chat", {"n": 2, "text": "x" * 2_000}, droppable=True)
    hub.broadcast("chat", {"n": 3, "state": "x"})
    events = [await peer.receive() for _ in range(2)]
    assert [(each["seq"], each["payload"]["n"]) for each in events] == [(1, 1), (3, 3)]


async def test_clients_are_notified_before_the_gateway_stops() -> None:
    async with serve({}) as ground:
        peer = await ground.join()
        asyncio.get_running_loop().call_later(0.1, asyncio.ensure_future, _stop(ground))
        event = await peer.until(lambda each: each.get("event") == "shutdown")
        assert event["payload"] == {"reason": "gateway stopping"}
        with pytest.raises(ConnectionClosed):
            await peer.receive()
        assert (peer.socket.close_code, peer.socket.close_reason) == (1012, "service restart")


async def _stop(ground: Ground) -> None:
    await ground.gateway.say_goodbye()


async def test_a_client_that_does_not_answer_pings_is_dropped(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("clawkit.gateway.serve.PING_S", 0.2)
    async with serve({}) as ground:
        silent = await ground.open()
        dead, alive = await ground.join(), await ground.join()
        dead.socket.transport.pause_reading()
        await asyncio.wait_for(_gone(ground, dead.hello["server"]["connId"]), 5)
        assert await alive.call("health")
        # Without a login there are no pings, only the time limit of the handshake.
        assert (await silent.refused("health"))["message"].startswith("invalid handshake")
