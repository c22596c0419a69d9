"""A program that searches the working directory, for hosts without ripgrep or without Landlock.

Its arguments, joined, are a JSON object that says what to look for. What comes out is what
`rg --no-heading --with-filename --line-number --null --color never` prints, ordered by path. It
exits with 0 if something was found, 1 if not, and 2 after a line that says why it cannot search.
Lines that begin with `note: ` say what was left out. Patterns are those of `re`, so one can run
forever: the caller must be ready to kill this program.

No link is followed and no path is resolved twice: every directory is opened by its name from the
handle of its parent, so nothing outside the first one is ever read, whatever is moved meanwhile.
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
from collections.abc import Callable, Iterator
from contextlib import suppress
from itertools import chain
from typing import BinaryIO, Literal, NamedTuple, get_args

from clawkit.errors import ToolInputError
from clawkit.fs.protocols import MAX_LINE, Output
from clawkit.fs.search.globs import Rule, Rules, compile_glob, read_rules
from clawkit.text import human_size, one_line

BLOCK = 64 * 1024
"""Bytes at the beginning of a file that decide whether it is text."""
MAX_READ = 1024 * 1024
"""Bytes of a line that are searched; the rest of it is skipped."""
MAX_WHOLE = 64 * 1024 * 1024
"""Bytes of a file that can be searched across lines."""
MAX_NOTES = 20
BUFFERED = 4 * 1024
"""Bytes of output that may wait, and that are lost when the program is killed."""
MAX_RULES_BYTES = 4 * 1024 * 1024
MAX_RULES = 20_000

IGNORE_FILES = (".rgignore", ".ignore", ".gitignore", ".git/info/exclude")
"""The first that has something to say decides, whichever directory it is in."""

# A line break in an expression, outside of a class: `[^\n]` is what every character of a line is.
_LINE_BREAK = re.compile(r"(?:\\[^n]|\[(?:\\.|[^\\\]])*+\]|[^\\\n])*+(?:\\n|\n)", re.DOTALL)
_DIRECTORY = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
_FILE = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC
_SWAPPED = frozenset({errno.ENOENT, errno.ENOTDIR, errno.ELOOP, errno.ENXIO})

Op = Literal["grep", "files"]
Note = Callable[[str], None]


class Request(NamedTuple):
    """What is asked for."""

    op: Op
    pattern: str = ""
    literal: bool = False
    ignore_case: bool = False
    multiline: bool = False
    context: int = 0
    """Lines before and after each hit."""
    output: Output = "content"
    types: list[str] | None = None
    """Globs for base names, of which one has to fit."""
    globs: list[str] | None = None
    """Files and directories to leave out; each begins with `!`."""
    ignored: bool = False
    target: str = "."
    """`.`, or `./name` for one file in it, which is then wanted in any case."""


class Found(NamedTuple):
    """A file, and the handle of its directory, which is open until the walk goes on."""

    path: str
    directory: int | None
    """None for the working directory."""
    name: str


class _Scope(NamedTuple):
    """An ignore file."""

    rules: Rules
    start: int
    """Where paths relative to its directory begin."""


_Scopes = tuple[tuple[_Scope, ...], ...]
"""For each of the ignore files, those of a directory and of the ones above it, innermost first."""


class _Level(NamedTuple):
    """A directory that the walk is in."""

    fd: int
    path: str
    left: list[str]
    """Names yet to come, the next one last; directories end in a slash."""
    scopes: _Scopes


class Walk:
    """The wanted files of the working directory, in the order of their paths. Git's own directory
    is never entered."""

    def __init__(self, request: Request, note: Note) -> None:
        self._ignored = request.ignored
        self._types = tuple(map(compile_glob, request.types or ()))
        self._note = note
        rules = []
        for glob in request.globs or ():
            if not glob.startswith("!"):
                raise ToolInputError(f"{glob!r} says what to search, not what to leave out")
            rules.append(Rule(False, glob.endswith("/"), glob[1:].removesuffix("/")))
        self._excluded = Rules(rules, from_file=False)

    def files(self) -> Iterator[Found]:
        levels: list[_Level] = []
        self._enter("./", ".", levels)
        while levels:
            level = levels[-1]
            if not level.left:
                os.close(levels.pop().fd)
                continue
            name = level.left.pop()
            path = level.path + name
            if not self._wants(path, level.scopes):
                continue
            if name.endswith("/"):
                self._enter(path, name[:-1], levels)
            else:
                yield Found(path, level.fd, name)

    def _wants(self, path: str, scopes: _Scopes) -> bool:
        directory = path.endswith("/")
        path = path.removesuffix("/")
        name = path[path.rfind("/") + 1 :]
        if name == ".git":
            return False
        if self._excluded.keeps(path, len("./"), directory=directory) is False:
            return False
        for rules, start in chain.from_iterable(scopes):
            kept = rules.keeps(path, start, directory=directory)
            if kept is False:
                return False
            if kept:
                break
        return directory or not self._types or any(each.match(name) for each in self._types)

    def _enter(self, path: str, name: str, levels: list[_Level]) -> None:
        above = levels[-1] if levels else None
        left: list[str] = []
        try:
            fd = os.open(name, _DIRECTORY, dir_fd=above.fd if above else None)
        except OSError as error:
            self.tell(path, error)
            return
        try:
            with os.scandir(fd) as listing:
                for entry in listing:
                    if entry.is_dir(follow_symlinks=False):
                        left.append(f"{entry.name}/")
                    elif entry.is_file(follow_symlinks=False):
                        left.append(entry.name)
        except OSError as error:
            self.tell(path, error)
        left.sort(reverse=True)
        scopes: _Scopes = above.scopes if above else ((),) * len(IGNORE_FILES)
        if not self._ignored:
            scopes = tuple(
                (*self._read_scope(fd, path, file), *outer)
                for file, outer in zip(IGNORE_FILES, scopes, strict=True)
            )
        levels.append(_Level(fd, path, left, scopes))

    def _read_scope(self, fd: int, folder: str, file: str) -> Iterator[_Scope]:
        """What an ignore file in a directory says, if there is one."""
        try:
            data = _read_below(fd, file, MAX_RULES_BYTES + 1)
        except OSError as error:
            self.tell(folder + file, error)
            return
        rules: list[Rule] = []
        if len(data) <= MAX_RULES_BYTES:
            rules = list(read_rules(data.decode("utf-8", "surrogateescape")))
        if len(data) > MAX_RULES_BYTES or len(rules) > MAX_RULES:
            self._note(
                f"{folder + file!r} is ignored: it has more than {MAX_RULES:,} rules or "
                f"{human_size(MAX_RULES_BYTES)}"
            )
        elif rules:
            yield _Scope(Rules(rules, from_file=True), len(folder))

    def tell(self, path: str, error: OSError) -> None:
        """Notes that something could not be read, unless it just went away."""
        if error.errno not in _SWAPPED:
            self._note(f"{path!r} cannot be read: {os.strerror(error.errno or 0)}")


def open_file(directory: int | None, name: str) -> io.BufferedReader:
    """A regular file. Raises `OSError` for a link and for anything else; never blocks."""
    raw = io.FileIO(os.open(name, _FILE, dir_fd=directory))
    file: io.BufferedReader = io.BufferedReader(raw, BLOCK)
    if stat.S_ISREG(os.fstat(file.fileno()).st_mode):
        return file
    file.close()
    raise OSError(errno.ENXIO, os.strerror(errno.ENXIO))


def _read_below(directory: int, path: str, max_bytes: int) -> bytes:
    """The beginning of a file. No component of its path may be a link."""
    parent, _, rest = path.partition("/")
    if not rest:
        with open_file(directory, path) as file:
            return file.read(max_bytes)
    fd = os.open(parent, _DIRECTORY, dir_fd=directory)
    try:
        return _read_below(fd, rest, max_bytes)
    finally:
        os.close(fd)


class Grep:
    """Looks for an expression in one file after the other, and prints the lines."""

    def __init__(self, request: Request, out: BinaryIO) -> None:
        self._request = request
        self._out = out
        self._pattern = compile_pattern(request)
        # `$` also matches before a CRLF, unless the pattern is about line ends itself.
        self._crlf = not re.search(r"[\r\n]|\\[rn]", request.pattern)
        self.found = False

    def search(self, path: bytes, file: io.BufferedReader) -> None:
        """Prints what is found in a file. Raises `ToolInputError` if it is too large for that."""
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
                self._out.write(b"%b\0%d%b%b\n" % (path, at, sign, _cut(text)))
                self.found = True
                last = at
            earlier.clear()
            until = number + context if is_hit else until
        if count and output != "content":
            self.found = True
            self._out.write(path + (b"\0%d\n" % count if output == "count" else b"\0"))

    def _judge(self, file: io.BufferedReader) -> Iterator[tuple[bytes, bool]]:
        """The lines of a file that is text, and whether each is on a match."""
        text = _as_utf8(file)
        if text is None:
            return
        if self._request.multiline:
            data = _read_whole(text)
            hits = set(self._find_across(data.decode("utf-8", "surrogateescape")))
            lines = data.removesuffix(b"\n").split(b"\n")
            yield from ((line, at in hits) for at, line in enumerate(lines))
            return
        search = self._pattern.search
        for line in _read_lines(text):
            decoded = line.decode("utf-8", "surrogateescape")
            yield line, bool(search(decoded.removesuffix("\r") if self._crlf else decoded))

    def _find_across(self, text: str) -> Iterator[int]:
        """The lines that matches are on, from 0 on."""
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


def compile_pattern(request: Request) -> re.Pattern[str]:
    """What to look for, in the syntax of `re`. Raises `ToolInputError` when it has another."""
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


def _as_utf8(file: io.BufferedReader) -> BinaryIO | None:
    """The file without a byte order mark, or what is UTF-16 as UTF-8; None if it is not text."""
    head = file.peek()
    if head.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)):
        data = _read_whole(file).decode("utf-16", "replace").encode()
        return None if b"\0" in data[:BLOCK] else io.BytesIO(data)
    if head.startswith(codecs.BOM_UTF8):
        file.read(len(codecs.BOM_UTF8))
    return None if b"\0" in head else file


def _read_whole(file: BinaryIO) -> bytes:
    data = file.read(MAX_WHOLE + 1)
    if len(data) > MAX_WHOLE:
        raise ToolInputError(
            f"is larger than {human_size(MAX_WHOLE)}, the most that is searched across lines or as "
            "UTF-16"
        )
    return data


def _read_lines(file: BinaryIO) -> Iterator[bytes]:
    """The lines without their ends, as far as the file is text; of a long one the beginning."""
    is_start = True
    while (part := file.readline(MAX_READ)) and b"\0" not in part:
        if is_start:
            yield part.removesuffix(b"\n")
        is_start = part.endswith(b"\n")


def _cut(line: bytes) -> bytes:
    """As much of a line as is shown, cut between characters."""
    end = MAX_LINE
    while 0 < end < len(line) and line[end] & 0xC0 == 0x80:
        end -= 1
    return line[:end]


def _parse(data: str) -> Request:
    try:
        request = Request(**json.loads(data))
    except (ValueError, TypeError) as error:
        raise ToolInputError(f"invalid request: {error}") from None
    if request.op not in get_args(Op) or request.output not in get_args(Output):
        raise ToolInputError(f"invalid request: {request.op!r} for {request.output!r}")
    return request


def _find(target: str, walk: Walk) -> Iterator[Found]:
    if target == ".":
        yield from walk.files()
        return
    name = target.removeprefix("./")
    if name == target or "/" in name or name in ("", ".", ".."):
        raise ToolInputError(f"{target!r} is not a name in the directory that is searched")
    try:
        mode = os.stat(name, follow_symlinks=False).st_mode
    except OSError as error:
        raise ToolInputError(f"{target!r} cannot be read: {error.strerror}") from None
    if not stat.S_ISREG(mode):
        raise ToolInputError(f"{target!r} is not a regular file")
    yield Found(target, None, name)


def run(request: Request, out: BinaryIO, note: Note) -> bool:
    """Searches, and prints what is found; whether that is anything."""
    walk = Walk(request, note)
    grep = Grep(request, out) if request.op == "grep" else None
    found = False
    for path, directory, name in _find(request.target, walk):
        shown = os.fsencode(path)
        if grep is None:
            out.write(shown + b"\0")
            found = True
            continue
        try:
            with open_file(directory, name) as file:
                grep.search(shown, file)
        except BrokenPipeError:
            raise
        except OSError as error:
            walk.tell(path, error)
        except ToolInputError as error:
            note(f"{path!r} {error}")
        out.flush()
    return grep.found if grep else found


def main() -> int:
    """Does what the arguments say; the exit status."""
    warnings.simplefilter("ignore")  # those of `re` would pass for a breakdown
    # Every directory on the way down is open; where there can be no more, that is noted.
    most = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    with suppress(OSError, ValueError):
        resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))
    notes = 0

    def note(text: str) -> None:
        nonlocal notes
        notes += 1
        if notes <= MAX_NOTES:
            print(f"note: {text}", file=sys.stderr)

    try:
        with os.fdopen(os.dup(sys.stdout.fileno()), "wb", BUFFERED) as out:
            found = run(_parse("".join(sys.argv[1:])), out, note)
    except ToolInputError as error:
        print(error, file=sys.stderr)
        return 2
    except BrokenPipeError:
        return 1
    if notes > MAX_NOTES:
        print(f"note: and {notes - MAX_NOTES:,} more like these", file=sys.stderr)
    return 0 if found else 1


if __name__ == "__main__":
    sys.exit(main())
