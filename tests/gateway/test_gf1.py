"""What strangers could use up or pretend: proxies, slots, sockets, long texts, bad settings."""

from __future__ import annotations

from typing import Any

import pytest
from tests.gateway.conftest import hello_params, serve
from tests.gateway.raw_http import send

from clawkit.errors import ConfigError
from clawkit.gateway.origin import OriginPolicy, locate
from clawkit.gateway.server import app

NEAR_PROXY: dict[str, Any] = {"gateway": {"trustedProxies": ["127.0.0.1"]}}


async def test_a_rebound_name_is_refused_from_the_address_of_a_proxy_too() -> None:
    async with serve(NEAR_PROXY) as ground:
        host = f"evil.test:{ground.port}"
        page = {"Host": host, "Origin": f"http://{host}"}
        assert (await send(ground, "POST", "/tools/invoke", {"tool": "ls"}, page)).status == 403
        assert (await send(ground, "GET", "/healthz", headers={"Host": host})).status == 403
    policy = OriginPolicy(trusted_proxies=("127.0.0.1",))
    headers = {"host": ["claw.example.org"], "x-forwarded-for": ["203.0.113.5"]}
    assert not locate(policy, "127.0.0.1", headers).refused


async def test_nothing_from_the_address_of_a_proxy_is_local() -> None:
    async with serve(NEAR_PROXY) as ground:
        _, frame = await ground.shake(hello_params())
        assert frame["payload"]["auth"]["scopes"] == []


def test_without_authentication_there_may_be_no_proxy() -> None:
    with pytest.raises(ConfigError, match="trustedProxies"):
        app({"gateway": {"auth": {"mode": "none"}, "trustedProxies": ["10.0.0.1"]}})
