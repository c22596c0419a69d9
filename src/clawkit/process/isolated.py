"""Programs that read hostile data: each gets one request, answers and exits.

The kernel denies them files and network, as far as it can. They can be killed at any time.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import sys
import threading
from collections.abc import Callable, Sequence
from subprocess import PIPE, Popen
from typing import IO, NamedTuple, TypeVar, cast

from clawkit.core.tasks import in_thread
from clawkit.process.confine import start_helper
from clawkit.process.landlock import SYSTEM, Hold, available

T = TypeVar("T")
Read = Callable[[IO[bytes]], T | None]
"""Parses an answer; returns None if it is incomplete."""


class NoAnswerError(Exception):
    """A program ended before its answer was complete."""

    def __init__(self, code: int) -> None:
        self.code = code
        """Its exit code; negative for a signal."""
        super().__init__(code)


class Isolated(NamedTuple):
    """A Python program, and the directories of the libraries that it uses."""

    file: str
    libraries: Sequence[str]

    @property
    def argv(self) -> list[str]:
        """Its command line: without `site`, and without the current directory in `sys.path`."""
        return [sys.executable, "-I", "-S", self.file, *self.libraries]

    @property
    def hold(self) -> Hold:
        """Its hold: access to Python and its libraries, but no files of the user."""
        base = sys.base_prefix
        python = (f"{base}/lib", f"{base}/lib64", f"{sys.prefix}/pyvenv.cfg")
        return Hold(read=(*python, self.file, *self.libraries), run=(sys.executable, *SYSTEM))

    async def ask(self, request: Sequence[bytes], read: Read[T], timeout_s: float) -> T:
        """Start it, send a request and return its output parsed by `read`. Raises `OSError` if it
        cannot be started, `TimeoutError`, `NoAnswerError`, and the errors of `read`."""
        return await IsolatedProcess(self).ask(request, read, timeout_s)


_MAX_READY = 2
_ready: set[Prepared] = set()
"""Programs with a waiting process, limited for all sessions together."""


class Prepared:
    """A program with one process started in advance, because starting takes longer than most
    answers. Each process still gets only one request. Bound to one event loop."""

    def __init__(self, program: Isolated, idle_s: float = 30.0) -> None:
        """A process without a request for `idle_s` is stopped."""
        self._program = program
        self._idle_s = idle_s
        self._spare: IsolatedProcess | None = None
        self._timer: asyncio.TimerHandle | None = None

    def prepare(self) -> None:
        """Start a process in the background, unless one is ready or other programs have enough."""
        if self._spare is None and len(_ready) < _MAX_READY:
            _ready.add(self)
            self._spare = IsolatedProcess(self._program)
            self._timer = asyncio.get_running_loop().call_later(self._idle_s, self.close)
            threading.Thread(target=self._spare.prepare, daemon=True).start()

    async def ask(self, request: Sequence[bytes], read: Read[T], timeout_s: float) -> T:
        """See `Isolated.ask`."""
        if self._spare and not self._spare.is_alive():
            self.close()
        running = self._take() or IsolatedProcess(self._program)
        self.prepare()
        return await running.ask(request, read, timeout_s)

    def _take(self) -> IsolatedProcess | None:
        spare, self._spare = self._spare, None
        _ready.discard(self)
        if self._timer is not None:
            self._timer.cancel()
        return spare

    def close(self) -> None:
        if spare := self._take():
            spare.stop()
            threading.Thread(target=spare.discard, daemon=True).start()


class IsolatedProcess:
    """One process. `run` blocks; any other thread may `stop` it."""

    def __init__(self, program: Isolated) -> None:
        self._program = program
        self._process: Popen[bytes] | None = None
        self._stopped = False
        self._starting = threading.Lock()
        # A process may be signalled only before it is reaped, when its pid may be reused.
        self._lock = threading.Lock()

    async def ask(self, request: Sequence[bytes], read: Read[T], timeout_s: float) -> T:
        try:
            async with asyncio.timeout(timeout_s):
                return cast("T", await in_thread(self.run, request, read))
        finally:
            self.stop()

    def prepare(self) -> None:
        """Start it; if that fails, `run` tries again and reports the error."""
        with contextlib.suppress(OSError):
            self._start()

    def is_alive(self) -> bool:
        """Whether it is running, or not started yet."""
        with self._lock:
            return self._process is None or self._process.poll() is None

    def _start(self) -> Popen[bytes]:
        with self._starting:
            if self._process is None:
                argv, hold = self._program.argv, self._program.hold if available() else None
                process = start_helper(argv, cwd="/", env={}, hold=hold, stdin=PIPE)
                with self._lock:
                    self._process = process
                if self._stopped:
                    self.stop()
            return self._process

    def run(self, request: Sequence[bytes], read: Read[T]) -> T:
        process = self._start()
        # Both are pipes, which the type of Popen does not express.
        requests, answers = cast("IO[bytes]", process.stdin), cast("IO[bytes]", process.stdout)
        with answers:
            try:
                # It reads its whole input before it answers; if it dies, there is no answer.
                with contextlib.suppress(BrokenPipeError), requests:
                    requests.writelines(request)
                answer = read(answers)
            finally:
                self.stop()
                self._reap(process)
        if answer is None:
            raise NoAnswerError(process.returncode)
        return answer

    def stop(self) -> None:
        """Kill the process if it runs, or as soon as it is started."""
        with self._lock:
            self._stopped = True
            if self._process is not None and self._process.returncode is None:
                os.killpg(self._process.pid, signal.SIGKILL)

    def discard(self) -> None:
        """Stop it without a request, and wait for its end."""
        self.stop()
        with contextlib.suppress(OSError):
            process = self._start()
            self._reap(process)
            for pipe in (process.stdin, process.stdout):
                cast("IO[bytes]", pipe).close()

    def _reap(self, process: Popen[bytes]) -> None:
        # Wait without the lock: the event loop may call `stop` in the meantime.
        with contextlib.suppress(ChildProcessError):  # it was already reaped
            os.waitid(os.P_PID, process.pid, os.WEXITED | os.WNOWAIT)
        with self._lock:
            process.wait()
