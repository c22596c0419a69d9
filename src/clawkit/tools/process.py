"""process: watch and control commands in the background."""

import time
from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Annotated, Any

import msgspec
from msgspec import UNSET, UnsetType

from clawkit.config.model import Config
from clawkit.core.context import Context, Scope
from clawkit.core.result import Result
from clawkit.core.tool import Effect, Kind, Tool
from clawkit.errors import ToolInputError
from clawkit.process.protocols import Commands, Exit
from clawkit.text import human_size, human_time, nearest, printable
from clawkit.tools import _commands as _c
from clawkit.tools._files import fit
from clawkit.tools._params import doc

if TYPE_CHECKING:
    from clawkit.process.command import Command
    from clawkit.process.terminal import Encoded

MAX_DATA = 1024 * 1024
"""Maximum bytes of one write; more belongs in a file."""
_FATAL_WAIT_S, _HARMLESS_WAIT_S = 2.0, 0.2
"""Seconds to wait for the exit after a signal that normally ends programs, and after others."""
_HARMLESS = frozenset(["CHLD", "CONT", "STOP", "TSTP", "TTIN", "TTOU", "URG", "WINCH"])
_SEQUENCES = (b"\x1b[", b"\x1bO")
_NO_TERMINAL = {
    b"\x03": "C-c interrupts only in a terminal; use kill with signal INT",
    b"\x04": "C-d ends the input only in a terminal; use write with eof",
    b"\x1a": "C-z stops only in a terminal; use kill with signal STOP",
}
GATHER_S = 0.2
"""Seconds that a waiting poll collects more output after the first bytes, because output comes in
bursts."""
RETRY_MS = (5_000, 10_000, 30_000, 60_000)
"""Suggested delay of the next poll, by the number of polls in a row without output."""
LABEL = 120
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
"""The actions, and the parameters of each besides sessionId."""
SYNONYMS: Mapping[str, str] = {"input": "write", "signal": "kill", "status": "status"}
"""Other action names that models send: accepted, not advertised."""
ACTIONS = tuple(action for action in USES if action not in SYNONYMS)


class Params(msgspec.Struct, frozen=True, forbid_unknown_fields=True, rename="camel"):
    action: Annotated[str, doc("What to do", extra_json_schema={"enum": list(ACTIONS)})]
    session_id: Annotated[
        str, doc("Which command, as returned by exec or list; for all actions except list")
    ] = ""
    timeout: Annotated[
        float, doc("poll: milliseconds to wait for output or the end, at most 30000")
    ] = 0
    offset: Annotated[int, doc("log: first line to show, counted from 0", ge=0)] | UnsetType = UNSET
    limit: Annotated[int, doc("log: how many lines; without offset the last", ge=1)] | UnsetType = (
        UNSET
    )
    screen: Annotated[bool, doc("log: what the terminal shows now, instead of lines")] = False
    data: Annotated[str, doc("write, submit: text to send unchanged")] = ""
    eof: Annotated[bool, doc("write: close the input after data")] = False
    keys: Annotated[
        list[str], doc("send-keys: key names, such as Enter, Up, C-c, M-x, F1; or text")
    ] = []
    hex: Annotated[list[str], doc("send-keys: bytes as hexadecimal, sent before keys")] = []
    literal: Annotated[str, doc("send-keys: text, sent before hex and keys")] = ""
    text: Annotated[str, doc("paste: the text")] = ""
    bracketed: Annotated[bool, doc("paste: use bracketed paste if the program enabled it")] = True
    signal: Annotated[
        str | int | None,
        doc("kill: signal to send, by name or number; without it, the command is stopped"),
    ] = None
    columns: Annotated[int, doc("resize: width of the terminal", ge=20, le=500)] | UnsetType = UNSET
    rows: Annotated[int, doc("resize: height of the terminal", ge=5, le=200)] | UnsetType = UNSET


