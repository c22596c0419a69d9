"""No file outside is reached while directories are replaced during a lookup."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from pathlib import Path

import pytest
from tests.fs.races import Tally, race_changes, race_lists, race_reads
from tests.fs.tricks import resolving_by_hand
from tests.scale import scaled

pytestmark = [pytest.mark.timeout(300), pytest.mark.long]

Race = Callable[[Path, int], Awaitable[Tally]]


async def raced(race: Race, place: Path, count: int) -> None:
    """Both outcomes of the race must occur; otherwise it proves nothing. On a busy machine this
    may take several rounds."""
    done = refused = 0
    for number in range(20):
        tally = await race(place / str(number), count)
        assert tally.done + tally.refused == count
        done += tally.done
        refused += tally.refused
        if min(done, refused) > count // 100:
            return
    pytest.fail(f"only one side of the race was seen: {done} done, {refused} refused")


async def test_no_race_reads_a_file_outside(tmp_path: Path) -> None:
    await raced(race_reads, tmp_path, scaled(10_000))


async def test_no_race_lists_a_directory_outside(tmp_path: Path) -> None:
    await raced(race_lists, tmp_path, scaled(10_000))


async def test_no_race_changes_anything_outside(tmp_path: Path) -> None:
    await raced(race_changes, tmp_path, scaled(1_000))


async def test_races_do_not_escape_without_help_of_the_kernel(tmp_path: Path) -> None:
    with resolving_by_hand():
        await raced(race_reads, tmp_path / "reads", scaled(3_000))
        await raced(race_lists, tmp_path / "lists", scaled(3_000))
        await raced(race_changes, tmp_path / "changes", scaled(400))
