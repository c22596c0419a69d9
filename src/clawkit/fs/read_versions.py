"""The versions of files that a run has read, so that it does not overwrite changes by others."""

from __future__ import annotations

from clawkit.errors import ConflictError
from clawkit.fs.protocols import Info

MAX_FILES = 10_000
MAX_HASHED = 256 * 1024
"""Larger files are compared by their version only."""


class ReadVersions:
    """The versions of files when the run last read or wrote them, by place."""

    def __init__(self) -> None:
        self._files: dict[str, tuple[str, int | None]] = {}
        """Version and hash of the content, oldest note first."""

    def note(self, place: str, info: Info | None, data: bytes | None = None) -> None:
        """Record the current version of a file; `data` is its whole content, if available."""
        self._files.pop(place, None)
        if info is None:
            return
        self._files[place] = (info.version, _hash(data))
        while len(self._files) > MAX_FILES:
            del self._files[next(iter(self._files))]

    def check(self, place: str, info: Info, data: bytes | None = None) -> None:
        """Raises `ConflictError` if the file has changed since it was last noted; unknown files
        pass. A file that was rewritten with the same content has not changed."""
        version, content = self._files.get(place, (info.version, None))
        if version == info.version or (content is not None and content == _hash(data)):
            return
        raise ConflictError(
            f"{place!r} was changed since you read it; nothing was written. "
            "Read it again, then repeat the change if it still applies"
        )


def _hash(data: bytes | None) -> int | None:
    return hash(data) if data is not None and len(data) <= MAX_HASHED else None
