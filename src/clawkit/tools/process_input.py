"""What process sends to a command: text, keys, what is pasted, signals."""

from __future__ import annotations

from clawkit.core.result import Result
from clawkit.errors import ToolInputError
from clawkit.process.base import Command
from clawkit.process.keys import Encoded, encode_hex, encode_keys, encode_paste
from clawkit.text import human_size, nearest

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
        raise ToolInputError(f"{command.id} has ended, nothing can be sent to it; see its log")
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


def make_text(data: str, *, eof: bool) -> Encoded:
    if not data and not eof:
        raise ToolInputError("data: missing; give the text to write, or eof")
    return Encoded(_encode(data, "data"))


def make_line(command: Command, data: str) -> Encoded:
    """The text and what the Enter key sends, or the end of a line where there is no terminal."""
    return Encoded(_encode(data, "data") + (b"\n" if command.terminal is None else b"\r"))


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


def read_signal(given: str | int) -> tuple[int, str]:
    """The number and the name of a signal: TERM, SIGTERM or 15."""
    import signal

    known = {each.name.removeprefix("SIG"): each.value for each in signal.Signals}
    name = str(given).strip().upper().removeprefix("SIG")
    if name.isdecimal() and name.isascii() and len(name) < 4:
        number = int(name)
        if 1 <= number <= 64:
            names = [each for each, value in known.items() if value == number]
            return number, f"SIG{names[0] if names else number}"
    elif name in known:
        return known[name], f"SIG{name}"
    close = nearest(name, known, 1)
    hint = f"did you mean {close[0]}?" if close else "name one, such as INT, or its number, 1 to 64"
    raise ToolInputError(f"signal: {str(given)[:40]!r} is no signal; {hint}")


def patience(name: str) -> float:
    """Seconds within which a signal would have ended a command."""
    return _AT_ONCE_S if name.removeprefix("SIG") in _HARMLESS else _SOON_S
