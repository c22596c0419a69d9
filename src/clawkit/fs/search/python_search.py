"""A program that searches the working directory, for hosts without ripgrep or without Landlock.

Its arguments, joined, are the request as JSON. The output is that of
`rg --no-heading --with-filename --line-number --null --color never`. The exit code is 0 if
something was found, 1 if not, and 2 after a line that says why it cannot search. Lines on stderr
that start with `note: ` say what was skipped. Patterns are those of `re`, so one can run forever:
the caller must be able to kill this program.

Links are not followed, and no path is resolved twice: every directory is opened by its name from
the descriptor of its parent, so nothing outside the first one is ever read, whatever is moved.
"""

from __future__ import annotations

import codecs
import errno
import io
import json
import os
import re
import resource
import stat
import sys
import warnings
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from typing import BinaryIO, Literal

from clawkit.errors import ToolInputError
from clawkit.fs.protocols import MAX_LINE
from clawkit.fs.protocols import Grep as Query
from clawkit.fs.search.ripgrep_globs import IgnoreRules, compile_glob
from clawkit.text import human_size, one_line

BLOCK = 64 * 1024
"""Bytes at the start of a file that determine whether it is text."""
MAX_READ = 1024 * 1024
"""Bytes of a line that are searched; the rest is skipped."""
MAX_WHOLE = 64 * 1024 * 1024
"""Maximum size of a file for a search across lines."""
BUFFERED = 4 * 1024
"""Bytes of output that are buffered, and lost if the program is killed."""
MAX_RULES_BYTES = 256 * 1024
MAX_DEPTH = 3_000
"""Recursion limit for nested directories; a path can have two thousand."""

IGNORE_FILES = (".gitignore", ".ignore", ".rgignore")
"""The last matching rule wins, in the innermost directory that has one."""

# A line break in an expression, outside of a character class: `[^\n]` matches within a line.
_LINE_BREAK = re.compile(r"(?>(?:\\[^n]|\[(?>(?:\\.|[^\\\]])*)\]|[^\\\n])*)(?:\\n|\n)", re.DOTALL)
_FILE = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC
_SWAPPED = frozenset({errno.ENOENT, errno.ENOTDIR, errno.ELOOP, errno.ENXIO})

Note = Callable[[str], None]


class SearchRequest(Query, frozen=True, kw_only=True):
    """A query, or a request to list files. The `globs` only exclude, and start with `!`."""

    op: Literal["grep", "files"]
    pattern: str = ""
    types: Sequence[str] | None = None
    """Globs for base names, one of which must match."""
    target: str = "."
    """`.`, or `./name` for one file in it, which is then always searched."""


_Scope = tuple[IgnoreRules, int]
"""The ignore rules of a directory, and where paths relative to it start."""


