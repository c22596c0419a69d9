"""`clawkit ps`, `kill` and `logs`: list running commands, stop them, show their output."""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import Any, NamedTuple

import click

from clawkit.cli.shared_options import json_option, print_json, print_table, suggest
from clawkit.config.paths import abbreviate_home, commands_dir
from clawkit.errors import ClawkitError, ToolError, ToolInputError
from clawkit.process import process_table, records
from clawkit.process.output_text import clean, whole_end
from clawkit.process.protocols import Exit, LeftoverProcess
from clawkit.process.records import CommandRecord, shorten
from clawkit.terminal_text import truncate
from clawkit.text import human_size, human_time, one_line, printable
from clawkit.tools._commands import describe_left, name_left, read_signal

LONGEST_KEPT_S = 3 * 3600.0
"""The longest time that clawkit can be configured to keep records of exited commands."""
_MAX_COMMAND = 1_000
_MIN_COMMAND = 16
_MAX_OWNER, _MAX_DIRECTORY = 20, 30
_HEAD = ("ID", "PID", "TIME", "AGENT", "STATUS", "DIRECTORY", "COMMAND")


@click.command()
@click.option("--all", "everything", is_flag=True, help="Include exited detached commands.")
@json_option
def ps(everything: bool, as_json: bool) -> None:
    """List the running commands of all your clawkit processes.

    A command is listed after one second, or when it goes to the background. Commands started with
    detach outlive clawkit; --all lists them for a while after they exit. Commands in an ssh sandbox
    are not listed: they run on another machine.

    \b
    clawkit ps --all
    clawkit ps --json | jq -r '.[].sessionId'
    """
    folder = open_folder()
    records.sweep(folder, LONGEST_KEPT_S)
    rows = _look(folder, everything)
    if as_json:
        print_json([_row(folder, *each) for each in rows])
    elif rows:
        ids = [each.id for each in _known(folder)]
        print_table(_HEAD, [_cells(each, ids) for each in rows], min_last=_MIN_COMMAND)
    else:
        more = ", and no detached command has exited recently" if everything else ""
        click.echo(f"No command is running on this machine{more}.")


class _ProcessRow(NamedTuple):
    record: CommandRecord
    exit: Exit | None
    left: tuple[LeftoverProcess, ...]
    """Processes it left running when it exited."""


def open_folder() -> str:
    folder = commands_dir(os.environ)
    if problem := records.distrust(folder):
        raise ClawkitError(f"{folder} {problem}; its records cannot be trusted")
    return folder


def _look(folder: str, everything: bool) -> list[_ProcessRow]:
    """The running commands of this machine, or all, oldest first."""
    seen = []
    processes: process_table.Table | None = None
    for record in records.read_all(folder):
        if not record.is_here:
            continue
        exit_ = records.exit_of(folder, record)
        left: tuple[LeftoverProcess, ...] = ()
        if exit_ is not None:
            processes = processes or process_table.table()
            left = records.left_of(records.living(record, processes))
        if exit_ is None or left or (everything and record.detached):
            seen.append(_ProcessRow(record, exit_, left))
    return seen


def _row(
    folder: str, record: CommandRecord, exit_: Exit | None, left: tuple[LeftoverProcess, ...]
) -> dict[str, Any]:
    row: dict[str, Any] = {
        "sessionId": record.id,
        "key": record.key,
        **({"pid": record.pid} if record.pid else {}),
        "owner": record.owner,
        "command": record.text,
        "cwd": record.cwd,
        "startedAt": round(record.started * 1000),
        "runtimeMs": round(_runtime(record, exit_) * 1000),
        "status": exit_.status if exit_ else "running",
    }
    if exit_ is not None:
        row |= {"exitCode": exit_.code, "exitReason": exit_.reason}
        if exit_.signal:
            row["exitSignal"] = exit_.signal
    if left:
        row["leftRunning"] = [describe_left(each) for each in left]
    size = record.terminal
    shape = {"columns": size[0], "rows": size[1]} if size else None
    row |= {"detached": record.detached, "terminal": shape, "logPath": None, "logBytes": 0}
    path = records.place_of(folder, record.key, "log")
    with suppress(OSError):
        row |= {"logBytes": os.lstat(path).st_size, "logPath": path}
    return row


