"""Methods about devices and nodes: pairing, tokens, node commands; and the methods that nodes call.
Callers cannot grant or revoke rights that they lack, or rename a device that has more rights.
"""

from __future__ import annotations

import asyncio
import uuid
from collections.abc import Iterable
from typing import Annotated, Any

import msgspec
from msgspec import Meta, Struct

from clawkit.gateway import node_policy as policy
from clawkit.gateway import protocol
from clawkit.gateway.devices import Paired
from clawkit.gateway.login_codes import VALID_S
from clawkit.gateway.methods.approvals import Set
from clawkit.gateway.methods.method import NODE, Caller, Method, Run
from clawkit.gateway.methods.runs import IdempotencyKey
from clawkit.gateway.nodes import NodeResult
from clawkit.gateway.protocol import Closed, NoParams, Role, Short, Word, invalid, now_ms
from clawkit.gateway.scopes import ADMIN, PAIRING, READ, WRITE, lacking, satisfies

_REVOKED = "device access changed"
TIMEOUT_MS, MAX_TIMEOUT_MS = 30_000, 600_000
_MAX_WORDS = 2_000


class RequestId(Closed, frozen=True):
    request_id: Short


class DeviceId(Closed, frozen=True):
    device_id: Short


class DeviceRename(DeviceId, frozen=True):
    label: Word


class DeviceRole(DeviceId, frozen=True):
    role: Role = "operator"


class TokenParams(DeviceRole, frozen=True):
    scopes: protocol.Words | None = None


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


class FromNode(Closed, frozen=True, kw_only=True):
    """JSON data from a node; it may be encoded in a string."""

    payload: msgspec.Raw = msgspec.Raw(b"null")
    payload_json: str | None = msgspec.field(default=None, name="payloadJSON")

    def json(self) -> str:
        if self.payload_json is None:
            return bytes(self.payload).decode()
        try:
            msgspec.json.decode(self.payload_json, type=msgspec.Raw)
        except (ValueError, RecursionError):
            raise invalid("payloadJSON is not JSON") from None
        return self.payload_json


class NodeProblem(Closed, frozen=True):
    code: Short = ""
    message: str = ""


class NodeInvokeResult(FromNode, frozen=True, kw_only=True):
    id: Short
    node_id: Short
    ok: bool
    error: NodeProblem = NodeProblem()


class NodeEvent(FromNode, frozen=True, kw_only=True):
    event: Short


class HostStats(Struct, frozen=True, rename="camel"):
    """The load of a node."""

    cpu_count: int
    load_average: Annotated[list[float], Meta(max_length=3)]
    memory_total_bytes: int
    memory_free_bytes: int
    disk_total_bytes: int = 0
    disk_available_bytes: int = 0


async def _list(caller: Caller, _params: NoParams, _id: str) -> Any:
    hub, devices = caller.gateway.hub, caller.gateway.devices
    return {
        "pending": [each.to_json() for each in devices.pending(now_ms())],
        "paired": [
            each.to_json() | {"connected": bool(hub.of_device(each.about.device_id))}
            for each in devices.paired()
        ],
    }


async def _login_code(caller: Caller, _params: NoParams, _id: str) -> Any:
    """A code that lets one browser log in as the owner, and the URL of the control page."""
    page = caller.gateway.settings.control_ui
    if not page.enabled:
        raise invalid("the control page is disabled: gateway.controlUi.enabled is false")
    code, expires = caller.gateway.codes.make(), now_ms() + round(VALID_S * 1000)
    return {"code": code, "path": f"{page.base}/", "expiresAtMs": expires}


def check_rights(caller: Caller, roles: Iterable[str], scopes: Iterable[str]) -> None:
    """Nodes need owner rights: they have no scopes to compare."""
    if caller.may(ADMIN):
        return
    if "node" in roles:
        raise protocol.missing_scope(ADMIN)
    _check_scopes(caller, scopes)


def _check_scopes(caller: Caller, wanted: Iterable[str]) -> None:
    if missing := lacking(caller.scopes, wanted):
        raise protocol.missing_scope(missing[0])


def _changeable(caller: Caller, id_: str, role: str = "", *, own: bool = True) -> Paired:
    """A device that the caller may change, in one role or in all; with `own`, always including
    their own."""
    found = caller.gateway.devices.get(id_, role)
    if not own or id_ != caller.device:
        scopes = found.tokens[role].scopes if role else found.scopes
        check_rights(caller, [role] if role else found.tokens, scopes)
    return found


async def _approve(caller: Caller, params: RequestId, _id: str) -> Any:
    devices, now = caller.gateway.devices, now_ms()
    pending = devices.get_pending(params.request_id, now)
    check_rights(caller, [pending.role], pending.scopes)
    device = devices.approve(pending.about, pending.role, pending.scopes, now, "owner")
    _tell(caller, pending.id, pending.about.device_id, "approved")
    return {"requestId": pending.id, "device": device.to_json()}


