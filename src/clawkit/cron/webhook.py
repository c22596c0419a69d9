"""Sends the outcome of a run to a web address."""

from __future__ import annotations

from typing import Any

import msgspec

from clawkit.config.sections.shared import SsrfPolicy
from clawkit.errors import ToolError
from clawkit.globs import Glob
from clawkit.net.addresses import parse_url
from clawkit.net.client import Client
from clawkit.net.route import NetError, Route

TIMEOUT_S = 15.0


def route_to(url: str, policy: SsrfPolicy) -> Route:
    """How an address may be reached. Raises `ToolError` if it may not."""
    try:
        host = parse_url(url).host
    except NetError as error:
        raise ToolError(f"{url}: {error}") from None
    listed = policy.hostname_allowlist
    if _is_listed(host, policy.blocked_hostnames) or (listed and not _is_listed(host, listed)):
        raise ToolError(f"{host} is not allowed by cron.webhookSsrfPolicy")
    is_open = policy.dangerously_allow_private_network or _is_listed(host, policy.allowed_hostnames)
    return Route(loopback=is_open, private=is_open)


def _is_listed(host: str, entries: list[str]) -> bool:
    return any(Glob(entry.strip().lower()).match(host) for entry in entries)


async def post_outcome(url: str, payload: dict[str, Any], token: str, policy: SsrfPolicy) -> str:
    """POST as JSON; returns a receipt. Redirects are not followed. Raises `ToolError`."""
    route = route_to(url, policy)
    headers = {"Content-Type": "application/json"}
    if token:
        headers["Authorization"] = f"Bearer {token}"
    client = Client()
    try:
        body = msgspec.json.encode(payload)
        async with client.stream(
            "POST", url, headers=headers, body=body, route=route, timeout_s=TIMEOUT_S
        ) as answer:
            if not 200 <= answer.status < 300:
                raise ToolError(f"the webhook answered with HTTP {answer.status}")
            return f"HTTP {answer.status}"
    except NetError as error:
        if error.kind == "refused":
            raise ToolError(f"{error} (cron.webhookSsrfPolicy.allowedHostnames)") from None
        raise ToolError(f"the webhook cannot be reached: {error}") from None
    finally:
        await client.close()