def _runtime(record: CommandRecord, exit_: Exit | None) -> float:
    return exit_.seconds if exit_ else max(0.0, time.time() - record.started)


def _cells(row: _ProcessRow, ids: Sequence[str]) -> tuple[str, ...]:
    record, how = row.record, row.exit
    time_ = human_time(_runtime(record, how)).replace(" ", "")
    status = "running"
    if how is not None:
        is_lost = how.reason == "lost"
        time_ = "?" if is_lost else time_
        status = "exited, code unknown" if is_lost else how.signal or f"exit {how.code}"
    return (
        record.id if ids.count(record.id) == 1 else record.key,
        str(record.pid or ""),
        time_,
        truncate(_plain(record.owner), _MAX_OWNER),
        f"{status}, {len(row.left)} left running" if row.left else status,
        shorten(_plain(abbreviate_home(record.cwd)), _MAX_DIRECTORY),
        _plain(record.text),
    )


def _plain(text: str) -> str:
    return printable(one_line(text, _MAX_COMMAND), "")


class KnownCommand(NamedTuple):
    """A command that can be named by id; its output may outlive its record."""

    key: str
    id: str
    record: CommandRecord | None

    @property
    def runs(self) -> bool:
        return self.record is not None and self.record.runs


def _known(folder: str) -> list[KnownCommand]:
    """All commands that have a record or output."""
    found = {each.key: KnownCommand(each.key, each.id, each) for each in records.read_all(folder)}
    for key in records.keys(folder, "log"):
        found.setdefault(key, KnownCommand(key, key.rpartition("-")[0] or key, None))
    return list(found.values())


def choose(wanted: str, known: Sequence[KnownCommand]) -> KnownCommand:
    """Find a command by its key, its id, or a prefix of either."""
    word = wanted.strip().lower()
    alike = [each for each in known if each.key == word]
    if not alike:
        alike = [each for each in known if each.id == word]
        running = [each for each in alike if each.runs]
        alike = running if len(running) == 1 else alike
    if not alike and word:
        alike = [each for each in known if each.key.startswith(word) or each.id.startswith(word)]
    if len(alike) == 1:
        return alike[0]
    if alike:
        lines = (
            f"  {each.key}  {_plain(each.record.text if each.record else '')[:60]}".rstrip()
            for each in alike
        )
        raise click.UsageError("\n".join((f"{wanted!r} is ambiguous:", *lines)))
    ids = sorted({each.id for each in known})
    listed = f"; known: {', '.join(ids[:10])}" if ids else "; none is running"
    raise ToolError(f"unknown command {wanted[:80]!r}{suggest(word, ids) or listed}")


