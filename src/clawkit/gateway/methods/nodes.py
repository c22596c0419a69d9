"""Methods about nodes: pairing, listing, and commands for them; and those that nodes call."""

from __future__ import annotations

import uuid
from typing import TYPE_CHECKING, Annotated, Any

import msgspec
from msgspec import Meta, Struct

from clawkit.gateway.methods.approvals import Set
from clawkit.gateway.methods.devices import RequestId, check_rights, disconnect
from clawkit.gateway.methods.method import NODE, Method
from clawkit.gateway.methods.runs import IdempotencyKey
from clawkit.gateway.node_policy import (
    APPROVALS_GET,
    APPROVALS_SET,
    EXEC,
    approval_scopes,
    invoke_scope,
)
from clawkit.gateway.nodes import NodeResult
from clawkit.gateway.protocol import (
    Closed,
    GatewayError,
    NoParams,
    Short,
    Word,
    encode,
    invalid,
    missing_scope,
    now_ms,
)
from clawkit.gateway.scopes import ADMIN, PAIRING, READ, WRITE

if TYPE_CHECKING:
    from clawkit.gateway.connection import GatewayConnection

TIMEOUT_MS, MAX_TIMEOUT_MS = 30_000, 600_000
_MAX_WORDS = 2_000


class NodeId(Closed, frozen=True):
    node_id: Short


class NodeRename(NodeId, frozen=True):
    display_name: Word


class NodeInvoke(NodeId, frozen=True):
    command: Word
    idempotency_key: IdempotencyKey
    params: msgspec.Raw = msgspec.Raw(b"{}")
    timeout_ms: Annotated[int, Meta(ge=1, le=MAX_TIMEOUT_MS)] = TIMEOUT_MS


class NodeApprovalsSet(Set, frozen=True, kw_only=True):
    node_id: Short


class NodeProblem(Closed, frozen=True):
    code: Short = ""
    message: str = ""


class NodeInvokeResult(NodeId, frozen=True):
    id: Short
    ok: bool
    payload: msgspec.Raw = msgspec.Raw(b"null")
    payload_json: str | None = msgspec.field(default=None, name="payloadJSON")
    error: NodeProblem = NodeProblem()


class NodeEvent(Closed, frozen=True):
    event: Short
    payload: msgspec.Raw = msgspec.Raw(b"null")
    payload_json: str | None = msgspec.field(default=None, name="payloadJSON")


class HostStats(Struct, frozen=True, rename="camel"):
    """How busy a node is."""

    cpu_count: int
    load_average: Annotated[list[float], Meta(max_length=3)]
    memory_total_bytes: int
    memory_free_bytes: int
    disk_total_bytes: int = 0
    disk_available_bytes: int = 0


async def _list(caller: GatewayConnection, _params: NoParams, _id: str) -> Any:
    nodes = caller.gateway.nodes
    return {"ts": now_ms(), "nodes": [nodes.row(each) for each in nodes.all()]}


async def _describe(caller: GatewayConnection, params: NodeId, _id: str) -> Any:
    nodes = caller.gateway.nodes
    return {"ts": now_ms(), **nodes.row(nodes.get(params.node_id))}


async def _pairs(caller: GatewayConnection, _params: NoParams, _id: str) -> Any:
    nodes = caller.gateway.nodes
    return {
        "pending": [nodes.pending_row(each) for each in nodes.all() if each.node.asked is not None],
        "paired": [nodes.row(each) for each in nodes.all() if each.node.approved is not None],
    }


async def _approve(caller: GatewayConnection, params: RequestId, _id: str) -> Any:
    nodes = caller.gateway.nodes
    asked = nodes.get_asked(params.request_id).node.asked
    for scope in approval_scopes(asked.commands if asked else ()):
        if not caller.may(scope):
            raise missing_scope(scope)
    found = nodes.settle_offer(params.request_id, approve=True)
    return {"requestId": params.request_id, "node": nodes.row(found)}


async def _reject(caller: GatewayConnection, params: RequestId, _id: str) -> Any:
    found = caller.gateway.nodes.settle_offer(params.request_id, approve=False)
    return {"requestId": params.request_id, "nodeId": found.about.device_id}


async def _remove(caller: GatewayConnection, params: NodeId, _id: str) -> Any:
    node = caller.gateway.nodes.get(params.node_id)
    check_rights(caller, ["node"], [])
    caller.gateway.devices.remove(params.node_id, "node")
    caller.gateway.nodes.tell_resolved(node.node.asked_id, params.node_id, "removed")
    disconnect(caller, params.node_id, "node")
    return {"nodeId": params.node_id}


