"""Files on this machine. Everything that may block runs in a thread."""

from __future__ import annotations

import heapq
import os
import stat
import threading
from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from operator import itemgetter
from time import monotonic

from msgspec.structs import replace

from clawkit.config.paths import home
from clawkit.core.tasks import in_thread, unbroken
from clawkit.errors import ConflictError, ToolAuthorizationError, ToolError, ToolInputError
from clawkit.fs.containment import O_PATH, await_changes
from clawkit.fs.journal import recover
from clawkit.fs.protected_files import Protection
from clawkit.fs.protocols import Change, Changed, DirEntry, Info, Kind, Listing, OpenFile, Start
from clawkit.fs.roots import Roots, has_kept_path, place_of, reopen
from clawkit.fs.transaction import Committer, info_of

# Opened with O_PATH first, until the type is known: opening a device can have side effects.
_FLAGS = os.O_RDONLY | os.O_NONBLOCK | os.O_NOCTTY
_KINDS = {
    stat.S_IFREG: "a file",
    stat.S_IFDIR: "a directory (use ls)",
    stat.S_IFIFO: "a named pipe",
    stat.S_IFSOCK: "a socket",
}
_PATIENCE = 2.0
"""Seconds for which opening is retried while a file is being replaced."""
_AHEAD = 64 * 1024
"""Bytes that are read when a file is opened; covers most files completely."""


class LocalFile:
    """An open file on this machine. Closed at the latest with the last reference."""

    def __init__(self, fd: int, place: str, info: Info, ahead: bytes) -> None:
        """`ahead` is the start of the file. Takes ownership of `fd`."""
        self._fd = fd
        self.place = place
        self.info = info
        self._ahead = ahead

    async def read(self, size: int, at: int) -> bytes:
        ahead = self._ahead
        if at + size <= len(ahead) or (len(ahead) < _AHEAD and len(ahead) == self.info.size):
            return ahead[at : at + size]
        data: bytes = await in_thread(self._pread, size, at)
        return data

    def _pread(self, size: int, at: int) -> bytes:
        try:
            # A buffer that is not much larger than the file: a new one costs more than reading.
            data = os.pread(self._fd, min(size, max(self.info.size - at, 0) + 1), at)
            while len(data) < size:
                more = os.pread(self._fd, size - len(data), at + len(data))
                if not more:
                    break
                data += more
        except OSError as error:
            raise ToolInputError(f"{self.place!r} cannot be read: {error.strerror}") from None
        return data

    def close(self) -> None:
        if self._fd >= 0:
            os.close(self._fd)
            self._fd = -1

    def __del__(self) -> None:
        with suppress(OSError):
            self.close()


class _FileOpening:
    """A file for an `async with`. Not a generator, for speed."""

    def __init__(self, files: LocalFileSystem, path: str) -> None:
        self._files = files
        self._path = path

    async def __aenter__(self) -> OpenFile:
        self._file = await self._files.open_file(self._path)
        return self._file

    async def __aexit__(self, *_: object) -> None:
        self._file.close()


