"""What exec says of a command: that it runs, how it ended, that it was never started."""

from __future__ import annotations

from clawkit.config.sections.exec import Exec
from clawkit.core.context import Context
from clawkit.core.result import Result
from clawkit.process.base import Command, Exit
from clawkit.tools.commanding import (
    FINISHED,
    PENDING,
    TAIL,
    cap_of,
    describe_exit,
    describe_output,
    say_exit,
    say_spill,
)

_NOTICE = 400


def say_not_run(cwd: str, problem: str) -> Result:
    said = f"workdir {cwd!r} {problem}; the command was not run"
    return Result.text(
        said,
        status="failed",
        exitCode=None,
        exitReason="spawn-error",
        failureKind="runtime-error",
        error=said,
        cwd=cwd,
    )


def say_running(command: Command, ctx: Context, warnings: list[str]) -> Result:
    from clawkit.process.shape import tail_text

    tail = tail_text(command.output.tail(4 * PENDING), min(TAIL, cap_of(ctx, PENDING)))
    how = "process with action poll waits for its end, log shows its output, kill ends it"
    lives = " It lives on when clawkit ends." if command.launch.detach else ""
    said = f"Command still running (sessionId {command.id}, pid {command.pid}).{lives} {how}."
    text = "\n\n".join((*warnings, said, *([f"So far:\n{tail}"] if tail else [])))
    return Result.text(
        text,
        status="running",
        sessionId=command.id,
        pid=command.pid,
        startedAt=round(command.started * 1000),
        cwd=command.launch.cwd,
        tail=tail,
        followUp={"tool": "process", "action": "poll", "sessionId": command.id},
        **describe_output(command),
    )


async def say_done(command: Command, exit_: Exit, ctx: Context, warnings: list[str]) -> Result:
    from clawkit.process.shape import shown

    whole = await shown(command.output, FINISHED)
    cap = cap_of(ctx, FINISHED)
    part = whole if len(whole.text) <= cap else await shown(command.output, cap)
    said = say_exit(command, exit_)
    text = part.text.rstrip("\n") or ("" if said and exit_.status == "failed" else "(no output)")
    details = describe_exit(command, exit_)
    details["aggregated"] = whole.text.rstrip()
    details |= describe_output(command)
    if command.background:  # it can still be asked about
        details["sessionId"] = command.id
    details["truncated"] = whole.truncated
    notes = [each for each in (say_spill(command, part.omitted), said) if each]
    return Result.text("\n\n".join(each for each in (*warnings, text, *notes) if each), **details)


def announce(command: Command, *, ctx: Context, settings: Exec) -> None:
    """Tell the session that a command in the background has ended."""
    from clawkit.process.shape import tail_text

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
    ctx.notify(
        Result.text(
            f"{text}\n{tail}" if tail else text,
            sessionId=command.id,
            tail=tail,
            **describe_exit(command, exit_),
        )
    )
