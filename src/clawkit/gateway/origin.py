"""The origin of a connection: its address behind proxies, and its Host and Origin headers.

A browser lets any page connect to this machine. Two checks keep pages out: the Host header must be
an address or a name of this gateway (which stops DNS rebinding), and an Origin must be that same
host or be allowed explicitly.
"""

from __future__ import annotations

import ipaddress
import re
import socket
from collections.abc import Iterable, Mapping
from typing import Any
from urllib.parse import urlsplit

from msgspec import Struct

from clawkit.config.sections.gateway import TrustedProxy
from clawkit.errors import ConfigError, Issue

MAX_USER = 200
_FORWARDED = ("forwarded", "x-real-ip")
_PREFIXES = ("x-forwarded-", "tailscale-")
_HOST = re.compile(r"(\[[0-9a-fA-F:.]+\]|[A-Za-z0-9._-]+)(?::([0-9]{1,5}))?")
_WITH_PORT = re.compile(r"(?:\[([0-9a-fA-F:.]+)\]|([0-9.]+))(?::[0-9]{1,5})?")
UNTRUSTED = (
    "forwarding headers from an untrusted address; add the proxy's address to "
    "gateway.trustedProxies"
)
BAD_HOST = (
    "unknown Host; use the address of the gateway, or add its origin to "
    "gateway.controlUi.allowedOrigins"
)
NO_TLS = "gateway.tls is enabled, and the connection is not encrypted"
BAD_ORIGIN = "origin not allowed; add it to gateway.controlUi.allowedOrigins"


class RequestOrigin(Struct, frozen=True):
    """Where a request comes from; if `refused` is set, it must not be served."""

    address: str
    is_local: bool = False
    """Whether it is a program on this machine, not behind a proxy."""
    is_browser: bool = False
    refused: str = ""
    bad_origin: bool = False
    user: str = ""
    """The user named by a trusted proxy, if logins are delegated to it."""

    @property
    def who(self) -> str:
        """The identity that limits count. A loopback address from a proxy is not this machine."""
        return "local" if self.is_local else self.address


class OriginPolicy(Struct, frozen=True):
    """The settings that `locate` needs."""

    trusted_proxies: tuple[str, ...] = ()
    allowed_origins: tuple[str, ...] = ()
    names: tuple[str, ...] = ()
    """Names of this machine, in addition to addresses and `localhost`."""
    login: TrustedProxy | None = None
    """How a trusted proxy names its authenticated user, if logins are delegated to proxies. Every
    local program can send such headers, so a local proxy is not trusted unless allowed."""


def check_policy(policy: OriginPolicy) -> None:
    """Refuse settings that no address or page can match. Raises `ConfigError`."""
    proxy = "Use an address such as 10.0.0.1, or a network such as 10.0.0.0/8"
    page = "Use the origin of a page, such as https://claw.example.org; there is no wildcard"
    issues = [
        Issue("gateway.trustedProxies", f"{each[:80]!r} is not an address or a network", hint=proxy)
        for each in policy.trusted_proxies
        if not _is_network(each)
    ]
    issues += [
        Issue("gateway.controlUi.allowedOrigins", f"{each[:80]!r} is not an origin", hint=page)
        for each in policy.allowed_origins
        if not _is_origin(each)
    ]
    if issues:
        raise ConfigError(issues)


def _is_network(text: str) -> bool:
    try:
        ipaddress.ip_network(text, strict=False)
    except ValueError:
        return False
    return True


def _is_origin(text: str) -> bool:
    try:
        parts = urlsplit(text.rstrip("/"))
        is_port = parts.port != 0  # an invalid port raises
    except ValueError:
        return False
    is_exact = text.rstrip("/").lower() == f"{parts.scheme}://{parts.netloc}".lower()
    return is_port and is_exact and bool(parts.scheme) and bool(_HOST.fullmatch(parts.netloc))


def own_names() -> tuple[str, ...]:
    name = socket.gethostname().lower()
    return (name, f"{name}.local") if name else ()


def locate_request(policy: OriginPolicy, scope: Mapping[str, Any]) -> RequestOrigin:
    """Judge a request by its ASGI scope."""
    headers: dict[str, list[str]] = {}
    for name, value in scope["headers"]:
        headers.setdefault(name.decode("latin-1").lower(), []).append(value.decode("latin-1"))
    peer = scope.get("client")
    return locate(policy, peer[0] if peer else "", headers)


