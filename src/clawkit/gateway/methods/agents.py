"""Methods about agents: models, chat commands, and tools (all existing ones, or those of a session
with reasons)."""

from __future__ import annotations

from typing import Any, Literal

from msgspec import UNSET, structs

from clawkit.agent.assemble import assemble
from clawkit.agent.explanation import explain_tool
from clawkit.agent.model import context_window_of, default_model, target_of
from clawkit.bundled import search_services
from clawkit.config.model import Config
from clawkit.config.modelref import parse_ref
from clawkit.config.sections.shared import ModelChoice
from clawkit.core.catalog import CATALOG, PROFILES
from clawkit.core.context import Scope, Sender
from clawkit.gateway import formats
from clawkit.gateway.agent_pool import RESETS, STOPS
from clawkit.gateway.http import HttpError, Invoke, invoke_tool
from clawkit.gateway.methods.method import Caller, Gateway, Method, OfAgent
from clawkit.gateway.protocol import Ignored, NoParams, Short, ignored, invalid, now_ms
from clawkit.gateway.scopes import ADMIN, READ, WRITE
from clawkit.models.catalog import Catalog
from clawkit.runtime import external_tools
from clawkit.sessions.keys import parse_key

_ABOUT = {
    **dict.fromkeys(RESETS, "Start a new conversation."),
    **dict.fromkeys(STOPS, "Stop what the agent is doing."),
}


class OfSession(OfAgent, frozen=True):
    session_key: Short | None = None


class ModelsList(OfSession, frozen=True):
    """`default` is `configured`. The list is made for each request, so `refresh` does nothing."""

    view: Literal["default", "configured", "all"] = "configured"
    provider: Short | None = None
    refresh: Ignored = UNSET


class AuthStatus(OfAgent, frozen=True):
    """Credentials are read for each request, so `refresh` does nothing."""

    refresh: Ignored = UNSET


class CommandsList(OfAgent, frozen=True):
    """All commands are for both scopes, and the same for all agents."""

    scope: Literal["text", "native", "both"] = "both"
    include_args: bool = False


class CatalogParams(OfAgent, frozen=True):
    include_plugins: Ignored = UNSET


class Effective(OfAgent, frozen=True, kw_only=True):
    """A session, and hypothetical facts that replace its own."""

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


def find_agent(gateway: Gateway, params: OfSession) -> str:
    """The named agent, or that of the session, or the default one."""
    if params.session_key is None:
        return gateway.live.check_agent(params.agent_id)
    return parse_key(gateway.live.resolve_key(params.session_key, params.agent_id)).agent


async def _list(caller: Caller, _params: NoParams, _id: str) -> Any:
    gateway = caller.gateway
    config = gateway.loaded.config
    return {
        "defaultId": config.agents.default_id(),
        "mainKey": config.session.main_key,
        "scope": config.session.scope,
        "ownership": "sole",
        "selectionRequired": False,
        "agents": [_row(gateway, each) for each in config.agents.ids()],
    }


def _row(gateway: Gateway, id_: str) -> dict[str, Any]:
    agents = gateway.loaded.config.agents
    agent, defaults = agents.get(id_), gateway.session_list.defaults(id_)
    choice = agent.model or agents.defaults.model
    model = choice.primary if isinstance(choice, ModelChoice) else choice
    row: dict[str, Any] = {
        "id": id_,
        "kind": "agent",
        "workspace": gateway.live.workspace(id_),
        "model": {"primary": model or gateway.session_list.default_model(id_)[0]},
        "agentRuntime": {"id": "clawkit", "source": "implicit"},
    }
    row |= {key: defaults[key] for key in defaults if key.startswith("thinking")}
    return row | ({"name": agent.name} if agent.name else {})


async def _identity(caller: Caller, params: OfSession, _id: str) -> Any:
    id_ = find_agent(caller.gateway, params)
    agent = caller.gateway.loaded.config.agents.get(id_)
    name, source = agent.identity.name or agent.name or "", "config"
    if not name:
        name, source = "Assistant", "default"
    avatar = agent.identity.emoji or name[:1].upper()
    return {"agentId": id_, "name": name, "nameSource": source, "avatar": avatar}


async def _models(caller: Caller, params: ModelsList, _id: str) -> Any:
    agent = find_agent(caller.gateway, params)
    rows = list_models(caller.gateway, agent, everything=params.view == "all")
    wanted = (params.provider or "").strip().lower()
    return {"models": [row for row in rows if wanted in ("", row["provider"])], **ignored(params)}


