"""The runs that were accepted, in a database: a restart neither forgets nor repeats them."""

from __future__ import annotations

import time
from collections.abc import Callable
from contextlib import suppress
from typing import Any, NamedTuple, cast

import msgspec

from clawkit.content import Assistant, User
from clawkit.gateway.narrator import GatewayRun
from clawkit.gateway.protocol import now_ms
from clawkit.process.records import here
from clawkit.sessions.encode import decode, encode, sound
from clawkit.sessions.store import SessionStore
from clawkit.store import Database

KEEP_RUNS, KEEP_RUNS_S = 1_000, 300.0
"""How many runs of a client are kept after their end, and for how long."""
_APPLICATION = 0x636C6772
_SCHEMA = """
CREATE TABLE run (
    id TEXT PRIMARY KEY,
    session TEXT NOT NULL,
    agent TEXT NOT NULL,
    client TEXT NOT NULL,
    started_ms INTEGER NOT NULL,
    -- What was said, until the run is over; empty if it is not resumed.
    message BLOB NOT NULL,
    owner INTEGER NOT NULL,
    timeout_s REAL NOT NULL,
    tries INTEGER NOT NULL DEFAULT 0,
    ended_ms INTEGER NOT NULL DEFAULT 0,
    status TEXT NOT NULL DEFAULT 'running',
    text TEXT NOT NULL DEFAULT '',
    error TEXT NOT NULL DEFAULT '',
    model TEXT NOT NULL DEFAULT '',
    usage TEXT NOT NULL DEFAULT '{}'
) STRICT;
CREATE INDEX run_by_client ON run (client, ended_ms);
"""
_BINDING = """
ALTER TABLE run ADD COLUMN digest TEXT NOT NULL DEFAULT '';
-- Over at once: it needs no turn, so a client can have any number of them.
ALTER TABLE run ADD COLUMN at_once INTEGER NOT NULL DEFAULT 0;
-- When it ended by a clock that nobody sets, and since which boot that clock counts.
ALTER TABLE run ADD COLUMN ended_tick INTEGER NOT NULL DEFAULT 0;
ALTER TABLE run ADD COLUMN boot TEXT NOT NULL DEFAULT '';
"""
_PRUNE = """
DELETE FROM run WHERE ended_ms > 0 AND (
    CASE boot WHEN :boot THEN ended_tick < :tick - :keep_ms ELSE ended_ms < :now - :keep_ms END
    OR id IN (
        SELECT id FROM run WHERE client = :client AND at_once = :at_once AND ended_ms > 0
        ORDER BY boot = :boot DESC, ended_tick DESC, rowid DESC LIMIT -1 OFFSET :keep
    )
)
"""
_ABOUT = "id, session, agent, client, digest, started_ms"
_END = "ended_ms, status, text, error, model, usage"


class AcceptedRun(NamedTuple):
    """A run that is not over."""

    run: GatewayRun
    message: User | None
    """What was said; None if the run must not be resumed."""
    owner: bool
    timeout_s: float | None
    tries: int


class RunLedger:
    """Every method is atomic, and raises `ToolError` if the database cannot be used."""

    def __init__(self, path: str, redact: Callable[[str], str]) -> None:
        self._database = Database(path, "the record of runs", _APPLICATION, (_SCHEMA, _BINDING))
        self._redact = redact

    def pack(self, message: User) -> bytes:
        """A message as it is recorded, without secrets."""
        return encode(message, self._redact)

    def add(
        self,
        run: GatewayRun,
        body: bytes = b"",
        *,
        owner: bool,
        timeout_s: float | None = None,
        at_once: bool = False,
    ) -> None:
        """Record a run that is accepted; with its message, it survives a restart. Those that are
        over `at_once` are counted by themselves."""
        names = map(sound, (run.id, run.session, run.agent, run.client, run.digest))
        limits = {
            "client": sound(run.client),
            "at_once": at_once,
            "boot": here(),
            "tick": _tick(),
            "now": now_ms(),
            "keep_ms": round(KEEP_RUNS_S * 1000),
            "keep": KEEP_RUNS - 1,
        }
        with self._database.writing() as db:
            db.execute(_PRUNE, limits)
            db.execute(
                f"INSERT INTO run ({_ABOUT}, message, owner, timeout_s, at_once)"  # noqa: S608
                " VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?)",
                (*names, run.started_ms, body, owner, timeout_s or 0.0, at_once),
            )

    def try_again(self, id_: str) -> None:
        """Count an attempt to resume a run."""
        self._change("UPDATE run SET tries = tries + 1 WHERE id = ?", id_)

    def remove(self, id_: str) -> None:
        """Forget a run that was not accepted after all."""
        self._change("DELETE FROM run WHERE id = ?", id_)

    def end(self, run: GatewayRun) -> None:
        """Record how a run ended."""
        words = map(sound, (run.status, self._redact(run.text), self._redact(run.error), run.model))
        usage = msgspec.json.encode(run.usage).decode()
        names, values = f"{_END}, ended_tick, boot, message", "?, ?, ?, ?, ?, ?, ?, ?, x''"
        change = f"UPDATE run SET ({names}) = ({values}) WHERE id = ?"  # noqa: S608
        self._change(change, run.ended_ms, *words, usage, _tick(), here(), run.id)

    def _change(self, change: str, *given: Any) -> None:
        with self._database.writing() as db:
            db.execute(change, (*given[:-1], sound(given[-1])))

    def get(self, id_: str) -> GatewayRun | None:
        """A run that is over."""
        query = f"SELECT {_ABOUT}, {_END} FROM run WHERE id = ? AND ended_ms > 0"  # noqa: S608
        with self._database.using() as db:
            rows: list[Any] = db.execute(query, (sound(id_),)).fetchall()
        for *about, ended_ms, status, text, error, model, usage in rows:
            run = _run(*about)
            run.ended_ms, run.status, run.text, run.error = ended_ms, status, text, error
            run.model, run.usage = model, msgspec.json.decode(usage)
            run.over.set()
            return run
        return None

    def unfinished(self) -> list[AcceptedRun]:
        """The runs that are not over, in the order in which they were accepted."""
        query = f"SELECT {_ABOUT}, message, owner, timeout_s, tries FROM run"  # noqa: S608
        with self._database.using() as db:
            rows: list[Any] = db.execute(f"{query} WHERE ended_ms = 0 ORDER BY rowid").fetchall()
        found = []
        for *about, body, owner, timeout_s, tries in rows:
            said = None
            with suppress(ValueError):  # not resumed: it is empty, or of another version
                said = cast("User", decode(body))
            found.append(AcceptedRun(_run(*about), said, bool(owner), timeout_s or None, tries))
        return found

    def close(self) -> None:
        self._database.close()


def _tick() -> int:
    return round(time.monotonic() * 1000)


def _run(
    id_: str, session: str, agent: str, client: str, digest: str, started_ms: int
) -> GatewayRun:
    run = GatewayRun(id_, session, agent, client, digest)
    run.started_ms = started_ms
    run.decided.set()
    return run


def read_by_model(store: SessionStore, key: str) -> tuple[dict[str, str | None], set[str]]:
    """The ids of the messages in a transcript with their answers, None for those that have none
    yet; and the ids of the last message that has any."""
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
