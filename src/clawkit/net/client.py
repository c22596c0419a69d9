"""The one HTTP client: requests, answers in pieces, and connections that are used again."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from contextlib import AbstractAsyncContextManager
from types import TracebackType

from clawkit.net.addresses import Target, env_proxy
from clawkit.net.connect import open_connection, system_resolve
from clawkit.net.http1 import Head, HttpConnection
from clawkit.net.request import HttpRequest
from clawkit.net.response import Response
from clawkit.net.route import DIRECT, NetError, Proxy, Resolve, Route, Timeouts, Tls

__all__ = ["Client", "NetError", "Proxy", "Resolve", "Response", "Route", "Tls", "env_proxy"]

_REDIRECTS = frozenset({301, 302, 303, 307, 308})
_CLOSE_S = 5
"""Longest wait for the sockets of a closed client; they close at once unless the loop is stuck."""


class Client:
    """Keeps connections open for reuse; one per process or run, and for one event loop."""

    def __init__(
        self, *, max_idle: int = 8, idle_s: float = 30, resolve: Resolve | None = None
    ) -> None:
        """At most `max_idle` unused connections are kept, each for `idle_s`."""
        self._max_idle = max_idle
        self._idle_s = idle_s
        self._resolve = resolve or system_resolve
        self._idle: list[HttpConnection] = []
        """The one that was used last comes last."""
        self._busy: set[HttpConnection] = set()
        self._is_closed = False

    def stream(
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
        max_redirects: int = 0,
    ) -> AbstractAsyncContextManager[Response]:
        """Send a request; the body of the answer is read inside the `async with`.

        `timeout_s` is for the whole request including the body, `idle_s` the longest silence
        between two pieces of the body. Leaving before the body has come closes the connection.
        A redirect is an answer like others, or followed up to `max_redirects` times. Entering and
        reading raise `NetError`.
        """
        limits = Timeouts(timeout_s, connect_s, idle_s)
        return _Exchange(self, (method, url, headers, body), route, limits, max_redirects)

    async def close(self) -> None:
        """Close all connections, also those in use."""
        self._is_closed = True
        connections = [*self._idle, *self._busy]
        self._idle.clear()
        self._busy.clear()
        for connection in connections:
            connection.close()
        if connections:
            await asyncio.wait([connection.gone for connection in connections], timeout=_CLOSE_S)

    def reuse(self, target: Target, route: Route) -> HttpConnection | None:
        """An open connection that is free."""
        key = (*target.origin, route)
        for connection in [
            connection for connection in reversed(self._idle) if connection.key == key
        ]:
            self._idle.remove(connection)
            if connection.is_quiet:
                connection.keep_open()
                self._busy.add(connection)
                return connection
            connection.close()
        return None

    async def open(
        self, target: Target, route: Route, limits: Timeouts, until: float
    ) -> HttpConnection:
        """A new connection; `until` is when the whole request must be done."""
        self._check_open()
        limit_s = limits.timeout_s
        connected_until = asyncio.get_running_loop().time() + limits.connect_s
        if connected_until < until:
            until, limit_s = connected_until, limits.connect_s
        connection = await open_connection(target, route, self._resolve, until, limit_s)
        connection.key = (*target.origin, route)
        try:
            self._check_open()
        except NetError:  # it was closed meanwhile
            connection.close()
            raise
        self._busy.add(connection)
        return connection

    def _check_open(self) -> None:
        if self._is_closed:
            raise NetError("closed", "the client is closed")

    def done(self, connection: HttpConnection, keep: bool) -> None:
        """Take a connection back, for the next request if it can be used for that."""
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


class _Exchange(AbstractAsyncContextManager[Response]):
    """One request and its answer, with the redirects between them."""

    def __init__(
        self,
        client: Client,
        request: tuple[str, str, Mapping[str, str], bytes],
        route: Route,
        limits: Timeouts,
        max_redirects: int,
    ) -> None:
        self._client = client
        self._request = request
        self._route = route
        self._limits = limits
        self._max_redirects = max_redirects
        self._response: Response | None = None

    async def __aenter__(self) -> Response:
        until = asyncio.get_running_loop().time() + self._limits.timeout_s
        request = HttpRequest.of(*self._request)
        for _ in range(self._max_redirects + 1):
            connection, head = await self._answer(request, until)
            location = head.headers.get("location")
            if not self._max_redirects or location is None or head.status not in _REDIRECTS:
                done = self._client.done
                self._response = Response(head, request.url, connection, self._limits, until, done)
                return self._response
            self._client.done(connection, False)
            request = request.redirected(head.status, location)
        problem = f"more than {self._max_redirects} redirects, the last to {request.target.place}"
        raise NetError("protocol", problem)

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if self._response is not None:
            self._response.leave(keep=error is None)

    async def _answer(self, request: HttpRequest, until: float) -> tuple[HttpConnection, Head]:
        """The beginning of the answer, and the connection on which the rest follows."""
        path, lines = request.path(self._route), request.lines(self._route)
        connection = self._client.reuse(request.target, self._route)
        is_reused = connection is not None
        while True:
            if connection is None:
                connection = await self._client.open(
                    request.target, self._route, self._limits, until
                )
            try:
                connection.send(request.method, path, lines, request.body)
                return connection, await connection.head(until, self._limits.timeout_s)
            except BaseException as error:
                is_stale = connection.is_stale
                self._client.done(connection, False)
                # Servers close what was not used for a while, perhaps just now: ask once more.
                if not (is_reused and is_stale and isinstance(error, NetError)):
                    raise
                connection, is_reused = None, False
