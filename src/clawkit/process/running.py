"""A command on this machine, from its start until nothing of it is left."""

from __future__ import annotations

import asyncio
import fcntl
import os
import signal
import struct
import termios
import threading
import time
from collections.abc import Sequence
from contextlib import suppress

from clawkit.core.bounded import in_thread
from clawkit.errors import ToolInputError
from clawkit.process.base import Exit, Left
from clawkit.process.keeping import Child, Facts, Keeping
from clawkit.process.spool import Spool
from clawkit.process.terminal import TerminalState
from clawkit.process.tree import look
from clawkit.text import printable

_CHUNK = 64 * 1024
_MAX_SIDE = 65_535
_DRAIN_S, _DRAIN_MAX_S = 0.2, 2.0
"""How long, after a command's end, its output may still be held by what it left running: while
nothing comes, and in any case."""
_WRITE_S = 5.0
_MUCH = 256 * 1024
"""Bytes of output after which a thread of its own moves the rest."""


class LocalRunning:
    """A command on this machine."""

    def __init__(
        self,
        keeping: Keeping,
        child: Child,
        output: Spool,
        source: int,
        sink: int,
        terminal: TerminalState | None,
    ) -> None:
        """`source` gives the output and `sink` takes input; -1 for none. Both are its own now."""
        self._keeping = keeping
        self._child = child
        self._started = time.monotonic()
        self._ended = 0.0
        self._source = source
        self._sink = sink
        self._writing = asyncio.Lock()
        self._mover: threading.Event | None = None
        """Set to stop the thread that moves the output, once there is one."""
        self._done: asyncio.Future[Exit] = keeping.loop.create_future()
        self.output = output
        self.terminal = terminal
        self.pid = child.pid
        self.since = child.since
        child.ended.add_done_callback(self._on_end)
        if source >= 0:
            os.set_blocking(source, False)
            keeping.loop.add_reader(source, self._on_output)
        if sink >= 0:
            os.set_blocking(sink, False)

    @property
    def can_write(self) -> bool:
        return self._sink >= 0 and not self._child.ended.done()

    @property
    def left(self) -> Sequence[Left]:
        if not self._child.ended.done():
            return ()
        is_stuck = self._child.gone.done()
        left = [each.pid for each in self._child.ended.result().left]
        if is_stuck:
            left = list(self._child.gone.result())
        # It may have become another program since, or have ended.
        seen = map(look, left)
        return tuple(
            Left(each.pid, printable(each.name, ""), is_stuck)
            for each in seen
            if each and not each.gone
        )

    async def wait(self) -> Exit:
        return await asyncio.shield(self._done)

    async def write(self, data: bytes, *, eof: bool = False) -> None:
        if not self.can_write:
            raise ToolInputError("its input is closed; start it with pty or background to write")
        if eof and self.terminal is not None:
            # The first one only ends a line that has begun.
            data += b"\x04" if data.endswith((b"\r", b"\n")) or not data else b"\x04\x04"
        try:
            await asyncio.wait_for(self._write_in_turn(data), _WRITE_S)
        except TimeoutError:
            raise ToolInputError(
                f"it does not read its input: not all of {len(data)} bytes were taken in "
                f"{_WRITE_S:g} s"
            ) from None
        except OSError:
            self._close_sink()
            raise ToolInputError("it has closed its input") from None
        if eof and self.terminal is None:
            self._close_sink()

    async def _write_in_turn(self, data: bytes) -> None:
        async with self._writing:
            await self._write_all(data)

    async def _write_all(self, data: bytes) -> None:
        loop = self._keeping.loop
        while data:
            if self._sink < 0:
                raise BrokenPipeError
            with suppress(BlockingIOError):
                data = data[os.write(self._sink, data) :]
                continue
            room = asyncio.Event()
            loop.add_writer(self._sink, room.set)
            try:
                await room.wait()
            finally:
                if self._sink >= 0:
                    loop.remove_writer(self._sink)

    def resize(self, columns: int, rows: int) -> None:
        if self.terminal is None or self._source < 0:
            raise ToolInputError("it has no terminal")
        set_size(self._source, columns, rows)
        self.terminal.resize(columns, rows)

    async def signal(self, number: int) -> None:
        if not 1 <= number < signal.NSIG:
            raise ToolInputError(f"there is no signal {number}")
        if not self._child.gone.done():
            await self._keeping.signal(self._child, number)

    async def end(self, grace_s: float) -> None:
        await self._keeping.end(self._child, grace_s)
        await asyncio.wait({self._done})

    def _on_output(self) -> None:
        try:
            data = os.read(self._source, _CHUNK)
        except BlockingIOError:
            return
        except OSError:
            data = b""  # a terminal that nobody has open any more
        if not data:
            self._close_source()
            return
        self.output.add(data)
        if self.terminal is not None:
            answer = self.terminal.feed(data)
            if answer and self._sink >= 0 and _reads_keys(self._source):
                with suppress(OSError):
                    os.write(self._sink, answer)
        elif self.output.size > _MUCH:
            self._hand_over()

    def _hand_over(self) -> None:
        """Much output: a thread moves it, and the event loop is free."""
        loop, source, stop = self._keeping.loop, self._source, threading.Event()
        loop.remove_reader(source)
        self._mover = stop
        with suppress(OSError):
            fcntl.fcntl(source, fcntl.F_SETPIPE_SZ, 1 << 20)

        def tell() -> None:
            with suppress(RuntimeError):  # the loop may have ended before us
                loop.call_soon_threadsafe(self.output.note)

        work = self.output.mover(source, stop, tell)

        async def move() -> None:
            try:
                await in_thread(work)
            except RuntimeError:
                # No thread is to be had: the event loop goes on by itself, as long as that is so.
                stop.set()
                work()
                self._mover = None
                loop.add_reader(source, self._on_output)
                return
            self._mover = None
            self._close_source()

        self._moving = loop.create_task(move())

    def _on_end(self, _ended: asyncio.Future[Facts]) -> None:
        self._ended = self._ended or time.monotonic()
        if self._source < 0:
            self._finish()
        elif self._mover is None:
            self._on_output()
        if not self._done.done():
            self._keeping.loop.call_later(_DRAIN_S / 8, self._drain)

    def _drain(self) -> None:
        """Wait for the end of the output, but not for what the command left running."""
        if self._done.done():
            return
        now = time.monotonic()
        is_quiet = now - max(self._ended, self.output.last_at) > _DRAIN_S
        if (is_quiet and not _has_more(self._source)) or now - self._ended > _DRAIN_MAX_S:
            self._finish()
        else:
            self._keeping.loop.call_later(_DRAIN_S / 8, self._drain)

    def _finish(self) -> None:
        if not self._done.done():
            self._ended = self._ended or time.monotonic()
            facts = self._child.ended.result()
            self._done.set_result(_to_exit(facts, self._child.crowd, self._ended - self._started))
            self.output.wake()
        if not self.left:
            self._close_sink()

    def _close_source(self) -> None:
        if self._source >= 0 and self._mover is None:
            self._keeping.loop.remove_reader(self._source)
            if self._sink == self._source:
                self._keeping.loop.remove_writer(self._sink)
                self._sink = -1
            os.close(self._source)
            self._source = -1
        if self._child.ended.done():
            self._finish()

    def _close_sink(self) -> None:
        if self._sink >= 0 and self._sink != self._source:
            self._keeping.loop.remove_writer(self._sink)
            os.close(self._sink)
        self._sink = -1

    def close(self) -> None:
        """Let go of everything, when nothing more is to be read."""
        if self._mover is not None:
            self._mover.set()
        self._close_sink()
        self._close_source()


