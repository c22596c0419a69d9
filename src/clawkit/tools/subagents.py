"""subagents: list, wait for, steer and stop the sub-agents of a session."""

from collections.abc import Sequence
from functools import partial
from typing import Annotated, Any, Literal

import msgspec
from msgspec import Meta

from clawkit.core.context import Context
from clawkit.core.result import Result
from clawkit.core.tool import Effect, Tool
from clawkit.errors import NotFoundError, ToolInputError
from clawkit.sessions.subagent_protocols import Delegates, RunState, now_ms
from clawkit.text import human_time, one_line
from clawkit.tools._params import doc
from clawkit.tools._sessions import with_agent

_BY = "its requester"


class Params(msgspec.Struct, frozen=True, forbid_unknown_fields=True, rename="camel"):
    action: Annotated[
        Literal["list", "wait", "steer", "cancel"],
        doc("list (default); wait for one to end; steer: send a message; cancel: stop"),
    ] = "list"
    target: Annotated[
        str, doc("Sub-agent: run id, name, label or 'last'; for cancel also 'all'")
    ] = ""
    message: Annotated[str, doc("Message for steer")] = ""
    task_ids: Annotated[
        Annotated[list[str], Meta(min_length=1, max_length=32)],
        doc("Several sub-agents for wait; default: all that are active"),
    ] = []
    timeout_seconds: Annotated[
        Annotated[float, Meta(ge=0, le=60)], doc("Longest wait, up to 60 s")
    ] = 30
    recent_minutes: Annotated[
        Annotated[int, Meta(ge=1, le=1440)], doc("Also list those that ended in the last N minutes")
    ] = 30


async def execute(params: Params, ctx: Context) -> Result:
    service = ctx.use(Delegates)
    match params.action:
        case "list":
            since = now_ms() - params.recent_minutes * 60_000
            return _tell(service.list(since), "No sub-agents.")
        case "wait":
            names = [*params.task_ids, *filter(None, (params.target,))]
            if not names and not service.active():
                raise ToolInputError("there is no sub-agent to wait for")
            return await _wait(names, params.timeout_seconds, service)
        case "steer":
            if not params.message.strip():
                raise ToolInputError("message must not be empty")
            run = service.find(params.target or "last")
            service.steer(run, f"[From the session that started you] {params.message}")
            return Result.text(f"Sent to {run.label!r}; it reads it before its next answer.")
        case "cancel":
            if not params.target:
                raise ToolInputError("target is required; 'all' stops every sub-agent")
            if params.target == "all":
                count = await service.cancel(None, _BY)
                return Result.text(f"Stopped {count} sub-agents.", cancelled=count)
            run = service.find(params.target)
            count = await service.cancel(run, _BY)
            said = "was stopped, with all it started" if count else f"had ended ({run.status})"
            return Result.text(f"{run.label!r} {said}.", cancelled=count)


async def _wait(names: Sequence[str], timeout_s: float, service: Delegates) -> Result:
    wanted, unknown = [], []
    for name in names:
        try:
            wanted.append(service.find(name))
        except NotFoundError as error:
            unknown.append(str(error))
    lost = {"unavailable": unknown} if unknown else {}
    if names and not wanted:
        return _tell((), "\n".join(unknown), reason="unavailable", **lost)
    over = await service.wait(wanted, timeout_s)
    reason = "attention" if any(each.status != "completed" for each in over) else "completed"
    none = "\n".join(("None has ended yet; results will arrive as messages.", *unknown))
    return _tell(over, none, reason=reason if over else "timeout", **lost)


def _tell(states: Sequence[RunState], nothing: str, **more: Any) -> Result:
    rows, lines = [], []
    for each in states:
        run = each.run
        began, end = run.started_ms or run.created_ms, run.ended_ms or now_ms()
        runtime_s = max(0, end - began) / 1000
        row = {
            "runId": run.id,
            "sessionId": run.session,
            "label": run.label,
            "status": each.status,
            "runtimeSeconds": round(runtime_s, 1),
            "totalTokens": each.usage.context,
        }
        about = {"taskName": run.name, "step": each.step, "error": run.error}
        rows.append(row | {name: text for name, text in about.items() if text})
        what = one_line(run.error or each.step, 100)
        line = f"{run.id} {each.status} {run.label!r}, {human_time(runtime_s)}"
        lines.append(f"{line}: {what}" if what else line)
    return Result.text("\n".join(lines) or nothing, count=len(rows), tasks=rows, **more)


def effects(params: Params, ctx: Context) -> tuple[Effect, ...]:
    kind: Literal["read", "exec"] = "read" if params.action in ("list", "wait") else "exec"
    return (Effect(kind, f"subagents:{ctx.session}"),)


TOOL = Tool(
    name="subagents",
    label="Sub-agents",
    description=(
        "List the sub-agents that you started, wait for one, send one a message, or stop one. "
        "Results arrive as messages automatically: do not poll."
    ),
    parameters=Params,
    execute=execute,
    effects=effects,
    aliases={"taskId": "target"},
    hidden=frozenset({"recentMinutes"}),
)
make_tool = partial(with_agent, TOOL)
