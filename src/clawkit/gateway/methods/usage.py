"""Methods about what the stored sessions used: tokens, cost and latency by day, model and agent."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from datetime import UTC, date, datetime, timedelta, tzinfo
from itertools import chain, pairwise
from operator import itemgetter
from typing import TYPE_CHECKING, Annotated, Any, Literal
from zoneinfo import ZoneInfo

from msgspec import Meta, Struct, field

from clawkit.content import Assistant, Message, Summary, ToolResult, Usage, User
from clawkit.core.tasks import in_thread, unbroken
from clawkit.errors import NotFoundError
from clawkit.gateway import wire
from clawkit.gateway.methods.method import Caller, Gateway, Method, Run
from clawkit.gateway.protocol import Closed, NoParams, Short, invalid, now_ms
from clawkit.gateway.scopes import READ
from clawkit.sessions.protocols import Filter, Session

if TYPE_CHECKING:
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
Labels = tuple[str, ...]
_LABELS = ("session", "agentId", "provider", "model", "date")
_AT_ONCE = 100
"""Messages that are read together: they can be long."""


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


class UsageTotals(Struct):
    """What some answers took together."""

    usage: Usage = Usage()
    unpriced: int = 0
    times_ms: list[int] = field(default_factory=list)
    latencies: list[int] = field(default_factory=list)

    def add(self, other: UsageTotals) -> None:
        self.usage = self.usage.plus(other.usage)
        self.unpriced += other.unpriced
        self.times_ms += other.times_ms
        self.latencies += other.latencies

    def totals(self) -> dict[str, Any]:
        used = self.usage
        tokens = {"input": used.input, "output": used.output, "totalTokens": used.context}
        tokens |= {"cacheRead": used.cache_read, "cacheWrite": used.cache_write}
        return {**tokens, "totalCost": round(used.cost, 6), "missingCostEntries": self.unpriced}

    def latency(self) -> dict[str, int] | None:
        found = sorted(self.latencies)
        if not found:
            return None
        ends = {"minMs": found[0], "maxMs": found[-1], "p95Ms": found[(len(found) - 1) * 95 // 100]}
        return {"count": len(found), "avgMs": round(sum(found) / len(found)), **ends}

    def to_json(self) -> dict[str, Any]:
        return {"count": len(self.times_ms), "totals": self.totals(), "latency": self.latency()}


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


def answers_of(
    store: SessionStore, session: Session, span: Span
) -> Iterator[tuple[Labels, UsageTotals]]:
    """What each answer of a session in a period took, the last one first."""
    # What a session was given when it was made is counted where it was said.
    start_ms = max(span.start_ms, session.created_ms)
    for said, before in pairwise(chain(_newest_first(store, session), (None,))):
        if said is None or 0 < said.at_ms < start_ms:
            return
        if not isinstance(said, Assistant | Summary) or not start_ms <= said.at_ms < span.end_ms:
            continue
        latencies = []
        if isinstance(said, Assistant) and isinstance(before, User | ToolResult) and before.at_ms:
            latencies = [max(0, said.at_ms - before.at_ms)]
        # A summary is written by the model of the session.
        model = said.model if isinstance(said, Assistant) else session.model
        labels = (session.key, session.agent, *wire.split_model(model), span.day(said.at_ms))
        unpriced = said.usage.context > 0 and not said.usage.cost
        yield labels, UsageTotals(said.usage, int(unpriced), [said.at_ms], latencies)


def _newest_first(store: SessionStore, session: Session) -> Iterator[Message | None]:
    before: int | None = None
    while some := store.history(session.id, _AT_ONCE, before):
        yield from (each.message for each in reversed(some))
        before = some[0].number


def grouped(
    used: Iterable[tuple[Labels, UsageTotals]], *names: str
) -> list[tuple[Labels, UsageTotals]]:
    """Totals by some of the labels, in their order."""
    places = [_LABELS.index(name) for name in names]
    found: dict[Labels, UsageTotals] = {}
    for labels, each in used:
        found.setdefault(tuple(labels[at] for at in places), UsageTotals()).add(each)
    return sorted(found.items(), key=itemgetter(0))


class UsageReport(Struct, frozen=True):
    """The sessions of a period, and what they used by all labels."""

    span: Span
    sessions: list[Session]
    used: list[tuple[Labels, UsageTotals]]

    @classmethod
    def read(cls, gateway: Gateway, params: Period, key: str = "") -> UsageReport:
        """Reads all messages, so it must run in a thread. Raises `GatewayError`."""
        span = span_of(params, datetime.now(UTC))
        if params.agent_scope and (params.agent_id or key):
            raise invalid("agentScope=all cannot be combined with agentId or key")
        agent = "" if params.agent_scope or key else gateway.live.check_agent(params.agent_id)
        wanted = Filter(agent=agent, since_ms=span.start_ms, archived=None)
        used: list[tuple[Labels, UsageTotals]] = []
        sessions = [each for each in gateway.shelf.list(wanted, -1) if key in ("", each.key)]
        for session in sessions:
            with suppress(NotFoundError):  # deleted meanwhile
                used += grouped(answers_of(gateway.store, session, span), *_LABELS)
        return cls(span, sessions, used)

    def total(self) -> UsageTotals:
        return next((each for _, each in grouped(self.used)), UsageTotals())

    def by(self, *names: str) -> list[tuple[dict[str, str], UsageTotals]]:
        found = grouped(self.used, *names)
        return [(dict(zip(names, labels, strict=True)), each) for labels, each in found]


def _cost(gateway: Gateway, params: Period) -> dict[str, Any]:
    report = UsageReport.read(gateway, params)
    daily = [{**day, **each.totals()} for day, each in report.by("date")]
    days, totals = (report.span.last - report.span.first).days + 1, report.total().totals()
    return {"updatedAt": now_ms(), "days": days, "daily": daily, "totals": totals}


def _sessions(gateway: Gateway, params: SessionsUsage) -> dict[str, Any]:
    key = gateway.live.resolve_key(params.key, params.agent_id) if params.key else ""
    report = UsageReport.read(gateway, params, key)
    total, days = report.total(), report.by("date")
    own = {labels["session"]: each for labels, each in report.by("session")}
    aggregates: dict[str, Any] = {
        name: [{**labels, **each.to_json()} for labels, each in report.by(*fields)]
        for name, fields in _AGGREGATES.items()
    }
    aggregates["daily"] = [{**day, **each.totals()} for day, each in days]
    aggregates["dailyLatency"] = [
        {**day, **found} for day, each in days if (found := each.latency())
    ]
    aggregates |= {"sessionCount": len(report.sessions), "latency": total.latency()}
    return {
        "updatedAt": now_ms(),
        "startDate": report.span.first.isoformat(),
        "endDate": report.span.last.isoformat(),
        "sessions": [_row(each, own.get(each.key)) for each in report.sessions[: params.limit]],
        "totals": total.totals(),
        "aggregates": aggregates,
    }


def _row(session: Session, used: UsageTotals | None) -> dict[str, Any]:
    provider, model = wire.split_model(session.model)
    row: dict[str, Any] = {"key": session.key, "sessionId": session.id, "agentId": session.agent}
    row |= {"updatedAt": session.updated_ms, "modelProvider": provider, "model": model}
    if used is None:
        return row | {"usage": None}
    times = {"firstActivity": min(used.times_ms), "lastActivity": max(used.times_ms)}
    return row | {"usage": {**used.totals(), "latency": used.latency(), **times}}


def _in_thread(report: Callable[[Gateway, Any], dict[str, Any]]) -> Run:
    async def run(caller: Caller, params: Any, _id: str) -> Any:
        # Its thread reads on when a client leaves, and then others still wait for it.
        async with caller.gateway.reading_usage:
            return await unbroken(in_thread(report, caller.gateway, params))

    return run


async def _status(_caller: Caller, _params: NoParams, _id: str) -> Any:
    """No provider is asked for its quotas, so there are none to report."""
    return {"updatedAt": now_ms(), "providers": []}


METHODS = (
    Method("usage.status", READ, NoParams, _status),
    Method("usage.cost", READ, Period, _in_thread(_cost)),
    Method("sessions.usage", READ, SessionsUsage, _in_thread(_sessions)),
)
