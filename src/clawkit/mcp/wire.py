"""The ways to a server: the pipes of a program, streamable HTTP, and the older HTTP with SSE."""

from __future__ import annotations

import asyncio
import os
import re
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine, Mapping
from contextlib import asynccontextmanager, suppress
from types import MappingProxyType
from typing import Any, Protocol
from urllib.parse import urljoin

from msgspec import Raw

from clawkit.mcp import protocol
from clawkit.mcp.protocol import SESSION_HEADER, VERSION_HEADER, McpError
from clawkit.net.addresses import parse_url
from clawkit.net.client import Client, Response
from clawkit.net.route import NetError, Route, join_headers
from clawkit.net.sse import EventStream
from clawkit.process.jsonrpc import MAX_BODY, MAX_UNASKED, Connection, LineFrames, ServerError
from clawkit.text import one_line

GRACE_S = 1.0
MAX_RESUMED = 5
MAX_RETRY_S = 30.0
_LONG_S = 10.0**7
_STREAM = "text/event-stream"
_ACCEPT = f"application/json, {_STREAM}"
_SESSION = r"[!-~]{1,1024}"


OpenUrl = Callable[[str], Awaitable[None]]
"""Shows an address to the person, to be opened in a browser."""


class McpListener(Protocol):
    """Hears what a server says of its own accord."""

    def on_notice(self, method: str, params: Raw) -> None: ...

    def on_request(self, method: str, params: Raw) -> object:
        """The answer, a coroutine that returns it, or `NOT_OFFERED`."""


class McpPeer(Protocol):
    """A connection to a server. Its requests raise `ServerError`."""

    version: str
    """What to speak, once that is known."""

    @property
    def ended(self) -> str:
        """Why it has ended; empty while it is open."""

    async def request(
        self, method: str, params: Mapping[str, object], headers: Mapping[str, str]
    ) -> Raw: ...

    async def notify(self, method: str, params: Mapping[str, object]) -> None: ...

    async def listen(self) -> bool:
        """Hear what a server of the older era says between requests, until that ends; false if
        there is no stream for that."""

    async def close(self) -> None: ...


class PipedProgram(Protocol):
    """A running program, and how it is stopped."""

    pipes: tuple[int, int]

    async def end(self, grace_s: float) -> None: ...


class StdioPeer:
    """A program that was started as a server."""

    version = ""

    def __init__(
        self, program: PipedProgram, listener: McpListener, on_end: Callable[[], None]
    ) -> None:
        self._program = program
        sink, source = (
            os.fdopen(fd, mode, 0) for fd, mode in zip(program.pipes, ("wb", "rb"), strict=True)
        )
        self._wire = Connection(
            sink, source, LineFrames(), listener.on_request, listener.on_notice, on_end
        )

    @property
    def ended(self) -> str:
        return self._wire.ended

    async def request(
        self, method: str, params: Mapping[str, object], _headers: Mapping[str, str]
    ) -> Raw:
        number = self._wire.next_id()
        try:
            return await self._wire.request(method, params, number)
        except asyncio.CancelledError:
            with suppress(ServerError):
                self._wire.notify("notifications/cancelled", {"requestId": number})
            raise

    async def notify(self, method: str, params: Mapping[str, object]) -> None:
        self._wire.notify(method, params)

    async def listen(self) -> bool:
        return False

    async def close(self) -> None:
        self._wire.end("closed")
        await self._program.end(GRACE_S)


class Login(Protocol):
    """Gets tokens for requests."""

    async def headers(self) -> Mapping[str, str]: ...

    async def renew(self, status: int, challenge: str) -> bool:
        """Whether there is another token now, after a request was refused. Raises `ToolError` if a
        person has to log in."""

    async def login(self, open_url: OpenUrl) -> None:
        """Let the person log in."""


