"""Files on this machine."""

from __future__ import annotations

import errno
import os
import stat
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager

from clawkit.core.paths import plain_path
from clawkit.errors import ToolAuthorizationError, ToolInputError
from clawkit.fs.base import DirEntry, File, Kind
from clawkit.fs.inside import O_PATH, open_anywhere, open_inside, relative_path
from clawkit.text import nearest

# Opening a FIFO must not wait for a writer, and a terminal must not become ours.
_FLAGS = os.O_RDONLY | os.O_NONBLOCK | os.O_NOCTTY
_KINDS = {
    errno.ENOENT: "does not exist",
    errno.ENOTDIR: "does not exist: a part of the path is not a directory",
    errno.EACCES: "may not be read",
    errno.EPERM: "may not be read",
    errno.ELOOP: "leads through a link that is not followed",
    errno.ENAMETOOLONG: "has a name that is too long",
}


class LocalFile:
    """An open file on this machine."""

    def __init__(self, fd: int, size: int) -> None:
        self._fd = fd
        self.size = size

    async def read(self, size: int) -> bytes:
        return os.read(self._fd, size)


class LocalFileSystem:
    """This machine's files, held to the workspace and further roots unless that is switched off."""

    def __init__(
        self, workspace: str, *, workspace_only: bool = True, read_roots: Sequence[str] = ()
    ) -> None:
        self.workspace = os.path.abspath(workspace)
        self._held = workspace_only
        self._roots = (
            self.workspace,
            *(os.path.join(self.workspace, os.path.expanduser(root)) for root in read_roots),
        )

    @asynccontextmanager
    async def open(self, path: str) -> AsyncIterator[File]:
        fd = self._open(path, _FLAGS)
        try:
            info = os.fstat(fd)
            if not stat.S_ISREG(info.st_mode):
                raise ToolInputError(f"{path!r} is {_say_kind(info.st_mode)}, not a file")
            if self._held and info.st_nlink > 1:
                raise ToolAuthorizationError(
                    f"{path!r} has {info.st_nlink} names (hard links), so it may be a file from "
                    "outside the workspace; copy it to read it",
                    reason="hard-link",
                )
            yield LocalFile(fd, info.st_size)
        finally:
            os.close(fd)

    async def list(self, path: str) -> Sequence[DirEntry]:
        fd = self._open(path, _FLAGS)
        try:
            mode = os.fstat(fd).st_mode
            if not stat.S_ISDIR(mode):
                raise ToolInputError(f"{path!r} is {_say_kind(mode)}, not a directory; use read")
            with os.scandir(fd) as entries:
                found = [DirEntry(entry.name, _kind(entry)) for entry in entries]
        finally:
            os.close(fd)
        return sorted(found, key=lambda entry: os.fsencode(entry.name))

    def _open(self, path: str, flags: int) -> int:
        root, relative = self._place(path) if self._held else self._anywhere(path)
        try:
            root_fd = os.open(root, O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)
        except OSError as error:
            raise ToolInputError(f"{root!r} cannot be opened: {error.strerror}") from None
        try:
            if not self._held:
                return open_anywhere(os.path.join(root, relative), flags)
            return open_inside(root_fd, root, relative, flags)
        except OSError as error:
            hint = _near(root_fd, root, relative) if error.errno == errno.ENOENT else ""
            what = _KINDS.get(error.errno or 0, os.strerror(error.errno or 0))
            raise ToolInputError(f"{path!r} {what}{hint}") from None
        finally:
            os.close(root_fd)

    def _anywhere(self, path: str) -> tuple[str, str]:
        """Nothing is out of reach; a relative path still starts at the workspace."""
        place = os.path.join(self.workspace, os.path.expanduser(plain_path(path)))
        return "/", relative_path(place, "/")

    def _place(self, path: str) -> tuple[str, str]:
        """The root a path lies below, and the way from there. The workspace comes first."""
        refusal: ToolAuthorizationError | None = None
        for root in self._roots:
            try:
                return root, relative_path(path, root)
            except ToolAuthorizationError as error:
                refusal = refusal or error
        raise refusal or ToolInputError(f"{path!r} cannot be reached")


def _near(root_fd: int, root: str, relative: str) -> str:
    """Names beside a missing file that look like it."""
    folder, name = os.path.split(relative)
    try:
        fd = open_inside(root_fd, root, folder or ".", os.O_RDONLY | os.O_DIRECTORY)
    except (OSError, ToolInputError):
        return ""
    try:
        close = nearest(name, os.listdir(fd)[:10_000], 3)
    finally:
        os.close(fd)
    return "; near names: " + ", ".join(map(repr, close)) if close else ""


def _kind(entry: os.DirEntry[str]) -> Kind:
    if entry.is_symlink():
        return "link"
    if entry.is_dir(follow_symlinks=False):
        return "directory"
    return "file" if entry.is_file(follow_symlinks=False) else "other"


def _say_kind(mode: int) -> str:
    for test, words in (
        (stat.S_ISREG, "a file"),
        (stat.S_ISDIR, "a directory (use ls)"),
        (stat.S_ISFIFO, "a named pipe"),
        (stat.S_ISSOCK, "a socket"),
    ):
        if test(mode):
            return words
    return "a device"
