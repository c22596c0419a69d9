"""What a conversation must bear: bad listeners, two at once, things said in between, aborts."""

from __future__ import annotations

import asyncio
import random
from collections.abc import AsyncIterator, Sequence
from pathlib import Path
from typing import Any

import pytest
from tests.agent.talking import Heard, assert_consistent, assert_sane, open_agent, stored

from clawkit import Result, Toolkit
from clawkit.agent.compact import CompactionSettings
from clawkit.agent.events import Compacted, Event, MessageAdded, ResultStored, TextPiece, TurnEnded
from clawkit.agent.loop import Conversation, TurnLimits, specs_of
from clawkit.content import Assistant, Message, Summary, Text, Thinking, ToolResult, Usage
from clawkit.core.approval import Answer, Question
from clawkit.core.tool import Tool
from clawkit.errors import ConflictError, ToolError
from clawkit.models.protocols import Delta, Facts, ModelError, Request, TextDelta
from clawkit.testing import open_kit
from clawkit.testing.answers import Gate, ScriptedModel, call, calls, say, think

SCHEMA = {"type": "object", "properties": {"name": {"type": "string"}}}


class Kept:
    """A transcript in memory that may fail."""

    def __init__(self) -> None:
        self.messages: list[Message] = []
        self.trouble = ""

    def append(self, message: Message, *, is_redacted: bool = False) -> None:
        if self.trouble:
            raise ToolError(self.trouble)
        self.messages.append(message)

    def compact(self, summary: Summary, kept: Sequence[Message]) -> None:
        if self.trouble:
            raise ToolError(self.trouble)
        self.messages = [summary, *kept]


class Slow:
    """A tool that waits until it is let go, and knows who waits."""

    def __init__(self) -> None:
        self.started = asyncio.Event()
        self.release = asyncio.Event()
        self.running = 0

    def tool(self) -> Tool:
        return Tool("slow", "Waits.", SCHEMA, self._run, effects=lambda _params, _ctx: ())

    async def _run(self, params: Any, ctx: Any) -> Result:
        self.running += 1
        self.started.set()
        try:
            await self.release.wait()
        finally:
            self.running -= 1
        return Result.text("done")


@pytest.fixture
def slow() -> Slow:
    return Slow()


@pytest.fixture
async def kit(tmp_path: Path, slow: Slow) -> AsyncIterator[Toolkit]:
    async with open_kit(tmp_path, slow.tool()) as kit:
        yield kit


def open_talk(kit: Toolkit, model: Any, **options: Any) -> Conversation:
    options = {"tell": Heard(), "transcript": Kept(), **options}
    return Conversation(kit.run, model, "You help.", specs_of(kit.run), **options)


def events_of(talk: Conversation) -> Heard:
    assert isinstance(talk.tell, Heard)
    return talk.tell


def transcript_of(talk: Conversation) -> Kept:
    assert isinstance(talk.transcript, Kept)
    return talk.transcript


async def test_an_exception_in_a_listener_does_not_stop_the_turn(kit: Toolkit, slow: Slow) -> None:
    def fail(_event: Event) -> None:
        raise BrokenPipeError

    slow.release.set()
    talk = open_talk(kit, ScriptedModel(calls(("slow", {}), ("slow", {})), "ok"), tell=fail)
    assert (await talk.turn("go")).text == "ok"
    assert_consistent(talk.history)
    assert transcript_of(talk).messages == talk.history


async def test_turns_do_not_overlap(kit: Toolkit) -> None:
    gate = Gate("first")
    talk = open_talk(kit, ScriptedModel(gate, "second"))
    turn = asyncio.create_task(talk.turn("one"))
    await gate.reached.wait()
    with pytest.raises(ConflictError, match="busy"):
        await talk.turn("two")
    with pytest.raises(ConflictError, match="busy"):
        await talk.compact()
    gate.release()
    assert (await turn).text == "first"
    assert (await talk.turn("two")).text == "second"
    assert_sane(events_of(talk))


