"""However much a service sends, the process does not grow without limit.

The model is asked in a process of its own, which says by how much it grew at the most.
"""

from __future__ import annotations

import asyncio
import json
import sys
import zlib
from collections.abc import Iterator

import pytest

# What it takes at the most is about 70 MB, and a little more where the machine is busy and much is
# read at once.
MAX_GROWTH_KB = 80 * 1024
ASK = r"""
import asyncio, sys
from clawkit.config.modelref import parse_ref
from clawkit.content import Text, User
from clawkit.models.client import HttpModel
from clawkit.models.protocols import Endpoint, ModelError, Request
from clawkit.net.client import Client

def peak():
    with open("/proc/self/status") as file:
        return next(int(line.split()[1]) for line in file if line.startswith("VmHWM"))

import clawkit.models.wire.completions, clawkit.models.errors, clawkit.net.connect, json, zlib

start = peak()

async def run():
    client = Client()
    model = HttpModel(Endpoint(parse_ref("svc/m"), "openai-completions", sys.argv[1]), client)
    try:
        async for _ in model.stream(Request("", (User((Text("Hello?"),)),))):
            pass
    except ModelError as error:
        print(peak() - start, error.kind, error)
    await client.close()

asyncio.run(run())
"""


def event(text: str) -> bytes:
    chunk = {"choices": [{"index": 0, "delta": {"content": text}}]}
    return b"data: " + json.dumps(chunk, ensure_ascii=False).encode() + b"\n\n"


def repeat(start: bytes, body: bytes, total: int) -> Iterator[bytes]:
    yield start
    block = body * (1 + 65_536 // len(body))
    for _ in range(total // len(block)):
        yield block


def packed(pieces: Iterator[bytes]) -> Iterator[bytes]:
    gzip = zlib.compressobj(1, wbits=31)
    for piece in pieces:
        yield gzip.compress(piece)
    yield gzip.flush()


MB = 1024 * 1024
ENDLESS = {
    "text": lambda: repeat(b"", event("word " * 60), 300 * MB),
    "wide text in large pieces": lambda: repeat(b"", event("x😀" * 4_000), 300 * MB),
    "one event": lambda: repeat(b"data: ", b"x" * 1_000, 300 * MB),
    "one answer": lambda: repeat(b'{"choices": [', b" " * 1_000, 300 * MB),
    "one answer of small objects": lambda: repeat(b'{"choices": [[]', b",[]", 7 * MB),
    "small objects": lambda: repeat(b'data: {"choices": [[]', b",[]", 7 * MB),
}


@pytest.mark.parametrize("is_packed", [False, True], ids=["plain", "gzip"])
@pytest.mark.parametrize("kind", ENDLESS)
async def test_an_answer_without_end_takes_little_memory(kind: str, is_packed: bool) -> None:
    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        coding = b"Content-Encoding: gzip\r\n" if is_packed else b""
        writer.write(b"HTTP/1.1 200 OK\r\n" + coding + b"\r\n")
        pieces = ENDLESS[kind]()
        try:
            for piece in packed(pieces) if is_packed else pieces:
                writer.write(piece)
                await writer.drain()
            writer.write(b"" if is_packed else b"\n\n")
        except ConnectionError:
            pass
        finally:
            writer.close()

    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    url = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"
    child = await asyncio.create_subprocess_exec(
        sys.executable, "-c", ASK, url, stdout=asyncio.subprocess.PIPE
    )
    output, _ = await child.communicate()
    server.close()
    growth, error_kind, words = output.decode().split(" ", 2)
    assert error_kind == "malformed", words
    assert int(growth) < MAX_GROWTH_KB, words
