"""sessions_yield: end the turn until a sub-agent reports."""

from functools import partial
from typing import Annotated

import msgspec

from clawkit.core.context import Context
from clawkit.core.result import Result
from clawkit.core.tool import Effect, Tool
from clawkit.errors import ToolInputError
from clawkit.sessions.subagent_protocols import Delegates
from clawkit.tools._delegates import with_agent
from clawkit.tools._params import doc


class Params(msgspec.Struct, frozen=True, forbid_unknown_fields=True, rename="camel"):
    message: Annotated[str, doc("Note to yourself: what to do with the results")] = ""


async def execute(params: Params, ctx: Context) -> Result:
    active = ctx.use(Delegates).active()
    if not active:
        raise ToolInputError("there is no sub-agent to wait for; start one, or just answer")
    names = ", ".join(run.label for run in active)
    text = f"The turn ends here. You go on when one of these has reported: {names}."
    note = f"\nYour note: {params.message}" if params.message else ""
    pending = [{"runId": run.id, "label": run.label} for run in active]
    return Result.text(f"{text}{note}", status="yielded", pendingChildren=pending, endsTurn=True)


def effects(_params: Params, ctx: Context) -> tuple[Effect, ...]:
    return (Effect("read", f"session:{ctx.session}"),)


TOOL = Tool(
    name="sessions_yield",
    label="Wait for sub-agents",
    description=(
        "End your turn and wait: you go on as soon as a sub-agent has reported. Use it after "
        "starting sub-agents when there is nothing else to do."
    ),
    parameters=Params,
    execute=execute,
    effects=effects,
)
make_tool = partial(with_agent, TOOL)
