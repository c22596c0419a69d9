"""The one way a tool runs."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import sys
from collections.abc import Awaitable, Callable
from typing import Any

import pytest
from tests.core.parts import (
    SECRET,
    Listener,
    OwnError,
    echo,
    make,
    once,
    run_of,
)
from tests.tables import table

from clawkit.content import Image, Text
from clawkit.core.call import CallRequest, Event, call
from clawkit.core.context import Context, Scope
from clawkit.core.result import Result
from clawkit.errors import (
    ConfigError,
    Issue,
    ToolAuthorizationError,
    ToolError,
    ToolInputError,
    UnknownToolError,
)
from clawkit.redact import Redactor


@table("name", ["exec", "EXEC", " bash\n", "Bash"])
async def test_a_tool_is_found_by_any_of_its_names(name: str) -> None:
    result = await call(run_of(make("exec", echo)), CallRequest(name, {"path": "a"}))
    assert result.details == {"params": {"path": "a"}}


@table(
    ("name", "words"),
    [
        ("probee", "unknown tool 'probee'; did you mean 'probe'?"),
        ("Weather", "unknown tool 'weather'; see the list of tools"),
        ("exec", "the tool 'exec' is not available in this build"),
        ("bash", "the tool 'exec' is not available in this build"),
        ("", "unknown tool ''"),
        (None, "unknown tool 'none'"),
        (7, "unknown tool '7'"),
    ],
)
async def test_calling_an_unknown_tool_returns_an_error_result(name: Any, words: str) -> None:
    listener = Listener()
    result = await call(run_of(make("probe", echo)), CallRequest(name, {}, "7"), listener)
    assert words in result.details["error"]
    assert result.details["code"] == UnknownToolError.status
    assert listener.kinds == ["end"]
    assert listener[0]["callId"] == "7"


async def test_a_very_long_name_is_not_repeated_in_full() -> None:
    listener = Listener()
    result = await call(run_of(), CallRequest("x" * 100_000), listener)
    assert len(result.as_text()) < 1_000
    assert len(listener[0]["tool"]) <= 80


async def test_a_tool_removed_by_policy_is_refused_with_the_reason() -> None:
    run = run_of(refused={"exec": "the tool 'exec' is not allowed here"})
    result = await call(run, CallRequest("Bash", {}))
    assert result.details == {
        "status": "blocked",
        "tool": "exec",
        "deniedReason": "policy",
        "reason": "the tool 'exec' is not allowed here",
        "code": 403,
    }


async def test_bad_parameters_are_a_result_and_nothing_runs() -> None:
    ran: list[object] = []

    async def note(params: Any, _ctx: Context) -> None:
        ran.append(params)

    for params in ({"path": 5}, "{broken", [1], {"path": {1}}, {"path": float("nan")}):
        result = await once(note, params)
        assert result.details["code"] == 400
    assert ran == []


class MuteError(Exception):
    """An exception whose text cannot be read."""

    def __str__(self) -> str:
        raise ValueError("no")


@table(
    ("error", "code", "words"),
    [
        (ToolInputError("give a city"), 400, "give a city"),
        (ToolError("broken"), 500, "broken"),
        (UnknownToolError("gone"), 404, "gone"),
        (ConfigError([Issue("a.b", "is wrong")]), 500, "a.b: is wrong"),
        (ValueError("odd"), 500, "ValueError: odd"),
        (ExceptionGroup("g", [ToolInputError("give a city")]), 400, "give a city"),
        (ExceptionGroup("g", [ValueError("a"), ValueError("b")]), 500, "ExceptionGroup: g"),
        (MuteError(), 500, "MuteError: no message"),
        (TimeoutError(), 500, "TimeoutError: no message"),
        (SystemExit(3), 500, "tried to exit the program"),
        (GeneratorExit(), 500, "it raised GeneratorExit"),
        (OwnError(), 500, "it raised OwnError"),
        (asyncio.CancelledError(), 500, "it cancelled itself"),
    ],
)
async def test_whatever_a_tool_raises_becomes_a_result(
    error: BaseException, code: int, words: str
) -> None:
    async def fail(_params: Any, _ctx: Context) -> None:
        raise error

    def fail_at_once(_params: Any, _ctx: Context) -> Awaitable[None]:
        raise error

    result = await once(fail)
    assert result.is_error
    assert result.details["tool"] == "probe"
    assert result.details["code"] == code
    assert words in result.details["error"]
    if isinstance(error, Exception):
        assert (await once(fail_at_once)).details == result.details


async def test_a_tool_that_refuses_is_blocked_with_its_reason() -> None:
    async def refuse(_params: Any, _ctx: Context) -> None:
        raise ToolAuthorizationError("outside", reason="outside-workspace")

    result = await once(refuse)
    assert result.details["status"] == "blocked"
    assert result.details["deniedReason"] == "outside-workspace"


class Unprintable:
    """Neither JSON nor text."""

    def __str__(self) -> str:
        raise ValueError("no text")


@table(
    "value",
    [
        object(),
        {1, 2},
        float("nan"),
        [object()],
        {"content": [], "details": 5},
        {"key": Unprintable()},
        Result((5,), {}),  # type: ignore[arg-type]
        Result((), 5),  # type: ignore[arg-type]
        Result((), {"key": Unprintable()}),
    ],
)
async def test_an_unsupported_return_value_becomes_an_error(value: object) -> None:
    async def give(_params: Any, _ctx: Context) -> object:
        return value

    listener = Listener()
    run = run_of(make("probe", give))
    result = await call(run, CallRequest("probe"), listener)
    assert result.is_error
    assert result.details["code"] == 500
    assert listener.kinds == ["start", "end"]


async def test_errors_about_return_values_are_masked() -> None:
    class Leaking:
        def __str__(self) -> str:
            raise ValueError("cannot show password=hunter2hunter2")

    async def give(_params: Any, _ctx: Context) -> object:
        return Result((), {"key": Leaking()})

    result = await once(give)
    assert "cannot show password=" in result.as_text()
    assert "hunter2" not in result.as_text()


async def test_a_tool_whose_function_is_not_async_becomes_an_error() -> None:
    def plain(_params: Any, _ctx: Context) -> Any:
        return "text"

    assert (await once(plain)).details["code"] == 500


async def test_cancelling_the_call_stops_the_tool_and_what_it_started() -> None:
    started: asyncio.Future[asyncio.subprocess.Process] = asyncio.Future()

    async def hold(_params: Any, _ctx: Context) -> None:
        child = await asyncio.create_subprocess_exec(sys.executable, "-c", "input()", stdin=-1)
        try:
            started.set_result(child)
            await child.wait()
        finally:
            child.kill()
            await child.wait()

    task = asyncio.create_task(once(hold))
    child = await started
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert child.returncode is not None
    with pytest.raises(ProcessLookupError):
        os.kill(child.pid, 0)


async def test_a_tool_that_ignores_its_cancellation_is_abandoned() -> None:
    started, release, ended = asyncio.Event(), asyncio.Event(), asyncio.Event()

    async def stubborn(_params: Any, _ctx: Context) -> None:
        started.set()
        while not release.is_set():
            with contextlib.suppress(asyncio.CancelledError):
                await release.wait()
        ended.set()

    task = asyncio.create_task(once(stubborn, grace_s=0.01))
    await started.wait()
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert not ended.is_set()
    release.set()
    await ended.wait()


async def test_nothing_is_left_running_after_a_call() -> None:
    async def work(_params: Any, ctx: Context) -> str:
        await ctx.update("half")
        return "done"

    before = asyncio.all_tasks()
    for _ in range(20):
        await once(work)
    assert asyncio.all_tasks() == before


async def test_events_report_start_progress_and_end() -> None:
    async def work(_params: Any, ctx: Context) -> str:
        await ctx.update("half")
        await ctx.update(Result.text("most", percent=90))
        return "done"

    listener = Listener()
    run = run_of(make("probe", work))
    await call(run, CallRequest("Probe", {"path": "a"}, "7"), listener)
    assert listener.kinds == ["start", "update", "update", "end"]
    assert {(event["tool"], event["callId"]) for event in listener} == {("probe", "7")}
    assert listener[0]["params"] == {"path": "a"}
    assert listener[1]["content"] == [{"type": "text", "text": "half"}]
    assert listener[2]["details"] == {"percent": 90}
    assert listener[3]["isError"] is False


async def test_every_call_has_its_own_id() -> None:
    listener = Listener()
    run = run_of(make("probe", echo))
    for _ in range(2):
        await call(run, CallRequest("probe"), listener)
    ids = [event["callId"] for event in listener if event["type"] == "end"]
    assert len(set(ids)) == 2
    assert all(ids)


async def test_events_are_short_and_contain_no_image_or_secret() -> None:
    picture = Image("QUJD" * 100, "image/png")

    async def work(_params: Any, ctx: Context) -> Result:
        await ctx.update(f"using {SECRET}")
        return Result((Text("y" * 100_000), picture), {"note": SECRET, "long": "z" * 10_000})

    listener = Listener()
    run = run_of(make("probe", work), redactor=Redactor([SECRET]))
    params = {"path": "p" * 50_000, "env": {"NOTE": SECRET, "LINE": "DB_PASSWORD=hunter2hunter2"}}
    result = await call(run, CallRequest("probe", params), listener)
    start, update, end = listener
    assert SECRET not in repr(listener)
    assert "hunter2hunter2" not in repr(start)
    assert len(start["params"]["path"]) <= 8_000
    assert "using" in update["content"][0]["text"]
    assert len(end["content"][0]["text"]) <= 8_000
    assert end["content"][1]["omitted"] is True
    assert "data" not in end["content"][1]
    assert len(end["details"]["long"]) <= 8_000
    assert picture in result.content
    assert SECRET not in repr(result)


async def test_an_exception_in_a_listener_does_not_fail_the_call(
    caplog: pytest.LogCaptureFixture,
) -> None:
    def fail(_event: Event) -> None:
        raise KeyError("oops")

    async def work(_params: Any, ctx: Context) -> str:
        await ctx.update("half")
        return "done"

    result = await call(run_of(make("probe", work)), CallRequest("probe"), fail)
    assert result.as_text() == "done"
    assert caplog.text.count("an event listener failed") == 3


async def test_a_listener_cannot_change_the_call() -> None:
    def meddle(event: Event) -> None:
        if event["type"] == "start":
            event["params"]["env"]["A"] = "changed"
            event["params"]["path"] = "changed"

    run = run_of(make("probe", echo))
    given = {"path": "a", "env": {"A": "1"}}
    assert (await call(run, CallRequest("probe", given), meddle)).details == {"params": given}


async def test_progress_without_a_listener_is_ignored() -> None:
    async def work(_params: Any, ctx: Context) -> str:
        await ctx.update("half")
        return "done"

    assert (await once(work)).as_text() == "done"


async def test_results_are_cut_to_the_models_window() -> None:
    async def much(_params: Any, _ctx: Context) -> str:
        return "x" * 500_000

    small = await once(much, scope=Scope(context_window=8_000))
    assert len(small.as_text()) < 20_000
    assert len((await once(much)).as_text()) > 50_000


async def test_an_unexpected_failure_is_logged(
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level(logging.DEBUG)

    async def fail(_params: Any, _ctx: Context) -> None:
        raise ValueError("odd")

    await once(fail)
    assert "probe failed" in caplog.text


async def test_notices_reach_the_listener_even_after_the_end() -> None:
    later: list[Callable[[Result], None]] = []
    listener = Listener()

    async def start(_params: Any, ctx: Context) -> str:
        later.append(ctx.notify)
        return "started"

    await call(run_of(make("probe", start)), CallRequest("probe", {}, "7"), listener)
    later[0](Result.text("ended"))
    assert listener.kinds == ["start", "end", "notice"]
    assert listener[-1]["callId"] == "7"
