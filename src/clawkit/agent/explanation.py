"""Explains why a run has a tool or not, for the command line and the gateway."""

from __future__ import annotations

from typing import Any

from msgspec.structs import asdict

from clawkit.agent.assemble import SETTINGS, Assembly
from clawkit.agent.deferral import tokens_saved
from clawkit.config.model import Config
from clawkit.core.catalog import CATALOG
from clawkit.schema.choose import Provider, token_cost


def tool_row(name: str, assembly: Assembly, provider: Provider) -> dict[str, Any]:
    """The facts about a tool for one line."""
    verdict = assembly.decision.verdicts[name]
    entry, tool = CATALOG.get(name), assembly.tools.get(name)
    available = tool is not None or entry is None or entry.available
    row: dict[str, Any] = {
        "tool": name,
        "section": entry.section if entry else "Other",
        "description": entry.description if entry else tool.description if tool else "",
        "source": assembly.sources[name],
        "available": available,
        "allowed": verdict.allowed,
        "inForce": tool is not None,
    }
    if tool is not None:
        row["tokens"] = token_cost(tool.name, tool.description, tool.offered, provider)
        row["deferred"] = name not in assembly.direct
    removed_by = verdict.removed_by
    if removed_by is not None:
        row["removedBy"] = asdict(removed_by)
        state = "off by settings" if removed_by.step == SETTINGS else "removed by policy"
    else:
        state = "in force" if available else "not available in this build"
    return row | {"state": state}


def deferral_row(assembly: Assembly) -> dict[str, Any]:
    """How many tools are deferred and how much that saves, or why none are."""
    deferral = assembly.deferral
    if not deferral.names:
        return {"deferred": 0, "tokensSaved": 0, "why": deferral.why_not}
    saved = tokens_saved(deferral, assembly.tools)
    return {"deferred": len(deferral.names), "tokensSaved": saved}


def explain_tool(
    name: str, assembly: Assembly, provider: Provider, config: Config
) -> dict[str, Any]:
    """`tool_row` with every step that decided about the tool, and the rules on its arguments."""
    traces = assembly.decision.verdicts[name].traces
    rules = [
        {
            "key": f"tools.rules[{rule.number}]",
            "effect": rule.effect,
            "action": config.tools.rules[rule.number].action,
            "params": config.tools.rules[rule.number].params,
        }
        for rule in assembly.rules
        if rule.tools.find(name) is not None
    ]
    row = tool_row(name, assembly, provider)
    return row | {"steps": [asdict(each) for each in traces], "rules": rules}
