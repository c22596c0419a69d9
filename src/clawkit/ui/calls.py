"""Short descriptions of tool calls: how each ended, and what it changed."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from clawkit.call_summary import details_of, ending, has_failed
from clawkit.core.approval import FINAL
from clawkit.core.result import Result
from clawkit.text import cut_start, human_size, human_time, one_line
from clawkit.ui.paint import Paint, PaintedRow, Style

MAX_DIFF = 24
MAX_TAIL = 4
MAX_HEAD = 10
MAX_NEW = 6
_MAX_LINE = 1_000
_MAX_OUTPUT = 20_000


def outcome(event: Mapping[str, Any]) -> str:
    """How a call ended; empty if there is nothing to add."""
    details = details_of(event)
    if event.get("isError"):
        # The end of a refusal is meant for the model.
        error = str(event.get("error", "")).removeprefix(f"{event.get('tool')}: ")
        return one_line(error.partition(FINAL)[0].rstrip(" ."), 200)
    if details.get("status") == "running":
        return f"running in the background as {one_line(str(details.get('sessionId', '')), 40)}"
    if has_failed(event):
        return ending(event)
    diff = details.get("diff")
    if isinstance(diff, str):
        lines = [line for line in diff.split("\n") if not line.startswith(("+++", "---"))]
        return (
            f"+{sum(line[:1] == '+' for line in lines)} -{sum(line[:1] == '-' for line in lines)}"
        )
    if details.get("created") is True and isinstance(details.get("lines"), int):
        return f"new file, {count_lines(details['lines'])}"
    return ""


def count_lines(count: int) -> str:
    return "1 line" if count == 1 else f"{count:,} lines"


def duration_s(event: Mapping[str, Any]) -> float | None:
    """How long a command took; None for other calls, and for one that is still running."""
    details = details_of(event)
    ms = details.get("durationMs")
    return ms / 1000 if isinstance(ms, int) and details.get("status") != "running" else None


def end_notes(details: Mapping[str, Any]) -> Iterator[str]:
    """Remarks for a person about a finished command, besides its output."""
    if details.get("networkDenied") and details.get("exitCode"):
        yield "[network access is disabled in the sandbox]"
    yield from (f"[{note}]" for note in details.get("notes", ()))
    if left := [f"{each['name']} (pid {each['pid']})" for each in details.get("leftRunning", ())]:
        yield f"[left running: {', '.join(left)}]"
    if details.get("truncated") and details.get("spillPath"):
        yield f"[full output ({human_size(details['spillBytes'])}): {details['spillPath']}]"


def result_rows(result: Result) -> Iterator[PaintedRow]:
    """The output of a command that a person typed; the rest of its result is meant for a model."""
    given = (result.details.get(key) for key in ("aggregated", "tail", "error"))
    text = next((each for each in given if isinstance(each, str)), None)
    text = (result.as_text() if text is None else text).rstrip()
    # A one-line error is already shown in the call's line.
    if not result.is_error or "\n" in text.strip():
        is_running = result.details.get("status") == "running"
        if shown := cut_start(text, _MAX_OUTPUT) or ("" if is_running else "(no output)"):
            yield PaintedRow(shown)
        yield from (PaintedRow(each, "dim") for each in end_notes(result.details))


def more_of(event: Mapping[str, Any], paint: Paint, params: Any = None) -> Iterator[PaintedRow]:
    """The rows below a call: a diff, a plan, the end of its output, or the start of a new file."""
    details = details_of(event)
    if isinstance(details.get("diff"), str):
        yield from diff_rows(details["diff"], paint)
    elif isinstance(details.get("plan"), list):
        yield from plan_rows(details["plan"], paint)
    elif isinstance(details.get("aggregated"), str):
        yield from tail_rows(details["aggregated"], paint)
    elif details.get("created") is True and isinstance(params, Mapping):
        content, lines = params.get("content"), details.get("lines")
        if isinstance(content, str) and isinstance(lines, int):
            shown = content.split("\n")[: min(lines, MAX_NEW)]
            yield from (PaintedRow(f"  +{_row(line)}", "good") for line in shown)
            if lines > len(shown):
                yield PaintedRow(
                    f"  {paint.glyphs.more} {count_lines(lines - len(shown))} more", "dim"
                )


def diff_rows(diff: str, paint: Paint, most: int = MAX_DIFF) -> Iterator[PaintedRow]:
    lines = diff.rstrip("\n").split("\n") if diff.strip() else []
    styles: dict[str, Style] = {"+": "good", "-": "error", "@": "accent"}
    for line in lines[:most]:
        yield PaintedRow(f"  {_row(line)}", styles.get(line[:1], "dim"))
    if len(lines) > most:
        yield PaintedRow(f"  {paint.glyphs.more} {len(lines) - most} more lines", "dim")


def plan_rows(plan: Sequence[Any], paint: Paint) -> Iterator[PaintedRow]:
    styles: dict[str, Style] = {"completed": "dim", "in_progress": "bold"}
    for each in plan:
        if isinstance(each, Mapping):
            status, step = str(each.get("status")), str(each.get("step", ""))
            mark = paint.glyphs.steps.get(status, paint.glyphs.steps["pending"])
            yield PaintedRow(f"  {mark} {one_line(step, 200)}", styles.get(status, ""))


def tail_rows(output: str, paint: Paint, most: int = MAX_TAIL) -> Iterator[PaintedRow]:
    lines = output[-8_000:].rstrip().split("\n") if output.strip() else []
    if len(lines) > most:
        yield PaintedRow(f"  {paint.glyphs.more}", "dim")
    for line in lines[-most:]:
        yield PaintedRow(f"  {_row(line)}", "dim")


def head_lines(text: str, paint: Paint, most: int = MAX_HEAD) -> list[str]:
    """The first lines of a text, and the number of further lines."""
    more, lines = paint.glyphs.more, text.split("\n")
    kept = lines if len(lines) <= most + 1 else lines[:most]
    shown = [line if len(line) <= _MAX_LINE else f"{line[:_MAX_LINE]}{more}" for line in kept]
    left = len(lines) - len(kept)
    return [*shown, f"{more} {left:,} more lines"] if left else shown


def _row(line: str) -> str:
    return line.expandtabs(4)[:200].rstrip("\r\n")


def progress(event: Mapping[str, Any]) -> tuple[str, str]:
    """The size and the end of a running call's output."""
    details = details_of(event)
    if isinstance(details.get("tail"), str):
        size = details.get("bytes")
        return human_size(size) if isinstance(size, int) else "", details["tail"]
    return "", text_of(event)


def text_of(event: Mapping[str, Any]) -> str:
    content = event.get("content")
    blocks = content if isinstance(content, list) else []
    return "\n".join(str(each.get("text", "")) for each in blocks if isinstance(each, Mapping))


def since(seconds: float) -> str:
    """A duration; empty if it is too short to mention."""
    return human_time(seconds) if seconds >= 0.1 else ""
