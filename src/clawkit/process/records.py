"""Records of running commands on disk, with which other processes can see, follow and stop them.

A directory that others can enter is not trusted, nor a file that belongs to another user, is
incomplete or implausible: the reader of a record may kill the processes that it names.
"""

from __future__ import annotations

import asyncio
import errno
import json
import math
import os
import stat
import time
from collections.abc import Callable, Container, Iterable, Iterator, Sequence
from contextlib import suppress
from functools import cache
from typing import Annotated, NamedTuple

import msgspec
from msgspec import Meta

from clawkit.core.tasks import in_thread
from clawkit.errors import ToolError, ToolInputError
from clawkit.process import process_table
from clawkit.process.protocols import LOST, Exit, LeftoverProcess
from clawkit.process.spool import Spool
from clawkit.store import open_private, private_dir
from clawkit.text import printable, regex

KEEP_S = 30 * 60.0
KEEP_ELSEWHERE_S = 7 * 24 * 3600.0
"""For commands of another container or machine: whether they still run is unknown here."""
MAX_BYTES = 2 * 1024**2
_WORD = "[a-z0-9-]{1,80}"
_OURS = r"([a-z]+-[a-z]+(?:-[0-9a-f]+)+)\.(?:json|json\.new|log|exit|exit\.new)"
"""Files that are removed when they are old: names that no other program would use."""
MAX_RECORDS = 200
_FILE = rf"({_WORD})\.(?:json|json\.new|log|exit)"

_Name = Annotated[str, Meta(pattern=rf"^{_WORD}\Z")]
_Side = Annotated[int, Meta(gt=0, le=10_000)]


@cache
def here() -> str:
    """Identifies this boot and pid namespace: pids are meaningless in another one."""
    try:
        with open("/proc/sys/kernel/random/boot_id", encoding="ascii") as file:
            return f"{file.read().strip()} {os.readlink('/proc/self/ns/pid')}"
    except OSError:
        return ""


class CommandRecord(msgspec.Struct, frozen=True):
    """One command, as stored on disk."""

    key: _Name
    """Unique; the base name of its files."""
    id: _Name
    owner: str
    text: str
    cwd: str
    pid: Annotated[int, Meta(ge=0, lt=2**31)]
    """0 in a sandbox if its process ended before it could be seen from here."""
    since: Annotated[int, Meta(gt=0)]
    """Start time of its process in the kernel's unit: the pid may have been reused."""
    started: Annotated[float, Meta(ge=0, le=1e11)]
    detached: bool
    terminal: tuple[_Side, _Side] | None
    keeper: Annotated[int, Meta(gt=0, lt=2**31)]
    """The clawkit process that observes its end."""
    place: str = msgspec.field(default_factory=here)
    mark: Annotated[int, Meta(ge=0)] = 0
    server: tuple[int, int] = (0, 0)
    """Pid and start time of its spawn server, the parent of its orphans."""

    @property
    def is_here(self) -> bool:
        return self.place == here()

    @property
    def runs(self) -> bool:
        found = process_table.look(self.pid) if self.is_here else None
        return found is not None and found.started == self.since and not found.exited


def place_of(folder: str, key: str, kind: str) -> str:
    """Path of a file of a command: `json` its record, `log` its output, `exit` its exit code."""
    return os.path.join(folder, f"{key}.{kind}")


def distrust(folder: str) -> str:
    """Why a directory is not trusted; empty if it is, or does not exist."""
    try:
        info = os.lstat(folder)
    except FileNotFoundError:
        return ""
    except OSError as error:
        return f"cannot be inspected: {(error.strerror or str(error)).lower()}"
    if not stat.S_ISDIR(info.st_mode):
        return "is not a directory"
    if info.st_uid != os.geteuid():
        return "belongs to another user"
    if info.st_mode & 0o077:
        return "is open to other users; run `chmod 700` on it"
    return ""


def write(folder: str, record: CommandRecord) -> None:
    """Write a record, atomically. Raises OSError."""
    private_dir(folder)
    if problem := distrust(folder):
        raise PermissionError(errno.EPERM, problem, folder)
    place = place_of(folder, record.key, "json")
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC | os.O_NOFOLLOW
    fd = os.open(f"{place}.new", flags, 0o600)
    try:
        with os.fdopen(fd, "wb") as file:
            file.write(json.dumps(msgspec.structs.asdict(record)).encode())
        os.replace(f"{place}.new", place)
    except OSError:
        remove(folder, record.key, "json.new")
        raise


