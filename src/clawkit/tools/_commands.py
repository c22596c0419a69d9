"""Results that describe commands, shared by exec, process and code_execution."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from typing import TYPE_CHECKING, Any, Protocol, TypeVar

from clawkit.core.context import Context, Scope
from clawkit.core.result import Result
from clawkit.errors import ToolAuthorizationError, ToolError, ToolInputError
from clawkit.process.protocols import Exit, Grants, LeftoverProcess, Reason
from clawkit.text import human_size, nearest, result_cap, weigh, weight_cap

if TYPE_CHECKING:
    from clawkit.approvals.protocols import Admitted, ExecRequest, Waiting
    from clawkit.config.model import Config
    from clawkit.config.sections.tools import Exec
    from clawkit.process.command import Command
    from clawkit.process.terminal import Screen
    from clawkit.redact import Redactor

FINISHED = 100_000
"""Characters of a finished command's output in a result; longer output is kept in a file."""
PENDING = 10_000
TAIL = 2_000
"""Characters of the end of the output, in lists and while a command runs."""
_NOTE, _NOTICE = 1_500, 400
"""Characters reserved for text besides the output, and of output in a notification."""
_LIVE_BYTES = 16 * 1024
"""Bytes of output to redraw twice a second. Much more would take a third of a CPU."""
_BIG = 64 * 1024**2

_REASONS: dict[Reason, str] = {
    "exit": "Command exited with code {exit.code}",
    "not-found": "Command not found (exit code 127): check the spelling, PATH, and whether it is "
    "installed",
    "not-executable": "Command not executable (exit code 126): the file exists but cannot be run; "
    "check its mode (chmod +x), or name its interpreter",
    "overall-timeout": "Command timed out{after} and was killed\n[Check what it has already done "
    "before you run it again; for long work, use background or a larger timeout.]",
    "no-output-timeout": "Command was killed: no output for {quiet} s",
    "out-of-memory": "Command was killed: the system ran out of memory{most}",
    "process-limit": "Command was killed: it started too many processes",
    "manual-cancel": "Command was stopped on request",
    "signal": "Command was killed by {exit.signal}",
    "lost": "Command was lost: the program that starts commands was killed",
    "spawn-error": "Command could not be started",
}
TIMEOUTS: tuple[Reason, ...] = ("overall-timeout", "no-output-timeout")
_FAILURES: dict[Reason, str] = {
    "not-found": "shell-command-not-found",
    "not-executable": "shell-not-executable",
    "manual-cancel": "aborted",
    "spawn-error": "runtime-error",
    "lost": "runtime-error",
}
"""`failureKind` where it differs from the reason."""


class _Part(Protocol):
    @property
    def text(self) -> str: ...


R = TypeVar("R")
T = TypeVar("T", bound=_Part)


def owner_of(scope: Scope) -> str:
    """Owner of the commands: the agent, or the session of a sub-agent."""
    return scope.agent if not scope.depth else f"{scope.agent}/{scope.session}"


def cap_of(ctx: Context, most: int) -> int:
    """Characters of output that fit into a result, at most `most`."""
    return min(most, max(1_000, result_cap(ctx.scope.context_window) - _NOTE))


