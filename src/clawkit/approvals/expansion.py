"""What words, redirections and program names stand for: files, interpreters, directories, text."""

from __future__ import annotations

import os
import re
import stat
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from functools import lru_cache
from typing import Any, NamedTuple, TypeVar, assert_never

from clawkit.approvals.shell_words import Glob, Redirect, Text, Tilde, Variable, Word, quote
from clawkit.approvals.types import Doubt, FileUse
from clawkit.text import one_line

MAX_LOOKS = 500
"""Different files that are looked for. Each costs system calls, and a command can name thousands
of them."""
MAX_SCRIPTS = 4
"""Scripts that are run by scripts; the kernel follows no more either."""

_MAX_PATH = 4096
"""Characters of a path that is followed; the system takes no longer one."""
_HEAD = 256
_LOADER = re.compile(
    r"ld-linux.*|ld-musl.*|ld-uclibc.*|ld\.so.*|ld64\.so.*|ld-.*\.so(?:\..*)?"
    r"|libc\.so|libc\.musl-.*|linker(?:64)?",
    re.IGNORECASE | re.DOTALL,
)


T = TypeVar("T")
_SEEN: ContextVar[dict[tuple[Callable[[str], Any], str], Any] | None] = ContextVar(
    "_SEEN", default=None
)


class Found(NamedTuple):
    """What the name of a program leads to; empty when there is none."""

    resolved: str = ""
    real: str = ""
    script: tuple[str, ...] = ()

    def names(self, typed: str) -> frozenset[str]:
        """The names it goes by: as it was written, and where that leads."""
        name = typed.rpartition("/")[2]
        if not self.resolved:
            return frozenset((name,))
        return frozenset((name, self.resolved.rpartition("/")[2], self.real.rpartition("/")[2]))


