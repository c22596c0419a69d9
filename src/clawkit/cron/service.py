"""The jobs service for the tool, the command line and the gateway's clients."""

from __future__ import annotations

import os
import uuid
from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, datetime
from typing import Any, Literal

from msgspec import UNSET
from msgspec.structs import replace

from clawkit.config.sections.gateway import Cron
from clawkit.cron.jobs import By, HeartbeatPayload, Job, JobState, patch_job, read_job, show_job
from clawkit.cron.model_limits import check_limits
from clawkit.cron.outcome import next_slot
from clawkit.cron.schedule import At, Every, OnExit, Stream, check_once
from clawkit.cron.store import CronRun, CronStore, JobRow, new_run
from clawkit.errors import ConflictError, ToolInputError

RunMode = Literal["due", "force", "if-enabled"]
SKIP_VARIABLE = "CLAWKIT_SKIP_CRON"
Sign = Callable[[Job], Job]
"""Returns a job with its author. Raises `ToolAuthorizationError`."""
MAX_LISTED = 200
MAX_WAITING = 20
"""Maximum waiting runs of a job."""


def iso(ms: int) -> str:
    """A time for people and models."""
    return (
        datetime.fromtimestamp(ms / 1000, UTC).isoformat(timespec="seconds").replace("+00:00", "Z")
    )