@click.command()
@click.argument("ids", nargs=-1, metavar="[ID]...")
@click.option("--all", "everything", is_flag=True, help="Stop all that `clawkit ps` lists.")
@click.option("--now", is_flag=True, help="Send SIGKILL at once.")
@click.option("--signal", "name", metavar="NAME", help="Only send this signal, such as HUP.")
def kill(ids: tuple[str, ...], everything: bool, now: bool, name: str | None) -> None:
    """Stop commands and everything they started.

    Sends SIGTERM, and SIGKILL after 5 seconds. The exit code is 0 if all of them are gone, else 1.

    \b
    clawkit kill calm-otter
    clawkit kill --signal HUP calm-otter
    """
    if bool(ids) == everything:
        raise click.UsageError("give the ids of commands, or --all")
    if now and name is not None:
        raise click.UsageError("--now and --signal cannot be combined")
    try:
        number, word = (0, "") if name is None else read_signal(name)
    except ToolInputError as error:
        raise click.UsageError(str(error)) from None
    chosen, is_missing = _chosen(open_folder(), ids)
    if everything and not chosen:
        click.echo("No command is running on this machine.")
    begun, verb = time.monotonic(), ""

    def tell(left: Sequence[LeftoverProcess], is_asked: bool) -> None:
        nonlocal verb
        before, verb = verb, "waiting for" if is_asked else "killing"
        if time.monotonic() - begun <= 1:
            verb = ""
        elif verb != before:
            click.echo(f"{verb} {name_left(left)} …", err=True)

    if not number:
        grace_s = 0.0 if now else records.ASK_S
        outcomes = records.end(chosen, grace_s=grace_s, progress=tell)
        done, undone = "stopped", "could not stop"
    else:
        outcomes = [records.send(record, number) for record in chosen]
        done, undone = f"sent {word} to", "could not signal"
    for record, reached, left, problem in outcomes:
        if reached:
            click.echo(f"{done} {record.id}: {name_left(reached)}")
        elif not left:
            click.echo(f"{record.id} had already exited")
        if left:
            said = f"{record.id}: {undone} {name_left(left)}: {problem}"
            click.echo(f"clawkit: {said}", err=True)
    sys.exit(1 if is_missing or any(each.left for each in outcomes) else 0)


def _chosen(folder: str, ids: Sequence[str]) -> tuple[list[CommandRecord], bool]:
    """The commands with these ids (all if there are none), and whether one was not found."""
    if not ids:
        return [each.record for each in _look(folder, everything=False)], False
    here = {each.key: each for each in records.read_all(folder) if each.is_here}
    known = [KnownCommand(each.key, each.id, each) for each in here.values()]
    chosen: dict[str, CommandRecord] = {}
    missing = False
    for id_ in ids:
        try:
            key = choose(id_, known).key
            chosen[key] = here[key]
        except ToolError as error:
            missing = True
            click.echo(f"clawkit: {printable(str(error))}", err=True)
    return list(chosen.values()), missing


Take = Callable[[bytes], None]
LINES = 200
_CHUNK = 1024 * 1024
_LOOK_S = 0.2
_SETTLE_S = 3.0
"""How long after a command's end its clawkit process may still be writing its output."""


@click.command()
@click.argument("id_", metavar="ID")
@click.option(
    "-n",
    "--lines",
    metavar="LINES",
    type=click.IntRange(min=0),
    help=f"Number of lines from the end. Default: {LINES}, with --raw all.",
)
@click.option("-f", "--follow", is_flag=True, help="Follow the output until the command exits.")
@click.option("--raw", is_flag=True, help="Unchanged bytes, including terminal sequences.")
@click.option("--screen", is_flag=True, help="The screen of its terminal, if it has one.")
def logs(id_: str, lines: int | None, follow: bool, raw: bool, screen: bool) -> None:
    """Show the output of a command, standard output and errors interleaved.

    ID is the sessionId, the longer key that `clawkit ps --json` shows, or a prefix of either.
    Colors and other terminal sequences are left out unless --raw is given.

    \b
    clawkit logs calm-otter -f
    clawkit logs calm --raw > all.log
    """
    if screen and (follow or raw or lines is not None):
        raise click.UsageError("--screen cannot be combined with other options")
    folder = open_folder()
    chosen = choose(id_, _known(folder))
    if screen:
        _print_screen(folder, chosen)
        return
    fd = _open_log(folder, chosen, wait=follow)
    cleaned = _Cleaned()
    out = _write if raw else cleaned.take
    try:
        size = os.fstat(fd).st_size
        is_all = raw and lines is None
        at = 0 if is_all else _last_lines(fd, size, LINES if lines is None else lines)
        if at and lines is None:
            click.echo(f"[{human_size(at)} of earlier output omitted; -n shows more]", err=True)
        at = _copy(fd, at, out, until=size)
        if follow:
            _follow(folder, chosen, fd, at, out)
        cleaned.finish()
    finally:
        os.close(fd)


