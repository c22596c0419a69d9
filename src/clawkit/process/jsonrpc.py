"""JSON-RPC with an untrusted language or MCP server: over pipes, and the parts shared with other
transports."""

from __future__ import annotations

import asyncio
import os
import re
from collections.abc import Callable, Coroutine, Iterator, Mapping
from contextlib import suppress
from typing import IO, Any, Protocol

import msgspec

from clawkit.errors import ToolError
from clawkit.text import one_line

MAX_HEADER = 4 * 1024
MAX_BODY = 16 * 1024 * 1024
MAX_UNSENT = 64 * 1024 * 1024
"""Bytes in the queue to the server."""
MAX_UNASKED = 64 * 1024 * 1024
"""Bytes that a server may send between two of our requests."""
MAX_ANSWERING = 8
"""Requests of the server that are answered at the same time."""
_CHUNK = 256 * 1024
_REFUSAL = {"error": {"code": -32601, "message": "not offered"}}
_NULL = msgspec.Raw(b"null")
_LENGTH = re.compile(rb"(?:\A|\r\n)\s*content-length\s*:\s*(\d{1,9})\s*(?:\r\n|\Z)", re.IGNORECASE)

UNREADABLE = (msgspec.MsgspecError, UnicodeDecodeError, RecursionError)
"""Exceptions of decoding untrusted JSON."""
NOT_OFFERED = object()
"""The answer to an unsupported request."""


class ServerError(ToolError):
    """A server exited, refused or misbehaved."""

    def __init__(self, message: str, code: int = 0, data: object = None) -> None:
        self.code, self.data = code, data
        """The error code of the server, 0 for none, and its additional data."""
        super().__init__(message)


class _Failure(msgspec.Struct):
    code: int = 0
    message: str = ""
    data: object = None

    def to_error(self) -> ServerError:
        words = one_line(self.message, 200, whole_words=True)
        return ServerError(f"it answered: {words}", self.code, self.data)


class _Message(msgspec.Struct):
    """A request has an id and a method, a notification only a method, an answer only an id."""

    id: int | str | None = None
    method: str | None = None
    params: msgspec.Raw = _NULL
    result: msgspec.Raw = _NULL
    error: _Failure | None = None


decode = msgspec.json.Decoder(_Message).decode


class Framing(Protocol):
    """Splits the output of a server into the bodies of its messages."""

    def feed(self, data: bytes) -> Iterator[bytes]:
        """The bodies that are complete now. Raises `ServerError` if one is too long."""

    def wrap(self, body: bytes) -> bytes: ...


class LineFrames:
    """One message a line, as in MCP. Other lines are skipped: some libraries print there."""

    def __init__(self) -> None:
        self._data = bytearray()

    def feed(self, data: bytes) -> Iterator[bytes]:
        start = len(self._data)
        self._data += data
        while (end := self._data.find(b"\n", start)) >= 0:
            line = bytes(self._data[:end]).strip()
            del self._data[: end + 1]
            start = 0
            if line.startswith(b"{"):
                yield line
        if len(self._data) > MAX_BODY:
            raise ServerError("it sent a line that is too long")

    def wrap(self, body: bytes) -> bytes:
        return body + b"\n"


class HeaderFrames:
    """A header before each message, as of language servers."""

    def __init__(self) -> None:
        self._data = bytearray()

    def feed(self, data: bytes) -> Iterator[bytes]:
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
            raise ServerError("it sent a header that is too long")

    def wrap(self, body: bytes) -> bytes:
        return b"Content-Length: %d\r\n\r\n" % len(body) + body


