"""A terminal that becomes narrower while something is shown that changes."""

from __future__ import annotations

import re
import shlex
import shutil
import subprocess
import time
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path

import pytest
from tests.cli.asking import SLOW
from tests.lacking import needs
from tests.ui.screen import READY

from clawkit.ui.reflow import does_reflow

PATIENCE_S = 60


@pytest.mark.parametrize(
    ("env", "does"),
    [
        ({"TERM": "xterm-256color"}, False),
        ({"TERM": "linux"}, False),
        ({"TERM": "xterm-256color", "VTE_VERSION": "7200"}, True),
        ({"TERM": "xterm-256color", "VTE_VERSION": "7200", "XTERM_VERSION": "XTerm(379)"}, False),
        ({"TERM": "screen", "TMUX": "/tmp/tmux-0/default,1,0"}, True),
        ({"TERM": "screen.xterm-256color", "VTE_VERSION": "7200"}, False),
        ({"TERM": "tmux-256color"}, True),
        ({"TERM": "xterm-256color", "TERM_PROGRAM": "vscode"}, True),
        ({}, False),
    ],
)
def test_terminals_that_wrap_again_are_known(env: Mapping[str, str], does: bool) -> None:
    assert does_reflow(env) is does


class Tmux:
    def __init__(self, folder: Path, line: str) -> None:
        self._tmux = ("tmux", "-S", str(folder / "tmux"))
        self.run("-f", "/dev/null", "new-session", "-d", "-x", "100", "-y", "30", line)

    def run(self, *args: str) -> str:
        done = subprocess.run([*self._tmux, *args], capture_output=True, text=True, check=True)
        return done.stdout

    @property
    def shown(self) -> str:
        return self.run("capture-pane", "-p", "-S", "-100")

    def until(self, condition: Callable[[str], bool]) -> str:
        end = time.monotonic() + PATIENCE_S
        while not condition(shown := self.shown):
            assert time.monotonic() < end, shown
            time.sleep(0.05)
        return shown


@pytest.fixture
def tmux(tmp_path: Path, workspace: Path) -> Iterator[Tmux]:
    line = f"cd {shlex.quote(str(workspace))}; {shlex.join(SLOW)} chat --no-session --local"
    made = Tmux(tmp_path, line)
    yield made
    made.run("kill-server")


@needs(shutil.which("tmux"), "tmux")
def test_a_narrower_terminal_shows_a_running_command_once(tmux: Tmux) -> None:
    tmux.until(lambda shown: READY in shown)
    tmux.run("send-keys", "-l", f"!echo {'long ' * 30}; sleep 100")
    tmux.run("send-keys", "Enter")
    tmux.until(lambda shown: re.search("exec echo .*\n  long", shown) is not None)
    for columns in ("50", "34"):
        tmux.run("resize-window", "-x", columns)
        width = int(columns)
        tmux.until(
            lambda shown, width=width: any(  # type: ignore[misc]
                "exec echo" in row and "…" in row and len(row) < width for row in shown.split("\n")
            )
        )
        assert tmux.shown.count(" exec echo") == 1, tmux.shown
