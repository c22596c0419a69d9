"""Logins that are left to a proxy."""

from __future__ import annotations

import asyncio
from contextlib import closing
from http.client import HTTPConnection
from typing import Any

import pytest
from tests.gateway.conftest import PROXY, TOKEN, Device, hello_params, serve

from clawkit.errors import ConfigError
from clawkit.gateway.server import app

USER = {"userHeader": "X-User", "requiredHeaders": ["X-Verified"], "allowLoopback": True}
CONFIG: dict[str, Any] = {
    "gateway": {
        "auth": {"mode": "trusted-proxy", "token": TOKEN, "trustedProxy": USER},
        "trustedProxies": [PROXY],
    }
}
HEADERS = {"X-Forwarded-For": "203.0.113.5", "X-User": "ada", "X-Verified": "yes"}


async def test_a_user_of_the_proxy_logs_in_and_the_owner_approves_the_device(
    device: Device,
) -> None:
    async with serve(CONFIG) as ground:
        params = hello_params(["operator.read"], client=("webchat", "webchat"), auth={})
        _, frame = await ground.shake(params, device, headers=HEADERS)
        assert frame["error"]["code"] == "NOT_PAIRED"
        owner = await ground.join()
        request = frame["error"]["details"]["requestId"]
        await owner.call("device.pair.approve", {"requestId": request})
        peer, frame = await ground.shake(params, device, headers=HEADERS)
        assert frame["payload"]["auth"]["method"] == "trusted-proxy"
        assert (await peer.call("health"))["ok"]
        stranger = {"X-Forwarded-For": "203.0.113.5", "X-Verified": "yes"}
        for auth in ({}, {"token": TOKEN}):
            _, frame = await ground.shake({**params, "auth": auth}, device, headers=stranger)
            assert frame["error"]["details"]["code"] == "AUTH_TRUSTED_PROXY_REJECTED"


async def test_tailscale_names_the_users_of_the_tailnet_and_no_one_else(device: Device) -> None:
    login = {
        "userHeader": "Tailscale-User-Login",
        "allowUsers": ["ada@example.org"],
        "allowLoopback": True,
    }
    auth = {"mode": "trusted-proxy", "token": TOKEN, "trustedProxy": login, "allowTailscale": True}
    params = hello_params(["operator.read"], client=("webchat", "webchat"), auth={})
    through = {"X-Forwarded-For": "100.64.0.7", "X-Forwarded-Proto": "https"}
    named = {**through, "Tailscale-User-Login": "ada@example.org", "Tailscale-User-Name": "Ada"}
    refused = (
        through,  # from the internet, through Funnel
        {**named, "Tailscale-User-Login": "eve@example.org"},
        {**through, "Tailscale-User-Name": "ada@example.org"},
    )
    async with serve({"gateway": {"auth": auth, "trustedProxies": [PROXY]}}) as ground:
        _, frame = await ground.shake(params, device, headers=named)
        assert frame["error"]["code"] == "NOT_PAIRED"  # who she is is known, her device is not
        for headers in refused:
            _, frame = await ground.shake(params, device, headers=headers)
            assert frame["error"]["details"]["code"] == "AUTH_TRUSTED_PROXY_REJECTED"
    # With a token, no header of Tailscale replaces it.
    auth = {"mode": "token", "token": TOKEN, "allowTailscale": True}
    async with serve({"gateway": {"auth": auth, "trustedProxies": [PROXY]}}) as ground:
        _, frame = await ground.shake(params, device, headers=named)
        assert frame["error"]["details"]["code"] == "AUTH_TOKEN_MISSING"


async def test_over_http_the_token_is_for_this_machine() -> None:
    async with serve(CONFIG) as ground:
        bearer = {"Authorization": f"Bearer {TOKEN}"}

        def get(headers: dict[str, str], source: str) -> int:
            place = ("127.0.0.1", ground.port)
            made = HTTPConnection(*place, timeout=10, source_address=(source, 0))
            with closing(made) as connection:
                connection.request("GET", "/metrics", headers=headers)
                return connection.getresponse().status

        assert await asyncio.to_thread(get, bearer, "127.0.0.1") == 200
        assert await asyncio.to_thread(get, {**bearer, **HEADERS}, PROXY) == 401
        assert await asyncio.to_thread(get, HEADERS, PROXY) == 401


@pytest.mark.parametrize("proxies", [[], ["nonsense"]])
def test_it_needs_a_proxy(proxies: list[str]) -> None:
    gateway = {**CONFIG["gateway"], "trustedProxies": proxies}
    with pytest.raises(ConfigError, match=r"[Pp]rox"):
        app({"gateway": gateway})
