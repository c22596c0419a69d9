"""Asking the person at a real terminal."""

from __future__ import annotations

import os
import pty
import sys
from pathlib import Path

import pytest

ASK = '{tools: {rules: [{tool: "read", params: {path: "*.txt"}, effect: "ask", reason: "mine"}]}}'


def converse(
    workspace: Path, config: Path, answer: bytes, typed_ahead: bytes = b""
) -> tuple[str, int]:
    """Run a call on a terminal of its own, answer the question, and return screen and exit code."""
    pid, screen = pty.fork()
    if pid == 0:
        os.chdir(workspace)
        call = ["tools", "call", "read", '{"path": "a.txt"}', "--text", "--config", str(config)]
        os.execv(sys.executable, [sys.executable, "-m", "clawkit", *call])
    os.write(screen, typed_ahead)
    shown = b""
    answered = False
    while True:
        try:
            piece = os.read(screen, 4096)
        except OSError:
            break
        shown += piece
        if not answered and b"[y/N] " in shown:
            answered = True
            os.write(screen, answer)
    os.close(screen)
    return shown.decode(), os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])


@pytest.fixture
def config(tmp_path: Path) -> Path:
    file = tmp_path / "clawkit.json5"
    file.write_text(ASK, encoding="utf-8")
    return file


def test_yes_lets_the_call_go_on(workspace: Path, config: Path) -> None:
    shown, code = converse(workspace, config, b"y\n")
    assert code == 0
    assert "why: mine" in shown
    assert "asked by: tools.rules[0]" in shown
    assert "alpha" in shown


@pytest.mark.parametrize("answer", [b"n\n", b"\n", b"yeah\n", b"\x04"])
def test_anything_else_is_a_no(workspace: Path, config: Path, answer: bytes) -> None:
    shown, code = converse(workspace, config, answer)
    assert code == 3
    assert "alpha" not in shown


def test_interrupting_ends_it_all(workspace: Path, config: Path) -> None:
    shown, code = converse(workspace, config, b"\x03")
    assert code == 130
    assert "Traceback" not in shown


def test_what_was_typed_before_the_question_is_no_answer(workspace: Path, config: Path) -> None:
    shown, code = converse(workspace, config, b"n\n", typed_ahead=b"y\ny\ny\n")
    assert code == 3
    assert "alpha" not in shown
