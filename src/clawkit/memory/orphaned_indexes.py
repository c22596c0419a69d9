"""Indexes of workspaces that no longer exist."""

from __future__ import annotations

import glob
import os
from collections.abc import Mapping
from contextlib import closing, suppress

from msgspec import Struct

from clawkit.config import paths
from clawkit.errors import ToolError
from clawkit.memory.index import MemoryIndex
from clawkit.store import locked

_WORKSPACE = "SELECT value FROM meta WHERE name = 'workspace'"


class OrphanIndex(Struct, frozen=True, rename="camel"):
    path: str
    workspace: str
    size_bytes: int


def find_orphans(env: Mapping[str, str]) -> list[OrphanIndex]:
    """The indexes whose workspace does not exist, or is not mounted. Indexes that are unreadable or
    do not name a workspace are skipped."""
    found = []
    for path in sorted(glob.glob(f"{glob.escape(paths.memory_dir(env))}/*.sqlite")):
        with suppress(ToolError, OSError, TypeError), closing(MemoryIndex(path)) as index:
            workspace = os.fsdecode(index.run(lambda db: db.execute(_WORKSPACE).get or b""))
            if os.path.isabs(workspace) and _is_gone(workspace):
                found.append(OrphanIndex(path, workspace, os.path.getsize(path)))
    return found


def _is_gone(workspace: str) -> bool:
    with suppress(OSError, ValueError):  # assume that it exists
        try:
            os.stat(workspace)
        except (FileNotFoundError, NotADirectoryError):
            return True
    return False


def remove_index(orphan: OrphanIndex) -> bool:
    """Remove an index unless its workspace exists again; returns whether it was removed."""
    if not _is_gone(orphan.workspace):
        return False
    with locked(f"{orphan.path}.lock"):
        for rest in ("", "-wal", "-shm", ".lock"):
            with suppress(FileNotFoundError):
                os.unlink(orphan.path + rest)
    return True
