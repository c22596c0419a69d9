"""A client that sends exactly what it is told to."""

from __future__ import annotations

import asyncio
import json
import os
from collections.abc import AsyncIterator, Iterable, Mapping
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import Any

from clawkit import Tool, Toolkit
from clawkit.core.approval import Approver
from clawkit.line_reader import LineReader
from clawkit.mcp import protocol as mcp
from clawkit.mcp_server.client import OpenKit
from clawkit.mcp_server.stdio import StdioConnection

INITIALIZE = "initialize"
FORMS: dict[str, Any] = {"elicitation": {}}


def opener(
    config: Mapping[str, Any] | None, workspace: Path | str, tools: Iterable[Tool] = ()
) -> OpenKit:
    def open_kit(session: str, narrower: str, approver: Approver | None) -> Toolkit:
        return Toolkit.open(
            config or {},
            workspace=narrower or workspace,
            session=session,
            owner=True,
            approver=approver,
            tools=tools,
        )

    return open_kit


def modern(capabilities: Mapping[str, Any] | None = None, **params: Any) -> dict[str, Any]:
    """Parameters of a request that stands alone."""
    meta = {mcp.META_VERSION: mcp.MODERN, mcp.META_CAPABILITIES: capabilities or {}}
    return {**params, "_meta": {**params.get("_meta", {}), **meta}}


class Wire:
    """One end of two pipes; the server has the other."""

    def __init__(self, source: int, sink: int, serving: asyncio.Task[None]) -> None:
        self.serving = serving
        self._lines, self._source, self._sink = LineReader(source, 64 * 1024 * 1024), source, sink
        self._last = 0

    async def write(self, data: bytes) -> None:
        """Send bytes as they are."""
        for at in range(0, len(data), 32_768):
            await asyncio.to_thread(os.write, self._sink, data[at : at + 32_768])

    async def send(self, message: object) -> None:
        await self.write(json.dumps(message).encode() + b"\n")

    async def receive(self) -> dict[str, Any]:
        line = await asyncio.wait_for(self._lines.next(), 20)
        assert line.endswith(b"\n"), "the server has closed its output"
        found: dict[str, Any] = json.loads(line)
        return found

    async def start(self, method: str, params: object = None) -> int:
        """Send a request, and return its id."""
        self._last += 1
        body = {"jsonrpc": "2.0", "id": self._last, "method": method}
        await self.send(body if params is None else {**body, "params": params})
        return self._last

    async def ask(self, method: str, params: object = None) -> dict[str, Any]:
        """Send a request; the next message must be the answer."""
        number = await self.start(method, params)
        answer = await self.receive()
        assert answer.get("id") == number, answer
        return answer

    async def notify(self, method: str, params: object) -> None:
        await self.send({"jsonrpc": "2.0", "method": method, "params": params})

    async def initialize(self, capabilities: Mapping[str, Any] | None = None) -> dict[str, Any]:
        about = {"clientInfo": {"name": "a test", "version": "1"}}
        given = {"protocolVersion": "2025-11-25", "capabilities": capabilities or {}, **about}
        answer = await self.ask(INITIALIZE, given)
        await self.notify("notifications/initialized", {})
        found: dict[str, Any] = answer["result"]
        return found

    async def call(self, tool: str, **arguments: Any) -> dict[str, Any]:
        return await self.ask("tools/call", {"name": tool, "arguments": arguments})

    def hang_up(self) -> None:
        os.close(self._sink)
        self._sink = -1

    def deafen(self) -> None:
        """Read no more."""
        os.close(self._source)
        self._source = -1

    def close(self) -> None:
        if self._sink >= 0:
            os.close(self._sink)


@asynccontextmanager
async def connect(open_kit: OpenKit) -> AsyncIterator[Wire]:
    """A server over pipes, in this process."""
    source, to_server = os.pipe()
    from_server, sink = os.pipe()
    serving = asyncio.ensure_future(StdioConnection(open_kit, source, sink).serve())
    wire = Wire(from_server, to_server, serving)
    try:
        yield wire
    finally:
        wire.close()
        with suppress(asyncio.CancelledError):
            await asyncio.wait_for(serving, 20)
        if wire._source >= 0:
            wire.deafen()
        os.close(source)
