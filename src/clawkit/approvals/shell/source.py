"""The text of a shell command while it is read: gaps, lines, words, redirections."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import NoReturn, cast

from msgspec.structs import force_setattr

from clawkit.approvals.shell.nodes import Doubt, Redirect, RedirectOperator, Text, Word
from clawkit.approvals.shell.quote import RESERVED
from clawkit.approvals.shell.words import ENCODING, Parts, WordReader

MAX_WORDS = 8_000
MAX_CHOSEN_WORDS = 1_000
"""Words out of braces, in the whole command."""
MAX_HERE_DOCUMENTS = 16
"""On one line: bash gives up with more."""

_PLAIN = r"([A-Za-z0-9_./,:@%+=^-]++(?=[ \t\n;&|<>()]|\Z)|)"
"""A word whose characters all stand for themselves, if there is one."""
# A comment that ends in a backslash is left standing: not every reader ends it there.
_NEXT = re.compile(r"(?:[ \t]++|\\\n)*+(?:#[^\n]*+(?<!\\))?+" + _PLAIN)
_NEXT_LINE = re.compile(r"(?:[ \t\n]++|\\\n|#[^\n]*+(?<!\\))*+" + _PLAIN)
# Both always match, as every part of them may be missing.
_match_next = cast("Callable[[str, int], re.Match[str]]", _NEXT.match)
_match_line = cast("Callable[[str, int], re.Match[str]]", _NEXT_LINE.match)
_QUOTED = re.compile(r"""(?:'([^']*+)'|"([^"\\$`]*+)")(?=[ \t\n;&|<>()]|\Z)""")
_REDIRECT = re.compile(r"(?:([0-9]++)(?=[<>]))?+(<<<|<<-?|<[&>(]?|>[>&|(]?|&>>?)")
_HANDLE = re.compile(r"[0-9-](?=[ \t\n;&|<>)]|\Z)")
_DELIMITER = re.compile(
    r"""(?:'([A-Za-z0-9_.!@%+=:,-]++)'|"([A-Za-z0-9_.@%+=:,-]++)"|\\([A-Za-z0-9_.@%+=:,-]++))"""
    r"(?=[ \t\n;&|<>)]|\Z)"
)
_GROWS = re.compile(r"(?:\\\n)++[&|;<>(-]")
_FOREIGN_DIGIT = re.compile(r"[^\x00-\x7f][0-9]")
_NO_WORD = frozenset(("", *"\n;&|<>()"))
_TABS = re.compile(r"^\t++", re.MULTILINE)


