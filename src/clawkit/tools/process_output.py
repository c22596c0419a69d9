"""What process tells about commands: which there are, what is new, lines of output, the screen."""

from __future__ import annotations

import time
from collections.abc import Sequence
from functools import partial
from typing import Any

from clawkit.core.context import Context
from clawkit.core.result import Result
from clawkit.errors import ToolInputError
from clawkit.process.base import Command, Exit
from clawkit.text import human_size, human_time, printable
from clawkit.tools.commanding import (
    FINISHED,
    PENDING,
    TAIL,
    describe_exit,
    describe_output,
    describe_running,
    fitted,
    say_exit,
)
from clawkit.tools.searching import fit

GATHER_S = 0.2
"""Output seldom comes alone: so long a poll that waits does so for what belongs to it."""
RETRY_MS = (5_000, 10_000, 30_000, 60_000)
"""When to ask again, by how often in a row there was nothing new."""
LABEL = 120
"""Characters of a command in the list."""


def tell_all(commands: Sequence[Command], ctx: Context) -> Result:
    """One row for each command."""
    if not commands:
        return Result.text("No commands in the background.", status="completed", sessions=[])
    rows = fit(map(_say_row, commands), ctx)
    text = "\n".join(rows)
    if left := len(commands) - len(rows):
        text += f"\n\n[{left} more do not fit here; clear or remove some of these]"
    sessions = [_describe(command) for command in commands[: len(rows)]]
    return Result.text(text, status="completed", sessions=sessions)


def _say_row(command: Command) -> str:
    from clawkit.process.slugs import shorten

    exit_ = command.exit
    flags = {
        "input-wait": command.waits_for_input,
        "terminal": command.terminal is not None,
        "detached": command.launch.detach,
        "left running": bool(command.left),
    }
    if exit_ is not None and (exit_.code or exit_.reason != "exit"):
        flags[f"exit {exit_.code}" if exit_.reason == "exit" else exit_.reason] = True
    status = "running" if exit_ is None else exit_.status
    marks = "".join(f" [{flag}]" for flag, is_set in flags.items() if is_set)
    label = shorten(printable(command.launch.shown.strip(), keep=""), LABEL)
    return f"{command.id}  {status:<9} {human_time(command.runtime_s):>7}{marks} :: {label}"


def _describe(command: Command) -> dict[str, Any]:
    from clawkit.process.shape import tail_text

    exit_, output = command.exit, command.output
    is_cut = output.size > 4 * TAIL
    tail = tail_text(output.tail(4 * TAIL), TAIL, cut_start=is_cut)
    details: dict[str, Any] = {
        "sessionId": command.id,
        "status": "running" if exit_ is None else exit_.status,
        "startedAt": round(command.started * 1000),
        "runtimeMs": round(command.runtime_s * 1000),
        "cwd": command.launch.cwd,
        "command": command.launch.shown,
        "name": command.name,
        "tail": tail,
        "truncated": is_cut or len(tail) == TAIL,
    }
    if exit_ is None:
        return details | {"pid": command.pid} | describe_running(command)
    details["endedAt"] = round((command.started + exit_.seconds) * 1000)
    details["timedOut"] = exit_.reason in ("overall-timeout", "no-output-timeout")
    return details | outcome(exit_)


def outcome(exit_: Exit) -> dict[str, Any]:
    """How a command ended, in details that are about something else."""
    return {
        "exitCode": exit_.code,
        "exitSignal": exit_.signal or None,
        "exitReason": exit_.reason,
    }


def say_end(command: Command, exit_: Exit) -> str:
    """How a command ended, also when all went well."""
    said = say_exit(command, exit_)
    if exit_.reason == "exit" and not exit_.code:
        said = f"Command exited with code 0\n{said}".rstrip()
    return said


