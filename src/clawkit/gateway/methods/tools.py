"""Methods about tools: what exists, and what a session has, with the reason."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from msgspec import UNSET
from msgspec.structs import asdict

from clawkit.agent.assemble import Assembly, assemble
from clawkit.agent.model import context_window_of, default_model
from clawkit.core.catalog import CATALOG, PROFILES
from clawkit.core.context import Scope, Sender
from clawkit.gateway.live import is_shared
from clawkit.gateway.methods.method import Method
from clawkit.gateway.protocol import Closed, Ignored, Short, ignored
from clawkit.gateway.scopes import ADMIN, READ
from clawkit.sessions.keys import parse_key

if TYPE_CHECKING:
    from clawkit.gateway.connection import GatewayConnection


class CatalogParams(Closed, frozen=True):
    agent_id: Short | None = None
    include_plugins: Ignored = UNSET


class Effective(Closed, frozen=True):
    session_key: Short
    agent_id: Short | None = None


async def _catalog(caller: GatewayConnection, params: CatalogParams, _id: str) -> Any:
    agent = caller.gateway.live.check_agent(params.agent_id)
    groups: dict[str, list[dict[str, Any]]] = {}
    for entry in CATALOG.values():
        tool: dict[str, Any] = {"id": entry.id, "label": entry.id, "source": "core"}
        tool |= {"description": entry.description, "available": entry.available}
        tool |= {"defaultProfiles": list(entry.profiles)}
        groups.setdefault(entry.section, []).append(tool)
    return {
        "agentId": agent,
        "profiles": [{"id": each, "label": each.capitalize()} for each in PROFILES],
        "groups": [
            {"id": name.lower(), "label": name, "source": "core", "tools": tools}
            for name, tools in groups.items()
        ],
        **ignored(params),
    }


async def _effective(caller: GatewayConnection, params: Effective, _id: str) -> Any:
    key = caller.gateway.live.resolve_key(params.session_key, params.agent_id)
    there = caller.gateway.live.find(key)
    is_owner = caller.may(ADMIN) and not is_shared(key)
    if there is not None and there.owner == is_owner:
        assembly = there.agent.kit.assembly
    else:
        assembly = _assemble(caller, key, owner=is_owner)
    agent = parse_key(key).agent
    config = caller.gateway.loaded.config
    profile = config.agents.get(agent).tools.profile or config.tools.profile or "full"
    groups = [
        {
            "id": "core",
            "label": "Built-in tools",
            "source": "core",
            "tools": [
                {
                    "id": name,
                    "label": name,
                    "description": tool.description.partition("\n")[0],
                    "rawDescription": tool.description,
                    "source": assembly.sources.get(name, "core"),
                }
                for name, tool in assembly.tools.items()
            ],
        }
    ]
    return {"agentId": agent, "profile": profile, "groups": groups, "trace": _trace(assembly)}


def _assemble(caller: GatewayConnection, key: str, *, owner: bool) -> Assembly:
    config, parsed = caller.gateway.loaded.config, parse_key(key)
    model = default_model(config, parsed.agent)
    scope = Scope(
        agent=parsed.agent,
        session=key,
        model=model,
        context_window=context_window_of(config, model),
        channel=parsed.channel,
        group=parsed.peer if parsed.kind == "group" else "",
        sender=Sender(owner=owner),
        sandboxed=config.agents.sandbox_of(parsed.agent).covers(key),
        depth=parsed.depth,
        delegates=True,
    )
    return assemble(config, scope)


def _trace(assembly: Assembly) -> list[dict[str, Any]]:
    """Which step, setting and entry kept or removed each tool."""
    return [
        {
            "tool": name,
            "inForce": name in assembly.tools,
            "allowed": verdict.kept,
            "steps": [asdict(each) for each in verdict.traces],
        }
        for name, verdict in assembly.decision.verdicts.items()
    ]


METHODS = (
    Method("tools.catalog", READ, CatalogParams, _catalog),
    Method("tools.effective", READ, Effective, _effective),
)
