"""What every tool that changes files does in the same way."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from clawkit.core.approval import Ask
from clawkit.core.context import Context
from clawkit.errors import ProtectedError, ToolAuthorizationError
from clawkit.fs.base import Change, Changed, FileSystem
from clawkit.fs.seen import Seen
from clawkit.lsp.base import Diagnostics, Edited, Problems

MAX_PROBLEMS = 20
MAX_PROTECTED = 10
"""Files that one question may be about; nobody reads a longer list."""


class Update(NamedTuple):
    """A change together with the texts that it is about; None where there is no text."""

    change: Change
    before: str | None = None
    after: str | None = None


async def commit(
    ctx: Context, files: FileSystem, updates: Sequence[Update]
) -> tuple[tuple[Changed, ...], Problems]:
    """Make all the changes or none; a person is asked about protected files.

    Gives back what became of each, and the problems that language servers now see.
    """
    changes = [each.change for each in updates]
    try:
        done = await files.change(changes)
    except ProtectedError as error:
        await ctx.ask(_question(error))
        if not all(ctx.permits(each.path) for each in changes):
            raise ToolAuthorizationError(
                "what the call would reach changed while a person was deciding; send it again",
                reason="rule",
            ) from None
        done = await files.change(changes, allowed=error.places)
    seen = ctx.use(Seen)
    for each, changed in zip(changes, done, strict=True):
        seen.note(changed.place, changed.info, each.data)
    edits = [
        Edited(changed.place, each.before, each.after)
        for each, changed in zip(updates, done, strict=True)
        if each.before != each.after
    ]
    problems = await ctx.use(Diagnostics).check(edits) if edits else Problems()
    return done, problems


def _question(error: ProtectedError) -> Ask:
    """A yes is for what was shown, so every file is named."""
    places = sorted(error.places)
    if len(places) > MAX_PROTECTED:
        raise ToolAuthorizationError(
            f"{error}; more than {MAX_PROTECTED} such files at once are not released",
            reason="protected",
        )
    return Ask(
        title=f"a change of {', '.join(map(repr, places))}",
        description=str(error),
        asked_by="tools.fs.protected",
        to_allow="change the file yourself, or call the tool where a person can answer",
    )


def describe(ctx: Context, problems: Problems) -> str:
    """The problems as lines for the model; empty when there are none."""
    if not problems.found:
        return ""
    lines = [
        f"{_short(ctx, each.place)}:{each.line}:{each.column}: {each.severity}: {each.message}"
        + (f" [{each.code}]" if each.code else "")
        for each in problems.found[:MAX_PROBLEMS]
    ]
    if (more := len(problems.found) - MAX_PROBLEMS) > 0:
        lines.append(f"and {more} more")
    count = len(problems.found)
    head = f"{count} new problem{'s' if count > 1 else ''} after this change:"
    return "\n".join((head, *lines))


def to_details(ctx: Context, problems: Problems) -> Mapping[str, Any]:
    """The problems for programs; empty when no language server had a word to say."""
    if not problems.servers and not problems.late:
        return {}
    found = [
        {
            "path": _short(ctx, each.place),
            "line": each.line,
            "column": each.column,
            "severity": each.severity,
            "message": each.message,
            "code": each.code,
            "server": each.server,
        }
        for each in problems.found[:MAX_PROBLEMS]
    ]
    return {
        "diagnostics": {
            "problems": found,
            "servers": list(problems.servers),
            "late": list(problems.late),
        }
    }


def _short(ctx: Context, place: str) -> str:
    """A place from the workspace, where it lies in it."""
    return place.removeprefix(ctx.workspace.rstrip("/") + "/")
