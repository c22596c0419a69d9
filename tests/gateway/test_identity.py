"""Device identities, against the vector of the protocol."""

from __future__ import annotations

from typing import Any

import msgspec
from tests.gateway.conftest import Device, hello_params
from tests.tables import table

from clawkit.gateway.identity import MAX_SKEW_MS, find_problem, signed_text
from clawkit.gateway.protocol import Connect

SEED = bytes(range(32))
NOW = 1_700_000_000_000


def connect(device: Device, version: str = "v3", **changes: Any) -> Connect:
    params = hello_params(["operator.read"], auth={"token": "t"})
    params["client"]["deviceFamily"] = "Linux "
    claim = device.claim(params, "n", NOW, version)
    if version == "v3":
        claim = {**claim, "signature": vector()}
    return msgspec.convert({**params, "device": {**claim, **changes}}, Connect)


def vector() -> str:
    return "GcV3c-AquulZ6k7d9vVtU-aGFJqHfWifzAQvFKpDaHUaVQmKMxiHicms82Hr_Mr1z59GAgGjremGjBb553PPCw"


def problem(made: Connect, nonce: str = "n", now: int = NOW) -> str | None:
    assert made.device is not None
    return find_problem(made, made.device, nonce, now)


def test_the_vector_of_the_protocol_is_accepted() -> None:
    device = Device(SEED)
    assert device.public_key == "A6EHv_POEL4dcN0Y50vAmWfk1jCbpQ1fHdyGZBJVMbg"
    assert device.id == "56475aa75463474c0285df5dbf2bcab73da651358839e9b77481b2eab107708c"
    made = connect(device)
    assert made.device is not None
    assert signed_text(made, made.device, "v3") == (
        f"v3|{device.id}|cli|cli|operator|operator.read|{NOW}|t|n|linux|linux"
    )
    assert problem(made) is None


def test_the_older_signature_is_accepted_too() -> None:
    assert problem(connect(Device(SEED), "v2")) is None


@table(
    ("changes", "nonce", "now", "expected"),
    [
        ({"publicKey": "AAAA"}, "n", NOW, "DEVICE_AUTH_PUBLIC_KEY_INVALID"),
        ({"publicKey": "not base64!"}, "n", NOW, "DEVICE_AUTH_PUBLIC_KEY_INVALID"),
        ({"publicKey": Device().public_key}, "n", NOW, "DEVICE_AUTH_DEVICE_ID_MISMATCH"),
        ({"id": "0" * 64}, "n", NOW, "DEVICE_AUTH_DEVICE_ID_MISMATCH"),
        ({}, "n", NOW + MAX_SKEW_MS, None),
        ({}, "n", NOW + MAX_SKEW_MS + 1, "DEVICE_AUTH_SIGNATURE_EXPIRED"),
        ({}, "n", NOW - MAX_SKEW_MS - 1, "DEVICE_AUTH_SIGNATURE_EXPIRED"),
        ({"nonce": ""}, "n", NOW, "DEVICE_AUTH_NONCE_REQUIRED"),
        ({}, "other", NOW, "DEVICE_AUTH_NONCE_MISMATCH"),
        ({"signature": ""}, "n", NOW, "DEVICE_AUTH_SIGNATURE_INVALID"),
        ({"signature": "é"}, "n", NOW, "DEVICE_AUTH_SIGNATURE_INVALID"),
        ({"signature": "A" * 86}, "n", NOW, "DEVICE_AUTH_SIGNATURE_INVALID"),
        # The first problem in this order is reported.
        ({"id": "0", "nonce": "", "signature": ""}, "n", 0, "DEVICE_AUTH_DEVICE_ID_MISMATCH"),
        ({"nonce": "", "signature": ""}, "n", 0, "DEVICE_AUTH_SIGNATURE_EXPIRED"),
    ],
)
def test_problems_are_found_in_the_order_of_the_protocol(
    changes: dict[str, Any], nonce: str, now: int, expected: str | None
) -> None:
    assert problem(connect(Device(SEED), **changes), nonce, now) == expected


@table("field", ["role", "scopes", "auth", "client"])
def test_a_signature_covers_what_the_client_asks_for(field: str) -> None:
    others: dict[str, Any] = {
        "role": "node",
        "scopes": ["operator.admin"],
        "auth": {"token": "u"},
        "client": {"id": "cli", "version": "1", "platform": "mac", "mode": "cli"},
    }
    params = hello_params(["operator.read"], auth={"token": "t"})
    device = Device(SEED)
    claim = device.claim(params, "n", NOW)
    made = msgspec.convert({**params, field: others[field], "device": claim}, Connect)
    assert problem(made) == "DEVICE_AUTH_SIGNATURE_INVALID"
