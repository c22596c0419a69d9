"""A session with three sub-agents, one of which fails and one of which takes too long: what a
person sees in the chat and of `clawkit agent`, and what a program reads."""

from __future__ import annotations

import json
import signal
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from tests.agent.talking import APIS, config_for
from tests.cli.asking import Asker
from tests.ui.screen import Screen

from clawkit.testing import Gate, ScriptedServer, call, calls
from clawkit_testkit import fault

SAID = "Look at the three modules."
LAST = "Good has 3 files; bad failed; slow took too long."


def _answers() -> Callable[[Any], Any]:
    """The parent starts three and waits; what each of them does depends on its task."""
    tasks: list[dict[str, Any]] = [
        {"task": "Look at good/.", "label": "good"},
        {"task": "Look at bad/.", "label": "bad"},
        {"task": "Look at slow/.", "label": "slow", "runTimeoutSeconds": 1.5},
    ]
    script = [calls(*(("sessions_spawn", each) for each in tasks)), call("sessions_yield")]

    def answer(request: Any) -> Any:
        text = json.dumps(request.body)
        is_begun = "tool_use_id" in text
        if "You are a sub-agent" not in text:
            has_more = "Still at work" in json.dumps(request.body["messages"][-1])
            return script.pop(0) if script else "So far so good." if has_more else LAST
        if "Look at good/." in text:
            return "It has 3 files." if is_begun else call("ls")
        if "Look at bad/." in text:
            return fault.status(401)
        return Gate("never") if is_begun else ["I begin.", call("ls")]

    return answer


@asynccontextmanager
async def asker(place: Path) -> AsyncIterator[Asker]:
    async with ScriptedServer(then=_answers()) as server:
        yield Asker(place, config_for(server, APIS[2]))


@pytest.fixture
def chat(workspace: Path) -> Iterator[Callable[..., Screen]]:
    opened: list[Screen] = []

    def run(*args: str) -> Screen:
        opened.append(Screen("chat", *args, cwd=workspace))
        return opened[-1]

    yield run
    for each in opened:
        each.close()


ENDS = (
    "Sub-agent 'good': completed",
    "Sub-agent 'bad': failed (anthropic-messages rejected the credential",
    "Sub-agent 'slow': timed out (it took longer than 1.5s)",
)


async def test_a_person_sees_what_was_asked_and_how_each_ended(workspace: Path) -> None:
    async with asker(workspace) as clawkit:
        done = await clawkit.ask("-m", SAID)
    assert done.code == 0
    assert done.text.splitlines()[-1] == LAST
    lines = done.err.splitlines()
    assert lines[:4] == [
        "· sessions_spawn good: Look at good/.",
        "· sessions_spawn bad: Look at bad/.",
        "· sessions_spawn slow: Look at slow/.",
        "· sessions_yield",
    ]
    for end in ENDS:
        assert len([line for line in lines if line.startswith(f"· {end}")]) == 1
    assert len(lines) == 7


async def test_a_program_reads_the_events_of_every_session_and_how_each_ended(
    workspace: Path,
) -> None:
    async with asker(workspace) as clawkit:
        done = await clawkit.ask("-m", SAID, "--json")
    own = [each for each in done.events if each["type"] != "subagent"]
    assert (done.events[0]["type"], own[-1]) == ("turn_start", done.events[-1])
    assert (own[-1]["type"], own[-1]["how"], own[-1]["text"]) == ("turn_end", "done", LAST)
    below: dict[str, list[dict[str, Any]]] = {}
    for each in done.events:
        if each["type"] == "subagent":
            below.setdefault(each["label"], []).append(each)
    assert set(below) == {"good", "bad", "slow"}
    ends = {}
    for label, events in below.items():
        kinds = [each["event"]["type"] for each in events]
        assert kinds[:3] == ["turn_start", "user", "request"]
        assert kinds[-2:] == ["turn_end", "run_end"]
        assert {each["depth"] for each in events} == {1}
        assert len({(each["run"], each["session"]) for each in events}) == 1
        assert events[0]["session"] == events[0]["event"]["session"]
        assert events[0]["session"].startswith("agent:main:subagent:")
        ends[label] = events[-1]["event"]
    statuses = {label: end["status"] for label, end in ends.items()}
    assert statuses == {"good": "completed", "bad": "failed", "slow": "timed_out"}
    assert "rejected the credential" in ends["bad"]["error"]
    assert ends["slow"]["error"] == "it took longer than 1.5s"
    assert ends["good"]["usage"]["output"] > 0
    pieces = [each["event"] for each in below["good"] if each["event"]["type"] == "text"]
    assert "".join(each["text"] for each in pieces) == "It has 3 files."
    told = [each["message"] for each in own if each["type"] == "user"][1:]
    named = [run for message in told for run in message["source"]["runs"]]
    assert sorted(named) == sorted(events[0]["run"] for events in below.values())


