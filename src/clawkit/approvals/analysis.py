"""Analysis of a command: every program it may start, and the command rebuilt from that."""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping, Sequence
from functools import lru_cache
from typing import assert_never

from clawkit.approvals import expansion, shell_words
from clawkit.approvals.shell_parse import parse
from clawkit.approvals.simple_command import (
    UNREACHABLE,
    CwdAfter,
    Shared,
    ShellState,
    SimpleCommand,
    merge_cwd,
)
from clawkit.approvals.types import Analysis, Arg, Doubt, FileUse, Segment
from clawkit.text import one_line

# These make a shell run something before the command, or read it differently.
_STEERING = frozenset(
    ("BASH_ENV", "BASH_COMPAT", "BASHOPTS", "GLOBIGNORE", "LOCPATH", "POSIXLY_CORRECT", "SHELLOPTS")
)
_PLAIN_LOCALE = re.compile(r"(?:C|POSIX|.*\.(?:utf-?8)(?:@\w*)?)?", re.IGNORECASE)
"""Locales in which all bytes of non-ASCII characters are non-ASCII."""


def analyze(
    command: str, *, cwd: str, env: Mapping[str, str], assigned: Collection[str] = ()
) -> Analysis:
    """Find every program that a command may start. Does not raise for bad commands: anything
    unclear becomes the `doubt`, along with everything understood before it.

    `env` is its complete environment; `assigned` are the variables in it that the call has set.
    """
    shared = Shared(env, expansion.ProgramFinder(env), dict.fromkeys(assigned))
    try:
        # With an empty or relative entry, the shell searches the current directory.
        if not _is_absolute(env.get("PATH", "")):
            raise Doubt("PATH is empty or has a relative directory", 0, "environment")
        for name in env:
            if name in _STEERING or name.startswith("BASH_FUNC_"):
                why = f"the environment has {one_line(name, 40)}, which affects the shell"
                raise Doubt(why, 0, "environment")
        walk = CommandWalk(command, shared)
        context = expansion.ExpansionContext({}, _plain(env.get("HOME", "")))
        state = ShellState(expansion.normalize_path(_plain(cwd)) or None, False, context)
        walk.script(parse(command), state)
        rebuilt = walk.rebuilt.finish()
        _check_letters(f"{command}{rebuilt}", env)
    except Doubt as doubt:
        # A copy, so that the traceback and its frames are not kept.
        plain = Doubt(doubt.reason, doubt.at, doubt.code)
        return Analysis(command, tuple(shared.segments), doubt=plain)
    return Analysis(command, tuple(shared.segments), rebuilt)


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
"""Limit for all texts passed to other shells; in an expanded loop, a text counts every time."""


