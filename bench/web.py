"""web_fetch: what fetching costs beside extracting, and its memory for a large page."""

from __future__ import annotations

import asyncio
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator

from bench.figure import Figure, fastest
from clawkit.runtime import Toolkit
from clawkit.web.extract import extract_page

ROUNDS = 12
_PARAGRAPH = "<p>Steep the leaves for three <a href='/t'>minutes</a>, then pour, and wait.</p>\n"
_CONFIG = {
    "tools": {
        "loopDetection": {"enabled": False},
        "web": {
            "fetch": {
                "cacheTtlMinutes": 0,
                "ssrfPolicy": {"allowedHostnames": ["127.0.0.1"]},
            }
        },
    }
}
_UNUSED = """
import sys
from clawkit.runtime import Toolkit
Toolkit.open({}, workspace=sys.argv[1]).tools
print([name for name in sys.modules if name.startswith("clawkit.web") or "selectolax" in name])
"""


def article_parts() -> tuple[str, str, str]:
    head = "<html><head><title>Tea</title></head><body><article>"
    return head, _PARAGRAPH * 200, "</article></body></html>"


def peak_mb() -> float:
    with open("/proc/self/status", encoding="ascii") as file:
        found = next(line for line in file if line.startswith("VmHWM"))
    return int(found.split()[1]) / 1024


async def fetch_all(folder: str, size: int, rounds: int) -> float:
    start, piece, end = (each.encode() for each in article_parts())
    count = size // len(piece)
    length = len(start) + count * len(piece) + len(end)

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        head = b"HTTP/1.1 200 OK\r\nContent-Type: text/html\r\nContent-Length: %d\r\n\r\n"
        try:
            while await reader.readuntil(b"\r\n\r\n"):
                writer.write(head % length + start)
                for _ in range(count):  # never all of it in memory
                    writer.write(piece)
                    await writer.drain()
                writer.write(end)
        except (asyncio.IncompleteReadError, OSError):
            writer.close()

    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    url = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}/"
    times = []
    async with server, Toolkit.open(_CONFIG, workspace=folder, owner=True) as kit:
        for _ in range(rounds):
            began = time.perf_counter()
            result = await kit.call("web_fetch", {"url": url})
            times.append(time.perf_counter() - began)
            assert not result.is_error, result.as_text()
    return min(times)


def measure() -> Iterator[Figure]:
    start, piece, end = article_parts()
    page = start + piece * (200_000 // len(piece)) + end
    with tempfile.TemporaryDirectory() as folder:
        fetched = asyncio.run(fetch_all(folder, 200_000, ROUNDS))
        alone = fastest(lambda: extract_page(page, base_url="http://127.0.0.1/"), ROUNDS)
        note = f"{fetched * 1e3:.1f} ms; the extractor alone {alone * 1e3:.1f}"
        yield Figure("web_fetch: 200 KB", fetched / alone, "x the extractor alone", 1.5, note)
        program = (sys.executable, "-m", "bench.web", folder)
        used = subprocess.run(program, capture_output=True, text=True, check=True).stdout
        yield Figure("web_fetch: memory for 20 MB", float(used), "MB above idle", 60)
        unused = (sys.executable, "-c", _UNUSED, folder)
        found = subprocess.run(unused, capture_output=True, text=True, check=True).stdout
        heavy = [each for each in ("fetch", "selectolax", "cache") if f"{each}'" in found]
        yield Figure("web_fetch: modules at start", len(heavy), "of those it uses", 0)


if __name__ == "__main__":
    asyncio.run(fetch_all(sys.argv[1], 40_000, 1))
    idle = peak_mb()
    asyncio.run(fetch_all(sys.argv[1], 20_000_000, 1))
    print(peak_mb() - idle)
