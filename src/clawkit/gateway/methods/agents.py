"""Methods about agents, their models and the commands of a chat."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Literal

from msgspec import UNSET

from clawkit.config.sections.shared import ModelChoice
from clawkit.gateway import wire
from clawkit.gateway.live import RESETS, STOPS
from clawkit.gateway.methods.method import Caller, Method, OfAgent
from clawkit.gateway.methods.status import agent_ids
from clawkit.gateway.protocol import Ignored, NoParams, Short, ignored, now_ms
from clawkit.gateway.scopes import READ
from clawkit.models.catalog import Catalog
from clawkit.sessions.keys import parse_key

if TYPE_CHECKING:
    from clawkit.gateway.server import Gateway

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


def find_agent(gateway: Gateway, params: OfSession) -> str:
    """The agent that is named, or that of the session, or the default one."""
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
        "agents": [_row(gateway, each) for each in agent_ids(gateway)],
    }


def _row(gateway: Gateway, id_: str) -> dict[str, Any]:
    agents = gateway.loaded.config.agents
    agent, defaults = agents.get(id_), gateway.shelf.defaults(id_)
    choice = agent.model or agents.defaults.model
    model = choice.primary if isinstance(choice, ModelChoice) else choice
    row: dict[str, Any] = {
        "id": id_,
        "kind": "agent",
        "workspace": gateway.live.workspace(id_),
        "model": {"primary": model or gateway.shelf.default_model(id_)[0]},
        "agentRuntime": {"id": "clawkit", "source": "implicit"},
    }
    row |= {key: defaults[key] for key in defaults if key.startswith("thinking")}
    return row | ({"name": agent.name} if agent.name else {})


async def _identity(caller: Caller, params: OfSession, _id: str) -> Any:
    id_ = find_agent(caller.gateway, params)
    agent = caller.gateway.loaded.config.agents.get(id_)
    name = agent.identity.name or agent.name
    shown = name or "Assistant"
    return {
        "agentId": id_,
        "name": shown,
        "nameSource": "config" if name else "default",
        "avatar": agent.identity.emoji or shown[:1].upper(),
    }


async def _models(caller: Caller, params: ModelsList, _id: str) -> Any:
    agent = find_agent(caller.gateway, params)
    rows = list_models(caller.gateway, agent, everything=params.view == "all")
    wanted = (params.provider or "").strip().lower()
    return {"models": [row for row in rows if wanted in ("", row["provider"])], **ignored(params)}


def list_models(gateway: Gateway, agent: str, *, everything: bool = False) -> list[dict[str, Any]]:
    """The models that an agent can use; with `everything`, all that are known."""
    default = gateway.shelf.default_model(agent)[0]
    rows = []
    for entry in Catalog.of(gateway.loaded, agent).list():
        is_default = str(entry.ref) == default
        usable = entry.has_credential and not entry.problem
        if not (everything or is_default or entry.source != "known" or usable):
            continue
        facts = entry.facts
        row: dict[str, Any] = {"id": entry.ref.id, "name": facts.name or entry.ref.id}
        row |= {"provider": entry.ref.provider, "contextWindow": facts.context_window}
        row |= {"reasoning": facts.reasoning, "thinkingLevels": wire.levels(facts.reasoning)}
        row |= {"available": usable}
        rows.append(row | ({"tags": ["default"]} if is_default else {}))
    return rows


def snapshot_models(gateway: Gateway, session: str) -> dict[str, Any]:
    """The models of a session, for a client that has just connected."""
    agent = find_agent(gateway, OfSession(session_key=session))
    about = {"sessionKey": session}
    return {"target": about, "scope": about, "catalog": {"models": list_models(gateway, agent)}}


async def _auth_status(caller: Caller, params: AuthStatus, _id: str) -> Any:
    """Which providers have a credential, and where it comes from; no one is asked whether it is
    valid."""
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
    """What the gateway itself does with a message that starts with a slash."""
    fixed: dict[str, Any] = {"category": "session", "source": "native", "scope": "both"}
    fixed |= {"acceptsArgs": False} | ({"args": []} if args else {})
    return [
        {"name": name, "nativeName": name, "textAliases": [word], "description": about, **fixed}
        for word, about in _ABOUT.items()
        for name in [word.removeprefix("/")]
    ]


METHODS = (
    Method("agents.list", READ, NoParams, _list),
    Method("agent.identity.get", READ, OfSession, _identity),
    Method("models.list", READ, ModelsList, _models),
    Method("models.authStatus", READ, AuthStatus, _auth_status),
    Method("commands.list", READ, CommandsList, _commands),
)
