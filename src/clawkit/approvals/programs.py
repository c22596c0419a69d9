"""Finding the files that a command means: programs, their interpreters, directories."""

from __future__ import annotations

import os
import re
import stat
from collections.abc import Callable, Mapping
from contextvars import ContextVar
from functools import lru_cache
from typing import Any, NamedTuple, TypeVar

from clawkit.approvals.shell.nodes import Doubt
from clawkit.text import one_line

MAX_LOOKS = 500
"""Different files that are looked for. Each costs system calls, and a command can name thousands
of them."""
MAX_SCRIPTS = 4
"""Scripts that are run by scripts; the kernel follows no more either."""

_MAX_PATH = 4096
"""Characters of a path that is followed; the system takes no longer one."""
_HEAD = 256
"""Bytes that the kernel reads of a file before it starts it."""
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
    """What its `#!` line starts."""

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
                f"where {one_line(path, 40)!r} is depends on a directory that is not certain; "
                "use an absolute path, or && after cd",
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
        """The interpreters of a script, outermost first, and theirs if they are scripts too."""
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
        """The program that `#!/usr/bin/env NAME` starts."""
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


class OneLook:
    """While it lasts, nothing is looked at twice: a verdict is about one state of the files."""

    def __enter__(self) -> None:
        self._token = _SEEN.set({})

    def __exit__(self, *_: object) -> None:
        _SEEN.reset(self._token)


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
    return Doubt(f"what runs {one_line(path, 80)!r} is not clear: {why}", at, "script")
