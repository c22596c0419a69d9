"""The connected clients: event delivery and presence."""

from __future__ import annotations

import asyncio
import platform
import socket
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

from clawkit.gateway.protocol import encode, now_ms
from clawkit.gateway.scopes import APPROVALS, PAIRING, READ
from clawkit.version import __version__

if TYPE_CHECKING:
    from clawkit.gateway.connection import GatewayConnection

EVENTS: dict[str, str] = {
    **dict.fromkeys(("tick", "health", "heartbeat", "shutdown"), ""),
    **dict.fromkeys(("agent", "chat", "presence", "config.changed"), READ),
    **dict.fromkeys(("sessions.changed", "session.message", "session.tool"), READ),
    "clawkit.event": READ,
    **dict.fromkeys(("exec.approval.requested", "exec.approval.resolved"), APPROVALS),
    "session.approval": APPROVALS,
    **dict.fromkeys(("device.pair.requested", "device.pair.resolved"), PAIRING),
    **dict.fromkeys(("node.pair.requested", "node.pair.resolved"), PAIRING),
    "node.hostStats": READ,
    "cron": READ,
}
"""The scope that each event needs; empty for none. Events that are not listed go to no one."""
_SHOWN_MODES = ("ui", "webchat", "node")
"""Clients whose presence is announced to others."""
Wanted = Callable[["GatewayConnection"], bool]


class Audience(NamedTuple):
    """The clients that get events of a session."""

    near: list[GatewayConnection]
    """Clients that get the events of its agent."""
    calls: list[GatewayConnection]
    """The subset of `near` that also gets tool calls."""
    following: list[GatewayConnection]
    """Clients that get its messages."""
    terminals: list[GatewayConnection]
    """Terminals that show its events."""
    full: list[GatewayConnection]
    """The subset of `terminals` that shows all events."""

    @property
    def is_brief(self) -> bool:
        """Whether no client gets the results of calls."""
        return not (self.near or self.full)


class Hub:
    """All clients that have logged in."""

    def __init__(self, instance: str) -> None:
        self.clients: dict[str, GatewayConnection] = {}
        self._by_scope: dict[str, list[GatewayConnection]] = {}
        """Cache of the clients with a scope, until a client connects or leaves."""
        self._by_session: dict[str, Audience] = {}
        """Cache of audiences, until a client connects, leaves or changes its subscriptions."""
        self.presence_version = self.health_version = 1
        self._instance = instance
        self.empty = asyncio.Event()
        self.empty.set()

    def join(self, client: GatewayConnection) -> None:
        self.clients[client.id] = client
        self.forget()
        self.empty.clear()
        self._note(client)

    def leave(self, client: GatewayConnection) -> None:
        if self.clients.pop(client.id, None) is not None:
            self.forget()
            self._note(client)
        if not self.clients:
            self.empty.set()

    def forget(self) -> None:
        """Clear the caches after a change of clients or subscriptions."""
        self._by_scope.clear()
        self._by_session.clear()

    def _note(self, client: GatewayConnection) -> None:
        if client.connect.client.mode in _SHOWN_MODES:
            self.presence_version += 1
            self.broadcast("presence", {"presence": self.presence()}, droppable=True)

    def state(self) -> dict[str, int]:
        return {"presence": self.presence_version, "health": self.health_version}

    def presence(self) -> list[Any]:
        """This gateway, then every client."""
        host = socket.gethostname()
        kernel = f"{platform.system().lower()} {platform.release()}"
        text = f"Gateway: {host} · app {__version__} · mode gateway · reason self"
        own: dict[str, Any] = {"host": host, "platform": kernel, "mode": "gateway", "text": text}
        own |= {"version": __version__, "reason": "self", "instanceId": self._instance}
        own["ts"] = now_ms()
        return [own, *(each.presence for each in self.clients.values())]

    def of_device(self, device: str) -> list[GatewayConnection]:
        return [each for each in self.clients.values() if each.device == device]

    def audience(self, key: str) -> Audience:
        """The audience of a session. Clients that limit themselves to attached sessions get no
        others."""
        if (found := self._by_session.get(key)) is None:
            able = self.wants("agent")
            near = [each for each in able if not each.is_scoped or each.follows(key)]
            terminals = [each for each in able if key in each.attached]
            found = self._by_session[key] = Audience(
                near,
                [each for each in near if "tool-events" in each.connect.caps],
                [each for each in able if each.follows(key)],
                terminals,
                [each for each in terminals if each.attached[key] == "all"],
            )
        return found

    def wants(self, name: str, wanted: Wanted | None = None) -> list[GatewayConnection]:
        """The clients that an event is for."""
        scope = EVENTS.get(name)
        if scope is None:
            return []
        if (able := self._by_scope.get(scope)) is None:
            able = [each for each in self.clients.values() if not scope or each.may(scope)]
            self._by_scope[scope] = able
        return able if wanted is None else [each for each in able if wanted(each)]

    def broadcast(
        self,
        name: str,
        payload: Any,
        wanted: Wanted | None = None,
        *,
        droppable: bool = False,
    ) -> None:
        """Send an event to all clients that may see it, encoded once."""
        if clients := self.wants(name, wanted):
            send(clients, name, payload, droppable=droppable)


def send(
    clients: Sequence[GatewayConnection], name: str, payload: Any, *, droppable: bool = False
) -> None:
    """Encode an event once, if there are clients for it."""
    data = encode(payload) if clients else b""
    for each in clients:
        each.tell(name, data, droppable=droppable)