class McpAddress:
    """Where a server is, and how requests to it are sent."""

    def __init__(
        self, url: str, client: Client, route: Route, login: Login, *, connect_s: float
    ) -> None:
        self.url, self.login, self._client, self._route = url, login, client, route
        self._connect_s = connect_s

    @asynccontextmanager
    async def send(
        self, verb: str, url: str, headers: Mapping[str, str], body: bytes = b""
    ) -> AsyncIterator[Response]:
        """Send a request, again with another token if the server requires one. Raises
        `ServerError`; an error status is one, too."""
        try:
            while True:
                every = join_headers(headers, await self.login.headers())
                async with self._client.stream(
                    verb,
                    url,
                    headers=every,
                    body=body,
                    route=self._route,
                    timeout_s=_LONG_S,
                    connect_s=self._connect_s,
                ) as response:
                    status = response.status
                    if status < 400:
                        yield response
                        return
                    challenge = response.headers.get("www-authenticate", "")
                    said = await response.read(MAX_RESPONSE)
                if status not in (401, 403) or not await self.login.renew(status, challenge):
                    raise _refusal(status, said)
        except NetError as error:
            raise ServerError(str(error)) from None


MAX_RESPONSE = 64 * 1024
"""Bytes of the body of an error."""


def _refusal(status: int, body: bytes) -> ServerError:
    """The error of the protocol in an answer, or one with the status as its code."""
    with suppress(McpError):
        error = protocol.decode(body).error
        if isinstance(error, protocol.Failure):
            return _failure(error)
    return ServerError(f"it answered with the status {status}", status)


def _failure(error: protocol.Failure) -> ServerError:
    return ServerError(f"it answered: {one_line(error.message, 200)}", error.code, error.data)


