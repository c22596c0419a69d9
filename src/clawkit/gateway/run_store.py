"""The accepted runs, in a database: a restart neither loses nor repeats them."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable
from typing import Any

import msgspec

from clawkit.content import Assistant, User
from clawkit.errors import ToolError
from clawkit.gateway.protocol import encode as to_json
from clawkit.gateway.protocol import now_ms
from clawkit.gateway.session_events import GatewayRun, RunRecord
from clawkit.process.records import here
from clawkit.sessions.encode import decode, encode, sound
from clawkit.sessions.store import SessionStore
from clawkit.store import Database

KEEP_RUNS, KEEP_RUNS_S = 1_000, 300.0
"""Number of finished runs kept per client, and how long."""
_APPLICATION = 0x636C6772
_SCHEMA = """
DROP TABLE IF EXISTS run;
CREATE TABLE run (
    id TEXT PRIMARY KEY,
    client TEXT NOT NULL,
    -- Finished immediately, without a turn, so a client can have any number of them.
    at_once INTEGER NOT NULL,
    record BLOB NOT NULL,
    -- The message, until the run is over; empty if it must not be resumed.
    message BLOB NOT NULL,
    tries INTEGER NOT NULL DEFAULT 0,
    ended_ms INTEGER NOT NULL DEFAULT 0,
    -- End time on the monotonic clock, and the boot that this clock belongs to.
    ended_tick INTEGER NOT NULL DEFAULT 0,
    boot TEXT NOT NULL DEFAULT ''
) STRICT;
CREATE INDEX run_by_client ON run (client, ended_ms);
"""
_MIGRATIONS = ("", "", _SCHEMA)  # two earlier forms were never released
_PRUNE = """
DELETE FROM run WHERE ended_ms > 0 AND (
    CASE boot WHEN :boot THEN ended_tick < :tick - :keep_ms ELSE ended_ms < :now - :keep_ms END
    OR id IN (
        SELECT id FROM run WHERE client = :client AND at_once = :at_once AND ended_ms > 0
        ORDER BY boot = :boot DESC, ended_tick DESC, rowid DESC LIMIT -1 OFFSET :keep
    )
)
"""
_END = "UPDATE run SET (ended_ms, ended_tick, boot, message) = (?, ?, ?, x'')"
log = logging.getLogger(__name__)


class GatewayRunStore:
    """Every method is atomic, and raises `ToolError` if the database cannot be used."""

    def __init__(self, path: str, redact: Callable[[str], str]) -> None:
        self._database = Database(path, "the record of runs", _APPLICATION, _MIGRATIONS)
        self._redact = redact

    def pack(self, message: User) -> bytes:
        """Encode a message for the record, without secrets."""
        return encode(message, self._redact)

    def add(self, run: GatewayRun, body: bytes = b"", *, at_once: bool = False) -> None:
        """Record an accepted run; with its message, it survives a restart. Runs that are finished
        `at_once` are counted separately."""
        client = sound(run.client)
        limits = {
            "client": client,
            "at_once": at_once,
            "boot": here(),
            "tick": _tick(),
            "now": now_ms(),
            "keep_ms": round(KEEP_RUNS_S * 1000),
            "keep": KEEP_RUNS - 1,
        }
        row = sound(run.id), client, at_once, self._record(run), body
        with self._database.writing() as db:
            db.execute(_PRUNE, limits)
            names = "id, client, at_once, record, message"
            db.execute(f"INSERT INTO run ({names}) VALUES (?, ?, ?, ?, ?)", row)  # noqa: S608

    def _record(self, run: GatewayRun) -> bytes:
        words = {"text": self._redact(run.text), "error": self._redact(run.error)}
        names = RunRecord.__struct_fields__
        return to_json({name: getattr(run, name) for name in names} | words)

    def try_again(self, id_: str) -> None:
        """Count an attempt to resume a run."""
        self._change("UPDATE run SET tries = tries + 1 WHERE id = ?", id_)

    def remove(self, id_: str) -> None:
        """Remove a run that was not accepted after all."""
        self._change("DELETE FROM run WHERE id = ?", id_)

    def end(self, run: GatewayRun) -> None:
        """Record how a run ended."""
        given = run.ended_ms, _tick(), here(), self._record(run), run.id
        self._change(f"{_END}, record = ? WHERE id = ?", *given)

    def _change(self, change: str, *given: Any) -> None:
        with self._database.writing() as db:
            db.execute(change, (*given[:-1], sound(given[-1])))

    def get(self, id_: str) -> GatewayRun | None:
        """A finished run."""
        for (record,) in self._rows("SELECT record", "id = ? AND ended_ms > 0", sound(id_)):
            run = self._read(record)
            run.over.set()
            return run
        return None

    def unfinished(self) -> list[GatewayRun]:
        """The unfinished runs, in order of acceptance. A damaged one is logged and counts as
        finished: requests for it get an error."""
        found = []
        rows = self._rows("SELECT id, record, message, tries", "ended_ms = 0 ORDER BY rowid")
        for id_, record, body, tries in rows:
            try:
                found.append(self._read(record, message=_read_message(body), tries=tries))
            except ToolError as error:
                log.error("a run cannot be resumed: %s", error)
                self._change(f"{_END} WHERE id = ?", now_ms(), _tick(), here(), id_)
        return found

    def _read(self, record: bytes, **more: Any) -> GatewayRun:
        try:
            known = msgspec.json.decode(record, type=RunRecord)
        except ValueError as error:
            raise self._database.broken(f"a run in it is damaged: {error}") from error
        run = GatewayRun(**msgspec.structs.asdict(known), **more)
        run.decided.set()
        return run

    def _rows(self, query: str, where: str, *given: str) -> list[Any]:
        with self._database.using() as db:
            return db.execute(f"{query} FROM run WHERE {where}", given).fetchall()

    def close(self) -> None:
        self._database.close()


def _read_message(body: bytes) -> User | None:
    """The message; None if the run must not be resumed, because it is empty, damaged or of another
    version."""
    try:
        said = decode(body)
    except ValueError:
        return None
    return said if isinstance(said, User) and said.ids else None


def _tick() -> int:
    return round(time.monotonic() * 1000)


def read_by_model(store: SessionStore, key: str) -> tuple[dict[str, str | None], set[str]]:
    """The ids of the messages in a transcript with their answers (None if unanswered), and the ids
    of the last message that has any."""
    stored = store.find(key)
    answers: dict[str, str | None] = {}
    last: set[str] = set()
    for entry in store.history(stored.id) if stored else ():
        match entry.message:
            case User(ids=ids) if ids:
                answers |= dict.fromkeys(ids)
                last = set(ids)
            case Assistant(stop="stop" | "length" | "refusal") as said if not said.calls:
                new = [id_ for id_, answer in answers.items() if answer is None]
                answers |= dict.fromkeys(new, said.text)
    return answers, last
