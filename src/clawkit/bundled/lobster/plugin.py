"""Pipelines of commands and tool calls, with gates at which a person decides."""

from clawkit.core.tool import Tool
from clawkit.plugins.api import Plugin, PluginContext

plugin = Plugin("lobster", version="1.0", name="Lobster", optional_tools=["lobster"])


@plugin.tool_factory
def offer_tool(ctx: PluginContext) -> Tool | None:
    """None for sandboxed sessions, which have no files outside the sandbox."""
    if ctx.sandboxed:
        return None
    from clawkit.bundled.lobster import tool

    return tool.make_tool(ctx.config.approvals.timeout_seconds)
