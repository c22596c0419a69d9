"""Nodes: devices that offer commands, and the commands sent to them."""

from __future__ import annotations

import asyncio
import uuid
from typing import TYPE_CHECKING, Any

from msgspec import Struct

from clawkit.config.sections.gateway import GatewaySettings
from clawkit.errors import NotFoundError
from clawkit.gateway.devices import NodeSurface, Paired
from clawkit.gateway.node_policy import allowed_commands, approval_scopes
from clawkit.gateway.protocol import MAX_BUFFERED, GatewayError, encode, event, invalid, now_ms

if TYPE_CHECKING:
    from clawkit.gateway.connection import GatewayConnection
    from clawkit.gateway.server import Gateway

KEEP_MS = 300_000
"""Seconds that a node's answer is kept for repeated requests."""

_STATES = ("unapproved", "approved"), ("pending-approval", "pending-reapproval")


class NodeResult(Struct, frozen=True):
    """The outcome of a command on a node."""

    ok: bool
    payload: str = "null"
    """The result as JSON."""
    code: str = ""
    message: str = ""


class NodeCall(Struct, eq=False):
    """A command that was sent to a node, and its answer."""

    asked: tuple[str, str, str]
    """The node, the command and its parameters."""
    at_ms: int
    answer: asyncio.Task[NodeResult]


