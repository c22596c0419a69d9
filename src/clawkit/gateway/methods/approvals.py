"""Methods about approvals: asking and answering questions, and the approvals file."""

from __future__ import annotations

import asyncio
import os
from contextlib import suppress
from typing import TYPE_CHECKING, Annotated, Any, Literal

from msgspec import Meta

from clawkit.approvals.broker import MAX_TIMEOUT_MS, Broker, StoredQuestion
from clawkit.approvals.file import ApprovalsDocument, read_document, replace
from clawkit.approvals.types import Choice
from clawkit.config.paths import approvals_file
from clawkit.core.approval import Question
from clawkit.core.tasks import in_thread
from clawkit.errors import ConflictError, NotFoundError, ToolError, ToolInputError
from clawkit.gateway.approvals import CLIENT, is_awaited, presentation, to_json
from clawkit.gateway.methods.method import Method
from clawkit.gateway.protocol import Closed, NoParams, Short, encode, invalid, now_ms
from clawkit.gateway.scopes import ADMIN, APPROVALS
from clawkit.text import one_line

if TYPE_CHECKING:
    from clawkit.gateway.connection import GatewayConnection

_AGAIN = "exec approvals changed since last load; re-run exec.approvals.get and retry"
_NO_HASH = "exec approvals base hash required; re-run exec.approvals.get and retry"
_ASK_MS = 1_800_000
_MAX_COMMAND = 100_000


class Id(Closed, frozen=True):
    id: Short


class ApprovalResolve(Id, frozen=True):
    decision: Choice
    extent: Short | None = None
    """What `allow-always` covers, of what the question offers; `exact` by default."""
    reason: Annotated[str, Meta(max_length=1_000)] = ""
    """For the model, with `deny`."""


class ApprovalDecide(ApprovalResolve, frozen=True):
    kind: Literal["exec"] = "exec"


class ApprovalHistory(Closed, frozen=True):
    cursor: Short | None = None
    limit: Annotated[int, Meta(ge=1, le=100)] = 50
    kind: Literal["exec", "plugin", "system-agent"] = "exec"


class ApprovalRequest(Closed, frozen=True):
    """A client asks before it runs a command itself."""

    command: Annotated[str, Meta(min_length=1, max_length=_MAX_COMMAND)]
    cwd: Short = ""
    host: Literal["gateway", "node", "sandbox"] = "gateway"
    node_id: Short | None = None
    warning_text: Annotated[str, Meta(max_length=_MAX_COMMAND)] = ""
    agent_id: Short | None = None
    session_key: Short = "main"
    tool_call_id: Short = ""
    timeout_ms: Annotated[int, Meta(ge=1, le=MAX_TIMEOUT_MS)] = _ASK_MS
    two_phase: bool = False
    """Whether to answer at once; the decision comes from `exec.approval.waitDecision`."""


class Set(Closed, frozen=True):
    file: dict[str, Any]
    base_hash: Short | None = None


async def _list(caller: GatewayConnection, _params: NoParams, _id: str) -> Any:
    return [to_json(each) for each in caller.gateway.desk.pending()]


async def _list_none(_caller: GatewayConnection, _params: NoParams, _id: str) -> Any:
    """All questions of clawkit are in `exec.approval.list`; clients read the other lists, too."""
    return []


def _find(caller: GatewayConnection, id_: str) -> StoredQuestion:
    """A question by its whole id: a prefix may mean another one tomorrow."""
    with suppress(ToolInputError):
        found = caller.gateway.desk.store.get(id_)
        if found.id == id_:
            return found
    raise _unknown()


def _unknown() -> Exception:
    return invalid(
        "unknown or expired approval id",
        {
            "reason": "APPROVAL_NOT_FOUND",
            "remediation": "Re-request the action; pending approvals are cleared after expiry.",
        },
    )


async def _get(caller: GatewayConnection, params: Id, _id: str) -> Any:
    asked = _find(caller, params.id)
    if asked.state != "pending":
        raise _unknown()
    session = {"sessionKey": asked.question.session}
    return presentation(asked) | session | {"id": asked.id, "expiresAtMs": asked.expires_ms}


async def _snapshot(caller: GatewayConnection, params: Id, _id: str) -> Any:
    return {"approval": caller.gateway.desk.snapshot(_find(caller, params.id))}


