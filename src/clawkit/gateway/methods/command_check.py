"""How a command would be judged, for people who edit the allowlist."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

from msgspec import Meta

from clawkit.command_check import Checker, Wanted, to_json
from clawkit.core.context import Scope
from clawkit.core.tasks import in_thread
from clawkit.gateway.methods.method import Method
from clawkit.gateway.protocol import Closed, Short, invalid
from clawkit.gateway.scopes import ADMIN

if TYPE_CHECKING:
    from clawkit.gateway.connection import GatewayConnection


class CommandCheck(Closed, frozen=True):
    """A command to judge; nothing runs."""

    command: Annotated[str, Meta(min_length=1, max_length=32_768)]
    agent_id: Short | None = None
    place: Wanted | None = None
    allowlist: Annotated[list[Any], Meta(max_length=1_000)] | None = None
    """Entries to judge by, instead of those in force."""


async def _check(caller: GatewayConnection, params: CommandCheck, _id: str) -> Any:
    """How a command would be judged, part by part; nothing runs."""
    gateway = caller.gateway
    agent = gateway.live.check_agent(params.agent_id)
    sandboxed = gateway.loaded.config.agents.sandbox_of(agent).covers("main")
    case = {"command": params.command, "place": params.place, "allowlist": params.allowlist}
    scope, workspace = Scope(agent=agent, sandboxed=sandboxed), gateway.live.workspace(agent)
    checker = Checker(gateway.loaded, scope, workspace)
    try:
        return to_json(await in_thread(checker.check, case))
    except ValueError as error:
        raise invalid(str(error)) from None


METHODS = (Method("exec.approvals.check", ADMIN, CommandCheck, _check),)
