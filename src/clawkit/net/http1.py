"""HTTP/1.1 on one connection: its bytes, with and without TLS, and one request after the other."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from typing import NamedTuple, cast

import h11

from clawkit.net.route import NetError, Route, Timeouts

_ENOUGH = 256 * 1024
"""Bytes that wait for the reader before no more are taken from the socket."""


class ByteStream(asyncio.Protocol):
    """Bytes of one connection. Readers wait for more without a task or a timer of their own."""

    def __init__(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._transport: asyncio.Transport | None = None
        self._pieces: list[bytes] = []
        self._size = 0
        self._is_paused = False
        self._waiter: asyncio.Future[bool] | None = None
        self.is_over = False
        """Nothing more will come."""
        self.is_whole = False
        """The other side said that this was all; otherwise the connection broke."""
        self.error: Exception | None = None
        self.gone: asyncio.Future[None] = self._loop.create_future()
        """Done when the socket is closed."""

    @property
    def transport(self) -> asyncio.Transport:
        if self._transport is None:
            raise RuntimeError("the stream is not connected")
        return self._transport

    @transport.setter
    def transport(self, transport: asyncio.Transport) -> None:
        self._transport = transport

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast("asyncio.Transport", transport)

    def data_received(self, data: bytes) -> None:
        self._pieces.append(data)
        self._size += len(data)
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
        if not self.gone.done():
            self.gone.set_result(None)
        self._wake()

    def take(self) -> bytes:
        """What has come since the last time; empty when nothing has."""
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
        """Wait for data or the end; false when neither came until then, in the loop's time."""
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
        """Send without waiting: reading goes on meanwhile, so an early answer is not missed."""
        if not self.is_over:
            self.transport.write(data)

    @property
    def is_flushed(self) -> bool:
        return self.transport.get_write_buffer_size() == 0

    def close(self) -> None:
        """Close at once; what was not sent is dropped. May be called twice."""
        self.is_over = True
        if self._transport is not None:
            self._transport.abort()

    def _wake(self, has_news: bool = True) -> None:
        if self._waiter is not None and not self._waiter.done():
            self._waiter.set_result(has_news)

    def _was_meant(self) -> bool:
        """Whether an end was announced: under TLS anybody on the way can end the stream."""
        tls = self.transport.get_extra_info("ssl_object")
        if tls is None:
            return True
        try:
            rest: bytes = tls.read(1)
        except OSError:  # an end without notice reads as "wait for more"
            return False
        return not rest


MAX_HEAD = 64 * 1024
_MAX_INTERIM = 20
"""Answers with a 1xx status before the real one."""

Key = tuple[str, str, int, Route]
"""What requests must have in common to use the same connection."""
Line = tuple[bytes, bytes]


class Head(NamedTuple):
    """The beginning of an answer."""

    status: int
    headers: dict[str, str]


