"""`clawkit gateway logs`: the log of the gateway, without secrets."""

from __future__ import annotations

import os
import time
from collections import deque
from collections.abc import Iterator
from typing import Any

import click

from clawkit.cli.shared_options import print_json_line, refuse_commands
from clawkit.config.paths import home
from clawkit.errors import ToolError
from clawkit.text import printable

_CHUNK = 64 * 1024
_POLL_S = 0.2
_COLORS = {"warning": "yellow", "error": "red", "critical": "red"}
_KEEP = 2
"""Number of older files that the gateway keeps; a test compares it."""


def log_file() -> str:
    return os.path.join(home(os.environ), "logs", "gateway.jsonl")


class LogFollower:
    """Reads complete lines as they are appended, across rotations."""

    def __init__(self, path: str) -> None:
        self._path = path
        self._file: Any = None
        self._rest = b""

    def close(self) -> None:
        if self._file is not None:
            self._file.close()
            self._file = None

    def read(self) -> Iterator[bytes]:
        """The lines added since the last call."""
        if self._file is None and not self._open():
            return
        yield from self._drain()
        if self._is_rotated():
            yield from self._drain()  # lines added before the rename
            self.close()
            self._rest = b""
            if self._open():
                yield from self._drain()

    def _open(self) -> bool:
        try:
            self._file = open(self._path, "rb")  # noqa: SIM115 - closed by close()
        except FileNotFoundError:
            return False
        return True

    def _is_rotated(self) -> bool:
        try:
            there = os.stat(self._path)
        except FileNotFoundError:
            return True
        here = os.fstat(self._file.fileno())
        return not os.path.samestat(there, here) or there.st_size < self._file.tell()

    def _drain(self) -> Iterator[bytes]:
        while data := self._file.read(_CHUNK):
            *lines, self._rest = (self._rest + data).split(b"\n")
            yield from (line for line in lines if line)


def _last_lines(follower: LogFollower, path: str, count: int) -> list[bytes]:
    """The last lines, including older files if the current one has too few."""
    lines = deque(follower.read(), maxlen=count)
    for number in range(1, _KEEP + 1):
        missing = count - len(lines)
        if missing <= 0:
            break
        older = LogFollower(f"{path}.{number}")
        lines.extendleft(reversed(deque(older.read(), maxlen=missing)))
        older.close()
    return list(lines)


def _show(line: bytes, *, as_json: bool) -> None:
    import msgspec

    try:
        fields = msgspec.json.decode(line, type=dict[str, Any])
    except (msgspec.DecodeError, UnicodeDecodeError):
        fields = {"message": line.decode("utf-8", "replace")}
    if as_json:
        print_json_line(fields)
        return
    text, at, level, name = (
        str(fields.get(key, "")) for key in ("message", "time", "level", "subsystem")
    )
    text = printable(text)
    if len(fields) > 1:
        shown = click.style(printable(f"{level:<7}", ""), fg=_COLORS.get(level))
        name = printable(name.removeprefix("clawkit."), "")
        text = f"{printable(at, '')} {shown} {name}: " + text.replace("\n", "\n    ")
    click.echo(text)


@click.command()
@click.option(
    "-n",
    "--lines",
    type=click.IntRange(0, 1_000_000),
    default=50,
    show_default=True,
    help="How many of the last lines to show.",
)
@click.option("-f", "--follow", is_flag=True, help="Show new lines until Ctrl-C.")
@click.option("--json", "as_json", is_flag=True, help="Print each line as a JSON object.")
def logs(lines: int, follow: bool, as_json: bool) -> None:
    """Show the log of the gateway, with secrets masked.

    \b
    clawkit gateway logs -n 200
    clawkit gateway logs -f --json | jq 'select(.level != "info")'
    """
    refuse_commands("read the log of the gateway")
    from clawkit.cli.gateway_status import say_local  # imported late: it also needs the log module

    say_local()
    path = log_file()
    if not follow and not os.path.exists(path):
        raise ToolError(
            f"there is no log yet: {path}; start the gateway with: clawkit gateway start"
        )
    follower = LogFollower(path)
    try:
        for line in _last_lines(follower, path, lines):
            _show(line, as_json=as_json)
        while follow:
            time.sleep(_POLL_S)
            for line in follower.read():
                _show(line, as_json=as_json)
    finally:
        follower.close()
