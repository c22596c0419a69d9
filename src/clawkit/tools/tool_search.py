"""tool_search: find deferred tools by what they do."""

from dataclasses import replace
from functools import partial
from typing import Annotated

import msgspec

from clawkit.config.sections.tools import ToolSearch
from clawkit.core.context import Context
from clawkit.core.result import Result
from clawkit.core.tool import Tool
from clawkit.schema.tool_index import ToolIndex
from clawkit.tools._params import doc

NO_TOOLS, DEFAULTS = ToolIndex({}), ToolSearch()


class Params(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    query: Annotated[str, doc("A tool's name, or words for what it does", min_length=1)]
    limit: Annotated[int | None, doc("Maximum number of hits")] = None


async def execute(
    params: Params, _ctx: Context, index: ToolIndex = NO_TOOLS, settings: ToolSearch = DEFAULTS
) -> Result:
    wanted = params.limit or settings.search_default_limit
    hits = index.search(params.query, max(1, min(wanted, settings.max_search_limit)))
    if not hits:
        return Result.text("No tool matches. Try other words, in English.", tools=[])
    return Result.text("\n".join(map(index.line, hits)), tools=hits)


TOOL = Tool(
    name="tool_search",
    label="Search tools",
    description=(
        "Search the deferred tools by name, or in English words for what they do. Each hit is one "
        "line with its parameters (? if optional). Call one with tool_call; if its parameters are "
        "not clear, see tool_describe first."
    ),
    parameters=Params,
    execute=execute,
    effects=lambda _params, _ctx: (),
)


def search_in(index: ToolIndex, settings: ToolSearch) -> Tool:
    return replace(TOOL, execute=partial(execute, index=index, settings=settings))