class LocalFileSystem:
    """The files of this machine, confined to the workspace and further roots by default."""

    def __init__(
        self,
        workspace: str,
        *,
        workspace_only: bool = True,
        read_roots: Sequence[str] = (),
        write_roots: Sequence[str] = (),
        hidden: Sequence[str] = (),
        hard_links: bool = False,
        protection: Protection = Protection(),  # noqa: B008  # a tuple of tuples
        ask: bool = True,
        journals: str = "",
    ) -> None:
        """Nothing in the directories `hidden` can be read or changed. `hard_links` permits files
        with several hard links; `ask` lets a person decide about protected files, which are refused
        otherwise; `journals` is the directory of the journals of changes to several files."""
        self._roots = Roots(
            workspace,
            held=workspace_only,
            read_roots=read_roots,
            write_roots=write_roots,
            hidden=hidden,
        )
        self.workspace = self._roots.workspace
        self._one_name = workspace_only and not hard_links
        self._journals = journals or os.path.join(home(os.environ), "changes")
        self._committer = Committer(
            self._roots,
            protection=protection,
            ask=ask,
            hard_links=hard_links,
            journals=self._journals,
        )
        self._recovering = threading.Lock()
        self._is_recovered = False
        self._is_local = False

    def open(self, path: str) -> _FileOpening:
        return _FileOpening(self, path)

    async def list(
        self, path: str, *, after: str = "", limit: int = 1_000, details: bool = False
    ) -> Listing:
        listing: Listing = await in_thread(self._list, path, after, limit, details)
        return listing

    async def change(
        self, changes: Sequence[Change], *, allowed: frozenset[str] = frozenset()
    ) -> tuple[Changed, ...]:
        # Not cancellable: a late cancellation is better than half of a change.
        done: tuple[Changed, ...] = await unbroken(in_thread(self._change, changes, allowed))
        return done

    @property
    def readable(self) -> tuple[str, ...] | None:
        return self._roots.readable

    def start(self, path: str) -> Start:
        """Open the start of a search; see `Places`. Blocks."""
        self._recover()
        fd = self._roots.open(path, O_PATH)
        try:
            info, place = os.fstat(fd), place_of(fd)
            if stat.S_ISDIR(info.st_mode):
                start, fd = Start(fd, place, ""), -1
                return start
            self._check_file(path, info)
            folder = self._roots.open(os.path.dirname(place), O_PATH | os.O_DIRECTORY)
            return Start(folder, os.path.dirname(place), os.path.basename(place))
        except OSError as error:
            raise _unreadable(path, error) from None
        finally:
            if fd >= 0:
                os.close(fd)

    def _recover(self) -> None:
        """Settle changes that a killed process left behind, before the first access to files."""
        if self._is_recovered:
            return
        with self._recovering:
            if not self._is_recovered:
                recover(self._journals)
                with suppress(OSError):
                    self._is_local = self._roots.is_local
                self._is_recovered = True

    async def open_file(self, path: str) -> LocalFile:
        file = self._open_near(path)
        return file if file is not None else await in_thread(self._open_file, path)

    def _open_near(self, path: str) -> LocalFile | None:
        """Open a file without a thread, which would cost more than everything else, if opening it
        cannot block. None in all other cases, for the general way."""
        if not (self._is_local and self._is_recovered):
            return None
        try:
            mark = self._roots.open_near(path, O_PATH)
        except (OSError, ToolInputError):
            return None
        with suppress(ConflictError):
            return self._open_marked(path, mark, near=True)
        return None

    def _open_file(self, path: str) -> LocalFile:
        self._recover()
        end = monotonic() + _PATIENCE
        while monotonic() < end:
            with suppress(ConflictError):
                return self._open_marked(path, self._roots.open(path, O_PATH))
        raise ConflictError(f"{path!r} kept being replaced while it was being opened; try again")

    def _open_marked(self, path: str, mark: int, *, near: bool = False) -> LocalFile:
        fd = -1
        try:
            self._check_file(path, os.fstat(mark))
            fd = reopen(mark, _FLAGS)
            info, ahead, place = os.fstat(fd), os.pread(fd, _AHEAD, 0), place_of(fd)
            self._check_name(path, fd, place, info, near=near)
            file, fd = LocalFile(fd, place, info_of(info), ahead), -1
            return file
        except OSError as error:
            raise _unreadable(path, error) from None
        finally:
            os.close(mark)
            if fd >= 0:
                os.close(fd)

    def _check_file(self, path: str, info: os.stat_result) -> None:
        if not stat.S_ISREG(info.st_mode):
            raise ToolInputError(f"{path!r} is {_say_kind(info.st_mode)}, not a file")
        if self._one_name and info.st_nlink > 1:
            raise ToolAuthorizationError(
                f"{path!r} has {info.st_nlink} names (hard links), so it may be a file from "
                "outside the workspace; use a copy, or ask the person to set tools.fs.hardLinks to "
                "'allow'",
                reason="hard-link",
            )

    def _check_name(
        self, path: str, fd: int, place: str, info: os.stat_result, *, near: bool
    ) -> None:
        """Raises `ConflictError` unless the open file still has its path, and no other hard link:
        one may have been removed just before the links were counted.

        On a local file system (`near`) the kernel reports whether the path was removed; such a file
        is then opened the general way.
        """
        if not self._one_name:
            return
        if near:
            is_same = has_kept_path(fd, place, info) and self._roots.can_read(place)
            links = info.st_nlink
        else:
            await_changes(place)
            now = self._roots.look_at(place)
            is_same = now is not None and os.path.samestat(now, info)
            links = now.st_nlink if now else 0
        if not is_same or links > 1:
            raise ConflictError(f"{path!r} was replaced while it was being opened")

    def _list(self, path: str, after: str, limit: int, details: bool) -> Listing:
        self._recover()
        fd = -1
        mark = self._roots.open(path, O_PATH)
        try:
            mode = os.fstat(mark).st_mode
            if not stat.S_ISDIR(mode):
                raise ToolInputError(f"{path!r} is {_say_kind(mode)}, not a directory; use read")
            fd = reopen(mark, _FLAGS | os.O_DIRECTORY)
            listing = _scan(fd, os.fsencode(after), limit)
            if details:
                entries = tuple(_look(fd, entry) for entry in listing.entries)
                listing = replace(listing, entries=entries)
            return listing
        except OSError as error:
            raise _unreadable(path, error) from None
        finally:
            os.close(mark)
            if fd >= 0:
                os.close(fd)

    def _change(self, changes: Sequence[Change], allowed: frozenset[str]) -> tuple[Changed, ...]:
        self._recover()
        try:
            return self._committer.commit(changes, allowed)
        except ToolError:
            # Something may still have to be rolled back.
            self._is_recovered = False
            raise


def _unreadable(path: str, error: OSError) -> ToolInputError:
    return ToolInputError(f"{path!r} cannot be read: {(error.strerror or '').lower()}")


def _scan(fd: int, after: bytes, limit: int) -> Listing:
    # Only the requested entries are kept in memory: a directory can be very large.
    total = later = 0

    def wanted(entries: Iterable[os.DirEntry[str]]) -> Iterator[tuple[bytes, os.DirEntry[str]]]:
        nonlocal total, later
        for entry in entries:
            total += 1
            key = os.fsencode(entry.name)
            if key > after:
                later += 1
                yield key, entry

    with os.scandir(fd) as entries:
        best = heapq.nsmallest(limit, wanted(entries), key=itemgetter(0))
    found = tuple(DirEntry(entry.name, _kind(entry)) for _, entry in best)
    return Listing(found, total, later - len(found))


def _look(fd: int, entry: DirEntry) -> DirEntry:
    with suppress(OSError):
        info = info_of(os.stat(entry.name, dir_fd=fd, follow_symlinks=False))
        target = os.readlink(entry.name, dir_fd=fd) if info.kind == "link" else ""
        return replace(entry, kind=info.kind, info=info, target=target)
    return entry


def _kind(entry: os.DirEntry[str]) -> Kind:
    if entry.is_symlink():
        return "link"
    if entry.is_dir(follow_symlinks=False):
        return "directory"
    return "file" if entry.is_file(follow_symlinks=False) else "other"


def _say_kind(mode: int) -> str:
    return _KINDS.get(stat.S_IFMT(mode), "a device")
