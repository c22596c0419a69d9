"""The interface for tools: problems in files that they changed."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal, Protocol

from msgspec import Struct

Severity = Literal["error", "warning"]


class Edited(Struct, frozen=True):
    """A changed file, with its text before and after; None if it did or does not exist."""

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
    """The problems that a change introduced, without those that existed before."""

    found: tuple[Problem, ...] = ()
    servers: tuple[str, ...] = ()
    """The servers that answered."""
    late: tuple[str, ...] = ()
    """The servers that did not answer in time."""


class Diagnostics(Protocol):
    """Must not raise, and must not take longer than `tools.lsp.timeoutMs`."""

    async def check(self, edits: Sequence[Edited]) -> Problems: ...


class NoDiagnostics:
    """For runs without language servers."""

    async def check(self, _edits: Sequence[Edited]) -> Problems:
        return Problems()