async def test_no_turn_starts_during_compaction(kit: Toolkit) -> None:
    gate = Gate("A summary.")
    settings = CompactionSettings(keep_recent_tokens=1)
    talk = open_talk(kit, ScriptedModel("one", gate, "two"), compaction=settings)
    await talk.turn("first")
    shortening = asyncio.create_task(talk.compact())
    await gate.reached.wait()
    with pytest.raises(ConflictError):
        await talk.turn("second")
    gate.release()
    assert await shortening
    assert (await talk.turn("second")).text == "two"


async def test_the_text_of_a_turn_is_not_that_of_an_earlier_one(kit: Toolkit) -> None:
    down = ModelError("server", "example failed")
    talk = open_talk(kit, ScriptedModel("Once.", down))
    assert (await talk.turn("one")).text == "Once."
    ended = await talk.turn("two")
    assert (ended.how, ended.text) == ("error", "")


async def test_a_provider_that_counts_no_tokens_does_not_make_the_history_small(
    kit: Toolkit,
) -> None:
    class Uncounted(ScriptedModel):
        async def stream(self, request: Request) -> AsyncIterator[Delta | Assistant]:
            async for item in super().stream(request):
                yield (Assistant(item.content, item.stop) if isinstance(item, Assistant) else item)

    model = Uncounted("long " * 16_000, "the summary", "short", facts=Facts(context_window=20_000))
    talk = open_talk(kit, model)
    await talk.turn("first")
    assert talk.context_tokens > 20_000
    await talk.turn("second")
    assert len(events_of(talk).of(Compacted)) == 1


async def test_a_failure_to_store_the_last_answer_is_reported(kit: Toolkit) -> None:
    gate = Gate("done")
    talk = open_talk(kit, ScriptedModel(gate, "again"))
    turn = asyncio.create_task(talk.turn("go"))
    await gate.reached.wait()
    transcript_of(talk).trouble = "the disk is full"
    gate.release()
    ended = await turn
    assert ended.how == "error"
    assert "the disk is full" in ended.error
    transcript_of(talk).trouble = ""
    assert (await talk.turn("more")).text == "again"


async def test_a_summary_that_cannot_be_stored_ends_the_turn(kit: Toolkit) -> None:
    overflow = ModelError("overflow", "example: too long")
    settings = CompactionSettings(keep_recent_tokens=8)
    gate = Gate("A summary.")
    talk = open_talk(kit, ScriptedModel("one", overflow, gate), compaction=settings)
    await talk.turn("first " * 50)
    turn = asyncio.create_task(talk.turn("second"))
    await gate.reached.wait()
    before = list(talk.history)
    transcript_of(talk).trouble = "the disk is full"
    gate.release()
    ended = await turn
    assert (ended.how, ended.error) == ("error", "the disk is full")
    assert talk.history == before
    assert_sane(events_of(talk))


@pytest.mark.parametrize(
    ("answer", "asked", "said"),
    [
        (Assistant(), 2, "empty answer twice"),
        (Assistant((Text(" \n"),)), 2, "empty answer twice"),
        (Assistant((Thinking("Hm."),)), 2, "empty answer twice"),
        (Assistant((Thinking("Hm."),), "length"), 1, "token limit without any output"),
        (Assistant((), "refusal"), 1, "refused to answer"),
    ],
)
async def test_an_empty_answer_is_not_kept(
    kit: Toolkit, answer: Assistant, asked: int, said: str
) -> None:
    paid = Assistant(answer.content, answer.stop, usage=Usage(10, 1, cost=0.25))
    model = ScriptedModel(then=paid)
    talk = open_talk(kit, model)
    ended = await talk.turn("go")
    assert ended.how == "error"
    assert said in ended.error
    assert len(model.requests) == asked
    # It is paid for, all the same.
    assert talk.usage.cost == 0.25 * asked
    assert [type(each).__name__ for each in talk.history] == ["User"]


