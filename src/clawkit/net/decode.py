"""Undoes the compression of an answer, a bounded piece at a time."""

from __future__ import annotations

import zlib

from clawkit.net.base import NetError

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
                "protocol", f"{place} packed its answer in a way nobody asked for ({what})"
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
                problem = f"{self._place} sent packed data that is damaged"
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
            raise NetError("closed", f"{self._place} sent packed data that ends too early")

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
