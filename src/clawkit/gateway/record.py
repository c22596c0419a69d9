"""Which gateway runs for this home: its process, its address, and how it was started.

Light, like all modules for the commands that start and stop it: no libraries of the server.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from datetime import UTC, datetime
from typing import Literal, NamedTuple

import msgspec

from clawkit.config.paths import home
from clawkit.store import is_held, write_atomic
from clawkit.version import __version__

StartedBy = Literal["run", "start", "service"]
MAX_BYTES = 64 * 1024


class RunningGateway(msgspec.Struct, frozen=True, rename="camel"):
    """A gateway that is ready, as it describes itself in its home."""

    pid: int
    since: str
    host: str
    port: int
    version: str
    started_by: StartedBy
    config: str | None = None
    """The configuration file; None if there was none."""
    asked_port: int | None = None
    """The port that was given on the command line."""
    fingerprint: str = ""
    """Of the certificate; empty without TLS."""

    @property
    def url(self) -> str:
        """Where clients on this machine reach it."""
        near = {"0.0.0.0": "127.0.0.1", "::": "::1"}.get(self.host, self.host)  # noqa: S104
        scheme, shown = "wss" if self.fingerprint else "ws", f"[{near}]" if ":" in near else near
        return f"{scheme}://{shown}:{self.port}/"


class GatewayState(NamedTuple):
    """What is known about the gateway of this home."""

    pid: int
    """The process that holds its lock; 0 if none does."""
    record: RunningGateway | None

    @property
    def is_ready(self) -> bool:
        return self.pid != 0 and self.record is not None

    @property
    def stale(self) -> RunningGateway | None:
        """A gateway that was killed, or has crashed, so that it could not remove its record."""
        return self.record if self.pid == 0 else None


def lock_file() -> str:
    return os.path.join(home(os.environ), "gateway", "lock")


def record_file() -> str:
    return os.path.join(home(os.environ), "gateway", "running.json")


def look() -> GatewayState:
    """The gateway of this home. A record is removed before the lock is released."""
    path = lock_file()
    pid = _holder(path)
    record = read_record()
    if pid == 0 and record is not None:
        pid = _holder(path)  # one may have started between the two
    if pid and record is not None and record.pid != pid:
        record = None
    return GatewayState(pid, record)


def _holder(path: str) -> int:
    if not is_held(path):
        return 0
    with suppress(OSError, ValueError), open(path, encoding="ascii") as file:
        return int(file.read(20))
    return 0


def read_record() -> RunningGateway | None:
    """The record, which may be that of a gateway that was killed."""
    try:
        with open(record_file(), "rb") as file:
            return msgspec.json.decode(file.read(MAX_BYTES), type=RunningGateway)
    except (OSError, msgspec.DecodeError):
        return None


def write_record(
    host: str,
    port: int,
    started_by: StartedBy,
    config: str | None,
    asked_port: int | None,
    fingerprint: str = "",
) -> None:
    """Record that this process is the gateway, and ready. Raises OSError."""
    since = datetime.now(UTC).isoformat(timespec="seconds").replace("+00:00", "Z")
    record = RunningGateway(
        *(os.getpid(), since, host, port, __version__, started_by, config, asked_port),
        fingerprint,
    )
    write_atomic(record_file(), msgspec.json.encode(record))


def remove_record() -> None:
    with suppress(FileNotFoundError):
        os.unlink(record_file())


@contextmanager
def without_record() -> Iterator[None]:
    """Remove the record of this home before and after this block. Needs the lock."""
    remove_record()
    try:
        yield
    finally:
        remove_record()
