"""What a preset is, and how a call is read by one: everything that is not listed is refused."""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Literal, NamedTuple

from clawkit.approvals.base import Arg, Match, Program, Rules
from clawkit.approvals.operands import base_name, may_be_option
from clawkit.text import one_line, printable

Kind = Literal["flag", "value", "attached", "last", "number", "read", "write"]
"""A flag alone; with a value; with one that may only follow `=` or the letter; with one unless it
comes last; with a number; with a file that is read or written."""

_KINDS: dict[str, Kind] = {
    "": "flag",
    "=": "value",
    "[=]": "attached",
    "=?": "last",
    "=#": "number",
    "=<": "read",
    "=>": "write",
}
_FLAG = re.compile(r"(--?[A-Za-z0-9][A-Za-z0-9-]*|-#)(\[=\]|=[?#<>]?|)")
_NUMBER = re.compile(r"-?\d{1,9}[a-zA-Z]?", re.ASCII)
_COUNT = re.compile(r"-\d{1,9}", re.ASCII)
_VERSION = re.compile(r"-?\d[\d.]*\Z")
_HARMLESS = frozenset({"LANG", "TZ", "NO_COLOR", "FORCE_COLOR", "TERM", "COLUMNS", "CI"})
_GLOB = re.compile(r"[*?\[]")
_PLAIN_GLOB = re.compile(r"[\w./*?-]+", re.ASCII)

Options = Mapping[str, Kind]


def options(*texts: str) -> Options:
    """Flags as one types them: `-q`, `-n=#` with a number, `-m=` with a value, `--color[=]` with
    one that may be missing, `-F=<` with a file; `-#` for a number alone."""
    found: dict[str, Kind] = {}
    for word in " ".join(texts).split():
        flag = _FLAG.fullmatch(word)
        if flag is None:
            raise ValueError(f"{word!r} describes no flag")
        found[flag[1]] = _KINDS[flag[2]]
    return MappingProxyType(found)


class Given(NamedTuple):
    """A flag of a call, with its value."""

    flag: str
    value: str


@dataclass(slots=True)
class Call:
    """The arguments of a call, as a preset understands them."""

    program: Program
    rules: Rules
    cwd: str
    command: str = ""
    flags: list[Given] = field(default_factory=list)
    operands: list[Arg] = field(default_factory=list)

    def has(self, *names: str) -> bool:
        """Whether one of these flags was given."""
        return any(each.flag in names for each in self.flags)

    @property
    def words(self) -> list[str]:
        return [arg.text for arg in self.operands]


Check = Callable[[Call], str]
"""Why a call is not allowed although its flags are; empty when it is."""


@dataclass(frozen=True, slots=True)
class Command:
    """What a sub-command may be given."""

    options: Options
    most: int | None = None
    """Most operands; None for any number."""
    patterns: bool = False
    """Whether patterns of file names may stand for operands."""
    check: Check | None = None


def make_command(
    *texts: str, most: int | None = None, patterns: bool = False, check: Check | None = None
) -> Command:
    """A sub-command with the flags that `options` reads."""
    return Command(options(*texts), most, patterns, check)


@dataclass(frozen=True, slots=True)
class Preset:
    """A complete description of how a program may be called."""

    words: str
    """What it allows, for people."""
    programs: frozenset[str]
    """Base names, without versions."""
    commands: Mapping[str, Command]
    """By sub-command, of one word or two."""
    starts: Callable[[Program], tuple[str, ...]]
    """What the program may start, itself among it."""
    before: Options = field(default_factory=lambda: MappingProxyType({}))
    """Flags in front of the sub-command."""
    moves: str = ""
    """One of these that names the directory to work in."""
    interpreters: frozenset[str] = frozenset()
    """Base names of what may run it, if it is a script."""
    around: Check | None = None
    """A look at what surrounds the call."""
    read: Check | None = None
    """In place of the usual way to read the arguments."""
    movable: bool = False
    """Whether it may be called by a link that the agent could have made."""


