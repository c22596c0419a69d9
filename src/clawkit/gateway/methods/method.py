"""What a method is."""

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
    Caller = Gateway = Any  # their modules import the methods

Run = Callable[[Caller, Any, str], Awaitable[Any]]
"""Is given the caller, the decoded parameters and the id of the request; returns the payload."""


NODE = "node"
"""In the place of a scope: the method is for nodes, and for no one else."""


class Method(Struct, frozen=True):
    """One method: who may call it, what it takes, what it does."""

    name: str
    scope: str
    params: type
    run: Run
    more: Callable[[Any], str] | None = None
    """The scope that these parameters need."""
    limited: bool = False
    """Whether a client may call it only so many times a minute."""


class OfAgent(Closed, frozen=True):
    agent_id: Short | None = None
