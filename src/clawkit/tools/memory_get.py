"""memory_get: part of a note."""

from functools import partial
from typing import Annotated, Any

import msgspec
from msgspec import UNSET, UnsetType

from clawkit.content import Text
from clawkit.core.context import Context
from clawkit.core.result import Result
from clawkit.core.tool import Tool
from clawkit.errors import ToolError, ToolInputError
from clawkit.memory.protocols import Memory
from clawkit.text import one_line
from clawkit.tools import _memory as _m
from clawkit.tools._params import FILE_ALIASES, doc, reads_path


class Params(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    path: Annotated[str, doc("Note to read, as memory_search names it", min_length=1)]
    first: Annotated[int, doc("First line to show, counted from 1", ge=1)] = msgspec.field(
        default=1, name="from"
    )
    lines: Annotated[int, doc("How many lines; 120 if left out", ge=1, le=100_000)] | UnsetType = (
        UNSET
    )


async def execute(params: Params, ctx: Context) -> Result:
    lines = params.lines or None
    note = ctx.use(Memory).get(params.path, start_line=params.first, lines=lines)
    try:
        found = await _m.within_time(note)
    except ToolInputError:
        raise
    except ToolError as error:
        return _m.unavailable(error, path=params.path, text="")
    following = found.next_line
    details: dict[str, Any] = {
        "path": found.path,
        "from": found.start_line,
        "lines": found.lines,
        "text": found.text,
        "truncated": following is not None,
        "status": "ok" if found.exists else "not_found",
    }
    said = _m.as_quoted(found.path, found.text) if found.lines else f"[no line {params.first}]"
    if not found.exists:
        said = f"[no such note: {one_line(params.path, 200)!r}]"
    elif following is not None:
        details["nextFrom"] = following
        said += f"\n\n[up to line {following - 1}; continue with from={following}]"
    return Result((Text(said),), details)


TOOL = Tool(
    name="memory_get",
    label="Read note",
    description=(
        "Read part of a note that memory_search found: MEMORY.md, USER.md or a file in memory/."
    ),
    parameters=Params,
    execute=execute,
    effects=reads_path,
    aliases={**FILE_ALIASES, "start_line": "from", "offset": "from", "limit": "lines"},
    paths=("path",),
)
make_tool = partial(_m.offer, TOOL)
