"""find: files by the pattern of their names."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Annotated

import msgspec
from msgspec import Meta

from clawkit.core.context import Context
from clawkit.core.result import Result
from clawkit.core.tool import Effect, Tool, file_resource
from clawkit.fs.protocols import Find, FindKind, Names, Search, Sort
from clawkit.tools._files import (
    MAX_BYTES,
    check_text,
    facts_of,
    fit,
    quote,
    tell_trouble,
    with_notes,
)


class Params(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Parameters of find."""

    pattern: Annotated[
        str,
        Meta(
            description="Glob: *.py for names anywhere below, src/**/*.{ts,tsx} for paths from "
            "the directory searched",
            min_length=1,
            max_length=1_000,
        ),
    ]
    path: Annotated[
        str, Meta(description="Directory to search; the workspace if left out", min_length=1)
    ] = "."
    type: Annotated[
        FindKind, Meta(description="What to find: files, or the directories that hold files")
    ] = "file"
    sort: Annotated[
        Sort,
        Meta(description="path: in order of the paths; time: last changed first; none: fastest"),
    ] = "path"
    limit: Annotated[int, Meta(description="How many paths to show at most", ge=1, le=100_000)] = (
        1_000
    )
    ignored: Annotated[
        bool, Meta(description="Find files too that .gitignore and the like leave out")
    ] = False


async def execute(params: Params, ctx: Context) -> Result:
    check_text("pattern", params.pattern)
    query = Find(
        pattern=params.pattern,
        path=params.path,
        kind=params.type,
        sort=params.sort,
        limit=params.limit,
        max_chars=MAX_BYTES,
        ignored=params.ignored,
    )
    found = await ctx.use(Search).find(query, ctx.permits)
    slash = "/" if params.type == "directory" else ""
    lines = fit((quote(path + slash) for path in found.paths), ctx)
    text = with_notes("\n".join(lines), [*_notes(query, found, len(lines))])
    return Result.text(text, path=params.path, **facts_of(found, len(lines)))


def _notes(query: Find, found: Names, shown: int) -> Iterator[str]:
    what = "files" if query.kind == "file" else "directories"
    if not found.paths and not found.stopped:
        yield f"no {what} found{_reason(query)}"
    elif shown < min(query.limit, found.total):
        yield f"{_of(shown, found)} {what}, which is all that fits; narrow the pattern"
    elif shown < found.total or found.stopped == "enough":
        yield f"{_of(shown, found)} {what}; raise limit, or narrow the pattern"
    yield from tell_trouble(found.stopped, found.unread)


def _of(shown: int, found: Names) -> str:
    if found.stopped:
        return f"the first {shown:,} that were found of more"
    return f"{shown:,} of {found.total:,}"


def _reason(query: Find) -> str:
    """What often keeps a pattern from fitting."""
    if "[" in query.pattern:
        return "; [ begins a set of characters, \\[ is the character itself"
    return "" if query.ignored else "; ignored=true includes ignored ones"


def effects(params: Params, ctx: Context) -> tuple[Effect, ...]:
    return (Effect("read", file_resource(ctx.workspace, params.path)),)


TOOL = Tool(
    name="find",
    label="Find",
    description=(
        "Find files by a glob pattern, one path per line. Hidden files are found; .git and what "
        "ignore files name are not, and links are not followed."
    ),
    parameters=Params,
    execute=execute,
    effects=effects,
    aliases={
        **dict.fromkeys(("glob", "glob_pattern", "query", "name"), "pattern"),
        **dict.fromkeys(("directory", "dir", "root"), "path"),
        **dict.fromkeys(("sort_by", "order"), "sort"),
        **dict.fromkeys(("head_limit", "max_results"), "limit"),
        **dict.fromkeys(("no_ignore", "include_ignored"), "ignored"),
        "kind": "type",
    },
    paths=("path",),
)
