"""Methods about sessions: list, follow, create, change, and post messages."""

from __future__ import annotations

import uuid
from contextlib import suppress
from typing import Annotated, Any, Literal

from msgspec import UNSET, Meta, UnsetType

from clawkit.agent.model_selection import thinking_of
from clawkit.bundled import select_models
from clawkit.config.sections.shared import Thinking
from clawkit.errors import NotFoundError, ToolInputError
from clawkit.gateway import formats
from clawkit.gateway.methods.method import Caller, Gateway, Method, OfAgent
from clawkit.gateway.methods.runs import IdempotencyKey, RunMessage, accept, stop
from clawkit.gateway.protocol import Closed, Ignored, Short, ignored, invalid, now_ms
from clawkit.gateway.scopes import ADMIN, APPROVALS, READ, WRITE
from clawkit.sessions.protocols import Filter, Session

Label = Annotated[str, Meta(min_length=1, max_length=120)]
_PREVIEWS = 64
_KEPT = ("sessionId", "updatedAt", "createdAt", "label", "thinkingLevel")
"""Common fields of session rows and entries."""


class List(Closed, frozen=True):
    limit: Annotated[int, Meta(ge=1, le=10_000)] = 100
    offset: Annotated[int, Meta(ge=0)] = 0
    agent_id: Short = ""
    search: Short = ""
    label: Short = ""
    spawned_by: Short = ""
    active_minutes: Annotated[int, Meta(ge=1)] | None = None
    active_only: bool = False
    archived: bool | None = False
    include_derived_titles: bool = False
    include_last_message: bool = False
    include_global: Ignored = UNSET
    include_unknown: Ignored = UNSET
    configured_agents_only: bool = False
    owner_first: Ignored = UNSET
    sort_by: Literal["updatedAt", "lastInteractionAt", "activity"] = "updatedAt"
    """All are equivalent: the time of last use."""


class Key(OfAgent, frozen=True, kw_only=True):
    key: Short


class Follow(Key, frozen=True):
    include_approvals: bool = False


class SessionResolve(OfAgent, frozen=True):
    key: Short = ""
    session_id: Short = ""
    label: Short = ""


class Preview(Closed, frozen=True):
    keys: Annotated[list[Short], Meta(min_length=1, max_length=_PREVIEWS)]
    limit: Annotated[int, Meta(ge=1, le=50)] = 12
    max_chars: Annotated[int, Meta(ge=20, le=2_000)] = formats.PREVIEW_CHARS


class Create(OfAgent, frozen=True):
    """A new session inherits the model and thinking level of `parentSessionKey`."""

    key: Short | None = None
    parent_session_key: Short | None = None
    succeeds_parent: Ignored = UNSET
    emit_command_hooks: Ignored = UNSET
    label: Label | None = None
    message: str | None = None
    thinking_level: Thinking | None = None
    model: Short | None = None


class Patch(Key, frozen=True):
    """Null clears a field."""

    label: Label | UnsetType | None = UNSET
    model: Short | UnsetType | None = UNSET
    thinking_level: Thinking | UnsetType | None = UNSET
    verbose_level: Ignored = UNSET


class SessionReset(Key, frozen=True):
    reason: Short = ""
    expected_session_id: Short = ""


class Delete(Key, frozen=True):
    delete_transcript: bool = True
    archived_only: bool = False


class SessionSend(Key, frozen=True, kw_only=True):
    message: Annotated[str, Meta(min_length=1)]
    idempotency_key: IdempotencyKey | None = None


class SessionAbort(Closed, frozen=True):
    key: Short | None = None
    run_id: Short | None = None


class Get(Key, frozen=True):
    limit: Annotated[int, Meta(ge=1, le=1_000)] = 200


