"""The loop: a model, tools, and a conversation that can always be continued."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Iterable, Sequence
from pathlib import Path
from typing import Any

import pytest

from clawkit import Result, Toolkit, tool
from clawkit.agent.compact import CompactionSettings
from clawkit.agent.events import (
    AnswerRestarted,
    AnswerStored,
    Compacted,
    Event,
    MessageAdded,
    Notice,
    ResultStored,
    TextPiece,
    ToolEvent,
    TurnEnded,
    TurnStarted,
)
from clawkit.agent.loop import Conversation, TurnLimits, specs_of
from clawkit.content import (
    Assistant,
    Image,
    Message,
    Summary,
    Text,
    ToolCall,
    ToolResult,
    Usage,
    User,
)
from clawkit.core.tool import Tool
from clawkit.errors import ToolError
from clawkit.models.protocols import Again, Delta, Facts, ModelError, Request, TextDelta
from clawkit.testing import open_kit
from clawkit.testing.answers import Gate, ScriptedModel, call, calls, hang

Talk = Callable[..., Conversation]


class Kept:
    """A transcript in memory."""

    def __init__(self) -> None:
        self.messages: list[Message] = []
        self.fail = False

    def append(self, message: Message, *, is_redacted: bool = False) -> None:
        if self.fail:
            raise ToolError("the disk is full")
        self.messages.append(message)

    def compact(self, summary: Summary, kept: Sequence[Message]) -> None:
        self.messages = [summary, *kept]


class Heard(list[Event]):
    def __call__(self, event: Event) -> None:
        self.append(event)

    def of(self, kind: type) -> list[Any]:
        return [event for event in self if isinstance(event, kind)]


@tool
async def double(number: int) -> str:
    """Twice the number.

    Args:
        number: what to double
    """
    return str(2 * number)


@pytest.fixture
async def kit(tmp_path: Path) -> AsyncIterator[Toolkit]:
    async with open_kit(tmp_path, double) as kit:
        yield kit


def open_talk(kit: Toolkit, model: Any, **options: Any) -> Conversation:
    options.setdefault("tell", Heard())
    options.setdefault("transcript", Kept())
    run = kit.run
    return Conversation(run, model, "You help.", specs_of(run), **options)


def kinds(messages: Iterable[Message]) -> list[str]:
    return [type(message).__name__ for message in messages]


def assert_consistent(messages: Sequence[Message]) -> None:
    """Every call has its result right behind the answer, in order, and no result is alone."""
    waiting: list[str] = []
    for message in messages:
        if isinstance(message, ToolResult):
            assert waiting, "a result nobody asked for"
            assert message.call_id == waiting.pop(0)
        else:
            assert waiting == []
            if isinstance(message, Assistant):
                waiting = [each.id for each in message.calls]
    assert waiting == []


async def test_an_answer_without_calls_ends_the_turn(kit: Toolkit) -> None:
    model = ScriptedModel("Hello there.")
    talk = open_talk(kit, model)
    ended = await talk.turn("Hi")
    assert (ended.how, ended.text, ended.error) == ("done", "Hello there.", "")
    assert kinds(talk.history) == ["User", "Assistant"]
    heard: Any = talk.tell
    assert isinstance(heard[0], TurnStarted)
    assert "".join(piece.text for piece in heard.of(TextPiece)) == "Hello there."
    assert isinstance(heard[-1], TurnEnded)
    assert ended.usage.output > 0


async def test_calls_are_run_and_their_results_sent_to_the_model(kit: Toolkit) -> None:
    model = ScriptedModel(call("double", {"number": 21}), "It is 42.")
    talk = open_talk(kit, model)
    ended = await talk.turn("double 21")
    assert ended.text == "It is 42."
    result = talk.history[2]
    assert isinstance(result, ToolResult)
    assert result.content == (Text("42"),)
    assert model.requests[1].messages[-1] is result
    assert talk.transcript.messages == talk.history  # type: ignore[union-attr]
    heard: Any = talk.tell
    assert [event.event["type"] for event in heard.of(ToolEvent)] == ["start", "end"]
    assert [type(event) for event in heard if isinstance(event, (AnswerStored, ResultStored))] == [
        AnswerStored,
        ResultStored,
        AnswerStored,
    ]


async def test_messages_are_the_same_objects_in_the_next_request(kit: Toolkit) -> None:
    model = ScriptedModel(call("double", {"number": 1}), "ok", "again")
    talk = open_talk(kit, model)
    await talk.turn("one")
    await talk.turn("two")
    first, last = model.requests[0].messages, model.requests[-1].messages
    assert all(one is other for one, other in zip(first, last, strict=False))
    assert model.requests[0].tools is model.requests[-1].tools


async def test_results_are_in_the_order_of_the_calls(tmp_path: Path) -> None:
    done: list[str] = []
    kept = Kept()

    async def wait(params: Any, ctx: Any) -> Result:
        # The first ends when the second has been kept.
        while params["name"] == "a" and not any(isinstance(m, ToolResult) for m in kept.messages):
            await asyncio.sleep(0.001)
        done.append(params["name"])
        return Result.text(params["name"])

    slow = Tool(
        "slow",
        "Waits.",
        {"type": "object", "properties": {"name": {"type": "string"}}},
        wait,
        effects=lambda _params, _ctx: (),
    )
    async with open_kit(tmp_path, slow) as kit:
        model = ScriptedModel(calls(("slow", {"name": "a"}), ("slow", {"name": "b"})), "ok")
        talk = open_talk(kit, model, transcript=kept)
        await talk.turn("go")
    assert done == ["b", "a"]
    results = [m for m in talk.history if isinstance(m, ToolResult)]
    assert [result.content for result in results] == [(Text("a"),), (Text("b"),)]
    assert_consistent(talk.history)
    # They are kept as soon as they are there, not when all are.
    stored = [m for m in kept.messages if isinstance(m, ToolResult)]
    assert [result.content for result in stored] == [(Text("b"),), (Text("a"),)]


async def test_unknown_tools_and_bad_arguments_are_results_the_model_can_act_on(
    kit: Toolkit,
) -> None:
    wrong = calls(("dubble", {}), ("double", {"number": "x"}))
    model = ScriptedModel([*wrong, call("double", "{broken")], "sorry")
    talk = open_talk(kit, model)
    ended = await talk.turn("go")
    assert ended.how == "done"
    results = [m for m in talk.history if isinstance(m, ToolResult)]
    assert [result.is_error for result in results] == [True, True, True]
    texts = [result.content[0].text for result in results if isinstance(result.content[0], Text)]
    assert "double" in texts[0]
    assert "number" in texts[1]
    assert "JSON" in texts[2]


async def test_a_call_that_was_cut_off_is_not_run(kit: Toolkit) -> None:
    cut = Assistant((ToolCall("c1", "double", '{"number": 2'),), "length")
    model = ScriptedModel(cut, "smaller then")
    talk = open_talk(kit, model)
    await talk.turn("go")
    result = talk.history[2]
    assert isinstance(result, ToolResult)
    assert result.is_error
    assert "cut off" in result.content[0].text  # type: ignore[union-attr]
    assert_consistent(talk.history)


async def test_two_hundred_calls_in_one_message(kit: Toolkit) -> None:
    many = calls(*(("double", {"number": number}) for number in range(200)))
    talk = open_talk(kit, ScriptedModel(many, "done"))
    ended = await talk.turn("go")
    assert ended.how == "done"
    results = [m for m in talk.history if isinstance(m, ToolResult)]
    assert [result.content[0].text for result in results] == [str(2 * n) for n in range(200)]  # type: ignore[union-attr]


async def test_an_enormous_result_is_cut_before_the_model_sees_it(tmp_path: Path) -> None:
    @tool
    async def flood() -> str:
        """Says very much."""
        return "x" * 5_000_000

    async with open_kit(tmp_path, flood) as kit:
        model = ScriptedModel(call("flood"), "much")
        talk = open_talk(kit, model)
        await talk.turn("go")
    result = talk.history[2]
    assert isinstance(result, ToolResult)
    assert len(result.content[0].text) <= 64_000  # type: ignore[union-attr]


async def test_steering_is_read_before_the_next_answer(kit: Toolkit) -> None:
    gate = Gate(call("double", {"number": 1}))
    model = ScriptedModel(gate, "as you wish")
    talk = open_talk(kit, model)
    task = asyncio.create_task(talk.turn("start"))
    await gate.reached.wait()
    talk.steer("be brief")
    assert talk.queued == 1
    gate.release()
    await task
    assert kinds(talk.history) == ["User", "Assistant", "ToolResult", "User", "Assistant"]
    assert talk.history[3].content == (Text("be brief"),)  # type: ignore[union-attr]
    heard: Any = talk.tell
    assert [event.steering for event in heard.of(MessageAdded)] == [False, True]
    assert talk.queued == 0


async def test_steering_during_a_last_answer_makes_the_turn_go_on(kit: Toolkit) -> None:
    gate = Gate("done")
    model = ScriptedModel(gate, "done otherwise")
    talk = open_talk(kit, model)
    task = asyncio.create_task(talk.turn("start"))
    await gate.reached.wait()
    talk.steer("differently")
    gate.release()
    assert (await task).text == "done otherwise"


async def test_a_follow_up_waits_until_the_model_is_done(kit: Toolkit) -> None:
    model = ScriptedModel(call("double", {"number": 1}), "first done", "second done")
    talk = open_talk(kit, model)
    talk.follow_up("and now this")
    assert (await talk.turn("first")).text == "second done"
    assert kinds(talk.history) == [
        *("User", "Assistant", "ToolResult", "Assistant"),
        *("User", "Assistant"),
    ]


async def test_aborting_an_answer_keeps_its_text_and_none_of_its_calls(kit: Toolkit) -> None:
    gate = Gate([Text("I will now"), ToolCall("c", "double", {"number": 1})], after=4)
    talk = open_talk(kit, ScriptedModel(gate, "fine"))
    task = asyncio.create_task(talk.turn("go"))
    await gate.reached.wait()
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    last = talk.history[-1]
    assert isinstance(last, Assistant)
    assert (last.stop, last.text, last.calls) == ("aborted", "I will now", ())
    heard: Any = talk.tell
    assert heard[-1].how == "aborted"
    assert (await talk.turn("go on")).text == "fine"
    assert_consistent(talk.history)


async def test_aborting_before_the_first_word_leaves_only_the_question(kit: Toolkit) -> None:
    model = ScriptedModel(hang(), "fine")
    talk = open_talk(kit, model)
    task = asyncio.create_task(talk.turn("go"))
    while not model.requests:
        await asyncio.sleep(0.001)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert kinds(talk.history) == ["User"]
    assert (await talk.turn("again")).text == "fine"


async def test_aborting_calls_gives_each_of_them_a_result(tmp_path: Path) -> None:
    started = asyncio.Event()

    async def wait(params: Any, ctx: Any) -> Result:
        if params.get("quick"):
            return Result.text("quick")
        started.set()
        await asyncio.Event().wait()
        raise AssertionError

    schema = {"type": "object", "properties": {"quick": {"type": "boolean"}}}
    slow = Tool("slow", "Waits.", schema, wait, effects=lambda _params, _ctx: ())
    async with open_kit(tmp_path, slow) as kit:
        model = ScriptedModel(calls(("slow", {}), ("slow", {"quick": True})), "fine")
        kept = Kept()
        talk = open_talk(kit, model, transcript=kept)
        task = asyncio.create_task(talk.turn("go"))
        await started.wait()
        while not any(isinstance(m, ToolResult) for m in kept.messages):
            await asyncio.sleep(0.001)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        assert_consistent(talk.history)
        first, second = talk.history[-2:]
        assert isinstance(first, ToolResult)
        assert isinstance(second, ToolResult)
        assert "interrupted by the person" in first.content[0].text  # type: ignore[union-attr]
        assert second.content == (Text("quick"),)
        assert len(talk.transcript.messages) == len(talk.history)  # type: ignore[union-attr]
        assert (await talk.turn("go on")).text == "fine"


async def test_a_failing_provider_ends_the_turn_and_the_next_one_goes_on(kit: Toolkit) -> None:
    model = ScriptedModel(ModelError("server", "example: the service failed"), "back again")
    talk = open_talk(kit, model)
    ended = await talk.turn("one")
    assert (ended.how, ended.error) == ("error", "example: the service failed")
    assert (await talk.turn("two")).text == "back again"
    assert kinds(model.requests[-1].messages) == ["User", "User"]


class Breaking(ScriptedModel):
    """Says something, begins again, says something else and fails."""

    async def stream(self, request: Request) -> AsyncIterator[Delta | Assistant]:
        yield TextDelta("void ")
        yield Again("overloaded", 1.0, self.ref)
        yield TextDelta("half of")
        raise ModelError("cut", "example: the connection broke")


async def test_the_last_attempt_of_a_broken_answer_is_kept(
    kit: Toolkit,
) -> None:
    talk = open_talk(kit, Breaking())
    ended = await talk.turn("go")
    assert ended.how == "error"
    last = talk.history[-1]
    assert isinstance(last, Assistant)
    assert (last.text, last.stop) == ("half of", "error")
    heard: Any = talk.tell
    assert [event.reason for event in heard.of(AnswerRestarted)] == ["overloaded"]


async def test_an_empty_answer_is_asked_for_once_more(kit: Toolkit) -> None:
    talk = open_talk(kit, ScriptedModel(Assistant(), "now I speak"))
    assert (await talk.turn("go")).text == "now I speak"
    assert kinds(talk.history) == ["User", "Assistant"]


async def test_two_empty_answers_end_the_turn(kit: Toolkit) -> None:
    talk = open_talk(kit, ScriptedModel(Assistant(), Assistant()))
    ended = await talk.turn("go")
    assert ended.how == "error"
    assert "empty" in ended.error
    assert kinds(talk.history) == ["User"]


async def test_a_refusal_is_reported(kit: Toolkit) -> None:
    talk = open_talk(kit, ScriptedModel(Assistant((Text("I will not."),), "refusal")))
    assert (await talk.turn("go")).how == "done"
    heard: Any = talk.tell
    assert [event.level for event in heard.of(Notice)] == ["warning"]


async def test_a_turn_has_a_limit_of_steps(kit: Toolkit) -> None:
    model = ScriptedModel(then=call("double", {"number": 1}))
    talk = open_talk(kit, model, limits=TurnLimits(max_steps=3))
    ended = await talk.turn("go")
    assert ended.how == "max-turns"
    assert len(model.requests) == 3
    assert_consistent(talk.history)


async def test_a_conversation_has_a_limit_of_cost(kit: Toolkit) -> None:
    dear = Assistant((Text("dear"),), usage=Usage(1, 1, cost=0.6))
    talk = open_talk(kit, ScriptedModel(dear, dear, dear), limits=TurnLimits(max_cost=1.0))
    assert (await talk.turn("one")).how == "done"
    assert (await talk.turn("two")).how == "done"
    ended = await talk.turn("three")
    assert ended.how == "max-cost"
    assert "$1.20" in ended.error


async def test_the_count_of_the_service_is_used_for_the_next_request(kit: Toolkit) -> None:
    counted = Assistant((Text("one"),), usage=Usage(4_000, 100, cache_read=900))
    model = ScriptedModel(counted, "two")
    talk = open_talk(kit, model)
    await talk.turn("first")
    await talk.turn("x" * 4_000)
    first, second = model.requests
    assert first.tokens == 0
    assert 6_000 <= second.tokens < 6_100


async def test_a_turn_has_a_limit_of_time(kit: Toolkit) -> None:
    talk = open_talk(kit, ScriptedModel(hang()), limits=TurnLimits(timeout_s=0.01))
    assert (await talk.turn("go")).how == "timeout"


async def test_a_message_that_cannot_be_stored_ends_the_turn(kit: Toolkit) -> None:
    kept = Kept()
    model = ScriptedModel("never asked")
    talk = open_talk(kit, model, transcript=kept)
    kept.fail = True
    ended = await talk.turn("go")
    assert ended.how == "error"
    assert "the disk is full" in ended.error
    assert model.requests == []


SMALL = Facts(context_window=20_000)


async def test_a_conversation_that_gets_long_is_summed_up_before_it_is_too_long(
    kit: Toolkit,
) -> None:
    model = ScriptedModel("long " * 16_000, "the summary", "short", facts=SMALL)
    talk = open_talk(kit, model)
    await talk.turn("first")
    await talk.turn("second")
    assert isinstance(talk.history[0], Summary)
    assert talk.history[0].text == "the summary"
    assert kinds(talk.history) == ["Summary", "User", "Assistant"]
    assert talk.transcript.messages == talk.history  # type: ignore[union-attr]
    heard: Any = talk.tell
    assert heard.of(Compacted)[0].tokens_after < heard.of(Compacted)[0].tokens_before


async def test_an_overflow_is_answered_by_summing_up(kit: Toolkit) -> None:
    overflow = ModelError("overflow", "example: too long")
    model = ScriptedModel("one", overflow, "summary", "two")
    talk = open_talk(kit, model, compaction=CompactionSettings(keep_recent_tokens=8))
    await talk.turn("first " * 50)
    ended = await talk.turn("second")
    assert ended.text == "two"
    assert isinstance(talk.history[0], Summary)


async def test_an_overflow_that_stays_ends_the_turn(kit: Toolkit) -> None:
    overflow = ModelError("overflow", "example: too long")
    model = ScriptedModel(then=overflow)
    talk = open_talk(kit, model)
    ended = await talk.turn("x")
    assert ended.how == "error"
    assert (await talk.turn("y")).how == "error"


async def test_without_a_summary_the_conversation_goes_on_with_an_outline(kit: Toolkit) -> None:
    down = ModelError("server", "example: down")
    model = ScriptedModel(call("double", {"number": 4}), "one", down, "two")
    talk = open_talk(kit, model, compaction=CompactionSettings(keep_recent_tokens=1))
    await talk.turn("please double four")
    assert await talk.compact()
    summary = talk.history[0]
    assert isinstance(summary, Summary)
    assert "please double four" in summary.text
    assert "double" in summary.text
    heard: Any = talk.tell
    assert "example: down" in heard.of(Notice)[0].text
    assert (await talk.turn("next")).text == "two"


async def test_an_empty_conversation_cannot_be_summarized(kit: Toolkit) -> None:
    talk = open_talk(kit, ScriptedModel())
    assert not await talk.compact()


async def test_images_are_part_of_a_message(kit: Toolkit) -> None:
    model = ScriptedModel("a dot")
    talk = open_talk(kit, model)
    await talk.turn([Text("what is it?"), Image("AAAA", "image/png")])
    said = model.requests[0].messages[0]
    assert isinstance(said, User)
    assert said.content[1] == Image("AAAA", "image/png")