async def execute(params: Params, ctx: Context, synonyms: Mapping[str, str] = SYNONYMS) -> Result:
    action = synonyms.get(params.action, params.action)
    if params.action not in ACTIONS and params.action not in synonyms:
        close = nearest(action, ACTIONS, 1)
        hint = f"did you mean {close[0]}?" if close else f"known: {', '.join(ACTIONS)}"
        raise ToolInputError(f"action: unknown action {action[:40]!r}; {hint}")
    # Refuse parameters that would have no effect, except empty values that models fill in.
    used = ("action", *(() if action == "list" else ("session_id",)), *USES[action])
    for field, name in zip(params.__struct_fields__, params.__struct_encode_fields__, strict=True):
        value = getattr(params, field)
        if field in used or not value or value is UNSET or value == getattr(_EMPTY, field):
            continue
        users = [each for each in ACTIONS if field in USES[each]]
        where = f"only on {' and '.join(users)}" if users else "which applies to all commands"
        raise ToolInputError(f"{name}: has no effect on {action}, {where}; leave it out")
    commands, owner = ctx.use(Commands), _c.owner_of(ctx.scope)
    if action == "list":
        return _list(commands.all(owner), ctx)
    if not params.session_id.strip():
        raise ToolInputError("sessionId: missing; use action list to see all commands")
    if params.action == "signal" and params.signal in (None, ""):
        raise ToolInputError("signal: missing; name the signal to send, or use kill")
    command = commands.get(owner, params.session_id)
    match action:
        case "poll" | "status":
            seconds = min(max(params.timeout, 0), MAX_WAIT_MS) / 1000
            return await _poll(command, ctx, seconds, peek=action == "status")
        case "log" if params.screen:
            return await _show_screen(command, params)
        case "log":
            return await _show_lines(command, ctx, params)
        case "kill":
            return await _kill(command, params)
        case "clear" | "remove":
            return await _remove(commands, command, even_if_running=action == "remove")
        case "resize":
            return _resize(command, params)
        case _:
            return await _send(command, params, action)


_EMPTY = Params("")


async def _send(command: "Command", params: Params, action: str) -> Result:
    """Send input. It may be a password, so the result does not repeat it."""
    from clawkit.process.terminal import encode_paste

    if not command.can_write:
        raise ToolInputError(_why_closed(command))
    terminal = command.terminal
    warnings: tuple[str, ...] = ()
    if action == "send-keys":
        data, warnings = _make_keys(command, params)
    elif action == "paste" and terminal is not None:
        is_marked = params.bracketed and terminal.bracketed_paste
        data = encode_paste(params.text, bracketed=is_marked)
    elif action == "paste":
        if not params.text:
            raise ToolInputError("text: empty; there is nothing to paste")
        data = _encode("text", params.text)
    else:
        if action == "write" and not params.data and not params.eof:
            raise ToolInputError("data: missing; give the text to write, or eof")
        # The Enter key sends CR in a terminal; without one, a line ends in LF.
        enter = b"\n" if terminal is None else b"\r"
        data = _encode("data", params.data) + (enter if action == "submit" else b"")
    size = len(data)
    await command.write(data, eof=params.eof)
    what = ["1 byte" if size == 1 else f"{size:,} bytes"] if size or not params.eof else []
    what += ["the end of input"] if params.eof else []
    said = [f"Sent {' and '.join(what)} to {command.id}; use poll to see its output."]
    said += (f"Warning: {each}" for each in warnings)
    details: dict[str, Any] = {"warnings": list(warnings)} if warnings else {}
    return _result("\n".join(said), command, bytes=size, **details)


def _result(text: str, command: "Command", **details: Any) -> Result:
    """A result with the current status of the command."""
    exit_ = command.exit
    status = "running" if exit_ is None else "completed"
    end = {} if exit_ is None else _outcome(exit_)
    return Result.text(text, status=status, sessionId=command.id, **end, **details)


def _outcome(exit_: Exit) -> dict[str, Any]:
    return {"exitCode": exit_.code, "exitSignal": exit_.signal or None, "exitReason": exit_.reason}