async def _rename(caller: GatewayConnection, params: NodeRename, _id: str) -> Any:
    caller.gateway.nodes.get(params.node_id)
    check_rights(caller, ["node"], [])
    caller.gateway.devices.rename(params.node_id, params.display_name)
    return {"nodeId": params.node_id, "displayName": params.display_name}


async def _invoke(caller: GatewayConnection, params: NodeInvoke, _id: str) -> Any:
    if params.command in EXEC:
        details = {"reason": "command not allowlisted", "command": params.command}
        raise invalid(f"{params.command} is not available over node.invoke", details)
    given = (params.node_id, params.command, bytes(params.params).decode(), params.timeout_ms)
    nodes = caller.gateway.nodes
    result = await nodes.invoke(*given, caller.name, params.idempotency_key)
    return {
        "ok": True,
        "nodeId": params.node_id,
        "command": params.command,
        "payload": msgspec.Raw(result.payload.encode()),
        "payloadJSON": result.payload,
    }


async def _relay(caller: GatewayConnection, node: str, command: str, params: dict[str, Any]) -> Any:
    key, text = str(uuid.uuid4()), encode(params).decode()
    nodes = caller.gateway.nodes
    result = await nodes.invoke(node, command, text, TIMEOUT_MS, caller.name, key)
    return msgspec.Raw(result.payload.encode())


async def _get_file(caller: GatewayConnection, params: NodeId, _id: str) -> Any:
    return await _relay(caller, params.node_id, APPROVALS_GET, {})


async def _set_file(caller: GatewayConnection, params: NodeApprovalsSet, _id: str) -> Any:
    file = {"file": params.file, "baseHash": params.base_hash}
    return await _relay(caller, params.node_id, APPROVALS_SET, file)


async def _result(caller: GatewayConnection, params: NodeInvokeResult, _id: str) -> Any:
    _check_own(caller, params.node_id)
    result = NodeResult(
        params.ok,
        _json(params.payload, params.payload_json),
        (params.error.code or "FAILED")[:100],
        (params.error.message or "the node gave no reason")[:_MAX_WORDS],
    )
    is_taken = caller.gateway.nodes.settle(caller, params.id, result)
    return {"ok": True} | ({} if is_taken else {"ignored": True})


def _check_own(caller: GatewayConnection, node: str) -> None:
    if node != caller.device:
        raise invalid("nodeId must be that of the node that calls")


def _json(payload: msgspec.Raw, text: str | None) -> str:
    """What a node sent, as JSON; it may be wrapped in a text."""
    if text is None:
        return bytes(payload).decode()
    try:
        msgspec.json.decode(text, type=msgspec.Raw)
    except (ValueError, RecursionError):
        raise invalid("payloadJSON is not JSON") from None
    return text


async def _event(caller: GatewayConnection, params: NodeEvent, _id: str) -> Any:
    node = caller.gateway.devices.get(caller.device).node
    if node.approved is None:
        message = f"the node waits for approval; approve it with node.pair.approve {node.asked_id}"
        raise GatewayError("UNAVAILABLE", message, {"code": "PAIRING_CHANGED"}, retry_ms=5_000)
    answer = {"ok": True, "event": params.event}
    if params.event != "node.host.stats":
        return answer | {"handled": False, "reason": "unknown event"}
    try:
        stats = msgspec.json.decode(_json(params.payload, params.payload_json), type=HostStats)
    except ValueError as error:
        raise invalid(f"invalid node.host.stats: {error}") from None
    shown = {each.encode_name: getattr(stats, each.name) for each in msgspec.structs.fields(stats)}
    caller.gateway.nodes.note_stats(caller.device, shown)
    return answer | {"handled": True, "reason": "updated"}


def _for_invoke(params: NodeInvoke) -> str:
    """`operator.admin` for powerful commands"""
    return invoke_scope(params.command)


METHODS = (
    Method("node.list", READ, NoParams, _list),
    Method("node.describe", READ, NodeId, _describe),
    Method("node.invoke", WRITE, NodeInvoke, _invoke, more=_for_invoke),
    Method("node.pair.list", PAIRING, NoParams, _pairs),
    Method("node.pair.approve", PAIRING, RequestId, _approve),
    Method("node.pair.reject", PAIRING, RequestId, _reject),
    Method("node.pair.remove", PAIRING, NodeId, _remove),
    Method("node.rename", PAIRING, NodeRename, _rename),
    Method("exec.approvals.node.get", ADMIN, NodeId, _get_file),
    Method("exec.approvals.node.set", ADMIN, NodeApprovalsSet, _set_file),
    Method("node.event", NODE, NodeEvent, _event),
    Method("node.invoke.result", NODE, NodeInvokeResult, _result),
)
