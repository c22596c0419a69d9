"""A client that sends exactly what it is told."""

from __future__ import annotations

import asyncio
import json
from contextlib import suppress
from typing import Any, NamedTuple, Protocol

from tests.gateway.conftest import TOKEN

BEARER = {"Authorization": f"Bearer {TOKEN}"}


class Listening(Protocol):
    """A server on this machine."""

    @property
    def port(self) -> int: ...


class Answer(NamedTuple):
    status: int
    headers: dict[str, str]
    body: bytes

    @property
    def json(self) -> Any:
        return json.loads(self.body)


async def send(
    ground: Listening,
    method: str,
    path: str,
    body: object = None,
    headers: dict[str, str] | None = None,
    *,
    login: bool = True,
) -> Answer:
    """One request on a connection of its own. A body that is not bytes is sent as JSON."""
    data = body if isinstance(body, bytes) else b"" if body is None else json.dumps(body).encode()
    given = {
        "Host": f"127.0.0.1:{ground.port}",
        "Connection": "close",
        **({"Content-Type": "application/json"} if data else {}),
        **({"Content-Length": str(len(data))} if data or method == "POST" else {}),
        **(BEARER if login else {}),
        **(headers or {}),
    }
    lines = [f"{method} {path} HTTP/1.1", *(f"{name}: {value}" for name, value in given.items())]
    return await exchange(ground, "\r\n".join([*lines, "", ""]).encode("latin-1") + data)


async def exchange(ground: Listening, data: bytes) -> Answer:
    reader, writer = await asyncio.open_connection("127.0.0.1", ground.port)
    answer = b""
    try:
        # A server that has read enough resets the connection; its answer came before that.
        with suppress(ConnectionError):
            for start in range(0, len(data), 65_536):
                writer.write(data[start : start + 65_536])
                await writer.drain()
                await asyncio.sleep(0)
        with suppress(ConnectionError):
            while piece := await asyncio.wait_for(reader.read(65_536), 15):
                answer += piece
    finally:
        writer.close()
    head, _, body = answer.partition(b"\r\n\r\n")
    first, *rest = head.decode("latin-1").split("\r\n")
    headers = {line.partition(":")[0].lower(): line.partition(":")[2].strip() for line in rest}
    if headers.get("transfer-encoding") == "chunked":
        body = _joined(body)
    return Answer(int(first.split(" ")[1]), headers, body)


def _joined(body: bytes) -> bytes:
    found = b""
    while body:
        size, _, body = body.partition(b"\r\n")
        if not (length := int(size, 16)):
            break
        found, body = found + body[:length], body[length + 2 :]
    return found
