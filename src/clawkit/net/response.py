"""An answer whose body is read, and decompressed, a bounded piece at a time."""

from __future__ import annotations

import zlib
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping

from clawkit.net.http1 import Head, HttpConnection
from clawkit.net.route import NetError, Timeouts

_MAX_SKIPPED = 64 * 1024
"""Bytes at the end of a body that are passed over so that the connection can be used again."""


class Response:
    """Status, headers, and a body that is read once."""

    def __init__(
        self,
        head: Head,
        url: str,
        connection: HttpConnection,
        limits: Timeouts,
        until: float,
        done: Callable[[HttpConnection, bool], None],
    ) -> None:
        """`done` is told once when the connection is free, and whether it may be used again."""
        self.status = head.status
        self.headers: Mapping[str, str] = head.headers
        """Names in lower case; the values of one that came twice are joined by a comma."""
        self.url = url
        """Where the answer came from, after redirects."""
        self._connection = connection
        self._limits = limits
        self._until = until
        self._done = done
        self._is_over = False
        coding = head.headers.get("content-encoding", "").strip().lower()
        self._coding = "" if coding == "identity" else coding
        self._inflater: Inflater | None = None

    def chunks(self) -> AsyncIterator[bytes]:
        """The body, unpacked, in the pieces in which it comes."""
        return _Chunks(self._next)

    async def read(self, max_bytes: int) -> bytes:
        """The body, or as much of it."""
        pieces = []
        left = max_bytes
        while left > 0 and (piece := await self._next()):
            pieces.append(piece[:left])
            left -= len(piece)
        return b"".join(pieces)

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
                data = await self._connection.piece(self._until, self._limits)
                if not data:
                    self._finish()
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

    def _finish(self) -> None:
        if self._inflater is not None:
            self._inflater.finish()
        self._is_over = True
        self._done(self._connection, True)

    def _skip_rest(self) -> bool:
        left = _MAX_SKIPPED
        try:
            while left > 0 and (data := self._connection.ready()):
                left -= len(data)
        except NetError:
            return False
        return left > 0


class _Chunks:
    """Not a generator: one that is left early is only cleaned up later, by a task of its own."""

    def __init__(self, take: Callable[[], Awaitable[bytes]]) -> None:
        self._take = take

    def __aiter__(self) -> _Chunks:
        return self

    async def __anext__(self) -> bytes:
        if piece := await self._take():
            return piece
        raise StopAsyncIteration


STEP = 64 * 1024
"""Most that one step gives out, however little went in."""
_GZIP, _ZLIB, _BARE = 31, 15, -15
_GZIP_MAGIC = 0x1F


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
        self._is_gzip = coding != "deflate"
        self._member: zlib._Decompress | None = None
        self._packed = b""
        self._may_hold_more = False
        self._has_ended = False

    def feed(self, data: bytes) -> None:
        self._packed += data

    def take(self) -> bytes:
        """The next piece; empty when more has to be fed first."""
        while self._packed or self._may_hold_more:
            member = self._member or self._open()
            if member is None:
                break
            try:
                piece = member.decompress(self._packed, STEP)
            except zlib.error:
                problem = f"{self._place} sent compressed data that is corrupt"
                raise NetError("protocol", problem) from None
            self._has_ended = member.eof
            self._packed = member.unused_data if member.eof else member.unconsumed_tail
            self._member = None if member.eof else member
            self._may_hold_more = bool(piece) and not member.eof
            if piece:
                return piece
        return b""

    def finish(self) -> None:
        """Raises `NetError` when the stream is not whole; for after the last piece."""
        if self._member is not None or (self._packed and not self._has_ended):
            raise NetError("closed", f"{self._place} sent compressed data that ends too early")

    def _open(self) -> zlib._Decompress | None:
        """Begin the stream, or the next of several; None when it cannot be told yet."""
        head = self._packed[:2]
        if self._has_ended and (not self._is_gzip or head[0] != _GZIP_MAGIC):
            self._packed = b""  # padding
            return None
        if self._is_gzip:
            form = _GZIP
        elif len(head) < 2:
            return None
        else:
            # `deflate` means the zlib format, but some send the data bare.
            is_zlib = head[0] & 15 == 8 and int.from_bytes(head, "big") % 31 == 0
            form = _ZLIB if is_zlib else _BARE
        self._member = zlib.decompressobj(form)
        return self._member