class CommandWalk:
    """Walks one text: the command itself, or code it passes to another shell."""

    def __init__(
        self, source: str, shared: Shared, *, inside: int | None = None, depth: int = 0
    ) -> None:
        """`inside` is the offset of a text for another shell, reported for everything in it."""
        self.rebuilt = expansion.Rebuilt()
        self._source = source
        self._shared = shared
        self._inside = inside
        self._depth = depth

    def script(self, node: shell_words.CommandList, state: ShellState) -> CwdAfter:
        """Walk a sequence of commands. Raises `Doubt`."""
        ends = CwdAfter(state.cwd, state.cwd)
        for index, chain in enumerate(node.chains):
            if index:
                self.rebuilt.end_line()
                state = state.moved(merge_cwd(*ends))
            ends = self._pipeline(chain.first, state)
            for operator, pipeline in chain.rest:
                self.rebuilt.put(f" {operator} ")
                if operator == "&&":
                    then = self._pipeline(pipeline, state.moved(ends.success))
                    ends = CwdAfter(then.success, merge_cwd(ends.failure, then.failure))
                else:
                    then = self._pipeline(pipeline, state.moved(ends.failure))
                    ends = CwdAfter(merge_cwd(ends.success, then.success), then.failure)
        return ends

    def _pipeline(self, node: shell_words.Pipeline, state: ShellState) -> CwdAfter:
        if node.negated:
            self.rebuilt.put("! ")
        if node.timed:
            self._only_bash("time")
            self.rebuilt.put(f"{node.timed} ")
        ends = self._command(node.commands[0], state)
        for errors, command in zip(node.errors, node.commands[1:], strict=True):
            if errors:
                self._only_bash("|&")
            self.rebuilt.put(" |& " if errors else " | ")
            self._command(command, state._replace(piped=True))
            # Each runs in its own subshell.
            ends = CwdAfter(state.cwd, state.cwd)
        return CwdAfter(ends.failure, ends.success) if node.negated else ends

    def _command(self, node: shell_words.Command, state: ShellState) -> CwdAfter:
        if isinstance(node, shell_words.Simple):
            return self._simple(node, state)
        self._shared.nested += 1
        if self._shared.nested > MAX_NESTED:
            raise Doubt(f"it is nested more than {MAX_NESTED} times", 0, "deep")
        opened, files = self._redirects(node.redirects, state)
        if files:
            text = self._source[node.redirects[0].start : node.redirects[-1].end]
            self._shared.segments.append(Segment(text, files=files))
        ends = self._compound(node, state)
        self.rebuilt.put_redirects(opened)
        self._shared.nested -= 1
        if any(each.may_fail for each in opened):
            ends = CwdAfter(ends.success, merge_cwd(ends.failure, state.cwd))
        return ends

    def _compound(
        self, node: shell_words.BraceGroup | shell_words.If | shell_words.For, state: ShellState
    ) -> CwdAfter:
        match node:
            case shell_words.BraceGroup(subshell=True):
                self._enclosed("(", node.body, ")", state)
                return CwdAfter(state.cwd, state.cwd)
            case shell_words.BraceGroup():
                return self._enclosed("{", node.body, "}", state)
            case shell_words.If():
                return self._if(node, state)
            case shell_words.For():
                return self._for(node, state)
            case _:
                assert_never(node)

    def _enclosed(
        self, start: str, body: shell_words.CommandList, end: str, state: ShellState
    ) -> CwdAfter:
        # On separate lines, because `((` means something else.
        self.rebuilt.put(start)
        self.rebuilt.end_line()
        ends = self.script(body, state)
        self.rebuilt.end_line()
        self.rebuilt.put(end)
        return ends

    def _if(self, node: shell_words.If, state: ShellState) -> CwdAfter:
        ends = CwdAfter(UNREACHABLE, UNREACHABLE)
        missed = state.cwd
        word = "if"
        for condition, body in node.branches:
            asked = self._enclosed(word, condition, "", state.moved(missed))
            done = self._enclosed("then", body, "", state.moved(asked.success))
            ends = ends.merged(done)
            missed = asked.failure
            word = "elif"
        if node.otherwise is None:
            done = CwdAfter(missed, UNREACHABLE)
        else:
            done = self._enclosed("else", node.otherwise, "", state.moved(missed))
        self.rebuilt.put("fi")
        return ends.merged(done)

    def _for(self, node: shell_words.For, state: ShellState) -> CwdAfter:
        if not node.words:
            # Its body would not be checked at all.
            raise Doubt("the loop iterates over nothing", node.start, "dynamic-list")
        known = state.context.variables
        values = [self._value(word, state.context, "dynamic-list") for word in node.words]
        for word, value in zip(node.words, values, strict=True):
            if value.glob:
                why = "the loop iterates over the files that match a pattern; name them"
                raise Doubt(why, word.start, "dynamic-list")
        used = (known, self._shared.env, self._shared.assigned)
        if any(node.name in each for each in used):
            # Programs in the loop would get its values, or the loop would get theirs.
            why = f"the variable {node.name!r} of the loop is already in use; choose another name"
            raise Doubt(why, node.start, "assignment")
        self.rebuilt.put("{")
        self.rebuilt.end_line()
        ends = CwdAfter(state.cwd, state.cwd)
        for value in values:
            self._shared.step(node.start)
            context = state.context._replace(variables={**known, node.name: value.text})
            ends = self.script(node.body, state.moved(merge_cwd(*ends))._replace(context=context))
            self.rebuilt.end_line()
        self.rebuilt.put("}")
        return ends

    def _simple(self, node: shell_words.Simple, state: ShellState) -> CwdAfter:
        shared = self._shared
        shared.step(node.start)
        opened, files = self._redirects(node.redirects, state)
        argv, shown = self._words(node.words, state.context)
        line = SimpleCommand(
            node,
            state,
            argv,
            shown,
            [self._assignment(each, state.context) for each in node.assignments],
            any(each.may_fail for each in opened),
        )
        ends = line.examine(shared)
        text = self._source[node.start : node.end]
        shared.segments.append(Segment(text, tuple(line.programs), line.builtin, files))
        if line.text:
            shown[line.text] = shell_words.quote(self._inner(line.argv[line.text], line.state))
        shown[:0] = [f"{name}={shell_words.quote(value)}" for name, value in line.assigned]
        self.rebuilt.put(" ".join(shown))
        self.rebuilt.put_redirects(opened)
        return ends

    def _words(
        self, words: Sequence[shell_words.Word], context: expansion.ExpansionContext
    ) -> tuple[tuple[Arg, ...], list[str]]:
        argv: list[Arg] = []
        shown: list[str] = []
        for word in words:
            value = self._value(word, context, "parameter" if argv else "dynamic-program")
            at = word.start if self._inside is None else self._inside
            argv.append(Arg(value.text, value.glob, at))
            shown.append(value.shown)
        return tuple(argv), shown

    def _assignment(
        self, node: shell_words.Assignment, context: expansion.ExpansionContext
    ) -> tuple[str, str]:
        value = self._value(node.value, context)
        if value.glob or ":~" in value.text:
            raise Doubt("only plain text may be assigned", node.value.start, "assignment")
        return node.name, value.text

    def _inner(self, text: Arg, state: ShellState) -> str:
        shared = self._shared
        shared.inner_chars += len(text.text)
        if self._depth == MAX_INNER or shared.inner_chars > MAX_INNER_CHARS:
            raise Doubt("too many commands are passed to other shells", text.at, "long")
        # Not supported by every shell, and the displayed command must be the one that runs.
        if "$'" in text.text or ("{" in text.text and "," in text.text):
            why = "$'…' and braces may mean something else to another shell"
            raise Doubt(why, text.at, "shell")
        walk = CommandWalk(text.text, shared, inside=text.at, depth=self._depth + 1)
        context = state.context._replace(variables={})
        try:
            walk.script(parse(text.text), state._replace(context=context))
            return walk.rebuilt.finish()
        except Doubt as doubt:
            # Its offset refers to the inner text.
            raise Doubt(doubt.reason, text.at, doubt.code) from None

    def _redirects(
        self, nodes: Sequence[shell_words.Redirect], state: ShellState
    ) -> tuple[list[expansion.Opened], tuple[FileUse, ...]]:
        opened = []
        for node in nodes:
            if node.operator in ("&>", "&>>", "<<<"):
                self._only_bash(node.operator, node.start)
            opened.append(expansion.redirect(node, state.context, state.cwd, self._shared.finder))
        return opened, tuple(each.file for each in opened if each.file is not None)

    def _value(
        self, word: shell_words.Word, context: expansion.ExpansionContext, code: str = "parameter"
    ) -> expansion.ExpandedWord:
        value = expansion.evaluate(word, context, code)
        if value.glob and "[^" in value.shown:
            self._only_bash("[^", word.start)
        return value

    def _only_bash(self, construct: str, at: int = 0) -> None:
        """Raise `Doubt` if the text is for another shell, which may not support it."""
        if self._depth:
            raise Doubt(f"{construct} may mean something else to another shell", at, "shell")
