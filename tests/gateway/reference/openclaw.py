"""OpenClaw's own programs, as npm installs them, and a gateway process for them to talk to."""

from __future__ import annotations

import json
import os
import re
import socket
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from tests.lacking import needs
from tests.node import NODE, REFERENCE

OPENCLAW = REFERENCE / "openclaw"
CLAWKIT = os.path.join(os.path.dirname(sys.executable), "clawkit")
TOKEN = "T0KEN-for-tests"
WAIT_S = 60.0
"""On a busy machine, a command of OpenClaw takes many seconds to start."""
MARKS = [
    needs(NODE.exists(), "OpenClaw"),
    # They need both processors, and one gateway serves the tests of a module.
    pytest.mark.xdist_group("reference"),
]


def wait_for(happens: Callable[[], bool], otherwise: Callable[[], object]) -> None:
    """Wait until something happens; a failure shows `otherwise`."""
    until = time.monotonic() + WAIT_S
    while not happens():
        assert time.monotonic() < until, otherwise()
        time.sleep(0.05)


def free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as probe:
        return int(probe.getsockname()[1])


class Reference:
    """A gateway in a process, and OpenClaw configured to use it."""

    def __init__(self, place: Path) -> None:
        self.port, self._state = free_port(), place / "openclaw"
        self._state.mkdir()
        workspace = place / "workspace"
        workspace.mkdir()
        (workspace / "a.txt").write_text("alpha\n", encoding="utf-8")
        config = place / "clawkit.json5"
        settings = {
            "gateway": {"auth": {"token": TOKEN}, "port": self.port},
            "agents": {"defaults": {"workspace": str(workspace), "model": "clawkit/operator"}},
        }
        config.write_text(json.dumps(settings), encoding="utf-8")
        own = {"mode": "local", "port": self.port, "auth": {"mode": "token", "token": TOKEN}}
        (self._state / "openclaw.json").write_text(json.dumps({"gateway": own}), encoding="utf-8")
        home = place / "home"
        home.mkdir(mode=0o700)
        self.url = f"http://127.0.0.1:{self.port}"
        self.env = {
            "PATH": f"{NODE.parent}:{os.environ['PATH']}",
            "HOME": str(place),
            "CLAWKIT_HOME": str(home),
            "CLAWKIT_CONFIG": str(config),
            "OPENCLAW_STATE_DIR": str(self._state),
            "OPENCLAW_NO_RESPAWN": "1",
            "NO_COLOR": "1",
            "TERM": "xterm-256color",
            "LANG": "C.UTF-8",
        }

    def clawkit(self, *arguments: str) -> str:
        done = subprocess.run(
            [CLAWKIT, *arguments], env=self.env, capture_output=True, text=True, timeout=WAIT_S
        )
        assert done.returncode == 0, done
        return done.stdout

    def call(self, method: str, **params: object) -> object:
        """Call a method with clawkit's own client."""
        return json.loads(self.clawkit("gateway", "call", method, "--params", json.dumps(params)))

    def command(self, *arguments: str) -> list[str]:
        return [str(NODE), str(OPENCLAW / "openclaw.mjs"), *arguments]

    def openclaw(self, *arguments: str) -> tuple[int, str]:
        """Run a command of OpenClaw: its exit code, and what it prints."""
        done = subprocess.run(
            self.command(*arguments),
            env=self.env,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            timeout=4 * WAIT_S,
        )
        return done.returncode, re.sub(r"\x1b\[[0-9;]*m", "", done.stdout)

    def start(self) -> None:
        self.clawkit("gateway", "start")

    def stop(self) -> None:
        self.clawkit("gateway", "stop")
