"""The control page in Debian's Chromium, with a gateway in this process."""

from __future__ import annotations

import shutil
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from playwright.async_api import Browser, Page, async_playwright, expect
from tests.gateway.conftest import Ground
from tests.lacking import needs

expect.set_options(timeout=15_000)
CHROMIUM = shutil.which("chromium-headless-shell") or shutil.which("chromium")
NEEDS_CHROMIUM = needs(CHROMIUM, "chromium")


@asynccontextmanager
async def open_chromium() -> AsyncIterator[Browser]:
    """A browser without a window; `--no-sandbox` because tests may run as root."""
    async with async_playwright() as playwright:
        browser = await playwright.chromium.launch(
            executable_path=CHROMIUM, args=["--no-sandbox", "--disable-gpu"]
        )
        try:
            yield browser
        finally:
            await browser.close()


@asynccontextmanager
async def visit(
    browser: Browser, ground: Ground, path: str = "/", *, login: bool = True, **options: Any
) -> AsyncIterator[Page]:
    """A new browser profile on the page, logged in by a one-time address. Whatever a page must
    never do fails the test: errors, dialogs, violations of the CSP, requests to others."""
    context = await browser.new_context(**options)
    page, wrong = await context.new_page(), list[str]()
    page.set_default_timeout(15_000)
    page.on("pageerror", lambda error: wrong.append(f"error: {error}"))
    page.on("dialog", lambda dialog: wrong.append(f"dialog: {dialog.message}"))
    page.on(
        "console",
        lambda said: wrong.append(f"console: {said.text}") if said.type == "error" else None,
    )
    own = (ground.http, "data:", "blob:")
    page.on(
        "request",
        lambda sent: None if sent.url.startswith(own) else wrong.append(f"request: {sent.url}"),
    )
    code = f"#code={ground.gateway.codes.make()}" if login else ""
    try:
        await page.goto(f"{ground.http}{path}{code}")
        if login:
            await page.get_by_role("navigation").wait_for()
        yield page
        assert wrong == []
    finally:
        await context.close()


async def say(page: Page, text: str) -> None:
    box = page.get_by_label("Message", exact=True)
    await box.fill(text)
    await box.press("Enter")


async def shoot(page: Page, folder: Path, name: str) -> None:
    """Keep what the page looks like, for people."""
    folder.mkdir(exist_ok=True)
    await page.screenshot(path=folder / f"{name}.png")
