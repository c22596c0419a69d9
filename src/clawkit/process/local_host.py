"""The `gateway` host: commands on this machine, their input and output."""

from __future__ import annotations

import asyncio
import fcntl
import os
import signal
import struct
import termios
import threading
import time
from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress
from typing import TYPE_CHECKING, Protocol

from clawkit.core.tasks import in_thread
from clawkit.errors import ToolError, ToolInputError
from clawkit.process.process_table import look
from clawkit.process.protocols import LOST, Exit, Launch, LeftoverProcess, NoTerminalError
from clawkit.process.spawn_client import (
    NoDirectoryError,
    ServerLostError,
    SpawnClient,
    SpawnedChild,
)
from clawkit.process.spool import Spool
from clawkit.store import private_dir
from clawkit.text import printable

if TYPE_CHECKING:
    from clawkit.process.terminal import TerminalState

MAX_PROCESSES = 1_000
_CHUNK = 64 * 1024
_MAX_SIDE = 65_535
_DRAIN_S, _DRAIN_MAX_S = 0.2, 2.0
"""Seconds to read after a command's end, while processes it left running hold the pipe: without new
output, and at most."""
_WRITE_S = 5.0
_MUCH = 256 * 1024
"""Bytes of output after which a thread moves the rest."""


class LocalRunning(SpawnedChild):
    """A command on this machine, until none of its processes is left."""

    output: Spool
    terminal: TerminalState | None = None
    pipes: tuple[int, int] = (-1, -1)
    """Its input and output, if it was launched `piped`; the caller closes them."""

    def __init__(self, client: SpawnClient, id_: str, detached: str = "") -> None:
        super().__init__(client, id_, detached)
        self._begun = 0.0
        self._ended = 0.0
        self._source = self._sink = -1
        self._writing = asyncio.Lock()
        self._mover: threading.Event | None = None
        """Stops the thread that moves the output, once there is one."""
        self._exit: Exit | None = None
        self._is_done = asyncio.Event()
        self._notes: asyncio.Future[tuple[str, ...]] | None = None
        self.after: Callable[[], tuple[str, ...]] | None = None
        """Called in a thread after the end; returns the `notes` of the exit."""

    def attach(
        self, output: Spool, source: int, sink: int, terminal: TerminalState | None = None
    ) -> None:
        """Call once, after the start. `source` is for reading output and `sink` for writing input,
        -1 for none; takes ownership of both."""
        self.output, self.terminal = output, terminal
        self._begun = time.monotonic()
        self._source, self._sink = source, sink
        self.ended.add_done_callback(self._on_end)
        if source >= 0:
            os.set_blocking(source, False)
            self.client.loop.add_reader(source, self._on_output)
        if sink >= 0:
            os.set_blocking(sink, False)

    @property
    def can_write(self) -> bool:
        return self._sink >= 0 and not self.ended.done()

    @property
    def left(self) -> Sequence[LeftoverProcess]:
        if not self.ended.done():
            return ()
        is_stuck = self.gone.done()
        if not self.client.is_local:
            # Only its server can see them, and reports when they are gone.
            return () if is_stuck else self.left_behind
        # A process may have executed another program since, or have ended.
        pids = self.gone.result() if is_stuck else [each.pid for each in self.left_behind]
        return tuple(
            LeftoverProcess(each.pid, printable(each.name, ""), is_stuck)
            for each in map(look, pids)
            if each and not each.exited
        )

    async def wait(self) -> Exit:
        await self._is_done.wait()
        exit_ = self._exit or LOST
        after, self.after = self.after, None
        if after is not None:
            self._notes = asyncio.ensure_future(in_thread(after))
        if self._notes is not None:
            exit_ = exit_._replace(notes=await asyncio.shield(self._notes))
        return exit_

    async def write(self, data: bytes, *, eof: bool = False) -> None:
        if not self.can_write:
            raise ToolInputError("its input is closed; start it with pty or background to write")
        if eof and self.terminal is not None:
            # In the middle of a line, the first C-d only flushes it.
            data += b"\x04" if data.endswith((b"\r", b"\n")) or not data else b"\x04\x04"
        try:
            async with asyncio.timeout(_WRITE_S), self._writing:
                await self._write_all(data)
        except TimeoutError:
            raise ToolInputError(
                f"it does not read its input: it did not accept all {len(data)} bytes within "
                f"{_WRITE_S:g} s"
            ) from None
        except OSError:
            self._close_sink()
            raise ToolInputError("it has closed its input") from None
        if eof and self.terminal is None:
            self._close_sink()

    async def _write_all(self, data: bytes) -> None:
        loop = self.client.loop
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
            raise ToolInputError(f"unknown signal {number}")
        if not self.gone.done():
            await self.client.signal(self, number)

    async def end(self, grace_s: float) -> None:
        await self.client.end(self, grace_s)
        await self._is_done.wait()

    def _on_output(self) -> None:
        try:
            data = os.read(self._source, _CHUNK)
        except BlockingIOError:
            return
        except OSError:
            data = b""  # no process has the terminal open
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
        """Let a thread move the rest of the output, so that it does not block the event loop."""
        loop, source, stop = self.client.loop, self._source, threading.Event()
        loop.remove_reader(source)
        self._mover = stop
        with suppress(OSError):
            fcntl.fcntl(source, fcntl.F_SETPIPE_SZ, 1 << 20)

        def notify() -> None:
            with suppress(RuntimeError):  # the loop may already be closed
                loop.call_soon_threadsafe(self.output.note)

        work = self.output.mover(source, stop, notify)

        async def move() -> None:
            try:
                await in_thread(work)
            except RuntimeError:
                # No thread can be started: the event loop continues to read.
                stop.set()
                work()
                self._mover = None
                loop.add_reader(source, self._on_output)
                return
            self._mover = None
            self._close_source()

        self._moving = loop.create_task(move())

    def _on_end(self, _ended: asyncio.Future[Exit]) -> None:
        self._ended = self._ended or time.monotonic()
        if self._source < 0:
            self._finish()
        elif self._mover is None:
            self._on_output()
        if self._exit is None:
            self.client.loop.call_later(_DRAIN_S / 8, self._drain)

    def _drain(self) -> None:
        """Read the rest of the output, without waiting for what the command left running."""
        if self._exit is not None:
            return
        now = time.monotonic()
        is_quiet = now - max(self._ended, self.output.last_at) > _DRAIN_S
        if (is_quiet and not _has_more(self._source)) or now - self._ended > _DRAIN_MAX_S:
            self._finish()
        else:
            self.client.loop.call_later(_DRAIN_S / 8, self._drain)

    def _finish(self) -> None:
        if self._exit is None:
            self._ended = self._ended or time.monotonic()
            exit_ = self.ended.result()._replace(seconds=self._ended - self._begun)
            # Processes that a command left running may exceed the limit after its own end.
            if self.crowd and exit_.reason != "lost":
                note = f"it had {self.crowd} processes at once"
                exit_ = exit_._replace(reason="process-limit", note=note)
            self._exit = exit_
            self._is_done.set()
            self.output.wake()
        if not self.left:
            self._close_sink()

    def _close_source(self) -> None:
        if self._source >= 0 and self._mover is None:
            self.client.loop.remove_reader(self._source)
            if self._sink == self._source:
                self.client.loop.remove_writer(self._sink)
                self._sink = -1
            os.close(self._source)
            self._source = -1
        if self.ended.done():
            self._finish()

    def _close_sink(self) -> None:
        if self._sink >= 0 and self._sink != self._source:
            self.client.loop.remove_writer(self._sink)
            os.close(self._sink)
        self._sink = -1

    def close(self) -> None:
        if self._mover is not None:
            self._mover.set()
        self._close_sink()
        self._close_source()


