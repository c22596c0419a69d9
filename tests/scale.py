"""How long the long tests run: a tenth or less in `make test`, all of it in `make bench`."""

from __future__ import annotations

import os

FULL = os.environ.get("CLAWKIT_TEST_FULL") == "1"


def scaled(count: int, least: int = 1) -> int:
    return count if FULL else max(least, count // 10)