async def _list(caller: Caller, params: List, _id: str) -> Any:
    session_list, config = caller.gateway.session_list, caller.gateway.loaded.config
    since = now_ms() - params.active_minutes * 60_000 if params.active_minutes else 0
    wanted = Filter(
        since_ms=since,
        label=params.label,
        agent=params.agent_id,
        text=params.search,
        archived=params.archived,
        main=config.session.main_key,
    )
    agents = config.agents.ids() if params.configured_agents_only else None
    total = session_list.count(wanted, agents)
    if params.spawned_by or params.active_only:
        found = _select(caller, params, session_list.list(wanted, total, agents=agents))
        total, found = len(found), found[params.offset :][: params.limit]
    else:
        found = session_list.list(wanted, params.limit, params.offset, agents)
    rows = [_listed(caller.gateway, params, each) for each in found]
    end = params.offset + len(found)
    return {
        "ts": now_ms(),
        "path": caller.gateway.store.path,
        "owners": [],
        "count": len(rows),
        "totalCount": total,
        "limitApplied": params.limit,
        "nextOffset": end if end < total else None,
        "hasMore": end < total,
        "sortBy": params.sort_by,
        "defaults": session_list.defaults(params.agent_id or config.agents.default_id()),
        "sessions": rows,
        **ignored(params),
    }


def _select(caller: Caller, params: List, sessions: list[Session]) -> list[Session]:
    """Select active sessions, and those started by another one."""
    if params.active_only:
        sessions = [each for each in sessions if caller.gateway.live.active(each.key)]
    if params.spawned_by:
        parent = caller.gateway.store.find(caller.gateway.live.resolve_key(params.spawned_by))
        sessions = [each for each in sessions if parent is not None and each.parent == parent.id]
    return sessions


def _listed(gateway: Gateway, params: List, session: Session) -> dict[str, Any]:
    row = gateway.session_list.row(session)
    if params.include_derived_titles and session.title:
        row["derivedTitle"] = session.title
    if params.include_last_message:
        last = _previews(gateway, session.id, 1, formats.PREVIEW_CHARS)
        row["lastMessagePreview"] = last[0]["text"] if last else None
    return row


def _previews(gateway: Gateway, id_: str, count: int, chars: int) -> list[dict[str, str]]:
    """Previews of the last messages that have text, among the latest of all kinds."""
    shown = (formats.preview(entry, chars) for entry in gateway.store.history(id_, count * 4))
    return [each for each in shown if each is not None][-count:]


async def _subscribe(caller: Caller, params: List, id_: str) -> Any:
    """With parameters, the answer includes the list."""
    caller.follow(None)
    listed = {"list": await _list(caller, params, id_)} if params != List() else {}
    return {"subscribed": True, **listed}


async def _follow(caller: Caller, params: Follow, _id: str) -> Any:
    key = _key(caller, params)
    if len(caller.followed) >= 1_000:
        raise invalid("too many subscriptions")
    caller.follow(key)
    if not params.include_approvals:
        return {"subscribed": True, "key": key}
    caller.watched.add(key)
    desk = caller.gateway.desk
    asked = [desk.snapshot(each) for each in desk.pending() if each.question.session == key]
    replay = {"sessionKey": key, "updatedAtMs": now_ms(), "approvals": asked, "truncated": False}
    return {"subscribed": True, "key": key, "approvalReplay": replay}


async def _unfollow(caller: Caller, params: Key, _id: str) -> Any:
    key = _key(caller, params)
    caller.follow(key, ends=True)
    caller.watched.discard(key)
    return {"subscribed": False, "key": key}


def _key(caller: Caller, params: Key) -> str:
    return caller.gateway.live.resolve_key(params.key, params.agent_id)


def _stored(caller: Caller, params: Key) -> Session:
    found = caller.gateway.store.find(_key(caller, params))
    if found is None:
        raise invalid("session not found")
    return found


async def _describe(caller: Caller, params: Key, _id: str) -> Any:
    found = caller.gateway.store.find(_key(caller, params))
    return {"session": None if found is None else caller.gateway.session_list.row(found)}


async def _resolve(caller: Caller, params: SessionResolve, _id: str) -> Any:
    given = [each for each in (params.key, params.session_id, params.label) if each]
    if len(given) != 1:
        raise invalid("exactly one of key, sessionId and label is required")
    found, store = None, caller.gateway.store
    if params.key:
        found = store.find(caller.gateway.live.resolve_key(params.key, params.agent_id))
    else:
        with suppress(NotFoundError):
            found = store.get(given[0], params.agent_id or "")
    if found is None:
        raise invalid(f"no session found: {given[0]}")
    return {"ok": True, "key": found.key, "agentId": found.agent}


