"""What exec and process say about commands, in words and in details."""

from __future__ import annotations

import time
from collections.abc import Awaitable, Callable
from typing import Any, Protocol, TypeVar

from clawkit.core.context import Context, Scope
from clawkit.process.base import Command, Exit, Left, Reason
from clawkit.text import human_size, result_cap, weigh, weight_cap

FINISHED = 100_000
"""Characters of a finished command's output; all of it is in a file when it is more."""
PENDING = 10_000
"""Characters of new output that a poll gives."""
TAIL = 2_000
"""Characters of the end of the output, in lists and while a command runs."""
_NOTE = 1_500
"""Room for what is said beside the output."""
_BIG = 64 * 1024**2

FAILURES: dict[Reason, str] = {
    "not-found": "shell-command-not-found",
    "not-executable": "shell-not-executable",
    "overall-timeout": "overall-timeout",
    "no-output-timeout": "no-output-timeout",
    "signal": "signal",
    "out-of-memory": "out-of-memory",
    "process-limit": "process-limit",
    "manual-cancel": "aborted",
    "spawn-error": "runtime-error",
    "lost": "runtime-error",
}


class _Part(Protocol):
    @property
    def text(self) -> str: ...


T = TypeVar("T", bound=_Part)


def owner_of(scope: Scope) -> str:
    """Whose commands these are: an agent's, and those of a sub-agent its own."""
    return scope.agent if not scope.depth else f"{scope.agent}/{scope.session}"


def cap_of(ctx: Context, most: int) -> int:
    """Characters of output that a result has room for."""
    return min(most, max(1_000, result_cap(ctx.scope.context_window) - _NOTE))


async def fitted(ctx: Context, most: int, make: Callable[[int], Awaitable[T]]) -> T:
    """A part of the output of at most so many characters, made again with fewer while the model
    would have no room for it: some alphabets take more of it than others."""
    cap = cap_of(ctx, most)
    room = max(_NOTE // 2, weight_cap(ctx.scope.context_window) - _NOTE)
    part = await make(cap)
    while (weight := weigh(part.text)) > room:
        cap = min(cap, len(part.text)) * room // weight
        part = await make(cap)
    return part


def describe_exit(command: Command, exit_: Exit) -> dict[str, Any]:
    """The end of a command, for programs."""
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
    if exit_.status == "failed":
        details["failureKind"] = FAILURES[exit_.reason]
        details["timedOut"] = exit_.reason in ("overall-timeout", "no-output-timeout")
        details["noOutputTimedOut"] = exit_.reason == "no-output-timeout"
    if command.left:
        details["leftRunning"] = [describe_left(each) for each in command.left]
    return details


def describe_running(command: Command) -> dict[str, Any]:
    """What can be done with a command now and since when it is silent, for programs."""
    idle_s = command.idle_s
    last = round((time.time() - idle_s) * 1000) if command.output.size else None
    return {
        "stdinWritable": command.can_write,
        "waitingForInput": command.waits_for_input,
        "idleMs": round(idle_s * 1000),
        "lastOutputAt": last,
    }


def describe_left(left: Left) -> dict[str, Any]:
    """A process that was left running, for programs."""
    stuck = {"couldNotBeEnded": True} if left.is_stuck else {}
    return {"pid": left.pid, "name": left.name, **stuck}


def describe_output(command: Command) -> dict[str, Any]:
    """How much a command wrote and where all of it is, for programs."""
    output = command.output
    details: dict[str, Any] = {"outputBytes": output.size + output.dropped}
    if output.path:
        details["spillPath"] = output.path
        details["spillBytes"] = output.size
    if output.dropped:
        details["droppedBytes"] = output.dropped
    return details


def say_exit(command: Command, exit_: Exit) -> str:
    """How a command ended, for the model; empty when there is nothing to say."""
    said = [text] if (text := _say_reason(command, exit_)) else []
    if exit_.note:
        said.append(f"({exit_.note})")
    if command.left:
        left = command.left
        names = ", ".join(f"{each.name} (pid {each.pid})" for each in left[:5])
        names += f" and {len(left) - 5} more" if len(left) > 5 else ""
        if left[0].is_stuck:
            said.append(f"[Could not be ended: {names}. Perhaps it runs as another user.]")
        else:
            said.append(
                f"[Left running: {names}. It ends when clawkit does; "
                f"process kill with sessionId {command.id} ends it now.]"
            )
    return "\n".join(said)


def _say_reason(command: Command, exit_: Exit) -> str:
    launch = command.launch
    after = f" after {launch.timeout_s:g} s" if launch.timeout_s else ""
    match exit_.reason:
        case "exit":
            return f"Command exited with code {exit_.code}" if exit_.code else ""
        case "not-found":
            return (
                "Command not found (exit code 127): the shell knows no program of that name; look "
                "at the spelling, at PATH, and whether it is installed"
            )
        case "not-executable":
            return (
                "Command not executable (exit code 126): the file is there but cannot be run; see "
                "its mode (chmod +x), or name its interpreter"
            )
        case "overall-timeout":
            return (
                f"Command timed out{after} and was ended. Look at what "
                "it has done already before you run it again; for long work use background, or a "
                "larger timeout"
            )
        case "no-output-timeout":
            return f"Command was ended: it wrote nothing for {launch.quiet_s or 0:g} s"
        case "out-of-memory":
            most = f"; it had {human_size(exit_.memory)} at most" if exit_.memory > _BIG else ""
            return f"Command was ended by the system, which had no memory left{most}"
        case "process-limit":
            return "Command was ended: it started too many processes"
        case "manual-cancel":
            return "Command was ended on request"
        case "signal":
            return f"Command was ended by the signal {exit_.signal}"
        case "lost":
            return "Command was lost: the program that keeps commands was killed"
        case _:
            return "Command could not be started"


def say_spill(command: Command, omitted: int) -> str:
    """Where the rest of the output is, for the model; empty when all of it was shown."""
    output = command.output
    said = []
    if omitted and output.path:
        said.append(
            f"[All {human_size(output.size)} are in {output.path}; "
            f"process log with sessionId {command.id} pages through them.]"
        )
    if output.dropped:
        said.append(f"[Another {human_size(output.dropped)} came later and were not kept.]")
    return "\n".join(said)
