"""One measurement, and how times are taken."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import NamedTuple


class Figure(NamedTuple):
    """One measurement."""

    name: str
    value: float
    unit: str
    limit: float
    note: str = ""

    @property
    def over(self) -> bool:
        return self.value > self.limit


def fastest(work: Callable[[], object], rounds: int) -> float:
    """The least disturbed of several rounds, in seconds."""
    times = []
    for _ in range(rounds):
        start = time.perf_counter()
        work()
        times.append(time.perf_counter() - start)
    return min(times)
