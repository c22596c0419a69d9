"""The record of this home's gateway: its process, its address, and how it was started.

Cheap to import, like all modules for the commands that start, stop and use it: no server libraries.
"""

import json
import os
import time
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from typing import Literal, NamedTuple

from clawkit.config.paths import home
from clawkit.store import is_held, write_atomic
from clawkit.version import __version__

StartedBy = Literal["run", "start", "service"]
MAX_BYTES = 64 * 1024


class RunningGateway(NamedTuple):
    """The record that a ready gateway writes to its home."""

    pid: int
    since: str
    host: str
    port: int
    version: str
    started_by: StartedBy
    config: str | None
    """The configuration file; None if there was none."""
    asked_port: int | None
    """The port given on the command line."""
    secret: str
    """The login secret for commands of this home. Each gateway generates a new one, so that a later
    listener on the port cannot use it."""
    serves_commands: bool
    """Whether commands use it: `gateway.useForCommands`, and not `gateway.mode: remote`."""
    files: dict[str, list[int]]
    """The state of each configuration file when it was read."""
    fingerprint: str = ""
    """Fingerprint of the certificate; empty without TLS."""
    config_problem: str = ""
    """Why the current configuration file is not used."""
    restart_needed: tuple[str, ...] = ()
    """Changed settings that apply after a restart."""

    @property
    def near(self) -> str:
        """Its address for programs on this machine."""
        return {"0.0.0.0": "127.0.0.1", "::": "::1"}.get(self.host, self.host)  # noqa: S104

    @property
    def url(self) -> str:
        near = f"[{self.near}]" if ":" in self.near else self.near
        return f"{'wss' if self.fingerprint else 'ws'}://{near}:{self.port}/"


class GatewayState(NamedTuple):
    """The state of this home's gateway."""

    pid: int
    """The process that holds its lock; 0 if none."""
    record: RunningGateway | None

    @property
    def is_ready(self) -> bool:
        return self.pid != 0 and self.record is not None

    @property
    def stale(self) -> RunningGateway | None:
        """The record of a gateway that was killed or crashed."""
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
        pid = _holder(path)  # it may have started in between
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
            found = RunningGateway(**json.loads(file.read(MAX_BYTES)))
    except (OSError, ValueError, TypeError):
        return None
    is_sound = isinstance(found.pid, int) and isinstance(found.port, int)
    return found if is_sound and isinstance(found.files, dict) else None


def write_record(
    host: str,
    port: int,
    started_by: StartedBy,
    config: str | None,
    asked_port: int | None,
    *,
    secret: str,
    serves_commands: bool,
    files: Iterable[str],
    fingerprint: str,
) -> None:
    """Record that this process is the gateway and is ready. Raises OSError."""
    since = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())
    read = {each: sign_file(each) for each in files}
    about = (os.getpid(), since, host, port, __version__, started_by, config, asked_port)
    _write(RunningGateway(*about, secret, serves_commands, read, fingerprint))


def _write(record: RunningGateway) -> None:
    text = json.dumps(record._asdict(), separators=(",", ":"))
    write_atomic(record_file(), text.encode())


def sign_file(path: str) -> list[int]:
    """Differs if a file or its permissions have changed; empty if it does not exist."""
    try:
        found = os.stat(path)
    except OSError:
        return []
    return [found.st_ino, found.st_size, found.st_mtime_ns, found.st_ctime_ns]


def note_config(problem: str, restart_needed: Iterable[str], files: Iterable[str]) -> None:
    """Record which configuration is not in force, if this process has a record."""
    record = read_record()
    if record is not None and record.pid == os.getpid():
        read = {each: sign_file(each) for each in files}
        waiting = tuple(restart_needed)
        changed = record._replace(config_problem=problem, restart_needed=waiting, files=read)
        with suppress(OSError):  # it is also logged
            _write(changed)


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
