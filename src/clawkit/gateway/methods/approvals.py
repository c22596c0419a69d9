"""Methods about approvals: asking and answering questions, the approvals file, judging commands."""

from __future__ import annotations

import asyncio
import hashlib
import os
from contextlib import suppress
from typing import Annotated, Any, Literal

from msgspec import UNSET, Meta

from clawkit.approvals.broker import MAX_TIMEOUT_MS, Broker, StoredQuestion
from clawkit.approvals.file import ApprovalsDocument, read_document, replace
from clawkit.approvals.types import Choice
from clawkit.command_check import Checker, Wanted
from clawkit.command_check import to_json as show_check
from clawkit.config.paths import approvals_file
from clawkit.core.approval import Question
from clawkit.core.context import Scope
from clawkit.core.tasks import in_thread
from clawkit.errors import ConflictError, NotFoundError, ToolError, ToolInputError
from clawkit.gateway import protocol
from clawkit.gateway.approvals import CLIENT, is_awaited, presentation, to_json
from clawkit.gateway.methods.method import Caller, Method, OfAgent
from clawkit.gateway.protocol import Closed, Ignored, NoParams, Short, ignored, invalid, now_ms
from clawkit.gateway.scopes import ADMIN, APPROVALS
from clawkit.text import one_line

_AGAIN = "exec approvals changed since last load; re-run exec.approvals.get and retry"
_NO_HASH = "exec approvals base hash required; re-run exec.approvals.get and retry"
_EXPIRED = "Re-request the action; pending approvals are cleared after expiry."
_ASK_MS = 1_800_000
_MAX_COMMAND = 100_000


class Id(Closed, frozen=True):
    id: Short


class ApprovalResolve(Id, frozen=True):
    decision: Choice
    extent: Short | None = None
    """The extent of `allow-always`, one of the question's offers; `exact` by default."""
    reason: Annotated[str, Meta(max_length=1_000)] = ""
    """For the model, with `deny`."""


class ApprovalDecide(ApprovalResolve, frozen=True):
    kind: Literal["exec"] = "exec"


class ApprovalHistory(Closed, frozen=True):
    cursor: Short | None = None
    limit: Annotated[int, Meta(ge=1, le=100)] = 50
    kind: Literal["exec", "plugin", "system-agent"] = "exec"


class ApprovalRequest(OfAgent, frozen=True, kw_only=True):
    """A client asks before it runs a command itself, so the client's own policy decides without an
    answer: `security` and `ask` have no effect."""

    command: Annotated[str, Meta(min_length=1, max_length=_MAX_COMMAND)]
    id: Short = ""
    """The client's own id for the question."""
    security: Ignored = UNSET
    ask: Ignored = UNSET
    cwd: Short = ""
    host: Literal["gateway", "node", "sandbox"] = "gateway"
    node_id: Short | None = None
    warning_text: Annotated[str, Meta(max_length=_MAX_COMMAND)] = ""
    session_key: Short = "main"
    tool_call_id: Short = ""
    timeout_ms: Annotated[int, Meta(ge=1, le=MAX_TIMEOUT_MS)] = _ASK_MS
    two_phase: bool = False
    """Whether to answer immediately; `exec.approval.waitDecision` then returns the decision."""


class Set(Closed, frozen=True):
    file: dict[str, Any]
    base_hash: Short | None = None


class CommandCheck(OfAgent, frozen=True, kw_only=True):
    """A command to judge, without running it."""

    command: Annotated[str, Meta(min_length=1, max_length=32_768)]
    place: Wanted | None = None
    allowlist: Annotated[list[Any], Meta(max_length=1_000)] | None = None
    """Allowlist entries that replace the current ones."""


async def _list(caller: Caller, _params: NoParams, _id: str) -> Any:
    return [to_json(each) for each in caller.gateway.desk.pending()]


async def _list_none(_caller: Caller, _params: NoParams, _id: str) -> Any:
    """All questions of clawkit are in `exec.approval.list`; clients also read the other lists."""
    return []


