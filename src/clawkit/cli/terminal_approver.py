"""Asks for approval at the terminal."""

from __future__ import annotations

import asyncio
import os
import re
import sys
import termios
from collections.abc import Iterator
from contextlib import contextmanager, suppress

from clawkit.cli.console import style
from clawkit.core.approval import MAX_WAIT_S, Answer, Question
from clawkit.line_reader import read_ready
from clawkit.terminal_text import output_held_back, truncate, wrap
from clawkit.text import human_time, printable
from clawkit.ui import questions
from clawkit.ui.questions import PromptChoice

SETTLE_S, LETTER_S = 0.03, 0.5
"""Input that follows a key within this time belongs to it: the rest of an escape sequence or a
paste, or, after a letter, of a word that was meant for another prompt."""
_WIDTH, _HEIGHT = 80, 24
_MOST = 4_096
_CTRL_C = "\x03"
_NO_KEY = b"\xff" if sys.platform == "darwin" else b"\0"
"""Disables a control character of the terminal."""
_BOLD, _DIM = "1", "2"
_ARROW = r"\x1b[\[O][ABCD]"
_ARROWS = re.compile(f"((?:{_ARROW})+)([\r\n]*)")


def open_terminal() -> int | None:
    """Open the terminal of standard error for reading; None if we are not in its foreground."""
    try:
        # Raises if it is not our controlling terminal. A background process must not read from it.
        if os.tcgetpgrp(sys.stderr.fileno()) == os.getpgrp():
            return os.open("/dev/tty", os.O_RDWR | os.O_CLOEXEC)
    except OSError:
        pass
    return None


class TerminalApprover:
    """Asks on standard error and reads the answer from a terminal, one request at a time."""

    def __init__(self, fd: int | None = None, *, for_others: bool = False) -> None:
        """`fd` is the terminal, by default standard input. For requests of other processes, the
        terminal rings, and Ctrl-C denies one instead of interrupting this process."""
        self._fd = fd
        self._one_at_a_time = asyncio.Lock()
        self._for_others = for_others

    async def ask(self, request: Question) -> Answer:
        """Ask, and return the answer: anything but a clear yes denies. May be cancelled."""
        async with self._one_at_a_time:
            with output_held_back():
                return await self._ask(request)

    async def _ask(self, request: Question) -> Answer:
        fd = sys.stdin.fileno() if self._fd is None else self._fd
        screen = _Screen(fd, interrupts=not self._for_others)
        if self._for_others:
            screen.say("\a", nl=False)
        title, *rows = questions.show_question(request, screen.width)
        screen.say(f"\n{title}", _BOLD)
        for row in rows:
            screen.say(row)
        choices = list(questions.choices_for(request))
        try:
            if screen.can_move_cursor:
                time = human_time(min(request.timeout_s, MAX_WAIT_S))
                chosen = await _ask_keys([title, *rows], choices, screen, time)
            else:
                chosen = await _ask_line(choices, screen)
            if chosen.answer is None:
                return await _ask_reason(screen)
        except asyncio.CancelledError:
            screen.say(f"  {questions.GONE}")
            raise
        screen.say(f"  {chosen.done}")
        return chosen.answer


class _Screen:
    def __init__(self, fd: int, *, interrupts: bool) -> None:
        self.fd = fd
        self.interrupts = interrupts
        term = os.environ.get("TERM") or "dumb"
        self.can_move_cursor = term not in ("dumb", "unknown")
        self._has_styles = self.can_move_cursor and not os.environ.get("NO_COLOR")

    @property
    def width(self) -> int:
        # 0 if the terminal does not know its width.
        return os.get_terminal_size(sys.stderr.fileno()).columns or _WIDTH

    @property
    def height(self) -> int:
        return os.get_terminal_size(sys.stderr.fileno()).lines or _HEIGHT

    def say(self, text: str, code: str = "", *, nl: bool = True) -> None:
        shown = style(text, code) if self._has_styles and code else text
        print(shown, end="\n" * nl, file=sys.stderr, flush=True)


async def _ask_line(choices: list[PromptChoice], screen: _Screen) -> PromptChoice:
    for number, each in enumerate(choices, 1):
        screen.say(f"  {number}) {each.key}: {each.words}")
    with _input(screen.fd, interrupts=screen.interrupts, lines=True):
        screen.say("Your answer (anything else means no): ", nl=False)
        line = (await _read_line(screen.fd)).strip().lower()
    screen.say("")
    if line.isdecimal() and 1 <= int(line) <= len(choices):
        return choices[int(line) - 1]
    meant = {"yes": "y", "session": "s", "always": "a", "no": "n"}.get(line, line)
    return questions.by_key(choices, meant) or choices[questions.deny_at(choices)]


