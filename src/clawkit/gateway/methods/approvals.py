"""Methods about approvals: answering questions, and the approvals file."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Annotated, Any, Literal

from msgspec import Meta

from clawkit.approvals.broker import Broker, StoredQuestion
from clawkit.approvals.file import ApprovalsDocument, read_document, replace
from clawkit.config.paths import approvals_file
from clawkit.core.tasks import in_thread
from clawkit.errors import ConflictError, NotFoundError, ToolInputError
from clawkit.gateway.approvals import to_json
from clawkit.gateway.methods.method import Method
from clawkit.gateway.protocol import Closed, NoParams, Short, encode, invalid
from clawkit.gateway.scopes import ADMIN, APPROVALS

if TYPE_CHECKING:
    from clawkit.gateway.connection import GatewayConnection

_AGAIN = "exec approvals changed since last load; re-run exec.approvals.get and retry"
_NO_HASH = "exec approvals base hash required; re-run exec.approvals.get and retry"


class Id(Closed, frozen=True):
    id: Short


class ApprovalResolve(Closed, frozen=True):
    id: Short
    decision: Literal["allow-once", "allow-always", "deny"]
    extent: Short | None = None
    """What `allow-always` covers, of what the question offers; `exact` by default."""
    reason: Annotated[str, Meta(max_length=1_000)] = ""
    """For the model, with `deny`."""


class Set(Closed, frozen=True):
    file: dict[str, Any]
    base_hash: Short | None = None


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
        broker.resolve(
            asked.id,
            params.decision,
            extent=params.extent,
            reason=params.reason,
            actor=caller.name,
            authorized=True,
        )
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


METHODS = (
    Method("exec.approval.list", APPROVALS, NoParams, _list),
    Method("exec.approval.get", APPROVALS, Id, _get),
    Method("exec.approval.resolve", APPROVALS, ApprovalResolve, _resolve),
    Method("exec.approvals.get", ADMIN, NoParams, _get_file),
    Method("exec.approvals.set", ADMIN, Set, _set_file),
)
