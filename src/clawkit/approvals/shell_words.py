"""Nodes, quoting and words of a shell command, as far as they are understood.

Only syntax that does not depend on the state of the machine is accepted: quotes and escapes are
removed, braces expanded; anything else in bash is a `Doubt`.

Bash reads bytes and decodes them by the locale. Where a non-ASCII character precedes a special
one, an encoding other than UTF-8 could read both as a single character. Non-ASCII commands
therefore count as understood only if the locale is C or uses UTF-8.
"""

from __future__ import annotations

import itertools
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Literal, NoReturn, cast

import msgspec

from clawkit.approvals.options import words_of
from clawkit.approvals.types import Doubt


class LiteralText(msgspec.Struct, frozen=True):
    """Literal characters."""

    value: str


class Wildcard(msgspec.Struct, frozen=True):
    """An unquoted pattern character, or a whole bracket: `*`, `?`, `[a-z]`."""

    value: str


class Tilde(msgspec.Struct, frozen=True):
    """An unquoted `~` at the start of a word, alone or before a slash."""


class Variable(msgspec.Struct, frozen=True):
    """`$name` or `${name}`. Only variables of enclosing `for` loops have a known value."""

    name: str
    quoted: bool


Part = LiteralText | Wildcard | Tilde | Variable


class Word(msgspec.Struct, frozen=True):
    """One word. Adjacent texts are a single part; an empty quoted string is one empty text."""

    parts: tuple[Part, ...]
    start: int
    end: int

    @property
    def literal(self) -> str | None:
        """Its text; None if it has any other part."""
        match self.parts:
            case (LiteralText(value),):
                return value
        return None


class Assignment(msgspec.Struct, frozen=True):
    """`NAME=value` before a command, or alone. Never `+=`, never a subscript."""

    name: str
    value: Word


RedirectOperator = Literal["<", ">", ">>", ">|", "&>", "&>>", "<&", ">&", "<<", "<<<"]


class Redirect(msgspec.Struct, frozen=True):
    operator: RedirectOperator
    fd: int | None
    """The file descriptor written before the operator; None for the default."""
    target: Word | None
    """The file; for `<&` and `>&` the descriptor (a digit or `-`); for a here-string its text;
    None for a here-document."""
    body: str = ""
    """Content of a here-document, as the program reads it; its delimiter was quoted."""
    start: int = 0
    end: int = 0


class Simple(msgspec.Struct, frozen=True):
    """A simple command. Without words it only assigns variables or opens files."""

    assignments: tuple[Assignment, ...]
    words: tuple[Word, ...]
    redirects: tuple[Redirect, ...]
    start: int
    end: int


class BraceGroup(msgspec.Struct, frozen=True):
    """`{ …; }`, or `( … )` in a subshell."""

    body: CommandList
    redirects: tuple[Redirect, ...]
    subshell: bool = False


class If(msgspec.Struct, frozen=True):
    """`if … then … elif … else … fi`"""

    branches: tuple[tuple[CommandList, CommandList], ...]
    otherwise: CommandList | None
    redirects: tuple[Redirect, ...]


class For(msgspec.Struct, frozen=True):
    """`for NAME in WORDS; do … done`"""

    name: str
    words: tuple[Word, ...]
    body: CommandList
    redirects: tuple[Redirect, ...]
    start: int
    end: int


Command = Simple | BraceGroup | If | For


class Pipeline(msgspec.Struct, frozen=True):
    """Commands connected by pipes."""

    commands: tuple[Command, ...]
    errors: tuple[bool, ...]
    """For each `|`, whether it is `|&`."""
    negated: bool = False
    timed: Literal["", "time", "time -p"] = ""


ChainOperator = Literal["&&", "||"]


class CommandChain(msgspec.Struct, frozen=True):
    """Pipelines joined by `&&` and `||`, which are left-associative."""

    first: Pipeline
    rest: tuple[tuple[ChainOperator, Pipeline], ...]


class CommandList(msgspec.Struct, frozen=True):
    """A sequence of chains. Never empty."""

    chains: tuple[CommandChain, ...]


RESERVED = words_of(
    """! [[ ]] { } case coproc do done elif else esac fi for function if in select then time until
    while"""
)
"""Words that bash does not run as commands."""

