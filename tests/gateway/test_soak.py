"""Clients that leave and a gateway that restarts: every message is said once, and answered."""

from __future__ import annotations

from pathlib import Path

import pytest
from bench.gateway_soak import judge, soak
from tests.scale import FULL


def test_a_soak_sees_what_is_lost_repeated_or_unanswered() -> None:
    history = [("user", "a"), ("assistant", "re a"), ("user", "b"), ("user", "b"), ("user", "c")]
    found = judge(["a", "b", "c", "d"], [*history, ("assistant", "re b")])
    assert (found.lost, found.twice, found.unanswered) == (["d"], ["b"], ["c"])


@pytest.mark.long
@pytest.mark.timeout(600)
async def test_nothing_is_lost_or_repeated_over_restarts(tmp_path: Path) -> None:
    restarts, clients, every_s = (10, 50, 30.0) if FULL else (2, 6, 2.0)
    found = await soak(tmp_path, restarts, clients, every_s, seed=1)
    assert found.faults == []
    assert found.accepted >= clients
