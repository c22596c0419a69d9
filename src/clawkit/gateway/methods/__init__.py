"""The methods that clients can call: one table, filled by one module per namespace."""

from __future__ import annotations

from typing import Any

from clawkit.gateway import protocol
from clawkit.gateway.methods import (
    agents,
    approvals,
    chats,
    config,
    cron,
    devices,
    memory,
    runs,
    sessions,
    status,
    terminals,
    usage,
)
from clawkit.gateway.methods.method import NODE, Caller, Method
from clawkit.gateway.protocol import GatewayError, RequestFrame, invalid, missing_scope
from clawkit.gateway.scopes import ADMIN

_MODULES = (
    *(status, config, sessions, runs, agents, memory, approvals, devices, usage, cron, terminals),
    chats,
)
METHODS: dict[str, Method] = {
    method.name: method for module in _MODULES for method in module.METHODS
}
NODE_METHODS = frozenset(
    (
        *("skills.bins", "node.event", "node.invoke.progress", "node.invoke.result"),
        *("node.pluginSurface.refresh", "node.pluginTools.update", "node.skills.update"),
        *("node.runnerInventory.update", "node.pending.drain", "node.pending.pull"),
        "node.pending.ack",
    )
)
"""Methods that only nodes may call, of which clawkit implements some."""


def read_frame(text: str) -> tuple[RequestFrame, Any]:
    """A request and its parameters, or a `GatewayError` if these are invalid, to be raised after
    the permission check. Raises ValueError for anything but a request."""
    request = protocol.decode_request(text)
    if (method := METHODS.get(request.method)) is None:
        return request, None
    try:
        return request, protocol.decode_params(method.params, method.name, request.params)
    except GatewayError as error:
        return request, error


def find_method(caller: Caller, request: RequestFrame, params: Any) -> Method:
    """The method of a request, if the caller may use it. Raises `GatewayError`."""
    name = request.method
    if (name in NODE_METHODS) != (caller.role == "node"):
        raise invalid(f"unauthorized role: {caller.role}")
    method = METHODS.get(name)
    if method is None:
        is_open = caller.role == "node" or caller.may(ADMIN)
        raise invalid(f"unknown method: {name}") if is_open else missing_scope(ADMIN)
    if method.scope != NODE and not caller.may(method.scope):
        raise missing_scope(method.scope)
    if isinstance(params, GatewayError):
        raise params
    if method.more is not None:
        wanted = method.more(params)
        if not caller.may(wanted):
            raise missing_scope(wanted)
    if method.limited and (wait_s := caller.gateway.calls.take(caller.name, name)):
        message = f"rate limit exceeded for {name}; retry later"
        raise GatewayError("UNAVAILABLE", message, retry_ms=round(wait_s * 1000))
    return method
