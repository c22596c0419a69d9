"""An answer whose body is read in pieces, as it comes."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable, Mapping

from clawkit.net.base import Limits, NetError
from clawkit.net.decode import Inflater
from clawkit.net.link import Head, Link

_MAX_SKIPPED = 64 * 1024
"""Bytes at the end of a body that are passed over so that the connection can be used again."""


class Response:
    """Status, headers, and a body that is read once."""

    def __init__(
        self,
        head: Head,
        url: str,
        link: Link,
        limits: Limits,
        until: float,
        done: Callable[[Link, bool], None],
    ) -> None:
        """`done` is told once when the connection is free, and whether it may be used again."""
        self.status = head.status
        self.headers: Mapping[str, str] = head.headers
        """Names in lower case; the values of one that came twice are joined by a comma."""
        self.url = url
        """Where the answer came from, after redirects."""
        self._link = link
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
        self._done(self._link, keep and self._skip_rest())

    async def _next(self) -> bytes:
        """More of the body; empty at its end."""
        try:
            while not self._is_over:
                if self._inflater is not None and (piece := self._inflater.take()):
                    return piece
                data = await self._link.piece(self._until, self._limits)
                if not data:
                    self._finish()
                elif not self._coding:
                    return data
                else:
                    self._inflater = self._inflater or Inflater(self._coding, self._link.place)
                    self._inflater.feed(data)
        except BaseException:
            self.leave(keep=False)
            raise
        return b""

    def _finish(self) -> None:
        if self._inflater is not None:
            self._inflater.finish()
        self._is_over = True
        self._done(self._link, True)

    def _skip_rest(self) -> bool:
        left = _MAX_SKIPPED
        try:
            while left > 0 and (data := self._link.ready()):
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
