"""The heartbeat of an agent: whether it is on, whether it is due, and its message. Pure."""

from __future__ import annotations

import re
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta, tzinfo
from typing import Any, Literal

from msgspec import Struct
from msgspec.structs import replace

from clawkit.config.sections.agents import Agents
from clawkit.config.sections.gateway import ActiveHours, Heartbeat
from clawkit.cron.expression import find_zone, instant_of
from clawkit.cron.jobs import Delivery, Job, Pacing
from clawkit.cron.protocols import FILE
from clawkit.cron.schedule import Every, next_after
from clawkit.cron.store import CronRun
from clawkit.text import one_line, parse_time

EVERY_MS, DAY_MS = 1_800_000, 86_400_000
IDLE_MS = 7 * DAY_MS
"""After this time without a message from a person, there is only one beat a day."""
MAX_TURN_S = 600
MAX_RUNS = 300
"""Default maximum of beats per day, because a model may choose a shorter interval."""
APART_MS, MOST, WINDOW_MS = 30_000, 5, 60_000
"""Flood guard: minimum interval between event turns in a session, and maximum number of turns in a
period."""
PACING = Pacing(60_000, DAY_MS)
STOPPED_BY = ("auth", "billing")
"""Model errors that would affect the next beat as well."""
ROUTES = (None, "", "owner", "last", "none")
PROMPT = (
    "This is a heartbeat: a regular check while no person is waiting. Do what HEARTBEAT.md asks "
    "for, as far as it is due now, and look at your notes. Do not take up old tasks from memory, "
    "and do not ask questions."
)
_END = (
    "[End with one call of heartbeat_respond, with notify true only if the person should know now. "
    "Without that tool, answer with what the person should know, or else exactly NO_REPLY.]"
)
_NOT_CONTENT = r"#{1,6}(\s.*)?|(```|~~~)\S*|[-*_]{3,}|([-*+]|[0-9]+[.)])(\s+\[[ xX]?\])?"
Reason = Literal[
    "off", "paused", "no-route", "empty", "hours", "idle-backoff", "budget", "flood", "busy"
]


class Skip(Struct, frozen=True):
    """The reason for skipping a beat."""

    reason: Reason
    message: str


