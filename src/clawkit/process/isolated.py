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
from typing import IO, Generic, NamedTuple, TypeVar, cast

from clawkit.core.tasks import in_thread
from clawkit.process.confine import start_helper
from clawkit.process.landlock import SYSTEM, Hold, available

T = TypeVar("T")
Read = Callable[[IO[bytes]], T | None]
"""Reads an answer; None if it is incomplete."""


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
        """Its command line: without `site`, and the current directory is not searched."""
        return [sys.executable, "-I", "-S", self.file, *self.libraries]

    @property
    def hold(self) -> Hold:
        """What it may access: Python and its libraries, no files of the user."""
        base = sys.base_prefix
        python = (f"{base}/lib", f"{base}/lib64", f"{sys.prefix}/pyvenv.cfg")
        return Hold(read=(*python, self.file, *self.libraries), run=(sys.executable, *SYSTEM))

    async def ask(self, request: Sequence[bytes], read: Read[T], timeout_s: float) -> T:
        """Start it, send a request and return what `read` makes of its output. Raises `OSError` if
        it cannot be started, `TimeoutError`, `NoAnswerError`, and what `read` raises."""
        running = IsolatedProcess[T](self)
        try:
            async with asyncio.timeout(timeout_s):
                return cast("T", await in_thread(running.run, request, read))
        finally:
            running.stop()


class IsolatedProcess(Generic[T]):
    """One process. `run` blocks; any other thread may `stop` it."""

    def __init__(self, program: Isolated) -> None:
        self._program = program
        self._process: Popen[bytes] | None = None
        self._stopped = False
        # A process may be signalled only before it is reaped, when its pid may be reused.
        self._lock = threading.Lock()

    def run(self, request: Sequence[bytes], read: Read[T]) -> T:
        argv, hold = self._program.argv, self._program.hold if available() else None
        process = start_helper(argv, cwd="/", env={}, hold=hold, stdin=PIPE)
        with self._lock:
            self._process = process
        if self._stopped:
            self.stop()
        # Both are pipes, which the type of Popen does not express.
        requests, answers = cast("IO[bytes]", process.stdin), cast("IO[bytes]", process.stdout)
        with answers:
            try:
                # It reads everything before it answers; if it dies, there is no answer.
                with contextlib.suppress(BrokenPipeError), requests:
                    requests.writelines(request)
                answer = read(answers)
            finally:
                self.stop()
                # Wait without the lock: the event loop may call `stop` in the meantime.
                os.waitid(os.P_PID, process.pid, os.WEXITED | os.WNOWAIT)
                with self._lock:
                    process.wait()
        if answer is None:
            raise NoAnswerError(process.returncode)
        return answer

    def stop(self) -> None:
        """Kill the process if it runs, or as soon as it is started."""
        with self._lock:
            self._stopped = True
            if self._process is not None and self._process.returncode is None:
                os.killpg(self._process.pid, signal.SIGKILL)
