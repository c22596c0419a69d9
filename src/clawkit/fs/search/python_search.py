"""A program that searches the working directory, for hosts without ripgrep or without Landlock.

One JSON object on standard input says what to look for. What comes out is what
`rg --no-heading --with-filename --line-number --null --color never` prints, ordered by path. It
ends with 0 if something was found, 1 if not, and 2 after a line that says why it cannot search.
Lines that begin with `note: ` say what was left out. Patterns are those of `re`, so one can run
forever: the caller must be ready to kill this program.

No link is followed and no path is resolved twice: every directory is opened by its name from the
handle of its parent, so nothing outside the first one is ever read, whatever is moved meanwhile.
"""

from __future__ import annotations

import codecs
import errno
import json
import os
import re
import stat
import sys
import warnings
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from io import FileIO
from typing import Literal, NamedTuple, get_args

from clawkit.errors import ToolInputError
from clawkit.fs.search.globs import Rule, Rules, compile_glob, read_rules
from clawkit.text import human_size, one_line

BLOCK = 64 * 1024
MAX_LINE = 1024 * 1024
"""Bytes of a line that are looked at; the rest of it is passed over."""
MAX_WHOLE = 64 * 1024 * 1024
"""Bytes of a file that can be searched across lines."""
MAX_NOTES = 20
KEEP = 4 * 1024
"""Bytes of output that may wait, and that are lost when the program is killed."""

# A line break in an expression, outside of a class: `[^\n]` is what every character of a line is.
_LINE_BREAK = re.compile(r"(?:\\[^n]|\[(?:\\.|[^\\\]])*+\]|[^\\\n])*+(?:\\n|\n)", re.DOTALL)
_UTF16 = {codecs.BOM_UTF16_LE: "utf-16-le", codecs.BOM_UTF16_BE: "utf-16-be"}

MAX_FILE_BYTES = 4 * 1024 * 1024
MAX_PATTERNS = 20_000
MAX_OPEN = 32
"""Directories kept open; the others of a deep tree are opened again on the way back."""

IGNORE_FILES = (".rgignore", ".ignore", ".gitignore", ".git/info/exclude")
"""The first that has something to say decides, whichever directory it is in."""

_DIRECTORY = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
_FILE = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC
_SWAPPED = frozenset({errno.ENOENT, errno.ENOTDIR, errno.ELOOP, errno.ENXIO})

Op = Literal["grep", "files"]
Shape = Literal["content", "files", "count"]


class Request(NamedTuple):
    """What is asked for."""

    op: Op
    pattern: str = ""
    literal: bool = False
    ignore_case: bool = False
    multiline: bool = False
    context: int = 0
    """Lines before and after each hit."""
    output: Shape = "content"
    types: list[str] | None = None
    """Globs for base names, of which one has to fit."""
    globs: list[str] | None = None
    """Files and directories to leave out; each begins with `!`."""
    ignored: bool = False
    max_columns: int = 0
    """Bytes of a line that are shown; 0 for all."""
    target: str = "."
    """`.`, or `./name` for one file in it, which is then wanted in any case."""


class Choice(NamedTuple):
    """Which files of a tree are wanted. Git's own directory never is."""

    excluded: Rules
    """Relative to where the walk begins; directories that they fit are not entered."""
    types: tuple[re.Pattern[str], ...] = ()
    """Of which one has to match the base name, if there are any."""
    ignored: bool = False
    """Ignore files are not looked at."""


class Found(NamedTuple):
    """A file, and the handle of its directory, which is open until the walk goes on."""

    path: str
    directory: int | None
    """None for the working directory."""
    name: str


class _Scope(NamedTuple):
    """An ignore file, and the next of its kind further up."""

    rules: Rules
    start: int
    """Where paths relative to its directory begin."""
    outer: _Scope | None


_Scopes = tuple[_Scope | None, ...]


class _Level:
    """A directory that the walk is in."""

    __slots__ = ("end", "fd", "left", "name", "scopes")

    def __init__(self, name: str, fd: int, left: list[str], end: int, scopes: _Scopes) -> None:
        self.name = name
        self.fd = fd
        """-1 while it is closed."""
        self.left = left
        """Names yet to come, the next one last; directories end in a slash."""
        self.end = end
        """Where its path ends, with the slash."""
        self.scopes = scopes


