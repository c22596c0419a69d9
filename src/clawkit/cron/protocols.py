"""What tools need of jobs."""

from __future__ import annotations

from typing import Any, Protocol

FILE = "HEARTBEAT.md"
"""What a heartbeat asks for, in the workspace."""


class CronControl(Protocol):
    """The jobs of this home, for the model of one session."""

    def run(self, params: Any) -> dict[str, Any]:
        """Do what a model asks for with the parameters of the tool, as far as models may. Raises
        `ToolError`."""


class HeartbeatControl(Protocol):
    """The heartbeat whose turn this is."""

    def respond(self, params: Any) -> dict[str, Any]:
        """Take the answer of the turn, from the parameters of the tool. Raises `ToolInputError` for
        a second one."""
