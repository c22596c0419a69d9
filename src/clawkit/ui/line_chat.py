"""The chat line by line, for pipes, simple terminals, and installations without the extra tui."""

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
from clawkit.core.result import Result
from clawkit.errors import ClawkitError
from clawkit.line_reader import LineReader
from clawkit.text import printable
from clawkit.ui import commands
from clawkit.ui.paint import Paint, PaintedRow, Style, describe_image
from clawkit.ui.session import ChatSession, SessionOpener

MAX_LINE = 4 * 1024 * 1024
_ENDINGS = (signal.SIGTERM, signal.SIGHUP)
COLOURS: Mapping[Style, str] = {
    "dim": "bright_black",
    "good": "green",
    "warning": "yellow",
    "error": "red",
}


class TurnPrinter(Protocol):
    def __call__(self, event: Event) -> None: ...
    def finish(self, ended: TurnEnded) -> None: ...


async def run_plain(
    opener: SessionOpener,
    printer: TurnPrinter,
    approver: Approver | None,
    message: str = "",
    pictures: Sequence[str] = (),
) -> int:
    """Answer line after line until the input ends; returns 1 if the last turn failed."""
    # Pasted lines cannot be told from typed ones, so commands need approval.
    chat = LineChat(opener, printer, approver)
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
        await chat.close()


class LineChat(ChatSession):
    def __init__(
        self, opener: SessionOpener, printer: TurnPrinter, approver: Approver | None
    ) -> None:
        self._has_news = asyncio.Event()
        super().__init__(opener, printer, approver)
        self._printer = printer
        self._lines = LineReader(sys.stdin.fileno(), MAX_LINE) if sys.stdin is not None else None
        self._is_interactive = sys.stdin is not None and sys.stdin.isatty()
        self._failed = False
        self._work: asyncio.Task[None] | None = None

    def interrupt(self) -> bool:
        """Stop the current work, if interactive; False if there is nothing to stop."""
        if self._work is None or self._work.done() or not self._is_interactive:
            return False
        return self._work.cancel()

    async def run(self, message: str, pictures: Sequence[str]) -> int:
        self.rows(list(self.greeting()), err=True)
        if self._is_interactive:
            await self.look()
            self.rows([PaintedRow(self.describe_commands(why=True), "dim")], err=True)
        for path in pictures:
            self.images.append(await self.agent.attach(path))
        if message:
            await self._take(message)
        while not self.is_over and (line := await self._next()) is not None:
            if line.strip():
                await self._take(line)
        if not self.is_over:
            await self._take("")  # wait for the results of sub-agents
        return 1 if self._failed else 0

    def hear_results(self) -> None:
        self._has_news.set()

    async def _next(self) -> str | None:
        """The next line; a trailing backslash continues it on the following line."""
        found = ""
        while True:
            if self._is_interactive:
                click.echo("> " if not found else "… ", nl=False, err=True)
            line = await self._read(self._lines) if self._lines is not None else b""
            if not line:
                return found or None
            found += line.rstrip(b"\r\n").decode("utf-8", "replace")
            if not found.endswith("\\"):
                return found
            found = f"{found[:-1]}\n"

    async def _read(self, lines: LineReader) -> bytes:
        """The next line. Meanwhile, the model reads the results of sub-agents."""
        reading = asyncio.ensure_future(lines.next())
        try:
            while not reading.done():
                news = asyncio.ensure_future(self._has_news.wait())
                await asyncio.wait({reading, news}, return_when=asyncio.FIRST_COMPLETED)
                news.cancel()
                if self._has_news.is_set() and not reading.done():
                    self._has_news.clear()
                    await self._take("")
            return await reading
        finally:
            reading.cancel()

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
        line, _ = self.read(line)
        ended: TurnEnded | None = None
        try:
            if self.is_command(line):
                with self.agent.turns.lane.held():
                    await commands.run(self, line)
            elif line:
                ended = await self.agent.send(self.blocks(line))
            else:
                waits = not self._is_interactive or self._lines is None
                ended = await (self.agent.settle() if waits else self.agent.report())
            if ended is not None:
                self._printer.finish(ended)
                self._failed = ended.how != "done"
        except ClawkitError as error:
            click.echo(f"clawkit: {printable(str(error))}", err=True)

    def rows(self, rows: Sequence[PaintedRow], *, err: bool = False) -> None:
        stream = sys.stderr if err else sys.stdout
        for row in rows:
            text = printable(row.text) if stream is not None and stream.isatty() else row.text
            click.secho(text, fg=COLOURS.get(row.style), err=err)
        sys.stdout.flush()

    def show_call(self, event: Mapping[str, Any]) -> None:
        plan = event.get("details", {}).get("plan")
        if plan:
            from clawkit.ui.calls import plan_rows

            paint = Paint(colours=False, encoding=sys.stdout.encoding)
            self.rows(list(plan_rows(plan, paint)))
        self._printer(ToolHappened(dict(event)))

    def show_result(self, result: Result) -> None:
        if not result.is_error:
            self.say(result.as_text().rstrip())

    def show_image(self, image: Image) -> None:
        self.say(describe_image(image), "dim")

    def show_history(self, messages: Sequence[Message]) -> None:
        last = next((each for each in reversed(messages) if isinstance(each, Assistant)), None)
        if last is not None and last.text.strip():
            self.say(f"{len(messages)} messages so far; the last answer was:", "dim")
            self.say(last.text.strip("\n"))
