"""The web: `tools.web` and `browser`."""

import re
from collections.abc import Iterable
from typing import Annotated, Any, Literal

import msgspec
from msgspec import Meta

from clawkit.config.section import Conflict, Count, Name, Port, Positive, SecretInput, Section
from clawkit.config.sections.shared import Headers, SsrfPolicy, Switch


class WebSearch(Section):
    enabled: bool = True  #: Offer the tool.
    provider: str | None = None  #: Search service, such as `brave`; unset is the first usable.
    api_key: SecretInput | None = None  #: Key of the search service; unset reads its variable.
    max_results: Annotated[int, Meta(ge=1, le=10)] = 5  #: Results unless a call says otherwise.
    timeout_seconds: Positive = 30  #: Seconds until a search fails.
    cache_ttl_minutes: Annotated[float, Meta(ge=0)] = 15  #: Minutes to cache answers; 0 is off.


class WebFetch(Section):
    """The `web_fetch` tool."""

    enabled: bool = True  #: Offer the tool.
    provider: str | None = None  #: Service for difficult pages, such as `firecrawl`; unset: any.
    max_chars: Annotated[int, Meta(ge=100)] = 50_000  #: Characters unless a call says otherwise.
    max_chars_cap: Annotated[int, Meta(ge=100)] = 50_000  #: Maximum characters a call may ask for.
    max_response_bytes: Annotated[int, Meta(ge=32_000, le=10_000_000)] = 2_000_000
    """Maximum bytes read from a server."""
    timeout_seconds: Positive = 30  #: Seconds until a fetch fails.
    cache_ttl_minutes: Annotated[float, Meta(ge=0)] = 15  #: Minutes to cache pages; 0 is off.
    max_redirects: Count = 3  #: Redirects that are followed.
    readability: bool = True  #: Extract the article of a page instead of all its text.
    user_agent: str | None = None  #: User-Agent header to send.
    headers: Headers = {}  #: Extra headers; reserved names are left out.
    use_trusted_env_proxy: bool = False  #: Go through the proxy of HTTP_PROXY and HTTPS_PROXY.
    ssrf_policy: SsrfPolicy = SsrfPolicy()  #: Which addresses may be fetched.


class XSearch(Section):
    enabled: bool = True  #: Offer the tool if its key is set.
    api_key: SecretInput | None = None  #: Key of xAI; unset reads XAI_API_KEY.
    model: str | None = None  #: Model that searches.
    inline_citations: bool | None = None  #: Put sources into the text.
    max_turns: Positive | None = None  #: Maximum search steps for one answer.
    timeout_seconds: Positive = 30  #: Seconds until a search fails.
    cache_ttl_minutes: Annotated[float, Meta(ge=0)] = 15  #: Minutes to cache answers; 0 is off.


class Web(Section):
    """Searching and fetching on the web."""

    search: WebSearch = WebSearch()  #: The `web_search` tool.
    fetch: WebFetch = WebFetch()
    x_search: XSearch = msgspec.field(default=XSearch(), name="x_search")  #: The `x_search` tool.


_PROFILE_NAME = r"[a-z0-9-]{1,64}"


class BrowserProfile(Section):
    """One browser with its own data."""

    cdp_port: Port | None = None  #: Port of the DevTools protocol; unset picks a free one.
    cdp_url: str | None = None  #: Address of a remote browser, never started or stopped.
    driver: Literal["clawkit", "openclaw", "clawd", "existing-session", "extension"] | None = None
    """Started by clawkit, an existing session, or the browser extension."""
    attach_only: bool | None = None  #: Only connect, never start.
    user_data_dir: str | None = None  #: Directory of the browser's data.
    executable_path: str | None = None  #: Program to start.
    headless: bool | None = None  #: Run without a window.
    mcp_command: str | None = None  #: Program that attaches to an existing session.
    mcp_args: list[str] = []  #: Arguments of that program.
    color: str | None = None  #: Colour of the window, as #rrggbb.


class SnapshotDefaults(Section):
    mode: Literal["efficient"] | None = None  #: Short descriptions.


class Browser(Section):
    """The browser that agents may control."""

    enabled: bool = True  #: Offer the `browser` tool.
    evaluate_enabled: bool = True  #: Let agents run scripts in pages.
    default_profile: Name = "chrome"  #: Profile used when a call names none.
    profiles: dict[str, BrowserProfile] = {}  #: Browsers by name (a-z, 0-9, -, up to 64).
    executable_path: str | None = None  #: Program to start; unset finds one.
    headless: bool | None = None  #: Run without a window.
    no_sandbox: bool = False  #: Turn off the browser's own sandbox.
    attach_only: bool = False  #: Only connect, never start.
    extra_args: list[str] = []  #: Further arguments of the program.
    cdp_url: str | None = None  #: Address of a remote browser.
    control_url: str | None = None  #: Address of the control service; unset is the gateway.
    remote_cdp_timeout_ms: Positive = 1_500  #: Milliseconds to connect to a remote browser.
    ssrf_policy: SsrfPolicy = SsrfPolicy()  #: Which pages may be opened.
    snapshot_defaults: SnapshotDefaults = SnapshotDefaults()  #: How pages are described by default.
    tab_cleanup: Switch = Switch()  #: Closing unused tabs.
    color: str | None = None  #: Colour of the window, as #rrggbb.

    @classmethod
    def conflicts(cls, raw: dict[str, Any]) -> Iterable[Conflict]:
        for name in raw.get("profiles") or ():
            if not re.fullmatch(_PROFILE_NAME, name):
                yield (
                    "profiles",
                    f"invalid profile name {name!r}",
                    "Use lower-case letters, digits and hyphens, up to 64",
                )
