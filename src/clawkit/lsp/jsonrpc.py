"""JSON-RPC over the pipes of a language server."""

from __future__ import annotations

import asyncio
import os
import re
import subprocess
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress

import msgspec

from clawkit.errors import ToolError
from clawkit.text import one_line

MAX_HEADER = 4 * 1024
MAX_BODY = 16 * 1024 * 1024
MAX_UNSENT = 64 * 1024 * 1024
"""Bytes in the queue to the server."""
MAX_UNASKED = 64 * 1024 * 1024
"""Bytes that a server may send between two of our requests."""
_CHUNK = 256 * 1024
_REFUSAL = {"error": {"code": -32601, "message": "not offered"}}
_NULL = msgspec.Raw(b"null")
_LENGTH = re.compile(rb"(?:\A|\r\n)\s*content-length\s*:\s*(\d{1,9})\s*(?:\r\n|\Z)", re.IGNORECASE)

UNREADABLE = (msgspec.MsgspecError, UnicodeDecodeError, RecursionError)
"""Exceptions of decoding untrusted JSON."""
NOT_OFFERED = object()
"""The result for a request that we do not support."""


class ServerError(ToolError):
    """A language server exited, refused or misbehaved. Never leaves this package."""

    def __init__(self, message: str, code: int = 0) -> None:
        self.code = code
        """The error code of the server; 0 for none."""
        super().__init__(message)


class _Failure(msgspec.Struct):
    code: int = 0
    message: str = ""


class _Message(msgspec.Struct):
    """A request has an id and a method, a notification only a method, an answer only an id."""

    id: int | str | None = None
    method: str | None = None
    params: msgspec.Raw = _NULL
    result: msgspec.Raw = _NULL
    error: _Failure | None = None


_decode = msgspec.json.Decoder(_Message).decode


class Frames:
    """Splits the output of a server into the bodies of its messages."""

    def __init__(self) -> None:
        self._data = bytearray()

    def feed(self, data: bytes) -> Iterator[bytes]:
        """The bodies that are complete now. Raises `ServerError` for an invalid header."""
        self._data += data
        while (header := self._data.find(b"\r\n\r\n", 0, MAX_HEADER)) >= 0:
            length = _LENGTH.search(bytes(self._data[:header]))
            if length is None or int(length[1]) > MAX_BODY:
                raise ServerError("it sent a message whose length is missing or too large")
            start = header + 4
            end = start + int(length[1])
            if len(self._data) < end:
                return
            yield bytes(self._data[start:end])
            del self._data[:end]
        if len(self._data) >= MAX_HEADER:
            raise ServerError("it sent a header without an end")


class Connection:
    """A connection to a server. Ends when the server exits or violates the protocol."""

    def __init__(
        self,
        process: subprocess.Popen[bytes],
        on_request: Callable[[str, msgspec.Raw], object],
        on_notice: Callable[[str, msgspec.Raw], None],
        on_end: Callable[[], None],
    ) -> None:
        if process.stdin is None or process.stdout is None:
            raise ValueError("the process has no pipes")
        self.ended = ""
        """Why the connection has ended; empty while it is open."""
        self._files = (process.stdin, process.stdout)
        self._in, self._out = process.stdin.fileno(), process.stdout.fileno()
        self._on_request, self._on_notice, self._on_end = on_request, on_notice, on_end
        self._frames = Frames()
        self._unsent = bytearray()
        self._unasked = 0
        self._pending: dict[int, asyncio.Future[msgspec.Raw]] = {}
        self._last_id = 0
        self._loop = asyncio.get_running_loop()
        for fd in (self._in, self._out):
            os.set_blocking(fd, False)
        self._loop.add_reader(self._out, self._read)

    async def request(self, method: str, params: Mapping[str, object]) -> msgspec.Raw:
        """Send a request and return the result. Raises `ServerError`."""
        self._last_id = number = self._last_id + 1
        self._unasked = 0
        future: asyncio.Future[msgspec.Raw] = self._loop.create_future()
        self._pending[number] = future
        try:
            self._send({"id": number, "method": method, "params": params})
            return await future
        finally:
            del self._pending[number]

    def notify(self, method: str, params: Mapping[str, object]) -> None:
        self._send({"method": method, "params": params})

    def end(self, reason: str) -> None:
        """Close the pipes; pending requests fail with a `ServerError`."""
        if self.ended:
            return
        self.ended = reason
        if not self._loop.is_closed():
            self._loop.remove_reader(self._out)
            self._loop.remove_writer(self._in)
            for future in self._pending.values():
                if not future.done():
                    future.set_exception(ServerError(reason))
        for file in self._files:
            with suppress(OSError):
                file.close()
        self._on_end()

    def _send(self, message: Mapping[str, object]) -> None:
        if self.ended:
            raise ServerError(self.ended)
        body = msgspec.json.encode({"jsonrpc": "2.0", **message})
        self._unsent += b"Content-Length: %d\r\n\r\n" % len(body)
        self._unsent += body
        if len(self._unsent) > MAX_UNSENT:
            self.end("it does not read what it is sent")
            raise ServerError(self.ended)
        self._write()

    def _write(self) -> None:
        try:
            sent = os.write(self._in, self._unsent)
        except BlockingIOError:
            sent = 0
        except OSError:
            self.end("it closed its input")
            return
        del self._unsent[:sent]
        if self._unsent:
            self._loop.add_writer(self._in, self._write)
        else:
            self._loop.remove_writer(self._in)

    def _read(self) -> None:
        try:
            data = os.read(self._out, _CHUNK)
        except BlockingIOError:
            return
        except OSError:
            data = b""
        if not data:
            self.end("it exited")
            return
        self._unasked += len(data)
        if self._unasked > MAX_UNASKED:
            self.end("it sends too much")
            return
        try:
            for body in self._frames.feed(data):
                self._take(_decode(body))
                if self.ended:
                    return
        except ServerError as error:
            self.end(str(error))
        except UNREADABLE:
            self.end("it sent an invalid message")

    def _take(self, message: _Message) -> None:
        if message.method is None:
            future = self._pending.get(message.id) if isinstance(message.id, int) else None
            if future is None or future.done():
                return
            if message.error is None:
                future.set_result(message.result)
            else:
                text = one_line(message.error.message, 200)
                future.set_exception(ServerError(f"it answered: {text}", message.error.code))
        elif message.id is None:
            self._on_notice(message.method, message.params)
        else:
            result = self._on_request(message.method, message.params)
            is_offered = result is not NOT_OFFERED
            self._send({"id": message.id, **({"result": result} if is_offered else _REFUSAL)})
