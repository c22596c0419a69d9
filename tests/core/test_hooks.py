"""Hooks before and after a call."""

from __future__ import annotations

import asyncio
import contextlib
import subprocess
import sys
import threading
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
from tests.tables import table

from clawkit.core.approval import MAX_TIMEOUT_S, Answer, Ask, Deny, Question
from clawkit.core.call import CallRequest, Run, call
from clawkit.core.context import Context, Scope
from clawkit.core.hooks import Call, Hooks, Rewrite
from clawkit.core.result import Result
from clawkit.core.tool import Tool
from clawkit.errors import RegistryError


class Probe:
    """A tool that records its parameters."""

    def __init__(self) -> None:
        self.ran: list[dict[str, Any]] = []
        properties = {"path": {"type": "string"}, "n": {"type": "integer"}, "env": {}}
        schema = {"properties": properties, "additionalProperties": False}
        self.tool = Tool("probe", "Probe.", schema, self.execute)

    async def execute(self, params: dict[str, Any], _ctx: Context) -> str:
        self.ran.append(params)
        return "ran"


class Yes:
    """An approver that allows everything, and records the questions."""

    def __init__(self) -> None:
        self.requests: list[Question] = []

    async def ask(self, request: Question) -> Answer:
        self.requests.append(request)
        return Answer("allow")


@pytest.fixture
def probe() -> Probe:
    return Probe()


async def run_probe(probe: Probe, hooks: Hooks, params: object = None, **options: Any) -> Result:
    run = Run({"probe": probe.tool}, "/ws", hooks=hooks, **options)
    return await call(run, CallRequest("probe", params, "7"))


def with_before(*hooks: Callable[..., Any], timeout_s: float = 30) -> Hooks:
    made = Hooks()
    for hook in hooks:
        made.before(hook, timeout_s=timeout_s)
    return made


async def test_a_hook_that_returns_nothing_lets_the_call_pass(probe: Probe) -> None:
    seen: list[Call] = []
    hooks = with_before(seen.append)
    assert (await run_probe(probe, hooks, {"path": "a"})).as_text() == "ran"
    assert [(each.tool, each.params, each.ctx.call_id) for each in seen] == [
        ("probe", {"path": "a"}, "7")
    ]


async def test_a_rewritten_path_starts_from_the_same_directory_as_the_models(probe: Probe) -> None:
    probe.tool = replace(probe.tool, paths=("path",))
    hooks = with_before(lambda _call: Rewrite({"path": "b"}))
    await run_probe(probe, hooks, {"path": "a"}, scope=Scope(cwd="sub"))
    await run_probe(probe, Hooks(), {"path": "a"}, scope=Scope(cwd="sub"))
    assert probe.ran == [{"path": "/ws/sub/b"}, {"path": "/ws/sub/a"}]


async def test_higher_priority_goes_first_and_equal_ones_keep_their_order(probe: Probe) -> None:
    order: list[str] = []
    hooks = Hooks()

    def note(name: str) -> Callable[[Call], None]:
        return lambda _call: order.append(name)

    for name, priority in (("a", 0), ("b", 10), ("c", 0), ("d", -5), ("e", 10)):
        hooks.before(note(name), priority=priority)
    await run_probe(probe, hooks)
    assert order == ["b", "e", "a", "c", "d"]


async def test_the_first_block_refuses_the_call_with_its_reason(probe: Probe) -> None:
    later: list[Call] = []
    hooks = with_before(lambda _call: Deny("not on Sundays"), later.append)
    result = await run_probe(probe, hooks)
    assert result.as_text() == "not on Sundays"
    assert result.details["status"] == "blocked"
    assert result.details["deniedReason"] == "hook"
    assert probe.ran == []
    assert later == []


async def test_a_block_without_a_reason_names_the_hook(probe: Probe) -> None:
    async def guard(_call: Call) -> Deny:
        return Deny("")

    result = await run_probe(probe, with_before(guard))
    assert "blocked by the hook" in result.as_text()
    assert "guard" in result.as_text()


async def test_parameters_rewritten_by_one_hook_reach_the_next_and_the_tool(probe: Probe) -> None:
    seen: list[Call] = []
    hooks = with_before(
        lambda _call: Rewrite({"path": "b"}),
        lambda call: Rewrite({**call.params, "n": "2"}),
        seen.append,
    )
    assert not (await run_probe(probe, hooks, {"path": "a"})).is_error
    assert seen[0].params == {"path": "b", "n": "2"}
    assert probe.ran == [{"path": "b", "n": 2}]


async def test_a_block_after_a_rewrite_still_blocks(probe: Probe) -> None:
    hooks = with_before(lambda _call: Rewrite({"path": "b"}), lambda _call: Deny("no"))
    assert (await run_probe(probe, hooks)).details["status"] == "blocked"
    assert probe.ran == []