_SPECIAL = words_of(
    """_ IFS PATH PWD OLDPWD SHLVL UID EUID PPID RANDOM SRANDOM SECONDS LINENO FUNCNAME FUNCNEST
    GROUPS DIRSTACK HOSTNAME HOSTTYPE HOSTFILE OSTYPE MACHTYPE OPTARG OPTIND OPTERR REPLY COPROC
    MAPFILE PIPESTATUS PROMPT_COMMAND PROMPT_DIRTRIM PS0 PS1 PS2 PS3 PS4 TIMEFORMAT TMOUT TMPDIR
    POSIXLY_CORRECT GLOBIGNORE GLOBSORT EXECIGNORE FIGNORE CDPATH CHILD_MAX IGNOREEOF INPUTRC
    FCEDIT EMACS INSIDE_EMACS MAIL MAILCHECK MAILPATH AUTO_RESUME HISTCHARS ENV COMPREPLY"""
)
_SPECIAL_STARTS = ("BASH", "COMP_", "EPOCH", "HIST", "LANG", "LC_", "READLINE_")
# Without `=`, which could turn a word into an assignment, and without anything that depends on the
# encoding that bash assumes.
_PLAIN = re.compile(r"[A-Za-z0-9_./,:@%+-]+")

# In GB18030, a digit after part of a multibyte character can make bash swallow the next quote.
_BEFORE_DIGIT = re.compile(r"(?<=[^\x00-\x7f])(?=[0-9])")


def is_special(name: str) -> bool:
    """Whether a variable is special to bash."""
    return name in _SPECIAL or name.startswith(_SPECIAL_STARTS)


def quote(value: str) -> str:
    """Quote a text as one shell word, valid in any position. Raises ValueError for NUL."""
    if "\0" in value:
        raise ValueError("a shell word cannot contain a NUL character")
    if _PLAIN.fullmatch(value) and value not in RESERVED:
        return value
    quoted = "'" + value.replace("'", r"'\''") + "'"
    return quoted if value.isascii() else _BEFORE_DIGIT.sub("''", quoted)


MAX_PIECES = 8_000
MAX_CHOICES = 64
MAX_CHOSEN = 16_384

_RUN = re.compile(r"[A-Za-z0-9_./,:@%+=^!#\]-]++|([^\x00-\x7f]++)")
_AFTER_NON_ASCII = frozenset(";<>?[\\`{|}")
_NON_ASCII_NAME = re.compile(r"(?:[A-Za-z_]|[^\x00-\x7f])(?>(?:\w|[^\x00-\x7f])*)(?:\+?=|\[)")
_ASSIGNS = re.compile(r"[A-Za-z_][A-Za-z0-9_]*+(?>(?:\[[^\]]*+\])?)\+?=")
_NAMED = re.compile(r"\$(?:([A-Za-z_][A-Za-z0-9_]*+)|\{([A-Za-z_][A-Za-z0-9_]*+)\})")
_BRACKET = re.compile(r"\[[!^]?+[A-Za-z0-9_.,@%+-]++\]")
_BRACES = re.compile(r"\{([A-Za-z0-9_./@%+:^~*?,-]*+)\}")
_LITERAL_BRACES = re.compile(r"[A-Za-z0-9_@^~-]*+")
_PATTERN = re.compile(r"([*?])")
_JOIN = re.compile(r"(?>(?:\\\n)+)(?=[A-Za-z0-9_./,:@%+'\" \t\n;&|)-]|\Z)")
_DOUBLE = re.compile(r"[^\"\\$`]++")
_WHOLE_DOUBLE = re.compile(r"\"([^\"\\$`]*+)\"")
_ANSI = re.compile(r"[^'\\]++")
_ANSI_ESCAPES = {"n": "\n", "t": "\t", "\\": "\\", "'": "'", '"': '"'}
_BREAKS = frozenset(" \t\n;&|<>()")
_ENDS = frozenset((*_BREAKS, ""))
_LONE_DOLLAR = frozenset((*" \t\n;&|)", ""))
_LONE_DOLLAR_QUOTED = frozenset((*' \t\n"|)/.,:;%=+]', ""))
_ESCAPED_IN_DOUBLE = frozenset('\\"$`\n')
ENCODING = ("a non-ASCII character that locales may read differently here; quote it", "locale")

_Item = str | Wildcard | Tilde | Variable
_Choices = tuple[tuple[_Item, ...], ...]
Parts = tuple[Part, ...]


