"""The handshake over real sockets: texts, codes, and what an attacker may try."""

from __future__ import annotations

import asyncio
import json
from contextlib import suppress
from typing import Any

import pytest
from tests.gateway.conftest import PROXY, TOKEN, Device, Ground, Peer, hello_params, serve
from websockets.exceptions import ConnectionClosed, InvalidStatus

from clawkit.gateway import protocol
from clawkit.gateway.protocol import MAX_FRAME_BEFORE_HELLO


async def closed(peer: Peer) -> tuple[int, str]:
    """Read until the end; returns the close code and its reason."""
    with suppress(ConnectionClosed):
        while True:
            await peer.receive()
    return peer.socket.close_code or 0, peer.socket.close_reason or ""


async def test_the_challenge_comes_first_and_the_hello_lists_features(ground: Ground) -> None:
    peer = await ground.open(path="any/path?at=all")
    challenge = peer.events[0]
    assert challenge["event"] == "connect.challenge"
    assert "seq" not in challenge
    assert isinstance(challenge["payload"]["ts"], int)
    hello = await peer.call("connect", hello_params(["operator.read"]))
    assert hello["type"] == "hello-ok"
    assert hello["protocol"] == 4
    assert hello["auth"] == {"method": "token", "role": "operator", "scopes": ["operator.read"]}
    assert hello["policy"]["maxPayload"] == 26214400
    assert hello["policy"]["maxBufferedBytes"] == 52428800
    assert hello["policy"]["tickIntervalMs"] == 30000
    assert {"health", "chat.send"} <= set(hello["features"]["methods"])
    assert "chat" in hello["features"]["events"]
    assert "cron.scratch.get" not in hello["features"]["methods"]
    snapshot = hello["snapshot"]
    assert snapshot["sessionDefaults"]["mainSessionKey"] == "agent:main:main"
    assert snapshot["health"]["ok"] is True
    assert snapshot["presence"][0]["reason"] == "self"
    assert set(snapshot["stateVersion"]) == {"presence", "health"}


async def test_no_two_challenges_are_alike(ground: Ground) -> None:
    nonces = [(await ground.open()).events[0]["payload"]["nonce"] for _ in range(5)]
    assert len(set(nonces)) == 5


@pytest.mark.parametrize(
    ("frame", "code", "message"),
    [
        ("{bad", 1000, None),
        ("", 1000, None),
        ("[" * 60_000, 1000, None),
        ("[]", 1008, "invalid request frame"),
        ('{"type":"res","id":"1","ok":true}', 1008, "invalid request frame"),
        ('{"type":"req","id":"","method":"connect"}', 1008, "invalid request frame"),
        ('{"type":"req","id":"1","method":"connect","extra":1}', 1008, "invalid request frame"),
        (
            '{"type":"req","id":"1","method":"health"}',
            1008,
            "invalid handshake: first request must be connect",
        ),
        ('{"type":"req","id":"1","method":"connect"}', 1008, "invalid connect params: must have"),
        (
            '{"type":"req","id":"1","method":"connect","params":[]}',
            1008,
            "invalid connect params: expected `object`",
        ),
    ],
)
async def test_a_bad_first_frame_ends_the_connection(
    ground: Ground, frame: str, code: int, message: str | None
) -> None:
    peer = await ground.open()
    await peer.socket.send(frame)
    if message is not None:
        error = (await peer.receive())["error"]
        assert error["code"] == "INVALID_REQUEST"
        assert error["message"].startswith(message)
    found, reason = await closed(peer)
    assert found == code
    assert len(reason.encode()) <= 120
    assert reason.startswith(message or "")


async def test_a_large_frame_before_the_hello_is_cut_off_while_it_is_read(ground: Ground) -> None:
    peer = await ground.open()
    with suppress(ConnectionClosed):
        await peer.socket.send("x" * (MAX_FRAME_BEFORE_HELLO + 1))
    assert (await closed(peer))[0] == 1009


