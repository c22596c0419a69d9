"""The definition of a method."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Any

from msgspec import Struct

from clawkit.gateway.protocol import Closed, Short

if TYPE_CHECKING:
    from clawkit.gateway.connection import GatewayConnection
    from clawkit.gateway.server import Gateway as Gateway

    Caller = GatewayConnection
else:
    Caller = Gateway = Any  # not imported: their modules import the methods

Run = Callable[[Caller, Any, str], Awaitable[Any]]
"""Called with the caller, the decoded parameters and the request id; returns the payload."""


NODE = "node"
"""Used instead of a scope: the method is only for nodes."""


class Method(Struct, frozen=True):
    """One method: its scope, its parameters and its implementation."""

    name: str
    scope: str
    params: type
    run: Run
    more: Callable[[Any], str] | None = None
    """Returns the scope that the given parameters need."""
    limited: bool = False
    """Whether calls per client and minute are limited."""


class OfAgent(Closed, frozen=True):
    agent_id: Short | None = None
