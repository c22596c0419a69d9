"""Methods about what the stored sessions used: tokens, cost and latency by day, model and agent."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import suppress
from datetime import UTC, date, datetime, timedelta, tzinfo
from itertools import chain, pairwise
from typing import TYPE_CHECKING, Annotated, Any, Literal
from zoneinfo import ZoneInfo

from msgspec import Meta, Struct, field

from clawkit.content import Assistant, Message, Summary, ToolResult, Usage, User
from clawkit.core.tasks import in_thread
from clawkit.errors import NotFoundError
from clawkit.gateway import wire
from clawkit.gateway.methods.method import Method
from clawkit.gateway.protocol import Closed, NoParams, Short, invalid, now_ms
from clawkit.gateway.scopes import READ
from clawkit.sessions.protocols import Filter, Session

if TYPE_CHECKING:
    from clawkit.gateway.connection import GatewayConnection
    from clawkit.gateway.server import Gateway
    from clawkit.sessions.store import SessionStore

DAYS, MAX_DAYS = 30, 3_660
_RANGES = {"7d": 7, "30d": 30, "90d": 90, "1y": 365, "all": MAX_DAYS}
_AGGREGATES = {
    "byModel": ("provider", "model"),
    "byProvider": ("provider",),
    "byAgent": ("agentId",),
    "modelDaily": ("date", "provider", "model"),
    "agentDaily": ("date", "agentId"),
}
"""What answers are grouped by."""
_AT_ONCE = 100
"""Messages that are read together: they can be long."""
_ONE_AT_A_TIME = threading.Lock()
"""Reading all sessions takes long, so no one can have it done several times at once."""


class Period(Closed, frozen=True):
    """Days, and the agent; without one, the default agent."""

    days: Annotated[int, Meta(ge=1, le=MAX_DAYS)] | None = None
    start_date: date | None = None
    end_date: date | None = None
    mode: Literal["utc", "gateway", "specific"] = "utc"
    time_zone: Short | None = None
    agent_id: Short | None = None
    agent_scope: Literal["all"] | None = None


class SessionsUsage(Period, frozen=True):
    range: Literal["7d", "30d", "90d", "1y", "all"] | None = None
    key: Short | None = None
    limit: Annotated[int, Meta(ge=1, le=1_000)] = 50


class Span(Struct, frozen=True):
    """The days that were asked for, in one time zone."""

    zone: tzinfo | None
    """None for that of the gateway."""
    first: date
    last: date

    @property
    def start_ms(self) -> int:
        return self._midnight_ms(self.first)

    @property
    def end_ms(self) -> int:
        return self._midnight_ms(self.last + timedelta(days=1))

    def _midnight_ms(self, day: date) -> int:
        at = datetime(day.year, day.month, day.day, tzinfo=self.zone)
        return round(at.timestamp() * 1000)

    def day(self, at_ms: int) -> str:
        return datetime.fromtimestamp(at_ms / 1000, self.zone).date().isoformat()


class UsedByAnswer(Struct, frozen=True):
    """What one answer of a model took."""

    session: str
    agentId: str  # noqa: N815  # fields are labels in answers
    provider: str
    model: str
    date: str
    at_ms: int
    usage: Usage
    latency_ms: int | None


class UsageTotals(Struct):
    """What some answers took together."""

    usage: Usage = Usage()
    unpriced: int = 0
    times_ms: list[int] = field(default_factory=list)
    latencies: list[int] = field(default_factory=list)

    @classmethod
    def of(cls, answers: list[UsedByAnswer]) -> UsageTotals:
        return next((used for _, used in grouped(answers)), cls())

    def add(self, answer: UsedByAnswer) -> None:
        self.usage = self.usage.plus(answer.usage)
        self.times_ms.append(answer.at_ms)
        self.unpriced += answer.usage.context > 0 and not answer.usage.cost
        if answer.latency_ms is not None:
            self.latencies.append(answer.latency_ms)

    @property
    def count(self) -> int:
        return len(self.times_ms)

    def totals(self) -> dict[str, Any]:
        used = self.usage
        tokens = {"input": used.input, "output": used.output, "totalTokens": used.context}
        tokens |= {"cacheRead": used.cache_read, "cacheWrite": used.cache_write}
        return {**tokens, "totalCost": used.cost, "missingCostEntries": self.unpriced}

    def latency(self) -> dict[str, int] | None:
        found = sorted(self.latencies)
        if not found:
            return None
        ends = {"minMs": found[0], "maxMs": found[-1], "p95Ms": found[(len(found) - 1) * 95 // 100]}
        return {"count": len(found), "avgMs": round(sum(found) / len(found)), **ends}


def span_of(params: Period, now: datetime) -> Span:
    """The days that parameters name, of which `now` is the last unless they say so. Raises
    `GatewayError`."""
    if (params.mode == "specific") != (params.time_zone is not None):
        raise invalid('timeZone goes with mode "specific", and is needed there')
    zone: tzinfo | None = UTC if params.mode == "utc" else None
    if params.time_zone is not None:
        try:
            zone = ZoneInfo(params.time_zone)
        except (KeyError, ValueError, OSError):  # unknown, not a name, not a file
            raise invalid(f"unknown time zone '{params.time_zone[:60]}'") from None
    range_ = params.range if isinstance(params, SessionsUsage) else None
    if sum(each is not None for each in (params.days, params.start_date, range_)) > 1:
        raise invalid("give one of days, range and startDate")
    last = params.end_date or now.astimezone(zone).date()
    days = params.days or (_RANGES[range_] if range_ else DAYS)
    try:
        first = params.start_date or last - timedelta(days=days - 1)
        is_good = 0 <= (last - first).days < MAX_DAYS and first.year > 1
    except OverflowError:
        is_good = False
    if not is_good or last.year > 9_000:
        raise invalid(f"the dates are not a period of 1 to {MAX_DAYS} days")
    return Span(zone, first, last)


def answers_of(store: SessionStore, session: Session, span: Span) -> Iterator[UsedByAnswer]:
    """The answers of a session in a period, the last one first."""
    # What a session was given when it was made is counted where it was said.
    start_ms = max(span.start_ms, session.created_ms)
    for said, before in pairwise(chain(_newest_first(store, session), (None,))):
        if said is None or 0 < said.at_ms < start_ms:
            return
        if not isinstance(said, Assistant | Summary) or not start_ms <= said.at_ms < span.end_ms:
            continue
        latency = None
        if isinstance(said, Assistant) and isinstance(before, User | ToolResult) and before.at_ms:
            latency = max(0, said.at_ms - before.at_ms)
        # A summary is written by the model of the session.
        model = said.model if isinstance(said, Assistant) else session.model
        provider, name = wire.split_model(model)
        day = span.day(said.at_ms)
        about = (session.key, session.agent, provider, name, day, said.at_ms)
        yield UsedByAnswer(*about, said.usage, latency)


def _newest_first(store: SessionStore, session: Session) -> Iterator[Message | None]:
    before: int | None = None
    while some := store.history(session.id, _AT_ONCE, before):
        yield from (each.message for each in reversed(some))
        before = some[0].number


def grouped(answers: list[UsedByAnswer], *names: str) -> list[tuple[dict[str, str], UsageTotals]]:
    """Totals by the values of some fields, in their order."""
    found: dict[tuple[str, ...], UsageTotals] = {}
    for each in answers:
        found.setdefault(tuple(getattr(each, name) for name in names), UsageTotals()).add(each)
    return [(dict(zip(names, values, strict=True)), found[values]) for values in sorted(found)]


async def _collect(
    caller: GatewayConnection, params: Period, key: str = ""
) -> tuple[Span, list[Session], list[UsedByAnswer]]:
    """The period, its sessions, and all answers in them."""
    gateway = caller.gateway
    span = span_of(params, datetime.now(UTC))
    if params.agent_scope and (params.agent_id or key):
        raise invalid("agentScope=all cannot be combined with agentId or key")
    agent = "" if params.agent_scope or key else gateway.live.check_agent(params.agent_id)
    wanted = Filter(agent=agent, since_ms=span.start_ms, archived=None)
    return span, *await in_thread(_read_all, gateway, span, wanted, key)


def _read_all(
    gateway: Gateway, span: Span, wanted: Filter, key: str
) -> tuple[list[Session], list[UsedByAnswer]]:
    answers: list[UsedByAnswer] = []
    with _ONE_AT_A_TIME:
        sessions = [each for each in gateway.shelf.list(wanted, -1) if key in ("", each.key)]
        for session in sessions:
            with suppress(NotFoundError):  # deleted meanwhile
                answers += answers_of(gateway.store, session, span)
    return sessions, answers


async def _cost(caller: GatewayConnection, params: Period, _id: str) -> Any:
    span, _, answers = await _collect(caller, params)
    daily = [{**day, **used.totals()} for day, used in grouped(answers, "date")]
    days, totals = (span.last - span.first).days + 1, UsageTotals.of(answers).totals()
    return {"updatedAt": now_ms(), "days": days, "daily": daily, "totals": totals}


async def _sessions(caller: GatewayConnection, params: SessionsUsage, _id: str) -> Any:
    key = caller.gateway.live.resolve_key(params.key, params.agent_id) if params.key else ""
    span, sessions, answers = await _collect(caller, params, key)
    total = UsageTotals.of(answers)
    aggregates: dict[str, Any] = {
        name: [
            {**labels, "count": used.count, "totals": used.totals(), "latency": used.latency()}
            for labels, used in grouped(answers, *fields)
        ]
        for name, fields in _AGGREGATES.items()
    }
    days = grouped(answers, "date")
    own = {labels["session"]: used for labels, used in grouped(answers, "session")}
    aggregates["daily"] = [{**day, "count": used.count, **used.totals()} for day, used in days]
    aggregates["dailyLatency"] = [{**day, **(used.latency() or {})} for day, used in days]
    return {
        "updatedAt": now_ms(),
        "startDate": span.first.isoformat(),
        "endDate": span.last.isoformat(),
        "sessions": [_row(each, own.get(each.key)) for each in sessions[: params.limit]],
        "totals": total.totals(),
        "aggregates": {**aggregates, "sessionCount": len(sessions), "latency": total.latency()},
    }


def _row(session: Session, used: UsageTotals | None) -> dict[str, Any]:
    provider, model = wire.split_model(session.model)
    row: dict[str, Any] = {"key": session.key, "sessionId": session.id, "agentId": session.agent}
    row |= {"updatedAt": session.updated_ms, "modelProvider": provider, "model": model}
    if used is None:
        return row | {"usage": None}
    times = {"firstActivity": min(used.times_ms), "lastActivity": max(used.times_ms)}
    shown = {**used.totals(), "count": used.count, "latency": used.latency(), **times}
    return row | {"usage": shown}


async def _status(_caller: GatewayConnection, _params: NoParams, _id: str) -> Any:
    """No provider is asked for its quotas, so there are none to report."""
    return {"updatedAt": now_ms(), "providers": []}


METHODS = (
    Method("usage.status", READ, NoParams, _status),
    Method("usage.cost", READ, Period, _cost),
    Method("sessions.usage", READ, SessionsUsage, _sessions),
)
