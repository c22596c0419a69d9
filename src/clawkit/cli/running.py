"""`clawkit ps` and `kill`: what runs, and how to end it."""

from __future__ import annotations

import os
import shutil
import sys
import time
from collections.abc import Sequence
from contextlib import suppress
from typing import Any, NamedTuple

import click

from clawkit.cli.columns import cut_to, width_of
from clawkit.cli.options import is_terminal, json_option, print_json
from clawkit.config.paths import commands_dir
from clawkit.errors import ClawkitError, NotFoundError, ToolInputError
from clawkit.process import found, records, tree
from clawkit.process.base import Exit, Left
from clawkit.process.records import Record
from clawkit.process.slugs import shorten
from clawkit.text import human_time, nearest, one_line, printable
from clawkit.tools.commanding import describe_left
from clawkit.tools.process_input import read_signal

LONGEST_KEPT_S = 3 * 3600.0
"""As long as any clawkit may be told to remember what has ended."""
_MAX_COMMAND = 1_000
_MIN_COMMAND = 16
_MAX_OWNER, _MAX_DIRECTORY = 20, 30
_HEAD = ("ID", "PID", "TIME", "AGENT", "STATUS", "DIRECTORY", "COMMAND")


@click.command()
@click.option(
    "--all", "everything", is_flag=True, help="Also detached ones that have ended, and how."
)
@json_option
def ps(everything: bool, as_json: bool) -> None:
    """Show the commands that run, of every clawkit that you have running.

    A command is shown once it has run for a second, or goes to the background. Those that were
    started with detach outlive their clawkit; when they have ended, --all still shows them for a
    while.

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
        _print_table(rows)
    elif everything:
        click.echo("No command is running, and none that was detached has ended lately.")
    else:
        click.echo("No command is running.")


class _Seen(NamedTuple):
    """A command, and how it is."""

    record: Record
    exit: Exit | None
    left: tuple[Left, ...]
    """What it left running when it ended."""


def open_folder() -> str:
    folder = commands_dir(os.environ)
    if problem := records.distrust(folder):
        raise ClawkitError(f"{folder} {problem}; what is written down there cannot be trusted")
    return folder


def _look(folder: str, everything: bool) -> list[_Seen]:
    """The commands of this machine, the oldest first: those that run, or all."""
    seen = []
    processes: tree.Table | None = None
    for record in records.read_all(folder):
        if not record.is_here:
            continue
        exit_ = found.exit_of(folder, record)
        left: tuple[Left, ...] = ()
        if exit_ is not None:
            processes = processes or tree.table()
            left = tuple(
                Left(pid, printable(each.name, ""))
                for pid, each in found.living(record, processes).items()
            )
        if exit_ is None or left or (everything and record.detached):
            seen.append(_Seen(record, exit_, left))
    return seen


def _row(folder: str, record: Record, exit_: Exit | None, left: tuple[Left, ...]) -> dict[str, Any]:
    """One command as programs read it."""
    row: dict[str, Any] = {
        "sessionId": record.id,
        "key": record.key,
        "pid": record.pid,
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
    columns, rows = record.terminal or (0, 0)
    row["detached"] = record.detached
    row["terminal"] = {"columns": columns, "rows": rows} if record.terminal else None
    row |= {"logPath": None, "logBytes": 0}
    path = records.place_of(folder, record.key, "log")
    with suppress(OSError):
        row |= {"logBytes": os.lstat(path).st_size, "logPath": path}
    return row


def _runtime(record: Record, exit_: Exit | None) -> float:
    return exit_.seconds if exit_ else max(0.0, time.time() - record.started)


def _print_table(rows: Sequence[_Seen]) -> None:
    ids = [each.record.id for each in rows]
    lines = [_HEAD, *(_cells(each, ids) for each in rows)]
    widths = [max(width_of(line[i]) for line in lines) for i in range(len(_HEAD) - 1)]
    room = _MAX_COMMAND
    if is_terminal(sys.stdout):
        room = shutil.get_terminal_size().columns - sum(widths) - 2 * len(widths)
    for number, line in enumerate(lines):
        cells = [
            cell + " " * (width - width_of(cell)) for cell, width in zip(line, widths, strict=False)
        ]
        text = "  ".join((*cells, cut_to(line[-1], max(room, _MIN_COMMAND)))).rstrip()
        click.echo(text if number else click.style(text, bold=True))


def _cells(seen: _Seen, ids: Sequence[str]) -> tuple[str, ...]:
    """One command as people read it."""
    record = seen.record
    return (
        record.id if ids.count(record.id) == 1 else record.key,
        str(record.pid),
        "?"
        if seen.exit and seen.exit.reason == "lost"
        else human_time(_runtime(*seen[:2])).replace(" ", ""),
        cut_to(_plain(record.owner), _MAX_OWNER),
        _status(seen),
        shorten(_plain(_from_home(record.cwd)), _MAX_DIRECTORY),
        _plain(record.text),
    )


def _plain(text: str) -> str:
    return printable(one_line(text, _MAX_COMMAND), "")


def _from_home(path: str) -> str:
    home = os.path.expanduser("~")
    return f"~{path[len(home) :]}" if path == home or path.startswith(f"{home}/") else path


def _status(seen: _Seen) -> str:
    said = _say_exit(seen.exit) if seen.exit else "running"
    return f"{said}, {len(seen.left)} left running" if seen.left else said


def _say_exit(exit_: Exit) -> str:
    if exit_.reason == "lost":
        return "ended, code not known"
    return exit_.signal or f"exit {exit_.code}"


class Known(NamedTuple):
    """A command that can be named: its output may outlive what is written down about it."""

    key: str
    id: str
    record: Record | None


def choose(wanted: str, known: Sequence[Known]) -> Known:
    """The command that a key, an id or the beginning of one stands for."""
    word = wanted.strip().lower()
    alike = [each for each in known if each.key == word]
    if not alike:
        alike = [each for each in known if each.id == word]
        running = [each for each in alike if each.record and each.record.runs]
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
        raise click.UsageError("\n".join((f"{wanted!r} can be any of", *lines)))
    ids = sorted({each.id for each in known})
    near = nearest(word, ids)
    hint = "; none is there"
    if near:
        hint = f"; did you mean {' or '.join(near)}?"
    elif ids:
        hint = f"; there {'is' if len(ids) == 1 else 'are'} {', '.join(ids[:10])}"
    raise NotFoundError(f"there is no command {wanted[:80]!r}{hint}", alike=near)


@click.command(short_help="End commands, and all they started.")
@click.argument("ids", nargs=-1, metavar="[ID]...")
@click.option("--all", "everything", is_flag=True, help="All that `clawkit ps` shows.")
@click.option("--now", is_flag=True, help="Kill them at once, without asking them to end.")
@click.option("--signal", "name", metavar="NAME", help="Only send this signal, such as HUP.")
def kill(ids: tuple[str, ...], everything: bool, now: bool, name: str | None) -> None:
    """End commands, and all they started.

    They are asked to end (SIGTERM), and killed when they have not after 5 seconds. The exit code
    is 0 when all of them are gone, and 1 when some are not.

    \b
    clawkit kill calm-otter
    clawkit kill --signal HUP calm-otter
    """
    if bool(ids) == everything:
        raise click.UsageError("give either the ids of commands, or --all")
    if now and name is not None:
        raise click.UsageError("--now and --signal exclude each other")
    number, word = (0, "") if name is None else _signal_of(name)
    folder = open_folder()
    chosen, is_missing = _chosen(folder, ids)
    if everything and not chosen:
        click.echo("No command is running.")
    if not number:
        grace_s = 0.0 if now else found.ASK_S
        outcomes = found.end(chosen, grace_s=grace_s, tell=_Progress())
        done, undone = "ended", "could not end"
    else:
        outcomes = [found.send(record, number) for record in chosen]
        done, undone = f"sent {word} to", "could not signal"
    for outcome in outcomes:
        _report(outcome, done, undone)
    sys.exit(1 if is_missing or any(each.left for each in outcomes) else 0)


def _chosen(folder: str, ids: Sequence[str]) -> tuple[list[Record], bool]:
    """The commands that are meant, or all; and whether one of them was not found."""
    if not ids:
        return [each.record for each in _look(folder, everything=False)], False
    known = [Known(each.key, each.id, each) for each in records.read_all(folder) if each.is_here]
    chosen: dict[str, Record] = {}
    missing = False
    for id_ in ids:
        try:
            record = choose(id_, known).record
        except NotFoundError as error:
            missing = True
            click.echo(f"clawkit: {printable(str(error))}", err=True)
            continue
        if record is not None:
            chosen[record.key] = record
    return list(chosen.values()), missing


def _signal_of(name: str) -> tuple[int, str]:
    try:
        return read_signal(name)
    except ToolInputError as error:
        raise click.UsageError(str(error)) from None


class _Progress:
    """Says what is waited for when it takes longer."""

    def __init__(self) -> None:
        self._begun = time.monotonic()
        self._said: bool | None = None

    def __call__(self, left: Sequence[Left], is_asked: bool) -> None:
        if is_asked is not self._said and time.monotonic() - self._begun > 1:
            self._said = is_asked
            verb = "waiting for" if is_asked else "killing"
            click.echo(f"{verb} {_say_processes(left)} …", err=True)


def _report(outcome: found.Outcome, done: str, undone: str) -> None:
    id_ = outcome.record.id
    if outcome.reached:
        click.echo(f"{done} {id_}: {_say_processes(outcome.reached)}")
    elif not outcome.left:
        click.echo(f"{id_} had ended already")
    if outcome.left:
        said = f"{id_}: {undone} {_say_processes(outcome.left)}: {outcome.problem}"
        click.echo(f"clawkit: {said}", err=True)


def _say_processes(processes: Sequence[Left]) -> str:
    shown = ", ".join(f"{printable(each.name, '')} (pid {each.pid})" for each in processes[:5])
    return f"{shown} and {len(processes) - 5} more" if len(processes) > 5 else shown
