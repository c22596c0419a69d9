"""The control page in a browser that has met someone else at its address before."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest
from playwright.async_api import expect
from tests.gateway import conftest
from tests.gateway.conftest import serve
from tests.gateway.page_browser import NEEDS_CHROMIUM, open_chromium

from clawkit.gateway.identity import device_id
from clawkit.gateway.serve import listen
from clawkit.gateway.static import PAGE

pytestmark = NEEDS_CHROMIUM

PREACT = "/vendor/htm-preact-3.1.1.js"
MARK = "\nglobalThis.stranger = true;"
WORKER = """
addEventListener('install', () => skipWaiting());
addEventListener('activate', (event) => event.waitUntil(clients.claim()));
addEventListener('fetch', (event) => {
  if (event.request.mode !== 'navigate') return;
  const page = '<h1>The page of a stranger</h1>';
  event.respondWith(new Response(page, { headers: { 'Content-Type': 'text/html' } }));
});
"""
PLANT = """async () => {
  const keys = await crypto.subtle.generateKey('Ed25519', true, ['sign', 'verify']);
  const opening = indexedDB.open('clawkit', 1);
  opening.onupgradeneeded = () => opening.result.createObjectStore('identity');
  await new Promise((done) => { opening.onsuccess = done; });
  const change = opening.result.transaction('identity', 'readwrite');
  change.objectStore('identity').put(keys, 'keys');
  await new Promise((done) => { change.oncomplete = done; });
  opening.result.close();
  const raw = await crypto.subtle.exportKey('raw', keys.publicKey);
  return Array.from(new Uint8Array(raw));
}"""
FILES = {
    "/": f"<h1>Soon back</h1><script type=module src={PREACT}></script>",
    PREACT: (PAGE / PREACT[1:]).read_text(encoding="utf-8") + MARK,
    "/worker.js": WORKER,
}


class Stranger(BaseHTTPRequestHandler):
    def do_GET(self) -> None:
        path = self.path.partition("?")[0]
        body = FILES.get(path, "").encode()
        self.send_response(200)
        self.send_header("Content-Type", "text/javascript" if ".js" in path else "text/html")
        self.send_header("Content-Length", str(len(body)))
        self.send_header("Cache-Control", "public, max-age=31536000, immutable")
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002
        pass


@contextmanager
def stranger(port: int) -> Iterator[None]:
    server = ThreadingHTTPServer(("127.0.0.1", port), Stranger)
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    try:
        yield
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


@pytest.fixture
def port(monkeypatch: pytest.MonkeyPatch) -> int:
    """A port that others have first, and then the gateway."""
    with listen("127.0.0.1", 0) as found:
        number: int = found.getsockname()[1]
    monkeypatch.setattr(conftest, "listen", lambda host, _port: listen(host, number))
    return number


async def test_files_of_a_stranger_are_not_used(port: int) -> None:
    address = f"http://127.0.0.1:{port}/"
    async with open_chromium() as browser:
        context = await browser.new_context()
        with stranger(port):
            page = await context.new_page()
            await page.goto(address)
            assert await page.evaluate("globalThis.stranger")
            await page.close()
        async with serve({}) as ground:
            page = await context.new_page()
            await page.goto(f"{address}?1234#code={ground.gateway.codes.make()}")
            await page.get_by_role("navigation").wait_for()
            assert not await page.evaluate("globalThis.stranger")
            # Also not what is at the address without the code, from now on.
            page = await context.new_page()
            await page.goto(address)
            await page.get_by_role("navigation").wait_for()
            assert not await page.evaluate("globalThis.stranger")


async def test_a_service_worker_of_a_stranger_is_removed(port: int) -> None:
    address = f"http://127.0.0.1:{port}/"
    async with open_chromium() as browser:
        context = await browser.new_context()
        page = await context.new_page()
        with stranger(port):
            await page.goto(address)
            await page.evaluate("navigator.serviceWorker.register('/worker.js')")
            await page.evaluate("navigator.serviceWorker.ready.then(() => 0)")
        async with serve({}):
            await page.goto(f"{address}?1234")
            await expect(page.get_by_label("Token")).to_be_visible()
            found = "navigator.serviceWorker.getRegistrations().then((all) => all.length)"
            assert await page.evaluate(found) == 0


async def test_a_key_that_a_stranger_knows_is_not_used(port: int) -> None:
    address = f"http://127.0.0.1:{port}/"
    async with open_chromium() as browser:
        context = await browser.new_context()
        page = await context.new_page()
        with stranger(port):
            await page.goto(address)
            planted = device_id(bytes(await page.evaluate(PLANT)))
        async with serve({}) as ground:
            devices, codes = ground.gateway.devices, ground.gateway.codes
            await page.goto(f"{address}?1#code={codes.make()}")
            await page.get_by_role("navigation").wait_for()
            first = [each.about.device_id for each in devices.paired()]
            assert len(first) == 1
            assert first != [planted]
            await page.reload()  # with the key that it has now
            await page.get_by_role("navigation").wait_for()
            assert [each.about.device_id for each in devices.paired()] == first
            # With another code it is another device, and the one before is gone.
            await page.goto(f"{address}?2#code={codes.make()}")
            await page.get_by_role("navigation").wait_for()
            second = [each.about.device_id for each in devices.paired()]
            assert len(second) == 1
            assert second != first