async def _ask_keys(
    question: list[str], choices: list[PromptChoice], screen: _Screen, time: str
) -> PromptChoice:
    """Let the user choose by letter, or by arrow keys and Enter. Initially Enter denies."""
    at = questions.deny_at(choices)
    lasting = " (Enter confirms a lasting answer)" if any(each.lasts for each in choices) else ""
    hint = f"Press a letter{lasting}, or arrow keys and Enter. No answer within {time} means no."
    hints = list(wrap(hint, screen.width, "  "))
    for row in hints:
        screen.say(row, _DIM)
    above, height = [*question, *hints], screen.height - 1

    def draw() -> int:
        rows = questions.menu_rows(choices, at, above, screen.width, height)
        for text, is_chosen in rows:
            screen.say("\x1b[2K", nl=False)
            shown = truncate(f">{text[1:]}" if is_chosen else text, screen.width - 1)
            screen.say(shown, _BOLD if is_chosen else "")
        return len(rows)

    with _input(screen.fd, interrupts=screen.interrupts, lines=False):
        drawn = draw()
        try:
            while True:
                chosen, at = _press(await _read_key(screen.fd), choices, at)
                if chosen is not None:
                    return chosen
                screen.say(f"\x1b[{drawn}A", nl=False)
                drawn = draw()
        finally:
            screen.say(f"\x1b[{drawn}A\x1b[J", nl=False)


def _press(key: str, choices: list[PromptChoice], at: int) -> tuple[PromptChoice | None, int]:
    """The choice that a key makes, if any, and the index of the line selected afterwards."""
    if moves := _ARROWS.fullmatch(key):
        for arrow in re.findall(_ARROW, moves[1]):
            at = (at + {"A": -1, "B": 1}.get(arrow[-1], 0)) % len(choices)
        return (choices[at] if moves[2] else None), at
    # Many people press Enter after a letter.
    letter = key.rstrip("\r\n").lower()
    if not letter:
        return choices[at], at
    if letter in ("\x1b", _CTRL_C, "\x04", "q"):
        letter = "n"
    chosen = questions.by_key(choices, letter)
    if chosen is not None and chosen.lasts:
        return None, choices.index(chosen)
    return chosen, at


async def _ask_reason(screen: _Screen) -> Answer:
    with _input(screen.fd, interrupts=screen.interrupts, lines=True):
        screen.say("  Why not? ", nl=False)
        line = await _read_line(screen.fd)
    screen.say("  Denied." if line.endswith("\n") else "\n  Denied.")
    reason = "" if _CTRL_C in line else printable(line.strip(), "")[: questions.MAX_REASON]
    return Answer("deny", reason or questions.NO.reason, by=questions.BY)


@contextmanager
def _input(fd: int, *, interrupts: bool, lines: bool) -> Iterator[None]:
    """Read lines, or single keys without echo. No key sends a signal, except Ctrl-C if it
    `interrupts`: suspending or killing this process would leave the terminal in this mode.

    Discards what was typed before, and restores the terminal afterwards.
    """
    before = termios.tcgetattr(fd)
    now = termios.tcgetattr(fd)
    now[3] = now[3] | termios.ISIG if interrupts else now[3] & ~termios.ISIG
    now[6][termios.VQUIT] = now[6][termios.VSUSP] = _NO_KEY
    if lines:
        now[3] |= termios.ICANON | termios.ECHO
        now[6][termios.VEOL] = _CTRL_C.encode()
    else:
        now[3] &= ~(termios.ICANON | termios.ECHO)
        now[6][termios.VMIN], now[6][termios.VTIME] = 1, 0
    termios.tcsetattr(fd, termios.TCSAFLUSH, now)
    try:
        yield
    finally:
        # The terminal may be gone by now.
        with suppress(termios.error):
            termios.tcsetattr(fd, termios.TCSADRAIN, before)


async def _read_key(fd: int) -> str:
    """One key, with everything that arrived together with it; end of file counts as Ctrl-D."""
    got = more = await read_ready(fd, _MOST)
    while more:
        try:
            async with asyncio.timeout(LETTER_S if got.isalnum() else SETTLE_S):
                more = await read_ready(fd, _MOST)
        except TimeoutError:
            break
        # Read all of a paste, so that no rest of it counts as a key.
        got = (got + more)[:_MOST]
    return got.decode("utf-8", "replace") or "\x04"


async def _read_line(fd: int) -> str:
    return (await read_ready(fd, _MOST)).decode("utf-8", "replace")
