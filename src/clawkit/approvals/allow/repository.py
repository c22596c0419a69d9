"""What the git repository around a directory would start: by its settings and by its hooks."""

from __future__ import annotations

import os
import re
import stat
from collections.abc import Callable, Iterator
from functools import lru_cache
from typing import NamedTuple

from clawkit.approvals.allow.gitconfig import find_steering, read_settings
from clawkit.approvals.programs import follow, once
from clawkit.text import one_line, printable

_MAX_SETTINGS = 64 * 1024
_MAX_INDEX = 64 * 1024 * 1024
_MAX_POINTER = 4096
"""Most bytes of a file that only says where something else is."""
_MAX_INNER = 64
"""Repositories within one that are looked into."""
_MAX_DEPTH = 4
_MAX_MODULES = 256
_CACHED = 256
_READ = 64
"""Settings that are kept as they were understood."""
_CHUNK = 1024 * 1024

_GITDIR = re.compile(rb"gitdir: ([^\0\n]+)\n*\Z")
_HEAD = re.compile(rb"ref:\s*refs/|[0-9a-f]{40}")
_HOOK = re.compile(r"[a-z0-9-]+", re.ASCII)
_FAR = re.compile(r"(?:https?|ssh|git|ftps?|git\+ssh|ssh\+git)://|[^/:]+:(?!:|//)")
_LINK = b"\x00\x00\xe0\x00"
"""How an index writes the kind of an entry that is a repository of its own."""
REWRITTEN = "\0"
"""In place of a remote, which cannot have this name: addresses are changed into ones here."""

Notes = tuple[str, ...]
_Key = tuple[str, str, int, int, int, int, int]


class Repository(NamedTuple):
    """A repository, as git finds it from a directory upward."""

    top: str
    """The directory with its files; for a bare one, itself."""
    folder: str
    common: str
    """Where settings and hooks are; differs from `folder` in a linked working tree."""
    sure: bool
    """Whether git takes it for one, too."""


class _Unclear(Exception):  # noqa: N818  # how a look ends, no error
    """Why a file cannot be understood."""


class _Cache:
    """What was found in files, for as long as they stay what they are."""

    def __init__(self) -> None:
        self._found: dict[_Key, Notes | _Unclear] = {}

    def read(self, what: str, path: str, limit: int, find: Callable[[bytes], Notes]) -> Notes:
        """What `find` says about a file; nothing when there is none. Raises `_Unclear`."""
        file = _open(path)
        if file is None:
            return ()
        try:
            info = _check(os.fstat(file), limit)
            # The time of a change, other than that of the content, cannot be set.
            times = info.st_mtime_ns, info.st_ctime_ns
            key = (what, path, info.st_dev, info.st_ino, info.st_size, *times)
            found = self._found.get(key)
            if found is None:
                found = _attempt(find, _read(file, limit))
                if len(self._found) >= _CACHED:
                    self._found.clear()
                self._found[key] = found
        finally:
            os.close(file)
        if isinstance(found, _Unclear):
            raise _Unclear(str(found))
        return found


_CACHE = _Cache()


def repository_notes(cwd: str) -> Notes:
    """What the settings of the repository around a directory would start, in words.

    Repositories within it that it knows of count too, as git runs itself in them.
    """
    try:
        return tuple(dict.fromkeys(_notes_around(cwd)))
    except _Unclear as error:
        return (_unclear(error),)


def find_repository(cwd: str) -> Repository | None:
    """The repository that git finds from a directory upward. Raises ValueError when that cannot be
    told."""
    try:
        for found in once(_find_candidates, cwd):
            if not found.sure:
                raise _Unclear(f"{_shown(found.folder)} may be a repository, or not")
            return found
    except _Unclear as error:
        raise ValueError(_unclear(error)) from None
    return None


def find_hooks(repository: Repository) -> Notes:
    """Names of the hooks that git would run in a repository; `*` when that cannot be told."""
    return once(_list_hooks, f"{repository.common}/hooks")


def _list_hooks(folder: str) -> Notes:
    try:
        names = os.listdir(folder)
    except (FileNotFoundError, NotADirectoryError):
        return ()
    except OSError:
        return ("*",)
    hooks = (name for name in names if _HOOK.fullmatch(name))
    return tuple(sorted(name for name in hooks if os.access(f"{folder}/{name}", os.X_OK)))


def find_remotes(repository: Repository) -> tuple[Notes, Notes]:
    """Names of the remotes on other machines, and of everything else that git could push to.
    Raises ValueError when that cannot be told."""
    path = f"{repository.common}/config"
    try:
        found = _remotes(_content(path, _MAX_SETTINGS))
    except _Unclear as error:
        raise ValueError(_unclear(error)) from None
    far = tuple(name.removeprefix("+") for name in found if name.startswith("+"))
    return far, tuple(name.removeprefix("-") for name in found if name.startswith("-"))


