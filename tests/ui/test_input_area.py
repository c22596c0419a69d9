"""The line in which the person types, on a terminal of its own."""

from __future__ import annotations

import asyncio
import logging
import os
import pty
import sys
import termios
from collections.abc import AsyncIterator, Callable

import pyte
import pytest
from prompt_toolkit.history import InMemoryHistory

from clawkit.core.approval import Lasting, Question
from clawkit.ui.input_area import NOT_DRAWN, InputHandler, Prompt
from clawkit.ui.line_input import LineCompleter, Words
from clawkit.ui.paint import Paint
from clawkit.ui.questions import SETTLE_S

WORK = "busy with it"


class Desk(InputHandler):
    """Somebody whom lines are sent to, and whose work cannot always be drawn."""

    workspace = "/"

    def __init__(self) -> None:
        super().__init__()
        self.sent: list[str] = []
        self.fault: Exception | None = None
        self.drawn = 0

    def submit(self, text: str, *, later: bool = False) -> None:
        self.sent.append(text)

    def live(self, columns: int, rows: int) -> str:
        self.drawn += 1
        if self.fault is not None:
            raise self.fault
        return WORK

    def words_after(self, name: str) -> Words:
        return () if name else [("policy", ""), ("model", ""), ("more", "")]


class Terminal:
    """A prompt, somebody at the keyboard, and all that was written on the screen."""

    def __init__(self, prompt: Prompt, desk: Desk, fd: int) -> None:
        self.prompt = prompt
        self.desk = desk
        self.keys = 0
        """How many have done what they do."""
        self._fd = fd
        self._screen = pyte.Screen(80, 24)
        self._stream = pyte.ByteStream(self._screen)
        self._changed = asyncio.Event()
        prompt.app.after_render += lambda _: self._changed.set()
        prompt.app.key_processor.after_key_press += self._count

    def _count(self, _processor: object) -> None:
        self.keys += 1
        self._changed.set()

    @property
    def text(self) -> str:
        """What can be seen."""
        return "\n".join(row.rstrip() for row in self._screen.display)

    def take(self) -> None:
        self._stream.feed(os.read(self._fd, 65_536))
        self._changed.set()

    def type(self, keys: str) -> None:
        os.write(self._fd, keys.encode())

    def resize(self, rows: int, columns: int) -> None:
        termios.tcsetwinsize(self._fd, (rows, columns))
        self._screen.resize(rows, columns)

    async def until(self, condition: Callable[[], bool]) -> None:
        async with asyncio.timeout(60):
            while not condition():
                self._changed.clear()
                await self._changed.wait()

    async def until_line(self, text: str) -> None:
        await self.until(lambda: self.prompt.buffer.text == text)


@pytest.fixture
async def terminal(monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Terminal]:
    fd, screen = pty.openpty()
    termios.tcsetwinsize(fd, (24, 80))
    desk, completer, loop = Desk(), LineCompleter(), asyncio.get_running_loop()
    completer.source = desk
    with open(screen, closefd=False) as stdin, open(screen, "w") as stdout:
        monkeypatch.setattr(sys, "stdin", stdin)
        prompt = Prompt(desk, Paint(colours=False), InMemoryHistory(), completer, stdout)
        made = Terminal(prompt, desk, fd)
        loop.add_reader(fd, made.take)
        running = asyncio.ensure_future(prompt.run())
        await made.until(lambda: WORK in made.text)
        yield made
        prompt.quit()
        await running
        loop.remove_reader(fd)
    os.close(fd)


@pytest.mark.parametrize("fault", [ValueError("odd\x1b"), IndexError(), TypeError(), KeyError("x")])
async def test_work_that_cannot_be_drawn_is_one_line_and_the_chat_goes_on(
    terminal: Terminal, caplog: pytest.LogCaptureFixture, fault: Exception
) -> None:
    desk = terminal.desk
    with caplog.at_level(logging.WARNING, "clawkit.ui.input_area"):
        desk.fault, drawn = fault, desk.drawn
        terminal.prompt.refresh()
        await terminal.until(lambda: NOT_DRAWN in terminal.text)
        terminal.type("hello")
        await terminal.until_line("hello")
        terminal.type("\r")
        await terminal.until(lambda: desk.sent == ["hello"] and desk.drawn > drawn + 1)
    assert [each.getMessage() for each in caplog.records] == [
        f"the current activity cannot be drawn: {fault!r}"
    ]
    desk.fault = None
    terminal.prompt.refresh()
    await terminal.until(lambda: WORK in terminal.text)


