"""The browser: `browser`."""

import re
from collections.abc import Iterable
from typing import Any, Literal

from clawkit.config.section import Conflict, Name, Port, Positive, Section
from clawkit.config.sections.shared import SsrfPolicy

_PROFILE_NAME = re.compile(r"[a-z0-9-]{1,64}")


class BrowserProfile(Section):
    """One browser with data of its own."""

    cdp_port: Port | None = None
    """Port of the DevTools protocol; unset takes one."""
    cdp_url: str | None = None
    """Address of a browser elsewhere, which is never started or stopped."""
    driver: Literal["clawkit", "openclaw", "clawd", "existing-session", "extension"] | None = None
    """Started by clawkit, an existing session, or through the browser extension."""
    attach_only: bool | None = None
    """Only connect, never start."""
    user_data_dir: str | None = None
    """Directory of the browser's data."""
    executable_path: str | None = None
    """Program to start."""
    headless: bool | None = None
    """Run without a window."""
    mcp_command: str | None = None
    """Program that attaches to an existing session."""
    mcp_args: list[str] = []
    """Arguments of that program."""
    color: str | None = None
    """Colour that tells the window apart, as #rrggbb."""


class SnapshotDefaults(Section):
    """How pages are described when a call does not say."""

    mode: Literal["efficient"] | None = None
    """Short descriptions."""


class TabCleanup(Section):
    """Closing tabs nobody uses."""

    enabled: bool = True
    """Close them; default true."""


class Browser(Section):
    """The browser agents may drive."""

    enabled: bool = True
    """Offer the `browser` tool; default true."""
    evaluate_enabled: bool = True
    """Let agents run scripts in pages; default true."""
    default_profile: Name = "chrome"
    """Profile used when a call names none; default chrome."""
    profiles: dict[str, BrowserProfile] = {}
    """Browsers by name: lower-case letters, digits and hyphens, up to 64."""
    executable_path: str | None = None
    """Program to start; unset finds one."""
    headless: bool | None = None
    """Run without a window."""
    no_sandbox: bool = False
    """Turn the browser's own sandbox off; default false."""
    attach_only: bool = False
    """Only connect, never start; default false."""
    extra_args: list[str] = []
    """Further arguments of the program."""
    cdp_url: str | None = None
    """Address of a browser elsewhere."""
    control_url: str | None = None
    """Address of the control service, if it is not the gateway's own."""
    remote_cdp_timeout_ms: Positive = 1_500
    """Milliseconds to reach a browser elsewhere; default 1500."""
    ssrf_policy: SsrfPolicy = SsrfPolicy()
    """Which pages may be opened."""
    snapshot_defaults: SnapshotDefaults = SnapshotDefaults()
    """How pages are described when a call does not say."""
    tab_cleanup: TabCleanup = TabCleanup()
    """Closing tabs nobody uses."""
    color: str | None = None
    """Colour that tells the window apart, as #rrggbb."""

    @classmethod
    def conflicts(cls, raw: dict[str, Any]) -> Iterable[Conflict]:
        for name in raw.get("profiles") or ():
            if not _PROFILE_NAME.fullmatch(name):
                yield (
                    "profiles",
                    f"{name!r} is not a profile name",
                    "Use lower-case letters, digits and hyphens, up to 64",
                )
