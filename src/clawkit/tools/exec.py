"""exec: a shell command, to its end or into the background."""

from __future__ import annotations

import os
from functools import partial
from typing import Annotated, NamedTuple

import msgspec
from msgspec import Meta

from clawkit.approvals.elevated import check_elevated
from clawkit.approvals.hosts import resolve_host
from clawkit.approvals.seam import Admitted, Gate, Request, Waiting
from clawkit.config.model import Config
from clawkit.config.sections.exec import Ask, Exec, Host, Security
from clawkit.core import approval
from clawkit.core.context import Context, InForce, Scope
from clawkit.core.effects import Effect
from clawkit.core.result import Result
from clawkit.core.tool import Tool
from clawkit.errors import ToolInputError
from clawkit.process.base import Command, Commands, Exit, Launch, NoTerminalError, Surroundings
from clawkit.tools.commanding import FINISHED, TAIL, cap_of, owner_of
from clawkit.tools.exec_effects import only_reads
from clawkit.tools.exec_later import run_later
from clawkit.tools.exec_output import announce, say_done, say_not_run, say_running

MAX_COMMAND = 128 * 1024
"""Bytes of a command that the system could still take; more belongs in a file."""
MIN_YIELD_MS, MAX_YIELD_MS = 10, 120_000
UPDATE_S = 0.5
_DESCRIPTION = (
    "Run a command with bash and return what it wrote (standard output and errors together) "
    "and how it ended. A command that takes longer than yieldMs goes on in the background and "
    "its sessionId is returned: watch it with the process tool. Use background for servers and "
    "other long work, pty for programs that need a terminal. Nothing can be typed into a "
    "command in the foreground: its input is empty. Each call is a new shell: directory and "
    "variables are not kept. Long output is cut in the middle and kept whole in a file."
)
_Seconds = Annotated[float, Meta(ge=0, le=10**9)]


class Params(msgspec.Struct, frozen=True, forbid_unknown_fields=True, rename="camel"):
    """Parameters of exec."""

    command: Annotated[str, Meta(description="What bash is to run", min_length=1)]
    workdir: Annotated[
        str, Meta(description="Directory to run in, in the workspace unless absolute")
    ] = ""
    env: Annotated[
        dict[str, str], Meta(description="Environment variables to set for the command")
    ] = {}
    yield_ms: Annotated[
        Annotated[float, Meta(ge=0)] | None,
        Meta(description="Milliseconds after which a running command goes to the background"),
    ] = None
    background: Annotated[
        bool, Meta(description="Go to the background at once; its input stays open for process")
    ] = False
    detach: Annotated[
        bool, Meta(description="With background: let it live on when clawkit ends")
    ] = False
    timeout: Annotated[
        _Seconds | None, Meta(description="Seconds after which it is ended; 0 for never")
    ] = None
    no_output_timeout: Annotated[
        _Seconds | None, Meta(description="Seconds without output after which it is ended")
    ] = None
    pty: Annotated[bool, Meta(description="Run in a terminal, for programs that draw or ask")] = (
        False
    )
    columns: Annotated[int, Meta(description="Width of the terminal", ge=20, le=500)] = 120
    rows: Annotated[int, Meta(description="Height of the terminal", ge=5, le=200)] = 30
    elevated: Annotated[bool, Meta(description="Run outside the sandbox, if you may")] = False
    host: Annotated[Host | None, Meta(description="Where to run it")] = None
    node: Annotated[str, Meta(description="Which node is to run it, with host node")] = ""
    security: Annotated[
        Security | None, Meta(description="Which commands may run; can only be made stricter")
    ] = None
    ask: Annotated[
        Ask | None, Meta(description="When a person is asked; can only be made stricter")
    ] = None


class _Settings(NamedTuple):
    """What the configuration says about commands of this run."""

    config: Config
    exec: Exec


