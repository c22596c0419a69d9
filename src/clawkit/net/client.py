"""The one HTTP client: requests, answers in pieces, and connections that are used again."""

from __future__ import annotations

import asyncio
import re
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field, replace
from functools import lru_cache
from urllib.parse import urljoin

from clawkit.net.addresses import Target, env_proxy, parse_proxy, parse_url
from clawkit.net.connect import open_connection, system_resolve
from clawkit.net.http1 import Head, HttpConnection, Line
from clawkit.net.response import Response
from clawkit.net.route import DIRECT, NetError, Proxy, Resolve, Route, Timeouts, Tls

__all__ = ["Client", "NetError", "Proxy", "Resolve", "Response", "Route", "Tls", "env_proxy"]

_REDIRECTS = frozenset({301, 302, 303, 307, 308})
_CLOSE_S = 5
"""Longest wait for the sockets of a closed client; they close at once unless the loop is stuck."""
_METHOD = re.compile(r"[A-Z]{3,20}", re.ASCII)
_HEADER_NAME = re.compile(r"[!#$%&'*+.^_`|~0-9A-Za-z-]+", re.ASCII)
_CONTROL = re.compile(r"[\x00-\x08\x0a-\x1f\x7f]")
# They say how a message is carried, which is not for the caller to decide.
_OURS = frozenset(
    (
        *("connection", "content-length", "expect", "host", "keep-alive", "proxy-authorization"),
        *("proxy-connection", "te", "trailer", "transfer-encoding", "upgrade"),
    )
)
# All that another origin gets to see; everything else may be a credential.
_HARMLESS = frozenset(
    (
        *("accept", "accept-encoding", "accept-language", "cache-control", "content-type"),
        *("range", "user-agent"),
    )
)
_HAVE_BODY = frozenset({"PATCH", "POST", "PUT"})


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
        max_redirects: int = 0,
    ) -> AsyncIterator[Response]:
        """Send a request; the body of the answer is read inside the `async with`.

        `timeout_s` is for the whole request including the body, `idle_s` the longest silence
        between two pieces of the body. Leaving before the body has come closes the connection.
        A redirect is an answer like others, or followed up to `max_redirects` times. Entering and
        reading raise `NetError`.
        """
        limits = Timeouts(timeout_s, connect_s, idle_s)
        until = asyncio.get_running_loop().time() + timeout_s
        request = HttpRequest.of(method, url, headers, body)
        for _ in range(max_redirects + 1):
            connection, head = await self._ask(request, route, limits, until)
            location = head.headers.get("location")
            if not max_redirects or location is None or head.status not in _REDIRECTS:
                break
            self._release(connection, keep=False)
            request = request.redirected(head.status, location)
        else:
            problem = f"more than {max_redirects} redirects, the last to {request.target.place}"
            raise NetError("protocol", problem)
        response = Response(head, request.url, connection, limits, until, self._release)
        try:
            yield response
        except BaseException:
            response.leave(keep=False)
            raise
        response.leave(keep=True)

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

    async def _ask(
        self, request: HttpRequest, route: Route, limits: Timeouts, until: float
    ) -> tuple[HttpConnection, Head]:
        """The beginning of the answer, and the connection on which the rest follows."""
        path, lines = request.path(route), request.lines(route)
        connection = self._reuse(request.target, route)
        is_reused = connection is not None
        while True:
            if connection is None:
                connection = await self._open(request.target, route, limits, until)
            try:
                connection.send(request.method, path, lines, request.body)
                return connection, await connection.head(until, limits.timeout_s)
            except BaseException as error:
                is_stale = connection.is_stale
                self._release(connection, keep=False)
                # Servers close what was not used for a while, perhaps just now: ask once more.
                if not (is_reused and is_stale and isinstance(error, NetError)):
                    raise
                connection, is_reused = None, False

    def _reuse(self, target: Target, route: Route) -> HttpConnection | None:
        """An open connection that is free."""
        key = (*target.origin, route)
        for connection in [each for each in reversed(self._idle) if each.key == key]:
            self._idle.remove(connection)
            if connection.is_quiet:
                connection.keep_open()
                self._busy.add(connection)
                return connection
            connection.close()
        return None

    async def _open(
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

    def _release(self, connection: HttpConnection, keep: bool) -> None:
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


@dataclass(frozen=True, slots=True)
class HttpRequest:
    """One request to one target, as it goes out."""

    method: str
    target: Target = field(repr=False)
    headers: Mapping[str, str] = field(repr=False)
    body: bytes = field(repr=False)

    @classmethod
    def of(cls, method: str, url: str, headers: Mapping[str, str], body: bytes) -> HttpRequest:
        """Raises `NetError` for what cannot be sent as it is."""
        if not _METHOD.fullmatch(method) or method in ("CONNECT", "TRACE"):
            raise NetError("refused", "clawkit does not send requests with this method")
        return cls(method, parse_url(url), headers, body)

    @property
    def url(self) -> str:
        return f"{self.target.scheme}://{self.target.authority}{self.target.path}"

    def path(self, route: Route) -> str:
        """What the request line names: through a proxy without a tunnel, the whole URL."""
        is_whole = route.proxy is not None and self.target.scheme == "http"
        return self.url if is_whole else self.target.path

    def lines(self, route: Route) -> list[Line]:
        """All headers, as they are sent. Raises `NetError` for those that must not be."""
        lines = [(b"Host", self.target.authority.encode("ascii"))]
        seen = set()
        for name, value in self.headers.items():
            key, sent = _name(name)
            if key in seen:
                raise _bad(name, "is given twice")
            seen.add(key)
            lines.append((sent, _value(name, value)))
        if "accept-encoding" not in seen:
            lines.append((b"Accept-Encoding", b"identity"))
        if self.body or self.method in _HAVE_BODY:
            lines.append((b"Content-Length", b"%d" % len(self.body)))
        if route.proxy is not None and self.target.scheme == "http":
            _, credentials = parse_proxy(route.proxy.url)
            if credentials:
                lines.append((b"Proxy-Authorization", credentials.encode("ascii")))
        return lines

    def redirected(self, status: int, location: str) -> HttpRequest:
        """The request for where a redirect points to, without credentials on another origin."""
        try:
            target = parse_url(urljoin(self.url, location))
        except (NetError, ValueError):
            problem = f"{self.target.place} redirects to a URL that clawkit does not use"
            raise NetError("refused", problem) from None
        if self.target.scheme == "https" and target.scheme == "http":
            problem = f"{self.target.place} redirects from https to plain http on {target.host}"
            raise NetError("refused", problem)
        request = replace(self, target=target)
        if target.origin != self.target.origin:
            request = request._with_headers(lambda name: name in _HARMLESS)
        is_form = status in (301, 302) and self.method == "POST"
        if is_form or (status == 303 and self.method not in ("GET", "HEAD")):
            request = replace(request, method="GET", body=b"")
            request = request._with_headers(lambda name: not name.startswith("content-"))
        return request

    def _with_headers(self, keep: Callable[[str], bool]) -> HttpRequest:
        headers = {name: value for name, value in self.headers.items() if keep(name.lower())}
        return replace(self, headers=headers)


@lru_cache(maxsize=256)
def _name(name: str) -> tuple[str, bytes]:
    """A header's name to compare by, and as it is sent."""
    if not _HEADER_NAME.fullmatch(name):
        raise NetError("refused", "a header has a name that cannot be sent")
    if name.lower() in _OURS:
        raise _bad(name, "is set by clawkit itself")
    return name.lower(), name.encode("ascii")


def _value(name: str, value: str) -> bytes:
    if not (value.isascii() and value.isprintable()):
        if _CONTROL.search(value):
            raise _bad(name, "has a line break or another control character in its value")
        if max(value) > "\xff":
            raise _bad(name, "has characters in its value that HTTP cannot carry")
    return value.strip(" \t").encode("latin-1")


def _bad(name: str, problem: str) -> NetError:
    # Never the value: it may be a credential.
    return NetError("refused", f"the header {name} {problem}")
