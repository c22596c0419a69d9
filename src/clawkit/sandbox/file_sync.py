"""Synchronize two copies of a directory on two machines: the plan, and the changes of one copy.

The local side wins a conflict; the other version is kept next to it, and the conflict is reported.
Links are never followed, and a file that changed since it was scanned is not touched.
"""

from __future__ import annotations

import hashlib
import os
import posixpath
import re
import stat
import time
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from contextlib import AbstractContextManager, suppress
from typing import Literal, NamedTuple

from clawkit.errors import ToolError, ToolInputError
from clawkit.fs.roots import look, opened
from clawkit.fs.staged_file import temp_name
from clawkit.text import human_size

MAX_ENTRIES = 200_000
MAX_BYTES = 1024**3
MAX_FILE = 256 * 1024**2  # a larger file is not copied, and reported
_MAX_PATH, _MAX_NAME = 4_096, 255
_SHA = re.compile(r"[0-9a-f]{64}")
_CLASH = "a directory on one side and a file on the other; both were left as they are"
_FRESH_NS = 50_000_000
"""A file that changed this recently may change again with the same timestamp."""
_READ = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
_WRITE = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
_TEMPORARY = re.compile(r"\.clawkit-.*\.(tmp|old)")  # temporary files of a change in progress
Signature = tuple[int, ...]
Hashes = Mapping[str, tuple[Signature, str]]


class FileState(NamedTuple):
    """The compared properties of a file, directory or link."""

    kind: Literal["file", "directory", "link"]
    mode: int = 0  # 0o644 or 0o755 for a file: other bits are not synchronized
    size: int = 0
    sha256: str = ""  # of a file's content
    target: str = ""  # where a link points


Manifest = Mapping[str, FileState]  # by relative path, with `/` between names
Step = tuple[str, FileState | None]  # a path and its new state; None deletes it
DIRECTORY = FileState("directory")


class SyncPlan:
    """The steps that make two copies equal."""

    def __init__(
        self, base: Manifest, local: Manifest, remote: Manifest, skipped: Collection[str] = ()
    ) -> None:
        """`base` is the last common state. With the remote side as `base`, that side becomes equal
        to the local one. Paths in `skipped`, and everything below them, are not touched."""
        self.conflicts: dict[str, str] = {}  # paths that both sides changed, and what was done
        self.source: dict[str, str] = {}
        """The remote path of the content of a local path, if it is another one."""
        self._last, self._left = base, set[str]()
        base, local, remote = (_without(each, skipped) for each in (base, local, remote))
        final: dict[str, FileState] = {}
        for path in sorted({*base, *local, *remote}):
            old, ours, theirs = base.get(path), local.get(path), remote.get(path)
            kept = theirs if ours == old else ours
            if kept is not None:
                final[path] = kept
            if theirs in (old, ours) or ours == old:
                continue
            if theirs is None:
                what = "changed here and deleted on the remote side; it was put back there"
                self.conflicts[path] = what
            elif ours is None and theirs == DIRECTORY:
                final[path] = theirs
            elif DIRECTORY in (ours, theirs):
                self.conflicts[path] = _CLASH
            elif ours is None or ours._replace(mode=0) != theirs._replace(mode=0):
                aside = _aside(path, theirs)
                final[aside], self.source[aside] = theirs, path
                how = "deleted here and changed" if ours is None else "changed here and"
                what = f"{how} on the remote side, whose version is now {aside!r}"
                self.conflicts[path] = what
        # A directory that one side deleted is kept if the other has something new in it.
        for path in list(final):
            for above in _above(path):
                if final.setdefault(above, DIRECTORY) != DIRECTORY:
                    self.conflicts[above] = _CLASH
        clashes = [path for path, what in self.conflicts.items() if what == _CLASH]
        self._base, self._local, self._remote, self._final = (
            _without(each, clashes) for each in (base, local, remote, final)
        )

    @property
    def to_local(self) -> list[Step]:
        """The steps for the local side, in order."""
        return list(self._steps(self._local))

    @property
    def to_remote(self) -> list[Step]:
        return list(self._steps(self._remote))

    def _steps(self, have: Manifest) -> Iterator[Step]:
        """First deletions, deepest first; then the rest, directories before their content."""
        final = self._final
        for path in sorted(have.keys() - self._left, reverse=True):
            new, old = final.get(path), have[path]
            if new is None or (new != old and DIRECTORY in (new, old)):
                yield path, None
        for path in sorted(final.keys() - self._left):
            if have.get(path) != final[path]:
                yield path, final[path]

    def refuse(self, explain: Callable[[str, FileState | None], str]) -> None:
        """Leave out steps for the local side for which `explain` returns a reason."""
        refused: dict[str, str] = {}
        for path, entry in self.to_local:
            above = (refused[each] for each in _above(path) if each in refused)
            if why := explain(path, entry) or next(above, ""):
                refused[path] = why
                self.conflicts[path] = f"not copied from the remote side: {why}"
        self.leave(refused)

    def leave(self, paths: Collection[str]) -> None:
        """Leave out all steps for these paths. If the remote version of a conflict could not be
        kept next to the local one, it is not overwritten either."""
        self._left |= {*paths, *(self.source[path] for path in paths if path in self.source)}

    def next_base(self) -> dict[str, FileState]:
        """The common state after these steps; where both sides still differ, the last one."""
        final = {path: entry for path, entry in self._final.items() if path not in self._left}
        is_open = (self._last.keys() - self._base.keys()) | self._left
        return final | {path: self._last[path] for path in is_open & self._last.keys()}


