"""An internet on this machine: names with any addresses, all served by one server here."""

from __future__ import annotations

import asyncio
import socket
from asyncio import selector_events
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from typing import Any, NamedTuple

import pytest
from tests.net.parts import Asked, Server, read_request, serving

Answer = Callable[[Asked], bytes]


class Internet(NamedTuple):
    server: Server
    connected: list[str]
    """The addresses that were connected to."""
    looked_up: list[str]


def respond(
    body: bytes | str = b"", type_: str = "text/plain", status: int = 200, **headers: str
) -> bytes:
    data = body.encode() if isinstance(body, str) else body
    lines = [f"Content-Type: {type_}"] if type_ else []
    lines += [f"{name.replace('_', '-')}: {value}" for name, value in headers.items()]
    head = "\r\n".join((f"HTTP/1.1 {status} X", f"Content-Length: {len(data)}", *lines, "", ""))
    return head.encode("latin-1") + data


@asynccontextmanager
async def internet(
    patch: pytest.MonkeyPatch,
    answer: Answer,
    names: Mapping[str, Sequence[Sequence[str]]],
) -> AsyncIterator[Internet]:
    """`names` are the addresses of each name, look-up after look-up; the last ones stay."""
    left = {name: list(answers) for name, answers in names.items()}
    connected: list[str] = []
    looked_up: list[str] = []

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while True:
            server.asked.append(await read_request(reader))
            writer.write(answer(server.asked[-1]))
            await writer.drain()

    async def look_up(_loop: object, host: str, port: int, **_rest: Any) -> list[Any]:
        looked_up.append(host)
        if host not in left:
            raise socket.gaierror(socket.EAI_NONAME, "unknown name")
        found = left[host].pop(0) if len(left[host]) > 1 else left[host][0]
        return [(socket.AF_INET, socket.SOCK_STREAM, 6, "", (each, port)) for each in found]

    real = selector_events.BaseSelectorEventLoop.sock_connect

    async def connect(loop: Any, sock: socket.socket, address: tuple[str, int]) -> None:
        connected.append(address[0])
        assert sock.family == socket.AF_INET, address
        await real(loop, sock, ("127.0.0.1", server.port))

    async with serving(serve) as server:
        patch.setattr(selector_events.BaseSelectorEventLoop, "sock_connect", connect)
        patch.setattr(selector_events.BaseSelectorEventLoop, "getaddrinfo", look_up)
        yield Internet(server, connected, looked_up)
