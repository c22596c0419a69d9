"""Scheduled jobs and their runs in words, for the command line and the chat."""

from __future__ import annotations

import re
import shlex
import time
from collections.abc import Iterator, Mapping
from contextlib import suppress
from datetime import datetime
from typing import TYPE_CHECKING, Any

from clawkit.cron.expression import find_zone
from clawkit.cron.phrases import describe
from clawkit.cron.schedule import (
    At,
    CronExpr,
    Schedule,
    next_after,
    read_schedule,
    read_time,
    stagger_of,
)
from clawkit.cron.service import NOTHING_RUNS
from clawkit.errors import ToolInputError
from clawkit.session_cron import open_cron
from clawkit.terminal_text import truncate
from clawkit.text import human_time, one_line
from clawkit.ui.paint import PaintedRow

if TYPE_CHECKING:
    from clawkit.ui.session import ChatSession

TIMES, MAX_LINES = 5, 6
_LISTED, _RUNS = 15, 3
HEAD = ("ID", "NAME", "AGENT", "NEXT", "LAST", "FAILED", "SCHEDULE")
Shown = Mapping[str, Any]
"""A job or a run as `clawkit.cron.service` shows it."""
_WHY = {"schedule": "", "manual": "by hand", "event": "by an event"}
_REACHED = {
    "delivered": "delivered",
    "not-delivered": "not delivered",
    "unknown": "delivery unknown",
}


def now_ms() -> int:
    return time.time_ns() // 1_000_000


def schedule_of(job: Shown) -> Schedule:
    """Raises `ToolInputError` for a schedule that this machine cannot read, such as an unknown time
    zone."""
    raw = job["schedule"]
    if raw["kind"] == "at":  # it may be in the past, an error only for a new job
        return At(read_time(raw["at"], find_zone("UTC"), 0))
    return read_schedule(raw, now_ms())


def tell_schedule(job: Shown) -> str:
    with suppress(ToolInputError):
        return describe(schedule_of(job))
    return str(job["schedule"])


def tell_time(at_ms: int, schedule: Schedule | None = None) -> str:
    """A time in the zone of a schedule, else in the host's."""
    zone = find_zone(schedule.tz if isinstance(schedule, CronExpr) else "")
    at = datetime.fromtimestamp(at_ms / 1_000, zone)
    return at.strftime("%a %Y-%m-%d %H:%M:%S %Z").replace(":00 ", " ")


def _short_time(at_ms: int) -> str:
    return tell_time(at_ms)[4:].rpartition(" ")[0]


def next_times(schedule: Schedule, count: int, job: Shown | None = None) -> list[int]:
    """The next times. After failures, the first one of a job can be later than its slot."""
    shown = job or {}
    times = [shown["nextRunAtMs"]] if "nextRunAtMs" in shown else []
    while len(times) < count:
        found = next_after(schedule, times[-1] if times else now_ms(), shown.get("id", ""))
        if found is None:
            break
        times.append(found)
    return times


def _lines(count: int, more: str = "") -> str:
    return f"{count} {more}line{'s' * (count != 1)}"


def doing(job: Shown) -> str:
    payload, agent = job["payload"], job.get("agentId") or "the default agent"
    where = {"main": "the main session", "isolated": "a new session"}
    target = where.get(job["sessionTarget"], job["sessionTarget"].removeprefix("session:"))
    match payload["kind"]:
        case "agentTurn":
            model = f" with {payload['model']}" if payload.get("model") else ""
            return f'{agent} answers "{one_line(payload["message"], 200)}" in {target}{model}'
        case "systemEvent":
            return f'{agent} gets "{one_line(payload["text"], 200)}" in {target}'
        case "command":
            return f"{agent} runs `{one_line(shlex.join(payload['argv']), 200)}`"
        case "script":
            return f"{agent} runs a script of {_lines(len(payload['script'].splitlines()))}"
    return f"the heartbeat of {agent}"


def _delivery(job: Shown) -> str:
    delivery = job["delivery"]
    if delivery["mode"] == "webhook":
        return f"sent to {delivery['to']}"
    if delivery["mode"] == "announce":
        return f"reported in {delivery.get('to') or job.get('sessionKey') or 'the main session'}"
    is_said = job["payload"]["kind"] in ("agentTurn", "systemEvent")
    is_seen = is_said and job["sessionTarget"] != "isolated"
    return "in that session" if is_seen else "kept for `clawkit cron runs`"


