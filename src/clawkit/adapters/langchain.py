"""Tools for LangChain and LangGraph: `model.bind_tools(toolset(kit))`."""

from typing import Any

from clawkit.adapters import advise, convert, error_text
from clawkit.runtime import Toolkit

with advise("langchain"):
    from langchain_core.tools import BaseTool, ToolException


class ClawkitTool(BaseTool):
    kit: Any  # a `Toolkit`; Any, so that pydantic does not inspect it
    response_format: str = "content_and_artifact"
    handle_tool_error: bool = True

    def _run(self, *_args: Any, **_params: Any) -> Any:
        raise NotImplementedError("clawkit's tools are asynchronous; use ainvoke")

    async def _arun(self, /, **params: Any) -> tuple[list[Any], dict[str, Any]]:
        result = await self.kit.call(self.name, params)
        if result.is_error:
            raise ToolException(error_text(result))
        blocks = convert(
            result,
            lambda text: {"type": "text", "text": text},
            lambda each: {"type": "image", "base64": each.data, "mime_type": each.mime_type},
        )
        return blocks, dict(result.details)


def toolset(kit: Toolkit) -> list[ClawkitTool]:
    """The tools of a toolkit. Failures are messages for the model with the status `error`; the
    details of a result are its `artifact`."""
    return [
        ClawkitTool(
            name=tool.name,
            description=tool.description,
            args_schema={"title": tool.name, "properties": {}, **tool.offered},
            kit=kit,
        )
        for tool in kit.offered
    ]
