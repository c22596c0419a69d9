"""Devices: approving, rotating, revoking, and what no one can give away."""

from __future__ import annotations

import asyncio
import json
import os
import shlex
import stat
from contextlib import suppress
from typing import Any

import pytest
from tests.gateway.conftest import PROXY, TOKEN, Device, Ground, Peer, hello_params, serve
from tests.gateway.test_command import clawkit
from websockets.exceptions import ConnectionClosed

from clawkit.errors import NotFoundError
from clawkit.gateway.auth import hash_token
from clawkit.gateway.devices import MAX_PENDING, PENDING_MS, DeviceInfo, Devices, load_key

pytestmark = pytest.mark.usefixtures("ready")

FAR = {"X-Forwarded-For": "203.0.113.5"}
PROXIED: dict[str, Any] = {"gateway": {"trustedProxies": [PROXY]}}


async def request(ground: Ground, device: Device, scopes: list[str]) -> str:
    _, frame = await ground.shake(hello_params(scopes), device, headers=FAR)
    found: str = frame["error"]["details"]["requestId"]
    return found


async def test_no_one_approves_more_than_they_have(device: Device) -> None:
    async with serve(PROXIED) as ground:
        helper = await ground.join(["operator.pairing", "operator.read"], Device())
        wide = await request(ground, device, ["operator.read", "operator.admin"])
        error = await helper.refused("device.pair.approve", {"requestId": wide})
        assert error["message"] == "missing scope: operator.admin"
        narrow = await request(ground, device, ["operator.read"])
        done = await helper.call("device.pair.approve", {"requestId": narrow})
        assert done["device"]["scopes"] == ["operator.read"]
        assert done["device"]["approvedVia"] == "owner"
        _, frame = await ground.shake(hello_params(["operator.read"]), device, headers=FAR)
        assert frame["ok"]


async def test_a_rejected_request_is_gone(device: Device) -> None:
    async with serve(PROXIED) as ground:
        owner = await ground.join()
        id_ = await request(ground, device, [])
        listed = await owner.call("device.pair.list")
        assert [each["requestId"] for each in listed["pending"]] == [id_]
        done = await owner.call("device.pair.reject", {"requestId": id_})
        assert done == {"requestId": id_, "deviceId": device.id}
        for method in ("device.pair.reject", "device.pair.approve"):
            assert (await owner.refused(method, {"requestId": id_}))["code"] == "INVALID_REQUEST"
        assert (await owner.call("device.pair.list"))["pending"] == []
        event = await owner.until(lambda each: each.get("event") == "device.pair.resolved")
        assert event["payload"]["decision"] == "rejected"


async def test_the_status_lists_waiting_devices_and_how_to_approve_them(device: Device) -> None:
    async with serve(PROXIED) as ground:
        id_ = await request(ground, device, ["operator.read"])
        near = ("--url", ground.url, "--token", TOKEN)
        shown = (await asyncio.to_thread(clawkit, "status", *near)).stdout
        assert "1 device waiting for approval" in shown
        assert "'cli' at 203.0.113.5, as operator: operator.read\n" in shown
        [line] = [each for each in shown.splitlines() if "device.pair.approve" in each]
        assert shlex.split(line)[:2] == ["clawkit", "gateway"]
        typed = [*shlex.split(line)[2:], "--token", TOKEN]
        done = await asyncio.to_thread(clawkit, *typed)
        assert json.loads(done.stdout)["requestId"] == id_
        found = await asyncio.to_thread(clawkit, "status", "--json", *near)
        assert json.loads(found.stdout)["pendingDevices"] == 0


async def ended(peer: Peer) -> int | None:
    with suppress(ConnectionClosed):
        while True:
            await peer.receive()
    return peer.socket.close_code


async def test_a_removed_device_is_disconnected_and_a_stranger_again(
    ground: Ground, device: Device
) -> None:
    owner, peer = await ground.join(), await ground.join(["operator.read"], device)
    token = peer.hello["auth"]["deviceToken"]
    listed = await owner.call("device.pair.list")
    [row] = listed["paired"]
    assert (row["deviceId"], row["connected"]) == (device.id, True)
    assert row["approvedVia"] == "silent"
    assert token not in str(listed)
    done = await owner.call("device.pair.remove", {"deviceId": device.id})
    assert done == {"deviceId": device.id}
    assert await ended(peer) == 4001
    old = hello_params(["operator.read"], auth={"deviceToken": token})
    _, frame = await ground.shake(old, device)
    assert frame["error"]["details"]["code"] == "AUTH_DEVICE_TOKEN_MISMATCH"
    new = await ground.join(["operator.read"], device)
    assert new.hello["auth"]["deviceToken"] != token


async def test_a_rotated_token_replaces_the_old_one(ground: Ground, device: Device) -> None:
    peer = await ground.join(["operator.read", "operator.pairing"], device)
    old = peer.hello["auth"]["deviceToken"]
    params = {"deviceId": device.id, "role": "operator"}
    done = await peer.call("device.token.rotate", params)
    assert done["tokenDelivery"] == "inline"
    assert done["scopes"] == ["operator.read", "operator.pairing"]
    _, frame = await ground.shake(hello_params([], auth={"deviceToken": old}), device)
    assert frame["error"]["details"]["code"] == "AUTH_DEVICE_TOKEN_MISMATCH"
    _, frame = await ground.shake(hello_params([], auth={"deviceToken": done["token"]}), device)
    assert frame["ok"]
    owner = await ground.join()
    other = await owner.call("device.token.rotate", params)
    assert other["tokenDelivery"] == "withheld-cross-device"
    assert "token" not in other


