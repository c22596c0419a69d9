"""One simple command: the programs it starts, or what the shell does for it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from clawkit.approvals.base import Arg, Input, Program, Segment
from clawkit.approvals.builtins import (
    CARRIERS,
    OWN_NAMES,
    check_builtin,
    check_name,
    read_cd,
    read_exports,
)
from clawkit.approvals.programs import Finder, Found
from clawkit.approvals.rebuild import Meaning, quote_always
from clawkit.approvals.shell.nodes import Doubt, Simple, Tilde
from clawkit.approvals.shell.quote import quote
from clawkit.approvals.wrappers import Inner, Opaque, ShellText, look_through
from clawkit.text import one_line

MAX_STEPS = 500
"""Commands that are looked at, with those of written-out loops."""
MAX_WRAPPERS = 4

NOWHERE = ""
"""The directory after something that is not expected to happen."""


class Ends(NamedTuple):
    """The directory a command leaves the shell in: if it succeeds, and if it fails. None when
    that is not certain."""

    success: str | None
    failure: str | None


def either(one: str | None, other: str | None) -> str | None:
    """The directory after one of two things happened."""
    if one == NOWHERE:
        return other
    if other == NOWHERE:
        return one
    return one if one == other else None


class Around(NamedTuple):
    """What a command finds when it starts."""

    cwd: str | None
    input: Input
    meaning: Meaning

    def moved(self, cwd: str | None) -> Around:
        """The same in another directory."""
        return self if cwd == self.cwd else self._replace(cwd=cwd or None)


@dataclass(slots=True)
class Shared:
    """What all parts of one command have in common, with the texts it gives to shells."""

    env: Mapping[str, str]
    finder: Finder
    assigned: dict[str, None]
    """Variables that are set, for everything that comes later."""
    segments: list[Segment] = field(default_factory=list)
    steps: int = 0
    nested: int = 0
    inner_chars: int = 0
    _notes: dict[str, tuple[str, ...]] = field(default_factory=dict)

    def step(self, at: int) -> None:
        """Count a command. Raises `Doubt` when there are too many."""
        self.steps += 1
        if self.steps > MAX_STEPS:
            raise Doubt(f"it has more than {MAX_STEPS:,} commands", at, "long")

    def notes(self, cwd: str | None, at: int) -> tuple[str, ...]:
        """What the repository around a directory makes git do."""
        if cwd is None:
            return ("the directory it starts in is not certain",)
        notes = self._notes.get(cwd)
        if notes is None:
            # Here, because most commands are not git.
            from clawkit.approvals.allow.repository import repository_notes

            self.finder.count(at)
            notes = self._notes[cwd] = repository_notes(cwd)
        return notes


def only_text(argv: Sequence[Arg], index: int) -> int:
    """The index of a text for another shell. Raises `Doubt` for more than that text, which it
    could refer to, and for a pattern."""
    if index != len(argv) - 1 or argv[index].glob:
        raise Doubt("only one text may be given to another shell", argv[0].at, "shell")
    return index


@dataclass(slots=True)
class Line:
    """A simple command, its words known, and what is found out about it."""

    node: Simple
    around: Around
    argv: tuple[Arg, ...]
    shown: list[str]
    """The words for the shell; those that name programs are replaced."""
    assigned: Sequence[tuple[str, str]]
    """Variables in front of it."""
    may_fail: bool
    """Whether a redirection could keep it from being run at all."""
    programs: list[Program] = field(default_factory=list)
    builtin: str = ""
    text: int = 0
    """The word that is text for another shell; 0 when there is none."""

    def examine(self, shared: Shared) -> Ends:
        """Find what it starts and where it leaves the shell. Raises `Doubt`."""
        ends = Ends(self.around.cwd, self.around.cwd)
        first = self._start(shared) if self.argv else 0
        in_shell = not self.programs
        for name, value in self.assigned:
            self._check_variable(name, value, self.node.start, in_shell=in_shell)
            if in_shell or self.text:
                shared.assigned[name] = None
        if self.builtin:
            self.shown[first] = f"\\{self.builtin}"
            ends = self._do(first, shared)
        return ends

    def _start(self, shared: Shared) -> int:
        """Go from wrapper to wrapper; the index of the word that is started in the end."""
        index = 0
        by_shell = True
        for _ in range(MAX_WRAPPERS + 1):
            name = self._name(index)
            found = None
            if by_shell and name in OWN_NAMES:
                if name not in CARRIERS or self._only_asks(index):
                    self.builtin = name
                    return index
                names = frozenset((name,))
                self.shown[index] = f"\\{name}"
            else:
                found = shared.finder.program(name, self.around.cwd, self.node.words[index].start)
                names = found.names(name)
                self.shown[index] = quote(found.resolved) if found.resolved else quote_always(name)
            length = self._look(names, index)
            if found is not None:
                self._add(found, names, index, length, shared)
            elif not length:
                raise Doubt(f"{name} is not understood so", self.node.words[index].start, "builtin")
            if not length or self.text:
                return index
            # Programs know nothing of what the shell can do itself, and exec wants a program.
            by_shell = name == "command" and found is None
            index += length
        raise Doubt(
            f"more than {MAX_WRAPPERS} programs that start each other", self.node.start, "wrapper"
        )

    def _look(self, names: frozenset[str], index: int) -> int:
        """How many words belong to a wrapper; 0 if it is an ordinary program."""
        inner = look_through(names, self.argv[index:])
        match inner:
            case Opaque():
                name = one_line(self.argv[index].text, 40)
                raise Doubt(f"{name}: {inner.reason}", self.node.words[index].start, inner.code)
            case Inner():
                return inner.index
            case ShellText():
                self.text = only_text(self.argv, index + inner.index)
                return inner.index + 1
        return 0

    def _name(self, index: int) -> str:
        """The word at which a program begins, which must be known as it is."""
        arg = self.argv[index]
        word = self.node.words[index]
        if arg.glob or isinstance(word.parts[0], Tilde):
            why = "which program it starts depends on files or the home directory; name it plainly"
            raise Doubt(why, word.start, "dynamic-program")
        if not arg.text:
            raise Doubt("the name of the program is empty", word.start, "dynamic-program")
        if arg.text.startswith("~") and self.argv[index - 1].text == "exec":
            raise Doubt("exec takes a ~ for the home directory, quoted or not", word.start, "tilde")
        if arg.text.startswith("%"):
            raise Doubt("a name that begins with % is a job of the shell", word.start, "builtin")
        return arg.text

    def _only_asks(self, index: int) -> bool:
        """Whether it is `command -v`, which starts nothing."""
        rest = self.argv[index + 1 : index + 2]
        return self.argv[index].text == "command" and [arg.text for arg in rest] == ["-v"]

    def _add(
        self, found: Found, names: frozenset[str], index: int, length: int, shared: Shared
    ) -> None:
        assigned = tuple(shared.assigned)
        if self.assigned:
            assigned = tuple(dict.fromkeys((*assigned, *(name for name, _ in self.assigned))))
        argv = self.argv[index : index + length] if length else self.argv[index:]
        cwd = self.around.cwd
        self.programs.append(
            Program(
                argv,
                found.resolved,
                found.real,
                cwd,
                assigned=assigned,
                input=self.around.input,
                script=found.script,
                wrapper=bool(length),
                notes=shared.notes(cwd, self.node.start) if "git" in names else (),
                at=argv[0].at,
            )
        )

    def _do(self, first: int, shared: Shared) -> Ends:
        """What a command of the shell itself does."""
        at = self.node.words[first].start
        args = self.argv[first + 1 :]
        cwd = self.around.cwd
        match self.builtin:
            case "cd":
                return self._cd(first, shared, at)
            case "export":
                for name, value in read_exports(args, at):
                    self._check_variable(name, value, at, in_shell=False)
                    shared.assigned[name] = None
            case "exit":
                check_builtin("exit", args, at)
                return Ends(cwd, cwd) if self.may_fail else Ends(NOWHERE, NOWHERE)
            case name:
                check_builtin(name, args, at)
        return Ends(cwd, cwd)

    def _cd(self, first: int, shared: Shared, at: int) -> Ends:
        target = read_cd(self.argv[first + 1 :], at)
        if "CDPATH" in shared.env or "CDPATH" in shared.assigned:
            raise Doubt("CDPATH is set, and cd may lead elsewhere", at, "builtin")
        cwd = self.around.cwd
        place, may_fail = shared.finder.directory(target.text, cwd, at)
        if may_fail and ".." in target.text.split("/"):
            raise Doubt("it leads back from a directory that may not be there", at, "cwd")
        self.shown[first + 1 :] = ["--", quote(place or target.text)]
        return Ends(place, cwd if may_fail or self.may_fail else NOWHERE)

    def _check_variable(self, name: str, value: str, at: int, *, in_shell: bool) -> None:
        if name in self.around.meaning.variables:
            raise Doubt(f"{name!r} is the variable of a loop; take another name", at, "assignment")
        check_name(name, value, at, in_shell=in_shell)
