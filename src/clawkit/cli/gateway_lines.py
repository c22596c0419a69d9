"""The chat line by line with a gateway, for pipes and simple terminals."""

from __future__ import annotations

import os
import select
import sys
from collections.abc import Callable, Sequence
from typing import Any

import click

from clawkit.agent.events import ToolHappened
from clawkit.cli.gateway_follow import TurnFollower
from clawkit.cli.gateway_turn import CHAT, StartedTurn, attach, chat_params
from clawkit.cli.options import is_terminal, warn
from clawkit.cli.turn_output import PlainOutput
from clawkit.core.approval import Approver
from clawkit.errors import ClawkitError
from clawkit.gateway.client import Link
from clawkit.text import printable
from clawkit.ui.line_chat import COLOURS, MAX_LINE


def run_lines(
    link: Link,
    options: dict[str, Any],
    opened: dict[str, Any],
    make_approver: Callable[[], Approver | None],
    message: str,
    pictures: Sequence[str],
) -> int:
    """Answer line after line until the input ends; returns 1 if the last turn failed."""
    with link:
        chat = _LinesChat(link, options, opened, make_approver)
        attached = [attach(each) for each in pictures]
        if message or attached:
            chat.take(message, attached, given=True)
        while not chat.is_over and (line := chat.next_line()) is not None:
            if line.strip():
                chat.take(line)
        return 1 if chat.has_failed else 0


class _LinesChat:
    def __init__(
        self,
        link: Link,
        options: dict[str, Any],
        opened: dict[str, Any],
        make_approver: Callable[[], Approver | None],
    ) -> None:
        self._link, self._options, self._make_approver = link, options, make_approver
        self._is_interactive = is_terminal(sys.stdin)
        self._data = b""
        self.is_over = self.has_failed = False
        self._enter(opened, err=True)

    def _enter(self, opened: dict[str, Any], *, err: bool = False) -> None:
        self._key = opened["key"]
        warn(opened["warnings"])
        show_rows(opened["rows"], err=err)

    def next_line(self) -> str | None:
        """The next line; a trailing backslash continues it. Meanwhile, pings are answered."""
        found = ""
        while True:
            if self._is_interactive:
                click.echo("> " if not found else "… ", nl=False, err=True)
            line = self._read_line()
            if not line:
                return found or None
            found += line.rstrip(b"\r\n").decode("utf-8", "replace")
            if not found.endswith("\\"):
                return found
            found = f"{found[:-1]}\n"

    def _read_line(self) -> bytes:
        fd = sys.stdin.fileno() if sys.stdin is not None else -1
        while fd >= 0 and b"\n" not in self._data and len(self._data) <= MAX_LINE:
            ready, _, _ = select.select([fd, self._link.socket], [], [])
            if self._link.socket in ready:
                self._link.receive_nothing()
            elif not (more := os.read(fd, 1 << 16)):
                break
            else:
                self._data += more
        line, end, rest = self._data.partition(b"\n")
        self._data = rest
        return line + end

    def take(
        self, line: str, attached: Sequence[dict[str, str]] = (), *, given: bool = False
    ) -> None:
        params = {"key": self._key, "line": line, "wait": True, "attachments": list(attached)}
        params |= {"given": given, "idempotencyKey": os.urandom(16).hex()}
        started = StartedTurn(self._link, self._link.request("clawkit.chat.type", params), params)
        output = PlainOutput()
        follower = _LineFollower(started, output, self._make_approver, self._key)
        try:
            ended = follower.run()
        except KeyboardInterrupt:
            if not self._is_interactive:
                raise
            click.echo("interrupted", err=True)
            self.has_failed = True
            return
        except ClawkitError as error:
            if getattr(error, "error", None) is None:
                raise  # the connection is gone
            click.echo(f"clawkit: {printable(str(error))}", err=True)
            return
        if follower.command is None:
            output.finish(ended)
            self.has_failed = ended.how != "done"
            return
        self.is_over = bool(follower.command.get("over"))
        if (session := follower.command.get("session")) is not None:
            params = chat_params(self._link.target, self._options, session, keyboard=False)
            self._enter(self._link.call(CHAT, params))


class _LineFollower(TurnFollower):
    """Follows a line, which may be a command of the chat."""

    command: dict[str, Any] | None = None

    def __init__(
        self,
        started: StartedTurn,
        output: PlainOutput,
        make_approver: Callable[[], Approver | None],
        key: str,
    ) -> None:
        super().__init__(started, output, make_approver)
        self._sessions.add(key)  # a command is not accepted first

    def _show(self, payload: dict[str, Any]) -> None:
        if "event" in payload:
            return super()._show(payload)
        if "call" in payload:
            return self._output(ToolHappened(payload["call"]))
        return show_rows(payload.get("rows") or payload.get("output") or ())

    def _end(self, payload: dict[str, Any]) -> None:
        if "ended" in payload:
            return super()._end(payload)
        self.command = payload
        return super()._end({"ended": {"how": "done"}})


def show_rows(rows: Sequence[Any], *, err: bool = False) -> None:
    for text, style, _ in rows:
        shown = printable(text) if is_terminal(sys.stderr if err else sys.stdout) else text
        click.secho(shown, fg=COLOURS.get(style), err=err)
    sys.stdout.flush()
