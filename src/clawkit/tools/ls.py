"""ls: list a directory."""

import json
import stat
import time
from typing import Annotated, Any

import msgspec

from clawkit.core.context import Context
from clawkit.core.result import Result
from clawkit.core.tool import Tool
from clawkit.errors import ToolInputError
from clawkit.fs.protocols import DirEntry, FileSystem
from clawkit.text import human_size
from clawkit.tools._files import fit
from clawkit.tools._params import doc, reads_path

NOTICE_ROOM = 1_600
"""The notice repeats a name of at most 255 bytes, each of which may need an escape."""


class Params(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    path: Annotated[str, doc("Directory to list; the workspace if left out", min_length=1)] = "."
    limit: Annotated[int, doc("How many names to show at most", ge=1, le=10_000)] = 500
    after: Annotated[
        str, doc("Show only names that come after this one, to continue a long list")
    ] = ""
    details: Annotated[
        bool, doc("Also show mode, size and time of each name, and where links point")
    ] = False


async def execute(params: Params, ctx: Context) -> Result:
    after = params.after.removesuffix("/")
    try:
        after.encode("utf-8", "surrogateescape")
    except UnicodeEncodeError:
        raise ToolInputError(f"after={after!r} is not a valid name; copy it as listed") from None
    listing = await ctx.use(FileSystem).list(
        params.path, after=after, limit=params.limit, details=params.details
    )
    details: dict[str, object] = {"path": params.path, "shown": 0, "total": listing.total}
    if not listing.entries:
        return Result.text("[no more names]" if params.after else "[empty directory]", **details)
    shown = fit(map(show if params.details else quote, listing.entries), ctx, NOTICE_ROOM)
    details["shown"] = len(shown)
    if params.details:
        details["entries"] = [_to_json(entry) for entry in listing.entries[: len(shown)]]
    text = "\n".join(shown)
    left = listing.left + len(listing.entries) - len(shown)
    if left:
        last = listing.entries[len(shown) - 1].name
        details["nextAfter"] = last
        text += f"\n\n[{left} more; continue with after={json.dumps(last)}]"
    return Result.text(text, **details)


def quote(entry: DirEntry) -> str:
    """The name as a JSON string, so that one with a line break cannot look like two."""
    return _quote(entry.name + ("/" if entry.kind == "directory" else ""))


def _quote(name: str) -> str:
    return json.dumps(name, ensure_ascii=not name.isprintable())


def show(entry: DirEntry) -> str:
    """One line: mode, size, time, name, and the target of a link."""
    facts, info = "?", entry.info
    if info is not None:
        size = human_size(info.size) if info.kind == "file" else "-"
        try:
            when = time.strftime("%Y-%m-%d %H:%M", time.localtime(info.mtime_ns // 1_000_000_000))
        except (OSError, OverflowError, ValueError):
            when = "?"  # file timestamps can be outside the range of `datetime`
        facts = f"{stat.filemode(info.mode)} {size:>8} {when}"
    arrow = f" -> {_quote(entry.target)}" if entry.kind == "link" else ""
    return f"{facts} {quote(entry)}{arrow}"


def _to_json(entry: DirEntry) -> dict[str, Any]:
    facts: dict[str, Any] = {"name": entry.name, "kind": entry.kind}
    if entry.info is not None:
        facts |= {"size": entry.info.size, "mtimeMs": entry.info.mtime_ns // 1_000_000}
        facts |= {"mode": f"{stat.S_IMODE(entry.info.mode):04o}"}
    return facts | ({"target": entry.target} if entry.target else {})


TOOL = Tool(
    name="ls",
    label="List",
    description=(
        "List the names in a directory, one per line, quoted; directories end in a slash. "
        "Hidden names are included."
    ),
    parameters=Params,
    execute=execute,
    effects=reads_path,
    aliases={"directory": "path", "dir": "path", "file_path": "path", "long": "details"},
    paths=("path",),
)
