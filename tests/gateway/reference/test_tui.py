"""OpenClaw's terminal client in tmux: a turn, and a gateway that comes back."""

from __future__ import annotations

import os
import shlex
import shutil
import subprocess
from collections.abc import Iterator

import pytest
from tests.gateway.reference.openclaw import MARKS, Reference, wait_for
from tests.lacking import needs

pytestmark = [
    *MARKS,
    needs(shutil.which("tmux"), "tmux"),
]
_RULE = "─" * 120
"""Above the line that is typed."""


class Tmux:
    """A terminal with one program."""

    def __init__(self, reference: Reference, *command: str) -> None:
        self._env = reference.env
        self._name = f"clawkit-{os.getpid()}-{reference.port}"
        self._run("new-session", "-d", "-x", "120", "-y", "40", shlex.join(command))

    def _run(self, *arguments: str) -> str:
        return subprocess.run(
            ["tmux", "-L", self._name, "-f", "/dev/null", *arguments],
            env=self._env,
            check=True,
            capture_output=True,
            text=True,
        ).stdout

    @property
    def text(self) -> str:
        return self._run("capture-pane", "-p")

    def until(self, *words: str, count: int = 1) -> None:
        """Wait until all of these words are shown, the first one so many times."""

        def is_shown() -> bool:
            text = self.text
            return text.count(words[0]) >= count and all(each in text for each in words)

        wait_for(is_shown, lambda: self.text)

    def type(self, line: str) -> None:
        """Enter a line. The client may take the first Enter for its completion of words."""
        self._run("send-keys", "-l", line)
        self.until(f"{_RULE}\n{line}")

        def is_entered() -> bool:
            self._run("send-keys", "Enter")
            return f"{_RULE}\n{line}" not in self.text

        wait_for(is_entered, lambda: self.text)

    def close(self) -> None:
        self._run("kill-server")


@pytest.fixture(scope="module")
def tui(reference: Reference) -> Iterator[Tmux]:
    opened = Tmux(reference, *reference.command("tui"))
    yield opened
    opened.close()


def test_a_line_is_answered_and_the_client_is_idle_again(tui: Tmux) -> None:
    tui.until("| idle")
    tui.type("read a.txt")
    tui.until("alpha", "| idle")
    assert "unknown method" not in tui.text


def test_it_connects_again_to_a_gateway_that_restarts(reference: Reference, tui: Tmux) -> None:
    reference.stop()
    tui.until("disconnected")
    reference.start()
    tui.until("| idle")
    tui.type("find *.txt")
    tui.until("\na.txt", "| idle")
