"""A conversation line by line: for pipes, simple terminals, and where nothing more is installed."""

from __future__ import annotations

import asyncio
import signal
import sys
from collections.abc import Mapping, Sequence
from typing import Any, Protocol

import click

from clawkit.agent.events import Event, ToolHappened, TurnEnded
from clawkit.content import Assistant, Image, Message
from clawkit.core.approval import Approver
from clawkit.errors import ClawkitError
from clawkit.line_reader import LineReader
from clawkit.text import printable
from clawkit.ui import commands
from clawkit.ui.paint import Paint, Row, Style, describe_image
from clawkit.ui.session import ChatSession, SessionOpener, describe_commands, look

MAX_LINE = 4 * 1024 * 1024
_ENDINGS = (signal.SIGTERM, signal.SIGHUP)
_COLOURS: Mapping[Style, str] = {
    "dim": "bright_black",
    "good": "green",
    "warning": "yellow",
    "error": "red",
}


class TurnPrinter(Protocol):
    """Shows what happens in a turn."""

    def __call__(self, event: Event) -> None: ...
    def finish(self, ended: TurnEnded) -> None: ...


async def run_plain(
    doors: SessionOpener,
    watcher: TurnPrinter,
    approver: Approver | None,
    message: str = "",
    pictures: Sequence[str] = (),
) -> int:
    """Answer line after line until there is none; 1 when the last turn failed."""
    # Pasted lines look the same as typed ones, so commands are asked about.
    chat = LineChat(doors, watcher, approver)
    task = asyncio.ensure_future(chat.run(message, pictures))
    loop = asyncio.get_running_loop()
    loop.add_signal_handler(signal.SIGINT, lambda: chat.interrupt() or task.cancel())
    for each in _ENDINGS:
        loop.add_signal_handler(each, task.cancel)
    try:
        return await task
    except asyncio.CancelledError:
        raise KeyboardInterrupt from None
    finally:
        for each in (signal.SIGINT, *_ENDINGS):
            loop.remove_signal_handler(each)
        doors.ending(chat.talk.agent)
        await chat.talk.agent.close()


class LineChat:
    """One line after the other."""

    show_thinking = False

    def __init__(
        self, doors: SessionOpener, watcher: TurnPrinter, approver: Approver | None
    ) -> None:
        def reopen(session: str | None) -> Any:
            return doors.reopen(session, watcher, approver)

        self._watcher = watcher
        self._paint = Paint(colours=False, encoding=sys.stdout.encoding)
        self._lines = LineReader(sys.stdin.fileno(), MAX_LINE) if sys.stdin is not None else None
        self._is_asked = sys.stdin is not None and sys.stdin.isatty()
        self.talk = ChatSession(doors.open(watcher, approver), reopen, doors.ending)
        self._failed = False
        self._work: asyncio.Task[None] | None = None

    def interrupt(self) -> bool:
        """Stop what was asked for, where something else can be asked for; else false."""
        if self._work is None or self._work.done() or not self._is_asked:
            return False
        return self._work.cancel()

    async def run(self, message: str, pictures: Sequence[str]) -> int:
        talk = self.talk
        for row in talk.greeting():
            click.secho(self._safe(row.text), fg=_COLOURS.get(row.style), err=True)
        if self._is_asked:
            await look(talk)
            click.secho(self._safe(describe_commands(talk)), fg=_COLOURS["dim"], err=True)
        for path in pictures:
            talk.images.append(await talk.agent.attach(path))
        if message:
            await self._take(message)
        while not talk.is_over and (line := await self._next()) is not None:
            if line.strip():
                await self._take(line)
        return 1 if self._failed else 0

    async def _next(self) -> str | None:
        """The next line; one that ends with a backslash goes on in the following one."""
        if self._lines is None:
            return None
        found = ""
        while True:
            if self._is_asked:
                click.echo("> " if not found else "… ", nl=False, err=True)
            line = await self._lines.next()
            if not line:
                return found or None
            found += line.rstrip(b"\r\n").decode("utf-8", "replace")
            if not found.endswith("\\"):
                return found
            found = f"{found[:-1]}\n"

    async def _take(self, line: str) -> None:
        self._work = asyncio.ensure_future(self._carry_out(line))
        try:
            await asyncio.wait({self._work})
        finally:
            self._work.cancel()
            await asyncio.wait({self._work})
        if self._work.cancelled():
            click.echo("interrupted", err=True)
            self._failed = True
        else:
            self._work.result()

    async def _carry_out(self, line: str) -> None:
        line = self.talk.read(line)
        name, rest = commands.split(line)
        if line.startswith("/later ") and rest and name == "later":
            line = rest
        try:
            if self.talk.is_command(line):
                await commands.run(self.talk, self, line)
            else:
                ended = await self.talk.agent.send(self.talk.blocks(line))
                self._watcher.finish(ended)
                self._failed = ended.how != "done"
        except ClawkitError as error:
            click.echo(f"clawkit: {printable(str(error))}", err=True)

    # The face

    def say(self, text: str, style: Style = "") -> None:
        click.secho(self._safe(text), fg=_COLOURS.get(style))
        sys.stdout.flush()

    def rows(self, rows: Sequence[Row]) -> None:
        for row in rows:
            self.say(row.text, row.style)

    def show_call(self, event: Mapping[str, Any]) -> None:
        plan = event.get("details", {}).get("plan")
        if plan:
            from clawkit.ui.calls import plan_rows

            self.rows(list(plan_rows(plan, self._paint)))
        self._watcher(ToolHappened(dict(event)))

    def show_output(self, text: str, *, failed: bool) -> None:
        if not failed:
            self.say(text.rstrip())

    def show_image(self, image: Image) -> None:
        self.say(describe_image(image), "dim")

    def show_history(self, messages: Sequence[Message]) -> None:
        last = next((each for each in reversed(messages) if isinstance(each, Assistant)), None)
        if last is not None and last.text.strip():
            self.say(f"{len(messages)} messages so far; the last answer was:", "dim")
            self.say(last.text.strip("\n"))

    def _safe(self, text: str) -> str:
        return printable(text) if sys.stdout.isatty() else text
