"""The log of what was decided about commands: one JSON object a line, newest last."""

from __future__ import annotations

import errno
import fcntl
import json
import logging
import os
import re
import stat
import time
from collections.abc import Iterator, Mapping
from contextlib import suppress
from typing import Any, NotRequired, TypedDict, cast

from clawkit.errors import ClawkitError
from clawkit.redact import Redactor
from clawkit.store import private_dir

POLICY = "policy"
"""The actor of what was decided without a question."""
FALLBACK = "askFallback"
"""How the actor begins when nobody answered."""
MAX_LINE = 16 * 1024
MAX_FILE = 16 * 1024 * 1024
KEPT = 3
"""Older files beside the one that is written: `.1` is the newest of them."""

_BLOCK = 64 * 1024
_LIMITS = (4_096, 1_024, 256, 64, 16)
"""Characters of a text that are kept, tried until the line is short enough."""
_PER_ITEM = 64
_MOST = 64
_ODD = re.compile(r"[^\w.@:/+=%&?#,~-]")
_AT = 32
_START = b'{"at":'
_ENCODER = json.JSONEncoder(separators=(",", ":"), check_circular=False)
_APPEND = os.O_WRONLY | os.O_APPEND | os.O_CREAT

log = logging.getLogger(__name__)


class ProgramFact(TypedDict):
    """What a command would have started."""

    resolved: str
    """Absolute path; empty when there is none."""
    argv: list[str]
    """With the name as it was written; secrets masked."""
    code: NotRequired[str]
    """Empty when a rule allowed it, else why not: `miss`, `inline-eval`, …"""
    wrapper: NotRequired[bool]
    """Whether it only starts the next one."""


class Record(TypedDict, total=False):
    """One line of the log."""

    at: str
    """UTC, `2026-01-31T12:00:00.000Z`."""
    verdict: str
    """`allow`, `ask` or `deny`. A question that was answered has two records: `ask`, and what
    became of it."""
    code: str
    rules: list[str]
    """What allowed each part, or why nothing did."""
    actor: str
    """Who decided: `policy`, `askFallback…`, or the person who was asked."""
    agent: str
    session: str
    host: str
    cwd: str
    command: str
    programs: list[ProgramFact]
    security: str
    ask: str
    approvalId: str
    extent: str
    """What the person allowed from now on, if anything."""
    reason: str
    why: str
    """What was said to the model, where that is more than the reason."""
    cut: bool
    """Whether something did not fit in the line."""


_FIELDS = tuple(Record.__annotations__)


def was_asked(record: Mapping[str, Any]) -> bool:
    """Whether a person answered."""
    actor = record.get("actor")
    return isinstance(actor, str) and actor not in ("", POLICY) and not actor.startswith(FALLBACK)


class Audit:
    """The log at one path, which several processes may write."""

    def __init__(self, path: str, redactor: Redactor | None = None) -> None:
        """`redactor` masks whatever is written."""
        self.path = path
        self._redactor = redactor or Redactor()

    def write(self, record: Mapping[str, Any]) -> None:
        """Append a record, of which the fields of `Record` are kept. Never raises OSError."""
        line = self._line(record)
        try:
            private_dir(os.path.dirname(self.path))
            fd = _open(self.path, _APPEND)
            try:
                info = os.fstat(fd)
                if info.st_size + len(line) > MAX_FILE and _rotate(self.path, info):
                    fresh = _open(self.path, _APPEND)
                    os.close(fd)
                    fd = fresh
                if info.st_mode & 0o077:
                    os.fchmod(fd, 0o600)
                # All at once, so that the lines of several processes do not mix.
                written = os.write(fd, line)
            finally:
                os.close(fd)
            if written < len(line):
                raise OSError(errno.ENOSPC, "only a part of a line was written", self.path)
        except OSError as error:
            log.warning("the log of approvals cannot be written: %s", error)

    def _line(self, record: Mapping[str, Any]) -> bytes:
        found = {name: record[name] for name in _FIELDS if record.get(name) is not None}
        # Masking takes its time; so much of it is never kept.
        bounded = _cut(found, 2 * MAX_LINE)
        mark = {} if bounded == found else {"cut": True}
        at = str(bounded.pop("at", "") or _now())
        if "programs" in bounded:
            bounded["programs"] = [self._program(each) for each in bounded["programs"]]
        shown = self._redactor.data(bounded, strict=True)
        line = _dump({"at": at, **shown, **mark})
        for limit in _LIMITS:
            if len(line) > MAX_LINE:
                line = _dump({"at": at[:_AT], **_cut(shown, limit), "cut": True})
        return line

    def _program(self, program: Mapping[str, Any]) -> dict[str, Any]:
        """A program whose arguments are masked together: one tells what the next one is."""
        argv: list[str] = program["argv"]
        # Without blanks and quotes every argument is one word, however it is masked.
        words = [_ODD.sub("_", each) or "_" for each in argv]
        masked = self._redactor.strict(" ".join(words)).split(" ")
        if len(masked) != len(words):
            return {**program, "argv": [*argv[:1], " ".join(masked)]}
        triples = zip(argv, words, masked, strict=True)
        return {**program, "argv": [old if word == new else new for old, word, new in triples]}


