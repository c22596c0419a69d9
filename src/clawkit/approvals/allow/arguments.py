"""Whether the arguments of a program, and the variables it gets, are within a rule."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Sequence
from functools import lru_cache

from clawkit.approvals.base import Arg, ArgRule, Flags, Program, Rules
from clawkit.approvals.operands import may_be_option
from clawkit.text import one_line, printable

_HARMLESS = frozenset(
    (
        *("LANG", "TZ", "TERM", "COLUMNS", "LINES", "CI", "NODE_ENV"),
        *("NO_COLOR", "FORCE_COLOR", "CLICOLOR", "CLICOLOR_FORCE"),
        *("PYTHONUNBUFFERED", "PYTHONDONTWRITEBYTECODE", "PYTHONHASHSEED", "RUST_BACKTRACE"),
        *("GIT_TERMINAL_PROMPT", "GIT_OPTIONAL_LOCKS"),
    )
)
"""Variables that change how something looks, or how much of it is told, whatever they are."""

_SEPARATORS = re.compile(r"[^\w./~-]+")
_GLOB = re.compile(r"[*?]")
_PLAIN_GLOB = re.compile(r"[\w./*?-]+", re.ASCII)
_MAX_PATHS = 200
"""Most names of files that are looked for in one argument. Behind a dash every letter could be the
last one before such a name."""
_SHOWN = 60


def check_arguments(rule: ArgRule, program: Program, rules: Rules) -> str:
    """Why the arguments do not fit a rule; empty when they do."""
    arguments = program.argv[1:]
    if rule.subcommand is not None and (
        why := _check_subcommand(rule.subcommand, rule.flags, arguments)
    ):
        return why
    if why := _check_flags(rule.flags, arguments):
        return why
    return _check_paths(program, rules) if rule.paths == "workspace" else ""


def find_steering(assigned: Sequence[str]) -> str:
    """The first of the variables set for a program that could change what it does; empty when
    there is none."""
    for name in assigned:
        if name not in _HARMLESS and not name.startswith("LC_"):
            return name
    return ""


def show(text: str, max_chars: int = _SHOWN) -> str:
    """A text for a reason: short, nothing invisible."""
    return _show(text[: max_chars + 1], max_chars)


@lru_cache(maxsize=1024)
def _show(text: str, max_chars: int) -> str:
    return one_line(printable(text, keep=""), max_chars)


def _check_subcommand(allowed: tuple[str, ...], flags: Flags, arguments: Sequence[Arg]) -> str:
    """The first word must be a sub-command.

    Whether a flag before it takes that word as its value is not known, so after such a flag both
    must be in order: that it does and that it does not.
    """
    words = [tuple(each.split()) for each in allowed]
    at, unsure = 0, False
    while True:
        start = at
        while at < len(arguments) and arguments[at].text.startswith("-"):
            text = arguments[at].text
            if arguments[at].glob or flags.allow is None or not _is_allowed(text, flags.allow):
                return f"not with {show(text)} before the sub-command"
            at += 1
        if at == len(arguments):
            return "" if unsure else f"only with {_either(allowed)}"
        if not any(_begins(arguments, at, each) for each in words):
            return f"not {show(arguments[at].text)}, only {_either(allowed)}"
        if at == start or "=" in arguments[at - 1].text:
            return ""
        at, unsure = at + 1, True


def _begins(arguments: Sequence[Arg], at: int, words: tuple[str, ...]) -> bool:
    given = arguments[at : at + len(words)]
    return tuple(each.text for each in given) == words and not any(each.glob for each in given)


def _either(allowed: tuple[str, ...]) -> str:
    return " or ".join(show(each) for each in allowed) or "no sub-command at all"


def _check_flags(flags: Flags, arguments: Sequence[Arg]) -> str:
    """Every flag, also behind `--`: tools such as npm hand those on to another program."""
    if flags.allow is None and not flags.deny:
        return ""
    for each in arguments:
        text = each.text
        if each.glob:
            if may_be_option(each):
                return f"not with {show(text)}, which could become a flag"
        elif text.startswith("-") and text not in ("-", "--"):
            if denied := next((flag for flag in flags.deny if _is_denied(text, flag)), ""):
                return f"not with {show(text)}" + ("" if text == denied else f" ({denied})")
            if flags.allow is not None and not _is_allowed(text, flags.allow):
                return f"not with {show(text)}"
    return ""


def _is_denied(text: str, flag: str) -> bool:
    """Whether an argument is, or could be, a flag: with a value, short for it, or among others."""
    name = text.partition("=")[0].lstrip("-")
    bare = flag.lstrip("-")
    if len(bare) == 1:
        return name == bare or (not text.startswith("--") and bare in text)
    # Long ones may be shortened; those with one dash too, but then a letter is a flag of its own.
    return bare.startswith(name) and (len(name) > 1 or text.startswith("--"))


def _is_allowed(text: str, allowed: tuple[str, ...]) -> bool:
    """Whether an argument is one of these flags, several of one letter, or has a value at it."""
    name = text.partition("=")[0]
    if name in allowed:
        return True
    if name.startswith("--"):
        return False
    # Letters behind a flag are its value or further flags; only a number cannot be taken for more.
    letters = name[1:].rstrip("0123456789") or name[1:]
    return bool(letters) and all(f"-{letter}" in allowed for letter in letters)


def _check_paths(program: Program, rules: Rules) -> str:
    cwd = program.cwd
    if cwd is None:
        return "only in a directory that is known"
    # Without a file, many programs look at the directory they are in.
    if not _is_inside(".", cwd, rules):
        return "only in the workspace"
    for each in program.argv[1:]:
        if each.glob:
            if why := _check_glob(each, cwd, rules):
                return why
            continue
        for number, path in enumerate(_possible_paths(each.text)):
            if number >= _MAX_PATHS:
                return f"not with {show(each.text)}, which could name too many files"
            if _is_path(path, cwd) and not _is_inside(path, cwd, rules):
                return f"not with {show(each.text)}, which is not in the workspace"
    return ""


def _possible_paths(text: str) -> Iterator[str]:
    """Everything in an argument that a program could take for the name of a file: itself, and what
    stands behind a flag, an `=`, an `@` or a colon."""
    yield from _behind_dash(text)
    if _SEPARATORS.search(text):
        yield text.partition("=")[2]
        for piece in _SEPARATORS.split(text):
            yield from _behind_dash(piece)


def _behind_dash(text: str) -> Iterator[str]:
    if not text.startswith("-"):
        yield text
    elif not text.startswith("--"):
        for at in range(2, len(text)):
            yield text[at:]


def _is_path(text: str, cwd: str) -> bool:
    if "/" in text or text.startswith(("~", ".")):
        return True
    return bool(text) and os.path.lexists(os.path.join(cwd, text))


def _is_inside(text: str, cwd: str, rules: Rules) -> bool:
    # A tilde that the shell left alone: whose home directory it is depends on the program.
    if text.startswith("~"):
        return False
    try:
        path = os.path.realpath(os.path.join(cwd, text))
    except (OSError, ValueError):
        return False
    return rules.may_read(path) and rules.may_write(path) and not rules.is_own(path)


def _check_glob(arg: Arg, cwd: str, rules: Rules) -> str:
    """A pattern may only stand for files of one directory, and its siblings, in the workspace."""
    text = arg.text
    shown = show(text)
    if may_be_option(arg) or not _PLAIN_GLOB.fullmatch(text):
        return f"not with {shown}, which could become anything"
    parts = text.split("/")
    # `.*` stands for `..` too.
    if any(each == ".." or (each.startswith(".") and _GLOB.search(each)) for each in parts):
        return f"not with {shown}, which could lead out of the workspace"
    folder = _GLOB.split(text)[0].rpartition("/")[0]
    if text.startswith("/") and not folder:
        folder = "/"
    if not _is_inside(folder, cwd, rules):
        return f"not with {shown}, which is not in the workspace"
    return ""
