"""Servers that say what a test wants, byte by byte."""

from __future__ import annotations

import asyncio
import ssl
import subprocess
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import NamedTuple

from clawkit.net.client import Client
from clawkit.net.route import Route

LOCAL = "127.0.0.1"
OK = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok"
Serve = Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]]


class Asked(NamedTuple):
    """A request as a server reads it."""

    line: str
    headers: dict[str, str]
    body: bytes


async def read_request(reader: asyncio.StreamReader) -> Asked:
    line, *rest = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1")[:-4].split("\r\n")
    headers = {}
    for each in rest:
        name, _, value = each.partition(": ")
        assert name.lower() not in headers
        headers[name.lower()] = value
    body = await reader.readexactly(int(headers.get("content-length", "0")))
    return Asked(line, headers, body)


class Server:
    """A server on this machine. `connections` counts those that were accepted."""

    def __init__(self, serve: Serve) -> None:
        self._serve = serve
        self.connections = 0
        self.asked: list[Asked] = []
        self.port = 0
        self.ended = asyncio.Event()
        """Set when a connection is over."""

    def url(self, path: str = "/", host: str = LOCAL, scheme: str = "http") -> str:
        return f"{scheme}://{host}:{self.port}{path}"

    async def accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.connections += 1
        try:
            with suppress(asyncio.IncompleteReadError, OSError, asyncio.CancelledError):
                await self._serve(reader, writer)
        finally:
            self.ended.set()
            writer.transport.abort()


@asynccontextmanager
async def serving(serve: Serve, context: ssl.SSLContext | None = None) -> AsyncIterator[Server]:
    server = Server(serve)
    opened: list[asyncio.StreamWriter] = []

    def begin(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> Awaitable[None]:
        opened.append(writer)
        return server.accept(reader, writer)

    listener = await asyncio.start_server(begin, LOCAL, 0, ssl=context)
    server.port = listener.sockets[0].getsockname()[1]
    tasks_before = asyncio.all_tasks()
    try:
        yield server
    finally:
        listener.close()
        mine = asyncio.all_tasks() - tasks_before
        for task in mine:
            task.cancel()
        await asyncio.gather(*mine, return_exceptions=True)
        for writer in opened:
            writer.transport.abort()  # also of what had no time to begin
        # Aborted connections are closed in the next round of the loop.
        await asyncio.sleep(0)


@asynccontextmanager
async def answering(
    *answers: bytes, then_close: bool = False, context: ssl.SSLContext | None = None
) -> AsyncIterator[Server]:
    """A server that gives these answers in turn, and the last one from then on."""
    left = list(answers)

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while True:
            server.asked.append(await read_request(reader))
            writer.write(left.pop(0) if len(left) > 1 else left[0])
            await writer.drain()
            if then_close:
                if writer.can_write_eof():
                    writer.write_eof()
                else:
                    writer.close()
                await reader.read()
                return

    async with serving(serve, context) as server:
        yield server


@asynccontextmanager
async def making_client(
    names: Mapping[str, Sequence[str]] | None = None, *, max_idle: int = 8, idle_s: float = 30
) -> AsyncIterator[Client]:
    """A client that knows the addresses of these names and no others."""

    async def resolve(host: str, port: int) -> Sequence[str]:
        if names is None or host not in names:
            raise OSError(-2, "Name or service not known")
        return names[host]

    client = Client(max_idle=max_idle, idle_s=idle_s, resolve=resolve)
    try:
        yield client
    finally:
        await client.close()


async def get(client: Client, url: str, **options: object) -> tuple[int, bytes]:
    route = options.pop("route", Route())
    assert isinstance(route, Route)
    async with client.stream("GET", url, headers={}, route=route, **options) as response:  # type: ignore[arg-type]
        return response.status, await response.read(1_000_000)


class Identity(NamedTuple):
    """A certificate and its key, as PEM text, and the files they are in."""

    cert: str
    key: str
    cert_file: Path
    key_file: Path


def make_identity(
    folder: Path, name: str, *, by: Identity | None = None, names: str = "", days: int = 30
) -> Identity:
    """A certificate made with the `openssl` program: an authority's, or one it signed."""
    cert, key, request, more = (folder / f"{name}.{kind}" for kind in ("pem", "key", "csr", "ext"))
    new = ["-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes"]
    about = ["-keyout", str(key), "-subj", f"/CN={name}"]
    until = ["-days", str(days), "-out", str(cert)]
    if by is None:
        usage = ["-addext", "keyUsage=critical,keyCertSign,cRLSign"]
        _openssl("req", "-x509", *new, *about, *usage, *until)
    else:
        lines = ["authorityKeyIdentifier=keyid", "subjectKeyIdentifier=hash"]
        more.write_text("\n".join([*lines, f"subjectAltName={names or f'DNS:{name}'}"]))
        _openssl("req", "-new", *new, *about, "-out", str(request))
        signer = ["-CA", str(by.cert_file), "-CAkey", str(by.key_file), "-extfile", str(more)]
        _openssl("x509", "-req", "-in", str(request), *signer, *until)
    return Identity(cert.read_text(), key.read_text(), cert, key)


def lock_key(identity: Identity, passphrase: str) -> str:
    """The key as PEM text that only a passphrase opens."""
    source = str(identity.key_file)
    return _openssl("ec", "-in", source, "-aes128", "-passout", f"pass:{passphrase}")


def _openssl(*arguments: str) -> str:
    done = subprocess.run(["openssl", *arguments], capture_output=True, text=True, check=True)
    return done.stdout
