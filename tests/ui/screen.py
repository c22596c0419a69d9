"""A terminal that clawkit runs in, as a person sees it."""

from __future__ import annotations

import asyncio
import os
import signal
import termios
from collections.abc import Callable
from pathlib import Path

import pyte
from tests.cli.asking import PROGRAM
from tests.forked import InTerminal

PATIENCE_S = 60
READY = "shows what you can type"
PROMPT = "❯"


class Screen:
    """Clawkit in a terminal of its own, and somebody who types and looks."""

    def __init__(
        self, *args: str, cwd: Path, size: tuple[int, int] = (100, 40), **env: str
    ) -> None:
        env = {**_ENV, **os.environ, "TERM": "xterm-256color", **env}
        folder = Path(PROGRAM[0]).parent
        self._program = InTerminal(folder, *args, cwd=cwd, size=size, env=env)
        self._fd = self._program.fd
        self.raw = b""
        self.code: int | None = None
        self.is_over = False
        self._screen = pyte.HistoryScreen(*size, history=5_000)
        self._stream = pyte.ByteStream(self._screen)

    @property
    def text(self) -> str:
        """Everything that can be seen, also by scrolling back."""
        columns = range(self._screen.columns)
        top = ["".join(row[x].data for x in columns) for row in self._screen.history.top]
        return "\n".join(row.rstrip() for row in (*top, *self._screen.display)).rstrip()

    @property
    def live(self) -> str:
        """What is seen of the last rows, without what has been scrolled away."""
        return "\n".join(row.rstrip() for row in self._screen.display).rstrip()

    @property
    def has_cursor(self) -> bool:
        return not self._screen.cursor.hidden

    async def until(self, text: str, count: int = 1) -> None:
        """Wait until a text can be seen so many times."""
        await self.wait(lambda: self.text.count(text) >= count, f"{text!r} {count} times")

    async def until_gone(self, text: str) -> None:
        await self.wait(lambda: text not in self.live, f"no {text!r}")

    async def wait(self, condition: Callable[[], bool], what: str) -> None:
        try:
            async with asyncio.timeout(PATIENCE_S):
                while not condition():
                    assert not self.is_over, f"it ended before {what}:\n{self.text}"
                    await self._more()
        except TimeoutError:
            raise AssertionError(f"waiting for {what}:\n{self.text}") from None

    def type(self, keys: str) -> None:
        os.write(self._fd, keys.encode())

    async def say(self, text: str) -> None:
        """Type a line, and Enter when it stands there."""
        self.type(text)
        await self.wait(lambda: f"{PROMPT} {text}" in self.live, f"the line {text!r}")
        self.type("\r")

    def signal(self, number: int) -> None:
        os.kill(self._program.pid, number)

    async def end(self) -> int:
        """Wait for the end; the exit code."""
        try:
            async with asyncio.timeout(PATIENCE_S):
                while not self.is_over:
                    await self._more()
        except TimeoutError:
            raise AssertionError(f"it does not end:\n{self.text}") from None
        return await self._reap()

    async def hang_up(self) -> int:
        os.close(self._fd)
        self._fd = -1
        return await self._reap()

    def is_as_before(self) -> bool:
        """Whether the terminal has lines, an echo and Ctrl-C, as it had in the beginning."""
        flags = termios.tcgetattr(self._fd)[3]
        wanted = termios.ICANON | termios.ECHO | termios.ISIG
        return bool(flags & wanted == wanted) and self.has_cursor

    async def _more(self) -> None:
        loop = asyncio.get_running_loop()
        ready = asyncio.Event()
        loop.add_reader(self._fd, ready.set)
        try:
            await ready.wait()
        finally:
            loop.remove_reader(self._fd)
        try:
            piece = os.read(self._fd, 65_536)
        except OSError:
            piece = b""
        self.is_over = not piece
        self.raw += piece
        self._stream.feed(piece)

    async def _reap(self) -> int:
        if self.code is None:
            loop = asyncio.get_running_loop()
            self.code = await loop.run_in_executor(None, self._program.wait)
        return self.code

    def close(self) -> None:
        if self.code is None:
            self.signal(signal.SIGKILL)
            self.code = self._program.wait()
        if self._fd >= 0:
            os.close(self._fd)


_ENV = {"LANG": "C.UTF-8", "PYTHONUTF8": "1"}