class Nodes:
    """The nodes of one gateway."""

    def __init__(self, gateway: Gateway) -> None:
        self._gateway = gateway
        self._waiting: dict[str, tuple[GatewayConnection, asyncio.Future[NodeResult]]] = {}
        self._calls: dict[tuple[str, str], NodeCall] = {}
        self.stats: dict[str, dict[str, Any]] = {}

    def join(self, client: GatewayConnection) -> None:
        """Record what a node offers. New offers wait for approval."""
        offered, devices = client.connect, self._gateway.devices
        allowed = self._allowed(offered.client.platform)
        commands = sorted(each for each in set(offered.commands) if each in allowed)
        surface = NodeSurface(tuple(sorted(set(offered.caps))), tuple(commands))
        if devices.offer(client.device, surface, now_ms()):
            pending = self.pending_row(devices.get(client.device))
            self._gateway.hub.broadcast("node.pair.requested", pending)

    def leave(self, client: GatewayConnection) -> None:
        """Fail the pending calls of a disconnected node."""
        for owner, answer in self._waiting.values():
            if owner is client and not answer.done():
                answer.set_result(_failed("NOT_CONNECTED", "the node has disconnected"))

    def _allowed(self, platform: str) -> frozenset[str]:
        settings = self._gateway.loaded.config.gateway or GatewaySettings()
        return allowed_commands(platform, settings.nodes)

    def connection(self, node: str) -> GatewayConnection | None:
        """The latest connection of a node."""
        found = [each for each in self._gateway.hub.of_device(node) if each.role == "node"]
        return found[-1] if found else None

    def commands(self, paired: Paired) -> list[str]:
        """The commands that may be sent to a node: offered, approved, and currently allowed."""
        approved = set(paired.node.approved.commands) if paired.node.approved else set()
        allowed = approved & self._allowed(paired.about.platform)
        if (client := self.connection(paired.about.device_id)) is not None:
            allowed &= set(client.connect.commands)
        return sorted(allowed)

    def all(self) -> list[Paired]:
        return [each for each in self._gateway.devices.paired() if "node" in each.tokens]

    def get_asked(self, request: str) -> Paired:
        """The node that made this request."""
        for each in self.all():
            if each.node.asked_id == request != "":
                return each
        raise NotFoundError("unknown requestId")

    def settle_offer(self, request: str, *, approve: bool) -> Paired:
        """Approve or reject the request of a node, and notify clients."""
        id_ = self.get_asked(request).about.device_id
        found = self._gateway.devices.settle_offer(id_, request, now_ms(), approve=approve)
        self.tell_resolved(request, id_, "approved" if approve else "rejected")
        return found

    def row(self, paired: Paired) -> dict[str, Any]:
        """A node as clients see it."""
        about, node = paired.about, paired.node
        client = self.connection(about.device_id)
        row: dict[str, Any] = {"nodeId": about.device_id, "displayName": about.display_name}
        row |= {"platform": about.platform, "deviceFamily": about.device_family}
        row |= {"clientId": about.client_id, "clientMode": about.client_mode}
        row |= {"caps": list(node.approved.caps) if node.approved else []}
        row |= {"commands": self.commands(paired), "paired": True, "connected": client is not None}
        row |= {"approvalState": _STATES[node.asked is not None][node.approved is not None]}
        row |= {"createdAtMs": paired.created_ms, "lastSeenAtMs": paired.seen_ms}
        if client is not None:
            row |= {"version": client.connect.client.version, "connectedAtMs": client.since_ms}
            claims = client.connect
            row |= {"pathEnv": claims.path_env, "permissions": claims.permissions}
            row |= {"computerUse": claims.computer_use, "workerRuns": claims.worker_runs}
        optional = {
            "approvedAtMs": node.approved_ms,
            "pendingRequestId": node.asked_id,
            "hostStats": self.stats.get(about.device_id),
        }
        return row | {key: value for key, value in optional.items() if value}

    def pending_row(self, paired: Paired) -> dict[str, Any]:
        """The pending offer of a node, as clients see it."""
        asked = paired.node.asked or NodeSurface()
        row = {key: value for key, value in self.row(paired).items() if key != "pendingRequestId"}
        row |= {"requestId": paired.node.asked_id, "ts": paired.node.asked_ms}
        row |= {"caps": list(asked.caps), "commands": list(asked.commands)}
        return row | {"requiredApproveScopes": approval_scopes(asked.commands)}

    def tell_resolved(self, request: str, node: str, decision: str) -> None:
        payload = {"requestId": request, "nodeId": node, "decision": decision, "ts": now_ms()}
        self._gateway.hub.broadcast("node.pair.resolved", payload)
        if (client := self.connection(node)) is not None:
            client.send(event("node.pair.resolved", encode(payload)))

    def note_stats(self, node: str, stats: dict[str, Any]) -> None:
        self.stats[node] = stats | {"updatedAtMs": now_ms()}
        shown = {"nodeId": node, "hostStats": self.stats[node]}
        self._gateway.hub.broadcast("node.hostStats", shown, droppable=True)

    async def invoke(
        self, node: str, command: str, params: str, timeout_ms: int, client: str, key: str
    ) -> NodeResult:
        """Run a command on a node; with the idempotency key of an earlier call, return its answer.
        Raises `GatewayError`."""
        call = self._calls.get((client, key))
        if call is None:
            there = self._find(node, command)
            request: dict[str, Any] = {"nodeId": node, "command": command, "paramsJSON": params}
            request |= {"timeoutMs": timeout_ms, "idempotencyKey": key}
            work = asyncio.ensure_future(self._ask(there, request, timeout_ms))
            call = NodeCall((node, command, params), now_ms(), work)
            self._make_room()
            self._calls[client, key] = call
        elif call.asked != (node, command, params):
            raise invalid("idempotencyKey was already used for another command or other parameters")
        result = await asyncio.shield(call.answer)
        if not result.ok:
            error = {"code": result.code, "message": result.message}
            details = {"nodeError": error, "nodeCommandDispatched": True}
            raise GatewayError("UNAVAILABLE", f"{result.code}: {result.message}", details)
        return result

    def _find(self, node: str, command: str) -> GatewayConnection:
        """The connection of a node that may be sent the command. Raises `GatewayError`."""
        try:
            paired = self._gateway.devices.get(node, "node")
        except NotFoundError:
            changed = {"code": "PAIRING_CHANGED"}
            raise GatewayError("UNAVAILABLE", "unknown node; see node.list", changed) from None
        if command not in self.commands(paired):
            details = {"reason": "command not allowlisted", "command": command}
            raise invalid(
                f"node command not allowed: {command[:80]!r}; the node must offer it, a person "
                "must approve it (node.pair.approve), and it must be usual for the platform or in "
                "gateway.nodes.commands.allow",
                details,
            )
        if (client := self.connection(node)) is None:
            details = {"code": "NOT_CONNECTED"}
            raise GatewayError("UNAVAILABLE", "the node is not connected", details)
        return client

    async def _ask(
        self, client: GatewayConnection, request: dict[str, Any], timeout_ms: int
    ) -> NodeResult:
        id_, answer = str(uuid.uuid4()), asyncio.get_running_loop().create_future()
        self._waiting[id_] = client, answer
        client.send(event("node.invoke.request", encode({"id": id_, **request})))
        try:
            async with asyncio.timeout(timeout_ms / 1000):
                result: NodeResult = await answer
        except TimeoutError:
            cancelled = {"id": id_, "nodeId": request["nodeId"]}
            client.send(event("node.invoke.cancel", encode(cancelled)))
            return _failed("TIMEOUT", f"the node did not answer within {timeout_ms} ms")
        finally:
            del self._waiting[id_]
        return result

    def settle(self, client: GatewayConnection, id_: str, result: NodeResult) -> bool:
        """Accept an answer from the connection that was asked; False if it is too late."""
        owner, answer = self._waiting.get(id_, (None, None))
        if owner is not client or answer is None or answer.done():
            return False
        answer.set_result(result)
        return True

    def _make_room(self) -> None:
        """Drop expired answers, and the oldest ones if they use too much memory."""
        room, limit = MAX_BUFFERED, now_ms() - KEEP_MS
        ended = [(key, call) for key, call in self._calls.items() if call.answer.done()]
        for key, call in reversed(ended):
            room -= len(call.answer.result().payload)
            if call.at_ms < limit or room < 0:
                del self._calls[key]


def _failed(code: str, message: str) -> NodeResult:
    return NodeResult(False, code=code, message=message)