async def _kill(command: "Command", params: Params) -> Result:
    number, name = (0, "") if params.signal in (None, "") else _c.read_signal(params.signal)
    left = ", ".join(f"{each.name} (pid {each.pid})" for each in command.left[:5])
    had_ended = command.exit is not None
    if had_ended and not left:
        said = f"{command.id} has already ended; none of its processes is left"
    elif not number:
        await command.end()
        said = f"Stopped what {command.id} had left running: {left}" if had_ended else ""
    else:
        await command.signal(number)
        to = f"what {command.id} left running: {left}" if had_ended else command.id
        said = f"Sent {name} to {to}"
        is_harmless = name.removeprefix("SIG") in _HARMLESS
        wait_s = _HARMLESS_WAIT_S if is_harmless else _FATAL_WAIT_S
        if await command.wait(wait_s) is None:
            said += "; it is still running"
    if command.exit is None:
        return _result(f"{said}.", command)
    # This result already reports the end.
    command.announce = False
    if not had_ended:
        said = ". ".join(filter(None, (said, _say_end(command, command.exit))))
    return _result(said, command)


async def _remove(commands: Commands, command: "Command", *, even_if_running: bool) -> Result:
    from clawkit.core.tasks import unbroken

    is_running = command.exit is None
    if not even_if_running and (is_running or command.left):
        what = "is still running" if is_running else "left something running"
        raise ToolInputError(f"{command.id} {what}; kill stops it, remove stops and removes it")
    await unbroken(commands.forget(command))
    ended = " It was running and has been stopped." if is_running else ""
    said = f"Removed {command.id} and its output.{ended}"
    return Result.text(said, status="completed", sessionId=command.id)


def _resize(command: "Command", params: Params) -> Result:
    if command.terminal is None:
        raise ToolInputError(f"{command.id} has no terminal; start it with pty to have one")
    if command.exit is not None:
        raise ToolInputError(f"{command.id} has ended, so it no longer has a terminal")
    if params.columns is UNSET and params.rows is UNSET:
        raise ToolInputError("columns: missing; give columns, or rows, or both")
    columns, rows = command.terminal.size
    columns = columns if params.columns is UNSET else params.columns
    rows = rows if params.rows is UNSET else params.rows
    command.resize(columns, rows)
    said = f"The terminal of {command.id} now has {columns} columns and {rows} rows."
    return _result(said, command, columns=columns, rows=rows)


def _why_closed(command: "Command") -> str:
    if command.exit is not None:
        return f"{command.id} has ended, so nothing can be sent to it; see its log"
    launch = command.launch
    if launch.detach:
        why = "it was started with detach, so its input is empty"
    elif launch.open_input or launch.size is not None:
        why = "its input is closed"
    else:
        why = "it was started without background or pty, so its input is empty"
    return f"{command.id} cannot be written to: {why}"


def _make_keys(command: "Command", params: Params) -> "Encoded":
    """`literal`, `hex` and `keys` as bytes, in this order."""
    from clawkit.process.terminal import Encoded, encode_hex, encode_keys

    if not (params.literal or params.hex or params.keys):
        raise ToolInputError("keys: missing; give keys, or hex, or literal")
    raw, terminal = encode_hex(params.hex), command.terminal
    warnings: tuple[str, ...] = ()
    if terminal is not None:
        modes = {"application": terminal.application_keys, "keypad": terminal.application_keypad}
        pressed = encode_keys(params.keys, **modes)
        keys = pressed.data
    else:
        # Without a terminal, keys that send escape sequences have no meaning.
        pressed = encode_keys(params.keys, application=False)
        for index, key in enumerate(params.keys):
            if encode_keys([key], application=False).data.startswith(_SEQUENCES):
                why = f"keys[{index}]: {command.id} has no terminal, which this key needs"
                how = "start it with pty to send it, or send its bytes as hex"
                raise ToolInputError(f"{why}; {how}")
        warnings = tuple(why for byte, why in _NO_TERMINAL.items() if byte in pressed.data)
        keys = pressed.data.replace(b"\r", b"\n")
    data = _encode("literal", params.literal) + raw.data + keys
    if not data:
        raise ToolInputError("; ".join(raw.warnings))
    return Encoded(data, (*raw.warnings, *pressed.warnings, *warnings))


def _encode(name: str, text: str) -> bytes:
    data = _c.encode(name, text)
    if len(data) > MAX_DATA:
        sizes = f"{human_size(len(data))}; the limit is {human_size(MAX_DATA)} at once"
        how = "send it in parts, or have the command read a file"
        raise ToolInputError(f"{name}: is {sizes}: {how}")
    return data


