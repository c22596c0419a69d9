"""Notices files that somebody else changed, so that servers do not rely on what is no more."""

from __future__ import annotations

import os
from collections.abc import Callable

CREATED, CHANGED, DELETED = 1, 2, 3
"""Kinds of changes, as servers number them."""
MAX_ENTRIES = 10_000
MAX_FILES = 3_000
# Large, and full of files that others own. Hidden directories are skipped as well.
_SKIPPED = frozenset(("node_modules", "__pycache__", "target", "venv", "vendor", "dist", "build"))


class Tree:
    """The files of a directory as they were when last looked at.

    Looks at a bounded number of files, those near the top first; in a larger tree changes to the
    others go unnoticed.
    """

    def __init__(self, root: str, matters: Callable[[str], bool]) -> None:
        self._root = root
        self._matters = matters
        self._seen: dict[str, tuple[int, int]] | None = None

    def changes(self) -> dict[str, int]:
        """The files, by place, that were changed since the last look; none at the first one."""
        old, new = self._seen, self._scan()
        self._seen = new
        if old is None:
            return {}
        # A file may also be missing because the look ended before it.
        gone = old.keys() - new.keys()
        found = {place: DELETED for place in gone if not os.path.lexists(place)}
        for place, stamp in new.items():
            known = old.get(place)
            if known != stamp:
                found[place] = CREATED if known is None else CHANGED
        return found

    def _scan(self) -> dict[str, tuple[int, int]]:
        found: dict[str, tuple[int, int]] = {}
        folders = [self._root]
        entries = 0
        # Grows while it is gone through: nearer directories come first.
        for folder in folders:
            try:
                with os.scandir(folder) as scan:
                    for entry in scan:
                        entries += 1
                        if entries > MAX_ENTRIES or len(found) >= MAX_FILES:
                            return found
                        if entry.is_dir(follow_symlinks=False):
                            if entry.name not in _SKIPPED and not entry.name.startswith("."):
                                folders.append(entry.path)
                        elif self._matters(entry.name):
                            info = entry.stat(follow_symlinks=False)
                            found[entry.path] = (info.st_mtime_ns, info.st_size)
            except OSError:
                continue  # it has gone meanwhile, or is not for us to read
        return found