async def tell_news(command: Command, ctx: Context, seconds: float, *, peek: bool) -> Result:
    """What is new, at the latest after some time; a peek leaves it new."""
    exit_, text, end, skipped = await _wait(command, ctx, seconds)
    if not peek:
        command.told = end
        command.empty_polls = 0 if text else command.empty_polls + 1
        command.announce = command.announce and exit_ is None
    said = [text.rstrip("\n") if text else "(no new output)"]
    details: dict[str, Any] = {"sessionId": command.id, "name": command.name, "aggregated": text}
    details |= describe_running(command) | describe_output(command)
    if skipped:
        said.insert(0, f"[{human_size(skipped)} before this left out here; log shows all lines]")
        details["skippedBytes"] = skipped
    if exit_ is not None:
        said.append(say_end(command, exit_))
        return Result.text("\n\n".join(said), **(details | describe_exit(command, exit_)))
    retry = RETRY_MS[min(max(command.empty_polls, 1), len(RETRY_MS)) - 1]
    still = f"Command still running after {human_time(command.runtime_s)}"
    if command.waits_for_input:
        idle = human_time(command.idle_s)
        still += f", silent for {idle}: it may wait for input; answer with submit or send-keys"
    elif not text:
        still += f"; poll again in {retry // 1000} s, or wait for it with timeout"
    text = "\n\n".join((*said, f"{still}."))
    return Result.text(text, status="running", retryInMs=retry, **details)


async def _wait(
    command: Command, ctx: Context, seconds: float
) -> tuple[Exit | None, str, int, int]:
    """How it ended, if it did; what is new; up to which place; and bytes that are left out."""
    from clawkit.process.shape import news

    until = time.monotonic() + seconds
    seen = command.told
    while True:
        left = until - time.monotonic()
        if left > 0 and command.exit is None:
            await command.wait_for_news(seen, left)
            if command.output.size > seen:
                await command.wait(min(GATHER_S, left))
        exit_, seen = command.exit, command.output.size
        tell = partial(news, command.output, command.told, final=exit_ is not None)
        part = await fitted(ctx, PENDING, tell)
        # What is only half there, or only moves the cursor, is no news yet.
        if part.text or exit_ is not None or time.monotonic() >= until:
            return exit_, *part


async def tell_lines(
    command: Command, ctx: Context, offset: int | None, limit: int | None
) -> Result:
    """Some lines of all that it wrote."""
    from clawkit.process.shape import page

    find = partial(page, command.output, offset, limit, known=command.counted)
    part = await fitted(ctx, FINISHED, find)
    command.counted = part.counted
    total, first, lines = part.total_lines, part.first, part.lines
    if not total:
        note = "(no output yet)" if command.exit is None else "(no output)"
    elif not lines:
        note = f"[nothing here: there are {total:,} lines, and the first has the offset 0]"
    else:
        note = f"lines {first + 1:,} to {first + lines:,} of {total:,}"
        note += ", as far as there was room" if part.truncated else ""
        if offset is not None and part.next_offset is not None:
            note += f"; go on with offset={part.next_offset}"
        elif offset is None and first:
            before = min(first, lines)
            note += f"; those before with offset={first - before} limit={before}"
        note = f"[{note}]"
    if dropped := command.output.dropped:
        note += f"\n[another {human_size(dropped)} came later and were not kept]"
    details = {
        "status": "running" if command.exit is None else "completed",
        "sessionId": command.id,
        "output": part.text,
        "total": command.output.size,
        "totalLines": total,
        "offset": first,
        "lines": lines,
        "truncated": part.truncated,
        "nextOffset": part.next_offset,
    }
    if command.exit is not None:
        details |= outcome(command.exit)
    return Result.text(f"{part.text}\n\n{note}" if lines else note, **details)


async def tell_screen(command: Command) -> Result:
    """What a person at its terminal would see."""
    from clawkit.core.bounded import in_thread
    from clawkit.process.screen import MAX_BYTES, render

    if command.terminal is None:
        raise ToolInputError(
            f"screen: {command.id} has no terminal; leave screen out, or start it with pty"
        )
    start = max(0, command.output.size - MAX_BYTES)
    data = await command.output.read(start, MAX_BYTES)
    columns, rows = command.terminal.size
    drawn = await in_thread(render, data, columns, rows, cut=start > 0)
    column, row = drawn.cursor
    title = f", title {drawn.title!r}" if drawn.title else ""
    text = "\n".join(drawn.lines).rstrip("\n") or "(the screen is empty)"
    note = f"[screen of {columns} x {rows}, cursor in column {column} of row {row}{title}]"
    return Result.text(
        f"{text}\n\n{note}",
        status="running" if command.exit is None else "completed",
        sessionId=command.id,
        screen=list(drawn.lines),
        cursor={"column": column, "row": row},
        title=drawn.title,
        columns=columns,
        rows=rows,
    )
