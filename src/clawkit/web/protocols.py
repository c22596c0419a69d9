"""The interface of the web for tools."""

from __future__ import annotations

from collections.abc import Callable
from typing import Literal, Protocol

import msgspec

MAX_TEXT = 2_000_000
"""Maximum stored characters of a page."""
ExtractMode = Literal["markdown", "text"]
Extractor = Literal[
    "cf-markdown",  # the server sent Markdown
    "readability",  # the main content of a page
    "raw-html",  # all visible text of a page
    "json",
    "raw",  # text as it came
    "pdf",
    "image",
    "binary",
    "firecrawl",
]


class FetchedPage(msgspec.Struct, frozen=True, kw_only=True):
    """The result of fetching a URL. All of it is untrusted."""

    final_url: str
    """After redirects."""
    status: int
    content_type: str
    """Without parameters; empty if unknown."""
    extractor: Extractor
    fetched_at: float
    """Seconds since the epoch."""
    title: str = ""
    text: str = ""
    data: bytes = b""
    """The content of a PDF or image; empty for other files."""
    size: int = 0
    """Size of the body in bytes, as read or announced."""
    warnings: tuple[str, ...] = ()
    """Notes for the reader about the text."""
    signal: str = ""
    """The site's usage preferences: its header `Content-Signal`."""
    is_cached: bool = False


class WebPages(Protocol):
    """Fetches pages that a model chose. Raises `ToolInputError` for an invalid URL,
    `ToolAuthorizationError` for a refused address, and `ToolError` if nothing can be fetched."""

    async def fetch(
        self, url: str, mode: ExtractMode, permits: Callable[[str], bool]
    ) -> FetchedPage:
        """`permits` decides on the targets of redirects."""
        ...

    async def save(self, text: str, url: str) -> str:
        """Save the text of a long page, marked as external, where the session can read it; returns
        the path, or an empty text if that fails."""
        ...