def _without(have: Manifest, skipped: Collection[str]) -> Manifest:
    """The manifest without the skipped paths and everything below them."""
    if not (left := set(skipped)):
        return have
    return {path: entry for path, entry in have.items() if left.isdisjoint((path, *_above(path)))}


def explain_link(path: str, entry: FileState | None) -> str:
    """Why a link is not created on this machine; empty if it may be."""
    if entry is None or entry.kind != "link":
        return ""
    leads = posixpath.normpath(posixpath.join(posixpath.dirname(path), entry.target))
    if entry.target.startswith("/") or leads == ".." or leads.startswith("../"):
        return "it is a link that points outside the workspace"
    return ""


def check_manifest(manifest: Manifest) -> None:
    """Raises `ToolError` for an invalid or too large manifest."""
    if len(manifest) > MAX_ENTRIES or sum(entry.size for entry in manifest.values()) > MAX_BYTES:
        raise ToolError(f"the remote side sent more than {MAX_ENTRIES:,} files or 1 GiB")
    for path, entry in manifest.items():
        if not (_is_path(path) and _is_valid(entry)):
            raise ToolError(f"the remote side sent an invalid entry: {path[:200]!r}")
        if any(manifest.get(above) != DIRECTORY for above in _above(path)):
            raise ToolError(f"the remote side sent {path[:200]!r} without its directory")


def _is_text(text: str) -> bool:
    try:
        return 0 < len(_encode(text)) <= _MAX_PATH and "\0" not in text
    except UnicodeEncodeError:
        return False


def _is_path(path: str) -> bool:
    names = _encode(path).split(b"/") if _is_text(path) else [b""]
    return all(0 < len(name) <= _MAX_NAME and name not in (b".", b"..") for name in names)


def _is_valid(entry: FileState) -> bool:
    kind, mode, size, sha256, target = entry
    if kind == "file":
        is_file = mode in (0o644, 0o755) and 0 <= size <= MAX_FILE
        return is_file and not target and _SHA.fullmatch(sha256) is not None
    if kind == "link":
        return entry == FileState("link", target=target) and _is_text(target)
    return entry == DIRECTORY


