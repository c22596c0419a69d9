"""Compares an analysis with the observed actions of the command."""

from __future__ import annotations

import os
import re
from collections import Counter
from collections.abc import Iterator, Sequence
from typing import NamedTuple

from msgspec import structs

from bench.shellproof_place import Scene
from bench.shellproof_trace import Run, Start
from clawkit.approvals.types import Analysis, Arg, Program

# Variables that the shell and stdbuf set for every program they start.
_BY_SHELL = frozenset(
    ("_", "SHLVL", "PWD", "OLDPWD", "IFS", "LD_PRELOAD", "_STDBUF_I", "_STDBUF_O")
)
_HARMLESS = frozenset(("ENOENT", "ENOTDIR", "EACCES", "ELOOP", "ENOEXEC", "ENAMETOOLONG"))
# Errors name lines, and programs as they were called; times are never the same.
_BLURRED = re.compile(
    r"[^\s:]*(?:bash|sh|dash|env|timeout|nice|nohup|stdbuf): .*|Try '.*--help.*"
    r"|\d+m\d+[.,]\d+s|(?<=(?:real|user) )\d+\.\d+|(?<=sys )\d+\.\d+"
)


class Expected(NamedTuple):
    """A program named by the analysis, in the form of an observation."""

    program: Program
    argv: tuple[Arg | None, ...]
    """None matches anything: the text of a shell in the rebuilt command."""
    typed: str
    interpreter: bool = False
    """Whether it is an interpreter started by the program's first line."""

    @property
    def wild(self) -> bool:
        return any(arg is not None and arg.glob for arg in self.argv)

    @property
    def key(self) -> tuple[str, ...]:
        """Identifies a start, regardless of its spelling."""
        program = self.program
        known = [arg for arg in program.argv[1:] if not arg.glob]
        if is_shell(program) and program.wrapper:
            known.pop()  # its text is rebuilt
        texts = (arg.text for arg in known)
        return (program.resolved or program.name, str(self.interpreter), *texts)


def is_shell(program: Program) -> bool:
    return os.path.basename(program.real) in ("bash", "dash", "sh")


def expect(analysis: Analysis, *, rebuilt: bool) -> Iterator[Expected]:
    """All programs that the command may start, each as often as allowed."""
    for segment in analysis.segments:
        programs = segment.programs
        for index, program in enumerate(programs):
            argv: list[Arg | None] = []
            for each in programs[index:]:
                name, *rest = each.argv
                argv.append(
                    structs.replace(name, text=each.resolved or name.text) if rebuilt else name
                )
                argv += rest
            if rebuilt and programs[-1].wrapper:
                argv[-1] = None  # its text is rebuilt too
            typed = program.resolved or program.name if rebuilt else program.name
            yield Expected(program, tuple(argv), typed)
            if program.script:
                yield Expected(program, tuple(argv), typed, interpreter=True)


def faults_of(analysis: Analysis, run: Run, scene: Scene, *, rebuilt: bool) -> list[str]:
    """All actions of the command that the analysis does not predict."""
    faults = ["it did not end"] if run.late else []
    named = list(expect(analysis, rebuilt=rebuilt))
    real = [start for start in run.starts[1:] if not start.error]
    for start in run.starts[1:]:
        if start.error and not any(_may_try(start, each, scene) for each in named):
            faults.append(f"it tried to start {_show(start)}")
    _, left = assign(real, named, scene)
    faults += [f"it started {_show(start)}" for start in left]
    told = {file.path for part in analysis.segments for file in part.files if file.writes}
    told |= {os.path.realpath(path) for path in told}
    faults += [f"it changed {path!r}" for path in run.changed if path not in told]
    return faults


def assign(
    starts: Sequence[Start], named: Sequence[Expected], scene: Scene
) -> tuple[list[Expected], list[Start]]:
    """Match every start with a named program; returns the used programs and the unmatched
    starts."""
    # Programs without patterns first, because a pattern matches anything.
    order = sorted(range(len(named)), key=lambda index: named[index].wild)
    fits = [[index for index in order if _fits(start, named[index], scene)] for start in starts]
    holder: dict[int, int] = {}

    def place(start: int, seen: set[int]) -> bool:
        for index in fits[start]:
            if index not in seen:
                seen.add(index)
                if index not in holder or place(holder[index], seen):
                    holder[index] = start
                    return True
        return False

    left = [start for number, start in enumerate(starts) if not place(number, set())]
    return [named[index] for index in holder], left


