"""Data types of memory, and the interface for the tools and commands that use it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Literal, Protocol

import msgspec

Source = Literal["memory", "sessions"]
Corpus = Literal["memory", "sessions", "all"]
Mode = Literal["hybrid", "keyword"]
OnProgress = Callable[[int, int], None]
"""Called with the numbers of processed files and of all files."""


class Hit(msgspec.Struct, frozen=True, rename="camel"):
    """A passage that matches a query."""

    path: str
    """Relative to the workspace, absolute outside it, or `sessions/<id>` for a session."""
    start_line: int
    end_line: int
    source: Source
    score: float
    """From 0 to 1."""
    snippet: str = ""


class MemoryHits(msgspec.Struct, frozen=True):
    hits: Sequence[Hit]
    """Best first."""
    mode: Mode
    """`keyword` if no embeddings were used."""
    provider: str = ""
    """The configured embedding provider and its model, even if it failed; empty for none."""
    model: str = ""
    warning: str = ""
    """Why the search is incomplete or without embeddings, and a remedy; empty if it is complete."""
    error: str = ""
    """The error of the embedding provider; part of the warning."""


class Excerpt(msgspec.Struct, frozen=True):
    """Part of a note."""

    path: str
    text: str
    start_line: int
    lines: int
    next_line: int | None = None
    """The line to continue at; None at the end."""
    exists: bool = True


class IndexStatus(msgspec.Struct, frozen=True, rename="camel"):
    files: int
    chunks: int
    embedded: int
    """Chunks that have a current vector."""
    pending: int
    """Files that changed since they were indexed, as far as visible without reading them."""
    size_bytes: int
    path: str
    """The index file."""
    roots: Sequence[str] = ()
    provider: str = ""
    model: str = ""
    problems: Sequence[str] = ()
    """Files that cannot be listed or read, and problems of the embedding provider."""
    error: str = ""
    """The error of the embedding provider; also one of the problems."""


class Memory(Protocol):
    """The memory of one agent. Methods raise `ToolInputError` for errors that the caller can
    fix."""

    async def search(
        self,
        query: str,
        *,
        max_results: int | None = None,
        min_score: float | None = None,
        corpus: Corpus = "memory",
    ) -> MemoryHits:
        """Matching passages, best first; updates the index first."""
        ...

    async def get(self, path: str, *, start_line: int = 1, lines: int | None = None) -> Excerpt:
        """Part of a note. A missing file gives an empty text and does not raise."""
        ...

    async def paths(self) -> Sequence[str]:
        """The paths of all notes."""
        ...

    async def index(
        self, *, rebuild: bool = False, on_progress: OnProgress | None = None
    ) -> IndexStatus:
        """Update the index, including vectors; with `rebuild`, from scratch."""
        ...

    async def status(self) -> IndexStatus: ...

    async def close(self) -> None: ...
