"""What the file tools need of a file system and of a search; a container or a remote host can stand
in for either."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import AbstractAsyncContextManager
from typing import Literal, Protocol

from msgspec import Struct

from clawkit.errors import ToolInputError
from clawkit.text import human_size

Kind = Literal["file", "directory", "link", "other"]
ABSENT = ""
"""The version of a file that is not there."""
CHUNK = 256 * 1024

Output = Literal["content", "files", "count"]
FindKind = Literal["file", "directory"]
Sort = Literal["path", "time", "none"]
Stopped = Literal["", "enough", "time", "failed"]
"""Why a search ended before it was through: enough was found, its time was up, the program died."""
EngineName = Literal["ripgrep", "python"]
Admit = Callable[[str], bool]
"""Whether a file may be shown, by the path that it would be shown with. Called in a thread."""

MAX_LINE = 2_000
"""Bytes of a line that are kept at least, where it has as many."""


class Info(Struct, frozen=True):
    """Facts about one file. Links are not followed."""

    kind: Kind
    size: int
    mtime_ns: int
    mode: int
    version: str
    """Another text whenever the file was replaced or written to; means nothing else."""


class DirEntry(Struct, frozen=True):
    """One name in a directory."""

    name: str
    kind: Kind
    info: Info | None = None
    """Only when asked for; None also when the file went away meanwhile."""
    target: str = ""
    """Where a link points, when asked for."""


class Listing(Struct, frozen=True):
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


class Change(Struct, frozen=True):
    """A file to be written, or deleted when `data` is None. Missing directories are made."""

    path: str
    data: bytes | None
    expect: str | None = None
    """The version the file must still have, `ABSENT` for none; None takes whatever is there."""
    like: str = ""
    """A file whose mode and owner a new file gets; for moves."""


class Changed(Struct, frozen=True):
    """What became of a change."""

    place: str
    info: Info | None
    """As the file is now; None when it was deleted."""


class FileSystem(Protocol):
    """Paths are as the caller wrote them: relative to the workspace, or absolute.

    Everything raises `NotFoundError` when there is no such file, `ToolInputError` when it is of the
    wrong kind or the system refuses, and `ToolAuthorizationError` when it lies outside what may be
    reached. A missing or refused file is reported before anything is changed.
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
        f"{file.place!r} is larger than {human_size(max_bytes)}, the most that can be read at once"
    )


def admit_all(_path: str) -> bool:
    return True


class Start(Struct, frozen=True):
    """Where a search begins."""

    fd: int
    """An open handle of a directory; the caller closes it."""
    place: str
    """The absolute path of that directory, links resolved."""
    name: str
    """The one file in it that is to be searched; empty for all that is below."""


class Places(Protocol):
    """Where searches may begin. Raises like `FileSystem`; a file that may not be read is refused
    here."""

    @property
    def readable(self) -> tuple[str, ...] | None:
        """The directories that may be read, links resolved; None for the whole machine."""
        ...

    def start(self, path: str) -> Start: ...


class Grep(Struct, frozen=True):
    """A search in the contents of files."""

    pattern: str
    path: str = "."
    globs: tuple[str, ...] = ()
    """Any of these must fit a file, and none that begins with `!`."""
    type: str = ""
    ignore_case: bool = False
    literal: bool = False
    multiline: bool = False
    context: int = 0
    output: Output = "content"
    limit: int = 100
    """Matching lines; files when only those are wanted."""
    ignored: bool = False


class Find(Struct, frozen=True):
    """A search for names."""

    pattern: str
    path: str = "."
    kind: FindKind = "file"
    sort: Sort = "path"
    limit: int = 1_000
    max_chars: int = 1_000_000
    """Of all paths together; one more than fits is given back."""
    ignored: bool = False


class Line(Struct, frozen=True):
    """One line of a file."""

    number: int
    is_match: bool
    """False for the lines around a match."""
    text: bytes


class Hits(Struct, frozen=True):
    """What was found in one file."""

    path: str
    """From the workspace, or absolute for what lies outside it; as `read` takes it."""
    lines: tuple[Line, ...] = ()
    matches: int = 1
    """Matching lines in all of the file, as far as they were counted."""


class Searched(Struct, frozen=True):
    """What was looked at by a search that found nothing. Says nothing of what is in the files."""

    files: int
    linked: int
    """Files left out because they have several names."""
    refused: int
    """Files left out because they may not be shown."""
    whole: bool
    """False when there are more than were counted."""


class Found(Struct, frozen=True):
    """What a search in files found, in order of path and line. Files with several names, where
    those may not be read, and files that may not be shown are as if they were not there."""

    hits: tuple[Hits, ...]
    total: int
    """Matching lines, or files when only those are wanted; also those over the limit."""
    stopped: Stopped
    engine: EngineName
    unread: int = 0
    """Files that could not be opened."""
    binary: bool = False
    """The one file that was searched has a match but is not text."""
    searched: Searched | None = None


class Names(Struct, frozen=True):
    """The paths that fit, in the order asked for."""

    paths: tuple[str, ...]
    total: int
    """Also those over the limit, as far as they were counted."""
    stopped: Stopped
    engine: EngineName
    unread: int = 0


class Search(Protocol):
    """Searching below a path; relative ones start at the workspace.

    Hidden files are searched, `.git` and what ignore files name are not, links are not followed.
    Raises like `FileSystem`, and `ToolInputError` for a pattern that cannot be used.
    """

    async def grep(self, query: Grep, admit: Admit = admit_all) -> Found: ...

    async def find(self, query: Find, admit: Admit = admit_all) -> Names: ...
