"""Expansion of words, redirections and program names to text, files, interpreters, directories."""

from __future__ import annotations

import os
import re
import stat
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from functools import lru_cache
from typing import NamedTuple, assert_never

from clawkit.approvals import shell_words as words
from clawkit.approvals.types import Doubt, FileUse
from clawkit.text import one_line

MAX_LOOKUPS = 500
"""Limit for different files: each costs system calls, and a command can name thousands."""
MAX_SCRIPTS = 4
"""Nesting of interpreters that are scripts themselves; the kernel follows no more either."""
_MAX_PATH = 4096
"""PATH_MAX: longer paths are not followed."""
_HEAD = 256
_LOADER = re.compile(
    r"ld-linux.*|ld-musl.*|ld-uclibc.*|ld(?:32|64)?\.so.*|ld(?:32|64)?-.*\.so(?:\..*)?"
    r"|libc\.so|libc\.musl-.*|linker(?:64)?",
    re.IGNORECASE | re.DOTALL,
)

_LOOKUPS: ContextVar[dict[str, str] | None] = ContextVar("_LOOKUPS", default=None)
"""Directories with links resolved, inside `cached_lookups`."""


class FoundProgram(NamedTuple):
    """The file that a program name refers to; empty if not found."""

    resolved: str = ""
    real: str = ""
    script: tuple[str, ...] = ()

    def names(self, typed: str) -> frozenset[str]:
        """Its possible names: as typed, as found, and with links resolved."""
        name = typed.rpartition("/")[2]
        if not self.resolved:
            return frozenset((name,))
        return frozenset((name, self.resolved.rpartition("/")[2], self.real.rpartition("/")[2]))


class ProgramFinder:
    """Looks up the files of one command, each once."""

    def __init__(self, env: Mapping[str, str]) -> None:
        """Only PATH is used from the environment."""
        path = env.get("PATH", "")
        self._folders = _folders(path) if "/.." in path else _plain_folders(path)
        self._programs: dict[tuple[str, str | None], FoundProgram] = {}
        self._places: dict[str, str] = {}
        self._lookups = 0

    def program(self, name: str, cwd: str | None, at: int) -> FoundProgram:
        """Look up a program as the shell does. Raises `Doubt` if the result is not certain."""
        key = (name, cwd if "/" in name else "")
        found = self._programs.get(key)
        if found is None:
            self.count(at)
            if "/" in name:
                resolved = self.resolve(name, cwd, at)
                # Checked as typed: with a trailing slash, nothing is found.
                path = self._join(name, cwd) or ""
                if not (os.access(path, os.X_OK) and os.path.isfile(path)):
                    resolved = ""
            else:
                resolved = self._search(name)
            real = resolve_links(resolved) if resolved else ""
            for path in dict.fromkeys((name, resolved, real)):
                _refuse_loader(path, at)
            found = self._programs[key] = FoundProgram(
                resolved, real, self._script(real, at) if resolved else ()
            )
        return found

    def resolve(self, path: str, cwd: str | None, at: int) -> str:
        """The normalized absolute path. Raises `Doubt` if an unknown directory or links matter."""
        whole = self._join(path, cwd)
        if whole is None:
            why = f"cannot determine which directory {one_line(path, 40)!r} is relative to"
            raise Doubt(f"{why}; use an absolute path, or && after cd", at, "cwd")
        place = self._places.get(whole)
        if place is None:
            self.count(at)
            place = self._places[whole] = normalize_path(whole)
        if not place:
            why = f"{one_line(path, 40)!r} may be a different file once links are resolved"
            raise Doubt(f"{why}; write it without ..", at, "path")
        return place

    def directory(self, path: str, cwd: str | None, at: int) -> tuple[str | None, bool]:
        """Where `cd` leads (None if not certain), and whether it can fail."""
        whole = self._join(path, cwd)
        if whole is None:
            return None, True
        self.count(at)
        place = normalize_path(whole)
        return place or None, not (os.path.isdir(whole) and os.access(whole, os.X_OK))

    def count(self, at: int) -> None:
        """Count a lookup. Raises `Doubt` after too many."""
        self._lookups += 1
        if self._lookups > MAX_LOOKUPS:
            raise Doubt(f"it names more than {MAX_LOOKUPS:,} programs and files", at, "long")

    @staticmethod
    def _join(path: str, cwd: str | None) -> str | None:
        if path.startswith("/"):
            return path
        return None if cwd is None else f"{cwd}/{path}"

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
            raise _unclear(real, "its first line does not name an interpreter by absolute path", at)
        started = [self.resolve(path, None, at)]
        reals = [resolve_links(started[0])]
        if "env" in FoundProgram(started[0], reals[0]).names(path):
            argument = argument.strip()
            if not re.fullmatch(r"[A-Za-z0-9_.+][A-Za-z0-9_.+-]*", argument):
                raise _unclear(real, "its first line passes more than a program name to env", at)
            inner = self._search(argument)
            if not inner:
                raise _unclear(real, f"its interpreter {argument} is not in PATH", at)
            started.append(inner)
            reals.append(resolve_links(inner))
        for each in (path, *started, *reals):
            _refuse_loader(each, at)
        nested = [name for each in reals for name in self._script(each, at, depth + 1)]
        return (*started, *nested)


