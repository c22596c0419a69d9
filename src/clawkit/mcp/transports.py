"""The ways to a server: the pipes of a program, streamable HTTP, and the older HTTP with SSE. All
have the same methods. Requests raise `ServerError`; unsolicited messages go to the session.
"""

from __future__ import annotations

import asyncio
import os
import re
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager, suppress
from typing import TYPE_CHECKING
from urllib.parse import urljoin

from msgspec import Raw

from clawkit.errors import ToolError
from clawkit.mcp import protocol
from clawkit.mcp.protocol import SESSION_HEADER, VERSION_HEADER
from clawkit.net.addresses import parse_url
from clawkit.net.client import Response
from clawkit.net.route import NetError, join_headers
from clawkit.net.sse import EventStream
from clawkit.process import jsonrpc

if TYPE_CHECKING:
    from clawkit.config.sections.plugins import McpServer
    from clawkit.mcp.connected_server import McpSession
    from clawkit.mcp.oauth import OAuth
    from clawkit.process.local_host import LocalRunning

GRACE_S = 1.0
MAX_RESUMED = 5
MAX_RETRY_S = 30.0
MAX_REFUSAL = 64 * 1024
"""Maximum bytes of an error body."""
MAX_TASKS = 16
_LONG_S = 10.0**7
_STREAM = "text/event-stream"
_CANCELLED = "notifications/cancelled"
_NO_HEADERS: Mapping[str, str] = {}


class StdioPeer:
    """A server that runs as a local program."""

    version = ""

    def __init__(
        self, program: LocalRunning, session: McpSession, on_end: Callable[[], None]
    ) -> None:
        self._program = program
        sink, source = os.fdopen(program.pipes[0], "wb", 0), os.fdopen(program.pipes[1], "rb", 0)
        heard = session.on_request, session.on_notice, on_end
        self._wire = jsonrpc.Connection(sink, source, jsonrpc.LineFrames(), *heard)

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
            with suppress(jsonrpc.ServerError):
                self._wire.notify(_CANCELLED, {"requestId": number})
            raise

    async def notify(self, method: str, params: Mapping[str, object]) -> None:
        self._wire.notify(method, params)

    async def listen(self) -> bool:
        return False

    async def close(self) -> None:
        has_ended = bool(self._wire.ended)
        self._wire.end("closed")
        try:
            if has_ended:  # its output can still explain it
                await asyncio.wait([self._program.gone], timeout=GRACE_S)
        finally:
            await self._program.end(GRACE_S)