def _aside(path: str, entry: FileState) -> str:
    folder, name = posixpath.split(path)
    digest = entry.sha256 or hashlib.sha256(_encode(entry.target)).hexdigest()
    suffix = f".remote-conflict-{digest[:8]}"
    while len(_encode(name + suffix)) > _MAX_NAME:
        name = name[:-1]
    return posixpath.join(folder, name + suffix)


def _above(path: str) -> Iterator[str]:
    while path := posixpath.dirname(path):
        yield path


def _encode(text: str) -> bytes:
    return text.encode("utf-8", "surrogateescape")


class Mirror:
    """One copy of a directory. All methods block."""

    def __init__(self, root: str, hidden: Collection[str] = ()) -> None:
        """`hidden` are absolute paths that are left out, with everything below them."""
        self._root = os.path.realpath(root)
        self._hidden = frozenset(hidden)
        self._hashes: dict[str, tuple[Signature, str]] = {}
        self._seen: dict[str, Signature] = {}
        self.skipped: dict[str, str] = {}  # paths that the last scan left out, with the reason

    def scan(self) -> dict[str, FileState]:
        """The manifest of the directory. Raises `ToolError` if it is too large."""
        found: dict[str, FileState] = {}
        self._seen, self.skipped = {}, {}
        old, self._hashes = self._hashes, {}
        total, folders = 0, ["."]
        while folders:
            folder = folders.pop()
            for path, entry in self._scan_folder(folder, old):
                found[path] = entry
                total += entry.size
                if entry == DIRECTORY:
                    folders.append(path)
            if len(found) > MAX_ENTRIES or total > MAX_BYTES:
                most = f"at most {MAX_ENTRIES:,} files of {human_size(MAX_BYTES)} in all"
                raise ToolError(
                    f"{self._root!r} is too large to be copied: the ssh sandbox allows {most}. Use "
                    "a smaller workspace, or set sandbox.workspaceAccess to 'none'"
                )
        return found

    def _scan_folder(self, folder: str, old: Hashes) -> Iterator[tuple[str, FileState]]:
        try:
            with opened(self._root, folder, _READ | os.O_DIRECTORY) as fd:
                for name in os.listdir(fd):
                    path = name if folder == "." else f"{folder}/{name}"
                    if _TEMPORARY.fullmatch(name) or f"{self._root}/{path}" in self._hidden:
                        continue
                    info = look(name, fd)
                    entry = None if info is None else self._look(fd, path, info, old)
                    if info is not None and entry is not None:
                        self._seen[path] = _sign(info)
                        yield path, entry
        except (OSError, ToolInputError) as error:
            if folder == ".":
                # An empty manifest would mean that everything was deleted.
                raise ToolError(f"{self._root!r} cannot be read: {error}") from None
            if not isinstance(error, FileNotFoundError):
                self.skipped[folder] = "it cannot be read, or was replaced in the meantime"

    def _look(self, folder: int, path: str, info: os.stat_result, old: Hashes) -> FileState | None:
        name = os.path.basename(path)
        if stat.S_ISDIR(info.st_mode):
            return DIRECTORY
        if stat.S_ISLNK(info.st_mode):
            return FileState("link", target=os.readlink(name, dir_fd=folder))
        if not stat.S_ISREG(info.st_mode):
            return None
        if info.st_size > MAX_FILE:
            self.skipped[path] = f"it is larger than {human_size(MAX_FILE)}"
            return None
        signature = _sign(info)
        known, sha256 = old.get(path, ((), ""))
        if known != signature:
            data = _read(folder, name, info)
            if data is None:
                self.skipped[path] = "it cannot be read, or was changed in the meantime"
                return None
            sha256 = hashlib.sha256(data).hexdigest()
        if time.time_ns() - info.st_ctime_ns > _FRESH_NS:
            self._hashes[path] = signature, sha256
        return FileState("file", 0o755 if info.st_mode & 0o100 else 0o644, info.st_size, sha256)

    def read(self, paths: Iterable[str]) -> dict[str, bytes]:
        """The content of the files that can be read."""
        found = {}
        for path in paths:
            with suppress(OSError, ToolInputError), self._open_parent(path) as folder:
                name = os.path.basename(path)
                info = os.stat(name, dir_fd=folder, follow_symlinks=False)
                is_file = stat.S_ISREG(info.st_mode) and info.st_size <= MAX_FILE
                if is_file and (data := _read(folder, name, info)) is not None:
                    found[path] = data
        return found

    def apply(self, steps: Iterable[Step], contents: Mapping[str, bytes]) -> dict[str, str]:
        """Carry out steps in order; returns those that failed, with the reason."""
        failed: dict[str, str] = {}
        for path, entry in steps:
            try:
                with self._open_parent(path) as folder:
                    self._take(folder, path, entry, contents.get(path))
            except OSError as error:
                failed[path] = (error.strerror or str(error)).lower()
            except ToolInputError:
                failed[path] = "a directory above it was replaced by a link"
        return failed

    def _take(self, folder: int, path: str, entry: FileState | None, data: bytes | None) -> None:
        name, temp = os.path.basename(path), temp_name()
        now, seen = look(name, folder), self._seen.get(path)
        if seen != (now and _sign(now)):
            raise OSError(0, "it was changed in the meantime")
        if entry is None and now is not None:
            (os.rmdir if stat.S_ISDIR(now.st_mode) else os.unlink)(name, dir_fd=folder)
        elif entry == DIRECTORY and now is None:
            os.mkdir(name, dir_fd=folder)
        elif entry is not None and entry != DIRECTORY:
            try:
                if entry.kind == "link":
                    os.symlink(entry.target, temp, dir_fd=folder)
                else:
                    _write(folder, temp, entry, data, now)
                os.replace(temp, name, src_dir_fd=folder, dst_dir_fd=folder)
            except OSError:
                with suppress(OSError):
                    os.unlink(temp, dir_fd=folder)
                raise
        self._seen.pop(path, None)
        self._hashes.pop(path, None)
        if entry is not None and (made := look(name, folder)) is not None:
            self._seen[path] = _sign(made)

    def _open_parent(self, path: str) -> AbstractContextManager[int]:
        return opened(self._root, os.path.dirname(path) or ".", os.O_PATH | os.O_DIRECTORY)


