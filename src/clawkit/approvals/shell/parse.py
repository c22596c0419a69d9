"""Reads a shell command exactly as bash does, or not at all.

What is accepted is a closed part of bash 5, as `bash --noprofile --norc -c` reads it. Everything
else is a `Doubt`, also where bash would only complain.
"""

from __future__ import annotations

import re
from typing import Literal, cast

from clawkit.approvals.shell.nodes import (
    Assignment,
    Chain,
    Command,
    Doubt,
    For,
    Group,
    If,
    Pipeline,
    Redirect,
    Script,
    Simple,
    Subshell,
    Text,
    Word,
)
from clawkit.approvals.shell.quote import RESERVED
from clawkit.approvals.shell.source import Source

MAX_BYTES = 64 * 1024
MAX_DEPTH = 50
MAX_COMMANDS = 500

_CONTROL = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f\ud800-\udfff]")
_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*+")
_ASSIGNS = re.compile(r"([A-Za-z_][A-Za-z0-9_]*+)(=|\+=|\[)")
_ALONE = re.compile(r"[!{}](?=[ \t\n;&|<>()]|\Z)")
_SEPARATORS = frozenset(("", *"\n;&|)"))
_END = frozenset(("",))
_PAREN = frozenset((")",))
_BRACE = frozenset(("}",))
_THEN = frozenset(("then",))
_BRANCH = frozenset(("elif", "else", "fi"))
_FI = frozenset(("fi",))
_DONE = frozenset(("done",))
_DOUBTS = {
    "while": ("a while loop", "loop"),
    "until": ("an until loop", "loop"),
    "select": ("a select loop", "loop"),
    "case": ("a case command", "case"),
    "function": ("a definition of a function", "function"),
    "coproc": ("a coprocess", "coproc"),
    "time": ("time in the middle of a pipeline", "time"),
}
# Bash gives these a meaning, or a value of its own, whatever a loop sets them to.
_SPECIAL_NAME = re.compile(
    r"_|IFS|PATH|PWD|OLDPWD|HOME|CDPATH|ENV|S?RANDOM|SECONDS|LINENO|DIRSTACK|GROUPS|FUNCNAME|FUNCNEST"
    r"|PIPESTATUS|E?UID|PPID|OPT(?:IND|ARG|ERR)|REPLY|MAPFILE|COPROC|PS\d|PROMPT_COMMAND|FCEDIT"
    r"|IGNOREEOF|INPUTRC|TZ|LANG|(?:GLOB|EXEC|F)IGNORE|POSIXLY_CORRECT|TMPDIR|TMOUT|TIMEFORMAT"
    r"|(?:SHELL|SHLVL|TERM|MAIL|HOST|MACH|OSTYPE|LINES|COLUMNS|BASH|LC_|LD_|EPOCH|COMP|HIST|READLINE)"
    r"[A-Z0-9_]*"
)


def parse(text: str) -> Script:
    """What a command is made of. Raises `Doubt` for whatever is not understood for certain."""
    if len(text) > MAX_BYTES or (
        not text.isascii() and len(text.encode("utf-8", "surrogatepass")) > MAX_BYTES
    ):
        raise Doubt("a command of more than 64 KiB", 0, "long")
    if control := _CONTROL.search(text):
        raise Doubt("a control character, or half of one", control.start(), "control")
    if text.startswith(("-", "+")):
        raise Doubt("a command that begins like an option of bash", 0, "option")
    return _Parser(text).parse()