async def test_a_bug_in_a_model_ends_the_turn_for_those_who_listen(kit: Toolkit) -> None:
    class Broken(ScriptedModel):
        async def stream(self, request: Request) -> AsyncIterator[Delta | Assistant]:
            yield TextDelta("so")
            raise ZeroDivisionError

    talk = open_talk(kit, Broken())
    with pytest.raises(ZeroDivisionError):
        await talk.turn("go")
    assert events_of(talk)[-1] == TurnEnded("error", Usage(), "the turn was cut short")
    talk.model = ScriptedModel("fine")
    assert (await talk.turn("again")).text == "fine"


async def test_a_message_sent_while_tools_run_is_read_after_their_results(
    kit: Toolkit, slow: Slow
) -> None:
    model = ScriptedModel(calls(("slow", {"name": "a"}), ("slow", {"name": "b"})), "ok", "later")
    talk = open_talk(kit, model)
    turn = asyncio.create_task(talk.turn("go"))
    await slow.started.wait()
    talk.steer("hurry")
    talk.follow_up("then this")
    slow.release.set()
    assert (await turn).text == "later"
    kinds = [type(message).__name__ for message in talk.history]
    assert kinds == [
        *("User", "Assistant", "ToolResult", "ToolResult", "User", "Assistant"),
        *("User", "Assistant"),
    ]
    assert [event.steering for event in events_of(talk).of(MessageAdded)] == [False, True, False]


async def test_a_message_sent_during_a_question_is_read_after_the_answer(
    workspace: Path,
) -> None:
    class GuardedCall:
        def __init__(self) -> None:
            self.came, self.answer = asyncio.Event(), asyncio.Event()

        async def ask(self, request: Question) -> Answer:
            self.came.set()
            await self.answer.wait()
            return Answer("allow")

    person = GuardedCall()
    model = ScriptedModel(call("exec", {"command": "echo hi"}), "ok")
    config = {"tools": {"exec": {"security": "full", "ask": "always"}}}
    async with open_agent(config, workspace, model=model, approver=person) as agent:
        turn = asyncio.create_task(agent.send("go"))
        await person.came.wait()
        agent.conversation.steer("and be quick")
        person.answer.set()
        assert (await turn).text == "ok"
        kinds = [type(each).__name__ for each in agent.conversation.history]
    assert kinds == ["User", "Assistant", "ToolResult", "User", "Assistant"]


async def test_aborting_during_a_question_gives_the_call_a_result(workspace: Path) -> None:
    class Never:
        came = asyncio.Event()

        async def ask(self, request: Question) -> Answer:
            self.came.set()
            await asyncio.Event().wait()
            raise AssertionError

    person = Never()
    model = ScriptedModel(call("exec", {"command": "touch made"}), "ok")
    config = {"tools": {"exec": {"security": "full", "ask": "always"}}}
    async with open_agent(config, workspace, model=model, approver=person) as agent:
        turn = asyncio.create_task(agent.send("go"))
        await person.came.wait()
        turn.cancel()
        with pytest.raises(asyncio.CancelledError):
            await turn
        assert_consistent(agent.conversation.history)
        assert stored(agent) == agent.conversation.history
        assert (await agent.send("go on")).text == "ok"
    assert not (workspace / "made").exists()


async def test_a_conversation_that_gets_too_long_between_results_is_shortened(
    tmp_path: Path,
) -> None:
    async def talk_much(params: Any, ctx: Any) -> Result:
        return Result.text(params["name"] * 30_000)

    much = Tool("much", "Says much.", SCHEMA, talk_much, effects=lambda _params, _ctx: ())
    many = calls(*(("much", {"name": letter}) for letter in "abc"))
    model = ScriptedModel(
        many, "A summary.", many, "A summary.", "ok", facts=Facts(context_window=24_000)
    )
    async with open_kit(tmp_path, much) as kit:
        talk = open_talk(kit, model)
        ended = await talk.turn("go")
    assert ended.text == "ok"
    assert len(events_of(talk).of(Compacted)) == 2
    assert_consistent(talk.history)
    assert transcript_of(talk).messages == talk.history
    for request in model.requests:
        assert_consistent(request.messages)


