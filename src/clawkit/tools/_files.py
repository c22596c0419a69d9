"""Shared by the file tools: committing changes, diagnostics, quoting and fitting of results."""

from __future__ import annotations

import json
import os
import re
from collections.abc import Iterable, Sequence
from typing import Any

from msgspec import Struct

from clawkit.config import paths
from clawkit.core.approval import Ask
from clawkit.core.context import Context
from clawkit.core.paths import is_below
from clawkit.core.result import Result
from clawkit.errors import ProtectedError, ToolAuthorizationError, ToolInputError
from clawkit.fs.protocols import Change, Changed, FileSystem, Names, SearchResult, Stopped
from clawkit.fs.read_versions import ReadVersions
from clawkit.lsp.protocols import Diagnostics, Edited, Problems
from clawkit.text import result_cap, weigh, weight_cap

MAX_PROBLEMS = 20
MAX_PROTECTED = 10
"""Maximum files in one approval prompt; a longer list would go unread."""
MAX_BYTES = 50 * 1024
NOTICE_ROOM = 1_000
MARKS_ROOM = 600

# Could be mistaken for a notice, a quoted path, or a line number with its text.
_AMBIGUOUS = r"(?s)[\[\"\s]|.*[:-]\d+[:-] |.*\s\Z|--\Z"


class Update(Struct, frozen=True):
    """A change, and the text before and after it; None for a missing or binary file."""

    change: Change
    before: str | None = None
    after: str | None = None


async def commit(
    ctx: Context, files: FileSystem, updates: Sequence[Update]
) -> tuple[tuple[Changed, ...], Problems]:
    """Make all changes or none; asks a person about protected files. Returns the result of each
    change, and the new problems that language servers report."""
    changes = [each.change for each in updates]
    try:
        done = await files.change(changes)
    except ProtectedError as error:
        await ctx.ask(_question(error))
        if not all(ctx.permits(each.path) for each in changes):
            why = "the call would no longer change what was approved; send it again"
            raise ToolAuthorizationError(why, reason="rule") from None
        done = await files.change(changes, allowed=error.places)
    seen = ctx.use(ReadVersions)
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
    # An approval covers what was shown, so every file must be named.
    places = sorted(error.places)
    if len(places) > MAX_PROTECTED:
        why = f"{error}; at most {MAX_PROTECTED} such files can be approved at once"
        raise ToolAuthorizationError(why, reason="protected")
    return Ask(
        title=f"change {', '.join(map(repr, places))}",
        description=str(error),
        asked_by="tools.fs.protected",
        to_allow="change the file yourself, or call the tool where a person can answer",
    )


def report(
    ctx: Context, problems: Problems, texts: list[str], details: dict[str, Any], gap: str = "\n"
) -> Result:
    """The result of a change: the `texts`, then new problems."""
    start = ctx.base.rstrip("/") + "/"
    shown = [(each.place.removeprefix(start), each) for each in problems.found[:MAX_PROBLEMS]]
    if count := len(problems.found):
        lines = [
            f"{path}:{each.line}:{each.column}: {each.severity}: {each.message}"
            + (f" [{each.code}]" if each.code else "")
            for path, each in shown
        ]
        if count > MAX_PROBLEMS:
            lines.append(f"and {count - MAX_PROBLEMS} more")
        head = f"{count} new problem{'s' if count > 1 else ''} after this change:"
        texts = [*texts, "\n".join((head, *lines))]
    if problems.servers or problems.late:
        names = ("line", "column", "severity", "message", "code", "server")
        details["diagnostics"] = {
            "problems": [
                {"path": path, **{name: getattr(each, name) for name in names}}
                for path, each in shown
            ],
            "servers": list(problems.servers),
            "late": list(problems.late),
        }
    return Result.text(gap.join(filter(None, texts)), **details)


def check_characters(text: str, name: str) -> None:
    """Raises `ToolInputError` for a text that cannot be encoded."""
    try:
        text.encode()
    except UnicodeEncodeError as error:
        what = f"a lone surrogate ({text[error.start]!r}) at position {error.start}"
        raise ToolInputError(f"{name} has {what}; send valid Unicode") from None


def check_text(name: str, *texts: str) -> None:
    """Raises `ToolInputError` for texts that cannot be a program's argument or part of a file
    name."""
    for text in texts:
        try:
            if b"\0" not in os.fsencode(text):
                continue
        except UnicodeEncodeError:
            pass
        raise ToolInputError(f"{name}={text[:80]!r} contains NUL or an invalid character")


def quote(path: str) -> str:
    """The path, as a JSON string if it could be mistaken for something else."""
    if path.isprintable() and not re.match(_AMBIGUOUS, path):
        return path
    return json.dumps(path, ensure_ascii=not path.isprintable())


def fit(lines: Iterable[str], ctx: Context, notice_room: int = NOTICE_ROOM) -> list[str]:
    """As many whole lines as fit into a result together with a notice, and at least one."""
    window = ctx.scope.context_window
    budget = min(MAX_BYTES, min(result_cap(window), weight_cap(window)) - notice_room)
    shown: list[str] = []
    for line in lines:
        budget -= weigh(line) + 1
        if budget < 0 and shown:
            break
        shown.append(line)
    return shown


def facts_of(result: SearchResult | Names, shown: int) -> dict[str, object]:
    facts: dict[str, object] = {"shown": shown}
    if not result.stopped:
        facts["total"] = result.total
    facts["limitReached"] = shown < result.total or result.stopped == "enough"
    problems = {"stopped": result.stopped, "unread": result.unread}
    facts |= {name: value for name, value in problems.items() if value}
    if result.engine != "ripgrep":
        facts["note"] = "searched without ripgrep"
    return facts


def incomplete_notes(stopped: Stopped, unread: int) -> Iterable[str]:
    """Why the results of a search may be incomplete."""
    if stopped == "time":
        yield "the search timed out; narrow it with path or glob"
    elif stopped == "failed":
        yield "the search program failed, so results may be missing"
    if unread:
        yield "1 file could not be read" if unread == 1 else f"{unread:,} files could not be read"


def is_saved_page(path: str) -> bool:
    """Whether a file is a page that `web_fetch` saved."""
    if "/pages/" not in path:
        return False
    return is_below(os.path.realpath(path), os.path.realpath(paths.pages_dir(os.environ)))


def mark_outside(text: str) -> str:
    """Mark part of a saved page as external: the file has marks only at its start and end."""
    from clawkit.external import NOTICE, wrap_external

    return f"{NOTICE}\n{wrap_external(text, 'a saved web page')}"


def with_notes(text: str, notes: Sequence[str]) -> str:
    if not notes:
        return text
    gap = "\n\n" if text else ""
    return f"{text}{gap}[{'; '.join(notes)}]"
