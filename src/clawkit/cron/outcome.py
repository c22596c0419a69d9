"""The consequences of a run: next time, retries, reports. Pure."""

from __future__ import annotations

import re
from typing import Literal

from msgspec import UNSET, Struct
from msgspec.structs import replace

from clawkit.config.sections.gateway import Cron
from clawkit.cron.jobs import HeartbeatPayload, Job, JobAlert, JobState
from clawkit.cron.schedule import At, OnExit, next_after
from clawkit.cron.store import After, CronRun, CronRunRecord, Ending, JobRow, new_run
from clawkit.text import one_line

BACKOFF_MS = (30_000, 60_000, 300_000, 900_000, 3_600_000)
MAX_ERRORS, MAX_SCHEDULE_ERRORS = 10, 3
"""Consecutive failures after which a job is disabled."""
TRANSIENT = frozenset(("network", "cut", "overloaded", "rate_limit", "server", "timeout", "busy"))
"""Kinds of errors that may be temporary: a one-time job is retried."""
ACK_CHARS = 300
_SILENT = r"NO_REPLY|HEARTBEAT_OK"
_WRAPPED = rf"[\s*_`\"'.]*(?:{_SILENT})[\s*_`\"'.!]*"


class Outcome(Struct, frozen=True):
    """The outcome of a run's work."""

    status: Literal["ok", "error", "skipped"]
    text: str = ""
    error: str = ""
    reason: str = ""
    model: str = ""
    usage: dict[str, int] = {}
    cost: float = 0.0
    session_key: str = ""
    session_id: str = ""
    is_heard: bool = False
    """Whether people already see the answer, such as in their own session."""
    is_interrupted: bool = False
    """Whether the process ended before the work was done."""
    is_silent: bool = False
    """Whether there is nothing to report despite a text."""


def without_token(text: str) -> str:
    """The answer of a model without its silence token; empty if it has nothing to report."""
    said = text.strip()
    if re.fullmatch(_WRAPPED, said):
        return ""
    rest = re.sub(rf"^{_WRAPPED}(?=\s|$)|(?<=\s){_WRAPPED}$", "", said).strip()
    return "" if rest != said and len(rest) <= ACK_CHARS else rest


def conclude(
    job: Job | None, row: JobRow | None, run: CronRun, outcome: Outcome, settings: Cron, now_ms: int
) -> Ending:
    """All consequences of a finished run, for its current job (if it still exists) and for people.
    `job` is the definition it ran with."""
    job = row.job if row else job
    over = ended(run, outcome, now_ms, delivers=job is not None and job.delivery.mode != "none")
    is_completion = job is not None and job.delivery.completion_destination is not None
    over = replace(over, unsettled=over.delivery == "pending" or is_completion)
    if row is None:
        return Ending(over)
    job, state, planned_ms, next_ms = after_run(row, run, outcome, now_ms)
    told, state = report(row.job, row.state, state, outcome, settings, now_ms)
    again_ms, retry = None, None
    if (run.why != "manual" or not _is_one_time(job)) and not state.auto_disabled:
        again_ms = retry_ms(job, outcome, state.consecutive_errors, now_ms)
    # A job that waits for an exit is disabled when the exit has happened.
    if again_ms is not None and (job.enabled or isinstance(job.schedule, OnExit)):
        retry = new_run(row, "retry", again_ms, run.text)
    record = replace(over.record, report=told, retry_ms=retry.due_ms if retry else 0)
    over = replace(over, record=record, unsettled=over.unsettled or bool(told))
    if _is_done(job, over) and not over.unsettled:
        return Ending(over)
    return Ending(over, (job, with_delivery(state, over), planned_ms, next_ms), retry)


def settled(row: JobRow, run: CronRun) -> After | None:
    """The job after a run is settled; None if it is removed."""
    job, state = row.job, row.state
    is_lost = run.delivery == "not-delivered" and not job.delivery.best_effort
    if _is_done(job, run) and not is_lost:
        return None
    if state.last_run_at_ms == run.started_ms:  # else another run has happened since
        state = with_delivery(state, run)
        if is_lost:
            error = f"delivery failed: {run.record.delivery_error}"
            state = replace(state, last_run_status="error", last_error=error)
    return job, state, row.planned_ms, row.next_ms


def _is_done(job: Job, run: CronRun) -> bool:
    """Whether a job is removed after a run, unless someone has enabled it again."""
    is_over = run.status == "ok" and run.why != "manual"
    return is_over and job.delete_after_run and not job.enabled


def _is_one_time(job: Job) -> bool:
    return isinstance(job.schedule, At | OnExit)


