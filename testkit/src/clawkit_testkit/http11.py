"""The part of HTTP/1.1 that the scripted server needs."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine, Mapping
from contextlib import suppress
from functools import cached_property
from http import HTTPStatus
from typing import Any

import msgspec

READ_LIMIT = 4 * 1024 * 1024
"""Read buffer of a connection; reading a body up to this size never blocks the client."""
LAST_CHUNK = b"0\r\n\r\n"
JSON: Mapping[str, str] = {"content-type": "application/json"}
NO_HEADERS: Mapping[str, str] = {}


class BadRequestError(Exception):
    """The request cannot be parsed by this server."""


class Received:
    """One request as received. The body is decoded on first access."""

    def __init__(self, method: str, path: str, headers: dict[str, str], data: bytes) -> None:
        self.method = method
        self.path = path
        """With its query."""
        self.headers = headers
        """Names in lower case."""
        self.data = data
        self.api = ""
        """The API that was used; empty for lists of models and the like."""
        self.model = ""
        self.at_s = asyncio.get_running_loop().time()
        """When it was received, by the clock of the event loop."""
        self.gone = asyncio.Event()
        """Set if the client disconnected before the answer was complete."""

    @property
    def size(self) -> int:
        """Bytes of the body."""
        return len(self.data)

    @cached_property
    def body(self) -> Any:
        """The body, decoded."""
        return msgspec.json.decode(self.data)

    @property
    def keeps_alive(self) -> bool:
        """Whether the connection stays open for more requests."""
        return self.headers.get("connection", "").lower() != "close"

    def __repr__(self) -> str:
        # Neither headers nor body: they contain credentials and private data.
        return f"<Received {self.method} {self.path.partition('?')[0]} ({self.size} bytes)>"


async def read_request(reader: asyncio.StreamReader) -> Received | None:
    """The next request of a connection, or None at its end."""
    try:
        head = await reader.readuntil(b"\r\n\r\n")
    except asyncio.IncompleteReadError:
        return None
    except asyncio.LimitOverrunError:
        raise BadRequestError("the headers are too long") from None
    first, *lines = head[:-4].decode("latin-1").split("\r\n")
    try:
        method, path, _version = first.split(" ")
    except ValueError:
        raise BadRequestError(f"invalid request line {first[:80]!r}") from None
    headers = {}
    for line in lines:
        name, _, value = line.partition(":")
        headers[name.lower()] = value.strip()
    if "transfer-encoding" in headers:
        raise BadRequestError("send the body with a content-length")
    length = headers.get("content-length", "0")
    if not (length.isascii() and length.isdigit()):
        raise BadRequestError(f"invalid content-length {length[:80]!r}")
    return Received(method, path, headers, await reader.readexactly(int(length)))


def write_head(status: int, headers: Mapping[str, str], length: int | None) -> bytes:
    """The head of a response. Without a length, the body is chunked."""
    phrase = HTTPStatus(status).phrase if status in _KNOWN else "Unknown"
    lines = [f"HTTP/1.1 {status} {phrase}"]
    lines += [f"{name}: {value}" for name, value in headers.items()]
    lines.append("transfer-encoding: chunked" if length is None else f"content-length: {length}")
    return "\r\n".join([*lines, "\r\n"]).encode("latin-1")


class Line:
    """One connection to a client."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader = reader
        self._writer = writer

    def send(self, status: int, body: bytes, headers: Mapping[str, str] = NO_HEADERS) -> None:
        """Send a whole response."""
        self._writer.write(write_head(status, {**JSON, **headers}, len(body)) + body)

    async def write(self, data: bytes) -> None:
        self._writer.write(data)
        await self._writer.drain()

    async def hung_up(self) -> None:
        """Return when the client has closed the connection."""
        # Clients do not send a second request before the first is answered.
        with suppress(ConnectionError):
            await self._reader.read(1)

    async def outlasts(self, event: Coroutine[Any, Any, object]) -> bool:
        """Wait for something; False if the client disconnects first."""
        waited, ended = asyncio.ensure_future(event), asyncio.ensure_future(self.hung_up())
        try:
            await asyncio.wait((waited, ended), return_when=asyncio.FIRST_COMPLETED)
            return waited.done()
        finally:
            for task in (waited, ended):
                task.cancel()
            # Wait until both have stopped reading.
            await asyncio.wait((waited, ended))


def chunk(data: bytes) -> bytes:
    return b"%x\r\n%b\r\n" % (len(data), data)


_KNOWN = {status.value for status in HTTPStatus}
