"""A gateway in a process, clients of it, and a model that streams at a steady pace."""

from __future__ import annotations

import asyncio
import json
import os
import re
import signal
import subprocess
import sys
import time
import uuid
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from websockets.asyncio.client import ClientConnection, connect

CLAWKIT = os.path.join(os.path.dirname(sys.executable), "clawkit")
TOKEN = "T0KEN-for-the-bench"
_ADDRESS = re.compile(r"ws://127\.0\.0\.1:(\d+)")
_LENGTH = re.compile(rb"content-length: *([0-9]+)", re.IGNORECASE)


class GatewayProcess:
    """A gateway in its own directory, which can be stopped, killed and restarted."""

    def __init__(self, place: Path, model_url: str = "") -> None:
        self.port = 0
        self._process: subprocess.Popen[str] | None = None
        home = place / "home"
        home.mkdir(mode=0o700, exist_ok=True)
        config: dict[str, Any] = {"gateway": {"auth": {"token": TOKEN}}}
        if model_url:
            provider = {"baseUrl": model_url, "api": "openai-completions", "apiKey": "k"}
            provider |= {"models": [{"id": "m", "name": "m", "contextWindow": 1_000_000}]}  # type: ignore[dict-item]
            config["models"] = {"providers": {"bench": provider}}
            config["agents"] = {"defaults": {"model": "bench/m", "workspace": str(place)}}
        file = place / "clawkit.json5"
        file.write_text(json.dumps(config), encoding="utf-8")
        self._env = {**os.environ, "CLAWKIT_HOME": str(home), "CLAWKIT_CONFIG": str(file)}
        self._env.pop("PYTHONDONTWRITEBYTECODE", None)

    @property
    def url(self) -> str:
        return f"ws://127.0.0.1:{self.port}/"

    def start(self) -> float:
        """Start it, on its previous port; returns the seconds until it is ready."""
        started = time.perf_counter()
        self._process = subprocess.Popen(
            [CLAWKIT, "gateway", "run", "--port", str(self.port)],
            env=self._env,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )
        assert self._process.stdout is not None
        said = []
        while not (found := _ADDRESS.search(line := self._process.stdout.readline())):
            said.append(line)
            if not line:
                raise RuntimeError(f"the gateway did not start: {''.join(said)}")
        self.port = int(found[1])
        return time.perf_counter() - started

    def stop(self, how: signal.Signals = signal.SIGTERM) -> None:
        if self._process is not None:
            self._process.send_signal(how)
            self._process.communicate(timeout=60)
            self._process = None

    @property
    def pid(self) -> int:
        assert self._process is not None
        return self._process.pid

    def memory_mb(self) -> float:
        """The memory of the gateway and its children."""
        return sum(map(_pss_kb, _family(self.pid))) / 1024


def _family(pid: int) -> list[int]:
    with open(f"/proc/{pid}/task/{pid}/children", encoding="ascii") as file:
        return [pid, *(each for child in file.read().split() for each in _family(int(child)))]


def _pss_kb(pid: int) -> int:
    with open(f"/proc/{pid}/smaps_rollup", encoding="ascii") as file:
        return next(int(line.split()[1]) for line in file if line.startswith("Pss:"))


class GatewayUser:
    """A logged-in client that reads continuously and passes events on."""

    def __init__(
        self, socket: ClientConnection, on_event: Callable[[dict[str, Any]], None]
    ) -> None:
        self._socket, self._on_event = socket, on_event
        self._asked: dict[str, asyncio.Future[Any]] = {}

    async def read(self) -> None:
        try:
            async for text in self._socket:
                frame = json.loads(text)
                if frame["type"] == "event":
                    self._on_event(frame)
                elif (waiting := self._asked.get(frame["id"])) and not waiting.done():
                    waiting.set_result(frame)
        finally:
            for waiting in self._asked.values():
                if not waiting.done():
                    waiting.set_exception(ConnectionError("the gateway has left"))
                    waiting.exception()  # whoever waited may have left, too

    async def call(self, method: str, **params: Any) -> Any:
        """The payload. Raises `RuntimeError` for an error answer."""
        id_ = str(uuid.uuid4())
        self._asked[id_] = asyncio.get_running_loop().create_future()
        frame = {"type": "req", "id": id_, "method": method, "params": params}
        try:
            await self._socket.send(json.dumps(frame))
            answer = await self._asked[id_]
        finally:
            del self._asked[id_]
        if not answer["ok"]:
            raise RuntimeError(f"{method}: {answer['error']['message']}")
        return answer["payload"]


@asynccontextmanager
async def join(
    url: str, on_event: Callable[[dict[str, Any]], None] = lambda _: None, **more: Any
) -> AsyncIterator[GatewayUser]:
    async with connect(
        url, compression=None, proxy=None, max_size=2**26, close_timeout=1
    ) as socket:
        user = GatewayUser(socket, on_event)
        reader = asyncio.ensure_future(user.read())
        params = {
            "minProtocol": 4,
            "maxProtocol": 4,
            "client": {"id": "cli", "version": "1", "platform": "linux", "mode": "cli"},
            "scopes": ["operator.admin"],
            "auth": {"token": TOKEN},
        }
        try:
            await user.call("connect", **params, **more)
            yield user
        finally:
            reader.cancel()


class PacedModel:
    """A model server: `answer` returns the pieces of each answer, and the seconds between them."""

    def __init__(self, answer: Callable[[dict[str, Any]], tuple[list[str], float]]) -> None:
        self._answer = answer
        self.url = ""

    async def serve(self) -> asyncio.Server:
        server = await asyncio.start_server(self._talk, "127.0.0.1", 0, backlog=1_000)
        self.url = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}/v1"
        return server

    async def _talk(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            while True:
                head = await reader.readuntil(b"\r\n\r\n")
                found = _LENGTH.search(head)
                body = await reader.readexactly(int(found[1]) if found else 0)
                await self._reply(writer, json.loads(body))
        except (asyncio.IncompleteReadError, ConnectionError, asyncio.CancelledError):
            pass  # the gateway has left, or the server ends
        finally:
            writer.close()

    async def _reply(self, writer: asyncio.StreamWriter, request: dict[str, Any]) -> None:
        pieces, pause_s = self._answer(request)
        kind = b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\n"
        writer.write(kind + b"transfer-encoding: chunked\r\n\r\n")
        for piece in pieces:
            await asyncio.sleep(pause_s)
            text = piece or f"{time.monotonic()} "
            writer.write(_chunk({"choices": [{"index": 0, "delta": {"content": text}}]}))
        last = {"delta": {}, "index": 0, "finish_reason": "stop"}
        writer.write(
            _chunk({"choices": [last], "usage": {"prompt_tokens": 9, "completion_tokens": 5}})
        )
        writer.write(b"e\r\ndata: [DONE]\n\n\r\n0\r\n\r\n")
        await writer.drain()


def _chunk(body: dict[str, Any]) -> bytes:
    data = b"data: " + json.dumps(body).encode() + b"\n\n"
    return f"{len(data):x}\r\n".encode() + data + b"\r\n"
