"""Starting the full terminal: first a line to type in, then everything that takes longer."""

from __future__ import annotations

import asyncio
import importlib
import io
import os
import signal
import sys
from collections.abc import Sequence
from contextlib import redirect_stderr, redirect_stdout
from typing import TYPE_CHECKING, Any

from clawkit.core.tasks import in_thread
from clawkit.ui.line_input import InputHistory, LineCompleter, history_file
from clawkit.ui.paint import Paint
from clawkit.ui.prompt import Prompt

if TYPE_CHECKING:
    from clawkit.ui.session import SessionOpener
    from clawkit.ui.tui import TuiChat

_ENDINGS = (signal.SIGTERM, signal.SIGHUP)


async def run_full(doors: SessionOpener, message: str = "", pictures: Sequence[str] = ()) -> int:
    """Talk until the person quits; the exit code."""
    terminal = _Terminal(doors)
    loop = asyncio.get_running_loop()
    for each in _ENDINGS:
        loop.add_signal_handler(each, terminal.prompt.quit, 128 + each)
    try:
        return await terminal.run(message, pictures)
    finally:
        for each in _ENDINGS:
            loop.remove_signal_handler(each)


class _Terminal:
    """A prompt, and the conversation as soon as there is one."""

    def __init__(self, doors: SessionOpener) -> None:
        paint = Paint(colours=not os.environ.get("NO_COLOR"), encoding=sys.stdout.encoding)
        self._doors = doors
        self._history = InputHistory(history_file())
        self._completer = LineCompleter()
        self._early = _Early()
        self.prompt = Prompt(self._early, paint, self._history, self._completer, sys.stdout)

    async def run(self, message: str, pictures: Sequence[str]) -> int:
        running = asyncio.ensure_future(self.prompt.run())
        chat: TuiChat | None = None
        try:
            above = _Above(self.prompt)
            with redirect_stdout(above), redirect_stderr(above):
                try:
                    chat = await self._open(running)
                    if chat is not None:
                        await self._begin(chat, message, pictures)
                    code = await running
                finally:
                    self.prompt.quit(1)
                    if chat is not None:
                        await chat.stop()
                    await asyncio.wait({running})
            if chat is not None and chat.failure is not None:
                raise chat.failure
            return code
        finally:
            if chat is not None:
                await chat.close()

    async def _open(self, running: asyncio.Future[int]) -> TuiChat | None:
        """The conversation; None when the person has left already."""
        shown = asyncio.ensure_future(self.prompt.shown.wait())
        either: set[asyncio.Future[Any]] = {running, shown}
        await asyncio.wait(either, return_when=asyncio.FIRST_COMPLETED)
        shown.cancel()
        # Keys are answered while all this is read.
        for name in ("clawkit.agent_session", "clawkit.ui.tui"):
            await in_thread(importlib.import_module, name)
        if running.done():
            return None
        from clawkit.ui.tui import TuiChat

        return TuiChat(self._doors, self.prompt)

    async def _begin(self, chat: TuiChat, message: str, pictures: Sequence[str]) -> None:
        self._history.begin(chat.talk.agent.kit.run.redactor.text)
        self._completer.source = chat
        self.prompt.desk = chat
        await chat.begin(message, pictures)
        for text, later in self._early.typed:
            chat.submit(text, later=later)
        self.prompt.refresh()


class _Early:
    """The desk before there is a conversation: keeps what was typed."""

    def __init__(self) -> None:
        self.typed: list[tuple[str, bool]] = []

    def submit(self, text: str, *, later: bool = False) -> None:
        self.typed.append((text, later))

    def interrupt(self) -> bool:
        return False

    def take_back(self) -> str | None:
        return self.typed.pop()[0] if self.typed else None

    def live(self, columns: int, rows: int) -> str:
        return ""

    def queue(self) -> list[str]:
        return [f"  queued: {text}" for text, _ in self.typed]

    def toolbar(self) -> str:
        return "starting"


class _Above(io.TextIOBase):
    """Takes the place of standard output and errors: what is written there appears above."""

    def __init__(self, prompt: Prompt) -> None:
        self._prompt = prompt
        self._part = ""

    def write(self, text: str) -> int:
        *lines, self._part = f"{self._part}{text}".split("\n")
        for line in lines:
            self._prompt.print(self._prompt.paint(line, "dim") + "\n")
        return len(text)

    def isatty(self) -> bool:
        return False
