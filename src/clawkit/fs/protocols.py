"""Protocols of file systems and searches for the file tools; containers and remote hosts can
implement them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import AbstractAsyncContextManager
from typing import Literal, Protocol

from msgspec import Struct

from clawkit.errors import ToolInputError
from clawkit.text import human_size

Kind = Literal["file", "directory", "link", "other"]
ABSENT = ""
"""The version of a file that does not exist."""
CHUNK = 256 * 1024

Output = Literal["content", "files", "count"]
FindKind = Literal["file", "directory"]
Sort = Literal["path", "time", "none"]
Stopped = Literal["", "enough", "time", "failed"]
"""Why a search ended early: enough results, a timeout, or a failure of the search program."""
EngineName = Literal["ripgrep", "python"]
Admit = Callable[[str], bool]
"""Whether a file may be shown, given the path that would be shown. Called in a thread."""

MAX_LINE = 2_000
"""Bytes of a line that are kept; engines may return a little more."""


class Info(Struct, frozen=True):
    """Facts about one file. Links are not followed."""

    kind: Kind
    size: int
    mtime_ns: int
    mode: int
    version: str
    """Differs after the file was replaced or written to; otherwise opaque."""


class DirEntry(Struct, frozen=True):
    name: str
    kind: Kind
    info: Info | None = None
    """Only if requested; None also if the file was removed in the meantime."""
    target: str = ""
    """The target of a link, if requested."""


class Listing(Struct, frozen=True):
    """A part of a directory, in byte order of the names."""

    entries: tuple[DirEntry, ...]
    total: int
    """Names in the whole directory."""
    left: int
    """Names after the last entry."""


class OpenFile(Protocol):
    """An open regular file. Reads always come from the file that was opened, even if another file
    replaces it."""

    @property
    def place(self) -> str:
        """The absolute path with links resolved, one spelling per file."""

    @property
    def info(self) -> Info: ...

    async def read(self, size: int, at: int) -> bytes:
        """`size` bytes from position `at`; fewer only at the end of the file."""


class Change(Struct, frozen=True):
    """A file to write, or to delete if `data` is None. Missing directories are created."""

    path: str
    data: bytes | None
    expect: str | None = None
    """The version that the file must have, `ABSENT` for no file; None for any."""
    like: str = ""
    """A file whose mode and owner a new file gets; for moves."""


class Changed(Struct, frozen=True):
    place: str
    info: Info | None
    """The file after the change; None if it was deleted."""


class FileSystem(Protocol):
    """Paths are as the caller wrote them: relative to the workspace, or absolute.

    All methods raise `NotFoundError` if a file does not exist, `ToolInputError` if it has the wrong
    type or the system refuses, and `ToolAuthorizationError` if it is outside of the accessible
    directories. A missing or refused file is reported before anything is changed.
    """

    def open(self, path: str) -> AbstractAsyncContextManager[OpenFile]: ...

    async def list(
        self, path: str, *, after: str = "", limit: int = 1_000, details: bool = False
    ) -> Listing:
        """At most `limit` entries with names after `after`."""

    async def change(
        self, changes: Sequence[Change], *, allowed: frozenset[str] = frozenset()
    ) -> tuple[Changed, ...]:
        """Make all changes or none, even if the program is killed in the middle.

        Raises `ConflictError` if a file does not have the expected version, and `ProtectedError`
        for protected files whose places are not in `allowed`.
        """


class WorkspaceFiles(FileSystem, Protocol):
    """The same file system, confined to the workspace even if more is accessible otherwise."""


async def read_all(file: OpenFile, max_bytes: int) -> bytes:
    """Read the whole file. Raises `ToolInputError` if it is larger than `max_bytes`."""
    if file.info.size <= max_bytes:
        # It may have grown in the meantime, and some special files report a size of 0.
        data = await file.read(max_bytes + 1, 0)
        if len(data) <= max_bytes:
            return data
    raise ToolInputError(
        f"{file.place!r} is larger than {human_size(max_bytes)}, the limit for reading at once"
    )


def admit_all(_path: str) -> bool:
    return True


class Start(Struct, frozen=True):
    fd: int
    """An open directory; the caller closes it."""
    place: str
    """The absolute path of that directory, with links resolved."""
    name: str
    """The only file in it to search; empty for everything below."""


class Places(Protocol):
    """Opens the start of a search. Raises like `FileSystem`, including for a file that may not be
    read."""

    @property
    def readable(self) -> tuple[str, ...] | None:
        """The readable directories, with links resolved; None for the whole machine."""

    def start(self, path: str) -> Start: ...


class Grep(Struct, frozen=True):
    pattern: str
    path: str = "."
    globs: tuple[str, ...] = ()
    """A file must match one of these, and none that starts with `!`."""
    type: str = ""
    ignore_case: bool = False
    literal: bool = False
    multiline: bool = False
    context: int = 0
    output: Output = "content"
    limit: int = 100
    """Maximum matching lines, or files for other outputs."""
    ignored: bool = False


class Find(Struct, frozen=True):
    pattern: str
    path: str = "."
    kind: FindKind = "file"
    sort: Sort = "path"
    limit: int = 1_000
    max_chars: int = 1_000_000
    """Of all paths together; one more path than fits is returned."""
    ignored: bool = False


class Line(Struct, frozen=True):
    number: int
    is_match: bool
    """False for context lines."""
    text: bytes


class FileHits(Struct, frozen=True):
    path: str
    """Relative to the workspace, or absolute outside of it; as `read` accepts it."""
    lines: tuple[Line, ...] = ()
    matches: int = 1
    """Matching lines in the whole file, as far as they were counted."""


class Searched(Struct, frozen=True):
    """Which files a search without matches covered. Reveals nothing about their content."""

    files: int
    linked: int
    """Files skipped because they have several hard links."""
    refused: int
    """Files skipped because they may not be shown."""
    whole: bool
    """False if there are more files than were counted."""


class SearchResult(Struct, frozen=True):
    """The result of a search in files, in order of path and line. Files that may not be shown, and
    files with several hard links if those may not be read, are treated as if they did not exist."""

    hits: tuple[FileHits, ...]
    total: int
    """Matching lines, or files for other outputs, including those over the limit."""
    stopped: Stopped
    engine: EngineName
    unread: int = 0
    """Files that could not be opened."""
    binary: bool = False
    """Whether the only file that was searched has a match but is not text."""
    searched: Searched | None = None


class Names(Struct, frozen=True):
    """The matching paths, in the requested order."""

    paths: tuple[str, ...]
    total: int
    """Including those over the limit, as far as they were counted."""
    stopped: Stopped
    engine: EngineName
    unread: int = 0


class Search(Protocol):
    """Searches below a path; relative paths start at the workspace.

    Includes hidden files, but not `.git` and ignored files. Links are not followed. Raises like
    `FileSystem`, and `ToolInputError` for an invalid pattern.
    """

    async def grep(self, query: Grep, admit: Admit = admit_all) -> SearchResult: ...

    async def find(self, query: Find, admit: Admit = admit_all) -> Names: ...
