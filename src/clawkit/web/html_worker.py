"""Stand-in."""

from __future__ import annotations

from clawkit.core.tasks import in_thread
from clawkit.web.extract import Mode, Page, extract_page


async def extract(
    html: str, *, base_url: str, mode: Mode, main_only: bool, timeout_s: float
) -> Page:
    found: Page = await in_thread(
        extract_page, html, base_url=base_url, mode=mode, main_only=main_only
    )
    return found