@pytest.mark.parametrize(
    "params",
    [{"path": 5}, {"unknown": 1}, {"path": {1, 2}}, {"n": "many"}, {"path": "a", "Path": "b"}],
)
async def test_rewritten_parameters_are_checked_again(probe: Probe, params: dict[str, Any]) -> None:
    result = await run_probe(probe, with_before(lambda _call: Rewrite(params)))
    assert result.details["code"] == 400
    assert probe.ran == []


async def test_changing_the_parameters_a_hook_was_shown_has_no_effect(probe: Probe) -> None:
    def meddle(call: Call) -> None:
        call.params["env"]["PATH"] = "/evil"
        call.params["path"] = "/etc/passwd"  # type: ignore[index]

    hooks = with_before(meddle, meddle)
    await run_probe(probe, hooks, {"path": "a", "env": {"PATH": "/bin"}})
    assert probe.ran == [{"path": "a", "env": {"PATH": "/bin"}}]


async def test_changing_rewritten_parameters_afterwards_has_no_effect(probe: Probe) -> None:
    kept: dict[str, Any] = {"env": {"PATH": "/bin"}}

    def meddle(_call: Call) -> None:
        kept["env"]["PATH"] = "/evil"

    hooks = with_before(lambda _call: Rewrite(kept), meddle)
    hooks.after(lambda _call, _result: meddle(_call))
    await run_probe(probe, hooks)
    assert probe.ran == [{"env": {"PATH": "/bin"}}]


async def test_parameters_cannot_be_rewritten_after_a_hook_asks(probe: Probe) -> None:
    yes = Yes()
    hooks = with_before(
        lambda _call: Rewrite({"path": "shown"}),
        lambda _call: Ask("May it?", "It costs money"),
        lambda _call: Rewrite({"path": "swapped"}),
        lambda _call: Ask("A second question"),
    )
    assert not (await run_probe(probe, hooks, approver=yes)).is_error
    assert probe.ran == [{"path": "shown"}]
    (request,) = yes.requests
    assert (request.title, request.description) == ("May it?", "It costs money")
    assert request.params == {"path": "shown"}
    assert request.asked_by.startswith("hook ")


async def test_a_hook_that_asks_may_name_itself(probe: Probe) -> None:
    yes = Yes()
    hooks = with_before(lambda _call: Ask("May it?", asked_by="plugins.entries.guard"))
    await run_probe(probe, hooks, approver=yes)
    assert yes.requests[0].asked_by == "plugins.entries.guard"


async def test_a_block_after_a_question_blocks_without_asking(probe: Probe) -> None:
    yes = Yes()
    hooks = with_before(lambda _call: Ask("May it?"), lambda _call: Deny("no"))
    assert (await run_probe(probe, hooks, approver=yes)).as_text() == "no"
    assert yes.requests == []
    assert probe.ran == []


def throw(_call: Call) -> None:
    raise KeyError("oops")


async def throw_later(_call: Call) -> None:
    raise SystemExit(1)


async def hang(_call: Call) -> None:
    await asyncio.Event().wait()


def hang_in_second_step(_call: Call) -> Any:
    return hang(_call)


async def cancel_itself(_call: Call) -> None:
    raise asyncio.CancelledError


@pytest.mark.parametrize(
    ("hook", "words"),
    [
        (throw, "throw failed"),
        (throw_later, "throw_later failed"),
        (cancel_itself, "cancel_itself failed"),
        (hang, "hang took too long"),
        (hang_in_second_step, "hang_in_second_step took too long"),
        (lambda _call: True, "failed"),
        (lambda _call: {"block": False}, "failed"),
        (lambda _call: "yes", "failed"),
        (lambda _call: Rewrite(None), "failed"),  # type: ignore[arg-type]
        (lambda: None, "failed"),
    ],
)
async def test_a_hook_that_fails_blocks_the_call(
    probe: Probe, hook: Callable[..., Any], words: str
) -> None:
    timeout_s = 0.05 if "too long" in words else 30
    result = await run_probe(probe, with_before(hook, timeout_s=timeout_s))
    assert result.details["deniedReason"] == "hook-failed"
    assert "blocked because the hook" in result.as_text()
    assert words in result.as_text()
    assert probe.ran == []


async def test_a_hook_that_ignores_its_cancellation_blocks_too(probe: Probe) -> None:
    release, ended = asyncio.Event(), asyncio.Event()

    async def stubborn(_call: Call) -> None:
        while not release.is_set():
            with contextlib.suppress(asyncio.CancelledError):
                await release.wait()
        ended.set()

    result = await run_probe(probe, with_before(stubborn, timeout_s=0.05))
    assert "took too long" in result.as_text()
    assert probe.ran == []
    release.set()
    await ended.wait()


async def test_a_blocking_hook_delays_only_its_own_call(probe: Probe) -> None:
    release = threading.Event()

    def block(_call: Call) -> None:
        release.wait(60)

    hooks = Hooks()
    hooks.before(block, timeout_s=30)
    task = asyncio.create_task(run_probe(probe, hooks))
    other = Probe()
    assert (await run_probe(other, Hooks())).as_text() == "ran"
    assert not task.done()
    release.set()
    assert (await task).as_text() == "ran"


