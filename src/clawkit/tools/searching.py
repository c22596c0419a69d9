"""What the tools that search and list do in the same way."""

from __future__ import annotations

import json
import os
import re
from collections.abc import Iterable

from clawkit.core.context import Context
from clawkit.errors import ToolInputError
from clawkit.fs.search.query import Found, Names, Stopped
from clawkit.text import result_cap, weigh, weight_cap

MAX_BYTES = 50 * 1024
NOTICE_ROOM = 1_000

# What could be taken for a notice, a quoted path, or the number of a line and its text.
_ODD = re.compile(r"[\[\"\s]|.*[:-]\d+[:-] |.*\s\Z|--\Z", re.DOTALL)


def check_text(name: str, *texts: str) -> None:
    """Refuse what cannot be handed to a program, or be part of a name."""
    for text in texts:
        try:
            if b"\0" not in os.fsencode(text):
                continue
        except UnicodeEncodeError:
            pass
        raise ToolInputError(f"{name}={text[:80]!r} has NUL or a character that is none")


def quote(path: str) -> str:
    """The path as it is; as a JSON string where it could pose as something else."""
    if path.isprintable() and not _ODD.match(path):
        return path
    return json.dumps(path, ensure_ascii=not path.isprintable())


def fit(lines: Iterable[str], ctx: Context, notice_room: int = NOTICE_ROOM) -> list[str]:
    """As many whole lines as a result can hold together with a notice; always the first."""
    window = ctx.scope.context_window
    budget = min(MAX_BYTES, min(result_cap(window), weight_cap(window)) - notice_room)
    shown: list[str] = []
    for line in lines:
        budget -= weigh(line) + 1
        if budget < 0 and shown:
            break
        shown.append(line)
    return shown


def facts_of(found: Found | Names, shown: int) -> dict[str, object]:
    """How a search went, for programs."""
    facts: dict[str, object] = {"shown": shown}
    if not found.stopped:
        facts["total"] = found.total
    facts["limitReached"] = shown < found.total or found.stopped == "enough"
    troubles = {"stopped": found.stopped, "unread": found.unread}
    facts |= {name: trouble for name, trouble in troubles.items() if trouble}
    if found.engine != "ripgrep":
        facts["note"] = "searched without ripgrep"
    return facts


def tell_trouble(stopped: Stopped, unread: int) -> Iterable[str]:
    """What went wrong on the way."""
    if stopped == "time":
        yield "the search took too long and was stopped; narrow it with path or glob"
    elif stopped == "failed":
        yield "the search program broke off, so there may be more"
    if unread:
        yield "1 file could not be read" if unread == 1 else f"{unread:,} files could not be read"
