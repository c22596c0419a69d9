"""Methods that start runs and follow them: those of chat clients, and `agent` with `agent.wait`."""

from __future__ import annotations

import asyncio
import base64
import hashlib
from collections.abc import Sequence
from typing import Annotated, Any

from msgspec import UNSET, Meta, UnsetType, field

from clawkit.agent_session import Agent
from clawkit.config.sections.shared import Thinking
from clawkit.content import Block, Image, Text
from clawkit.errors import ToolInputError
from clawkit.gateway import formats, protocol
from clawkit.gateway.agent_pool import RESETS
from clawkit.gateway.formats import MAX_BYTES
from clawkit.gateway.methods.agents import OfSession, find_agent, list_commands, list_models
from clawkit.gateway.methods.method import Caller, Gateway, Method, OfAgent
from clawkit.gateway.protocol import MAX_ATTACHMENT, MAX_IMAGE, Closed, Short, invalid, now_ms
from clawkit.gateway.scopes import ADMIN, READ, WRITE
from clawkit.gateway.session_events import GatewayRun
from clawkit.media.protocols import Media
from clawkit.sessions.lanes import Mode
from clawkit.sessions.protocols import Session

IdempotencyKey = Annotated[str, Meta(min_length=1, max_length=256)]
_MAX_SIDE = 1200
_MAX_PICTURE = 5 * 1024 * 1024
LEAF_CHANGED = "active-leaf-changed"
"""The reason on which clients reload the conversation."""


class GivenAttachment(Closed, frozen=True):
    content: str
    mime_type: Short = ""
    file_name: Short = ""
    type: Short = ""


class RunMessage(OfAgent, frozen=True, kw_only=True):
    """Common parameters of all methods that start a run."""

    message: str
    idempotency_key: IdempotencyKey
    deliver: bool = False
    thinking: Thinking | None = None


class History(OfAgent, frozen=True, kw_only=True):
    session_key: Short
    limit: Annotated[int, Meta(ge=1, le=1_000)] = 200
    max_bytes: Annotated[int, Meta(ge=1_024)] = MAX_BYTES
    max_chars: Annotated[int, Meta(ge=1)] | None = None
    offset: Annotated[int, Meta(ge=0)] = 0
    cursor: Short | None = None
    input_run_ids: Annotated[list[IdempotencyKey], Meta(max_length=50)] = field(
        default_factory=list
    )
    """Runs for which a client has no answer: `inputReceipts` lists unfinished ones."""


class ChatSend(RunMessage, frozen=True, kw_only=True):
    """The messages `/new` and `/reset` need `operator.admin`."""

    session_key: Short
    session_id: Short = ""
    expected_leaf_entry_id: Short | UnsetType | None = UNSET
    """The last message that the sender has seen; null for none."""
    attachments: Annotated[list[GivenAttachment], Meta(max_length=10)] = field(default_factory=list)
    queue_mode: Mode | None = None
    timeout_ms: Annotated[int, Meta(ge=0)] = 0


class ChatAbort(OfAgent, frozen=True, kw_only=True):
    session_key: Short
    run_id: Short | None = None


class AgentParams(RunMessage, frozen=True, kw_only=True):
    """The messages `/new` and `/reset` need `operator.admin`."""

    message: Annotated[str, Meta(min_length=1)]
    session_key: Short | None = None
    session_id: Short | None = None
    timeout: Annotated[float, Meta(ge=0)] = 0
    model: Short | None = None


class Wait(Closed, frozen=True):
    run_id: Short
    timeout_ms: Annotated[int, Meta(ge=0, le=3_600_000)] = 30_000


async def _history(caller: Caller, params: History, _id: str) -> Any:
    gateway = caller.gateway
    key = gateway.live.resolve_key(params.session_key, params.agent_id)
    session = gateway.store.find(key)
    if params.cursor is not None:
        return _delta(gateway, params, session)
    agent = key.split(":")[1]
    wanted = (params.limit, params.offset, params.max_bytes, params.max_chars)
    page = gateway.session_list.messages(session, *wanted)
    shown: dict[str, Any] = {
        "sessionKey": key,
        "sessionId": session.id if session else None,
        "messages": page.messages,
        "activity": [],
        "pendingInputs": {"items": [], "total": 0},
        "deltaCursor": _cursor(session, page.messages) if not params.offset else None,
        "hasMore": page.next_offset is not None,
        "totalMessages": page.total,
        "defaults": gateway.session_list.defaults(agent),
        "sessionInfo": gateway.session_list.row(session) if session else None,
        "thinkingLevel": (session and session.thinking) or gateway.session_list.thinking(agent),
    }
    if params.input_run_ids:
        known = [id_ for id_ in params.input_run_ids if id_ in gateway.live.active(key)]
        shown["inputReceipts"] = [{"runId": id_, "state": "pending"} for id_ in known]
    return shown | ({} if page.next_offset is None else {"nextOffset": page.next_offset})