class Source:
    """A text and how far it was read."""

    __slots__ = ("_ascii", "_chosen", "_lines", "_waiting", "_words", "at", "text")

    def __init__(self, text: str) -> None:
        self.text = text
        self.at = 0
        self._ascii = text.isascii()
        self._lines = ""
        self._words = 0
        self._chosen = 0
        self._waiting: list[tuple[Redirect, str, bool]] = []
        """Here-documents whose text comes after this line: delimiter, and whether tabs go."""

    def fail(self, reason: str, code: str = "syntax", at: int | None = None) -> NoReturn:
        raise Doubt(reason, self.at if at is None else at, code)

    def char(self) -> str:
        """The character that is here; nothing at the end."""
        return self.text[self.at : self.at + 1]

    def next(self) -> str:
        """Go to the next token. Gives it when it is a plain word, but does not pass it."""
        found = _match_next(self.text, self.at)
        self.at = found.start(1)
        return found[1]

    def pass_operator(self, size: int) -> None:
        self.at += size
        if _GROWS.match(self.text, self.at):
            self.fail("an operator that is continued on the next line")

    def pass_lines(self) -> str:
        """Go to the next token that is no end of a line, and give it when it is a plain word."""
        while self._waiting:
            plain = self.next()
            if plain or self.char() != "\n":
                return plain
            self.at += 1
            self._read_here_documents()
        found = _match_line(self.text, self.at)
        self.at = found.start(1)
        return found[1]

    def plain_word(self, plain: str) -> Word:
        """Pass the plain word that is here."""
        return self._literal(plain, self.at + len(plain))

    def words(self, plain: str, *, first: bool = False) -> tuple[Word, ...]:
        """Pass the word that is here, which may become several. `first` is for what can be the
        name of a command."""
        if plain:
            return (self.plain_word(plain),)
        start = self.at
        if quoted := _QUOTED.match(self.text, start):
            self._check_encoding(quoted.end())
            return (self._literal(quoted[1] or quoted[2] or "", quoted.end()),)
        reader, chosen = self._read_word()
        if reader.braces == "choice":
            self._chosen += len(chosen)
            if self._chosen > MAX_CHOSEN_WORDS:
                self.fail("too many words out of braces", "long")
        if first and reader.wild and "=" in self.text[start : reader.end]:
            self.fail("a pattern in what looks like an assignment", "assignment")
        self.at = reader.at
        words = tuple(Word(parts, start, reader.end) for parts in chosen)
        if first and reader.joined:
            text = words[0].literal
            if text is None or text in RESERVED or "=" in text:
                self.fail("a name of a command over two lines", "syntax", start)
        return words

    def word(self, plain: str, role: str) -> Word:
        """Pass a word in which there may be neither patterns nor braces."""
        if plain:
            return self.plain_word(plain)
        reader, (parts, *_) = self._read_word()
        if reader.wild or reader.braces:
            code = "brace" if reader.braces else "glob"
            self.fail(f"a pattern or braces in {role}; quote it", code)
        start, self.at = self.at, reader.at
        return Word(parts, start, reader.end)

    def redirect(self) -> Redirect | None:
        """Pass the redirection that is here, if there is one."""
        found = _REDIRECT.match(self.text, self.at)
        if found is None:
            return None
        start, digits, operator = self.at, found[1], found[2]
        if operator[-1] == "(":
            code = "process-substitution"
            self.fail("the output or input of another command as a file, <(…)", code)
        if operator == "<>" or (digits and len(digits) > 1):
            self.fail("a redirection with <>, or of a handle above 9", "redirect")
        fd = int(digits) if digits else None
        self.at = found.start(2)
        self.pass_operator(len(operator))
        plain = self.next()
        if operator in ("<<", "<<-"):
            return self._here_document(fd, start, tabs=operator == "<<-")
        if operator in ("<&", ">&"):
            target = self._handle()
        else:
            target = self.word(plain, "a redirection")
            if plain.isdigit() and self.char() in ("<", ">"):
                self.fail("a number between two redirections", "redirect", target.start)
        return Redirect(cast("RedirectOperator", operator), fd, target, "", start, target.end)

    def finish(self) -> None:
        """Nothing comes any more."""
        if self._waiting:
            redirect = self._waiting[0][0]
            self.fail("a here-document that never ends", "heredoc", redirect.start)

    def _literal(self, text: str, end: int) -> Word:
        start, self.at = self.at, end
        self._count()
        return Word((Text(text),), start, end)

    def _count(self) -> None:
        self._words += 1
        if self._words > MAX_WORDS:
            self.fail("too many words", "long")

    def _read_word(self) -> tuple[WordReader, list[Parts]]:
        if self.char() in _NO_WORD:
            self.fail("a word is missing")
        if self.char() == "#":
            self.fail("a comment that ends in a backslash", "comment")
        self._count()
        reader = WordReader(self.text, self.at)
        chosen = reader.read()
        if (reader.braces or reader.joined) and self.text.startswith(("<", ">"), reader.at):
            self.fail("a word that could belong to the redirection after it", "redirect")
        self._check_encoding(reader.at)
        return reader, chosen

    def _check_encoding(self, end: int) -> None:
        if not self._ascii and (found := _FOREIGN_DIGIT.search(self.text, self.at, end)):
            self.fail(*ENCODING, found.start())

    def _handle(self) -> Word:
        found = _HANDLE.match(self.text, self.at)
        if found is None:
            self.fail("a handle that is neither one digit nor -", "redirect")
        return self._literal(found[0], found.end())

    def _here_document(self, fd: int | None, start: int, *, tabs: bool) -> Redirect:
        found = _DELIMITER.match(self.text, self.at)
        if found is None:
            reason = "a here-document whose delimiter is not plainly quoted, as in <<'EOF'"
            self.fail(reason, "heredoc", start)
        if len(self._waiting) == MAX_HERE_DOCUMENTS:
            self.fail("too many here-documents on one line", "heredoc", start)
        self.at = found.end()
        redirect = Redirect("<<", fd, None, "", start, self.at)
        self._waiting.append((redirect, found[found.lastindex or 0], tabs))
        return redirect

    def _read_here_documents(self) -> None:
        if "\n" in self.text[self._waiting[0][0].start : self.at - 1]:
            self.fail(
                "a here-document whose line is continued", "heredoc", self._waiting[0][0].start
            )
        lines = self._lines = self._lines or self.text + "\n"
        for redirect, delimiter, tabs in self._waiting:
            found = begin = self.at
            while True:
                found = lines.find(delimiter + "\n", found)
                if found < 0:
                    self.finish()
                begin = lines.rfind("\n", 0, found) + 1
                if begin == found or (tabs and not lines[begin:found].strip("\t")):
                    break
                found += 1
            body = lines[self.at : begin]
            # Only now it is known, and the command that it belongs to may be complete already.
            force_setattr(redirect, "body", _TABS.sub("", body) if tabs else body)
            self.at = min(found + len(delimiter) + 1, len(self.text))
        self._waiting.clear()
