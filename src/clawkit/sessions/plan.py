"""The plan of one run: kept while it runs, shown by whoever watches."""

from __future__ import annotations

from collections.abc import Sequence

from clawkit.sessions.base import Step


class CurrentPlan:
    """The latest plan. A new one takes its place as a whole."""

    def __init__(self) -> None:
        self.steps: tuple[Step, ...] = ()
        self.explanation = ""

    def replace(self, steps: Sequence[Step], explanation: str = "") -> None:
        self.steps, self.explanation = tuple(steps), explanation