class Finder:
    """Looks for the files of one command, each of them once."""

    def __init__(self, env: Mapping[str, str]) -> None:
        """Of the environment only PATH counts."""
        path = env.get("PATH", "")
        self._folders = _folders(path) if "/.." in path else _plain_folders(path)
        self._programs: dict[tuple[str, str | None], Found] = {}
        self._places: dict[str, str] = {}
        self._looks = 0

    def program(self, name: str, cwd: str | None, at: int) -> Found:
        """What a program's name means to the shell. Raises `Doubt` where that is not certain."""
        key = (name, cwd if "/" in name else "")
        found = self._programs.get(key)
        if found is None:
            self.count(at)
            found = self._programs[key] = self._find(name, cwd, at)
        return found

    def place(self, path: str, cwd: str | None, at: int) -> str:
        """A path from the root on, without dots. Raises `Doubt` when it depends on what else
        happens, or on links."""
        whole = self._join(path, cwd)
        if whole is None:
            raise Doubt(
                f"cannot determine which directory {one_line(path, 40)!r} is relative to; use an "
                "absolute path, or && after cd",
                at,
                "cwd",
            )
        place = self._places.get(whole)
        if place is None:
            self.count(at)
            place = self._places[whole] = settle(whole)
        if not place:
            raise Doubt(
                f"{one_line(path, 40)!r} may mean another file once its links are followed; "
                "write it without ..",
                at,
                "path",
            )
        return place

    def directory(self, path: str, cwd: str | None, at: int) -> tuple[str | None, bool]:
        """Where `cd` leads, None if that is not certain, and whether it can fail."""
        whole = self._join(path, cwd)
        if whole is None:
            return None, True
        self.count(at)
        place = settle(whole)
        return place or None, not (os.path.isdir(whole) and os.access(whole, os.X_OK))

    def count(self, at: int) -> None:
        """Note that the file system is asked. Raises `Doubt` when it was too often."""
        self._looks += 1
        if self._looks > MAX_LOOKS:
            raise Doubt(f"it names more than {MAX_LOOKS:,} programs and files", at, "long")

    @staticmethod
    def _join(path: str, cwd: str | None) -> str | None:
        if path.startswith("/"):
            return path
        return None if cwd is None else f"{cwd}/{path}"

    def _find(self, name: str, cwd: str | None, at: int) -> Found:
        if "/" in name:
            resolved = self.place(name, cwd, at)
            # The name as it is: one that ends in a slash is not found, whatever it would be else.
            path = self._join(name, cwd) or ""
            if not (os.access(path, os.X_OK) and os.path.isfile(path)):
                resolved = ""
        else:
            resolved = self._search(name)
        real = follow(resolved) if resolved else ""
        for path in dict.fromkeys((name, resolved, real)):
            _refuse_loader(path, at)
        return Found(resolved, real, self._script(real, at) if resolved else ())

    def _search(self, name: str) -> str:
        access, executable = os.access, os.X_OK
        for folder in self._folders:
            path = f"{folder}/{name}"
            if access(path, executable) and os.path.isfile(path):
                return path
        return ""

    def _script(self, real: str, at: int, depth: int = 1) -> tuple[str, ...]:
        head = _read_head(real)
        if not head.startswith(b"#!"):
            return ()
        if depth > MAX_SCRIPTS:
            raise _unclear(real, "its interpreters are scripts themselves", at)
        line, ended, _ = head[2:].partition(b"\n")
        if (not ended and len(head) == _HEAD) or not line.isascii() or b"\0" in line:
            raise _unclear(real, "its first line cannot be read", at)
        path, _, argument = line.decode("ascii").strip(" \t").replace("\t", " ").partition(" ")
        if not path.startswith("/") or "\r" in line.decode("ascii"):
            raise _unclear(real, "its first line names no interpreter by an absolute path", at)
        started = [self.place(path, None, at)]
        reals = [follow(started[0])]
        if "env" in Found(started[0], reals[0]).names(path):
            inner = self._of_env(real, argument.strip(), at)
            started.append(inner)
            reals.append(follow(inner))
        for each in (path, *started, *reals):
            _refuse_loader(each, at)
        nested = [name for each in reals for name in self._script(each, at, depth + 1)]
        return (*started, *nested)

    def _of_env(self, script: str, argument: str, at: int) -> str:
        if not re.fullmatch(r"[A-Za-z0-9_.+][A-Za-z0-9_.+-]*", argument):
            raise _unclear(script, "its first line gives env more than the name of a program", at)
        found = self._search(argument)
        if not found:
            raise _unclear(script, f"its interpreter {argument} is not in PATH", at)
        return found


def _folders(path: str) -> tuple[str, ...]:
    """The directories of PATH, as far as it does not matter where the command runs."""
    folders = (each for each in path.split(":") if each.startswith("/") and "\0" not in each)
    return tuple((settle(each) or os.path.realpath(each)).rstrip("/") for each in folders)


# Without dots, no link can make them others.
_plain_folders = lru_cache(maxsize=16)(_folders)


def settle(whole: str) -> str:
    """An absolute path without dots and doubled slashes; empty if links could make it another
    file."""
    if "//" not in whole and "/." not in whole and not whole.endswith("/"):
        return whole
    place = "/" + os.path.normpath(whole).lstrip("/")
    if "/.." not in whole:
        return place
    if len(whole) > _MAX_PATH or os.path.realpath(whole) != os.path.realpath(place):
        return ""
    return place


@contextmanager
def one_look() -> Iterator[None]:
    """While it lasts, nothing is looked at twice: a verdict is about one state of the files."""
    token = _SEEN.set({})
    try:
        yield
    finally:
        _SEEN.reset(token)


def once(look: Callable[[str], T], path: str) -> T:
    """What a look at a path tells, or told during the same `OneLook`."""
    seen = _SEEN.get()
    if seen is None:
        return look(path)
    key = look, path
    if key not in seen:
        seen[key] = look(path)
    found: T = seen[key]
    return found


