"""The events of an agent and of its sub-agents, for programs."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from tests.test_delegation import Answer, is_child, last_text, model_of, runs_of, spawn

from clawkit import Agent
from clawkit.agent.events import (
    AnswerStored,
    Event,
    RunEnded,
    SubagentEvent,
    TextPiece,
    TurnEnded,
    TurnStarted,
)
from clawkit.content import Assistant
from clawkit.models.protocols import Delta, Request, TextDelta
from clawkit.testing import Gate, ScriptedModel, call
from clawkit.turns import MAX_BEHIND

TWO_LEVELS = {"agents": {"defaults": {"subagents": {"maxSpawnDepth": 2}}}}


def _nested(request: Request) -> Answer:
    """A sub-agent that starts another one, and waits for it."""
    text = last_text(request)
    if text == "upper":
        return spawn("lower", label="leaf")
    return "leaf done" if text == "lower" else "waiting" if "Started" in text else "upper done"


async def test_a_stream_has_the_events_of_the_whole_tree(workspace: Path) -> None:
    model = model_of([spawn("upper", label="twig"), "waiting", "all done"], _nested)
    async with Agent.open(TWO_LEVELS, workspace=workspace, model=model) as agent:
        heard = [event async for event in agent.stream("go", tree=True)]
        [run] = runs_of(agent)
        assert agent.store is not None
        [leaf] = agent.store.runs.of_requester(run.session)
        key = agent.store.get(leaf.session).key
    assert isinstance(heard[-1], TurnEnded)
    assert heard[-1].text == "all done"
    below = [each for each in heard if isinstance(each, SubagentEvent)]
    places = {(each.label, each.depth, each.run) for each in below}
    assert places == {("twig", 1, run.id), ("leaf", 2, leaf.id)}
    assert {each.session for each in below if each.depth == 2} == {key}
    ends = [(each.label, each.event) for each in below if isinstance(each.event, RunEnded)]
    assert [(label, end.status) for label, end in ends] == [
        ("leaf", "completed"),
        ("twig", "completed"),
    ]
    said = {each.event.text for each in below if isinstance(each.event, TurnEnded)}
    assert said == {"leaf done", "waiting", "upper done"}


async def test_a_stream_of_one_turn_has_only_its_own_events(workspace: Path) -> None:
    gate = Gate("late")
    model = model_of([spawn(), "waiting", "read"], lambda _: gate)
    async with Agent.open({}, workspace=workspace, model=model) as agent:
        heard = [event async for event in agent.stream("go")]
        assert [type(each) for each in heard].count(TurnEnded) == 1
        assert not any(isinstance(each, SubagentEvent) for each in heard)
        gate.release()
        await agent.settle()


async def test_a_stream_includes_sub_agents_started_before_it(workspace: Path) -> None:
    gate = Gate("late")
    model = model_of([spawn(), "started", "and now?", "read"], lambda _: gate)
    async with Agent.open({}, workspace=workspace, model=model) as agent:
        await agent.send("go")
        await gate.reached.wait()
        heard: list[Event] = []
        async for event in agent.stream("anything?", tree=True):
            heard.append(event)
            gate.release()
    below = [each.event for each in heard if isinstance(each, SubagentEvent)]
    assert [type(each) for each in below] == [AnswerStored, TurnEnded, RunEnded]


async def test_events_are_only_made_while_someone_listens(workspace: Path) -> None:
    gates = [Gate("first"), Gate("second")]
    left = list(gates)
    model = model_of([spawn(), spawn(), "x", "read", "read"], lambda _: left.pop(0))
    async with Agent.open({}, workspace=workspace, model=model) as agent:
        turn = asyncio.ensure_future(agent.work("go"))
        for gate in gates:
            await gate.reached.wait()
        assert agent.delegation is not None
        lives = agent.delegation.subagents._live.values()
        talks = [live.child.agent.conversation for live in lives]  # type: ignore[union-attr]
        assert [talk._listening for talk in talks] == [False, False]
        heard: list[Event] = []
        agent.on_subagent_event = heard.append
        assert [talk._listening for talk in talks] == [True, True]
        for gate in gates:
            gate.release()
        await turn
    assert all(isinstance(each, SubagentEvent) for each in heard)
    assert len(heard) == 6


async def test_an_exception_in_a_listener_does_not_stop_the_turn(
    workspace: Path, caplog: pytest.LogCaptureFixture
) -> None:
    def fail(_event: Event) -> None:
        raise ValueError("no")

    model = model_of([spawn(), "waiting", "read"], lambda _: "done")
    caplog.set_level(logging.ERROR)
    async with Agent.open({}, workspace=workspace, model=model) as agent:
        agent.on_subagent_event = fail
        assert (await agent.work("go")).text == "read"
        assert [run.status for run in runs_of(agent)] == ["completed"]


async def test_a_slow_reader_misses_pieces_but_no_message(workspace: Path) -> None:
    class Flood(ScriptedModel):
        async def stream(self, request: Request) -> AsyncIterator[Delta | Assistant]:
            for _ in range(MAX_BEHIND + 100):
                yield TextDelta("word")
            async for item in super().stream(request):
                yield item

    async with Agent.open({}, workspace=workspace, model=Flood("words")) as agent:
        heard = [event async for event in agent.stream("go", tree=True)]
    assert 0 < len([each for each in heard if isinstance(each, TextPiece)]) <= MAX_BEHIND
    assert [each.message.text for each in heard if isinstance(each, AnswerStored)] == ["words"]
    assert isinstance(heard[-1], TurnEnded)


async def test_a_closed_stream_aborts_the_turn_and_is_forgotten(workspace: Path) -> None:
    gate = Gate("late")
    model = model_of([spawn(), Gate("never")], lambda _: gate)
    heard: list[Event] = []
    async with Agent.open({}, workspace=workspace, model=model, tell=heard.append) as agent:
        agent.on_subagent_event = heard.append
        stream = agent.stream("go", tree=True)
        async for event in stream:
            if isinstance(event, SubagentEvent):
                break
        await stream.aclose()
        with agent.conversation._alone():
            pass  # nothing is running
        assert heard[-1] == TurnEnded("aborted", usage=heard[-1].usage)  # type: ignore[union-attr]
        assert isinstance(heard[0], TurnStarted)
        assert any(isinstance(each, SubagentEvent) for each in heard)
        assert agent.conversation.tell == heard.append


async def test_what_a_sub_agent_does_can_be_seen_although_no_one_listens(workspace: Path) -> None:
    waiting, steps = Gate("leaf"), []

    def child(request: Request) -> Answer:
        text = last_text(request)
        if text == "upper":
            return [call("ls", {}), spawn("lower")]
        return waiting if text == "lower" else "waiting"

    model = model_of([spawn("upper"), "started", "read"], child)
    async with Agent.open(TWO_LEVELS, workspace=workspace, model=model) as agent:
        await agent.send("go")
        await waiting.reached.wait()
        assert agent.delegation is not None
        while "waiting for its sub-agents" not in steps:
            steps = [each.step for each in agent.delegation.subagents.working()]
            await asyncio.sleep(0)
        assert steps == ["waiting for its sub-agents", "thinking"]
        waiting.release()
        await agent.settle()
    assert any(is_child(each) for each in model.requests)
