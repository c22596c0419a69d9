"""Methods about the usage of stored sessions: tokens, cost and latency by day, model and agent."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, date, datetime, timedelta, tzinfo
from typing import Annotated, Any, Literal
from zoneinfo import ZoneInfo

from msgspec import Meta

from clawkit.core.tasks import in_thread, unbroken
from clawkit.gateway import formats
from clawkit.gateway.methods.method import Caller, Gateway, Method, OfAgent, Run
from clawkit.gateway.protocol import NoParams, Short, invalid, now_ms
from clawkit.gateway.scopes import READ
from clawkit.sessions.protocols import Filter, Session
from clawkit.sessions.usage import Span, UsageReport, UsageTotals

DAYS, MAX_DAYS = 30, 3_660
_RANGES = {"7d": 7, "30d": 30, "90d": 90, "1y": 365, "all": MAX_DAYS}
_AGGREGATES = {
    "byModel": ("provider", "model"),
    "byProvider": ("provider",),
    "byAgent": ("agentId",),
    "modelDaily": ("date", "provider", "model"),
    "agentDaily": ("date", "agentId"),
}
"""Labels that answers are grouped by."""


class Period(OfAgent, frozen=True):
    """Days, and the agent; without one, the default agent."""

    days: Annotated[int, Meta(ge=1, le=MAX_DAYS)] | None = None
    start_date: date | None = None
    end_date: date | None = None
    mode: Literal["utc", "gateway", "specific"] = "utc"
    time_zone: Short | None = None
    agent_scope: Literal["all"] | None = None


class SessionsUsage(Period, frozen=True):
    range: Literal["7d", "30d", "90d", "1y", "all"] | None = None
    key: Short | None = None
    limit: Annotated[int, Meta(ge=1, le=1_000)] = 50


def span_of(params: Period, now: datetime) -> Span:
    """The requested days; by default they end at `now`. Raises `GatewayError`."""
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


def _read(gateway: Gateway, params: Period, key: str = "") -> UsageReport:
    span = span_of(params, datetime.now(UTC))
    if params.agent_scope and (params.agent_id or key):
        raise invalid("agentScope=all cannot be combined with agentId or key")
    agent = "" if params.agent_scope or key else gateway.live.check_agent(params.agent_id)
    wanted = Filter(agent=agent, since_ms=span.start_ms, archived=None)
    found = gateway.session_list.list(wanted, -1)
    sessions = [each for each in found if key in ("", each.key)]
    return UsageReport.read(gateway.store, sessions, span)


def _totals(used: UsageTotals) -> dict[str, Any]:
    tokens = formats.tokens(used.usage)
    return {**tokens, "totalCost": round(used.usage.cost, 6), "missingCostEntries": used.unpriced}


def _latency(used: UsageTotals) -> dict[str, int] | None:
    found = sorted(used.latencies)
    if not found:
        return None
    ends = {"minMs": found[0], "maxMs": found[-1], "p95Ms": found[(len(found) - 1) * 95 // 100]}
    return {"count": len(found), "avgMs": round(sum(found) / len(found)), **ends}


def _group(used: UsageTotals) -> dict[str, Any]:
    return {"count": len(used.times_ms), "totals": _totals(used), "latency": _latency(used)}


def _cost(gateway: Gateway, params: Period) -> dict[str, Any]:
    report = _read(gateway, params)
    daily = [{**day, **_totals(each)} for day, each in report.by("date")]
    days, totals = (report.span.last - report.span.first).days + 1, _totals(report.total())
    return {"updatedAt": now_ms(), "days": days, "daily": daily, "totals": totals}


def _sessions(gateway: Gateway, params: SessionsUsage) -> dict[str, Any]:
    key = gateway.live.resolve_key(params.key, params.agent_id) if params.key else ""
    report = _read(gateway, params, key)
    total, days = report.total(), report.by("date")
    own = {labels["session"]: each for labels, each in report.by("session")}
    aggregates: dict[str, Any] = {
        name: [{**labels, **_group(each)} for labels, each in report.by(*fields)]
        for name, fields in _AGGREGATES.items()
    }
    aggregates["daily"] = [{**day, **_totals(each)} for day, each in days]
    aggregates["dailyLatency"] = [
        {**day, **found} for day, each in days if (found := _latency(each))
    ]
    aggregates |= {"sessionCount": len(report.sessions), "latency": _latency(total)}
    return {
        "updatedAt": now_ms(),
        "startDate": report.span.first.isoformat(),
        "endDate": report.span.last.isoformat(),
        "sessions": [_row(each, own.get(each.key)) for each in report.sessions[: params.limit]],
        "totals": _totals(total),
        "aggregates": aggregates,
    }


def _row(session: Session, used: UsageTotals | None) -> dict[str, Any]:
    provider, model = formats.split_model(session.model)
    row: dict[str, Any] = {"key": session.key, "sessionId": session.id, "agentId": session.agent}
    row |= {"updatedAt": session.updated_ms, "modelProvider": provider, "model": model}
    if used is None:
        return row | {"usage": None}
    times = {"firstActivity": min(used.times_ms), "lastActivity": max(used.times_ms)}
    return row | {"usage": {**_totals(used), "latency": _latency(used), **times}}


def _in_thread(report: Callable[[Gateway, Any], dict[str, Any]]) -> Run:
    async def run(caller: Caller, params: Any, _id: str) -> Any:
        # Its thread continues when a client leaves, so keep the lock until it is done.
        async with caller.gateway.reading_usage:
            return await unbroken(in_thread(report, caller.gateway, params))

    return run


async def _status(_caller: Caller, _params: NoParams, _id: str) -> Any:
    """Providers are not asked for quotas, so the list is empty."""
    return {"updatedAt": now_ms(), "providers": []}


METHODS = (
    Method("usage.status", READ, NoParams, _status),
    Method("usage.cost", READ, Period, _in_thread(_cost)),
    Method("sessions.usage", READ, SessionsUsage, _in_thread(_sessions)),
)
