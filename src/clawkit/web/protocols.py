"""What tools use of the web."""

from __future__ import annotations

from collections.abc import Callable
from typing import Literal, Protocol

import msgspec

MAX_TEXT = 2_000_000
"""Characters of a page that are kept."""
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
    """What was found at a URL. Everything in it is from outside."""

    final_url: str
    """After redirects."""
    status: int
    content_type: str
    """Without parameters; empty if the server does not say."""
    extractor: Extractor
    fetched_at: float
    """Seconds since the epoch."""
    title: str = ""
    text: str = ""
    data: bytes = b""
    """A PDF or an image; of other files, nothing."""
    size: int = 0
    """Bytes of the body, as far as they were read or announced."""
    warnings: tuple[str, ...] = ()
    """What the reader must know about the text."""
    signal: str = ""
    """How the site wants the text to be used: its header `Content-Signal`."""
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
        """Save the text of a long page, marked as from outside, where the session can read it;
        returns the path, or an empty text if that fails."""
        ...