def locate(policy: OriginPolicy, peer: str, headers: Mapping[str, list[str]]) -> RequestOrigin:
    """Judge a request by its peer address and its headers, whose names are in lower case."""
    forwarded = any(name in _FORWARDED or name.startswith(_PREFIXES) for name in headers)
    is_proxy = is_within(peer, policy.trusted_proxies)
    if forwarded and not is_proxy:
        return RequestOrigin(peer, refused=UNTRUSTED)
    address = _behind(policy, peer, headers) if forwarded else peer
    is_browser = "origin" in headers
    host = _only(headers, "host")
    # A remote proxy may forward any name. Locally, a browser can forge proxy headers.
    if (not forwarded or is_loopback(peer)) and not _is_own_host(policy, host):
        return RequestOrigin(address, is_browser=is_browser, refused=BAD_HOST)
    bad = is_browser and not _is_own_origin(policy, _only(headers, "origin"), host)
    is_local = not is_proxy and is_loopback(peer)
    return RequestOrigin(
        address, is_local, is_browser, bad_origin=bad, user=find_user(policy, peer, headers)
    )


def find_user(policy: OriginPolicy, peer: str, headers: Mapping[str, list[str]]) -> str:
    """The user authenticated by a trusted proxy; empty if none may log in."""
    login = policy.login
    if login is None or not is_within(peer, policy.trusted_proxies):
        return ""
    if is_loopback(peer) and not login.allow_loopback:
        return ""
    user = _only(headers, (login.user_header or "").lower())
    is_complete = all(_only(headers, each.lower()) for each in login.required_headers)
    is_name = user.isprintable() and 0 < len(user) <= MAX_USER
    is_allowed = login.allow_users is None or user in login.allow_users
    return user if is_complete and is_name and is_allowed else ""


def is_loopback(address: str) -> bool:
    found = _parse(address)
    return found is not None and found.is_loopback


def is_within(address: str, networks: Iterable[str]) -> bool:
    found = _parse(address)
    return found is not None and any(
        _is_network(each) and found in ipaddress.ip_network(each, strict=False) for each in networks
    )


def _parse(address: str) -> ipaddress.IPv4Address | ipaddress.IPv6Address | None:
    try:
        found = ipaddress.ip_address(address.partition("%")[0])
    except ValueError:
        return None
    mapped = found.ipv4_mapped if isinstance(found, ipaddress.IPv6Address) else None
    return mapped or found


def _behind(policy: OriginPolicy, peer: str, headers: Mapping[str, list[str]]) -> str:
    """The client behind the proxies, if all headers agree; else the proxy itself. A header that the
    proxy does not set may be forged by the client."""
    named = {_client(policy, _parts(headers, name)) for name in ("x-forwarded-for", "x-real-ip")}
    named.add(_client(policy, [_for(part) for part in _parts(headers, "forwarded")]))
    named.discard(None)
    only = named.pop() if len(named) == 1 else ""
    return only or peer


def _parts(headers: Mapping[str, list[str]], name: str) -> list[str]:
    return [part.strip() for line in headers.get(name, ()) for part in line.split(",")]


def _for(part: str) -> str:
    """The client in a part of `Forwarded`; empty if there is not exactly one."""
    pairs = [pair.strip().partition("=") for pair in part.split(";")]
    found = [value.strip('"') for name, _, value in pairs if name.lower() == "for"]
    return found[0] if len(found) == 1 else ""


def _client(policy: OriginPolicy, chain: list[str]) -> str | None:
    """The last address that is not a trusted proxy; None if there is none, empty if it is
    invalid."""
    for each in reversed(chain):
        with_port = _WITH_PORT.fullmatch(each)
        address = _parse((with_port[1] or with_port[2]) if with_port else each)
        if address is None:
            return ""
        if not is_within(str(address), policy.trusted_proxies):
            return str(address)
    return None


def _only(headers: Mapping[str, list[str]], name: str) -> str:
    """The value of a header that must not be repeated; empty if it is missing or repeated."""
    found = headers.get(name, [])
    return found[0].strip() if len(found) == 1 else ""


def _is_own_host(policy: OriginPolicy, host: str) -> bool:
    found = _HOST.fullmatch(host)
    if found is None:
        return False
    name = found[1].lower().strip("[]")
    allowed = {urlsplit(origin).hostname for origin in policy.allowed_origins if origin != "*"}
    return _parse(name) is not None or name in ("localhost", *policy.names) or name in allowed


def _is_own_origin(policy: OriginPolicy, origin: str, host: str) -> bool:
    if origin.rstrip("/").lower() in {each.rstrip("/").lower() for each in policy.allowed_origins}:
        return origin != ""
    try:
        parts = urlsplit(origin)
        port = parts.port
    except ValueError:
        return False
    if parts.scheme not in ("http", "https") or not parts.hostname or parts.path.strip("/"):
        return False
    usual = 443 if parts.scheme == "https" else 80
    found = _HOST.fullmatch(host)
    if found is None:
        return False
    mine = found[1].lower().strip("[]"), int(found[2] or usual)
    return mine == (parts.hostname.lower(), port or usual)
