"""Messages to an agent during a turn: modes, limits, and withdrawing them."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest

from clawkit import Agent
from clawkit.agent.events import MessageAdded, TurnEnded
from clawkit.content import Text, ToolResult, User
from clawkit.core.tool import tool
from clawkit.errors import ConflictError, ToolError
from clawkit.models.protocols import Request
from clawkit.testing import Gate, ScriptedModel, call
from clawkit.turns import join


def words(message: object) -> str:
    parts = getattr(message, "content", ())
    return "|".join(part.text for part in parts if isinstance(part, Text))


def user_texts(agent: Agent) -> list[str]:
    return [words(each) for each in agent.conversation.history if isinstance(each, User)]


def queue(**settings: Any) -> dict[str, Any]:
    return {"messages": {"queue": settings}}


@pytest.mark.parametrize(
    ("config", "channel", "turns"),
    [
        ({}, "", 1),
        (queue(mode="steer"), "", 1),
        (queue(mode="followup"), "", 3),
        (queue(mode="collect"), "", 2),
        (queue(mode="steer", byChannel={"telegram": "collect"}), "telegram", 2),
        (queue(mode="steer", byChannel={"telegram": "collect"}), "slack", 1),
        ({**queue(mode="interrupt")}, "", 3),
    ],
)
async def test_the_configured_mode_decides_how_a_message_is_queued(
    workspace: Path, config: Any, channel: str, turns: int
) -> None:
    gate, events = Gate(call("ls", {})), list[Any]()
    model = ScriptedModel(gate, then=lambda r: f"read {words(r.messages[-1])}")
    async with Agent.open(
        config, workspace=workspace, model=model, channel=channel, keep=False, tell=events.append
    ) as agent:
        first = agent.post("go")
        await gate.reached.wait()
        posted = [agent.post("one"), agent.post("two")]
        gate.release()
        ended = [await each for each in (first, *posted)]
        assert len({id(each) for each in ended}) == turns
        assert len([each for each in events if isinstance(each, TurnEnded)]) == turns
        assert "".join(user_texts(agent)).replace("|", "") == "goonetwo"
        steering = [each.steering for each in events if isinstance(each, MessageAdded)]
        assert (True in steering) == (turns == 1)


async def test_steering_that_came_too_late_is_the_next_turn(workspace: Path) -> None:
    gate = Gate("done")
    model = ScriptedModel(gate, then=lambda r: f"read {words(r.messages[-1])}")
    async with Agent.open({}, workspace=workspace, model=model) as agent:
        first = agent.post("go")
        await gate.reached.wait()
        late = agent.post("late", mode="steer")
        agent.turns.lane.stop()
        assert (await first).how == "aborted"
        assert (await late).text == "read late"


async def test_interrupting_a_tool_call(workspace: Path) -> None:
    began, cleaned = asyncio.Event(), asyncio.Event()

    @tool
    async def forever() -> str:
        """Never ends."""
        began.set()
        try:
            await asyncio.Event().wait()
        finally:
            cleaned.set()
        return ""

    model = ScriptedModel(call("forever", {}), "something else")
    async with Agent.open({}, workspace=workspace, model=model, tools=[forever]) as agent:
        first = asyncio.ensure_future(agent.send("go"))
        await began.wait()
        second = agent.post("stop, do that", mode="interrupt")
        # Whoever waits for the turn learns how it ended; their own task goes on.
        assert (await first).how == "aborted"
        assert cleaned.is_set()
        assert (await second).text == "something else"
        [result] = [each for each in agent.conversation.history if isinstance(each, ToolResult)]
        assert "interrupted" in words(result)


async def test_queued_messages_can_be_listed_and_withdrawn(workspace: Path) -> None:
    gate = Gate("done")
    async with Agent.open({}, workspace=workspace, model=ScriptedModel(gate, "later")) as agent:
        turn = agent.post("go")
        await gate.reached.wait()
        steered, later, last = (
            agent.post("steered"),
            agent.post("later", mode="followup"),
            agent.post("last", mode="followup"),
        )
        assert [words(each) for each in agent.turns.waiting] == ["steered", "later", "last"]
        assert agent.turns.queued == 3
        last.cancel()
        await asyncio.sleep(0)
        back = [agent.turns.take_back(), agent.turns.take_back(), agent.turns.take_back()]
        assert [words(each) for each in back if each] == ["later", "steered"]
        assert steered.cancelled()
        assert later.cancelled()
        gate.release()
        await turn
        await agent.settle()
        assert user_texts(agent) == ["go"]


async def test_a_full_queue_refuses_more(workspace: Path) -> None:
    gate = Gate("done")
    model = ScriptedModel(gate, then="ok")
    async with Agent.open(queue(cap=1), workspace=workspace, model=model) as agent:
        turn = agent.post("go")
        await gate.reached.wait()
        # One may be steered, one may wait.
        agent.post("steered", mode="steer")
        agent.post("waits", mode="steer")
        with pytest.raises(ConflictError, match=r"messages\.queue\.cap"):
            agent.post("too much", mode="steer")
        with pytest.raises(ConflictError):
            await agent.send("too much")
        gate.release()
        await turn
        await agent.settle()
        assert sorted(user_texts(agent)) == ["go", "steered", "waits"]


async def test_closing_ends_the_turn_and_fails_queued_messages(workspace: Path) -> None:
    gate = Gate("done")
    async with Agent.open({}, workspace=workspace, model=ScriptedModel(gate)) as agent:
        turn, waits = agent.post("go"), agent.post("next", mode="followup")
        await gate.reached.wait()
    assert (await turn).how == "aborted"
    with pytest.raises(ToolError, match="was closed; "):
        await waits
    with pytest.raises(ToolError, match="is closed"):
        agent.post("more")


@pytest.mark.parametrize(
    ("agents", "most"),
    [
        ({}, 4),
        ({"defaults": {"maxConcurrent": 3}}, 3),
        ({"defaults": {"maxConcurrent": 3}, "entries": {"main": {"maxConcurrent": 1}}}, 1),
        ({"entries": {"main": {"maxConcurrent": 2}}}, 2),
    ],
)
async def test_concurrent_turns_are_limited_across_sessions(
    workspace: Path, agents: Any, most: int
) -> None:
    running = peak = 0

    async def answer(_request: Request) -> str:
        nonlocal running, peak
        running += 1
        peak = max(peak, running)
        for _ in range(20):
            await asyncio.sleep(0)
        running -= 1
        return "ok"

    model = ScriptedModel(then=answer)
    opened = [
        Agent.open({"agents": agents}, workspace=workspace, model=model, session=f"s{number}")
        for number in range(4)
    ]
    await asyncio.gather(*(agent.send("go") for agent in opened for _ in range(2)))
    assert peak == most
    for agent in opened:
        await agent.close()


async def test_a_turn_waits_while_the_conversation_is_shortened(workspace: Path) -> None:
    async with Agent.open({}, workspace=workspace, model=ScriptedModel("ok")) as agent:
        with agent.turns.lane.paused():
            turn = agent.post("go")
            await asyncio.sleep(0)
            assert agent.conversation.history == []
        assert (await turn).text == "ok"


def test_joined_messages_keep_their_source() -> None:
    one, two = User((Text("1"),)), User((Text("2"),))
    assert join([one]) is one
    joined = join([one, two])
    assert words(joined) == "1|2"
    assert joined.source is None