class HttpConnection:
    """A connection on which requests are sent. `place` is who is at the other end."""

    def __init__(self, stream: ByteStream, place: str) -> None:
        self._stream = stream
        self.place = place
        self._http = h11.Connection(h11.CLIENT, max_incomplete_event_size=MAX_HEAD)
        self._was_silent = True
        self._is_complete = False
        self._end_was_told = False
        self.key: Key | None = None
        self._expiry: asyncio.TimerHandle | None = None

    @property
    def is_stale(self) -> bool:
        """It is over and not a byte of the answer has come: the request may not have arrived."""
        return self._was_silent and self._stream.is_over and not self._stream.has_data

    @property
    def can_be_kept(self) -> bool:
        """Whether the answer is complete, and another request can follow."""
        states = self._http.our_state, self._http.their_state
        return states == (h11.DONE, h11.DONE) and not self.has_leftover and self.is_quiet

    @property
    def is_quiet(self) -> bool:
        """Whether it is open, and nothing came that nobody asked for."""
        return not self._stream.is_over and not self._stream.has_data and self._stream.is_flushed

    @property
    def has_leftover(self) -> bool:
        """Whether more came than the answer."""
        return bool(self._http.trailing_data[0]) or self._stream.has_data

    @property
    def gone(self) -> asyncio.Future[None]:
        return self._stream.gone

    def send(self, method: str, path: str, lines: Iterable[Line], body: bytes) -> None:
        """Send a request whole. It goes out while the answer is read."""
        if self._http.our_state is h11.DONE:
            self._http.start_next_cycle()
        self._was_silent, self._is_complete = True, False
        try:
            request = h11.Request(method=method, target=path, headers=list(lines))
            data = self._http.send(request) or b""
            if body:
                data += self._http.send(h11.Data(data=body)) or b""
            self._http.send(h11.EndOfMessage())
        except h11.LocalProtocolError:
            # The message would show the header.
            raise NetError("refused", f"the request to {self.place} is not valid HTTP") from None
        self._stream.write(data)

    async def head(self, until: float, timeout_s: float) -> Head:
        """The status and headers of the answer."""
        for _ in range(_MAX_INTERIM + 1):
            while (event := self._next()) is h11.NEED_DATA:
                if not await self._more(until):
                    raise NetError("timeout", f"{self.place} did not answer within {timeout_s:g} s")
            if isinstance(event, h11.Response):
                return self._read_head(event)
        raise NetError("protocol", f"{self.place} sends interim responses only")

    async def piece(self, until: float, limits: Timeouts) -> bytes:
        """More of the body; empty at its end."""
        timeout_s, _, idle_s = limits
        while not (ready := self.ready()):
            if ready is None:
                return b""
            silent_until = until if idle_s is None else asyncio.get_running_loop().time() + idle_s
            if not await self._more(min(until, silent_until)):
                if idle_s is not None and silent_until < until:
                    raise NetError("timeout", f"{self.place} sent nothing for {idle_s:g} s")
                problem = f"the answer of {self.place} was not complete after {timeout_s:g} s"
                raise NetError("timeout", problem)
        return ready

    def ready(self) -> bytes | None:
        """What of the body is here already; None when it is complete."""
        pieces: list[bytes] = []
        while not self._is_complete:
            try:
                event = self._next()
            except NetError:
                if pieces:  # the next call meets it again
                    break
                raise
            if isinstance(event, h11.Data):
                pieces.append(event.data)
            elif event is not h11.NEED_DATA:
                self._is_complete = True
            elif pieces or not self._feed():
                break
        if not pieces and self._is_complete:
            return None
        return bytes(pieces[0]) if len(pieces) == 1 else b"".join(pieces)

    def close_after(self, idle_s: float) -> None:
        """Close when it was not used for so long."""
        self._expiry = asyncio.get_running_loop().call_later(idle_s, self.close)

    def keep_open(self) -> None:
        """It is used again."""
        if self._expiry is not None:
            self._expiry.cancel()
            self._expiry = None

    def close(self) -> None:
        """Close at once. May be called twice."""
        self.keep_open()
        self._stream.close()

    def _next(self) -> h11.Event | type[h11.NEED_DATA] | type[h11.PAUSED]:
        try:
            return self._http.next_event()
        except h11.RemoteProtocolError as error:
            if self._end_was_told:
                raise self._closed() from None
            if error.error_status_hint == 431:
                raise self._too_long() from None
            problem = f"{self.place} sent something that is not HTTP/1.1"
            raise NetError("protocol", problem) from None

    def _too_long(self) -> NetError:
        limit = f"{MAX_HEAD // 1024} KiB of headers"
        return NetError("protocol", f"{self.place} sent more than {limit}")

    async def _more(self, until: float) -> bool:
        """Take in what comes next; false when nothing came in time."""
        return await self._stream.wait(until) and self._feed()

    def _feed(self) -> bool:
        """Hand on what has come; false when nothing has."""
        if data := self._stream.take():
            self._was_silent = False
            self._http.receive_data(data)
            return True
        if not self._stream.is_over:
            return False
        if self._end_was_told or not self._stream.is_whole:
            raise self._closed()
        self._end_was_told = True
        self._http.receive_data(b"")
        return True

    def _closed(self) -> NetError:
        error = self._stream.error
        if error is not None and type(error).__module__ == "ssl":
            from clawkit.net.tls import describe

            assert isinstance(error, OSError)  # noqa: S101  # all errors of ssl are
            return NetError("tls", f"no answer from {self.place}: {describe(error)}")
        when = "answered" if self._was_silent else "had answered completely"
        return NetError("closed", f"{self.place} closed the connection before it {when}")

    def _read_head(self, event: h11.Response) -> Head:
        headers: dict[str, str] = {}
        size = 0
        for name, value in event.headers:
            size += len(name) + len(value)
            key, text = name.decode("ascii"), value.decode("latin-1")
            headers[key] = f"{headers[key]}, {text}" if key in headers else text
        if size > MAX_HEAD:
            raise self._too_long()
        return Head(event.status_code, headers)
