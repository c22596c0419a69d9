"""session_status: a card that says who is running, where, with which model and tools."""

from __future__ import annotations

import time
from collections.abc import Iterator
from dataclasses import replace
from functools import partial
from typing import Annotated, Any

import msgspec
from msgspec import Meta

from clawkit.config.model import Config
from clawkit.core.context import Context, InForce, Scope
from clawkit.core.result import Result
from clawkit.core.tool import Effect, Tool
from clawkit.errors import NotFoundError, ToolAuthorizationError, ToolInputError
from clawkit.sessions.protocols import (
    Changes,
    Session,
    Sessions,
    SessionState,
    Sight,
    session_key,
    why_hidden,
)
from clawkit.text import one_line
from clawkit.version import __version__


class Params(msgspec.Struct, frozen=True, forbid_unknown_fields=True, rename="camel"):
    """Parameters of session_status."""

    session_key: Annotated[
        str,
        Meta(description="Session to look at: its key, id or name, or 'current'", min_length=1),
    ] = "current"
    model: Annotated[
        str,
        Meta(description="Have the session use this model from now on; 'default' undoes that"),
    ] = ""
    changes_since: Annotated[
        Annotated[int, Meta(ge=0)] | None,
        Meta(description="Also report what changed after this number, a stateVersion"),
    ] = None


async def execute(
    params: Params, ctx: Context, sight: Sight = "tree", main: str = "main"
) -> Result:
    live: SessionState | None = ctx.services.get(SessionState)  # type: ignore[assignment]
    store: Sessions | None = ctx.services.get(Sessions)  # type: ignore[assignment]
    here = _find_here(ctx, live, store)
    session = _find(params.session_key, here, store, sight, main)
    is_here = session.key == here.key
    mine = live if is_here else None
    before = _model_of(session, ctx, mine, is_here)
    if params.model:
        session = _choose(params.model, session, is_here, live, store)
    changes = None
    if params.changes_since is not None:
        changes = _changes(session, params.changes_since, store)
    about = _about(session, ctx, mine, is_here)
    card = "\n".join(_card(session, ctx, mine, about, is_here))
    text = card if changes is None else f"{card}\n{_tell(changes, params.changes_since)}"
    return Result.text(
        text,
        ok=True,
        **about,
        changedModel=(about["model"] or "") != before,
        stateVersion=session.version,
        statusText=card,
        **({} if changes is None else {"stateChanges": _to_json(changes)}),
    )


def _find_here(ctx: Context, live: SessionState | None, store: Sessions | None) -> Session:
    """The session of the run; one that is not stored is made of what the run knows."""
    if live is not None:
        return live.session
    key = session_key(ctx.agent, ctx.session)
    stored = store.find(key, ctx.agent) if store else None
    return stored or Session("", key, ctx.agent, workspace=ctx.workspace)


def _find(wanted: str, here: Session, store: Sessions | None, sight: Sight, main: str) -> Session:
    if wanted.strip() in ("current", here.key, here.name) or (here.id and wanted == here.id):
        return here
    if store is None:
        raise NotFoundError(
            f"there is no session {one_line(wanted, 60)!r}; this one is {here.name!r}"
        )
    found = store.get(wanted, here.agent)
    if why := why_hidden(sight, here, found, store.descends, main):
        raise ToolAuthorizationError(f"the session {found.key!r} cannot be seen from here: {why}")
    return found


def _choose(
    wanted: str,
    session: Session,
    is_here: bool,
    live: SessionState | None,
    store: Sessions | None,
) -> Session:
    """The session after it was told to use another model."""
    if live is None or store is None:
        raise ToolInputError(
            "no agent is running here, so the model cannot be changed; leave out 'model'"
        )
    model = live.resolve_model(wanted)
    if not is_here:
        return store.set_model(session.id, model)
    live.set_model(model)
    return live.session


def _model_of(session: Session, ctx: Context, live: SessionState | None, is_here: bool) -> str:
    if live is not None:
        return live.model
    return str(ctx.model or "") if is_here else session.model_override or session.model


def _changes(session: Session, since: int, store: Sessions | None) -> Changes:
    return store.changes(session.id, since) if store and session.id else Changes(0)


