"""Asking the person at a real terminal."""

from __future__ import annotations

import asyncio
import json
import os
import pty
import select
import shlex
import signal
import subprocess
import sys
import termios
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.cli.asking import PROGRAM, SLOW
from tests.forked import InTerminal
from tests.lacking import import_or_lack

from clawkit.agent import events
from clawkit.cli import terminal_approver as clawkit_terminal
from clawkit.cli.console import warn
from clawkit.cli.turn_output import JsonOutput, PlainOutput
from clawkit.core.approval import Question
from clawkit.testing import ScriptedApprover, open_kit
from clawkit.ui.line_chat import print_rows
from clawkit.ui.paint import PaintedRow

ASK = '{tools: {rules: [{tool: "read", params: {path: "*.txt"}, effect: "ask", reason: "mine"}]}}'
PROMPT, LINE_PROMPT = "r  deny", "means no): "
"""What is shown last before an answer is read."""
PATIENCE_S = 60
pytestmark = pytest.mark.usefixtures("on_host")


class InShell:
    """A line that a shell runs in a terminal of its own; `$CLAWKIT` is clawkit there."""

    def __init__(self, line: str, *, cwd: Path, env: dict[str, str]) -> None:
        self.pid, self.fd = pty.fork()
        if self.pid == 0:
            os.chdir(cwd)
            os.execve("/bin/sh", ["/bin/sh", "-c", line], {**env, "CLAWKIT": shlex.join(SLOW)})

    def wait(self) -> int:
        return os.waitstatus_to_exitcode(os.waitpid(self.pid, 0)[1])


class Terminal:
    """Clawkit in its own terminal, with typed input."""

    def __init__(
        self,
        *args: str,
        cwd: Path,
        size: tuple[int, int] = (80, 24),
        line: str = "",
        **env: str,
    ) -> None:
        env = {**os.environ, "TERM": "xterm", **env}
        folder = Path(PROGRAM[0]).parent
        self._program = (
            InShell(line, cwd=cwd, env=env)
            if line
            else InTerminal(folder, *args, cwd=cwd, size=size, env=env)
        )
        self._fd = self._program.fd
        self._data = b""
        self._read = 0
        self.code: int | None = None

    @property
    def shown(self) -> str:
        return self._data.decode("utf-8", "replace")

    def until(self, *texts: str) -> str:
        """Wait for a text that was not yet waited for; of several, for the first that comes."""
        while True:
            places = {self._data.find(text.encode(), self._read): text for text in texts}
            places.pop(-1, None)
            if places:
                break
            assert self._more(), f"it ended before {texts}: {self.shown}"
        at = min(places)
        self._read = at + len(places[at].encode())
        return places[at]

    def until_so(self, condition: Callable[[], bool]) -> None:
        while not condition():
            assert self._more(), f"it ended before that: {self.shown}"

    def until_reading(self) -> None:
        """Wait until it waits for a line: Python misses a Ctrl-C that comes just before that."""
        end = time.monotonic() + PATIENCE_S
        while Path(f"/proc/{self._program.pid}/wchan").read_text("ascii") != "wait_woken":
            assert time.monotonic() < end, f"it does not read after: {self.shown}"
            time.sleep(0.01)

    def type(self, keys: bytes) -> None:
        os.write(self._fd, keys)

    def signal(self, number: int) -> None:
        os.kill(self._program.pid, number)

    def end(self) -> int:
        """Wait for the end; the exit code."""
        while self._more():
            pass
        return self._reap()

    def hang_up(self) -> int:
        os.close(self._fd)
        self._fd = -1
        return self._reap()

    def is_as_before(self) -> bool:
        """Whether the terminal has lines, an echo and Ctrl-C, as it had in the beginning."""
        flags = termios.tcgetattr(self._fd)[3]
        wanted = termios.ICANON | termios.ECHO | termios.ISIG
        return bool(flags & wanted == wanted)

    def _more(self) -> bool:
        ready, _, _ = select.select([self._fd], [], [], PATIENCE_S)
        assert ready, f"nothing comes any more after: {self.shown}"
        try:
            piece = os.read(self._fd, 65_536)
        except OSError:
            return False
        self._data += piece
        return bool(piece)

    def _reap(self) -> int:
        if self.code is None:
            self.code = self._program.wait()
        return self.code

    def close(self) -> None:
        if self.code is None:
            self.signal(signal.SIGKILL)
            self._reap()
        if self._fd >= 0:
            os.close(self._fd)


Open = Callable[..., Terminal]


