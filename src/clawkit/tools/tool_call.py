"""tool_call: call a deferred tool. `core.call` replaces it by the call inside it."""

from typing import Annotated, Any

import msgspec

from clawkit.core.context import Context
from clawkit.core.result import Result
from clawkit.core.tool import Tool
from clawkit.errors import ToolInputError
from clawkit.text import one_line
from clawkit.tools._params import doc


class Params(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    name: Annotated[str, doc("Name of the tool", min_length=1)]
    args: Annotated[dict[str, Any], doc("Its parameters")] = {}


async def execute(params: Params, _ctx: Context) -> Result:
    """Only reached if the tool is not deferred."""
    name = one_line(params.name, 80)
    raise ToolInputError(f"{name!r} is not deferred; call it directly, not through tool_call")


TOOL = Tool(
    name="tool_call",
    label="Call a deferred tool",
    description=(
        "Call a deferred tool, with its parameters as tool_search or tool_describe show them. "
        "Other tools are called directly."
    ),
    parameters=Params,
    execute=execute,
    effects=lambda _params, _ctx: (),
    aliases=dict.fromkeys(("id", "tool", "tool_name"), "name")
    | dict.fromkeys(("arguments", "params", "parameters", "input"), "args"),
)
