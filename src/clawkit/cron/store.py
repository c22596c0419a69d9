"""Jobs and their runs, in a database shared by several processes: every slot runs once."""

from __future__ import annotations

import logging
import os
import re
import uuid
from bisect import bisect_right
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, suppress
from itertools import accumulate
from typing import Any, Literal

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from clawkit.cron.jobs import MAX_JOBS, HeartbeatPayload, Job, JobState
from clawkit.cron.schema import SCHEMA
from clawkit.errors import ConflictError, NotFoundError, ToolInputError
from clawkit.store import Database, hold_lock, is_held, private_dir
from clawkit.text import one_line

AHEAD_MS, MAX_WAIT_MS = 60_000, 2 * 3_600_000
"""Slots are planned and runs queued at most this far ahead."""
KEEP_MS, KEEP_RUNS = 7 * 86_400_000, 2_000
"""How long finished runs are kept, and how many per job."""
MAX_ALONG = 100_000
"""Maximum characters of additional wake-ups that one turn reads."""
Why = Literal["schedule", "catch-up", "retry", "manual", "event"]
Status = Literal["queued", "running", "ok", "error", "skipped", "interrupted"]
DeliveryStatus = Literal[
    "not-requested", "pending", "sending", "delivered", "not-delivered", "silent", "unknown"
]

log = logging.getLogger(__name__)

_APPLICATION = 0x636C6372
_MAY_START = (
    "SELECT (SELECT overlap FROM job WHERE id = ?1) OR NOT EXISTS"
    " (SELECT 1 FROM run WHERE job = ?1 AND status = 'running' AND session = ?2)"
)
_STARTABLE = (
    "status = 'queued' AND due_ms <= ? AND"
    " ((SELECT overlap FROM job WHERE id = run.job) OR NOT EXISTS"
    " (SELECT 1 FROM run AS other WHERE other.job = run.job AND other.status = 'running'"
    " AND other.session = run.session))"
    " ORDER BY due_ms, row LIMIT ?"
)
_DROP_QUEUED = "DELETE FROM run WHERE job = ? AND status = 'queued'"
_NOT_A_WAKE_UP = " AND session = ''"
"""Wake-ups belong to a session, independent of the heartbeat that shares their job."""
_JOB = "definition, state, planned_ms, next_ms, version"
_RUN = (
    "id, job, slot_ms, why, status, due_ms, owner, begun, started_ms, ended_ms, delivery,"
    " unsettled, session, text, record"
)


class JobRow(Struct, frozen=True):
    """A job with its state."""

    job: Job
    state: JobState
    planned_ms: int
    next_ms: int | None
    version: int = 0


class CronRunRecord(Struct, frozen=True, rename="camel", omit_defaults=True):
    """The outcomes of a run and of its delivery."""

    job_name: str = ""
    error: str = ""
    reason: str = ""
    """The kind of the error, or why the run was skipped."""
    summary: str = ""
    model: str = ""
    usage: dict[str, int] = {}
    cost: float = 0.0
    session_key: str = ""
    session_id: str = ""
    delivery_error: str = ""
    receipt: str = ""
    slots: int = 1
    """Number of slots that were skipped together, and the last of them."""
    until_ms: int = 0
    retry_ms: int = 0
    is_guest: bool = False
    """Whether a client without owner rights requested the wake-up."""
    report: str = ""
    """The report for people about a failure or recovery."""


class CronRun(Struct, frozen=True):
    """One run of a job."""

    id: str
    job: str
    slot_ms: int | None
    why: Why
    status: Status
    due_ms: int
    owner: str = ""
    begun: bool = False
    started_ms: int = 0
    ended_ms: int = 0
    delivery: DeliveryStatus = "not-requested"
    unsettled: bool = False
    session: str = ""
    text: str = ""
    """The event, for a run caused by one."""
    record: CronRunRecord = CronRunRecord()


After = tuple[Job, JobState, int, int | None]
"""A changed job, its state, its last planned slot, and its next one."""


class Ending(Struct, frozen=True):
    """The consequences of a run, stored in one transaction."""

    run: CronRun
    after: After | None = None
    """None: remove the job if it still exists."""
    retry: CronRun | None = None


