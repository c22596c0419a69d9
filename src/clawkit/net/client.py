"""The HTTP client: requests, connection reuse, and bodies in bounded, decompressed pieces."""

from __future__ import annotations

import asyncio
import re
import zlib
from collections.abc import Awaitable, Callable, Mapping
from functools import lru_cache, partial
from typing import TYPE_CHECKING, Any

from clawkit.net.addresses import ParsedUrl, parse_proxy, parse_url
from clawkit.net.route import DIRECT, NetError, Resolve, Route, Timeouts, bad_name, bad_value

if TYPE_CHECKING:
    from clawkit.net.http1 import HttpConnection, Line

_CLOSE_S = 5
"""Maximum wait for the sockets of a closed client; normally they close immediately."""
_METHOD = r"[A-Z]{3,20}"
_HAVE_BODY = frozenset({"PATCH", "POST", "PUT"})
_MAX_SKIPPED = 64 * 1024
"""Bytes at the end of a body that are skipped so that the connection can be reused."""


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
        """Called when a request has been sent, before its answer arrives."""
        self._idle: list[HttpConnection] = []
        """Least recently used first."""
        self._busy: set[HttpConnection] = set()
        self._expiry: asyncio.TimerHandle | None = None
        """One timer for all idle connections, because requests are more frequent than
        expirations."""
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
    ) -> Exchange:
        """Send a request; read the body of the response inside the `async with`.

        `timeout_s` is for the whole request including the body, `idle_s` the maximum silence before
        the answer and between two pieces of its body. Leaving before the body is complete closes
        the connection. Redirects are not followed. Both this and reading raise `NetError`.
        """
        now = asyncio.get_running_loop().time()
        target, limits = parse_url(url), Timeouts(timeout_s, connect_s, idle_s, now + timeout_s)
        lines = [*_lines(method, target, tuple(headers.items()))]
        if body or method in _HAVE_BODY:
            lines.append((b"Content-Length", b"%d" % len(body)))
        path = target.path
        if route.proxy is not None and target.scheme == "http":
            # Without a tunnel, the proxy gets the whole URL.
            path = f"http://{target.authority}{path}"
            if credentials := parse_proxy(route.proxy.url)[1]:
                lines.append((b"Proxy-Authorization", credentials.encode("ascii")))
        return Exchange(partial(self._send, target, route, limits, method, path, lines, body))

    async def _send(
        self, target: ParsedUrl, route: Route, limits: Timeouts, *message: Any
    ) -> Response:
        is_reused = (connection := self._reuse(target, route)) is not None
        while True:
            if connection is None:
                connection = await self._open(target, route, limits)
            try:
                connection.send(*message)
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
        return Response(status, found, connection, limits, self._release)

    async def close(self) -> None:
        """Close all connections, including those in use."""
        self._is_closed = True
        if self._expiry is not None:
            self._expiry.cancel()
        connections = [*self._idle, *self._busy]
        self._idle.clear()
        self._busy.clear()
        for connection in connections:
            connection.close()
        if connections:
            await asyncio.wait([connection.closed for connection in connections], timeout=_CLOSE_S)

    def _reuse(self, target: ParsedUrl, route: Route) -> HttpConnection | None:
        key = (*target.origin, route)
        for connection in [each for each in reversed(self._idle) if each.key == key]:
            self._idle.remove(connection)
            if connection.is_quiet:
                self._busy.add(connection)
                return connection
            connection.close()
        return None

    async def _open(self, target: ParsedUrl, route: Route, limits: Timeouts) -> HttpConnection:
        # Imported here, because it loads the HTTP parsers.
        from clawkit.net.connect import open_connection

        connected_until = asyncio.get_running_loop().time() + limits.connect_s
        until, limit_s = min((limits.until, limits.timeout_s), (connected_until, limits.connect_s))
        self._check_open()
        connection = await open_connection(target, route, self._resolve, until, limit_s)
        connection.key = (*target.origin, route)
        if self._is_closed:  # in the meantime
            connection.close()
        self._check_open()
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
        loop = asyncio.get_running_loop()
        connection.idle_since = loop.time()
        self._idle.append(connection)
        if len(self._idle) > self._max_idle:
            worst = next((each for each in self._idle if not each.is_quiet), self._idle[0])
            self._idle.remove(worst)
            worst.close()
        if self._expiry is None:
            self._expiry = loop.call_later(self._idle_s, self._expire)

    def _expire(self) -> None:
        """Close connections that were idle too long, or closed by the other side."""
        loop, self._expiry = asyncio.get_running_loop(), None
        oldest = loop.time() - self._idle_s
        for each in [*self._idle]:
            if each.idle_since <= oldest or not each.is_quiet:
                self._idle.remove(each)
                each.close()
        if self._idle:
            at = self._idle[0].idle_since + self._idle_s
            self._expiry = loop.call_at(at, self._expire)


