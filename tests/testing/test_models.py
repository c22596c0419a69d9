"""A model that says what a test wants it to say."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any

import pytest
from tests.tables import table

from clawkit import testing
from clawkit.content import (
    Assistant,
    Image,
    Message,
    Summary,
    Text,
    Thinking,
    ToolCall,
    ToolResult,
    Usage,
    User,
)
from clawkit.models.protocols import (
    CallDelta,
    CallStarted,
    Delta,
    Facts,
    Model,
    ModelError,
    Request,
    TextDelta,
    ThinkingDelta,
    ToolSpec,
)
from clawkit.testing import Gate, ScriptedModel, call, calls, hang, say, think
from clawkit_testkit import fault


def ask(*messages: Message, **more: Any) -> Request:
    return Request(more.pop("system", ""), messages or (User((Text("Hello?"),)),), **more)


async def answer(model: Model, request: Request | None = None) -> Assistant:
    *_, last = [item async for item in model.stream(request or ask())]
    assert isinstance(last, Assistant)
    return last


async def deltas(model: Model) -> Sequence[Delta]:
    return [item async for item in model.stream(ask()) if not isinstance(item, Assistant)]


@table(
    ("said", "content", "stop"),
    [
        ("Hello.", (Text("Hello."),), "stop"),
        ("", (Text(""),), "stop"),
        (say("Hello."), (Text("Hello."),), "stop"),
        (call("ls"), (ToolCall("call_1", "ls"),), "tool_calls"),
        (call("ls", {"a": 1}, id="x"), (ToolCall("x", "ls", {"a": 1}),), "tool_calls"),
        (call("ls", '{"a":'), (ToolCall("call_1", "ls", '{"a":'),), "tool_calls"),
        (
            calls(("ls", {}), call("read", {"path": "a"})),
            (ToolCall("call_1", "ls"), ToolCall("call_2", "read", {"path": "a"})),
            "tool_calls",
        ),
        (
            [think("Hm.", "proof"), "So.", call("ls")],
            (Thinking("Hm.", "proof"), Text("So."), ToolCall("call_1", "ls")),
            "tool_calls",
        ),
        (Assistant((ToolCall("x", "ls"),)), (ToolCall("x", "ls"),), "tool_calls"),
        (Assistant((ToolCall("x", "ls"),), "length"), (ToolCall("x", "ls"),), "length"),
        (fault.refusal("No."), (Text("No."),), "refusal"),
        (fault.empty_reply(), (), "stop"),
        (lambda _request: "Hello.", (Text("Hello."),), "stop"),
        (lambda _request: call("ls"), (ToolCall("call_1", "ls"),), "tool_calls"),
        (lambda _request: lambda _again: "Deep.", (Text("Deep."),), "stop"),
    ],
)
async def test_every_kind_of_scripted_answer_becomes_a_message(
    said: Any, content: tuple[Any, ...], stop: str
) -> None:
    message = await answer(ScriptedModel(said))
    assert (message.content, message.stop) == (content, stop)
    assert (message.model, message.api) == ("scripted/model", "scripted")


async def test_answers_come_in_order_and_requests_are_kept_as_they_were() -> None:
    model = ScriptedModel("one", "two", "three")
    messages: list[Message] = [User((Text("first"),))]
    assert (await answer(model, Request("", messages))).text == "one"
    messages.append(User((Text("second"),)))
    assert (await answer(model, Request("", messages))).text == "two"
    assert [len(request.messages) for request in model.requests] == [1, 2]
    assert model.left == 1
    model.add("four")
    assert model.left == 2


async def test_answers_are_streamed_in_pieces() -> None:
    model = ScriptedModel([think("I think so."), say("Yes, it is."), call("ls", {"path": "a"})])
    seen = await deltas(model)
    thought = [item.text for item in seen if isinstance(item, ThinkingDelta)]
    said = [item.text for item in seen if isinstance(item, TextDelta)]
    wrote = [item.text for item in seen if isinstance(item, CallDelta)]
    assert ["".join(pieces) for pieces in (thought, said, wrote)] == [
        "I think so.",
        "Yes, it is.",
        '{"path":"a"}',
    ]
    assert min(map(len, (thought, said, wrote))) > 1
    assert [item for item in seen if isinstance(item, CallStarted)] == [
        CallStarted(0, "call_1", "ls")
    ]


async def test_calls_of_one_answer_are_told_apart() -> None:
    seen = await deltas(ScriptedModel(fault.duplicate_ids()))
    assert [item.number for item in seen if isinstance(item, CallStarted)] == [0, 1]
    assert {item.number for item in seen if isinstance(item, CallDelta)} == {0, 1}


async def test_usage_is_counted_from_characters_unless_it_is_given() -> None:
    given = Assistant((Text("Hi."),), usage=Usage(7, 8, 9))
    model = ScriptedModel("x" * 400, given, [think("x" * 40), call("abcd", {"a": 1})])
    request = ask(
        User((Text("x" * 40), Image("y" * 40, "image/png"))),
        Summary("x" * 40),
        Assistant((Text("x" * 40), ToolCall("1", "abcd", {"a": "\ud800"}))),
        ToolResult("1", "abcd", (Text("x" * 40),)),
        system="x" * 40,
        tools=(ToolSpec("abcd", "x" * 36, {}),),
    )
    usage = (await answer(model, request)).usage
    assert usage.output == 100
    assert 70 <= usage.input <= 75
    assert (await answer(model)).usage == Usage(7, 8, 9)
    assert (await answer(model)).usage.output == 13


async def test_a_function_sees_the_request_and_may_be_async() -> None:
    async def later(request: Request) -> str:
        await asyncio.sleep(0)
        return f"{len(request.tools)} tools, {request.session}"

    model = ScriptedModel(later)
    request = ask(tools=(ToolSpec("ls", "", {}),), session="main")
    assert (await answer(model, request)).text == "1 tools, main"


async def test_an_error_of_the_script_is_raised() -> None:
    error = ModelError("rate_limit", "later", retry_after_s=2)
    model = ScriptedModel(error, lambda _request: error)
    for _ in range(2):
        with pytest.raises(ModelError) as raised:
            await answer(model)
        assert raised.value is error


async def test_more_requests_than_answers_are_a_clear_error() -> None:
    model = ScriptedModel("one", ref="fake/small")
    await answer(model)
    with pytest.raises(ModelError, match=r"fake/small: the script has no more answers; all 1") as e:
        await answer(model)
    assert e.value.kind == "invalid"
    assert len(model.requests) == 2


async def test_an_answer_for_everything_after_the_last() -> None:
    model = ScriptedModel("one", then="more")
    assert [(await answer(model)).text for _ in range(3)] == ["one", "more", "more"]


@table("nothing", [7, None, [7], {"text": "x"}, [None]])
async def test_objects_that_are_not_answers_are_refused(nothing: Any) -> None:
    with pytest.raises(TypeError, match="is no"):
        await answer(ScriptedModel(lambda _request: nothing))


async def test_hanging_ends_when_it_is_cancelled() -> None:
    model = ScriptedModel(hang(), "next")
    task = asyncio.ensure_future(answer(model))
    while not model.requests:
        await asyncio.sleep(0)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert (await answer(model)).text == "next"


@table("after", [0, 2, 100])
async def test_a_gate_holds_an_answer_until_it_is_released(after: int) -> None:
    gate = Gate("abcdefgh", after=after)
    seen: list[object] = []

    async def read() -> None:
        async for item in ScriptedModel(gate).stream(ask()):
            seen.append(item)

    task = asyncio.ensure_future(read())
    await gate.reached.wait()
    assert len(seen) == min(after, 4)
    gate.release()
    await task
    assert len(seen) == 5


def test_every_public_name_can_be_imported_and_no_other() -> None:
    for name in testing.__all__:
        assert getattr(testing, name) is not None
    with pytest.raises(AttributeError, match="has no attribute 'ScriptedModem'"):
        _ = testing.ScriptedModem


async def test_facts_and_names_are_those_given() -> None:
    model: Model = ScriptedModel("x", ref="Fake/Big", api="other", facts=Facts("Big", 1_000))
    assert (str(model.ref), model.api, model.facts.context_window) == ("fake/Big", "other", 1_000)
    message = await answer(model)
    assert (message.model, message.api) == ("fake/Big", "other")
