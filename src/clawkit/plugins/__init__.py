"""Plugins: tools, hooks, commands, services and settings from third parties. See docs/plugins.md.

Everything that a plugin needs to import is here.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from clawkit.content import ToolResult as ToolResult
from clawkit.core.approval import Ask as Ask
from clawkit.core.approval import Deny as Deny
from clawkit.core.context import Context as Context
from clawkit.core.result import Result as Result
from clawkit.core.tool import Effect as Effect
from clawkit.core.tool import Tool as Tool
from clawkit.core.tool import tool as tool
from clawkit.plugins.api import ChatMessage as ChatMessage
from clawkit.plugins.api import Plugin as Plugin
from clawkit.plugins.api import PluginContext as PluginContext

if TYPE_CHECKING:
    from clawkit.core.hooks import Call as Call
    from clawkit.core.hooks import Rewrite as Rewrite


def __getattr__(name: str) -> Any:
    if name not in ("Call", "Rewrite"):
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from clawkit.core import hooks  # imports asyncio, not needed by every command

    return getattr(hooks, name)
