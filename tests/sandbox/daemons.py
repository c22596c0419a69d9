"""Servers for tests: not children of the tests, and yet they end with them."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path

_KEEP = """
import ctypes, os, select, signal, subprocess, sys
log, tests, *argv = sys.argv[1:]
tests = os.pidfd_open(int(tests))
if os.fork():
    os._exit(0)
os.setsid()
end_with_parent = ctypes.CDLL(None).prctl
with open(log, "wb") as out:
    server = subprocess.Popen(
        argv, stdin=subprocess.DEVNULL, stdout=out, stderr=out,
        preexec_fn=lambda: end_with_parent(1, signal.SIGTERM),
    )
os.write(1, b"%d" % server.pid)
os.close(1)
select.select([0, tests], [], [])
server.terminate()
try:
    server.wait(60)
except subprocess.TimeoutExpired:
    server.kill()
"""
"""It ends the server when its standard input is closed, or the tests have ended, even if a copy of
them still has the other end. If it is killed itself, the kernel ends the server."""


class Daemon:
    """A server of its own: other tests look at the children of the process they run in."""

    def __init__(self, argv: Sequence[str], log: Path) -> None:
        given, self._end = os.pipe()
        try:
            done = subprocess.run(
                [sys.executable, "-I", "-S", "-c", _KEEP, str(log), str(os.getpid()), *argv],
                stdin=given,
                stdout=subprocess.PIPE,
                stderr=subprocess.DEVNULL,
                check=True,
            )
        finally:
            os.close(given)
        self.pid = int(done.stdout)

    @property
    def is_running(self) -> bool:
        with suppress(OSError):
            state = Path(f"/proc/{self.pid}/stat").read_text().rpartition(")")[2].split()[0]
            return state != "Z"
        return False

    def stop(self, patience_s: float) -> None:
        """Until it has ended."""
        os.close(self._end)
        end = time.monotonic() + patience_s
        while self.is_running:
            assert time.monotonic() < end, f"process {self.pid} does not end"
            time.sleep(0.05)
