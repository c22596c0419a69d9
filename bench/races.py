"""The race harness of the tests, at ten times their counts: nothing outside may ever be reached."""

from __future__ import annotations

import asyncio
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

from tests.races_tools import changing, looking, race, searching

from bench.figure import Figure


def measure() -> Iterator[Figure]:
    for name, calls, count in (
        ("races of read and ls", looking, 100_000),
        ("races of write, edit, apply_patch", changing, 10_000),
        ("races of grep and find", searching, 2_000),
    ):
        with tempfile.TemporaryDirectory(prefix="clawkit-bench-") as place:
            start = time.perf_counter()
            # Raises as soon as anything outside is reached.
            tally = asyncio.run(race(Path(place), count, calls))
        note = f"{count:,} calls, {tally.done:,} done, {tally.refused:,} refused"
        note += f", {time.perf_counter() - start:.0f} s"
        yield Figure(name, 0, "reached outside", 0, note)