async def _reject(caller: Caller, params: RequestId, _id: str) -> Any:
    pending = caller.gateway.devices.get_pending(params.request_id, now_ms())
    caller.gateway.devices.drop_pending(pending.id)
    _tell(caller, pending.id, pending.about.device_id, "rejected")
    return {"requestId": pending.id, "deviceId": pending.about.device_id}


async def _remove(caller: Caller, params: DeviceId, _id: str) -> Any:
    _changeable(caller, params.device_id)
    caller.gateway.devices.remove(params.device_id)
    _tell(caller, "", params.device_id, "removed")
    _disconnect(caller, params.device_id)
    return {"deviceId": params.device_id}


async def _rename(caller: Caller, params: DeviceRename, _id: str) -> Any:
    _changeable(caller, params.device_id)
    caller.gateway.devices.rename(params.device_id, params.label)
    return {"deviceId": params.device_id, "label": params.label}


async def _rotate(caller: Caller, params: TokenParams, _id: str) -> Any:
    now, (id_, role) = now_ms(), (params.device_id, params.role)
    held = _changeable(caller, id_, role, own=False).tokens[role].scopes
    if more := [each for each in params.scopes or () if each not in held]:
        raise protocol.missing_scope(more[0])
    token, scopes = caller.gateway.devices.rotate(id_, role, params.scopes, now)
    _disconnect(caller, id_, role, but=caller)
    shown = {"deviceId": id_, "role": role, "scopes": list(scopes), "rotatedAtMs": now}
    if id_ != caller.device:
        return shown | {"tokenDelivery": "withheld-cross-device"}
    if role == caller.role:
        caller.grant(each for each in caller.scopes if satisfies(scopes, each))
    return shown | {"tokenDelivery": "inline", "token": token}


async def _revoke(caller: Caller, params: DeviceRole, _id: str) -> Any:
    now, id_, role = now_ms(), params.device_id, params.role
    _changeable(caller, id_, role)
    caller.gateway.devices.revoke(id_, role, now)
    _disconnect(caller, id_, role)
    return {"deviceId": id_, "role": role, "revokedAtMs": now}


def _disconnect(caller: Caller, device: str, role: str = "", *, but: Caller | None = None) -> None:
    """Disconnect a device whose rights have changed, so that it logs in again."""
    for client in caller.gateway.hub.of_device(device):
        if client is but or role not in ("", client.role):
            continue
        if client is caller:  # after its answer
            asyncio.get_running_loop().call_soon(client.close, protocol.ACCESS_CHANGED, _REVOKED)
        else:
            client.close(protocol.ACCESS_CHANGED, _REVOKED)


def _tell(caller: Caller, request: str, device: str, decision: str) -> None:
    payload = {"requestId": request, "deviceId": device, "decision": decision, "ts": now_ms()}
    caller.gateway.hub.broadcast("device.pair.resolved", payload)


async def _nodes(caller: Caller, _params: NoParams, _id: str) -> Any:
    nodes = caller.gateway.nodes
    return {"ts": now_ms(), "nodes": [nodes.row(each) for each in nodes.all()]}


async def _describe(caller: Caller, params: NodeId, _id: str) -> Any:
    found = caller.gateway.devices.get(params.node_id, "node")
    return {"ts": now_ms(), **caller.gateway.nodes.row(found)}


async def _node_pairs(caller: Caller, _params: NoParams, _id: str) -> Any:
    nodes = caller.gateway.nodes
    return {
        "pending": [nodes.pending_row(each) for each in nodes.all() if each.node.asked is not None],
        "paired": [nodes.row(each) for each in nodes.all() if each.node.approved is not None],
    }


async def _approve_node(caller: Caller, params: RequestId, _id: str) -> Any:
    nodes = caller.gateway.nodes
    asked = nodes.get_asked(params.request_id).node.asked
    _check_scopes(caller, policy.approval_scopes(asked.commands if asked else ()))
    found = nodes.settle_offer(params.request_id, approve=True)
    return {"requestId": params.request_id, "node": nodes.row(found)}


async def _reject_node(caller: Caller, params: RequestId, _id: str) -> Any:
    found = caller.gateway.nodes.settle_offer(params.request_id, approve=False)
    return {"requestId": params.request_id, "nodeId": found.about.device_id}


async def _remove_node(caller: Caller, params: NodeId, _id: str) -> Any:
    found = _changeable(caller, params.node_id, "node", own=False)
    caller.gateway.devices.remove(params.node_id, "node")
    caller.gateway.nodes.tell_resolved(found.node.asked_id, params.node_id, "removed")
    _disconnect(caller, params.node_id, "node")
    return {"nodeId": params.node_id}