class Walk:
    """The wanted files of the working directory, in the order of their paths."""

    def __init__(self, choice: Choice, note: Callable[[str], None]) -> None:
        self._choice = choice
        self._note = note
        self._levels: list[_Level] = []
        self._open: deque[_Level] = deque()
        self._path = "./"

    def files(self) -> Iterator[Found]:
        self._enter(".", None)
        while self._levels:
            level = self._levels[-1]
            if not level.left:
                self._leave()
            elif level.fd < 0:
                self._open_again()
            else:
                name = level.left.pop()
                path = self._path + name
                if not self._wants(path, level.scopes):
                    continue
                if name.endswith("/"):
                    self._enter(name[:-1], level)
                else:
                    yield Found(path, level.fd, name)

    def _wants(self, path: str, scopes: _Scopes) -> bool:
        directory = path.endswith("/")
        path = path.removesuffix("/")
        name = path[path.rfind("/") + 1 :]
        excluded, types, _ = self._choice
        if name == ".git" or excluded.keeps(path, len("./"), directory=directory) is False:
            return False
        if _is_kept(path, scopes, directory) is False:
            return False
        return directory or not types or any(each.match(name) for each in types)

    def _enter(self, name: str, above: _Level | None) -> None:
        path = f"{self._path}{name}/" if above else self._path
        try:
            fd = os.open(name, _DIRECTORY, dir_fd=above.fd if above else None)
        except OSError as error:
            self.tell(path, error)
            return
        entries: list[str] = []
        try:
            with os.scandir(fd) as listing:
                for entry in listing:
                    if entry.is_dir(follow_symlinks=False):
                        entries.append(f"{entry.name}/")
                    elif entry.is_file(follow_symlinks=False):
                        entries.append(entry.name)
        except OSError as error:
            self.tell(path, error)
        entries.sort(reverse=True)
        scopes: _Scopes = above.scopes if above else (None,) * len(IGNORE_FILES)
        level = _Level(name, fd, entries, len(path), scopes)
        self._path = path
        self._levels.append(level)
        if above:
            self._hold(level)
        if not self._choice.ignored:
            level.scopes = tuple(map(partial(self._read_scope, level), IGNORE_FILES, scopes))

    def _read_scope(self, level: _Level, file: str, outer: _Scope | None) -> _Scope | None:
        try:
            data = _read_below(level.fd, file, MAX_FILE_BYTES + 1)
        except OSError as error:
            self.tell(self._path + file, error)
            return outer
        rules: list[Rule] = []
        if len(data) <= MAX_FILE_BYTES:
            rules = list(read_rules(data.decode("utf-8", "surrogateescape")))
            if len(rules) <= MAX_PATTERNS:
                return _Scope(Rules(rules, from_file=True), level.end, outer) if rules else outer
        self._note(
            f"{self._path + file!r} is not followed: it has more than {MAX_PATTERNS:,} rules or "
            f"{human_size(MAX_FILE_BYTES)}"
        )
        return outer

    def tell(self, path: str, error: OSError) -> None:
        """Notes that something could not be read, unless it just went away."""
        if error.errno not in _SWAPPED:
            self._note(f"{path!r} cannot be read: {os.strerror(error.errno or 0)}")

    def _leave(self) -> None:
        level = self._levels.pop()
        if self._open and self._open[-1] is level:
            self._open.pop()
        if level.fd >= 0:
            os.close(level.fd)
        self._path = self._path[: self._levels[-1].end] if self._levels else ""

    def _hold(self, level: _Level) -> None:
        self._open.append(level)
        if len(self._open) > MAX_OPEN:
            shallowest = self._open.popleft()
            os.close(shallowest.fd)
            shallowest.fd = -1

    def _open_again(self) -> None:
        """Opens the innermost directory from the first one on; leaves those that are gone."""
        fd = self._levels[0].fd
        for depth, level in enumerate(self._levels[1:], 1):
            try:
                fd = level.fd = os.open(level.name, _DIRECTORY, dir_fd=fd)
            except OSError as error:
                self.tell(self._path[: level.end], error)
                del self._levels[depth:]
                self._path = self._path[: self._levels[-1].end]
                return
            self._hold(level)


def _is_kept(path: str, scopes: _Scopes, directory: bool) -> bool | None:
    for scope in scopes:
        while scope is not None:
            kept = scope.rules.keeps(path, scope.start, directory=directory)
            if kept is not None:
                return kept
            scope = scope.outer
    return None


def open_file(directory: int | None, name: str) -> FileIO:
    """A regular file. Raises `OSError` for a link and for anything else; never blocks."""
    file = FileIO(os.open(name, _FILE, dir_fd=directory))
    if stat.S_ISREG(os.fstat(file.fileno()).st_mode):
        return file
    file.close()
    raise OSError(errno.ENXIO, os.strerror(errno.ENXIO))