async def test_a_line_of_blanks_is_cleared_by_enter(terminal: Terminal) -> None:
    terminal.type("   ")
    await terminal.until_line("   ")
    terminal.type("\r")
    await terminal.until_line("")
    terminal.type("/help")
    await terminal.until_line("/help")
    terminal.type("\r")
    await terminal.until(lambda: terminal.desk.sent == ["/help"])


@pytest.mark.parametrize(
    ("typed", "lines"),
    [
        ("/pol", ["/policy", "/policy", "/policy"]),
        ("  /pol", ["  /policy", "  /policy"]),
        ("/mo", ["/model", "/more", "/mo", "/model"]),
    ],
)
async def test_tab_goes_through_what_can_be_chosen_and_keeps_what_is_alone(
    terminal: Terminal, typed: str, lines: list[str]
) -> None:
    buffer = terminal.prompt.buffer
    terminal.type(typed)
    await terminal.until(lambda: bool(buffer.complete_state and buffer.complete_state.completions))
    for line in lines:
        before = terminal.keys
        terminal.type("\t")
        await terminal.until(lambda before=before: terminal.keys > before)  # type: ignore[misc]
        await terminal.until_line(line)


async def test_a_small_screen_is_left_to_the_question(terminal: Terminal) -> None:
    lasting = (Lasting("exact", "touch made, in this directory"), Lasting("program", "touch"))
    question = Question(
        "exec",
        {},
        "",
        "it is not on the allowlist",
        "tools.exec",
        command="touch made",
        cwd="/somewhere/else",
        lasting=lasting,
    )
    terminal.resize(12, 40)
    asked = asyncio.ensure_future(terminal.prompt.questions.ask(question))
    await terminal.until(lambda: "r  deny, and tell" in terminal.text)
    assert "  | touch made\n" in terminal.text
    assert "y  allow once" in terminal.text
    assert WORK not in terminal.text
    asked.cancel()
    await terminal.until(lambda: WORK in terminal.text)


@pytest.mark.parametrize("rows", [6, 7, 9, 12])
async def test_on_a_small_screen_the_command_stays_above_the_choices(
    terminal: Terminal, rows: int
) -> None:
    terminal.resize(rows, 20)
    question = Question(
        "exec",
        {},
        "Run it?",
        command="git push --force origin main",
        description="it asks to run outside the sandbox",
        lasting=(Lasting("exact", "git push"), Lasting("session", "this")),
    )
    asked = asyncio.ensure_future(terminal.prompt.questions.ask(question))
    await terminal.until(lambda: "> n  deny" in terminal.text)
    head = "  | git push …"
    assert head in terminal.text
    shown = terminal.prompt.questions.current
    assert shown is not None
    await terminal.until(lambda: shown.is_ready)
    terminal.type("\x1b[A")
    await terminal.until(lambda: "> a  always" in terminal.text)
    assert head in terminal.text
    terminal.type("n")
    assert (await asked).verdict == "deny"


MAKE = Question("exec", {}, "Run it?", command="make", lasting=(Lasting("exact", "make"),))


async def test_with_a_text_in_the_line_ctrl_c_does_not_offer_to_end(terminal: Terminal) -> None:
    stopped: list[bool] = []
    terminal.desk.interrupt = lambda: not stopped and not stopped.append(True)  # type: ignore
    terminal.type("half a")
    await terminal.until_line("half a")
    terminal.type("\x03")
    await terminal.until(lambda: bool(stopped))
    before = terminal.keys
    terminal.prompt.refresh()
    assert not terminal.prompt.is_armed
    terminal.type("\x03")
    await terminal.until(lambda: terminal.keys > before and not terminal.prompt.buffer.text)
    assert "to end the chat" not in terminal.text
    terminal.type("\x03")
    await terminal.until(lambda: "Press Ctrl-C again, or Ctrl-D, to end the chat." in terminal.text)
    # A text that is pasted in between takes the offer back.
    terminal.type("\x1b[200~pasted\x1b[201~")
    await terminal.until_line("pasted")
    await terminal.until(lambda: "to end the chat" not in terminal.text)