def follow(path: str) -> str:
    """`os.path.realpath` of an absolute path, in less time where nothing is a link."""
    if len(path) > _MAX_PATH:
        return os.path.normpath(path)
    if "//" in path or "/." in path or path[-1:] == "/":
        return os.path.realpath(path)
    folder, _, name = path.rpartition("/")
    whole = f"{once(_follow_folder, folder)}/{name}"
    return os.path.realpath(whole) if _is_link(whole) else whole


def _follow_folder(folder: str) -> str:
    place = folder
    while place:
        if _is_link(place):
            return os.path.realpath(folder).rstrip("/")
        place = place.rpartition("/")[0]
    return folder


def _is_link(path: str) -> bool:
    try:
        return stat.S_ISLNK(os.lstat(path).st_mode)
    except OSError:
        return False


def _read_head(path: str) -> bytes:
    """The first bytes of a file; none if it cannot be read, as no interpreter could then."""
    try:
        file = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK | os.O_NOCTTY)
        try:
            return os.read(file, _HEAD)
        finally:
            os.close(file)
    except OSError:
        return b""


def _refuse_loader(path: str, at: int) -> None:
    name = path.rpartition("/")[2]
    if name[:2].lower() in ("ld", "li") and _LOADER.fullmatch(name):
        raise Doubt(
            f"{one_line(name, 40)!r} starts any file it is given; name the program itself",
            at,
            "loader",
        )


def _unclear(path: str, why: str, at: int) -> Doubt:
    return Doubt(f"cannot determine what runs {one_line(path, 80)!r}: {why}", at, "script")


MAX_CHARS = 256 * 1024
"""Of a rebuilt command: a loop that is written out can be much longer than it was."""

_PATTERN = re.compile(r"[*?]|\[[!^]?(?:[\w.,:=@%+-]|\[:[a-z]{1,10}:\])+\]")
# What the shell would take apart, or take for a pattern, where a variable stands without quotes.
_NOT_ONE_WORD = re.compile(r"[ \t\n*?\[\\]")

_HALVES = re.compile("[\ud800-\udfff]")


class Value(NamedTuple):
    """A word once its variables and the home directory are known."""

    text: str
    shown: str
    """For the shell: nothing in it is active but patterns."""
    glob: bool = False


class Meaning(NamedTuple):
    """What words may refer to."""

    variables: Mapping[str, str]
    home: str


def evaluate(word: Word, meaning: Meaning, code: str = "parameter") -> Value:
    """What a word stands for. Raises `Doubt`, with that code for a variable that is not known."""
    literal = word.literal
    if literal is not None:
        return Value(literal, quote(literal))
    texts: list[str] = []
    shown: list[str] = []
    for part in word.parts:
        match part:
            case Text(value):
                pass
            case Tilde():
                value = meaning.home
                if not value:
                    why = "the home directory for ~ is unknown"
                    raise Doubt(why, word.start, "tilde")
            case Variable():
                value = _variable(part, meaning, word, code)
            case Glob(value):
                if not _PATTERN.fullmatch(value):
                    raise Doubt("a pattern with unusual characters", word.start, "glob")
            case _:
                assert_never(part)
        texts.append(value)
        shown.append(value if isinstance(part, Glob) else quote(value))
    text = "".join(texts)
    glob = any(isinstance(part, Glob) for part in word.parts)
    return Value(text, "".join(shown) if glob else quote(text), glob)


def _variable(part: Variable, meaning: Meaning, word: Word, code: str) -> str:
    value, name = meaning.variables.get(part.name), one_line(part.name, 40)
    if value is None:
        raise Doubt(f"the value of ${name} is not known in advance", word.start, code)
    if not part.quoted and (not value or _NOT_ONE_WORD.search(value)):
        why = f'${name} could become several words; write "${name}" instead'
        raise Doubt(why, word.start, "parameter")
    return value


def quote_always(text: str) -> str:
    """Quoted even if it needs no quotes, so that it is no reserved word, option or assignment."""
    shown = quote(text)
    return f"'{text}'" if shown == text else shown


