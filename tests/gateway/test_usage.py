"""What sessions used: by day, model and agent, in the form that other clients read."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncIterator
from datetime import UTC, date, datetime, timedelta
from typing import Any

import apsw
import pytest
from tests.gateway.conftest import Device, Ground, serve
from tests.tables import table

from clawkit.content import Assistant, Message, Summary, Text, ToolCall, ToolResult, Usage, User
from clawkit.gateway.methods.usage import MAX_DAYS, SessionsUsage, span_of
from clawkit.gateway.protocol import GatewayError
from clawkit.sessions.usage import Span

NOON = datetime(2026, 3, 5, 12, tzinfo=UTC)
DAY = timedelta(days=1)


def ms(at: datetime) -> int:
    return round(at.timestamp() * 1000)


def said(at: datetime, model: str = "lab/one", cost: float = 0.5, **usage: int) -> Assistant:
    used = Usage(**usage, cost=cost)
    return Assistant((Text("yes"),), model=model, usage=used, at_ms=ms(at))


def asked(at: datetime) -> User:
    return User((Text("well?"),), at_ms=ms(at))


def remember(ground: Ground, agent: str, name: str, *messages: Message, created: datetime) -> str:
    store = ground.gateway.store
    made = store.create(agent, workspace="/tmp", name=name, model="lab/one")
    for each in messages:
        store.append(made.id, each)
    store.close()
    db = apsw.Connection(store.path)
    db.execute("UPDATE session SET created_ms = ? WHERE id = ?", (ms(created), made.id))
    db.close()
    return made.key


CONFIG = {"agents": {"list": [{"id": "home", "default": True}, {"id": "work"}]}}
PERIOD = {"startDate": "2026-03-01", "endDate": "2026-03-31"}


@pytest.fixture
async def ground() -> AsyncIterator[Ground]:
    async with serve(CONFIG) as made:
        yield made


async def test_tokens_cost_and_latency_are_counted_by_day_model_and_agent(ground: Ground) -> None:
    second = timedelta(seconds=1)
    call = Assistant((ToolCall("1", "ls", {}),), model="lab/one", at_ms=ms(NOON + 2 * second))
    home = remember(
        *(ground, "home", "a"),
        *(asked(NOON), call, ToolResult("1", "ls", at_ms=ms(NOON + 3 * second))),
        said(NOON + 7 * second, input=10, output=5, cache_read=2, cache_write=3),
        asked(NOON + DAY),
        said(NOON + DAY + second, model="lab/two", cost=0, input=100),
        created=NOON - DAY,
    )
    remember(ground, "work", "b", asked(NOON), said(NOON + second, output=7), created=NOON)
    peer = await ground.join(["operator.read"], client=("cli", "cli"))
    found = await peer.call("sessions.usage", {**PERIOD, "agentScope": "all"})
    sums = {"input": 110, "output": 12, "cacheRead": 2, "cacheWrite": 3, "totalTokens": 127}
    assert found["totals"] == {**sums, "totalCost": 1.0, "missingCostEntries": 1}
    both = found["aggregates"]
    assert [(each["date"], each["totalTokens"]) for each in both["daily"]] == [
        *(("2026-03-05", 27), ("2026-03-06", 100)),
    ]
    models = {each["model"]: each for each in both["byModel"]}
    assert models["one"]["provider"] == "lab"
    assert (models["one"]["count"], models["two"]["totals"]["totalTokens"]) == (3, 100)
    # After the question, after the result, and of the other agent.
    sizes = {"count": 3, "avgMs": 2333, "p95Ms": 2000, "minMs": 1000, "maxMs": 4000}
    assert models["one"]["latency"] == sizes
    agents = {each["agentId"]: each["totals"]["totalTokens"] for each in both["byAgent"]}
    assert agents == {"home": 120, "work": 7}
    assert [each["agentId"] for each in both["agentDaily"]] == ["home", "work", "home"]
    second_day = both["dailyLatency"][1]
    assert (second_day["date"], second_day["count"], second_day["avgMs"]) == ("2026-03-06", 1, 1000)
    rows = {each["key"]: each for each in found["sessions"]}
    assert rows[home]["usage"]["totalTokens"] == 120
    assert rows[home]["usage"]["lastActivity"] == ms(NOON + DAY + second)


async def test_the_costs_of_days_are_those_of_one_agent_unless_all_are_wanted(
    ground: Ground,
) -> None:
    today = datetime.now(UTC)
    remember(ground, "home", "a", said(today, output=3), created=today - DAY)
    remember(ground, "work", "b", said(today, output=4), created=today - DAY)
    remember(ground, "home", "old", said(today - 9 * DAY, output=5), created=today - 10 * DAY)
    peer = await ground.join()

    async def tokens(**params: Any) -> int:
        found = await peer.call("usage.cost", {"days": 2, **params})
        assert found["days"] == params.get("days", 2)
        total: int = found["totals"]["totalTokens"]
        assert total == sum(each["totalTokens"] for each in found["daily"])
        return total

    assert await tokens() == 3
    assert await tokens(agentId="work") == 4
    assert await tokens(agentScope="all") == 7
    assert await tokens(days=30, agentScope="all") == 12
    # A day is added: it may have become the next one.
    assert await tokens(days=3, mode="gateway") == 3
    assert await tokens(days=3, mode="specific", timeZone="Asia/Tokyo") == 3


async def test_one_session_can_be_picked_and_the_list_cut(ground: Ground) -> None:
    work = remember(ground, "work", "b", said(NOON, output=4), created=NOON - DAY)
    remember(ground, "work", "c", said(NOON, output=5), created=NOON - DAY)
    peer = await ground.join()
    found = await peer.call("sessions.usage", {**PERIOD, "key": work})
    assert [each["key"] for each in found["sessions"]] == [work]
    assert found["totals"]["totalTokens"] == 4
    found = await peer.call("sessions.usage", {**PERIOD, "agentId": "work", "limit": 1})
    assert (len(found["sessions"]), found["aggregates"]["sessionCount"]) == (1, 2)
    assert found["totals"]["totalTokens"] == 9
    empty = await peer.call("sessions.usage", {"range": "all", "agentId": "home"})
    assert (empty["sessions"], empty["totals"]["totalTokens"]) == ([], 0)
    assert empty["aggregates"]["latency"] is None


async def test_copied_messages_are_counted_once_and_summaries_too(ground: Ground) -> None:
    store = ground.gateway.store
    key = remember(ground, "home", "a", said(NOON, output=4), created=NOON - DAY)
    first = store.find(key)
    assert first is not None
    store.create("home", workspace="/tmp", name="copy", copy_of=first.id)
    store.append(first.id, Summary("short", at_ms=ms(NOON), usage=Usage(output=2, cost=0.1)))
    peer = await ground.join()
    found = await peer.call("usage.cost", PERIOD)
    assert found["totals"]["totalTokens"] == 6


async def test_quotas_of_providers_are_unknown(ground: Ground) -> None:
    peer = await ground.join()
    assert (await peer.call("usage.status"))["providers"] == []


def span(**params: Any) -> Span:
    return span_of(SessionsUsage(**params), NOON)


def test_a_day_begins_at_midnight_of_its_time_zone() -> None:
    for zone, hours in ((None, 0), ("Asia/Tokyo", -9), ("America/New_York", 5)):
        more = {"mode": "specific", "time_zone": zone} if zone else {}
        found = span(start_date=date(2026, 3, 5), end_date=date(2026, 3, 5), **more)
        start = datetime(2026, 3, 5, tzinfo=UTC) + timedelta(hours=hours)
        assert (found.start_ms, found.end_ms) == (ms(start), ms(start + DAY))
        assert found.day(ms(start)) == found.day(ms(start + DAY) - 1) == "2026-03-05"
    # On the day when clocks change, it has 23 hours.
    there = {"mode": "specific", "time_zone": "America/New_York"}
    short = span(start_date=date(2026, 3, 8), end_date=date(2026, 3, 8), **there)
    assert short.end_ms - short.start_ms == 23 * 3_600_000


def test_periods_end_today_and_have_thirty_days_unless_said_otherwise() -> None:
    assert (span().first, span().last) == (date(2026, 2, 4), date(2026, 3, 5))
    assert span(days=1).first == date(2026, 3, 5)
    assert span(range="7d").first == date(2026, 2, 27)
    assert (span(range="all").last - span(range="all").first).days == MAX_DAYS - 1


@table(
    "params",
    [
        {"days": 3, "start_date": date(2026, 1, 1)},
        {"days": 3, "range": "7d"},
        {"start_date": date(2026, 3, 6)},
        {"start_date": date(1, 1, 1)},
        {"end_date": date(1, 1, 2)},
        {"end_date": date(9999, 12, 31)},
        {"mode": "specific"},
        {"time_zone": "UTC"},
        *({"mode": "specific", "time_zone": zone} for zone in ("Moon/Base", "../etc", "", "Asia")),
        {"mode": "specific", "time_zone": "x" * 999},
    ],
)
def test_what_is_not_a_period_is_refused(params: dict[str, Any]) -> None:
    with pytest.raises(GatewayError):
        span(**params)


async def test_contradicting_agents_are_refused(ground: Ground) -> None:
    peer = await ground.join()
    both = {"agentScope": "all", "agentId": "work"}
    assert "cannot be combined" in (await peer.refused("usage.cost", both))["message"]
    assert "unknown agent" in (await peer.refused("usage.cost", {"agentId": "x"}))["message"]
    wrong = await peer.refused("usage.cost", {"startDate": "yesterday"})
    assert wrong["message"].startswith("invalid usage.cost params: at /startDate")


async def test_sessions_are_read_by_one_thread_at_a_time_also_when_clients_leave(
    ground: Ground, monkeypatch: pytest.MonkeyPatch
) -> None:
    goes_on, reading, most = threading.Event(), [0], [0]

    def slow(*_given: object) -> list[Any]:
        reading[0] += 1
        most[0] = max(most[0], reading[0])
        goes_on.wait(10)
        reading[0] -= 1
        return []

    leaving, staying = [await ground.join(["operator.read"], Device()) for _ in range(2)]
    monkeypatch.setattr(ground.gateway.session_list, "list", slow)
    before = threading.active_count()
    for peer in (leaving, staying):
        for _ in range(20):
            await peer.send("usage.cost", {})
    await asyncio.sleep(0.1)
    await leaving.socket.close()
    await asyncio.sleep(0.1)
    assert reading == [1]
    assert threading.active_count() - before < 10
    goes_on.set()
    assert (await staying.call("usage.cost", {}))["daily"] == []
    assert most == [1]
