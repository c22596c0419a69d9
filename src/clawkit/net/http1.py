"""HTTP/1.1 on one connection: its byte stream, and one request after another."""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import Iterable
from contextlib import suppress
from typing import cast

from clawkit.net.route import NetError, Route, Timeouts
from clawkit.net.tls import describe
from clawkit.text import regex

_AT_ONCE = 64 * 1024
"""Maximum bytes per read from the socket."""
_ENOUGH = 256 * 1024
"""Bytes in the buffer after which reading from the socket is paused."""


class ByteStream(asyncio.BufferedProtocol):
    """The bytes of one connection, with or without TLS. Waiting for more needs no task."""

    transport: asyncio.Transport
    """Set when it is connected."""

    def __init__(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._buffer = memoryview(bytearray(_AT_ONCE))
        self._pieces: list[bytes] = []
        self._size = 0
        self._is_paused = False
        self._waiter: asyncio.Future[bool] | None = None
        self.is_over = False
        """Whether no more data will arrive."""
        self.is_whole = False
        """Whether the other side announced the end; otherwise the connection broke."""
        self.error: Exception | None = None
        self.closed: asyncio.Future[None] = self._loop.create_future()
        """Done when the socket is closed."""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = cast("asyncio.Transport", transport)

    def get_buffer(self, sizehint: int) -> memoryview:
        # One buffer for all reads: allocating a new one each time costs clearing and mapping
        # memory.
        return self._buffer

    def buffer_updated(self, nbytes: int) -> None:
        self._pieces.append(bytes(self._buffer[:nbytes]))
        self._size += nbytes
        if self._size > _ENOUGH and not self._is_paused:
            self._is_paused = True
            self.transport.pause_reading()
        self._wake()

    def eof_received(self) -> None:
        self.is_over = True
        self.is_whole = self._was_meant()
        self._wake()

    def connection_lost(self, exc: Exception | None) -> None:
        self.is_over = True
        self.error = self.error or exc
        if not self.closed.done():
            self.closed.set_result(None)
        self._wake()

    def take(self) -> bytes:
        """The data since the last call; empty if there is none."""
        if not self._pieces:
            return b""
        data = self._pieces[0] if len(self._pieces) == 1 else b"".join(self._pieces)
        self._pieces.clear()
        self._size = 0
        if self._is_paused:
            self._is_paused = False
            if not self.is_over:
                self.transport.resume_reading()
        return data

    @property
    def has_data(self) -> bool:
        return bool(self._pieces)

    async def wait(self, until: float) -> bool:
        """Wait for data or the end; False on a timeout at `until`, in the loop's time."""
        if self._pieces or self.is_over:
            return True
        self._waiter = self._loop.create_future()
        timer = self._loop.call_at(until, self._wake, False)
        try:
            return await self._waiter
        finally:
            timer.cancel()
            self._waiter = None

    def write(self, data: bytes) -> None:
        """Send without waiting: reading continues, so that an early answer is not missed."""
        if not self.is_over:
            self.transport.write(data)

    def close(self) -> None:
        """Close immediately and drop unsent data. Idempotent."""
        self.is_over = True
        if hasattr(self, "transport"):
            with suppress(RuntimeError):  # the event loop is closed, and the connection with it
                self.transport.abort()

    def _wake(self, has_news: bool = True) -> None:
        if self._waiter is not None and not self._waiter.done():
            self._waiter.set_result(has_news)

    def _was_meant(self) -> bool:
        """Whether the end was announced; otherwise an attacker may have truncated the stream."""
        tls = self.transport.get_extra_info("ssl_object")
        if tls is None:
            return True
        try:
            rest: bytes = tls.read(1)
        except OSError:  # without a close_notify, OpenSSL would wait for more data
            return False
        return not rest


MAX_HEAD = 64 * 1024
_MAX_INTERIM = 20
"""Answers with a 1xx status before the real one."""
_START = b"HTTP/1."
_NOT_HTTP = "something that is not HTTP/1.1"
_REQUEST_HEAD = (
    rb"[A-Z]+ [\x21-\x7e]+ HTTP/1\.1\r\n"
    rb"(?:[!#$%&'*+.^_`|~0-9A-Za-z-]+: [\t\x20-\x7e\x80-\xff]*\r\n)+"
)

Key = tuple[str, str, int, Route]
"""Requests with the same key may share a connection."""
Line = tuple[bytes, bytes]


class _ResponseParser:
    """Parses one answer as its bytes arrive. The parser calls the `on_` methods."""

    def __init__(self, method: str) -> None:
        # Imported here: it is needed only after the first request was sent.
        from httptools import HttpParserError, HttpParserUpgrade, HttpResponseParser

        self._errors = (HttpParserError, HttpParserUpgrade)
        self._parser = HttpResponseParser(self)
        self._start = b""
        self._head_size = 0
        self._has_no_body = method in ("HEAD", "CONNECT")
        self._lasts_to_the_end = False
        """Whether the body ends only with the connection."""
        self._interim = 0
        self._unused = 0
        """Bytes since the last complete part of the answer."""
        self.status = 0
        self.headers: dict[str, str] = {}
        self.has_head = False
        self.pieces: list[bytes] = []
        """Pieces of the body that were not taken yet."""
        self.is_complete = False
        self.can_be_followed = False
        """Whether another request may use the connection."""
        self.has_leftover = False
        """Whether there was data after the answer."""
        self.problem = ""

    def feed(self, data: bytes) -> None:
        self._unused += len(data)
        if len(self._start) < len(_START):
            # The parser also accepts other protocols, such as RTSP.
            self._start += data[: len(_START) - len(self._start)]
            if not _START.startswith(self._start):
                self.problem = _NOT_HTTP
                return
        try:
            self._parser.feed_data(data)
        except self._errors:
            if self.is_complete:
                self.has_leftover = True
            else:
                self.problem = self.problem or _NOT_HTTP
        if self._unused > MAX_HEAD and not self.is_complete:
            self._refuse_head()

    def end(self) -> None:
        """The other side has announced the end."""
        if self.has_head and self._lasts_to_the_end:
            self.is_complete = True

    def on_message_begin(self) -> None:
        self.has_leftover = self.has_leftover or self.is_complete

    def on_header(self, name: bytes, value: bytes) -> None:
        self._head_size += len(name) + len(value)
        if self._head_size > MAX_HEAD:
            self._refuse_head()
        if self.has_head or self.problem:
            return  # a trailer, or already refused
        key, text = name.decode("ascii").lower(), value.strip(b" \t").decode("latin-1")
        self.headers[key] = f"{self.headers[key]}, {text}" if key in self.headers else text

    def on_headers_complete(self) -> None:
        if self.is_complete:
            return
        parser, headers = self._parser, self.headers
        self._unused = 0
        self._head_size = 0
        if parser.get_http_version() not in ("1.0", "1.1"):
            self.problem = _NOT_HTTP
        self.status = parser.get_status_code()
        if self.status < 100:
            self.problem = _NOT_HTTP
        if self.status < 200:
            self._interim += 1
            if self._interim > _MAX_INTERIM:
                self.problem = self.problem or "interim responses only"
            return
        if headers.get("transfer-encoding", "chunked").lower() != "chunked":
            self.problem = _NOT_HTTP
        self.has_head = not self.problem
        self.can_be_followed = parser.should_keep_alive()
        self._lasts_to_the_end = not headers.keys() & {"content-length", "transfer-encoding"}
        self.is_complete = self._has_no_body

    def on_body(self, data: bytes) -> None:
        self._unused = 0
        if self.is_complete:
            self.has_leftover = True
        else:
            self.pieces.append(data)

    def on_message_complete(self) -> None:
        self._unused = 0
        self.is_complete = self.has_head
        if not self.has_head:
            self.headers = {}  # those of an interim response

    def _refuse_head(self) -> None:
        self.problem = self.problem or f"more than {MAX_HEAD // 1024} KiB of headers"


class HttpConnection:
    """A connection for requests. `host_port` is the address of the other end, for messages."""

    def __init__(self, stream: ByteStream, host_port: str) -> None:
        self._stream = stream
        self.closed = stream.closed
        self.host_port = host_port
        self._answer = _ResponseParser("")
        self._was_silent = True
        self._end_was_told = False
        self.key: Key | None = None
        self.idle_since = 0.0
        """When it was last released, in the loop's time."""

    @property
    def is_stale(self) -> bool:
        """Whether it was closed without a byte of the answer: the request may not have arrived."""
        return self._was_silent and self._stream.is_over and not self._stream.has_data

    @property
    def is_complete(self) -> bool:
        return self._answer.is_complete

    @property
    def can_be_kept(self) -> bool:
        """Whether the answer is complete, and another request can follow."""
        answer = self._answer
        is_done = answer.is_complete and answer.can_be_followed
        return is_done and not self.has_leftover and self.is_quiet

    @property
    def is_quiet(self) -> bool:
        """Whether it is open, without unsolicited data."""
        stream = self._stream
        is_idle = not stream.is_over and not stream.has_data
        return is_idle and stream.transport.get_write_buffer_size() == 0

    @property
    def has_leftover(self) -> bool:
        """Whether there was data after the answer."""
        return self._answer.has_leftover or self._stream.has_data

    def send(self, method: str, path: str, lines: Iterable[Line], body: bytes) -> None:
        """Send a whole request, without waiting. Raises `NetError` if it is invalid."""
        head = f"{method} {path} HTTP/1.1\r\n".encode()
        head += b"".join([b"%s: %s\r\n" % line for line in lines])
        if not regex(_REQUEST_HEAD).fullmatch(head):
            # Without the headers, which may contain credentials.
            raise NetError("refused", f"the request to {self.host_port} is not valid HTTP")
        self._stream.write(b"%s\r\n%s" % (head, body))
        self._answer, self._was_silent = _ResponseParser(method), True

    async def head(self, limits: Timeouts) -> tuple[int, dict[str, str]]:
        """Wait for the status and headers of the answer."""
        answer = self._answer
        until, limit_s = limits.until, limits.timeout_s
        if limits.idle_s is not None and limits.idle_s < limit_s:
            limit_s = limits.idle_s
            until = min(until, asyncio.get_running_loop().time() + limit_s)
        while not answer.has_head:
            self._check()
            if not await self._more(until):
                late = f"{self.host_port} did not answer within {round(limit_s, 2):g} s"
                raise NetError("timeout", late)
        return answer.status, answer.headers

    async def piece(self, limits: Timeouts) -> bytes:
        """Wait for the next piece of the body; empty at the end."""
        until, idle_s = limits.until, limits.idle_s
        while not (ready := self.ready()):
            if ready is None:
                return b""
            silent_until = until if idle_s is None else asyncio.get_running_loop().time() + idle_s
            if not await self._more(min(until, silent_until)):
                problem = f"did not complete its answer within {round(limits.timeout_s, 2):g} s"
                if silent_until < until:
                    problem = f"sent nothing for {idle_s:g} s"
                raise NetError("timeout", f"{self.host_port} {problem}")
        return ready

    def ready(self) -> bytes | None:
        """The part of the body that has arrived; None if all of it was returned."""
        answer = self._answer
        if not answer.pieces and not answer.is_complete:
            self._check()
            self._feed()
        if not answer.pieces:
            return None if answer.is_complete else b""
        pieces, answer.pieces = answer.pieces, []
        return pieces[0] if len(pieces) == 1 else b"".join(pieces)

    def close(self) -> None:
        """Close immediately. Idempotent."""
        self._stream.close()

    def _check(self) -> None:
        if self._answer.problem:
            raise NetError("protocol", f"{self.host_port} sent {self._answer.problem}")

    async def _more(self, until: float) -> bool:
        """Wait for data and parse it; False on a timeout."""
        return await self._stream.wait(until) and self._feed()

    def _feed(self) -> bool:
        """Parse the data that has arrived; False if there is none."""
        if data := self._stream.take():
            self._was_silent = False
            self._answer.feed(data)
            return True
        if not self._stream.is_over:
            return False
        if self._end_was_told or not self._stream.is_whole:
            raise self._closed()
        self._end_was_told = True
        self._answer.end()
        return True

    def _closed(self) -> NetError:
        error = self._stream.error
        if isinstance(error, ssl.SSLError):
            return NetError("tls", f"no answer from {self.host_port}: {describe(error)}")
        when = "answered" if self._was_silent else "had answered completely"
        return NetError("closed", f"{self.host_port} closed the connection before it {when}")