def _to_exit(facts: Facts, crowd: int, seconds: float) -> Exit:
    if facts.code is None:
        return Exit("lost", seconds=seconds, note="the end of the command was not seen")
    exit_ = Exit.of(facts.code, seconds)._replace(cpu_s=facts.cpu_s, memory=facts.memory)
    if crowd:
        note = f"it had {crowd} processes at once"
        return exit_._replace(reason="process-limit", note=note)
    return exit_._replace(reason="out-of-memory") if facts.oom else exit_


def _reads_keys(terminal: int) -> bool:
    """Whether a program reads every key by itself. One that asks the terminal does; whoever reads
    lines would take the answer for something that was typed."""
    with suppress(OSError, termios.error):
        flags: int = termios.tcgetattr(terminal)[3]
        return not flags & termios.ICANON
    return False


def _has_more(fd: int) -> bool:
    if fd < 0:
        return False
    with suppress(OSError):
        count: int = struct.unpack("i", fcntl.ioctl(fd, termios.FIONREAD, bytes(4)))[0]
        return count > 0
    return False


def set_size(fd: int, columns: int, rows: int) -> None:
    if not (1 <= columns <= _MAX_SIDE and 1 <= rows <= _MAX_SIDE):
        raise ToolInputError(f"a terminal cannot have {columns} columns and {rows} rows")
    fcntl.ioctl(fd, termios.TIOCSWINSZ, struct.pack("HHHH", rows, columns, 0, 0))
