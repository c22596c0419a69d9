"""The programs that search: ripgrep, or Python where there is none or it cannot be held."""

from __future__ import annotations

import json
import os
import re
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple, Protocol

import clawkit
from clawkit.errors import ToolError, ToolInputError
from clawkit.fs.search import ripgrep
from clawkit.fs.search.child import Ended, Feed, Switch, run
from clawkit.fs.search.query import MAX_LINE, EngineName, Grep, Start, Stopped
from clawkit.fs.search.ripgrep import Ripgrep
from clawkit.fs.search.select import Selection
from clawkit.process import landlock
from clawkit.process.landlock import SYSTEM, Hold
from clawkit.text import one_line


@dataclass(frozen=True, slots=True)
class Job:
    """One run of a search program."""

    start: Start
    selection: Selection
    ignored: bool
    feed: Feed
    until: float
    switch: Switch
    type: str = ""
    """A file type by the program's own name."""

    @property
    def target(self) -> str:
        # With a dot in front no name can pose as an option.
        return f"./{self.start.name}" if self.start.name else "."


class Outcome(NamedTuple):
    """How a search went."""

    engine: EngineName
    stopped: Stopped
    unread: int = 0


class Engine(Protocol):
    """Raises `ToolInputError` for a question that cannot be answered."""

    def grep(self, query: Grep, job: Job, enough: int) -> Outcome: ...

    def files(self, job: Job) -> Outcome: ...


def choose_engine(
    configured: str | None, workspace: str, readable: tuple[str, ...] | None, can_hold: bool
) -> Engine:
    """ripgrep, unless there is none, or it would have to be held and cannot be: the files that it
    opens are named by paths, which can lead elsewhere from one moment to the next."""
    can_hold = can_hold and landlock.available()
    if readable is None or can_hold:
        found = ripgrep.find_ripgrep(configured, (workspace, *(readable or ())))
        if found is not None:
            return WithRipgrep(found, readable)
    return WithPython(readable if can_hold else None)


class WithRipgrep:
    """Searches with ripgrep."""

    def __init__(self, program: Ripgrep, readable: tuple[str, ...] | None) -> None:
        self._program = program
        self._hold = None if readable is None else Hold(read=readable, run=program.needs)

    def grep(self, query: Grep, job: Job, enough: int) -> Outcome:
        return self._run(job, list(ripgrep.grep_options(query, enough)), query)

    def files(self, job: Job) -> Outcome:
        return self._run(job, ["--files"], None)

    def _run(self, job: Job, options: list[str], query: Grep | None) -> Outcome:
        argv = ripgrep.command(self._program, job.selection, job.ignored, job.type)
        ended = _start([*argv, *options, "--", job.target], job, self._hold)
        # Trouble with single files, and with ignore files further up, begins with their path. What
        # is wrong with the question is told first, and nothing after it.
        about_files = ended.errors.startswith(("rg: ./", "rg: /"))
        if ended.errors.startswith(f"rg: {job.target}: "):
            place = os.path.join(job.start.place, job.start.name)
            why = ended.errors.partition(f" {job.target}: ")[2].partition(" (os error")[0]
            raise ToolInputError(f"{place!r} cannot be read: {one_line(why, 200)}")
        if ended.code == 2 and not about_files and not ended.stopped:
            raise ripgrep.explain(ended.errors, query, self._program)
        unread = re.findall(r"^rg: \./.* \(os error \d+\)$", ended.errors, re.M)
        return Outcome("ripgrep", _why(ended), len(unread))


class WithPython:
    """Searches with Python, in a program of its own that can be ended at any time."""

    def __init__(self, readable: tuple[str, ...] | None) -> None:
        package = os.path.dirname(os.path.dirname(os.path.abspath(clawkit.__file__)))
        needs = (*SYSTEM, sys.prefix, sys.base_prefix, os.path.realpath(sys.executable), package)
        self._hold = None if readable is None else Hold(read=readable, run=needs)

    def grep(self, query: Grep, job: Job, enough: int) -> Outcome:
        return self._run(
            job,
            op="grep",
            # As for ripgrep, a dot then matches line breaks too.
            pattern=f"(?s){query.pattern}"
            if query.multiline and not query.literal
            else query.pattern,
            literal=query.literal,
            ignoreCase=query.ignore_case,
            multiline=query.multiline,
            before=query.context,
            after=query.context,
            output=query.output,
        )

    def files(self, job: Job) -> Outcome:
        return self._run(job, op="files")

    def _run(self, job: Job, **asked: object) -> Outcome:
        from clawkit.fs.search.filetypes import names_of

        names = job.selection.names
        request = {
            **asked,
            "types": list(names_of(job.type)) if job.type else names and list(names),
            "globs": [*job.selection.excluded, "!.git"],
            "ignored": job.ignored,
            "maxColumns": MAX_LINE,
            "target": job.target,
        }
        argv = [sys.executable, "-I", "-m", "clawkit.fs.search.pysearch"]
        ended = _start(argv, job, self._hold, json.dumps(request).encode())
        lines = ended.errors.splitlines()
        notes = [line for line in lines if line.startswith("note: ")]
        if ended.code == 2 and not ended.stopped:
            raise ToolInputError(one_line(" ".join(lines[len(notes) :]), 400))
        # Whatever else it prints is how it broke down, with the status of a search without hits.
        broken: Stopped = "failed" if len(notes) < len(lines) else ""
        return Outcome("python", _why(ended) or broken, len(notes))


def _start(argv: Sequence[str], job: Job, hold: Hold | None, stdin: bytes | None = None) -> Ended:
    try:
        return run(
            argv,
            cwd=job.start.fd,
            hold=hold,
            feed=job.feed,
            until=job.until,
            switch=job.switch,
            stdin=stdin,
        )
    except OSError as error:
        raise ToolError(f"{argv[0]!r} cannot be started: {error.strerror or error}") from None


def _why(ended: Ended) -> Stopped:
    """Also a program that was ended by something else has not searched everything."""
    return ended.stopped or ("failed" if ended.code not in (0, 1, 2) else "")
