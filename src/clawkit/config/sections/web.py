"""The web and media: `tools.web`, `browser`, `tools.media` and `tts`."""

import re
from collections.abc import Iterable
from typing import Annotated, Any, Literal

import msgspec
from msgspec import Meta

from clawkit.config.section import Conflict, Count, Name, Port, Positive, SecretInput, Section
from clawkit.config.sections.shared import (
    Headers,
    RequestSettings,
    ScopeSettings,
    SsrfPolicy,
    Switch,
)


class WebSearch(Section):
    enabled: bool = True  #: Offer the tool.
    provider: str | None = None  #: Search service, such as `brave`; unset is the first usable.
    api_key: SecretInput | None = None  #: Key of the search service; unset reads its variable.
    max_results: Annotated[int, Meta(ge=1, le=10)] = 5  #: Default number of results.
    timeout_seconds: Positive = 30  #: Seconds until a search fails.
    cache_ttl_minutes: Annotated[float, Meta(ge=0)] = 15  #: Minutes to cache answers; 0 is off.


class Firecrawl(Section):
    """A service that renders pages that cannot be read otherwise."""

    api_key: SecretInput | None = None  #: Key of the service; unset reads FIRECRAWL_API_KEY.
    base_url: str = "https://api.firecrawl.dev"  #: Address of the service.
    only_main_content: bool = True  #: Leave out navigation and footers.
    max_age_ms: Count = 172_800_000  #: Age of a stored copy that is accepted, in milliseconds.
    proxy: Literal["auto", "basic", "stealth"] = "auto"  #: How it reaches pages.
    store_in_cache: bool = True  #: Whether the service may keep a copy.
    timeout_seconds: Positive = 60  #: Seconds until a request fails.


class WebFetch(Section):
    """The `web_fetch` tool."""

    enabled: bool = True  #: Offer the tool.
    provider: Literal["auto", "firecrawl"] = "auto"
    """Service that renders pages that cannot be read directly; `auto` is none."""
    firecrawl: Firecrawl = Firecrawl()
    max_chars: Annotated[int, Meta(ge=100)] = 50_000  #: Default maximum characters.
    max_chars_cap: Annotated[int, Meta(ge=100)] = 50_000  #: Maximum characters a call may ask for.
    max_response_bytes: Annotated[int, Meta(ge=32_000, le=10_000_000)] = 2_000_000
    """Maximum bytes read from a server."""
    timeout_seconds: Positive = 30  #: Seconds until a fetch fails.
    cache_ttl_minutes: Annotated[float, Meta(ge=0)] = 15  #: Minutes to cache pages; 0 is off.
    max_redirects: Count = 3  #: Redirects that are followed.
    readability: bool = True  #: Extract the article of a page instead of all its text.
    user_agent: str | None = None  #: User-Agent header to send.
    headers: Headers = {}
    """Extra headers, without reserved names; with secrets only if hostnameAllowlist is set."""
    robots: Literal["ignore", "respect"] = "ignore"  #: Whether robots.txt is obeyed.
    use_trusted_env_proxy: bool = False  #: Go through the proxy of HTTP_PROXY and HTTPS_PROXY.
    ssrf_policy: SsrfPolicy = SsrfPolicy()  #: Which addresses may be fetched.


class XSearch(Section):
    enabled: bool = True  #: Offer the tool if its key is set.
    api_key: SecretInput | None = None  #: Key of xAI; unset reads XAI_API_KEY.
    model: str | None = None  #: Model that searches.
    inline_citations: bool = True  #: Keep the links to sources in the text.
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
    color: str | None = None  #: Color of the window, as #rrggbb.


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
    color: str | None = None  #: Color of the window, as #rrggbb.

    @classmethod
    def conflicts(cls, raw: dict[str, Any]) -> Iterable[Conflict]:
        for name in raw.get("profiles") or ():
            if not re.fullmatch(_PROFILE_NAME, name):
                yield (
                    "profiles",
                    f"invalid profile name {name!r}",
                    "Use lower-case letters, digits and hyphens, up to 64",
                )


Capability = Literal["image", "audio", "video"]


