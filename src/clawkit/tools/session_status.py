"""session_status: a card that says who is running, where, with which model and tools."""

from __future__ import annotations

import time
from collections.abc import Iterator
from dataclasses import replace
from functools import partial
from typing import Annotated, Any, NamedTuple

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
from clawkit.tools._params import doc
from clawkit.version import __version__


class Params(msgspec.Struct, frozen=True, forbid_unknown_fields=True, rename="camel"):
    """Parameters of session_status."""

    session_key: Annotated[
        str, doc("Session to look at: its key, id or name, or 'current'", min_length=1)
    ] = "current"
    model: Annotated[
        str, doc("Have the session use this model from now on; 'default' undoes that")
    ] = ""
    changes_since: Annotated[
        Annotated[int, Meta(ge=0)] | None,
        doc("Also report what changed after this number, a stateVersion"),
    ] = None


async def execute(
    params: Params, ctx: Context, sight: Sight = "tree", main: str = "main"
) -> Result:
    live: SessionState | None = ctx.services.get(SessionState)  # type: ignore[assignment]
    store: Sessions | None = ctx.services.get(Sessions)  # type: ignore[assignment]
    here = _find_here(ctx, live, store)
    session = _find(params.session_key, here, store, sight, main)
    is_here = session.key == here.key
    seen = _Seen(session, ctx, live if is_here else None, is_here)
    before = seen.model
    if params.model:
        seen = seen._replace(session=_choose(params.model, session, is_here, live, store))
    card = text = "\n".join(seen.card())
    details = {"ok": True, **seen.facts(), "changedModel": seen.model != before}
    details |= {"stateVersion": seen.session.version, "statusText": card}
    if (since := params.changes_since) is not None:
        id_ = seen.session.id
        changes = store.changes(id_, since) if store and id_ else Changes(0)
        text += f"\n{_tell(changes, since)}"
        details["stateChanges"] = _to_json(changes)
    return Result.text(text, **details)


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
        name = one_line(wanted, 60)
        raise NotFoundError(f"there is no session {name!r}; this one is {here.name!r}")
    found = store.get(wanted, here.agent)
    if why := why_hidden(sight, here, found, store.descends, main):
        raise ToolAuthorizationError(f"the session {found.key!r} cannot be seen from here: {why}")
    return found


def _choose(
    wanted: str, session: Session, is_here: bool, live: SessionState | None, store: Sessions | None
) -> Session:
    """The session after it was told to use another model."""
    if live is None or store is None:
        why = "no agent is running here, so the model cannot be changed"
        raise ToolInputError(f"{why}; leave out 'model'")
    model = live.resolve_model(wanted)
    if not is_here:
        return store.set_model(session.id, model)
    live.set_model(model)
    return live.session


class _Seen(NamedTuple):
    """A session as it is shown."""

    session: Session
    ctx: Context
    live: SessionState | None
    """Of the running session, if it is that one."""
    is_here: bool

    @property
    def model(self) -> str:
        if self.live is not None:
            return self.live.model
        stored = self.session.model_override or self.session.model
        return str(self.ctx.model or "") if self.is_here else stored

    @property
    def workspace(self) -> str:
        return self.ctx.workspace if self.is_here else self.session.workspace

    def facts(self) -> dict[str, Any]:
        """What programs are told."""
        session, ctx, model = self.session, self.ctx, self.model
        facts: dict[str, Any] = {
            "sessionKey": session.key,
            "agentId": session.agent,
            "active": self.is_here,
            "model": model or None,
            "modelProvider": model.partition("/")[0] if "/" in model else None,
            "modelOverride": session.model_override or None,
            "workspace": self.workspace,
            "version": __version__,
        }
        if self.is_here:
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

    def card(self) -> Iterator[str]:
        """The lines that a person, or the model, reads."""
        session, live, usage = self.session, self.live, self.session.usage
        yield f"clawkit {__version__}"
        title = f": {session.title}" if session.title else ""
        yield f"session {session.name} of agent {session.agent}{title}"
        chosen = " (chosen for this session)" if session.model_override else ""
        yield f"model {self.model or 'not set'}{chosen}"
        if live:
            yield f"auth {live.auth}"
        if tokens := live.context_tokens if live else session.context_tokens:
            window = live.context_window if live else 0
            part = f" of {window:,} ({tokens * 100 // window}%)" if window else ""
            yield f"context {tokens:,} tokens{part}"
        if session.turns:
            sent = usage.input + usage.cache_read + usage.cache_write
            counts = f"{session.turns} turns, {sent:,} tokens sent, {usage.output:,} received"
            yield f"used {counts}, ${usage.cost:.4f}"
        if live:
            yield f"queue {live.queued} waiting"
        sandboxed = " (sandboxed)" if self.is_here and self.ctx.scope.sandboxed else ""
        yield f"workspace {self.workspace}{sandboxed}"
        if self.is_here:
            in_force = self.ctx.use(InForce)
            off = f", {in_force.off} off by settings" if in_force.off else ""
            listed = ", ".join(in_force.tools) or "none"
            yield f"tools {listed} ({in_force.removed} removed by policy{off})"
        yield time.strftime("time %Y-%m-%d %H:%M:%S %Z")


def _tell(changes: Changes, since: int) -> str:
    what = f"changes since {since}:" if changes.events else f"no changes since {since}"
    lines = [f"version {changes.version}; {what}"]
    for each in changes.events:
        details = (f"{name}={value}" for name, value in each.details.items())
        lines.append(" ".join((f"  {each.sequence} {each.type}", *details)))
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
    sandbox = config.agents.sandbox_of(scope.agent)
    if scope.sandboxed and not scope.depth and sandbox.session_tools_visibility == "spawned":
        sight = "self" if sight == "self" else "spawned"
    main = config.session.main_key
    if (sight, main) == ("tree", "main"):
        return TOOL
    return replace(TOOL, execute=partial(execute, sight=sight, main=main))
