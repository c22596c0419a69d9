"""Plugins: tools, hooks, commands, services and settings from others. See docs/plugins.md.

All that a plugin needs to import is here.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from clawkit.content import ToolResult
from clawkit.core.approval import Ask, Deny
from clawkit.core.context import Context
from clawkit.core.result import Result
from clawkit.core.tool import Effect, Tool, tool
from clawkit.plugins.api import ChatMessage, Plugin, PluginContext

if TYPE_CHECKING:
    from clawkit.core.hooks import Call, Rewrite

__all__ = [
    "Ask",
    "Call",
    "ChatMessage",
    "Context",
    "Deny",
    "Effect",
    "Plugin",
    "PluginContext",
    "Result",
    "Rewrite",
    "Tool",
    "ToolResult",
    "tool",
]


def __getattr__(name: str) -> Any:
    if name not in ("Call", "Rewrite"):
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from clawkit.core import hooks  # imports asyncio, which not every command needs

    return getattr(hooks, name)
