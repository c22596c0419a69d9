"""What tools need to know of the problems in a file that they changed."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal, Protocol

from msgspec import Struct

Severity = Literal["error", "warning"]


class Edited(Struct, frozen=True):
    """A file that was changed, with its texts; None where there is no file."""

    place: str
    """The absolute path of the file."""
    before: str | None
    after: str | None


class Problem(Struct, frozen=True):
    """One problem in a file. Lines and columns count from 1."""

    place: str
    line: int
    column: int
    severity: Severity
    message: str
    code: str
    server: str


class Problems(Struct, frozen=True):
    """The problems that a change brought; not those that were there before."""

    found: tuple[Problem, ...] = ()
    servers: tuple[str, ...] = ()
    """The servers that answered."""
    late: tuple[str, ...] = ()
    """The servers that did not answer in time."""


class Diagnostics(Protocol):
    """Must not raise, and must not take longer than the operator's setting."""

    async def check(self, edits: Sequence[Edited]) -> Problems: ...
