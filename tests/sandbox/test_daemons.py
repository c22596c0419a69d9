"""Servers for tests end with the tests, however these end."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

from tests.process.watching import alive, new_marker, until
from tests.sandbox.daemons import Daemon

TESTS = """
import os, pathlib, signal, sys
sys.path.insert(0, sys.argv[1])
from tests.sandbox.daemons import Daemon
Daemon(["sleep", os.environ["SECONDS"]], pathlib.Path(os.devnull))
if os.fork():
    os.kill(os.getpid(), signal.SIGKILL)
print("copied", flush=True)
sys.stdin.read()
"""


async def test_a_server_ends_when_its_keeper_is_killed(tmp_path: Path) -> None:
    daemon = Daemon(["sleep", "1000"], tmp_path / "log")
    [_, parent, *_] = Path(f"/proc/{daemon.pid}/stat").read_text().rpartition(")")[2].split()
    os.kill(int(parent), signal.SIGKILL)
    daemon.stop(60)


async def test_a_server_ends_with_killed_tests_of_which_a_copy_lives() -> None:
    marker, root = new_marker(), str(Path(__file__).parents[2])
    argv, env = [sys.executable, "-c", TESTS, root], {**os.environ, "SECONDS": marker}
    pipe = subprocess.PIPE
    with subprocess.Popen(argv, stdin=pipe, stdout=pipe, env=env) as tests:
        assert tests.stdout is not None
        assert tests.stdout.readline() == b"copied\n"
        await until(lambda: not alive(marker), "server and keeper have ended")
