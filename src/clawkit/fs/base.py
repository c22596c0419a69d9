"""What the file tools need of a file system; a container or a remote host can stand in for it."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass
from typing import Literal, NamedTuple, Protocol

from clawkit.errors import ToolInputError
from clawkit.text import human_size

Kind = Literal["file", "directory", "link", "other"]
ABSENT = ""
"""The version of a file that is not there."""
CHUNK = 256 * 1024


class Info(NamedTuple):
    """Facts about one file. Links are not followed."""

    kind: Kind
    size: int
    mtime_ns: int
    mode: int
    version: str
    """Another text whenever the file was replaced or written to; means nothing else."""


class DirEntry(NamedTuple):
    """One name in a directory."""

    name: str
    kind: Kind
    info: Info | None = None
    """Only when asked for; None also when the file went away meanwhile."""
    target: str = ""
    """Where a link points, when asked for."""


class Listing(NamedTuple):
    """A part of a directory, in byte order of the names."""

    entries: tuple[DirEntry, ...]
    total: int
    """Names in the whole directory."""
    left: int
    """Names that come after the last one here."""


class File(Protocol):
    """An open regular file. What is read comes from the file that was opened, whatever happens to
    its name meanwhile."""

    @property
    def place(self) -> str:
        """The absolute path of the file itself: links followed, one spelling per file."""
        ...

    @property
    def info(self) -> Info: ...

    async def read(self, size: int, at: int) -> bytes:
        """The bytes from position `at`: `size` of them unless the file ends before; empty at the
        end."""
        ...


@dataclass(frozen=True, slots=True)
class Change:
    """A file to be written, or deleted when `data` is None. Missing directories are made."""

    path: str
    data: bytes | None
    expect: str | None = None
    """The version the file must still have, `ABSENT` for none; None takes whatever is there."""
    like: str = ""
    """A file whose mode and owner a new file gets; for moves."""


class Changed(NamedTuple):
    """What became of a change."""

    place: str
    info: Info | None
    """As the file is now; None when it was deleted."""


class FileSystem(Protocol):
    """Paths are as the caller wrote them: relative to the workspace, or absolute.

    Everything raises `NotFoundError` when there is no such file, `ToolInputError` when it is of the
    wrong kind or the system refuses, and `ToolAuthorizationError` when it lies outside what may be
    reached. A missing or refused file is told before anything was changed.
    """

    def open(self, path: str) -> AbstractAsyncContextManager[File]: ...

    async def list(
        self, path: str, *, after: str = "", limit: int = 1_000, details: bool = False
    ) -> Listing:
        """At most `limit` entries whose names come after `after`."""
        ...

    async def change(
        self, changes: Sequence[Change], *, allowed: frozenset[str] = frozenset()
    ) -> tuple[Changed, ...]:
        """Makes all the changes or none, also when the program is killed meanwhile.

        Raises `ConflictError` when a file does not have the expected version, and `ProtectedError`
        for protected files whose places are not in `allowed`.
        """
        ...


class WorkspaceFiles(FileSystem, Protocol):
    """The same files, held to the workspace alone, whatever else may be reached."""


async def read_all(file: File, max_bytes: int) -> bytes:
    """The whole file. Raises `ToolInputError` when it is larger than `max_bytes`."""
    if file.info.size <= max_bytes:
        data = await file.read(file.info.size + 1, 0)
        # It may have grown meanwhile, and some files say that they are empty.
        more = len(data) > file.info.size
        while more and len(data) <= max_bytes:
            part = await file.read(CHUNK, len(data))
            data += part
            more = bool(part)
        if len(data) <= max_bytes:
            return data
    raise ToolInputError(
        f"{file.place!r} is larger than {human_size(max_bytes)}, which is the most that can be "
        "taken in at once"
    )