@pytest.fixture
def terminal(workspace: Path) -> Iterator[Open]:
    opened: list[Terminal] = []

    def run(*args: str, **options: Any) -> Terminal:
        opened.append(Terminal(*args, cwd=workspace, **options))
        return opened[-1]

    yield run
    for each in opened:
        each.close()


@pytest.fixture
def read(terminal: Open, tmp_path: Path) -> Open:
    """A call that is asked about, at the moment when an answer is waited for."""
    file = tmp_path / "clawkit.json5"
    file.write_text(ASK, encoding="utf-8")

    def ask(**options: Any) -> Terminal:
        call = ("tools", "call", "read", '{"path": "a.txt"}', "--text", "--config", str(file))
        screen = terminal(*call, **options)
        screen.until(LINE_PROMPT if options.get("TERM") == "dumb" else PROMPT)
        return screen

    return ask


@pytest.fixture
def execute(terminal: Open) -> Open:
    """A command that is asked about, at the moment when an answer is waited for."""

    def ask(command: str, **options: Any) -> Terminal:
        screen = terminal("tools", "call", "exec", json.dumps({"command": command}), **options)
        screen.until(PROMPT)
        return screen

    return ask


@pytest.mark.parametrize("keys", [b"y", b"Y", b"y\r", b"\x1b[A\r", b"\x1bOA\r", b"\x1b[B\x1b[B\r"])
def test_yes_lets_the_call_go_on(read: Open, keys: bytes) -> None:
    screen = read()
    screen.type(keys)
    assert screen.end() == 0
    assert "why: mine" in screen.shown
    assert "asked by: tools.rules[0]" in screen.shown
    assert "Allowed once." in screen.shown
    assert "alpha" in screen.shown
    assert screen.is_as_before()


@pytest.mark.parametrize("keys", [b"n", b"N", b"q", b"\r", b"\n", b"\x1b", b"\x04"])
def test_no_in_all_its_forms(read: Open, keys: bytes) -> None:
    screen = read()
    screen.type(keys)
    assert screen.end() == 3
    assert "Denied." in screen.shown
    assert "alpha" not in screen.shown
    assert screen.is_as_before()


@pytest.mark.parametrize("keys", [b"yes please", b"xy", b"y" * 9_000, b"1", b"\x1b[Z", b"\xff"])
def test_pasted_or_unknown_input_answers_nothing(read: Open, keys: bytes) -> None:
    screen = read()
    screen.type(keys)
    screen.until(PROMPT)
    assert "Allowed" not in screen.shown
    screen.type(b"n")
    # If the rest of a long paste comes with it, that is no answer either.
    while screen.until(PROMPT, "Denied.") == PROMPT:
        screen.type(b"n")
    assert screen.end() == 3
    assert "Allowed" not in screen.shown


