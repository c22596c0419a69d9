"""find: find files by a glob pattern."""

from collections.abc import Iterator
from typing import Annotated

import msgspec

from clawkit.core.context import Context
from clawkit.core.result import Result
from clawkit.core.tool import Tool
from clawkit.fs.protocols import Find, FindKind, Names, Search, Sort
from clawkit.tools import _files
from clawkit.tools._params import doc, reads_path


class Params(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    pattern: Annotated[
        str,
        doc(
            "Glob: *.py for names anywhere below, src/**/*.{ts,tsx} for paths from "
            "the directory searched",
            min_length=1,
            max_length=1_000,
        ),
    ]
    path: Annotated[str, doc("Directory to search; the workspace if left out", min_length=1)] = "."
    type: Annotated[FindKind, doc("What to find: files, or the directories that hold files")] = (
        "file"
    )
    sort: Annotated[
        Sort, doc("path: by path; time: most recently changed first; none: fastest")
    ] = "path"
    limit: Annotated[int, doc("How many paths to show at most", ge=1, le=100_000)] = 1_000
    ignored: Annotated[bool, doc("Also find files that .gitignore and the like exclude")] = False


async def execute(params: Params, ctx: Context) -> Result:
    _files.check_text("pattern", params.pattern)
    query = Find(
        pattern=params.pattern,
        path=params.path,
        kind=params.type,
        sort=params.sort,
        limit=params.limit,
        max_chars=_files.MAX_BYTES,
        ignored=params.ignored,
    )
    found = await ctx.use(Search).find(query, ctx.permits)
    slash = "/" if params.type == "directory" else ""
    lines = _files.fit((_files.quote(path + slash) for path in found.paths), ctx)
    text = _files.with_notes("\n".join(lines), [*_notes(query, found, len(lines))])
    return Result.text(text, path=params.path, **_files.facts_of(found, len(lines)))


def _notes(query: Find, names: Names, shown: int) -> Iterator[str]:
    what = "files" if query.kind == "file" else "directories"
    some = f"the first {shown:,}" if names.stopped else f"{shown:,} of {names.total:,}"
    if not names.paths and not names.stopped:
        # Frequent reasons why nothing matches.
        hint = "" if query.ignored else "; ignored=true includes ignored ones"
        if "[" in query.pattern:
            hint = "; [ starts a character set, \\[ matches a literal ["
        yield f"no {what} found{hint}"
    elif shown < min(query.limit, names.total):
        yield f"{some} {what}, as many as fit; narrow the pattern"
    elif shown < names.total or names.stopped == "enough":
        yield f"{some} {what}; raise limit, or narrow the pattern"
    yield from _files.incomplete_notes(names.stopped, names.unread)


TOOL = Tool(
    name="find",
    label="Find",
    description=(
        "Find files by a glob pattern, one path per line. Includes hidden files; skips .git and "
        "ignored files. Links are not followed."
    ),
    parameters=Params,
    execute=execute,
    effects=reads_path,
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