def remove(folder: str, key: str, *kinds: str) -> None:
    for kind in kinds:
        with suppress(OSError):
            os.unlink(place_of(folder, key, kind))


def open_file(folder: str, key: str, kind: str) -> int:
    """Open a file of a command for reading. Raises OSError unless it belongs to this user or root;
    its mode does not matter, because its directory is closed to others."""
    if problem := distrust(folder):
        raise PermissionError(errno.EPERM, problem, folder)
    return open_private(place_of(folder, key, kind), shared_ok=True)


def read_all(folder: str) -> Iterator[CommandRecord]:
    """All valid records, oldest first."""
    known = keys(folder, "json")[:MAX_RECORDS]
    found = [record for key in known if (record := _read(folder, key)) is not None]
    yield from sorted(found, key=lambda record: (record.started, record.key))


def keys(folder: str, kind: str) -> list[str]:
    """The keys of commands that have a file of a kind."""
    if distrust(folder):
        return []
    try:
        names = os.listdir(folder)
    except OSError:
        return []
    return sorted(
        match[1]
        for name in names
        if (match := regex(_FILE).fullmatch(name)) and name == f"{match[1]}.{kind}"
    )


def _read(folder: str, key: str) -> CommandRecord | None:
    try:
        raw = json.loads(_load(folder, key, "json", MAX_BYTES))
        record = msgspec.convert(raw, CommandRecord)
    except (OSError, ValueError, RecursionError, msgspec.ValidationError):
        return None
    is_known = record.pid > 1 or (record.pid == 0 and record.server[0] > 1)
    return record if record.key == key and is_known else None


def _load(folder: str, key: str, kind: str, most: int) -> bytes:
    with os.fdopen(open_file(folder, key, kind), "rb") as file:
        data = file.read(most + 1)
    if len(data) > most:
        raise OSError(errno.EFBIG, "is too long", place_of(folder, key, kind))
    return data


def exit_of(folder: str, record: CommandRecord) -> Exit | None:
    """How a command ended; None while it runs, `lost` if there is no valid exit file."""
    if record.runs:
        return None
    try:
        said, at, *words = _load(folder, record.key, "exit", 64).decode("ascii").split()
        code, seconds = int(said), float(at) - record.started
    except (OSError, ValueError):
        return LOST
    if words not in ([], ["timeout"]) or not -128 <= code <= 255 or not math.isfinite(seconds):
        return LOST
    exit_ = Exit.of(code, max(0.0, seconds))
    return exit_._replace(reason="overall-timeout") if words else exit_


def sweep(folder: str, keep_s: float = KEEP_S) -> None:
    """Remove what earlier runs left behind: records of commands that no longer run, and output
    older than `keep_s`. Other files are not touched."""
    if distrust(folder):
        return
    records = {record.key: record for record in read_all(folder)}
    running = {key for key, record in records.items() if record.runs}
    now = time.time()
    for key, files in _files(folder).items():
        if key in running:
            continue
        record = records.get(key)
        is_ours = record is None or record.is_here
        kept_s = keep_s if is_ours else max(keep_s, KEEP_ELSEWHERE_S)
        is_old = max(files.values()) < now - kept_s
        # While its clawkit runs, the record is still needed for processes that the command left
        # running.
        is_over = is_ours and record is not None and not record.detached
        is_over = is_over and record is not None and process_table.look(record.keeper) is None
        for name in files:
            if is_old or (is_over and name.endswith(".json")):
                with suppress(OSError):
                    os.unlink(os.path.join(folder, name))


def _files(folder: str) -> dict[str, dict[str, float]]:
    found: dict[str, dict[str, float]] = {}
    with suppress(OSError), os.scandir(folder) as entries:
        for entry in entries:
            if match := regex(_OURS).fullmatch(entry.name):
                with suppress(OSError):
                    written = entry.stat(follow_symlinks=False).st_mtime
                    found.setdefault(match[1], {})[entry.name] = written
    return found


ASK_S = 5.0
"""Between SIGTERM and SIGKILL."""
_STEP_S, _STEP_MAX_S = 0.03, 0.2
_LOOK_S = 0.25
_NOT_PERMITTED = "not permitted to signal them: they run as another user"
_HANGS = "they are stuck in the kernel"

Progress = Callable[[Sequence[LeftoverProcess], bool], None]
"""Called with what is still running, and whether it is still within the grace period."""


class StopOutcome(NamedTuple):
    """The result of stopping or signalling a command."""

    record: CommandRecord
    reached: tuple[LeftoverProcess, ...]
    """Its processes that are gone, or got the signal."""
    left: tuple[LeftoverProcess, ...] = ()
    problem: str = ""
    """Why some are left."""