def _about(
    session: Session, ctx: Context, live: SessionState | None, is_here: bool
) -> dict[str, Any]:
    """What programs are told."""
    model = _model_of(session, ctx, live, is_here)
    facts: dict[str, Any] = {
        "sessionKey": session.key,
        "agentId": session.agent,
        "active": is_here,
        "model": model or None,
        "modelProvider": model.partition("/")[0] if "/" in model else None,
        "modelOverride": session.model_override or None,
        "workspace": ctx.workspace if is_here else session.workspace,
        "version": __version__,
    }
    if is_here:
        in_force = ctx.use(InForce)
        facts |= {
            "sandboxed": ctx.scope.sandboxed,
            "senderIsOwner": ctx.sender.owner,
            "depth": ctx.scope.depth,
            "tools": list(in_force.tools),
            "toolsRemoved": in_force.removed,
            "toolsOff": in_force.off,
        }
    return facts


def _card(
    session: Session, ctx: Context, live: SessionState | None, about: dict[str, Any], is_here: bool
) -> Iterator[str]:
    """The lines that a person, or the model, reads."""
    usage, tokens = session.usage, live.context_tokens if live else session.context_tokens
    yield f"clawkit {__version__}"
    title = f": {session.title}" if session.title else ""
    yield f"session {session.name} of agent {session.agent}{title}"
    chosen = " (chosen for this session)" if session.model_override else ""
    yield f"model {about['model'] or 'not set'}{chosen}"
    if live:
        yield f"auth {live.auth}"
    if tokens:
        window = live.context_window if live else 0
        part = f" of {window:,} ({tokens * 100 // window}%)" if window else ""
        yield f"context {tokens:,} tokens{part}"
    if session.turns:
        sent = usage.input + usage.cache_read + usage.cache_write
        counts = f"{session.turns} turns, {sent:,} tokens sent, {usage.output:,} received"
        yield f"used {counts}, ${usage.cost:.4f}"
    if live:
        yield f"queue {live.queued} waiting"
    sandboxed = " (sandboxed)" if is_here and ctx.scope.sandboxed else ""
    yield f"workspace {about['workspace']}{sandboxed}"
    if is_here:
        in_force = ctx.use(InForce)
        off = f", {in_force.off} off by settings" if in_force.off else ""
        listed = ", ".join(in_force.tools) or "none"
        yield f"tools {listed} ({in_force.removed} removed by policy{off})"
    yield time.strftime("time %Y-%m-%d %H:%M:%S %Z")


def _tell(changes: Changes, since: int | None) -> str:
    lines = [f"version {changes.version}; changes since {since}:"]
    lines += [
        " ".join([f"  {each.sequence} {each.type}", *(f"{k}={v}" for k, v in each.details.items())])
        for each in changes.events
    ]
    if not changes.events:
        lines[0] = f"version {changes.version}; no changes since {since}"
    if changes.gap:
        lines.append(f"  changes before {changes.earliest} are no longer stored")
    if changes.truncated:
        lines.append(f"  there are more: ask with changesSince {changes.events[-1].sequence}")
    return "\n".join(lines)


def _to_json(changes: Changes) -> dict[str, Any]:
    return {
        "events": [
            {"sequence": each.sequence, "type": each.type, "atMs": each.at_ms, **each.details}
            for each in changes.events
        ],
        "truncated": changes.truncated,
        "earliestAvailableSequence": changes.earliest,
        "historyGap": changes.gap,
    }


def effects(params: Params, ctx: Context) -> tuple[Effect, ...]:
    return (Effect("write" if params.model else "read", f"session:{ctx.session}"),)


TOOL = Tool(
    name="session_status",
    label="Session status",
    description=(
        "Show the state of a session: agent, model, context and tokens used, cost, workspace, "
        "tools in force, time. Can also change the model of the session."
    ),
    parameters=Params,
    execute=execute,
    effects=effects,
)


def make_tool(config: Config, scope: Scope) -> Tool:
    """The tool, knowing which sessions it may tell about."""
    sight: Sight = config.tools.sessions.visibility
    agents = config.agents
    sandbox = agents.sandbox_of(scope.agent)
    if scope.sandboxed and not scope.depth and sandbox.session_tools_visibility == "spawned":
        sight = "self" if sight == "self" else "spawned"
    main = config.session.main_key
    if (sight, main) == ("tree", "main"):
        return TOOL
    return replace(TOOL, execute=partial(execute, sight=sight, main=main))
