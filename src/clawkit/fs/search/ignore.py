"""Walking a tree by directory handles, without the files that ignore files leave out.

No link is followed and no path is resolved twice: every directory is opened by its name from the
handle of its parent, so nothing outside the first one is ever read, whatever is moved meanwhile.
"""

from __future__ import annotations

import errno
import os
import re
import stat
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from io import FileIO
from itertools import groupby
from typing import NamedTuple

from clawkit.errors import ToolInputError
from clawkit.fs.search.glob import translate_glob
from clawkit.text import human_size

MAX_FILE_BYTES = 4 * 1024 * 1024
MAX_PATTERNS = 20_000
MAX_OPEN = 32
"""Directories kept open; the others of a deep tree are opened again on the way back."""

IGNORE_FILES = (".rgignore", ".ignore", ".gitignore", ".git/info/exclude")
"""The first that has something to say decides, whichever directory it is in."""

_DIRECTORY = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
_FILE = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC
_SWAPPED = frozenset({errno.ENOENT, errno.ENOTDIR, errno.ELOOP, errno.ENXIO})


class Rule(NamedTuple):
    """One line of an ignore file."""

    keep: bool
    """The line begins with `!`: what it fits is not left out after all."""
    directories: bool
    """The line ends in a slash: only directories are meant."""
    glob: str


class _Run(NamedTuple):
    """Neighbouring rules that say the same."""

    keep: bool
    names: frozenset[str]
    suffixes: tuple[str, ...]
    paths: re.Pattern[str] | None

    def fits(self, name: str, path: str, start: int) -> bool:
        if name in self.names or name.endswith(self.suffixes):
            return True
        return self.paths is not None and self.paths.match(path, start) is not None


class Rules:
    """Rules in their order. The last one that fits decides.

    Rules from a file have no braces, and what cannot be read in them fits nothing, as with git;
    elsewhere it raises `ToolInputError`.
    """

    def __init__(self, rules: Sequence[Rule], *, from_file: bool) -> None:
        self._for_directories = self._for_files = _make_runs(rules, from_file)
        if any(rule.directories for rule in rules):
            files = [rule for rule in rules if not rule.directories]
            self._for_files = _make_runs(files, from_file)

    def keeps(self, path: str, start: int, *, directory: bool) -> bool | None:
        """Whether the path from `start` on is kept or left out; None when no rule fits it."""
        name = path[path.rfind("/") + 1 :]
        for run in self._for_directories if directory else self._for_files:
            if run.fits(name, path, start):
                return run.keep
        return None


def read_rules(text: str) -> Iterator[Rule]:
    """The rules in an ignore file."""
    for line in text.removeprefix("\ufeff").split("\n"):
        line = re.sub(r"(?<!\\) +\Z", "", line.removesuffix("\r"))
        if line.startswith("#"):
            continue
        glob = line.removeprefix("!")
        if glob.strip("/"):
            yield Rule(line != glob, glob.endswith("/"), glob.removesuffix("/"))


def _make_runs(rules: Sequence[Rule], from_file: bool) -> list[_Run]:
    """The last rules first."""
    runs = []
    for keep, group in groupby(reversed(rules), key=lambda rule: rule.keep):
        names, suffixes, texts = set(), set(), []
        for rule in group:
            # Most rules are a name or an ending, and those need no expression.
            if re.fullmatch(r"[\w.~#+@ -]+", rule.glob):
                names.add(rule.glob)
            elif re.fullmatch(r"\*[\w.~#+@ -]+", rule.glob):
                suffixes.add(rule.glob[1:])
            else:
                texts += _translate(rule.glob, from_file)
        paths = re.compile("|".join(texts)) if texts else None
        runs.append(_Run(keep, frozenset(names), tuple(suffixes), paths))
    return runs


def _translate(glob: str, from_file: bool) -> list[str]:
    if from_file and not {"", "."}.isdisjoint(glob.removeprefix("/").split("/")):
        return []  # to git, no path has such a component
    try:
        return [translate_glob(glob, braces=not from_file)]
    except ToolInputError:
        if from_file:
            return []
        raise


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
    """A regular file. Raises `OSError` for a link and for anything else; waits for nobody."""
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
