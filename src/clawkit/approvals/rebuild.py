"""The command again, from what was understood of it: words, redirections, lines."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import NamedTuple, assert_never

from clawkit.approvals.base import FileUse, Input
from clawkit.approvals.programs import Finder
from clawkit.approvals.shell.nodes import Doubt, Glob, Redirect, Text, Tilde, Variable, Word
from clawkit.approvals.shell.quote import quote
from clawkit.text import one_line

MAX_CHARS = 256 * 1024
"""Of a rebuilt command: a loop that is written out can be much longer than it was."""

_PATTERN = re.compile(r"[*?]|\[[!^]?(?:[\w.,:=@%+-]|\[:[a-z]{1,10}:\])+\]")
# What the shell would take apart, or take for a pattern, where a variable stands without quotes.
_NOT_ONE_WORD = re.compile(r"[ \t\n*?\[\\]")

_HALVES = re.compile("[\ud800-\udfff]")


class Value(NamedTuple):
    """A word once its variables and the home directory are known."""

    text: str
    shown: str
    """For the shell: nothing in it is active but patterns."""
    glob: bool = False


class Meaning(NamedTuple):
    """What words may refer to."""

    variables: Mapping[str, str]
    """Those of the loops around."""
    home: str
    """The home directory; empty when it is not known."""


def evaluate(word: Word, meaning: Meaning, code: str = "parameter") -> Value:
    """What a word stands for. Raises `Doubt`, with that code for a variable that is not known."""
    literal = word.literal
    if literal is not None:
        return Value(literal, quote(literal))
    texts: list[str] = []
    shown: list[str] = []
    for part in word.parts:
        match part:
            case Text(value):
                pass
            case Tilde():
                value = _home(meaning, word)
            case Variable():
                value = _variable(part, meaning, word, code)
            case Glob(value):
                if not _PATTERN.fullmatch(value):
                    raise Doubt("a pattern with unusual characters", word.start, "glob")
            case _:
                assert_never(part)
        texts.append(value)
        shown.append(value if isinstance(part, Glob) else quote(value))
    text = "".join(texts)
    glob = any(isinstance(part, Glob) for part in word.parts)
    return Value(text, "".join(shown) if glob else quote(text), glob)


def _home(meaning: Meaning, word: Word) -> str:
    if not meaning.home:
        raise Doubt("the home directory that ~ means is not known", word.start, "tilde")
    return meaning.home


def _variable(part: Variable, meaning: Meaning, word: Word, code: str) -> str:
    value = meaning.variables.get(part.name)
    if value is None:
        name = one_line(part.name, 40)
        raise Doubt(f"the value of ${name} is not known beforehand", word.start, code)
    if not part.quoted and (not value or _NOT_ONE_WORD.search(value)):
        name = one_line(part.name, 40)
        raise Doubt(
            f'${name} could become several words; write "${name}" instead', word.start, "parameter"
        )
    return value


def quote_always(text: str) -> str:
    """Quoted even if it needs no quotes, so that it is no reserved word, option or assignment."""
    shown = quote(text)
    return f"'{text}'" if shown == text else shown


class Opened(NamedTuple):
    """What one redirection does."""

    shown: str
    file: FileUse | None = None
    input: Input | None = None
    """What the standard input is from then on; None if it stays what it was."""
    body: str = ""
    """The text of a here-document, with its end."""

    @property
    def may_fail(self) -> bool:
        """Whether the shell could be unable to do it, and leave out the command."""
        return self.file is not None or self.input == "text"


class Rebuilt:
    """Collects the text of a command."""

    def __init__(self) -> None:
        self._parts: list[str] = []
        self._bodies: list[str] = []
        self._size = 0

    def put(self, text: str) -> None:
        if self._bodies and "\n" in text:
            # Not every shell waits for the end of a quoted text before it reads the document.
            raise Doubt("a here-document and a text of several lines on one line", 0, "heredoc")
        self._add(text)

    def end_line(self) -> None:
        """A new line, and on it the texts of the here-documents that began on the last one."""
        self._add("\n")
        for body in self._bodies:
            self._add(body)
        self._bodies.clear()

    def put_redirects(self, redirects: Iterable[Opened]) -> None:
        """Redirections after a command."""
        for each in redirects:
            self.put(f" {each.shown}")
            if each.body:
                self._bodies.append(each.body)

    def _add(self, text: str) -> None:
        self._size += len(text)
        if self._size > MAX_CHARS:
            raise Doubt("the command is too long with its loops written out", 0, "long")
        self._parts.append(text)

    def finish(self) -> str:
        """All of it."""
        if self._bodies:
            self.end_line()
        text = "".join(self._parts)
        if not text.isascii() and _HALVES.search(text):
            raise Doubt("a directory has a name that is not UTF-8", 0, "path")
        return text


def redirect(node: Redirect, meaning: Meaning, cwd: str | None, finder: Finder) -> Opened:
    """The effect of a redirection. Raises `Doubt` for all that is not plain."""
    if node.fd not in (None, 0, 1, 2):
        raise Doubt(f"the handle {node.fd} is not followed", node.start, "redirect")
    number = "" if node.fd is None else str(node.fd)
    if node.target is None:
        if node.fd not in (None, 0) or (node.body and not node.body.endswith("\n")):
            raise Doubt("this here-document is not understood", node.start, "redirect")
        return _here_document(node.body)
    value = evaluate(node.target, meaning)
    if value.glob:
        raise Doubt("a pattern decides where this leads", node.start, "redirect")
    match node.operator:
        case "<<<":
            if node.fd not in (None, 0):
                raise Doubt("this here-string is not understood", node.start, "redirect")
            return Opened(f"<<< {value.shown}", input="text")
        case "<&" | ">&":
            # Another handle as the standard input could be anything.
            to_input = node.fd == 0 or (node.fd is None and node.operator == "<&")
            if value.text not in ("0", "1", "2") or (to_input and value.text != "0"):
                raise Doubt("only 0, 1 and 2 may be joined", node.start, "redirect")
            return Opened(f"{number}{node.operator}{value.text}")
        case "&>" | "&>>" if node.fd is not None:
            raise Doubt(f"{number}{node.operator} is not understood", node.start, "redirect")
    return _open(node, f"{number}{node.operator}", value.text, finder, cwd)


def _here_document(body: str) -> Opened:
    lines = frozenset(body.split("\n"))
    number = 0
    while f"EOF{number}" in lines:
        number += 1
    return Opened(f"<<'EOF{number}'", input="text", body=f"{body}EOF{number}\n")


def _open(node: Redirect, operator: str, path: str, finder: Finder, cwd: str | None) -> Opened:
    if not path or path.endswith(("/", "/.")):
        raise Doubt("this redirection names no file", node.start, "redirect")
    place = finder.place(path, cwd, node.start)
    to_input = node.fd == 0 or (node.fd is None and node.operator == "<")
    shown = f"{operator}{quote(place)}"
    if place == "/dev/null":
        return Opened(shown, input="empty" if to_input else None)
    if place.startswith(("/dev/", "/proc/")) or place in ("/dev", "/proc"):
        raise Doubt(
            f"{one_line(place, 40)!r} is no ordinary file; /dev/null and 2>&1 are understood",
            node.start,
            "redirect",
        )
    file = FileUse(place, node.operator != "<", node.start)
    return Opened(shown, file, "file" if to_input else None)
