"""The chat line by line, for pipes, simple terminals, and installations without the extra tui."""

from __future__ import annotations

import asyncio
import signal
import sys
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, Protocol

import click

from clawkit.agent.events import Event, ToolEvent, TurnEnded
from clawkit.content import Assistant, Image, Message
from clawkit.core.approval import Approver
from clawkit.core.result import Result
from clawkit.errors import ClawkitError
from clawkit.line_reader import LineReader
from clawkit.terminal_text import hold_back
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
    failed: OSError | None
    """Why the output can no longer be written."""
    stop: Callable[[], object]
    """Called when writing fails."""

    def __call__(self, event: Event) -> None: ...
    def finish(self, ended: TurnEnded) -> None: ...


async def run_plain(
    make_chat: Callable[[], LineLoop], message: str = "", pictures: Sequence[str] = ()
) -> int:
    """Answer line after line until the input ends; returns 1 if the last turn failed."""
    chat = make_chat()
    task = asyncio.ensure_future(chat.talk(message, pictures))
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


class LineLoop(ABC):
    """Reads and executes lines, one after another."""

    is_over = has_failed = has_turns = False

    def __init__(self, printer: TurnPrinter) -> None:
        self.printer = printer
        self.has_news = asyncio.Event()
        """Set when there is work other than a line."""
        self.lines = LineReader(sys.stdin.fileno(), MAX_LINE) if sys.stdin is not None else None
        self.is_interactive = sys.stdin is not None and sys.stdin.isatty()
        self._work: asyncio.Task[None] | None = None

    @abstractmethod
    async def greet(self, pictures: Sequence[str]) -> None:
        """Show the start of the chat; the pictures belong to the first message."""

    @abstractmethod
    async def carry_out(self, line: str, *, is_initial: bool = False) -> TurnEnded | None:
        """Run the command or the turn of a line, which may come from the command line
        (`is_initial`); without a line, do pending work. Raises `ClawkitError`."""

    @abstractmethod
    async def close(self) -> None: ...

    @property
    def is_working(self) -> bool:
        return self._work is not None and not self._work.done()

    def interrupt(self) -> bool:
        """Stop the current work, if interactive; False if there is nothing to stop."""
        if self._work is None or not self.is_working or not self.is_interactive:
            return False
        return self._work.cancel()

    async def talk(self, message: str, pictures: Sequence[str]) -> int:
        await self.greet(pictures)
        if message or pictures:
            await self._take(message, is_initial=True)
        while not self.is_over and (line := await self._next()) is not None:
            if line.strip():
                await self._take(line)
        if not self.is_over:
            await self._take("")  # wait for the results of sub-agents
        return 1 if self.has_failed else 0

    def say_how_to_continue(self, session: str) -> None:
        if self.is_interactive and self.has_turns and session:
            click.echo(f"To continue later: clawkit chat --session {session}", err=True)

    async def _next(self) -> str | None:
        """The next line; a trailing backslash continues it on the following line."""
        found = ""
        while True:
            if self.is_interactive:
                click.echo("> " if not found else "… ", nl=False, err=True)
            line = await self._read_line(self.lines) if self.lines is not None else b""
            if not line:
                return found or None
            found += line.rstrip(b"\r\n").decode("utf-8", "replace")
            if not found.endswith("\\"):
                return found
            found = f"{found[:-1]}\n"

    async def _read_line(self, lines: LineReader) -> bytes:
        """The next line. Meanwhile, the model reads the results of sub-agents."""
        reading = asyncio.ensure_future(lines.next())
        try:
            while not reading.done():
                news = asyncio.ensure_future(self.has_news.wait())
                await asyncio.wait({reading, news}, return_when=asyncio.FIRST_COMPLETED)
                news.cancel()
                if self.has_news.is_set() and not reading.done():
                    self.has_news.clear()
                    await self._take("")
                if self.is_over:
                    return b""
            return await reading
        finally:
            reading.cancel()

    async def _take(self, line: str, *, is_initial: bool = False) -> None:
        self._work = asyncio.ensure_future(self._carry_out(line, is_initial=is_initial))
        self.printer.stop = self._work.cancel
        try:
            await asyncio.wait({self._work})
        finally:
            self._work.cancel()
            await asyncio.wait({self._work})
        if self.printer.failed is not None:
            raise self.printer.failed
        if self._work.cancelled():
            click.echo("interrupted", err=True)
            self.has_failed = True
        else:
            self._work.result()

    async def _carry_out(self, line: str, *, is_initial: bool) -> None:
        try:
            ended = await self.carry_out(line, is_initial=is_initial)
            if ended is not None:
                self.has_turns = True
                self.printer.finish(ended)
                self.has_failed = ended.how != "done"
        except ClawkitError as error:
            click.echo(f"clawkit: {printable(str(error))}", err=True)


def print_rows(rows: Iterable[PaintedRow], *, err: bool = False) -> None:
    stream = sys.stderr if err else sys.stdout
    if stream is not None and hold_back(stream, lambda: print_rows(rows, err=err)):
        return
    for row in rows:
        text = printable(row.text) if stream is not None and stream.isatty() else row.text
        click.secho(text, fg=COLOURS.get(row.style), err=err)
    sys.stdout.flush()


class LineChat(LineLoop, ChatSession):
    """A chat with an agent in this process. Its commands need approval, because pasted lines cannot
    be distinguished from typed ones."""

    def __init__(
        self, opener: SessionOpener, printer: TurnPrinter, approver: Approver | None
    ) -> None:
        LineLoop.__init__(self, printer)
        ChatSession.__init__(self, opener, printer, approver)

    async def greet(self, pictures: Sequence[str]) -> None:
        print_rows(self.greeting(), err=True)
        if self.is_interactive:
            await self.look()
            print_rows([PaintedRow(self.describe_commands(why=True), "dim")], err=True)
        for path in pictures:
            self.images.append(await self.agent.attach(path))

    def hear_results(self) -> None:
        self.has_news.set()

    async def carry_out(self, line: str, *, is_initial: bool = False) -> TurnEnded | None:
        line, _ = self.read(line)
        if self.is_command(line):
            with self.agent.turns.lane.paused():
                await commands.run(self, line)
            return None
        if line:
            return await self.agent.send(self.blocks(line))
        waits = not self.is_interactive or self.lines is None
        return await (self.agent.settle() if waits else self.agent.report())

    async def close(self) -> None:
        session = self.agent.session
        self.say_how_to_continue(session.name if session is not None else "")
        await ChatSession.close(self)

    def rows(self, rows: Sequence[PaintedRow]) -> None:
        print_rows(rows)

    def show_call(self, event: Mapping[str, Any]) -> None:
        plan = event.get("details", {}).get("plan")
        if plan:
            from clawkit.ui.calls import plan_rows

            paint = Paint(colours=False, encoding=sys.stdout.encoding)
            self.rows(list(plan_rows(plan, paint)))
        self.printer(ToolEvent(dict(event)))

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
