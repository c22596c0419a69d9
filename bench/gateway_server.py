"""The gateway as a server: start, memory, small requests, many sessions, many idle clients."""

from __future__ import annotations

import asyncio
import json
import resource
import statistics
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterable
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any

from bench.figure import Figure, fastest
from bench.gateway_parts import GatewayProcess, GatewayUser, PacedModel, join

STARTS = 7
PASS_S = 0.015
"""Duration of `python -c pass` on the machine that the limits are for."""
REQUESTS, AT_ONCE = 4_000, 16
SESSIONS, PIECES, PAUSE_S = 200, 20, 0.2
IDLE = 1_000


def measure() -> Iterable[Figure]:
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (min(hard, 4_096), hard))
    try:
        with tempfile.TemporaryDirectory() as place:
            yield from _start_up(Path(place))
        with tempfile.TemporaryDirectory() as place:
            yield from asyncio.run(_many_sessions(Path(place)))
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


def _start_up(place: Path) -> Iterable[Figure]:
    gateway = GatewayProcess(place)
    base, starts = [], []
    for _ in range(STARTS):
        base.append(fastest(lambda: subprocess.run([sys.executable, "-c", "pass"], check=True), 1))
        starts.append(gateway.start())
        gateway.stop()
    scaled = min(starts) * PASS_S / min(base)
    note = f"{min(starts):.2f} s; python -c pass: {min(base) * 1e3:.0f} ms"
    yield Figure("gateway, start to ready", scaled, "s (pass: 15 ms)", 0.8, note)
    gateway.start()
    try:
        yield Figure("gateway, idle", gateway.memory_mb(), "MB PSS", 80)
        yield asyncio.run(_small_requests(gateway))
        yield asyncio.run(_idle_clients(gateway))
    finally:
        gateway.stop()


async def _small_requests(gateway: GatewayProcess) -> Figure:
    """One client with several concurrent requests; the limit is the time per request."""

    async def work(user: GatewayUser) -> None:
        for _ in range(REQUESTS // AT_ONCE):
            await user.call("system-presence")

    best = float("inf")
    async with join(gateway.url) as user:
        for _ in range(3):
            started = time.perf_counter()
            await asyncio.gather(*(work(user) for _ in range(AT_ONCE)))
            best = min(best, (time.perf_counter() - started) / REQUESTS)
    note = f"{1 / best:,.0f} requests per second; 2,500 wanted"
    return Figure("gateway, small request", best * 1e6, "us", 400, note)


async def _idle_clients(gateway: GatewayProcess) -> Figure:
    before = gateway.memory_mb()
    async with AsyncExitStack() as stack:
        for _ in range(IDLE // 20):
            opened = (join(gateway.url) for _ in range(20))
            await asyncio.gather(*map(stack.enter_async_context, opened))
        added = gateway.memory_mb() - before
    return Figure(f"gateway, {IDLE:,} idle clients", added, "MB more", 60)


async def _many_sessions(place: Path) -> Iterable[Figure]:
    """Every session has a client that follows only it. The model records when it sent each
    piece."""
    model = PacedModel(lambda _: ([""] * PIECES, PAUSE_S))
    late: list[float] = []
    heard: Counter[str] = Counter()
    ended: asyncio.Queue[str] = asyncio.Queue()

    def on_event(frame: dict[str, Any]) -> None:
        payload = frame["payload"]
        if frame["event"] == "chat" and payload["state"] == "delta":
            now = time.monotonic()
            late.extend(now - float(each) for each in payload["deltaText"].split())
            heard[payload["sessionKey"]] += len(payload["deltaText"].split())
        elif frame["event"] == "chat" and payload["state"] in ("final", "error"):
            ended.put_nowait(payload["state"])

    async with await model.serve():
        gateway = GatewayProcess(place, model.url)
        gateway.start()
        try:
            async with AsyncExitStack() as stack:
                caps, started = ["session-scoped-events"], time.perf_counter()

                async def open_one(number: int) -> None:
                    opened = join(gateway.url, on_event, caps=caps)
                    user = await stack.enter_async_context(opened)
                    name = f"bench-{number}"
                    await user.call("sessions.messages.subscribe", key=name)
                    said = {"sessionKey": name, "message": "go", "idempotencyKey": name}
                    await user.call("chat.send", **said)

                for first in range(0, SESSIONS, 20):
                    await asyncio.gather(*map(open_one, range(first, first + 20)))
                states = [await asyncio.wait_for(ended.get(), 300) for _ in range(SESSIONS)]
                took, memory = time.perf_counter() - started, gateway.memory_mb()
        finally:
            gateway.stop()
    lost = SESSIONS * PIECES - sum(heard.values()) + states.count("error")
    p99 = statistics.quantiles(late, n=100)[98]
    note = f"median {statistics.median(late) * 1e3:.0f} ms; all {SESSIONS} done in {took:.1f} s"
    return [
        Figure(f"gateway, {SESSIONS} sessions, p99", p99 * 1e3, "ms to deliver", 100, note),
        Figure(f"gateway, {SESSIONS} sessions", memory, "MB PSS", 300),
        Figure(f"gateway, {SESSIONS} sessions, lost", lost, "pieces", 0),
    ]


if __name__ == "__main__":
    for figure in measure():
        print(json.dumps(figure), flush=True)
