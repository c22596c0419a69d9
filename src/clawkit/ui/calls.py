"""Calls of tools in a few words: what each is about, how it ended, what it changed."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from clawkit.text import human_size, human_time, one_line
from clawkit.ui.paint import Paint, Style

SHOWN = 100
MAX_DIFF = 24
MAX_TAIL = 4
MAX_HEAD = 10
_MAX_LINE = 1_000
"""Characters of a line that somebody typed."""
_TELLING = ("command", "path", "pattern", "sessionId", "url", "query")


class Row(NamedTuple):
    """A line and how it looks."""

    text: str
    style: Style = ""
    column: int = 0
    """Where it goes on when it is folded; 0 for a little to the right of where it begins."""


def about(params: Any) -> str:
    """What a call is about: the telling parameter alone, else all of them."""
    if isinstance(params, str):
        return one_line(params, SHOWN)
    if not isinstance(params, Mapping):
        return ""
    if isinstance(params.get("input"), str):
        return _patched(params["input"])
    for key in _TELLING:
        if isinstance(params.get(key), str):
            action = params.get("action")
            start = f"{action} " if isinstance(action, str) else ""
            return one_line(f"{start}{params[key]}", SHOWN)
    if isinstance(params.get("plan"), list):
        return ""
    told = (f"{key}={json.dumps(value, default=str)}" for key, value in params.items())
    return one_line(", ".join(told), SHOWN)


def _patched(patch: str) -> str:
    """The files that a patch names."""
    names = [
        line.partition(":")[2].strip()
        for line in patch[:20_000].split("\n")
        if line.startswith(("*** Add File:", "*** Update File:", "*** Delete File:"))
    ]
    return one_line(", ".join(names) or patch, SHOWN)


def outcome(event: Mapping[str, Any]) -> str:
    """How a call ended, where there is more to say than that it did."""
    details = _details(event)
    if event.get("isError"):
        return one_line(str(event.get("error", "")), 200)
    if details.get("status") == "running":
        return f"goes on in the background as {one_line(str(details.get('sessionId', '')), 40)}"
    code = details.get("exitCode")
    if isinstance(code, int) and code:
        return f"exit code {code}"
    diff = details.get("diff")
    if isinstance(diff, str):
        lines = diff.split("\n")
        return f"+{_count(lines, '+')} -{_count(lines, '-')}"
    return ""


def _details(event: Mapping[str, Any]) -> Mapping[str, Any]:
    details = event.get("details")
    return details if isinstance(details, Mapping) else {}


def _count(lines: Sequence[str], mark: str) -> int:
    return sum(line.startswith(mark) and not line.startswith(mark * 3) for line in lines)


def has_failed(event: Mapping[str, Any]) -> bool:
    code = _details(event).get("exitCode")
    return bool(event.get("isError")) or (isinstance(code, int) and code != 0)


def more_of(event: Mapping[str, Any], paint: Paint) -> Iterator[Row]:
    """What is shown below the line of a call that ended: a difference, a plan, some output."""
    details = _details(event)
    if isinstance(details.get("diff"), str):
        yield from diff_rows(details["diff"], paint)
    elif isinstance(details.get("plan"), list):
        yield from plan_rows(details["plan"], paint)
    elif isinstance(details.get("aggregated"), str):
        yield from tail_rows(details["aggregated"], paint)


def diff_rows(diff: str, paint: Paint, most: int = MAX_DIFF) -> Iterator[Row]:
    lines = diff.rstrip("\n").split("\n") if diff.strip() else []
    styles: dict[str, Style] = {"+": "good", "-": "error", "@": "accent"}
    for line in lines[:most]:
        yield Row(f"  {_row(line)}", styles.get(line[:1], "dim"))
    if len(lines) > most:
        yield Row(f"  {paint.glyphs.more} {len(lines) - most} more lines", "dim")


def plan_rows(plan: Sequence[Any], paint: Paint) -> Iterator[Row]:
    styles: dict[str, Style] = {"completed": "dim", "in_progress": "bold"}
    for each in plan:
        if isinstance(each, Mapping):
            status, step = str(each.get("status")), str(each.get("step", ""))
            mark = paint.glyphs.steps.get(status, paint.glyphs.steps["pending"])
            yield Row(f"  {mark} {one_line(step, 200)}", styles.get(status, ""))


def tail_rows(output: str, paint: Paint, most: int = MAX_TAIL) -> Iterator[Row]:
    """The last lines of an output."""
    lines = output[-8_000:].rstrip().split("\n") if output.strip() else []
    if len(lines) > most:
        yield Row(f"  {paint.glyphs.more}", "dim")
    for line in lines[-most:]:
        yield Row(f"  {_row(line)}", "dim")


def head_lines(text: str, paint: Paint, most: int = MAX_HEAD) -> list[str]:
    """The first lines of what somebody typed, and how many more there are."""
    more, lines = paint.glyphs.more, text.split("\n")
    kept = lines if len(lines) <= most + 1 else lines[:most]
    shown = [line if len(line) <= _MAX_LINE else f"{line[:_MAX_LINE]}{more}" for line in kept]
    left = len(lines) - len(kept)
    return [*shown, f"{more} {left:,} more lines"] if left else shown


def _row(line: str) -> str:
    return line.expandtabs(4)[:200].rstrip("\r\n")


def progress(event: Mapping[str, Any]) -> tuple[str, str]:
    """How much has come of a running call, and the end of it."""
    details = _details(event)
    if isinstance(details.get("tail"), str):
        size = details.get("bytes")
        return human_size(size) if isinstance(size, int) else "", details["tail"]
    content = event.get("content")
    blocks = content if isinstance(content, list) else []
    texts = [str(each.get("text", "")) for each in blocks if isinstance(each, Mapping)]
    return "", "\n".join(texts)


def since(seconds: float) -> str:
    """A time that is worth telling; empty for a moment."""
    return human_time(seconds) if seconds >= 0.1 else ""
