"""The versions of files that a run has read, so that it does not overwrite changes by others."""

from __future__ import annotations

from collections import OrderedDict
from typing import NamedTuple

from clawkit.errors import ConflictError
from clawkit.fs.protocols import Info

MAX_FILES = 10_000
MAX_HASHED = 256 * 1024
"""Larger files are told apart by their version alone."""


class _Sight(NamedTuple):
    version: str
    content: int | None


class ReadVersions:
    """The files of one run, by place, as they were when the run last read or wrote them."""

    def __init__(self) -> None:
        self._files: OrderedDict[str, _Sight] = OrderedDict()

    def note(self, place: str, info: Info | None, data: bytes | None = None) -> None:
        """Remember a file as it is; `data` is all of its content, where it is at hand."""
        self._files.pop(place, None)
        if info is None:
            return
        self._files[place] = _Sight(info.version, _hash(data))
        while len(self._files) > MAX_FILES:
            self._files.popitem(last=False)

    def check(self, place: str, info: Info, data: bytes | None = None) -> None:
        """Raises `ConflictError` when the file is not as it was last seen; files that were never
        seen pass. A file that was rewritten with the same content has not changed."""
        sight = self._files.get(place)
        if sight is None or sight.version == info.version:
            return
        if sight.content is not None and sight.content == _hash(data):
            return
        raise ConflictError(
            f"{place!r} was changed since you read it; nothing was written. "
            "Read it again, then repeat the change if it still fits"
        )


def _hash(data: bytes | None) -> int | None:
    return hash(data) if data is not None and len(data) <= MAX_HASHED else None
