"""Questions on plain lines, which any terminal and any screen reader can show."""

from __future__ import annotations

import io
import os
import sys
import termios
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from typing import NamedTuple

import click

from clawkit.cli.config import print_diff
from clawkit.cli.options import is_terminal
from clawkit.config.change import Change
from clawkit.text import printable


class Option(NamedTuple):
    """One of several answers."""

    name: str
    words: str = ""


def counted(number: int, what: str) -> str:
    """`1 model`, `2 models`."""
    return f"{number} {what}" if number == 1 else f"{number} {what}s"


def can_ask() -> bool:
    """Whether there is somebody to ask."""
    return is_terminal(sys.stdin) and is_terminal(sys.stderr)


class Asker:
    """Asks on standard error, reads lines from standard input. Ctrl-C and Ctrl-D end it."""

    def __init__(self) -> None:
        if isinstance(sys.stdin, io.TextIOWrapper):
            sys.stdin.reconfigure(errors="replace")
        self.is_done = False
        """Whether what was asked for has been written."""
        self._is_plain = os.environ.get("TERM", "dumb") in ("dumb", "unknown")

    def say(self, text: str = "") -> None:
        click.echo(printable(text), err=True)

    def line(self, question: str, default: str = "") -> str:
        """What somebody types; Enter alone is the default."""
        hint = f" [{default}]" if default else ""
        while True:
            text = self._read(f"{question}{hint}: ") or default
            if text.isprintable():
                return text
            self.say("Please use letters, digits and signs only.")

    def secret(self, question: str) -> str:
        """The same, unseen."""
        with _unseen():
            text = self._read(f"{question}: ")
        self.say()
        return text

    def yes(self, question: str, default: bool = True) -> bool:
        while True:
            text = self._read(f"{question} [{'Y/n' if default else 'y/N'}]: ").lower()
            if text in ("", "y", "yes", "n", "no"):
                return default if not text else text[0] == "y"
            self.say("Please answer y or n.")

    def choose(self, question: str, options: Sequence[Option], default: int = 0) -> int:
        """The number of the answer, from 0, by its number or its name."""
        while True:
            found = self.choose_or_type(question, options, default)
            if isinstance(found, int):
                return found
            self.say(f"Please type a number from 1 to {len(options)}.")

    def choose_or_type(
        self, question: str, options: Sequence[Option], default: int = 0
    ) -> int | str:
        """The same, or what somebody typed that is none of the answers."""
        self.say()
        for number, each in enumerate(options, 1):
            self.say(f"  {number}) {each.name}" + (f": {each.words}" if each.words else ""))
        text = self.line(question, str(default + 1))
        if text.isdecimal() and len(text) < 5:
            number = int(text)
            return number - 1 if 0 < number <= len(options) else text
        names = [each.name.lower() for each in options]
        return names.index(text.lower()) if text.lower() in names else text

    def show(self, done: Change) -> None:
        """The changed lines."""
        self.say()
        if not self._is_plain:
            print_diff(done)
            return
        for line in done.diff:
            click.echo(line)

    def _read(self, question: str) -> str:
        click.echo(printable(question), nl=False, err=True)
        text = sys.stdin.readline()
        if not text:
            raise click.Abort
        return text.strip()


@contextmanager
def _unseen() -> Iterator[None]:
    """What is typed does not appear; the terminal is as before afterwards."""
    fd = sys.stdin.fileno()
    before = termios.tcgetattr(fd)
    now = termios.tcgetattr(fd)
    now[3] &= ~termios.ECHO
    termios.tcsetattr(fd, termios.TCSAFLUSH, now)
    try:
        yield
    finally:
        # It may be gone by now.
        with suppress(termios.error):
            termios.tcsetattr(fd, termios.TCSADRAIN, before)