class FileWalk:
    """The selected files below the working directory, except `.git`."""

    def __init__(self, request: SearchRequest, note: Note) -> None:
        self._ignored = request.ignored
        self._types = tuple(map(compile_glob, request.types or ()))
        self._note = note
        excluded = [glob.removeprefix("!") for glob in request.globs]
        self._excluded: _Scope = IgnoreRules(excluded, from_file=False), len("./")

    def files(self) -> Iterator[tuple[str, int, str]]:
        """The path of each file, the descriptor of its directory, and its name there."""
        scopes: dict[str, tuple[_Scope, ...]] = {}
        for folder, folders, files, fd in os.fwalk(".", onerror=self.report):
            above = scopes.get(os.path.dirname(folder), ())
            here = scopes[folder] = (*self._read_scope(fd, f"{folder}/"), *above)
            # `folders` includes links to directories, which fwalk would open to compare them.
            folders[:] = [
                name
                for name in sorted(folders)
                if name != ".git"
                and self._keeps(f"{folder}/{name}", here, directory=True)
                and _has_type(stat.S_IFDIR, name, fd)
            ]
            for name in sorted(files):
                path = f"{folder}/{name}"
                is_typed = not self._types or any(each.match(name) for each in self._types)
                if is_typed and name != ".git" and self._keeps(path, here, directory=False):
                    yield path, fd, name

    def _keeps(self, path: str, scopes: tuple[_Scope, ...], *, directory: bool) -> bool:
        rules, start = self._excluded
        if rules.keeps(path, start, directory=directory) is False:
            return False
        for rules, start in scopes:
            kept = rules.keeps(path, start, directory=directory)
            if kept is not None:
                return kept
        return True

    def _read_scope(self, fd: int, folder: str) -> Iterator[_Scope]:
        lines: list[str] = []
        for name in () if self._ignored else IGNORE_FILES:
            try:
                with open_file(fd, name) as file:
                    data = file.read(MAX_RULES_BYTES + 1)
            except OSError as error:
                self.report(error)
                continue
            if len(data) > MAX_RULES_BYTES:
                most = human_size(MAX_RULES_BYTES)
                self._note(f"{folder + name!r} is ignored: it is larger than {most}")
                continue
            text = data.decode("utf-8", "surrogateescape")
            lines += text.removeprefix("\ufeff").split("\n")
        if lines:
            yield IgnoreRules(lines, from_file=True), len(folder)

    def report(self, error: OSError) -> None:
        """Note that something could not be read, unless it was just removed or replaced."""
        if error.errno not in _SWAPPED:
            self._note(f"{error.filename!r} cannot be read: {os.strerror(error.errno or 0)}")


def _has_type(kind: int, name: str, folder: int | None) -> bool:
    with suppress(OSError):
        return stat.S_IFMT(os.stat(name, dir_fd=folder, follow_symlinks=False).st_mode) == kind
    return False


def open_file(directory: int | None, name: str) -> io.BufferedReader:
    """Open a regular file. Raises `OSError` for a link and anything else; never blocks."""
    fd = os.open(name, _FILE, dir_fd=directory)
    if not stat.S_ISREG(os.fstat(fd).st_mode):
        os.close(fd)
        raise OSError(errno.ENXIO, os.strerror(errno.ENXIO))
    return io.BufferedReader(io.FileIO(fd), BLOCK)


class PythonGrep:
    """Searches one file after another, and prints the matching lines."""

    def __init__(self, request: SearchRequest, out: BinaryIO) -> None:
        self._request = request
        self._out = out
        self._pattern = compile_pattern(request)
        # `$` also matches before a CRLF, unless the pattern itself contains line endings.
        self._crlf = not re.search(r"[\r\n]|\\[rn]", request.pattern)
        self.found = False

    def search(self, path: bytes, file: io.BufferedReader) -> None:
        """Print the matches in a file. Raises `ToolInputError` if it is too large."""
        output, context = self._request.output, self._request.context
        earlier: deque[tuple[int, bytes]] = deque(maxlen=context)
        count = last = until = 0
        for number, (line, is_hit) in enumerate(self._judge(file), 1):
            count += is_hit
            if output != "content":
                if is_hit and output == "files":
                    break
                continue
            if not is_hit and number > until:
                earlier.append((number, line))
                continue
            for at, text in (*earlier, (number, line)):
                if context and (at > last + 1 if last else self.found):
                    self._out.write(b"--\n")
                sign = b":" if is_hit and at == number else b"-"
                self._out.write(b"%b\0%d%b%b\n" % (path, at, sign, text[:MAX_LINE]))
                self.found = True
                last = at
            earlier.clear()
            until = number + context if is_hit else until
        if count and output != "content":
            self.found = True
            self._out.write(path + (b"\0%d\n" % count if output == "count" else b"\0"))

    def _judge(self, file: io.BufferedReader) -> Iterator[tuple[bytes, bool]]:
        """The lines of a text file, and whether each is part of a match."""
        head = file.peek()
        if b"\0" in head:
            return
        if head.startswith(codecs.BOM_UTF8):
            file.read(len(codecs.BOM_UTF8))
        if self._request.multiline:
            data = file.read(MAX_WHOLE + 1)
            if len(data) > MAX_WHOLE:
                most = human_size(MAX_WHOLE)
                raise ToolInputError(f"is larger than {most}, the limit for multiline searches")
            hits = set(self._find_across(data.decode("utf-8", "surrogateescape")))
            lines = data.removesuffix(b"\n").split(b"\n")
            yield from ((line, at in hits) for at, line in enumerate(lines))
            return
        search = self._pattern.search
        for line in _read_lines(file):
            decoded = line.decode("utf-8", "surrogateescape")
            yield line, bool(search(decoded.removesuffix("\r") if self._crlf else decoded))

    def _find_across(self, text: str) -> Iterator[int]:
        """The numbers of matching lines, from 0."""
        if self._crlf:
            text = text.replace("\r\n", "\n")
        at = line = 0
        for match in self._pattern.finditer(text):
            start, end = match.span()
            if start == len(text) and text[-1:] in ("", "\n"):
                break  # there is no line after the last line break
            line += text.count("\n", at, start)
            at = start
            yield from range(line, line + text.count("\n", start, max(start, end - 1)) + 1)