class CronStore:
    """Every method is atomic, and raises `ToolError` if the database cannot be used."""

    def __init__(self, path: str) -> None:
        self._database = Database(path, "the store of jobs", _APPLICATION, (SCHEMA,))
        self._owners = os.path.join(os.path.dirname(self._database.path), "cron-owners")
        self.path = self._database.path

    @property
    def exists(self) -> bool:
        """Whether the database exists."""
        return os.path.exists(self.path)

    def close(self) -> None:
        self._database.close()

    @contextmanager
    def owning(self) -> Iterator[str]:
        """A name for this process inside the block; a lock shows others that it is alive."""
        private_dir(self._owners)
        owner = uuid.uuid4().hex
        path = os.path.join(self._owners, owner)
        with hold_lock(path, "the owner of runs"):
            try:
                yield owner
            finally:
                with suppress(FileNotFoundError):
                    os.unlink(path)

    def owners(self) -> list[str]:
        """The processes that currently run jobs."""
        with suppress(FileNotFoundError):
            return [each for each in os.listdir(self._owners) if self._is_alive(each)]
        return []

    def _is_alive(self, owner: str) -> bool:
        return is_held(os.path.join(self._owners, owner))

    # Jobs

    def add(self, job: Job, planned_ms: int, next_ms: int | None) -> JobRow:
        """Raises `ConflictError` if a declared job exists, or there are too many jobs."""
        with self._database.writing() as db:
            count: Any = db.execute("SELECT count(*) FROM job").get
            if count >= MAX_JOBS:
                raise ConflictError(f"there are {count} jobs already; remove some")
            if job.declaration_key and self._rows("declaration = ?", job.declaration_key):
                raise ConflictError(f"a job with the key {job.declaration_key!r} exists already")
            db.execute(
                "INSERT INTO job (id, name, declaration, definition, state, planned_ms, next_ms,"
                " overlap) VALUES (?, ?, ?, ?, ?, ?, ?, ?)",
                (
                    *(job.id, job.name, job.declaration_key or None, _pack(job)),
                    *(_pack(JobState()), planned_ms, next_ms, job.overlap),
                ),
            )
        return JobRow(job, JobState(), planned_ms, next_ms)

    def _rows(self, where: str, *given: Any) -> list[JobRow]:
        """Inside an access."""
        db, rows = self._database.connect(), list[JobRow]()
        query = f"SELECT id, {_JOB} FROM job WHERE {where}"  # noqa: S608
        found: list[Any] = db.execute(query, given).fetchall()
        for id_, definition, state, *rest in found:
            try:
                job = msgspec.json.decode(definition, type=Job)
                rows.append(JobRow(job, msgspec.json.decode(state, type=JobState), *rest))
            except ValueError as error:  # other jobs can run; this one is checked again later
                log.error("the job %s in %s is damaged: %s", id_, self.path, error)
                later = "UPDATE job SET next_ms = unixepoch() * 1000 + 60000 WHERE id = ?"
                db.execute(f"{later} AND next_ms IS NOT NULL", (id_,))
        return rows

    def find(self, text: str) -> JobRow:
        """A job by its id, the start of its id, or its name. Raises `NotFoundError`."""
        wanted = text.strip()
        with self._database.using():
            found = self._rows("id = ?", wanted) or self._rows("name = ?", wanted)
            if not found and re.fullmatch(r"[0-9a-f-]{4,36}", wanted):
                found = self._rows("id GLOB ?", f"{wanted}*")
        if len(found) > 1:
            ids = ", ".join(row.job.id for row in found[:5])
            raise ToolInputError(
                f"{len(found)} jobs match {one_line(wanted, 60)!r}; use an id: {ids}"
            )
        if not found:
            raise NotFoundError(f"unknown job {one_line(wanted, 60)!r}; see: clawkit cron list")
        return found[0]

    def get(self, id_: str) -> JobRow | None:
        with self._database.using():
            return next(iter(self._rows("id = ?", id_)), None)

    def declared(self, prefix: str) -> list[JobRow]:
        """The jobs that clawkit manages for settings."""
        with self._database.using():
            return self._rows("declaration GLOB ?", f"{prefix}*")

    def all(self) -> list[JobRow]:
        """All jobs, the next one first, those without a time last."""
        with self._database.using():
            return self._rows("TRUE ORDER BY next_ms IS NULL, next_ms, name, id")

    def events(self) -> list[JobRow]:
        """The jobs that wait for events rather than a time."""
        with self._database.using():
            kind = "json_extract(definition, '$.schedule.kind')"
            return self._rows(f"next_ms IS NULL AND {kind} IN ('stream', 'on-exit')")

    def turn_back(self, now_ms: int) -> None:
        """Correct for a clock that was ahead: reset times that are too far in the future."""
        with self._database.writing() as db:
            db.execute(
                "UPDATE job SET planned_ms = ?1, next_ms = ?1, version = version + 1"
                " WHERE planned_ms > ?1 + ?2 AND next_ms IS NOT NULL",
                (now_ms, AHEAD_MS),
            )
            db.execute(
                "UPDATE run SET due_ms = ?1 WHERE status = 'queued' AND due_ms > ?1 + ?2",
                (now_ms, MAX_WAIT_MS),
            )

    def change(
        self,
        id_: str,
        edit: Callable[[JobRow], After],
        *,
        run: CronRun | None = None,
    ) -> JobRow:
        """Change a job. Disabling it drops its queued runs. `run` is added in the same transaction.
        Raises `NotFoundError` if there is no such job."""
        with self._database.writing() as db:
            found = self._rows("id = ?", id_)
            if not found:
                raise NotFoundError(f"the job {one_line(id_, 60)!r} was removed")
            changed = _put(db, found[0], edit(found[0]))
            if run is not None:
                self._insert(db, run)
        return changed

    def remove(self, id_: str) -> bool:
        """Remove a job and its queued runs; a current run continues."""
        with self._database.writing() as db:
            return _remove(db, id_)

    def count(self) -> int:
        with self._database.using() as db:
            found: Any = db.execute("SELECT count(*) FROM job").get
            return int(found)

    # Runs

    def due(self, now_ms: int, most: int) -> list[JobRow]:
        """Jobs that are due, in order."""
        with self._database.using():
            return self._rows("next_ms <= ? ORDER BY next_ms, rowid LIMIT ?", now_ms, most)

    def plan(self, planned: Iterable[tuple[JobRow, list[CronRun], int, int | None]]) -> None:
        """Queue or skip the slots of jobs: for each its row, its runs, the last planned slot and
        the next one. A job that was changed or planned in the meantime is skipped."""
        with self._database.writing() as db:
            for row, runs, planned_ms, next_ms in planned:
                db.execute(
                    "UPDATE job SET planned_ms = ?, next_ms = ?, version = version + 1"
                    " WHERE id = ? AND version = ?",
                    (planned_ms, next_ms, row.job.id, row.version),
                )
                if not db.changes():
                    continue
                for run in runs:
                    is_late = run.status == "queued" and self._is_queued(db, row.job.id)
                    if is_late:  # a waiting run covers this one as well
                        record = replace(run.record, reason="coalesced")
                        run = replace(run, status="skipped", ended_ms=run.due_ms, record=record)
                    self._insert(db, run)

    def queue(self, run: CronRun) -> None:
        """Queue a run without a slot."""
        with self._database.writing() as db:
            self._insert(db, run)

    def add_event(
        self, row: JobRow, text: str, now_ms: int, room: int
    ) -> Literal["queued", "coalesced", "dropped"]:
        """Queue a run for an event, or append the event to the waiting run if it fits into
        `room`."""
        with self._database.writing() as db:
            waiting = "job = ? AND status = 'queued' AND why = 'event' ORDER BY row LIMIT 1"
            for run in self._runs(waiting, row.job.id):
                if len(run.text) + len(text) > room:
                    return "dropped"
                joined = f"{run.text}\n{text}"
                db.execute("UPDATE run SET text = ? WHERE id = ?", (joined, run.id))
                return "coalesced"
            self._insert(db, new_run(row, "event", now_ms, text))
        return "queued"

    def withdraw(self, id_: str) -> bool:
        """Drop a queued run; False if it has already started."""
        with self._database.writing() as db:
            db.execute("DELETE FROM run WHERE id = ? AND status = 'queued'", (id_,))
            return bool(db.changes())

    def accept(self, run: CronRun, most: int, *, coalesce: bool = False) -> CronRun:
        """Queue a run. Returns an existing run with the same id instead or, with `coalesce`, a
        waiting one with the same text. Raises `ConflictError` if `most` of the job are waiting."""
        with self._database.writing() as db:
            if found := next(self._runs("id = ?", run.id), None):
                return found
            same = "job = ? AND status = 'queued' AND text = ?"
            if coalesce and (found := next(self._runs(same, run.job, run.text), None)):
                return found
            count = "SELECT count(*) FROM run WHERE job = ? AND status = 'queued'"
            waiting: Any = db.execute(count, (run.job,)).get
            if waiting >= most:
                raise ConflictError(f"{waiting} requests are already waiting; try again later")
            self._insert(db, run)
        return run

    def _insert(self, db: Any, run: CronRun) -> None:
        values = [getattr(run, name) for name in _RUN.split(", ")[:-1]]
        db.execute(
            f"INSERT OR IGNORE INTO run ({_RUN}) VALUES ({', '.join('?' * (len(values) + 1))})",  # noqa: S608
            (*values, _pack(run.record)),
        )

    @staticmethod
    def _is_queued(db: Any, job: str) -> bool:
        waits = f"job = ? AND status = 'queued' AND why != 'manual'{_NOT_A_WAKE_UP}"
        query = f"SELECT 1 FROM run WHERE {waits} LIMIT 1"  # noqa: S608
        return db.execute(query, (job,)).get is not None

    def take(self, owner: str, now_ms: int, most: int, only: str = "") -> list[CronRun]:
        """Lease queued runs that are due, in order: one at a time for a job that must not overlap,
        and one wake-up per session. `only` restricts this to the run with that id."""
        taken: list[CronRun] = []
        with self._database.writing() as db:
            before = -1
            while before < len(taken) < most:  # several runs of one job may come first
                before, where = len(taken), f"(?1 = '' OR id = ?1) AND {_STARTABLE}"
                for run in self._runs(where, only, now_ms, most - before):
                    if db.execute(_MAY_START, (run.job, run.session)).get:
                        run = replace(run, status="running", owner=owner, started_ms=now_ms)
                        self._update(db, run)
                        taken.append(run)
        return taken

    def take_along(self, run: CronRun, now_ms: int) -> list[CronRun]:
        """Lease the other wake-ups of the same session and rights, and start them together with a
        run."""
        waiting = "status = 'queued' AND job = ? AND session = ? AND due_ms <= ?"
        with self._database.writing() as db:
            given = (run.job, run.session, max(now_ms, run.due_ms))
            found = [
                replace(each, status="running", owner=run.owner, started_ms=now_ms, begun=True)
                for each in self._runs(f"{waiting} ORDER BY due_ms, row", *given)
                if each.record.is_guest == run.record.is_guest
            ]
            sizes = list(accumulate(len(each.text) for each in found))
            found = found[: bisect_right(sizes, MAX_ALONG)]
            for each in found:
                self._update(db, each)
        return found

    def _runs(self, where: str, *given: Any) -> Iterator[CronRun]:
        """Inside an access."""
        db = self._database.connect()
        found: list[Any] = db.execute(f"SELECT {_RUN} FROM run WHERE {where}", given).fetchall()  # noqa: S608
        for *row, packed in found:
            record = CronRunRecord()
            with suppress(ValueError):  # damaged: the record is lost, but not the run
                record = msgspec.json.decode(packed, type=CronRunRecord)
            run = CronRun(*(*row, record))
            yield replace(run, begun=bool(run.begun), unsettled=bool(run.unsettled))

    def _update(self, db: Any, run: CronRun) -> None:
        db.execute(
            "UPDATE run SET (status, due_ms, owner, begun, started_ms, ended_ms, delivery,"
            " unsettled, record) = (?, ?, ?, begun OR ?, ?, ?, ?, ?, ?) WHERE id = ?",
            (
                *(run.status, run.due_ms, run.owner, run.begun, run.started_ms, run.ended_ms),
                *(run.delivery, run.unsettled, _pack(run.record), run.id),
            ),
        )

    def begin(self, run: CronRun) -> None:
        """Record that the work of a run starts; from now on it is not repeated. Raises
        `ConflictError` if another process leases it."""
        with self._database.writing() as db:
            begun = "UPDATE run SET begun = 1 WHERE id = ? AND status = 'running' AND owner = ?"
            db.execute(begun, (run.id, run.owner))
            if not db.changes():
                raise ConflictError("another process has leased this run")

    def record(
        self, run: CronRun, edit: Callable[[JobRow], After | None] | None = None
    ) -> JobRow | None:
        """Record later facts about a finished run, such as its delivery, together with the change
        of its job; `edit` returns None to remove the job. Returns None if the job is gone."""
        with self._database.writing() as db:
            self._update(db, run)
            row = next(iter(self._rows("id = ?", run.job)), None) if edit else None
            if edit is None or row is None:
                return None
            after = edit(row)
            if after is None:
                _remove(db, run.job)
            return _put(db, row, after) if after else None

    def finish(
        self, run: CronRun, end: Callable[[JobRow | None], Ending]
    ) -> tuple[CronRun, JobRow | None] | None:
        """Record the end of a run with its consequences. Returns None, without a change, if another
        process already did."""
        with self._database.writing() as db:
            ours = "SELECT 1 FROM run WHERE id = ? AND status = 'running' AND owner = ?"
            if db.execute(ours, (run.id, run.owner)).get is None:
                return None
            row = next(iter(self._rows("id = ?", run.job)), None)
            ending = end(row)
            self._update(db, ending.run)
            self._prune(db, ending.run)
            if row is not None and ending.after is None:
                _remove(db, run.job)
            elif row is not None and ending.after is not None:
                row = _put(db, row, ending.after)
            if ending.retry is not None:
                self._insert(db, ending.retry)
            return ending.run, row

    def _prune(self, db: Any, run: CronRun) -> None:
        old = "DELETE FROM run WHERE ended_ms BETWEEN 1 AND ? AND NOT unsettled"
        db.execute(old, (run.ended_ms - KEEP_MS,))
        db.execute(
            "DELETE FROM run WHERE job = ?1 AND ended_ms > 0 AND NOT unsettled AND row <="
            " (SELECT row FROM run WHERE job = ?1 ORDER BY row DESC LIMIT 1 OFFSET ?2)",
            (run.job, KEEP_RUNS),
        )

    def orphans(self, now_ms: int) -> list[CronRun]:
        """Runs whose process has died. Those that had not begun are queued again; the others are
        returned."""
        with self._database.writing() as db:
            dead = self._without_owner("status = 'running'")
            for run in dead:
                if not run.begun:
                    again = replace(run, status="queued", owner="", due_ms=now_ms, started_ms=0)
                    self._update(db, again)
        return [run for run in dead if run.begun]

    def unsettled(self, owner: str) -> list[CronRun]:
        """Finished runs whose process died before their consequences were handled; `owner` takes
        them over. An attempted delivery becomes `unknown`."""
        with self._database.writing() as db:
            found = [
                replace(
                    run,
                    owner=owner,
                    delivery="unknown" if run.delivery == "sending" else run.delivery,
                )
                for run in self._without_owner("unsettled")
            ]
            for run in found:
                self._update(db, run)
        return found

    def _without_owner(self, where: str) -> list[CronRun]:
        runs = list(self._runs(where))
        alive = {owner for owner in {run.owner for run in runs} if self._is_alive(owner)}
        return [run for run in runs if run.owner not in alive]

    def history(
        self, job: str = "", limit: int = 50, offset: int = 0, run: str = "", agent: str = ""
    ) -> tuple[list[CronRun], int]:
        """A page of runs, the latest first, and their total number."""
        given = {
            "job = ?": job,
            "id = ?": run,
            "job IN (SELECT id FROM job WHERE json_extract(definition, '$.agentId') = ?)": agent,
        }
        where = " AND ".join(["TRUE", *(each for each, value in given.items() if value)])
        values = [value for value in given.values() if value]
        with self._database.using() as db:
            total: Any = db.execute(f"SELECT count(*) FROM run WHERE {where}", values).get  # noqa: S608
            page = f"{where} ORDER BY row DESC LIMIT ? OFFSET ?"
            return list(self._runs(page, *values, limit, offset)), int(total)

    def spent(self, job: str, since_ms: int, now_ms: int) -> tuple[int, float, int]:
        """Number and cost of a job's runs since a time, without wake-ups, and the last start.
        Ignores future start times."""
        query = (
            "SELECT coalesce(sum(started_ms >= ?2), 0),"  # noqa: S608
            " total(CASE WHEN started_ms >= ?2 THEN json_extract(record, '$.cost') END),"
            " coalesce(max(started_ms), 0) FROM run"
            f" WHERE job = ?1 AND begun AND started_ms <= ?3{_NOT_A_WAKE_UP}"
        )
        with self._database.using() as db:
            count, cost, last_ms = next(iter(db.execute(query, (job, since_ms, now_ms))))
        return count, cost, last_ms

    def active(self) -> list[CronRun]:
        """Running runs, of this and other processes."""
        with self._database.using():
            return list(self._runs("status = 'running'"))

    def wake_ms(self, now_ms: int) -> int | None:
        """The next time with something to do; None if there is none. Runs that wait for others have
        no time."""
        with self._database.using() as db:
            job: Any = db.execute("SELECT min(next_ms) FROM job WHERE next_ms IS NOT NULL").get
            queued = "SELECT min(due_ms) FROM run WHERE status = 'queued' AND due_ms > ?"
            run: Any = db.execute(queued, (now_ms,)).get
        return min((each for each in (job, run) if each is not None), default=None)

    def data_version(self) -> int:
        """Differs if another process has changed the database."""
        with self._database.using() as db:
            found: Any = db.pragma("data_version")
            return int(found)

    # Small facts, such as the daily cost of heartbeats

    def fact(self, name: str) -> dict[str, Any]:
        with self._database.using() as db:
            found: Any = db.execute("SELECT value FROM fact WHERE name = ?", (name,)).get
        try:
            return dict(msgspec.json.decode(found)) if found else {}
        except (ValueError, TypeError):
            return {}

    def set_fact(self, name: str, value: dict[str, Any]) -> None:
        with self._database.writing() as db:
            change = (
                "INSERT INTO fact VALUES (?, ?) ON CONFLICT DO UPDATE SET value = excluded.value"
            )
            db.execute(change, (name, msgspec.json.encode(value)))


