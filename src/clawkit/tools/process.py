"""process: what became of commands in the background, and how to steer them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from functools import partial
from typing import Annotated

import msgspec
from msgspec import UNSET, Meta, UnsetType

from clawkit.config.model import Config
from clawkit.core.context import Context, Scope
from clawkit.core.effects import Effect, Kind
from clawkit.core.result import Result
from clawkit.core.tool import Tool
from clawkit.errors import ToolInputError
from clawkit.process.base import Command, Commands
from clawkit.text import nearest
from clawkit.tools import process_input
from clawkit.tools.commanding import owner_of
from clawkit.tools.process_output import (
    outcome,
    say_end,
    tell_all,
    tell_lines,
    tell_news,
    tell_screen,
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
        Meta(description="kill: signal to send, by name or number; left out, it is ended for sure"),
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
    process_input.check_input(command)
    match action:
        case "write":
            sent = process_input.make_text(params.data, eof=params.eof)
        case "submit":
            sent = process_input.make_line(command, params.data)
        case "send-keys":
            sent = process_input.make_keys(command, params.literal, params.hex, params.keys)
        case _:
            sent = process_input.make_paste(command, params.text, bracketed=params.bracketed)
    return await process_input.send(command, sent, eof=params.eof)


async def _kill(command: Command, params: Params) -> Result:
    number, name = 0, ""
    if params.signal is not None and params.signal != "":
        number, name = process_input.read_signal(params.signal)
    left = ", ".join(f"{each.name} (pid {each.pid})" for each in command.left[:5])
    had_ended = command.exit is not None
    if had_ended and not left:
        said = f"{command.id} has ended already, nothing of it is left"
    elif not number:
        await command.end()
        said = f"Ended what {command.id} had left running: {left}" if had_ended else ""
    else:
        await command.signal(number)
        to = f"what {command.id} left running: {left}" if had_ended else command.id
        said = f"Sent {name} to {to}"
        if await command.wait(process_input.patience(name)) is None:
            said += "; it still runs"
    if command.exit is None:
        return Result.text(f"{said}.", status="running", sessionId=command.id)
    # Whoever ended it knows that it ended.
    command.announce = False
    if not had_ended:
        said = ". ".join(part for part in (said, say_end(command, command.exit)) if part)
    return Result.text(said, status="completed", sessionId=command.id, **outcome(command.exit))


async def _forget(commands: Commands, command: Command, *, even_if_running: bool) -> Result:
    from clawkit.core.bounded import unbroken

    is_running = command.exit is None
    if not even_if_running and (is_running or command.left):
        what = "still runs" if is_running else "left something running"
        raise ToolInputError(f"{command.id} {what}; kill ends it, remove ends and forgets it")
    await unbroken(commands.forget(command))
    ended = " It was running and has been ended." if is_running else ""
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
        "submit: text and Enter. send-keys: keys. paste: text as if pasted. kill: end it, or send "
        "a signal. clear: forget one that ended. remove: end and forget. resize: its terminal."
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
