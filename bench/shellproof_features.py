"""The parts of the shell language that a command uses."""

from __future__ import annotations

import re
from collections.abc import Iterator

from bench.shellproof_place import WRAPPERS, names
from clawkit.approvals.shell_parse import parse
from clawkit.approvals.shell_words import (
    BraceGroup,
    Command,
    CommandChain,
    CommandList,
    For,
    If,
    Pipeline,
    Redirect,
    Simple,
    Tilde,
    Variable,
    Wildcard,
    Word,
)
from clawkit.approvals.types import Analysis

BUILTINS = names(": true false echo pwd exit printf test [ set command cd export")
FEATURES = frozenset(
    {f"builtin {name}" for name in BUILTINS}
    | {f"wrapper {name}" for name in WRAPPERS}
    | {f"redirect {name}" for name in ("<", ">", ">>", ">|", "&>", "&>>", ">&", "<&", "<<", "<<<")}
    | {*names("pipe |& ! time && || list subshell group if elif else for")}
    | {"command", "exec", "pattern", "home", "variable", "quoted variable", "braces"}
    | {"assignment", "assignment alone", "comment", "continued line", "several lines"}
    | {"$'…'", "beyond ASCII", "program by path", "not found", "script", "shell in a shell"}
    | {"file read", "file written", "nested compounds", "changed directory", "uncertain directory"}
)
"""Features that must all occur for a meaningful proof."""

_TEXTUAL = {
    "comment": re.compile(r"(?:^|[\s;])#"),
    "continued line": re.compile(r"\\\n"),
    "several lines": re.compile(r"\n"),
    "$'…'": re.compile(r"\$'"),
    "beyond ASCII": re.compile(r"[^\x00-\x7f]"),
}


def features_of(text: str, analysis: Analysis) -> set[str]:
    """The names of all features that a command uses."""
    found = {name for name, pattern in _TEXTUAL.items() if pattern.search(text)}
    found.update(_of_script(parse(text), 0))
    for segment in analysis.segments:
        if segment.builtin:
            found.add(f"builtin {segment.builtin}")
        found.update("file written" if file.writes else "file read" for file in segment.files)
        if segment.text.startswith(("exec ", "command ")) and segment.programs:
            found.add(segment.text.split()[0])
        for program in segment.programs:
            found.update(_of_program(program.name, program.resolved, wrapper=program.wrapper))
            found.update(["script"] if program.script else [])
            found.update(["uncertain directory"] if program.cwd is None else [])
    if len({program.cwd for each in analysis.segments for program in each.programs}) > 1:
        found.add("changed directory")
    texts = [
        each.programs[-1]
        for each in analysis.segments
        if each.programs and each.programs[-1].wrapper
    ]
    if len(texts) > 1:
        found.add("shell in a shell")
    return found


def _of_program(name: str, resolved: str, *, wrapper: bool) -> Iterator[str]:
    if wrapper:
        yield f"wrapper {name}"
    if "/" in name:
        yield "program by path"
    if not resolved:
        yield "not found"


def _of_script(node: CommandList, depth: int) -> Iterator[str]:
    if len(node.chains) > 1:
        yield "list"
    for chain in node.chains:
        yield from _of_chain(chain, depth)


def _of_chain(node: CommandChain, depth: int) -> Iterator[str]:
    yield from _of_pipeline(node.first, depth)
    for operator, pipeline in node.rest:
        yield operator
        yield from _of_pipeline(pipeline, depth)


def _of_pipeline(node: Pipeline, depth: int) -> Iterator[str]:
    if node.negated:
        yield "!"
    if node.timed:
        yield "time"
    for errors in node.errors:
        yield "|&" if errors else "pipe"
    for command in node.commands:
        yield from _of_command(command, depth)


def _of_command(node: Command, depth: int) -> Iterator[str]:
    for redirect in node.redirects:
        yield from _of_redirect(redirect)
    if isinstance(node, Simple):
        yield from _of_simple(node)
        return
    if depth:
        yield "nested compounds"
    match node:
        case BraceGroup(body):
            yield "subshell" if node.subshell else "group"
            bodies = [body]
        case If():
            yield from ("if", *(["elif"] if len(node.branches) > 1 else []))
            yield from ["else"] if node.otherwise else []
            bodies = [part for branch in node.branches for part in branch]
            bodies += [node.otherwise] if node.otherwise else []
        case For():
            yield "for"
            bodies = [node.body]
    for each in bodies:
        yield from _of_script(each, depth + 1)


def _of_redirect(node: Redirect) -> Iterator[str]:
    yield f"redirect {node.operator}"
    if node.target is not None:
        yield from _of_word(node.target)


def _of_simple(node: Simple) -> Iterator[str]:
    if node.assignments:
        yield "assignment" if node.words else "assignment alone"
    if len({word.start for word in node.words}) < len(node.words):
        yield "braces"
    for word in node.words:
        yield from _of_word(word)


def _of_word(word: Word) -> Iterator[str]:
    for part in word.parts:
        match part:
            case Wildcard():
                yield "pattern"
            case Tilde():
                yield "home"
            case Variable():
                yield "quoted variable" if part.quoted else "variable"
