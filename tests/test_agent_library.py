"""What programs use of an agent: instructions, typed answers, streams, and no event loop."""

from __future__ import annotations

import asyncio
import dataclasses
import gc
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import aclosing
from pathlib import Path
from typing import Any

import msgspec
import pydantic
import pytest

from clawkit import Agent, OutputError, ToolError, TurnError, tool
from clawkit.agent.events import Event, TextPiece, ToolEvent, TurnEnded, TurnStarted
from clawkit.content import User
from clawkit.models.protocols import ModelError
from clawkit.testing import Gate, ScriptedModel, call, hang


class City(msgspec.Struct):
    name: str
    people: int


@dataclasses.dataclass
class Town:
    name: str
    people: int


class Village(pydantic.BaseModel):
    name: str
    people: int


GOOD = '{"name": "Oslo", "people": 700000}'


def open_agent(workspace: Path, *answers: Any, **more: Any) -> Agent:
    return Agent.open({}, workspace=workspace, model=ScriptedModel(*answers), keep=False, **more)


def asked(agent: Agent) -> list[Any]:
    model: Any = agent.conversation.model
    return list(model.requests)


# Instructions


@pytest.mark.parametrize("mode", ["full", "minimal", "none"])
async def test_instructions_are_in_every_request(workspace: Path, mode: Any) -> None:
    wish = "Answer in French."
    async with open_agent(workspace, "un", "deux", instructions=wish, mode=mode) as agent:
        for said in ("one", "two"):
            await agent.send(said)
        assert all(wish in request.system for request in asked(agent))
        assert wish in agent.prompt()


async def test_without_instructions_the_prompt_has_no_instructions_section(workspace: Path) -> None:
    async with open_agent(workspace, "ok") as agent:
        assert "## Instructions" not in agent.prompt()
        assert "## Final answer" not in agent.prompt()


# Answers


async def test_the_last_answer_is_what_run_returns(workspace: Path) -> None:
    async with open_agent(workspace, call("ls"), "Two files.") as agent:
        answer: str = await agent.run("what is here?")
    assert answer == "Two files."


async def test_a_turn_without_an_answer_raises_an_error_with_the_reason(workspace: Path) -> None:
    failure = ModelError("auth", "no key for scripted")
    async with open_agent(workspace, failure) as agent:
        with pytest.raises(TurnError, match="no key for scripted") as caught:
            await agent.run("hello")
    assert caught.value.how == "error"
    async with open_agent(workspace, call("ls"), max_turns=1) as agent:
        with pytest.raises(TurnError, match="limit of answers") as caught:
            await agent.run("hello")
    assert caught.value.how == "max-turns"


@pytest.mark.parametrize("kind", [City, Town, Village])
@pytest.mark.parametrize(
    "text",
    [GOOD, f"  {GOOD}\n", f"```json\n{GOOD}\n```", f"Here it is:\n\n```\n{GOOD}\n```\n"],
)
async def test_an_answer_is_an_object_of_the_type(workspace: Path, kind: Any, text: str) -> None:
    async with open_agent(workspace, call("ls"), text) as agent:
        found = await agent.run("which city?", output_type=kind)
        assert found == kind(name="Oslo", people=700_000)
        assert all('"people"' in request.system for request in asked(agent))
        assert '"people"' not in agent.prompt()


async def test_a_list_of_objects_is_a_type_too(workspace: Path) -> None:
    async with open_agent(workspace, f"[{GOOD}, {GOOD}]") as agent:
        found = await agent.run("which cities?", output_type=list[City])
    assert [each.name for each in found] == ["Oslo", "Oslo"]


@pytest.mark.parametrize(
    ("kind", "why"), [(City, "Expected `int`"), (Town, "Expected `int`"), (Village, "people")]
)
@pytest.mark.parametrize("bad", ['{"name": "Oslo", "people": "many"}', "Oslo, I think."])
async def test_a_wrong_answer_is_sent_back_once(
    workspace: Path, kind: Any, why: str, bad: str
) -> None:
    async with open_agent(workspace, bad, GOOD) as agent:
        found = await agent.run("which city?", output_type=kind)
        assert found == kind(name="Oslo", people=700_000)
        last = asked(agent)[1].messages[-1]
        assert isinstance(last, User)
        if bad.startswith("{"):
            assert why in last.content[0].text  # type: ignore[union-attr]
        assert '"people"' in asked(agent)[1].system


