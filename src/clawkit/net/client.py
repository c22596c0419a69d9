"""The HTTP client: requests, streamed responses, and connection reuse."""

from __future__ import annotations

import asyncio
import re
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from functools import lru_cache
from typing import TYPE_CHECKING

from clawkit.net.addresses import Target, env_proxy, parse_proxy, parse_url
from clawkit.net.response import Response
from clawkit.net.route import DIRECT, NetError, Proxy, Resolve, Route, Timeouts, Tls

if TYPE_CHECKING:
    from clawkit.net.http1 import HttpConnection, Line

__all__ = ["Client", "NetError", "Proxy", "Resolve", "Response", "Route", "Tls", "env_proxy"]

_CLOSE_S = 5
"""Maximum wait for the sockets of a closed client; normally they close immediately."""
_METHOD = r"[A-Z]{3,20}"
_HEADER_NAME = r"[!#$%&'*+.^_`|~0-9A-Za-z-]+"
_CONTROL = r"[\x00-\x08\x0a-\x1f\x7f]"
# Headers about the transport, which callers must not set.
_OURS = frozenset(
    (
        *("connection", "content-length", "expect", "host", "keep-alive", "proxy-authorization"),
        *("proxy-connection", "te", "trailer", "transfer-encoding", "upgrade"),
    )
)
_HAVE_BODY = frozenset({"PATCH", "POST", "PUT"})


class Client:
    """Keeps connections open for reuse; one per process or run, and for one event loop."""

    def __init__(
        self, *, max_idle: int = 8, idle_s: float = 30, resolve: Resolve | None = None
    ) -> None:
        """Keeps at most `max_idle` unused connections, each for `idle_s`."""
        self._max_idle = max_idle
        self._idle_s = idle_s
        self._resolve = resolve
        self.on_sent: Callable[[], None] = lambda: None
        """Called when a request was sent, before its answer arrives."""
        self._idle: list[HttpConnection] = []
        """Most recently used last."""
        self._busy: set[HttpConnection] = set()
        self._is_closed = False

    @asynccontextmanager
    async def stream(
        self,
        method: str,
        url: str,
        *,
        headers: Mapping[str, str],
        body: bytes = b"",
        route: Route = DIRECT,
        timeout_s: float = 600,
        connect_s: float = 15,
        idle_s: float | None = None,
    ) -> AsyncIterator[Response]:
        """Send a request; read the body of the response inside the `async with`.

        `timeout_s` is for the whole request including the body, `idle_s` the maximum silence before
        the answer and between two pieces of its body. Leaving before the body is complete closes
        the connection. Redirects are not followed. Entering and reading raise `NetError`.
        """
        if not re.fullmatch(_METHOD, method) or method in ("CONNECT", "TRACE"):
            raise NetError("refused", "clawkit does not send requests with this method")
        until = asyncio.get_running_loop().time() + timeout_s
        limits = Timeouts(timeout_s, connect_s, idle_s, until)
        target = parse_url(url)
        lines = _lines(method, target, headers, body)
        path = target.path
        if route.proxy is not None and target.scheme == "http":
            # Without a tunnel, the proxy gets the whole URL.
            path = f"http://{target.authority}{path}"
            if credentials := parse_proxy(route.proxy.url)[1]:
                lines.append((b"Proxy-Authorization", credentials.encode("ascii")))
        connection = self._reuse(target, route)
        is_reused = connection is not None
        while True:
            if connection is None:
                connection = await self._open(target, route, limits)
            try:
                connection.send(method, path, lines, body)
                self.on_sent()
                status, found = await connection.head(limits)
                break
            except BaseException as error:
                is_stale = connection.is_stale
                self._release(connection, keep=False)
                # The server may have closed an idle connection at this moment: retry once.
                if not (is_reused and is_stale and isinstance(error, NetError)):
                    raise
                connection, is_reused = None, False
        response = Response(status, found, connection, limits, self._release)
        try:
            yield response
        except BaseException:
            response.leave(keep=False)
            raise
        response.leave(keep=True)

    async def close(self) -> None:
        """Close all connections, including those in use."""
        self._is_closed = True
        connections = [*self._idle, *self._busy]
        self._idle.clear()
        self._busy.clear()
        for connection in connections:
            connection.close()
        if connections:
            await asyncio.wait([connection.gone for connection in connections], timeout=_CLOSE_S)

    def _reuse(self, target: Target, route: Route) -> HttpConnection | None:
        """An idle connection to the target."""
        key = (*target.origin, route)
        for connection in [each for each in reversed(self._idle) if each.key == key]:
            self._idle.remove(connection)
            if connection.is_quiet:
                connection.keep_open()
                self._busy.add(connection)
                return connection
            connection.close()
        return None

    async def _open(self, target: Target, route: Route, limits: Timeouts) -> HttpConnection:
        # Imported here, because it loads the HTTP parsers.
        from clawkit.net.connect import open_connection

        connected_until = asyncio.get_running_loop().time() + limits.connect_s
        until, limit_s = min((limits.until, limits.timeout_s), (connected_until, limits.connect_s))
        self._check_open()
        connection = await open_connection(target, route, self._resolve, until, limit_s)
        connection.key = (*target.origin, route)
        try:
            self._check_open()
        except NetError:  # the client was closed in the meantime
            connection.close()
            raise
        self._busy.add(connection)
        return connection

    def _check_open(self) -> None:
        if self._is_closed:
            raise NetError("closed", "the client is closed")

    def _release(self, connection: HttpConnection, keep: bool) -> None:
        """Take a connection back, and keep it for the next request if possible."""
        self._busy.discard(connection)
        if not keep or self._is_closed or self._max_idle < 1 or not connection.can_be_kept:
            connection.close()
            return
        connection.close_after(self._idle_s)
        alive = [*(each for each in self._idle if each.is_quiet), connection]
        kept = alive[-self._max_idle :]
        for each in {*self._idle, *alive}.difference(kept):
            each.close()
        self._idle = kept


def _lines(method: str, target: Target, headers: Mapping[str, str], body: bytes) -> list[Line]:
    """All headers as bytes. Raises `NetError` for invalid and forbidden ones."""
    lines = [(b"Host", target.authority.encode("ascii"))]
    seen = set()
    for name, value in headers.items():
        key, sent = _name(name)
        if key in seen:
            raise _bad(name, "is given twice")
        seen.add(key)
        lines.append((sent, _value(name, value)))
    if "accept-encoding" not in seen:
        lines.append((b"Accept-Encoding", b"identity"))
    if body or method in _HAVE_BODY:
        lines.append((b"Content-Length", b"%d" % len(body)))
    return lines


@lru_cache(maxsize=256)
def _name(name: str) -> tuple[str, bytes]:
    """The name of a header in lower case, and as bytes."""
    if not re.fullmatch(_HEADER_NAME, name):
        raise NetError("refused", "a header has an invalid name")
    if name.lower() in _OURS:
        raise _bad(name, "is set by clawkit itself")
    return name.lower(), name.encode("ascii")


def _value(name: str, value: str) -> bytes:
    if not (value.isascii() and value.isprintable()):
        if re.search(_CONTROL, value):
            raise _bad(name, "has a line break or another control character in its value")
        if max(value) > "\xff":
            raise _bad(name, "has characters in its value that HTTP does not allow")
    return value.strip(" \t").encode("latin-1")


def _bad(name: str, problem: str) -> NetError:
    # Never the value: it may be a credential.
    return NetError("refused", f"the header {name} {problem}")