class WordReader:
    """Reads one word, from its first character up to the one that ends it."""

    __slots__ = ("_items", "_non_ascii", "at", "braces", "end", "joined", "start", "text", "wild")

    def __init__(self, text: str, start: int) -> None:
        self.text = text
        self.start = start
        self.at = start
        self.end = start
        """End of the word; `at` may be further on, after continued lines."""
        self.wild = False
        """Whether it contains a glob or a brace list."""
        self.braces: Literal["", "literal", "choice"] = ""
        self.joined = False
        self._items: list[_Item | _Choices] = []
        self._non_ascii = False

    def read(self) -> list[Parts]:
        """The resulting words: one, or one per choice of its braces."""
        text, size = self.text, len(self.text)
        while self.at < size and (char := text[self.at]) not in _BREAKS:
            _READ.get(char, WordReader._run)(self)
            self._check_size()
        self.end = self.at
        while self.joined and text.startswith("\\\n", self.end - 2):
            self.end -= 2
        if self._non_ascii:
            name = _NON_ASCII_NAME.match(text, self.start)
            if name and not name[0].isascii():
                self._fail(*ENCODING)
        if self.wild and _ASSIGNS.match(text, self.start):
            self._fail("a pattern or braces in what looks like an assignment", "assignment")
        if self.joined and (self.wild or self.braces):
            self._fail("a pattern or braces in a word over two lines", "syntax")
        if self.braces and any(isinstance(item, Variable) for item in self._items):
            self._fail("braces and a variable in one word", "brace")
        if self.braces != "choice":
            return [_join(cast("list[_Item]", self._items))]
        places = [item if isinstance(item, tuple) else ((item,),) for item in self._items]
        count = 1
        for place in places:
            count *= len(place)
            if count > MAX_CHOICES or count * (self.at - self.start) > MAX_CHOSEN:
                self._fail("braces that expand to too many words", "brace")
        chosen = [
            _join(tuple(itertools.chain.from_iterable(choice)))
            for choice in itertools.product(*places)
        ]
        if () in chosen:
            self._fail("braces that expand to an empty word", "brace")
        return chosen

    def _fail(self, reason: str, code: str, at: int | None = None) -> NoReturn:
        raise Doubt(reason, self.start if at is None else at, code)

    def _check_size(self) -> None:
        if len(self._items) > MAX_PIECES:
            self._fail("a word with too many parts", "long")

    def _run(self) -> None:
        found = _RUN.match(self.text, self.at)
        if found is None:
            self._fail("a control character", "control", self.at)
        if found[1]:
            self._non_ascii = True
            if self.text[found.end() : found.end() + 1] in _AFTER_NON_ASCII:
                self._fail(*ENCODING, found.end() - 1)
        self._items.append(found[0])
        self.at = found.end()

    def _single(self) -> None:
        end = self.text.find("'", self.at + 1)
        if end < 0:
            self._fail("an unterminated single quote", "quote", self.at)
        self._items.append(self.text[self.at + 1 : end])
        self.at = end + 1

    def _double(self) -> None:
        text, items, at = self.text, self._items, self.at + 1
        if whole := _WHOLE_DOUBLE.match(text, self.at):
            items.append(whole[1])
            self.at = whole.end()
            return
        count = len(items)
        while (char := text[at : at + 1]) != '"':
            if char == "\\":
                at = self._escape_in_double(at)
            elif char == "$":
                at = self._variable(at, quoted=True)
            elif found := _DOUBLE.match(text, at):
                items.append(found[0])
                at = found.end()
            elif char:
                self._backtick(at)
            else:
                self._fail("an unterminated double quote", "quote", self.at)
            self._check_size()
        if len(items) == count:
            items.append("")
        self.at = at + 1

    def _escape_in_double(self, at: int) -> int:
        after = self.text[at + 1 : at + 2]
        if after not in _ESCAPED_IN_DOUBLE:
            self._items.append("\\")
            return at + 1
        if self.text[at - 1] > "\x7f":
            self._fail(*ENCODING, at - 1)
        if after != "\n":
            self._items.append(after)
        return at + 2

    def _ansi(self) -> None:
        text, at, pieces = self.text, self.at + 2, [""]
        while (char := text[at : at + 1]) != "'":
            if found := _ANSI.match(text, at):
                pieces.append(found[0])
                at = found.end()
            elif not char:
                self._fail("an unterminated $' quote", "quote", self.at)
            elif text[at - 1] > "\x7f":
                self._fail(*ENCODING, at - 1)
            elif (meant := _ANSI_ESCAPES.get(text[at + 1 : at + 2])) is None:
                self._fail("an escape in $'…' other than \\n \\t \\\\ \\' \\\"", "escape", at)
            else:
                pieces.append(meant)
                at += 2
        self._items.append("".join(pieces))
        self.at = at + 1

    def _backslash(self) -> None:
        after = self.text[self.at + 1 : self.at + 2]
        if after == "\n":
            join = _JOIN.match(self.text, self.at)
            if join is None:
                self._fail("an ambiguous line continuation in a word", "syntax", self.at)
            self.joined = True
            self.at = join.end()
            return
        if not after:
            self._fail("a trailing backslash", "escape", self.at)
        if after > "\x7f":
            self._fail(*ENCODING, self.at)
        self._items.append(after)
        self.at += 2

    def _dollar(self) -> None:
        after = self.text[self.at + 1 : self.at + 2]
        if after == "'":
            self._ansi()
        elif after == '"':
            self._fail('a localized string, $"…"', "translation", self.at)
        else:
            self.at = self._variable(self.at, quoted=False)

    def _variable(self, at: int, *, quoted: bool) -> int:
        text = self.text
        after = text[at + 1 : at + 2]
        if named := _NAMED.match(text, at):
            end = named.end()
            if named[1] and (text[end : end + 1] > "\x7f" or text.startswith("\\\n", end)):
                self._fail("a variable whose name ends ambiguously", "parameter", at)
            name = named[1] or named[2]
            if name == "_":
                self._fail("$_, which bash itself sets", "parameter", at)
            self._items.append(Variable(name, quoted))
            return end
        if after in (_LONE_DOLLAR_QUOTED if quoted else _LONE_DOLLAR):
            self._items.append("$")
            return at + 1
        if text.startswith("((", at + 1) or after == "[":
            self._fail("arithmetic, $((…))", "arithmetic", at)
        if after == "(":
            self._fail("command substitution, $(…)", "substitution", at)
        raise Doubt("a parameter that is not a plain variable", at, "parameter")

    def _backtick(self, at: int | None = None) -> None:
        self._fail("command substitution, `…`", "substitution", at or self.at)

    def _wildcard(self) -> None:
        self.wild = True
        self._items.append(Wildcard(self.text[self.at]))
        self.at += 1

    def _bracket(self) -> None:
        if self.at == self.start and self.text[self.at + 1 : self.at + 2] in _ENDS:
            self._items.append("[")
            self.at += 1
            return
        found = _BRACKET.match(self.text, self.at)
        if found is None:
            self._fail("a bracket that is not a plain set of characters; quote it", "glob", self.at)
        self.wild = True
        self._items.append(Wildcard(found[0]))
        self.at = found.end()

    def _tilde(self) -> None:
        after = self.text[self.at + 1 : self.at + 2]
        if self.at == self.start:
            if after != "/" and after not in _ENDS:
                self._fail("a tilde other than ~ or ~/", "tilde", self.at)
            self._items.append(Tilde())
        else:
            # After a brace list it starts a word if the choice is empty.
            if self.text[self.at - 1] in "=:" or self.braces == "choice":
                self._fail("a tilde after =, : or braces", "tilde", self.at)
            self._items.append("~")
        self.at += 1

    def _brace(self) -> None:
        found = _BRACES.match(self.text, self.at)
        inside = found[1] if found else ".."
        kind: Literal["literal", "choice"] = "choice" if "," in inside else "literal"
        if (
            found is None
            or (kind == "choice" and (".." in inside or "~" in inside))
            or (kind == "literal" and not _LITERAL_BRACES.fullmatch(inside))
            or self.braces not in ("", kind)
        ):
            self._fail(
                "braces that are not a plain list such as {a,b}; quote them", "brace", self.at
            )
        self.braces = kind
        if kind == "literal":
            self._items.append(found[0])
        else:
            self.wild = True
            self._items.append(tuple(map(_split_patterns, inside.split(","))))
        self.at = found.end()

    def _closing_brace(self) -> None:
        self._fail("a closing brace without an opening one; quote it", "brace", self.at)


def _split_patterns(text: str) -> tuple[_Item, ...]:
    return tuple(Wildcard(each) if each in "*?" else each for each in _PATTERN.split(text) if each)


def _join(items: Sequence[_Item]) -> Parts:
    parts: list[Part] = []
    for is_text, run in itertools.groupby(items, lambda item: isinstance(item, str)):
        if is_text:
            parts.append(LiteralText("".join(cast("Iterator[str]", run))))
        else:
            parts += cast("Iterator[Part]", run)
    return tuple(parts)


_READ: Mapping[str, Callable[[WordReader], None]] = {
    "'": WordReader._single,
    '"': WordReader._double,
    "\\": WordReader._backslash,
    "$": WordReader._dollar,
    "`": WordReader._backtick,
    "*": WordReader._wildcard,
    "?": WordReader._wildcard,
    "[": WordReader._bracket,
    "~": WordReader._tilde,
    "{": WordReader._brace,
    "}": WordReader._closing_brace,
}