@lru_cache(maxsize=8)
def _lines(
    method: str, target: ParsedUrl, headers: tuple[tuple[str, str], ...]
) -> tuple[Line, ...]:
    """All headers except those of the body, as bytes. Raises `NetError` for invalid and forbidden
    headers and methods. Cached, because an agent sends the same ones repeatedly."""
    if not re.fullmatch(_METHOD, method) or method in ("CONNECT", "TRACE"):
        raise NetError("refused", "clawkit does not send requests with this method")
    lines = [(b"Host", target.authority.encode("ascii"))]
    seen = set()
    for name, value in headers:
        problem = bad_name(name)
        if why := "it is given twice" if name.lower() in seen else bad_value(value):
            problem = problem or f"the header {name} cannot be sent: {why}"
        if problem:
            raise NetError("refused", problem)
        seen.add(name.lower())
        lines.append((name.encode("ascii"), value.strip(" \t").encode("latin-1")))
    if "accept-encoding" not in seen:
        lines.append((b"Accept-Encoding", b"identity"))
    return tuple(lines)


class Exchange:
    """A request and its response, for an `async with`. Not a generator, for speed."""

    def __init__(self, send: Callable[[], Awaitable[Response]]) -> None:
        self._send = send

    async def __aenter__(self) -> Response:
        self._response = await self._send()
        return self._response

    async def __aexit__(self, kind: type[BaseException] | None, *_: object) -> None:
        self._response.leave(keep=kind is None)


class Response:
    """Status, headers, and a body that is read once."""

    def __init__(
        self,
        status: int,
        headers: Mapping[str, str],
        connection: HttpConnection,
        limits: Timeouts,
        done: Callable[[HttpConnection, bool], None],
    ) -> None:
        """`done` is called once when the connection is free, with whether it may be reused."""
        self.status = status
        self.headers = headers
        """Names in lower case; values of repeated headers are joined by a comma."""
        self._connection = connection
        self._limits = limits
        self._done = done
        self._is_over = False
        coding = headers.get("content-encoding", "").strip().lower()
        self._coding = "" if coding == "identity" else coding
        self._inflater: Inflater | None = None

    def __aiter__(self) -> Response:
        """The decompressed body, in pieces as they arrive."""
        # Not a generator: one that is not exhausted is cleaned up only later, by another task.
        return self

    async def __anext__(self) -> bytes:
        if piece := await self._next():
            return piece
        raise StopAsyncIteration

    async def read(self, max_bytes: int) -> bytes:
        """The body, truncated to `max_bytes`."""
        pieces = []
        left = max_bytes
        while left > 0 and (piece := await self._next()):
            pieces.append(piece[:left])
            left -= len(piece)
        return b"".join(pieces)

    @property
    def has_come(self) -> bool:
        """Whether the whole body has arrived, read or not."""
        return self._is_over or self._connection.is_complete

    def leave(self, *, keep: bool) -> None:
        """Release the connection; with `keep`, it is reused if the rest of the body is here."""
        if self._is_over:
            return
        self._is_over = True
        self._done(self._connection, keep and self._skip_rest())

    async def _next(self) -> bytes:
        """More of the body; empty at its end."""
        try:
            while not self._is_over:
                if self._inflater is not None and (piece := self._inflater.take()):
                    return piece
                data = await self._connection.piece(self._limits)
                if not data:
                    if self._inflater is not None:
                        self._inflater.finish()
                    self._is_over = True
                    self._done(self._connection, True)
                elif not self._coding:
                    return data
                else:
                    place = self._connection.host_port
                    self._inflater = self._inflater or Inflater(self._coding, place)
                    self._inflater.feed(data)
        except BaseException:
            self.leave(keep=False)
            raise
        return b""

    def _skip_rest(self) -> bool:
        left = _MAX_SKIPPED
        try:
            while left > 0 and (data := self._connection.ready()):
                left -= len(data)
        except NetError:
            return False
        return left > 0


STEP = 64 * 1024
"""Maximum output of one step, however small the input."""
_AUTODETECT = 47
"""Gzip or zlib, by the header of the data."""


class Inflater:
    """Decompresses one stream, on demand."""

    def __init__(self, coding: str, host_port: str) -> None:
        """`coding` is the value of `Content-Encoding`, in lower case."""
        if coding not in ("gzip", "x-gzip", "deflate"):
            what = coding if coding.isascii() and coding.isalnum() and len(coding) < 20 else "other"
            raise NetError(
                "protocol", f"{host_port} used a content encoding that was not requested ({what})"
            )
        self._host_port = host_port
        self._stream = zlib.decompressobj(_AUTODETECT)
        self._packed = b""
        self._has_begun = self._may_hold_more = False

    def feed(self, data: bytes) -> None:
        self._has_begun = True
        if not self._stream.eof:  # data after the end is ignored, it may be endless
            self._packed += data

    def take(self) -> bytes:
        """The next piece; empty if more input is needed."""
        if self._stream.eof or not (self._packed or self._may_hold_more):
            return b""
        try:
            piece = self._stream.decompress(self._packed, STEP)
        except zlib.error:
            problem = f"{self._host_port} sent compressed data that is corrupt"
            raise NetError("protocol", problem) from None
        self._packed, self._may_hold_more = self._stream.unconsumed_tail, bool(piece)
        return piece

    def finish(self) -> None:
        """Call after the last piece; raises `NetError` if the stream is incomplete."""
        if self._has_begun and not self._stream.eof:
            raise NetError("closed", f"{self._host_port} sent compressed data that ends too early")
