"""An answer whose body is read, and decompressed, a bounded piece at a time."""

from __future__ import annotations

import zlib
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING

from clawkit.net.route import NetError, Timeouts

if TYPE_CHECKING:
    from clawkit.net.http1 import HttpConnection

_MAX_SKIPPED = 64 * 1024
"""Bytes at the end of a body that are passed over so that the connection can be used again."""


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
        """`done` is called once when the connection is free, with whether it may be used again."""
        self.status = status
        self.headers = headers
        """Names in lower case; the values of one that came twice are joined by a comma."""
        self._connection = connection
        self._limits = limits
        self._done = done
        self._is_over = False
        coding = headers.get("content-encoding", "").strip().lower()
        self._coding = "" if coding == "identity" else coding
        self._inflater: Inflater | None = None

    def __aiter__(self) -> Response:
        """The body, unpacked, in the pieces in which it comes.

        Not a generator: one that is left early is only cleaned up later, by a task of its own.
        """
        return self

    async def __anext__(self) -> bytes:
        if piece := await self._next():
            return piece
        raise StopAsyncIteration

    async def read(self, max_bytes: int) -> bytes:
        """The body, or as much of it."""
        pieces = []
        left = max_bytes
        while left > 0 and (piece := await self._next()):
            pieces.append(piece[:left])
            left -= len(piece)
        return b"".join(pieces)

    @property
    def has_come(self) -> bool:
        """Whether all of the body is here, read or not."""
        return self._is_over or self._connection.is_complete

    def leave(self, *, keep: bool) -> None:
        """Give the connection back; it is kept when the rest of the body is here already."""
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
"""Most that one step gives out, however little went in."""
_BY_ITS_HEAD = 47
"""Gzip or zlib, as the data begins."""


class Inflater:
    """One compressed stream. Nothing is unpacked before it is asked for."""

    def __init__(self, coding: str, place: str) -> None:
        """`coding` is what the `Content-Encoding` header says, in lower case."""
        if coding not in ("gzip", "x-gzip", "deflate"):
            what = coding if coding.isascii() and coding.isalnum() and len(coding) < 20 else "other"
            raise NetError(
                "protocol", f"{place} used a content encoding that was not requested ({what})"
            )
        self._place = place
        self._stream = zlib.decompressobj(_BY_ITS_HEAD)
        self._packed = b""
        self._has_begun = self._may_hold_more = False

    def feed(self, data: bytes) -> None:
        self._has_begun = True
        if not self._stream.eof:  # what comes after the end has none itself, perhaps
            self._packed += data

    def take(self) -> bytes:
        """The next piece; empty when more has to be fed first."""
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
        """Raises `NetError` when the stream is not whole; for after the last piece."""
        if self._has_begun and not self._stream.eof:
            raise NetError("closed", f"{self._place} sent compressed data that ends too early")
