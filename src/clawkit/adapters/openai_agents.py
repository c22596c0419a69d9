"""Tools for the OpenAI Agents SDK: `Agent(name, tools=toolset(kit))`."""

from functools import partial
from typing import Any

from clawkit.adapters import advise, convert, error_text
from clawkit.runtime import Toolkit
from clawkit.schema.choose import adapt

with advise("openai-agents"):
    from agents import FunctionTool, ToolOutputImage, ToolOutputText
    from agents.tool_context import ToolContext


def toolset(kit: Toolkit) -> list[FunctionTool]:
    """The tools of a toolkit. Failures are results for the model."""
    return [
        FunctionTool(
            name=tool.name,
            description=tool.description,
            params_json_schema=adapt(tool.offered, "openai"),
            on_invoke_tool=partial(_call, kit, tool.name),
            strict_json_schema=False,
        )
        for tool in kit.offered
    ]


async def _call(kit: Toolkit, name: str, ctx: ToolContext[Any], arguments: str) -> Any:
    result = await kit.call(name, arguments, id=ctx.tool_call_id)
    if result.is_error:
        return error_text(result)
    return convert(
        result,
        lambda text: ToolOutputText(text=text),
        lambda each: ToolOutputImage(image_url=f"data:{each.mime_type};base64,{each.data}"),
    )
