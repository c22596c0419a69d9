"""A program that searches the working directory, for hosts without ripgrep or without Landlock.

One JSON object on standard input says what to look for. What comes out is what
`rg --no-heading --with-filename --line-number --null --color never` prints, ordered by path. It
ends with 0 if something was found, 1 if not, and 2 after a line that says why it cannot search.
Lines that begin with `note: ` say what was left out.

An expression can take forever: whoever starts this program has to be ready to kill it.
"""

from __future__ import annotations

import codecs
import json
import os
import re
import stat
import sys
from collections.abc import Callable, Iterator
from typing import Any, Literal, NamedTuple, get_args

from clawkit.errors import ToolInputError
from clawkit.fs.search.glob import compile_glob
from clawkit.fs.search.ignore import Choice, Found, Rule, Rules, Walk, open_file
from clawkit.fs.search.regex import compile_regex
from clawkit.text import human_size

BLOCK = 64 * 1024
MAX_LINE = 1024 * 1024
"""Bytes of a line that are looked at; the rest of it is passed over."""
MAX_WHOLE = 64 * 1024 * 1024
"""Bytes of a file that can be searched across lines."""
MAX_NOTES = 20
KEEP = 4 * 1024
"""Bytes of output that may wait, and that are lost when the program is killed."""

_UTF16 = {codecs.BOM_UTF16_LE: "utf-16-le", codecs.BOM_UTF16_BE: "utf-16-be"}


Op = Literal["grep", "files"]
Shape = Literal["content", "files", "count"]


class Request(NamedTuple):
    """What is asked for; the keys of the JSON object are these names in camelCase."""

    op: Op
    pattern: str = ""
    literal: bool = False
    ignore_case: bool = False
    multiline: bool = False
    before: int = 0
    after: int = 0
    """Lines around each hit."""
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
            sys.exit(1)  # nobody listens any more


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

    def write(self, lines: list[str], first: int, hits: list[int]) -> None:
        """Goes on with lines of which the first has the number `first`; hits are numbers too."""
        for hit in hits:
            start = max(self._last + 1, first, hit - self._request.before)
            for number in range(self._last + 1, min(self.until + 1, start)):
                self._write_line(number, b"-", lines[number - first])
            for number in range(start, hit):
                self._write_line(number, b"-", lines[number - first])
            self._write_line(hit, b":", lines[hit - first])
            self.until = hit + self._request.after
        for number in range(self._last + 1, min(self.until + 1, first + len(lines))):
            self._write_line(number, b"-", lines[number - first])

    def _write_line(self, number: int, mark: bytes, line: str) -> None:
        apart = number > self._last + 1 if self._last else self._out.anything
        if apart and (self._request.before or self._request.after):
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
        self._regex = compile_regex(
            request.pattern,
            literal=request.literal,
            ignore_case=request.ignore_case,
            multiline=request.multiline,
        )
        self._out = out

    def search(self, path: bytes, fd: int) -> None:
        """Writes what is found in a file. Raises `ToolInputError` if it is too large for that."""
        if self._request.output == "content":
            self._write_content(path, fd)
            return
        count = 0
        for text in self._texts(fd):
            for _ in self._hits(text):
                count += 1
                if self._request.output == "files":
                    self._out.write(path + b"\0")
                    return
        if count:
            self._out.write(b"%b\0%d\n" % (path, count))

    def _write_content(self, path: bytes, fd: int) -> None:
        before = self._request.before
        page = Page(path, self._request, self._out)
        number = 1
        earlier: list[str] = []
        for text in self._texts(fd):
            hits = sorted({number + at for hit in self._hits(text) for at in hit})
            if hits or before or page.until >= number:
                lines = earlier + self._split(text)
                page.write(lines, number - len(earlier), hits)
                earlier = lines[-before:] if before else []
            number += text.count("\n") + 1

    def _hits(self, text: str) -> Iterator[range]:
        """The lines of each match, from 0 on. Matches that stay in one line count once for it."""
        if self._regex.whole:
            yield from self._matches(text)
            return
        at = line = 0
        while match := self._regex.pattern.search(text, at):
            line += text.count("\n", at, match.start())
            yield range(line, line + 1)
            at = text.find("\n", match.start()) + 1
            if not at:
                return
            line += 1

    def _matches(self, text: str) -> Iterator[range]:
        at = line = 0
        for match in self._regex.pattern.finditer(text):
            start, end = match.span()
            if start == len(text) and text[-1:] in ("", "\n"):
                return  # what comes after the last line break is no line
            line += text.count("\n", at, start)
            at = start
            yield range(line, line + 1 + text.count("\n", start, max(start, end - 1)))

    def _split(self, text: str) -> list[str]:
        return (text.removesuffix("\n") if self._regex.whole else text).split("\n")

    def _texts(self, fd: int) -> Iterator[str]:
        """The whole file, or pieces of it that end before a line break, each one or more lines."""
        pieces = (_read_whole(fd),) if self._regex.whole else _read_lines(fd)
        for piece in pieces:
            yield piece.decode("utf-8", "surrogateescape")


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
        fields: dict[str, Any] = json.loads(data)
        request = Request(
            **{re.sub("[A-Z]", r"_\g<0>", key).lower(): fields[key] for key in fields}
        )
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
        raise ToolInputError(f"{target!r} is no file")
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