async def test_the_cost_limit_is_checked_between_answers(kit: Toolkit, slow: Slow) -> None:
    slow.release.set()
    dear = Assistant((call("slow", id="1"),), "tool_calls", usage=Usage(1, 1, cost=0.7))
    talk = open_talk(kit, ScriptedModel(then=dear), limits=TurnLimits(max_cost=2.0))
    ended = await talk.turn("go")
    assert ended.how == "max-cost"
    assert ended.usage.cost == pytest.approx(2.1)
    assert_consistent(talk.history)


class Impatient(Heard):
    """Aborts the turn after so many events."""

    def __init__(self, left: int) -> None:
        super().__init__()
        self.left = left
        self.turn: asyncio.Task[TurnEnded] | None = None

    def __call__(self, event: Event) -> None:
        super().__call__(event)
        self.left -= 1
        if self.left == 0 and self.turn:
            self.turn.cancel()


def _script(chance: random.Random) -> list[Any]:
    answers: list[Any] = []
    for _ in range(chance.randrange(1, 5)):
        wanted = [call("slow", {"name": str(n)}) for n in range(chance.randrange(1, 4))]
        answers.append([think("Hm."), say("I will. "), *wanted])
    return [*answers, "The end."]


@pytest.mark.parametrize("seed", range(0, 120, 30))
async def test_a_turn_can_be_aborted_at_any_moment(kit: Toolkit, slow: Slow, seed: int) -> None:
    slow.release.set()
    for each in range(seed, seed + 30):
        chance = random.Random(each)
        talk = open_talk(kit, ScriptedModel(*_script(chance), then="Fine."))
        talk.tell = heard = Impatient(chance.randrange(1, 60))
        heard.turn = asyncio.create_task(talk.turn("go"))
        ended = (await asyncio.gather(heard.turn, return_exceptions=True))[0]
        if isinstance(ended, BaseException):
            assert isinstance(ended, asyncio.CancelledError)
            # It may have been over already: then nobody had to be told.
            assert heard[-1].how == "aborted" or heard.left == 0  # type: ignore[union-attr]
        else:
            assert ended.how == "done"
        assert slow.running == 0
        assert_consistent(talk.history)
        kept = transcript_of(talk).messages
        assert sorted(map(repr, kept)) == sorted(map(repr, talk.history))
        assert_sane(heard)
        talk.tell = Heard()
        model = ScriptedModel("Fine.")
        talk.model = model
        assert (await talk.turn("go on")).text == "Fine."
        assert_consistent(model.requests[0].messages)
        assert len([task for task in asyncio.all_tasks() if not task.done()]) == 1


async def test_the_streamed_part_of_an_aborted_answer_is_kept(kit: Toolkit) -> None:
    for pieces in range(1, 5):
        gate = Gate("one two three four five", after=pieces)
        talk = open_talk(kit, ScriptedModel(gate))
        turn = asyncio.create_task(talk.turn("go"))
        await gate.reached.wait()
        turn.cancel()
        with pytest.raises(asyncio.CancelledError):
            await turn
        streamed = "".join(event.text for event in events_of(talk).of(TextPiece))
        last = talk.history[-1]
        assert isinstance(last, Assistant)
        assert (last.text, last.stop) == (streamed, "aborted")


async def test_calls_with_the_same_id_have_a_result_each(kit: Toolkit, slow: Slow) -> None:
    slow.release.set()
    model = ScriptedModel([call("slow", {"name": str(n)}, id="same") for n in range(5)], "ok")
    talk = open_talk(kit, model)
    await talk.turn("go")
    results = [each for each in talk.history if isinstance(each, ToolResult)]
    assert len(events_of(talk).of(ResultStored)) == len(results) == 5