class HttpPeer(jsonrpc.Dialogue):
    """Streamable HTTP: each message is a separate request."""

    _must_answer = True
    """Whether the response to a request contains its answer."""

    def __init__(
        self,
        entry: McpServer,
        session: McpSession,
        on_end: Callable[[], None],
        login: OAuth,
    ) -> None:
        super().__init__(session.on_request, session.on_notice, on_end)
        self.version = self._session_id = ""
        self._url, self._login = entry.url or "", login
        self._connect_s = entry.connection_timeout_ms / 1000

    async def request(
        self, method: str, params: Mapping[str, object], headers: Mapping[str, str]
    ) -> Raw:
        if self.ended:
            raise jsonrpc.ServerError(self.ended)
        number = self.next_id()
        future: asyncio.Future[Raw] = asyncio.get_running_loop().create_future()
        self._pending[number] = future
        try:
            await self._post(protocol.request(number, method, params), headers, future)
            return await future
        except asyncio.CancelledError:
            if self._session_id and not self.ended:  # delete the session of the older era
                self._spawn(self.notify(_CANCELLED, {"requestId": number}))
            raise
        except jsonrpc.ServerError as error:
            if error.code == 404 and self._session_id:
                self.end("its session has expired")
            raise
        finally:
            del self._pending[number]
            if future.done() and not future.cancelled():
                future.exception()  # it was raised, or its waiter is gone

    async def notify(self, method: str, params: Mapping[str, object]) -> None:
        await self._post(protocol.notification(method, params))

    async def listen(self) -> bool:
        """Receive messages of an older-era server between requests, until the stream ends; false if
        there is no stream."""
        async with self._ask("GET") as response:
            await self._read_stream(response, bool)
        return True

    async def close(self) -> None:
        self.end("closed")
        await asyncio.gather(*self._tasks, return_exceptions=True)
        if self._session_id:
            with suppress(ToolError, TimeoutError):
                async with asyncio.timeout(GRACE_S), self._ask("DELETE"):
                    pass

    def _send(self, message: Mapping[str, object]) -> None:
        if len(self._tasks) < MAX_TASKS:
            self._spawn(self._post(protocol.encode(message)))

    @asynccontextmanager
    async def _ask(
        self, verb: str, headers: Mapping[str, str] = _NO_HEADERS, body: bytes = b""
    ) -> AsyncIterator[Response]:
        """Send a request, repeated with a new token if required. Raises `ServerError`, including
        for an error status."""
        about = {"Accept": f"application/json, {_STREAM}" if body else _STREAM}
        about |= {"Content-Type": "application/json"} if body else {}
        about |= {SESSION_HEADER: self._session_id} if self._session_id else {}
        about |= {VERSION_HEADER: self.version} if self.version else {}
        try:
            while True:
                own = await self._login.headers()
                async with self._login.http.stream(
                    verb,
                    self._url,
                    headers=join_headers(about, headers, own),
                    body=body,
                    route=self._login.route,
                    timeout_s=_LONG_S,
                    connect_s=self._connect_s,
                ) as response:
                    status = response.status
                    if status < 400:
                        given = response.headers.get(SESSION_HEADER, "")
                        if re.fullmatch("[!-~]{1,1024}", given):
                            self._session_id = given
                        yield response
                        return
                    challenge = response.headers.get("www-authenticate", "")
                    said = await response.read(MAX_REFUSAL)
                if status not in (401, 403) or not await self._login.renew(status, challenge, own):
                    raise _refusal(status, said)
        except NetError as error:
            raise jsonrpc.ServerError(str(error)) from None

    async def _post(
        self,
        body: bytes,
        headers: Mapping[str, str] = _NO_HEADERS,
        answer: asyncio.Future[Raw] | None = None,
    ) -> None:
        """Send a message, and read the response until `answer` is done."""

        def is_done() -> bool:
            return answer is None or answer.done()

        last, retry_s = "", 0.0
        async with self._ask("POST", headers, body) as response:
            kind = response.headers.get("content-type", "").partition(";")[0].strip().lower()
            if kind == _STREAM:
                last, retry_s = await self._read_stream(response, is_done)
            elif answer is not None and kind == "application/json":
                data = await response.read(jsonrpc.MAX_BODY + 1)
                if len(data) > jsonrpc.MAX_BODY:
                    raise jsonrpc.ServerError("its answer is too large")
                self._take(data)
        for _ in range(MAX_RESUMED):
            if is_done() or not last:
                break
            await asyncio.sleep(min(retry_s, MAX_RETRY_S))
            async with self._ask("GET", {**headers, "Last-Event-ID": last}) as response:
                last, retry_s = await self._read_stream(response, is_done, last, retry_s)
        if not is_done() and self._must_answer:
            raise jsonrpc.ServerError("it closed the connection without an answer")

    async def _read_stream(
        self, response: Response, is_done: Callable[[], bool], last: str = "", retry_s: float = 1.0
    ) -> tuple[str, float]:
        """Read events until the stream ends or the answer is done; returns the last event id, and
        the delay before a reconnect."""
        events, left = EventStream(jsonrpc.MAX_BODY), jsonrpc.MAX_UNASKED
        async for piece in response:
            left -= len(piece)
            if left < 0:
                raise jsonrpc.ServerError("it sends too much")
            try:
                found = events.feed(piece)
            except ValueError as error:
                raise jsonrpc.ServerError(f"it sent {error}") from None
            for event in found:
                last = event.id if event.id.isascii() and event.id.isprintable() else last
                if event.retry_ms.isdecimal():
                    retry_s = int(event.retry_ms[:9]) / 1000
                self._take_event(event.name, event.data)
            if is_done():
                break
        return last, retry_s

    def _take_event(self, name: str, data: str) -> None:
        if data.strip() and name in ("", "message"):
            self._take(data.encode())


class SsePeer(HttpPeer):
    """The transport of 2024: one stream for all answers, which announces the URL for requests."""

    _must_answer = False

    async def open(self) -> None:
        """Open the stream and wait until it announces the URL."""
        self._endpoint: asyncio.Future[str] = asyncio.get_running_loop().create_future()
        self._spawn(self._follow())
        self._url = await self._endpoint

    async def listen(self) -> bool:
        return False

    async def _follow(self) -> None:
        reason = "it ended the stream"
        try:
            await super().listen()
        except ToolError as error:  # including a required login
            reason = str(error)
        if not self._endpoint.done():
            self._endpoint.set_exception(jsonrpc.ServerError(reason))
        self.end(reason)

    def _take_event(self, name: str, data: str) -> None:
        if name != "endpoint" or self._endpoint.done():
            super()._take_event(name, data)
            return
        url = urljoin(self._url, data.strip())
        with suppress(NetError):
            if parse_url(url).origin == parse_url(self._url).origin:
                self._endpoint.set_result(url)
                return
        self._endpoint.set_exception(jsonrpc.ServerError("it named an address at another origin"))


McpPeer = StdioPeer | HttpPeer


def _refusal(status: int, body: bytes) -> jsonrpc.ServerError:
    """The error of the protocol in an answer, or one with the status as its code."""
    with suppress(*jsonrpc.UNREADABLE):
        if (error := jsonrpc.decode(body).error) is not None and error.code:
            return error.to_error()
    return jsonrpc.ServerError(f"it answered with the status {status}", status)
