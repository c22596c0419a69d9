"""session_status: a status card with agent, model, usage, workspace and tools."""

import time
from collections.abc import Iterator
from functools import partial
from typing import Annotated, Any

import msgspec
from msgspec import Meta

from clawkit.core.context import Context, InForce, Scope, Sender
from clawkit.core.result import Result
from clawkit.core.tool import Effect, Tool
from clawkit.errors import ToolInputError
from clawkit.sessions.keys import parse_key
from clawkit.sessions.protocols import Changes, Session, Sessions, SessionState
from clawkit.sessions.visibility import Sight
from clawkit.tools._params import doc
from clawkit.tools._sessions import DEFAULT_SIGHT, VisibleSessions, with_sight
from clawkit.version import __version__


class Params(msgspec.Struct, frozen=True, forbid_unknown_fields=True, rename="camel"):
    session_key: Annotated[
        str,
        doc("Session to look at: its key, id, name or label, 'main' or 'current'", min_length=1),
    ] = "current"
    model: Annotated[str, doc("Switch the session to this model; 'default' undoes that")] = ""
    changes_since: Annotated[
        Annotated[int, Meta(ge=0)] | None,
        doc("Also report what changed after this number, a stateVersion"),
    ] = None


async def execute(params: Params, ctx: Context, sight: Sight = DEFAULT_SIGHT) -> Result:
    view = VisibleSessions(ctx, sight)
    live, store = view.live, view.store
    session = view.find(params.session_key)
    is_here = session.key == view.current.key
    seen = (ctx, live) if is_here else (None, None)
    before = model = _model_of(session, *seen)
    if params.model:
        session = _choose(params.model, session, is_here, live, store)
        model = _model_of(session, *seen)
    card = text = "\n".join(_card(session, model, *seen))
    details = {"ok": True, **_facts(session, model, seen[0]), "changedModel": model != before}
    details |= {"stateVersion": session.version, "statusText": card}
    if (since := params.changes_since) is not None:
        changes = store.changes(session.id, since) if store and session.id else Changes(0)
        text += f"\n{_tell(changes, since)}"
        details["stateChanges"] = _to_json(changes)
    return Result.text(text, **details)


def _choose(
    wanted: str, session: Session, is_here: bool, live: SessionState | None, store: Sessions | None
) -> Session:
    if live is None or store is None:
        why = "no agent is running here, so the model cannot be changed"
        raise ToolInputError(f"{why}; leave out 'model'")
    model = live.resolve_model(wanted)
    if not is_here:
        return store.set_model(session.id, model)
    live.set_model(model)
    return live.session


def _model_of(session: Session, context: Context | None, live: SessionState | None) -> str:
    """`context` and `live` are the context and the state of the run, if it is the run's session."""
    if live is not None:
        return live.model
    return str(context.model or "") if context else session.model_override or session.model


def _facts(session: Session, model: str, context: Context | None) -> dict[str, Any]:
    facts: dict[str, Any] = {
        "sessionKey": session.key,
        "agentId": session.agent,
        "active": context is not None,
        "model": model or None,
        "modelProvider": model.partition("/")[0] if "/" in model else None,
        "modelOverride": session.model_override or None,
        "workspace": context.workspace if context else session.workspace,
        "version": __version__,
        **_origin(session, context.scope if context else None),
    }
    if context is not None:
        in_force = context.use(InForce)
        facts |= {
            "sandboxed": context.scope.sandboxed,
            "senderIsOwner": context.sender.owner,
            "depth": context.scope.depth,
            "tools": list(in_force.tools),
            "toolsDeferred": in_force.deferred,
            "toolsRemoved": in_force.removed,
            "toolsOff": in_force.off,
        }
    return facts


def _origin(session: Session, scope: Scope | None) -> dict[str, Any]:
    """Where the messages of a session come from and where answers go; empty if neither the run (for
    its own session) nor the key has this information."""
    key = parse_key(session.key)
    channel = (scope.channel if scope else "") or key.channel
    account = scope.account if scope else ""
    group = (scope.group if scope else "") or (key.peer if key.kind == "group" else "")
    sender = scope.sender if scope else Sender()
    to = group or key.peer or sender.id
    person = {"id": sender.id, "name": sender.name, "username": sender.username}
    place = {"channel": channel, "accountId": account, "threadId": key.thread}
    origin = {**place, "groupId": group, "sender": _filled(person)}
    parts = {"origin": _filled(origin), "deliveryContext": _filled({**place, "to": to})}
    return _filled(parts) if channel else {}


def _filled(facts: dict[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in facts.items() if value}


def _card(
    session: Session, model: str, context: Context | None, live: SessionState | None
) -> Iterator[str]:
    usage = session.usage
    yield f"clawkit {__version__}"
    title = f": {session.title}" if session.title else ""
    yield f"session {session.name} of agent {session.agent}{title}"
    chosen = " (set for this session)" if session.model_override else ""
    yield f"model {model or 'not set'}{chosen}"
    if live:
        yield f"auth {live.auth}"
    if tokens := live.context_tokens if live else session.context_tokens:
        window = live.context_window if live else 0
        part = f" of {window:,} ({tokens * 100 // window}%)" if window else ""
        yield f"context {tokens:,} tokens{part}"
    if session.turns:
        sent = usage.input + usage.cache_read + usage.cache_write
        turns = "1 turn" if session.turns == 1 else f"{session.turns} turns"
        counts = f"{turns}, {sent:,} tokens sent, {usage.output:,} received"
        yield f"used {counts}, ${usage.cost:.4f}"
    if live:
        yield f"queue {live.queued} waiting"
    if (origin := _origin(session, context.scope if context else None).get("origin")) is not None:
        yield f"origin {' '.join(each for each in origin.values() if isinstance(each, str))}"
    if context is None:
        yield f"workspace {session.workspace}"
    else:
        yield f"workspace {context.workspace}{' (sandboxed)' if context.scope.sandboxed else ''}"
        in_force = context.use(InForce)
        off = f", {in_force.off} off by settings" if in_force.off else ""
        listed = ", ".join(in_force.tools) or "none"
        listed += f", {in_force.deferred} deferred" if in_force.deferred else ""
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
        lines.append(f"  there are more: continue with changesSince {changes.events[-1].sequence}")
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
    aliases=dict.fromkeys(("session", "key", "session_id", "label"), "sessionKey"),
)
make_tool = partial(with_sight, TOOL)
