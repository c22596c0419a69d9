"""lobster: run a pipeline or a workflow, or resume one that halted at a gate."""

import asyncio
import os
from functools import partial
from typing import Annotated, Any, Literal

import msgspec
from msgspec.structs import replace

from clawkit.approvals.protocols import RESUMABLE, Approvals
from clawkit.bundled.lobster import pipeline
from clawkit.bundled.lobster import values as v
from clawkit.bundled.lobster.host import NAME, PipelineHost
from clawkit.bundled.lobster.stages import COMMANDS, run_stages
from clawkit.bundled.lobster.state import KEEP_S, Halted, Progress, Store
from clawkit.bundled.lobster.workflow import digest_all, nested_in, run_workflow
from clawkit.bundled.lobster.workflow_file import ENDINGS
from clawkit.config.paths import home
from clawkit.content import Text
from clawkit.core.approval import Answer, Question, no_approver
from clawkit.core.context import Context
from clawkit.core.result import MAX_DETAILS, Result
from clawkit.core.tool import Tool
from clawkit.errors import ToolAuthorizationError, ToolError
from clawkit.redact import Redactor
from clawkit.schema.choose import validator_for
from clawkit.text import cut, one_line, printable
from clawkit.tools._params import doc

MAX_SHOWN = 4_000
"""Maximum characters of the items in a question."""
_DESCRIPTION = (
    "Run a pipeline of commands and tool calls in one call, such as `exec --json --shell 'gh pr "
    "list --json number' | where number>=5 | approve --prompt 'Close?' | openclaw.invoke …`, "
    "or a workflow file (.lobster, .yaml, .json) with argsJson. `commands.list` lists the stages. "
    "If the status is needs_approval, tell the person what needs approval and resume with approve: "
    "true: they are asked to confirm. If it is needs_input, resume with response."
)


class Params(msgspec.Struct, frozen=True, forbid_unknown_fields=True, rename="camel"):
    action: Annotated[Literal["run", "resume"], doc("Start something, or answer a gate")]
    pipeline: Annotated[str, doc("With run: a pipeline, or the path of a workflow file")] = ""
    args_json: Annotated[str, doc("With run: arguments of the workflow, a JSON object")] = ""
    cwd: Annotated[str, doc("With run: directory below the workspace")] = ""
    timeout_ms: Annotated[int, doc("Milliseconds until it is stopped", ge=200, le=600_000)] = 20_000
    max_stdout_bytes: Annotated[int, doc("Limit of the output", ge=1_024, le=16_777_216)] = 512_000
    token: Annotated[str, doc("With resume: the resumeToken")] = ""
    approval_id: Annotated[str, doc("With resume: the approvalId, instead of a token")] = ""
    approve: Annotated[bool | None, doc("With resume: whether to continue")] = None
    response: Annotated[Any, doc("With resume: the answer, for needs_input")] = msgspec.UNSET
    cancel: Annotated[bool, doc("With resume: give up")] = False


async def execute(params: Params, ctx: Context, approval_s: float) -> Result:
    rights = "owner" if ctx.sender.owner else "guest"
    session = f"{ctx.agent} {ctx.session} {rights}"
    whose = ctx.agent if ctx.sender.owner else session
    store = Store(os.path.join(home(os.environ), "lobster.sqlite"), whose, session)
    until_s = asyncio.get_running_loop().time() + params.timeout_ms / 1000
    limits = params.max_stdout_bytes, until_s, approval_s
    host = PipelineHost(ctx, store, *limits, v.Ledger(), params.cwd)
    try:
        envelope = await (_run if params.action == "run" else _resume)(params, host)
    except ToolAuthorizationError:
        raise
    except ToolError as error:
        envelope = _failed(str(error), getattr(error, "kind", v.PipelineError.kind))
    except TimeoutError:
        envelope = _failed(f"timed out after {params.timeout_ms} ms")
    finally:
        store.close()
    if host.ledger.warnings:
        envelope["warnings"] = list(host.ledger.warnings.values())
    return _fitted(envelope, params.max_stdout_bytes)


def _failed(message: str, kind: str = v.PipelineError.kind) -> dict[str, v.Value]:
    return {"protocolVersion": 1, "ok": False, "error": {"type": kind, "message": message}}


def _fitted(envelope: dict[str, v.Value], max_bytes: int) -> Result:
    text = v.to_json(envelope)
    size, values = len(text.encode("utf-8", "replace")), text.count(",") + text.count("[")
    if size > max_bytes or values > MAX_DETAILS // 2:
        said = f"{size:,} bytes of output are over maxStdoutBytes ({max_bytes:,}), or too many"
        envelope = _failed(f"{said} items; end the pipeline with head or pick")
        text = v.to_json(envelope)
    return Result((Text(text),), envelope)


def _done(status: str, output: list[v.Value], **more: v.Value) -> dict[str, v.Value]:
    about = {"protocolVersion": 1, "ok": True, "status": status, "output": output}
    return about | {"requiresApproval": None, "requiresInput": None} | more


async def _run(params: Params, host: PipelineHost) -> dict[str, v.Value]:
    text = params.pipeline.strip()
    if not text:
        raise v.PipelineSyntaxError("run requires pipeline")
    if os.path.isabs(params.cwd):
        raise v.PipelineSyntaxError("cwd must be relative to the workspace")
    is_file = text.endswith(ENDINGS) and "|" not in text and text.split()[0] not in COMMANDS
    if params.args_json and not is_file:
        raise v.PipelineSyntaxError("argsJson needs a workflow file as pipeline")
    args = v.parse_json(params.args_json or "{}", "argsJson")
    if not isinstance(args, dict):
        raise v.PipelineSyntaxError("argsJson must be a JSON object")
    progress = Progress(text, args) if is_file else None
    stages = () if is_file else tuple(pipeline.parse(text))
    return await _continue(Halted({}, params.cwd, stages, progress), host, [])


