"""What the tools for sub-agents have in common."""

from __future__ import annotations

from clawkit.config.model import Config
from clawkit.core.context import Scope
from clawkit.core.tool import Tool

NO_AGENT = "there is no stored session that could have sub-agents"


def with_agent(tool: Tool, _config: Config, scope: Scope) -> Tool | str:
    """The tool, where an agent runs that can start others."""
    return tool if scope.delegates else NO_AGENT
