"""`clawkit logs`: what a command wrote, or writes."""

from __future__ import annotations

import os
import sys
import time
from contextlib import suppress

import click

from clawkit.cli.running import Known, choose, open_folder
from clawkit.errors import NotFoundError, ToolError
from clawkit.process import records, tree
from clawkit.process.clean import clean, whole_end
from clawkit.text import human_size, printable

LINES = 200
_CHUNK = 1024 * 1024
_LOOK_S = 0.2
_SETTLE_S = 3.0
"""How long, after a command's end, its clawkit may still be writing down what it said."""


@click.command(short_help="Show what a command wrote.")
@click.argument("id_", metavar="ID")
@click.option(
    "-n",
    "--lines",
    metavar="LINES",
    type=click.IntRange(min=0),
    help=f"How many of the last lines. Default: {LINES}, with --raw all.",
)
@click.option("-f", "--follow", is_flag=True, help="Go on until it ends, or Ctrl-C.")
@click.option("--raw", is_flag=True, help="The bytes as they are, with all they do to a terminal.")
@click.option("--screen", is_flag=True, help="What its terminal shows; only if it has one.")
def logs(id_: str, lines: int | None, follow: bool, raw: bool, screen: bool) -> None:
    """Show what a command wrote: standard output and errors as they came.

    ID is the sessionId, the longer key that `clawkit ps --json` has, or the beginning of one.
    Colours and whatever else is meant for a terminal are left out unless --raw is given.

    \b
    clawkit logs calm-otter -f
    clawkit logs calm --raw > all.log
    """
    if screen and (follow or raw or lines is not None):
        raise click.UsageError("--screen goes with no other option")
    folder = open_folder()
    chosen = choose(id_, _all_known(folder))
    if screen:
        _print_screen(folder, chosen)
        return
    fd = _open_log(folder, chosen, wait=follow)
    out = _Raw() if raw else _Cleaned()
    try:
        size = os.fstat(fd).st_size
        at = (
            0 if raw and lines is None else _last_lines(fd, size, LINES if lines is None else lines)
        )
        if at and lines is None:
            click.echo(f"[{human_size(at)} before this are left out; -n shows more]", err=True)
        # Whoever took the output may have seen enough.
        with suppress(BrokenPipeError):
            at = _copy(fd, at, out, until=size)
            if follow:
                _follow(folder, chosen, fd, at, out)
            out.finish()
    finally:
        os.close(fd)


def _all_known(folder: str) -> list[Known]:
    known = {each.key: Known(each.key, each.id, each) for each in records.read_all(folder)}
    for key in records.keys(folder, "log"):
        known.setdefault(key, Known(key, key.rpartition("-")[0] or key, None))
    return list(known.values())


def _open_log(folder: str, chosen: Known, *, wait: bool) -> int:
    while True:
        runs = wait and chosen.record is not None and chosen.record.runs
        try:
            return records.open_file(folder, chosen.key, "log")
        except FileNotFoundError:
            if not runs:
                raise NotFoundError(f"no output of {chosen.id} is kept") from None
        except OSError as error:
            path = records.place_of(folder, chosen.key, "log")
            raise ToolError(f"{path} cannot be read: {error.strerror}") from None
        time.sleep(_LOOK_S)


def _last_lines(fd: int, size: int, count: int) -> int:
    """Where the last lines begin."""
    at = size
    # What comes after the last newline is a line as well, if anything does.
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


class _Raw:
    """Bytes as they are."""

    def take(self, data: bytes) -> None:
        if sys.stdout is not None:
            sys.stdout.buffer.write(data)
            sys.stdout.buffer.flush()

    def finish(self) -> None:
        """There is nothing left to say."""


class _Cleaned:
    """Bytes as text that is safe to look at, whatever the pieces they come in."""

    def __init__(self) -> None:
        self._held = b""
        self._in_line = False

    def take(self, data: bytes) -> None:
        data = self._held + data
        end = whole_end(data)
        # It may become the end of a line, or the beginning of an update.
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


def _copy(fd: int, at: int, out: _Raw | _Cleaned, until: int) -> int:
    """Everything from one place to another; the place where it ends for now."""
    while data := os.pread(fd, max(0, min(_CHUNK, until - at)), at):
        out.take(data)
        at += len(data)
    return at


def _follow(folder: str, chosen: Known, fd: int, at: int, out: _Raw | _Cleaned) -> None:
    """All that comes, until the command has ended and no more can come."""
    ended: float | None = None
    while True:
        is_over = _is_over(folder, chosen, ended)
        size = os.fstat(fd).st_size
        if size < at:
            click.echo("[the output was cut; it goes on from its new beginning]", err=True)
            at = 0
        at = _copy(fd, at, out, until=size)
        if is_over:
            return
        if ended is None and chosen.record is not None and not chosen.record.runs:
            ended = time.monotonic()
        time.sleep(_LOOK_S)


def _is_over(folder: str, chosen: Known, ended: float | None) -> bool:
    record = chosen.record
    if record is None:
        return True
    if ended is None:
        return False
    # It is written down until its clawkit has all of its output.
    is_noted = os.path.lexists(records.place_of(folder, record.key, "json"))
    has_keeper = tree.look(record.keeper) is not None
    is_late = time.monotonic() - ended > _SETTLE_S
    return record.detached or not is_noted or not has_keeper or is_late


def _print_screen(folder: str, chosen: Known) -> None:
    if chosen.record is None or chosen.record.terminal is None:
        raise click.UsageError(f"{chosen.id} has no terminal, so there is no screen to show")
    from clawkit.process.screen import render

    fd = _open_log(folder, chosen, wait=False)
    try:
        size = os.fstat(fd).st_size
        data = os.pread(fd, _CHUNK, max(0, size - _CHUNK))
    finally:
        os.close(fd)
    lines = render(data, *chosen.record.terminal, cut=size > len(data)).lines
    click.echo(printable("\n".join(lines).rstrip("\n")))