async def execute(params: Params, ctx: Context, settings: _Settings) -> Result:
    commands = ctx.use(Commands)
    _check_command(params.command)
    _check_together(params)
    can_wait = "process" in ctx.use(InForce).tools
    warnings = [] if can_wait else list(_warn_ignored(params))
    background = params.background and can_wait
    host = await _find_host(params, ctx, settings, commands)
    commands.prepare(host)
    launch = await _prepare(params, ctx, settings.exec, background=background)
    if problem := _look_at(launch.cwd):
        return say_not_run(launch.cwd, problem)
    request = _request(params, ctx, launch, host)
    start = partial(_start, host, launch, warnings)
    admitted = await ctx.use(Gate).admit(request, partial(_preflight, launch))
    if isinstance(admitted, Waiting):
        return run_later(admitted, request, start, ctx, settings.exec)
    command = await start(ctx, settings.exec, admitted, background=background)
    if background:
        return say_running(command, ctx, warnings)
    exit_ = await _watch(command, ctx, _yield_s(params, settings.exec) if can_wait else None)
    if exit_ is None:
        command.to_background()
        return say_running(command, ctx, warnings)
    return await say_done(command, exit_, ctx, warnings)


def _check_command(command: str) -> None:
    if not command.strip():
        raise ToolInputError("command: is empty; say what to run")
    if "\0" in command:
        raise ToolInputError("command: contains a NUL character, which no command can")
    try:
        size = len(os.fsencode(command))
    except UnicodeEncodeError as error:
        raise ToolInputError(
            f"command: has half a character (a lone surrogate) at position {error.start}"
        ) from None
    if size >= MAX_COMMAND:
        raise ToolInputError(
            f"command: has {size:,} bytes, {MAX_COMMAND - 1:,} are possible; write it to a file "
            "and run that"
        )


def _check_together(params: Params) -> None:
    if params.workdir and not params.workdir.strip():
        raise ToolInputError("workdir: is blank; leave it out for the workspace")
    if params.detach and not params.background:
        raise ToolInputError("detach: needs background, since nobody could wait for the end of it")
    if params.detach and params.pty:
        raise ToolInputError(
            "detach: cannot be combined with pty, whose terminal ends with clawkit"
        )


def _warn_ignored(params: Params) -> list[str]:
    given = {
        "background": params.background,
        "yieldMs": params.yield_ms is not None,
        "detach": params.detach,
    }
    names = [name for name, is_given in given.items() if is_given]
    if not names:
        return []
    return [
        f"Warning: {' and '.join(names)} ignored: without the process tool a command runs to its "
        "end"
    ]


def _yield_s(params: Params, settings: Exec) -> float:
    wanted = settings.background_ms if params.yield_ms is None else params.yield_ms
    return min(max(wanted, MIN_YIELD_MS), MAX_YIELD_MS) / 1000


async def _find_host(params: Params, ctx: Context, settings: _Settings, commands: Commands) -> str:
    """Where the command runs; raises unless it may run there."""
    level = ""
    if params.elevated:
        level = check_elevated(settings.config, ctx.scope, local=not ctx.scope.channel)
    host = resolve_host(
        settings.exec.host,
        params.host,
        sandboxed=ctx.scope.sandboxed,
        elevated=bool(level),
        available=commands.hosts,
        node=params.node,
    )
    if level == "ask" and ctx.scope.sandboxed:
        await ctx.ask(
            approval.Ask(
                title=f"run outside the sandbox: {params.command[:200]}",
                description=f"The command would run on the {host} host, without the sandbox.",
                asked_by="elevated",
            )
        )
    return host


async def _preflight(launch: Launch) -> None:
    """Raises for a script that cannot work, before anybody is asked about it."""
    from clawkit.process.preflight import check, read_script

    if problem := await check(launch.text, launch.cwd, read_script):
        raise ToolInputError(problem)


async def _prepare(params: Params, ctx: Context, settings: Exec, *, background: bool) -> Launch:
    from clawkit.process.environ import build, check_overrides

    overrides = check_overrides(params.env)
    extra = {"CLAWKIT_SHELL": "exec", "TERM": "xterm-256color" if params.pty else "dumb"}
    if "TERM" in overrides:
        del extra["TERM"]
    base = dict(await ctx.use(Surroundings).variables())
    if params.pty:
        # Its terminal has a size of its own.
        for name in ("COLUMNS", "LINES"):
            base.pop(name, None)
    timeout_s = settings.timeout_sec if params.timeout is None else params.timeout
    quiet = settings.no_output_timeout_sec
    detach = params.detach and background
    return Launch(
        text=params.command,
        cwd=os.path.join(ctx.workspace, params.workdir) if params.workdir else ctx.workspace,
        env=build(base, overrides, path=base["PATH"], extra=extra),
        size=(params.columns, params.rows) if params.pty else None,
        open_input=background,
        timeout_s=None if detach and params.timeout is None else timeout_s or None,
        quiet_s=(quiet if params.no_output_timeout is None else params.no_output_timeout) or None,
        detach=detach,
        memory=cap_of(ctx, FINISHED),
    )