async def _continue(halted: Halted, host: PipelineHost, items: list[v.Value]) -> dict[str, v.Value]:
    """Run the remaining stages, to the end or the next gate."""
    async with asyncio.timeout_at(host.until_s):
        if halted.progress:
            ended = await run_workflow(halted.progress, host)
        else:
            ended = await run_stages(halted.stages, items, host)
            if isinstance(ended, Halted):
                ended = replace(ended, files=await digest_all(nested_in(ended.stages, host), {}))
    if isinstance(ended, list):
        return _done("ok", ended)
    return _halt(replace(ended, cwd=halted.cwd), host)


def _halt(halted: Halted, host: PipelineHost) -> dict[str, v.Value]:
    request = halted.request
    if request["type"] == "input_request":
        request = request | {"resumeToken": host.store.add(halted)}
        return _done("needs_input", [], requiresInput=request)
    starter = halted.rules.initiated_by or host.ctx.sender.id
    halted = replace(halted, rules=replace(halted.rules, initiated_by=starter))
    asked = host.ctx.use(Approvals).submit(_question(halted, host.ctx), {RESUMABLE: NAME})
    token = host.store.add(replace(halted, approval=asked.id))
    request = request | {"resumeToken": token, "approvalId": asked.slug}
    return _done("needs_approval", [], requiresApproval=request)


def _question(halted: Halted, ctx: Context) -> Question:
    redact, request = ctx.use(Redactor).strict, halted.request
    shown = str(request.get("preview") or v.to_json(request["items"], indent=2))
    then = " | ".join(stage.text for stage in halted.stages)
    if halted.progress:
        then = f"{halted.progress.file}, after the step {halted.progress.step}"
    notes = (f"{len(request['items']):,} items", f"then: {one_line(redact(then), MAX_SHOWN)}")
    return Question(
        tool=NAME,
        params={},
        title=one_line(redact(str(request["prompt"])), 500),
        description=printable(cut(redact(shown), MAX_SHOWN)),
        asked_by=f"the tool {NAME}",
        notes=notes if then else notes[:1],
        timeout_s=KEEP_S,
        agent=ctx.agent,
        session=ctx.session,
        call_id=ctx.call_id,
    )


async def _resume(params: Params, host: PipelineHost) -> dict[str, v.Value]:
    token, halted = host.store.find(params.token, params.approval_id)
    host = replace(host, cwd=halted.cwd, files=halted.files)
    is_input, has_response = not halted.approval, params.response is not msgspec.UNSET
    if params.cancel or (params.approve is False and not is_input):
        answer = Answer("deny")
        host.ctx.use(Approvals).withdraw(halted.approval)
    elif has_response != is_input or (params.approve is None) != is_input:
        how = "response" if is_input else "approve, true or false"
        raise v.PipelineSyntaxError(f"this gate needs {how}, or cancel")
    elif is_input:
        _check_response(params.response, halted)
        answer = Answer("allow")
    else:
        answer = await _ask(halted, host)
    # At most once: after a failure from here on, the pipeline must be started again.
    host.store.take(token)
    if answer.silent:
        return _halt(halted, host)
    if answer.verdict != "allow":
        return _done("cancelled", [], **({"reason": answer.reason} if answer.reason else {}))
    if (progress := halted.progress) is not None:
        given = {"response": params.response} if is_input else {"approved": True}
        progress.results[progress.step] |= given
    return await _continue(halted, host, [params.response] if is_input else halted.request["items"])


async def _ask(halted: Halted, host: PipelineHost) -> Answer:
    """A person's earlier or new answer; a silent one means to ask again later. Raises
    `ToolAuthorizationError` if the question is open and no one can be asked here."""
    approvals, question = host.ctx.use(Approvals), _question(halted, host.ctx)
    answer = approvals.collect(halted.approval)
    if (answer is None or answer.silent) and approvals.route() == "wait":
        approvals.withdraw(halted.approval)
        answer = await approvals.ask(replace(question, timeout_s=host.approval_s))
    if answer is None:
        to_allow = f"clawkit approvals resolve {halted.approval[:8]} allow-once"
        raise no_approver(question.title, to_allow)
    rules, by = halted.rules, answer.by
    if answer.verdict == "allow" and rules.required_approver not in ("", by):
        wanted = f"{rules.required_approver!r}, not by {by!r}"
        raise v.PipelineSyntaxError(f"the approval must be given by {wanted}")
    others = ("", rules.initiated_by)
    if answer.verdict == "allow" and rules.require_different_approver and by in others:
        raise v.PipelineSyntaxError(f"the approval must be given by another person than {by!r}")
    return answer


def _check_response(response: v.Value, halted: Halted) -> None:
    schema = halted.request["responseSchema"]
    errors = list(validator_for(schema, "responseSchema").iter_errors(response))
    if errors:
        said = [f"/{'/'.join(map(str, e.instance_path))}: {e.message}" for e in errors[:10]]
        raise v.PipelineSyntaxError(f"response failed schema validation at {'; '.join(said)}")


def make_tool(approval_s: float) -> Tool:
    """The tool; `approval_s` is how long it waits for a person."""
    run = partial(execute, approval_s=approval_s)
    return Tool(NAME, _DESCRIPTION, Params, run, label="Pipeline", paths=("cwd",))
