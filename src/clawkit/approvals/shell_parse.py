"""Parses shell commands exactly as bash does, or not at all.

The accepted language is a subset of bash 5 as read by `bash --noprofile --norc -c`. Everything else
is a `Doubt`, including what bash would reject.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Literal, NoReturn, cast

from msgspec.structs import force_setattr

from clawkit.approvals.shell_words import (
    ENCODING,
    RESERVED,
    Assignment,
    BraceGroup,
    ChainOperator,
    Command,
    CommandChain,
    CommandList,
    For,
    If,
    LiteralText,
    Parts,
    Pipeline,
    Redirect,
    RedirectOperator,
    Simple,
    Word,
    WordReader,
    is_special,
)
from clawkit.approvals.types import Doubt

MAX_WORDS = 8_000
MAX_CHOSEN_WORDS = 1_000
MAX_HERE_DOCUMENTS = 16
"""Per line; bash fails with more."""

_PLAIN_WORD = r"([A-Za-z0-9_./,:@%+=^-]++(?=[ \t\n;&|<>()]|\Z)|)"
"""A word of literal characters, or nothing."""
# A comment that ends in a backslash is not skipped: not every shell ends it there.
_NEXT = re.compile(r"(?>(?:[ \t]++|\\\n)*)(?>(?:#[^\n]*+(?<!\\))?)" + _PLAIN_WORD)
_NEXT_LINE = re.compile(r"(?>(?:[ \t\n]++|\\\n|#[^\n]*+(?<!\\))*)" + _PLAIN_WORD)
# Both always match, because every part is optional.
_match_next = cast("Callable[[str, int], re.Match[str]]", _NEXT.match)
_match_line = cast("Callable[[str, int], re.Match[str]]", _NEXT_LINE.match)
_QUOTED = re.compile(r"""(?:'([^']*+)'|"([^"\\$`]*+)")(?=[ \t\n;&|<>()]|\Z)""")
_REDIRECT = re.compile(r"(?>(?:([0-9]++)(?=[<>]))?)(<<<|<<-?|<[&>(]?|>[>&|(]?|&>>?)")
_HANDLE = re.compile(r"[0-9-](?=[ \t\n;&|<>)]|\Z)")
_DELIMITER = re.compile(
    r"""(?:'([A-Za-z0-9_.!@%+=:,-]++)'|"([A-Za-z0-9_.@%+=:,-]++)"|\\([A-Za-z0-9_.@%+=:,-]++))"""
    r"(?=[ \t\n;&|<>)]|\Z)"
)
_GROWS = re.compile(r"(?>(?:\\\n)+)[&|;<>(-]")
_NON_ASCII_DIGIT = re.compile(r"[^\x00-\x7f][0-9]")
_NO_WORD = frozenset(("", *"\n;&|<>()"))
_TABS = re.compile(r"^\t++", re.MULTILINE)

MAX_BYTES = 64 * 1024
MAX_DEPTH = 50
MAX_COMMANDS = 500

_CONTROL = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f\ud800-\udfff]")
_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*+")
_ASSIGNS = re.compile(r"([A-Za-z_][A-Za-z0-9_]*+)(=|\+=|\[)")
_ALONE = re.compile(r"[!{}](?=[ \t\n;&|<>()]|\Z)")
_SEPARATORS = frozenset(("", *"\n;&|)"))
_DOUBTS = {
    "while": ("a while loop", "loop"),
    "until": ("an until loop", "loop"),
    "select": ("a select loop", "loop"),
    "case": ("a case command", "case"),
    "function": ("a function definition", "function"),
    "coproc": ("a coprocess", "coproc"),
    "time": ("time in the middle of a pipeline", "time"),
}
# Besides special variables, a loop must not use those that bash or what it starts interprets.
_NOT_FOR_LOOPS = re.compile(r"HOME|TZ|PS\d|(?:SHELL|TERM|MAIL|HOST|MACH|LINES|COLUMNS|LD_|COMP).*")


def parse(text: str) -> CommandList:
    """Parse a command. Raises `Doubt` for anything that is not understood with certainty."""
    if len(text) > MAX_BYTES or (
        not text.isascii() and len(text.encode("utf-8", "surrogatepass")) > MAX_BYTES
    ):
        raise Doubt("a command of more than 64 KiB", 0, "long")
    if control := _CONTROL.search(text):
        raise Doubt("a control character or a lone surrogate", control.start(), "control")
    if text.startswith(("-", "+")):
        raise Doubt("a command that starts like an option of bash", 0, "option")
    return _ShellParser(text).parse()