def _look_at(cwd: str) -> str:
    """What is wrong with a directory; empty when nothing is."""
    if os.path.isdir(cwd):
        return ""
    if os.path.basename(cwd) == "~" or "/~/" in cwd:
        return "does not exist (~ is not expanded here)"
    return "is not a directory" if os.path.exists(cwd) else "does not exist"


def _request(params: Params, ctx: Context, launch: Launch, host: str) -> Request:
    return Request(
        command=params.command,
        cwd=launch.cwd,
        env=launch.env,
        assigned=tuple(params.env),
        host=host,
        agent=ctx.scope.agent,
        session=ctx.scope.session,
        call_id=ctx.call_id,
        security=params.security,
        ask=params.ask,
    )


async def _start(
    host: str,
    launch: Launch,
    warnings: list[str],
    ctx: Context,
    settings: Exec,
    admitted: Admitted,
    *,
    background: bool,
) -> Command:
    commands, owner = ctx.use(Commands), owner_of(ctx.scope)
    if admitted.warning:
        warnings.append(f"Warning: {admitted.warning}")
    launch = launch._replace(
        text=admitted.run,
        typed=launch.text,
        programs=admitted.programs,
        env={**launch.env, **admitted.env},
        open_input=background,
    )
    on_end = partial(announce, ctx=ctx, settings=settings) if settings.notify_on_exit else None
    try:
        return await commands.start(host, launch, owner, background=background, on_end=on_end)
    except NoTerminalError as error:
        warnings.append(f"Warning: run without a terminal: {error}")
        plain = launch._replace(size=None, env={**launch.env, "TERM": "dumb"})
        return await commands.start(host, plain, owner, background=background, on_end=on_end)


async def _watch(command: Command, ctx: Context, seconds: float | None) -> Exit | None:
    """Its end, or None when the time was over first; ends it when the call is cancelled."""
    import asyncio

    from clawkit.core.bounded import unbroken
    from clawkit.process.shape import tail_text

    seen, waited = 0, 0.0
    try:
        while seconds is None or waited < seconds:
            step = UPDATE_S if seconds is None else min(UPDATE_S, seconds - waited)
            exit_ = await command.wait(step)
            if exit_ is not None:
                return exit_
            waited += step
            size = command.output.size
            if size != seen:
                seen = size
                tail = tail_text(command.output.tail(4 * TAIL), TAIL)
                facts = {"bytes": size, "elapsedMs": round(command.runtime_s * 1000)}
                await ctx.update(
                    Result.text(tail, status="running", sessionId=command.id, tail=tail, **facts)
                )
    except asyncio.CancelledError:
        await unbroken(ctx.use(Commands).forget(command))
        raise
    return None


def effects(params: Params, _ctx: Context) -> tuple[Effect, ...]:
    # Commands that only look can run side by side; whether they may run is not decided here.
    return (Effect("read" if only_reads(params.command) else "exec"),)


def make_tool(config: Config, scope: Scope) -> Tool:
    """The tool as this run has it."""
    override = config.agents.get(scope.agent).tools.exec
    settings = _Settings(config, config.tools.exec.merged(override))
    return Tool(
        name="exec",
        label="Run",
        description=_DESCRIPTION,
        parameters=Params,
        execute=partial(execute, settings=settings),
        effects=effects,
        aliases={
            "cmd": "command",
            "cwd": "workdir",
            "timeoutSeconds": "timeout",
            "timeout_seconds": "timeout",
        },
        paths=("workdir",),
        # What only makes sense with another place to run is offered when there is one.
        hidden=frozenset(("host", "node", "elevated")),
        needs={"background": "process", "yieldMs": "process", "detach": "process"},
    )