def list_models(gateway: Gateway, agent: str, *, everything: bool = False) -> list[dict[str, Any]]:
    """The models that an agent can use; with `everything`, all known models."""
    default = gateway.session_list.default_model(agent)[0]
    rows = []
    for entry in Catalog.of(gateway.loaded, agent).list():
        is_default = str(entry.ref) == default
        usable = entry.has_credential and not entry.problem
        if not (everything or is_default or entry.source != "known" or usable):
            continue
        facts = entry.facts
        row: dict[str, Any] = {"id": entry.ref.id, "name": facts.name or entry.ref.id}
        row |= {"provider": entry.ref.provider, "contextWindow": facts.context_window}
        row |= {"reasoning": facts.reasoning, "thinkingLevels": formats.levels(facts.reasoning)}
        row |= {"available": usable}
        rows.append(row | ({"tags": ["default"]} if is_default else {}))
    return rows


def snapshot_models(gateway: Gateway, session: str) -> dict[str, Any]:
    """The models of a session, for a client that has just connected."""
    agent = find_agent(gateway, OfSession(session_key=session))
    about = {"sessionKey": session}
    return {"target": about, "scope": about, "catalog": {"models": list_models(gateway, agent)}}


async def _auth_status(caller: Caller, params: AuthStatus, _id: str) -> Any:
    """Which providers have a credential, and its source; does not check whether it is valid."""
    catalog = Catalog.of(caller.gateway.loaded, caller.gateway.live.check_agent(params.agent_id))
    rows: dict[str, dict[str, Any]] = {}
    for entry in catalog.list():
        id_, has_one = entry.ref.provider, entry.has_credential
        if id_ not in rows and (has_one or entry.source != "known"):
            rows[id_] = {"provider": id_, "authProvider": id_, "displayName": id_, "profiles": []}
            rows[id_] |= {"status": "static" if has_one else "missing"}
            if has_one:
                rows[id_]["apiKey"] = {"source": catalog.credentials.for_provider(id_)[0].id}
    return {"ts": now_ms(), "providers": list(rows.values()), **ignored(params)}


async def _commands(caller: Caller, params: CommandsList, _id: str) -> Any:
    caller.gateway.live.check_agent(params.agent_id)
    return {"commands": list_commands(args=params.include_args)}


def list_commands(*, args: bool = False) -> list[dict[str, Any]]:
    """The slash commands that the gateway handles itself."""
    fixed: dict[str, Any] = {"category": "session", "source": "native", "scope": "both"}
    fixed |= {"acceptsArgs": False} | ({"args": []} if args else {})
    return [
        {"name": name, "nativeName": name, "textAliases": [word], "description": about, **fixed}
        for word, about in _ABOUT.items()
        for name in [word.removeprefix("/")]
    ]


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
    there, loaded = caller.gateway.live.find(key), caller.gateway.loaded
    config = loaded.config
    is_owner = caller.may(ADMIN) and not parse_key(key).is_shared
    scope = _scope(config, key, params, owner=is_owner)
    scope = structs.replace(scope, search=search_services(loaded))
    if there is not None and there.owner == is_owner and not params.is_assumed:
        assembly = there.agent.kit.assembly
    else:
        assembly = assemble(config, scope, external_tools(config, scope))
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
    """The policy scope of a session. Parameters override the facts from its key."""
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
    """Like `POST /tools/invoke`; without `operator.admin`, with the tools of a non-owner."""
    about = {"toolName": params.name or params.tool}
    try:
        done = await invoke_tool(caller.gateway, params, owner=caller.may(ADMIN))
    except HttpError as error:
        return {"ok": False, **about, "error": {"code": error.kind, "message": error.message}}
    return {"ok": True, **about, "output": done.pop("result", done), **ignored(params)}


METHODS = (
    Method("agents.list", READ, NoParams, _list),
    Method("agent.identity.get", READ, OfSession, _identity),
    Method("models.list", READ, ModelsList, _models),
    Method("models.authStatus", READ, AuthStatus, _auth_status),
    Method("commands.list", READ, CommandsList, _commands),
    Method("tools.catalog", READ, CatalogParams, _catalog),
    Method("tools.effective", READ, Effective, _effective),
    Method("tools.invoke", WRITE, Invoke, _invoke),
)
