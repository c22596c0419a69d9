"""The safety cases about the gateway, against a real one."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from tests.gateway.conftest import Device, hello_params, serve
from tests.gateway.raw_http import send
from websockets.exceptions import InvalidStatus

from clawkit.errors import ConfigError
from clawkit.gateway import app

FILE = Path(__file__).parent.parent / "corpus" / "safety.jsonl"
CASES = {
    case["id"]: case["input"]
    for line in FILE.read_text(encoding="ascii").splitlines()
    for case in [json.loads(line)]
    # The others are about the tool `gateway`: test_tool_control.py.
    if case["area"] == "gateway" and "tool" not in case["input"]
}
CONFIG: dict[str, Any] = {"gateway": {"auth": {"mode": "token", "token": "T0KEN"}}}


def named(kind: str) -> pytest.MarkDecorator:
    ids = [id_ for id_, given in CASES.items() if kind in given]
    return pytest.mark.parametrize("case", ids)


def test_every_case_is_run() -> None:
    kinds = {next(kind for kind in given if kind != "callerScopes") for given in CASES.values()}
    assert kinds == {"ws", "http", "rpc", "config"}
    assert len(CASES) == 12


@named("ws")
async def test_a_connection_that_must_be_blocked(case: str) -> None:
    given = CASES[case]["ws"]
    async with serve(CONFIG) as ground:
        # Once as it is, and once as a client that the gateway knows.
        client = {
            "id": "openclaw-control-ui",
            "version": "1",
            "platform": "linux",
            "mode": "webchat",
        }
        for params in (given["connect"], {**hello_params(), **given["connect"], "client": client}):
            try:
                _, frame = await ground.shake(params, headers=given["headers"])
            except InvalidStatus:
                continue
            assert frame["ok"] is False


@named("http")
async def test_a_request_that_must_be_blocked(case: str) -> None:
    given = CASES[case]["http"]
    async with serve(CONFIG) as ground:
        body = given.get("body", "").encode()
        found = await send(
            ground, given["method"], given["path"], body, given["headers"], login=False
        )
        assert found.status in (400, 401, 403, 404)
        assert ground.gateway.live._open == {}


@named("rpc")
async def test_a_call_that_must_be_blocked(case: str) -> None:
    given = CASES[case]
    async with serve(CONFIG) as ground:
        device = Device()
        peer = await ground.join(given["callerScopes"], device, auth={"token": "T0KEN"})
        error = await peer.refused(given["rpc"], {"deviceId": device.id, **given["params"]})
        assert error["code"] == "FORBIDDEN"


@named("config")
def test_a_configuration_that_must_be_refused(case: str) -> None:
    with pytest.raises(ConfigError):
        app(CASES[case]["config"])