class CronService:
    """The jobs of one home. Every process has its own; they share the store."""

    def __init__(
        self,
        store: CronStore,
        settings: Cron,
        now_ms: Callable[[], int],
        tell: Callable[[str, JobRow], None] = lambda _action, _row: None,
    ) -> None:
        """`tell` is called after a change: added, updated, removed."""
        self.store, self._settings, self._now_ms, self._tell = store, settings, now_ms, tell

    @property
    def is_enabled(self) -> bool:
        return self._settings.enabled and os.environ.get(SKIP_VARIABLE) not in ("1", "true")

    def status(self) -> dict[str, Any]:
        now_ms = self._now_ms()
        return {
            "enabled": self.is_enabled,
            "running": bool(self.store.owners()) if self.store.exists else False,
            "triggersEnabled": False,
            "storage": "sqlite",
            "storePath": self.store.path,
            "sqlitePath": self.store.path,
            "jobs": self.store.count() if self.store.exists else 0,
            "nextWakeAtMs": self.store.wake_ms(now_ms) if self.store.exists else None,
            "now": iso(now_ms),
        }

    def list(
        self,
        *,
        include_disabled: bool = False,
        only_disabled: bool = False,
        agent: str = "",
        query: str = "",
        limit: int = 50,
        offset: int = 0,
    ) -> dict[str, Any]:
        """A page of jobs, the next one first."""
        words = query.strip().lower()
        rows = [
            row
            for row in (self.store.all() if self.store.exists else ())
            if (include_disabled or row.job.enabled)
            and not (only_disabled and row.job.enabled)
            and (not agent or row.job.agent_id == agent)
            and words in f"{row.job.name} {row.job.description} {row.job.id}".lower()
        ]
        page = rows[offset : offset + limit]
        more = offset + len(page) < len(rows)
        return {
            "jobs": self._shown(page) if page else [],
            "total": len(rows),
            "offset": offset,
            "limit": limit,
            "hasMore": more,
            "nextOffset": offset + len(page) if more else None,
        }

    def get(self, id_: str) -> dict[str, Any]:
        return self._shown([self.store.find(id_)])[0]

    def _shown(self, rows: Sequence[JobRow]) -> Sequence[dict[str, Any]]:
        """Adds the start of a current run, which is not stored because it would outlive a crash."""
        since = {run.job: run.started_ms for run in self.store.active()}
        states = [replace(row.state, running_at_ms=since.get(row.job.id, UNSET)) for row in rows]
        return [show(replace(row, state=state)) for row, state in zip(rows, states, strict=True)]

    def add(
        self,
        raw: Mapping[str, Any],
        *,
        by: By,
        session: str = "",
        agent: str = "",
        sign: Sign = lambda job: job,
    ) -> dict[str, Any]:
        """Add a job created by `session` and `agent`. Raises `ToolInputError`, and
        `ToolAuthorizationError` for values that a model must not choose."""
        now_ms = self._now_ms()
        job = read_job(raw, now_ms, by=by, session=session, agent=agent)
        if by == "model":
            check_limits(job, None, agent, session, self._settings.webhook_ssrf_policy)
        job = sign(job)
        planned_ms = first_planned(job, now_ms)
        row = self.store.add(job, planned_ms, next_slot(job, planned_ms))
        self._tell("added", row)
        return show(row)

    def update(
        self,
        id_: str,
        raw: Mapping[str, Any],
        *,
        by: By,
        agent: str = "",
        sign: Sign = lambda job: job,
    ) -> dict[str, Any]:
        now_ms, found = self._now_ms(), self.store.find(id_)

        def edit(row: JobRow) -> tuple[Job, JobState, int, int | None]:
            job = patch_job(row.job, raw, now_ms, by=by)
            if by == "model":
                check_limits(job, row.job, agent, "", self._settings.webhook_ssrf_policy)
            job = sign(job) if job.revision != row.job.revision else job
            return _after_change(row, job, now_ms)

        row = self.store.change(found.job.id, edit)
        self._tell("updated", row)
        return show(row)

    def adjust(self, row: JobRow, wanted: Job) -> JobRow:
        """Update a job that clawkit manages for settings."""
        if wanted == row.job:
            return row
        now_ms = self._now_ms()
        row = self.store.change(row.job.id, lambda row: _after_change(row, wanted, now_ms))
        self._tell("updated", row)
        return row

    def remove(self, id_: str) -> dict[str, Any]:
        row = self.store.find(id_)
        if row.job.enabled and isinstance(row.job.payload, HeartbeatPayload):
            raise ToolInputError(
                "a heartbeat results from settings and HEARTBEAT.md, and would come back; to stop "
                "it: clawkit heartbeat pause"
            )
        removed = self.store.remove(row.job.id)
        self._tell("removed", row)
        return {"ok": True, "removed": removed, "id": row.job.id}

    def run(self, id_: str, mode: RunMode = "due") -> dict[str, Any]:
        """Queue a run now: with `due` only if it is due, with `if-enabled` unless it is disabled.
        Raises `ConflictError` if too many are waiting."""
        row, now_ms = self.store.find(id_), self._now_ms()
        if mode != "force" and not row.job.enabled:
            return {"ok": True, "ran": False, "reason": "disabled"}
        if mode == "due" and (row.next_ms is None or row.next_ms > now_ms):
            return {"ok": True, "ran": False, "reason": "not-due"}
        active = [run for run in self.store.active() if run.job == row.job.id and not run.session]
        if active and not row.job.overlap:
            return {"ok": True, "ran": False, "reason": "already-running"}
        run = new_run(row, "manual", now_ms)
        self.store.accept(run, MAX_WAITING)
        self._tell("updated", row)
        shown = {"ok": True, "ran": True, "enqueued": True, "runId": run.id}
        return shown if self.store.owners() else shown | {"note": NOTHING_RUNS}

    def runs(
        self, id_: str = "", limit: int = 20, offset: int = 0, run: str = "", agent: str = ""
    ) -> dict[str, Any]:
        """A page of runs, the latest first; of a job, of an agent, or of all."""
        found: Sequence[CronRun] = ()
        total = 0
        if id_ or self.store.exists:
            job = self.store.find(id_).job.id if id_ else ""
            found, total = self.store.history(job, limit, offset, run, agent)
        more = offset + len(found) < total
        return {
            "entries": [show_run(each, self.store.get(each.job)) for each in found],
            "total": total,
            "offset": offset,
            "limit": limit,
            "hasMore": more,
            "nextOffset": offset + len(found) if more else None,
        }

    def heartbeat_job(self, agent: str) -> JobRow | None:
        """The job for heartbeats and wake-ups of an agent."""
        key = f"heartbeat:{agent}"
        found = self.store.declared(key) if self.store.exists else []
        return next((row for row in found if row.job.declaration_key == key), None)

    def wake_job(self, agent: str) -> JobRow:
        """`heartbeat_job`, created if missing."""
        job = Job(
            id=str(uuid.uuid4()),
            name=f"heartbeat-{agent}",
            display_name=f"Heartbeat ({agent})",
            declaration_key=f"heartbeat:{agent}",
            agent_id=agent,
            schedule=Every(1_800_000),
            session_target="main",
            payload=HeartbeatPayload(),
            enabled=False,
            created_at_ms=self._now_ms(),
        )
        return self.keep(job)

    def keep(self, job: Job) -> JobRow:
        """The managed job with the declaration key of `job`; if missing, `job` is added without a
        next slot."""
        key = job.declaration_key
        if found := [row for row in self.store.declared(key) if row.job.declaration_key == key]:
            return found[0]
        try:
            return self.store.add(job, self._now_ms(), None)
        except ConflictError:  # another process was faster, or there are too many jobs
            if not self.store.declared(key):
                raise
            return self.keep(job)

    def next_check(self, job_id: str, delay_ms: int) -> dict[str, Any]:
        """Set the next time of a running job, within its pacing."""
        now_ms = self._now_ms()

        def edit(row: JobRow) -> tuple[Job, JobState, int, int | None]:
            if row.job.pacing is None:
                raise ToolInputError("this job has no pacing, so it keeps its schedule")
            if isinstance(row.job.schedule, OnExit | Stream):
                raise ToolInputError("this job waits for an event, not for a time")
            at_ms = now_ms + min(max(delay_ms, row.job.pacing.min), row.job.pacing.max)
            return row.job, replace(row.state, next_check_ms=at_ms), row.planned_ms, row.next_ms

        row = self.store.change(job_id, edit)
        return {
            "ok": True,
            "nextRunAtMs": row.state.next_check_ms,
            "at": iso(row.state.next_check_ms),
        }


