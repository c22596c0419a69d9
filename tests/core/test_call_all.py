"""The calls of one message."""

from __future__ import annotations

import asyncio
import os
import sys
from collections.abc import Awaitable, Callable, Mapping
from pathlib import Path
from typing import Any

import pytest
from tests.core.parts import (
    QUESTION,
    Answering,
    Execute,
    Listener,
    OwnError,
    always,
    echo,
    make,
    run_of,
)

from clawkit.core.approval import Answer, Ask, Deny
from clawkit.core.call import CallRequest, Run, call_all
from clawkit.core.context import Context
from clawkit.core.hooks import Call, Hooks
from clawkit.core.result import Result
from clawkit.core.tool import Effect, Tool


def writes(resource: str) -> Callable[..., tuple[Effect, ...]]:
    return lambda _params, _ctx: (Effect("write", resource),)


def reads(resource: str) -> Callable[..., tuple[Effect, ...]]:
    return lambda _params, _ctx: (Effect("read", resource),)


async def in_time(work: Awaitable[list[Result]]) -> list[Result]:
    """A deadlock shows as a failure."""
    return await asyncio.wait_for(work, 30)


async def test_results_and_refusals_are_in_the_order_of_the_requests() -> None:
    run = run_of(make("probe", echo), refused={"exec": "no"})
    requests = [
        CallRequest("probe", {"path": "1"}),
        CallRequest("exec"),
        CallRequest("nowhere"),
        CallRequest("probe", {"path": 5}),
        CallRequest("probe", {"path": "2"}),
    ]
    results = await in_time(call_all(run, iter(requests)))
    assert [result.is_error for result in results] == [False, True, True, True, False]
    assert results[4].details == {"params": {"path": "2"}}
    assert await call_all(run, []) == []


async def test_calls_that_cannot_collide_run_in_parallel() -> None:
    barrier = asyncio.Barrier(3)

    async def meet(_params: Any, _ctx: Context) -> None:
        await barrier.wait()

    run = run_of(
        make("a", meet, effects=reads("file:/x")),
        make("b", meet, effects=reads("file:/x")),
        make("c", meet, effects=writes("file:/y")),
    )
    results = await in_time(call_all(run, map(CallRequest, "abc")))
    assert not any(result.is_error for result in results)


async def test_calls_that_can_collide_run_in_order_and_others_are_not_held_up() -> None:
    log: list[str] = []
    other_ran = asyncio.Event()

    async def first(_params: Any, _ctx: Context) -> None:
        log.append("first begins")
        await other_ran.wait()
        log.append("first ends")

    async def second(_params: Any, _ctx: Context) -> None:
        log.append("second")

    async def other(_params: Any, _ctx: Context) -> None:
        log.append("other")
        other_ran.set()

    run = run_of(
        make("a", first, effects=writes("file:/x")),
        make("b", second, effects=reads("file:/x/part")),
        make("c", other, effects=writes("file:/y")),
    )
    await in_time(call_all(run, map(CallRequest, "abc")))
    assert log == ["first begins", "other", "first ends", "second"]


async def test_a_file_and_a_link_to_it_are_one_for_calls_of_one_message(tmp_path: Path) -> None:
    (tmp_path / "link").symlink_to("file")
    log: list[str] = []

    async def work(_params: Any, ctx: Context) -> None:
        log.append(f"{ctx.call_id} begins")
        await asyncio.sleep(0)
        log.append(f"{ctx.call_id} ends")

    run = run_of(
        make("a", work, effects=writes(f"file:{tmp_path}/link")),
        make("b", work, effects=reads(f"file:{tmp_path}/./file")),
    )
    await in_time(call_all(run, [CallRequest("a", id="1"), CallRequest("b", id="2")]))
    assert log == ["1 begins", "1 ends", "2 begins", "2 ends"]


async def test_a_tool_without_declared_effects_runs_alone() -> None:
    log: list[str] = []

    async def work(_params: Any, ctx: Context) -> None:
        log.append(f"{ctx.call_id} begins")
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        log.append(f"{ctx.call_id} ends")

    run = run_of(make("a", work), make("b", work, effects=reads("file:/x")))
    await in_time(call_all(run, [CallRequest("b", id="1"), CallRequest("a", id="2")]))
    assert log == ["1 begins", "1 ends", "2 begins", "2 ends"]


@pytest.mark.parametrize(
    "effects",
    [
        lambda _params, _ctx: [1, 2],
        lambda _params, _ctx: "text",
        lambda _params, _ctx: None,
        lambda _params, _ctx: [Effect("read", None)],  # type: ignore[arg-type]
        lambda _params, _ctx: 1 / 0,
        lambda _params, _ctx: sys.exit(1),
    ],
)
async def test_a_tool_with_invalid_effects_runs_alone(
    effects: Any, caplog: pytest.LogCaptureFixture
) -> None:
    log: list[str] = []

    async def work(_params: Any, _ctx: Context) -> None:
        log.append("begins")
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        log.append("ends")

    run = run_of(make("a", work, effects=effects), make("b", work, effects=reads("file:/x")))
    await in_time(call_all(run, map(CallRequest, "bab")))
    assert log == ["begins", "ends"] * 3
    assert "effects of a" in caplog.text


