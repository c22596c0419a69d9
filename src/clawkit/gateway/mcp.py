"""The endpoint for clients over HTTP: one message for each POST, answered as JSON or as events.

The server that it is part of decides beforehand who may call it.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

import msgspec
from starlette.requests import Request
from starlette.responses import Response, StreamingResponse

from clawkit.gateway.http import SAFE_HEADERS, HttpError, read_bytes
from clawkit.mcp import protocol as mcp
from clawkit.mcp_server.client import OpenKit, ServedClient
from clawkit.mcp_server.server import RequestParams, ServedClients

MAX_BODY = 16 * 1024 * 1024
MAX_UNSENT = 1_000
"""Maximum queued messages to a client; further progress messages are dropped."""
_OLD = (None, "2025-03-26", *mcp.LEGACY)
"""Values of the version header in a session; a client that sends none speaks 2025-03-26."""
_STREAM = {**SAFE_HEADERS, "X-Accel-Buffering": "no"}
_OWNER = "owner"
"""All callers have the same secret."""


class McpEndpoint:
    """Serves clients of both eras at one address."""

    def __init__(self, open_kit: OpenKit) -> None:
        self.server = ServedClients(open_kit)

    async def handle(self, request: Request) -> Response:
        """Answer a request of a client who has logged in. Raises `HttpError`."""
        if request.method == "DELETE":
            self._find_session(request)
            await self.server.remove(request.headers[mcp.SESSION_HEADER])
            return Response(status_code=204, headers=SAFE_HEADERS)
        if request.method != "POST":
            allow = {"Allow": "POST, DELETE"}
            raise HttpError(405, "method_not_allowed", "Method not allowed", allow)
        body = await read_bytes(request, MAX_BODY)
        id_: mcp.Id | None = None
        try:
            message = mcp.decode(body)
            id_ = None if isinstance(message.id, msgspec.UnsetType) else message.id
            return await self._take(request, id_, message)
        except mcp.McpError as error:
            status = 404 if error.code == mcp.METHOD_NOT_FOUND else 400
            return _json(mcp.failure(id_, error), status)

    async def _take(
        self, request: Request, id_: mcp.Id | None, message: mcp.RpcMessage
    ) -> Response:
        version = request.headers.get(mcp.VERSION_HEADER)
        method = message.method if isinstance(message.method, str) else ""
        params = mcp.read(message.params, RequestParams)
        is_old = version in _OLD or mcp.SESSION_HEADER in request.headers
        if params.meta.version is not None or not is_old:
            if id_ is None or not method:
                return Response(status_code=202)  # the server needs no messages of this kind
            check_headers(request, method, params)
            client = await self.server.find_modern(params.meta, _OWNER)
            return await self._answer(request, client, message, is_modern=True)
        if method == "initialize" and id_ is not None:
            key, answer = await self.server.initialize(id_, message)
            return _json(answer, headers={mcp.SESSION_HEADER: key})
        client = self._find_session(request)
        if version not in _OLD:
            raise mcp.McpError(mcp.INVALID_REQUEST, f"unsupported {mcp.VERSION_HEADER}")
        if method and id_ is not None:
            return await self._answer(request, client, message, is_modern=False)
        client.take(message)
        return Response(status_code=202)

    def _find_session(self, request: Request) -> ServedClient:
        key = request.headers.get(mcp.SESSION_HEADER)
        if key is None:
            raise HttpError(400, "invalid_request_error", "Mcp-Session-Id is missing")
        if (client := self.server.clients.get(key)) is None:
            raise HttpError(404, "not_found", "unknown session; initialize a new one")
        return client

    async def _answer(
        self, request: Request, client: ServedClient, message: mcp.RpcMessage, *, is_modern: bool
    ) -> Response:
        """The answer alone, or a stream if messages precede it."""
        outbox: asyncio.Queue[bytes | None] = asyncio.Queue()

        def send(data: bytes) -> None:
            if outbox.qsize() < MAX_UNSENT:
                outbox.put_nowait(data)

        task = client.start(message, send, shared=is_modern)
        task.add_done_callback(lambda _task: outbox.put_nowait(None))
        first = asyncio.ensure_future(outbox.get())
        gone = asyncio.ensure_future(_wait_for_end(request))
        await asyncio.wait([first, gone], return_when=asyncio.FIRST_COMPLETED)
        gone.cancel()
        if not first.done():
            first.cancel()
            if is_modern:  # older clients cancel only by notification
                task.cancel()
            return Response(status_code=499)
        if first.result() is not None:
            stream = _stream(first.result() or b"", outbox, task, stops=is_modern)
            return StreamingResponse(stream, headers=_STREAM, media_type="text/event-stream")
        return Response(status_code=202) if task.cancelled() else _json(task.result())


def check_headers(request: Request, method: str, params: RequestParams) -> None:
    """Refuse a request whose headers are missing, repeated, or differ from its body: a proxy may
    have relied on them. Raises `McpError`."""
    wanted = {mcp.METHOD_HEADER: method}
    if params.meta.version is not None:
        wanted[mcp.VERSION_HEADER] = params.meta.version
    if method == "tools/call":
        wanted[mcp.NAME_HEADER] = params.name
    for name, value in wanted.items():
        given = request.headers.getlist(name)
        read = mcp.read_header_value(given[0]) if name == mcp.NAME_HEADER and given else None
        if len(given) != 1 or value not in (given[0], read):
            why = f"the header {name} does not match the body"
            raise mcp.McpError(mcp.HEADER_MISMATCH, why)


async def _wait_for_end(request: Request) -> None:
    """Return when the client disconnects. The body must have been read."""
    while (await request.receive())["type"] != "http.disconnect":
        pass


async def _stream(
    first: bytes,
    outbox: asyncio.Queue[bytes | None],
    task: asyncio.Task[bytes],
    *,
    stops: bool,
) -> AsyncIterator[bytes]:
    """Events up to the answer; with `stops`, the work is cancelled if the client disconnects."""
    try:
        item: bytes | None = first
        while item is not None:
            yield _event(item)
            item = await outbox.get()
        if not task.cancelled():
            yield _event(task.result())
    finally:
        if stops:
            task.cancel()


def _event(data: bytes) -> bytes:
    return b"event: message\ndata: " + data + b"\n\n"


def _json(data: bytes, status: int = 200, headers: dict[str, str] | None = None) -> Response:
    kind = "application/json"
    return Response(data, status, {**SAFE_HEADERS, **(headers or {})}, media_type=kind)
