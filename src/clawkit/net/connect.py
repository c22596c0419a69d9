"""Open connections. The address that was checked is the one that is used."""

from __future__ import annotations

import asyncio
import errno
import os
import socket
from collections.abc import Sequence
from contextlib import suppress
from ipaddress import IPv4Address, IPv6Address, ip_address

import msgspec

from clawkit.net import addresses
from clawkit.net.http1 import ByteStream, HttpConnection
from clawkit.net.route import NetError, NetErrorKind, Resolve, Route, Timeouts, Tls
from clawkit.net.tls import describe, make_context

_MAX_ADDRESSES = 16
_THIS_MACHINE: tuple[addresses.Address, ...] = (IPv4Address("127.0.0.1"), IPv6Address("::1"))
# The address of a proxy is configured: only addresses that no setting allows are refused.
_TO_PROXY = Route(loopback=True, private=True)
_LATER = (socket.EAI_AGAIN, socket.EAI_SYSTEM)
"""Errors of a resolver that got no answer, as opposed to an unknown name."""
_NOT_LISTENING = (errno.ECONNREFUSED, errno.EADDRNOTAVAIL, errno.ENETUNREACH, errno.EAFNOSUPPORT)
"""Errors if nothing listens, or the address family is not available."""


async def system_resolve(host: str, port: int) -> Sequence[str]:
    found = await asyncio.get_running_loop().getaddrinfo(host, port, type=socket.SOCK_STREAM)
    return [str(address[0]) for *_, address in found]


async def open_socket(address: addresses.Address, port: int) -> socket.socket:
    """A connected, non-blocking socket. Raises OSError."""
    family = socket.AF_INET if address.version == 4 else socket.AF_INET6
    sock = socket.socket(family, socket.SOCK_STREAM | socket.SOCK_NONBLOCK)
    try:
        await asyncio.get_running_loop().sock_connect(sock, (str(address), port))
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    except BaseException:
        sock.close()
        raise
    return sock


async def open_connection(
    target: addresses.ParsedUrl, route: Route, resolve: Resolve | None, until: float, limit_s: float
) -> HttpConnection:
    """Open a connection for requests to the target. Raises `NetError`.

    `until` is the deadline in the loop's time; `limit_s` is the same as a duration, for messages.
    """
    opening = _Opening(ByteStream(), target, resolve or system_resolve, until, limit_s)
    try:
        async with asyncio.timeout_at(until):
            await opening.run(route)
    except TimeoutError:
        opening.stream.close()
        problem = f"no connection to {target.host_port} within {round(limit_s, 2):g} s"
        raise NetError("timeout", problem) from None
    except BaseException:
        opening.stream.close()
        raise
    return HttpConnection(opening.stream, target.host_port)