def check_preset(name: str, preset: Preset, program: Program, rules: Rules) -> Match | str:
    """The match, or why a call does not fit."""
    why = _check_program(name, preset, program, rules) or _check_surroundings(program)
    if why:
        return why
    if program.cwd is None:
        return "the directory it runs in is not certain; use && after cd"
    call = _read(name, preset, Call(program, rules, program.cwd))
    if isinstance(call, str):
        return call
    command = preset.commands.get(call.command)
    for check in (command.check if command is not None else None, preset.around):
        if check is not None and (why := check(call)):
            return why
    starts = (program.real, *program.script, *preset.starts(program))
    rule = f"{show(program.real, 200)} (preset {name})"
    return Match("entry", rule, children="named", starts=tuple(dict.fromkeys(starts)))


def show(text: str, max_chars: int = 60) -> str:
    """A text for a reason: short, nothing invisible."""
    return one_line(printable(text, keep=""), max_chars)


def bare_name(path: str) -> str:
    """The base name without a version: `python` for /usr/bin/python3.11."""
    name = base_name(path)
    return _VERSION.sub("", name) if len(name) <= 64 else name


def may_use(call: Call, path: str, *, writes: bool = False) -> bool:
    """Whether a file may be read, or written, where the agent works."""
    try:
        place = os.path.realpath(os.path.join(call.cwd, path))
    except (OSError, ValueError):
        return False
    rules = call.rules
    may = rules.may_write(place) if writes else rules.may_read(place)
    return may and not rules.is_own(place)


def _check_program(name: str, preset: Preset, program: Program, rules: Rules) -> str:
    if not program.real or not program.resolved:
        return "the program was not found"
    if any(bare_name(path) not in preset.programs for path in (program.resolved, program.real)):
        return f"the preset {name!r} is for {_either(sorted(preset.programs))}"
    if any(bare_name(each) not in preset.interpreters for each in program.script):
        return f"it is a script, and the preset {name!r} does not know what runs it"
    places = [program.real, *program.script]
    if not preset.movable:
        places.append(program.resolved)
    if any(rules.may_write(place) for place in places):
        return "the program lies where it can be changed without a question"
    return ""


def _check_surroundings(program: Program) -> str:
    for variable in program.assigned:
        if variable not in _HARMLESS and not variable.startswith("LC_"):
            return f"the variable {show(variable)} could change what it does"
    return program.notes[0] if program.notes else ""


def _read(name: str, preset: Preset, call: Call) -> Call | str:
    """Flags in front, the sub-command, then what it may be given."""
    if preset.read is not None:
        return preset.read(call) or call
    rest = list(call.program.argv[1:])
    # `--version` is something to do, no flag of it.
    if not rest or rest[0].text not in preset.commands:
        why = _read_flags(call, rest, preset.before, f"the preset {name!r}", before=True)
        if why or (why := _move(call, preset.moves)):
            return why
    words = [arg.text for arg in rest[:2] if not arg.glob]
    call.command = next(
        (each for each in (" ".join(words), *words[:1]) if each in preset.commands), ""
    )
    command = preset.commands.get(call.command)
    if command is None:
        given = show(words[0]) if words else "that"
        return f"{given} is not among what the preset {name!r} allows"
    del rest[: len(call.command.split())]
    shown = f"{call.command} in the preset {name!r}".lstrip()
    if why := _read_flags(call, rest, command.options, shown):
        return why
    if command.most is not None and len(call.operands) > command.most:
        return f"{shown} takes no more than {command.most} words beside its flags"
    for arg in call.operands:
        if why := _check_operand(call, arg, patterns=command.patterns):
            return why
    return call


def _move(call: Call, flag: str) -> str:
    """Go where the flag in front says. The other flags in front change nothing."""
    places = [value for name, value in call.flags if name == flag]
    if len(places) > 1:
        return f"{flag} is there more than once"
    for place in places:
        call.cwd = os.path.realpath(os.path.join(call.cwd, place))
    call.flags.clear()
    return ""


