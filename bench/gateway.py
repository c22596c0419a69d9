"""`clawkit agent` through a running gateway: start to first request, and the gap between answer and
next request, compared with runs without a gateway."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from bench.agent import CLAWKIT, Service, _low, _repeat, _reply, _start, configure, spawn
from bench.figure import Figure, fastest

STARTS, STEPS, ROUNDS = 15, 60, 4
BUDGET_MS = 60


class ManyConnections(Service):
    """A gateway keeps the connections of its sessions open."""

    def _talk(self, link: socket.socket) -> None:
        threading.Thread(target=super()._talk, args=(link.dup(),), daemon=True).start()


def _env(place: Path) -> dict[str, str]:
    env = {key: value for key, value in os.environ.items() if key != "PYTHONDONTWRITEBYTECODE"}
    return env | {"CLAWKIT_HOME": str(place / "home")}


@contextmanager
def _gateway(place: Path) -> Iterator[None]:
    argv = [CLAWKIT, "gateway", "run", "--port", "0"]
    quiet = subprocess.DEVNULL
    process = subprocess.Popen(
        argv, env=_env(place), stdin=quiet, stdout=quiet, stderr=subprocess.PIPE
    )
    try:
        assert process.stderr is not None
        while b"gateway token" not in process.stderr.readline():
            assert process.poll() is None, "the gateway did not start"
        yield
    finally:
        process.send_signal(signal.SIGTERM)
        process.wait(30)


def _forever() -> Iterator[bytes]:
    while True:
        yield _reply(text="hello")


def _start_up(place: Path) -> Figure:
    service = ManyConnections(_forever())
    configure(place, service)
    spawn(place, "--local").wait(60)
    base: list[float] = []
    ours: list[float] = []
    with _gateway(place):
        spawn(place).wait(60)
        for _ in range(STARTS):
            argv = [sys.executable, "-c", "pass"]
            base.append(fastest(lambda: subprocess.run(argv, check=True), 1))  # noqa: B023
            began, before = time.perf_counter(), len(service.came)
            spawn(place).wait(60)
            ours.append(service.came[before] - began)
    service.close()
    pass_ms, took_ms = min(base) * 1e3, min(ours) * 1e3
    note = f"python -c pass: {pass_ms:.1f} ms"
    limit = BUDGET_MS + 2 * pass_ms
    return Figure("agent through a gateway, to first request", took_ms, "ms", limit, note)


def _gaps(place: Path, *options: str) -> float:
    service = ManyConnections(_repeat("read", {"path": "small.txt"}, STEPS))
    # The provider's address is in the configuration, so the session is one of another service.
    process = _start(place, service, *options)
    process.wait(120)
    service.close()
    return _low(service.gaps()[5:])


def _gap(place: Path) -> Figure:
    """The best of some rounds each."""
    here: list[float] = []
    there: list[float] = []
    for _ in range(ROUNDS):
        here.append(_gaps(place, "--local"))
        there.append(_gaps_in_gateway(place))
    note = f"{min(there):.2f} ms against {min(here):.2f} ms without"
    return Figure("reply to next request, gateway", min(there) / min(here), "x", 1.2, note)


def _gaps_in_gateway(place: Path) -> float:
    service = ManyConnections(_repeat("read", {"path": "small.txt"}, STEPS))
    configure(place, service)
    with _gateway(place):
        spawn(place).wait(120)
    service.close()
    return _low(service.gaps()[5:])


def measure() -> Iterator[Figure]:
    with tempfile.TemporaryDirectory(prefix="clawkit-bench-") as name:
        place = Path(name)
        yield _start_up(place)
        yield _gap(place)