def _read_below(directory: int, path: str, max_bytes: int) -> bytes:
    """The beginning of a file, at most `max_bytes`. No component of its path may be a link."""
    *parents, name = path.split("/")
    opened: list[int] = []
    try:
        for parent in parents:
            directory = os.open(parent, _DIRECTORY, dir_fd=directory)
            opened.append(directory)
        with open_file(directory, name) as file:
            return file.read(max_bytes) or b""
    finally:
        for fd in opened:
            os.close(fd)


class Output:
    """Writes to a handle, in large pieces."""

    def __init__(self, fd: int) -> None:
        self.anything = False
        self._fd = fd
        self._kept = bytearray()

    def write(self, data: bytes) -> None:
        self.anything = True
        self._kept += data
        if len(self._kept) > KEEP:
            self.flush()

    def flush(self) -> None:
        try:
            while self._kept:
                del self._kept[: os.write(self._fd, self._kept)]
        except BrokenPipeError:
            sys.exit(1)  # the reader has gone


class Notes:
    """Standard error: the first few notes, and how many more there were."""

    def __init__(self) -> None:
        self._count = 0

    def add(self, text: str) -> None:
        self._count += 1
        if self._count <= MAX_NOTES:
            print(f"note: {text}", file=sys.stderr)

    def close(self) -> None:
        if self._count > MAX_NOTES:
            print(f"note: and {self._count - MAX_NOTES:,} more like these", file=sys.stderr)


class Page:
    """Writes the hits in one file, with the lines around them."""

    def __init__(self, path: bytes, request: Request, out: Output) -> None:
        self.until = 0
        """The last line that is to be shown even without another hit."""
        self._path = path
        self._request = request
        self._out = out
        self._last = 0

    def write(self, lines: Sequence[str], first: int, hits: Sequence[int]) -> None:
        """Goes on with lines of which the first has the number `first`; hits are numbers too."""
        context = self._request.context
        for hit in hits:
            for number in range(max(self._last + 1, first), hit):
                if number <= self.until or number >= hit - context:
                    self._write_line(number, b"-", lines[number - first])
            self._write_line(hit, b":", lines[hit - first])
            self.until = hit + context
        for number in range(max(self._last + 1, first), min(self.until + 1, first + len(lines))):
            self._write_line(number, b"-", lines[number - first])

    def _write_line(self, number: int, mark: bytes, line: str) -> None:
        apart = number > self._last + 1 if self._last else self._out.anything
        if apart and self._request.context:
            self._out.write(b"--\n")
        self._last = number
        data = line.encode("utf-8", "surrogateescape")
        end = self._request.max_columns
        if 0 < end < len(data):
            while end and data[end] & 0xC0 == 0x80:
                end -= 1
            data = data[:end]
        self._out.write(b"%b\0%d%b%b\n" % (self._path, number, mark, data))


class Grep:
    """Looks for an expression in one file after the other."""

    def __init__(self, request: Request, out: Output) -> None:
        self._request = request
        self._pattern = compile_pattern(request)
        # `$` also matches before a CRLF, unless the pattern is about line ends itself.
        self._crlf = not re.search(r"[\r\n]|\\[rn]", request.pattern)
        self._out = out

    def search(self, path: bytes, fd: int) -> None:
        """Writes what is found in a file. Raises `ToolInputError` if it is too large for that."""
        output, context = self._request.output, self._request.context
        page = Page(path, self._request, self._out)
        number, count = 1, 0
        earlier: list[str] = []
        for text in self._read(fd):
            multiline = self._request.multiline
            lines = (text.removesuffix("\n") if multiline else text).split("\n")
            hits = self._find_across(text) if multiline else self._find(lines)
            count += len(hits)
            if hits and output == "files":
                self._out.write(path + b"\0")
                return
            if output == "content" and (hits or context or page.until >= number):
                known = len(earlier)
                shown = earlier + lines if known else lines
                page.write(shown, number - known, [number + hit for hit in hits])
                earlier = shown[-context:] if context else []
            number += len(lines)
        if count and output == "count":
            self._out.write(b"%b\0%d\n" % (path, count))

    def _read(self, fd: int) -> Iterator[str]:
        """The whole file, or pieces of it that end before a line break, each one or more lines."""
        pieces = (_read_whole(fd),) if self._request.multiline else _read_lines(fd)
        for piece in pieces:
            yield piece.decode("utf-8", "surrogateescape")

    def _find(self, lines: Sequence[str]) -> list[int]:
        if self._crlf:
            lines = [line.removesuffix("\r") for line in lines]
        search = self._pattern.search
        return [at for at, line in enumerate(lines) if search(line)]

    def _find_across(self, text: str) -> list[int]:
        """The lines that matches are on, from 0 on."""
        if self._crlf:
            text = text.replace("\r\n", "\n")
        found: dict[int, None] = {}
        at = line = 0
        for match in self._pattern.finditer(text):
            start, end = match.span()
            if start == len(text) and text[-1:] in ("", "\n"):
                break  # there is no line after the last line break
            line += text.count("\n", at, start)
            at = start
            last = line + text.count("\n", start, max(start, end - 1))
            found |= dict.fromkeys(range(line, last + 1))
        return list(found)


