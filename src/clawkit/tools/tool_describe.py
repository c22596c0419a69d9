"""tool_describe: the whole description of a tool, and the schema of its parameters."""

from dataclasses import replace
from functools import partial
from typing import Annotated

import msgspec

from clawkit.core.call import find_tool
from clawkit.core.catalog import canonical
from clawkit.core.context import Context
from clawkit.core.result import Result, to_text
from clawkit.core.tool import Tool
from clawkit.external import NOTICE, wrap_external
from clawkit.schema.tool_index import ToolIndex, is_stranger
from clawkit.tools._params import doc


class Params(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    name: Annotated[str, doc("Name of the tool", min_length=1)]


NO_TOOLS = ToolIndex({})


async def execute(params: Params, _ctx: Context, index: ToolIndex = NO_TOOLS) -> Result:
    name = canonical(params.name)
    tool, source = find_tool(index.tools, index.refused, name), index.sources[name]
    facts = {"name": tool.name, "description": tool.description, "parameters": tool.offered}
    text = to_text(facts)
    if is_stranger(source):
        text = f"{NOTICE}\n{wrap_external(text, source)}"
    return Result.text(text, tool=name, source=source)


TOOL = Tool(
    name="tool_describe",
    label="Describe a tool",
    description="Show the whole description of a tool, and the JSON Schema of its parameters.",
    parameters=Params,
    execute=execute,
    effects=lambda _params, _ctx: (),
    aliases=dict.fromkeys(("id", "tool", "tool_name"), "name"),
)


def describe_from(index: ToolIndex) -> Tool:
    return replace(TOOL, execute=partial(execute, index=index))
