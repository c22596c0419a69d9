"""Chat in OpenClaw's own control page, in Chromium."""

from __future__ import annotations

import json
from typing import Any

from playwright.sync_api import Page, Route, WebSocket, expect
from tests.browser import NEEDS_CHROMIUM, open_browser
from tests.gateway.reference.openclaw import MARKS, OPENCLAW, TOKEN, WAIT_S, Reference

pytestmark = [*MARKS, NEEDS_CHROMIUM]
PAGE = OPENCLAW / "dist" / "control-ui"


class Frames:
    """What goes over the page's WebSocket."""

    def __init__(self, page: Page) -> None:
        self.asked: dict[str, str] = {}
        self.refused: list[str] = []
        page.on("websocket", self._watch)

    def _watch(self, socket: WebSocket) -> None:
        socket.on("framesent", lambda data: self._sent(json.loads(data)))
        socket.on("framereceived", lambda data: self._received(json.loads(data)))

    def _sent(self, frame: dict[str, Any]) -> None:
        self.asked[frame["id"]] = frame["method"]

    def _received(self, frame: dict[str, Any]) -> None:
        if frame["type"] == "res" and not frame["ok"]:
            self.refused.append(frame["error"]["message"])


def serve_page(page: Page, reference: Reference) -> None:
    """Give the page the files that OpenClaw's own gateway would; the rest is for ours."""

    def answer(route: Route) -> None:
        path = route.request.url.removeprefix(reference.url).partition("?")[0].strip("/")
        file = PAGE / (path or "index.html")
        if file.is_file():
            route.fulfill(path=file)
        else:
            route.continue_()

    page.route(f"{reference.url}/**", answer)


def test_a_line_is_answered_and_nothing_goes_on(reference: Reference) -> None:
    with open_browser() as browser:
        page = browser.new_page()
        page.set_default_timeout(WAIT_S * 1000)
        expect.set_options(timeout=WAIT_S * 1000)
        frames = Frames(page)
        serve_page(page, reference)
        page.goto(f"{reference.url}/#token={TOKEN}")
        page.locator("textarea").fill("list")
        page.keyboard.press("Enter")
        expect(page.get_by_text('"a.txt"').last).to_be_visible()
        expect(page.get_by_text("Ls", exact=True).last).to_be_visible()
        expect(page.get_by_role("button", name="Stop")).to_have_count(0)
    assert {"chat.startup", "chat.send"} <= set(frames.asked.values())
    # What this gateway does not have, the page does without; all else must be understood.
    assert [each for each in frames.refused if not each.startswith("unknown method: ")] == []
