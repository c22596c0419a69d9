"""Starts the full-terminal chat: shows the input line first, then loads the rest."""

from __future__ import annotations

import asyncio
import importlib
import io
import os
import signal
import sys
from collections.abc import Sequence
from contextlib import redirect_stderr, redirect_stdout
from typing import TYPE_CHECKING

from clawkit.core.tasks import in_thread
from clawkit.ui.line_input import InputHistory, LineCompleter, history_file
from clawkit.ui.paint import Paint
from clawkit.ui.prompt import InputHandler, Prompt

if TYPE_CHECKING:
    from clawkit.ui.session import SessionOpener
    from clawkit.ui.tui import TuiChat

_ENDINGS = (signal.SIGTERM, signal.SIGHUP)


async def run_full(opener: SessionOpener, message: str = "", pictures: Sequence[str] = ()) -> int:
    """Run the chat until the person quits; returns the exit code."""
    paint = Paint(colours=not os.environ.get("NO_COLOR"), encoding=sys.stdout.encoding)
    history, completer, early = InputHistory(history_file()), LineCompleter(), InputHandler()
    prompt = Prompt(early, paint, history, completer, sys.stdout)
    loop = asyncio.get_running_loop()
    for each in _ENDINGS:
        loop.add_signal_handler(each, prompt.quit, 128 + each)
    running = asyncio.ensure_future(prompt.run())
    chat: TuiChat | None = None
    try:
        above = _Above(prompt)
        with redirect_stdout(above), redirect_stderr(above):
            try:
                chat = await _open(opener, prompt, running)
                if chat is not None:
                    history.begin(chat.agent.kit.run.redactor.text)
                    completer.source = prompt.handler = chat
                    await chat.begin(message, pictures)
                    for text, later in early.typed:
                        chat.submit(text, later=later)
                    prompt.refresh()
                code = await running
            finally:
                prompt.quit(1)
                if chat is not None:
                    await chat.stop()
                await asyncio.wait({running})
        if chat is not None and chat.failure is not None:
            raise chat.failure
        return code
    finally:
        if chat is not None:
            await chat.close()
        for each in _ENDINGS:
            loop.remove_signal_handler(each)


async def _open(
    opener: SessionOpener, prompt: Prompt, running: asyncio.Future[int]
) -> TuiChat | None:
    """Open the conversation; None if the person has quit already."""
    shown = asyncio.ensure_future(prompt.shown.wait())
    await asyncio.wait((running, shown), return_when=asyncio.FIRST_COMPLETED)
    shown.cancel()
    # In a thread, so that the input line stays responsive meanwhile.
    for name in ("clawkit.agent_session", "clawkit.ui.tui"):
        await in_thread(importlib.import_module, name)
    if running.done():
        return None
    from clawkit.ui.tui import TuiChat

    return TuiChat(opener, prompt)


class _Above(io.TextIOBase):
    """Replaces standard output and error: prints above the input line."""

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
