"""Sessions that end their turn to wait for sub-agents, and how they go on."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest
from tests.agent.talking import Heard
from tests.test_delegation import Answer, is_child, last_text, model_of, refusal, reports_of, spawn

from clawkit import Agent
from clawkit.agent.events import Notice
from clawkit.content import Summary, ToolResult, User
from clawkit.models.protocols import ModelError, Request
from clawkit.testing import Gate, call, calls

SOON = 0.05


def yields(**params: Any) -> Any:
    return call("sessions_yield", params)


def details(agent: Agent) -> dict[str, Any]:
    """Of the last result of a tool."""
    results = [each for each in agent.conversation.history if isinstance(each, ToolResult)]
    return dict(results[-1].details)


async def test_the_deadline_resumes_a_session_and_says_what_is_still_at_work(
    workspace: Path,
) -> None:
    gate = Gate("late")
    script = [spawn(label="slow"), yields(timeoutSeconds=SOON), "I go on without it.", "All read."]
    async with Agent.open({}, workspace=workspace, model=model_of(script, lambda _: gate)) as agent:
        await agent.send("go")
        assert details(agent)["status"] == "yielded"
        work = asyncio.ensure_future(agent.settle())
        while not reports_of(agent):
            await asyncio.sleep(0.01)
        [message] = reports_of(agent)
        assert "not from the user: your timeout" in message
        assert "Still at work: 1\n- 'slow' (run " in message
        assert "): running for " in message
        gate.release()
        ended = await work
        assert ended is not None
        assert ended.text == "All read."
        assert "Sub-agent 'slow': completed" in reports_of(agent)[1]
        last = [each for each in agent.conversation.history if isinstance(each, User)][1]
        assert last.source is not None
        assert (last.source.kind, last.source.runs) == ("subagent", ())
        assert last.source.titles == ("The wait for sub-agents is over; still at work: 1 (slow)",)


async def test_a_program_gets_the_answer_after_the_deadline(workspace: Path) -> None:
    """The model stops what took too long, and `run` returns its last words."""
    stop = call("subagents", {"action": "cancel", "target": "all"})
    script = [spawn(), yields(timeoutSeconds=SOON), stop, "It took too long.", "It took too long."]
    model = model_of(script, lambda _: Gate("never"))
    async with Agent.open({}, workspace=workspace, model=model) as agent:
        assert await agent.run("go") == "It took too long."


async def test_a_result_before_the_deadline_resumes_it_once(workspace: Path) -> None:
    script = [spawn(), yields(timeoutSeconds=0.3), "I have it."]
    async with Agent.open({}, workspace=workspace, model=model_of(script, lambda _: "7")) as agent:
        heard = 0

        def count() -> None:
            nonlocal heard
            heard += 1

        assert await agent.run("go") == "I have it."
        agent.on_results = count
        await asyncio.sleep(0.4)
        assert heard == 0
        assert not agent.has_results
        assert len(reports_of(agent)) == 1


async def test_an_idle_chat_is_notified_at_the_deadline(workspace: Path) -> None:
    gate, called = Gate("late"), asyncio.Event()
    script = [spawn(), yields(timeoutSeconds=SOON), "Still waiting.", "Read."]
    async with Agent.open({}, workspace=workspace, model=model_of(script, lambda _: gate)) as agent:
        agent.on_results = called.set
        await agent.send("go")
        await called.wait()
        ended = await agent.report()
        assert ended is not None
        assert ended.text == "Still waiting."
        assert await agent.report() is None
        gate.release()
        await agent.settle()


async def test_a_message_of_a_person_resumes_the_session_and_ends_the_wait(workspace: Path) -> None:
    gate = Gate("late")
    script = [spawn(), yields(timeoutSeconds=SOON), "Yes?", "Read."]
    async with Agent.open({}, workspace=workspace, model=model_of(script, lambda _: gate)) as agent:
        await agent.send("go")
        assert (await agent.send("hello")).text == "Yes?"
        await asyncio.sleep(2 * SOON)
        assert not agent.has_results
        assert reports_of(agent) == []
        gate.release()
        await agent.settle()


@pytest.mark.parametrize("announce", ["steer", "followup"])
async def test_results_that_have_already_arrived_are_read_in_the_same_turn(
    workspace: Path, announce: str
) -> None:
    first, slow = Gate(yields()), Gate("late")
    asked = calls(("sessions_spawn", {"task": "quick"}), ("sessions_spawn", {"task": "slow"}))
    model = model_of(
        [asked, first, "one is read", "both are read"],
        lambda request: slow if "slow" in last_text(request) else "quick",
    )
    config = {"agents": {"defaults": {"subagents": {"announce": announce}}}}
    async with Agent.open(config, workspace=workspace, model=model) as agent:
        turn = asyncio.ensure_future(agent.send("go"))
        await first.reached.wait()
        assert agent.delegation is not None
        await agent.delegation.wait((), None)
        first.release()
        assert (await turn).text == "one is read"
        assert details(agent)["status"] == "already_pending"
        assert [each["label"] for each in details(agent)["pendingChildren"]] == ["slow"]
        assert len(reports_of(agent)) == 1
        slow.release()
        await agent.settle()
        assert len(reports_of(agent)) == 2


async def test_a_wait_includes_sub_agents_started_in_the_same_message(workspace: Path) -> None:
    asked = calls(("sessions_spawn", {"task": "t"}), ("sessions_yield", {}))
    asked[1] = yields(timeoutSeconds=0)  # no limit
    model = model_of([asked, "done"], lambda _: "7")
    async with Agent.open({}, workspace=workspace, model=model) as agent:
        assert await agent.run("go") == "done"
        assert details(agent)["status"] == "yielded"


async def test_a_sub_agent_that_ends_without_an_answer_is_not_waited_for(workspace: Path) -> None:
    model = model_of([spawn(), yields(), "Nothing to say."], lambda _: "ANNOUNCE_SKIP")
    async with Agent.open({}, workspace=workspace, model=model) as agent:
        assert await agent.run("go") == "Nothing to say."
        [message] = reports_of(agent)
        assert "had nothing to report" in message


async def test_a_sub_agent_waits_with_a_deadline_and_takes_no_slot(workspace: Path) -> None:
    leaf = Gate("leaf done")

    def child(request: Request) -> Answer:
        text = last_text(request)
        if text == "upper":
            return spawn("lower", label="leaf")
        if "Started" in text:
            return yields(timeoutSeconds=SOON)
        if "your timeout for waiting" in text:
            leaf.release()
            return yields()
        return leaf if text == "lower" else "upper done"

    limits = {"maxConcurrent": 1, "maxSpawnDepth": 2}
    config = {"agents": {"defaults": {"subagents": limits}}}
    model = model_of([spawn("upper"), yields(), "all done"], child)  # both levels wait
    async with Agent.open(config, workspace=workspace, model=model) as agent:
        assert await agent.run("go") == "all done"
        assert "> upper done" in reports_of(agent)[0]
    said = [last_text(each) for each in model.requests if is_child(each)]
    assert any("Still at work: 1\n- 'leaf'" in each for each in said)


async def test_the_acknowledgment_is_shown_to_the_user(workspace: Path) -> None:
    heard, gate = Heard(), Gate("late")
    script = [spawn(), yields(acknowledgment="I am on it.", waitFor="message"), "Done."]
    model = model_of(script, lambda _: gate)
    async with Agent.open({}, workspace=workspace, model=model, tell=heard) as agent:
        ended = await agent.send("go")
        assert ended.text == "I am on it."
        assert heard.of(Notice) == [Notice("I am on it.")]
        gate.release()
        await agent.settle()


@pytest.mark.parametrize(
    ("params", "words"),
    [
        ({}, "there is no sub-agent to wait for"),
        ({"timeoutSeconds": -1}, "timeoutSeconds: -1 is less than"),
        ({"timeoutSeconds": 86_401}, "timeoutSeconds"),
        ({"waitFor": "sunset"}, "waitFor"),
    ],
)
async def test_invalid_waits_are_refused(
    workspace: Path, params: dict[str, Any], words: str
) -> None:
    model = model_of([call("sessions_yield", params), "ok"], lambda _: "7")
    async with Agent.open({}, workspace=workspace, model=model) as agent:
        await agent.send("go")
        assert words in refusal(agent)


async def test_sessions_yield_needs_a_running_turn(workspace: Path) -> None:
    gate = Gate("late")
    model = model_of([spawn(), "started", "read"], lambda _: gate)
    async with Agent.open({}, workspace=workspace, model=model) as agent:
        await agent.send("go")
        result = await agent.kit.call("sessions_yield")
        assert "there is no running turn" in result.as_text()
        gate.release()
        await agent.settle()


async def test_a_summary_says_again_which_sub_agents_are_at_work(workspace: Path) -> None:
    gates = {"slow": Gate("late"), "fast": Gate("soon")}

    def child(request: Request) -> Answer:
        return gates["slow" if "slow" in last_text(request) else "fast"]

    tasks = ({"task": f"Read the {name} log", "label": name} for name in gates)
    asked = calls(*(("sessions_spawn", each) for each in tasks))
    script = [asked, "They are at work.", "A summary.", "Go on.", "read", "read"]
    model = model_of(script, child)
    async with Agent.open({}, workspace=workspace, model=model, session="s") as agent:
        await agent.send("x" * 100_000)
        for gate in gates.values():
            await gate.reached.wait()
        gates["fast"].release()
        assert agent.delegation is not None
        await agent.delegation.wait([agent.delegation.find("fast")], None)
        assert await agent.conversation.compact()
        [summary] = [each for each in agent.conversation.history if isinstance(each, Summary)]
        assert summary.text.startswith("A summary.\n\nSub-agents you started")
        lines = summary.text.splitlines()[3:]
        assert [line.partition(")")[2] for line in lines] == [
            " is still at work. Its task: Read the slow log",
            " has ended (completed). Its task: Read the fast log",
        ]
        await agent.send("and?")
        assert "A summary." in str(model.requests[-1].messages[0])
        gates["slow"].release()
        await agent.settle()
        assert agent.delegation.restate() == ""
        assert agent.store is not None
        stored = [each.message for each in agent.store.load(agent.session_id)]
    assert any(isinstance(each, Summary) and "slow log" in each.text for each in stored)


async def test_compaction_keeps_the_running_sub_agents(workspace: Path) -> None:
    """Between the start of a sub-agent and its end, and without anyone's asking for it."""
    gate = Gate("found it")
    too_long = ModelError("overflow", "too long")
    script = ["hi", spawn(label="slow"), too_long, "a summary", yields(), "read it"]
    config = {"agents": {"defaults": {"compaction": {"keepRecentTokens": 8}}}}
    model = model_of(script, lambda _: gate)
    async with Agent.open(config, workspace=workspace, model=model) as agent:
        await agent.send("hello")
        await agent.send("go")
        [summary] = [each for each in agent.conversation.history if isinstance(each, Summary)]
        assert summary.text.startswith("a summary")
        assert "'slow' (run " in summary.text
        gate.release()
        ended = await agent.settle()
        assert ended is not None
        assert ended.text == "read it"
