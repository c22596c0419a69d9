"""Shared by the sub-agent tools."""

from __future__ import annotations

from clawkit.config.model import Config
from clawkit.core.context import Scope
from clawkit.core.tool import Tool

NO_AGENT = "it needs an agent with a saved session: use `clawkit agent` without --no-session"


def with_agent(tool: Tool, _config: Config, scope: Scope) -> Tool | str:
    """The tool, if the run belongs to an agent that can start sub-agents."""
    return tool if scope.delegates else NO_AGENT
