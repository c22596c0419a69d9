"""Attacks on the server: floods, clients that do not read, smuggled requests, hostile frames, and
pages in a real browser."""

from __future__ import annotations

import asyncio
import json
import socket
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from typing import Any

import pytest
from playwright.async_api import Page, Route, async_playwright
from tests.browser import ARGUMENTS, CHROMIUM, NEEDS_CHROMIUM
from tests.gateway.conftest import TOKEN, Ground, Peer, serve
from tests.gateway.test_strangers import listen_with_small_buffers
from tests.scale import scaled

from clawkit.gateway import protocol
from clawkit.gateway import serve as serving
from clawkit.gateway.open_agent import Open

FLOOD = 10_000
PLACES = 100


async def is_gone(reader: asyncio.StreamReader) -> bool:
    try:
        return await asyncio.wait_for(reader.read(1), 10) == b""
    except ConnectionError:
        return True


@pytest.mark.long
async def test_thousands_of_silent_connections_shut_no_one_out(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(serving, "max_connections", lambda: PLACES)
    monkeypatch.setattr(serving, "HEAD_S", 1.0)
    async with serve({}) as ground:
        peer = await ground.join()
        for _ in range(scaled(FLOOD) // (2 * PLACES)):
            opened = [
                await asyncio.open_connection("127.0.0.1", ground.port) for _ in range(2 * PLACES)
            ]
            assert await peer.call("health")
            # Those that are too many end at once, the others when they have sent nothing.
            assert all([await is_gone(reader) for reader, _ in opened])
            for _, writer in opened:
                writer.close()
        other = await ground.join()
        assert await other.call("health")


async def test_a_client_that_never_reads_is_disconnected_without_affecting_others(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(protocol, "MAX_BUFFERED", 2**20)
    monkeypatch.setattr("tests.gateway.conftest.listen", listen_with_small_buffers)
    async with serve({}) as ground:
        deaf, peer = await ground.join(), await ground.join()
        deaf.socket.transport.pause_reading()
        [mine, _] = ground.gateway.hub.clients.values()
        left = asyncio.get_running_loop().create_future()
        leave = ground.gateway.hub.leave

        def note(client: Any) -> None:
            leave(client)
            if client is mine:
                left.set_result(None)

        monkeypatch.setattr(ground.gateway.hub, "leave", note)
        while not mine._closing:
            await deaf.send("config.schema")
            assert await peer.call("health")
        assert mine._closing == (1008, "slow consumer")
        assert mine._frames == type(mine._frames)()
        await asyncio.wait_for(left, 10)
        assert len(ground.gateway.hub.clients) == 1


HIDDEN = b"GET /healthz HTTP/1.1\r\nHost: 127.0.0.1\r\nConnection: close\r\n\r\n"
BODY = b'{"tool":"ls"}'
CHUNKED = b"%x\r\n%s\r\n0\r\n\r\n" % (len(BODY), BODY)


def post(*headers: bytes, body: bytes = BODY, end: bytes = b"\r\n") -> bytes:
    lines = [
        b"POST /tools/invoke HTTP/1.1",
        b"Host: 127.0.0.1",
        b"Authorization: Bearer " + TOKEN.encode(),
        b"Content-Type: application/json",
        *headers,
    ]
    return end.join([*lines, b"", b""]) + body


LENGTH = b"Content-Length: %d" % len(BODY)
SMUGGLED = {
    "both lengths": post(LENGTH, b"Transfer-Encoding: chunked", body=CHUNKED),
    "both lengths, reversed": post(b"Transfer-Encoding: chunked", LENGTH, body=CHUNKED),
    "two lengths that differ": post(LENGTH, b"Content-Length: 0"),
    "a list of lengths": post(b"Content-Length: %d, 0" % len(BODY)),
    "a length with a sign": post(b"Content-Length: +%d" % len(BODY)),
    "a length in another base": post(b"Content-Length: 0x%x" % len(BODY)),
    "an unknown coding": post(b"Transfer-Encoding: xchunked", body=CHUNKED),
    "two codings": post(b"Transfer-Encoding: chunked, identity", body=CHUNKED),
    "a coding twice": post(*[b"Transfer-Encoding: chunked"] * 2, body=CHUNKED),
    "a space before the colon": post(b"Transfer-Encoding : chunked", LENGTH, body=CHUNKED),
    "a folded line": post(b"X: a\r\n Transfer-Encoding: chunked", b"Transfer-Encoding: chunked"),
    "a coding after a bare line feed": post(b"X: a\nTransfer-Encoding: chunked", LENGTH),
    "a carriage return in a value": post(b"X: a\rTransfer-Encoding: chunked", LENGTH),
    "a chunk that is longer than it says": post(
        b"Transfer-Encoding: chunked", body=b"2\r\n" + BODY + b"\r\n0\r\n\r\n"
    ),
    "a chunk size with a sign": post(b"Transfer-Encoding: chunked", body=b"+" + CHUNKED),
    "a chunk size that ends with a line feed": post(
        b"Transfer-Encoding: chunked", body=CHUNKED.replace(b"\r\n", b"\n")
    ),
}


async def exchange(ground: Ground, data: bytes) -> bytes:
    reader, writer = await asyncio.open_connection("127.0.0.1", ground.port)
    writer.write(data)
    found = b""
    with suppress(ConnectionError):
        found = await asyncio.wait_for(reader.read(), 10)
    writer.close()
    return found


async def test_ambiguous_requests_end_the_connection(ground: Ground) -> None:
    # As long as both agree, a second request on the connection is answered, too.
    assert (await exchange(ground, post(LENGTH) + HIDDEN)).count(b"HTTP/1.1 200") == 2
    agreed = post(b"Transfer-Encoding: chunked", body=CHUNKED)
    assert (await exchange(ground, agreed + HIDDEN)).count(b"HTTP/1.1 200") == 2
    for name, data in SMUGGLED.items():
        answer = await exchange(ground, data + HIDDEN)
        assert answer.count(b"HTTP/1.1 ") <= 1, name
        assert b"HTTP/1.1 200" not in answer, name


async def test_a_chunk_extension_and_bare_line_feeds_hide_nothing(ground: Ground) -> None:
    """Both are allowed, and ignored: the request behind them is read as what it is."""
    extended = b'%x;a="GET / HTTP/1.1"\r\n%s\r\n0\r\n\r\n' % (len(BODY), BODY)
    answer = await exchange(ground, post(b"Transfer-Encoding: chunked", body=extended) + HIDDEN)
    assert answer.count(b"HTTP/1.1 200") == 2
    answer = await exchange(ground, post(LENGTH, end=b"\n") + HIDDEN)
    assert answer.count(b"HTTP/1.1 200") == 2


def request(**more: Any) -> str:
    return json.dumps({"type": "req", "id": "1", "method": "health", **more})


BAD_FRAMES = {
    "not JSON": "{",
    "not an object": "[]",
    "too deep": request(params="X").replace('"X"', "[" * 100_000 + "]" * 100_000),
    "no id": json.dumps({"type": "req", "method": "health"}),
    "an id that is no text": request(id=1),
    "another kind": json.dumps({"type": "res", "id": "1", "ok": True}),
    "an unknown key": request(more=1),
    "an endless method": request(method="x" * 1_000),
}


async def test_bad_frames_are_refused_and_the_next_one_is_served(ground: Ground) -> None:
    peer = await ground.join()
    for name, text in BAD_FRAMES.items():
        await peer.socket.send(text)
        assert (await peer.receive())["error"]["code"] == "INVALID_REQUEST", name
    again = await peer.refused("connect", {"minProtocol": 4, "maxProtocol": 4})
    assert "unknown method" in again["message"]
    assert await peer.call("health")


async def closed(peer: Peer) -> int:
    await asyncio.wait_for(peer.socket.wait_closed(), 10)
    assert peer.socket.close_code is not None
    return peer.socket.close_code


async def test_a_frame_that_is_too_large_ends_the_connection(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(serving, "MAX_FRAME", 2**20)
    async with serve({}) as ground:
        peer, other = await ground.join(), await ground.join()
        await peer.socket.send(request(params={"x": "y" * 2**20}))
        assert await closed(peer) == 1009
        assert await other.call("health")


# A real browser


HIJACK = """async ([port, host, token]) => {
  const tried = {};
  tried.socket = await new Promise(done => {
    const socket = new WebSocket(`ws://${host}:${port}/`);
    socket.onmessage = event => done("heard " + event.data);
    socket.onclose = () => done("refused");
  });
  for (const [name, headers] of Object.entries({
    plain: {"Content-Type": "text/plain"},
    json: {"Content-Type": "application/json", "Authorization": `Bearer ${token}`},
  })) {
    try {
      const answer = await fetch(`http://${host}:${port}/tools/invoke`, {
        method: "POST", headers, body: '{"tool":"ls"}',
      });
      tried[name] = answer.status;
    } catch (error) {
      tried[name] = "blocked";
    }
  }
  return tried;
}"""


@asynccontextmanager
async def browser_page() -> AsyncIterator[Page]:
    arguments = [*ARGUMENTS, "--host-resolver-rules=MAP evil.test 127.0.0.1"]
    async with async_playwright() as playwright:
        browser = await playwright.chromium.launch(executable_path=CHROMIUM, args=arguments)
        page = await browser.new_page()

        async def attack(route: Route) -> None:
            await route.fulfill(body="<!doctype html><title>evil</title>", content_type="text/html")

        await page.route("**/evil.html", attack)
        yield page
        await browser.close()


@NEEDS_CHROMIUM
async def test_a_page_of_others_gets_nothing_from_a_browser(ground: Ground) -> None:
    called, really = list[str](), ground.gateway.live.open

    async def note(key: str, *, owner: bool) -> Open:
        called.append(key)
        return await really(key, owner=owner)

    ground.gateway.live.open = note  # type: ignore[method-assign]
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    async with browser_page() as page:
        # Another site, even on this machine, that knows the token; then a name that was rebound
        # to the address of the gateway, so that for the browser it is the same site.
        await page.goto(f"http://127.0.0.1:{port}/evil.html")
        found = await page.evaluate(HIJACK, [ground.port, "127.0.0.1", TOKEN])
        assert found == {"socket": "refused", "plain": "blocked", "json": "blocked"}
        await page.goto(f"http://evil.test:{ground.port}/evil.html")
        found = await page.evaluate(HIJACK, [ground.port, "evil.test", TOKEN])
        assert found == {"socket": "refused", "plain": 403, "json": 403}
        # The page of the gateway itself can do all of it.
        await page.goto(f"http://127.0.0.1:{ground.port}/evil.html")
        found = await page.evaluate(HIJACK, [ground.port, "127.0.0.1", TOKEN])
        assert found["socket"].startswith("heard ")
    assert called == ["agent:main:main"]
