"""process: what became of commands in the background, and how to steer them."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Annotated, Any

import msgspec
from msgspec import UNSET, Meta, UnsetType

from clawkit.config.model import Config
from clawkit.core.context import Context, Scope
from clawkit.core.result import Result
from clawkit.core.tool import Effect, Kind, Tool
from clawkit.errors import ToolInputError
from clawkit.process.protocols import Command, Commands, Exit
from clawkit.process.terminal import Encoded, encode_hex, encode_keys, encode_paste
from clawkit.text import human_size, human_time, nearest, printable
from clawkit.tools._commands import (
    FINISHED,
    PENDING,
    TAIL,
    describe_exit,
    describe_output,
    describe_running,
    fitted,
    owner_of,
    read_signal,
    say_exit,
)
from clawkit.tools._files import fit

MAX_DATA = 1024 * 1024
"""Bytes of one write; more belongs in a file."""
_SOON_S, _AT_ONCE_S = 2.0, 0.2
"""How long after a signal a command may take to end: by one that ends programs, by another."""
_HARMLESS = frozenset(["CHLD", "CONT", "STOP", "TSTP", "TTIN", "TTOU", "URG", "WINCH"])
_SEQUENCES = (b"\x1b[", b"\x1bO")
_NO_TERMINAL = {
    b"\x03": "C-c interrupts only in a terminal; here kill with signal INT does",
    b"\x04": "C-d ends the input only in a terminal; here write with eof does",
    b"\x1a": "C-z stops only in a terminal; here kill with signal STOP does",
}


def check_input(command: Command) -> None:
    """Raise unless the command can be written to."""
    if command.can_write:
        return
    if command.exit is not None:
        raise ToolInputError(f"{command.id} has ended, so nothing can be sent to it; see its log")
    launch = command.launch
    if launch.detach:
        why = "it was started with detach, so its input is empty"
    elif launch.open_input or launch.size is not None:
        why = "its input is closed"
    else:
        why = "it was started without background or pty, so its input is empty"
    raise ToolInputError(f"{command.id} cannot be written to: {why}")


async def send(command: Command, sent: Encoded, *, eof: bool = False) -> Result:
    """Hand it over. What was sent may be a password, so the result does not repeat it."""
    data = sent.data
    await command.write(data, eof=eof)
    size = "1 byte" if len(data) == 1 else f"{len(data):,} bytes"
    what = " and ".join(part for part in (size if data else "", "the end of input") if part)
    said = f"Sent {what if eof else size} to {command.id}; poll shows what it answers."
    details = {"status": "running", "sessionId": command.id, "bytes": len(data)}
    if not sent.warnings:
        return Result.text(said, **details)
    lines = (said, *(f"Warning: {each}" for each in sent.warnings))
    return Result.text("\n".join(lines), **details, warnings=list(sent.warnings))


def make_keys(command: Command, literal: str, hex_: list[str], keys: list[str]) -> Encoded:
    """Text, bytes and keys, in this order."""
    if not (literal or hex_ or keys):
        raise ToolInputError("keys: missing; give keys, or hex, or literal")
    raw = encode_hex(hex_)
    terminal = command.terminal
    if terminal is not None:
        pressed = encode_keys(
            keys,
            application=terminal.application_keys,
            keypad=terminal.application_keypad,
        )
    else:
        pressed = _keys_for_pipe(command, keys)
    data = _encode(literal, "literal") + raw.data + pressed.data
    if not data:
        raise ToolInputError("; ".join(raw.warnings))
    return Encoded(data, raw.warnings + pressed.warnings)


def _keys_for_pipe(command: Command, keys: list[str]) -> Encoded:
    """Keys for a program that has no terminal: it reads lines, and no key has a meaning."""
    pressed = encode_keys(keys, application=False)
    for index, key in enumerate(keys):
        if encode_keys([key], application=False).data.startswith(_SEQUENCES):
            raise ToolInputError(
                f"keys[{index}]: {command.id} has no terminal, which this key needs; start it with "
                "pty to send it, or send its bytes as hex"
            )
    doubts = [why for byte, why in _NO_TERMINAL.items() if byte in pressed.data]
    return Encoded(pressed.data.replace(b"\r", b"\n"), (*pressed.warnings, *doubts))


def make_paste(command: Command, text: str, *, bracketed: bool) -> Encoded:
    """Pasted text, marked as such for programs that asked for the marks."""
    if command.terminal is None:
        if not text:
            raise ToolInputError("text is empty; there is nothing to paste")
        return Encoded(_encode(text, "text"))
    marked = bracketed and command.terminal.bracketed_paste
    return Encoded(encode_paste(text, bracketed=marked))


def _encode(text: str, name: str) -> bytes:
    try:
        data = text.encode()
    except UnicodeEncodeError as error:
        raise ToolInputError(
            f"{name}: has half a character (a lone surrogate) at position {error.start}"
        ) from None
    if len(data) > MAX_DATA:
        raise ToolInputError(
            f"{name}: has {human_size(len(data))}, {human_size(MAX_DATA)} are possible at once; "
            "send it in parts, or have the command read a file"
        )
    return data


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
    from clawkit.process.records import shorten

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
    from clawkit.process.output_text import tail_text

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
    elif text:
        still += "; poll again for more output"
    else:
        still += f"; poll again in {retry // 1000} s, or set timeout to wait for output"
    text = "\n\n".join((*said, f"{still}."))
    return Result.text(text, status="running", retryInMs=retry, **details)


async def _wait(
    command: Command, ctx: Context, seconds: float
) -> tuple[Exit | None, str, int, int]:
    """How it ended, if it did; what is new; up to which place; and bytes that are left out."""
    from clawkit.process.output_text import news

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
    from clawkit.process.output_text import page

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
        note += f"\n[another {human_size(dropped)} came later and was not saved]"
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
    from clawkit.core.tasks import in_thread
    from clawkit.process.terminal import SCREEN_BYTES, render

    if command.terminal is None:
        raise ToolInputError(
            f"screen: {command.id} has no terminal; leave screen out, or start it with pty"
        )
    start = max(0, command.output.size - SCREEN_BYTES)
    data = await command.output.read(start, SCREEN_BYTES)
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


MAX_WAIT_MS = 30_000
USES: Mapping[str, tuple[str, ...]] = {
    "list": (),
    "poll": ("timeout",),
    "log": ("offset", "limit", "screen"),
    "write": ("data", "eof"),
    "submit": ("data",),
    "send-keys": ("literal", "hex", "keys"),
    "paste": ("text", "bracketed"),
    "kill": ("signal",),
    "clear": (),
    "remove": (),
    "resize": ("columns", "rows"),
    "status": (),
}
"""The actions, and the parameters each of them takes beside sessionId."""
SYNONYMS: Mapping[str, str] = {"input": "write", "signal": "kill", "status": "status"}
"""Other names of actions that models use: understood, not offered."""
ACTIONS = tuple(action for action in USES if action not in SYNONYMS)


class Params(msgspec.Struct, frozen=True, forbid_unknown_fields=True, rename="camel"):
    """Parameters of process."""

    action: Annotated[
        str, Meta(description="What to do", extra_json_schema={"enum": list(ACTIONS)})
    ]
    session_id: Annotated[
        str, Meta(description="Which command, as exec or list said; for all actions but list")
    ] = ""
    timeout: Annotated[
        float, Meta(description="poll: milliseconds to wait for output or the end, at most 30000")
    ] = 0
    offset: (
        Annotated[int, Meta(description="log: first line to show, counted from 0", ge=0)]
        | UnsetType
    ) = UNSET
    limit: (
        Annotated[int, Meta(description="log: how many lines; without offset the last", ge=1)]
        | UnsetType
    ) = UNSET
    screen: Annotated[
        bool, Meta(description="log: what the terminal shows now, instead of lines")
    ] = False
    data: Annotated[str, Meta(description="write, submit: text to send as it is")] = ""
    eof: Annotated[bool, Meta(description="write: end the input after data")] = False
    keys: Annotated[
        list[str],
        Meta(description="send-keys: key names, such as Enter, Up, C-c, M-x, F1; or text"),
    ] = []
    hex: Annotated[
        list[str], Meta(description="send-keys: bytes as hexadecimal, sent before keys")
    ] = []
    literal: Annotated[str, Meta(description="send-keys: text, sent before hex and keys")] = ""
    text: Annotated[str, Meta(description="paste: the text")] = ""
    bracketed: Annotated[
        bool, Meta(description="paste: mark it as pasted if the program asked for that")
    ] = True
    signal: Annotated[
        str | int | None,
        Meta(
            description="kill: signal to send, by name or number; left out, it is stopped for sure"
        ),
    ] = None
    columns: (
        Annotated[int, Meta(description="resize: width of the terminal", ge=20, le=500)] | UnsetType
    ) = UNSET
    rows: (
        Annotated[int, Meta(description="resize: height of the terminal", ge=5, le=200)] | UnsetType
    ) = UNSET


async def execute(params: Params, ctx: Context, synonyms: Mapping[str, str] = SYNONYMS) -> Result:
    action = _read_action(params.action, synonyms)
    _check_unused(params, action)
    commands, owner = ctx.use(Commands), owner_of(ctx.scope)
    if action == "list":
        return tell_all(commands.all(owner), ctx)
    if not params.session_id.strip():
        raise ToolInputError("sessionId: missing; action list shows the commands there are")
    if params.action == "signal" and params.signal in (None, ""):
        raise ToolInputError("signal: missing; name the signal to send, or use kill")
    command = commands.get(owner, params.session_id)
    match action:
        case "poll" | "status":
            seconds = min(max(params.timeout, 0), MAX_WAIT_MS) / 1000
            return await tell_news(command, ctx, seconds, peek=action == "status")
        case "log":
            return await _log(command, params, ctx)
        case "kill":
            return await _kill(command, params)
        case "clear" | "remove":
            return await _forget(commands, command, even_if_running=action == "remove")
        case "resize":
            return _resize(command, params)
        case _:
            return await _send(command, params, action)


def _read_action(given: str, synonyms: Mapping[str, str]) -> str:
    if given in ACTIONS or given in synonyms:
        return synonyms.get(given, given)
    close = nearest(given, ACTIONS, 1)
    hint = f"did you mean {close[0]}?" if close else f"known: {', '.join(ACTIONS)}"
    raise ToolInputError(f"action: {given[:40]!r} is unknown; {hint}")


def _check_unused(params: Params, action: str) -> None:
    """Refuse what would have no effect, but not the empty values that models send for nothing."""
    used = ("action", *(() if action == "list" else ("session_id",)), *USES[action])
    for field, name in zip(params.__struct_fields__, params.__struct_encode_fields__, strict=True):
        value = getattr(params, field)
        if field in used or not value or value is UNSET or value == getattr(_EMPTY, field):
            continue
        takers = [each for each in ACTIONS if field in USES[each]]
        where = f"it is for {' and '.join(takers)}" if takers else "which is about all commands"
        raise ToolInputError(f"{name}: has no effect on {action}, {where}; leave it out")


_EMPTY = Params("")


async def _log(command: Command, params: Params, ctx: Context) -> Result:
    offset = None if params.offset is UNSET else params.offset
    limit = None if params.limit is UNSET else params.limit
    if not params.screen:
        return await tell_lines(command, ctx, offset, limit)
    if offset or limit:
        raise ToolInputError("screen: goes without offset and limit, which are about lines")
    return await tell_screen(command)


async def _send(command: Command, params: Params, action: str) -> Result:
    check_input(command)
    match action:
        case "write":
            if not params.data and not params.eof:
                raise ToolInputError("data: missing; give the text to write, or eof")
            sent = Encoded(_encode(params.data, "data"))
        case "submit":
            # What the Enter key sends, or the end of a line where there is no terminal.
            end = b"\n" if command.terminal is None else b"\r"
            sent = Encoded(_encode(params.data, "data") + end)
        case "send-keys":
            sent = make_keys(command, params.literal, params.hex, params.keys)
        case _:
            sent = make_paste(command, params.text, bracketed=params.bracketed)
    return await send(command, sent, eof=params.eof)


async def _kill(command: Command, params: Params) -> Result:
    number, name = 0, ""
    if params.signal is not None and params.signal != "":
        number, name = read_signal(params.signal)
    left = ", ".join(f"{each.name} (pid {each.pid})" for each in command.left[:5])
    had_ended = command.exit is not None
    if had_ended and not left:
        said = f"{command.id} has already ended; nothing of it is left"
    elif not number:
        await command.end()
        said = f"Ended what {command.id} had left running: {left}" if had_ended else ""
    else:
        await command.signal(number)
        to = f"what {command.id} left running: {left}" if had_ended else command.id
        said = f"Sent {name} to {to}"
        wait_s = _AT_ONCE_S if name.removeprefix("SIG") in _HARMLESS else _SOON_S
        if await command.wait(wait_s) is None:
            said += "; it is still running"
    if command.exit is None:
        return Result.text(f"{said}.", status="running", sessionId=command.id)
    # Whoever ended it knows that it ended.
    command.announce = False
    if not had_ended:
        said = ". ".join(part for part in (said, say_end(command, command.exit)) if part)
    return Result.text(said, status="completed", sessionId=command.id, **outcome(command.exit))


async def _forget(commands: Commands, command: Command, *, even_if_running: bool) -> Result:
    from clawkit.core.tasks import unbroken

    is_running = command.exit is None
    if not even_if_running and (is_running or command.left):
        what = "is still running" if is_running else "left something running"
        raise ToolInputError(f"{command.id} {what}; kill stops it, remove stops and forgets it")
    await unbroken(commands.forget(command))
    ended = " It was running and has been stopped." if is_running else ""
    return Result.text(
        f"Forgot {command.id} and its output.{ended}", status="completed", sessionId=command.id
    )


def _resize(command: Command, params: Params) -> Result:
    if command.terminal is None:
        raise ToolInputError(f"{command.id} has no terminal; start it with pty to have one")
    if command.exit is not None:
        raise ToolInputError(f"{command.id} has ended, and its terminal with it")
    if params.columns is UNSET and params.rows is UNSET:
        raise ToolInputError("columns: missing; give columns, or rows, or both")
    columns, rows = command.terminal.size
    columns = columns if params.columns is UNSET else params.columns
    rows = rows if params.rows is UNSET else params.rows
    command.resize(columns, rows)
    said = f"The terminal of {command.id} has {columns} columns and {rows} rows now."
    return Result.text(said, status="running", sessionId=command.id, columns=columns, rows=rows)


def effects(params: Params, _ctx: Context) -> tuple[Effect, ...]:
    if params.action == "list":
        return (Effect("read"),)
    kind: Kind = "read" if params.action in ("log", "status") else "write"
    return (Effect(kind, f"command:{params.session_id.strip()}"),)


TOOL = Tool(
    name="process",
    label="Process",
    description=(
        "Watch and steer commands that exec left in the background. list: all of them. poll: new "
        "output and how it ended; timeout waits. log: lines of all output (the last 200 unless "
        "offset or limit says otherwise), or the screen of a terminal. write: text to its input. "
        "submit: text and Enter. send-keys: keys. paste: text as if pasted. kill: stop it, or send "
        "a signal. clear: forget one that ended. remove: stop and forget. resize: its terminal."
    ),
    parameters=Params,
    execute=execute,
    effects=effects,
    aliases={
        "process_id": "sessionId",
        "session": "sessionId",
        "id": "sessionId",
        "input": "data",
        "timeout_ms": "timeout",
        "cols": "columns",
    },
)


def make_tool(config: Config, _scope: Scope) -> Tool:
    """The tool as this run has it."""
    # A rule about one action must not be passed by another name of it.
    return replace(TOOL, execute=partial(execute, synonyms={})) if config.tools.rules else TOOL
