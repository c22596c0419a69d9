"""Who is connected to, who is not, and what is said about it."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Sequence
from contextlib import suppress

import pytest
from tests.net.parts import LOCAL, OK, answering, get, making_client, serving
from tests.tables import table

from clawkit.net.client import Client
from clawkit.net.connect import system_resolve
from clawkit.net.route import NetError, Route

NOTHING = Route(loopback=False)
PRIVATE = Route(private=True)


@table(
    ("url", "addresses", "route", "words"),
    [
        ("http://127.0.0.1/", [], NOTHING, "127.0.0.1: this machine"),
        ("http://0x7f.1/", [], NOTHING, "127.0.0.1: this machine"),
        ("http://[::1]/", [], NOTHING, "::1: this machine"),
        ("http://localhost/", [], NOTHING, r"localhost \(127.0.0.1\): this machine"),
        ("http://x.localhost/", [], NOTHING, "this machine"),
        ("http://api.example/", ["127.0.0.1"], NOTHING, r"api.example \(127.0.0.1\): this machine"),
        ("https://10.0.0.1/", [], Route(), "10.0.0.1: a private address"),
        ("https://api.example/", ["10.0.0.1"], Route(), r"\(10.0.0.1\): a private address"),
        ("https://api.example/", ["fd00::1", "10.0.0.1"], Route(), r"\(fd00::1\): a private"),
        ("https://api.example/", ["::ffff:10.0.0.1"], Route(), "a private address"),
        ("https://api.example/", ["169.254.169.254"], PRIVATE, "metadata"),
        ("https://api.example/", ["fd00:ec2::254"], PRIVATE, "metadata"),
        ("https://metadata.google.internal/", ["8.8.8.8"], PRIVATE, "metadata"),
        ("https://api.example/", ["fe80::1%lo"], PRIVATE, "link-local"),
        ("https://api.example/", ["0.0.0.0"], PRIVATE, "an unspecified address"),
        ("https://api.example/", ["224.0.0.1", "::"], PRIVATE, "multicast"),
        ("https://api.example/", ["2002:7f00:1::"], PRIVATE, "reserved"),
        ("http://api.example/", ["8.8.8.8"], PRIVATE, "use https"),
        ("http://8.8.8.8/", [], PRIVATE, "8.8.8.8: plain http can be intercepted"),
    ],
)
async def test_an_address_that_is_not_allowed_is_refused(
    url: str, addresses: list[str], route: Route, words: str
) -> None:
    async with making_client({"api.example": addresses}) as client:
        with pytest.raises(NetError, match=words) as caught:
            await get(client, url, route=route)
    assert caught.value.kind == "refused"
    assert str(caught.value).startswith("clawkit does not connect to ")


@table("host", [LOCAL, "localhost", "a.localhost", "2130706433", "api.example"])
async def test_this_machine_is_reached_by_all_its_names(host: str) -> None:
    names = {"api.example": ["10.0.0.1", "0.0.0.0", "nonsense", "8.8.8.8", LOCAL]}
    async with answering(OK) as server, making_client(names) as client:
        assert await get(client, server.url(host=host)) == (200, b"ok")


async def test_the_address_that_was_checked_is_connected_to_and_not_looked_up_again() -> None:
    asked: list[str] = []

    async def resolve(host: str, port: int) -> Sequence[str]:
        asked.append(host)
        return [LOCAL] if len(asked) == 1 else ["169.254.169.254"]

    async with answering(OK) as server:
        client = Client(resolve=resolve)
        assert await get(client, server.url(host="rebind.example")) == (200, b"ok")
        assert await get(client, server.url(host="rebind.example")) == (200, b"ok")
        assert asked == ["rebind.example"]
        await client.close()


async def test_the_next_address_is_tried_when_no_one_listens_at_one() -> None:
    names = {"api.example": ["127.0.0.2", "127.0.0.2", LOCAL]}
    async with answering(OK) as server, making_client(names) as client:
        assert await get(client, server.url(host="api.example")) == (200, b"ok")


async def test_the_next_address_is_tried_when_one_does_not_answer() -> None:
    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.write(OK)
        await writer.drain()
        writer.close()

    listener = await asyncio.start_server(serve, LOCAL, 0)
    port = listener.sockets[0].getsockname()[1]
    with socket.socket() as deaf, socket.socket() as fills_it:
        # Nobody else uses this address.
        deaf.bind(("127.0.0.3", port))
        deaf.listen(0)
        fills_it.connect(("127.0.0.3", port))
        async with listener, making_client({"api.example": ["127.0.0.3", LOCAL]}) as client:
            answer = None
            for connect_s in (0.2, 2, 10):  # a busy machine may not connect within the first
                with suppress(NetError):
                    answer = await get(client, f"http://api.example:{port}/", connect_s=connect_s)
                    break
            assert answer == (200, b"ok")


async def test_a_refused_connection_is_an_error_with_host_and_address() -> None:
    with socket.socket() as unused:
        unused.bind((LOCAL, 0))
        port = unused.getsockname()[1]
        async with making_client({"api.example": ["127.0.0.2", LOCAL]}) as client:
            with pytest.raises(NetError) as caught:
                await get(client, f"http://api.example:{port}/")
    assert caught.value.kind == "absent"
    problem = f"cannot connect to api.example:{port} (127.0.0.2): Connection refused"
    assert str(caught.value) == problem


async def test_one_who_does_not_answer_may_still_be_there() -> None:
    with socket.socket() as deaf, socket.socket() as fills_it:
        deaf.bind(("127.0.0.3", 0))
        deaf.listen(0)
        fills_it.connect(deaf.getsockname())
        url = f"http://api.example:{deaf.getsockname()[1]}/"
        async with making_client({"api.example": ["127.0.0.3", "127.0.0.2"]}) as client:
            for connect_s in (0.2, 2, 10):  # a busy machine may not come to the second
                with pytest.raises(NetError) as caught:
                    await get(client, url, connect_s=connect_s)
                if caught.value.kind != "timeout":
                    break
    assert caught.value.kind == "connect"


@table("addresses", [None, [], ["nonsense"]])
async def test_a_name_without_an_address_is_an_error(addresses: list[str] | None) -> None:
    names = {} if addresses is None else {"api.example": addresses}
    async with making_client(names) as client:
        with pytest.raises(NetError, match=r"api\.example") as caught:
            await get(client, "https://api.example/")
    assert caught.value.kind == "dns"


@table(
    ("number", "kind"),
    [
        (socket.EAI_NONAME, "dns"),
        (socket.EAI_NODATA, "dns"),
        (socket.EAI_AGAIN, "connect"),
        (socket.EAI_SYSTEM, "connect"),
    ],
)
async def test_a_failed_lookup_differs_from_an_unknown_name(number: int, kind: str) -> None:
    async def resolve(host: str, port: int) -> list[str]:
        raise socket.gaierror(number, "no luck")

    client = Client(resolve=resolve)
    with pytest.raises(NetError, match=r"cannot resolve api\.example: no luck") as caught:
        await get(client, "https://api.example/")
    assert caught.value.kind == kind
    await client.close()


async def test_the_system_resolver_is_used_by_default() -> None:
    assert LOCAL in await system_resolve(LOCAL, 80)
    client = Client()
    with pytest.raises(NetError, match=r"cannot resolve no-such-name\.invalid"):
        await get(client, "https://no-such-name.invalid/")
    await client.close()


async def test_a_server_that_does_not_begin_to_encrypt_is_given_up() -> None:
    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.read()

    async with serving(serve) as server, making_client() as client:
        with pytest.raises(NetError, match=r"no connection to .* within 0.05 s") as caught:
            await get(client, server.url(scheme="https"), connect_s=0.05)
        assert caught.value.kind == "timeout"
        with pytest.raises(NetError, match=r"within 0.04 s"):
            await get(client, server.url(scheme="https"), timeout_s=0.04)


async def test_cancelling_while_connecting_leaves_nothing_behind() -> None:
    arrived = asyncio.Event()

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readexactly(1)
        arrived.set()
        await reader.read()

    async with serving(serve) as server, making_client() as client:
        task = asyncio.create_task(get(client, server.url(scheme="https")))
        await arrived.wait()
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        await server.ended.wait()


async def test_a_client_that_is_closed_while_it_connects_opens_nothing() -> None:
    async def resolve(host: str, port: int) -> Sequence[str]:
        await client.close()
        return [LOCAL]

    client = Client(resolve=resolve)
    async with answering(OK) as server:
        with pytest.raises(NetError, match="the client is closed") as caught:
            await get(client, server.url(host="api.example"))
        assert caught.value.kind == "closed"
        assert server.asked == []


async def test_a_look_up_that_hangs_is_given_up() -> None:
    async def resolve(host: str, port: int) -> Sequence[str]:
        await asyncio.Event().wait()
        return []

    client = Client(resolve=resolve)
    with pytest.raises(NetError, match=r"within 0.02 s") as caught:
        await get(client, "https://api.example/", connect_s=0.02)
    assert caught.value.kind == "timeout"
    await client.close()
