"""grep: search the contents of files."""

import os
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Annotated

import msgspec
from msgspec import Meta

from clawkit.core.context import Context
from clawkit.core.result import Result
from clawkit.core.tool import Tool
from clawkit.errors import ToolInputError
from clawkit.fs import protocols as fs
from clawkit.tools._files import (
    check_text,
    facts_of,
    fit,
    incomplete_notes,
    is_saved_page,
    mark_outside,
    quote,
    with_notes,
)
from clawkit.tools._params import doc, reads_path

MAX_CHARS = 500
"""Characters of one line."""
CUT = "… [cut]"
MAX_SUSPECT = 50
"""Maximum files that are read to find secrets; in further suspect files, every line is masked."""
MAX_MASKED = 1024 * 1024
GAP = "--"
"""Marks omitted lines between matches with context."""

# Only base64, like the lines of a private key.
_KEY_LINE = rb"\s*[A-Za-z0-9+/]{24,}={0,2}\s*\Z"
# Characters that would break the line or move the cursor; tabs are kept.
_CONTROL = "[\x00-\x08\n-\x1f\x7f\x85\u2028\u2029]"


class Params(msgspec.Struct, frozen=True, forbid_unknown_fields=True, rename="camel"):
    pattern: Annotated[
        str,
        doc("Regular expression to search for, in Rust's syntax", min_length=1, max_length=10_000),
    ]
    path: Annotated[
        str, doc("File or directory to search; the workspace if left out", min_length=1)
    ] = "."
    glob: Annotated[
        tuple[Annotated[str, Meta(min_length=1, max_length=1_000)], ...],
        doc(
            "Search only files that match one of these: *.py, src/**/*.ts; a leading ! "
            "excludes files: !*.min.js",
            max_length=50,
        ),
    ] = ()
    type: Annotated[
        str, doc("Search only files of a type: py, js, ts, rust, go…", max_length=50)
    ] = ""
    ignore_case: Annotated[bool, doc("Ignore case")] = False
    literal: Annotated[
        bool, doc("Treat the pattern as plain text, not as a regular expression")
    ] = False
    multiline: Annotated[bool, doc("Let a match span lines; a dot matches line breaks too")] = False
    context: Annotated[int, doc("Lines to show before and after each match", ge=0, le=50)] = 0
    output: Annotated[
        fs.Output,
        doc(
            "content: matching lines; files: only which files; count: how many "
            "matching lines in each file"
        ),
    ] = "content"
    limit: Annotated[
        int, doc("How many matching lines, or files, to show at most", ge=1, le=10_000)
    ] = 100
    ignored: Annotated[bool, doc("Also search files that .gitignore and the like exclude")] = False


async def execute(params: Params, ctx: Context) -> Result:
    check_text("pattern", params.pattern)
    check_text("glob", *params.glob)
    check_text("type", params.type)
    query = fs.Grep(
        pattern=params.pattern,
        path=params.path,
        globs=params.glob,
        type=params.type.strip(),
        ignore_case=params.ignore_case,
        literal=params.literal,
        multiline=params.multiline,
        context=params.context if params.output == "content" else 0,
        output=params.output,
        limit=params.limit,
        ignored=params.ignored,
    )
    found = await ctx.use(fs.Search).grep(query, ctx.permits)
    page = _HitLines(ctx, await _mask(found.hits, ctx))
    if params.output == "content":
        lines = fit(page.lines(found.hits, has_gaps=query.context > 0), ctx)
        shown = sum(page.matches[: len(lines)])
    else:
        is_count = params.output == "count"
        rows = (quote(hit.path) + (f":{hit.matches}" if is_count else "") for hit in found.hits)
        lines = fit(rows, ctx)
        shown = len(lines)
    details = {"path": params.path, "output": params.output, **facts_of(found, shown)}
    if params.output == "count":
        details["matches"] = sum(each.matches for each in found.hits[:shown])
    if page.cut:
        details["linesCut"] = page.cut
    while lines[-1:] == [GAP]:
        lines.pop()
    text = "\n".join(lines)
    if any(is_saved_page(os.path.join(ctx.workspace, hit.path)) for hit in found.hits):
        text = mark_outside(text)
    return Result.text(with_notes(text, [*_notes(query, found, shown)]), **details)


async def _mask(hits: Sequence[fs.FileHits], ctx: Context) -> Mapping[str, Sequence[str]]:
    """Masked lines, by path, of files whose secrets cannot be recognized line by line: `.env`
    files and private keys. Empty if the file could not be read: then every line is masked."""
    from clawkit.fs.encoding import decode_whole
    from clawkit.fs.masks import hide_keys, is_env_file, mask_env
    from clawkit.redact import Redactor

    suspect = [
        each.path
        for each in hits
        if is_env_file(each.path) or any(re.match(_KEY_LINE, line.text) for line in each.lines)
    ]
    masked: dict[str, Sequence[str]] = dict.fromkeys(suspect[MAX_SUSPECT:], ())
    for path in suspect[:MAX_SUSPECT]:
        try:
            async with ctx.use(fs.FileSystem).open(os.path.join(ctx.workspace, path)) as file:
                text, _ = decode_whole(await fs.read_all(file, MAX_MASKED), path)
        except ToolInputError:
            masked[path] = ()
            continue
        if is_env_file(path):
            masked[path] = mask_env(text, ctx.use(Redactor)).split("\n")
        elif "PRIVATE KEY" in text:
            masked[path] = hide_keys(text).split("\n")
    return masked