def explain_job(job: Shown) -> Iterator[str]:
    """When a job runs, what it does, and where the result goes."""
    yield f"when:    {tell_schedule(job)}"
    with suppress(ToolInputError):
        schedule = schedule_of(job)
        for each in next_times(schedule, TIMES, job) if job["enabled"] else ():
            yield f"         {tell_time(each, schedule)}"
        if delay_ms := stagger_of(schedule, job.get("id", "")):
            late = human_time(delay_ms // 1_000)
            yield f"         delayed by {late}, so that not all jobs start at once; see --exact"
    yield f"what:    {doing(job)}"
    if (tools := job["payload"].get("toolsAllow")) is not None:
        yield f"tools:   {one_line(', '.join(tools), 200) or 'none'}"
    yield f"result:  {_delivery(job)}"
    yield from (f"granted: `{one_line(each, 200)}`" for each in job.get("grants", ()))


def job_cells(job: Shown) -> tuple[str, ...]:
    """A row below `HEAD`."""
    state, next_ms, last = job["state"], job.get("nextRunAtMs"), ""
    if "lastRunAtMs" in state:
        ago = human_time(max(1, round((now_ms() - state["lastRunAtMs"]) / 1_000)))
        last = f"{state['lastRunStatus']} {ago.partition(' ')[0]} ago"
    is_waiting = job["schedule"]["kind"] in ("on-exit", "stream")
    coming = _short_time(next_ms) if next_ms else "by event" if is_waiting else "-"
    if not job["enabled"]:
        coming = ": ".join(filter(None, ("disabled", state.get("autoDisabled", ""))))
    return (
        job["id"][:8],
        truncate(one_line(job["name"], 80), 32),
        job.get("agentId", ""),
        truncate(coming, 40),
        last,
        str(state.get("consecutiveErrors", "")),
        re.sub("(every .+) from [^ ]+$", r"\1", tell_schedule(job)),
    )


def _facts(run: Shown) -> Iterator[str]:
    yield _WHY.get(str(run["why"]), str(run["why"]))
    if slots := run.get("slots"):
        times = "1 time" if slots == 1 else f"{slots} times"
        yield f"{times}, {run.get('errorReason') or 'missed'}"
    if "durationMs" in run:
        yield human_time(run["durationMs"] / 1_000)
    yield run.get("model", "")
    if tokens := run.get("usage", {}).get("total_tokens"):
        yield f"{tokens:,} tokens"
    if cost := run.get("cost"):
        yield f"${cost:.2f}" if cost >= 0.005 else "under $0.01"
    if run.get("deliverySuppressionReason") == "silent":
        yield "nothing to report"
    elif run["action"] == "finished":
        yield _REACHED.get(run["deliveryStatus"], "")


def explain_run(run: Shown, *, is_latest: bool, most: int | None = MAX_LINES) -> Iterator[str]:
    """What ran and why, its cost and answer, and when it is retried. `most` lines of the answer;
    None for all."""
    name = one_line(run["jobName"], 60) or run["jobId"][:8]
    facts = " · ".join(filter(None, _facts(run)))
    yield f"{_short_time(run['runAtMs'])}  {run['state']:<8}  {name}  {facts}".rstrip()
    lines = str(run.get("error") or run.get("summary", "")).strip().splitlines()
    for line in lines[:most]:
        yield f"  {line if most is None else truncate(line, 300)}".rstrip()
    if most is not None and len(lines) > most:
        yield f"  … {_lines(len(lines) - most, 'more ')}: clawkit cron runs --full"
    if problem := run.get("deliveryError"):
        yield f"  not delivered: {problem}"
    if retry_ms := run.get("retryAtMs"):
        yield f"  retried {tell_time(retry_ms)}"
    elif is_latest and run["status"] == "error" and "nextRunAtMs" in run:
        yield f"  next try {tell_time(run['nextRunAtMs'])}"


def show_in_chat(chat: ChatSession, which: str) -> None:
    """The jobs and their latest runs, or one job and its runs. Raises `ToolError`."""
    service = open_cron(chat.agent.kit.loaded)
    try:
        listed = [service.get(which)] if which else service.list(limit=_LISTED)["jobs"]
        for job in listed:
            id_, name, agent, coming, last, _, schedule = job_cells(job)
            facts = " · ".join(filter(None, (schedule, f"next {coming}", last, agent)))
            chat.say(f"{id_} {name}  {facts}")
        for run in service.runs(which, limit=_RUNS)["entries"]:
            rows = explain_run(run, is_latest=False, most=MAX_LINES if which else 1)
            chat.rows([PaintedRow(row, "dim", 2) for row in rows])
        if not listed:
            chat.say("There are no jobs. Ask the agent for one, or see: clawkit cron add --help")
        elif not service.store.owners():
            chat.say(NOTHING_RUNS, "warning")
    finally:
        service.store.close()
