"""session_status: a card that says who is running, where, with which model and tools."""

from __future__ import annotations

import time
from typing import Annotated

import msgspec
from msgspec import Meta

from clawkit.core.context import Context, InForce
from clawkit.core.effects import Effect
from clawkit.core.result import Result
from clawkit.core.tool import Tool
from clawkit.errors import ToolInputError
from clawkit.version import __version__


class Params(msgspec.Struct, frozen=True, forbid_unknown_fields=True, rename="camel"):
    """Parameters of session_status."""

    session_key: Annotated[
        str, Meta(description="Session to look at; the current one if left out", min_length=1)
    ] = "current"


async def execute(params: Params, ctx: Context) -> Result:
    if params.session_key not in ("current", ctx.session):
        raise ToolInputError(
            f"there is no session called {params.session_key!r}; the current one is {ctx.session!r}"
        )
    in_force = ctx.use(InForce)
    facts = {
        "sessionKey": ctx.session,
        "agentId": ctx.agent,
        "model": str(ctx.model) if ctx.model else None,
        "workspace": ctx.workspace,
        "sandboxed": ctx.scope.sandboxed,
        "senderIsOwner": ctx.sender.owner,
        "depth": ctx.scope.depth,
        "tools": list(in_force.tools),
        "toolsRemoved": in_force.removed,
        "version": __version__,
    }
    card = [
        f"clawkit {__version__}",
        f"session {ctx.session} of agent {ctx.agent}",
        f"model {ctx.model or 'not set'}",
        f"workspace {ctx.workspace}{' (sandboxed)' if ctx.scope.sandboxed else ''}",
        f"tools {', '.join(in_force.tools) or 'none'} ({in_force.removed} removed by policy)",
        time.strftime("time %Y-%m-%d %H:%M:%S %Z"),
    ]
    return Result.text("\n".join(card), ok=True, **facts)


def effects(_params: Params, ctx: Context) -> tuple[Effect, ...]:
    return (Effect("read", f"session:{ctx.session}"),)


TOOL = Tool(
    name="session_status",
    label="Session status",
    description="Show the state of the session: agent, model, workspace, tools in force, time.",
    parameters=Params,
    execute=execute,
    effects=effects,
)