class _HitLines:
    """Formats hits as lines; `matches` records which of these are matches, not context."""

    def __init__(self, ctx: Context, masked: Mapping[str, Sequence[str]]) -> None:
        self._ctx = ctx
        self._masked = masked
        self.matches: list[bool] = []
        self.cut = 0

    def lines(self, hits: Iterable[fs.FileHits], *, has_gaps: bool) -> Iterator[str]:
        for number, each in enumerate(hits):
            path, masked = quote(each.path), self._masked.get(each.path)
            # The first line of another file never continues the previous one.
            last = -1 if number else each.lines[0].number - 1
            for line in each.lines:
                if has_gaps and line.number != last + 1:
                    self.matches.append(False)
                    yield GAP
                last = line.number
                sign = ":" if line.is_match else "-"
                self.matches.append(line.is_match)
                yield f"{path}{sign}{line.number}{sign} {self._text(line, masked)}"

    def _text(self, line: fs.Line, masked: Sequence[str] | None) -> str:
        from clawkit.redact import MASK, Redactor

        text = line.text.decode("utf-8", "replace")
        if masked is not None:
            text = masked[line.number - 1] if line.number <= len(masked) else MASK
        text = text.removesuffix("\r")
        if len(text) > MAX_CHARS:
            self.cut += 1
            # Redact before cutting: half of a token may not be recognized.
            text = self._ctx.use(Redactor).text(text)[:MAX_CHARS] + CUT
        return re.sub(_CONTROL, lambda char: f"\\u{{{ord(char[0]):x}}}", text)


def _notes(query: fs.Grep, result: fs.SearchResult, shown: int) -> Iterator[str]:
    what = "matching lines" if query.output == "content" else "files"
    some = f"{shown:,} of {result.total:,} {what}"
    if result.binary:
        left = "not all of its matches are" if result.hits else "its match is not"
        yield f"the file is binary, so {left} shown"
    elif not result.hits and not result.stopped:
        yield f"no matches{_reason(query, result)}"
    elif result.stopped == "enough":
        yield (
            f"{shown:,} of the first {result.total:,} {what}; the search stopped there: narrow it "
            "with path, glob or type"
        )
    elif shown < min(query.limit, result.total):
        other = ", or ask for output=files" if query.output == "content" else ""
        yield f"{some}, as many as fit; narrow the search{other}"
    elif shown < result.total:
        yield f"{some}; raise limit, or narrow the search with path, glob or type"
    yield from incomplete_notes(result.stopped, result.unread)
    if result.engine == "python" and not query.literal:
        yield "ripgrep is not available: the pattern was used as a Python regular expression"


def _reason(query: fs.Grep, result: fs.SearchResult) -> str:
    """Why there may be no matches. Depends only on names, never on the content of files that were
    not searched: otherwise patterns could probe that content."""
    searched = result.searched
    if searched is None:
        return ""
    if not searched.files:
        which = "no file matches that type or glob" if query.globs or query.type else "no files"
        also = "" if query.ignored else " (ignored=true includes ignored ones)"
        return f": {which}{also}"
    some = "" if searched.whole else "at least "
    hard_links, denied = "with several names (hard links)", "that rules deny"
    return "".join(
        f"; {some}{number:,} {'file' if number == 1 else 'files'} {why} not searched"
        for number, why in ((searched.linked, hard_links), (searched.refused, denied))
        if number
    )


TOOL = Tool(
    name="grep",
    label="Search",
    description=(
        "Search the contents of files with ripgrep. Returns path:line: text for each matching "
        "line, or only files or counts. Includes hidden files; skips .git, binary files and "
        "ignored files."
    ),
    parameters=Params,
    execute=execute,
    effects=reads_path,
    aliases={
        **dict.fromkeys(("query", "regex", "search"), "pattern"),
        **dict.fromkeys(("file_path", "directory", "dir"), "path"),
        **dict.fromkeys(("include", "globs", "file_pattern"), "glob"),
        **dict.fromkeys(("-i", "case_insensitive"), "ignoreCase"),
        **dict.fromkeys(("-F", "fixed_strings"), "literal"),
        **dict.fromkeys(("-C", "-A", "-B", "context_lines"), "context"),
        **dict.fromkeys(("head_limit", "max_results"), "limit"),
        **dict.fromkeys(("no_ignore", "include_ignored"), "ignored"),
        "output_mode": "output",
        "file_type": "type",
    },
    paths=("path",),
)
