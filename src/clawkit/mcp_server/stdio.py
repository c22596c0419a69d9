"""The server of one client, over standard input and output."""

from __future__ import annotations

import asyncio
import os
import signal
import stat
from contextlib import suppress

import msgspec

from clawkit.errors import ClawkitError
from clawkit.line_reader import LineReader
from clawkit.mcp import protocol as mcp
from clawkit.mcp_server.client import OpenKit
from clawkit.mcp_server.server import RequestParams, ServedClients

MAX_LINE = 16 * 1024 * 1024
MAX_UNSENT = 64 * 1024 * 1024
"""Maximum bytes in the queue to the client; one that does not read is considered dead."""
DRAIN_S = 1.0
"""Seconds for pending answers after the client has closed its end."""
_CLIENT = "stdio"


def serve_stdio(open_kit: OpenKit) -> None:
    """Serve until the end of the input, or SIGTERM. Raises `ClawkitError`, and `KeyboardInterrupt`
    after Ctrl-C, when everything has been stopped.

    The two streams are reserved for the protocol: other output goes to standard error, and started
    programs have empty input.
    """
    if stat.S_ISREG(os.fstat(1).st_mode):
        raise ClawkitError("standard output is a file; an MCP client reads from a pipe")
    source, sink = os.dup(0), os.dup(1)
    null = os.open(os.devnull, os.O_RDONLY)
    os.dup2(null, 0)
    os.dup2(2, 1)
    os.close(null)
    asyncio.run(_serve(open_kit, source, sink))


async def _serve(open_kit: OpenKit, source: int, sink: int) -> None:
    connection = StdioConnection(open_kit, source, sink)
    serving = asyncio.ensure_future(connection.serve())
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, serving.cancel)
    try:
        await serving
    except asyncio.CancelledError:
        if (own := asyncio.current_task()) is not None and own.cancelling():
            raise  # by Ctrl-C: asyncio turns it into a KeyboardInterrupt


class StdioConnection(asyncio.BaseProtocol):
    """Reads requests from one pipe and writes answers to another."""

    def __init__(self, open_kit: OpenKit, source: int, sink: int) -> None:
        self._server = ServedClients(open_kit, session="main")
        self._lines = LineReader(source, MAX_LINE)
        self._sink = os.fdopen(sink, "wb", 0)
        self._pipe: asyncio.WriteTransport | None = None
        self._serving: asyncio.Task[None] | None = None
        self._closed = asyncio.Event()

    async def serve(self) -> None:
        """Answer until the end of the input, then stop everything."""
        loop = asyncio.get_running_loop()
        self._serving = asyncio.current_task()
        self._pipe, _ = await loop.connect_write_pipe(lambda: self, self._sink)
        try:
            is_rest = False
            while line := await self._lines.next():
                if len(line) > MAX_LINE and not is_rest:
                    message = f"the line is longer than {MAX_LINE} bytes"
                    self._send(mcp.failure(None, mcp.McpError(mcp.INVALID_REQUEST, message)))
                elif not is_rest and line.strip():
                    await self._take(line)
                is_rest = not line.endswith(b"\n")
            clients = self._server.clients.values()
            if running := [task for each in clients for task in each.running.values()]:
                await asyncio.wait(running, timeout=DRAIN_S)
        finally:
            await self._server.close()
            self._serving = None
            self._pipe.close()
            with suppress(TimeoutError):
                await asyncio.wait_for(self._closed.wait(), DRAIN_S)

    def connection_lost(self, exc: Exception | None) -> None:
        """Nothing to do: everything is sent, or the client no longer reads."""
        self._closed.set()
        if self._serving is not None:
            self._serving.cancel()

    async def _take(self, line: bytes) -> None:
        id_: mcp.Id | None = None
        try:
            message = mcp.decode(line)
            if isinstance(message.id, msgspec.UnsetType) or not message.method:
                for each in self._server.clients.values():
                    each.take(message)
                return
            id_ = message.id
            await self._begin(id_, message)
        except mcp.McpError as error:
            self._send(mcp.failure(id_, error))

    async def _begin(self, id_: mcp.Id, message: mcp.RpcMessage) -> None:
        meta = mcp.read(message.params, RequestParams).meta
        client = self._server.clients.get(_CLIENT)
        if meta.version is not None or message.method == "server/discover":
            client = await self._server.find_modern(meta, _CLIENT)
        elif message.method == "initialize":
            self._send((await self._server.initialize(id_, message, _CLIENT))[1])
            return
        if client is None:
            why = "send initialize first, or name the protocol version in _meta"
            raise mcp.McpError(mcp.INVALID_REQUEST, why)
        client.start(message, self._send).add_done_callback(self._answer)

    def _answer(self, task: asyncio.Task[bytes]) -> None:
        if not task.cancelled():
            self._send(task.result())

    def _send(self, message: bytes) -> None:
        if self._pipe is None or self._pipe.is_closing():
            return
        self._pipe.write(message + b"\n")
        if self._pipe.get_write_buffer_size() > MAX_UNSENT:
            self._pipe.abort()
