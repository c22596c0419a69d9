"""Methods about the memory of an agent: searching its notes, and its status."""

from __future__ import annotations

from typing import Annotated, Any

import msgspec
from msgspec import Meta

from clawkit.core.context import Scope, Sender
from clawkit.gateway.methods.method import Caller, Method, OfAgent
from clawkit.gateway.protocol import GatewayError
from clawkit.gateway.scopes import READ
from clawkit.memory.protocols import Memory
from clawkit.services import Services
from clawkit.tools._memory import why_not

MAX_RESULTS = 50


class NotesSearch(OfAgent, frozen=True, kw_only=True):
    """At most 50 results; `minScore` defaults to the configured one."""

    query: Annotated[str, Meta(min_length=1, max_length=2_000)]
    max_results: Annotated[int, Meta(ge=1)] = 20
    min_score: Annotated[float, Meta(ge=0, le=1)] | None = None


class NotesStatus(OfAgent, frozen=True):
    """`probe` or `deep` requests a vector from the embedding provider, and indexes changed files;
    otherwise only the settings are checked."""

    probe: bool = False
    deep: bool = False


async def _open(caller: Caller, agent_id: str | None) -> tuple[str, Memory]:
    """The id of an agent, and its memory in its own workspace. Raises `GatewayError` if it has
    none."""
    gateway = caller.gateway
    agent = gateway.live.check_agent(agent_id)
    scope = Scope(agent=agent, sender=Sender(owner=True))
    if why := why_not(gateway.loaded.config, scope):
        raise GatewayError("UNAVAILABLE", why)
    # It stays open, because embedding continues after a search.
    loaded, services = gateway.memories.get(agent, (None, None))
    if services is None or loaded is not gateway.loaded:
        place, older = gateway.live.workspace(agent), services
        services = Services(gateway.loaded, scope, place, redactor=gateway.redactor)
        gateway.memories[agent] = gateway.loaded, services
        if older is not None:
            await older.close()
    return agent, services[Memory]


async def _search(caller: Caller, params: NotesSearch, _id: str) -> Any:
    """Passages of the notes, and of past sessions if they are indexed, best first."""
    agent, memory = await _open(caller, params.agent_id)
    found = await memory.search(
        params.query,
        max_results=min(params.max_results, MAX_RESULTS),
        min_score=params.min_score,
        corpus="all",
    )
    return {
        "agentId": agent,
        "provider": found.provider or "none",
        "searchMode": "hybrid" if found.mode == "hybrid" else "fts-only",
        "results": msgspec.to_builtins(found.hits),
        **({"warning": found.warning} if found.warning else {}),
    }


async def _status(caller: Caller, params: NotesStatus, _id: str) -> Any:
    """Index size, problems, and in `embedding` whether embedding works."""
    agent, memory = await _open(caller, params.agent_id)
    is_probe = params.probe or params.deep
    if is_probe:
        await memory.search("probe", max_results=1)
    found = await memory.status()
    is_checked = bool(found.error) or (is_probe and bool(found.provider))
    unknown = "not checked; use probe" if found.provider else "no embedding provider is configured"
    why = found.error if is_checked else unknown
    embedding = {"ok": not why, "checked": is_checked, "error": why}
    facts = msgspec.to_builtins(found) | {"provider": found.provider or "none"}
    return {"agentId": agent, **facts, "embedding": embedding}


METHODS = (
    Method("memory.search", READ, NotesSearch, _search),
    Method("doctor.memory.status", READ, NotesStatus, _status),
)