async def test_binary_frames_are_refused(ground: Ground) -> None:
    peer = await ground.open()
    await peer.socket.send(b"{}")
    assert (await closed(peer))[0] == 1003


@pytest.mark.parametrize(
    ("change", "where"),
    [
        ({"extra": 1}, "at root: unexpected property 'extra'"),
        ({"client": {"id": "cli"}}, "at /client: must have required property"),
        ({"client": {"id": "mine", "version": "", "platform": "", "mode": "cli"}}, "at /client/id"),
        ({"auth": {"token": "x", "secret": "y"}}, "at /auth: unexpected property 'secret'"),
        ({"scopes": "operator.admin"}, "at /scopes"),
        ({"scopes": ["x"] * 300}, "at /scopes"),
        ({"minProtocol": "4"}, "at /minProtocol"),
        ({"device": {}}, "at /device: must have required property"),
    ],
)
async def test_connect_takes_what_the_protocol_names_and_nothing_else(
    ground: Ground, change: dict[str, Any], where: str
) -> None:
    peer, frame = await ground.shake({**hello_params(), **change})
    assert frame["error"]["message"].startswith(f"invalid connect params: {where}")
    assert (await closed(peer))[0] == 1008


async def test_versions_without_common_ground_end_with_their_own_code(ground: Ground) -> None:
    peer, frame = await ground.shake({**hello_params(), "minProtocol": 5, "maxProtocol": 6})
    assert frame["error"]["message"] == "protocol mismatch"
    assert frame["error"]["details"] == {
        "code": "PROTOCOL_MISMATCH",
        "clientMinProtocol": 5,
        "clientMaxProtocol": 6,
        "expectedProtocol": 4,
        "minimumProbeProtocol": 3,
    }
    assert await closed(peer) == (1002, "protocol mismatch")


async def test_a_wrong_secret_is_refused_with_its_code(ground: Ground) -> None:
    peer, frame = await ground.shake(hello_params(auth={"token": "wrong"}))
    error = frame["error"]
    assert (error["code"], error["details"]["code"]) == ("INVALID_REQUEST", "AUTH_TOKEN_MISMATCH")
    assert TOKEN not in json.dumps(frame)
    assert (await closed(peer))[0] == 1008


async def test_a_device_is_paired_silently_and_keeps_its_token(
    ground: Ground, device: Device
) -> None:
    first = await ground.join(["operator.read"], device)
    token = first.hello["auth"]["deviceToken"]
    again = await ground.join(["operator.read"], device)
    assert again.hello["auth"]["deviceToken"] == token
    by_token = await ground.join(["operator.read"], device, auth={"deviceToken": token})
    assert by_token.hello["auth"]["method"] == "device-token"
    _, frame = await ground.shake(
        hello_params(["operator.admin"], auth={"deviceToken": token}), device
    )
    assert frame["error"]["details"]["code"] == "AUTH_SCOPE_MISMATCH"
    stolen = hello_params(["operator.read"], auth={"deviceToken": token})
    _, frame = await ground.shake(stolen, Device())
    assert frame["error"]["details"]["code"] == "AUTH_DEVICE_TOKEN_MISMATCH"


async def test_the_older_signature_is_enough(ground: Ground, device: Device) -> None:
    _, frame = await ground.shake(hello_params(), device, version="v2")
    assert frame["ok"]


async def test_the_token_of_a_device_is_not_in_its_store(ground: Ground, device: Device) -> None:
    token = (await ground.join([], device)).hello["auth"]["deviceToken"]
    ground.gateway.devices.close()
    path = ground.gateway.devices._database.path
    for name in (path, f"{path}-wal"):
        try:
            with open(name, "rb") as file:
                assert token.encode() not in file.read()
        except FileNotFoundError:
            pass


