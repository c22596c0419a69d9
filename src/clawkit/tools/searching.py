"""What the tools that search do in the same way."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable

from clawkit.core.context import Context
from clawkit.fs.search.query import Stopped
from clawkit.text import result_cap, weigh, weight_cap

MAX_BYTES = 50 * 1024
NOTICE_ROOM = 1_000

# What could be taken for a notice, a quoted path, or the number of a line and its text.
_ODD = re.compile(r"[\[\"\s]|.*[:-]\d+[:-] |.*\s\Z|--\Z", re.DOTALL)


def quote(path: str) -> str:
    """The path as it is; as a JSON string where it could pose as something else."""
    if path.isprintable() and not _ODD.match(path):
        return path
    return json.dumps(path, ensure_ascii=not path.isprintable())


def fit(lines: Iterable[str], ctx: Context) -> list[str]:
    """As many whole lines as a result can hold together with a notice; always the first."""
    window = ctx.scope.context_window
    budget = min(MAX_BYTES, min(result_cap(window), weight_cap(window)) - NOTICE_ROOM)
    shown: list[str] = []
    for line in lines:
        cost = len(line) if line.isascii() else max(weigh(line), len(line.encode(errors="replace")))
        budget -= cost + 1
        if budget < 0 and shown:
            break
        shown.append(line)
    return shown


def render(lines: list[str], notes: Iterable[str]) -> str:
    """The lines, and what is to be said about them."""
    text, said = "\n".join(lines), "; ".join(notes)
    if not said:
        return text
    return f"{text}\n\n[{said}]" if text else f"[{said}]"


def tell_trouble(stopped: Stopped, unread: int) -> Iterable[str]:
    """What went wrong on the way."""
    if stopped == "time":
        yield "the search took too long and was stopped; narrow it with path or glob"
    elif stopped == "failed":
        yield "the search program broke off, so there may be more"
    if unread:
        yield "1 file could not be read" if unread == 1 else f"{unread:,} files could not be read"
