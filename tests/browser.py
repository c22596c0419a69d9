"""Debian's Chromium, driven by Playwright."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from contextlib import contextmanager

from playwright.sync_api import Browser, sync_playwright
from tests.lacking import needs

CHROMIUM = shutil.which("chromium-headless-shell") or shutil.which("chromium")
NEEDS_CHROMIUM = needs(CHROMIUM, "chromium")
ARGUMENTS = (
    "--no-sandbox",  # tests may run as root
    # Pages that a test fulfils itself come from no network, and could reach no loopback address.
    "--disable-features=LocalNetworkAccessChecks,LocalNetworkAccessChecksWebSockets",
)


@contextmanager
def open_browser(*arguments: str) -> Iterator[Browser]:
    """A browser without a window. Not for tests that are coroutines."""
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(
            executable_path=CHROMIUM, args=[*ARGUMENTS, *arguments]
        )
        try:
            yield browser
        finally:
            browser.close()
