"""What a search asks for, where it begins, and what it gives back."""

from __future__ import annotations

from collections.abc import Callable
from typing import Literal, NamedTuple, Protocol

import msgspec

Output = Literal["content", "files", "count"]
Kind = Literal["file", "directory"]
Sort = Literal["path", "time", "none"]
Stopped = Literal["", "enough", "time", "failed"]
"""Why a search ended before it was through: enough was found, its time was up, the program died."""
EngineName = Literal["ripgrep", "python"]
Admit = Callable[[str], bool]
"""Whether a file may be shown, by the path that it would be shown with. Called in a thread."""

MAX_LINE = 2_000
"""Bytes of a line that are kept at least, where it has as many."""


def admit_all(_path: str) -> bool:
    return True


class Start(NamedTuple):
    """Where a search begins."""

    fd: int
    """An open handle of a directory; whoever asked for it closes it."""
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


class Grep(msgspec.Struct, frozen=True):
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


class Find(msgspec.Struct, frozen=True):
    """A search for names."""

    pattern: str
    path: str = "."
    kind: Kind = "file"
    sort: Sort = "path"
    limit: int = 1_000
    max_chars: int = 1_000_000
    """Of all paths together; one more than fits is given back."""
    ignored: bool = False


class Line(NamedTuple):
    """One line of a file."""

    number: int
    is_match: bool
    """False for the lines around a match."""
    text: bytes


class Hits(NamedTuple):
    """What was found in one file."""

    path: str
    """From the workspace, or absolute for what lies outside it; as `read` takes it."""
    lines: tuple[Line, ...] = ()
    matches: int = 1
    """Matching lines in all of the file, as far as they were counted."""


class Searched(NamedTuple):
    """What was looked at by a search that found nothing. Says nothing of what is in the files."""

    files: int
    linked: int
    """Files left out because they have several names."""
    refused: int
    """Files left out because they may not be shown."""
    whole: bool
    """False when there are more than were counted."""


class Found(NamedTuple):
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


class Names(NamedTuple):
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