async def test_a_second_wrong_answer_raises_with_the_reason_and_the_text(workspace: Path) -> None:
    bad = '{"name": "Oslo"}'
    async with open_agent(workspace, "Oslo", bad, "fine") as agent:
        with pytest.raises(OutputError, match=r"not match City: .*people") as caught:
            await agent.run("which city?", output_type=City)
        assert caught.value.text == bad
        assert len(asked(agent)) == 2
        # The conversation can be continued, with free text again.
        assert await agent.run("never mind") == "fine"
        assert "## Final answer" not in asked(agent)[2].system


@pytest.mark.parametrize(
    ("kind", "bad", "said"),
    [
        (int, "many", "int: JSON is malformed: invalid character (byte 0)"),
        (list[City], '[{"name": "Oslo"}]', "list[City]: Object missing required field `people`"),
        (City | None, "7", "City | None: Expected `object | null`, got `int`"),
        (Village, '{"name": 7}', "Village: name: Input should be a valid string; people: Field"),
        (Village, "many", "Village: Invalid JSON: expected value at line 1 column 1"),
    ],
)
async def test_the_reason_is_one_line_without_urls(
    workspace: Path, kind: Any, bad: str, said: str
) -> None:
    async with open_agent(workspace, bad, bad) as agent:
        with pytest.raises(OutputError) as caught:
            await agent.run("?", output_type=kind)
        again = asked(agent)[1].messages[-1].content[0].text
    assert str(caught.value).startswith(f"the answer does not match {said}")
    for text in (str(caught.value), again):
        assert "\n" not in text
        assert "http" not in text


async def test_an_answer_nested_too_deeply_is_a_wrong_answer(workspace: Path) -> None:
    deep = "[" * 100_000
    async with open_agent(workspace, deep, deep) as agent:
        with pytest.raises(OutputError):
            await agent.run("?", output_type=list[Any])


@pytest.mark.parametrize(
    ("kind", "text", "value"),
    [
        (list[Village], f"[{GOOD}]", [Village(name="Oslo", people=700_000)]),
        (dict[str, list[Village]], '{"a": []}', {"a": []}),
        (Village | None, "null", None),
    ],
)
async def test_a_type_may_be_made_of_pydantic_models(
    workspace: Path, kind: Any, text: str, value: object
) -> None:
    async with open_agent(workspace, '"no"', text) as agent:
        assert await agent.run("which?", output_type=kind) == value
        first, again = asked(agent)
    assert '"people"' in first.system
    assert "http" not in again.messages[-1].content[0].text


async def test_types_without_a_pydantic_schema_are_refused(workspace: Path) -> None:
    class Callback(pydantic.BaseModel):
        run: Callable[[], None]

    async with open_agent(workspace, "x") as agent:
        for kind in (Callback, list[Callback], Village | City):
            with pytest.raises(TypeError, match=r"^output_type: (?!.*https?:)"):
                await agent.run("?", output_type=kind)
        assert asked(agent) == []


async def test_a_type_that_json_cannot_express_is_refused_before_anything_is_sent(
    workspace: Path,
) -> None:
    class Odd:
        pass

    class Silent:
        @classmethod
        def model_json_schema(cls) -> None:
            raise TypeError

    async with open_agent(workspace, "x") as agent:
        with pytest.raises(TypeError, match=r"^output_type: .*Odd"):
            await agent.run("?", output_type=Odd)
        with pytest.raises(TypeError, match=r"^output_type: TypeError$"):
            await agent.run("?", output_type=Silent)
        assert asked(agent) == []


async def test_concurrent_runs_are_executed_one_after_the_other(workspace: Path) -> None:
    gate = Gate(GOOD)
    async with open_agent(workspace, gate, "Hello.", "Again.") as agent:
        first = asyncio.ensure_future(agent.run("which city?", output_type=City))
        await gate.reached.wait()
        second = asyncio.ensure_future(agent.run("hello"))

        async def listen() -> list[Event]:
            return [event async for event in agent.stream("and?")]

        third = asyncio.ensure_future(listen())
        await asyncio.sleep(0)
        assert len(asked(agent)) == 1
        gate.release()
        assert (await first).name == "Oslo"
        [ended] = [each for each in await third if isinstance(each, TurnEnded)]
        assert {await second, ended.text} == {"Hello.", "Again."}
        schema = ["people" in request.system for request in asked(agent)]
        assert schema == [True, False, False]


# Streams


async def test_a_stream_yields_every_event_up_to_the_end_of_the_turn(workspace: Path) -> None:
    told: list[Event] = []
    async with open_agent(workspace, call("ls"), "Done.", "Again.", tell=told.append) as agent:
        events = [event async for event in agent.stream("look")]
        assert isinstance(events[0], TurnStarted)
        assert isinstance(events[-1], TurnEnded)
        assert events[-1].text == "Done."
        assert "".join(each.text for each in events if isinstance(each, TextPiece)) == "Done."
        assert any(isinstance(each, ToolEvent) for each in events)
        assert told == events
        more = [event async for event in agent.stream("again")]
        assert isinstance(more[-1], TurnEnded)
        assert told == events + more