def _list(commands: Sequence["Command"], ctx: Context) -> Result:
    if not commands:
        return Result.text("No commands in the background.", status="completed", sessions=[])
    rows = fit(map(_format_row, commands), ctx)
    text = "\n".join(rows)
    if left := len(commands) - len(rows):
        text += f"\n\n[{left} more do not fit; clear or remove some of these]"
    sessions = [_describe(command) for command in commands[: len(rows)]]
    return Result.text(text, status="completed", sessions=sessions)


def _format_row(command: "Command") -> str:
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


def _describe(command: "Command") -> dict[str, Any]:
    from clawkit.process.output_text import tail_text

    exit_, output = command.exit, command.output
    is_cut = output.size > 4 * _c.TAIL
    tail = tail_text(output.tail(4 * _c.TAIL), _c.TAIL, cut_start=is_cut)
    details: dict[str, Any] = {
        "sessionId": command.id,
        "status": "running" if exit_ is None else exit_.status,
        "startedAt": round(command.started * 1000),
        "runtimeMs": round(command.runtime_s * 1000),
        "cwd": command.launch.cwd,
        "command": command.launch.shown,
        "name": command.name,
        "tail": tail,
        "truncated": is_cut or len(tail) == _c.TAIL,
    }
    if exit_ is None:
        pid = {"pid": command.pid} if command.pid else {}
        return details | pid | _describe_running(command)
    details["endedAt"] = round((command.started + exit_.seconds) * 1000)
    details["timedOut"] = exit_.reason in _c.TIMEOUTS
    return details | _outcome(exit_)


def _describe_running(command: "Command") -> dict[str, Any]:
    idle_s = command.idle_s
    return {
        "stdinWritable": command.can_write,
        "waitingForInput": command.waits_for_input,
        "idleMs": round(idle_s * 1000),
        "lastOutputAt": round((time.time() - idle_s) * 1000) if command.output.size else None,
    }


def _say_end(command: "Command", exit_: Exit) -> str:
    said = _c.say_exit(command, exit_)
    if exit_.reason == "exit" and not exit_.code:
        said = f"Command exited with code 0\n{said}".rstrip()
    return said


async def _poll(command: "Command", ctx: Context, seconds: float, *, peek: bool) -> Result:
    """New output, after at most `seconds`; with `peek`, the next poll returns it again."""
    exit_, text, end, skipped = await _wait(command, ctx, seconds)
    if not peek:
        command.polled = end
        command.empty_polls = 0 if text else command.empty_polls + 1
        command.announce = command.announce and exit_ is None
    said = [text.rstrip("\n") if text else "(no new output)"]
    details: dict[str, Any] = {"sessionId": command.id, "name": command.name, "aggregated": text}
    details |= _describe_running(command) | _c.describe_output(command)
    if skipped:
        said.insert(0, f"[{human_size(skipped)} before this left out; log shows all lines]")
        details["skippedBytes"] = skipped
    if exit_ is not None:
        said.append(_say_end(command, exit_))
        return Result.text("\n\n".join(said), **(details | _c.describe_exit(command, exit_)))
    retry = RETRY_MS[min(max(command.empty_polls, 1), len(RETRY_MS)) - 1]
    still = f"Command still running after {human_time(command.runtime_s)}"
    if command.waits_for_input:
        idle = human_time(command.idle_s)
        still += f", silent for {idle}: it may be waiting for input; use submit or send-keys"
    elif text:
        still += "; poll again for more output"
    else:
        still += f"; poll again in {retry // 1000} s, or set timeout to wait for output"
    text = "\n\n".join((*said, f"{still}."))
    return Result.text(text, status="running", retryInMs=retry, **details)


async def _wait(
    command: "Command", ctx: Context, seconds: float
) -> tuple[Exit | None, str, int, int]:
    """The exit if it has ended, new text, its end offset, and the number of omitted bytes."""
    from clawkit.process.output_text import news

    until = time.monotonic() + seconds
    seen = command.polled
    while True:
        left = until - time.monotonic()
        if left > 0 and command.exit is None:
            await command.wait_for_news(seen, left)
            if command.output.size > seen:
                await command.wait(min(GATHER_S, left))
        exit_, seen = command.exit, command.output.size
        read = partial(news, command.output, command.polled, final=exit_ is not None)
        part = await _c.fitted(ctx, _c.PENDING, read)
        # Incomplete characters and mere cursor movements do not count as new output.
        if part.text or exit_ is not None or time.monotonic() >= until:
            return exit_, *part