async def ready(terminal: Terminal) -> None:
    questions = terminal.prompt.questions
    await terminal.until(lambda: bool(questions.current and questions.current.is_ready))


async def test_a_question_is_repeated_below_what_is_printed_after_it(terminal: Terminal) -> None:
    prompt = terminal.prompt
    asked = asyncio.ensure_future(prompt.questions.ask(MAKE))
    await ready(terminal)
    await terminal.until(lambda: "allow once" in terminal.text)
    assert terminal.text.count("| make") == 1
    for number in range(40):  # the question scrolls out of sight
        prompt.print(f"  Run this command? {number}\n  | ls\n")
    await terminal.until(lambda: "| make" in terminal.text and "? 39" in terminal.text)
    assert terminal.text.index("? 39") < terminal.text.index("| make")
    assert terminal.text.index("| make") < terminal.text.index("allow once")
    terminal.type("n")
    assert (await asked).verdict == "deny"


@pytest.mark.parametrize("is_asked", [False, True])
async def test_a_key_between_two_questions_answers_neither(
    terminal: Terminal, is_asked: bool
) -> None:
    questions = terminal.prompt.questions
    first = asyncio.ensure_future(questions.ask(MAKE))
    await ready(terminal)
    terminal.type("y")
    assert (await first).verdict == "allow"
    if is_asked:  # the next one is there, but does not take keys yet
        second = asyncio.ensure_future(questions.ask(MAKE))
        await terminal.until(lambda: questions.current is not None)
    before = terminal.keys
    terminal.type("y")
    await terminal.until(lambda: terminal.keys > before)
    if not is_asked:
        assert terminal.prompt.buffer.text == "y"
        second = asyncio.ensure_future(questions.ask(MAKE))
    await ready(terminal)
    await asyncio.sleep(SETTLE_S * 1.5)
    assert not second.done(), "what came before the question is no answer to it"
    terminal.type("y")
    assert (await second).verdict == "allow"
    assert terminal.prompt.buffer.text == ""


async def test_a_line_that_was_emptied_leaves_the_keys_to_the_question(terminal: Terminal) -> None:
    terminal.type("no")
    await terminal.until_line("no")
    asked = asyncio.ensure_future(terminal.prompt.questions.ask(MAKE))
    await terminal.until(lambda: "Press Tab to answer" in terminal.text)
    terminal.type("\x7f\x7f")
    await terminal.until(lambda: "Press a letter" in terminal.text)
    terminal.type("\x7f")
    await asyncio.sleep(SETTLE_S * 1.5)
    assert not asked.done(), "one Backspace too many is no answer"
    terminal.type("y")
    assert (await asked).verdict == "allow"


async def test_a_message_that_begins_between_two_questions_is_not_lost(terminal: Terminal) -> None:
    questions = terminal.prompt.questions
    first = asyncio.ensure_future(questions.ask(MAKE))
    await ready(terminal)
    terminal.type("y")
    await first
    terminal.type("y")
    await terminal.until_line("y")
    second = asyncio.ensure_future(questions.ask(MAKE))
    await terminal.until(lambda: questions.current is not None)
    terminal.type("es, but later")
    await terminal.until_line("yes, but later")
    assert not second.done()
    second.cancel()


@pytest.mark.parametrize("key", ["\x1b[1;3A", "\x1b[1;3B", "\x1b[1;9A", "\x1b[1;3D"])
async def test_alt_with_an_arrow_key_is_not_escape(terminal: Terminal, key: str) -> None:
    stopped: list[bool] = []
    terminal.desk.interrupt = lambda: not stopped.append(True)  # type: ignore
    terminal.type("tea")
    await terminal.until_line("tea")
    before = terminal.keys
    terminal.type(key)
    await terminal.until(lambda: terminal.keys >= before + 2)
    terminal.type("!")
    await terminal.until(lambda: "!" in terminal.prompt.buffer.text)
    assert stopped == []
    terminal.type("\x1b")
    await terminal.until(lambda: stopped == [True])


async def test_alt_with_an_arrow_key_does_not_deny(terminal: Terminal) -> None:
    asked = asyncio.ensure_future(terminal.prompt.questions.ask(MAKE))
    await ready(terminal)
    terminal.type("\x1b[1;3A")
    await terminal.until(lambda: "> a  always" in terminal.text)
    assert not asked.done()
    terminal.type("\x1b")
    assert (await asked).verdict == "deny"
