"""No tool reaches files outside while directories are being replaced by links."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.races_tools import changing, looking, race, searching
from tests.scale import scaled


@pytest.mark.long
@pytest.mark.parametrize(
    ("calls", "count"),
    [(looking, scaled(10_000)), (changing, scaled(1_000)), (searching, scaled(200))],
)
@pytest.mark.timeout(300)
async def test_no_tool_is_led_outside(tmp_path: Path, calls: object, count: int) -> None:
    done = refused = 0
    # Both sides of the race must be seen: otherwise it shows nothing. A busy machine may take
    # several rounds for that.
    for number in range(20):
        tally = await race(tmp_path / str(number), count, calls)
        done += tally.done
        refused += tally.refused
        if min(done, refused) > count // 100:
            return
    pytest.fail(f"only one side of the race was seen: {done} done, {refused} refused")