def compile_pattern(request: Request) -> re.Pattern[str]:
    """What to look for, in the syntax of `re`. Raises `ToolInputError` when it has another."""
    pattern = request.pattern
    if not request.multiline and (
        "\n" in pattern if request.literal else _LINE_BREAK.match(pattern)
    ):
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


def _read_whole(fd: int) -> bytes:
    data = bytearray()
    for block in _read_blocks(fd):
        data += block
        if len(data) > MAX_WHOLE:
            raise ToolInputError(
                f"is larger than {human_size(MAX_WHOLE)}, too large for a search across lines"
            )
    return bytes(data)


def _read_lines(fd: int) -> Iterator[bytes]:
    rest = b""
    passing = False
    for block in _read_blocks(fd):
        if b"\0" in block:
            return
        if passing:
            _, found, block = block.partition(b"\n")
            if not found:
                continue
            passing = False
        lines, found, end = block.rpartition(b"\n")
        if found:
            yield rest + lines
            rest = end
        else:
            rest += end
        if len(rest) > MAX_LINE:
            yield rest[:MAX_LINE]
            rest, passing = b"", True
    if rest:
        yield rest


def _read_blocks(fd: int) -> Iterator[bytes]:
    """The file as UTF-8; nothing if it does not begin like a text."""
    block = os.read(fd, BLOCK)
    encoding = _UTF16.get(block[:2])
    decoder = codecs.getincrementaldecoder(encoding)("replace") if encoding else None
    block = block.removeprefix(codecs.BOM_UTF8)[2 if encoding else 0 :]
    first = True
    while block:
        text = decoder.decode(block).encode() if decoder else block
        if first and b"\0" in text:
            return
        first = False
        yield text
        block = os.read(fd, BLOCK)
    if decoder:
        yield decoder.decode(b"", True).encode()


def _parse(data: bytes) -> Request:
    try:
        request = Request(**json.loads(data))
    except (ValueError, TypeError) as error:
        raise ToolInputError(f"this is not a request: {error}") from None
    if request.op not in get_args(Op) or request.output not in get_args(Shape):
        raise ToolInputError(f"this is not a request: {request.op!r} for {request.output!r}")
    return request


def _choose(request: Request) -> Choice:
    rules = []
    for glob in request.globs or ():
        if not glob.startswith("!"):
            raise ToolInputError(f"{glob!r} says what to search, not what to leave out")
        rules.append(Rule(False, glob.endswith("/"), glob[1:].removesuffix("/")))
    types = tuple(map(compile_glob, request.types or ()))
    return Choice(Rules(rules, from_file=False), types, request.ignored)


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


def run(request: Request, out: Output, note: Callable[[str], None]) -> None:
    """Searches, and writes what is found."""
    walk = Walk(_choose(request), note)
    grep = Grep(request, out) if request.op == "grep" else None
    for path, directory, name in _find(request.target, walk):
        shown = os.fsencode(path)
        if grep is None:
            out.write(shown + b"\0")
            continue
        try:
            with open_file(directory, name) as file:
                grep.search(shown, file.fileno())
        except OSError as error:
            walk.tell(path, error)
        except ToolInputError as error:
            note(f"{path!r} {error}")
        out.flush()


def main() -> int:
    """Does what standard input says; the exit status."""
    warnings.simplefilter("ignore")  # those of `re` would pass for a breakdown
    out, notes = Output(sys.stdout.fileno()), Notes()
    try:
        run(_parse(sys.stdin.buffer.read()), out, notes.add)
    except ToolInputError as error:
        print(error, file=sys.stderr)
        return 2
    out.flush()
    notes.close()
    return 0 if out.anything else 1


if __name__ == "__main__":
    sys.exit(main())
