"""A program whose output is taken as it comes, and that never outlives its search."""

from __future__ import annotations

import fcntl
import os
import resource
import select
import signal
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from subprocess import DEVNULL, PIPE, Popen
from types import MappingProxyType
from typing import NamedTuple

from clawkit.fs.search.query import Stopped
from clawkit.process.landlock import Hold
from clawkit.process.start import start

CHUNK = 1024 * 1024
MAX_ERRORS = 64 * 1024
MAX_PAUSE_S = 0.005
MAX_MEMORY = 1024 * 1024 * 1024
"""What the program may use for itself: a line of gigabytes must not take the machine along."""

# Settings of the user's are neither wanted nor within reach.
_ENV: Mapping[str, str] = MappingProxyType({"HOME": "/nonexistent"})

Feed = Callable[[bytes], bool]
"""Takes a piece of the output; False when that was enough."""


class Ended(NamedTuple):
    """How a program ended."""

    code: int
    """What it said itself; negative when a signal ended it."""
    errors: str
    stopped: Stopped


class Switch:
    """Ends a program from another thread. Can be thrown before there is one."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._process: Popen[bytes] | None = None
        self._thrown = False

    def throw(self) -> None:
        with self._lock:
            self._thrown = True
            self._kill()

    def watch(self, process: Popen[bytes]) -> None:
        with self._lock:
            self._process = process
            if self._thrown:
                self._kill()

    def kill(self) -> None:
        with self._lock:
            self._kill()

    def _kill(self) -> None:
        # Not reaped yet, so its number cannot be anybody else's.
        if self._process is not None:
            with suppress(ProcessLookupError):
                os.killpg(self._process.pid, signal.SIGKILL)

    def reap(self, process: Popen[bytes]) -> int:
        """Waits for the end; from then on nothing can be killed by mistake."""
        with suppress(ChildProcessError):
            os.waitid(os.P_PID, process.pid, os.WEXITED | os.WNOWAIT)
        with self._lock:
            self._process = None
            return process.wait()


def run(
    argv: Sequence[str],
    *,
    cwd: str | int,
    hold: Hold | None,
    feed: Feed,
    until: float,
    switch: Switch,
    stdin: bytes | None = None,
    env: Mapping[str, str] = _ENV,
) -> Ended:
    """Runs a program to its end, until enough was taken, or to a time of the monotonic clock.

    Blocks. Raises OSError when it cannot be started.
    """
    given = None if stdin is None else _as_file(stdin)
    try:
        process = start(
            argv,
            cwd=cwd,
            env=env,
            hold=hold,
            stdin=DEVNULL if given is None else given,
            stderr=PIPE,
        )
    finally:
        if given is not None:
            os.close(given)
    with process:
        switch.watch(process)
        with suppress(ProcessLookupError):
            resource.prlimit(process.pid, resource.RLIMIT_DATA, (MAX_MEMORY, MAX_MEMORY))
            resource.prlimit(process.pid, resource.RLIMIT_CORE, (0, 0))
        errors = bytearray()
        stopped: Stopped = "failed"
        try:
            stopped = _pump(process, feed, until, errors)
        finally:
            if stopped:
                switch.kill()
            code = switch.reap(process)
    return Ended(code, errors.decode("utf-8", "replace"), stopped)


def _as_file(data: bytes) -> int:
    """An open file in memory: unlike a pipe, it takes any amount at once."""
    fd = os.memfd_create("request")
    view = memoryview(data)
    while view:
        view = view[os.write(fd, view) :]
    os.lseek(fd, 0, os.SEEK_SET)
    return fd


def _pump(process: Popen[bytes], feed: Feed, until: float, errors: bytearray) -> Stopped:
    assert process.stdout is not None  # noqa: S101  # a pipe was asked for
    assert process.stderr is not None  # noqa: S101
    output, complaints = process.stdout.fileno(), process.stderr.fileno()
    with suppress(OSError):
        fcntl.fcntl(output, fcntl.F_SETPIPE_SZ, CHUNK)
    poll = select.poll()
    poll.register(output, select.POLLIN)
    poll.register(complaints, select.POLLIN)
    begun = time.monotonic()
    left = 2
    while left:
        now = time.monotonic()
        if now >= until:
            return "time"
        size = 0
        for fd, _ in poll.poll((until - now) * 1_000):
            data = os.read(fd, CHUNK)
            size += len(data)
            if not data:
                poll.unregister(fd)
                left -= 1
            elif fd == complaints:
                errors += data[: MAX_ERRORS - len(errors)]
            elif not feed(data):
                return "enough"
        if left == 2 and size < CHUNK // 8:
            # Waking up for every line would take the processor from the program that searches.
            time.sleep(min(MAX_PAUSE_S, (now - begun) / 50))
    return ""
