from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import pytest
from tests.lsp.parts import Desk


@pytest.fixture
async def desk(tmp_path: Path) -> AsyncIterator[Callable[..., Desk]]:
    """Makes workspaces whose servers are ended after the test."""
    made: list[Desk] = []

    def make(**options: Any) -> Desk:
        made.append(Desk(tmp_path, **options))
        return made[-1]

    yield make
    for each in made:
        await each.service.close()
