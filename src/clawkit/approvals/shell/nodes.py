"""What a shell command is made of, as far as it is understood.

Only what means the same whatever the machine looks like is in here. Quotes and escapes are gone,
braces are expanded; everything else of bash is a `Doubt`.
"""

from __future__ import annotations

from typing import Literal

import msgspec


class Doubt(Exception):  # noqa: N818  # it is no error to write a command that is not understood
    """Why a command, or a part of it, cannot be understood for certain."""

    def __init__(self, reason: str, at: int = 0, code: str = "syntax") -> None:
        """`at` is the character where it begins; `code` is a short name for programs, such as
        `substitution`."""
        super().__init__(reason)
        self.reason = reason
        self.at = at
        self.code = code


class Text(msgspec.Struct, frozen=True):
    """Characters that stand for themselves."""

    value: str


class Glob(msgspec.Struct, frozen=True):
    """An unquoted pattern character, or a whole bracket: `*`, `?`, `[a-z]`."""

    value: str


class Tilde(msgspec.Struct, frozen=True):
    """An unquoted `~` at the start of a word, alone or before a slash: the home directory."""


class Variable(msgspec.Struct, frozen=True):
    """`$name` or `${name}`. Only the variable of a `for` around it can be known."""

    name: str
    quoted: bool


Part = Text | Glob | Tilde | Variable


class Word(msgspec.Struct, frozen=True):
    """One word. Neighbouring texts are one part; a quoted nothing is one empty text."""

    parts: tuple[Part, ...]
    start: int
    end: int

    @property
    def literal(self) -> str | None:
        """Its characters; None when it has anything but text."""
        match self.parts:
            case (Text(value),):
                return value
        return None


class Assignment(msgspec.Struct, frozen=True):
    """`NAME=value` in front of a command, or alone. Never `+=`, never a subscript."""

    name: str
    value: Word


RedirectOperator = Literal["<", ">", ">>", ">|", "&>", "&>>", "<&", ">&", "<<", "<<<"]


class Redirect(msgspec.Struct, frozen=True):
    """One redirection."""

    operator: RedirectOperator
    fd: int | None
    """The number written before it; None for the usual one."""
    target: Word | None
    """The file, the number of the handle for `<&` and `>&` (digits or `-`), or the text of a
    here-string; None for a here-document."""
    body: str = ""
    """The text of a here-document, as the program will read it; its delimiter was quoted."""
    start: int = 0
    end: int = 0


class Simple(msgspec.Struct, frozen=True):
    """A command with its words. Without words it only assigns or opens files."""

    assignments: tuple[Assignment, ...]
    words: tuple[Word, ...]
    redirects: tuple[Redirect, ...]
    start: int
    end: int


class Subshell(msgspec.Struct, frozen=True):
    """`( … )`"""

    body: Script
    redirects: tuple[Redirect, ...]


class Group(msgspec.Struct, frozen=True):
    """`{ …; }`"""

    body: Script
    redirects: tuple[Redirect, ...]


class If(msgspec.Struct, frozen=True):
    """`if … then … elif … else … fi`"""

    branches: tuple[tuple[Script, Script], ...]
    """Conditions and what they lead to."""
    otherwise: Script | None
    redirects: tuple[Redirect, ...]


class For(msgspec.Struct, frozen=True):
    """`for NAME in WORDS; do … done`"""

    name: str
    words: tuple[Word, ...]
    body: Script
    redirects: tuple[Redirect, ...]
    start: int
    end: int


Command = Simple | Subshell | Group | If | For


class Pipeline(msgspec.Struct, frozen=True):
    """Commands whose output is the next one's input."""

    commands: tuple[Command, ...]
    errors: tuple[bool, ...]
    """For each `|` between them, whether it is `|&`."""
    negated: bool = False
    timed: Literal["", "time", "time -p"] = ""


class Chain(msgspec.Struct, frozen=True):
    """Pipelines with `&&` and `||` between them, which bash takes from left to right."""

    first: Pipeline
    rest: tuple[tuple[Literal["&&", "||"], Pipeline], ...]


class Script(msgspec.Struct, frozen=True):
    """Chains, one after the other. Never empty."""

    chains: tuple[Chain, ...]
