"""What tools need of jobs."""

from __future__ import annotations

from typing import Any, Protocol


class CronControl(Protocol):
    """The jobs of this home, for the model of one session."""

    def run(self, params: Any) -> dict[str, Any]:
        """Do what a model asks for with the parameters of the tool, as far as models may. Raises
        `ToolError`."""
