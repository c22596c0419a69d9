"""ls: the names in a directory."""

from __future__ import annotations

import json
import os
from typing import Annotated

import msgspec
from msgspec import Meta

from clawkit.core.context import Context
from clawkit.core.effects import Effect, file_resource
from clawkit.core.result import Result
from clawkit.core.tool import Tool
from clawkit.errors import ToolInputError
from clawkit.fs.base import DirEntry, FileSystem
from clawkit.text import result_cap, weigh, weight_cap

MAX_BYTES = 50 * 1024
NOTICE_ROOM = 1_600
"""The notice repeats a name: 255 bytes at most, each of which may have to be spelled out."""


class Params(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Parameters of ls."""

    path: Annotated[
        str, Meta(description="Directory to list; the workspace if left out", min_length=1)
    ] = "."
    limit: Annotated[int, Meta(description="How many names to show at most", ge=1, le=10_000)] = 500
    after: Annotated[
        str, Meta(description="Show only names that come after this one, to go on with a long list")
    ] = ""


async def execute(params: Params, ctx: Context) -> Result:
    entries = await ctx.use(FileSystem).list(params.path)
    after = _as_bytes(params.after)
    left = [entry for entry in entries if os.fsencode(entry.name) > after]
    details: dict[str, object] = {"path": params.path, "shown": 0, "total": len(entries)}
    if not left:
        return Result.text("[no more names]" if params.after else "[empty directory]", **details)
    window = ctx.scope.context_window
    budget = min(MAX_BYTES, min(result_cap(window), weight_cap(window)) - NOTICE_ROOM)
    shown: list[str] = []
    for entry in left[: params.limit]:
        line = quote(entry)
        budget -= weigh(line) + 1
        if budget < 0 and shown:
            break
        shown.append(line)
    details["shown"] = len(shown)
    text = "\n".join(shown)
    if len(shown) < len(left):
        last = left[len(shown) - 1].name
        details["nextAfter"] = last
        text += f"\n\n[{len(left) - len(shown)} more; go on with after={json.dumps(last)}]"
    return Result.text(text, **details)


def _as_bytes(after: str) -> bytes:
    """The name to go on after, as it is called or as it is listed (with a slash)."""
    try:
        return os.fsencode(after.removesuffix("/"))
    except UnicodeEncodeError:
        raise ToolInputError(f"after={after!r} cannot be a name; send it as listed") from None


def quote(entry: DirEntry) -> str:
    """The name as a JSON string, so that none can pose as two; `/` marks directories."""
    suffix = "/" if entry.kind == "directory" else ""
    return json.dumps(entry.name + suffix, ensure_ascii=not entry.name.isprintable())


def effects(params: Params, ctx: Context) -> tuple[Effect, ...]:
    return (Effect("read", file_resource(ctx.workspace, params.path)),)


TOOL = Tool(
    name="ls",
    label="List",
    description=(
        "List the names in a directory, one per line, quoted; directories end in a slash. "
        "Hidden names are included."
    ),
    parameters=Params,
    execute=execute,
    effects=effects,
    aliases={"directory": "path", "dir": "path", "file_path": "path"},
    paths=("path",),
)