class Opened(NamedTuple):
    """What one redirection does."""

    shown: str
    file: FileUse | None = None
    is_text: bool = False
    body: str = ""

    @property
    def may_fail(self) -> bool:
        """Whether the shell could be unable to do it, and leave out the command."""
        return self.file is not None or self.is_text


class Rebuilt:
    """Collects the text of a command."""

    def __init__(self) -> None:
        self._parts: list[str] = []
        self._bodies: list[str] = []
        self._size = 0

    def put(self, text: str) -> None:
        if self._bodies and "\n" in text:
            # Not every shell waits for the end of a quoted text before it reads the document.
            raise Doubt("a here-document and a text of several lines on one line", 0, "heredoc")
        self._add(text)

    def end_line(self) -> None:
        """A new line, and on it the texts of the here-documents that began on the last one."""
        self._add("\n")
        for body in self._bodies:
            self._add(body)
        self._bodies.clear()

    def put_redirects(self, redirects: Iterable[Opened]) -> None:
        """Redirections after a command."""
        for each in redirects:
            self.put(f" {each.shown}")
            if each.body:
                self._bodies.append(each.body)

    def _add(self, text: str) -> None:
        self._size += len(text)
        if self._size > MAX_CHARS:
            raise Doubt("the command is too long with its loops expanded", 0, "long")
        self._parts.append(text)

    def finish(self) -> str:
        """All of it."""
        if self._bodies:
            self.end_line()
        text = "".join(self._parts)
        if not text.isascii() and _HALVES.search(text):
            raise Doubt("a directory has a name that is not UTF-8", 0, "path")
        return text


def redirect(node: Redirect, meaning: Meaning, cwd: str | None, finder: Finder) -> Opened:
    """The effect of a redirection. Raises `Doubt` for all that is not plain."""
    if node.fd not in (None, 0, 1, 2):
        raise Doubt(f"file descriptor {node.fd} is not tracked", node.start, "redirect")
    number = "" if node.fd is None else str(node.fd)
    if node.target is None:
        if node.fd not in (None, 0) or (node.body and not node.body.endswith("\n")):
            raise Doubt("this here-document is not understood", node.start, "redirect")
        return _here_document(node.body)
    value = evaluate(node.target, meaning)
    if value.glob:
        raise Doubt("a pattern decides where this goes", node.start, "redirect")
    match node.operator:
        case "<<<":
            if node.fd not in (None, 0):
                raise Doubt("this here-string is not understood", node.start, "redirect")
            return Opened(f"<<< {value.shown}", is_text=True)
        case "<&" | ">&":
            # Another handle as the standard input could be anything.
            to_input = node.fd == 0 or (node.fd is None and node.operator == "<&")
            if value.text not in ("0", "1", "2") or (to_input and value.text != "0"):
                raise Doubt(
                    "only file descriptors 0, 1 and 2 may be duplicated", node.start, "redirect"
                )
            return Opened(f"{number}{node.operator}{value.text}")
        case "&>" | "&>>" if node.fd is not None:
            raise Doubt(f"{number}{node.operator} is not understood", node.start, "redirect")
    return _open(node, f"{number}{node.operator}", value.text, finder, cwd)


def _here_document(body: str) -> Opened:
    lines = frozenset(body.split("\n"))
    number = 0
    while f"EOF{number}" in lines:
        number += 1
    return Opened(f"<<'EOF{number}'", is_text=True, body=f"{body}EOF{number}\n")


def _open(node: Redirect, operator: str, path: str, finder: Finder, cwd: str | None) -> Opened:
    if not path or path.endswith(("/", "/.")):
        raise Doubt("this redirection names no file", node.start, "redirect")
    place = finder.place(path, cwd, node.start)
    shown = f"{operator}{quote(place)}"
    if place == "/dev/null":
        return Opened(shown)
    if place.startswith(("/dev/", "/proc/")) or place in ("/dev", "/proc"):
        raise Doubt(
            f"{one_line(place, 40)!r} is not a regular file; /dev/null and 2>&1 are understood",
            node.start,
            "redirect",
        )
    return Opened(shown, FileUse(place, node.operator != "<"))