def _after_change(row: JobRow, job: Job, now_ms: int) -> tuple[Job, JobState, int, int | None]:
    """The state and slots of a job after a change of its definition."""
    state = row.state
    if job.enabled and not row.job.enabled:
        state = replace(
            state,
            auto_disabled="",
            consecutive_errors=0,
            schedule_error_count=0,
            schedule_activated_at_ms=now_ms,
        )
    if job.schedule == row.job.schedule and job.enabled == row.job.enabled:
        return job, state, row.planned_ms, row.next_ms
    if job.enabled and isinstance(job.schedule, At):
        try:
            check_once(job.schedule.at_ms, now_ms)
        except ValueError as error:
            raise ToolInputError(f"{error}; give it another time (now: {iso(now_ms)})") from None
    planned_ms = first_planned(job, now_ms)
    return job, state, planned_ms, next_slot(job, planned_ms)


def first_planned(job: Job, now_ms: int) -> int:
    """The time after which slots of a new schedule count."""
    return min(now_ms, job.schedule.at_ms - 1) if isinstance(job.schedule, At) else now_ms


NOTHING_RUNS = "no scheduler is running: run `clawkit gateway start` or `clawkit cron serve`"


def show(row: JobRow) -> dict[str, Any]:
    return show_job(row.job, row.state, row.next_ms)


_STATUS = {"interrupted": "error"}
_COMPLETION = {"ok": "succeeded", "error": "failed", "interrupted": "unknown"}
_DELIVERY = {"silent": "not-requested", "pending": "unknown", "sending": "unknown"}


def show_run(run: CronRun, row: JobRow | None = None) -> dict[str, Any]:
    """A run as tools and clients see it."""
    record = run.record
    is_over = run.ended_ms > 0
    shown: dict[str, Any] = {
        "ts": run.ended_ms or run.started_ms or run.due_ms,
        "jobId": run.job,
        "jobName": record.job_name or (row.job.name if row else ""),
        "action": "finished" if is_over else run.status,
        "status": _STATUS.get(run.status, run.status),
        "state": run.status,
        "why": run.why,
        "runId": run.id,
        "runAtMs": run.started_ms or run.due_ms,
        "delivered": run.delivery == "delivered",
        "deliveryStatus": _DELIVERY.get(run.delivery, run.delivery),
    }
    more = {
        "completionStatus": _COMPLETION.get(run.status) if is_over else None,
        "slotMs": run.slot_ms,
        "durationMs": run.ended_ms - run.started_ms if is_over and run.started_ms else None,
        "error": record.error,
        "errorReason": record.reason,
        "summary": record.summary,
        "sessionKey": record.session_key,
        "sessionId": record.session_id,
        "model": record.model.partition("/")[2] or record.model,
        "provider": record.model.partition("/")[0] if "/" in record.model else "",
        "usage": record.usage,
        "cost": record.cost,
        "deliveryError": record.delivery_error,
        "deliverySuppressionReason": "silent" if run.delivery == "silent" else "",
        "receipt": record.receipt,
        "slots": record.slots if run.status == "skipped" else None,
        "retryAtMs": record.retry_ms,
        "nextRunAtMs": row.next_ms if row else None,
    }
    return shown | {name: value for name, value in more.items() if value not in (None, "", {}, 0)}
