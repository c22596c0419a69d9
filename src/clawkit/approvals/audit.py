"""The log of decisions about commands: one JSON object per line, newest last."""

from __future__ import annotations

import errno
import json
import logging
import os
import threading
import time
from collections.abc import Iterator, Mapping
from contextlib import suppress
from typing import Any, TypedDict, cast

from clawkit.errors import ClawkitError, ToolAuthorizationError
from clawkit.redact import Redactor
from clawkit.store import locked, open_private, private_dir
from clawkit.text import regex

POLICY = "policy"
"""The actor of decisions without a prompt."""
FALLBACK = "askFallback"
MAX_LINE = 16 * 1024
MAX_FILE = 16 * 1024 * 1024
KEPT = 3
"""Rotated files to keep; `.1` is the newest."""

_MAX_READ = 4 * MAX_FILE
"""Limit for reading; a log that cannot be rotated for a while may exceed MAX_FILE."""
_LIMITS = (4_096, 1_024, 256, 64, 16)
"""Lengths to which texts are cut, tried until the line is short enough."""
_PER_ITEM = 64
_MOST = 64
_ODD = r"[^\w.@:/+=%&?#,~-]"
_AT = 32
_START = b'{"at":'
_ENCODER = json.JSONEncoder(separators=(",", ":"), check_circular=False)
_APPEND = os.O_WRONLY | os.O_APPEND | os.O_CREAT

log = logging.getLogger(__name__)


class AuditRecord(TypedDict, total=False):
    """One line of the log."""

    at: str
    verdict: str
    """`allow`, `ask` or `deny`. An answered question has two records: `ask` and the outcome."""
    code: str
    rules: list[str]
    actor: str
    """Who decided: `policy`, `askFallback…`, or the person who answered."""
    agent: str
    session: str
    host: str
    cwd: str
    command: str
    programs: list[dict[str, Any]]
    """The programs it would start: `resolved` is the path, `argv` has secrets masked."""
    security: str
    ask: str
    approvalId: str
    extent: str
    """The permanent approval that the person gave, if any."""
    reason: str
    why: str
    """The message to the model, if it says more than the reason."""
    cut: bool


def was_asked(record: Mapping[str, Any]) -> bool:
    """Whether a person decided."""
    actor = record.get("actor")
    return isinstance(actor, str) and actor not in ("", POLICY) and not actor.startswith(FALLBACK)


class Audit:
    """The log at one path; several processes may write it."""

    def __init__(self, path: str, redactor: Redactor | None = None) -> None:
        self.path = path
        self._redactor = redactor or Redactor()
        self._lock = threading.RLock()
        self._fd: int | None = None
        """Kept open, because opening takes longer than writing a line."""
        self._identity = (0, 0)

    def write(self, record: Mapping[str, Any]) -> None:
        """Append the fields of `AuditRecord`. Raises `ToolAuthorizationError` on failure, because
        nothing may run without a record; a failure to record a refusal is only logged."""
        fields = (name for name in AuditRecord.__annotations__ if record.get(name) is not None)
        found = {name: record[name] for name in fields}
        at = str(found.pop("at", "") or _now())
        # Cut before masking, which is slow.
        bounded = _cut(found, 2 * MAX_LINE)
        shown = self._mask(bounded)
        line = _dump({"at": at, **shown, **({} if bounded == found else {"cut": True})})
        for limit in _LIMITS:
            if len(line) > MAX_LINE:
                line = _dump({"at": at[:_AT], **_cut(shown, limit), "cut": True})
        try:
            with self._lock:
                try:
                    fd, info = self._open_current()
                    if info.st_size + len(line) > MAX_FILE and _rotate(self.path, info):
                        fd, info = self._open_current()
                    if info.st_mode & 0o077:
                        os.fchmod(fd, 0o600)
                    # In one write, so that lines of several processes are not mixed.
                    if os.write(fd, line) < len(line):
                        raise OSError(errno.ENOSPC, "only part of a line was written")
                except OSError:
                    self.close()
                    raise
        except OSError as error:
            code = errno.errorcode.get(error.errno or 0, "unknown error")
            said = f"the approvals log {self.path} cannot be written: {error.strerror} ({code})"
            if record.get("verdict") == "deny":
                log.warning("%s", said)
                return
            raise ToolAuthorizationError(
                f"{said}. Nothing was run; free disk space, or fix the permissions of the file and "
                "its directory, then try again",
                reason="audit",
            ) from error

    def close(self) -> None:
        """Close the file; it is reopened when needed."""
        with self._lock:
            fd, self._fd = self._fd, None
            if fd is not None:
                os.close(fd)

    def _open_current(self) -> tuple[int, os.stat_result]:
        """The file at the path, reopened if another process has rotated it."""
        with suppress(FileNotFoundError):
            info = os.stat(self.path, follow_symlinks=False)
            if self._fd is not None and (info.st_dev, info.st_ino) == self._identity:
                return self._fd, info
        self.close()
        private_dir(os.path.dirname(self.path))
        self._fd = fd = open_private(self.path, _APPEND, shared_ok=True)
        info = os.fstat(fd)
        self._identity = info.st_dev, info.st_ino
        return fd, info

    def _mask(self, value: Any) -> Any:
        if isinstance(value, str):
            return self._redactor.strict(value)
        if isinstance(value, dict):
            whole = self._program(value) if "argv" in value else value
            return {name: self._mask(each) for name, each in whole.items()}
        return [self._mask(each) for each in value] if isinstance(value, (list, tuple)) else value

    def _program(self, program: Mapping[str, Any]) -> dict[str, Any]:
        argv: list[str] = program["argv"]
        # Without blanks and quotes every argument is a single word, also when masked.
        words = [regex(_ODD).sub("_", each) or "_" for each in argv]
        masked = self._redactor.strict(" ".join(words)).split(" ")
        if len(masked) != len(words):
            return {**program, "argv": [*argv[:1], " ".join(masked)]}
        triples = zip(argv, words, masked, strict=True)
        return {**program, "argv": [old if word == new else new for old, word, new in triples]}