class MediaModel(Section):
    """One way to understand media: a provider's model, or a program."""

    NEEDED = {"command": ("type", "cli")}

    type: Literal["provider", "cli"] = "provider"  #: A provider's model (default), or a program.
    provider: str | None = None  #: Provider id, such as `openai`.
    model: str | None = None  #: Model id; unset is the provider's default.
    profile: str | None = None  #: Auth profile to use.
    preferred_profile: str | None = None  #: Auth profile to try first.
    command: str | None = None  #: Program to run for type `cli`.
    args: list[str] = []  #: Arguments; {{MediaPath}}, {{Prompt}} and {{MaxChars}} are filled in.
    capabilities: list[Capability] | None = None  #: What it understands; unset asks the provider.
    prompt: str | None = None  #: What to ask about the media.
    max_chars: Positive | None = None  #: Maximum characters of the answer.
    max_bytes: Positive | None = None  #: Largest file it is given, in bytes.
    timeout_seconds: Positive | None = None  #: Seconds until it fails.
    language: str | None = None  #: Language spoken in the media, such as `de`.
    base_url: str | None = None  #: Address of the provider's API.
    headers: Headers = {}  #: Extra headers; values may be secret references.
    provider_options: dict[str, Any] = {}  #: Options passed to the provider unchanged.
    request: RequestSettings | None = None  #: Transport settings of the requests.

    @classmethod
    def conflicts(cls, raw: dict[str, Any]) -> Iterable[Conflict]:
        yield from super().conflicts(raw)
        if raw.get("command") and raw.get("type") != "cli":
            yield "command", "only for type 'cli'", "Set type to cli, or remove command"


class MediaAttachments(Section):
    mode: Literal["first", "all"] = "first"  #: The first one (default), or all.
    max_attachments: Positive = 1  #: Maximum files for mode `all`.
    prefer: Literal["first", "last", "path", "url"] | None = None  #: Which file comes first.


class Understanding(Section):
    """How one kind of media is understood when it arrives."""

    enabled: bool | None = None  #: Turn it on or off; unset means on when a model can do it.
    models: list[MediaModel] = []  #: Ways to do it, tried in this order.
    preferred_model: str | None = None  #: Entry of the shared `models` list to try first.
    max_bytes: Positive | None = None  #: Largest file in bytes; unset is 10, 20, 50 MB by kind.
    max_chars: Positive | None = None  #: Longest answer; unset is 500, without limit for audio.
    timeout_seconds: Positive | None = None  #: Seconds until it fails; unset is 60, for video 120.
    prompt: str | None = None  #: What to ask about the media.
    language: str | None = None  #: Language spoken in the media, such as `de`.
    scope: ScopeSettings = ScopeSettings()  #: Conversations in which it is done.
    attachments: MediaAttachments = MediaAttachments()  #: Which files of a message are looked at.
    echo_transcript: bool = False  #: Send the transcript back to the conversation.
    echo_format: str | None = None  #: Format of the transcript sent back.
    base_url: str | None = None  #: Address of the provider's API.
    headers: Headers = {}  #: Extra headers; values may be secret references.
    provider_options: dict[str, Any] = {}  #: Options passed to the provider unchanged.
    request: RequestSettings | None = None  #: Transport settings of the requests.


class AsyncCompletion(Section):
    direct_send: bool = False  #: Ignored: finished media always goes through the agent.


class MediaSettings(Section):
    """Understanding media that arrives."""

    concurrency: Positive = 2  #: Files looked at in parallel.
    models: list[MediaModel] = []  #: Ways to understand media, shared by all kinds.
    image: Understanding = Understanding()  #: Understanding images.
    audio: Understanding = Understanding()  #: Understanding audio.
    video: Understanding = Understanding()  #: Understanding video.
    async_completion: AsyncCompletion = AsyncCompletion()  #: What happens when media is ready.


class TtsProvider(Section, forbid_unknown_fields=False):
    api_key: SecretInput | None = None  #: Key of the service.


class Tts(Section):
    """Speech output."""

    enabled: bool | None = None  #: Turn speech output on or off.
    auto: Literal["off", "always", "inbound", "tagged"] = "off"  #: When replies are spoken.
    mode: Literal["final", "all"] = "final"  #: Speak the final reply (default), or every part.
    provider: str | None = None  #: Speech service, such as `openai` or `elevenlabs`.
    providers: dict[str, TtsProvider] = {}  #: Settings of speech services, by name.
    max_text_length: Positive = 4096  #: Longest text that is spoken, in characters.
    timeout_ms: Annotated[int, Meta(ge=1000, le=120_000)] = 30_000  #: Milliseconds until it fails.
    summary_model: str | None = None  #: Model that shortens long replies before they are spoken.
    prefs_path: str | None = None  #: File with people's preferences.