def is_far(address: str) -> bool:
    """Whether an address is on another machine."""
    return bool(_FAR.match(address))


def _unclear(error: _Unclear) -> str:
    return f"what its repository's settings start cannot be told: {error}"


def _notes_around(cwd: str) -> Iterator[str]:
    for found in once(_find_candidates, cwd):
        # Other names are those of files, too, that anything may have put there.
        if found.folder == found.top and not found.folder.endswith("/.git"):
            yield f"it takes {_shown(found.folder)} itself for a repository"
        yield from _notes_of(found, 0)


def _find_candidates(cwd: str) -> list[Repository]:
    """What git could take for a repository, from a directory upward to the first that it will."""
    candidates: list[Repository] = []
    try:
        here = follow(cwd)
    except (OSError, ValueError):
        raise _Unclear("the directory cannot be looked at") from None
    while True:
        prefix = here.rstrip("/")
        for folder in (_pointed(f"{prefix}/.git", prefix), here):
            if folder and (found := _look(folder, here)) is not None:
                candidates.append(found)
                if found.sure:
                    return candidates
        if not prefix:
            return candidates
        here = os.path.dirname(here)


def _pointed(path: str, here: str) -> str:
    """Where `.git` leads: itself when it is a directory, else what its line says."""
    try:
        mode = os.lstat(path).st_mode
        if stat.S_ISLNK(mode):
            mode = os.stat(path).st_mode
            path = os.path.realpath(path)
    except (FileNotFoundError, NotADirectoryError):
        return ""
    except OSError:
        raise _Unclear(f"{_shown(path)} cannot be looked at") from None
    if stat.S_ISDIR(mode):
        return path
    line = _GITDIR.match(_content(path))
    if line is None:
        raise _Unclear(f"{_shown(path)} names no directory")
    return _follow(here or "/", line[1].rstrip(b"\r"))


def _follow(folder: str, pointer: bytes) -> str:
    """Where a path in a file leads, links on the way followed as the kernel does."""
    try:
        return os.path.realpath(os.path.join(folder, os.fsdecode(pointer)))
    except (OSError, ValueError):
        raise _Unclear(f"where {_shown(folder)} leads cannot be looked at") from None


def _look(folder: str, top: str) -> Repository | None:
    """A directory as a repository; None when it cannot be one."""
    head = f"{folder}/HEAD"
    if not os.access(head, os.F_OK, follow_symlinks=False):
        return None
    common = folder
    if pointer := _content(f"{folder}/commondir").rstrip(b"\r\n"):
        common = _follow(folder, pointer)
    if not (os.access(f"{common}/objects", os.X_OK) and os.access(f"{common}/refs", os.X_OK)):
        return None
    try:
        sure = bool(_HEAD.match(_content(head)))
    except _Unclear:
        sure = False
    return Repository(top, folder, common, sure)


def _notes_of(repository: Repository, depth: int) -> Iterator[str]:
    top, folder, common, _ = repository
    for place in (common, *_modules(f"{common}/modules")):
        yield from _notes_from(f"{place}/config", place, top)
        yield from _notes_from(f"{place}/config.worktree", place, top)
    if folder != common:
        yield from _notes_from(f"{folder}/config.worktree", folder, top)
    inner = _inner(folder)
    if len(inner) > _MAX_INNER or (inner and depth >= _MAX_DEPTH):
        raise _Unclear(f"{_shown(top)} has too many repositories in it")
    for name in inner:
        place = f"{top}/{name}"
        if (where := _pointed(f"{place}/.git", place)) and (found := _look(where, place)):
            yield from _notes_of(found, depth + 1)


def _notes_from(path: str, folder: str, top: str) -> Iterator[str]:
    for words in _settings(_content(path, _MAX_SETTINGS), folder, top):
        yield f"{words} in {_shown(path)})"


def _modules(folder: str) -> Iterator[str]:
    """Repositories that a repository keeps for those within it, also such as are not there yet."""
    waiting = [folder]
    seen = 0
    while waiting:
        here = waiting.pop()
        try:
            with os.scandir(here) as found:
                names = [entry.name for entry in found if entry.is_dir()]
        except (FileNotFoundError, NotADirectoryError):
            continue
        except OSError:
            raise _Unclear(f"{_shown(here)} cannot be read") from None
        for name in names:
            place = f"{here}/{name}"
            seen += 1
            if seen > _MAX_MODULES:
                raise _Unclear(f"{_shown(folder)} has too many repositories in it")
            if os.path.lexists(f"{place}/HEAD"):
                yield place
                waiting.append(f"{place}/modules")
            else:
                waiting.append(place)


