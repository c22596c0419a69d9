"""What the file tools need of a file system; a container or a remote host can stand in for it."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import AbstractAsyncContextManager
from typing import Literal, NamedTuple, Protocol

Kind = Literal["file", "directory", "link", "other"]


class DirEntry(NamedTuple):
    """One name in a directory. Links are not followed."""

    name: str
    kind: Kind


class File(Protocol):
    """An open regular file. What is read comes from the file that was opened, whatever happens to
    its name meanwhile."""

    @property
    def size(self) -> int: ...

    async def read(self, size: int) -> bytes:
        """The next bytes, at most `size`; empty at the end."""
        ...


class FileSystem(Protocol):
    """Paths are as the caller wrote them: relative to the workspace, or absolute.

    Raises `ToolInputError` when there is no such file or it is of the wrong kind, and
    `ToolAuthorizationError` when it lies outside what may be reached.
    """

    def open(self, path: str) -> AbstractAsyncContextManager[File]: ...

    async def list(self, path: str) -> Sequence[DirEntry]:
        """All entries, in byte order of their names."""
        ...