async def test_a_replayed_nonce_is_refused(ground: Ground, device: Device) -> None:
    params = hello_params()
    first = await ground.open()
    challenge = first.events[0]["payload"]
    signed = {**params, "device": device.claim(params, challenge["nonce"], challenge["ts"])}
    assert (await first.ask("connect", signed))["ok"]
    second = await ground.open()
    error = await second.refused("connect", signed)
    assert error["message"] == "device nonce mismatch"
    assert error["details"]["code"] == "DEVICE_AUTH_NONCE_MISMATCH"


@pytest.mark.parametrize(
    ("change", "code"),
    [
        ({"signedAt": 1_000}, "DEVICE_AUTH_SIGNATURE_EXPIRED"),
        ({"nonce": ""}, "DEVICE_AUTH_NONCE_REQUIRED"),
        ({"signature": "AAAA"}, "DEVICE_AUTH_SIGNATURE_INVALID"),
        ({"id": "ab" * 32}, "DEVICE_AUTH_DEVICE_ID_MISMATCH"),
        ({"publicKey": Device().public_key}, "DEVICE_AUTH_DEVICE_ID_MISMATCH"),
    ],
)
async def test_a_stale_or_foreign_signature_is_refused(
    ground: Ground, device: Device, change: dict[str, Any], code: str
) -> None:
    peer, frame = await ground.shake(hello_params(), device, change=lambda c: c.update(change))
    assert frame["error"]["details"]["code"] == code
    assert (await closed(peer))[0] == 1008
    assert ground.gateway.devices.paired() == []


async def test_a_device_from_elsewhere_waits_for_approval(device: Device) -> None:
    settings = {"trustedProxies": [PROXY]}
    async with serve({"gateway": settings}) as ground:
        owner, headers = Device(), {"X-Forwarded-For": "203.0.113.5"}
        desk = await ground.join(device=owner)
        params = hello_params(["operator.read"])
        peer, frame = await ground.shake(params, device, headers=headers)
        error = frame["error"]
        assert error["code"] == "NOT_PAIRED"
        assert error["message"] == "pairing required: device is not approved yet"
        request = error["details"].pop("requestId")
        assert error["details"] == {
            "code": "PAIRING_REQUIRED",
            "reason": "not-paired",
            "deviceId": device.id,
            "requestedRole": "operator",
            "requestedScopes": ["operator.read"],
        }
        assert (await closed(peer))[0] == 1008
        event = await desk.until(lambda each: each.get("event") == "device.pair.requested")
        assert event["payload"]["requestId"] == request
        assert event["payload"]["remoteIp"] == "203.0.113.5"
        _, frame = await ground.shake(params, device, headers=headers)
        assert frame["error"]["details"]["requestId"] == request
        await desk.call("device.pair.approve", {"requestId": request})
        _, frame = await ground.shake(params, device, headers=headers)
        assert frame["ok"]
        wider = hello_params(["operator.admin"])
        _, frame = await ground.shake(wider, device, headers=headers)
        details = frame["error"]["details"]
        assert details["reason"] == "scope-upgrade"
        assert details["approvedScopes"] == ["operator.read"]
        assert details["approvedRoles"] == ["operator"]


async def test_a_client_behind_a_proxy_is_not_local() -> None:
    async with serve({"gateway": {"trustedProxies": [PROXY]}}) as ground:
        headers = {"X-Forwarded-For": "127.0.0.1"}
        _, frame = await ground.shake(hello_params(), headers=headers)
        assert frame["payload"]["auth"]["scopes"] == []


@pytest.mark.parametrize(
    ("headers", "status"),
    [
        ({"X-Forwarded-For": "127.0.0.1"}, 403),
        ({"Host": "evil.test:18789"}, 403),
        ({"Forwarded": "x"}, 403),
        ({}, 101),
    ],
)
async def test_a_rebound_name_or_a_forged_proxy_gets_no_socket(
    ground: Ground, headers: dict[str, str], status: int
) -> None:
    given = {"Host": f"127.0.0.1:{ground.port}", **headers}
    lines = [f"{name}: {value}\r\n" for name, value in given.items()]
    upgrade = "Connection: Upgrade\r\nUpgrade: websocket\r\nSec-WebSocket-Version: 13\r\n"
    key = "Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n\r\n"
    reader, writer = await asyncio.open_connection("127.0.0.1", ground.port)
    writer.write(f"GET / HTTP/1.1\r\n{''.join(lines)}{upgrade}{key}".encode())
    first = await asyncio.wait_for(reader.readline(), 5)
    writer.close()
    assert int(first.split()[1]) == status