async def _show_lines(command: "Command", ctx: Context, params: Params) -> Result:
    from clawkit.process.output_text import page

    offset = None if params.offset is UNSET else params.offset
    limit = None if params.limit is UNSET else params.limit
    find = partial(page, command.output, offset, limit, hint=command.counted)
    part = await _c.fitted(ctx, _c.FINISHED, find)
    command.counted = part.counted
    total, first, lines = part.total_lines, part.first, part.lines
    if not total:
        note = "(no output yet)" if command.exit is None else "(no output)"
    elif not lines:
        note = f"[nothing at this offset: there are {total:,} lines, counted from 0]"
    else:
        note = f"lines {first + 1:,} to {first + lines:,} of {total:,}"
        note += ", as many as fit" if part.truncated else ""
        if offset is not None and part.next_offset is not None:
            note += f"; continue with offset={part.next_offset}"
        elif offset is None and first:
            before = min(first, lines)
            note += f"; earlier lines: offset={first - before} limit={before}"
        note = f"[{note}]"
    if dropped := command.output.dropped:
        note += f"\n[another {human_size(dropped)} of output was not saved]"
    return _result(
        f"{part.text}\n\n{note}" if lines else note,
        command,
        output=part.text,
        total=command.output.size,
        totalLines=total,
        offset=first,
        lines=lines,
        truncated=part.truncated,
        nextOffset=part.next_offset,
    )


async def _show_screen(command: "Command", params: Params) -> Result:
    from clawkit.core.tasks import in_thread
    from clawkit.process.terminal import SCREEN_BYTES, render

    if params.offset not in (UNSET, 0) or params.limit is not UNSET:
        raise ToolInputError("screen: cannot be combined with offset or limit")
    if command.terminal is None:
        why = f"screen: {command.id} has no terminal"
        raise ToolInputError(f"{why}; leave screen out, or start it with pty")
    columns, rows = command.terminal.size
    data, is_cut = await _c.last_drawn(command, SCREEN_BYTES)
    drawn = await in_thread(render, data, columns, rows, cut=is_cut)
    column, row = drawn.cursor
    title = f", title {drawn.title!r}" if drawn.title else ""
    text = "\n".join(drawn.lines).rstrip("\n") or "(the screen is empty)"
    note = f"[screen of {columns} x {rows}, cursor in column {column} of row {row}{title}]"
    return _result(
        f"{text}\n\n{note}",
        command,
        screen=list(drawn.lines),
        cursor={"column": column, "row": row},
        title=drawn.title,
        columns=columns,
        rows=rows,
    )


def effects(params: Params, _ctx: Context) -> tuple[Effect, ...]:
    if params.action == "list":
        return (Effect("read"),)
    kind: Kind = "read" if params.action in ("log", "status") else "write"
    return (Effect(kind, f"command:{params.session_id.strip()}"),)


TOOL = Tool(
    name="process",
    label="Process",
    description=(
        "Watch and control commands that exec runs in the background. list: all of them. poll: new "
        "output and how it ended; timeout waits for either. log: lines of all output (the last 200 "
        "unless offset or limit is given), or the screen of a terminal. write: send text to its "
        "input. submit: send text and Enter. send-keys: send keys. paste: send text as if pasted. "
        "kill: stop it, or send a signal. clear: remove one that has ended. remove: stop and "
        "remove it. resize: resize its terminal."
    ),
    parameters=Params,
    execute=execute,
    effects=effects,
    aliases={
        **dict.fromkeys(("process_id", "session", "id"), "sessionId"),
        "input": "data",
        "timeout_ms": "timeout",
        "cols": "columns",
    },
)


def make_tool(config: Config, _scope: Scope) -> Tool:
    # A synonym must not bypass a rule about an action.
    return replace(TOOL, execute=partial(execute, synonyms={})) if config.tools.rules else TOOL
