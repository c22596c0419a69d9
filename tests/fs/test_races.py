"""Nothing outside is reached, whatever is swapped while a path is looked up."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.fs.races import Tally, race_changes, race_lists, race_reads
from tests.fs.tricks import resolving_by_hand

pytestmark = [pytest.mark.timeout(300), pytest.mark.no_cover]


def raced(tally: Tally, count: int) -> None:
    """Both sides of the race were seen: otherwise it shows nothing."""
    assert tally.done + tally.refused == count
    assert tally.done > count // 100
    assert tally.refused > count // 100


async def test_no_race_reads_a_file_outside(tmp_path: Path) -> None:
    raced(await race_reads(tmp_path, 10_000), 10_000)


async def test_no_race_lists_a_directory_outside(tmp_path: Path) -> None:
    raced(await race_lists(tmp_path, 10_000), 10_000)


async def test_no_race_changes_anything_outside(tmp_path: Path) -> None:
    raced(await race_changes(tmp_path, 1_000), 1_000)


async def test_nor_where_the_kernel_does_not_help(tmp_path: Path) -> None:
    with resolving_by_hand():
        raced(await race_reads(tmp_path / "reads", 3_000), 3_000)
        raced(await race_lists(tmp_path / "lists", 3_000), 3_000)
        raced(await race_changes(tmp_path / "changes", 400), 400)
