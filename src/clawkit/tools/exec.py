"""exec: run a shell command, in the foreground or the background."""

import os
import re
from collections.abc import Awaitable, Callable, Sequence
from functools import partial
from typing import TYPE_CHECKING, Annotated

import msgspec
from msgspec import Meta, structs

from clawkit.approvals.protocols import (
    Admitted,
    Confines,
    ExecGate,
    ExecRequest,
    ScriptFile,
    Waiting,
)
from clawkit.config.model import Config
from clawkit.config.sections.sandbox import Network
from clawkit.config.sections.tools import Ask, Exec, Host, Security
from clawkit.core.context import Context, InForce, Scope
from clawkit.core.result import Result
from clawkit.core.tool import Effect, Tool
from clawkit.errors import ToolAuthorizationError, ToolInputError
from clawkit.process.protocols import (
    NO_GRANTS,
    BaseEnvironment,
    Commands,
    Exit,
    Grants,
    Launch,
    NoTerminalError,
)
from clawkit.redact import Redactor
from clawkit.tools import _commands as _c
from clawkit.tools._params import doc

if TYPE_CHECKING:
    from clawkit.approvals.effective_policy import ExecTarget
    from clawkit.process.command import Command

_ABOUT = (
    " Commands run in a sandbox: they can change only the workspace and temporary files, cannot "
    "read credentials such as ~/.ssh, and have {network}. If a command fails because of that, send "
    "it again with access (hosts, files, directories) or elevated; a person is asked to approve."
)
_NETWORKS: dict[Network, str] = {
    "none": "no network access",
    "allowlist": "network access to listed hosts only",
    "full": "network access",
}