def _open_log(folder: str, chosen: KnownCommand, *, wait: bool) -> int:
    while True:
        runs = wait and chosen.runs
        try:
            return records.open_file(folder, chosen.key, "log")
        except FileNotFoundError:
            if not runs:
                raise ToolError(f"the output of {chosen.id} is not stored") from None
        except OSError as error:
            path = records.place_of(folder, chosen.key, "log")
            raise ToolError(f"{path} cannot be read: {error.strerror}") from None
        time.sleep(_LOOK_S)


def _last_lines(fd: int, size: int, count: int) -> int:
    at = size
    # Text after the last newline also counts as a line.
    wanted = count + (size > 0 and os.pread(fd, 1, size - 1) == b"\n")
    while at > 0 and count:
        low = max(0, at - _CHUNK)
        data = os.pread(fd, at - low, low)
        place = len(data)
        while wanted and (place := data.rfind(b"\n", 0, place)) >= 0:
            wanted -= 1
        if place >= 0:
            return low + place + 1
        at = low
    return at


def _write(data: bytes) -> None:
    if sys.stdout is not None:
        sys.stdout.buffer.write(data)
        sys.stdout.buffer.flush()


class _Cleaned:
    """Prints output, which arrives in arbitrary chunks, without terminal sequences."""

    def __init__(self) -> None:
        self._held = b""
        self._in_line = False

    def take(self, data: bytes) -> None:
        data = self._held + data
        end = whole_end(data)
        # A trailing \r may start a \r\n, or overwrite the line.
        end -= data[:end].endswith(b"\r")
        self._held = data[end:]
        self._say(data[:end])

    def finish(self) -> None:
        self._say(self._held)
        if self._in_line:
            click.echo()

    def _say(self, data: bytes) -> None:
        text = clean(data)
        if not text:
            return
        is_update = data.startswith(b"\r") and not text.startswith("\n")
        click.echo(f"\n{text}" if self._in_line and is_update else text, nl=False)
        self._in_line = not text.endswith("\n")


def _copy(fd: int, at: int, out: Take, until: int) -> int:
    while data := os.pread(fd, max(0, min(_CHUNK, until - at)), at):
        out(data)
        at += len(data)
    return at


def _follow(folder: str, chosen: KnownCommand, fd: int, at: int, out: Take) -> None:
    ended: float | None = None
    while True:
        is_over = _is_over(folder, chosen, ended)
        size = os.fstat(fd).st_size
        if size < at:
            click.echo("[the output was truncated; it continues from the start]", err=True)
            at = 0
        at = _copy(fd, at, out, until=size)
        if is_over:
            return
        if ended is None and not chosen.runs:
            ended = time.monotonic()
        time.sleep(_LOOK_S)


def _is_over(folder: str, chosen: KnownCommand, ended: float | None) -> bool:
    record = chosen.record
    if record is None:
        return True
    if ended is None:
        return False
    # Its record exists until its clawkit process has written all of its output.
    is_noted = os.path.lexists(records.place_of(folder, record.key, "json"))
    has_keeper = process_table.look(record.keeper) is not None
    is_late = time.monotonic() - ended > _SETTLE_S
    return record.detached or not is_noted or not has_keeper or is_late


def _print_screen(folder: str, chosen: KnownCommand) -> None:
    if chosen.record is None or chosen.record.terminal is None:
        raise click.UsageError(f"{chosen.id} has no terminal, so it has no screen")
    from clawkit.process.terminal import render

    fd = _open_log(folder, chosen, wait=False)
    try:
        size = os.fstat(fd).st_size
        data = os.pread(fd, _CHUNK, max(0, size - _CHUNK))
    finally:
        os.close(fd)
    lines = render(data, *chosen.record.terminal, cut=size > len(data)).lines
    click.echo(printable("\n".join(lines).rstrip("\n")))