def compile_pattern(request: SearchRequest) -> re.Pattern[str]:
    """Compile the pattern with `re`. Raises `ToolInputError` if it is invalid."""
    pattern = request.pattern
    breaks = "\n" in pattern if request.literal else _LINE_BREAK.match(pattern)
    if breaks and not request.multiline:
        raise ToolInputError(
            f"the pattern {pattern[:200]!r} cannot be used: a line break can only match with "
            "multiline=true"
        )
    flags = re.MULTILINE | re.DOTALL if request.multiline else re.NOFLAG
    flags |= re.IGNORECASE if request.ignore_case else re.NOFLAG
    try:
        return re.compile(re.escape(pattern) if request.literal else pattern, flags)
    except (re.error, OverflowError, RecursionError) as error:
        why, at = str(error), ""
        if isinstance(error, re.error):
            why = error.msg
            at = "" if error.pos is None else f" (character {error.pos + 1})"
        raise ToolInputError(
            f"the pattern {pattern[:200]!r} cannot be used as a Python regular expression{at}: "
            f"{one_line(why, 200)}; literal=true searches for the text as it is"
        ) from None


def _read_lines(file: BinaryIO) -> Iterator[bytes]:
    """The lines without their endings, up to the first NUL; of a long line only the start."""
    is_start = True
    while (part := file.readline(MAX_READ)) and b"\0" not in part:
        if is_start:
            yield part.removesuffix(b"\n")
        is_start = part.endswith(b"\n")


def run(request: SearchRequest, out: BinaryIO, note: Note) -> bool:
    """Search and print; returns whether anything was found."""
    walk = FileWalk(request, note)
    grep = PythonGrep(request, out) if request.op == "grep" else None
    found = False
    one = [(request.target, None, request.target.removeprefix("./"))]
    for path, folder, name in walk.files() if request.target == "." else one:
        shown = os.fsencode(path)
        try:
            if grep is None:
                if _has_type(stat.S_IFREG, name, folder):
                    out.write(shown + b"\0")
                    found = True
                continue
            with open_file(folder, name) as file:
                grep.search(shown, file)
        except BrokenPipeError:
            raise
        except OSError as error:
            walk.report(error)
        except ToolInputError as error:
            note(f"{path!r} {error}")
        out.flush()
    return grep.found if grep else found


def main() -> int:
    warnings.simplefilter("ignore")  # warnings of `re` on stderr would be taken for a failure
    # Every directory on the way down stays open; if that fails, it is noted.
    most = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    with suppress(OSError, ValueError):
        resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))
    try:
        with os.fdopen(os.dup(sys.stdout.fileno()), "wb", BUFFERED) as out:
            request = SearchRequest(**json.loads("".join(sys.argv[1:])))
            sys.setrecursionlimit(MAX_DEPTH)
            found = run(request, out, lambda text: print(f"note: {text}", file=sys.stderr))
    except ToolInputError as error:
        print(error, file=sys.stderr)
        return 2
    except BrokenPipeError:
        return 1
    return 0 if found else 1


if __name__ == "__main__":
    sys.exit(main())