def _folders(path: str) -> tuple[str, ...]:
    """The absolute directories of PATH; relative ones depend on where the command runs."""
    folders = (each for each in path.split(":") if each.startswith("/") and "\0" not in each)
    return tuple((normalize_path(each) or os.path.realpath(each)).rstrip("/") for each in folders)


# Cached: without dots, links cannot change the result.
_plain_folders = lru_cache(maxsize=16)(_folders)


def normalize_path(path: str) -> str:
    """An absolute path without dots and repeated slashes; empty if links make that another file."""
    if "//" not in path and "/." not in path and not path.endswith("/"):
        return path
    place = "/" + os.path.normpath(path).lstrip("/")
    if "/.." not in path:
        return place
    if len(path) > _MAX_PATH or os.path.realpath(path) != os.path.realpath(place):
        return ""
    return place


@contextmanager
def cached_lookups() -> Iterator[None]:
    """Look up each path once in this block: a decision is based on one state of the files."""
    token = _LOOKUPS.set({})
    try:
        yield
    finally:
        _LOOKUPS.reset(token)


def resolve_links(path: str) -> str:
    """`os.path.realpath` of an absolute path, faster if there are no links."""
    if len(path) > _MAX_PATH:
        return os.path.normpath(path)
    if "//" in path or "/." in path or path[-1:] == "/":
        return os.path.realpath(path)
    folder, _, name = path.rpartition("/")
    seen = _LOOKUPS.get()
    found = seen.get(folder) if seen is not None else None
    if found is None:
        found = _resolve_folder(folder)
        if seen is not None:
            seen[folder] = found
    whole = f"{found}/{name}"
    return os.path.realpath(whole) if _is_link(whole) else whole


def _resolve_folder(folder: str) -> str:
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
    """The first bytes of a file; empty if unreadable, because no interpreter could read it."""
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
        why = f"{one_line(name, 40)!r} is a loader, which can run any file"
        raise Doubt(f"{why}; name the program itself", at, "loader")


def _unclear(path: str, why: str, at: int) -> Doubt:
    return Doubt(f"cannot determine what runs {one_line(path, 80)!r}: {why}", at, "script")


MAX_CHARS = 256 * 1024
"""Limit for a rebuilt command, because expanded loops can be much longer."""

_PATTERN = re.compile(r"[*?]|\[[!^]?(?:[\w.,:=@%+-]|\[:[a-z]{1,10}:\])+\]")
# Characters that the shell would split or expand if the variable is not quoted.
_NOT_ONE_WORD = re.compile(r"[ \t\n*?\[\\]")

_HALVES = re.compile("[\ud800-\udfff]")


class ExpandedWord(NamedTuple):
    """An expanded word."""

    text: str
    shown: str
    """Quoted for the shell; only globs are active."""
    glob: bool = False


class ExpansionContext(NamedTuple):
    """Known variables and the home directory."""

    variables: Mapping[str, str]
    home: str


def evaluate(word: words.Word, context: ExpansionContext, code: str = "parameter") -> ExpandedWord:
    """Expand a word. Raises `Doubt`, with `code` for an unknown variable."""
    literal = word.literal
    if literal is not None:
        return ExpandedWord(literal, words.quote(literal))
    texts: list[str] = []
    shown: list[str] = []
    for part in word.parts:
        match part:
            case words.LiteralText(value):
                pass
            case words.Tilde():
                value = context.home
                if not value:
                    why = "the home directory for ~ is unknown"
                    raise Doubt(why, word.start, "tilde")
            case words.Variable():
                value = _variable(part, context, word, code)
            case words.Wildcard(value):
                if not _PATTERN.fullmatch(value):
                    raise Doubt("a pattern with unusual characters", word.start, "glob")
            case _:
                assert_never(part)
        texts.append(value)
        shown.append(value if isinstance(part, words.Wildcard) else words.quote(value))
    text = "".join(texts)
    glob = any(isinstance(part, words.Wildcard) for part in word.parts)
    return ExpandedWord(text, "".join(shown) if glob else words.quote(text), glob)