class ExecAccess(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """What a command needs beyond the sandbox."""

    hosts: Annotated[list[str], doc("Host names to connect to")] = []
    read: Annotated[list[str], doc("Hidden files or directories to read")] = []
    write: Annotated[list[str], doc("Files or directories outside the workspace to change")] = []


def read_access(access: ExecAccess, ctx: Context) -> Grants:
    """The requested grants. Raises `ToolInputError` for missing paths, for too broad requests, and
    for access that the sandbox cannot grant."""
    if access == ExecAccess():
        return NO_GRANTS
    read, write = _real_paths("read", access.read, ctx), _real_paths("write", access.write, ctx)
    home = os.path.expanduser("~")
    for path in write:
        if f"{home}/".startswith(f"{path.rstrip('/')}/"):
            raise ToolInputError(
                f"access.write: {path!r} contains the home directory; name only what you need"
            )
    if access.hosts:
        from clawkit.net.host_rules import check_host

        if problem := next(filter(None, map(check_host, access.hosts)), None):
            raise ToolInputError(f"access.hosts: {problem}")
    grants = Grants(hosts=tuple(access.hosts), read=read, write=write)
    if problem := ctx.use(Confines).why_not_granted(grants):
        raise ToolInputError(f"access: {problem}; send elevated: true to ask for the host instead")
    return grants


def _real_paths(name: str, paths: Sequence[str], ctx: Context) -> tuple[str, ...]:
    found = []
    for path in paths:
        if not path or "\0" in path:
            raise ToolInputError(f"access.{name}: {path!r} is not a path")
        found.append(os.path.realpath(os.path.join(ctx.base, os.path.expanduser(path))))
        if not os.path.exists(found[-1]):
            raise ToolInputError(f"access.{name}: {found[-1]!r} does not exist")
    return tuple(found)


_PLAIN = r"[A-Za-z0-9_./:=@%+,\-~ ]+"
"""Plain words: no quotes, variables, globs, redirections or other shell syntax."""
_READERS = frozenset(
    (
        *("sleep", "true", "false", "echo", "pwd", "test", "seq", "whoami", "id", "uname"),
        *("ls", "cat", "head", "tail", "wc", "stat", "du", "df", "basename", "dirname"),
        *("realpath", "readlink", "cmp", "diff", "md5sum", "sha1sum", "sha256sum", "which"),
        *("nproc", "uptime", "ps", "free", "grep", "egrep", "fgrep", "cut", "tr"),
    )
)
"""Programs that change nothing, with any options."""


def only_reads(command: str) -> bool:
    """Whether a command is a chain of simple commands that only read."""
    steps = re.split(r"&&|\|\|?|;", command.strip())
    return all(
        (words := step.split()) and words[0] in _READERS and re.fullmatch(_PLAIN, step)
        for step in steps
    )


MAX_COMMAND = 128 * 1024
"""Bytes of a command: the kernel's limit for one argument. More belongs in a file."""
MIN_YIELD_MS, MAX_YIELD_MS = 10, 120_000
UPDATE_S = 0.5
_DESCRIPTION = (
    "Run a command with bash and return its output (stdout and stderr together) and exit status. "
    "A command that takes longer than yieldMs continues in the background and its sessionId is "
    "returned: follow it with the process tool. Use background for servers and other long work, "
    "pty for programs that need a terminal. A command in the foreground has no input. Each call "
    "starts a new shell: directory and variables are not kept. Long output is cut in the middle "
    "and saved to a file."
)
_Seconds = Annotated[float, Meta(ge=0, le=10**9)]


class Params(msgspec.Struct, frozen=True, forbid_unknown_fields=True, rename="camel"):
    command: Annotated[str, doc("Command for bash", min_length=1)]
    workdir: Annotated[str, doc("Directory to run in, in the workspace unless absolute")] = ""
    env: Annotated[dict[str, str], doc("Environment variables to set for the command")] = {}
    yield_ms: Annotated[
        Annotated[float, Meta(ge=0)] | None,
        doc("Milliseconds after which a running command continues in the background"),
    ] = None
    background: Annotated[
        bool, doc("Run in the background; its input stays open for the process tool")
    ] = False
    detach: Annotated[bool, doc("With background: keep it running when clawkit exits")] = False
    timeout: Annotated[_Seconds | None, doc("Seconds after which it is killed; 0 for no limit")] = (
        None
    )
    no_output_timeout: Annotated[
        _Seconds | None, doc("Seconds without output after which it is killed")
    ] = None
    pty: Annotated[bool, doc("Run in a terminal, for programs that draw or ask")] = False
    columns: Annotated[int, doc("Width of the terminal", ge=20, le=500)] = 120
    rows: Annotated[int, doc("Height of the terminal", ge=5, le=200)] = 30
    elevated: Annotated[
        bool, doc("Run on the host, outside the sandbox; a person is asked to approve")
    ] = False
    access: Annotated[
        ExecAccess, doc("What the command needs beyond the sandbox; a person is asked to approve")
    ] = ExecAccess()
    host: Annotated[Host | None, doc("Where to run it")] = None
    node: Annotated[str, doc("Node to run it on, with host node")] = ""
    security: Annotated[
        Security | None, doc("Which commands may run; can only be made stricter")
    ] = None
    ask: Annotated[Ask | None, doc("When a person is asked; can only be made stricter")] = None


async def execute(params: Params, ctx: Context, config: Config, settings: Exec) -> Result:
    _check(params)
    in_force = ctx.use(InForce)
    can_wait = "process" in in_force.tools
    warnings = [] if can_wait else _warn_ignored(params)
    background = params.background and can_wait
    target = _find_target(params, ctx, config, settings)
    ctx.use(Commands).prepare(target.host)
    launch = await _prepare(params, ctx, settings, background=background)
    if problem := _cwd_problem(launch.cwd):
        said = f"workdir {launch.cwd!r} {problem}; the command was not run"
        failed = {"exitCode": None, "exitReason": "spawn-error", "failureKind": "runtime-error"}
        return Result.text(said, status="failed", **failed, error=said, cwd=launch.cwd)
    request = _request(params, ctx, launch, target)
    on_end = partial(_c.announce, ctx=ctx, settings=settings) if settings.notify_on_exit else None
    admitted = await ctx.use(ExecGate).admit(request, partial(_preflight, ctx))
    if isinstance(admitted, Waiting):
        # `_follow` notifies of every outcome, so the command itself must not.
        run = partial(_start, launch, warnings, ctx, background=True, on_end=None)
        ctx.use(ExecGate).later(_follow(admitted, request, run, ctx, settings))
        return _c.say_waiting(admitted, request, "The command")
    command = await _start(launch, warnings, ctx, admitted, background=background, on_end=on_end)
    if background:
        return _c.say_running(command, ctx, warnings)
    yield_ms = settings.background_ms if params.yield_ms is None else params.yield_ms
    yield_s = min(max(yield_ms, MIN_YIELD_MS), MAX_YIELD_MS) / 1000
    stays = not can_wait or (in_force.is_one_shot and params.yield_ms is None)
    exit_ = await _watch(command, ctx, None if stays else yield_s)
    if exit_ is None:
        command.background = True
        return _c.say_running(command, ctx, warnings)
    return await _c.say_done(command, exit_, ctx, warnings)


def _check(params: Params) -> None:
    size = len(_c.encode("command", params.command, errors="surrogateescape"))
    large = f"is {size:,} bytes long, over {MAX_COMMAND - 1:,}; write it to a file and run that"
    terminal = "cannot be combined with pty, whose terminal closes when clawkit exits"
    for name, is_wrong, why in (
        ("command", not params.command.strip(), "must not be empty"),
        ("command", "\0" in params.command, "must not contain a NUL character"),
        ("command", size >= MAX_COMMAND, large),
        ("workdir", params.workdir.isspace(), "must not be blank; leave it out for the workspace"),
        ("detach", params.detach and not params.background, "requires background: true"),
        ("detach", params.detach and params.pty, terminal),
    ):
        if is_wrong:
            raise ToolInputError(f"{name}: {why}")


def _warn_ignored(params: Params) -> list[str]:
    has_yield = params.yield_ms is not None
    given = {"background": params.background, "yieldMs": has_yield, "detach": params.detach}
    names = " and ".join(name for name, is_given in given.items() if is_given)
    why = "ignored: without the process tool, commands run to completion"
    return [f"Warning: {names} {why}"] if names else []


def _find_target(params: Params, ctx: Context, config: Config, settings: Exec) -> "ExecTarget":
    """Where the command runs. Raises if it may not run there."""
    from clawkit.approvals.effective_policy import check_elevated, resolve_host

    if problem := ctx.use(Confines).problem:
        raise ToolAuthorizationError(problem, reason="sandbox")
    level = ""
    if params.elevated:
        level = check_elevated(config, ctx.scope, local=not ctx.scope.channel)
    target = resolve_host(
        settings.host,
        params.host,
        sandboxed=ctx.scope.sandboxed,
        elevated=bool(level),
        available=ctx.use(Commands).hosts,
        node=params.node,
    )
    return target if level != "full" else structs.replace(target, leaves=False)


async def _preflight(ctx: Context, scripts: Sequence[ScriptFile]) -> None:
    """Raises `ToolInputError` for a script that cannot work, before anyone is asked about it."""
    if not scripts:
        return
    from clawkit.process.preflight import check, read_script

    read = partial(read_script, workspace=ctx.workspace, may_read=ctx.use(ExecGate).may_read)
    if problem := await check(scripts, read):
        raise ToolInputError(problem)


async def _prepare(params: Params, ctx: Context, settings: Exec, *, background: bool) -> Launch:
    from clawkit.process.environ import build, check_overrides

    overrides = check_overrides(params.env)
    extra = {"CLAWKIT_SHELL": "exec", "TERM": "xterm-256color" if params.pty else "dumb"}
    if "TERM" in overrides:
        del extra["TERM"]
    base = dict(await ctx.use(BaseEnvironment).variables())
    if params.pty:
        # The terminal of the command has its own size.
        base = {name: base[name] for name in base if name not in ("COLUMNS", "LINES")}
    timeout_s = settings.timeout_sec if params.timeout is None else params.timeout
    quiet = settings.no_output_timeout_sec
    detach = params.detach and background
    cwd = os.path.join(ctx.workspace, params.workdir) if params.workdir else ctx.workspace
    return Launch(
        text=params.command,
        cwd=ctx.use(Confines).locate(cwd) if params.workdir else cwd,
        env=build(base, overrides, path=base["PATH"], extra=extra),
        size=(params.columns, params.rows) if params.pty else None,
        open_input=background,
        timeout_s=None if detach and params.timeout is None else timeout_s or None,
        quiet_s=(quiet if params.no_output_timeout is None else params.no_output_timeout) or None,
        detach=detach,
        memory=_c.cap_of(ctx, _c.FINISHED),
    )


def _cwd_problem(cwd: str) -> str:
    if os.path.isdir(cwd):
        return ""
    if os.path.basename(cwd) == "~" or "/~/" in cwd:
        return "does not exist (~ is not expanded here)"
    return "is not a directory" if os.path.exists(cwd) else "does not exist"


def _request(params: Params, ctx: Context, launch: Launch, target: "ExecTarget") -> ExecRequest:
    # Shown in the prompt, and approved together with the command.
    has_terminal = launch.size is not None
    modes = {
        "background": launch.open_input,
        "detach": launch.detach,
        "pty": has_terminal,
        "stdin": has_terminal or (launch.open_input and not launch.detach),
    }
    return ExecRequest(
        command=params.command,
        cwd=launch.cwd,
        env=launch.env,
        assigned=tuple(params.env),
        host=target.host,
        agent=ctx.scope.agent,
        session=ctx.scope.session,
        call_id=ctx.call_id,
        security=params.security,
        ask=params.ask,
        wanted=target.wanted,
        leaves=target.leaves,
        access=read_access(params.access, ctx) if target.wanted != "host" else NO_GRANTS,
        modes=tuple(mode for mode, is_set in modes.items() if is_set),
    )


async def _start(
    launch: Launch,
    warnings: list[str],
    ctx: Context,
    admitted: Admitted,
    *,
    background: bool,
    on_end: Callable[["Command"], None] | None,
) -> "Command":
    if admitted.warning:
        warnings.append(f"Warning: {admitted.warning}")
    launch = launch._replace(
        text=admitted.run,
        typed=launch.text,
        programs=admitted.programs,
        hold=admitted.hold,
        env={**admitted.defaults, **launch.env, **admitted.env},
    )
    owner = _c.owner_of(ctx.scope)
    start = partial(ctx.use(Commands).start, owner=owner, background=background, on_end=on_end)
    try:
        return await start(admitted.host, launch)
    except NoTerminalError as error:
        warnings.append(f"Warning: running without a terminal: {error}")
        plain = launch._replace(size=None, env={**launch.env, "TERM": "dumb"})
        return await start(admitted.host, plain)


async def _watch(command: "Command", ctx: Context, seconds: float | None) -> Exit | None:
    """Wait for the command to end; None after `seconds`. Cancelling the call stops the command."""
    import asyncio

    from clawkit.core.tasks import unbroken

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
                tail = await _c.show_so_far(command, ctx.use(Redactor))
                facts = {"bytes": size, "elapsedMs": round(command.runtime_s * 1000)}
                await ctx.update(
                    Result.text(tail, status="running", sessionId=command.id, tail=tail, **facts)
                )
    except asyncio.CancelledError:
        await unbroken(ctx.use(Commands).forget(command))
        raise
    return command.exit  # it may have ended while its output was rendered


async def _follow(
    waiting: Waiting,
    request: ExecRequest,
    run: Callable[[Admitted], Awaitable["Command"]],
    ctx: Context,
    settings: Exec,
) -> None:
    command = await _c.run_when_allowed(run, waiting, request, ctx, ("exec", "Command"))
    if command is None:
        return
    said = f"Command {waiting.pending.slug} was approved."
    notice_s = settings.approval_running_notice_ms / 1000
    if notice_s and await command.wait(notice_s) is None:
        _c.notify_later(waiting, ctx, _c.say_running(command, ctx, [said]))
    exit_ = await command.wait()
    if exit_ is not None and command.announce:
        command.announce = False
        _c.notify_later(waiting, ctx, await _c.say_done(command, exit_, ctx, [said]))


def effects(params: Params, _ctx: Context) -> tuple[Effect, ...]:
    # Commands that only read can run concurrently. This does not affect approvals.
    return (Effect("read" if only_reads(params.command) else "exec"),)


def make_tool(config: Config, scope: Scope) -> Tool:
    settings = _c.exec_settings(config, scope)
    sandbox = config.agents.sandbox_of(scope.agent)
    sandboxed = sandbox.is_on(scope.session) and settings.host in ("auto", "sandbox")
    # The kernel does not report which accesses it denied, so the model has to know the limits.
    about = _ABOUT.format(network=_NETWORKS[sandbox.network]) if sandboxed else ""
    return Tool(
        name="exec",
        label="Run",
        description=f"{_DESCRIPTION}{about}",
        parameters=Params,
        execute=partial(execute, config=config, settings=settings),
        effects=effects,
        aliases={
            "cmd": "command",
            "cwd": "workdir",
            **dict.fromkeys(("timeoutSeconds", "timeout_seconds"), "timeout"),
        },
        paths=("workdir",),
        # Parameters for leaving the sandbox are offered only if there is one.
        hidden=frozenset(("host", "node") if sandboxed else ("host", "node", "elevated", "access")),
        needs={"background": "process", "yieldMs": "process", "detach": "process"},
    )
