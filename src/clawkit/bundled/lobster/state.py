"""What outlives a call: pipelines that halted, and values of `state.set` and `diff.last`."""

from __future__ import annotations

import base64
import json
import re
import time
import uuid
from typing import Any

import msgspec
from msgspec import Struct

from clawkit.bundled.lobster.pipeline import Stage
from clawkit.bundled.lobster.values import PipelineError, PipelineSyntaxError, Value, to_json
from clawkit.bundled.lobster.workflow_file import Approval
from clawkit.store import Database

KEEP_S = 24 * 3600.0
"""How long something can be resumed, which is as long as an approval can be given."""
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
_KEY = r"(?:pipeline|workflow)_resume_[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}"


class Progress(Struct, frozen=True):
    """How far a workflow has come."""

    file: str
    args: dict[str, Value]
    digest: str = ""  # of the file
    index: int = 0  # of the step to continue with
    step: str = ""  # the gate
    results: dict[str, dict[str, Value]] = {}
    cost: float = 0.0  # dollars, so far


class Halted(Struct, frozen=True):
    """A pipeline or workflow at a gate."""

    request: dict[str, Value]  # as callers see it
    cwd: str = ""
    stages: tuple[Stage, ...] = ()  # those that remain
    progress: Progress | None = None
    rules: Approval = Approval()
    files: dict[str, str] | None = None
    """Digests of the workflow files that may run: what was approved must be what runs."""
    approval: str = ""  # the id of the question to a person


class Store:
    """The values of one agent, and the halted pipelines of one of its sessions. A guest has the
    values of the session alone."""

    def __init__(self, path: str, whose: str, session: str) -> None:
        what, migrations = "the state of pipelines", (_SCHEMA,)
        self._database = Database(path, what, _APPLICATION, migrations, outlives_power=True)
        self._whose, self._session = whose, session

    def add(self, halted: Halted) -> str:
        """Keep something that halted; returns the token that resumes it."""
        kind, body = "workflow" if halted.progress else "pipeline", msgspec.json.encode(halted)
        key = f"{kind}_resume_{uuid.uuid4()}"
        if len(body) > MAX_BYTES:
            raise PipelineError(f"{len(body):,} bytes of items are too many to wait with")
        with self._database.writing() as db:
            db.execute("DELETE FROM halted WHERE expires_s <= ?", (time.time(),))
            count = "SELECT count(*) FROM halted WHERE session = ?"
            if db.execute(count, (self._session,)).get >= MAX_HALTED:
                raise PipelineError(f"{MAX_HALTED} pipelines are waiting; resume or cancel some")
            row = (key, self._session, halted.approval, time.time() + KEEP_S, body)
            db.execute("INSERT INTO halted VALUES (?, ?, ?, ?, ?)", row)
        return base64.urlsafe_b64encode(to_json(_token(key)).encode()).decode().rstrip("=")

    def find(self, token: str, approval: str) -> tuple[str, Halted]:
        """What a token or the id of an approval stands for, and its key. Raises `PipelineError` if
        there is no such thing, any more."""
        key, where = approval, "approval LIKE ? || '%'"
        if token:
            key, where = _read_token(token), "key = ?"
        elif not re.fullmatch(r"[0-9a-f]{8,32}", approval):
            raise PipelineSyntaxError("resume requires token or approvalId")
        query = f"SELECT key, body FROM halted WHERE session = ? AND expires_s > ? AND {where}"  # noqa: S608
        with self._database.using() as db:
            rows: list[Any] = list(db.execute(query, (self._session, time.time(), key)))
        if len(rows) == 1:
            return rows[0][0], msgspec.json.decode(rows[0][1], type=Halted)
        if not token:
            raise PipelineSyntaxError(f'Approval ID "{approval}" not found or expired')
        raise not_found(key)

    def take(self, key: str) -> None:
        """Use up what halted. Raises `PipelineError` for all but the first who does."""
        with self._database.writing() as db:
            db.execute("DELETE FROM halted WHERE key = ?", (key,))
            if not db.changes():
                raise not_found(key)

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


def not_found(key: str) -> PipelineError:
    return PipelineError(f"{key.partition('_')[0].capitalize()} resume state not found")


def _token(key: str) -> dict[str, Value]:
    kind = "workflow-file" if key.startswith("workflow") else "pipeline-resume"
    return {"protocolVersion": 1, "v": 1, "kind": kind, "stateKey": key}


def _read_token(token: str) -> str:
    try:
        data = json.loads(base64.urlsafe_b64decode(token + "=" * (-len(token) % 4)))
        if re.fullmatch(_KEY, key := data["stateKey"]) and data == _token(key):
            return str(key)
    except (ValueError, TypeError, LookupError, RecursionError):
        pass
    raise PipelineSyntaxError("Invalid token")
