"""Reads a `text/event-stream`, in whatever pieces it comes."""

from __future__ import annotations

import msgspec

MAX_EVENT = 8 * 1024 * 1024
"""Bytes of one event: there are several copies of it while it is read."""


class ServerEvent(msgspec.Struct, frozen=True):
    """One event of a `text/event-stream`."""

    name: str
    """Empty when the stream gives none."""
    data: str


class EventStream:
    """Cuts a stream into its events.

    Lines may end in CR, LF or both; what is not UTF-8 becomes U+FFFD. Comments, ids and events
    without data are left out.
    """

    def __init__(self, max_bytes: int = MAX_EVENT) -> None:
        self._max_bytes = max_bytes
        self._data = bytearray()
        """What is not yet a whole event, with LF as the only line end."""
        self._after_cr = False
        self._is_start = True

    def feed(self, data: bytes) -> list[ServerEvent]:
        """The events that are complete now. Raises `ValueError` when one grows too large."""
        if self._after_cr or b"\r" in data:
            data = self._with_lf(data)
        buffer = self._data
        # A blank line may begin with what came last.
        start = max(len(buffer) - 1, 0)
        buffer += data
        end = buffer.rfind(b"\n\n", start)
        if end < 0:
            self._check(len(buffer))
            return []
        whole = bytes(buffer[:end])
        del buffer[: end + 2]
        if len(whole) > self._max_bytes:
            self._check(max(map(len, whole.split(b"\n\n"))))
        self._check(len(buffer))
        return self._read(whole)

    def end(self) -> list[ServerEvent]:
        """What an event that was not ended by a blank line holds, once the stream is over."""
        rest = bytes(self._data)
        self._data.clear()
        return self._read(rest) if rest else []

    def _with_lf(self, data: bytes) -> bytes:
        if self._after_cr and data:
            data = data.removeprefix(b"\n")
            self._after_cr = False
        if data.endswith(b"\r"):
            self._after_cr = True
        return data.replace(b"\r\n", b"\n").replace(b"\r", b"\n")

    def _check(self, size: int) -> None:
        if size > self._max_bytes:
            raise ValueError(f"an event of more than {self._max_bytes} bytes")

    def _read(self, whole: bytes) -> list[ServerEvent]:
        text = whole.decode("utf-8", "replace")
        if self._is_start:
            text = text.removeprefix("\ufeff")
            self._is_start = False
        events = []
        for block in text.split("\n\n"):
            name, lines = "", []
            for line in block.split("\n"):
                kind, _, value = line.partition(":")
                if kind == "data":
                    lines.append(value.removeprefix(" "))
                elif kind == "event":
                    name = value.removeprefix(" ")
            if lines:
                events.append(ServerEvent(name, "\n".join(lines)))
        return events