class BeatFacts(Struct, frozen=True, kw_only=True):
    """The facts that the decision about a beat depends on."""

    settings: Heartbeat
    now_ms: int
    zone: tzinfo = UTC
    is_meant: bool = True
    """Whether it is the default agent, or has its own heartbeat settings."""
    text: str | None = None
    """Text of HEARTBEAT.md; None if there is no file."""
    scratch: str = ""
    has_mail: bool = False
    """Whether messages wait in the main session for the next heartbeat."""
    paused: str = ""
    said_ms: int = 0
    """Time of the last message from a person."""
    last_ms: int = 0
    """Time of the last beat."""
    runs: int = 0
    cost: float = 0.0
    is_busy: bool = False
    is_asked: bool = False
    """Whether this beat was requested, so it need not be due."""

    @property
    def every_ms(self) -> int:
        given = self.settings.every
        return EVERY_MS if given is None else round(parse_time(given) * 1000)

    @property
    def has_content(self) -> bool:
        return self.text is not None and not is_empty(self.text)

    @property
    def max_runs(self) -> int:
        given = self.settings.max_runs_per_day
        return given or max(MAX_RUNS, DAY_MS // (self.every_ms or DAY_MS))


def settings_of(agents: Agents, agent: str) -> Heartbeat:
    return (agents.defaults.heartbeat or Heartbeat()).merged(agents.get(agent).heartbeat)


def zone_of(agents: Agents, settings: Heartbeat) -> tzinfo:
    """The time zone of the active hours and of the daily budget; by default the user's."""
    given = settings.active_hours.timezone
    name = agents.defaults.user_timezone if given in (None, "user") else given
    try:
        return find_zone("" if name in (None, "local") else name)
    except ValueError:
        return find_zone("")


def is_empty(text: str) -> bool:
    """Whether a HEARTBEAT.md has no content: only comments, headings, fences and empty list
    items."""
    lines = re.sub(r"(?s)<!--.*?(-->|\Z)", "", text).splitlines()
    return all(not line.strip() or re.fullmatch(_NOT_CONTENT, line.strip()) for line in lines)


def is_within(hours: ActiveHours, at_ms: int, zone: tzinfo) -> bool:
    """Whether a time is within the active hours; an empty range contains no time."""
    start, end = _minutes(hours.start or "00:00"), _minutes(hours.end or "24:00")
    at = datetime.fromtimestamp(at_ms / 1000, zone)
    now = 60 * at.hour + at.minute
    return start <= now < end if start < end else (now >= start or now < end) and start != end


def _minutes(clock: str) -> int:
    hour, _, minute = clock.partition(":")
    return 60 * int(hour) + int(minute)


def midnight_ms(at_ms: int, zone: tzinfo, days: int = 0) -> int:
    """The start of the day, or of the day that many days later."""
    day = datetime.fromtimestamp(at_ms / 1000, zone).replace(tzinfo=None)
    start = day.replace(hour=0, minute=0, second=0, microsecond=0) + timedelta(days)
    return instant_of(start, zone) * 1000


def why_off(facts: BeatFacts) -> Skip | None:
    """Why heartbeats are off until a setting or file changes."""
    if not facts.is_meant:
        return Skip("off", "only the default agent and those with heartbeat settings have one")
    if not facts.every_ms:
        return Skip("off", "heartbeat.every is 0m")
    if facts.settings.every is None and not facts.has_content:
        return Skip("off", f"{FILE} has no content, and heartbeat.every is not set")
    return Skip("paused", facts.paused) if facts.paused else None


def decide_beat(facts: BeatFacts) -> Skip | None:
    """None if a beat should run now, else the reason for skipping it."""
    settings, is_due = facts.settings, not facts.is_asked
    if (off := why_off(facts)) and (is_due or off.reason == "paused"):
        return off
    if settings.target not in ROUTES:
        there = one_line(settings.target or "", 40)
        said = f"unknown channel {there!r}; set heartbeat.target to owner, last or none"
        return Skip("no-route", said)
    has_more = facts.scratch or settings.prompt or facts.has_mail
    if is_due and facts.text is not None and not facts.has_content and not has_more:
        return Skip("empty", f"{FILE} has no content")
    if is_due and not is_within(settings.active_hours, facts.now_ms, facts.zone):
        return Skip("hours", "it is outside heartbeat.activeHours")
    is_idle = facts.now_ms - facts.said_ms >= IDLE_MS
    if is_due and is_idle and facts.now_ms - facts.last_ms < DAY_MS - facts.every_ms // 2:
        return Skip("idle-backoff", "no person has written for a week, so there is one beat a day")
    if facts.runs >= facts.max_runs or facts.cost >= settings.max_cost_per_day:
        said = f"today's {facts.runs} beats cost ${facts.cost:.2f}; the limits are "
        said += f"{facts.max_runs} (maxRunsPerDay) and ${settings.max_cost_per_day:g}"
        return Skip("budget", f"{said} (maxCostPerDay)")
    if facts.now_ms - facts.last_ms < APART_MS:
        return Skip("flood", f"the last beat was less than {APART_MS // 1000} seconds ago")
    return Skip("busy", "the agent is busy") if facts.is_busy else None


def next_beat(facts: BeatFacts, schedule: Every, next_ms: int | None) -> int | None:
    """The time of the next beat, as far as it depends on time; None if there is none within a
    week."""
    at_ms, until_ms = next_ms, facts.now_ms + IDLE_MS
    while at_ms is not None and at_ms <= until_ms:
        is_today = at_ms < midnight_ms(facts.now_ms, facts.zone, 1)
        spent = (facts.runs, facts.cost) if is_today else (0, 0.0)
        then = replace(facts, now_ms=at_ms, is_busy=False, runs=spent[0], cost=spent[1])
        if (skip := decide_beat(then)) is None:
            return at_ms
        if skip.reason not in ("hours", "idle-backoff", "budget"):
            return None
        at_ms = next_after(schedule, at_ms)
    return None


def event_due_ms(own: Sequence[int], others: Sequence[int], now_ms: int) -> int:
    """The earliest time of an event's turn: `own` are the times of event turns in the same session,
    `others` in all sessions, both in order."""
    after_ms = own[-1] + APART_MS if own else now_ms
    after_all_ms = others[-MOST] + WINDOW_MS if len(others) >= MOST else now_ms
    return max(now_ms, after_ms, after_all_ms)


def timeout_s(facts: BeatFacts) -> float:
    interval_s = facts.every_ms / 1000 or MAX_TURN_S
    return facts.settings.timeout_seconds or min(MAX_TURN_S, interval_s)


def write_message(facts: BeatFacts, summary: str) -> list[str]:
    """The message of a beat to the model: the person's text, then ours."""
    at = datetime.fromtimestamp(facts.now_ms / 1000, facts.zone)
    ours = [f"[The above is {FILE}.]"] if facts.has_content else []
    ours.append(facts.settings.prompt or PROMPT)
    ours.append(f"The time is {at:%A, %Y-%m-%d %H:%M} ({facts.zone}, UTC{at:%z}).")
    if summary:
        ours.append(f"Your summary of the last heartbeat: {summary}")
    if facts.scratch:
        ours.append(f"<notes from your last heartbeat>\n{facts.scratch}\n</notes>")
    said = "\n\n".join((*ours, _END))
    return [facts.text, said] if facts.text and facts.has_content else [said]


def shape_job(job: Job, facts: BeatFacts) -> Job:
    """The job of an agent's heartbeat, according to its settings."""
    is_told = facts.settings.target != "none"
    return replace(
        job,
        enabled=why_off(facts) is None,
        schedule=Every(facts.every_ms or EVERY_MS, job.created_at_ms),
        delivery=Delivery("announce" if is_told else "none"),
        pacing=PACING,
    )


def is_told(run: CronRun) -> bool:
    """Whether a run is a beat whose outcome and delivery are known."""
    return run.ended_ms > 0 and run.delivery not in ("pending", "sending") and not run.session


_STATUS = {"silent": "ok-token", "delivered": "sent", "not-delivered": "failed"}


def show_beat(run: CronRun) -> dict[str, Any]:
    """A finished beat, as clients see it."""
    record = run.record
    is_over = run.status == "ok"
    status = _STATUS.get(run.delivery, "ok-empty") if is_over else run.status
    shown: dict[str, Any] = {
        "ts": run.ended_ms,
        "status": {"error": "failed", "interrupted": "failed"}.get(status, status),
        "reason": record.reason,
        "preview": one_line(record.summary, 200),
        "durationMs": max(0, run.ended_ms - run.started_ms) if run.started_ms else 0,
        "hasMedia": False,
        "message": record.error or record.delivery_error,
    }
    return {name: value for name, value in shown.items() if value != ""}
