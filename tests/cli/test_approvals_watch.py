"""`clawkit approvals watch`: a terminal that answers approval requests."""

from __future__ import annotations

import json
import os
import signal
import stat
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from tests.cli.asking import PROGRAM
from tests.cli.test_terminal_approver import PROMPT, Terminal

from clawkit.approvals.file import read_document
from clawkit.config.paths import approvals_file

READY = "Press Ctrl-C to stop."

pytestmark = pytest.mark.usefixtures("on_host")
Call = Callable[[str], "subprocess.Popen[str]"]


@pytest.fixture
def watch(workspace: Path) -> Iterator[Callable[[], Terminal]]:
    opened: list[Terminal] = []

    def open_terminal() -> Terminal:
        opened.append(Terminal("approvals", "watch", cwd=workspace))
        return opened[-1]

    yield open_terminal
    for each in opened:
        each.close()


@pytest.fixture
def call(workspace: Path) -> Iterator[Call]:
    """Call exec where nobody is at a terminal."""
    begun: list[subprocess.Popen[str]] = []

    def execute(command: str) -> subprocess.Popen[str]:
        params = json.dumps({"command": command})
        begun.append(
            subprocess.Popen(
                [*PROGRAM, "tools", "call", "exec", params, "--text"],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                text=True,
                cwd=workspace,
            )
        )
        return begun[-1]

    yield execute
    for each in begun:
        each.kill()
        each.communicate()


@pytest.fixture
def socket() -> Path:
    return Path(os.environ["CLAWKIT_HOME"]) / "exec-approvals.sock"


def test_questions_of_other_processes_are_answered(
    watch: Callable[[], Terminal], call: Call, workspace: Path, socket: Path
) -> None:
    screen = watch()
    screen.until(READY)
    assert stat.S_IMODE(socket.stat().st_mode) == 0o600
    first = call("touch made")
    screen.until("\a")
    screen.until("| touch made")
    screen.until(PROMPT)
    screen.type(b"y")
    assert first.communicate()[0] == "(no output)\n"
    assert first.returncode == 0
    assert (workspace / "made").exists()
    second = call("touch other")
    screen.until("| touch other")
    screen.until(PROMPT)
    # Ctrl-C answers what is asked; only then does it end the watching.
    screen.type(b"\x03")
    screen.until("Denied.")
    assert "denied by a person" in second.communicate()[1]
    assert second.returncode == 3
    screen.type(b"\x03")
    assert screen.end() == 0
    assert not (workspace / "other").exists()
    assert not socket.exists()
    assert screen.is_as_before()


def test_always_is_stored_by_the_asking_process(
    watch: Callable[[], Terminal], call: Call, workspace: Path
) -> None:
    screen = watch()
    screen.until(READY)
    asked = call("touch made")
    screen.until(PROMPT)
    screen.type(b"a")
    screen.until("> a  always")
    screen.until(PROMPT)
    screen.type(b"\r")
    asked.communicate()
    assert asked.returncode == 0
    again = call("touch made")
    again.communicate()
    assert again.returncode == 0
    screen.type(b"\x03")
    assert screen.end() == 0
    assert screen.shown.count("Run this command?") == 1
    (item,) = read_document(approvals_file(os.environ)).items
    assert (item.entry.source, item.entry.extent) == ("allow-always", "exact")


def test_two_questions_come_one_after_the_other(
    watch: Callable[[], Terminal], call: Call, workspace: Path
) -> None:
    screen = watch()
    screen.until(READY)
    asked = [call("touch one"), call("touch two")]
    for _ in asked:
        screen.until(PROMPT)
        screen.type(b"y")
        screen.until("Allowed once.")
    assert [each.wait() for each in asked] == [0, 0]
    assert {each.name for each in workspace.iterdir()} >= {"one", "two"}


def test_a_second_watch_refuses_to_start(watch: Callable[[], Terminal], socket: Path) -> None:
    first = watch()
    first.until(READY)
    second = watch()
    assert second.end() == 1
    assert "another process already answers requests, probably another" in second.shown
    assert socket.exists()
    first.type(b"\x03")
    assert first.end() == 0


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP, signal.SIGINT])
def test_being_ended_leaves_no_socket_behind(
    watch: Callable[[], Terminal], call: Call, socket: Path, number: int
) -> None:
    screen = watch()
    screen.until(READY)
    asked = call("touch made")
    screen.until(PROMPT)
    screen.signal(number)
    assert screen.end() == 0
    assert not socket.exists()
    assert screen.is_as_before()
    # Whoever asked does not wait for somebody who is gone.
    asked.communicate()
    assert asked.returncode == 3


def test_a_killed_watch_is_replaced(
    watch: Callable[[], Terminal], call: Call, socket: Path
) -> None:
    first = watch()
    first.until(READY)
    first.signal(signal.SIGKILL)
    first.end()
    assert socket.exists()
    alone = call("touch made")
    said = alone.communicate()
    assert alone.returncode == 3, said
    second = watch()
    second.until(READY)
    asked = call("touch made")
    second.until(PROMPT)
    second.type(b"y")
    asked.communicate()
    assert asked.returncode == 0


def test_a_question_whose_asker_is_gone_disappears(
    watch: Callable[[], Terminal], call: Call, workspace: Path
) -> None:
    screen = watch()
    screen.until(READY)
    asked = call("touch made")
    screen.until(PROMPT)
    asked.kill()
    screen.until("No longer pending")
    screen.type(b"\x03")
    assert screen.end() == 0
    assert not (workspace / "made").exists()


def test_already_pending_questions_are_shown(
    watch: Callable[[], Terminal], workspace: Path
) -> None:
    waiting = Terminal("tools", "call", "exec", '{"command": "touch made"}', cwd=workspace)
    waiting.until(PROMPT)
    screen = watch()
    screen.until("1 earlier request pending: clawkit approvals pending")
    waiting.type(b"n")
    assert waiting.end() == 3
    waiting.close()
    screen.type(b"\x03")
    assert screen.end() == 0