def _read_flags(
    call: Call, rest: list[Arg], known: Options, shown: str, *, before: bool = False
) -> str:
    """Take flags, and operands unless `before`, off the list."""
    while rest:
        arg = rest[0]
        if not may_be_option(arg) or arg.text == "-":
            if before:
                return ""
            call.operands.append(rest.pop(0))
            continue
        if arg.glob:
            return f"{show(arg.text)} could become a flag; write ./* instead"
        rest.pop(0)
        if arg.text == "--" and not before:
            call.operands += rest
            rest.clear()
            return ""
        if why := _read_flag(call, arg.text, rest, known, shown):
            return why
    return ""


def _read_flag(call: Call, text: str, rest: list[Arg], known: Options, shown: str) -> str:
    if _COUNT.fullmatch(text) and "-#" in known:
        call.flags.append(Given("-#", text[1:]))
        return ""
    if text.startswith("--"):
        name, attached, value = text.partition("=")
        kind = known.get(name)
        if kind is None or (attached and kind == "flag"):
            return f"{show(name)} is not among the flags of {shown}"
        return _take(call, name, kind, value if attached else None, rest)
    for at in range(1, len(text)):
        name = f"-{text[at]}"
        kind = known.get(name)
        if kind is None:
            return f"{show(name)} is not among the flags of {shown}"
        if kind != "flag":
            return _take(call, name, kind, text[at + 1 :] or None, rest)
        call.flags.append(Given(name, ""))
    return ""


def _take(call: Call, name: str, kind: Kind, value: str | None, rest: list[Arg]) -> str:
    """The value of a flag: what is attached to it, or the next word."""
    if value is None and kind not in ("flag", "attached") and (rest or kind != "last"):
        # A program that takes no value here would see a flag in the next word.
        if not rest or rest[0].glob or rest[0].text.startswith("-"):
            return f"{name} needs a value, at best as {name}{'=' if name[1] == '-' else ''}VALUE"
        value = rest.pop(0).text
    value = value or ""
    call.flags.append(Given(name, value))
    if kind == "number" and not _NUMBER.fullmatch(value):
        return f"{name} needs a number"
    if kind in ("read", "write") and not may_use(call, value, writes=kind == "write"):
        return f"{name} {show(value)} is not in the workspace"
    return ""


def _check_operand(call: Call, arg: Arg, *, patterns: bool) -> str:
    """An operand that leads elsewhere must be a file that may be read."""
    text = arg.text
    parts = text.split("/")
    if arg.glob:
        hidden = any(each.startswith(".") and _GLOB.search(each) for each in parts)
        if not patterns or hidden or may_be_option(arg) or not _PLAIN_GLOB.fullmatch(text):
            return f"{show(text)} could become anything"
        text = _GLOB.split(text)[0].rpartition("/")[0] or ("/" if text.startswith("/") else ".")
    if "\0" in text:
        return "there is a NUL character in it"
    if (arg.glob or text.startswith("/") or ".." in parts) and not may_use(call, text):
        return f"{show(text)} is not in the workspace"
    return ""


def _either(names: Sequence[str]) -> str:
    return " or ".join(names)


def needs(flags: str, why: str) -> Check:
    """A check that one of these flags was given."""
    names = tuple(flags.split())

    def check(call: Call) -> str:
        return "" if call.has(*names) else why

    return check


def no_settings(*names: str) -> Check:
    """A check that no settings of the project, which the agent can write, come along."""

    def check(call: Call) -> str:
        for folder in _upward(call.cwd):
            for name in names:
                place = os.path.join(folder, name)
                if os.path.lexists(place) and call.rules.may_write(place):
                    return f"the settings in {name} of the project could change what it does"
        return ""

    return check


def _upward(folder: str) -> Iterator[str]:
    here = os.path.realpath(folder)
    yield here
    while here != os.path.dirname(here):
        here = os.path.dirname(here)
        yield here