def read(path: str, limit: int = 100, since: str = "") -> Iterator[Record]:
    """The last records, at most `limit`, none before `since` (UTC, as in them); newest last.

    Lines that are no records are passed over. No more is held than what is given back. Raises
    `ClawkitError` when there is a log that cannot be read.
    """
    found: list[Record] = []
    seen: set[int] = set()
    for file in (path, *(f"{path}.{number}" for number in range(1, KEPT + 1))):
        if len(found) >= limit:
            break
        try:
            fd = _open(file, os.O_RDONLY)
        except FileNotFoundError:
            continue
        except OSError as error:
            raise ClawkitError(f"{file} cannot be read: {error.strerror}") from None
        try:
            # It may have moved on since the one before was opened.
            inode = os.fstat(fd).st_ino
            if inode not in seen and _collect(fd, found, limit, since):
                break
            seen.add(inode)
        finally:
            os.close(fd)
    return reversed(found)


def _collect(fd: int, found: list[Record], limit: int, since: str) -> bool:
    """Add the records of a file, newest first; says whether older ones are not wanted."""
    for line in _lines_backward(fd):
        if len(found) >= limit:
            return True
        record = _parse(line)
        if record is not None:
            if record["at"] < since:
                return True
            found.append(record)
    return False


def _lines_backward(fd: int) -> Iterator[bytes]:
    """The lines of a file from its end, without those that are much too long."""
    at = os.fstat(fd).st_size
    rest, too_long = b"", False
    while at > 0:
        start = max(0, at - _BLOCK)
        first, *lines = (os.pread(fd, at - start, start) + rest).split(b"\n")
        if lines and too_long:
            lines.pop()
            too_long = False
        yield from reversed(lines)
        too_long = too_long or len(first) > _BLOCK
        rest = b"" if too_long else first
        at = start
    if rest:
        yield rest


def _parse(line: bytes) -> Record | None:
    # Behind one that was cut off stands the next: inside of a text its quotes would be escaped.
    for start in (0, line.rfind(_START)):
        try:
            value = json.loads(line[start:])
        except (ValueError, RecursionError):
            continue
        if isinstance(value, dict) and isinstance(value.get("at"), str):
            return cast("Record", value)
    return None


def _dump(record: Mapping[str, Any]) -> bytes:
    return _ENCODER.encode(record).encode() + b"\n"


def _cut(value: Any, limit: int) -> Any:
    """JSON data without what is long, or many."""
    if isinstance(value, str):
        more = len(value) - limit
        return value if more <= 0 else f"{value[:limit]}… ({more:,} more characters)"
    if isinstance(value, Mapping):
        return {key: _cut(each, limit) for key, each in value.items()}
    if isinstance(value, list | tuple):
        return [_cut(each, limit) for each in value[: min(_MOST, max(1, limit // _PER_ITEM))]]
    return value


def _open(path: str, flags: int) -> int:
    """A file that is ours, never a link to another one. Raises OSError."""
    fd = os.open(path, flags | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC, 0o600)
    info = os.fstat(fd)
    if not stat.S_ISREG(info.st_mode) or info.st_uid not in (0, os.geteuid()):
        os.close(fd)
        raise OSError(errno.EINVAL, "is not a regular file of your own", path)
    return fd


def _rotate(path: str, info: os.stat_result) -> bool:
    """Move the log, if it is still this one, and those before it; False when others do."""
    fd = _open(f"{path}.lock", os.O_RDWR | os.O_CREAT)
    try:
        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        if os.stat(path, follow_symlinks=False).st_ino == info.st_ino:
            for number in range(KEPT, 1, -1):
                with suppress(FileNotFoundError):
                    os.replace(f"{path}.{number - 1}", f"{path}.{number}")
            os.replace(path, f"{path}.1")
    except (BlockingIOError, FileNotFoundError):
        return False
    finally:
        os.close(fd)
    return True


def _now() -> str:
    now = time.time()
    return time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(now)) + f".{int(now % 1 * 1000):03}Z"
