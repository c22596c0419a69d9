"""sessions_spawn: start a sub-agent on a task, in its own session."""

import re
from dataclasses import replace
from typing import Annotated, Any, Literal

import msgspec
from msgspec import Meta

from clawkit.config.model import Config
from clawkit.config.sections.shared import Thinking
from clawkit.core.context import Context, Scope
from clawkit.core.result import Result
from clawkit.core.tool import Effect, Tool
from clawkit.errors import ToolInputError
from clawkit.sessions.subagent_protocols import Attachment, Delegates, SpawnRequest
from clawkit.tools._params import doc
from clawkit.tools._sessions import with_agent

_NAME = "[a-z][a-z0-9_-]{0,63}"
_RESERVED = ("last", "all")
_NOTE = (
    "It works in the background. Its result will arrive in this session as a message; do not poll. "
    "Call sessions_yield when you have nothing else to do."
)
_SILENT = "It works in the background. Its result is not reported; `subagents` shows how it ended."
_NOT_HERE = {
    "target transport channel to thread_id reply_to thread completion_target": (
        "the result comes to this session; pass it on with message or sessions_send"
    ),
    "visible placement group project_id project_git_url": (
        "a sub-agent works in the background and ends when its task is done"
    ),
    "stream_to": "subagents shows its progress",
    "resume_session_id": "send its session a message with sessions_send",
    "collect group_id": "start each one, and wait with sessions_yield or subagents",
    "fast_mode": "set thinking or model",
    "light_context": "its prompt is short anyway and contains nothing of this conversation",
    "worktree_name worktree_base_ref": "worktree uses the last commit, in a directory of its own",
}
"""Parameters of other implementations, and what to use instead."""


class File(msgspec.Struct, frozen=True, forbid_unknown_fields=True, rename="camel"):
    name: Annotated[str, doc("File name, without directories")]
    content: Annotated[str, doc("What is in it")]
    encoding: Annotated[str, doc("'base64' for bytes, else 'utf8'")] = "utf8"
    mime_type: Annotated[str, doc("For the manifest")] = ""


class AttachAs(msgspec.Struct, frozen=True, forbid_unknown_fields=True, rename="camel"):
    mount_path: Annotated[str, doc("What the task calls the directory of the attachments")] = ""


class Params(msgspec.Struct, frozen=True, forbid_unknown_fields=True, rename="camel"):
    task: Annotated[str, doc("What to do, with all the context it needs", min_length=1)]
    label: Annotated[str, doc("Short label", max_length=512)] = ""
    agent_id: Annotated[str, doc("Agent that does it; default: this one")] = ""
    model: Annotated[str, doc("Model to use instead of the configured one")] = ""
    run_timeout_seconds: Annotated[
        Annotated[float, Meta(ge=0)] | None, doc("Stop it after this many seconds; 0 is never")
    ] = None
    cleanup: Annotated[
        Literal["keep", "delete"], doc("Whether its session is deleted once it is done")
    ] = "keep"
    context: Annotated[
        Literal["isolated", "fork"], doc("'fork' gives it this conversation so far")
    ] = "isolated"
    output_schema: Annotated[
        dict[str, Any] | None, doc("JSON Schema that its result must match; it is then data")
    ] = None
    attachments: Annotated[
        list[File], doc("Files for it to read; contents are not kept in this conversation")
    ] = []
    worktree: Annotated[
        bool, doc("Work in a separate git worktree of the last commit; the diff is reported")
    ] = False
    cwd: Annotated[str, doc("Directory in the workspace to work in; default: where you are")] = ""
    mode: Annotated[
        Literal["run"], doc("'run': it ends with its task; sessions_send continues its session")
    ] = "run"
    runtime: Annotated[
        Literal["subagent"], doc("'subagent': agents of other programs cannot be started")
    ] = "subagent"
    attach_as: Annotated[AttachAs, doc("Where the task expects the attachments")] = AttachAs()
    task_name: Annotated[str, doc("Short name for the subagents tool")] = ""
    thinking: Annotated[Thinking | None, doc("How long its model thinks")] = None
    sandbox: Annotated[
        Literal["inherit", "require"], doc("'require' fails if it would not be sandboxed")
    ] = "inherit"
    expects_completion_message: Annotated[
        bool, doc("Whether its result is reported to this session")
    ] = True


async def execute(params: Params, ctx: Context) -> Result:
    if not params.task.strip():
        raise ToolInputError("task: must say what to do")
    if params.task_name and not re.fullmatch(_NAME, params.task_name):
        raise ToolInputError("taskName: use a lowercase letter, then up to 63 of a-z, 0-9, _, -")
    if params.task_name in _RESERVED:
        raise ToolInputError(f"taskName: {params.task_name!r} is reserved")
    request = SpawnRequest(
        params.task,
        params.label,
        params.task_name,
        params.agent_id,
        params.model,
        params.thinking,
        params.run_timeout_seconds,
        params.sandbox,
        params.cleanup,
        params.context == "fork",
        params.output_schema,
        params.expects_completion_message,
        tuple(Attachment(f.name, f.content, f.encoding, f.mime_type) for f in params.attachments),
        params.attach_as.mount_path,
        params.worktree,
        params.cwd,
    )
    spawned = ctx.use(Delegates).spawn(request)
    run = spawned.run
    provider, _, model = spawned.model.partition("/")
    note = _NOTE if params.expects_completion_message else _SILENT
    details = {
        "status": "accepted",
        "childSessionKey": spawned.key,
        "runId": run.id,
        "mode": "run",
        "context": params.context,
        "expectsCompletionMessage": params.expects_completion_message,
        "resolvedModel": model,
        "resolvedProvider": provider,
        "modelApplied": bool(params.model) and not spawned.warning,
        "note": note,
    }
    details |= {"taskName": run.name} if run.name else {}
    details |= {"warning": spawned.warning} if spawned.warning else {}
    details |= {"attachments": spawned.attachments} if spawned.attachments else {}
    about = ""
    if run.worktree:
        commit = run.worktree.commit
        details["worktree"] = {"path": run.worktree.tree, "commit": commit, "uncommitted": False}
        about = (
            f" It works in a worktree of commit {commit[:10]}, which does not have uncommitted "
            "changes."
        )
    warning = f" Note: {spawned.warning}." if spawned.warning else ""
    text = f"Started the sub-agent {run.label!r} (run {run.id}, session {spawned.key})."
    return Result.text(f"{text}{about}{warning} {note}", **details)


def effects(_params: Params, ctx: Context) -> tuple[Effect, ...]:
    return (Effect("exec", f"subagent:{ctx.call_id}"),)


TOOL = Tool(
    name="sessions_spawn",
    label="Start sub-agent",
    description=(
        "Give a task to a sub-agent. It works in the background with its own session and tools, "
        "and its result comes back to you as a message. For work that can run in parallel or "
        "would fill your context."
    ),
    parameters=Params,
    execute=execute,
    effects=effects,
    aliases={"timeoutSeconds": "runTimeoutSeconds"},
    hidden=frozenset(
        {
            *("taskName", "thinking", "sandbox", "expectsCompletionMessage", "attachAs"),
            *("mode", "runtime"),
        }
    ),
    unsupported={name: hint for names, hint in _NOT_HERE.items() for name in names.split()},
)


def make_tool(config: Config, scope: Scope) -> Tool | str:
    tool = TOOL
    if not config.tools.sessions_spawn.attachments.enabled:
        # Still parsed, so that a call gets an error that explains why they are refused.
        tool = replace(tool, hidden=tool.hidden | {"attachments"})
    return with_agent(tool, config, scope)
