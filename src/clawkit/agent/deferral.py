"""Deferred tools: which schemas are withheld from the model, and the prompt's text about them.

Decided at assembly from the settings and tools alone, so that neither the list nor the prompt
changes between requests.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import msgspec
from msgspec import Struct

from clawkit.config.sections.tools import ToolSearch
from clawkit.core.catalog import CONTROLS
from clawkit.core.tool import CALLER, CORE, Tool
from clawkit.schema.choose import CHARS_PER_TOKEN

MAX_DIRECTORY = 18_000
_WIDTHS = (80, 40)
"""Characters of a description; names alone if the directory is still too long."""
_MORE = 60  # room for the number of tools that are left out
_INTRO = (
    "These are deferred: their parameters are not described here. Find one with tool_search, which "
    "shows its parameters, or see tool_describe; then call it with tool_call."
)


class Deferral(Struct, frozen=True):
    names: tuple[str, ...] = ()
    """Canonical names of the deferred tools, in alphabetical order."""
    directory: str = ""
    """The list of these tools for the prompt, at most `MAX_DIRECTORY` characters."""
    tokens: int = 0
    """Estimated tokens that describing these tools would take in each request."""
    why_not: str = ""
    """Why no tools are deferred."""


def plan_deferral(
    settings: ToolSearch,
    tools: Mapping[str, Tool],
    sources: Mapping[str, str],
    denied: Sequence[str] = (),
) -> Deferral:
    """Choose the deferred tools among those that policy kept; built-in tools are never deferred.
    `denied` are the control tools that policy removed."""
    direct = (CORE, CALLER) if settings.mode == "directory" else (CORE,)
    names = tuple(sorted(name for name in tools if sources[name] not in direct))
    if settings.enabled is False:
        return Deferral(why_not="tools.toolSearch is off")
    if not names:
        return Deferral(why_not="no tools have to be deferred: all are built in")
    if denied:
        return Deferral(why_not=f"no tools are deferred: policy removed {denied[0]!r}")
    costs = {name: estimate_tokens(tool) for name, tool in tools.items()}
    if settings.enabled is None and (total := sum(costs.values())) < settings.min_tokens:
        few = f"about {total:,} tokens, less than tools.toolSearch.minTokens"
        return Deferral(why_not=f"no tools have to be deferred: together they take {few}")
    from clawkit.schema.tool_index import is_stranger  # only with deferred tools, as below

    directory = make_directory([(tools[name], is_stranger(sources[name])) for name in names])
    return Deferral(names, directory, sum(costs[name] for name in names))


def make_controls(
    settings: ToolSearch,
    tools: Mapping[str, Tool],
    deferred: tuple[str, ...],
    sources: Mapping[str, str],
    refused: Mapping[str, str],
) -> dict[str, Tool]:
    """The tools that find, describe and call deferred tools."""
    from clawkit.schema.tool_index import ToolIndex
    from clawkit.tools import tool_call, tool_describe, tool_search

    index = ToolIndex(tools, deferred, sources, refused)
    find, describe = tool_search.search_in(index, settings), tool_describe.describe_from(index)
    return dict(zip(CONTROLS, (find, describe, tool_call.TOOL), strict=True))


def tokens_saved(deferral: Deferral, tools: Mapping[str, Tool]) -> int:
    """Estimated savings per request; negative if describing all tools would take less."""
    controls = sum(estimate_tokens(tools[name]) for name in CONTROLS if name in tools)
    return deferral.tokens - len(deferral.directory) // CHARS_PER_TOKEN - controls


def estimate_tokens(tool: Tool) -> int:
    """Estimated tokens of a declaration in an average format: the result must not depend on the
    model."""
    declared = msgspec.json.encode((tool.name, tool.description, tool.offered), enc_hook=str)
    return len(declared) // CHARS_PER_TOKEN


def make_directory(tools: Sequence[tuple[Tool, bool]]) -> str:
    """The list of deferred tools. `tools` are pairs with whether the tool is untrusted: those are
    listed by name only, because their descriptions must not get into the prompt."""
    from clawkit.schema.tool_index import summarize

    strangers = [tool.name for tool, is_foreign in tools if is_foreign]
    for width in _WIDTHS:
        own = [f"- {tool.name}: {summarize(tool, width)}" for tool, other in tools if not other]
        text = "\n".join(filter(None, (_INTRO, *own, ", ".join(strangers))))
        if len(text) <= MAX_DIRECTORY:
            return text
    names = ", ".join(tool.name for tool, _ in tools)
    room = MAX_DIRECTORY - len(_INTRO) - 1
    if len(names) > room:
        names = names[: room - _MORE].rpartition(", ")[0]
        names += f", and {len(tools) - names.count(', ') - 1:,} more: use tool_search"
    return f"{_INTRO}\n{names}"