class _Parser(Source):
    """One method for each kind of command. Each leaves the source at the token after it."""

    __slots__ = ("_commands", "_depth")

    def __init__(self, text: str) -> None:
        super().__init__(text)
        self._commands = 0
        self._depth = 0

    def parse(self) -> Script:
        self.pass_lines()
        if not self.char():
            self.fail("nothing to run", "empty", 0)
        script, _ = self._script(_END)
        self.finish()
        return script

    def _script(self, ends: frozenset[str]) -> tuple[Script, str]:
        """Commands up to one of the words or characters that end them, which is passed."""
        chains: list[Chain] = []
        plain = self.pass_lines()
        while (end := plain or self._sign()) not in ends:
            chains.append(self._chain(plain))
            plain = self.next()
            char = self.char()
            if char == ";":
                if self.text.startswith((";;", ";&"), self.at):
                    self.fail("an end of a case", "case")
                self.pass_operator(1)
                plain = self.pass_lines()
            elif char == "\n":
                plain = self.pass_lines()
            elif char == "&":
                self.fail("a command in the background, &", "background")
            elif (plain or self._sign()) not in ends:
                self.fail("something that does not belong here")
        if not chains:
            self.fail("a command is missing")
        self.at += len(end)
        return Script(tuple(chains)), end

    def _sign(self) -> str:
        """The character that is here, when it means something on its own."""
        char = self.char()
        if char in ("!", "{", "}"):
            return char if _ALONE.match(self.text, self.at) else "word"
        return char

    def _chain(self, plain: str) -> Chain:
        first = self._pipeline(plain)
        rest: list[tuple[Literal["&&", "||"], Pipeline]] = []
        while True:
            operator: Literal["&&", "||"]
            if self.text.startswith("&&", self.at):
                operator = "&&"
            elif self.text.startswith("||", self.at):
                operator = "||"
            else:
                return Chain(first, tuple(rest))
            self.pass_operator(2)
            rest.append((operator, self._pipeline(self.pass_lines())))

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
        if timed:
            self._check_timed(commands[0])
        errors: list[bool] = []
        while self.char() == "|" and not self.text.startswith("||", self.at):
            both = self.text.startswith("|&", self.at)
            self.pass_operator(1 + both)
            errors.append(both)
            commands.append(self._command(self.pass_lines()))
        return Pipeline(tuple(commands), tuple(errors), negated, timed)

    def _check_timed(self, command: Command) -> None:
        if isinstance(command, Simple) and command.words:
            match command.words[0].parts[0]:
                case Text(value) if value.startswith("-"):
                    self.fail("an option of time", "time", command.words[0].start)

    def _command(self, plain: str) -> Command:
        if plain:
            if plain not in RESERVED:
                return self._simple(plain)
            if plain == "if":
                return self._if()
            if plain == "for":
                return self._for()
            self.fail(*_DOUBTS.get(plain, (f"{plain} where no command has begun", "syntax")))
        sign = self._sign()
        if sign == "(":
            if self.text.startswith("((", self.at):
                self.fail("arithmetic, ((…))", "arithmetic")
            return Subshell(self._nested(1, _PAREN)[0], self._tail())
        if sign == "{":
            return Group(self._nested(1, _BRACE)[0], self._tail())
        if self.text.startswith(("[[", "]]"), self.at):
            self.fail("a condition, [[…]]", "condition")
        if sign in ("!", "}", ")") or (sign in _SEPARATORS and not self._opens_file()):
            self.fail("a command is missing")
        return self._simple("")

    def _opens_file(self) -> bool:
        return self.text.startswith("&>", self.at)

    def _nested(self, size: int, ends: frozenset[str]) -> tuple[Script, str]:
        """Pass an opening of so many characters, and what it opens."""
        self._depth += 1
        if self._depth > MAX_DEPTH:
            self.fail("commands nested too deep", "deep")
        self.pass_operator(size)
        result = self._script(ends)
        self._depth -= 1
        return result

    def _tail(self) -> tuple[Redirect, ...]:
        """The redirections after a compound command."""
        redirects: list[Redirect] = []
        plain = self.next()
        while redirect := self.redirect():
            redirects.append(redirect)
            plain = self.next()
        if redirects and (plain or self.char() not in _SEPARATORS):
            self.fail("a word after a redirection that belongs to no command")
        return tuple(redirects)

    def _if(self) -> If:
        branches: list[tuple[Script, Script]] = []
        end = "if"
        while end in ("if", "elif"):
            condition, _ = self._nested(2 if end == "if" else 0, _THEN)
            body, end = self._nested(0, _BRANCH)
            branches.append((condition, body))
        otherwise = self._nested(0, _FI)[0] if end == "else" else None
        return If(tuple(branches), otherwise, self._tail())

    def _for(self) -> For:
        start = self.at
        self.at += 3
        name = self.next()
        if not name and self.text.startswith("((", self.at):
            self.fail("a for loop with arithmetic", "arithmetic", start)
        if not _NAME.fullmatch(name) or name in RESERVED:
            self.fail("a for loop without a plain name", "loop")
        if _SPECIAL_NAME.fullmatch(name):
            self.fail(f"a for loop over {name}, which means something to bash", "variable")
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
        body, _ = self._nested(2, _DONE)
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
                self._fail_at_parenthesis(words)
            elif words:
                words += self.words(plain)
            elif assignment := self._assignment(plain):
                if redirects:
                    at = assignment.value.start - len(assignment.name) - 1
                    self.fail("an assignment after a redirection", "assignment", at)
                assignments.append(assignment)
            else:
                if plain in RESERVED or (not plain and self._sign() in ("!", "{", "}")):
                    self.fail("a word of the shell where the name of a command should be")
                at = self.at
                words += self.words(plain, first=True)
                if self.text[at : self.at] == "]]":
                    self.fail("a word of the shell where the name of a command should be", at=at)
            plain = self.next()
        ends = (
            *(word.end for word in words[-1:]),
            *(redirect.end for redirect in redirects[-1:]),
            *(assignment.value.end for assignment in assignments[-1:]),
        )
        return Simple(tuple(assignments), tuple(words), tuple(redirects), start, max(ends))

    def _assignment(self, plain: str) -> Assignment | None:
        """Pass the assignment that is here, if there is one."""
        found = _ASSIGNS.match(self.text, self.at)
        if found is None:
            return None
        name, operator = found.groups()
        if operator != "=":
            self.fail("an assignment that adds, or to a part of a list", "assignment")
        if self.text.startswith("(", found.end()):
            self.fail("an assignment of a list", "assignment")
        word = self.word(plain, "an assignment")
        value = cast("Text", word.parts[0]).value[len(name) + 1 :]
        parts = word.parts[1:]
        if value or not parts:
            parts = (Text(value), *parts)
        return Assignment(name, Word(parts, word.start + len(name) + 1, word.end))

    def _fail_at_parenthesis(self, words: list[Word]) -> None:
        if len(words) == 1:
            self.fail("a definition of a function", "function", words[0].start)
        self.fail("a parenthesis after a word")
