"""Methods of chat clients, and `agent` with `agent.wait` for programs."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Annotated, Any

from msgspec import Meta, field

from clawkit.config.sections.shared import Thinking
from clawkit.gateway import protocol
from clawkit.gateway.live import RESETS
from clawkit.gateway.methods.agents import list_commands, list_models
from clawkit.gateway.methods.method import Method
from clawkit.gateway.methods.runs import GivenAttachment, IdempotencyKey, accept, outcome
from clawkit.gateway.protocol import Closed, Short, invalid, now_ms
from clawkit.gateway.scopes import ADMIN, READ, WRITE
from clawkit.gateway.shelf import MAX_BYTES, NO_MESSAGES
from clawkit.sessions.lanes import Mode

if TYPE_CHECKING:
    from clawkit.gateway.connection import GatewayConnection

DEFAULT_LIMIT = 200
WAIT_MS = 30_000


class History(Closed, frozen=True):
    session_key: Short
    agent_id: Short | None = None
    limit: Annotated[int, Meta(ge=1, le=1_000)] = DEFAULT_LIMIT
    max_bytes: Annotated[int, Meta(ge=1_024)] = MAX_BYTES
    max_chars: Annotated[int, Meta(ge=1)] | None = None
    offset: Annotated[int, Meta(ge=0)] = 0
    cursor: Short | None = None
    input_run_ids: Annotated[list[IdempotencyKey], Meta(max_length=50)] = field(
        default_factory=list
    )
    """Runs that a client has no answer for: `inputReceipts` has those that are not over."""


class Metadata(Closed, frozen=True):
    agent_id: Short | None = None
    session_key: Short | None = None


class ChatSend(Closed, frozen=True):
    session_key: Short
    message: str
    idempotency_key: IdempotencyKey
    agent_id: Short | None = None
    session_id: Short = ""
    deliver: bool = False
    thinking: Thinking | None = None
    attachments: Annotated[list[GivenAttachment], Meta(max_length=10)] = field(default_factory=list)
    queue_mode: Mode | None = None
    timeout_ms: Annotated[int, Meta(ge=0)] = 0


class ChatAbort(Closed, frozen=True):
    session_key: Short
    agent_id: Short | None = None
    run_id: Short | None = None


class AgentParams(Closed, frozen=True):
    message: Annotated[str, Meta(min_length=1)]
    idempotency_key: IdempotencyKey
    agent_id: Short | None = None
    session_key: Short | None = None
    session_id: Short | None = None
    deliver: bool = False
    channel: Short | None = None
    to: Short | None = None
    timeout: Annotated[float, Meta(ge=0)] = 0
    thinking: Thinking | None = None
    model: Short | None = None
    lane: Short | None = None
    extra_system_prompt: str | None = None


class Wait(Closed, frozen=True):
    run_id: Short
    timeout_ms: Annotated[int, Meta(ge=0, le=3_600_000)] = WAIT_MS


async def _history(caller: GatewayConnection, params: History, _id: str) -> Any:
    gateway = caller.gateway
    key = gateway.live.resolve_key(params.session_key, params.agent_id)
    if params.cursor is not None:
        # Every cursor starts over: clients then load the conversation again.
        return {"kind": "reset"}
    session = gateway.shelf.find(key)
    agent = key.split(":")[1]
    page = NO_MESSAGES
    if session is not None:
        wanted = (params.limit, params.offset, params.max_bytes, params.max_chars)
        page = gateway.shelf.messages(session, *wanted)
    last = page.messages[-1]["__openclaw"]["seq"] if page.messages else 0
    shown: dict[str, Any] = {
        "sessionKey": key,
        "sessionId": session.id if session else None,
        "messages": page.messages,
        "activity": [],
        "pendingInputs": {"items": [], "total": 0},
        "deltaCursor": f"{session.id}:{last}" if session else None,
        "hasMore": page.next_offset is not None,
        "totalMessages": page.total,
        "defaults": gateway.shelf.defaults(agent),
        "sessionInfo": gateway.shelf.row(session) if session else None,
        "thinkingLevel": (session.thinking if session else "") or gateway.shelf.thinking(agent),
    }
    if params.input_run_ids:
        known = [id_ for id_ in params.input_run_ids if id_ in gateway.live.active(key)]
        shown["inputReceipts"] = [{"runId": id_, "state": "pending"} for id_ in known]
    return shown | ({} if page.next_offset is None else {"nextOffset": page.next_offset})


async def _startup(caller: GatewayConnection, params: History, id_: str) -> Any:
    shown: dict[str, Any] = await _history(caller, params, id_)
    if "kind" in shown:
        return shown
    agent = shown["sessionKey"].split(":")[1]
    return shown | {"metadata": _about(caller, agent)}


async def _metadata(caller: GatewayConnection, params: Metadata, _id: str) -> Any:
    live = caller.gateway.live
    if params.session_key is not None:
        agent = live.resolve_key(params.session_key, params.agent_id).split(":")[1]
    else:
        agent = live.check_agent(params.agent_id)
    return _about(caller, agent)


def _about(caller: GatewayConnection, agent: str) -> dict[str, Any]:
    return {"models": list_models(caller.gateway, agent), "commands": list_commands()}


async def _send(caller: GatewayConnection, params: ChatSend, _id: str) -> Any:
    if not params.message.strip() and not params.attachments:
        raise invalid("message or attachment required")
    key = caller.gateway.live.resolve_key(params.session_key, params.agent_id)
    return await accept(
        caller,
        key,
        params.idempotency_key,
        params.message,
        mode=params.queue_mode,
        timeout_s=params.timeout_ms / 1000 or None,
        thinking=params.thinking,
        attachments=params.attachments,
    )


async def _abort(caller: GatewayConnection, params: ChatAbort, _id: str) -> Any:
    key = caller.gateway.live.resolve_key(params.session_key, params.agent_id)
    stopped = await caller.gateway.live.abort(key, params.run_id)
    return {"ok": True, "aborted": bool(stopped), "runIds": stopped}


async def _agent(caller: GatewayConnection, params: AgentParams, id_: str) -> Any:
    """Answers twice: when the message is accepted, and when the agent is done."""
    live = caller.gateway.live
    key = params.session_key
    if key is None and params.session_id:
        key = f"agent:{live.check_agent(params.agent_id)}:explicit:{params.session_id}"
    key = live.resolve_key(key or "main", params.agent_id)
    if params.extra_system_prompt or (params.deliver and (params.channel or params.to)):
        raise invalid("extraSystemPrompt and delivery to channels are not supported")
    await accept(
        caller,
        key,
        params.idempotency_key,
        params.message,
        timeout_s=params.timeout or None,
        thinking=params.thinking,
        model=params.model,
    )
    run = live.run(params.idempotency_key)
    if run is None:
        raise invalid("the run is no longer known")
    accepted = {
        "runId": run.id,
        "sessionKey": key,
        "agentId": run.agent,
        "status": "accepted",
        "acceptedAt": now_ms(),
    }
    caller.send(protocol.answer(id_, accepted))
    await run.over.wait()
    session = caller.gateway.shelf.find(key)
    return outcome(run, session.id if session else "")


async def _wait(caller: GatewayConnection, params: Wait, _id: str) -> Any:
    run = caller.gateway.live.run(params.run_id)
    if run is None:
        return {"runId": params.run_id, "status": "timeout"}
    try:
        await asyncio.wait_for(run.over.wait(), params.timeout_ms / 1000)
    except TimeoutError:
        return {"runId": run.id, "status": "timeout"}
    shown = {
        "runId": run.id,
        "status": "ok" if run.status == "ok" else "timeout" if run.status == "timeout" else "error",
        "startedAt": run.started_ms,
        "endedAt": run.ended_ms,
        "terminalReply": {"disposition": "visible" if run.text else "silent", "text": run.text},
    }
    return shown | ({"error": run.error or run.status} if run.status != "ok" else {})


def _for_agent(params: AgentParams) -> str:
    return ADMIN if params.message.strip() in RESETS else WRITE


METHODS = (
    Method("chat.history", READ, History, _history),
    Method("chat.startup", READ, History, _startup),
    Method("chat.metadata", READ, Metadata, _metadata),
    Method("chat.send", WRITE, ChatSend, _send),
    Method("chat.abort", WRITE, ChatAbort, _abort),
    Method("agent", WRITE, AgentParams, _agent, more=_for_agent),
    Method("agent.wait", WRITE, Wait, _wait),
)
