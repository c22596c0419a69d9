"""One thing that `clawkit doctor` looked at."""

from __future__ import annotations

from typing import Literal, NamedTuple

Level = Literal["ok", "warn", "error"]


class Finding(NamedTuple):
    """One thing that was looked at."""

    section: str
    level: Level
    what: str
    do: str = ""
    """What to type or to change; empty when there is nothing to do."""
