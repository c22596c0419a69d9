"""Records of running commands on disk, so that other processes can see and stop them.

A directory that others can enter is not trusted, nor a file that belongs to another user, is
incomplete or implausible: the reader of a record may kill the processes that it names.
"""

from __future__ import annotations

import contextlib
import errno
import json
import math
import os
import re
import stat
import time
from collections.abc import Container, Iterator
from functools import cache
from typing import Annotated

import msgspec
from msgspec import Meta

from clawkit.process import process_table
from clawkit.process.protocols import LOST, Exit
from clawkit.store import private_dir
from clawkit.text import printable

KEEP_S = 30 * 60.0
KEEP_ELSEWHERE_S = 7 * 24 * 3600.0
"""For commands of another container or machine: whether they still run is unknown here."""
MAX_BYTES = 2 * 1024**2
_WORD = "[a-z0-9-]{1,80}"
_OURS = re.compile(r"([a-z]+-[a-z]+(?:-[0-9a-f]+)+)\.(?:json|json\.new|log|exit|exit\.new)")
"""Files that are removed when they are old: names that no other program would use."""
MAX_RECORDS = 200
_FILE = re.compile(rf"({_WORD})\.(?:json|json\.new|log|exit)")
_READ = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC

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


class Record(msgspec.Struct, frozen=True):
    """One command, as stored on disk."""

    key: _Name
    """Unique; the base name of its files."""
    id: _Name
    owner: str
    text: str
    cwd: str
    pid: Annotated[int, Meta(gt=1, lt=2**31)]
    since: Annotated[int, Meta(gt=0)]
    """Start time of its process in the kernel's unit: the pid may have been reused."""
    started: Annotated[float, Meta(ge=0, le=1e11)]
    detached: bool
    terminal: tuple[_Side, _Side] | None
    keeper: Annotated[int, Meta(gt=0, lt=2**31)]
    """The clawkit process that observes its end."""
    place: str = msgspec.field(default_factory=here)

    @property
    def is_here(self) -> bool:
        return self.place == here()

    @property
    def runs(self) -> bool:
        found = process_table.look(self.pid) if self.is_here else None
        return found is not None and found.started == self.since and not found.gone


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


def write(folder: str, record: Record) -> None:
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
        with contextlib.suppress(OSError):
            os.unlink(place_of(folder, key, kind))


def open_file(folder: str, key: str, kind: str) -> int:
    """Open a file of a command for reading; raises OSError unless it is a file of this user."""
    if problem := distrust(folder):
        raise PermissionError(errno.EPERM, problem, folder)
    path = place_of(folder, key, kind)
    fd = os.open(path, _READ)
    info = os.fstat(fd)
    if stat.S_ISREG(info.st_mode) and info.st_uid == os.geteuid():
        return fd
    os.close(fd)
    raise PermissionError(errno.EPERM, "is not a file that belongs to you", path)


def read_all(folder: str) -> Iterator[Record]:
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
        if (match := _FILE.fullmatch(name)) and name == f"{match[1]}.{kind}"
    )


def _read(folder: str, key: str) -> Record | None:
    try:
        raw = json.loads(_load(folder, key, "json", MAX_BYTES))
        record = msgspec.convert(raw, Record)
    except (OSError, ValueError, RecursionError, msgspec.ValidationError):
        return None
    return record if record.key == key else None


def _load(folder: str, key: str, kind: str, most: int) -> bytes:
    with os.fdopen(open_file(folder, key, kind), "rb") as file:
        data = file.read(most + 1)
    if len(data) > most:
        raise OSError(errno.EFBIG, "is too long", place_of(folder, key, kind))
    return data


def exit_of(folder: str, record: Record) -> Exit | None:
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
        # The record is needed for what the command left running, as long as its clawkit runs.
        is_over = is_ours and record is not None and not record.detached
        is_over = is_over and record is not None and process_table.look(record.keeper) is None
        for name in files:
            if is_old or (is_over and name.endswith(".json")):
                with contextlib.suppress(OSError):
                    os.unlink(os.path.join(folder, name))


def _files(folder: str) -> dict[str, dict[str, float]]:
    """The files of every command, with their modification times."""
    found: dict[str, dict[str, float]] = {}
    with contextlib.suppress(OSError), os.scandir(folder) as entries:
        for entry in entries:
            if match := _OURS.fullmatch(entry.name):
                with contextlib.suppress(OSError):
                    written = entry.stat(follow_symlinks=False).st_mtime
                    found.setdefault(match[1], {})[entry.name] = written
    return found


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
    first, second = (
        words[int.from_bytes(os.urandom(4), "big") % len(words)]
        for words in (_FIRST.split(), _SECOND.split())
    )
    names = (f"{first}-{second}{suffix}" for suffix in ("", *(f"-{n}" for n in range(2, 13))))
    return next(
        (name for name in names if name not in taken), f"{first}-{second}-{os.urandom(4).hex()}"
    )


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