async def fitted(ctx: Context, most: int, make: Callable[[int], Awaitable[T]]) -> T:
    """Call `make` with a maximum of characters, and again with fewer while the text weighs too
    much: some scripts take more tokens per character than others."""
    cap = cap_of(ctx, most)
    room = max(_NOTE // 2, weight_cap(ctx.scope.context_window) - _NOTE)
    part = await make(cap)
    while (weight := weigh(part.text)) > room:
        cap = min(cap, len(part.text)) * room // weight
        part = await make(cap)
    return part


def describe_exit(command: Command, exit_: Exit) -> dict[str, Any]:
    launch = command.launch
    details: dict[str, Any] = {
        "status": exit_.status,
        "exitCode": exit_.code,
        "exitSignal": exit_.signal or None,
        "exitReason": exit_.reason,
        "durationMs": round(exit_.seconds * 1000),
        "cpuMs": round(exit_.cpu_s * 1000),
        "cwd": launch.cwd,
    }
    if launch.hold is not None:
        details["confined"] = True
        details["networkDenied"] = exit_.wanted_network
    if exit_.notes:
        details["notes"] = list(exit_.notes)
    if exit_.status == "failed":
        details["failureKind"] = _FAILURES.get(exit_.reason, exit_.reason)
        details["timedOut"] = exit_.reason in TIMEOUTS
        details["noOutputTimedOut"] = exit_.reason == "no-output-timeout"
    if command.left:
        details["leftRunning"] = [describe_left(each) for each in command.left]
    return details


def describe_left(left: LeftoverProcess) -> dict[str, Any]:
    stuck = {"couldNotBeEnded": True} if left.is_stuck else {}
    return {"pid": left.pid, "name": left.name, **stuck}


def name_left(left: Sequence[LeftoverProcess]) -> str:
    shown = ", ".join(f"{each.name} (pid {each.pid})" for each in left[:5])
    return f"{shown} and {len(left) - 5} more" if len(left) > 5 else shown


def describe_output(command: Command) -> dict[str, Any]:
    """Size of the output and where all of it is saved, for programs."""
    output = command.output
    details: dict[str, Any] = {"outputBytes": output.size + output.dropped}
    if output.path:
        details["spillPath"] = output.path
        details["spillBytes"] = output.size
    if output.dropped:
        details["droppedBytes"] = output.dropped
    return details


def say_exit(command: Command, exit_: Exit, *, names_hosts: bool = True) -> str:
    """How a command ended, for the model; empty on success without remarks. `names_hosts`: whether
    the sandbox can grant access to individual hosts."""
    said, launch = [], command.launch
    if exit_.reason != "exit" or exit_.code:
        text = _REASONS[exit_.reason].format(
            exit=exit_,
            after=f" after {launch.timeout_s:g} s" if launch.timeout_s else "",
            quiet=f"{launch.quiet_s or 0:g}",
            most=f"; it used up to {human_size(exit_.memory)}" if exit_.memory > _BIG else "",
        )
        said.append(text)
    if exit_.note:
        said.append(f"({exit_.note})")
    if exit_.wanted_network and exit_.code and not exit_.notes:
        hosts = 'access: {"hosts": ["name of the host"]}, or with ' if names_hosts else ""
        said.append(
            "[Network access is disabled in the sandbox. To ask the person for it, send the "
            f"command again with {hosts}elevated: true to run it on the host.]"
        )
    said += (f"[{note}]" for note in exit_.notes)
    if command.left:
        left = command.left
        names = name_left(left)
        if left[0].is_stuck:
            said.append(f"[Could not be killed: {names}. It may run as another user.]")
        else:
            said.append(
                f"[Left running: {names}. It stops when clawkit exits; "
                f"`process kill` with sessionId {command.id} stops it now.]"
            )
    return "\n".join(said)


async def last_drawn(command: Command, max_bytes: int) -> tuple[bytes, bool]:
    """The output to render a terminal's screen from, and whether earlier output was left out."""
    start = max(0, command.output.size - max_bytes)
    return await command.output.read(start, max_bytes), start > 0


async def show_so_far(command: Command, redactor: Redactor) -> str:
    """The screen of a command that has a terminal, else the end of its output."""
    from clawkit.core.tasks import in_thread
    from clawkit.process.output_text import clean, tail_text
    from clawkit.process.terminal import render

    tail = tail_text(command.output.tail(4 * TAIL), TAIL)
    if command.terminal is None:
        return tail
    data, is_cut = await last_drawn(command, _LIVE_BYTES)
    text = clean(data, cut_start=is_cut, cut_end=True)
    if redactor.strict(text) != text:
        return tail  # a secret split over two rows would not be recognised
    try:
        drawn: Screen = await in_thread(render, data, *command.terminal.size, cut=is_cut)
    except ToolError:
        return tail
    return "\n".join(drawn.lines).rstrip("\n")


def say_running(command: Command, ctx: Context, warnings: list[str]) -> Result:
    from clawkit.process.output_text import tail_text

    tail = tail_text(command.output.tail(4 * PENDING), min(TAIL, cap_of(ctx, PENDING)))
    how = "`process poll` shows new output and how it ended, `log` all output; `kill` stops it"
    lives = " It keeps running when clawkit exits." if command.launch.detach else ""
    pid = f", pid {command.pid}" if command.pid else ""
    said = f"Command still running (sessionId {command.id}{pid}).{lives} {how}."
    text = "\n\n".join((*warnings, said, *([f"So far:\n{tail}"] if tail else [])))
    return Result.text(
        text,
        status="running",
        sessionId=command.id,
        **({"pid": command.pid} if command.pid else {}),
        startedAt=round(command.started * 1000),
        cwd=command.launch.cwd,
        tail=tail,
        followUp={"tool": "process", "action": "poll", "sessionId": command.id},
        **describe_output(command),
    )


async def say_done(command: Command, exit_: Exit, ctx: Context, warnings: list[str]) -> Result:
    from clawkit.approvals.protocols import Confines  # not needed by `clawkit ps`
    from clawkit.process.output_text import shown

    whole = await shown(command.output, FINISHED)
    cap = cap_of(ctx, FINISHED)
    part = whole if len(whole.text) <= cap else await shown(command.output, cap)
    no_hosts = ctx.use(Confines).why_not_granted(Grants(hosts=("example.org",)))
    said = say_exit(command, exit_, names_hosts=not no_hosts)
    text = part.text.rstrip("\n") or ("" if said and exit_.status == "failed" else "(no output)")
    details = describe_exit(command, exit_)
    details["aggregated"] = whole.text.rstrip()
    details |= describe_output(command)
    if command.background:  # `process` can still show it
        details["sessionId"] = command.id
    details["truncated"] = whole.truncated
    output, spill = command.output, []
    if part.omitted and output.path:
        how = f"`process log` with sessionId {command.id} pages through it"
        spill.append(f"[All {human_size(output.size)} are in {output.path}; {how}.]")
    if output.dropped:
        spill.append(f"[Another {human_size(output.dropped)} of output was not saved.]")
    parts = (*warnings, text, "\n".join(spill), said)
    return Result.text("\n\n".join(filter(None, parts)), **details)


def announce(command: Command, *, ctx: Context, settings: Exec) -> None:
    """Notify the session that a command in the background has ended."""
    from clawkit.process.output_text import tail_text

    exit_ = command.exit
    if exit_ is None or ctx.scope.depth:
        return
    tail = tail_text(command.output.tail(4 * _NOTICE), _NOTICE)
    is_silent = exit_.reason == "exit" and not exit_.code and not command.output.size
    if is_silent and not settings.notify_on_exit_empty_success and not ctx.scope.channel:
        return
    word = "completed" if exit_.reason == "exit" and not exit_.code else "failed"
    said = say_exit(command, exit_).partition("\n")[0] or "exit code 0"
    text = f"Background command {command.id} ({command.name}) {word}: {said}"
    details = describe_exit(command, exit_) | {"sessionId": command.id, "tail": tail}
    ctx.notify(Result.text(f"{text}\n{tail}" if tail else text, **details))


def say_waiting(waiting: Waiting, request: ExecRequest, subject: str) -> Result:
    """The result while an approval is pending. `subject` names the waiting thing, such as `The
    command`."""
    pending = waiting.pending
    always = ["allow-always"] if pending.question.stored else []
    text = (
        f"Approval required (id {pending.slug}): {waiting.reason}. {subject} has not run. It runs "
        "as soon as a person approves it, and you will be notified; do not send it again."
    )
    return Result.text(
        text,
        status="approval-pending",
        approvalId=pending.id,
        approvalSlug=pending.slug,
        expiresAtMs=pending.expires_ms,
        allowedDecisions=["allow-once", *always, "deny"],
        host=request.host,
        command=pending.question.command,
        cwd=request.cwd,
        warningText=waiting.reason,
        toAllow=waiting.to_allow,
    )


async def run_when_allowed(
    run: Callable[[Admitted], Awaitable[R]],
    waiting: Waiting,
    request: ExecRequest,
    ctx: Context,
    words: tuple[str, str],
) -> R | None:
    """Run something when a person has approved it; if it is not run, notify the session and return
    None. `words` are the name of the tool and what it runs."""
    from clawkit.approvals.protocols import ExecGate

    tool, what = words
    try:
        return await run(await ctx.use(ExecGate).settle(waiting, request))
    except ToolAuthorizationError as error:
        said = f"{what} {waiting.pending.slug} was not run: {error}"
        notice = Result.text(said, status="blocked", deniedReason=error.reason)
    except ToolError as error:
        said = f"{what} {waiting.pending.slug} was approved but could not be run: {error}"
        notice = Result.error(tool, said)
    notify_later(waiting, ctx, notice)
    return None


def notify_later(waiting: Waiting, ctx: Context, notice: Result) -> None:
    """Notify the session of the outcome of a request that needed approval."""
    about = {"approvalId": waiting.pending.id, "approvalSlug": waiting.pending.slug}
    ctx.notify(Result(notice.content, {**notice.details, **about}))


def exec_settings(config: Config, scope: Scope) -> Exec:
    return config.tools.exec.merged(config.agents.get(scope.agent).tools.exec)


def encode(name: str, text: str, hint: str = "", errors: str = "strict") -> bytes:
    """Encode a parameter as UTF-8. Raises `ToolInputError` if that is not possible."""
    try:
        return text.encode("utf-8", errors)
    except UnicodeEncodeError as error:
        why = f"{name}: has a lone surrogate (half a character) at position {error.start}{hint}"
        raise ToolInputError(why) from None


def with_input(command: str, text: str) -> str:
    """The command, with a text as its input."""
    lines, end = frozenset(text.split("\n")), "EOF"
    while end in lines:
        end += "_"
    return f"{command} <<'{end}'\n{text}\n{end}"


def read_signal(text: str | int) -> tuple[int, str]:
    """Number and name of a signal given as TERM, SIGTERM or 15. Raises `ToolInputError`."""
    import signal

    known = {each.name.removeprefix("SIG"): each.value for each in signal.Signals}
    name = str(text).strip().upper().removeprefix("SIG")
    if name.isdecimal() and name.isascii() and len(name) < 4:
        number = int(name)
        if 1 <= number <= 64:
            names = [each for each, value in known.items() if value == number]
            return number, f"SIG{names[0] if names else number}"
    elif name in known:
        return known[name], f"SIG{name}"
    close = nearest(name, known, 1)
    hint = f"did you mean {close[0]}?" if close else "name one, such as INT, or its number, 1 to 64"
    raise ToolInputError(f"signal: unknown signal {str(text)[:40]!r}; {hint}")
