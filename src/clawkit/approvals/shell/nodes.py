"""What a shell command is made of, as far as it is understood.

Only what means the same whatever the machine looks like is in here. Quotes and escapes are gone,
braces are expanded; everything else of bash is a `Doubt`.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal


class Doubt(Exception):  # noqa: N818  # it is no error to write a command that is not understood
    """Why a command, or a part of it, cannot be understood for certain."""

    def __init__(self, reason: str, at: int = 0, code: str = "syntax") -> None:
        """`at` is the character where it begins; `code` is a short name for programs, such as
        `substitution`."""
        super().__init__(reason)
        self.reason = reason
        self.at = at
        self.code = code


@dataclass(frozen=True, slots=True)
class Text:
    """Characters that stand for themselves."""

    value: str


@dataclass(frozen=True, slots=True)
class Glob:
    """An unquoted pattern character, or a whole bracket: `*`, `?`, `[a-z]`."""

    value: str


@dataclass(frozen=True, slots=True)
class Tilde:
    """An unquoted `~` at the start of a word, alone or before a slash: the home directory."""


@dataclass(frozen=True, slots=True)
class Variable:
    """`$name` or `${name}`. Only the variable of a `for` around it can be known."""

    name: str
    quoted: bool


Part = Text | Glob | Tilde | Variable


@dataclass(frozen=True, slots=True)
class Word:
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


@dataclass(frozen=True, slots=True)
class Assignment:
    """`NAME=value` in front of a command, or alone. Never `+=`, never a subscript."""

    name: str
    value: Word


RedirectOperator = Literal["<", ">", ">>", ">|", "&>", "&>>", "<&", ">&", "<<", "<<<"]


@dataclass(frozen=True, slots=True)
class Redirect:
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


@dataclass(frozen=True, slots=True)
class Simple:
    """A command with its words. Without words it only assigns or opens files."""

    assignments: tuple[Assignment, ...]
    words: tuple[Word, ...]
    redirects: tuple[Redirect, ...]
    start: int
    end: int


@dataclass(frozen=True, slots=True)
class Subshell:
    """`( … )`"""

    body: Script
    redirects: tuple[Redirect, ...]


@dataclass(frozen=True, slots=True)
class Group:
    """`{ …; }`"""

    body: Script
    redirects: tuple[Redirect, ...]


@dataclass(frozen=True, slots=True)
class If:
    """`if … then … elif … else … fi`"""

    branches: tuple[tuple[Script, Script], ...]
    """Conditions and what they lead to."""
    otherwise: Script | None
    redirects: tuple[Redirect, ...]


@dataclass(frozen=True, slots=True)
class For:
    """`for NAME in WORDS; do … done`"""

    name: str
    words: tuple[Word, ...]
    body: Script
    redirects: tuple[Redirect, ...]
    start: int
    end: int


Command = Simple | Subshell | Group | If | For


@dataclass(frozen=True, slots=True)
class Pipeline:
    """Commands whose output is the next one's input."""

    commands: tuple[Command, ...]
    errors: tuple[bool, ...]
    """For each `|` between them, whether it is `|&`."""
    negated: bool = False
    timed: Literal["", "time", "time -p"] = ""


@dataclass(frozen=True, slots=True)
class Chain:
    """Pipelines with `&&` and `||` between them, which bash takes from left to right."""

    first: Pipeline
    rest: tuple[tuple[Literal["&&", "||"], Pipeline], ...]


@dataclass(frozen=True, slots=True)
class Script:
    """Chains, one after the other. Never empty."""

    chains: tuple[Chain, ...]
