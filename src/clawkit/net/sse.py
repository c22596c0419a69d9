"""Parse a `text/event-stream`, in pieces of any size."""

from __future__ import annotations

import msgspec

MAX_EVENT = 8 * 1024 * 1024
"""Maximum size of an event in bytes: while it is parsed, there are several copies."""


class ServerEvent(msgspec.Struct, frozen=True):
    name: str
    """Empty if the stream gives none."""
    data: str
    id: str = ""
    retry_ms: str = ""
    """Milliseconds to wait before requesting the events after this id."""


class EventStream:
    """Splits a stream into events.

    Lines may end in CR, LF or both; invalid UTF-8 becomes U+FFFD. Comments and events without data
    are skipped.
    """

    def __init__(self, max_bytes: int = MAX_EVENT) -> None:
        self._max_bytes = max_bytes
        self._data = bytearray()
        """An incomplete event, with LF line endings."""
        self._after_cr = False
        self._is_start = True

    def feed(self, data: bytes) -> list[ServerEvent]:
        """The events that are complete now. Raises `ValueError` if one is too large."""
        if self._after_cr or b"\r" in data:
            data = self._with_lf(data)
        buffer = self._data
        # A blank line may start in the previous piece.
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
        """The last event, if no blank line follows it; call at the end of the stream."""
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

    def _read(self, data: bytes) -> list[ServerEvent]:
        text = data.decode("utf-8", "replace")
        if self._is_start:
            text = text.removeprefix("\ufeff")
            self._is_start = False
        events = []
        for block in text.split("\n\n"):
            lines: list[str] = []
            other: dict[str, str] = {}
            for line in block.split("\n"):
                kind, _, value = line.partition(":")
                if kind == "data":
                    lines.append(value.removeprefix(" "))
                elif kind in ("event", "id", "retry"):
                    other[kind] = value.removeprefix(" ")
            if lines:
                name, id_ = other.get("event", ""), other.get("id", "")
                events.append(ServerEvent(name, "\n".join(lines), id_, other.get("retry", "")))
        return events
