"""What a command does: every program it could start, and the command rebuilt from that."""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping, Sequence
from functools import lru_cache
from typing import assert_never

from clawkit.approvals.expansion import (
    Finder,
    Meaning,
    Opened,
    Rebuilt,
    Value,
    evaluate,
    redirect,
    settle,
)
from clawkit.approvals.shell_parse import parse
from clawkit.approvals.shell_words import (
    Assignment,
    Chain,
    Command,
    CommandList,
    For,
    Group,
    If,
    Pipeline,
    Redirect,
    Simple,
    Subshell,
    Word,
    quote,
)
from clawkit.approvals.simple_command import (
    NOWHERE,
    Around,
    Ends,
    Shared,
    SimpleCommand,
    either,
    is_special,
)
from clawkit.approvals.types import Analysis, Arg, Doubt, FileUse, Segment
from clawkit.text import one_line

# With one of these, a shell does something before the command, or reads it differently.
_STEERING = frozenset(
    ("BASH_ENV", "BASH_COMPAT", "BASHOPTS", "GLOBIGNORE", "LOCPATH", "POSIXLY_CORRECT", "SHELLOPTS")
)
_PLAIN_LOCALE = re.compile(r"(?:C|POSIX|.*\.(?:utf-?8)(?:@\w*)?)?", re.IGNORECASE)
"""Where every byte of a letter beyond ASCII is beyond ASCII too."""


def analyze(
    command: str, *, cwd: str, env: Mapping[str, str], assigned: Collection[str] = ()
) -> Analysis:
    """Find every program that a command could start. Raises nothing about the command: what is
    not understood is the `doubt`, with everything that was understood before it.

    `env` is the whole environment that the command will have; `assigned` are the variables in it
    that the call has set.
    """
    shared = Shared(env, Finder(env), dict.fromkeys(assigned))
    try:
        _check(env)
        walk = Walk(command, shared)
        meaning = Meaning({}, _plain(env.get("HOME", "")))
        around = Around(settle(_plain(cwd)) or None, False, meaning)
        walk.script(parse(command), around)
        rebuilt = walk.rebuilt.finish()
        _check_letters(f"{command}{rebuilt}", env)
    except Doubt as doubt:
        # It is kept; what it was raised from need not be.
        plain = Doubt(doubt.reason, doubt.at, doubt.code)
        return Analysis(command, tuple(shared.segments), doubt=plain)
    return Analysis(command, tuple(shared.segments), rebuilt)


def _check(env: Mapping[str, str]) -> None:
    # Without one, and in entries that are not absolute, the shell looks where nobody else does.
    if not _is_absolute(env.get("PATH", "")):
        raise Doubt("PATH is empty or has a relative directory", 0, "environment")
    if _STEERING.isdisjoint(env) and "BASH_FUNC_" not in " ".join(env):
        return
    for name in env:
        if name in _STEERING or name.startswith("BASH_FUNC_"):
            why = f"the environment has {one_line(name, 40)}, which affects the shell"
            raise Doubt(why, 0, "environment")


@lru_cache(maxsize=16)
def _is_absolute(path: str) -> bool:
    return all(folder.startswith("/") for folder in path.split(":"))


def _check_letters(text: str, env: Mapping[str, str]) -> None:
    if text.isascii():
        return
    locale = env.get("LC_ALL") or env.get("LC_CTYPE") or env.get("LANG") or ""
    if not _PLAIN_LOCALE.fullmatch(locale):
        why = f"non-ASCII letters may be read differently in the locale {one_line(locale, 40)}"
        raise Doubt(why, 0, "locale")


def _plain(path: str) -> str:
    return path if path.startswith("/") and "\0" not in path else ""


MAX_NESTED = 50
MAX_INNER = 2
MAX_INNER_CHARS = 64 * 1024
"""Of all texts for other shells together; in a written-out loop one text counts many times."""