class _Opening(msgspec.Struct, frozen=True):
    """A connection that is being opened."""

    stream: ByteStream
    target: addresses.ParsedUrl
    resolve: Resolve
    until: float
    limit_s: float

    async def run(self, route: Route) -> None:
        target, proxy = self.target, route.proxy
        encrypted = target.scheme == "https"
        if proxy is None:
            await self._connect(target, route, encrypted=encrypted)
        else:
            kind, network = (
                (addresses.kind_of_name(target.host), "")
                if target.address is None
                else addresses.classify(target.address)
            )
            # A name may resolve to any address that the route allows.
            kind = kind or ("private" if route.private else "public")
            if error := _refused(target.host, kind, network, route, encrypted):
                raise error
            place, credentials = addresses.parse_proxy(proxy.url)
            # A tunnel is encrypted end to end; without one, the connection to the proxy matters.
            is_safe = encrypted or place.scheme == "https"
            await self._connect(place, _TO_PROXY, encrypted=is_safe)
            if place.scheme == "https":
                await _encrypt(self.stream, place, proxy.tls)
            if encrypted:
                await self._open_tunnel(place, credentials)
        if encrypted:
            await _encrypt(self.stream, target, route.tls)

    async def _open_tunnel(self, proxy: addresses.ParsedUrl, credentials: str) -> None:
        target = self.target.host_port
        lines = [(b"Host", target.encode("ascii"))]
        if credentials:
            lines.append((b"Proxy-Authorization", credentials.encode("ascii")))
        connection = HttpConnection(self.stream, f"the proxy {proxy.host_port}")
        connection.send("CONNECT", target, lines, b"")
        status, _ = await connection.head(Timeouts(self.limit_s, self.limit_s, None, self.until))
        if status == 407:
            wanted = "another" if credentials else "a"
            problem = f"requires {wanted} user name and password in its URL"
        elif not 200 <= status < 300:
            problem = f"does not connect to {target}: it answered {status}"
        elif connection.has_leftover:
            problem = f"sent data before {target} could have"
        else:
            return
        raise NetError("connect", f"the proxy {proxy.host_port} {problem}")

    async def _connect(self, url: addresses.ParsedUrl, route: Route, *, encrypted: bool) -> None:
        """Try the allowed addresses in turn, each with its share of the remaining time."""
        is_metadata = addresses.kind_of_name(url.host) == "metadata"
        if is_metadata and (error := _refused(url.host, "metadata", "", route, encrypted)):
            raise error
        allowed, refused = [], []
        for address in await self._addresses(url):
            shown = url.host if address == url.address else f"{url.host} ({address})"
            if error := _refused(shown, *addresses.classify(address), route, encrypted):
                refused.append(error)
            else:
                allowed.append(address)
        if refused and (route.policy or not allowed):
            raise refused[0]
        problem, is_absent, loop = "", True, asyncio.get_running_loop()
        for left, address in zip(range(len(allowed), 0, -1), allowed, strict=True):
            # The last one gets all the remaining time; the caller enforces the deadline.
            share = None if left == 1 else loop.time() + (self.until - loop.time()) / left
            try:
                async with asyncio.timeout_at(share):
                    sock = await open_socket(address, url.port)
                    await loop.create_connection(lambda: self.stream, sock=sock)
                    return
            except OSError as error:
                is_here = addresses.kind_of(address) == "loopback"
                is_absent = is_absent and is_here and error.errno in _NOT_LISTENING
                why = os.strerror(error.errno) if error.errno else "no answer in time"
                problem = problem or f"cannot connect to {url.host_port} ({address}): {why}"
        raise NetError("absent" if is_absent else "connect", problem)

    async def _addresses(self, url: addresses.ParsedUrl) -> Sequence[addresses.Address]:
        if url.address is not None:
            return (url.address,)
        if addresses.kind_of_name(url.host) == "loopback":
            return _THIS_MACHINE
        try:
            texts = await self.resolve(url.host, url.port)
        except OSError as error:
            why = error.strerror or "no answer"
            kind: NetErrorKind = "connect" if error.errno in _LATER else "dns"
            raise NetError(kind, f"cannot resolve {url.host}: {why}") from None
        found: dict[addresses.Address, None] = {}
        for text in texts:
            with suppress(ValueError):
                # Without the zone: link-local addresses are refused anyway.
                found[ip_address(text.partition("%")[0])] = None
        if not found:
            raise NetError("dns", f"{url.host} has no address")
        return list(found)[:_MAX_ADDRESSES]


def _refused(
    shown: str, kind: addresses.Kind, network: str, route: Route, encrypted: bool
) -> NetError | None:
    """The error for an address of this kind; None if it is allowed."""
    why = addresses.refusal(
        kind,
        encrypted=encrypted or route.plain,
        loopback=route.loopback,
        private=route.private or network in route.networks,
        network=network,
        policy=route.policy,
    )
    return NetError("refused", f"clawkit does not connect to {shown}: {why}") if why else None


async def _encrypt(stream: ByteStream, url: addresses.ParsedUrl, tls: Tls) -> None:
    context = make_context(tls)
    problem = "it closed the connection before it was encrypted"
    transport = None
    try:
        if not stream.is_over:
            transport = await asyncio.get_running_loop().start_tls(
                stream.transport, stream, context, server_hostname=tls.server_name or url.host
            )
    except OSError as error:
        problem = describe(error)
    except ValueError:
        problem = "request.tls.serverName is not a host name"
    if transport is None:
        raise NetError("tls", f"no secure connection to {url.host_port}: {problem}")
    stream.transport = transport
