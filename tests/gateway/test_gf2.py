"""What clients cannot do to each other, and what outlives their rights."""

from __future__ import annotations

import asyncio
from typing import Any

from tests.gateway.conftest import Device, Ground, Peer, serve
from websockets.exceptions import ConnectionClosed

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
    for _ in range(60):
        await peer.send("config.schema")
    [there] = ground.gateway.hub.of_device(device.id)
    async with asyncio.timeout(10):
        while len(there._frames) < 10 or there._tasks:
            await asyncio.sleep(0.02)


async def test_a_removed_device_that_does_not_read_cannot_go_on(device: Device) -> None:
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
    await peer.call("device.token.rotate", less)
    assert (await peer.refused("exec.approvals.get"))["message"] == "missing scope: operator.admin"
    await peer.call("health")


async def test_a_device_that_removes_itself_is_disconnected(ground: Ground, device: Device) -> None:
    peer = await ground.join(["operator.pairing"], device)
    await peer.call("device.pair.remove", {"deviceId": device.id})
    assert await ended(peer) == 4001