@pytest.mark.parametrize(
    "origin", ["http://evil.test", "http://localhost.evil.test:18789", "file://", "null"]
)
async def test_a_foreign_page_cannot_use_a_valid_token(ground: Ground, origin: str) -> None:
    params = hello_params(client=("openclaw-control-ui", "webchat"))
    with pytest.raises(InvalidStatus, match="403"):
        await ground.shake(params, headers={"Origin": origin})


async def test_the_own_page_may_connect(ground: Ground, device: Device) -> None:
    params = hello_params(client=("openclaw-control-ui", "webchat"))
    _, frame = await ground.shake(params, device, headers={"Origin": ground.http}, version="v2")
    assert frame["ok"]


async def test_ten_wrong_secrets_lock_an_address_out() -> None:
    limit = {"maxAttempts": 3, "exemptLoopback": False, "lockoutMs": 60_000}
    config = {"gateway": {"auth": {"token": TOKEN, "rateLimit": limit}}}
    async with serve(config) as ground:
        for _ in range(3):
            _, frame = await ground.shake(hello_params(auth={"token": "guess"}))
            assert frame["error"]["details"]["code"] == "AUTH_TOKEN_MISMATCH"
        _, frame = await ground.shake(hello_params())
        error = frame["error"]
        assert error["details"]["code"] == "AUTH_RATE_LIMITED"
        assert error["retryable"] is True
        assert 0 < error["retryAfterMs"] <= 60_000


async def test_this_machine_is_slowed_down_and_not_locked_out(ground: Ground) -> None:
    loop = asyncio.get_running_loop()
    before = loop.time()
    for _ in range(2):
        await ground.shake(hello_params(auth={"token": "guess"}))
    assert loop.time() - before >= 0.7
    await ground.join()


async def test_the_number_of_silent_connections_per_address_is_limited(ground: Ground) -> None:
    silent = [await ground.open() for _ in range(33)]
    with pytest.raises(ConnectionClosed):
        await silent[0].receive()
    assert len(ground.gateway.waiting.addresses) == 32
    await ground.join()


async def test_without_its_devices_the_gateway_lets_no_device_in(
    ground: Ground, device: Device
) -> None:
    path = ground.gateway.devices._database.path
    ground.gateway.devices.close()
    with open(path, "wb") as file:
        file.write(b"damaged" * 1_000)
    peer = await ground.open()
    challenge, params = peer.events[0]["payload"], hello_params()
    claim = device.claim(params, challenge["nonce"], challenge["ts"])
    await peer.send("connect", {**params, "device": claim})
    assert (await closed(peer))[0] == 1011


async def test_a_silent_connection_ends(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(protocol, "HELLO_S", 0.2)
    async with serve({}) as ground:
        assert await closed(await ground.open()) == (1008, "handshake timeout")


async def test_mode_none_wants_a_device_or_a_backend_on_this_machine(device: Device) -> None:
    async with serve({"gateway": {"auth": {"mode": "none"}}}) as ground:
        _, frame = await ground.shake(hello_params(auth={}))
        assert frame["error"]["code"] == "NOT_PAIRED"
        assert frame["error"]["details"]["code"] == "DEVICE_IDENTITY_REQUIRED"
        assert (await ground.join(device=device, auth={})).hello["auth"]["method"] == "none"
        backend = await ground.join(client=("gateway-client", "backend"), auth={})
        assert await backend.call("health")
