"""An agent without an event loop of the program."""

from __future__ import annotations

import asyncio
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
