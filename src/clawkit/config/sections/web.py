"""Searching and fetching on the web: `tools.web`."""

from typing import Annotated

import msgspec
from msgspec import Meta

from clawkit.config.section import Count, Positive, SecretInput, Section
from clawkit.config.sections.shared import Headers, SsrfPolicy


class WebSearch(Section):
    """The `web_search` tool."""

    enabled: bool = True
    """Offer the tool; default true."""
    provider: str | None = None
    """Search service to use, `brave` for example; unset takes the first usable."""
    api_key: SecretInput | None = None
    """Key of the search service; unset reads its variable."""
    max_results: Annotated[int, Meta(ge=1, le=10)] = 5
    """Results when a call does not say; 1 to 10, default 5."""
    timeout_seconds: Positive = 30
    """Seconds until a search fails; default 30."""
    cache_ttl_minutes: Annotated[float, Meta(ge=0)] = 15
    """Minutes an answer is kept; 0 turns it off, default 15."""


class WebFetch(Section):
    """The `web_fetch` tool."""

    enabled: bool = True
    """Offer the tool; default true."""
    provider: str | None = None
    """Service that helps with difficult pages, such as `firecrawl`; unset finds one."""
    max_chars: Annotated[int, Meta(ge=100)] = 50_000
    """Characters returned when a call does not say; default 50000."""
    max_chars_cap: Annotated[int, Meta(ge=100)] = 50_000
    """Most characters a call may ask for; default 50000."""
    max_response_bytes: Annotated[int, Meta(ge=32_000, le=10_000_000)] = 2_000_000
    """Most bytes read from a server; default 2000000."""
    timeout_seconds: Positive = 30
    """Seconds until a fetch fails; default 30."""
    cache_ttl_minutes: Annotated[float, Meta(ge=0)] = 15
    """Minutes a page is kept; 0 turns it off, default 15."""
    max_redirects: Count = 3
    """Redirects that are followed; default 3."""
    readability: bool = True
    """Extract the article of a page instead of all its text; default true."""
    user_agent: str | None = None
    """User-Agent header to send."""
    headers: Headers = {}
    """Extra headers; reserved names are left out."""
    use_trusted_env_proxy: bool = False
    """Go through the proxy of HTTP_PROXY and HTTPS_PROXY; default false."""
    ssrf_policy: SsrfPolicy = SsrfPolicy()
    """Which addresses may be fetched."""


class XSearch(Section):
    """The `x_search` tool."""

    enabled: bool = True
    """Offer the tool when its key is there; default true."""
    api_key: SecretInput | None = None
    """Key of xAI; unset reads XAI_API_KEY."""
    model: str | None = None
    """Model that searches."""
    inline_citations: bool | None = None
    """Put sources into the text."""
    max_turns: Positive | None = None
    """Most search steps for one answer."""
    timeout_seconds: Positive = 30
    """Seconds until a search fails; default 30."""
    cache_ttl_minutes: Annotated[float, Meta(ge=0)] = 15
    """Minutes an answer is kept; 0 turns it off, default 15."""


class Web(Section):
    """Searching and fetching on the web."""

    search: WebSearch = WebSearch()
    """The `web_search` tool."""
    fetch: WebFetch = WebFetch()
    """The `web_fetch` tool."""
    x_search: XSearch = msgspec.field(default=XSearch(), name="x_search")
    """The `x_search` tool."""