async def _rename_node(caller: Caller, params: NodeRename, _id: str) -> Any:
    _changeable(caller, params.node_id, "node", own=False)
    caller.gateway.devices.rename(params.node_id, params.display_name)
    return {"nodeId": params.node_id, "displayName": params.display_name}


async def _invoke(caller: Caller, params: NodeInvoke, _id: str) -> Any:
    about = {"nodeId": params.node_id, "command": params.command}
    if params.command in policy.EXEC:
        details = {"reason": "command not allowlisted", "command": params.command}
        raise invalid(f"{params.command} is not available over node.invoke", details)
    given = (params.node_id, params.command, bytes(params.params).decode(), params.timeout_ms)
    result = await caller.gateway.nodes.invoke(*given, caller.name, params.idempotency_key)
    payload = {"payload": msgspec.Raw(result.payload.encode()), "payloadJSON": result.payload}
    return {"ok": True, **about, **payload}


def _pass_on(command: str) -> Run:
    async def run(caller: Caller, params: NodeId | NodeApprovalsSet, _id: str) -> Any:
        given, key = msgspec.to_builtins(params), str(uuid.uuid4())
        node, text = given.pop("nodeId"), protocol.encode(given).decode()
        nodes = caller.gateway.nodes
        result = await nodes.invoke(node, command, text, TIMEOUT_MS, caller.name, key)
        return msgspec.Raw(result.payload.encode())

    return run


async def _result(caller: Caller, params: NodeInvokeResult, _id: str) -> Any:
    if params.node_id != caller.device:
        raise invalid("nodeId must be the id of the calling node")
    result = NodeResult(
        params.ok,
        params.json(),
        (params.error.code or "FAILED")[:100],
        (params.error.message or "the node gave no reason")[:_MAX_WORDS],
    )
    is_taken = caller.gateway.nodes.settle(caller, params.id, result)
    return {"ok": True} | ({} if is_taken else {"ignored": True})


async def _event(caller: Caller, params: NodeEvent, _id: str) -> Any:
    node = caller.gateway.devices.get(caller.device).node
    if node.approved is None:
        message = f"the node waits for approval; approve it with node.pair.approve {node.asked_id}"
        changed = {"code": "PAIRING_CHANGED"}
        raise protocol.GatewayError("UNAVAILABLE", message, changed, retry_ms=5_000)
    answer = {"ok": True, "event": params.event}
    if params.event != "node.host.stats":
        return answer | {"handled": False, "reason": "unknown event"}
    try:
        stats = msgspec.json.decode(params.json(), type=HostStats)
    except ValueError as error:
        raise invalid(f"invalid node.host.stats: {error}") from None
    caller.gateway.nodes.note_stats(caller.device, msgspec.to_builtins(stats))
    return answer | {"handled": True, "reason": "updated"}


def _for_invoke(params: NodeInvoke) -> str:
    """`operator.admin` for powerful commands"""
    return policy.invoke_scope(params.command)


METHODS = (
    Method("device.pair.list", PAIRING, NoParams, _list),
    Method("device.pair.loginCode", ADMIN, NoParams, _login_code, limited=True),
    Method("device.pair.approve", PAIRING, RequestId, _approve),
    Method("device.pair.reject", PAIRING, RequestId, _reject),
    Method("device.pair.remove", PAIRING, DeviceId, _remove),
    Method("device.pair.rename", PAIRING, DeviceRename, _rename),
    Method("device.token.rotate", PAIRING, TokenParams, _rotate),
    Method("device.token.revoke", PAIRING, DeviceRole, _revoke),
    Method("node.list", READ, NoParams, _nodes),
    Method("node.describe", READ, NodeId, _describe),
    Method("node.invoke", WRITE, NodeInvoke, _invoke, more=_for_invoke),
    Method("node.pair.list", PAIRING, NoParams, _node_pairs),
    Method("node.pair.approve", PAIRING, RequestId, _approve_node),
    Method("node.pair.reject", PAIRING, RequestId, _reject_node),
    Method("node.pair.remove", PAIRING, NodeId, _remove_node),
    Method("node.rename", PAIRING, NodeRename, _rename_node),
    Method("exec.approvals.node.get", ADMIN, NodeId, _pass_on(policy.APPROVALS_GET)),
    Method("exec.approvals.node.set", ADMIN, NodeApprovalsSet, _pass_on(policy.APPROVALS_SET)),
    Method("node.event", NODE, NodeEvent, _event),
    Method("node.invoke.result", NODE, NodeInvokeResult, _result),
)