def living(
    record: CommandRecord, processes: process_table.Table
) -> dict[int, process_table.Process]:
    """The living processes of a command, even if its first process has ended."""
    return _Ending(record).look(processes)


def end(
    records_: Iterable[CommandRecord], *, grace_s: float = ASK_S, progress: Progress | None = None
) -> list[StopOutcome]:
    """Terminate commands and everything they started concurrently, and kill what remains after
    `grace_s`. Blocks until nothing is left, or what is left cannot be killed."""
    begun = time.monotonic()
    endings = [_Ending(record) for record in records_]
    for each in endings:
        each.end(grace_s)
    while True:
        processes = process_table.table()
        waited = time.monotonic() - begun
        for each in endings:
            each.step(processes)
        missing = [each for each in endings if each.outcome is None]
        if not missing:
            return [each.outcome for each in endings if each.outcome is not None]
        if progress is not None:
            progress([left for each in missing for left in each.left], waited < grace_s)
        time.sleep(min(_STEP_S + waited / 20, _STEP_MAX_S))


def send(record: CommandRecord, number: int) -> StopOutcome:
    """Signal a command and everything it started."""
    processes = process_table.table()
    found = living(record, processes)
    if problem := _check_outside(found):
        return StopOutcome(record, (), left_of(found), problem)
    refused = {pid: each for pid, each in found.items() if not _may_signal(pid)}
    reached = {pid: each for pid, each in found.items() if pid not in refused}
    process_table.send(number, reached, processes)
    return StopOutcome(
        record, left_of(reached), left_of(refused), _NOT_PERMITTED if refused else ""
    )


class _Ending(process_table.Escalation):
    def __init__(self, record: CommandRecord) -> None:
        super().__init__()
        self.record = record
        self.outcome: StopOutcome | None = None
        self._known: dict[int, process_table.Process] = {}
        self._current: dict[int, process_table.Process] = {}
        self._saw_leader = False
        self._empty_looks = 0

    @property
    def left(self) -> tuple[LeftoverProcess, ...]:
        return left_of(self._current)

    def look(self, processes: process_table.Table) -> dict[int, process_table.Process]:
        """Its living processes.

        If its first process exists, or did at an earlier look, its session belongs to the command.
        If it never did, the session id may have been reused by unrelated processes: then only
        tagged processes count, and children of its spawn server that have its mark. The marks of
        one server's commands differ; those of two servers may not.
        """
        record = self.record
        if record.pid == 1 or record.pid < 0 or record.since <= 0 or not record.is_here:
            return {}
        leader = processes.get(record.pid)
        self._saw_leader |= leader is not None and leader.started == record.since
        found: set[int] = set()
        if self._saw_leader:
            found = process_table.members(
                record.pid, record.key, 0, processes, (), started=record.since
            )
        known = ((processes.get(pid), each) for pid, each in self._known.items())
        roots = {each.pid for now, each in known if now and now.started == each.started}
        server = processes.get(record.server[0])
        has_server = server is not None and server.started == record.server[1]
        roots |= {
            pid
            for pid, each in processes.items()
            if pid > 1
            and pid not in found
            and each.started >= record.since
            and process_table.is_ours(
                pid,
                record.key,
                record.mark if has_server and each.parent == record.server[0] else 0,
            )
        }
        found |= process_table.family(roots, processes)
        self._current = {pid: processes[pid] for pid in sorted(found) if not processes[pid].exited}
        self._known |= self._current
        return self._current

    def step(self, processes: process_table.Table) -> None:
        if self.outcome is not None:
            return
        found = self.look(processes)
        if not found:
            # A process that started while the table was read is seen at the second look.
            self._empty_looks += 1
            if self._empty_looks > 1:
                self._finish("")
            return
        self._empty_looks = 0
        if problem := _check_outside(found):
            self._finish(problem)
        elif not any(map(_may_signal, found)):
            self._finish(_NOT_PERMITTED)
        elif not self.escalate(self.record.pid, found, processes, time.monotonic()):
            self._finish(_HANGS)

    def _finish(self, problem: str) -> None:
        gone = {pid: each for pid, each in self._known.items() if pid not in self._current}
        self.outcome = StopOutcome(self.record, left_of(gone), self.left, problem)


def _check_outside(pids: Iterable[int]) -> str:
    """Refuse to stop the command that this process belongs to: we would be killed before the
    others are."""
    return "it runs this program; stop it from outside" if os.getpid() in pids else ""