# By content, not by when it changed: who has a file mapped can write without a trace in its times.
@lru_cache(maxsize=_READ)
def _settings(data: bytes, folder: str, top: str) -> Notes:
    try:
        return find_steering(data.decode("utf-8", "surrogateescape"), folder, top)
    except ValueError as error:
        raise _Unclear(f"{_shown(folder)}/config is not understood, {error}") from None


@lru_cache(maxsize=_READ)
def _remotes(data: bytes) -> Notes:
    """Every remote, with a plus for one on another machine and a minus for others."""
    places: dict[str, bool] = {}
    chosen: list[str] = []
    try:
        for section, name, key, value in read_settings(data.decode("utf-8", "surrogateescape")):
            if section == "remote" and key in ("url", "pushurl"):
                places[name] = places.get(name, True) and is_far(value or "")
            elif section == "url" and not is_far(name):
                chosen.append(REWRITTEN)
            elif (section, key) == ("remote", "pushdefault") or (
                section == "branch" and key in ("remote", "pushremote")
            ):
                chosen.append(value or "")
    except ValueError as error:
        raise _Unclear(f"its settings are not understood, {error}") from None
    places |= {name: is_far(name) for name in chosen if name not in places}
    return tuple(f"{'+' if far else '-'}{name}" for name, far in places.items())


def _inner(folder: str) -> Notes:
    """Paths of the repositories within one, from its list of files."""
    found = _CACHE.read("index", f"{folder}/index", _MAX_INDEX, _links)
    if "" not in found:
        return found
    names = {name for name in found if name}
    # Its list is split; the rest is in files beside it.
    for name in sorted(os.listdir(folder)):
        if name.startswith("sharedindex."):
            names.update(_CACHE.read("index", f"{folder}/{name}", _MAX_INDEX, _links))
    return tuple(sorted(names - {""}))


def _links(data: bytes) -> Notes:
    """Paths of the repositories that an index lists, and an empty one if it may be split."""
    split = ("",) if b"link\0\0" in data else ()
    if _LINK not in data:
        return split
    if data[:4] != b"DIRC" or data[4:8] not in (b"\0\0\0\2", b"\0\0\0\3"):
        raise _Unclear("the list of its files is of a kind that is not known")
    for length in (20, 32):
        try:
            return (*split, *_read_index(data, length))
        except ValueError:
            continue
    raise _Unclear("the list of its files is not understood")


def _read_index(data: bytes, digest: int) -> Iterator[str]:
    """Paths of the entries that are repositories. Raises ValueError when it cannot be read with
    digests of that length."""
    at = 12
    for _ in range(int.from_bytes(data[8:12], "big")):
        flags = int.from_bytes(data[at + 40 + digest : at + 42 + digest], "big")
        start = at + 42 + digest + (2 if flags & 0x4000 else 0)
        end = data.index(b"\0", start)
        if min(end - start, 0xFFF) != flags & 0xFFF or end == start:
            raise ValueError("the length of a name is wrong")
        if data[at + 24 : at + 28] == _LINK:
            yield os.fsdecode(data[start:end])
        at += (end - at + 8) & ~7


def _attempt(find: Callable[[bytes], Notes], data: bytes) -> Notes | _Unclear:
    try:
        return find(data)
    except _Unclear as error:
        return error.with_traceback(None)


def _content(path: str, limit: int = _MAX_POINTER) -> bytes:
    """A small file; empty when there is none. Raises `_Unclear`."""
    file = _open(path)
    if file is None:
        return b""
    try:
        _check(os.fstat(file), limit)
        return _read(file, limit)
    finally:
        os.close(file)


def _open(path: str) -> int | None:
    flags = os.O_RDONLY | os.O_NONBLOCK | os.O_NOFOLLOW | os.O_CLOEXEC | os.O_NOCTTY
    try:
        return os.open(path, flags)
    except (FileNotFoundError, NotADirectoryError):
        return None
    except (OSError, ValueError):
        raise _Unclear(f"{_shown(path)} cannot be read") from None


def _check(info: os.stat_result, limit: int) -> os.stat_result:
    if not stat.S_ISREG(info.st_mode):
        raise _Unclear("one of its files is not a regular one")
    if info.st_size > limit:
        raise _Unclear("one of its files is too large")
    return info


def _read(file: int, limit: int) -> bytes:
    parts: list[bytes] = []
    size = 0
    while part := os.read(file, min(limit + 1, _CHUNK)):
        parts.append(part)
        size += len(part)
        if size > limit:
            raise _Unclear("one of its files is too large")
    return b"".join(parts)


def _shown(path: str) -> str:
    return one_line(printable(path, keep=""), 200)
