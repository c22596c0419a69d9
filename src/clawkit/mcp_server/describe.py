"""Tools, results and progress in the format of the protocol."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from clawkit.content import Block, Text
from clawkit.core.call import Event
from clawkit.core.result import Result, to_text
from clawkit.core.tool import Kind, Tool
from clawkit.mcp.protocol import Annotations, ToolEntry
from clawkit.schema.choose import declare
from clawkit.text import human_size, one_line

DETAILS = "clawkit/details"
"""The key in `_meta` for the details of a result."""
MAX_PROGRESS = 200
KINDS: Mapping[str, frozenset[Kind]] = {
    **dict.fromkeys(("read", "grep", "find", "ls"), frozenset(("read",))),
    **dict.fromkeys(("session_status", "agents_list"), frozenset(("read",))),
    **dict.fromkeys(("sessions_list", "sessions_history"), frozenset(("read",))),
    **dict.fromkeys(("sessions_search", "memory_search", "memory_get"), frozenset(("read",))),
    **dict.fromkeys(("web_search", "x_search", "web_fetch"), frozenset(("read", "network"))),
    **dict.fromkeys(("write", "edit", "apply_patch", "update_plan"), frozenset(("write",))),
    **dict.fromkeys(("cron", "gateway"), frozenset(("write",))),
    **dict.fromkeys(("exec", "process", "code_execution"), frozenset(("exec", "write"))),
}
"""Effects of calls of built-in tools, with any parameters."""
_IDEMPOTENT = frozenset(("write", "update_plan"))
_HARMLESS = frozenset(("update_plan",))


def describe(tool: Tool) -> ToolEntry:
    """A tool for `tools/list`. Raises `SchemaError`."""
    declared = declare(tool.name, tool.description, tool.offered, "anthropic")
    return ToolEntry(
        name=tool.name,
        title=tool.label or None,
        description=declared["description"],
        input_schema=declared["input_schema"],
        annotations=annotate(tool),
    )


def annotate(tool: Tool) -> Annotations:
    """Annotations of a tool. One with unknown effects has none, so that clients assume it to be
    destructive and open-world."""
    kinds = KINDS.get(tool.name) or _constant_effects(tool)
    if kinds is None:
        return Annotations(title=tool.label or None)
    only_reads = kinds <= {"read", "network"}
    return Annotations(
        title=tool.label or None,
        read_only_hint=only_reads,
        destructive_hint=not only_reads and tool.name not in _HARMLESS,
        idempotent_hint=only_reads or tool.name in _IDEMPOTENT,
        open_world_hint=not kinds.isdisjoint(("network", "send", "exec")),
    )


def _constant_effects(tool: Tool) -> frozenset[Kind] | None:
    """The effects of a tool that declares the same ones for every call; None if they vary."""
    try:
        return frozenset(each.kind for each in tool.effects(None, None))  # type: ignore[arg-type]
    except Exception:  # noqa: BLE001  # the tool's own code, which uses its parameters
        return None


def show_result(result: Result) -> dict[str, Any]:
    """A result of a call.

    Clients that get structured content may hide the text from the model, so it is sent only if it
    is equivalent to the text. Other details are in `_meta`, for programs.
    """
    shown: dict[str, Any] = {"content": [block.to_json() for block in result.content]}
    if result.is_error:
        shown["isError"] = True
    if result.details:
        details = dict(result.details)
        is_same = len(result.content) == 1 and _is_json_of(result.content[0], details)
        shown |= {"structuredContent": details} if is_same else {"_meta": {DETAILS: details}}
    return shown


def _is_json_of(block: Block, details: dict[str, Any]) -> bool:
    # Cheap check first: most texts are not JSON.
    is_text = isinstance(block, Text) and block.text.startswith("{")
    return is_text and block == Text(to_text(details))


def show_progress(event: Event) -> str:
    """The progress of a tool, in one line."""
    facts = event.get("details", {})
    if "elapsedMs" in facts:
        last = facts.get("tail", "").rstrip().rpartition("\n")[2]
        size = human_size(facts.get("bytes", 0))
        return one_line(f"{facts['elapsedMs'] / 1000:.0f} s, {size}: {last}", MAX_PROGRESS)
    texts = (block.get("text", "[image]") for block in event.get("content", ()))
    return one_line(" ".join(texts), MAX_PROGRESS)
