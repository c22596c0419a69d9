"""Requests to URLs chosen by models or pages: policy and redirects."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager, suppress
from typing import TYPE_CHECKING, NamedTuple
from urllib.parse import urljoin

import msgspec

from clawkit.net.addresses import (
    RANGE_SETTINGS,
    ParsedUrl,
    env_proxy,
    is_listed,
    kind_of_name,
    parse_url,
)
from clawkit.net.client import Client, Response
from clawkit.net.route import NetError, Route

if TYPE_CHECKING:
    from clawkit.config.sections.shared import SsrfPolicy

HARMLESS = frozenset({"accept", "accept-encoding", "accept-language", "user-agent"})
"""Headers that follow a redirect to another origin."""
_REDIRECTS = frozenset({301, 302, 303, 307, 308})
_LOCAL_NAMES = ("*.localhost", "*.local", "*.internal", "localhost", "localhost.localdomain")
# Ports of other protocols that could misinterpret a request; browsers refuse them.
_OTHERS = """
1 7 9 11 13 15 17 19 20 21 22 23 25 37 42 43 53 69 77 79 87 95 101 102 103 104 109 110 111 113 115
117 119 123 135 137 139 143 161 179 389 427 465 512 513 514 515 526 530 531 532 540 548 554 556 563
587 601 636 989 990 993 995 1719 1720 1723 2049 3659 4045 4190 5060 5061 6000 6566 6665 6666 6667
6668 6669 6679 6697 10080
"""
BAD_PORTS = frozenset(map(int, _OTHERS.split()))


class UrlGuard(msgspec.Struct, frozen=True):
    """Decides which URLs chosen by others are allowed."""

    policy: SsrfPolicy
    setting: str
    """The policy's path in the configuration, for messages."""
    plain: bool = False
    """Whether public hosts may be reached by plain http."""
    env: Mapping[str, str] | None = None
    """The variables that name a proxy; None for direct connections. A proxy resolves names itself,
    so only literal addresses in URLs are checked."""

    def route(self, url: str) -> Route:
        """The route to a URL. Raises `NetError` if it is refused regardless of its address."""
        target, policy, setting = parse_url(url), self.policy, self.setting
        host = target.host
        if target.port in BAD_PORTS:
            raise _refused(target, "this port belongs to another protocol")
        if is_listed(host, policy.blocked_hostnames):
            raise _refused(target, f"{setting}.blockedHostnames lists it")
        if policy.hostname_allowlist and not is_listed(host, policy.hostname_allowlist):
            raise _refused(target, f"{setting}.hostnameAllowlist does not list it")
        is_named = is_listed(host, policy.allowed_hostnames)
        is_open = policy.dangerously_allow_private_network or is_named
        is_local = kind_of_name(host) != "metadata" and is_listed(host, _LOCAL_NAMES)
        if is_local and not is_open:
            raise _refused(target, f"a local name; {setting}.allowedHostnames can allow it")
        networks = {
            "allowRfc2544BenchmarkRange": policy.allow_rfc2544_benchmark_range,
            "allowIpv6UniqueLocalRange": policy.allow_ipv6_unique_local_range,
        }
        return Route(
            loopback=is_open,
            private=is_open,
            plain=self.plain,
            networks=tuple(text for text, name in RANGE_SETTINGS.items() if networks[name]),
            policy=setting,
            proxy=None if self.env is None else env_proxy(url, self.env),
        )


class Arrival(NamedTuple):
    """The answer after all redirects."""

    response: Response
    url: str
    """The final URL."""
    was_downgraded: bool
    """Whether a redirect led from https to plain http."""


@asynccontextmanager
async def get_following(
    client: Client,
    guard: UrlGuard,
    url: str,
    *,
    headers: Mapping[str, str],
    max_redirects: int,
    timeout_s: float,
    idle_s: float,
    admit: Callable[[ParsedUrl], Awaitable[str]] | None = None,
) -> AsyncIterator[Arrival]:
    """GET a URL and follow redirects, each checked like the first. `admit` returns why a redirect's
    target is refused; empty if it is not. Entering and reading raise `NetError`; `timeout_s` covers
    everything. Only harmless headers are sent to another origin."""
    loop = asyncio.get_running_loop()
    until = loop.time() + timeout_s
    target = parse_url(url)
    seen, was_downgraded = {target.url}, False
    while True:
        try:
            async with client.stream(
                "GET",
                target.url,
                headers=headers,
                route=guard.route(target.url),
                timeout_s=max(0.001, until - loop.time()),
                idle_s=idle_s,
            ) as response:
                location = response.headers.get("location", "")
                if response.status not in _REDIRECTS or not location:
                    yield Arrival(response, target.url, was_downgraded)
                    return
        except NetError as error:
            after = f"redirected from {parse_url(url).host_port}: " if len(seen) > 1 else ""
            raise NetError(error.kind, f"{after}{error}") from None
        there = _resolve(target, location)
        if there.url in seen:
            why = f"{target.host_port} redirects in a loop; it may need cookies"
            raise NetError("protocol", why)
        if len(seen) > max_redirects:
            why = f"more than {max_redirects} redirects, last {target.host_port}"
            raise NetError("protocol", why)
        if admit is not None and (why := await admit(there)):
            raise _refused(target, f"it redirects to {there.host_port}, {why}")
        seen.add(there.url)
        if there.origin != target.origin:
            headers = {name: text for name, text in headers.items() if name.lower() in HARMLESS}
        was_downgraded = was_downgraded or (target.scheme, there.scheme) == ("https", "http")
        target = there


def _resolve(target: ParsedUrl, location: str) -> ParsedUrl:
    """The target of a redirect. Servers also send UTF-8 and spaces, which are invalid in URLs."""
    with suppress(UnicodeDecodeError):
        location = location.encode("latin-1").decode("utf-8")
    try:
        return parse_url(urljoin(target.url, location.strip().replace(" ", "%20")))
    except (NetError, ValueError) as error:
        why = str(error) if isinstance(error, NetError) else "its address is invalid"
        raise NetError("refused", f"{target.host_port} redirects elsewhere: {why}") from None


def _refused(target: ParsedUrl, why: str) -> NetError:
    return NetError("refused", f"clawkit does not connect to {target.host_port}: {why}")
