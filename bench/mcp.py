"""The MCP server: time from start to first answer, and the cost of a call over a pipe."""

from __future__ import annotations

import asyncio
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from bench.figure import Figure
from clawkit.mcp import protocol as mcp
from clawkit.runtime import Toolkit

STARTS, CALLS = 12, 600
CLAWKIT = os.path.join(os.path.dirname(sys.executable), "clawkit")
CONFIG: dict[str, Any] = {"tools": {"loopDetection": {"enabled": False}}}
READ = {"path": "a.txt"}
BARE = """
import json, sys
for line in sys.stdin.buffer:
    asked = json.loads(line)
    answer = {"jsonrpc": "2.0", "id": asked["id"], "result": {"content": []}}
    sys.stdout.buffer.write(json.dumps(answer).encode() + b"\\n")
    sys.stdout.buffer.flush()
"""


class Peer:
    def __init__(self, process: subprocess.Popen[bytes]) -> None:
        assert process.stdin is not None
        assert process.stdout is not None
        self._sink, self._source = process.stdin, process.stdout
        self._last = 0

    def ask(self, method: str, **params: Any) -> Any:
        self._last += 1
        meta = {mcp.META_VERSION: mcp.MODERN, mcp.META_CAPABILITIES: {}}
        body = {"jsonrpc": "2.0", "id": self._last, "method": method}
        self._sink.write(json.dumps({**body, "params": {**params, "_meta": meta}}).encode() + b"\n")
        self._sink.flush()
        answer = json.loads(self._source.readline())
        return answer["result"]

    def call_s(self) -> float:
        start = time.perf_counter()
        self.ask("tools/call", name="read", arguments=READ)
        return time.perf_counter() - start


@contextmanager
def started(*argv: str) -> Iterator[tuple[Peer, int]]:
    pipe = subprocess.PIPE
    with subprocess.Popen(argv, stdin=pipe, stdout=pipe) as process:
        yield Peer(process), process.pid
        assert process.stdin is not None
        process.stdin.close()


def memory_mb(pid: int) -> float:
    lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    [size] = [line.split()[1] for line in lines if line.startswith("VmHWM:")]
    return int(size) / 1024


async def call_in_process(kit: Toolkit) -> float:
    start = time.perf_counter()
    await kit.call("read", READ)
    return time.perf_counter() - start


def measure() -> Iterator[Figure]:
    with tempfile.TemporaryDirectory() as folder:
        Path(folder, "a.txt").write_text("hello\n" * 5)
        config = Path(folder, "clawkit.json5")
        config.write_text(json.dumps(CONFIG))
        argv = (CLAWKIT, "mcp", "serve", "--workspace", folder, "--config", str(config))
        starts, sizes = [], []
        for _ in range(STARTS):
            start = time.perf_counter()
            with started(*argv) as (peer, pid):
                peer.ask("tools/list")
                starts.append(time.perf_counter() - start)
                sizes.append(memory_mb(pid))
        yield Figure("mcp serve: start to tools/list", min(starts), "s", 0.25)
        yield Figure("mcp serve: memory then", max(sizes), "MB", 40)
        served, bare, inside = [], [], []
        kit = Toolkit.open(CONFIG, workspace=folder, owner=True)
        with (
            started(*argv) as (peer, _),
            started(sys.executable, "-c", BARE) as (echo, _),
            asyncio.Runner() as runner,
        ):
            for _ in range(CALLS):  # interleaved, so that the machine disturbs all alike
                served.append(peer.call_s())
                bare.append(echo.call_s())
                inside.append(runner.run(call_in_process(kit)))
            runner.run(kit.close())
        # Other load on the machine delays the processes that must be woken up.
        ours, trip, call = (statistics.quantiles(each, n=10)[0] for each in (served, bare, inside))
        note = (
            f"{ours * 1e6:.0f} µs; in process {call * 1e6:.0f}, a bare round trip {trip * 1e6:.0f}"
        )
        name = "mcp serve: a small read"
        yield Figure(name, ours / (call + trip), "x in process and a round trip", 1.5, note)