def _reads_keys(terminal: int) -> bool:
    """Whether the terminal is not in canonical mode. Programs that query the terminal disable it;
    one that reads lines would take the answer for typed text."""
    with suppress(OSError, termios.error):
        return not termios.tcgetattr(terminal)[3] & termios.ICANON
    return False


def _has_more(fd: int) -> bool:
    with suppress(OSError, ValueError):  # including -1, when it is closed
        return any(fcntl.ioctl(fd, termios.FIONREAD, bytes(4)))  # a count of bytes
    return False


def set_size(fd: int, columns: int, rows: int) -> None:
    if not (1 <= columns <= _MAX_SIDE and 1 <= rows <= _MAX_SIDE):
        raise ToolInputError(f"a terminal cannot have {columns} columns and {rows} rows")
    fcntl.ioctl(fd, termios.TIOCSWINSZ, struct.pack("HHHH", rows, columns, 0, 0))


class ProtectionGuard(Protocol):
    """Checks what commands did to protected files. Both methods block."""

    def before(self) -> None:
        """A command is about to start. It counts as running until `after` is called with
        `all_exited`."""

    def after(self, *, all_exited: bool) -> tuple[str, ...]:
        """Lines about what the running commands did; may be called at any time. `all_exited`: no
        process of one of them was left when the call began; pass it once for each `before`."""


