"""Storage of sub-agent runs: their tasks, their results, and which results are still undelivered.

The end of a run is stored before it is reported, and a result is marked as delivered in the
transaction that adds it to the requester's transcript. So every result is delivered exactly once,
even after a crash.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from contextlib import suppress
from typing import TYPE_CHECKING, Any

import msgspec

from clawkit.content import Assistant, Usage
from clawkit.sessions.encode import Redact, bound_usage, decode, encode_value, sound
from clawkit.sessions.subagent_protocols import RunOutcome, SubagentRun, WindUp, Worktree, now_ms
from clawkit.text import cut

if TYPE_CHECKING:
    from apsw import Connection

    from clawkit.store import Database

MAX_TEXT = 256 * 1024
"""Characters of a result stored with the run; the sub-agent's transcript has the full text."""
_FIELDS = (
    "id, session, requester, root, name, label, task, status, created_ms, started_ms, ended_ms,"
    " timeout_s, cleanup, text, error, output, usage, told_ms, attachments,"
    " worktree, changes"
)
_ANCESTORS = 64
EXITED = "clawkit exited before it finished"


class RunStore:
    def __init__(self, database: Database, redact: Redact | None = None) -> None:
        self._database = database
        self._redact = redact

    def start(self, id_: str) -> None:
        with self._database.writing() as db:
            db.execute(
                "UPDATE run SET status = 'running', started_ms = ? WHERE id = ? AND ended_ms = 0",
                (now_ms(), id_),
            )

    def finish(self, id_: str, outcome: RunOutcome, *, is_silent: bool = False) -> bool:
        """Store how a run ended; false, without a change, if it had already ended. The result of an
        `is_silent` run is not reported."""
        usage = msgspec.json.encode(bound_usage(outcome.usage)).decode()
        output = b"" if outcome.output is None else encode_value(outcome.output, self._redact)
        at_ms = now_ms()
        with self._database.writing() as db:
            db.execute(
                # Results are read in this order, so their times must be unique.
                "UPDATE run SET status = ?, ended_ms = max(?, 1 + (SELECT max(other.ended_ms)"
                " FROM run AS other WHERE other.root = run.root)), text = ?, error = ?, output = ?,"
                " usage = ?, told_ms = ?, changes = ? WHERE id = ? AND ended_ms = 0",
                (
                    *(outcome.status, at_ms, _clean(outcome.text, self._redact)),
                    *(_clean(outcome.error, self._redact), output, usage, at_ms * is_silent),
                    *(_clean(outcome.changes, self._redact), id_),
                ),
            )
            return bool(db.changes())

    def get(self, id_: str) -> SubagentRun | None:
        return next(iter(self._select("WHERE id = ?", sound(id_))), None)

    def of_requester(self, session: str) -> list[SubagentRun]:
        """Runs that a session started, oldest first."""
        return self._select("WHERE requester = ? ORDER BY rowid", sound(session))

    def of_session(self, session: str) -> SubagentRun | None:
        """The last run in a session; None if it is not a sub-agent's session."""
        newest = "WHERE session = ? ORDER BY rowid DESC LIMIT 1"
        return next(iter(self._select(newest, sound(session))), None)

    def untold(self, root: str) -> list[SubagentRun]:
        """Undelivered results in the tree below a root session."""
        return self._select(
            "WHERE root = ? AND ended_ms > 0 AND told_ms = 0 ORDER BY ended_ms", sound(root)
        )

    def interrupt(self, root: str, wind_up: WindUp) -> None:
        """Mark unfinished runs as interrupted: their process is gone. The caller must hold the lock
        of the root session."""
        for run in self._select("WHERE root = ? AND ended_ms = 0", sound(root)):
            self.finish(run.id, wind_up(run, self._so_far(run)))

    def forget(self, id_: str) -> None:
        """Remove a run that never started."""
        with self._database.writing() as db:
            db.execute("DELETE FROM run WHERE id = ?", (id_,))

    def _so_far(self, run: SubagentRun) -> RunOutcome:
        """The outcome of a run whose process ended, with its last text and its usage."""
        query = "SELECT row, input, output, cache_read, cache_write, cost FROM session WHERE id = ?"
        with self._database.using() as db:
            found = db.execute(query, (run.session,)).get
            row, *counts = found or (0, 0, 0, 0, 0, 0.0)
            bodies: list[Any] = db.execute(
                "SELECT body FROM message WHERE place BETWEEN ?1 << 32 AND (?1 << 32) + 4294967295"
                " ORDER BY place DESC LIMIT 20",
                (row,),
            ).fetchall()
        outcome = RunOutcome("interrupted", error=EXITED, usage=Usage(*counts))
        for (body,) in bodies:
            with suppress(ValueError, RecursionError):
                message = decode(body)
                if isinstance(message, Assistant) and message.text.strip():
                    return msgspec.structs.replace(outcome, text=message.text)
        return outcome

    def archive(self, root: str, ended_before_ms: int) -> None:
        """Archive the sessions of runs that ended before a time and were reported."""
        over = "SELECT session FROM run WHERE root = ? AND told_ms > 0 AND ended_ms < ?"
        given = (sound(root), ended_before_ms)
        with self._database.using() as db:
            found = db.execute(f"SELECT 1 FROM ({over}) LIMIT 1", given).get  # noqa: S608
        if found is not None:
            with self._database.writing() as db:
                change = (
                    f"UPDATE session SET archived_ms = ? WHERE archived_ms = 0 AND id IN ({over})"  # noqa: S608
                )
                db.execute(change, (now_ms(), *given))

    def listener(self, session: str, root: str) -> str:
        """The session that receives results meant for a session: itself or, if its run has ended,
        its nearest ancestor that is still active, up to the root."""
        for _ in range(_ANCESTORS):
            if session == root:
                break
            run = self.of_session(session)
            if run is None or not run.is_over:
                break
            session = run.requester
        return session

    def cost(self, root: str) -> float:
        """Cost in dollars of all finished runs below a root session."""
        with self._database.using() as db:
            query = "SELECT total(json_extract(usage, '$.cost')) FROM run WHERE root = ?"
            return float(db.execute(query, (sound(root),)).get)

    def _select(self, where: str, *given: str) -> list[SubagentRun]:
        with self._database.using() as db:
            rows: list[Any] = db.execute(f"SELECT {_FIELDS} FROM run {where}", given).fetchall()  # noqa: S608
        return [_run(row) for row in rows]


