"""An agent without an event loop of the program."""

from __future__ import annotations

import asyncio
import gc
import subprocess
import sys
from typing import NoReturn

import pytest

from clawkit.agent.sync_runner import SyncRunner


def interrupt() -> NoReturn:
    raise KeyboardInterrupt


def test_interrupted_work_is_cancelled_in_its_loop_when_the_runner_is_closed() -> None:
    cleaned: list[str] = []

    async def work() -> None:
        asyncio.get_running_loop().call_soon(interrupt)
        try:
            await asyncio.Event().wait()
        finally:
            await asyncio.sleep(0)
            cleaned.append("up")

    runner = SyncRunner()
    with pytest.raises(KeyboardInterrupt):
        runner.run(work())
    assert cleaned == []
    runner.close()
    assert cleaned == ["up"]


def test_a_runner_that_was_not_used_can_be_closed() -> None:
    SyncRunner().close()


PROGRAM = """
import gc
from clawkit import Agent
from clawkit.testing import ScriptedModel

def main():
    agent = Agent.open({}, model=ScriptedModel("One.", "Two."), keep=False)
    print(agent.run_sync("go"))
    return agent

main()
gc.collect()
agent = main()  # until the end
"""


def test_a_program_that_does_not_close_its_agent_ends_without_warnings() -> None:
    argv = [sys.executable, "-X", "dev", "-c", PROGRAM]
    done = subprocess.run(argv, capture_output=True, text=True)
    assert (done.returncode, done.stdout, done.stderr) == (0, "One.\nOne.\n", "")


@pytest.mark.parametrize("in_loop", [True, False])
def test_a_runner_that_is_dropped_closes_its_loop(in_loop: bool) -> None:
    async def work() -> asyncio.AbstractEventLoop:
        return asyncio.get_running_loop()

    async def drop(runners: list[SyncRunner]) -> None:
        runners.clear()

    runners = [SyncRunner()]
    loop = runners[0].run(work())
    if in_loop:
        asyncio.run(drop(runners))
    else:
        runners.clear()
    gc.collect()
    assert loop.is_closed()