class _ShellParser:
    """A text and the current position. Each method stops at the token after what it reads."""

    __slots__ = (
        *("_ascii", "_chosen", "_commands", "_depth", "_lines", "_waiting", "_words"),
        *("at", "text"),
    )

    def __init__(self, text: str) -> None:
        self.text = text
        self.at = 0
        self._ascii = text.isascii()
        self._lines = ""
        self._words = self._chosen = self._commands = self._depth = 0
        self._waiting: list[tuple[Redirect, str, bool]] = []
        """Here-documents whose body follows this line: delimiter, and whether to strip tabs."""

    def fail(self, reason: str, code: str = "syntax", at: int | None = None) -> NoReturn:
        raise Doubt(reason, self.at if at is None else at, code)

    def char(self) -> str:
        """The current character; empty at the end."""
        return self.text[self.at : self.at + 1]

    def next(self) -> str:
        """Move to the next token. Returns it, without consuming it, if it is a plain word."""
        found = _match_next(self.text, self.at)
        self.at = found.start(1)
        return found[1]

    def pass_operator(self, size: int) -> None:
        self.at += size
        if _GROWS.match(self.text, self.at):
            self.fail("an operator that is continued on the next line")

    def pass_lines(self) -> str:
        """Like `next`, but skip line ends too."""
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
        return self._literal(plain, self.at + len(plain))

    def words(self, plain: str, *, first: bool = False) -> tuple[Word, ...]:
        """Consume a word, which may expand to several; the `first` one may name a command."""
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
                self.fail("too many words from braces", "long")
        if first and reader.wild and "=" in self.text[start : reader.end]:
            self.fail("a pattern in what looks like an assignment", "assignment")
        self.at = reader.at
        words = tuple(Word(parts, start, reader.end) for parts in chosen)
        if first and reader.joined:
            text = words[0].literal
            if text is None or text in RESERVED or "=" in text:
                self.fail("a command name over two lines", "syntax", start)
        return words

    def word(self, plain: str, role: str) -> Word:
        """Consume a word that must not contain globs or braces."""
        if plain:
            return self.plain_word(plain)
        reader, (parts, *_) = self._read_word()
        if reader.wild or reader.braces:
            code = "brace" if reader.braces else "glob"
            self.fail(f"a pattern or braces in {role}; quote it", code)
        start, self.at = self.at, reader.at
        return Word(parts, start, reader.end)

    def redirect(self) -> Redirect | None:
        found = _REDIRECT.match(self.text, self.at)
        if found is None:
            return None
        start, digits, operator = self.at, found[1], found[2]
        if operator[-1] == "(":
            self.fail("process substitution, <(…)", "process-substitution")
        if operator == "<>" or (digits and len(digits) > 1):
            self.fail("a redirection with <>, or of a file descriptor above 9", "redirect")
        fd = int(digits) if digits else None
        self.at = found.start(2)
        self.pass_operator(len(operator))
        plain = self.next()
        if operator in ("<<", "<<-"):
            tabs = operator == "<<-"
            found = _DELIMITER.match(self.text, self.at)
            if found is None:
                reason = "a here-document whose delimiter is not simply quoted, as in <<'EOF'"
                self.fail(reason, "heredoc", start)
            if len(self._waiting) == MAX_HERE_DOCUMENTS:
                self.fail("too many here-documents on one line", "heredoc", start)
            self.at = found.end()
            redirect = Redirect("<<", fd, None, "", start, self.at)
            self._waiting.append((redirect, found[found.lastindex or 0], tabs))
            return redirect
        if operator in ("<&", ">&"):
            handle = _HANDLE.match(self.text, self.at)
            if handle is None:
                self.fail("a file descriptor that is neither one digit nor -", "redirect")
            target = self._literal(handle[0], handle.end())
        else:
            target = self.word(plain, "a redirection")
            if plain.isdigit() and self.char() in ("<", ">"):
                self.fail("a number between two redirections", "redirect", target.start)
        return Redirect(cast("RedirectOperator", operator), fd, target, "", start, target.end)

    def finish(self) -> None:
        """Raise `Doubt` at the end of the text if a here-document is incomplete."""
        if self._waiting:
            redirect = self._waiting[0][0]
            self.fail("an unterminated here-document", "heredoc", redirect.start)

    def _literal(self, text: str, end: int) -> Word:
        start, self.at = self.at, end
        self._count()
        return Word((LiteralText(text),), start, end)

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
        if not self._ascii and (found := _NON_ASCII_DIGIT.search(self.text, self.at, end)):
            self.fail(*ENCODING, found.start())

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
            # Set late: the command that it belongs to may already be complete.
            force_setattr(redirect, "body", _TABS.sub("", body) if tabs else body)
            self.at = min(found + len(delimiter) + 1, len(self.text))
        self._waiting.clear()

    def parse(self) -> CommandList:
        self.pass_lines()
        if not self.char():
            self.fail("nothing to run", "empty", 0)
        script, _ = self._script("")
        self.finish()
        return script

    def _script(self, *ends: str) -> tuple[CommandList, str]:
        chains: list[CommandChain] = []
        plain = self.pass_lines()
        while (end := plain or self._sign()) not in ends:
            chains.append(self._chain(plain))
            plain = self.next()
            char = self.char()
            if char == ";":
                if self.text.startswith((";;", ";&"), self.at):
                    self.fail("the end of a case", "case")
                self.pass_operator(1)
                plain = self.pass_lines()
            elif char == "\n":
                plain = self.pass_lines()
            elif char == "&":
                self.fail("a background command, &", "background")
            elif (plain or self._sign()) not in ends:
                self.fail("unexpected text")
        if not chains:
            self.fail("a command is missing")
        self.at += len(end)
        return CommandList(tuple(chains)), end

    def _sign(self) -> str:
        char = self.char()
        if char in ("!", "{", "}"):
            return char if _ALONE.match(self.text, self.at) else "word"
        return char

    def _chain(self, plain: str) -> CommandChain:
        first = self._pipeline(plain)
        rest: list[tuple[ChainOperator, Pipeline]] = []
        while (operator := self.text[self.at : self.at + 2]) in ("&&", "||"):
            self.pass_operator(2)
            rest.append((cast("ChainOperator", operator), self._pipeline(self.pass_lines())))
        return CommandChain(first, tuple(rest))

    def _pipeline(self, plain: str) -> Pipeline:
        negated = False
        timed: Literal["", "time", "time -p"] = ""
        while True:
            if plain == "time" and not timed:
                timed = "time"
                self.at += 4
                plain = self.next()
                if plain == "-p":
                    timed = "time -p"
                    self.at += 2
                    plain = self.next()
            elif not plain and not negated and not timed and self._sign() == "!":
                if self.text.startswith("!(", self.at):
                    self.fail("a pattern !(…), or a subshell right after !", "glob")
                negated = True
                self.at += 1
                plain = self.next()
            else:
                break
        commands = [self._command(plain)]
        match commands[0]:
            case Simple(words=[Word(parts=[LiteralText(value), *_], start=at), *_]) if timed:
                if value.startswith("-"):
                    self.fail("an option of time", "time", at)
        errors: list[bool] = []
        while self.char() == "|" and not self.text.startswith("||", self.at):
            both = self.text.startswith("|&", self.at)
            self.pass_operator(1 + both)
            errors.append(both)
            commands.append(self._command(self.pass_lines()))
        return Pipeline(tuple(commands), tuple(errors), negated, timed)

    def _command(self, plain: str) -> Command:
        if plain:
            if plain not in RESERVED:
                return self._simple(plain)
            if plain == "if":
                branches: list[tuple[CommandList, CommandList]] = []
                end = "if"
                while end in ("if", "elif"):
                    condition, _ = self._nested(2 if end == "if" else 0, "then")
                    body, end = self._nested(0, "elif", "else", "fi")
                    branches.append((condition, body))
                otherwise = self._nested(0, "fi")[0] if end == "else" else None
                return If(tuple(branches), otherwise, self._tail())
            if plain == "for":
                return self._for()
            self.fail(*_DOUBTS.get(plain, (f"{plain} without a command before it", "syntax")))
        sign = self._sign()
        if sign == "(":
            if self.text.startswith("((", self.at):
                self.fail("arithmetic, ((…))", "arithmetic")
            return BraceGroup(self._nested(1, ")")[0], self._tail(), subshell=True)
        if sign == "{":
            return BraceGroup(self._nested(1, "}")[0], self._tail())
        if self.text.startswith(("[[", "]]"), self.at):
            self.fail("a condition, [[…]]", "condition")
        if sign in ("!", "}", ")") or (sign in _SEPARATORS and not self._opens_file()):
            self.fail("a command is missing")
        return self._simple("")

    def _opens_file(self) -> bool:
        return self.text.startswith("&>", self.at)

    def _nested(self, size: int, *ends: str) -> tuple[CommandList, str]:
        self._depth += 1
        if self._depth > MAX_DEPTH:
            self.fail("commands nested too deeply", "deep")
        self.pass_operator(size)
        result = self._script(*ends)
        self._depth -= 1
        return result

    def _tail(self) -> tuple[Redirect, ...]:
        redirects: list[Redirect] = []
        plain = self.next()
        while redirect := self.redirect():
            redirects.append(redirect)
            plain = self.next()
        if redirects and (plain or self.char() not in _SEPARATORS):
            self.fail("a word after the redirection of a compound command")
        return tuple(redirects)

    def _for(self) -> For:
        start = self.at
        self.at += 3
        name = self.next()
        if not name and self.text.startswith("((", self.at):
            self.fail("a for loop with arithmetic", "arithmetic", start)
        if not _NAME.fullmatch(name) or name in RESERVED:
            self.fail("a for loop without a plain name", "loop")
        if is_special(name) or _NOT_FOR_LOOPS.fullmatch(name):
            self.fail(f"a for loop over {name}, which is special to bash", "variable")
        self.at += len(name)
        if self.next() != "in":
            self.fail("a for loop without in", "loop")
        self.at += 2
        words: list[Word] = []
        while (plain := self.next()) or self.char() not in ("\n", ";"):
            words += self.words(plain)
        if self.char() == ";":
            self.pass_operator(1)
        if self.pass_lines() != "do":
            self.fail("a for loop without do", "loop")
        body, _ = self._nested(2, "done")
        end = self.at
        redirects = self._tail()
        end = redirects[-1].end if redirects else end
        return For(name, tuple(words), body, redirects, start, end)

    def _simple(self, plain: str) -> Simple:
        self._commands += 1
        if self._commands > MAX_COMMANDS:
            self.fail("too many commands", "long")
        start = self.at
        assignments: list[Assignment] = []
        words: list[Word] = []
        redirects: list[Redirect] = []
        while plain or self.char() not in _SEPARATORS or self._opens_file():
            if plain and words and not plain.isdigit():
                words.append(self.plain_word(plain))
            elif (not plain or plain.isdigit()) and (redirect := self.redirect()):
                redirects.append(redirect)
            elif not plain and self.char() == "(":
                if len(words) == 1:
                    self.fail("a function definition", "function", words[0].start)
                self.fail("a parenthesis after a word")
            elif words:
                words += self.words(plain)
            elif assignment := self._assignment(plain):
                if redirects:
                    at = assignment.value.start - len(assignment.name) - 1
                    self.fail("an assignment after a redirection", "assignment", at)
                assignments.append(assignment)
            else:
                if plain in RESERVED or (not plain and self._sign() in ("!", "{", "}")):
                    self.fail("a shell keyword where the name of a command should be")
                at = self.at
                words += self.words(plain, first=True)
                if self.text[at : self.at] == "]]":
                    self.fail("a shell keyword where the name of a command should be", at=at)
            plain = self.next()
        ends = (
            *(word.end for word in words[-1:]),
            *(redirect.end for redirect in redirects[-1:]),
            *(assignment.value.end for assignment in assignments[-1:]),
        )
        return Simple(tuple(assignments), tuple(words), tuple(redirects), start, max(ends))

    def _assignment(self, plain: str) -> Assignment | None:
        found = _ASSIGNS.match(self.text, self.at)
        if found is None:
            return None
        name, operator = found.groups()
        if operator != "=":
            self.fail("an assignment with +=, or to an array element", "assignment")
        if self.text.startswith("(", found.end()):
            self.fail("an array assignment", "assignment")
        word = self.word(plain, "an assignment")
        value = cast("LiteralText", word.parts[0]).value[len(name) + 1 :]
        parts = word.parts[1:]
        if value or not parts:
            parts = (LiteralText(value), *parts)
        return Assignment(name, Word(parts, word.start + len(name) + 1, word.end))