def _variable(part: words.Variable, context: ExpansionContext, word: words.Word, code: str) -> str:
    value, name = context.variables.get(part.name), one_line(part.name, 40)
    if value is None:
        raise Doubt(f"the value of ${name} is not known in advance", word.start, code)
    if not part.quoted and (not value or _NOT_ONE_WORD.search(value)):
        why = f'${name} could expand to several words; write "${name}" instead'
        raise Doubt(why, word.start, "parameter")
    return value


def quote_always(text: str) -> str:
    """Quote even if not needed, so that it is not a reserved word, option or assignment."""
    shown = words.quote(text)
    return f"'{text}'" if shown == text else shown


class Opened(NamedTuple):
    """The effect of one redirection."""

    shown: str
    file: FileUse | None = None
    is_text: bool = False
    body: str = ""

    @property
    def may_fail(self) -> bool:
        """Whether it could fail, so that the shell skips the command."""
        return self.file is not None or self.is_text


class Rebuilt:
    """Builds the text of the re-created command."""

    def __init__(self) -> None:
        self._parts: list[str] = []
        self._bodies: list[str] = []
        self._size = 0

    def put(self, text: str) -> None:
        if self._bodies and "\n" in text:
            # Not every shell finishes a quoted string before reading the here-document.
            raise Doubt("a here-document and a multi-line string on the same line", 0, "heredoc")
        self._add(text)

    def end_line(self) -> None:
        """End the line, and add the bodies of its here-documents."""
        self._add("\n")
        for body in self._bodies:
            self._add(body)
        self._bodies.clear()

    def put_redirects(self, redirects: Iterable[Opened]) -> None:
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
        if self._bodies:
            self.end_line()
        text = "".join(self._parts)
        if not text.isascii() and _HALVES.search(text):
            raise Doubt("a directory name is not UTF-8", 0, "path")
        return text


def redirect(
    node: words.Redirect, context: ExpansionContext, cwd: str | None, finder: ProgramFinder
) -> Opened:
    """The effect of a redirection. Raises `Doubt` for anything unusual."""
    if node.fd not in (None, 0, 1, 2):
        raise Doubt(f"file descriptor {node.fd} is not tracked", node.start, "redirect")
    number = "" if node.fd is None else str(node.fd)
    if node.target is None:
        if node.fd not in (None, 0) or (node.body and not node.body.endswith("\n")):
            raise Doubt("this here-document is not understood", node.start, "redirect")
        return _here_document(node.body)
    value = evaluate(node.target, context)
    if value.glob:
        raise Doubt("the target of a redirection is a pattern", node.start, "redirect")
    match node.operator:
        case "<<<":
            if node.fd not in (None, 0):
                raise Doubt("this here-string is not understood", node.start, "redirect")
            return Opened(f"<<< {value.shown}", is_text=True)
        case "<&" | ">&":
            # Standard input from another descriptor could be anything.
            to_input = node.fd == 0 or (node.fd is None and node.operator == "<&")
            if value.text not in ("0", "1", "2") or (to_input and value.text != "0"):
                why = "only file descriptors 0, 1 and 2 may be duplicated"
                raise Doubt(why, node.start, "redirect")
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


def _open(
    node: words.Redirect, operator: str, path: str, finder: ProgramFinder, cwd: str | None
) -> Opened:
    if not path or path.endswith(("/", "/.")):
        raise Doubt("this redirection does not name a file", node.start, "redirect")
    place = finder.resolve(path, cwd, node.start)
    shown = f"{operator}{words.quote(place)}"
    if place == "/dev/null":
        return Opened(shown)
    if place.startswith(("/dev/", "/proc/")) or place in ("/dev", "/proc"):
        why = f"{one_line(place, 40)!r} is not a regular file; /dev/null and 2>&1 are understood"
        raise Doubt(why, node.start, "redirect")
    return Opened(shown, FileUse(place, node.operator != "<"))
