"""A response whose body is read and decompressed in bounded pieces."""

from __future__ import annotations

import zlib
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING

from clawkit.net.route import NetError, Timeouts

if TYPE_CHECKING:
    from clawkit.net.http1 import HttpConnection

_MAX_SKIPPED = 64 * 1024
"""Bytes at the end of a body that are skipped so that the connection can be reused."""


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
        """The decompressed body, in pieces as they arrive.

        Not a generator: one that is not exhausted is cleaned up only later, by another task.
        """
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
                    self._inflater = self._inflater or Inflater(
                        self._coding, self._connection.place
                    )
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

    def __init__(self, coding: str, place: str) -> None:
        """`coding` is the value of `Content-Encoding`, in lower case."""
        if coding not in ("gzip", "x-gzip", "deflate"):
            what = coding if coding.isascii() and coding.isalnum() and len(coding) < 20 else "other"
            raise NetError(
                "protocol", f"{place} used a content encoding that was not requested ({what})"
            )
        self._place = place
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
            problem = f"{self._place} sent compressed data that is corrupt"
            raise NetError("protocol", problem) from None
        self._packed, self._may_hold_more = self._stream.unconsumed_tail, bool(piece)
        return piece

    def finish(self) -> None:
        """Call after the last piece; raises `NetError` if the stream is incomplete."""
        if self._has_begun and not self._stream.eof:
            raise NetError("closed", f"{self._place} sent compressed data that ends too early")
