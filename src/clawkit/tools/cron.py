"""cron: jobs that run later or regularly, reminders, and wake-ups."""

from typing import Annotated, Any, Literal

import msgspec

from clawkit.core.context import Context
from clawkit.core.result import Result
from clawkit.core.tool import Effect, Tool
from clawkit.cron.protocols import CronControl
from clawkit.errors import ToolInputError
from clawkit.tools._params import doc

MAX_CHARS = 20_000
_READS = ("status", "list", "get", "runs")
_Object = dict[str, Any]


class Params(msgspec.Struct, frozen=True, forbid_unknown_fields=True, rename="camel"):
    action: Annotated[
        Literal[
            "status",
            "list",
            "get",
            "add",
            "update",
            "remove",
            "run",
            "runs",
            "next_check",
            "wake",
        ],
        doc("What to do"),
    ]
    job: Annotated[
        _Object | None,
        doc(
            "add: {name, schedule, payload, sessionTarget?, delivery?}. schedule is {kind: 'at', "
            "at: ISO time}, {kind: 'every', everyMs} or {kind: 'cron', expr, tz}; payload is "
            "{kind: 'agentTurn', message} or {kind: 'systemEvent', text}; sessionTarget is "
            "current, isolated, main (systemEvent) or session:<id>"
        ),
    ] = None
    job_id: Annotated[str, doc("get, update, remove, run, runs: the id or name of a job")] = ""
    patch: Annotated[_Object | None, doc("update: the fields to change, as in job")] = None
    text: Annotated[str, doc("wake: message for the main session", max_length=20_000)] = ""
    mode: Annotated[
        Literal["now", "next-heartbeat"], doc("wake: start a turn now, or wait for the next one")
    ] = "next-heartbeat"
    run_mode: Annotated[Literal["due", "force"], doc("run: only if due, or always")] = "due"
    include_disabled: Annotated[bool, doc("list: also disabled jobs")] = False
    limit: Annotated[int, doc("list, runs: how many", ge=1, le=200)] = 50
    offset: Annotated[int, doc("list, runs: how many to skip", ge=0)] = 0
    context_messages: Annotated[
        int, doc("add: recent messages of this session to add to a systemEvent", ge=0, le=10)
    ] = 0
    agent_id: Annotated[str, doc("list: the agent whose jobs to list")] = ""
    session_key: Annotated[str, doc("wake: the session, by default the main one")] = ""
    delay: Annotated[str, doc("next_check: when this job should run again, such as '20m'")] = ""


async def execute(params: Params, ctx: Context) -> Result:
    shown = ctx.use(CronControl).run(params)
    size = len(msgspec.json.encode(shown))
    if size > MAX_CHARS and params.action in _READS:
        raise ToolInputError(f"the result has {size:,} characters; use a smaller limit, or a jobId")
    return Result.json(shown)


def effects(params: Params, _ctx: Context) -> tuple[Effect, ...]:
    return (Effect("read" if params.action in _READS else "write", "cron:jobs"),)


TOOL = Tool(
    name="cron",
    label="Cron",
    description=(
        "Schedule jobs that run later or regularly, such as reminders and checks, list and change "
        "them, see what their runs did, and wake the main session. A job is run by the gateway, "
        "even when the user is away."
    ),
    parameters=Params,
    execute=execute,
    effects=effects,
    owner_only=True,
    aliases={"id": "jobId", "in": "delay", "data": "job"},
)
