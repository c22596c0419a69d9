"""code_execution: run Python or JavaScript in a persistent interpreter."""

import os
from collections.abc import Sequence
from functools import partial
from typing import Annotated, Any

import msgspec

from clawkit.approvals.protocols import (
    Admitted,
    Confines,
    ExecGate,
    ExecRequest,
    ScriptFile,
    Waiting,
)
from clawkit.code.protocols import Interpreters, Language, Ran
from clawkit.config.model import Config
from clawkit.config.sections.tools import Exec
from clawkit.content import Block, Image, Text
from clawkit.core.context import Context, Scope
from clawkit.core.result import Result
from clawkit.core.tool import Effect, Tool
from clawkit.errors import ToolAuthorizationError, ToolError, ToolInputError
from clawkit.fs.protocols import WorkspaceFiles, read_all
from clawkit.media.protocols import MAX_PICTURE_BYTES
from clawkit.process.protocols import BaseEnvironment, Commands, Launch
from clawkit.text import printable
from clawkit.tools import _commands as _c
from clawkit.tools._params import doc

MAX_IMAGES = 4
_MAX_NAME = 500
MAX_CODE = 128 * 1024
"""Maximum bytes of code in one call; more belongs in a file."""
TIMEOUT_S, MAX_TIMEOUT_S = 30, 600
_PROGRAMS: dict[Language, str] = {"python": "python3 -I -u -", "javascript": "node -"}
"""Commands that would run code from standard input."""
_DESCRIPTION = (
    "Run Python (or JavaScript with node) in a persistent interpreter: variables, imports and "
    "functions are available in the next call. Returns what was printed, the value of the last "
    "expression, or the traceback; an exception does not lose state. The working directory is the "
    "workspace. New images and open matplotlib figures are shown, other new files are listed. "
    "await works at top level; input() reads end of file."
)


class Params(msgspec.Struct, frozen=True, forbid_unknown_fields=True, rename="camel"):
    code: Annotated[str, doc("The code to run")] = ""
    language: Annotated[Language, doc("Language of the code")] = "python"
    reset: Annotated[
        bool, doc("Start with a fresh interpreter; without code, only stop the old one")
    ] = False
    timeout_seconds: Annotated[
        float, doc(f"Seconds until it is interrupted, at most {MAX_TIMEOUT_S:g}", gt=0)
    ] = TIMEOUT_S
    task: Annotated[str, doc("Task for a remote provider; not available here")] = ""


async def execute(params: Params, ctx: Context, settings: Exec) -> Result:
    if params.task:
        why = "task: this build has no remote provider for tasks"
        raise ToolInputError(f"{why}; write the code yourself and send it as code")
    size = len(_c.encode("code", params.code, "; write it as an escape"))
    large = f"is {size:,} bytes long; the limit is {MAX_CODE:,}"
    for is_wrong, why in (
        (not params.code.strip() and not params.reset, "is empty; send the code to run"),
        ("\0" in params.code, "contains a NUL character; write it as an escape, such as \\0"),
        (size > MAX_CODE, f"{large}; write it to a file in the workspace and import that"),
    ):
        if is_wrong:
            raise ToolInputError(f"code: {why}")
    interpreters, owner = ctx.use(Interpreters), _c.owner_of(ctx.scope)
    if params.reset and not params.code.strip():
        language, was_there = params.language, await interpreters.reset(owner, params.language)
        said = "its variables are lost" if was_there else "none was running"
        said = f"Interpreter reset ({language}): {said}. The next call starts a fresh one."
        return Result.text(said, status="completed", language=language, reset=was_there)
    request = await _request(params, ctx, settings)
    # Every call needs its own decision, because every call is another program: the interpreter's
    # command line is always the same.
    admitted = await ctx.use(ExecGate).admit(request, _no_preflight)
    if isinstance(admitted, Waiting):
        ctx.use(ExecGate).later(_follow(admitted, request, params, ctx))
        return _c.say_waiting(admitted, request, "The code")
    return await _run(params, request, ctx, admitted)


async def _request(params: Params, ctx: Context, settings: Exec) -> ExecRequest:
    """The request as `exec` would make it, so that people and rules see the code itself."""
    from clawkit.approvals.effective_policy import resolve_host
    from clawkit.process.environ import build

    if problem := ctx.use(Confines).problem:
        raise ToolAuthorizationError(problem, reason="sandbox")
    target = resolve_host(
        settings.host,
        None,
        sandboxed=ctx.scope.sandboxed,
        elevated=False,
        available=ctx.use(Commands).hosts,
        node="",
    )
    ctx.use(Commands).prepare(target.host)
    base = await ctx.use(BaseEnvironment).variables()
    extra = {"CLAWKIT_SHELL": "code_execution", "TERM": "dumb"}
    return ExecRequest(
        command=as_command(params.language, params.code),
        cwd=ctx.base,
        env=build(base, {}, path=base["PATH"], extra=extra),
        host=target.host,
        wanted=target.wanted,
        agent=ctx.scope.agent,
        session=ctx.scope.session,
        call_id=ctx.call_id,
    )


def as_command(language: Language, code: str) -> str:
    """A command that would run the code in a fresh interpreter."""
    return _c.with_input(_PROGRAMS[language], code)


async def _run(params: Params, request: ExecRequest, ctx: Context, admitted: Admitted) -> Result:
    interpreters, owner = ctx.use(Interpreters), _c.owner_of(ctx.scope)
    if params.reset:
        await interpreters.reset(owner, params.language)
    launch = Launch(
        text="",
        cwd=request.cwd,
        env={**request.env, **admitted.env},
        programs=admitted.programs,
        hold=admitted.hold,
    )
    timeout_s = min(params.timeout_seconds, MAX_TIMEOUT_S)
    ran = await interpreters.run(
        owner, params.language, params.code, host=admitted.host, launch=launch, timeout_s=timeout_s
    )
    notes = [f"Warning: {admitted.warning}"] if admitted.warning else []
    return await _show(ran, params.language, timeout_s, notes, ctx)


