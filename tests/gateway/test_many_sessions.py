"""What keeps many sessions at once cheap, and fair to each other."""

from __future__ import annotations

import asyncio

import pytest
from tests.gateway.conftest import Ground, serve

from clawkit.gateway import agent_pool
from clawkit.process.protocols import ExecHost
from clawkit.services import Services


async def test_others_have_their_turn_between_two_sessions_that_are_opened(ground: Ground) -> None:
    sessions, seen = ground.gateway.live, list[int]()
    opening = asyncio.gather(
        *(sessions.open(f"agent:main:s{number}", owner=True) for number in range(5))
    )
    while not opening.done():
        seen.append(sessions.opened)
        await asyncio.sleep(0)
    assert {0, 1, 2, 3, 4} <= set(seen)


async def test_only_a_few_sessions_have_a_process_for_their_first_command(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(agent_pool, "WARM", 1)
    sent = asyncio.Event()
    sent.set()
    async with serve({"tools": {"exec": {"host": "gateway"}}}) as ground:
        made = []
        for name in ("first", "second"):
            there = await ground.gateway.live.open(f"agent:main:{name}", owner=True)
            await there.agent.turns._warm_up(sent)
            services = there.agent.kit.run.services
            assert isinstance(services, Services)
            made.append(services.is_created(ExecHost))
        assert made == [True, False]
