"""State that outlives a call: halted pipelines, and values of `state.set` and `diff.last`."""

from __future__ import annotations

import json
import re
import secrets
import time
from typing import Any

import msgspec
from msgspec import Struct

from clawkit.bundled.lobster.pipeline import Stage
from clawkit.bundled.lobster.values import PipelineError, PipelineSyntaxError, Value, to_json
from clawkit.bundled.lobster.workflow_file import Approval
from clawkit.store import Database

KEEP_S = 24 * 3600.0
"""How long a halted pipeline can be resumed: as long as an approval can be given."""
MAX_HALTED = 200
MAX_BYTES = 4 * 1024**2
_APPLICATION = 0x6C6F6273
_SCHEMA = """
CREATE TABLE halted (
    key TEXT PRIMARY KEY, session TEXT NOT NULL, approval TEXT NOT NULL, expires_s REAL NOT NULL,
    body BLOB NOT NULL
) STRICT;
CREATE TABLE value (
    whose TEXT NOT NULL, key TEXT NOT NULL, body BLOB NOT NULL, PRIMARY KEY (whose, key)
) STRICT, WITHOUT ROWID;
"""
NOT_FOUND = "Pipeline resume state not found"


class Progress(Struct, frozen=True):
    """The progress of a workflow."""

    file: str
    args: dict[str, Value]
    digest: str = ""  # of the file
    index: int = 0  # of the step to continue with
    step: str = ""  # the gate
    results: dict[str, dict[str, Value]] = {}
    cost: float = 0.0  # dollars, so far


class Halted(Struct, frozen=True):
    """A pipeline or workflow at a gate."""

    request: dict[str, Value]  # as shown to callers
    cwd: str = ""
    stages: tuple[Stage, ...] = ()  # the remaining ones
    progress: Progress | None = None
    rules: Approval = Approval()
    files: dict[str, str] | None = None
    """Digests of the workflow files that may run: only approved content may run."""
    approval: str = ""  # the id of the question to a person


class Store:
    """The values of one agent, and the halted pipelines of one of its sessions. For a guest, values
    belong to the session."""

    def __init__(self, path: str, agent: str, session: str) -> None:
        what, migrations = "the state of pipelines", (_SCHEMA,)
        self._database = Database(path, what, _APPLICATION, migrations, outlives_power=True)
        self._whose, self._session = agent, session

    def add(self, halted: Halted) -> str:
        """Store a halted pipeline; returns the token that resumes it."""
        token, body = secrets.token_hex(16), msgspec.json.encode(halted)
        if len(body) > MAX_BYTES:
            raise PipelineError(f"{len(body):,} bytes of items are too many to halt with")
        with self._database.writing() as db:
            db.execute("DELETE FROM halted WHERE expires_s <= ?", (time.time(),))
            count = "SELECT count(*) FROM halted WHERE session = ?"
            if db.execute(count, (self._session,)).get >= MAX_HALTED:
                raise PipelineError(f"{MAX_HALTED} pipelines are waiting; resume or cancel some")
            row = (token, self._session, halted.approval, time.time() + KEEP_S, body)
            db.execute("INSERT INTO halted VALUES (?, ?, ?, ?, ?)", row)
        return token

    def find(self, token: str, approval: str) -> tuple[str, Halted]:
        """The halted pipeline for a token or approval id, and its token. Raises `PipelineError` if
        it does not exist or has expired."""
        if not token and not re.fullmatch(r"[0-9a-f]{8,32}", approval):
            raise PipelineSyntaxError("resume requires token or approvalId")
        where = "key = ?" if token else "approval LIKE ? || '%'"
        query = f"SELECT key, body FROM halted WHERE session = ? AND expires_s > ? AND {where}"  # noqa: S608
        with self._database.using() as db:
            rows: list[Any] = list(
                db.execute(query, (self._session, time.time(), token or approval))
            )
        if len(rows) == 1:
            return rows[0][0], msgspec.json.decode(rows[0][1], type=Halted)
        raise PipelineError(NOT_FOUND)

    def take(self, token: str) -> None:
        """Remove a halted pipeline. Raises `PipelineError` if it was already removed."""
        with self._database.writing() as db:
            db.execute("DELETE FROM halted WHERE key = ?", (token,))
            if not db.changes():
                raise PipelineError(NOT_FOUND)

    def load(self, key: str) -> Value:
        query = "SELECT body FROM value WHERE whose = ? AND key = ?"
        with self._database.using() as db:
            body: Any = db.execute(query, (self._whose, key)).get
        return None if body is None else json.loads(body)

    def save(self, key: str, value: Value) -> None:
        body = to_json(value).encode("utf-8", "replace")
        if len(body) > MAX_BYTES:
            raise PipelineError(f"the value of {key!r} has {len(body):,} bytes, over {MAX_BYTES:,}")
        with self._database.writing() as db:
            db.execute("INSERT OR REPLACE INTO value VALUES (?, ?, ?)", (self._whose, key, body))

    def close(self) -> None:
        self._database.close()
