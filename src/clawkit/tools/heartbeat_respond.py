"""heartbeat_respond: the answer of a heartbeat, which ends its turn."""

from typing import Annotated, Literal

import msgspec

from clawkit.config.model import Config
from clawkit.core.context import Context, Scope
from clawkit.core.result import Result
from clawkit.core.tool import Tool
from clawkit.cron.protocols import HeartbeatControl
from clawkit.errors import ToolInputError
from clawkit.tools._params import doc

MAX_SCRATCH = 262_144
NO_HEARTBEAT = "it is for the heartbeats of a gateway"
Outcome = Literal["no_change", "progress", "done", "blocked", "needs_attention"]


class Params(msgspec.Struct, frozen=True, forbid_unknown_fields=True, rename="camel"):
    outcome: Annotated[Outcome, doc("Outcome of this check")]
    notify: Annotated[bool, doc("Whether to notify the person now")]
    summary: Annotated[str, doc("What you found; the next check sees it", max_length=4_000)]
    notification_text: Annotated[
        str, doc("Text for the person instead of the summary", max_length=4_000)
    ] = ""
    reason: Annotated[str, doc("Why you notify, or not", max_length=1_000)] = ""
    priority: Annotated[Literal["low", "normal", "high"], doc("How urgent it is")] = "normal"
    next_check: Annotated[
        str, doc("When to check again, such as '20m': 1 minute to 24 hours; by default as usual")
    ] = ""
    scratch: Annotated[
        str | None, doc("Notes that replace those of the last check; empty removes them")
    ] = None


async def execute(params: Params, ctx: Context) -> Result:
    if not params.summary.strip():
        raise ToolInputError("summary must not be empty")
    if params.scratch is not None and len(params.scratch.encode()) > MAX_SCRATCH:
        raise ToolInputError(f"scratch must not have more than {MAX_SCRATCH:,} bytes; shorten it")
    shown = ctx.use(HeartbeatControl).respond(params)
    return Result.json(shown | {"endsTurn": True})


TOOL = Tool(
    name="heartbeat_respond",
    label="Answer a heartbeat",
    description=(
        "Answer this heartbeat, once, as your last call: it ends the turn. The person is notified "
        "only if notify is true."
    ),
    parameters=Params,
    execute=execute,
)
"""No `effects`, so that it runs after all earlier calls of the same message."""


def make_tool(_config: Config, scope: Scope) -> Tool | str:
    return TOOL if scope.in_heartbeat else NO_HEARTBEAT