class Walk:
    """One text: the command itself, or what it gives to another shell."""

    def __init__(
        self, source: str, shared: Shared, *, inside: int | None = None, depth: int = 0
    ) -> None:
        """`inside` is where a text for another shell begins in the command; what is noted about
        it has that place."""
        self.rebuilt = Rebuilt()
        self._source = source
        self._shared = shared
        self._inside = inside
        self._depth = depth
        self._texts: dict[tuple[int, int], str] = {}

    def script(self, node: CommandList, around: Around) -> Ends:
        """Go through commands that follow each other. Raises `Doubt`."""
        ends = Ends(around.cwd, around.cwd)
        for index, chain in enumerate(node.chains):
            if index:
                self.rebuilt.end_line()
                around = around.moved(either(*ends))
            ends = self._chain(chain, around)
        return ends

    def _chain(self, node: Chain, around: Around) -> Ends:
        ends = self._pipeline(node.first, around)
        for operator, pipeline in node.rest:
            self.rebuilt.put(f" {operator} ")
            if operator == "&&":
                then = self._pipeline(pipeline, around.moved(ends.success))
                ends = Ends(then.success, either(ends.failure, then.failure))
            else:
                then = self._pipeline(pipeline, around.moved(ends.failure))
                ends = Ends(either(ends.success, then.success), then.failure)
        return ends

    def _pipeline(self, node: Pipeline, around: Around) -> Ends:
        if node.negated:
            self.rebuilt.put("! ")
        if node.timed:
            self._only_bash("time")
            self.rebuilt.put(f"{node.timed} ")
        ends = self._command(node.commands[0], around)
        for errors, command in zip(node.errors, node.commands[1:], strict=True):
            if errors:
                self._only_bash("|&")
            self.rebuilt.put(" |& " if errors else " | ")
            self._command(command, around._replace(piped=True))
            # Each of them is a shell of its own.
            ends = Ends(around.cwd, around.cwd)
        return Ends(ends.failure, ends.success) if node.negated else ends

    def _command(self, node: Command, around: Around) -> Ends:
        if isinstance(node, Simple):
            return self._simple(node, around)
        self._shared.nested += 1
        if self._shared.nested > MAX_NESTED:
            raise Doubt(f"it is nested more than {MAX_NESTED} times", 0, "deep")
        opened, files = self._redirects(node.redirects, around)
        if files:
            text = self._text(node.redirects[0].start, node.redirects[-1].end)
            self._shared.segments.append(Segment(text, files=files))
        ends = self._compound(node, around)
        self.rebuilt.put_redirects(opened)
        self._shared.nested -= 1
        if any(each.may_fail for each in opened):
            ends = Ends(ends.success, either(ends.failure, around.cwd))
        return ends

    def _compound(self, node: Subshell | Group | If | For, around: Around) -> Ends:
        match node:
            case Subshell():
                self._enclosed("(", node.body, ")", around)
                return Ends(around.cwd, around.cwd)
            case Group():
                return self._enclosed("{", node.body, "}", around)
            case If():
                return self._if(node, around)
            case For():
                return self._for(node, around)
            case _:
                assert_never(node)

    def _enclosed(self, start: str, body: CommandList, end: str, around: Around) -> Ends:
        # On lines of their own: two parentheses in a row would mean something else.
        self.rebuilt.put(start)
        self.rebuilt.end_line()
        ends = self.script(body, around)
        self.rebuilt.end_line()
        self.rebuilt.put(end)
        return ends

    def _if(self, node: If, around: Around) -> Ends:
        ends = Ends(NOWHERE, NOWHERE)
        missed = around.cwd
        word = "if"
        for condition, body in node.branches:
            asked = self._enclosed(word, condition, "", around.moved(missed))
            done = self._enclosed("then", body, "", around.moved(asked.success))
            ends = Ends(either(ends.success, done.success), either(ends.failure, done.failure))
            missed = asked.failure
            word = "elif"
        if node.otherwise is None:
            done = Ends(missed, NOWHERE)
        else:
            done = self._enclosed("else", node.otherwise, "", around.moved(missed))
        self.rebuilt.put("fi")
        return Ends(either(ends.success, done.success), either(ends.failure, done.failure))

    def _for(self, node: For, around: Around) -> Ends:
        if not node.words:
            # Nothing of its body would be looked at.
            raise Doubt("the loop iterates over nothing", node.start, "dynamic-list")
        known = around.meaning.variables
        values = [self._value(word, around.meaning, "dynamic-list") for word in node.words]
        for word, value in zip(node.words, values, strict=True):
            if value.glob:
                why = "the loop iterates over the files that match a pattern; name them"
                raise Doubt(why, word.start, "dynamic-list")
        used = (known, self._shared.env, self._shared.assigned)
        if is_special(node.name) or any(node.name in each for each in used):
            # Programs in the loop would be given its values, or the loop another one's.
            why = f"the variable {node.name!r} of the loop is already in use; choose another name"
            raise Doubt(why, node.start, "assignment")
        self.rebuilt.put("{")
        self.rebuilt.end_line()
        ends = Ends(around.cwd, around.cwd)
        for value in values:
            self._shared.step(node.start)
            meaning = around.meaning._replace(variables={**known, node.name: value.text})
            ends = self.script(node.body, around.moved(either(*ends))._replace(meaning=meaning))
            self.rebuilt.end_line()
        self.rebuilt.put("}")
        return ends

    def _simple(self, node: Simple, around: Around) -> Ends:
        shared = self._shared
        shared.step(node.start)
        opened, files = self._redirects(node.redirects, around)
        argv, shown = self._words(node.words, around.meaning)
        line = SimpleCommand(
            node,
            around,
            argv,
            shown,
            [self._assignment(each, around.meaning) for each in node.assignments],
            bool(opened) and any(each.may_fail for each in opened),
        )
        ends = line.examine(shared)
        text = self._text(node.start, node.end)
        shared.segments.append(Segment(text, tuple(line.programs), line.builtin, files))
        if line.text:
            shown[line.text] = quote(self._inner(line.argv[line.text], line.around))
        if line.assigned:
            shown[:0] = [f"{name}={quote(value)}" for name, value in line.assigned]
        self.rebuilt.put(" ".join(shown))
        if opened:
            self.rebuilt.put_redirects(opened)
        return ends

    def _words(self, words: Sequence[Word], meaning: Meaning) -> tuple[tuple[Arg, ...], list[str]]:
        argv: list[Arg] = []
        shown: list[str] = []
        inside = self._inside
        for word in words:
            at = word.start if inside is None else inside
            text = word.literal
            if text is not None:
                argv.append(Arg(text, False, at))
                shown.append(quote(text))
            else:
                value = self._value(word, meaning, "parameter" if argv else "dynamic-program")
                argv.append(Arg(value.text, value.glob, at))
                shown.append(value.shown)
        return tuple(argv), shown

    def _assignment(self, node: Assignment, meaning: Meaning) -> tuple[str, str]:
        value = self._value(node.value, meaning)
        if value.glob or ":~" in value.text:
            raise Doubt("only plain text may be assigned", node.value.start, "assignment")
        return node.name, value.text

    def _inner(self, text: Arg, around: Around) -> str:
        shared = self._shared
        shared.inner_chars += len(text.text)
        if self._depth == MAX_INNER or shared.inner_chars > MAX_INNER_CHARS:
            raise Doubt("too many commands are given to other shells", text.at, "long")
        # Not every shell knows these, and what is shown to people is to mean what is run.
        if "$'" in text.text or ("{" in text.text and "," in text.text):
            why = "$'…' and braces may mean something else to another shell"
            raise Doubt(why, text.at, "shell")
        walk = Walk(text.text, shared, inside=text.at, depth=self._depth + 1)
        meaning = around.meaning._replace(variables={})
        try:
            walk.script(parse(text.text), around._replace(meaning=meaning))
            return walk.rebuilt.finish()
        except Doubt as doubt:
            # Its place is one of the text.
            raise Doubt(doubt.reason, text.at, doubt.code) from None

    def _redirects(
        self, nodes: Sequence[Redirect], around: Around
    ) -> tuple[list[Opened], tuple[FileUse, ...]]:
        opened = []
        for node in nodes:
            if node.operator in ("&>", "&>>", "<<<"):
                self._only_bash(node.operator, node.start)
            opened.append(redirect(node, around.meaning, around.cwd, self._shared.finder))
        return opened, tuple(each.file for each in opened if each.file is not None)

    def _value(self, word: Word, meaning: Meaning, code: str = "parameter") -> Value:
        value = evaluate(word, meaning, code)
        if value.glob and "[^" in value.shown:
            self._only_bash("[^", word.start)
        return value

    def _only_bash(self, what: str, at: int = 0) -> None:
        """Raise `Doubt` if the text is for a shell that may not know what bash knows."""
        if self._depth:
            raise Doubt(f"{what} may mean something else to another shell", at, "shell")

    def _text(self, start: int, end: int) -> str:
        text = self._texts.get((start, end))
        if text is None:
            text = self._texts[start, end] = self._source[start:end]
        return text
