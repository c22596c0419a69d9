"""The server of one client, over standard input and output."""

from __future__ import annotations

import asyncio
import os
import signal

import msgspec

from clawkit.line_reader import LineReader
from clawkit.mcp import protocol as mcp
from clawkit.mcp_server.client import OpenKit
from clawkit.mcp_server.server import Server, read_meta

MAX_LINE = 16 * 1024 * 1024
MAX_UNSENT = 64 * 1024 * 1024
"""Bytes in the queue to the client; one that reads nothing is taken for dead."""
DRAIN_S = 1.0
"""How long answers may take after the client has closed its end."""
_SESSION = "stdio"


def serve_stdio(open_kit: OpenKit) -> None:
    """Serve until the end of the input, SIGTERM or Ctrl-C.

    Only the protocol has the two streams: whatever else is printed goes to standard error, and
    programs that are started find their input empty.
    """
    source, sink = os.dup(0), os.dup(1)
    null = os.open(os.devnull, os.O_RDONLY)
    os.dup2(null, 0)
    os.dup2(2, 1)
    os.close(null)
    try:
        asyncio.run(_serve(open_kit, source, sink))
    finally:
        os.close(source)
        os.close(sink)


async def _serve(open_kit: OpenKit, source: int, sink: int) -> None:
    connection = StdioConnection(open_kit, source, sink)
    loop = asyncio.get_running_loop()
    serving = asyncio.ensure_future(connection.serve())
    for number in (signal.SIGINT, signal.SIGTERM):
        loop.add_signal_handler(number, serving.cancel)
    await asyncio.wait([serving])
    if not serving.cancelled():
        serving.result()


class StdioConnection:
    def __init__(self, open_kit: OpenKit, source: int, sink: int) -> None:
        self._server = Server(open_kit, session="main")
        self._lines = LineReader(source, MAX_LINE)
        self._sink = sink
        self._unsent = bytearray()
        self._sent = asyncio.Event()
        self._loop = asyncio.get_running_loop()
        self._is_open = True
        self._serving: asyncio.Task[None] | None = None

    async def serve(self) -> None:
        """Answer until the end of the input, and stop everything that runs then."""
        self._serving = asyncio.current_task()
        was_blocking = os.get_blocking(self._sink)
        os.set_blocking(self._sink, False)
        try:
            is_rest = False
            while line := await self._lines.next():
                if len(line) > MAX_LINE and not is_rest:
                    message = f"the line is longer than {MAX_LINE} bytes"
                    self._send(mcp.failure(None, mcp.McpError(mcp.INVALID_REQUEST, message)))
                elif not is_rest and line.strip():
                    await self._take(line)
                is_rest = not line.endswith(b"\n")
            await self._drain()
        finally:
            await self._server.close()
            self._loop.remove_writer(self._sink)
            os.set_blocking(self._sink, was_blocking)

    async def _drain(self) -> None:
        """Give the answers that are under way a moment."""
        try:
            async with asyncio.timeout(DRAIN_S):
                running = [
                    t for each in self._server.clients.values() for t in each.running.values()
                ]
                if running:
                    await asyncio.wait(running)
                    await asyncio.sleep(0)  # for what happens when they are done
                while self._unsent:
                    self._sent.clear()
                    await self._sent.wait()
        except TimeoutError:
            pass

    async def _take(self, line: bytes) -> None:
        id_: mcp.Id | None = None
        try:
            message = mcp.decode(line)
            if message.id is None:
                raise mcp.McpError(mcp.INVALID_REQUEST, "the id must not be null")
            if isinstance(message.method, msgspec.UnsetType):
                if (client := self._server.clients.get(_SESSION)) is not None:
                    client.take_answer(message)
            elif isinstance(message.id, msgspec.UnsetType):
                for each in self._server.clients.values():
                    each.take_notification(message)
            else:
                id_ = message.id
                await self._begin(message)
        except mcp.McpError as error:
            self._send(mcp.failure(id_, error))

    async def _begin(self, message: mcp.Message) -> None:
        if message.method == "initialize":
            _key, answer = await self._server.initialize(message, _SESSION, _SESSION)
            self._send(answer)
            return
        meta = read_meta(message)
        client = self._server.clients.get(_SESSION)
        if meta.version is not None or client is None:
            if meta.version is None and message.method != "server/discover":
                message_ = "send initialize first, or name the protocol version in _meta"
                raise mcp.McpError(mcp.INVALID_REQUEST, message_)
            client = await self._server.find_modern(meta, _SESSION)
        task = client.start(message, self._send)
        task.add_done_callback(self._answer)

    def _answer(self, task: asyncio.Task[bytes]) -> None:
        if not task.cancelled():
            self._send(task.result())

    def _send(self, message: bytes) -> None:
        if not self._is_open:
            return
        is_idle = not self._unsent
        self._unsent += message
        self._unsent += b"\n"
        if len(self._unsent) > MAX_UNSENT:
            self._end()
        elif is_idle:
            self._write()

    def _write(self) -> None:
        try:
            sent = os.write(self._sink, self._unsent)
        except BlockingIOError:
            sent = 0
        except OSError:
            self._end()
            return
        del self._unsent[:sent]
        if self._unsent:
            self._loop.add_writer(self._sink, self._write)
        else:
            self._loop.remove_writer(self._sink)
            self._sent.set()

    def _end(self) -> None:
        """The client reads no more, so there is nothing to do for it."""
        self._is_open = False
        if self._serving is not None:
            self._serving.cancel()