def _stored_id(client_id: str) -> str:
    """The id in the store for an id chosen by a client."""
    return hashlib.sha256(client_id.encode("utf-8", "surrogatepass")).hexdigest()[:32]


def _find(caller: Caller, id_: str) -> StoredQuestion:
    """A question by its full id: a prefix may be ambiguous later."""
    for each in (id_, _stored_id(id_)):
        with suppress(ToolInputError):
            found = caller.gateway.desk.store.get(each)
            if found.id == each:
                return found
    raise _unknown()


def _unknown() -> Exception:
    details = {"reason": "APPROVAL_NOT_FOUND", "remediation": _EXPIRED}
    return invalid("unknown or expired approval id", details)


async def _get(caller: Caller, params: Id, _id: str) -> Any:
    asked = _find(caller, params.id)
    if asked.state != "pending":
        raise _unknown()
    session = {"sessionKey": asked.question.session}
    return presentation(asked) | session | {"id": asked.id, "expiresAtMs": asked.expires_ms}


async def _snapshot(caller: Caller, params: Id, _id: str) -> Any:
    return {"approval": caller.gateway.desk.snapshot(_find(caller, params.id))}


async def _resolve(caller: Caller, params: ApprovalResolve, _id: str) -> Any:
    try:
        _answer(caller, params)
    except ConflictError as error:
        raise invalid(str(error), {"reason": "APPROVAL_ALREADY_RESOLVED"}) from None
    return {"ok": True}


async def _decide(caller: Caller, params: ApprovalDecide, _id: str) -> Any:
    """Like `exec.approval.resolve`; a late answer gets the recorded one."""
    is_first = False
    with suppress(ConflictError):
        _answer(caller, params)
        is_first = True
    return {"applied": is_first, **await _snapshot(caller, params, _id)}


def _answer(caller: Caller, params: ApprovalResolve) -> None:
    asked, desk = _find(caller, params.id), caller.gateway.desk
    if asked.state == "pending" and not is_awaited(asked):
        what = f"the request {asked.id[:8]} can no longer be answered"
        raise ConflictError(f"{what}: the process that asked has ended; if resumed, it asks again")
    try:
        Broker(desk.store).resolve(
            asked.id,
            params.decision,
            extent=params.extent,
            reason=params.reason,
            actor=caller.name,
            authorized=True,
        )
    except NotFoundError:
        raise _unknown() from None
    desk.look()


async def _request(caller: Caller, params: ApprovalRequest, _id: str) -> Any:
    if params.host == "node" and not params.node_id:
        raise invalid("nodeId is required for host=node")
    desk, live = caller.gateway.desk, caller.gateway.live
    question = Question(
        "exec",
        {},
        f"run: {one_line(params.command, 200)}",
        f"asked by the client {caller.name}, which will run it itself",
        agent=live.check_agent(params.agent_id),
        session=live.resolve_key(params.session_key, params.agent_id),
        command=params.command,
        cwd=params.cwd,
        host=params.host,
        notes=(params.warning_text,) if params.warning_text else (),
        call_id=params.tool_call_id,
    )
    binding = {CLIENT: caller.id, "nodeId": params.node_id}
    id_ = _stored_id(params.id) if params.id else ""
    pending = desk.store.add(question, binding, now_ms(), params.timeout_ms, id_=id_)
    desk.look()
    if params.two_phase:
        times = {"createdAtMs": pending.created_ms, "expiresAtMs": pending.expires_ms}
        route = {"status": "accepted", "deliveryRoute": "approval-client", **times}
        return {"id": params.id or pending.id, **route, **ignored(params)}
    try:
        return await _outcome(caller, pending.id) | ignored(params)
    except asyncio.CancelledError:
        with suppress(ToolError):
            desk.store.withdraw(pending.id)
        raise


async def _wait(caller: Caller, params: Id, _id: str) -> Any:
    with suppress(protocol.GatewayError, ToolInputError):
        found = _find(caller, params.id)
        if CLIENT in found.binding:
            return await _outcome(caller, found.id) | {"id": params.id}
    raise invalid("approval expired or not found")