def _sign(info: os.stat_result) -> Signature:
    """Differs if a file was changed or replaced, and if a directory was replaced."""
    if stat.S_ISDIR(info.st_mode):
        return (info.st_ino,)
    return info.st_ino, info.st_size, info.st_mtime_ns, info.st_ctime_ns, info.st_mode


def _read(folder: int, name: str, info: os.stat_result) -> bytes | None:
    """The content of a file; None if it was changed or replaced since `info`."""
    try:
        fd = os.open(name, _READ, dir_fd=folder)
    except OSError:
        return None
    with open(fd, "rb") as file:
        data = file.read(info.st_size + 1)
        return data if _sign(os.fstat(fd)) == _sign(info) and len(data) == info.st_size else None


def _write(
    folder: int, temp: str, entry: FileState, data: bytes | None, now: os.stat_result | None
) -> None:
    """Write a new file, with the mode of the file that it replaces except for the execute bits."""
    if data is None or hashlib.sha256(data).hexdigest() != entry.sha256:
        raise OSError(0, "its content was changed in the meantime")
    with open(os.open(temp, _WRITE, 0o666, dir_fd=folder), "wb") as file:
        file.write(data)
        like = now if now and stat.S_ISREG(now.st_mode) else os.fstat(file.fileno())
        mode = like.st_mode & 0o777
        # Grant execution to everyone who may read it.
        runs = (mode & 0o444) >> 2
        os.fchmod(file.fileno(), mode | runs if entry.mode & 0o100 else mode & ~0o111)
