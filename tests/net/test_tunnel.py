"""Requests that go through a proxy."""

from __future__ import annotations

import asyncio
import ssl
from base64 import b64encode
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest
from tests.net.conftest import Identities
from tests.net.parts import (
    LOCAL,
    OK,
    Server,
    answering,
    get,
    making_client,
    read_request,
    serving,
)
from tests.net.test_tls import server_context
from tests.tables import table

from clawkit.net.route import NetError, Proxy, Route, Tls

ESTABLISHED = b"HTTP/1.1 200 Connection established\r\n\r\n"


@asynccontextmanager
async def proxying(
    port: int, answer: bytes = ESTABLISHED, context: ssl.SSLContext | None = None
) -> AsyncIterator[Server]:
    """A proxy that answers CONNECT and passes on what comes then to a port of this machine."""

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        proxy.asked.append(await read_request(reader))
        writer.write(answer)
        if answer != ESTABLISHED:
            await reader.read()
            return
        there, back = await asyncio.open_connection(LOCAL, port)
        try:
            await asyncio.gather(pump(reader, back), pump(there, writer))
        finally:
            back.transport.abort()

    async with serving(serve, context) as proxy:
        yield proxy


async def pump(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    while data := await reader.read(65_536):
        writer.write(data)
        await writer.drain()
    writer.transport.abort()


def by(proxy: Server, identities: Identities, *, user: str = "", scheme: str = "http") -> Route:
    tls = Tls(ca=identities.authority.cert)
    return Route(tls=tls, proxy=Proxy(f"{scheme}://{user}localhost:{proxy.port}", tls))


@pytest.mark.parametrize("scheme", ["http", "https"])
async def test_a_tunnel_leads_to_a_host_that_only_the_proxy_knows(
    identities: Identities, scheme: str
) -> None:
    context = server_context(identities.server)
    outer = context if scheme == "https" else None
    async with (
        answering(OK, context=context) as server,
        proxying(server.port, context=outer) as proxy,
        making_client() as client,
    ):
        route = by(proxy, identities, user="me:secret@", scheme=scheme)
        for _ in range(3):
            assert await get(client, "https://api.example/v1", route=route) == (200, b"ok")
    (asked,) = proxy.asked
    assert asked.line == "CONNECT api.example:443 HTTP/1.1"
    assert asked.headers == {
        "host": "api.example:443",
        "proxy-authorization": f"Basic {b64encode(b'me:secret').decode()}",
    }
    assert server.asked[0].line == "GET /v1 HTTP/1.1"
    assert "proxy-authorization" not in server.asked[0].headers
    assert server.connections == 1


async def test_the_certificate_is_the_targets_and_not_the_proxys(identities: Identities) -> None:
    context = server_context(identities.other)
    async with (
        answering(OK, context=context) as server,
        proxying(server.port) as proxy,
        making_client() as client,
    ):
        with pytest.raises(NetError, match=r"api\.example:443: its certificate is for another"):
            await get(client, "https://api.example/", route=by(proxy, identities))
    assert server.asked == []


@table(
    ("url", "private", "line"),
    [
        ("http://127.0.0.1:81/a?b", False, "GET http://127.0.0.1:81/a?b HTTP/1.1"),
        ("http://localhost/a", False, "GET http://localhost/a HTTP/1.1"),
        ("http://inside.example/a", True, "GET http://inside.example/a HTTP/1.1"),
        ("http://10.0.0.1/a", True, "GET http://10.0.0.1/a HTTP/1.1"),
        ("http://[fd00::1]/a", True, "GET http://[fd00::1]/a HTTP/1.1"),
    ],
)
async def test_without_encryption_the_proxy_is_given_the_whole_url(
    url: str, private: bool, line: str
) -> None:
    async with answering(OK) as proxy, making_client() as client:
        route = Route(private=private, proxy=Proxy(f"http://me:secret@{LOCAL}:{proxy.port}"))
        assert await get(client, url, route=route) == (200, b"ok")
        assert await get(client, url, route=route) == (200, b"ok")
    assert [asked.line for asked in proxy.asked] == [line, line]
    assert proxy.asked[0].headers["proxy-authorization"].startswith("Basic ")
    assert proxy.connections == 1


@table(
    ("url", "route", "words"),
    [
        ("https://10.0.0.1/", Route(), "a private address"),
        ("https://0xa000001/", Route(), "a private address"),
        ("https://[::ffff:10.0.0.1]/", Route(), "a private address"),
        ("https://169.254.169.254/", Route(private=True), "metadata"),
        ("https://metadata.google.internal/", Route(private=True), "metadata"),
        ("https://localhost/", Route(loopback=False), "this machine"),
        ("https://127.0.0.1/", Route(loopback=False, private=True), "this machine"),
        ("http://8.8.8.8/", Route(private=True), "use https"),
        ("http://api.example/", Route(), "use https"),
    ],
)
async def test_a_proxy_is_not_asked_for_what_is_refused_without_one(
    url: str, route: Route, words: str
) -> None:
    async with answering(OK) as proxy, making_client() as client:
        through = Route(route.loopback, route.private, proxy=Proxy(f"http://{LOCAL}:{proxy.port}"))
        with pytest.raises(NetError, match=words) as caught:
            await get(client, url, route=through)
    assert caught.value.kind == "refused"
    assert proxy.connections == 0


async def test_a_proxy_on_this_machine_is_used_also_when_the_route_keeps_off_it(
    identities: Identities,
) -> None:
    context = server_context(identities.server)
    async with (
        answering(OK, context=context) as server,
        proxying(server.port) as proxy,
        making_client() as client,
    ):
        way = by(proxy, identities)
        route = Route(loopback=False, tls=way.tls, proxy=way.proxy)
        assert await get(client, "https://api.example/", route=route) == (200, b"ok")


@pytest.mark.parametrize(
    ("answer", "user", "kind", "words"),
    [
        (b"HTTP/1.1 407 No\r\nContent-Length: 0\r\n\r\n", "", "connect", "requires a user name"),
        (b"HTTP/1.1 407 No\r\n\r\n", "me:secret@", "connect", "requires another user name"),
        (b"HTTP/1.1 502 Bad\r\nContent-Length: 3\r\n\r\nabc", "", "connect", "it answered 502"),
        (ESTABLISHED + b"HTTP/1.1 200 OK\r\n", "", "connect", "sent data before api.example:443"),
        (b"garbage\r\n\r\n", "", "protocol", "the proxy .* not HTTP/1.1"),
        (b"HTTP/1.1 200 OK\r\na: " + b"b" * 70_000, "", "protocol", "64 KiB"),
    ],
)
async def test_a_proxy_that_does_not_help_is_named(
    identities: Identities, answer: bytes, user: str, kind: str, words: str
) -> None:
    async with proxying(0, answer) as proxy, making_client() as client:
        with pytest.raises(NetError, match=words) as caught:
            await get(client, "https://api.example/", route=by(proxy, identities, user=user))
    assert caught.value.kind == kind
    assert "the proxy localhost" in str(caught.value)
    assert "secret" not in str(caught.value)


async def test_a_proxy_that_hangs_up_is_named(identities: Identities) -> None:
    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await read_request(reader)

    async with serving(serve) as proxy, making_client() as client:
        with pytest.raises(NetError, match=r"the proxy localhost:.* closed the connection"):
            await get(client, "https://api.example/", route=by(proxy, identities))


@pytest.mark.parametrize("scheme", ["http", "https"])
async def test_a_proxy_that_hangs_up_after_saying_yes_is_an_error(
    identities: Identities, scheme: str
) -> None:
    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await read_request(reader)
        writer.write(ESTABLISHED)
        writer.close()
        await writer.wait_closed()

    context = server_context(identities.server) if scheme == "https" else None
    async with serving(serve, context) as proxy, making_client() as client:
        with pytest.raises(NetError, match="closed the connection before it was enc") as caught:
            await get(client, "https://api.example/", route=by(proxy, identities, scheme=scheme))
    assert caught.value.kind == "tls"


async def test_a_proxy_that_says_nothing_is_given_up(
    identities: Identities, monkeypatch: pytest.MonkeyPatch
) -> None:
    loop = asyncio.get_running_loop()
    clock, passed, too_early = loop.time, [0.0], [True]
    monkeypatch.setattr(loop, "time", lambda: clock() + passed[0])

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        # The clock moves only now: on a busy machine, connecting takes a while.
        await read_request(reader)
        passed[0] = 200.0
        await asyncio.sleep(0)
        too_early[0] = asked.done()
        passed[0] = 300.0
        await reader.read()

    async with serving(serve) as proxy, making_client() as client:
        request = get(client, "https://api.example/", route=by(proxy, identities), connect_s=300)
        asked = asyncio.ensure_future(request)
        with pytest.raises(NetError, match=r"within 300 s") as caught:
            await asked
    assert (caught.value.kind, too_early) == ("timeout", [False])


async def test_a_proxy_at_the_metadata_address_is_refused() -> None:
    async with making_client() as client:
        route = Route(proxy=Proxy("http://169.254.169.254:80"))
        with pytest.raises(NetError, match="metadata service") as caught:
            await get(client, "https://api.example/", route=route)
    assert caught.value.kind == "refused"


async def test_nothing_is_sent_in_the_open_to_a_proxy_on_the_open_network() -> None:
    async with making_client({"proxy.example": ["8.8.8.8"]}) as client:
        for place in ("8.8.8.8:3128", "proxy.example:3128"):
            route = Route(private=True, proxy=Proxy(f"http://{place}"))
            with pytest.raises(NetError, match="use https") as caught:
                await get(client, "http://10.0.0.1/", route=route)
            assert caught.value.kind == "refused"
