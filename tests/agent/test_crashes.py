"""Killed without a word, at any moment: the conversation goes on, and nothing is left running."""

from __future__ import annotations

import asyncio
import os
import random
import signal
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from tests.agent.talking import APIS, assert_consistent, config_for, open_agent, store_of_home
from tests.cli.asking import Asker, Asking

from clawkit.content import Assistant, Message, ToolResult, User
from clawkit.models.protocols import Api
from clawkit.sessions.repair import INTERRUPTED
from clawkit.testing.answers import Gate, call, say, think
from clawkit_testkit import fault
from clawkit_testkit.server import ScriptedServer

TELL = [call("exec", {"command": "echo $$ > pid; exec sleep 1000"})]


class Victim:
    """A run of `clawkit agent` that will be killed, and who goes on afterwards."""

    def __init__(self, server: ScriptedServer, api: Api, place: Path) -> None:
        self.server = server
        self.config = config_for(server, api)
        self.asker = Asker(place, self.config)
        self.place = place

    async def start(self) -> Asking:
        return await self.asker.start("-m", "Go.", "--session", "talk")

    async def kill(self, asking: Asking) -> list[Message]:
        """End it at once; what is in the store then."""
        asking.send_signal(signal.SIGKILL)
        await asking.process.communicate()
        store = store_of_home()
        try:
            return [each.message for each in store.history(store.get("talk").id)]
        finally:
            store.close()

    async def go_on(self) -> list[Message]:
        """A new agent says something; the messages that the service was sent are consistent."""
        async with open_agent(self.config, self.place, session="talk") as agent:
            assert_consistent(agent.conversation.history)
            ended = await agent.send("Go on.")
            assert (ended.how, ended.text) == ("done", "Fine.")
            return list(agent.conversation.history)


@asynccontextmanager
async def victim(
    api: Api, place: Path, *answers: Any, then: Any = "Fine."
) -> AsyncIterator[Victim]:
    async with ScriptedServer(*answers, then=then) as server:
        yield Victim(server, api, place)


async def appears(file: Path) -> str:
    while not file.exists() or not (text := file.read_text(encoding="utf-8")).endswith("\n"):
        await asyncio.sleep(0.01)
    return text


async def goes(pid: int) -> None:
    while os.path.exists(f"/proc/{pid}"):
        await asyncio.sleep(0.01)


@pytest.mark.parametrize("after", [0, 2])
async def test_killed_while_an_answer_comes(after: int, workspace: Path) -> None:
    gate = Gate([think("Hm."), say("One, two, three."), call("ls")], after=after)
    async with victim(APIS[2], workspace, gate) as killed:
        asking = await killed.start()
        await gate.reached.wait()
        (said,) = await killed.kill(asking)
        assert isinstance(said, User)
        history = await killed.go_on()
    assert [type(each) for each in history] == [User, User, Assistant]


@pytest.mark.parametrize("api", APIS)
async def test_killed_between_a_call_and_its_result(api: Api, workspace: Path) -> None:
    async with victim(api, workspace, TELL) as killed:
        asking = await killed.start()
        pid = int(await appears(workspace / "pid"))
        left = await killed.kill(asking)
        assert [type(each) for each in left] == [User, Assistant]
        await goes(pid)
        history = await killed.go_on()
    result = history[2]
    assert isinstance(result, ToolResult)
    assert INTERRUPTED in str(result.content)


async def test_killed_in_the_middle_of_parallel_calls(workspace: Path) -> None:
    several = [call("read", {"path": "a.txt"}), *TELL, call("ls")]
    async with victim(APIS[0], workspace, several) as killed:
        asking = await killed.start()
        pid = int(await appears(workspace / "pid"))
        left = await killed.kill(asking)
        await goes(pid)
        history = await killed.go_on()
    done = {each.tool for each in left if isinstance(each, ToolResult)}
    results = [each for each in history if isinstance(each, ToolResult)]
    assert [each.tool for each in results] == ["read", "exec", "ls"]
    assert {each.tool for each in results if INTERRUPTED not in str(each.content)} == done
    assert "exec" not in done


@pytest.mark.parametrize("seed", range(4))
async def test_killed_at_any_moment(seed: int, workspace: Path) -> None:
    chance = random.Random(seed)
    step: list[Any] = [say("One, two, three. "), call("read", {"path": "a.txt"}), call("ls")]
    mood: list[Any] = [fault.slow(0.002, step)]
    async with victim(APIS[seed], workspace, then=lambda _: mood[0]) as killed:
        asking = await killed.start()
        await killed.server.wait_for(chance.randrange(1, 12))
        await asyncio.sleep(chance.random() / 50)
        left = await killed.kill(asking)
        # All that was answered is there, but for the answer that was on its way.
        answers = [each for each in left if isinstance(each, Assistant)]
        assert killed.server.count - 1 <= len(answers) <= killed.server.count
        mood[0] = "Fine."
        history = await killed.go_on()
    assert len([each for each in history if isinstance(each, Assistant)]) == len(answers) + 1
