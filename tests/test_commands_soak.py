"""Many commands of every kind at once, through the tools: each must end as planned."""

from __future__ import annotations

from pathlib import Path

import pytest
from bench.soak import soak
from tests.scale import scaled

COUNT = scaled(1_000)


@pytest.mark.long
@pytest.mark.timeout(600)
async def test_many_commands_at_once_end_as_they_should_and_leave_nothing(workspace: Path) -> None:
    outcome = await soak(workspace, COUNT, seed=5)
    assert outcome.faults == []
    assert outcome.kinds.total() == COUNT
    assert len(outcome.kinds) > 15
