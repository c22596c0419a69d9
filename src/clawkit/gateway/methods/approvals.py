"""Methods about approvals: answering questions, and the approvals file."""

from __future__ import annotations

import os
from collections.abc import Mapping
from datetime import datetime
from typing import TYPE_CHECKING, Annotated, Any, Literal

from msgspec import Meta

from clawkit.approvals.audit import FALLBACK, read, was_asked
from clawkit.approvals.broker import Broker, StoredQuestion
from clawkit.approvals.file import ApprovalsDocument, read_document, replace
from clawkit.command_check import Checker, Wanted
from clawkit.command_check import to_json as decision_to_json
from clawkit.config.paths import approvals_file, audit_file
from clawkit.core.context import Scope
from clawkit.core.tasks import in_thread
from clawkit.errors import ConflictError, NotFoundError, ToolInputError
from clawkit.gateway.approvals import to_json
from clawkit.gateway.methods.method import Method
from clawkit.gateway.protocol import Closed, NoParams, Short, encode, invalid
from clawkit.gateway.scopes import ADMIN, APPROVALS, READ

if TYPE_CHECKING:
    from clawkit.gateway.connection import GatewayConnection

_AGAIN = "exec approvals changed since last load; re-run exec.approvals.get and retry"
_NO_HASH = "exec approvals base hash required; re-run exec.approvals.get and retry"


class Id(Closed, frozen=True):
    id: Short


class ApprovalResolve(Closed, frozen=True):
    id: Short
    decision: Literal["allow-once", "allow-always", "deny"]


class Set(Closed, frozen=True):
    file: dict[str, Any]
    base_hash: Short | None = None


class ApprovalHistory(Closed, frozen=True):
    limit: Annotated[int, Meta(ge=1, le=500)] = 50


class Check(Closed, frozen=True):
    command: Annotated[str, Meta(min_length=1, max_length=32_768)]
    agent_id: Short | None = None
    place: Wanted | None = None
    allowlist: Annotated[list[Any], Meta(max_length=1_000)] | None = None
    """Entries to judge by, instead of those in force."""


async def _list(caller: GatewayConnection, _params: NoParams, _id: str) -> Any:
    return [to_json(each) for each in caller.gateway.desk.pending()]


def _find(caller: GatewayConnection, id_: str) -> StoredQuestion:
    """A question by its whole id: a prefix may mean another one tomorrow."""
    try:
        found = caller.gateway.desk.store.get(id_)
    except ToolInputError:
        raise _unknown() from None
    if found.id != id_:
        raise _unknown()
    return found


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
    shown = to_json(asked)["request"]
    about = {key: shown[key] for key in ("warningText", "allowedDecisions", "host", "nodeId")}
    about |= {key: shown[key] for key in ("agentId", "sessionKey")}
    about |= {"id": asked.id, "commandText": shown["command"], "commandPreview": None}
    return about | {"expiresAtMs": asked.expires_ms}


async def _resolve(caller: GatewayConnection, params: ApprovalResolve, _id: str) -> Any:
    asked = _find(caller, params.id)
    desk = caller.gateway.desk
    try:
        broker = Broker(desk.store)
        broker.resolve(asked.id, params.decision, actor=caller.name, authorized=True)
    except ConflictError as error:
        raise invalid(str(error), {"reason": "APPROVAL_ALREADY_RESOLVED"}) from None
    except NotFoundError:
        raise _unknown() from None
    desk.look()
    return {"ok": True}


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


async def _history(_caller: GatewayConnection, params: ApprovalHistory, _id: str) -> Any:
    """What people decided, newest first; most decisions in the log are those of the policy."""
    records = await in_thread(read, audit_file(os.environ), 20 * params.limit)
    decided = [each for each in records if each.get("verdict") != "ask" and _is_answer(each)]
    return {"items": [_past(each) for each in decided[: -params.limit - 1 : -1]]}


def _is_answer(record: Mapping[str, Any]) -> bool:
    return was_asked(record) or str(record.get("actor", "")).startswith(FALLBACK)


def _past(record: Mapping[str, Any]) -> dict[str, Any]:
    is_person, is_allowed = was_asked(record), record.get("verdict") == "allow"
    lasts = "allow-always" if record.get("extent") else "allow-once"
    return {
        "id": record.get("approvalId", ""),
        "status": ("allowed" if is_allowed else "denied") if is_person else "expired",
        "decision": lasts if is_allowed else "deny",
        "resolvedAtMs": _to_ms(record["at"]),
        "reason": record.get("reason", ""),
        "presentation": {
            "kind": "exec",
            "commandText": record.get("command", ""),
            "host": record.get("host", ""),
            "cwd": record.get("cwd", ""),
        },
        "source": {"agentId": record.get("agent"), "sessionKey": record.get("session")},
        "resolver": {"kind": "user" if is_person else "system", "id": record.get("actor")},
    }


def _to_ms(at: str) -> int:
    try:
        return round(datetime.fromisoformat(at).timestamp() * 1000)
    except ValueError:  # the line is damaged
        return 0


async def _check(caller: GatewayConnection, params: Check, _id: str) -> Any:
    """How a command would be judged; nothing runs."""
    gateway = caller.gateway
    agent = gateway.live.check_agent(params.agent_id)
    sandboxed = gateway.loaded.config.agents.sandbox_of(agent).covers("main")
    case = {"command": params.command, "place": params.place, "allowlist": params.allowlist}
    # The settings of the agent hold in its own workspace.
    checker = Checker(
        gateway.loaded, Scope(agent=agent, sandboxed=sandboxed), gateway.live.workspace(agent)
    )
    try:
        return decision_to_json(await in_thread(checker.check, case))
    except ValueError as error:
        raise invalid(str(error)) from None


METHODS = (
    Method("exec.approval.list", APPROVALS, NoParams, _list),
    Method("exec.approval.get", APPROVALS, Id, _get),
    Method("exec.approval.resolve", APPROVALS, ApprovalResolve, _resolve),
    Method("approval.history", APPROVALS, ApprovalHistory, _history),
    Method("exec.approvals.check", READ, Check, _check),
    Method("exec.approvals.get", ADMIN, NoParams, _get_file),
    Method("exec.approvals.set", ADMIN, Set, _set_file),
)
