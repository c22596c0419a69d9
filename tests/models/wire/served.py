"""One prepared answer over HTTP, for the official SDKs, and the same bytes for a decoder."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Iterable
from contextlib import asynccontextmanager
from typing import Any

from hypothesis import strategies as st

from clawkit.content import Assistant
from clawkit.models.protocols import Delta
from clawkit.models.wire.answer import AnswerDecoder
from clawkit.net.sse import ServerEvent


def sse(events: Iterable[dict[str, Any]], *, named: bool = True) -> bytes:
    """Events as they go over the wire."""
    lines = []
    for event in events:
        name = f"event: {event['type']}\n" if named else ""
        lines.append(f"{name}data: {json.dumps(event)}\n\n")
    return "".join(lines).encode()


def events_of(stream: bytes) -> list[ServerEvent]:
    """The events that well-formed bytes hold."""
    found = []
    for block in stream.decode().split("\n\n"):
        fields = dict(line.split(": ", 1) for line in block.splitlines() if ": " in line)
        if "data" in fields:
            found.append(ServerEvent(fields.get("event", ""), fields["data"]))
    return found


def read(decoder: AnswerDecoder, stream: bytes) -> tuple[Assistant, list[Delta]]:
    """The answer that a decoder makes of the bytes, and everything it told on the way."""
    deltas = [delta for event in events_of(stream) for delta in decoder.feed(event)]
    return decoder.finish(), deltas


@asynccontextmanager
async def serving(stream: bytes) -> AsyncIterator[tuple[str, list[dict[str, Any]]]]:
    """A server that answers everything with the bytes: its address, and the bodies it got."""
    bodies: list[dict[str, Any]] = []

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        head = await reader.readuntil(b"\r\n\r\n")
        lines = head.decode().lower().split("\r\n")
        sizes = [line.split(":")[1] for line in lines if line.startswith("content-length:")]
        bodies.append(json.loads(await reader.readexactly(int(sizes[0]))))
        writer.write(
            b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\nconnection: close\r\n"
            b"content-length: %d\r\n\r\n" % len(stream) + stream
        )
        await writer.drain()
        writer.close()
        await writer.wait_closed()

    server = await asyncio.start_server(answer, "127.0.0.1", 0)
    async with server:
        port = server.sockets[0].getsockname()[1]
        yield f"http://127.0.0.1:{port}", bodies


_VALUES = st.recursive(
    st.none() | st.booleans() | st.integers(-3, 9) | st.floats() | st.text(max_size=5),
    lambda inner: (
        st.lists(inner, max_size=2) | st.dictionaries(st.text(max_size=4), inner, max_size=2)
    ),
    max_leaves=4,
)


def _places(value: Any, path: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    """Where in a value another one can be put."""
    items = value.items() if isinstance(value, dict) else enumerate(value)
    found = []
    for key, item in items:
        found.append((*path, key))
        if isinstance(item, dict | list):
            found += _places(item, (*path, key))
    return found


@st.composite
def damaged(draw: st.DrawFn, events: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """The events with something else in some places, in another order, or without their end."""
    events = json.loads(json.dumps(events))
    for _ in range(draw(st.integers(0, 4))):
        event = events[draw(st.integers(0, len(events) - 1))]
        *path, last = draw(st.sampled_from(_places(event)))
        for key in path:
            event = event[key]
        event[last] = draw(_VALUES)
    if draw(st.booleans()):
        return draw(st.permutations(events))
    return events[: draw(st.integers(0, len(events)))]