def after_run(row: JobRow, run: CronRun, outcome: Outcome, now_ms: int) -> After:
    """The job after a run, its state, and its next time."""
    job, before = row.job, row.state
    errors = before.consecutive_errors + 1 if outcome.status == "error" else 0
    skipped = before.consecutive_skipped + 1 if outcome.status == "skipped" else 0
    # Ignore a time chosen while the clock was ahead.
    latest_ms = now_ms + (job.pacing.max if job.pacing else 0)
    state = replace(
        before,
        running_at_ms=UNSET,
        last_run_at_ms=run.started_ms,
        last_run_status=outcome.status,
        last_error=outcome.error,
        last_error_reason=outcome.reason if outcome.status != "ok" else "",
        last_duration_ms=max(0, now_ms - run.started_ms),
        consecutive_errors=before.consecutive_errors if outcome.status == "skipped" else errors,
        consecutive_skipped=skipped,
        next_check_ms=before.next_check_ms if now_ms < before.next_check_ms <= latest_ms else 0,
    )
    if outcome.status == "ok" and job.delete_after_run and run.why != "manual":
        return replace(job, enabled=False), state, row.planned_ms, None
    if errors >= MAX_ERRORS and job.enabled and not job.declaration_key:
        why = f"{errors} failures in a row"
        return replace(job, enabled=False), replace(state, auto_disabled=why), row.planned_ms, None
    if _is_one_time(job) and run.why != "manual":
        is_over = outcome.status != "error" or retry_ms(job, outcome, errors, now_ms) is None
        return replace(job, enabled=job.enabled and not is_over), state, row.planned_ms, None
    next_ms = row.next_ms
    if next_ms is not None and errors:
        next_ms = max(next_ms, now_ms + _backoff_ms(errors))
    if next_ms is not None and state.next_check_ms and outcome.status == "ok":
        next_ms = state.next_check_ms
    return job, state, row.planned_ms, next_ms


def _backoff_ms(errors: int) -> int:
    return BACKOFF_MS[min(errors, len(BACKOFF_MS)) - 1]


def retry_ms(job: Job, outcome: Outcome, errors: int, now_ms: int) -> int | None:
    """The retry time of a one-time job or an interrupted run; None if there is no retry."""
    if outcome.is_interrupted:
        return now_ms if job.retry_interrupted else None
    is_soon_over = outcome.status == "error" and outcome.reason in TRANSIENT
    if not _is_one_time(job) or not is_soon_over or errors > len(BACKOFF_MS):
        return None
    return now_ms + _backoff_ms(errors)


def report(
    job: Job, before: JobState, state: JobState, outcome: Outcome, settings: Cron, now_ms: int
) -> tuple[str, JobState]:
    """The report about a failure or recovery, empty for none, and the updated state. Reported are
    the first failure, each new cause, continued failures (`failureAlert`) and recovery."""
    if job.failure_alert is False or isinstance(job.payload, HeartbeatPayload):
        return "", state
    if outcome.status == "ok":
        said = f"The job {job.title!r} works again." if before.reported_error else ""
        return said, replace(state, reported_error="", last_alert_at_ms=0)
    alert, general = job.failure_alert or JobAlert(), settings.failure_alert
    counts_skipped = (
        general.include_skipped if alert.include_skipped is None else alert.include_skipped
    )
    if outcome.status == "skipped" and not counts_skipped:
        return "", state
    cause = _cause(outcome)
    failures = state.consecutive_errors + (state.consecutive_skipped if counts_skipped else 0)
    after = general.after if alert.after is None else alert.after
    cooldown = general.cooldown_ms if alert.cooldown_ms is None else alert.cooldown_ms
    is_alert = (general.enabled or alert != JobAlert()) and failures >= after
    is_due = is_alert and now_ms - before.last_alert_at_ms >= cooldown
    if cause == before.reported_error and not is_due and not state.auto_disabled:
        return "", state
    times = f", {failures} times in a row" if failures > 1 else ""
    said = f"The job {job.title!r} failed{times}: {one_line(outcome.error, 500)}"
    if state.auto_disabled:
        said += f"\nIt is now disabled. To enable it again: clawkit cron enable {job.id}"
    return said, replace(state, reported_error=cause, last_alert_at_ms=now_ms)


def _cause(outcome: Outcome) -> str:
    """Equal for failures of the same kind: ignores numbers and ids."""
    plain = re.sub(r"[0-9a-f-]{8,}|\d+", "#", one_line(outcome.error, 300))
    return f"{outcome.reason}: {plain}" if outcome.reason else plain or "unknown"


def ended(run: CronRun, outcome: Outcome, now_ms: int, *, delivers: bool) -> CronRun:
    """The run record after its work."""
    said = without_token(outcome.text)
    record = CronRunRecord(
        job_name=run.record.job_name,
        error=outcome.error,
        reason=outcome.reason,
        summary=said or outcome.text,
        model=outcome.model,
        usage=outcome.usage,
        cost=outcome.cost,
        session_key=outcome.session_key,
        session_id=outcome.session_id,
    )
    delivery = "not-requested"
    if outcome.status == "ok" and (outcome.is_silent or not said):
        delivery = "silent"
    elif outcome.status == "ok" and outcome.is_heard:
        delivery = "delivered"
    elif delivers and outcome.status == "ok":
        delivery = "pending"
    status = "interrupted" if outcome.is_interrupted else outcome.status
    return replace(run, status=status, ended_ms=now_ms, delivery=delivery, record=record)


def with_delivery(state: JobState, run: CronRun) -> JobState:
    """The state of a job after a delivery, or after the decision against one."""
    is_silent = run.delivery == "silent"
    return replace(
        state,
        last_delivered=run.delivery == "delivered",
        last_delivery_status="not-requested" if is_silent else run.delivery,
        last_delivery_error=run.record.delivery_error,
        delivery_suppression_reason="silent" if is_silent else "",
    )


def next_slot(job: Job, planned_ms: int) -> int | None:
    """The slot after a planned one; None for a disabled job."""
    return next_after(job.schedule, planned_ms, job.id) if job.enabled else None
