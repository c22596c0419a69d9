"""A WebSocket client over a blocking socket: RFC 6455, text messages, no extensions.

It imports almost nothing: `clawkit agent` connects before it loads the rest.
"""

from __future__ import annotations

import binascii
import os
import socket
from collections.abc import Iterator
from time import monotonic
from typing import TYPE_CHECKING, Any

from clawkit.errors import ToolError

if TYPE_CHECKING:
    import ssl

MAX_MESSAGE = 50 * 1024**2
SEND_S = 30.0
_MAX_HEAD = 16 * 1024
_CHUNK = 1 << 16
_GUID = b"258EAFA5-E914-47DA-95CA-C5AB0DC85B11"
_CONTINUATION, _TEXT, _CLOSE, _PING, _PONG = 0, 1, 8, 9, 10


class SocketClosedError(ToolError):
    """The other side has closed the connection; the code is 1006 if it gave no reason."""

    def __init__(self, code: int, reason: str) -> None:
        super().__init__(reason or ("connection lost" if code == 1006 else f"code {code}"))
        self.code = code


class WebSocket:
    """A connection; `receive` returns the messages assembled by `feed`."""

    def __init__(self, sock: socket.socket) -> None:
        self._sock = sock
        self._data = bytearray()
        self._message = bytearray()
        self._is_in_message = False

    @classmethod
    def open(
        cls,
        host: str,
        port: int,
        path: str = "/",
        *,
        timeout_s: float,
        tls: ssl.SSLContext | None = None,
    ) -> WebSocket:
        """Connect and upgrade. Raises OSError, TimeoutError, `ToolError`."""
        # Bytes are resolved as they are, without loading the IDNA tables.
        name: Any = host.encode() if host.isascii() else host
        end = monotonic() + timeout_s
        sock = socket.create_connection((name, port), timeout_s)
        try:
            sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            if tls is not None:
                sock.settimeout(_left(end))
                sock = tls.wrap_socket(sock, server_hostname=host)
            made = cls(sock)
            made._upgrade(f"[{host}]:{port}" if ":" in host else f"{host}:{port}", path, end)
        except BaseException:
            sock.close()
            raise
        return made

    def _upgrade(self, host: str, path: str, end: float) -> None:
        from hashlib import sha1

        key = binascii.b2a_base64(os.urandom(16), newline=False)
        head = (
            f"GET {path} HTTP/1.1\r\nHost: {host}\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n"
            f"Sec-WebSocket-Key: {key.decode()}\r\nSec-WebSocket-Version: 13\r\n\r\n"
        )
        self._sock.settimeout(_left(end))
        self._sock.sendall(head.encode("ascii"))
        while b"\r\n\r\n" not in self._data:
            self._sock.settimeout(_left(end))
            if len(self._data) > _MAX_HEAD or not (more := self._sock.recv(_CHUNK)):
                raise ToolError("it does not speak WebSocket")
            self._data += more
        answer, _, rest = bytes(self._data).partition(b"\r\n\r\n")
        self._data[:] = rest
        first, *lines = answer.split(b"\r\n")
        fields = dict(line.lower().split(b":", 1) for line in lines if b":" in line)
        accept = binascii.b2a_base64(
            sha1(key + _GUID, usedforsecurity=False).digest(), newline=False
        )
        status = first.split(b" ")[1:2]
        # Comparing in lower case suffices: it only proves that the peer has read the key.
        if status != [b"101"] or fields.get(b"sec-websocket-accept", b"").strip() != accept.lower():
            said = b" ".join(first.split(b" ")[1:])[:60].decode("latin-1")
            raise ToolError(f"it does not speak WebSocket (HTTP {said})")

    def fileno(self) -> int:
        return self._sock.fileno()

    def certificate(self) -> bytes:
        """The certificate of the other side; empty without TLS."""
        found = getattr(self._sock, "getpeercert", lambda _binary: b"")
        return found(True) or b""

    def send(self, text: str) -> None:
        self._send(_TEXT, text.encode())

    def _send(self, kind: int, data: bytes) -> None:
        size = len(data)
        if size < 126:
            head = bytes((0x80 | kind, 0x80 | size))
        elif size < 1 << 16:
            head = bytes((0x80 | kind, 0xFE)) + size.to_bytes(2, "big")
        else:
            head = bytes((0x80 | kind, 0xFF)) + size.to_bytes(8, "big")
        mask = os.urandom(4)
        repeated = (mask * (size // 4 + 1))[:size]
        masked = int.from_bytes(data, "big") ^ int.from_bytes(repeated, "big")
        self._sock.sendall(head + mask + masked.to_bytes(size, "big"))

    def receive(self, timeout_s: float) -> str:
        """The next message. Raises TimeoutError, OSError, `SocketClosedError`, `ToolError`."""
        end = monotonic() + timeout_s
        try:
            while True:
                self._sock.settimeout(_left(end))
                for message in self.messages():
                    return message
                self.read()
        finally:
            self._sock.settimeout(SEND_S)

    def read(self) -> None:
        """Wait for more data and buffer it. Raises like `receive`."""
        more = self._sock.recv(_CHUNK)
        if not more:
            raise SocketClosedError(1006, "")
        self._data += more
        # TLS may have decrypted more data, which `select` would not report.
        while left := getattr(self._sock, "pending", int)():
            self._data += self._sock.recv(left)

    def messages(self) -> Iterator[str]:
        """The complete messages."""
        while (frame := self._next_frame()) is not None:
            is_last, kind, data = frame
            if kind == _PING:
                self._send(_PONG, data)
            elif kind == _CLOSE:
                raise SocketClosedError(
                    int.from_bytes(data[:2], "big") or 1005, data[2:].decode(errors="replace")
                )
            elif kind in (_TEXT, _CONTINUATION):
                if (kind == _CONTINUATION) != self._is_in_message:
                    raise ToolError("invalid WebSocket frame")
                self._message += data
                self._is_in_message = not is_last
                if len(self._message) > MAX_MESSAGE:
                    raise ToolError("a message is too large")
                if is_last:
                    whole, self._message = self._message, bytearray()
                    yield _decode(whole)
            elif kind != _PONG:
                raise ToolError("invalid WebSocket frame")

    def _next_frame(self) -> tuple[bool, int, bytes] | None:
        """Whether the next frame ends a message, its kind and its data; None while it is
        incomplete."""
        data = self._data
        if len(data) < 2:
            return None
        first, size, at = data[0], data[1], 2
        if first & 0x70 or size & 0x80 or (first & 8 and (size > 125 or not first & 0x80)):
            raise ToolError("invalid WebSocket frame")
        if size > 125:
            at = 4 if size == 126 else 10
            if len(data) < at:
                return None
            size = int.from_bytes(data[2:at], "big")
        if size > MAX_MESSAGE:
            raise ToolError("a message is too large")
        if len(data) < at + size:
            return None
        found = bytes(data[at : at + size])
        del data[: at + size]
        return bool(first & 0x80), first & 0xF, found

    def close(self) -> None:
        """Send a close frame, without waiting for an answer."""
        try:
            self._sock.settimeout(1.0)
            self._send(_CLOSE, (1000).to_bytes(2, "big"))
        except OSError:
            pass
        finally:
            self._sock.close()


def _left(end: float) -> float:
    """The remaining seconds. Raises TimeoutError if there are none."""
    if (left := end - monotonic()) <= 0:
        raise TimeoutError
    return left


def _decode(data: bytearray) -> str:
    try:
        return data.decode()
    except UnicodeDecodeError:
        raise ToolError("invalid WebSocket frame") from None