async def _resolve(caller: GatewayConnection, params: ApprovalResolve, _id: str) -> Any:
    try:
        _answer(caller, params)
    except ConflictError as error:
        raise invalid(str(error), {"reason": "APPROVAL_ALREADY_RESOLVED"}) from None
    return {"ok": True}


async def _decide(caller: GatewayConnection, params: ApprovalDecide, _id: str) -> Any:
    """As `exec.approval.resolve`; who comes too late learns how it was answered."""
    is_first = True
    try:
        _answer(caller, params)
    except ConflictError:
        is_first = False
    approval = caller.gateway.desk.snapshot(_find(caller, params.id))
    return {"applied": is_first, "approval": approval}


def _answer(caller: GatewayConnection, params: ApprovalResolve) -> None:
    asked, desk = _find(caller, params.id), caller.gateway.desk
    if asked.state == "pending" and not is_awaited(asked):
        what = f"the request {asked.id[:8]} can no longer be answered"
        raise ConflictError(f"{what}: what asked it has ended, and asks again if it goes on")
    try:
        broker = Broker(desk.store)
        broker.resolve(
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


async def _request(caller: GatewayConnection, params: ApprovalRequest, _id: str) -> Any:
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
    pending = desk.store.add(question, binding, now_ms(), params.timeout_ms)
    desk.look()
    times = {"createdAtMs": pending.created_ms, "expiresAtMs": pending.expires_ms}
    if params.two_phase:
        route = {"status": "accepted", "deliveryRoute": "approval-client"}
        return {"id": pending.id, **route, **times}
    try:
        return await _outcome(caller, pending.id)
    except asyncio.CancelledError:
        with suppress(ToolError):
            desk.store.withdraw(pending.id)
        raise


async def _wait(caller: GatewayConnection, params: Id, _id: str) -> Any:
    with suppress(ToolInputError):
        if CLIENT in caller.gateway.desk.store.get(params.id).binding:
            return await _outcome(caller, params.id)
    raise invalid("approval expired or not found")


async def _outcome(caller: GatewayConnection, id_: str) -> dict[str, Any]:
    """How a question was answered; the decision is null if no one did."""
    desk = caller.gateway.desk
    await desk.outcome(id_)
    desk.look()
    ended = desk.snapshot(desk.store.get(id_))
    shown = {key: ended[key] for key in ("id", "createdAtMs", "expiresAtMs")}
    return shown | {"decision": ended.get("decision"), "terminalReason": ended["reason"]}


async def _history(caller: GatewayConnection, params: ApprovalHistory, _id: str) -> Any:
    if params.kind != "exec":
        return {"items": []}
    desk = caller.gateway.desk
    at, _, id_ = (params.cursor or f"{2**62}-").partition("-")
    if not (at.isascii() and at.isdigit() and len(at) < 20):
        raise invalid("invalid cursor; use the nextCursor of the page before")
    desk.pending()  # so that what has expired is marked
    found = desk.store.ended(params.limit, (int(at), id_))
    last = found[-1] if len(found) == params.limit else None
    more = {"nextCursor": f"{last.ended_ms}-{last.id}"} if last else {}
    return {"items": [desk.snapshot(each) for each in found], **more}


def _show(document: ApprovalsDocument) -> dict[str, Any]:
    policy = document.policy_for("main")
    file = document.shown if document.exists else {"version": 1, "defaults": {}, "agents": {}}
    return {
        "path": approvals_file(os.environ),
        "exists": document.exists,
        "file": file,
        "hash": document.revision,
        "resolvedDefaults": {
            "security": policy.security,
            "ask": policy.ask,
            "askFallback": policy.fallback,
            "autoAllowSkills": False,
        },
    }


async def _get_file(_caller: GatewayConnection, _params: NoParams, _id: str) -> Any:
    return _show(read_document(approvals_file(os.environ)))


async def _set_file(_caller: GatewayConnection, params: Set, _id: str) -> Any:
    path = approvals_file(os.environ)
    if params.base_hash is None and read_document(path).exists:
        raise invalid(_NO_HASH)
    text = encode(params.file).decode()
    try:
        document = await in_thread(replace, path, text, params.base_hash)
    except ConflictError:
        raise invalid(_AGAIN) from None
    return _show(document)


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
)
