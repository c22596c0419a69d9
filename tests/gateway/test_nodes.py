"""Nodes: pairing, what they offer, and commands that are sent to them."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import pytest
from tests.gateway.conftest import Device, Ground, Peer, serve
from websockets.exceptions import ConnectionClosed

OFFERED = ["system.which", "system.run", "system.notify", "camera.snap", "system.execApprovals.get"]
STATS = {
    "cpuCount": 2,
    "loadAverage": [1, 2.5, 3],
    "memoryTotalBytes": 8,
    "memoryFreeBytes": 4,
    "diskTotalBytes": 2,
    "diskAvailableBytes": 1,
}


async def join(ground: Ground, device: Device, commands: list[str] | None = None) -> Peer:
    given = OFFERED if commands is None else commands
    claims: dict[str, Any] = {"caps": ["system"], "pathEnv": "/bin", "permissions": {"x": True}}
    claims |= {"computerUse": {"on": True}, "commands": given}
    return await ground.join([], device, role="node", client=("node-host", "node"), **claims)


async def approved(ground: Ground, device: Device) -> tuple[Peer, Peer]:
    """A node that was approved, and an operator."""
    operator, node = await ground.join(), await join(ground, device)
    [pending] = (await operator.call("node.pair.list"))["pending"]
    await operator.call("node.pair.approve", {"requestId": pending["requestId"]})
    return node, operator


async def answer(node: Peer, **more: Any) -> dict[str, Any]:
    """Answer the next command, and return it."""
    event = await node.until(lambda each: each.get("event") == "node.invoke.request")
    node.events.remove(event)
    asked: dict[str, Any] = event["payload"]
    given = {"id": asked["id"], "nodeId": asked["nodeId"], "ok": True, **more}
    await node.call("node.invoke.result", given)
    return asked


def which(device: Device, key: str = "k", **more: Any) -> dict[str, Any]:
    wanted = {"nodeId": device.id, "command": "system.which", "idempotencyKey": key}
    return {**wanted, "params": {"bins": ["ls"]}, **more}


async def test_capabilities_of_a_node_need_approval(ground: Ground, device: Device) -> None:
    operator = await ground.join()
    node = await join(ground, device)
    event = await operator.until(lambda each: each.get("event") == "node.pair.requested")
    pending = event["payload"]
    assert pending["nodeId"] == device.id
    assert pending["commands"] == sorted(set(OFFERED) - {"camera.snap"})
    assert pending["requiredApproveScopes"] == ["operator.pairing", "operator.admin"]
    [row] = (await operator.call("node.list"))["nodes"]
    assert (row["approvalState"], row["connected"]) == ("pending-approval", True)
    assert (row["commands"], row["pendingRequestId"]) == ([], pending["requestId"])
    error = await operator.refused("node.invoke", which(device))
    assert error["details"] == {"reason": "command not allowlisted", "command": "system.which"}
    stats = {"event": "node.host.stats", "payloadJSON": json.dumps(STATS)}
    assert (await node.refused("node.event", stats))["code"] == "UNAVAILABLE"
    helper = await ground.join(["operator.pairing", "operator.write"], Device())
    request = {"requestId": pending["requestId"]}
    assert (await helper.refused("node.pair.approve", request))["message"].endswith("admin")
    found = await operator.call("node.pair.approve", request)
    assert found["node"]["approvalState"] == "approved"
    for peer in (node, operator):
        told = await peer.until(lambda each: each.get("event") == "node.pair.resolved")
        assert told["payload"]["decision"] == "approved"
    assert (await operator.refused("node.pair.approve", request))["message"] == "unknown requestId"
    assert (await operator.call("node.pair.list"))["pending"] == []
    described = await operator.call("node.describe", {"nodeId": device.id})
    assert (described["caps"], described["pathEnv"]) == (["system"], "/bin")
    assert (described["permissions"], described["computerUse"]) == ({"x": True}, {"on": True})


async def test_a_node_does_what_it_is_asked(ground: Ground, device: Device) -> None:
    node, operator = await approved(ground, device)
    id_ = await operator.send("node.invoke", which(device, timeoutMs=5_000))
    asked = await answer(node, payloadJSON='{"bins":{"ls":"/bin/ls"}}')
    assert json.loads(asked["paramsJSON"]) == {"bins": ["ls"]}
    assert (asked["command"], asked["timeoutMs"]) == ("system.which", 5_000)
    result = (await operator.answer(id_))["payload"]
    assert result["payload"] == {"bins": {"ls": "/bin/ls"}}
    assert json.loads(result["payloadJSON"]) == result["payload"]
    assert (result["ok"], result["nodeId"], result["command"]) == (True, device.id, "system.which")
    # The same request again is not done again.
    again = await operator.call("node.invoke", which(device))
    assert again["payload"] == result["payload"]
    # Another one with its key is neither done nor said to be.
    for change in ({"command": "system.notify"}, {"params": {"bins": ["rm"]}}):
        other = which(device) | change
        assert "idempotencyKey" in (await operator.refused("node.invoke", other))["message"]
    id_ = await operator.send("node.invoke", which(device, "k2"))
    await answer(node, ok=False, error={"code": "BAD", "message": "no such thing"})
    error = (await operator.answer(id_))["error"]
    assert (error["code"], error["message"]) == ("UNAVAILABLE", "BAD: no such thing")
    assert error["details"]["nodeCommandDispatched"] is True


async def test_two_requests_with_one_key_are_one_command(ground: Ground, device: Device) -> None:
    node, operator = await approved(ground, device)
    ids = [await operator.send("node.invoke", which(device)) for _ in range(2)]
    await answer(node, payload=[1])
    assert [(await operator.answer(each))["payload"]["payload"] for each in ids] == [[1], [1]]
    assert not [each for each in node.events if each.get("event") == "node.invoke.request"]


async def test_a_node_that_is_silent_or_leaves_fails_the_command(
    ground: Ground, device: Device
) -> None:
    node, operator = await approved(ground, device)
    error = await operator.refused("node.invoke", which(device, timeoutMs=50))
    assert error["details"]["nodeError"]["code"] == "TIMEOUT"
    cancelled = await node.until(lambda each: each.get("event") == "node.invoke.cancel")
    late = {"id": cancelled["payload"]["id"], "nodeId": device.id, "ok": True}
    assert await node.call("node.invoke.result", late) == {"ok": True, "ignored": True}
    node.events.clear()
    id_ = await operator.send("node.invoke", which(device, "k2"))
    await node.until(lambda each: each.get("event") == "node.invoke.request")
    node.socket.transport.abort()
    error = (await operator.answer(id_))["error"]
    assert error["details"]["nodeError"]["code"] == "NOT_CONNECTED"
    error = await operator.refused("node.invoke", which(device, "k3"))
    assert error["details"] == {"code": "NOT_CONNECTED"}
    [row] = (await operator.call("node.list"))["nodes"]
    assert (row["connected"], row["approvalState"]) == (False, "approved")


@pytest.mark.parametrize(
    "command", ["system.run", "system.run.prepare", "system.execApprovals.get", "camera.snap", "x"]
)
async def test_commands_run_only_with_approvals(
    ground: Ground, device: Device, command: str
) -> None:
    node, operator = await approved(ground, device)
    error = await operator.refused("node.invoke", which(device, command=command))
    assert error["details"] == {"reason": "command not allowlisted", "command": command}
    await node.call("node.event", {"event": "x"})
    assert not [each for each in node.events if each.get("event") == "node.invoke.request"]


async def test_another_node_cannot_answer(ground: Ground, device: Device) -> None:
    node, operator = await approved(ground, device)
    thief = await join(ground, Device())
    id_ = await operator.send("node.invoke", which(device))
    event = await node.until(lambda each: each.get("event") == "node.invoke.request")
    stolen = {"id": event["payload"]["id"], "ok": True, "payload": "evil"}
    error = await thief.refused("node.invoke.result", {**stolen, "nodeId": device.id})
    assert "nodeId" in error["message"]
    own = thief.hello["auth"]
    assert own["role"] == "node"
    [other] = [
        each["nodeId"]
        for each in (await operator.call("node.list"))["nodes"]
        if each["nodeId"] != device.id
    ]
    ignored = await thief.call("node.invoke.result", {**stolen, "nodeId": other})
    assert ignored == {"ok": True, "ignored": True}
    wrong = {**stolen, "nodeId": device.id, "payloadJSON": "{"}
    assert "JSON" in (await node.refused("node.invoke.result", wrong))["message"]
    await answer(node, payload="fine")
    assert (await operator.answer(id_))["payload"]["payload"] == "fine"


async def test_more_commands_have_to_be_approved_again_and_fewer_do_not(device: Device) -> None:
    config = {"gateway": {"nodes": {"commands": {"allow": ["camera.snap"], "deny": ["x.y"]}}}}
    async with serve(config) as ground:
        operator, node = await ground.join(), await join(ground, device, ["system.notify"])
        [pending] = (await operator.call("node.pair.list"))["pending"]
        assert pending["requiredApproveScopes"] == ["operator.pairing", "operator.write"]
        helper = await ground.join(["operator.pairing", "operator.write"], Device())
        await helper.call("node.pair.approve", {"requestId": pending["requestId"]})
        await node.socket.close()
        node = await join(ground, device, ["system.notify", "camera.snap", "x.y"])
        [row] = (await operator.call("node.list"))["nodes"]
        assert (row["approvalState"], row["commands"]) == ("pending-reapproval", ["system.notify"])
        [pending] = (await operator.call("node.pair.list"))["pending"]
        assert pending["commands"] == ["camera.snap", "system.notify"]
        found = await operator.call("node.pair.reject", {"requestId": pending["requestId"]})
        assert found["nodeId"] == device.id
        told = await node.until(lambda each: each.get("event") == "node.pair.resolved")
        assert told["payload"]["decision"] == "rejected"
        await node.socket.close()
        await join(ground, device, [])
        [row] = (await operator.call("node.list"))["nodes"]
        assert (row["approvalState"], row["commands"]) == ("approved", [])


async def test_a_request_of_a_node_survives_a_restart(device: Device) -> None:
    async with serve({}) as ground:
        await join(ground, device)
        asked = (await (await ground.join()).call("node.pair.list"))["pending"]
    async with serve({}) as ground:
        operator = await ground.join()
        [found] = (await operator.call("node.pair.list"))["pending"]
        assert found["requestId"] == asked[0]["requestId"]
        await operator.call("node.pair.approve", {"requestId": found["requestId"]})
        await join(ground, device)
        assert (await operator.call("node.pair.list"))["pending"] == []


async def test_a_node_is_renamed_and_removed(ground: Ground, device: Device) -> None:
    node, operator = await approved(ground, device)
    name = {"nodeId": device.id, "displayName": "lab"}
    assert await operator.call("node.rename", name) == name
    assert (await operator.call("node.describe", {"nodeId": device.id}))["displayName"] == "lab"
    helper = await ground.join(["operator.pairing"], Device())
    remove = {"nodeId": device.id}
    assert (await helper.refused("node.pair.remove", remove))["code"] == "FORBIDDEN"
    assert (await helper.refused("node.rename", name))["code"] == "FORBIDDEN"
    label = {"deviceId": device.id, "label": "lab"}
    assert (await helper.refused("device.pair.rename", label))["code"] == "FORBIDDEN"
    await operator.call("node.pair.remove", remove)
    with pytest.raises(ConnectionClosed):
        await node.until(lambda _: False)
    assert node.socket.close_code == 4001
    assert (await operator.call("node.list"))["nodes"] == []
    error = await operator.refused("node.invoke", which(device))
    assert (error["code"], error["details"]) == ("UNAVAILABLE", {"code": "PAIRING_CHANGED"})
    for method, params in (("node.describe", remove), ("node.rename", name)):
        assert (await operator.refused(method, params))["message"] == "unknown nodeId"


async def test_stats_of_a_node_are_reported(ground: Ground, device: Device) -> None:
    node, operator = await approved(ground, device)
    given = {"event": "node.host.stats", "payloadJSON": json.dumps({**STATS, "more": 1})}
    answered = await node.call("node.event", given)
    assert (answered["handled"], answered["reason"]) == (True, "updated")
    event = await operator.until(lambda each: each.get("event") == "node.hostStats")
    assert event["payload"]["nodeId"] == device.id
    [row] = (await operator.call("node.list"))["nodes"]
    assert {key: row["hostStats"][key] for key in STATS} == STATS
    assert "more" not in row["hostStats"]
    for bad in ("{", "[]", '{"cpuCount":"x"}', json.dumps({**STATS, "loadAverage": [1] * 9})):
        error = await node.refused("node.event", {"event": "node.host.stats", "payloadJSON": bad})
        assert error["code"] == "INVALID_REQUEST"
    assert (await node.call("node.event", {"event": "exec.finished"}))["handled"] is False


async def test_approvals_of_a_node_are_read_and_set_by_the_owner(device: Device) -> None:
    async with serve({}) as ground:
        operator = await ground.join()
        commands = ["system.execApprovals.get", "system.execApprovals.set"]
        node = await join(ground, device, commands)
        [pending] = (await operator.call("node.pair.list"))["pending"]
        await operator.call("node.pair.approve", {"requestId": pending["requestId"]})
        id_ = await operator.send("exec.approvals.node.get", {"nodeId": device.id})
        asked = await answer(node, payload={"hash": "h"})
        assert (asked["command"], asked["paramsJSON"]) == (commands[0], "{}")
        assert (await operator.answer(id_))["payload"] == {"hash": "h"}
        given = {"file": {"version": 1}, "baseHash": "h"}
        id_ = await operator.send("exec.approvals.node.set", {"nodeId": device.id, **given})
        asked = await answer(node, payload={"hash": "i"})
        assert (asked["command"], json.loads(asked["paramsJSON"])) == (commands[1], given)
        assert (await operator.answer(id_))["payload"] == {"hash": "i"}


async def test_old_answers_make_room(
    ground: Ground, device: Device, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("clawkit.gateway.nodes.MAX_BUFFERED", 100)
    node, operator = await approved(ground, device)
    for key in ("a", "b", "c"):
        id_ = await operator.send("node.invoke", which(device, key))
        await answer(node, payload="x" * 60)
        await operator.answer(id_)
    await asyncio.sleep(0)
    assert {key for _, key in ground.gateway.nodes._calls} == {"b", "c"}
