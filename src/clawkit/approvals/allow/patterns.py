"""Patterns of programs: a path with wildcards, or the name of a program found in PATH.

`*` stands for any characters but a slash, `**` for any at all, `?` for one that is no slash.
Everything else stands for itself, also `[`, which is a program.
"""

from __future__ import annotations

import os.path
from collections.abc import Callable, Iterator
from functools import lru_cache
from typing import NamedTuple

from clawkit.approvals.base import Entry, Program

MAX_CHARS = 4_096
"""Longest pattern, and longest path, that is looked at: no longer path can be opened."""

_DIRECTORIES = "**/"
_KEPT = 8
"""Lists whose order is kept; one for each judge is enough."""


def matches_path(pattern: str, program: Program, home: str) -> bool:
    """Whether a pattern means a program.

    One without a slash means only what was found in PATH; whether that is a place nobody can have
    put something into is for the caller to see. `*` alone means every program there is.
    """
    subject = _Subject.of(program)
    return subject is not None and subject.is_meant(pattern, home)


def find_entries(entries: tuple[Entry, ...], program: Program, home: str) -> list[Entry]:
    """Those whose pattern means a program: first such as name arguments, each in its order."""
    subject = _Subject.of(program)
    if subject is None or not entries:
        return []
    listed = _list(entries)
    texts = (*subject.paths, subject.name) if subject.name else subject.paths
    found = [place for text in (*texts, "*") for place in listed.plain.get(text, ())]
    for place, start, end in listed.wild:
        for text in texts:
            if text.startswith(start) and text.endswith(end):
                if subject.is_meant(listed.entries[place].pattern, home):
                    found.append(place)
                break
    found.sort()
    return [listed.entries[place] for place in found]


class _Subject(NamedTuple):
    """What patterns are compared with."""

    paths: tuple[str, ...]
    name: str
    """Empty for what was not found by its name."""

    @classmethod
    def of(cls, program: Program) -> _Subject | None:
        if not program.resolved:
            return None
        path, real = plain_path(program.resolved, program.real), program.real
        name = program.resolved.rpartition("/")[2] if program.by_name else ""
        # What a file does can depend on the name it is called by (`sh` and `ls` may be one file),
        # so a link is the same program as its target only if it has the same name.
        is_real = real != path and is_same_name(program.resolved, real)
        return cls(tuple(filter(None, (path, real) if is_real else (path,))), name)

    def is_meant(self, pattern: str, home: str) -> bool:
        if pattern == "*" or pattern in self.paths:
            return True
        if not names_place(pattern):
            return bool(self.name) and _compile(pattern, "")(self.name)
        return _is_absolute(pattern, home) and any(map(_compile(pattern, home), self.paths))


class _List(NamedTuple):
    """Entries by what they mean, so that of a long list only few are looked at."""

    given: tuple[Entry, ...]
    """Kept, so that no other list is taken for it."""
    entries: list[Entry]
    """In the order that they are tried."""
    plain: dict[str, list[int]]
    """By path or name: which of them."""
    wild: list[tuple[int, str, str]]
    """All others, with what their pattern begins and ends with."""


_LISTS: dict[int, _List] = {}


def _list(entries: tuple[Entry, ...]) -> _List:
    """The same tuple comes again and again, and is compared by what it is, not what is in it."""
    found = _LISTS.get(id(entries))
    if found is None:
        if len(_LISTS) >= _KEPT:
            _LISTS.clear()
        found = _LISTS[id(entries)] = _make_list(entries)
    return found


def _make_list(entries: tuple[Entry, ...]) -> _List:
    made = _List(entries, sorted(entries, key=lambda each: each.arg_pattern is None), {}, [])
    for place, entry in enumerate(made.entries):
        pattern = entry.pattern
        if pattern == "*" or (is_fixed(pattern) and not pattern.startswith("~")):
            made.plain.setdefault(pattern, []).append(place)
        else:
            start, _, rest = pattern.replace("?", "*").partition("*")
            end = f"*{rest}".rpartition("*")[2]
            made.wild.append((place, "" if start.startswith("~") else start, end))
    return made


def names_place(pattern: str) -> bool:
    """Whether a pattern is compared with the whole path."""
    return "/" in pattern or pattern.startswith("~")


def is_literal(pattern: str) -> bool:
    """Whether a pattern can mean one file only."""
    return names_place(pattern) and is_fixed(pattern)


def is_fixed(pattern: str) -> bool:
    """Whether a pattern has no wildcards."""
    return "*" not in pattern and "?" not in pattern


