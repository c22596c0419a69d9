"""A `tool_call` is replaced by the call it carries, before anything looks at it."""

from __future__ import annotations

import json
from typing import Any

from tests.core.parts import QUESTION, Answering, Listener, always, echo, make, run_of
from tests.tables import table

from clawkit.core.approval import Answer, Deny
from clawkit.core.call import Admission, CallRequest, GuardedCall, Run, call, call_all
from clawkit.core.hooks import Call, Hooks
from clawkit.core.result import Result
from clawkit.tools.tool_call import TOOL

INNER = {"name": "Far_Away", "args": {"path": "x"}}


def far_run(**options: Any) -> Run:
    tools = make("Far_Away", echo), make("near", echo), TOOL
    return run_of(*tools, deferred=frozenset(("far_away",)), **options)


async def carried(params: object, name: str = "tool_call", **options: Any) -> Result:
    return await call(far_run(**options), CallRequest(name, params))


@table(
    ("name", "params"),
    [
        ("tool_call", INNER),
        (" Tool_Call ", INNER),
        ("tool_call", json.dumps(INNER)),
        ("tool_call", {"name": "Far_Away", "args": '{"path": "x"}'}),
        ("tool_call", {"id": "FAR_AWAY", "arguments": {"path": "x"}}),
        ("tool_call", {"toolName": " far_away ", "parameters": {"path": "x"}}),
        ("tool_call", {"tool": "far_away", "input": {"path": "x"}}),
    ],
)
async def test_every_spelling_reaches_the_target(name: str, params: object) -> None:
    result = await carried(params, name)
    assert result.details == {"params": {"path": "x"}, "calledTool": "Far_Away"}


@table(
    ("params", "code", "words"),
    [
        ({"name": "near"}, 400, "'near' is not deferred; call it directly"),
        ({"name": "tool_call", "args": INNER}, 400, "'tool_call' is not deferred"),
        ({"name": " TOOL_CALL", "args": json.dumps(INNER)}, 400, "'TOOL_CALL' is not deferred"),
        ({"name": "gone"}, 403, "the owner said no"),
        ({"name": "bash", "args": {"command": "id"}}, 403, "exec is denied"),
        ({"name": "far_awey"}, 404, "did you mean 'far_away'?"),
        ({"name": "canvas"}, 404, "not available in this build"),
        ({}, 400, "name: missing"),
        ({"name": ""}, 400, "name: "),
        ({"name": 7}, 400, "name: "),
        ({"name": ["far_away"]}, 400, "name: "),
        ({"name": "far_away", "id": "near"}, 400, "name: given twice"),
        ({"name": "far_away", "path": "x"}, 400, "path: unknown parameter"),
        ({"name": "far_away", "args": "x"}, 400, "args: "),
        ({"name": "far_away", "args": [INNER]}, 400, "args: "),
        ("[", 400, "not valid JSON"),
        ("[" * 100_000, 400, "not valid JSON"),
        ({"name": "far_away", "args": {"path": 1}}, 400, "Far_Away: invalid parameters: path"),
        (object(), 400, "must be a JSON object"),
        ({"name": "far_away", "args": {"env": object()}}, 400, "not plain JSON"),
    ],
)
async def test_an_invalid_carried_call_is_an_error(params: object, code: int, words: str) -> None:
    refused = {"gone": "the owner said no", "exec": "exec is denied"}
    result = await carried(params, refused=refused)
    assert result.is_error
    assert result.details["code"] == code
    assert words in str(result.details.get("error") or result.as_text())


async def test_hooks_rules_people_listeners_and_the_guard_see_only_the_target() -> None:
    seen: list[Any] = []

    def before(call: Call) -> None:
        seen.append((call.tool, call.params))

    class Guard:
        def begin(self) -> None: ...
        def compacted(self) -> None: ...
        def admit(self, calls: list[GuardedCall]) -> Admission:
            seen.extend(calls)
            return Admission(calls)

        def note(self, _ticket: object, result: Result, *, acts: bool) -> Result:
            seen.append(acts)
            return result

    hooks, person, events = Hooks(), Answering(Answer("allow")), Listener()
    hooks.before(before, tools="far_away")
    hooks.before(before, tools="tool_call")
    options: dict[str, Any] = {"rules": always(QUESTION), "approver": person, "watch": Guard()}
    run = far_run(hooks=hooks, **options)
    [result] = await call_all(run, [CallRequest("tool_call", INNER, "c1")], events)
    assert not result.is_error
    params = {"path": "x"}
    assert seen == [GuardedCall("far_away", params), ("Far_Away", params), True]
    [question] = person.requests
    assert (question.tool, question.params, question.call_id) == ("Far_Away", params, "c1")
    assert [(e["type"], e["tool"], e["callId"]) for e in events] == [
        ("start", "Far_Away", "c1"),
        ("end", "Far_Away", "c1"),
    ]


async def test_a_rule_about_the_target_denies_it_and_the_result_says_what_was_called() -> None:
    def rules(tool: Any, params: Any, _ctx: object) -> Deny | None:
        return Deny("not there") if (tool.name, params["path"]) == ("Far_Away", "x") else None

    result = await carried(INNER, rules=rules)
    assert result.details["status"] == "blocked"
    assert result.details["calledTool"] == "Far_Away"


async def test_without_deferred_tools_tool_call_is_refused() -> None:
    run = run_of(make("far_away", echo), refused={"tool_call": "it is off"})
    result = await call(run, CallRequest("tool_call", INNER))
    assert (result.details["code"], result.as_text()) == (403, "it is off")