def new_run(row: JobRow, why: Why, due_ms: int, text: str = "") -> CronRun:
    """A new run without a slot."""
    id_ = f"{why}:{row.job.id}:{due_ms}:{uuid.uuid4().hex[:8]}"
    return CronRun(
        id_, row.job.id, None, why, "queued", due_ms, text=text, record=CronRunRecord(row.job.name)
    )


def _pack(value: Struct) -> bytes:
    return msgspec.json.encode(value)


def _remove(db: Any, id_: str) -> bool:
    db.execute(_DROP_QUEUED, (id_,))
    db.execute("DELETE FROM job WHERE id = ?", (id_,))
    return bool(db.changes())


def _put(db: Any, row: JobRow, after: After) -> JobRow:
    """Replace a job, and drop runs queued for its old definition."""
    job, state, planned_ms, next_ms = after
    db.execute(
        "UPDATE job SET (name, definition, state, planned_ms, next_ms, overlap, version)"
        " = (?, ?, ?, ?, ?, ?, version + 1) WHERE id = ?",
        (job.name, _pack(job), _pack(state), planned_ms, next_ms, job.overlap, job.id),
    )
    if row.job.enabled and not job.enabled:
        kept = _NOT_A_WAKE_UP if isinstance(job.payload, HeartbeatPayload) else ""
        db.execute(_DROP_QUEUED + kept, (job.id,))
    elif row.job.schedule != job.schedule:
        db.execute(_DROP_QUEUED + " AND why = 'retry'", (job.id,))
    return JobRow(job, state, planned_ms, next_ms, row.version + 1)
