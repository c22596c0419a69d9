"""How long the long tests run: a tenth or less in `make test`, all of it in `make bench`; and what
is larger than programs expect."""

from __future__ import annotations

import os
from pathlib import Path

FULL = os.environ.get("CLAWKIT_TEST_FULL") == "1"


def scaled(count: int, least: int = 1) -> int:
    return count if FULL else max(least, count // 10)


def nest(folder: Path, depth: int) -> None:
    """Directories below each other, deeper than any path or recursion can go."""
    here = os.open(folder, os.O_RDONLY)
    for _ in range(depth):
        os.mkdir("d", dir_fd=here)
        below = os.open("d", os.O_RDONLY, dir_fd=here)
        os.close(here)
        here = below
    os.close(here)