async def _no_preflight(_scripts: Sequence[ScriptFile]) -> None:
    """There are no script files to check."""


async def _follow(waiting: Waiting, request: ExecRequest, params: Params, ctx: Context) -> None:
    run, words = partial(_run, params, request, ctx), ("code_execution", "The code")
    result = await _c.run_when_allowed(run, waiting, request, ctx, words)
    if result is not None:
        _c.notify_later(waiting, ctx, result)


class _HeldOutput:
    def __init__(self, text: str) -> None:
        self._data = text.encode("utf-8", "replace")
        self.size = len(self._data)

    async def read(self, start: int, size: int) -> bytes:
        return self._data[start : start + size]


async def _show(
    ran: Ran, language: Language, timeout_s: float, notes: list[str], ctx: Context
) -> Result:
    """The result of a call. Data from the child is untrusted: it is cleaned and cut here."""
    from clawkit.process.output_text import shown

    stdout, stderr, value, traceback = [
        (await shown(_HeldOutput(each or ""), _c.FINISHED)).text.rstrip()
        for each in (ran.stdout, ran.stderr, ran.value, ran.traceback)
    ]
    files = [name for name in map(_name, ran.files) if name]
    images, shown_files, missing = await _images(ran, ctx)
    # In the order of a notebook.
    labelled = f"stderr:\n{stderr}" if stderr else ""
    text = "\n\n".join(filter(None, (stdout, labelled, value and f"=> {value}", traceback)))
    cut = await _c.fitted(ctx, _c.FINISHED, lambda cap: shown(_HeldOutput(text), cap))
    ends = list(notes)
    if ran.fresh:
        ends.append(f"[A fresh interpreter: {ran.fresh}. Variables of earlier calls are lost.]")
    if ran.lost:
        after = f" after {timeout_s:g} s" if ran.timed_out else ""
        ends.append(
            f"[The interpreter ended{after}: {ran.lost}. Its variables are lost; the next call "
            "starts a fresh one.]"
        )
    elif ran.timed_out:
        ends.append(f"[Interrupted after {timeout_s:g} s. Variables are kept.]")
    if files:
        more = f" and {ran.more_files} more" if ran.more_files else ""
        ends.append(f"[New files: {', '.join(files)}{more}]")
    ends += [f"[Not shown: {each}]" for each in missing]
    if ran.more_images:
        ends.append(f"[{ran.more_images} more images are not shown; use read to see them.]")
    has_failed = bool(ran.lost or ran.timed_out)
    body = cut.text.rstrip("\n") or ("" if has_failed else "(no output)")
    blocks: tuple[Block, ...] = (Text("\n\n".join(filter(None, (body, *ends)))), *images)
    details: dict[str, Any] = {
        "status": "failed" if has_failed else "completed",
        "language": language,
        "stdout": stdout,
        "stderr": stderr,
        "value": value if ran.value is not None else None,
        "traceback": traceback if ran.traceback is not None else None,
        "files": files,
        "images": shown_files,
        "stateKept": not ran.lost,
        "truncated": bool(ran.cut) or cut.truncated,
    }
    return Result(blocks, details | ({"timedOut": True} if ran.timed_out else {}))


def _name(path: str) -> str:
    """A path from the child, escaped for display; empty if it is not below the workspace."""
    parts = path.split("/")
    if not path or len(path) > _MAX_NAME or os.path.isabs(path) or ".." in parts:
        return ""
    return printable(path, "")


async def _images(ran: Ran, ctx: Context) -> tuple[list[Image], list[str], list[str]]:
    """Images for the model, the paths of those that are files, and what cannot be shown."""
    from clawkit.tools._show import fit_picture, image_block

    blocks: list[Image] = []
    paths: list[str] = []
    sources: list[tuple[str, str | bytes]] = [
        *((f"figure {number}", figure) for number, figure in enumerate(ran.figures, 1)),
        *((path, path) for path in ran.images if _name(path)),
    ]
    missing = [name for name, _ in sources[MAX_IMAGES:]]
    for name, source in sources[:MAX_IMAGES]:
        try:
            data = source if isinstance(source, bytes) else await _read(source, ctx)
            picture = await fit_picture(data, ctx)
        except ToolError as error:
            missing.append(f"{printable(name, '')}: {error}")
            continue
        blocks.append(image_block(picture))
        if isinstance(source, str):
            paths.append(source)
    return blocks, paths, missing


async def _read(path: str, ctx: Context) -> bytes:
    """Read a file that the child named, if it is in the workspace and rules permit it."""
    path = os.path.join(ctx.base, path)
    if not ctx.permits(path):
        raise ToolError("denied by rules")
    async with ctx.use(WorkspaceFiles).open(path) as file:
        return await read_all(file, MAX_PICTURE_BYTES)


def effects(_params: Params, _ctx: Context) -> tuple[Effect, ...]:
    return (Effect("exec"),)


def make_tool(config: Config, scope: Scope) -> Tool:
    return Tool(
        name="code_execution",
        label="Code",
        description=_DESCRIPTION,
        parameters=Params,
        execute=partial(execute, settings=_c.exec_settings(config, scope)),
        effects=effects,
        aliases={"timeout": "timeoutSeconds", "timeout_seconds": "timeoutSeconds"},
        hidden=frozenset(("task",)),
    )