def add_run(db: Connection, run: SubagentRun, redact: Redact | None) -> None:
    """Store a run, in the transaction that creates its session."""
    given = map(sound, (run.id, run.session, run.requester, run.root, run.name))
    places = run.attachments, msgspec.json.encode(run.worktree).decode() if run.worktree else ""
    words = (_clean(run.label, redact), _clean(run.task, redact), run.status)
    db.execute(
        "INSERT INTO run (id, session, requester, root, name, label, task, status, created_ms,"
        " timeout_s, cleanup, attachments, worktree)"
        " VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)",
        (*given, *words, run.created_ms, run.timeout_s, run.cleanup, *places),
    )


def mark_told(db: Connection, runs: Iterable[str]) -> None:
    """Mark results as delivered, in the transaction that adds them to a transcript."""
    for each in runs:
        db.execute("UPDATE run SET told_ms = ? WHERE id = ?", (now_ms(), sound(each)))


def _clean(text: str, redact: Redact | None) -> str:
    text = cut(text, MAX_TEXT)
    return sound(redact(text) if redact else text)


def _run(row: Sequence[Any]) -> SubagentRun:
    output = None
    with suppress(ValueError, RecursionError):
        output = msgspec.json.decode(row[15]) if row[15] else None
    worktree = msgspec.json.decode(row[19], type=Worktree) if row[19] else None
    usage = msgspec.json.decode(row[16], type=Usage)
    fields = (*row[:15], output, usage, *row[17:19], worktree, row[20])
    return SubagentRun(*fields)
