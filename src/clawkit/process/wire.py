"""Messages between clawkit and its keeper: a length, then JSON."""

from __future__ import annotations

import json
import struct
from collections.abc import Iterator
from typing import Any

_LENGTH = struct.Struct("<I")


def pack(*message: Any) -> bytes:
    body = json.dumps(message).encode()
    return _LENGTH.pack(len(body)) + body


class Unpacker:
    """Messages out of a stream of bytes, however it was cut."""

    def __init__(self) -> None:
        self._buffer = b""

    def feed(self, data: bytes) -> Iterator[list[Any]]:
        self._buffer += data
        while len(self._buffer) >= _LENGTH.size:
            end = _LENGTH.size + _LENGTH.unpack_from(self._buffer)[0]
            if len(self._buffer) < end:
                return
            body, self._buffer = self._buffer[_LENGTH.size : end], self._buffer[end:]
            yield json.loads(body)
