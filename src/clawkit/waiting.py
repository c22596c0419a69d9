"""Sessions that wait for sub-agents: the timeout, and the texts about sub-agents for the model."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence

from clawkit.sessions.subagent_protocols import Run, RunState, now_ms
from clawkit.text import human_time, one_line

OVER = (
    "[This message is from clawkit, not from the user: your timeout for waiting for sub-agents has "
    "expired.]"
)
SILENT = (
    "[This message is from clawkit, not from the user: all sub-agents that you waited for have "
    "ended and had nothing to report.]"
)
WAIT_AGAIN = (
    "Continue with what you have, wait for them again with sessions_yield, or stop them with "
    "subagents. Their results will still arrive as messages."
)
_MAX_TASK = 200


class Rest:
    """The wait after `sessions_yield`, until the session resumes. Not stored: sub-agents end with
    the process."""

    def __init__(self) -> None:
        self.is_on = False
        self.is_over = False
        """Whether the timeout has expired."""
        self._alarm: asyncio.TimerHandle | None = None

    def begin(self, timeout_s: float | None, wake: Callable[[], None]) -> None:
        """`wake` is called when the timeout expires, unless `end` is called before."""

        def ring() -> None:
            self.is_over = True
            wake()

        self.end()
        self.is_on = True
        if timeout_s is not None:
            self._alarm = asyncio.get_running_loop().call_later(timeout_s, ring)

    def end(self) -> None:
        self.is_on = self.is_over = False
        if self._alarm is not None:
            self._alarm.cancel()
            self._alarm = None

    @property
    def left_s(self) -> float | None:
        """Seconds until the timeout; None if there is none."""
        if self._alarm is None:
            return None
        return max(0.0, self._alarm.when() - asyncio.get_running_loop().time())


def describe_active(states: Sequence[RunState]) -> str:
    """Active sub-agents, one line each, without any of their own text."""
    lines = []
    for each in states:
        time = human_time(max(0, now_ms() - each.run.created_ms) / 1000)
        lines.append(f"- {each.run.label!r} (run {each.run.id}): {each.status} for {time}")
    return "\n".join([f"Still at work: {len(states)}", *lines])


def restate(runs: Sequence[Run]) -> str:
    """Active sub-agents and unread results, which a summary of the conversation must include; empty
    if there are none."""
    if not runs:
        return ""
    lines = []
    for run in runs:
        state = f"has ended ({run.status})" if run.is_over else "is still at work"
        task = one_line(run.task, _MAX_TASK)
        lines.append(f"- {run.label!r} (run {run.id}) {state}. Its task: {task}")
    head = "Sub-agents you started whose results you have not read; these will arrive as messages:"
    return "\n".join([head, *lines])