async def test_one_failing_call_does_not_disturb_the_others() -> None:
    failed = asyncio.Event()

    async def fail(_params: Any, _ctx: Context) -> None:
        failed.set()
        raise OwnError

    async def wait(_params: Any, _ctx: Context) -> str:
        await failed.wait()
        await asyncio.sleep(0)
        return "fine"

    run = run_of(
        make("a", wait, effects=reads("file:/a")),
        make("b", fail, effects=writes("file:/b")),
        make("c", wait, effects=reads("file:/b")),
    )
    results = await in_time(call_all(run, map(CallRequest, "abc")))
    assert [result.is_error for result in results] == [False, True, False]


async def test_cancellation_from_a_listener_is_raised() -> None:
    async def work(_params: Any, _ctx: Context) -> str:
        return "fine"

    def cancel(event: Mapping[str, Any]) -> None:
        if event["type"] == "start" and event["tool"] == "a":
            raise asyncio.CancelledError

    run = run_of(
        make("a", work, effects=reads("file:/a")), make("b", work, effects=reads("file:/b"))
    )
    with pytest.raises(asyncio.CancelledError):
        await in_time(call_all(run, map(CallRequest, "ab"), cancel))


async def test_cancelling_a_message_stops_all_its_calls_and_starts_no_more() -> None:
    started: set[str] = set()
    stopped: set[str] = set()
    both = asyncio.Event()

    def hold(name: str) -> Execute:
        async def work(_params: Any, _ctx: Context) -> None:
            started.add(name)
            if len(started) == 2:
                both.set()
            try:
                await asyncio.Event().wait()
            finally:
                stopped.add(name)

        return work

    run = run_of(
        make("a", hold("a"), effects=writes("file:/a")),
        make("b", hold("b"), effects=writes("file:/b")),
        make("c", hold("c"), effects=writes("file:/a")),
    )
    task = asyncio.create_task(call_all(run, map(CallRequest, "abc")))
    await both.wait()
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert started == stopped == {"a", "b"}


def by_target(verdict: Deny | Ask) -> Callable[..., Deny | Ask | None]:
    """A rule about where a path really leads, as the argument rules have it."""

    def rule(tool: Tool, params: Mapping[str, Any], ctx: Context) -> Deny | Ask | None:
        if tool.name != "show":
            return None
        real = os.path.realpath(os.path.join(ctx.workspace, params["path"]))
        return verdict if os.path.basename(os.path.dirname(real)) == "secrets" else None

    return rule


@pytest.fixture
def linking(tmp_path: Path) -> Callable[..., Run]:
    """A run with one tool that creates a link to a secret and one that reads the link."""
    (tmp_path / "secrets").mkdir()
    (tmp_path / "secrets" / "key").write_text("the key")

    async def link(params: dict[str, Any], ctx: Context) -> None:
        os.symlink("secrets", os.path.join(ctx.workspace, params["path"]))

    async def show(params: dict[str, Any], ctx: Context) -> str:
        return Path(ctx.workspace, params["path"]).read_text()

    tools = {"link": make("link", link), "show": make("show", show)}
    return lambda **options: Run(tools, str(tmp_path), **options)


LINK_AND_SHOW = [CallRequest("link", {"path": "l"}), CallRequest("show", {"path": "l/key"}, "7")]


async def test_a_call_cannot_help_the_next_one_to_bypass_a_rule(
    linking: Callable[..., Run],
) -> None:
    listener = Listener()
    run = linking(rules=by_target(Deny("no secrets")))
    results = await in_time(call_all(run, LINK_AND_SHOW, listener))
    assert [result.is_error for result in results] == [False, True]
    assert results[1].as_text() == "no secrets"
    assert [event["type"] for event in listener if event["callId"] == "7"] == ["end"]


@pytest.mark.parametrize(("verdict", "shown"), [("allow", True), ("deny", False)])
async def test_a_call_that_needs_approval_after_an_earlier_call_asks_for_it(
    linking: Callable[..., Run], verdict: Any, shown: bool
) -> None:
    person = Answering(Answer(verdict))
    run = linking(rules=by_target(Ask("Show a secret?")), approver=person)
    results = await in_time(call_all(run, LINK_AND_SHOW))
    assert [request.title for request in person.requests] == ["Show a secret?"]
    assert (results[1].as_text() == "the key") is shown


async def test_a_person_is_not_asked_twice_for_a_call_that_had_to_wait() -> None:
    person = Answering(Answer("allow"))
    run = run_of(make("probe", echo), rules=always(QUESTION), approver=person)
    results = await in_time(call_all(run, [CallRequest("probe"), CallRequest("probe")]))
    assert not any(result.is_error for result in results)
    assert len(person.requests) == 2


async def test_calls_are_admitted_in_order() -> None:
    seen: list[object] = []
    hooks = Hooks()

    def note(call: Call) -> None:
        seen.append(call.params["path"])

    hooks.before(note)
    run = run_of(make("probe", echo), hooks=hooks)
    await in_time(call_all(run, [CallRequest("probe", {"path": str(i)}) for i in range(5)]))
    assert seen == ["0", "1", "2", "3", "4"]


async def test_a_message_with_one_call() -> None:
    [result] = await in_time(call_all(run_of(make("probe", echo)), [CallRequest("probe")]))
    assert not result.is_error