class Dialogue:
    """Requests of both sides and their answers, independent of the transport."""

    def __init__(
        self,
        on_request: Callable[[str, msgspec.Raw], object],
        on_notice: Callable[[str, msgspec.Raw], None],
        on_end: Callable[[], None],
    ) -> None:
        """`on_request` returns the answer to a request of the server, or a coroutine that does."""
        self.ended = ""
        """Why it has ended; empty while it is open."""
        self._on_request, self._on_notice, self._on_end = on_request, on_notice, on_end
        self._pending: dict[int, asyncio.Future[msgspec.Raw]] = {}
        self._last_id = 0
        self._tasks: set[asyncio.Task[None]] = set()
        self._loop = asyncio.get_running_loop()

    def next_id(self) -> int:
        self._last_id += 1
        return self._last_id

    def end(self, reason: str) -> None:
        """Pending requests fail with a `ServerError`."""
        if self.ended:
            return
        self.ended = reason
        if not self._loop.is_closed():
            for future in self._pending.values():
                if not future.done():
                    future.set_exception(ServerError(reason))
            for task in self._tasks:
                task.cancel()
        self._on_end()

    def _take(self, body: bytes) -> None:
        """Raises `ServerError` for an invalid message."""
        try:
            message = decode(body)
        except UNREADABLE:
            raise ServerError("it sent an invalid message") from None
        if message.method is None:
            future = self._pending.get(message.id) if isinstance(message.id, int) else None
            if future is None or future.done():
                return
            if message.error is None:
                future.set_result(message.result)
            else:
                future.set_exception(message.error.to_error())
        elif message.id is None:
            self._on_notice(message.method, message.params)
        else:
            result = self._on_request(message.method, message.params)
            if not asyncio.iscoroutine(result):
                self._answer(message.id, result)
            elif len(self._tasks) >= MAX_ANSWERING:
                result.close()
                self._answer(message.id, NOT_OFFERED)
            else:
                self._spawn(self._answer_later(message.id, result))

    async def _answer_later(self, number: int | str, work: Coroutine[Any, Any, object]) -> None:
        self._answer(number, await work)

    def _spawn(self, work: Coroutine[Any, Any, None]) -> None:
        """Run a task that is cancelled at the end."""

        async def run() -> None:
            with suppress(ToolError):
                await work

        task = self._loop.create_task(run())
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    def _answer(self, number: int | str, result: object) -> None:
        is_offered = result is not NOT_OFFERED
        self._send({"id": number, **({"result": result} if is_offered else _REFUSAL)})

    def _send(self, message: Mapping[str, object]) -> None:
        raise NotImplementedError


class Connection(Dialogue):
    """A connection to a server. Ends when the server exits or violates the protocol."""

    def __init__(
        self,
        sink: IO[bytes] | None,
        source: IO[bytes] | None,
        frames: Framing,
        on_request: Callable[[str, msgspec.Raw], object],
        on_notice: Callable[[str, msgspec.Raw], None],
        on_end: Callable[[], None],
    ) -> None:
        """Writes to `sink` and reads from `source`, pipes which it closes."""
        if sink is None or source is None:
            raise ValueError("the process has no pipes")
        super().__init__(on_request, on_notice, on_end)
        self._files = (sink, source)
        self._in, self._out = sink.fileno(), source.fileno()
        self._frames = frames
        self._unsent = bytearray()
        self._unasked = 0
        for fd in (self._in, self._out):
            os.set_blocking(fd, False)
        self._loop.add_reader(self._out, self._read)

    async def request(
        self, method: str, params: Mapping[str, object], number: int = 0
    ) -> msgspec.Raw:
        """Send a request and return the result; `number` is its `next_id`. Raises `ServerError`."""
        number = number or self.next_id()
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
        if not self.ended and not self._loop.is_closed():
            self._loop.remove_reader(self._out)
            self._loop.remove_writer(self._in)
        for file in self._files:
            with suppress(OSError):
                file.close()
        super().end(reason)

    def _send(self, message: Mapping[str, object]) -> None:
        if self.ended:
            raise ServerError(self.ended)
        body = msgspec.json.encode({"jsonrpc": "2.0", **message})
        self._unsent += self._frames.wrap(body)
        if len(self._unsent) > MAX_UNSENT:
            self.end("it does not read its input")
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
                self._take(body)
                if self.ended:
                    return
        except ServerError as error:
            self.end(str(error))
