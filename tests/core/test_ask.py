"""Rules, and the approval of a person."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import Any

import pytest
from tests.core.parts import (
    QUESTION,
    SECRET,
    Answering,
    always,
    echo,
    make,
    once,
    run_of,
)
from tests.tables import table

from clawkit.core.approval import MAX_TIMEOUT_S, Answer, Ask, Deny, Lasting, Question
from clawkit.core.call import CallRequest, call
from clawkit.core.context import Context, Scope
from clawkit.core.hooks import Hooks, Rewrite
from clawkit.core.tool import Tool
from clawkit.errors import ToolAuthorizationError
from clawkit.redact import Redactor


async def test_cancelling_the_call_withdraws_the_question() -> None:
    asked, stopped = asyncio.Event(), asyncio.Event()

    class Slow:
        async def ask(self, _request: Question) -> Answer:
            asked.set()
            try:
                await asyncio.Event().wait()
            finally:
                stopped.set()
            return Answer("allow")

    rules = always(Ask("May it?"))
    task = asyncio.create_task(once(echo, rules=rules, approver=Slow()))
    await asked.wait()
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert stopped.is_set()


async def test_a_person_who_allows_lets_the_call_go_on_once() -> None:
    person = Answering(Answer("allow"))
    run = run_of(make("probe", echo), rules=always(QUESTION), approver=person)
    for _ in range(2):
        assert not (await call(run, CallRequest("probe", {"path": "a"}, "c1"))).is_error
    assert person.requests[0] == Question(
        tool="probe",
        params={"path": "a"},
        title="Pay 5?",
        description="It is much",
        asked_by="tools.rules[3]",
        to_allow="clawkit config set x",
        call_id="c1",
    )
    assert len(person.requests) == 2


@table(
    ("answer", "words"),
    [
        (Answer("deny"), "Pay 5?: refused. This is final"),
        (Answer("deny", "too much"), "refused (too much)"),
        (KeyError("oops"), "asking for approval failed"),
        (SystemExit(1), "asking for approval failed"),
        (asyncio.CancelledError(), "asking for approval failed"),
        (None, "refused"),
        (True, "refused"),
        ("allow", "refused"),
        (Answer("ALLOW"), "refused"),  # type: ignore[arg-type]
    ],
)
async def test_anything_but_a_clear_yes_is_a_denial(answer: object, words: str) -> None:
    ran: list[object] = []

    async def note(params: Any, _ctx: Context) -> None:
        ran.append(params)

    result = await once(note, rules=always(QUESTION), approver=Answering(answer))
    assert words in result.as_text()
    assert result.details["deniedReason"] == "approval"
    assert ran == []


async def test_a_question_without_an_answer_in_time_is_denied() -> None:
    class Silent:
        async def ask(self, _request: Question) -> Answer:
            await asyncio.Event().wait()
            return Answer("allow")

    rules = always(Ask("May it?", timeout_s=0.01))
    result = await once(echo, rules=rules, approver=Silent())
    assert "no answer within 0.01 s" in result.as_text()


@table(("wanted", "given"), [(1e9, MAX_TIMEOUT_S), (-1.0, 0.0), (float("inf"), MAX_TIMEOUT_S)])
async def test_the_time_to_answer_is_bounded(wanted: float, given: float) -> None:
    person = Answering(Answer("allow"))
    await once(echo, rules=always(Ask("May it?", timeout_s=wanted)), approver=person)
    if given:
        assert [request.timeout_s for request in person.requests] == [given]
    else:
        assert all(request.timeout_s == 0 for request in person.requests)


async def test_without_an_approver_the_refusal_names_the_setting_that_allows_it() -> None:
    result = await once(echo, rules=always(QUESTION))
    assert result.details["deniedReason"] == "approval-unavailable"
    assert "in a terminal. To allow it: clawkit config set x" in result.as_text()
    assert "To allow" not in (await once(echo, rules=always(Ask("May it?")))).as_text()


async def test_the_person_is_not_shown_known_secrets_and_cannot_change_the_call() -> None:
    class Meddling(Answering):
        async def ask(self, request: Question) -> Answer:
            request.params["env"]["A"] = "changed"
            return await super().ask(request)

    person = Meddling(Answer("allow"))
    given = {"path": SECRET, "env": {"A": "1"}}
    redactor = Redactor([SECRET])
    run = run_of(make("probe", echo), rules=always(QUESTION), approver=person, redactor=redactor)
    result = await call(run, CallRequest("probe", given))
    assert SECRET not in repr(person.requests)
    assert result.details["params"]["env"] == {"A": "1"}


async def test_a_hook_and_a_rule_may_both_want_to_ask() -> None:
    person = Answering(Answer("allow"))
    hooks = Hooks()
    hooks.before(lambda _call: Ask("The hook asks"))
    await once(echo, rules=always(Ask("The rule asks")), hooks=hooks, approver=person)
    assert [request.title for request in person.requests] == ["The hook asks", "The rule asks"]


def deny_outside(_tool: Tool, params: Mapping[str, Any], _ctx: Context) -> Deny | None:
    return Deny("outside") if str(params.get("path")).startswith("/") else None


async def test_rules_come_after_hooks_so_that_none_can_rewrite_a_call_past_them() -> None:
    hooks = Hooks()
    hooks.before(lambda _call: Rewrite({"path": "/etc/passwd"}))
    result = await once(echo, {"path": "a"}, hooks=hooks, rules=deny_outside)
    assert result.as_text() == "outside"
    assert result.details["deniedReason"] == "rule"


async def test_a_rule_that_blocks_is_not_overruled_by_a_person() -> None:
    person = Answering(Answer("allow"))
    hooks = Hooks()
    hooks.before(lambda _call: Ask("May it?"))
    result = await once(echo, {"path": "/etc"}, hooks=hooks, rules=deny_outside, approver=person)
    assert result.details["deniedReason"] == "rule"
    assert person.requests == []


async def test_omitting_a_parameter_does_not_bypass_a_rule_about_its_default() -> None:
    def rule(_tool: Tool, params: Mapping[str, Any], _ctx: Context) -> Deny | None:
        return Deny("ten is too much") if params.get("size") == 10 else None

    assert (await once(echo, {}, rules=rule)).as_text() == "ten is too much"
    assert (await once(echo, {"size": 9}, rules=rule)).details == {"params": {"size": 9}}


async def test_a_rule_that_fails_stops_the_call() -> None:
    def rule(_tool: Tool, _params: Mapping[str, Any], _ctx: Context) -> None:
        raise KeyError("oops")

    result = await once(echo, rules=rule)
    assert result.details["error"] == "KeyError: 'oops'"


async def test_a_call_whose_meaning_changed_while_a_person_decided_does_not_run() -> None:
    verdicts: list[Ask | None] = [QUESTION, Ask("Something else?")]
    run = run_of(
        make("probe", echo),
        rules=lambda _tool, _params, _ctx: verdicts.pop(0),
        approver=Answering(Answer("allow")),
    )
    result = await call(run, CallRequest("probe"))
    assert "changed while a person was deciding" in result.as_text()
    assert result.details["deniedReason"] == "rule"


async def ask_in_the_middle(_params: object, ctx: Context) -> str:
    await ctx.ask(QUESTION)
    return "done"


async def test_a_tool_can_have_a_person_decide_in_the_middle_of_a_call() -> None:
    person = Answering(Answer("allow"))
    result = await once(ask_in_the_middle, {"path": "a"}, approver=person)
    assert result.as_text() == "done"
    assert person.requests[0].title == "Pay 5?"
    assert person.requests[0].params == {"path": "a"}
    no = await once(ask_in_the_middle, {}, approver=Answering(Answer("deny", "not now")))
    assert (no.details["status"], no.details["deniedReason"]) == ("blocked", "approval")
    assert "not now" in no.as_text()


async def test_a_question_of_a_tool_names_the_tool() -> None:
    async def ask(_params: object, ctx: Context) -> str:
        await ctx.ask(Ask("May it?"))
        return "done"

    person = Answering(Answer("allow"))
    await once(ask, {}, approver=person)
    assert person.requests[0].asked_by == f"the tool {person.requests[0].tool}" != "the tool "


async def test_a_tool_that_asks_without_an_approver_is_denied() -> None:
    result = await once(ask_in_the_middle)
    assert result.details["deniedReason"] == "approval-unavailable"
    with pytest.raises(ToolAuthorizationError, match="no one can be asked here"):
        await Context("1", Scope(), "/ws").ask(QUESTION)


async def test_a_tool_can_check_the_rules_for_paths_it_finds() -> None:
    def rules(_tool: Tool, params: Mapping[str, Any], _ctx: Context) -> Deny | Ask | None:
        path = params.get("path")
        return Deny("no") if path == "b" else Ask("?") if path == "c" else None

    async def look(_params: object, ctx: Context) -> str:
        return " ".join(each for each in "abcd" if ctx.permits(each))

    run = run_of(make("probe", look, paths=("path",)), rules=rules)
    assert (await call(run, CallRequest("probe", {"path": "a"}))).as_text() == "a d"
    assert Context("1", Scope(), "/ws").permits("b")


async def test_paths_found_by_a_tool_are_judged_with_the_defaults_of_the_call() -> None:
    def rules(_tool: Tool, params: Mapping[str, Any], _ctx: Context) -> Deny | Ask | None:
        return Deny("no") if params.get("path") == "b" and params.get("size") == 10 else None

    async def look(_params: object, ctx: Context) -> str:
        return " ".join(each for each in "ab" if ctx.permits(each))

    run = run_of(make("probe", look, paths=("path",)), rules=rules)
    assert (await call(run, CallRequest("probe", {}))).as_text() == "a"
    assert (await call(run, CallRequest("probe", {"size": 11}))).as_text() == "a b"


async def test_an_approval_covers_the_paths_of_the_same_rule() -> None:
    def rules(_tool: Tool, params: Mapping[str, Any], _ctx: Context) -> Deny | Ask | None:
        asks = {"a": "rules[0]", "a/b": "rules[0]", "c": "rules[1]"}
        rule = asks.get(params.get("path", ""))
        return Ask("?", asked_by=rule) if rule else None

    async def look(_params: object, ctx: Context) -> str:
        return " ".join(each for each in ("a", "a/b", "c", "d") if ctx.permits(each))

    run = run_of(
        make("probe", look, paths=("path",)), rules=rules, approver=Answering(Answer("allow"))
    )
    assert (await call(run, CallRequest("probe", {"path": "a"}))).as_text() == "a a/b d"
    assert (await call(run, CallRequest("probe", {"path": "d"}))).as_text() == "d"


async def test_an_approver_that_reaches_no_one_writes_its_own_refusal() -> None:
    nobody = ToolAuthorizationError("no one can be asked here", reason="approval-unavailable")
    result = await once(echo, rules=always(QUESTION), approver=Answering(nobody))
    assert "no one can be asked here" in result.as_text()
    assert result.details["deniedReason"] == "approval-unavailable"


def test_approvals_for_the_session_are_not_stored() -> None:
    exact, session = Lasting("exact", "this"), Lasting("session", "this")
    assert Question("exec", {}, "Run it?", lasting=(exact, session)).stored == (exact,)