def _may_signal(pid: int) -> bool:
    try:
        with suppress(ProcessLookupError):
            os.kill(pid, 0)
    except PermissionError:
        return False
    return True


def left_of(processes: dict[int, process_table.Process]) -> tuple[LeftoverProcess, ...]:
    return tuple(LeftoverProcess(pid, printable(each.name, "")) for pid, each in processes.items())


class DetachedRunning:
    """A detached command that another clawkit process started; that process may be gone."""

    can_write = False
    terminal = None

    def __init__(self, folder: str, record: CommandRecord) -> None:
        self._folder, self._record = folder, record
        self._left: dict[int, process_table.Process] | None = None
        self.pid, self.since = record.pid, record.since
        self.mark, self.server = record.mark, record.server
        path = place_of(folder, record.key, "log")
        try:
            os.close(open_file(folder, record.key, "log"))
            self.output = Spool.of_file(path)
        except OSError:
            self.output = Spool(path)

    @property
    def left(self) -> Sequence[LeftoverProcess]:
        if self._left is None:
            self._left = living(self._record, process_table.table())
        seen = {pid: process_table.look(pid) for pid in self._left}
        return tuple(
            LeftoverProcess(pid, printable(now.name, ""))
            for pid, now in seen.items()
            if now is not None and not now.exited and now.started == self._left[pid].started
        )

    async def wait(self) -> Exit:
        was_lost = False
        while True:
            exit_ = exit_of(self._folder, self._record)
            if exit_ is not None and (was_lost or exit_.reason != "lost"):
                return exit_
            # The exit file is written a moment after the process is gone.
            was_lost = exit_ is not None
            await asyncio.sleep(_LOOK_S)

    async def write(self, data: bytes, *, eof: bool = False) -> None:
        raise ToolInputError("its input is closed: it was started with detach")

    def resize(self, columns: int, rows: int) -> None:
        raise ToolInputError("it has no terminal")

    async def signal(self, number: int) -> None:
        _check(await in_thread(send, self._record, number), "reached by the signal")

    async def end(self, grace_s: float) -> None:
        """Raises `ToolError` if something cannot be stopped."""
        (outcome,) = await in_thread(end, [self._record], grace_s=grace_s)
        _check(outcome, "stopped")

    def close(self) -> None:
        self.output.close()


def _check(outcome: StopOutcome, label: str) -> None:
    if outcome.left:
        names = ", ".join(f"{each.name} (pid {each.pid})" for each in outcome.left[:5])
        raise ToolError(f"{names} could not be {label}: {outcome.problem}")


_FIRST = (
    "amber brave brisk calm clear cosy crisp dapper deft eager early fair fleet fond fresh gentle "
    "glad golden grand green happy hardy humble jolly keen kind late lively lucky lunar mellow "
    "merry mild misty neat nimble noble pale plain plucky proud quick quiet rapid ready rosy "
    "round royal sandy sharp shy silent silver sleek snug solar spry steady sunny swift tidy vivid "
    "warm wise witty"
)
_SECOND = (
    "acorn alder badger basil beacon beech birch breeze brook canyon cedar cliff clover comet "
    "coral cove crane creek daisy delta dune falcon fern finch fjord forest fox glade harbor hazel "
    "heron hill island ivy juniper lagoon lake larch lark lemon lynx maple marsh meadow mesa moss "
    "nutmeg oak orchid otter owl pebble pine plover poppy quail reef ridge river robin sage "
    "shore sparrow spruce stone summit thistle tulip valley willow wren"
)


def new_slug(taken: Container[str]) -> str:
    """An unused id of two words, such as `calm-otter`."""
    first, second = _FIRST.split(), _SECOND.split()
    number = int.from_bytes(os.urandom(4), "big")
    name = base = f"{first[number % len(first)]}-{second[(number >> 16) % len(second)]}"
    count = 1
    while name in taken:
        count += 1
        name = f"{base}-{count if count < 13 else os.urandom(4).hex()}"
    return name


def name_of(command: str) -> str:
    """A short name of a command, for lists: the program and its first argument."""
    words = command.split(None, 16)
    verb = next((word for word in words if "=" not in word), "")
    rest = words[words.index(verb) + 1 :] if verb else []
    first = next((word for word in rest[:15] if not word.startswith("-")), "")
    return printable(" ".join(part for part in (shorten(verb, 48), shorten(first, 48)) if part), "")


def shorten(text: str, size: int) -> str:
    """Truncate a text in the middle."""
    if len(text) <= size:
        return text
    head = (size - 1) // 2
    return f"{text[:head]}…{text[-(size - 1 - head) :]}"
