"""Sends the outcome of a run to a web address."""

from __future__ import annotations

from typing import Any

import msgspec

from clawkit.config.sections.shared import SsrfPolicy
from clawkit.errors import ToolError
from clawkit.net.client import Client
from clawkit.net.route import NetError, Route
from clawkit.net.url_guard import UrlGuard

TIMEOUT_S = 15.0


def route_to(url: str, policy: SsrfPolicy) -> Route:
    """The route to an address. Raises `ToolError` if it is not allowed."""
    try:
        return UrlGuard(policy, "cron.webhookSsrfPolicy").route(url)
    except NetError as error:
        raise ToolError(f"{url}: {error}") from None


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
        raise ToolError(f"the webhook cannot be reached: {error}") from None
    finally:
        await client.close()