SLEEPER = """
import asyncio, time
from clawkit import Hooks, tool
from clawkit.testing import open_kit

@tool
def probe() -> str:
    "Probe."
    return "ran"

hooks = Hooks()
hooks.before(lambda call: time.sleep(3600), timeout_s=0.05)

async def main():
    async with open_kit(".", probe, hooks=hooks) as kit:
        print((await kit.call("probe")).as_text())

asyncio.run(main())
"""


def test_a_hook_that_sleeps_forever_does_not_keep_the_program_from_ending() -> None:
    done = subprocess.run(
        [sys.executable, "-c", SLEEPER], capture_output=True, text=True, timeout=60
    )
    assert done.returncode == 0, done.stderr
    assert "took too long" in done.stdout


@pytest.mark.parametrize(
    ("tools", "called"),
    [(None, True), ("PROBE", True), (["probe"], True), (("exec", "Bash"), False), ([], False)],
)
async def test_a_hook_may_be_for_some_tools_only(probe: Probe, tools: Any, called: bool) -> None:
    seen: list[Any] = []
    hooks = Hooks()
    hooks.before(seen.append, tools=tools)
    hooks.after(lambda call, _result: seen.append(call), tools=tools)
    await run_probe(probe, hooks)
    assert len(seen) == (2 if called else 0)


async def test_a_hook_for_an_alias_applies_to_the_tool() -> None:
    seen: list[Call] = []
    hooks = Hooks()
    hooks.before(seen.append, tools=("bash",))
    probe = Probe()
    tool = Tool("exec", "Run.", {}, probe.execute)
    await call(Run({"exec": tool}, "/", hooks=hooks), CallRequest("Bash"))
    assert len(seen) == 1


@table("name", ["group:fs", "ex*", "", "a b"])
def test_a_hook_that_could_never_run_is_refused(name: str) -> None:
    hooks = Hooks()
    with pytest.raises(RegistryError, match="is not a valid one"):
        hooks.before(throw, tools=("read", name))
    with pytest.raises(RegistryError, match="is not a valid one"):
        hooks.after(lambda _call, _result: None, tools=name)


def test_before_and_after_can_be_used_as_decorators() -> None:
    hooks = Hooks()
    assert hooks.before(throw) is throw
    after = hooks.after(lambda _call, _result: None)
    assert after is not None


def test_the_timeout_of_a_hook_is_limited() -> None:
    hooks = Hooks()
    hooks.before(throw, timeout_s=1e9)
    assert hooks._before[0].timeout_s == MAX_TIMEOUT_S


class Guard:
    """A hook with a state."""

    async def __call__(self, _call: Call) -> Deny:
        return Deny("")


async def test_an_object_can_be_a_hook(probe: Probe) -> None:
    assert "the hook Guard" in (await run_probe(probe, with_before(Guard()))).as_text()


async def test_after_hooks_may_replace_the_result_one_after_the_other(probe: Probe) -> None:
    hooks = Hooks()
    hooks.after(lambda _call, result: Result.text(result.as_text() + " twice"))
    hooks.after(lambda _call, result: Result.text("not " + result.as_text()), priority=5)
    hooks.after(lambda _call, _result: None)

    async def as_text(_call: Call, result: Result) -> Any:
        return result.as_text() + "!"

    hooks.after(as_text, priority=-1)
    assert (await run_probe(probe, hooks)).as_text() == "not ran twice!"


async def test_after_hooks_see_failures_too(probe: Probe) -> None:
    seen: list[bool] = []

    async def fail(_params: Any, _ctx: Context) -> None:
        raise ValueError("broken")

    hooks = Hooks()
    hooks.after(lambda _call, result: seen.append(result.is_error))
    tool = Tool("probe", "Probe.", {}, fail)
    await call(Run({"probe": tool}, "/", hooks=hooks), CallRequest("probe"))
    assert seen == [True]


@pytest.mark.parametrize(
    ("hook", "timeout_s"),
    [
        (lambda _call, _result: throw(_call), 30),
        (lambda _call, _result: object(), 30),
        (lambda _call, _result: hang(_call), 0.05),
        (lambda _call: None, 30),
    ],
)
async def test_when_an_after_hook_fails_the_result_stands(
    probe: Probe, hook: Callable[..., Any], timeout_s: float
) -> None:
    hooks = Hooks()
    hooks.after(hook, timeout_s=timeout_s)
    hooks.after(lambda _call, result: Result.text(result.as_text() + " on"))
    assert (await run_probe(probe, hooks)).as_text() == "ran on"


async def test_an_after_hook_cannot_change_what_the_next_one_sees_of_the_call(probe: Probe) -> None:
    seen: list[Any] = []

    def meddle(call: Call, _result: Result) -> None:
        seen.append(dict(call.params))
        call.params["env"].clear()

    hooks = Hooks()
    hooks.after(meddle)
    hooks.after(lambda call, _result: seen.append(call.params))
    await run_probe(probe, hooks, {"env": {"A": "1"}})
    assert seen[1] == {"env": {"A": "1"}}