async def test_a_token_never_gets_wider(ground: Ground, device: Device) -> None:
    peer = await ground.join(["operator.read", "operator.pairing"], device)
    params = {"deviceId": device.id, "scopes": ["operator.admin"]}
    error = await peer.refused("device.token.rotate", params)
    assert error["message"] == "missing scope: operator.admin"
    reader = await ground.join(["operator.read"], Device())
    assert (await reader.refused("device.token.rotate", params))["code"] == "FORBIDDEN"
    less = await peer.call("device.token.rotate", {**params, "scopes": ["operator.read"]})
    assert less["scopes"] == ["operator.read"]


async def test_a_helper_cannot_touch_the_devices_of_the_owner(
    ground: Ground, device: Device
) -> None:
    await ground.join(["operator.admin"], device)
    helper = await ground.join(["operator.pairing"], Device())
    for method in ("device.token.rotate", "device.token.revoke", "device.pair.remove"):
        error = await helper.refused(method, {"deviceId": device.id})
        assert error["message"] == "missing scope: operator.admin"
    name = {"deviceId": device.id, "label": "mine"}
    error = await helper.refused("device.pair.rename", name)
    assert error["message"] == "missing scope: operator.admin"


async def test_a_revoked_token_is_worthless(ground: Ground, device: Device) -> None:
    owner, peer = await ground.join(), await ground.join(["operator.read"], device)
    token = peer.hello["auth"]["deviceToken"]
    done = await owner.call("device.token.revoke", {"deviceId": device.id})
    assert done["role"] == "operator"
    assert await ended(peer) == 4001
    old = hello_params(["operator.read"], auth={"deviceToken": token})
    _, frame = await ground.shake(old, device)
    assert frame["error"]["details"]["code"] == "AUTH_DEVICE_TOKEN_MISMATCH"
    unknown = {"deviceId": "none", "role": "node"}
    assert (await owner.refused("device.token.revoke", unknown))["code"] == "INVALID_REQUEST"


async def test_each_role_of_a_device_has_its_own_token(ground: Ground, device: Device) -> None:
    operator = await ground.join(["operator.read"], device)
    node = await ground.join([], device, role="node")
    tokens = {peer.hello["auth"]["deviceToken"] for peer in (operator, node)}
    assert len(tokens) == 2
    wrong = hello_params([], auth={"deviceToken": operator.hello["auth"]["deviceToken"]})
    _, frame = await ground.shake({**wrong, "role": "node"}, device)
    assert frame["error"]["details"]["code"] == "AUTH_DEVICE_TOKEN_MISMATCH"


def about(name: str) -> DeviceInfo:
    return DeviceInfo(name, "key", remote_ip=f"address of {name}")


def make(tmp_path: Any, key: bytes = b"k" * 32) -> Devices:
    return Devices(os.path.join(tmp_path, "d", "devices.sqlite"), key)


def test_requests_expire_and_make_room(tmp_path: Any) -> None:
    store = make(tmp_path)
    first = store.request(about("a"), "operator", ["operator.read"], 1_000)
    assert store.request(about("a"), "operator", ["operator.read"], 2_000).id == first.id
    assert store.pending(1_000 + PENDING_MS) == []
    with pytest.raises(NotFoundError):
        store.get_pending(first.id, 1_000 + PENDING_MS)
    for number in range(MAX_PENDING + 5):
        store.request(about(f"d{number}"), "operator", [], 10_000_000 + number)
    waiting = store.pending(10_000_200)
    assert len(waiting) == MAX_PENDING
    assert waiting[-1].about.device_id == f"d{MAX_PENDING + 4}"


def test_tokens_depend_on_the_key_and_outlive_a_restart(tmp_path: Any) -> None:
    store = make(tmp_path)
    store.approve(about("a"), "operator", ["operator.read"], 1, "silent")
    token, _ = store.token("a", "operator", 2)
    store.close()
    again = make(tmp_path)
    assert again.token("a", "operator", 3)[0] == token
    known = again.facts_about("a")
    assert known is not None
    assert known.grants["operator"].token_hash == hash_token(token)
    other = make(tmp_path, b"x" * 32)
    assert other.token("a", "operator", 4)[0] != token


def test_the_key_is_private_and_stays(tmp_path: Any) -> None:
    path = os.path.join(tmp_path, "own", "key")
    key = load_key(path)
    assert len(key) == 32
    assert load_key(path) == key
    assert stat.S_IMODE(os.stat(path).st_mode) == 0o600
    with open(path, "wb") as file:
        file.write(b"short")
    assert len(load_key(path)) == 32


async def test_a_device_is_renamed(ground: Ground, device: Device) -> None:
    peer = await ground.join(["operator.pairing"], device)
    name = {"deviceId": device.id, "label": "my phone"}
    assert await peer.call("device.pair.rename", name) == name
    [found] = (await peer.call("device.pair.list"))["paired"]
    assert found["displayName"] == "my phone"
    assert (await peer.refused("device.pair.rename", {**name, "deviceId": "x"}))["message"]