def differences(analysis: Analysis, one: Run, other: Run, scene: Scene) -> list[str]:
    """Differences between the actions of the command and of the rebuilt one."""
    found = []
    started = [
        Counter(
            each.key
            for each in assign(
                [start for start in run.starts[1:] if not start.error],
                list(expect(analysis, rebuilt=rebuilt)),
                scene,
            )[0]
        )
        for run, rebuilt in ((one, False), (other, True))
    ]
    if started[0] != started[1]:
        found.append(
            f"programs: only before {dict(started[0] - started[1])}, only rebuilt "
            f"{dict(started[1] - started[0])}"
        )
    if _status(one) != _status(other):
        found.append(f"status: {one.status}, rebuilt {other.status}")
    if _blur(one.out) != _blur(other.out):
        found.append(f"output: {one.out!r}, rebuilt {other.out!r}")
    if {path: _blur(text) for path, text in one.changed.items()} != {
        path: _blur(text) for path, text in other.changed.items()
    }:
        found.append(f"files: {one.changed}, rebuilt {other.changed}")
    return found


def _status(run: Run) -> int:
    """How a command ended. Codes 126 and 127 count as one: why a program cannot be started depends
    on where it was looked for last."""
    return 127 if run.status == 126 else run.status


def _blur(text: str) -> list[str]:
    """The lines without what depends on time and place, sorted, because the order of writers is
    random."""
    return sorted(_BLURRED.sub("", text).split("\n"))


def _show(start: Start) -> str:
    set_ = {name: value for name, value in start.env.items() if name not in _BY_SHELL}
    return (
        f"{start.path!r} {list(start.argv)} in {start.cwd!r} reading {start.stdin!r} {start.error}"
        f" with {set_}"
    )


def _may_try(start: Start, each: Expected, scene: Scene) -> bool:
    """Whether a start that failed was a search for a program that is named."""
    name = each.typed
    if start.error not in _HARMLESS:
        return False
    if not each.interpreter and not _same_argv(start.argv, each.argv):
        return False
    if "/" in name and not each.interpreter:
        # `exec` makes it absolute first.
        whole = os.path.join(each.program.cwd or "/", name)
        return start.path == name or os.path.realpath(start.path) == os.path.realpath(whole)
    folder, _, base = start.path.rpartition("/")
    sought = {os.path.basename(path) for path in each.program.script}
    known = base in sought if each.interpreter else base == name
    folders = {os.path.normpath(folder) for folder in scene.env.get("PATH", "").split(":")}
    return known and os.path.normpath(folder) in folders


def _fits(start: Start, each: Expected, scene: Scene) -> bool:
    program = each.program
    if each.interpreter:
        # Its arguments are the script and the script's arguments.
        ends = (start.argv[at:] for at in range(1, len(start.argv) + 1))
        known = os.path.normpath(start.path) in program.script
        if not known or not any(_same_argv(end, each.argv[1:]) for end in ends):
            return False
    elif not (_same_path(start.path, program) and _same_argv(start.argv, each.argv)):
        return False
    if start.cwd and program.cwd is not None and start.cwd != os.path.realpath(program.cwd):
        return False
    names = start.env.keys() | scene.env.keys()
    changed = {name for name in names if start.env.get(name) != scene.env.get(name)}
    # Not every shell passes on variables with invalid names.
    changed -= {name for name in changed if name not in start.env and not name.isidentifier()}
    return changed <= _BY_SHELL | set(program.assigned)


def _same_path(path: str, program: Program) -> bool:
    if path in (program.resolved, program.real):
        return bool(path)
    if not path.startswith("/"):
        if program.cwd is None:
            return False
        path = f"{program.cwd}/{path}"
    return bool(program.real) and os.path.realpath(path) == program.real


def _same_argv(argv: Sequence[str], named: Sequence[Arg | None]) -> bool:
    """Whether the arguments are the named ones; a pattern matches one or more."""
    if not any(arg is not None and arg.glob for arg in named):
        return len(argv) == len(named) and all(
            arg is None or arg.text == text for text, arg in zip(argv, named, strict=True)
        )
    reached = {0}
    for arg in named:
        after: set[int] = set()
        for at in reached:
            if arg is not None and arg.glob:
                after.update(range(at + 1, len(argv) + 1))
            elif at < len(argv) and (arg is None or arg.text == argv[at]):
                after.add(at + 1)
        reached = after
    return len(argv) in reached
