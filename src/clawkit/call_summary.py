"""Short summaries: a tool call's parameters and how it ended, and a message's origin."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from clawkit.content import User
from clawkit.text import one_line, unquote

MAX_CHARS = 100
_INFORMATIVE = ("command", "path", "pattern", "sessionId", "url", "query")
ENDING = ("exitCode", "exitReason", "exitSignal")
"""The details of a result that say how a command ended."""
_PATCH_LINES = ("*** Add File:", "*** Update File:", "*** Delete File:")


def summarize_params(params: Any, max_chars: int = MAX_CHARS) -> str:
    """The most informative parameter, the files of a patch, a labelled task, or else everything."""
    if isinstance(params, str):
        return one_line(params, max_chars)
    if not isinstance(params, (dict, Mapping)):
        return ""
    patch = params.get("input")
    if isinstance(patch, str):
        lines = patch[:20_000].split("\n")
        names = [row.partition(":")[2].strip() for row in lines if row.startswith(_PATCH_LINES)]
        return one_line(", ".join(names) or patch, max_chars)
    for key in _INFORMATIVE:
        if isinstance(params.get(key), str):
            action = params.get("action")
            start = f"{action} " if isinstance(action, str) else ""
            return one_line(f"{start}{params[key]}", max_chars)
    if isinstance(task := params.get("task"), str):
        label = params.get("label")
        return one_line(f"{label}: {task}" if isinstance(label, str) else task, max_chars)
    if isinstance(params.get("plan"), list):
        return ""
    pairs = (f"{key}={json.dumps(value, default=str)}" for key, value in params.items())
    return one_line(", ".join(pairs), max_chars)


def details_of(event: Mapping[str, Any]) -> Mapping[str, Any]:
    details = event.get("details")
    return details if isinstance(details, Mapping) else {}


def has_failed(event: Mapping[str, Any]) -> bool:
    """Whether a call failed, or its command did."""
    details = details_of(event)
    code, reason = details.get("exitCode"), details.get("exitReason", "exit")
    return bool(event.get("isError")) or reason != "exit" or (isinstance(code, int) and code != 0)


def ending(event: Mapping[str, Any]) -> str:
    """How a command ended; empty for other events."""
    code, reason, signal = map(details_of(event).get, ENDING)
    if reason in (None, "exit") and isinstance(code, int):
        return f"exit code {code}"
    return one_line(f"{reason or ''} {signal or ''}".strip().replace("-", " "), 60)


def summarize_source(message: User) -> tuple[list[str], str]:
    """The origin of a message that no person wrote, in lines, and the report of a job in it."""
    source = message.source
    titles = list(source.titles) if source is not None else []
    if source is None or source.kind != "cron" or source.runs:
        return titles, ""
    report = unquote(message.text)
    # The title of a report ends with the beginning of its text.
    return [each.removesuffix(one_line(report, 200)).rstrip() for each in titles], report