async def test_a_stream_that_is_closed_aborts_the_turn(workspace: Path) -> None:
    async with open_agent(workspace, hang(), "Back.") as agent:
        async with aclosing(agent.stream("go")) as events:
            async for _ in events:
                break
        assert await agent.run("and now?") == "Back."


async def test_a_failed_turn_is_the_last_event_of_its_stream(workspace: Path) -> None:
    async with open_agent(workspace, ModelError("auth", "no key")) as agent:
        *_, last = [event async for event in agent.stream("go")]
    assert isinstance(last, TurnEnded)
    assert (last.how, last.error) == ("error", "no key")


# Without an event loop


def test_a_program_without_an_event_loop_runs_an_agent(workspace: Path) -> None:
    with open_agent(workspace, call("exec", {"command": "true"}), "One.", GOOD) as agent:
        assert agent.run_sync("go") == "One."
        assert agent.run_sync("which?", output_type=City) == City("Oslo", 700_000)


def test_run_sync_works_without_entering_the_agent(workspace: Path) -> None:
    agent = open_agent(workspace, "One.", "Two.")
    assert [agent.run_sync("go"), agent.run_sync("on")] == ["One.", "Two."]
    with agent:
        pass


def test_a_closed_agent_refuses_to_run_and_leaves_no_coroutine_behind(
    workspace: Path, recwarn: pytest.WarningsRecorder
) -> None:
    with open_agent(workspace, "One.") as agent:
        pass
    with pytest.raises(ToolError, match=r"^this agent is closed; open another one with Agent.open"):
        agent.run_sync("go")
    gc.collect()
    assert [str(each.message) for each in recwarn] == []


def test_an_interrupted_run_is_cleaned_up_when_the_agent_is_closed(workspace: Path) -> None:
    @tool
    async def interrupt() -> None:
        """Interrupt, as Ctrl-C does during a step of the loop."""
        raise KeyboardInterrupt

    agent = open_agent(workspace, call("interrupt"), "Back.", tools=[interrupt])
    with pytest.raises(KeyboardInterrupt), agent:
        agent.run_sync("go")
    with pytest.raises(ToolError, match="is closed"):
        agent.run_sync("on")


def test_another_event_loop_is_refused_and_can_close_the_agent(workspace: Path) -> None:
    """Connections and commands are bound to the loop that they were started in."""
    agent = open_agent(workspace, "One.", "Two.")
    assert asyncio.run(agent.run("go")) == "One."
    for again in (agent.run, agent.send):
        with pytest.raises(RuntimeError, match="is used in another event loop: make all calls in"):
            asyncio.run(again("on"))
    asyncio.run(agent.close())
    assert len(asked(agent)) == 1


def test_a_second_thread_gets_an_error_while_the_agent_is_in_use(workspace: Path) -> None:
    entered, done = threading.Event(), threading.Event()

    @tool
    def wait() -> None:
        """Wait."""
        entered.set()
        done.wait(5)

    with (
        open_agent(workspace, call("wait"), "One.", tools=[wait]) as agent,
        ThreadPoolExecutor() as pool,
    ):
        first = pool.submit(agent.run_sync, "go")
        assert entered.wait(5)
        with pytest.raises(RuntimeError, match="another thread is using this agent: open one"):
            agent.run_sync("go")
        done.set()
        assert first.result() == "One."


async def test_run_sync_is_refused_inside_a_running_event_loop(workspace: Path) -> None:
    async with open_agent(workspace, "One.") as agent:
        with pytest.raises(RuntimeError, match=r"await agent\.run"):
            agent.run_sync("go")
        with pytest.raises(RuntimeError, match="async with"):
            agent.__enter__()
        assert asked(agent) == []


# Listeners


@pytest.mark.parametrize("listens", [False, True])
async def test_call_events_are_created_only_for_listeners(
    workspace: Path, monkeypatch: pytest.MonkeyPatch, listens: bool
) -> None:
    async with open_agent(workspace, call("ls"), "Done.") as agent:
        redactor = agent.kit.run.redactor
        texts: list[str] = []

        def strict(text: str) -> str:
            texts.append(text)
            return text

        monkeypatch.setattr(redactor, "strict", strict)
        if listens:
            agent.conversation.tell = lambda _event: None
        await agent.send("go")
        assert bool(texts) == listens