def _cursor(session: Session | None, shown: Sequence[dict[str, Any]], last: int = 0) -> str | None:
    last = shown[-1]["__openclaw"]["seq"] if shown else last
    return formats.message_id(session.id, last) if session else None


def _delta(gateway: Gateway, params: History, session: Session | None) -> dict[str, Any]:
    """The messages since the cursor. A client that has missed too many reloads the conversation."""
    seen = formats.message_number(session.id, params.cursor) if session else None
    if session is None or seen is None:
        return {"kind": "reset"}
    limits = params.limit, params.max_bytes, params.max_chars
    found = gateway.session_list.since(session, seen, *limits)
    if found is None:
        return {"kind": "reset"}
    row = gateway.session_list.row(session)
    messages = [formats.message_event(row, each) for each in found]
    delta = {"kind": "delta", "messages": messages, "deltaCursor": _cursor(session, found, seen)}
    return delta | {"pendingInputs": {"items": [], "total": 0}, "sessionInfo": row}


async def _startup(caller: Caller, params: History, id_: str) -> Any:
    shown: dict[str, Any] = await _history(caller, params, id_)
    if "kind" in shown:
        return shown
    about = OfSession(session_key=shown["sessionKey"])
    return shown | {"metadata": await _metadata(caller, about, id_)}


async def _metadata(caller: Caller, params: OfSession, _id: str) -> Any:
    agent = find_agent(caller.gateway, params)
    return {"models": list_models(caller.gateway, agent), "commands": list_commands()}


async def _send(caller: Caller, params: ChatSend, _id: str) -> Any:
    if not params.message.strip() and not params.attachments:
        raise invalid("message or attachment required")
    key = caller.gateway.live.resolve_key(params.session_key, params.agent_id)
    _check_seen(caller, key, params)
    more: Any = {"mode": params.queue_mode, "attachments": params.attachments}
    return await accept(caller, key, params, params.timeout_ms / 1000, **more)


def _check_seen(caller: Caller, key: str, params: ChatSend) -> None:
    """Refuse a message written for an outdated conversation: the session was reset, or others have
    posted in the meantime."""
    session = caller.gateway.store.find(key)
    is_same = not params.session_id or session is None or session.id == params.session_id
    expected = params.expected_leaf_entry_id
    if is_same and expected is not UNSET:
        last = caller.gateway.store.history(session.id, 1) if session else []
        seen = formats.message_number(session.id if session else "", expected)
        newest = last[-1].number if last else 0
        # A client that also names the session may have missed the latest messages.
        oldest = 0 if params.session_id else newest
        is_same = seen is not None and oldest <= seen <= newest
    if not is_same:
        raise invalid("session changed; reload the conversation", {"reason": LEAF_CHANGED})


async def _abort(caller: Caller, params: ChatAbort, _id: str) -> Any:
    key = caller.gateway.live.resolve_key(params.session_key, params.agent_id)
    return await stop(caller, key, params.run_id)


async def _agent(caller: Caller, params: AgentParams, id_: str) -> Any:
    """Answers twice: when the message is accepted, and when the agent is done."""
    live = caller.gateway.live
    key = params.session_key
    if key is None and params.session_id:
        key = f"agent:{live.check_agent(params.agent_id)}:explicit:{params.session_id}"
    key = live.resolve_key(key or "main", params.agent_id)
    await accept(caller, key, params, params.timeout, model=params.model)
    run = live.run(params.idempotency_key)
    if run is None:
        raise invalid("the run is no longer known")
    accepted = {"runId": run.id, "sessionKey": key, "agentId": run.agent, "status": "accepted"}
    caller.send(protocol.answer(id_, accepted | {"acceptedAt": now_ms()}))
    await run.over.wait()
    session = caller.gateway.store.find(key)
    return outcome(run, session.id if session else "")


async def _wait(caller: Caller, params: Wait, _id: str) -> Any:
    run = caller.gateway.live.run(params.run_id)
    late = {"runId": params.run_id, "status": "timeout"}
    if run is None:
        return late
    try:
        await asyncio.wait_for(run.over.wait(), params.timeout_ms / 1000)
    except TimeoutError:
        return late
    reply = {"disposition": "visible" if run.text else "silent", "text": run.text}
    times = {"startedAt": run.started_ms, "endedAt": run.ended_ms, "terminalReply": reply}
    if run.status == "ok":
        return {"runId": run.id, "status": "ok", **times}
    status = "timeout" if run.status == "timeout" else "error"
    return {"runId": run.id, "status": status, **times, "error": run.error or run.status}


