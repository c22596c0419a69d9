"""The interface of jobs for tools."""

from __future__ import annotations

from typing import Any, Protocol

FILE = "HEARTBEAT.md"
"""The file in the workspace with the instructions for heartbeats."""


class CronControl(Protocol):
    """The jobs of this home, for the model of one session."""

    def run(self, params: Any) -> dict[str, Any]:
        """Execute a call of the tool, if models may do this. Raises `ToolError`."""


class HeartbeatControl(Protocol):
    """The heartbeat of the current turn."""

    def respond(self, params: Any) -> dict[str, Any]:
        """Accept the answer of the turn, from the parameters of the tool. Raises `ToolInputError`
        for a second one."""
