"""The versions of files that a run has read, so that it does not overwrite changes by others."""

from __future__ import annotations

from clawkit.errors import ConflictError
from clawkit.fs.protocols import Info

MAX_FILES = 10_000
MAX_HASHED = 256 * 1024
"""Larger files are compared by their version alone."""


class ReadVersions:
    """The files of one run, by place, as they were when the run last read or wrote them."""

    def __init__(self) -> None:
        self._files: dict[str, tuple[str, int | None]] = {}
        """The version of each and the hash of its content, the one noted longest ago first."""

    def note(self, place: str, info: Info | None, data: bytes | None = None) -> None:
        """Remember a file as it is; `data` is all of its content, where it is at hand."""
        self._files.pop(place, None)
        if info is None:
            return
        self._files[place] = (info.version, _hash(data))
        while len(self._files) > MAX_FILES:
            del self._files[next(iter(self._files))]

    def check(self, place: str, info: Info, data: bytes | None = None) -> None:
        """Raises `ConflictError` when the file is not as it was last seen; files that were never
        seen pass. A file that was rewritten with the same content has not changed."""
        version, content = self._files.get(place, (info.version, None))
        if version == info.version or (content is not None and content == _hash(data)):
            return
        raise ConflictError(
            f"{place!r} was changed since you read it; nothing was written. "
            "Read it again, then repeat the change if it still fits"
        )


def _hash(data: bytes | None) -> int | None:
    return hash(data) if data is not None and len(data) <= MAX_HASHED else None
