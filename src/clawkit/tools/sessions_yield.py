"""sessions_yield: end the turn until a sub-agent reports."""

from functools import partial
from typing import Annotated, Literal

import msgspec
from msgspec import Meta

from clawkit.core.context import Context
from clawkit.core.result import Result
from clawkit.core.tool import Tool
from clawkit.errors import ToolInputError
from clawkit.sessions.subagent_protocols import Delegates
from clawkit.text import human_time
from clawkit.tools._params import doc
from clawkit.tools._sessions import with_agent

MAX_WAIT_S = 86_400


class Params(msgspec.Struct, frozen=True, forbid_unknown_fields=True, rename="camel"):
    message: Annotated[str, doc("Note to yourself: what to do with the results")] = ""
    timeout_seconds: Annotated[
        Annotated[float, Meta(ge=0, le=MAX_WAIT_S)],
        doc("Resume after this many seconds even without a report; 0: never"),
    ] = 0
    acknowledgment: Annotated[str, doc("Message to show the user now", max_length=2_000)] = ""
    wait_for: Annotated[Literal["message"], doc("Results come as messages")] = "message"


async def execute(params: Params, ctx: Context) -> Result:
    service, limit = ctx.use(Delegates), params.timeout_seconds
    can_end = service.await_reports(limit or None)
    active = service.active()
    pending = [{"runId": run.id, "label": run.label} for run in active]
    if not can_end:
        text = "Results are already available: you will read them next, in this turn."
        return Result.text(text, status="already_pending", pendingChildren=pending)
    if not active:
        raise ToolInputError("there is no sub-agent to wait for; start one, or just answer")
    names = ", ".join(run.label for run in active)
    until = f", or in {human_time(limit)}" if limit else ""
    text = f"The turn ends here. You resume when one of these has reported{until}: {names}."
    note = f"\nYour note: {params.message}" if params.message else ""
    said = {"acknowledgment": params.acknowledgment} if params.acknowledgment else {}
    details = {"status": "yielded", "pendingChildren": pending, "endsTurn": True, **said}
    return Result.text(f"{text}{note}", **details)


TOOL = Tool(
    name="sessions_yield",
    label="Wait for sub-agents",
    description=(
        "End your turn and wait: you resume as soon as a sub-agent reports, or at the timeout. "
        "Use it after starting sub-agents when there is nothing else to do."
    ),
    parameters=Params,
    execute=execute,
    hidden=frozenset({"waitFor"}),
)
"""No `effects`, so that it runs after all earlier calls of the same message."""
make_tool = partial(with_agent, TOOL)