class _Watch:
    """Runs the guard for one command: at its end, and when none of its processes is left."""

    def __init__(self, guard: ProtectionGuard, running: LocalRunning) -> None:
        self._guard = guard
        self._running = running
        self._is_over = False
        self.is_late = False
        """Whether the host is closed, so that the result of the command may not be seen."""

    def check(self) -> tuple[str, ...]:
        """Call once, in a thread, when the command has ended."""
        running = self._running
        self._is_over = (
            running.gone.done() and not running.gone.result() and not running.server_lost
        )
        lines = self._guard.after(all_exited=self._is_over)
        if self.is_late:
            _warn(lines)
        return lines

    async def finish(self, settle: Callable[[], Awaitable[None]]) -> None:
        """Wait until no process of the command is left, then run the guard again if needed.
        `settle` waits for the end of processes that a lost spawn server may have left."""
        running = self._running
        stuck = await asyncio.shield(running.gone)
        await running.wait()
        if not self._is_over:
            await settle()
            goes_on = bool(stuck or (running.server_lost and running.detached))
            _warn(await in_thread(self._guard.after, all_exited=not goes_on))


class LocalHost:
    """Runs commands with bash, without profile and rc files, each in its own session."""

    name = "gateway"

    def __init__(
        self,
        spool_dir: str,
        *,
        max_processes: int = MAX_PROCESSES,
        guard: ProtectionGuard | None = None,
    ) -> None:
        """`spool_dir` is for long output; `guard` checks what confined commands did."""
        self.guard = guard
        self._watching: dict[asyncio.Task[None], _Watch] = {}
        self._spool_dir = spool_dir
        self._max_processes = max_processes
        self._client: SpawnClient | None = None
        self._shell = _find_shell()

    def prepare(self) -> None:
        """Start the spawn server if needed. Errors are raised when a command is started."""
        with suppress(OSError):
            self._own_client()

    async def start(self, launch: Launch, id_: str) -> LocalRunning:
        for path in launch.programs or ():
            if not os.path.isabs(path):
                raise ToolInputError(f"the program {path!r} must be an absolute path")
        guard = self.guard
        if guard is None or not self._is_guarded(launch):
            return await self._try_start(launch, id_)
        await in_thread(guard.before)
        try:
            running = await self._try_start(launch, id_)
        except BaseException:
            await self._settle()
            await in_thread(guard.after, all_exited=True)
            raise
        watch = _Watch(guard, running)
        running.after = watch.check
        task = asyncio.get_running_loop().create_task(watch.finish(self._settle))
        self._watching[task] = watch
        task.add_done_callback(lambda task: self._watching.pop(task, None))
        return running

    async def _settle(self) -> None:
        """Wait until no process is left that a lost spawn server had started."""

    def _is_guarded(self, launch: Launch) -> bool:
        # Unconfined commands were approved by a person and may change protected files.
        return launch.hold is not None

    async def _try_start(self, launch: Launch, id_: str) -> LocalRunning:
        try:
            return await self._start(launch, id_)
        except ServerLostError:
            return await self._start(launch, id_)
        except OSError as error:
            raise ToolError(f"the command could not be started: {error.strerror}") from None

    async def _start(self, launch: Launch, id_: str) -> LocalRunning:
        client = await self._client_for(launch)
        spool = os.path.join(self._spool_dir, f"{id_}.log")
        end = os.path.join(self._spool_dir, f"{id_}.exit") if launch.detach else ""
        ours: list[int] = []
        theirs: list[int] = []
        try:
            tty = _open_streams(launch, spool, ours, theirs)
            running = await self._run(client, launch, id_, theirs, tty=tty, detached=end)
        except BaseException:
            for fd in ours:
                os.close(fd)
            for file in (spool, end) if launch.detach and theirs else ():
                with suppress(OSError):
                    os.unlink(file)
            raise
        finally:
            for fd in theirs:
                os.close(fd)
        if launch.detach:
            running.attach(Spool.of_file(spool), -1, -1)
        elif launch.piped:
            running.pipes = ours[1], ours[0]
            running.attach(Spool(spool, launch.memory), -1, -1)
        else:
            terminal = None
            if launch.size:
                from clawkit.process.terminal import TerminalState  # few commands have one

                terminal = TerminalState(*launch.size)
            sink = ours[-1] if terminal or launch.open_input else -1
            running.attach(Spool(spool, launch.memory), ours[0], sink, terminal)
        return running

    async def close(self) -> None:
        here = asyncio.get_running_loop()
        watching = {task for task in self._watching if task.get_loop() is here}
        for watch in self._watching.values():
            watch.is_late = True
        self._watching.clear()
        await self._close_clients()
        if watching:
            await asyncio.wait(watching)
        if self.guard is not None:
            # Detached commands, and what could not be killed, still count as running.
            _warn(await in_thread(self.guard.after, all_exited=False))

    async def _close_clients(self) -> None:
        client, self._client = self._client, None
        if client is not None:
            await client.close()

    def _own_client(self) -> SpawnClient:
        client, here = self._client, asyncio.get_running_loop()
        if client is not None and client.loop is not here:
            if client.loop.is_running():
                raise ToolError("commands already run in another event loop; use that one")
            client.drop()
            client = None
        if client is None or not client.is_open:
            client = self._client = SpawnClient()
        return client

    async def _client_for(self, launch: Launch) -> SpawnClient:
        return self._own_client()

    async def _run(
        self,
        client: SpawnClient,
        launch: Launch,
        id_: str,
        streams: Sequence[int],
        *,
        tty: str = "",
        detached: str = "",
    ) -> LocalRunning:
        """`streams` are standard input and output, or a file descriptor of the terminal."""
        folder = -1
        try:
            folder = _open_directory(launch.cwd) if client.is_local else -1
            return await client.run(
                LocalRunning(client, id_, detached),
                (*self._shell, "-c", launch.text),
                launch.env,
                streams if folder < 0 else (folder, *streams),
                limit=self._max_processes,
                tty=tty,
                timeout_s=launch.timeout_s or 0 if detached else 0,
                programs=launch.programs,
                hold=launch.hold if client.is_local else None,
                cwd=launch.cwd if folder < 0 else "",
            )
        except NoDirectoryError as error:
            why = f"the directory {launch.cwd!r} cannot be used: {str(error).lower()}"
            raise ToolInputError(why) from None
        finally:
            if folder >= 0:
                os.close(folder)