async def _outcome(caller: Caller, id_: str) -> dict[str, Any]:
    """The answer to a question; the decision is null without an answer."""
    desk = caller.gateway.desk
    await desk.outcome(id_)
    desk.look()
    ended = desk.snapshot(desk.store.get(id_))
    shown = {key: ended[key] for key in ("id", "createdAtMs", "expiresAtMs")}
    return shown | {"decision": ended.get("decision"), "terminalReason": ended["reason"]}


async def _history(caller: Caller, params: ApprovalHistory, _id: str) -> Any:
    if params.kind != "exec":
        return {"items": []}
    desk = caller.gateway.desk
    at, _, id_ = (params.cursor or f"{2**62}-").partition("-")
    if not (at.isascii() and at.isdigit() and len(at) < 20):
        raise invalid("invalid cursor; use the nextCursor of the page before")
    desk.pending()  # marks expired questions
    found = desk.store.ended(params.limit, (int(at), id_))
    last = found[-1] if len(found) == params.limit else None
    more = {"nextCursor": f"{last.ended_ms}-{last.id}"} if last else {}
    return {"items": [desk.snapshot(each) for each in found], **more}


def _show(document: ApprovalsDocument) -> dict[str, Any]:
    policy, path = document.policy_for("main"), approvals_file(os.environ)
    file = document.shown if document.exists else {"version": 1, "defaults": {}, "agents": {}}
    shown = {"path": path, "exists": document.exists, "file": file, "hash": document.revision}
    defaults = {"security": policy.security, "ask": policy.ask, "askFallback": policy.fallback}
    return shown | {"resolvedDefaults": {**defaults, "autoAllowSkills": policy.allows_skills}}


async def _get_file(_caller: Caller, _params: NoParams, _id: str) -> Any:
    return _show(read_document(approvals_file(os.environ)))


async def _set_file(_caller: Caller, params: Set, _id: str) -> Any:
    path = approvals_file(os.environ)
    if params.base_hash is None and read_document(path).exists:
        raise invalid(_NO_HASH)
    text = protocol.encode(params.file).decode()
    try:
        document = await in_thread(replace, path, text, params.base_hash)
    except ConflictError:
        raise invalid(_AGAIN) from None
    return _show(document)


async def _check(caller: Caller, params: CommandCheck, _id: str) -> Any:
    """How a command would be judged, part by part, without running it."""
    gateway = caller.gateway
    agent = gateway.live.check_agent(params.agent_id)
    sandboxed = gateway.loaded.config.agents.sandbox_of(agent).covers("main")
    scope = Scope(agent=agent, sandboxed=sandboxed)
    checker = Checker(gateway.loaded, scope, gateway.live.workspace(agent))
    case = {"command": params.command, "place": params.place, "allowlist": params.allowlist}
    try:
        return show_check(await in_thread(checker.check, case))
    except ValueError as error:
        raise invalid(str(error)) from None


METHODS = (
    Method("exec.approval.list", APPROVALS, NoParams, _list),
    Method("plugin.approval.list", APPROVALS, NoParams, _list_none),
    Method("openclaw.approval.list", APPROVALS, NoParams, _list_none),
    Method("exec.approval.get", APPROVALS, Id, _get),
    Method("exec.approval.resolve", APPROVALS, ApprovalResolve, _resolve),
    Method("exec.approval.request", APPROVALS, ApprovalRequest, _request),
    Method("exec.approval.waitDecision", APPROVALS, Id, _wait),
    Method("approval.get", APPROVALS, Id, _snapshot),
    Method("approval.resolve", APPROVALS, ApprovalDecide, _decide),
    Method("approval.history", APPROVALS, ApprovalHistory, _history),
    Method("exec.approvals.get", ADMIN, NoParams, _get_file),
    Method("exec.approvals.set", ADMIN, Set, _set_file),
    Method("exec.approvals.check", ADMIN, CommandCheck, _check),
)
