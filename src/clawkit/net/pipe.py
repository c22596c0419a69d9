"""One connection as bytes in and bytes out, with and without TLS."""

from __future__ import annotations

import asyncio
from typing import cast

_ENOUGH = 256 * 1024
"""Bytes that wait for the reader before no more are taken from the socket."""


class Pipe(asyncio.Protocol):
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
            raise RuntimeError("the pipe is not connected")
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
        waiter: asyncio.Future[bool] = self._loop.create_future()
        self._waiter = waiter
        timer = self._loop.call_at(until, _give_up, waiter)
        try:
            return await waiter
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

    def _wake(self) -> None:
        if self._waiter is not None and not self._waiter.done():
            self._waiter.set_result(True)

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


def _give_up(waiter: asyncio.Future[bool]) -> None:
    if not waiter.done():
        waiter.set_result(False)