def _open_streams(launch: Launch, spool: str, ours: list[int], theirs: list[int]) -> str:
    """Open both ends of standard input and output, or a terminal, whose name is returned."""
    if launch.size is not None and not launch.detach:
        try:
            opened = os.openpty()
        except OSError as error:
            raise NoTerminalError(f"no terminal is available: {error.strerror}") from None
        ours.append(opened[0])
        theirs.append(opened[1])
        set_size(opened[0], *launch.size)
        return os.ttyname(opened[1])
    if launch.detach:
        private_dir(os.path.dirname(spool))
        flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_APPEND | os.O_CLOEXEC | os.O_NOFOLLOW
        theirs.append(os.open(spool, flags, 0o600))
    else:
        source, output = os.pipe()
        ours.append(source)
        theirs.append(output)
    if (launch.open_input or launch.piped) and not launch.detach:
        given, sink = os.pipe()
        ours.append(sink)
    else:
        given = os.open(os.devnull, os.O_RDONLY | os.O_CLOEXEC)
    theirs.insert(0, given)
    return ""


def _warn(lines: Sequence[str]) -> None:
    # Too late for the result of a command.
    import logging

    for line in lines:
        logging.getLogger(__name__).warning("after the end of a command: %s", line)


def _open_directory(path: str) -> int:
    try:
        return os.open(path, os.O_DIRECTORY | os.O_CLOEXEC | os.O_PATH)
    except (OSError, ValueError) as error:
        raise NoDirectoryError(getattr(error, "strerror", "") or str(error)) from None


def _find_shell() -> tuple[str, ...]:
    """bash at a fixed path: never one from PATH, in a directory that a command could write to."""
    for place in ("/bin/bash", "/usr/bin/bash", "/usr/local/bin/bash"):
        if os.access(place, os.X_OK):
            return (place, "--noprofile", "--norc")
    return ("/bin/sh",)
