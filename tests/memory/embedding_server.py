"""A server on this machine that embeds texts, in the manner of five services."""

from __future__ import annotations

import asyncio
import json
import re
import zlib
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any

from tests.net.parts import Asked, Server, read_request, serving

SIZE = 64
SAME = {"physician": "doctor", "dentist": "doctor", "teeth": "doctor", "automobile": "car"}
Refuse = Callable[[Asked], tuple[int, Any] | None]
"""An answer other than vectors, if there is to be one."""


def vector_of(text: str, size: int = SIZE) -> list[float]:
    """Words with the same meaning have the same place."""
    found = [0.0] * size
    for word in re.findall(r"[a-z]{4,}", text.lower()):
        word = SAME.get(word, word)
        found[zlib.crc32(word.encode()) % size] += 1.0
    return found


def texts_of(asked: Asked) -> list[str]:
    body = json.loads(asked.body)
    if "requests" in body:
        return [each["content"]["parts"][0]["text"] for each in body["requests"]]
    found: list[str] = body["input"]
    return found


def answer_to(asked: Asked) -> Any:
    body = json.loads(asked.body)
    first = body["requests"][0] if "requests" in body else body
    keys = ("dimensions", "outputDimensionality", "output_dimension")
    size = next((first[key] for key in keys if key in first), SIZE)
    vectors = [vector_of(text, size) for text in texts_of(asked)]
    if "requests" in body:
        return {"embeddings": [{"values": each} for each in vectors]}
    if "/api/embed " in asked.line:
        return {"embeddings": vectors}
    rows = [{"index": at, "embedding": each} for at, each in enumerate(vectors)]
    return {"data": rows[::-1]}


class EmbeddingServer:
    def __init__(self, server: Server) -> None:
        self.server = server
        self.refuse: Refuse = lambda _asked: None
        self.pause_s = 0.0
        self.gate = asyncio.Event()
        """Notes are embedded once it is set; queries are not held up."""
        self.gate.set()

    @property
    def asked(self) -> list[Asked]:
        return self.server.asked

    def documents(self) -> list[str]:
        """All texts that it was sent."""
        return [text for asked in self.asked for text in texts_of(asked)]


@asynccontextmanager
async def embedding() -> AsyncIterator[EmbeddingServer]:
    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while True:
            asked = await read_request(reader)
            server.asked.append(asked)
            await asyncio.sleep(made.pause_s)
            if len(texts_of(asked)) > 1:
                await made.gate.wait()
            status, answer = made.refuse(asked) or (200, answer_to(asked))
            data = answer if isinstance(answer, bytes) else json.dumps(answer).encode()
            head = f"HTTP/1.1 {status} Answer\r\nContent-Length: {len(data)}\r\n\r\n"
            writer.write(head.encode() + data)
            await writer.drain()

    async with serving(serve) as server:
        made = EmbeddingServer(server)
        yield made
