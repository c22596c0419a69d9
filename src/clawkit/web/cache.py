"""A cache of web answers, in a database of limited size."""

from __future__ import annotations

import hashlib
import os
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import TypeVar

from clawkit.errors import ToolError
from clawkit.store import Database

T = TypeVar("T")
_APPLICATION = 0x636C7763
_SCHEMA = """
CREATE TABLE answer (
    id INTEGER PRIMARY KEY,
    key BLOB NOT NULL UNIQUE,
    value BLOB NOT NULL,
    made REAL NOT NULL,
    until REAL NOT NULL
) STRICT;
"""
# `made` is checked because setting the clock back would keep an answer too long.
_GET = "SELECT value FROM answer WHERE key = ? AND made <= ?2 AND until > ?2"
_PUT = "INSERT OR REPLACE INTO answer (key, value, made, until) VALUES (?, ?, ?, ?)"
_PRUNE = """
DELETE FROM answer WHERE until <= :now OR made > :now OR id <= (
    SELECT max(id) FROM (
        SELECT id, row_number() OVER newest AS number, sum(length(value)) OVER newest AS size
        FROM answer WINDOW newest AS (ORDER BY id DESC)
    ) WHERE number > :entries OR size > :bytes
)
"""


class Cache:
    """Values by key, the oldest removed first. It never fails: unreadable entries are missing,
    unwritable ones are dropped, and a damaged database is replaced. Shared by processes."""

    def __init__(self, path: Path, *, max_entries: int = 100, max_bytes: int = 50_000_000) -> None:
        self._database = Database(
            str(path), "the cache of web pages", _APPLICATION, (_SCHEMA,), lock_wait_s=0.2
        )
        self._max_entries = max_entries
        self._max_bytes = max_bytes

    def get(self, key: str) -> bytes | None:
        """The value, unless it has expired."""

        def read() -> bytes | None:
            with self._database.using() as db:
                row = db.execute(_GET, (_digest(key), time.time())).fetchone()
            return row[0] if row else None

        return self._try(read)

    def put(self, key: str, value: bytes, ttl_s: float) -> None:
        """Store a value for `ttl_s`; 0 stores nothing."""
        if ttl_s <= 0 or len(value) > self._max_bytes:
            return
        now = time.time()
        limits = {"now": now, "entries": self._max_entries, "bytes": self._max_bytes}

        def write() -> None:
            with self._database.writing() as db:
                db.execute(_PUT, (_digest(key), value, now, now + ttl_s))
                db.execute(_PRUNE, limits)

        self._try(write)

    def close(self) -> None:
        """Close the database; the next use opens it again."""
        self._database.close()

    def _try(self, work: Callable[[], T]) -> T | None:
        with suppress(ToolError, OSError):
            try:
                return work()
            except ToolError as error:
                if not _is_damaged(error):
                    raise
            self._database.close()
            os.unlink(self._database.path)
            return work()
        return None


def _is_damaged(error: ToolError) -> bool:
    """Whether the file must be replaced; other errors are a lock or a full disk."""
    import apsw

    cause = error.__cause__
    return cause is None or isinstance(cause, (apsw.CorruptError, apsw.NotADBError, apsw.SQLError))


def _digest(key: str) -> bytes:
    # Addresses are long and may contain secrets.
    return hashlib.sha256(key.encode("utf-8", "surrogatepass")).digest()