async def test_the_chat_shows_each_at_work_and_how_it_ended(
    chat: Callable[..., Screen], workspace: Path
) -> None:
    async with asker(workspace) as clawkit:
        screen = chat(SAID, "--config", str(clawkit.file))
        await screen.until("slow: thinking")
        await screen.until(LAST)
        for end in ENDS:
            await screen.until(end)
        await screen.until_gone("slow: thinking")
        text = screen.text
    for task in ("good: Look at good/.", "bad: Look at bad/.", "slow: Look at slow/."):
        assert f"✓ sessions_spawn {task}" in text
    assert "not from the user" not in text
    assert "run_end" not in text


@asynccontextmanager
async def waiter(place: Path) -> AsyncIterator[Asker]:
    """The parent waits half a second, and stops what takes longer."""
    stop = call("subagents", {"action": "cancel", "target": "all"})
    script = [
        call("sessions_spawn", {"task": "Count sheep.", "label": "sheep"}),
        call("sessions_yield", {"timeoutSeconds": 0.5, "acknowledgment": "Half a second."}),
        stop,
        "It took too long.",
        "It was stopped.",
    ]

    def answer(request: Any) -> Any:
        is_child = "You are a sub-agent" in str(request.body["system"])
        return Gate("never") if is_child else script.pop(0)

    async with ScriptedServer(then=answer) as server:
        yield Asker(place, config_for(server, APIS[2]))


DEADLINE = "· The wait for sub-agents is over; still at work: 1 (sheep)"


async def test_a_message_is_answered_after_the_deadline(workspace: Path) -> None:
    async with waiter(workspace) as clawkit:
        done = await clawkit.ask("-m", "Count.")
    assert done.text.splitlines()[0] == "It took too long."
    lines = done.err.splitlines()
    assert lines.index("· Half a second.") < lines.index(DEADLINE)


async def test_the_chat_continues_by_itself_at_the_deadline(
    chat: Callable[..., Screen], workspace: Path
) -> None:
    async with waiter(workspace) as clawkit:
        screen = chat("Count.", "--config", str(clawkit.file))
        await screen.until("· Half a second.")
        await screen.until(DEADLINE)
        await screen.until("It took too long.")


async def test_the_last_line_says_that_the_wait_was_interrupted(workspace: Path) -> None:
    gate = Gate("never")
    script = [call("sessions_spawn", {"task": "Count sheep."}), call("sessions_yield")]

    def answer(request: Any) -> Any:
        return gate if "You are a sub-agent" in str(request.body["system"]) else script.pop(0)

    async with ScriptedServer(then=answer) as server:
        clawkit = Asker(workspace, config_for(server, APIS[2]))
        asking = await clawkit.start("-m", "Count.", "--json")
        await asking.heard("yielded")
        await gate.reached.wait()
        asking.send_signal(signal.SIGINT)
        done = await asking.done()
    assert done.code == 130
    assert (done.events[-1]["type"], done.events[-1]["how"]) == ("turn_end", "aborted")
