"""Methods about tools: what exists, and what a session has, with the reason."""

from __future__ import annotations

from typing import Any

from msgspec import UNSET, structs

from clawkit.agent.assemble import assemble
from clawkit.agent.explanation import explain_tool
from clawkit.agent.model import context_window_of, default_model, target_of
from clawkit.config.model import Config
from clawkit.config.modelref import parse_ref
from clawkit.core.catalog import CATALOG, PROFILES
from clawkit.core.context import Scope, Sender
from clawkit.gateway.http import HttpError, Invoke, invoke_tool
from clawkit.gateway.methods.method import Caller, Method, OfAgent
from clawkit.gateway.open_agent import is_shared
from clawkit.gateway.protocol import Ignored, Short, ignored, invalid
from clawkit.gateway.scopes import ADMIN, READ, WRITE
from clawkit.sessions.keys import parse_key


class CatalogParams(OfAgent, frozen=True):
    include_plugins: Ignored = UNSET


class Effective(OfAgent, frozen=True, kw_only=True):
    """A session, and what should be assumed about it instead of what is so."""

    session_key: Short
    model: Short | None = None
    channel: Short | None = None
    account_id: Short | None = None
    group_id: Short | None = None
    sender_id: Short | None = None
    sender_is_owner: bool | None = None
    sandboxed: bool | None = None

    @property
    def is_assumed(self) -> bool:
        return any(each is not None for each in structs.astuple(self)[2:])


async def _catalog(caller: Caller, params: CatalogParams, _id: str) -> Any:
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


async def _effective(caller: Caller, params: Effective, _id: str) -> Any:
    key = caller.gateway.live.resolve_key(params.session_key, params.agent_id)
    there, config = caller.gateway.live.find(key), caller.gateway.loaded.config
    is_owner = caller.may(ADMIN) and not is_shared(key)
    scope = _scope(config, key, params, owner=is_owner)
    if there is not None and there.owner == is_owner and not params.is_assumed:
        assembly = there.agent.kit.assembly
    else:
        assembly = assemble(config, scope)
    profile = config.agents.get(scope.agent).tools.profile or config.tools.profile or "full"
    tools = [
        {
            "id": name,
            "label": name,
            "description": tool.description.partition("\n")[0],
            "rawDescription": tool.description,
            "source": assembly.sources.get(name, "core"),
        }
        for name, tool in assembly.tools.items()
    ]
    group = {"id": "core", "label": "Built-in tools", "source": "core", "tools": tools}
    provider = target_of(scope.model)
    return {
        "agentId": scope.agent,
        "profile": profile,
        "groups": [group],
        "trace": [explain_tool(each, assembly, provider, config) for each in assembly.sources],
        "warnings": list(assembly.warnings),
    }


def _scope(config: Config, key: str, params: Effective, *, owner: bool) -> Scope:
    """What the policy of a session depends on. Parameters replace what its key says."""
    parsed = parse_key(key)
    try:
        named = parse_ref(params.model) if params.model else None
    except ValueError as error:
        raise invalid(f"model: {error}") from None
    model = named or default_model(config, parsed.agent)
    group = parsed.peer if parsed.kind == "group" else ""
    sandboxed = params.sandboxed
    if sandboxed is None:
        sandboxed = config.agents.sandbox_of(parsed.agent).covers(key)
    if params.sender_is_owner is not None:
        owner = params.sender_is_owner
    return Scope(
        agent=parsed.agent,
        session=key,
        model=model,
        context_window=context_window_of(config, model),
        channel=parsed.channel if params.channel is None else params.channel,
        account=params.account_id or "",
        group=group if params.group_id is None else params.group_id,
        sender=Sender(owner=owner, id=params.sender_id or ""),
        sandboxed=sandboxed,
        depth=parsed.depth,
        delegates=True,
        in_gateway=True,
    )


async def _invoke(caller: Caller, params: Invoke, _id: str) -> Any:
    """As `POST /tools/invoke`; without `operator.admin`, with the tools of someone who is not the
    owner."""
    about = {"toolName": params.name or params.tool}
    try:
        done = await invoke_tool(caller.gateway, params, owner=caller.may(ADMIN))
    except HttpError as error:
        return {"ok": False, **about, "error": {"code": error.kind, "message": error.message}}
    return {"ok": True, **about, "output": done.pop("result", done), **ignored(params)}


METHODS = (
    Method("tools.catalog", READ, CatalogParams, _catalog),
    Method("tools.effective", READ, Effective, _effective),
    Method("tools.invoke", WRITE, Invoke, _invoke),
)