async def _preview(caller: Caller, params: Preview, _id: str) -> Any:
    previews: list[dict[str, Any]] = []
    for text in params.keys:
        found = caller.gateway.store.find(caller.gateway.live.resolve_key(text))
        how = (params.limit, params.max_chars)
        items = _previews(caller.gateway, found.id, *how) if found is not None else []
        status = "ok" if items else "empty" if found is not None else "missing"
        previews.append({"key": text, "status": status, "items": items})
    return {"ts": now_ms(), "previews": previews}


async def _create(caller: Caller, params: Create, _id: str) -> Any:
    live = caller.gateway.live
    agent = live.check_agent(params.agent_id)
    if params.label:
        _check_label(caller, params.label, "")
    key = live.resolve_key(params.key, agent) if params.key else ""
    if key and caller.gateway.store.find(key) is not None:
        raise invalid(f"session already exists: {key}")
    old = _stored(caller, Key(key=params.parent_session_key)) if params.parent_session_key else None
    model = old.model_override if old else ""
    if params.model:
        model = _find_model(caller, agent, params.model)
    thinking = params.thinking_level or (old.thinking if old else "")
    name = key.removeprefix(f"agent:{agent}:")
    session = live.create(agent, params.label or "", thinking, name)
    if model:
        session = caller.gateway.store.set_model(session.id, model)
    if params.message:
        said = RunMessage(message=params.message, idempotency_key=str(uuid.uuid4()))
        await accept(caller, session.key, said)
    about = {"sessionId": session.id, "runStarted": bool(params.message)}
    return {**_changed(caller.gateway, session, "create"), **about, **ignored(params)}


def _changed(gateway: Gateway, session: Session, reason: str) -> dict[str, Any]:
    """Notify followers of the session list; returns the answer about a changed session."""
    row = gateway.session_list.row(session)
    payload = formats.session_event(row, reason=reason)
    gateway.hub.broadcast("sessions.changed", payload, lambda each: each.follows_sessions)
    entry = {key: row[key] for key in _KEPT if key in row}
    entry |= {"lifecycleRevision": session.id, "sessionRoot": session.workspace}
    entry |= {"modelOverride": session.model_override} if session.model_override else {}
    entry |= {"parentSessionKey": row["spawnedBy"]} if "spawnedBy" in row else {}
    resolved = {"modelProvider": row["modelProvider"], "model": row["model"]}
    resolved["thinkingLevel"] = session.thinking or None
    return {"ok": True, "key": session.key, "entry": entry, "resolved": resolved}


def _check_label(caller: Caller, label: str, id_: str) -> None:
    taken = caller.gateway.session_list.list(Filter(label=label), 2)
    if any(each.id != id_ for each in taken):
        raise invalid(f"label already in use: {label}")


def _find_model(caller: Caller, agent: str, name: str) -> str:
    try:
        return str(select_models(caller.gateway.loaded, agent).find(name))
    except ToolInputError as error:
        raise invalid(f"invalid model: {error}") from None


async def _patch(caller: Caller, params: Patch, _id: str) -> Any:
    gateway = caller.gateway
    session = _stored(caller, params)
    changes: dict[str, Any] = {}
    if params.label is not UNSET:
        if params.label:
            _check_label(caller, params.label, session.id)
        changes["label"] = params.label or ""
    if params.model is not UNSET:
        found = _find_model(caller, session.agent, params.model) if params.model else ""
        changes["model_override"] = found
    if params.thinking_level is not UNSET:
        changes["thinking"] = params.thinking_level or ""
    there = gateway.live.find(session.key)
    if there is not None and "model_override" in changes:
        there.agent.use_model(changes["model_override"])
    if there is not None and "thinking" in changes:
        config = gateway.loaded.config
        settings = config.agents.get(session.agent)
        there.agent.use_thinking(thinking_of(config, settings, changes["thinking"]))
    session = gateway.store.update(session.id, **changes)
    return {**_changed(gateway, session, "patch"), "path": gateway.store.path, **ignored(params)}