def read(path: str, limit: int = 100, since: str = "") -> Iterator[AuditRecord]:
    """The last `limit` records not before `since` (UTC, as in records), newest last. Other lines
    are skipped. Raises `ClawkitError` if a log cannot be read."""
    found: list[AuditRecord] = []
    seen: set[int] = set()
    for file in (path, *(f"{path}.{number}" for number in range(1, KEPT + 1))):
        try:
            fd = open_private(file, shared_ok=True)
        except FileNotFoundError:
            continue
        except OSError as error:
            raise ClawkitError(f"{file} cannot be read: {error.strerror}") from None
        with os.fdopen(fd, "rb") as log_file:
            info = os.fstat(fd)
            # It may have been rotated since the previous one was opened.
            if info.st_ino in seen:
                continue
            seen.add(info.st_ino)
            log_file.seek(max(0, info.st_size - _MAX_READ))
            lines = log_file.read(_MAX_READ).split(b"\n")
        for line in reversed(lines):
            record = _parse(line)
            if len(found) >= limit or (record is not None and record["at"] < since):
                return iter(found[::-1])
            if record is not None:
                found.append(record)
    return iter(found[::-1])


def _parse(line: bytes) -> AuditRecord | None:
    # A truncated record may be followed by another; inside a string its quotes would be escaped.
    for start in (0, line.rfind(_START)):
        try:
            value = json.loads(line[start:])
        except (ValueError, RecursionError):
            continue
        if isinstance(value, dict) and isinstance(value.get("at"), str):
            return cast("AuditRecord", value)
    return None


def _dump(record: Mapping[str, Any]) -> bytes:
    return _ENCODER.encode(record).encode() + b"\n"


def _cut(value: Any, limit: int) -> Any:
    if isinstance(value, str):
        more = len(value) - limit
        return value if more <= 0 else f"{value[:limit]}… ({more:,} more characters)"
    if isinstance(value, (dict, Mapping)):
        return {key: _cut(each, limit) for key, each in value.items()}
    if isinstance(value, (list, tuple)):
        return [_cut(each, limit) for each in value[: min(_MOST, max(1, limit // _PER_ITEM))]]
    return value


def _rotate(path: str, info: os.stat_result) -> bool:
    """Rotate the log if it is still this file; False if another process does."""
    try:
        with locked(f"{path}.lock", wait_s=0):
            if os.stat(path, follow_symlinks=False).st_ino == info.st_ino:
                for number in range(KEPT, 1, -1):
                    with suppress(FileNotFoundError):
                        os.replace(f"{path}.{number - 1}", f"{path}.{number}")
                os.replace(path, f"{path}.1")
    except (TimeoutError, FileNotFoundError):
        return False
    return True


def _now() -> str:
    now = time.time()
    return time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(now)) + f".{int(now % 1 * 1000):03}Z"