async def accept(
    caller: Caller,
    key: str,
    message: RunMessage,
    timeout_s: float = 0,
    *,
    mode: Mode | None = None,
    model: str | None = None,
    attachments: Sequence[GivenAttachment] = (),
) -> dict[str, Any]:
    """Start a run, or report on it if it was started before."""
    if message.deliver:
        raise invalid("deliver: clawkit has no channels to deliver answers to; omit it")
    live, run_id, is_owner = caller.gateway.live, message.idempotency_key, caller.may(ADMIN)
    digest = _digest(message.message, attachments)  # no await before this: nothing may overtake it
    if (run := await started_before(caller, key, run_id, digest)) is not None:
        return _became(run)
    if message.message.strip() in RESETS and not is_owner:
        raise protocol.missing_scope(ADMIN)
    words: str | list[Block] = message.message

    def prepare(agent: Agent) -> None:
        if message.thinking is not None:
            agent.use_thinking(message.thinking)
        if model:
            agent.use_model(model)

    if attachments:
        media = (await live.open(key, owner=is_owner)).agent.kit.run.services[Media]
        words = [Text(message.message), *[await read_image(media, each) for each in attachments]]
        if (run := await started_before(caller, key, run_id, digest)) is not None:
            return _became(run)  # sent again in the meantime
    run = await live.start(
        key,
        run_id,
        words,
        owner=is_owner,
        client=caller.name,
        digest=digest,
        mode=mode,
        timeout_s=timeout_s or None,
        prepare=prepare,
    )
    return {"runId": run.id, "status": "started"}


async def started_before(
    caller: Caller, key: str, run_id: str, digest: str | None = None
) -> GatewayRun | None:
    """The run that was started with this idempotency key. Raises `GatewayError` if it was in
    another session, by another client, or for another request."""
    run = await caller.gateway.live.accepted(run_id)
    if run is not None and run.session != key:
        raise invalid("idempotencyKey was already used in another session")
    if run is not None and (run.client != caller.name or digest not in (None, run.digest)):
        raise invalid("idempotencyKey was already used by another client or for another message")
    return run


def _digest(message: str, attachments: Sequence[GivenAttachment]) -> str:
    digest = hashlib.sha256(message.encode("utf-8", "surrogatepass"))
    for each in attachments:
        digest.update(f"\0{len(each.content)}\0".encode())
        digest.update(each.content.encode("utf-8", "surrogatepass"))
    return digest.hexdigest()


def _became(run: GatewayRun) -> dict[str, Any]:
    return {"runId": run.id, "status": run.status if run.over.is_set() else "in_flight"}


async def stop(caller: Caller, key: str, run_id: str | None) -> dict[str, Any]:
    """Stop the runs of a session, or one of them."""
    stopped = await caller.gateway.live.abort(key, run_id)
    return {"ok": True, "aborted": bool(stopped), "runIds": stopped}


async def read_image(media: Any, attachment: GivenAttachment) -> Image:
    name = attachment.file_name[:80] or "attachment"
    if len(attachment.content) > MAX_ATTACHMENT * 4 // 3 + 4:
        raise invalid(f"{name}: larger than {MAX_ATTACHMENT} bytes")
    try:
        content = attachment.content.partition(",")[2] or attachment.content
        data = base64.b64decode(content, validate=True)
    except ValueError:
        raise invalid(f"{name}: not base64") from None
    if len(data) > MAX_IMAGE:
        raise invalid(f"{name}: larger than {MAX_IMAGE} bytes")
    try:
        picture = await media.picture(data, max_side=_MAX_SIDE, max_bytes=_MAX_PICTURE)
    except ToolInputError as error:
        raise invalid(f"{name}: only images can be attached: {error}") from None
    return Image(base64.b64encode(picture.data).decode(), picture.mime_type)


def outcome(run: GatewayRun, session_id: str) -> dict[str, Any]:
    """The final answer to the method `agent`. Raises `GatewayError` for a run that failed."""
    provider, _, model = run.model.partition("/")
    if run.status in ("error", "timeout"):
        raise protocol.GatewayError("UNAVAILABLE", run.error or "the run failed", {"runId": run.id})
    agent = {"sessionId": session_id, "provider": provider, "model": model, "usage": run.usage}
    took_ms, is_aborted = run.ended_ms - run.started_ms, run.status == "aborted"
    meta = {"durationMs": took_ms, "aborted": is_aborted, "agentMeta": agent}
    result = {"payloads": [{"text": run.text, "mediaUrl": None}] if run.text else [], "meta": meta}
    how = ("error", "aborted") if is_aborted else ("ok", "completed")
    return {"runId": run.id, "status": how[0], "summary": how[1], "result": result}


METHODS = (
    Method("chat.history", READ, History, _history),
    Method("chat.startup", READ, History, _startup),
    Method("chat.metadata", READ, OfSession, _metadata),
    Method("chat.send", WRITE, ChatSend, _send),
    Method("chat.abort", WRITE, ChatAbort, _abort),
    Method("agent", WRITE, AgentParams, _agent),
    Method("agent.wait", WRITE, Wait, _wait),
)