class HttpPeer:
    """Streamable HTTP: each message is a request of its own. With `sse`, the older transport: all
    answers come by one stream."""

    def __init__(
        self, address: McpAddress, listener: McpListener, on_end: Callable[[], None]
    ) -> None:
        self.ended = self.version = ""
        self._address, self._listener, self._on_end = address, listener, on_end
        self._url = address.url
        self._session = ""
        self._last_id = 0
        self._pending: dict[protocol.Id, asyncio.Future[Raw]] = {}
        self._tasks: set[asyncio.Task[None]] = set()

    async def request(
        self, method: str, params: Mapping[str, object], headers: Mapping[str, str]
    ) -> Raw:
        if self.ended:
            raise ServerError(self.ended)
        self._last_id = number = self._last_id + 1
        future: asyncio.Future[Raw] = asyncio.get_running_loop().create_future()
        self._pending[number] = future
        try:
            await self._post(protocol.request(number, method, params), headers, future)
            return await future
        except asyncio.CancelledError:
            if self._session and not self.ended:  # of the older era, where closing is not enough
                cancelled = protocol.notification("notifications/cancelled", {"requestId": number})
                self._spawn(self._post(cancelled))
            raise
        except ServerError as error:
            if error.code == 404 and self._session:
                self.end("its session has expired")
            raise
        finally:
            del self._pending[number]
            if future.done() and not future.cancelled():
                future.exception()  # it was raised, or no one waits for it any more

    async def notify(self, method: str, params: Mapping[str, object]) -> None:
        await self._post(protocol.notification(method, params))

    async def listen(self) -> bool:
        async with self._send("GET") as response:
            await self._read_stream(response, lambda: False)
        return True

    async def close(self) -> None:
        self.end("closed")
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        if self._session:
            with suppress(ServerError, TimeoutError):
                async with asyncio.timeout(GRACE_S), self._send("DELETE"):
                    pass

    def end(self, reason: str) -> None:
        if self.ended:
            return
        self.ended = reason
        for future in self._pending.values():
            if not future.done():
                future.set_exception(ServerError(reason))
        self._on_end()

    @asynccontextmanager
    async def _send(
        self, verb: str, headers: Mapping[str, str] = MappingProxyType({}), body: bytes = b""
    ) -> AsyncIterator[Response]:
        about = {"Accept": _ACCEPT if body else _STREAM}
        if body:
            about["Content-Type"] = "application/json"
        if self._session:
            about[SESSION_HEADER] = self._session
        if self.version:
            about[VERSION_HEADER] = self.version
        async with self._address.send(
            verb, self._url, join_headers(about, headers), body
        ) as response:
            given = response.headers.get(SESSION_HEADER, "")
            if given and re.fullmatch(_SESSION, given):
                self._session = given
            yield response

    async def _post(
        self,
        body: bytes,
        headers: Mapping[str, str] = MappingProxyType({}),
        answer: asyncio.Future[Raw] | None = None,
    ) -> None:
        """Send a message, and read what the server answers until the `answer` is there."""

        def is_done() -> bool:
            return answer is None or answer.done()

        last, retry_s = "", 0.0
        async with self._send("POST", headers, body) as response:
            kind = response.headers.get("content-type", "").partition(";")[0].strip().lower()
            if kind == _STREAM:
                last, retry_s = await self._read_stream(response, is_done)
            elif answer is not None and kind == "application/json":
                data = await response.read(MAX_BODY + 1)
                if len(data) > MAX_BODY:
                    raise ServerError("its answer is too large")
                self._take(data)
        for _ in range(MAX_RESUMED):
            if is_done() or not last:
                break
            await asyncio.sleep(min(retry_s, MAX_RETRY_S))
            async with self._send("GET", {**headers, "Last-Event-ID": last}) as response:
                last, retry_s = await self._read_stream(response, is_done, last, retry_s)
        if not is_done() and self._must_answer:
            raise ServerError("it ended the connection without an answer")

    _must_answer = True

    async def _read_stream(
        self, response: Response, is_done: Callable[[], bool], last: str = "", retry_s: float = 1.0
    ) -> tuple[str, float]:
        """Read events until the stream ends or it is done; returns the last id, and how long to
        wait before asking for more."""
        events, left = EventStream(MAX_BODY), MAX_UNASKED
        async for piece in response:
            left -= len(piece)
            if left < 0:
                raise ServerError("it sends too much")
            try:
                found = events.feed(piece)
            except ValueError as error:
                raise ServerError(f"it sent {error}") from None
            for event in found:
                last = event.id if event.id.isascii() and event.id.isprintable() else last
                if event.retry_ms.isdecimal():
                    retry_s = min(int(event.retry_ms[:9]) / 1000, MAX_RETRY_S)
                self._take_event(event.name, event.data)
            if is_done():
                break
        return last, retry_s

    def _take_event(self, name: str, data: str) -> None:
        if data.strip() and name in ("", "message"):
            self._take(data.encode())

    def _take(self, data: bytes) -> None:
        try:
            message = protocol.decode(data)
        except McpError as error:
            raise ServerError(f"it sent an {error}") from None
        if isinstance(method := message.method, str):
            if not isinstance(message.id, (int, str)):
                self._listener.on_notice(method, message.params)
            elif len(self._tasks) < 16:
                result = self._listener.on_request(method, message.params)
                self._spawn(self._reply(message.id, result))
            return
        future = self._pending.get(message.id) if isinstance(message.id, (int, str)) else None
        if future is None or future.done():
            return
        if isinstance(failed := message.error, protocol.Failure):
            future.set_exception(_failure(failed))
        else:
            result = message.result
            future.set_result(result if isinstance(result, Raw) else Raw(b"null"))

    async def _reply(self, number: protocol.Id, result: object) -> None:
        if isinstance(result, Awaitable):
            result = await result
        if isinstance(result, Mapping):
            body = protocol.answer(number, result)
        else:
            refused = McpError(protocol.METHOD_NOT_FOUND, "not offered")
            body = protocol.failure(number, refused)
        await self._post(body)

    def _spawn(self, work: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
        async def run() -> None:
            with suppress(ServerError):
                await work

        task = asyncio.get_running_loop().create_task(run())
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return task


class SsePeer(HttpPeer):
    """The transport of 2024: one stream for all answers, which names the address for requests."""

    _must_answer = False

    async def open(self) -> None:
        """Open the stream and wait until it has named the address. Raises `ServerError`."""
        loop = asyncio.get_running_loop()
        self._endpoint: asyncio.Future[str] = loop.create_future()
        self._spawn(self._follow())
        self._url = await self._endpoint

    async def listen(self) -> bool:
        return False

    async def _follow(self) -> None:
        reason = "it ended the stream"
        try:
            await super().listen()
        except ServerError as error:
            reason = str(error)
        if not self._endpoint.done():
            self._endpoint.set_exception(ServerError(reason))
        self.end(reason)

    def _take_event(self, name: str, data: str) -> None:
        if name != "endpoint" or self._endpoint.done():
            super()._take_event(name, data)
            return
        url = urljoin(self._address.url, data.strip())
        with suppress(NetError):
            if parse_url(url).origin == parse_url(self._address.url).origin:
                self._endpoint.set_result(url)
                return
        self._endpoint.set_exception(ServerError("it named an address at another origin"))
