"""The guard that sees every call before and after it runs."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Sequence
from typing import Any

import pytest
from tests.core.parts import QUESTION, Answering, Listener, always, echo, make, run_of
from tests.tables import table

from clawkit.content import Text
from clawkit.core.approval import Answer, Deny
from clawkit.core.call import Admission, CallRequest, GuardedCall, Run, call, call_all
from clawkit.core.context import Context
from clawkit.core.hooks import Call, Hooks
from clawkit.core.result import Result
from clawkit.core.tool import Effect, Kind, Tool


class Watcher:
    """A guard that allows or refuses calls, and records them."""

    def __init__(self, refusing: str = "") -> None:
        self.refusing = refusing
        self.asked: list[list[GuardedCall]] = []
        self.noted: list[tuple[object, Result, bool]] = []

    def begin(self) -> None:
        raise AssertionError("a call is no turn")

    compacted = begin

    def admit(self, calls: Sequence[GuardedCall]) -> Admission:
        self.asked.append(list(calls))
        if any(each.tool == self.refusing for each in calls):
            refusals = [Result.text(f"{each.tool}: no", status="blocked") for each in calls]
            return Admission((), refusals)
        return Admission([f"{len(self.asked)}.{number}" for number in range(len(calls))])

    def note(self, ticket: object, result: Result, *, acts: bool) -> Result:
        self.noted.append((ticket, result, acts))
        return Result((*result.content, Text("seen")), result.details)


class BrokenWatcher(Watcher):
    """Fails on the way in, on the way out, or gives an answer that does not fit."""

    def __init__(self, how: str) -> None:
        super().__init__()
        self.how = how

    def admit(self, calls: Sequence[GuardedCall]) -> Admission:
        if self.how == "in":
            raise RuntimeError("admission is broken")
        if self.how == "short":
            return Admission(["only one"])
        if self.how == "long":
            return Admission((), [Result.text("no")] * 7)
        return super().admit(calls)

    def note(self, ticket: object, result: Result, *, acts: bool) -> Result:
        raise RuntimeError("taking note is broken")


def doing(*kinds: Kind) -> Tool:
    effects = tuple(map(Effect, kinds))
    return make("probe", echo, effects=lambda _params, _ctx: effects)


async def test_the_guard_sees_the_call_as_sent_and_the_final_result() -> None:
    watcher, listener = Watcher(), Listener()
    run = run_of(make("exec", echo), watch=watcher)
    result = await call(run, CallRequest(" Bash", '{"path": "a"}'), listener)
    assert watcher.asked == [[GuardedCall("exec", '{"path": "a"}', known=True)]]
    [(ticket, noted, acts)] = watcher.noted
    assert ticket == "1.0"
    assert noted.details == {"params": {"path": "a"}}
    assert acts
    assert result.content == (*noted.content, Text("seen"))
    assert listener[-1]["content"][-1] == {"type": "text", "text": "seen"}


@table(
    ("kinds", "acts"),
    [
        ([], False),
        (["read"], False),
        (["read", "network"], False),
        (["write"], True),
        (["exec"], True),
        (["read", "send"], True),
    ],
)
async def test_the_guard_is_told_whether_a_call_may_have_changed_something(
    kinds: list[Kind], acts: bool
) -> None:
    watcher = Watcher()
    await call(run_of(doing(*kinds), watch=watcher), CallRequest("probe"))
    assert [each[2] for each in watcher.noted] == [acts]


async def fail(_params: Any, _ctx: Context) -> None:
    raise OSError("disk full")


@table(
    ("options", "params", "words", "acts"),
    [
        ({}, {}, "disk full", True),
        ({}, {"path": 7}, "path", False),
        ({"rules": always(Deny("by rule"))}, {}, "by rule", False),
        ({"rules": always(QUESTION), "approver": Answering(Answer("deny"))}, {}, "Pay 5?", False),
    ],
)
async def test_failed_and_refused_calls_are_noted(
    options: dict[str, Any], params: object, words: str, acts: bool
) -> None:
    watcher = Watcher()
    await call(run_of(make("probe", fail), watch=watcher, **options), CallRequest("probe", params))
    [(_, noted, acted)] = watcher.noted
    assert words in noted.as_text()
    assert acted is acts


async def test_calls_of_unknown_tools_reach_the_guard() -> None:
    watcher = Watcher()
    run = run_of(make("probe", echo), watch=watcher, refused={"exec": "not here"})
    await call_all(run, [CallRequest("probe"), CallRequest("exec"), CallRequest("wether")])
    assert [each.known for each in watcher.asked[0]] == [True, False, False]
    assert sorted(str(ticket) for ticket, _, _ in watcher.noted) == ["1.0", "1.1", "1.2"]


async def test_a_message_without_calls_does_not_reach_the_guard() -> None:
    watcher = Watcher()
    assert await call_all(run_of(watch=watcher), []) == []
    assert watcher.asked == []


async def test_if_the_guard_refuses_one_call_none_of_its_message_starts() -> None:
    begun: list[str] = []
    hooks = Hooks()

    def begin(each: Call) -> None:
        begun.append(each.tool)

    hooks.before(begin)
    watcher, listener = Watcher(refusing="bad"), Listener()
    run = run_of(make("good", echo), make("bad", echo), hooks=hooks, watch=watcher)
    told: list[tuple[int, str]] = []
    results = await call_all(
        run,
        [CallRequest("good", id="1"), CallRequest("bad", id="2")],
        listener,
        on_result=lambda number, result: told.append((number, result.as_text())),
    )
    assert [result.as_text() for result in results] == ["good: no", "bad: no"]
    assert begun == []
    assert watcher.noted == []
    assert [(each["type"], each["callId"]) for each in listener] == [("end", "1"), ("end", "2")]
    assert told == [(0, "good: no"), (1, "bad: no")]
    assert (await call(run, CallRequest("bad"))).as_text() == "bad: no"


@pytest.mark.parametrize("how", ["in", "short", "long"])
async def test_no_call_runs_if_the_guard_fails_before_it(
    how: str, caplog: pytest.LogCaptureFixture
) -> None:
    ran: list[Any] = []

    async def work(params: Any, _ctx: Context) -> None:
        ran.append(params)

    run = run_of(make("probe", work), watch=BrokenWatcher(how))
    results = await call_all(run, [CallRequest("probe"), CallRequest("x" * 1000)])
    assert ran == []
    assert [result.details["status"] for result in results] == ["blocked", "blocked"]
    assert results[0].details["deniedReason"] == "loop_admission_failure"
    assert results[0].details["tool"] == "probe"
    assert len(results[1].details["tool"]) == 80
    assert "the loop guard failed" in caplog.text


async def test_a_result_is_kept_if_the_guard_fails_after_it(
    caplog: pytest.LogCaptureFixture,
) -> None:
    result = await call(
        run_of(make("probe", echo), watch=BrokenWatcher("out")), CallRequest("probe")
    )
    assert result.details == {"params": {}}
    assert "taking note is broken" in caplog.text


async def test_cancelled_calls_are_not_noted() -> None:
    begun = asyncio.Event()

    async def hang(_params: Any, _ctx: Context) -> None:
        begun.set()
        await asyncio.Event().wait()

    watcher = Watcher()
    told: list[int] = []

    def keep(number: int, _result: Result) -> None:
        told.append(number)

    run = run_of(doing("read"), make("hang", hang), watch=watcher)
    requests = [CallRequest("probe"), CallRequest("nowhere"), CallRequest("hang")]
    task = asyncio.create_task(call_all(run, requests, on_result=keep))
    await begun.wait()
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert sorted(str(ticket) for ticket, _, _ in watcher.noted) == ["1.0", "1.1"]
    assert sorted(told) == [0, 1]


def quick_and_slow() -> Run:
    """Two tools; the slow one ends after the quick one."""
    done = asyncio.Event()

    async def quick(_params: Any, _ctx: Context) -> str:
        done.set()
        return "quick"

    async def slow(_params: Any, _ctx: Context) -> str:
        await done.wait()
        await asyncio.sleep(0)
        return "slow"

    def read(_params: Any, _ctx: Context) -> tuple[Effect, ...]:
        return (Effect("read"),)

    return run_of(make("quick", quick, effects=read), make("slow", slow, effects=read))


async def test_results_are_reported_as_they_arrive() -> None:
    told: list[tuple[int, str]] = []
    results = await call_all(
        quick_and_slow(),
        [CallRequest("slow"), CallRequest("quick")],
        on_result=lambda number, result: told.append((number, result.as_text())),
    )
    assert [result.as_text() for result in results] == ["slow", "quick"]
    assert told == [(1, "quick"), (0, "slow")]


async def test_a_failing_result_callback_does_not_fail_the_call(
    caplog: pytest.LogCaptureFixture,
) -> None:
    def drop(_number: int, _result: Result) -> None:
        raise KeyError("lost")

    with caplog.at_level(logging.WARNING):
        results = await call_all(
            quick_and_slow(), map(CallRequest, ("quick", "slow")), on_result=drop
        )
    assert [result.as_text() for result in results] == ["quick", "slow"]
    assert "a listener for results failed" in caplog.text