async def _reset(caller: Caller, params: SessionReset, _id: str) -> Any:
    key = _key(caller, params)
    if params.expected_session_id:
        found = caller.gateway.store.find(key)
        if found is None or found.id != params.expected_session_id:
            raise invalid("session changed; reload the conversation")
    session = await caller.gateway.live.reset(key)
    return _changed(caller.gateway, session, params.reason or "reset")


async def _compact(caller: Caller, params: Key, _id: str) -> Any:
    """Have the model replace the older part of a conversation by a summary."""
    session = _stored(caller, params)
    there = await caller.gateway.live.open(session.key, owner=True)
    talk, lane = there.agent.conversation, there.agent.turns.lane
    before, answer = talk.context_tokens, {"ok": True, "key": session.key}
    with there.in_use(), lane.paused():  # messages wait, as during a turn
        if not await talk.compact():
            return answer | {"compacted": False, "reason": "there is nothing to summarize"}
    _changed(caller.gateway, caller.gateway.store.get(session.id), "compact")
    result = {"summary": getattr(talk.history[0], "text", ""), "tokensBefore": before}
    return answer | {"compacted": True, "result": result}


async def _delete(caller: Caller, params: Delete, _id: str) -> Any:
    if not params.delete_transcript:
        raise invalid("deleteTranscript cannot be false; to keep a copy: clawkit sessions export")
    gateway, key = caller.gateway, _key(caller, params)
    found = gateway.store.find(key)
    if key == gateway.live.resolve_key("main"):
        raise invalid("cannot delete the main session; reset it instead")
    if found is None or (params.archived_only and not found.archived_ms):
        return {"ok": True, "key": key, "deleted": False, "archived": []}
    await gateway.live.close_session(key)
    gateway.store.delete(found.id)
    _changed(gateway, found, "delete")
    return {"ok": True, "key": key, "deleted": True, "archived": []}


async def _send(caller: Caller, params: SessionSend, _id: str) -> Any:
    run_id = params.idempotency_key or str(uuid.uuid4())
    said = RunMessage(message=params.message, idempotency_key=run_id)
    return await accept(caller, _stored(caller, params).key, said)


async def _abort(caller: Caller, params: SessionAbort, _id: str) -> Any:
    live = caller.gateway.live
    if params.key is None and params.run_id is None:
        raise invalid("invalid sessions.abort params: must have required property 'key'")
    run = live.run(params.run_id or "")
    key = live.resolve_key(params.key) if params.key is not None else run.session if run else ""
    return await stop(caller, key, params.run_id)


async def _get(caller: Caller, params: Get, _id: str) -> Any:
    found = caller.gateway.store.find(_key(caller, params))
    return {"messages": caller.gateway.session_list.messages(found, params.limit).messages}


def _for_follow(params: Follow) -> str:
    """`operator.approvals` with `includeApprovals`"""
    return APPROVALS if params.include_approvals else READ


def _for_delete(params: Delete) -> str:
    """`operator.admin` without `archivedOnly`"""
    return WRITE if params.archived_only else ADMIN


METHODS = (
    Method("sessions.list", READ, List, _list),
    Method("sessions.subscribe", READ, List, _subscribe),
    Method("sessions.messages.subscribe", READ, Follow, _follow, more=_for_follow),
    Method("sessions.messages.unsubscribe", READ, Key, _unfollow),
    Method("sessions.describe", READ, Key, _describe),
    Method("sessions.resolve", READ, SessionResolve, _resolve),
    Method("sessions.preview", READ, Preview, _preview),
    Method("sessions.get", READ, Get, _get),
    Method("sessions.create", WRITE, Create, _create),
    Method("sessions.patch", WRITE, Patch, _patch),
    Method("sessions.reset", ADMIN, SessionReset, _reset),
    Method("sessions.compact", ADMIN, Key, _compact),
    Method("sessions.delete", WRITE, Delete, _delete, more=_for_delete),
    Method("sessions.send", WRITE, SessionSend, _send),
    Method("sessions.abort", WRITE, SessionAbort, _abort),
)
