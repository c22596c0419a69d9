"""Arguments of programs: rules about them, code they contain, and data they send.

A plain entry trusts its program, confined by the kernel. So code and destinations are tables of
known cases, not grammars: anything not listed passes. Programs that only start others (`xargs`,
`ssh`, `sudo`) never get here, because a command with one of them is a doubt; interpreters are read
elsewhere. A plain entry does not cover sending data, whatever its grants: listing `git` for
everyday work is not consent to publish. An entry that names the sub-command covers it, except to an
address in the call or by force; one with `args: "any"` covers all of it.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Sequence
from functools import lru_cache
from typing import NamedTuple

from msgspec.structs import replace

from clawkit.approvals import options as opts
from clawkit.approvals.inline_code import names_of
from clawkit.approvals.types import ApprovalRules, Arg, ArgRule, Flags, Program
from clawkit.text import one_line, printable
from clawkit.word_tables import read_words

_HARMLESS = opts.words_of(
    """LANG TZ TERM COLUMNS LINES CI NODE_ENV NO_COLOR FORCE_COLOR CLICOLOR CLICOLOR_FORCE
    PYTHONUNBUFFERED PYTHONDONTWRITEBYTECODE PYTHONHASHSEED RUST_BACKTRACE GIT_TERMINAL_PROMPT
    GIT_OPTIONAL_LOCKS"""
)
"""Variables that affect only appearance or verbosity, whatever their value."""

_SEPARATORS = re.compile(r"[^\w./~-]+")
_GLOB = re.compile(r"[*?]")
_PLAIN_GLOB = re.compile(r"[\w./*?-]+", re.ASCII)
_MAX_PATHS = 200
"""Limit per argument: after a dash, every letter could precede a file name."""
_SHOWN = 60


def check_arguments(rule: ArgRule, program: Program, rules: ApprovalRules) -> str:
    """Why the arguments do not satisfy a rule; empty if they do."""
    arguments, why = program.argv[1:], ""
    if rule.subcommand is not None:
        why = _check_subcommand(rule.subcommand, rule.flags, arguments)
    why = why or _check_flags(rule.flags, arguments)
    return _check_paths(program, rules) if rule.paths == "workspace" and not why else why


def find_steering(assigned: Sequence[str]) -> str:
    """The first variable set for a program that could change what it does; empty if none."""
    odd = (name for name in assigned if name not in _HARMLESS and not name.startswith("LC_"))
    return next(odd, "")


def show(text: str, max_chars: int = _SHOWN) -> str:
    """Prepare a text for a message: one short line without invisible characters."""
    return _show(text[: max_chars + 1], max_chars)


@lru_cache(maxsize=1024)
def _show(text: str, max_chars: int) -> str:
    return one_line(printable(text, keep=""), max_chars)


def _check_subcommand(allowed: tuple[str, ...], flags: Flags, arguments: Sequence[Arg]) -> str:
    """The first word must be a sub-command. Whether a flag before it would take it as a value is
    unknown, so only allowed flags with their own value (`--color=never`) may precede it."""
    at = 0
    while at < len(arguments) and arguments[at].text.startswith("-"):
        text = arguments[at].text
        known = flags.allow is not None and _is_allowed(text, flags.allow)
        if arguments[at].glob or not known or "=" not in text:
            return f"not with {show(text)} before the sub-command"
        at += 1
    if at == len(arguments):
        return f"only with {_join_or(allowed)}"
    # Never matches, because the words of a rule contain no blanks.
    given = [" " if each.glob else each.text for each in arguments[at:]]
    if not any(given[: len(each.split())] == each.split() for each in allowed):
        return f"not {show(arguments[at].text)}, only {_join_or(allowed)}"
    return ""


def _join_or(allowed: tuple[str, ...]) -> str:
    return " or ".join(show(each) for each in allowed) or "no sub-command at all"


def _check_flags(flags: Flags, arguments: Sequence[Arg]) -> str:
    """Check every flag, even after `--`: tools such as npm pass those on to another program."""
    if flags.allow is None and not flags.deny:
        return ""
    for each in arguments:
        text = each.text
        if each.glob:
            if opts.may_be_option(each):
                return f"not with {show(text)}, which could expand to a flag"
        elif text.startswith("-") and text not in ("-", "--"):
            if denied := next((flag for flag in flags.deny if _is_denied(text, flag)), ""):
                return f"not with {show(text)}" + ("" if text == denied else f" ({denied})")
            if flags.allow is not None and not _is_allowed(text, flags.allow):
                return f"not with {show(text)}"
    return ""


def _is_denied(text: str, flag: str) -> bool:
    name = text.partition("=")[0].lstrip("-")
    bare = flag.lstrip("-")
    if len(bare) == 1:
        return name == bare or (not text.startswith("--") and bare in text)
    # Long flags may be abbreviated; with one dash too, but then a single letter is its own flag.
    return bare.startswith(name) and (len(name) > 1 or text.startswith("--"))


def _is_allowed(text: str, allowed: tuple[str, ...]) -> bool:
    name = text.partition("=")[0]
    if name in allowed:
        return True
    if name.startswith("--"):
        return False
    # Letters after a flag are its value or more flags; only a number is unambiguous.
    letters = name[1:].rstrip("0123456789") or name[1:]
    return bool(letters) and all(f"-{letter}" in allowed for letter in letters)


def _check_paths(program: Program, rules: ApprovalRules) -> str:
    cwd = program.cwd
    if cwd is None:
        return "only in a known directory"
    # Without a file argument, many programs use the current directory.
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
    """What a program could use as a file name: the argument, and parts after a flag, `=` or `:`."""
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


def _is_inside(text: str, cwd: str, rules: ApprovalRules) -> bool:
    # An unexpanded tilde: whose home directory it means depends on the program.
    if text.startswith("~"):
        return False
    try:
        path = os.path.realpath(os.path.join(cwd, text))
    except (OSError, ValueError):
        return False
    return rules.may_read(path) and rules.may_write(path) and not rules.is_own(path)


def _check_glob(arg: Arg, cwd: str, rules: ApprovalRules) -> str:
    text = arg.text
    shown = show(text)
    if opts.may_be_option(arg) or not _PLAIN_GLOB.fullmatch(text):
        return f"not with {shown}, which could expand to anything"
    parts = text.split("/")
    # `.*` matches `..` too.
    if any(each == ".." or (each.startswith(".") and _GLOB.search(each)) for each in parts):
        return f"not with {shown}, which could point outside the workspace"
    folder = _GLOB.split(text)[0].rpartition("/")[0]
    if text.startswith("/") and not folder:
        folder = "/"
    if not _is_inside(folder, cwd, rules):
        return f"not with {shown}, which is not in the workspace"
    return ""


def find_row(table: opts.CommandTable, program: Program) -> opts.OptionHit | None:
    """The first match of a call in a table, by any name of the program, with or without version."""
    hits = (opts.search_table(table, name, program.argv[1:]) for name in bare_names(program))
    return next(filter(None, hits), None)


def bare_names(program: Program) -> list[str]:
    """The names of a program, with and without version: `gcc` for gcc-12."""
    return _bare(names_of(program))


@lru_cache(maxsize=1024)
def _bare(names: frozenset[str]) -> list[str]:
    return sorted({name.rstrip("0123456789.-") or name for name in names} | names)


_DESTINATION_TABLE = opts.read_table(read_words(__file__, "sends_data.txt"))
_COPIES = frozenset(("scp", "rsync"))
_REMOTE = re.compile(r"(?:\w+://|\[[^/]*\]:|[^/:]+:)")
_FORCED = re.compile(r"--(?:force|delete|mirror|prune)|-[A-Za-z]*[fd]|[+:]")
_ADDRESS = re.compile(r"\w+://|[^/\s]+[.:@]")


def find_destination(program: Program, *, named: bool = False) -> str:
    """Where a call sends data, as a reason. Empty if it is not known to send any, or if a rule has
    `named` its sub-command and it goes, unforced, to the configured destination."""
    arguments = program.argv[1:]
    if not _COPIES.isdisjoint(bare_names(program)):
        words = _operands(arguments)
        return _describe(words[-1]) if len(words) > 1 and _REMOTE.match(words[-1]) else ""
    hit = find_row(_DESTINATION_TABLE, program)
    if hit is None:
        return ""
    words = _operands(hit.rest)
    address = next((word for word in reversed(words) if _ADDRESS.match(word)), "")
    if named and not address and not any(_FORCED.match(each.text) for each in hit.rest):
        return ""
    return _describe(address or (words[0] if words else ""), hit.what)


def _operands(arguments: Sequence[Arg]) -> list[str]:
    return [each.text for each in arguments if not each.text.startswith("-")]


def _describe(destination: str, flag: str = opts.ALWAYS) -> str:
    start = "it" if flag == opts.ALWAYS else show(flag)
    return f"{start} sends data to {show(destination) or 'its usual destination'}"


_CODE_TABLE = opts.read_table(read_words(__file__, "carries_code.txt"))
_KEYBOARD = "its keyboard commands can start other programs"
_GIT_OPTIONS = opts.make_table(
    flag="""-P -p -v -h --no-pager --paginate --version --help --no-optional-locks --no-advice
    --literal-pathspecs --glob-pathspecs --noglob-pathspecs --icase-pathspecs --no-replace-objects
    --html-path --man-path --info-path""",
    value="-C",
)
_TRANSPORT = re.compile(r"[\w-]+::", re.ASCII)
"""The remote `ext::sh -c …` is a program."""
_READS = ("--get", "--get-all", "--get-regexp", "--list", "-l", "get", "list")


def find_code(program: Program, rules: ApprovalRules) -> str:
    """Why the arguments make a program start others or run code; empty for no known case."""
    first = program.argv[1:2]
    if first and first[0].text[:1] not in ("-", "") and "tar" in bare_names(program):
        # Turn the letters of `tar xf` into a flag.
        letters = replace(first[0], text=f"-{first[0].text}")
        program = replace(program, argv=(program.argv[0], letters, *program.argv[2:]))
    if hit := find_row(_CODE_TABLE, program):
        return _KEYBOARD if hit.what == opts.ALWAYS else f"{show(hit.what)} starts other programs"
    if "git" not in bare_names(program):
        return ""
    call = read_git(program)
    if isinstance(call, str):
        return call
    if call.words[:1] == ("config",) and call.words[1:2] and call.words[1] not in _READS:
        return "config changes settings, which can start other programs; only --get or --list"
    if any(_TRANSPORT.match(word) for word in call.words[1:]):
        return "a remote helper starts other programs"
    # If every directory is writable, this proves nothing about the repository.
    top = find_top(call.place)
    if top and rules.may_write(os.path.dirname(top)) and not rules.may_write("/"):
        # The agent may have written its configuration, which can start programs.
        return f"{show(top, 200)} is not the workspace's own repository, and can start programs"
    return ""


class GitCall(NamedTuple):
    place: str
    arguments: tuple[Arg, ...]

    @property
    def words(self) -> tuple[str, ...]:
        return tuple(each.text for each in self.arguments)


def read_git(program: Program) -> GitCall | str:
    """A call of git, or why options before the sub-command could change what it does."""
    place, end, odd = program.cwd, len(program.argv), ""
    if place is None:
        return "cannot determine the directory it runs in; use && after cd"
    try:
        for option in opts.read_options(program.argv, _GIT_OPTIONS, groups=False):
            if option.kind == opts.OPERAND:
                end = option.at
                break
            place = os.path.join(place, option.value)
    except opts.OptionError as error:
        odd = error.name
    for arg in program.argv[1 : end + 1]:
        if arg.glob or arg.text in ("-", "--"):
            odd = odd or arg.text
    if odd:
        return f"{show(odd)} before the sub-command can make it start other programs"
    return GitCall(place, program.argv[end:])


def find_top(directory: str) -> str:
    """The directory whose `.git` git would use from a place; empty if there is none."""
    try:
        folder = os.path.realpath(directory)
    except ValueError:  # a NUL
        return ""
    while not os.path.lexists(f"{folder}/.git"):
        above = os.path.dirname(folder)
        if above == folder:
            return ""
        folder = above
    return folder
