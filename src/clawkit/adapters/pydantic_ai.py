"""Tools for pydantic-ai: `Agent(model, toolsets=[toolset(kit)])`."""

from base64 import b64decode
from typing import Any

from clawkit.adapters import advise, convert, error_text
from clawkit.core.tool import Tool
from clawkit.runtime import Toolkit

with advise("pydantic-ai"):
    from pydantic_ai import BinaryContent, ModelRetry, RunContext, ToolDefinition, ToolReturn
    from pydantic_ai.exceptions import ToolFailed
    from pydantic_ai.toolsets import AbstractToolset, ToolsetTool
    from pydantic_ai.toolsets.external import TOOL_SCHEMA_VALIDATOR


class ClawkitToolset(AbstractToolset[Any]):
    """The tools of a toolkit. A call with invalid parameters can be repeated `max_retries` times;
    other failures are results for the model. The details of a result are its `metadata`."""

    id = "clawkit"

    def __init__(self, kit: Toolkit, *, max_retries: int = 3) -> None:
        self._kit, self._max_retries = kit, max_retries

    async def get_instructions(self, ctx: RunContext[Any]) -> str | None:
        return self._kit.directory or None

    async def get_tools(self, ctx: RunContext[Any]) -> dict[str, ToolsetTool[Any]]:
        return {tool.name: self._declare(tool) for tool in self._kit.offered}

    def _declare(self, tool: Tool) -> ToolsetTool[Any]:
        declared = ToolDefinition(
            name=tool.name,
            description=tool.description,
            parameters_json_schema=tool.offered,
            sequential=True,  # a call may depend on those before it in the model's message
        )
        return ToolsetTool(
            toolset=self,
            tool_def=declared,
            max_retries=self._max_retries,
            args_validator=TOOL_SCHEMA_VALIDATOR,  # accepts all: the toolkit checks parameters
        )

    async def call_tool(
        self, name: str, tool_args: dict[str, Any], ctx: RunContext[Any], tool: ToolsetTool[Any]
    ) -> ToolReturn[Any]:
        result = await self._kit.call(name, tool_args, id=ctx.tool_call_id or "")
        if result.is_error:
            is_fixable = result.details.get("code") == 400
            raise (ModelRetry if is_fixable else ToolFailed)(error_text(result))
        blocks = convert(
            result, str, lambda each: BinaryContent(b64decode(each.data), media_type=each.mime_type)
        )
        return ToolReturn(blocks[0] if len(blocks) == 1 else blocks, metadata=dict(result.details))


toolset = ClawkitToolset