def literal_folder(pattern: str, home: str) -> str:
    """The directory that everything a pattern means lies below; empty when it could be any."""
    if not names_place(pattern) or not _is_absolute(pattern, home):
        return ""
    fixed = pattern.replace("?", "*").partition("*")[0].rpartition("/")[0]
    return f"{home.rstrip('/')}{fixed[1:]}" if fixed.startswith("~") else fixed


def is_same_name(path: str, other: str) -> bool:
    """Whether two files are called alike, but for a version: `python3` and `python3.11`."""
    if path == other:
        return True
    name, real = os.path.basename(path), os.path.basename(other)
    return name == real or _stem(name) == _stem(real) != ""


def plain_path(path: str, real: str) -> str:
    """A path without `.` and `..`; empty when that leads to another file than `real`."""
    if "/." not in path and "//" not in path:
        return path
    plain = os.path.normpath(path)
    # `..` behind a link is not the directory that it seems to be.
    if "/.." in path and os.path.realpath(plain) != real:
        return ""
    return plain.removeprefix("/") if plain.startswith("//") else plain


def _stem(name: str) -> str:
    return name.rstrip("0123456789.").removesuffix("-")


def _is_absolute(pattern: str, home: str) -> bool:
    if pattern.startswith("~"):
        return home.startswith("/") and (pattern == "~" or pattern.startswith("~/"))
    return pattern.startswith(("/", "**"))


@lru_cache(maxsize=4096)
def _compile(pattern: str, home: str) -> Callable[[str], bool]:
    """A test for whole paths. A home directory is taken as it is, whatever characters it has."""
    if len(pattern) > MAX_CHARS:
        return lambda _path: False
    prefix = home.rstrip("/") if pattern.startswith("~") else ""
    rest = pattern[1:] if pattern.startswith("~") else pattern
    if "*" not in rest and "?" not in rest:
        return (prefix + rest).__eq__
    start = prefix + rest.replace("?", "*").partition("*")[0]
    end = rest.replace("?", "*").rpartition("*")[2]
    glob = _make_glob(prefix, rest)
    return lambda path: path.startswith(start) and path.endswith(end) and glob.match(path)


class _Glob(NamedTuple):
    """All ways to match at once: one bit for every place in the pattern, one step a character.

    There is nothing to go back to, so no pattern takes longer than the length of the path.
    """

    takes: dict[str, int]
    """Which places go on with a character."""
    takes_one: int
    """Which go on with any that is no slash."""
    stays: int
    """Which stay where they are with any that is no slash: `*`."""
    stays_always: int
    jumps: int
    """Which are also the next two, since `**/` may stand for nothing."""
    end: int

    def match(self, path: str) -> bool:
        if len(path) > MAX_CHARS:
            return False
        now = self._jump(1)
        for char in path:
            goes, stays = self.takes.get(char, 0), self.stays_always
            if char != "/":
                goes, stays = goes | self.takes_one, stays | self.stays
            now = self._jump((now & goes) << 1 | now & stays)
            if not now:
                return False
        return bool(now & self.end)

    def _jump(self, now: int) -> int:
        jumping = now & self.jumps
        return now | jumping << 1 | jumping << 2


def _make_glob(prefix: str, rest: str) -> _Glob:
    takes: dict[str, int] = {}
    takes_one = stays = stays_always = jumps = 0
    place = 1
    for char in prefix:
        takes[char] = takes.get(char, 0) | place
        place <<= 1
    for piece in _pieces(rest):
        if piece == "*":
            stays |= place
        elif piece == "**":
            stays_always |= place
        elif piece == _DIRECTORIES:
            jumps |= place
            stays_always |= place << 1
            takes["/"] = takes.get("/", 0) | place << 1
            place <<= 2
        else:
            if piece == "?":
                takes_one |= place
            else:
                takes[piece] = takes.get(piece, 0) | place
            place <<= 1
    return _Glob(takes, takes_one, stays, stays_always, jumps, place)


def _pieces(pattern: str) -> Iterator[str]:
    """Single characters, `*`, `**`, and `**/` where it stands for any number of directories."""
    at, last = 0, "/"
    while at < len(pattern):
        end = at + 1
        while pattern[at] == "*" and pattern[end : end + 1] == "*":
            end += 1
        piece = pattern[at:end][:2]
        if piece == "**" and last in ("/", _DIRECTORIES) and pattern[end : end + 1] == "/":
            piece, end = _DIRECTORIES, end + 1
        if piece != _DIRECTORIES or last != _DIRECTORIES:
            yield piece
        at, last = end, piece