async def test_a_letter_that_others_follow_is_not_an_answer(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(clawkit_terminal, "LETTER_S", 60)
    ours, theirs = os.pipe()
    reading = asyncio.ensure_future(clawkit_terminal._read_key(ours))
    for piece in (b"y", b"e", b"s "):
        os.write(theirs, piece)
        await asyncio.sleep(0.05)
    assert await reading == "yes "
    os.close(ours)
    os.close(theirs)


@pytest.mark.parametrize("term", ["xterm", "dumb"])
async def test_below_an_open_question_nothing_else_is_printed(
    monkeypatch: pytest.MonkeyPatch, term: str
) -> None:
    ours, theirs = pty.openpty()
    monkeypatch.setenv("TERM", term)
    for name in ("stdout", "stderr"):
        monkeypatch.setattr(sys, name, os.fdopen(os.dup(theirs), "w", encoding="utf-8"))
    shown = b""

    async def until(text: str) -> None:
        nonlocal shown
        while text.encode() not in shown:
            await asyncio.to_thread(select.select, [ours], [], [], PATIENCE_S)
            shown += os.read(ours, 65_536)

    approver = clawkit_terminal.TerminalApprover(theirs)
    asking = asyncio.ensure_future(approver.ask(Question("exec", {}, "run it", timeout_s=60)))
    await until(PROMPT if term == "xterm" else LINE_PROMPT)
    output = PlainOutput()
    menu = "  y  allow once"
    call = {"type": "start", "tool": "ls", "callId": "1", "params": {"path": menu}}
    output(events.ToolEvent(call))
    output(events.Notice(menu))
    output(events.TextPiece(menu))
    JsonOutput()(events.TextPiece(menu))
    print_rows([PaintedRow(menu)])
    print_rows([PaintedRow(menu)], err=True)
    warn([menu])
    await asyncio.sleep(0.05)
    while select.select([ours], [], [], 0)[0]:
        shown += os.read(ours, 65_536)
    question = shown.decode()
    os.write(ours, b"n\n")
    assert (await asking).verdict == "deny"
    await until("warning:")
    for stream in (sys.stdout, sys.stderr):
        stream.close()
    os.close(ours)
    os.close(theirs)
    after = shown.decode().partition("Denied.")[2]
    assert question.count("allow once") == 1
    assert after.count("allow once") == 7


def test_arrow_keys_move_the_mark_around(read: Open) -> None:
    screen = read()
    for key, marked in (
        (b"\x1b[B", "> r  deny, and tell the model why"),
        (b"\x1b[B", "> y  allow once"),
        (b"\x1b[A\x1b[A", "> n  deny"),
        (b"\x1b[C", "> n  deny"),
    ):
        screen.type(key)
        screen.until(marked)
    screen.type(b"\r")
    assert screen.end() == 3


def test_ctrl_c_at_a_question_of_a_chat_without_screen_ends_only_the_turn(
    terminal: Open, workspace: Path
) -> None:
    screen = terminal("chat", TERM="dumb")
    screen.until("> ")
    screen.type(b'/tool exec {"command": "touch made"}\n')
    screen.until(LINE_PROMPT)
    screen.type(b"\x03")
    screen.until("interrupted\r\n> ")
    screen.type(b"\x04")
    assert screen.end() == 1
    assert not (workspace / "made").exists()


def test_text_typed_before_the_question_is_not_an_answer(terminal: Open, tmp_path: Path) -> None:
    file = tmp_path / "clawkit.json5"
    file.write_text(ASK, encoding="utf-8")
    os.mkfifo(gate := tmp_path / "gate")
    call = ("tools", "call", "read", '{"path": "a.txt"}', "--text", "--config", str(file))
    screen = terminal(line=f"read -r _ < {gate}; exec $CLAWKIT {shlex.join(call)}")
    screen.type(b"y\ny\ny")
    gate.write_text("\n")  # only now does it start
    screen.until(PROMPT)
    screen.type(b"n")
    assert screen.end() == 3
    assert "alpha" not in screen.shown


def test_the_reason_of_a_denial_reaches_the_model(read: Open) -> None:
    screen = read()
    screen.type(b"r")
    screen.until("Why not? ")
    screen.type(b"take b.txt\x1b[2K instead\n")
    assert screen.end() == 3
    assert "take b.txt\\u{1b}[2K instead" in screen.shown
    assert screen.is_as_before()


@pytest.mark.parametrize(
    ("term", "keys"),
    [("xterm", b"\x03"), ("xterm", b"rnever mind\x03"), ("dumb", b"\x03"), ("dumb", b"y\x03")],
)
def test_ctrl_c_ends_the_command_and_answers_nothing(read: Open, term: str, keys: bytes) -> None:
    screen = read(TERM=term)
    if keys.startswith(b"r"):
        screen.type(keys[:1])
        screen.until("Why not? ")
    screen.type(keys.removeprefix(b"r"))
    assert screen.end() == 130
    assert "interrupted" in screen.shown
    assert "alpha" not in screen.shown
    assert "refused" not in screen.shown
    assert screen.is_as_before()


@pytest.mark.parametrize("keys", [b"\x1a", b"\x1c"])
def test_other_signals_of_the_keyboard_do_not_leave_the_terminal_changed(
    read: Open, keys: bytes
) -> None:
    screen = read()
    screen.type(keys)
    screen.until(PROMPT)
    screen.type(b"n")
    assert screen.end() == 3
    assert screen.is_as_before()


def test_ctrl_c_at_a_question_ends_the_turn(terminal: Open, workspace: Path) -> None:
    screen = terminal("agent", "-m", "!touch made; touch more", "--session", "cut")
    screen.until(PROMPT)
    screen.type(b"\x03")
    assert screen.end() == 130
    assert "Denied" not in screen.shown
    assert not list(workspace.glob("m*e"))
    pending = subprocess.run([*PROGRAM, "approvals", "pending"], capture_output=True, text=True)
    assert pending.stdout == ""
    assert screen.is_as_before()


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_being_ended_at_the_question_leaves_the_terminal_as_it_was(read: Open, number: int) -> None:
    screen = read()
    screen.signal(number)
    assert screen.end() == 130
    assert "Traceback" not in screen.shown
    assert "alpha" not in screen.shown
    assert screen.is_as_before()


def test_a_closed_terminal_is_a_denial(execute: Open, workspace: Path) -> None:
    screen = execute("touch made")
    assert screen.hang_up() != 0
    assert not (workspace / "made").exists()


def test_an_answer_from_elsewhere_ends_the_question(execute: Open, workspace: Path) -> None:
    screen = execute("touch made")
    clawkit = [*PROGRAM, "approvals"]
    listed = subprocess.run([*clawkit, "pending"], capture_output=True, text=True, check=True)
    slug = listed.stdout.split()[0]
    subprocess.run([*clawkit, "resolve", slug, "allow-once"], check=True)
    assert screen.end() == 0
    assert "No longer pending" in screen.shown
    assert (workspace / "made").exists()
    assert screen.is_as_before()


def test_the_prompt_shows_everything_a_person_needs_to_decide(
    execute: Open, workspace: Path
) -> None:
    screen = execute("touch made | head -n 1", size=(200, 40))
    screen.type(b"n")
    assert screen.end() == 3
    for words in (
        "Run this command?",
        "| touch made | head -n 1",
        f"where: {workspace}",
        "why: touch is not on the allowlist",
        "note: 1 other part is allowed",
        "always (exact): /usr/bin/touch",
        "always (program): /usr/bin/touch",
        "s  allow exactly this command for this session",
        "a  always allow exactly this command",
        "p  always allow the whole program",
        "within 2m",
    ):
        assert words in screen.shown, words
    assert "denied by a person" in screen.shown
    assert not (workspace / "made").exists()


def test_always_is_remembered_and_the_next_call_is_not_asked_about(
    execute: Open, terminal: Open, workspace: Path
) -> None:
    screen = execute("touch made")
    # The letter marks it, and Enter that comes with it is part of a paste.
    screen.type(b"a\r")
    screen.until("> a  always")
    screen.until(PROMPT)
    screen.type(b"\r")
    assert screen.end() == 0
    assert "Allowed from now on: exactly this command" in screen.shown
    (workspace / "made").unlink()
    again = terminal("tools", "call", "exec", '{"command": "touch made"}')
    assert again.end() == 0
    assert "Run this command?" not in again.shown
    assert (workspace / "made").exists()
    other = execute("touch other")
    other.type(b"p")
    other.until("> p  always")
    other.until(PROMPT)
    other.type(b"\r")
    assert other.end() == 0
    third = terminal("tools", "call", "exec", '{"command": "touch third"}')
    assert third.end() == 0
    assert "Run this command?" not in third.shown


def test_hidden_characters_are_made_visible(execute: Open) -> None:
    screen = execute("touch a\u202eb\u200b; есho hi")
    screen.type(b"n")
    assert screen.end() == 3
    assert "touch a\\u{202e}b\\u{200b}" in screen.shown
    assert "\\u{435}\\u{441}ho" in screen.shown
    question = screen.shown.split("Denied.")[0]
    assert "\u202e" not in question
    assert "\u200b" not in question


def test_no_row_is_wider_than_a_narrow_terminal(execute: Open) -> None:
    pyte = import_or_lack("pyte")
    screen = execute(f"touch {'x' * 70} && touch '{'why: safe ' * 10}'", size=(30, 200))
    view = pyte.Screen(30, 200)
    pyte.ByteStream(view).feed(screen.shown.encode())
    rows = [row.rstrip() for row in view.display]
    # A row that the terminal broke by itself would fill all of its columns.
    assert not [row for row in rows if len(row) == 30]
    assert not [row for row in rows if row.startswith("why")]
    assert "> n  deny" in rows
    screen.type(b"n")
    assert screen.end() == 3


def test_in_a_small_terminal_the_command_stays_above_the_choices(execute: Open) -> None:
    pyte = import_or_lack("pyte")
    screen = execute("touch made && touch more", size=(20, 6))

    def seen() -> list[str]:
        view = pyte.Screen(20, 6)
        pyte.ByteStream(view).feed(screen.shown.encode())
        return [row.rstrip() for row in view.display]

    screen.until("or y s a p n r")
    # All choices do not fit; their keys do.
    screen.until_so(lambda: seen()[0] == "  | touch made && …")
    assert {"> n  deny", "  or y s a p n r"} <= set(seen())
    screen.type(b"\x1b[A")
    screen.until("> p  always")
    screen.until_so(lambda: seen()[0] == "  | touch made && …")
    screen.type(b"n")
    assert screen.end() == 3


def test_before_a_confirmation_no_row_of_others_lacks_its_prefix(terminal: Open) -> None:
    pyte = import_or_lack("pyte")
    file = Path(os.environ["CLAWKIT_HOME"], "plugins", "dice.py")
    file.parent.mkdir(parents=True)
    words = "Enable other? [y/N]: y " * 8
    plugin = f"Plugin(id='dice', name='Dice\\nsecond', description='{words}')"
    file.write_text(f"from clawkit.plugins import Plugin\nplugin = {plugin}", encoding="utf-8")
    screen = terminal("plugins", "enable", "dice", size=(30, 50))
    screen.until("Enable dice? [y/N]: ")
    view = pyte.Screen(30, 50)
    pyte.ByteStream(view).feed(screen.shown.encode())
    rows = [row for row in view.display if row.strip()]
    assert [row.rstrip() for row in rows if not row.startswith("  ")] == ["Enable dice? [y/N]:"]
    screen.type(b"n\n")
    assert screen.end() == 3


def test_a_terminal_that_does_not_know_its_size_is_taken_for_a_usual_one(execute: Open) -> None:
    screen = execute("touch made", size=(0, 0))
    screen.type(b"n")
    assert screen.end() == 3
    assert "a  always allow exactly this command, in this directory" in screen.shown


@pytest.mark.parametrize(
    ("line", "code"),
    [
        (b"y\n", 0),
        (b"YES\n", 0),
        (b"1\n", 0),
        (b"\n", 3),
        (b"yeah\n", 3),
        (b"9\n", 3),
        (b"\x04", 3),
    ],
)
def test_a_dumb_terminal_is_asked_by_lines(read: Open, line: bytes, code: int) -> None:
    screen = read(TERM="dumb")
    screen.type(line)
    assert screen.end() == code
    assert ("alpha" in screen.shown) == (code == 0)
    assert "\x1b" not in screen.shown
    assert screen.is_as_before()


def test_a_reason_on_a_dumb_terminal(read: Open) -> None:
    screen = read(TERM="dumb")
    screen.type(b"r\n")
    screen.until("Why not? ")
    screen.type(b"because\n")
    assert screen.end() == 3
    assert "(because)" in screen.shown


def test_styles_can_be_turned_off(read: Open) -> None:
    plain, styled = read(NO_COLOR="1"), read()
    plain.type(b"n")
    styled.type(b"n")
    assert (plain.end(), styled.end()) == (3, 3)
    assert "\x1b[1m" in styled.shown
    assert "\x1b[1m" not in plain.shown


PIPED = "echo '!touch made' | $CLAWKIT agent -m - --no-session"


@pytest.mark.parametrize(("key", "code"), [(b"y", 0), (b"n", 0), (b"\x03", -signal.SIGINT)])
def test_a_message_from_a_pipe_leaves_the_terminal_for_answers(
    terminal: Open, workspace: Path, key: bytes, code: int
) -> None:
    screen = terminal(line=PIPED)
    screen.until(PROMPT)
    screen.type(key)
    assert screen.end() == code
    assert (workspace / "made").exists() == (key == b"y")
    assert screen.is_as_before()


@pytest.mark.parametrize(
    "line", [f"{PIPED} --json", f"{PIPED} 2>&1 | cat", f"set -m; {PIPED} & wait"]
)
def test_no_question_is_asked_if_input_is_a_pipe(
    terminal: Open, workspace: Path, line: str
) -> None:
    screen = terminal(line=line)
    screen.end()
    assert "touch is not on the allowlist" in screen.shown
    assert "Run this command?" not in screen.shown
    assert not (workspace / "made").exists()


@pytest.mark.parametrize(
    "line",
    [
        """$CLAWKIT tools call exec '{"command": "touch made"}' --text""",
        PIPED,
    ],
)
async def test_a_command_of_an_agent_cannot_answer_for_a_person(line: str, tmp_path: Path) -> None:
    strict = tmp_path / "strict.json5"
    config = {"agents": {"defaults": {"sandbox": {"mode": "off"}}}}
    strict.write_text(json.dumps(config), encoding="utf-8")
    clawkit = f"{sys.executable} -m clawkit"
    command = f"{line.replace('$CLAWKIT', clawkit)} --config {strict}"
    async with open_kit(tmp_path, config=config, approver=ScriptedApprover("allow")) as kit:
        # It has a terminal, at which the agent could type.
        result = await kit.call("exec", {"command": command, "pty": True, "yieldMs": 60_000})
    assert "no one can be asked here" in result.as_text()
    assert not (tmp_path / "made").exists()
