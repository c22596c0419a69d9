"""The filtering proxy, with real sockets on the loopback address."""

from __future__ import annotations

import asyncio
import os
import shutil
import socket
import ssl
import struct
import subprocess
import threading
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import Any

import pytest
from tests.lacking import needs
from tests.net.parts import (
    OK,
    Identity,
    answering,
    make_identity,
    serving,
)
from tests.net.test_client_hello import hello, records, server_name
from tests.net.test_tls import server_context

from clawkit.errors import ToolError
from clawkit.net.filter_proxy import MAX_HEAD, FilterProxy, ProxyConnection, ProxyLimits, proxy_env
from clawkit.net.host_rules import Rules, make_rules

LOCAL = "127.0.0.1"
PATIENCE_S = 60
"""Only a failure takes so long."""
CONNECTED = b"HTTP/1.1 200 Connected\r\n\r\n"
SOCKS_OK = bytes.fromhex("05 00 00 01 00000000 0000")
Streams = tuple[asyncio.StreamReader, asyncio.StreamWriter]


@pytest.fixture(autouse=True)
def _own_home() -> None:
    """Nothing here looks at a home."""


@pytest.fixture(scope="module")
def authority(tmp_path_factory: pytest.TempPathFactory) -> Identity:
    return make_identity(tmp_path_factory.mktemp("identities"), "authority")


@pytest.fixture(scope="module")
def identity(authority: Identity) -> Identity:
    return make_identity(authority.cert_file.parent, "example.org", by=authority)


class Running:
    """A proxy that serves one listener, and what it refused."""

    def __init__(self, proxy: FilterProxy, port: int) -> None:
        self.proxy, self.port = proxy, port
        self.denied: list[tuple[str, int, str]] = []

    async def open(self) -> Streams:
        return await asyncio.open_connection(LOCAL, self.port)

    async def talk(self, *sent: bytes) -> bytes:
        """Everything that comes back until the proxy closes."""
        reader, writer = await self.open()
        try:
            for each in sent:
                writer.write(each)
                await writer.drain()
            return await asyncio.wait_for(reader.read(), PATIENCE_S)
        finally:
            writer.transport.abort()

    async def tunnel(self, host: str, port: int) -> Streams:
        reader, writer = await self.open()
        writer.write(f"CONNECT {host}:{port} HTTP/1.1\r\nHost: {host}:{port}\r\n\r\n".encode())
        assert await reader.readexactly(len(CONNECTED)) == CONNECTED
        return reader, writer


def listen(backlog: int = 2_048) -> socket.socket:
    listener = socket.create_server((LOCAL, 0), backlog=backlog)
    listener.setblocking(False)
    return listener


def resolving(names: Mapping[str, Sequence[str]]) -> Callable[[str, int], Awaitable[Sequence[str]]]:
    async def resolve(host: str, port: int) -> Sequence[str]:
        if host not in names:
            raise socket.gaierror(socket.EAI_NONAME, "unknown name")
        return names[host]

    return resolve


@asynccontextmanager
async def proxying(
    *ports: int,
    rules: Rules | None = None,
    names: Mapping[str, Sequence[str]] | None = None,
    listener: socket.socket | None = None,
    **options: Any,
) -> AsyncIterator[Running]:
    """A proxy that allows example.org, which is this machine, on these ports."""
    listener = listener or listen()
    if rules is None:
        private = [f"{LOCAL}:{port}" for port in ports]
        rules = make_rules([f"example.org:{port}" for port in ports], private)
    options.setdefault("resolve", resolving(names or {"example.org": [LOCAL]}))
    proxy = FilterProxy(rules, **options, on_denied=lambda *what: running.denied.append(what))
    running = Running(proxy, listener.getsockname()[1])
    proxy.serve(listener)
    try:
        yield running
    finally:
        await proxy.close()
        assert tasks_of_proxies() == []
        assert listener.fileno() == -1


def tasks_of_proxies() -> list[str]:
    names = (getattr(each.get_coro(), "__qualname__", "") for each in asyncio.all_tasks())
    return [name for name in names if name.startswith(("ProxyConnection.", "FilterProxy."))]


def count_connections() -> int:
    return tasks_of_proxies().count("ProxyConnection.run")


async def echo(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    while data := await reader.read(65_536):
        writer.write(data)
        await writer.drain()
    writer.write_eof()
    await reader.read()


def socks_request(host: str, port: int) -> bytes:
    name = host.encode()
    return b"\x05\x01\0\x05\x01\0\x03" + bytes([len(name)]) + name + struct.pack(">H", port)


async def until(condition: Callable[[], bool]) -> None:
    async with asyncio.timeout(PATIENCE_S):
        while not condition():
            await asyncio.sleep(0.01)


# Tunnels


async def test_a_tunnel_carries_bytes_both_ways() -> None:
    async with serving(echo) as server, proxying(server.port) as proxy:
        reader, writer = await proxy.tunnel("EXAMPLE.org.", server.port)
        data = os.urandom(3_000_000)
        writer.write(data)
        assert await reader.readexactly(len(data)) == data
        writer.write_eof()
        assert await reader.read() == b""
        writer.close()
    assert proxy.denied == []


async def test_socks_carries_bytes_both_ways() -> None:
    async with serving(echo) as server, proxying(server.port) as proxy:
        reader, writer = await proxy.open()
        for byte in socks_request("example.org", server.port) + b"hello":
            writer.write(bytes([byte]))
            await writer.drain()
        assert await reader.readexactly(17) == b"\x05\0" + SOCKS_OK + b"hello"
        writer.close()


@pytest.mark.parametrize(
    "address",
    [
        b"\x01" + socket.inet_aton(LOCAL),
        b"\x04" + socket.inet_pton(socket.AF_INET6, "::ffff:127.0.0.1"),
    ],
)
async def test_socks_takes_addresses(address: bytes) -> None:
    async with serving(echo) as server, proxying(server.port) as proxy:
        reader, writer = await proxy.open()
        writer.write(b"\x05\x01\0\x05\x01\0" + address + struct.pack(">H", server.port) + b"hello")
        assert await reader.readexactly(17) == b"\x05\0" + SOCKS_OK + b"hello"
        writer.close()


async def test_a_client_that_has_ended_still_gets_the_answer() -> None:
    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(b"got " + await reader.read())

    async with serving(serve) as server, proxying(server.port) as proxy:
        reader, writer = await proxy.tunnel("example.org", server.port)
        writer.write(b"all of it")
        writer.write_eof()
        # The server aborts at its end, with nothing unread.
        assert await reader.read() == b"got all of it"
        writer.close()


async def test_a_server_may_speak_first_and_a_client_never() -> None:
    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(b"220 ready\r\n")
        assert await reader.read() == b""
        writer.write(b"bye")

    async with serving(serve) as server, proxying(server.port) as proxy:
        reader, writer = await proxy.tunnel("example.org", server.port)
        assert await reader.readexactly(11) == b"220 ready\r\n"
        writer.write_eof()
        assert await reader.read() == b"bye"
        writer.close()


async def test_a_server_that_resets_ends_the_client_too() -> None:
    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readexactly(1)
        sock = writer.get_extra_info("socket")
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))

    async with serving(serve) as server, proxying(server.port) as proxy:
        reader, writer = await proxy.tunnel("example.org", server.port)
        writer.write(b"xy")
        assert await reader.read() == b""
        writer.close()


async def test_a_slow_reader_holds_back_the_sender() -> None:
    sent = 0

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        nonlocal sent
        while True:
            writer.write(bytes(65_536))
            await writer.drain()
            sent += 65_536

    async with serving(serve) as server, proxying(server.port) as proxy:
        _, writer = await proxy.tunnel("example.org", server.port)
        before = -1
        while (
            sent != before or not sent
        ):  # it comes to a halt, as no part of the way takes any amount
            before = sent
            await asyncio.sleep(0.5)
        assert 0 < sent < 64 * 1024 * 1024
        writer.transport.abort()
        await server.ended.wait()


async def test_an_idle_tunnel_is_closed() -> None:
    limits = ProxyLimits(idle_s=1)
    async with serving(echo) as server, proxying(server.port, limits=limits) as proxy:
        reader, writer = await proxy.tunnel("example.org", server.port)
        for _ in range(6):  # together longer than the limit
            writer.write(b"x")
            assert await reader.readexactly(1) == b"x"
            await asyncio.sleep(0.2)
        assert await reader.read() == b""
        await server.ended.wait()
        writer.close()


async def test_closing_ends_tunnels_questions_and_threads() -> None:
    asked = asyncio.Event()

    async def ask(host: str, port: int) -> bool:
        asked.set()
        await asyncio.Event().wait()
        return True

    async with serving(echo) as server:
        async with proxying(server.port, ask=ask) as proxy:
            proxy.proxy.serve(listen())
            first, one = await proxy.tunnel("example.org", server.port)
            second, other = await proxy.open()
            other.write(b"CONNECT new.example:443 HTTP/1.1\r\nHost: new.example\r\n\r\n")
            await asked.wait()
        assert await first.read() == b""
        assert await second.read() == b""
        await server.ended.wait()
        one.close()
        other.close()
    assert not [each for each in threading.enumerate() if each.name == "clawkit-proxy"]
    with pytest.raises(ToolError, match="closed"):
        proxy.proxy.serve(listen())
    await proxy.proxy.close()


# Who may be reached


@pytest.mark.parametrize(
    "host",
    ["evil.test", "127.0.0.1", "2130706433", "0x7f.1", "0177.0.0.1", "[::1]", "[::ffff:7f00:1]"],
)
async def test_hosts_that_no_rule_allows_are_refused_in_every_protocol(host: str) -> None:
    async with serving(echo) as server, proxying(1) as proxy:
        port = server.port
        connect = await proxy.talk(f"CONNECT {host}:{port} HTTP/1.1\r\nHost: x\r\n\r\n".encode())
        plain = await proxy.talk(f"GET http://{host}:{port}/ HTTP/1.1\r\nHost: x\r\n\r\n".encode())
        socks = await proxy.talk(socks_request(host.strip("[]"), port))
        assert server.connections == 0
    for answer in (connect, plain):
        assert answer.startswith(b"HTTP/1.1 403 clawkit: ")
        head, _, body = answer.partition(b"\r\n\r\n")
        assert body.count(b"\n") == 1
        assert b"is not allowed in the sandbox" in body
        assert b"Connection: close" in head
    assert socks == b"\x05\0\x05\x02" + SOCKS_OK[2:]
    assert [(each[0], each[1]) for each in proxy.denied] == [(proxy.denied[0][0], port)] * 3


async def test_a_name_that_is_not_allowed_is_never_looked_up() -> None:
    looked_up = []

    async def resolve(host: str, port: int) -> Sequence[str]:
        looked_up.append(host)
        return [LOCAL]

    async with proxying(1, resolve=resolve) as proxy:
        await proxy.talk(b"CONNECT c2VjcmV0.evil.test:443 HTTP/1.1\r\nHost: x\r\n\r\n")
    assert looked_up == []
    assert proxy.denied == [
        ("c2vjcmv0.evil.test", 443, "this host and port are not on the allowlist")
    ]


@pytest.mark.parametrize(
    "addresses",
    [
        ["127.0.0.1"],
        ["9.9.9.9", "127.0.0.1"],
        ["127.0.0.1", "9.9.9.9"],
        ["::1"],
        ["::ffff:127.0.0.1"],
        ["64:ff9b::7f00:1"],
        ["2002:7f00:1::"],
        ["169.254.169.254"],
        ["0.0.0.0"],
        ["10.0.0.1"],
        ["nonsense"],
    ],
)
async def test_an_allowed_name_with_a_private_address_is_refused(addresses: list[str]) -> None:
    async with serving(echo) as server:
        rules = make_rules([f"rebind.example:{server.port}"])
        async with proxying(rules=rules, names={"rebind.example": addresses}) as proxy:
            answer = await proxy.talk(socks_request("rebind.example", server.port))
        assert answer == b"\x05\0\x05\x02" + SOCKS_OK[2:]
        assert server.connections == 0
    ((host, port, _),) = proxy.denied
    assert (host, port) == ("rebind.example", server.port)


async def test_a_name_is_looked_up_once_for_each_connection_and_the_address_pinned() -> None:
    """Public at first, private when asked again: the second answer is checked like the first."""
    answers = [[LOCAL], ["10.0.0.1"]]

    async def resolve(host: str, port: int) -> Sequence[str]:
        return answers.pop(0)

    async with serving(echo) as server, proxying(server.port, resolve=resolve) as proxy:
        _, writer = await proxy.tunnel("example.org", server.port)
        assert len(answers) == 1
        writer.close()
        refused = await proxy.talk(socks_request("example.org", server.port))
        assert refused[3] == 2
    assert server.connections == 1


async def test_the_next_address_is_tried_when_one_fails() -> None:
    async with serving(echo) as server:
        private = [f"127.0.0.{number}:{server.port}" for number in (1, 9)]
        rules = make_rules([f"example.org:{server.port}"], private)
        names = {"example.org": ["127.0.0.9", LOCAL]}
        async with proxying(rules=rules, names=names) as proxy:
            _, writer = await proxy.tunnel("example.org", server.port)
            writer.close()


async def test_a_host_that_cannot_be_reached_is_an_error_but_not_a_denial() -> None:
    with socket.create_server((LOCAL, 0)) as gone:
        port = gone.getsockname()[1]
    async with proxying(port) as proxy:
        connect = await proxy.talk(
            f"CONNECT example.org:{port} HTTP/1.1\r\nHost: x\r\n\r\n".encode()
        )
        socks = await proxy.talk(socks_request("example.org", port))
    assert connect.startswith(b"HTTP/1.1 502 ")
    assert socks[3] == 4
    assert proxy.denied == []


async def test_a_name_without_an_address_is_an_error() -> None:
    async with proxying(1, names={"other.example": [LOCAL]}) as proxy:
        answer = await proxy.talk(b"CONNECT example.org:1 HTTP/1.1\r\nHost: x\r\n\r\n")
    assert answer.startswith(b"HTTP/1.1 502 ")


async def test_the_system_resolves_names_by_default() -> None:
    async with serving(echo) as server:
        proxy = FilterProxy(
            make_rules(
                [f"localhost:{server.port}"], [f"{LOCAL}:{server.port}", f"[::1]:{server.port}"]
            )
        )
        listener = listen()
        running = Running(proxy, listener.getsockname()[1])
        proxy.serve(listener)
        _, writer = await running.tunnel("localhost", server.port)
        writer.close()
        await proxy.close()


# Questions


async def test_all_waiters_share_one_question_and_an_approval_is_remembered() -> None:
    asked = []
    answer = asyncio.Event()

    async def ask(host: str, port: int) -> bool:
        asked.append((host, port))
        await answer.wait()
        return True

    names = {"new.example": [LOCAL]}
    async with serving(echo) as server, proxying(server.port, ask=ask, names=names) as proxy:
        opening = [
            asyncio.create_task(proxy.tunnel(name, server.port))
            for name in ("new.example", "NEW.example", "new.example.") * 5
        ]
        await until(lambda: count_connections() == len(opening) and asked != [])
        answer.set()
        for each in [
            *await asyncio.gather(*opening),
            await proxy.tunnel("new.example", server.port),
        ]:
            each[1].close()
    assert asked == [("new.example", server.port)]
    assert proxy.denied == []


async def test_a_no_is_remembered_for_a_short_time() -> None:
    asked = []

    async def ask(host: str, port: int) -> bool:
        asked.append(host)
        return False

    request = b"CONNECT new.example:443 HTTP/1.1\r\nHost: x\r\n\r\n"
    async with proxying(1, ask=ask, limits=ProxyLimits(denied_s=3_600)) as proxy:
        for _ in range(3):
            assert (await proxy.talk(request)).startswith(b"HTTP/1.1 403 ")
    assert len(asked) == 1
    assert len(proxy.denied) == 3
    async with proxying(1, ask=ask, limits=ProxyLimits(denied_s=0)) as proxy:
        for _ in range(3):
            await proxy.talk(request)
    assert len(asked) == 4


async def test_an_approval_does_not_allow_a_private_address() -> None:
    async def ask(host: str, port: int) -> bool:
        return True

    async with proxying(1, ask=ask, names={"new.example": ["192.168.1.1"]}) as proxy:
        answer = await proxy.talk(b"CONNECT new.example:443 HTTP/1.1\r\nHost: x\r\n\r\n")
    assert b"private address" in answer


async def test_addresses_and_this_machine_are_not_asked_about() -> None:
    async def ask(host: str, port: int) -> bool:
        raise AssertionError(host)

    async with proxying(1, ask=ask) as proxy:
        for host in ("9.9.9.9", "127.0.0.1", "localhost", "169.254.169.254", "a b"):
            answer = await proxy.talk(socks_request(host, 443))
            assert answer[3] == 2


async def test_a_flood_of_unknown_hosts_is_not_a_flood_of_questions() -> None:
    asked = []

    async def ask(host: str, port: int) -> bool:
        asked.append(host)
        await asyncio.Event().wait()
        return True

    async with proxying(1, ask=ask, limits=ProxyLimits(questions=4)) as proxy:
        tasks = [
            asyncio.create_task(proxy.talk(socks_request(f"h{number}.example", 443)))
            for number in range(40)
        ]
        await until(lambda: len(proxy.denied) == 36 and len(asked) == 4)
        await proxy.proxy.close()
        await asyncio.gather(*tasks)


async def test_a_question_that_fails_is_a_no() -> None:
    problems: list[Mapping[str, Any]] = []
    asyncio.get_running_loop().set_exception_handler(lambda _, problem: problems.append(problem))

    async def ask(host: str, port: int) -> bool:
        raise RuntimeError("the screen is gone")

    async with proxying(1, ask=ask) as proxy:
        answer = await proxy.talk(b"CONNECT new.example:443 HTTP/1.1\r\nHost: x\r\n\r\n")
    assert b"200" not in answer


# Plain HTTP


async def test_requests_follow_one_another_on_one_connection() -> None:
    chunked = b"HTTP/1.1 200 Fine\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n0\r\n\r\n"
    until_close = b"HTTP/1.0 200 OK\r\n\r\nto the end"
    nothing = b"HTTP/1.1 204 No Content\r\n\r\n"
    answers_ = (OK, chunked, until_close, nothing)
    async with answering(*answers_, then_close=True) as server, proxying(server.port) as proxy:
        base = f"http://example.org:{server.port}"
        requests = (
            f"POST {base}/1?q=a#f HTTP/1.1\r\nHost: evil.test\r\nContent-Length: 4\r\n\r\nbody"
            f"GET {base}/2 HTTP/1.1\r\nHost: x\r\n\r\n"
            f"GET {base} HTTP/1.1\r\nHost: x\r\n\r\n"
            f"GET {base}/4 HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n"
        )
        answers = await proxy.talk(requests.encode())
    assert [each.line for each in server.asked] == [
        "POST /1?q=a HTTP/1.1",
        "GET /2 HTTP/1.1",
        "GET / HTTP/1.1",
        "GET /4 HTTP/1.1",
    ]
    assert {each.headers["host"] for each in server.asked} == {f"example.org:{server.port}"}
    assert server.asked[0].body == b"body"
    parts = [b"ok", b"3\r\nabc\r\n0\r\n\r\n", b"a\r\nto the end\r\n0\r\n\r\n", b"204"]
    at = [answers.index(part) for part in parts]
    assert at == sorted(at)


async def test_hop_by_hop_headers_and_credentials_for_the_proxy_end_here() -> None:
    answer = (
        b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\nConnection: X-Mine, content-length\r\n"
        b"X-Mine: 1\r\nKeep-Alive: 5\r\nProxy-Authenticate: Basic\r\nX-Other: 2\r\n\r\nok"
    )
    async with answering(answer, then_close=True) as server, proxying(server.port) as proxy:
        got = await proxy.talk(
            f"GET http://example.org:{server.port}/ HTTP/1.1\r\nhost: x\r\n"
            "Proxy-Authorization: Basic c2VjcmV0\r\nProxy-Connection: keep-alive\r\n"
            "Connection: close, X-Secret, Host\r\nX-Secret: 1\r\nTE: trailers\r\n"
            "Upgrade: websocket\r\nKeep-Alive: 5\r\nX-Kept: yes\r\n"
            "Authorization: mine\r\n\r\n".encode()
        )
    (asked,) = server.asked
    assert asked.headers == {
        "host": f"example.org:{server.port}",
        "x-kept": "yes",
        "authorization": "mine",
        "connection": "close",
    }
    head, _, body = got.partition(b"\r\n\r\n")
    assert body == b"ok"
    assert sorted(head.lower().split(b"\r\n")[1:]) == [
        b"connection: close",
        b"content-length: 2",
        b"x-other: 2",
    ]


async def test_a_chunked_body_is_passed_on() -> None:
    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        head = await reader.readuntil(b"\r\n\r\n")
        assert b"transfer-encoding: chunked" in head.lower()
        writer.write(b"HTTP/1.1 100 Continue\r\n\r\n")
        body = await reader.readuntil(b"0\r\n\r\n")
        writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n" % len(body) + body)
        await reader.read()

    async with serving(serve) as server, proxying(server.port) as proxy:
        reader, writer = await proxy.open()
        writer.write(
            f"PUT http://example.org:{server.port}/ HTTP/1.1\r\nHost: x\r\n"
            "Expect: 100-continue\r\nTransfer-Encoding: chunked\r\n\r\n".encode()
        )
        assert (await reader.readuntil(b"\r\n\r\n")).startswith(b"HTTP/1.1 100 ")
        writer.write(b"5\r\nhello\r\n0\r\nX-Trailer: 1\r\n\r\n")
        assert b"200 OK" in await reader.readuntil(b"\r\n\r\n")
        assert await reader.readexactly(15) == b"5\r\nhello\r\n0\r\n\r\n"
        writer.close()


async def test_a_large_answer_is_passed_on_whole() -> None:
    body = os.urandom(5_000_000)
    answer = b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n" % len(body) + body
    async with answering(answer) as server, proxying(server.port) as proxy:
        url = f"http://example.org:{server.port}/"
        got = await proxy.talk(
            f"GET {url} HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n".encode()
        )
    assert got.endswith(body)


@pytest.mark.parametrize(
    "answer",
    [
        b"",
        b"nonsense\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nX: " + b"y" * MAX_HEAD,
        b"HTTP/1.1 200 OK\r\nContent-Length: 1\r\nContent-Length: 2\r\n\r\nab",
        b"HTTP/1.1 101 Switching\r\nUpgrade: x\r\n\r\n",
    ],
)
async def test_a_server_that_does_not_speak_http_is_an_error(answer: bytes) -> None:
    async with answering(answer, then_close=True) as server, proxying(server.port) as proxy:
        url = f"http://example.org:{server.port}/"
        got = await proxy.talk(f"GET {url} HTTP/1.1\r\nHost: x\r\n\r\n".encode())
    assert got.startswith(b"HTTP/1.1 502 ")


async def test_an_answer_that_breaks_off_is_not_taken_for_a_whole_one() -> None:
    broken = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n"
    async with answering(broken, then_close=True) as server, proxying(server.port) as proxy:
        url = f"http://example.org:{server.port}/"
        got = await proxy.talk(f"GET {url} HTTP/1.1\r\nHost: x\r\n\r\n".encode())
    assert got.endswith(b"3\r\nabc\r\n")


URL = "http://example.org:{port}/"
GET = f"GET {URL} HTTP/1.1\r\nHost: x\r\n"


@pytest.mark.parametrize(
    "request_",
    [
        f"{GET}Content-Length: 5\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
        f"{GET}Content-Length: 1\r\nContent-Length: 2\r\n\r\nab",
        f"{GET}Content-Length: +1\r\n\r\na",
        f"{GET}Content-Length: 0x1\r\n\r\na",
        f"{GET}Content-Length: -1\r\n\r\na",
        f"{GET}Transfer-Encoding: gzip, chunked\r\n\r\n0\r\n\r\n",
        f"{GET}Transfer-Encoding: chunked\r\nTransfer-Encoding: identity\r\n\r\n0\r\n\r\n",
        f"{GET}Transfer-Encoding: xchunked\r\n\r\n0\r\n\r\n",
        f"{GET}Transfer-Encoding:\x0bchunked\r\n\r\n0\r\n\r\n",
        f"{GET}Transfer-Encoding : chunked\r\n\r\n0\r\n\r\n",
        f"POST {URL} HTTP/1.0\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
        f"{GET}Host: y\r\n\r\n",
        f"GET {URL} HTTP/1.1\r\n\r\n",
        f"{GET}X: 1\r\n Folded: 2\r\n\r\n",
        f"{GET}X: 1\r\n\tFolded: 2\r\n\r\n",
        f"GET {URL} HTTP/1.1\r\n Host: x\r\n\r\n",
        f"{GET}X: 1\nY: 2\r\n\r\n",
        f"{GET}X: 1\rY: 2\r\n\r\n",
        f"{GET}X: 1\r\r\n\r\n",
        f"{GET}X: 1\n\r\n\r\n",
        f"GET {URL} HTTP/1.1\nHost: x\n\n",
        f"{GET}X: \x00\r\n\r\n",
        f"{GET}X\r\n\r\n",
        f"{GET}: x\r\n\r\n",
        f"{GET}X Y: z\r\n\r\n",
        f"GET  {URL} HTTP/1.1\r\nHost: x\r\n\r\n",
        f"GET {URL} a HTTP/1.1\r\nHost: x\r\n\r\n",
        f"GET {URL} HTTP/2.0\r\nHost: x\r\n\r\n",
        f"GET {URL} HTTP/1.2\r\nHost: x\r\n\r\n",
        f"GET {URL}\r\n\r\n",
        f"\r\nGET {URL} HTTP/1.1 \r\nHost: x\r\n\r\n",
        "GET / HTTP/1.1\r\nHost: example.org:{port}\r\n\r\n",
        "OPTIONS * HTTP/1.1\r\nHost: example.org:{port}\r\n\r\n",
        "GET example.org:{port} HTTP/1.1\r\nHost: x\r\n\r\n",
        "GET https://example.org:{port}/ HTTP/1.1\r\nHost: x\r\n\r\n",
        "GET ftp://example.org:{port}/ HTTP/1.1\r\nHost: x\r\n\r\n",
        "GET http://user:pw@example.org:{port}/ HTTP/1.1\r\nHost: x\r\n\r\n",
        "GET http://example.org:{port}\\@evil.test/ HTTP/1.1\r\nHost: x\r\n\r\n",
        "GET http:///x HTTP/1.1\r\nHost: example.org:{port}\r\n\r\n",
        "CONNECT example.org HTTP/1.1\r\nHost: x\r\n\r\n",
        "CONNECT http://example.org:{port}/ HTTP/1.1\r\nHost: x\r\n\r\n",
        "CONNECT user@example.org:{port}:{port} HTTP/1.1\r\nHost: x\r\n\r\n",
        "CONNECT example.org:{port} HTTP/1.1\r\nHost: x\r\nContent-Length: 0\r\n\r\n",
        "CONNECT example.org:{port} HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n",
        "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n",
        "\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03",
        "\x00",
        f"{GET}X: {'y' * MAX_HEAD}\r\n\r\n",
        f"{GET}X: {'y' * MAX_HEAD}",
        GET + "X: y\r\n" * 10_000,
    ],
)
async def test_requests_that_can_be_read_in_two_ways_are_refused(request_: str) -> None:
    async with serving(echo) as server, proxying(server.port) as proxy:
        sent = request_.replace("{port}", str(server.port)).encode("latin-1")
        assert (await proxy.talk(sent)).startswith(b"HTTP/1.1 400 clawkit: ")
        assert server.connections == 0


@pytest.mark.parametrize("rest", ["zz\r\nabc\r\n", "3\r\nabcd\r\n", "3\r\nabc", "-1\r\n"])
async def test_a_body_that_is_not_http_is_refused(rest: str) -> None:
    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.read()

    async with serving(serve) as server, proxying(server.port) as proxy:
        reader, writer = await proxy.open()
        head = GET.replace("{port}", str(server.port)) + "Transfer-Encoding: chunked\r\n\r\n"
        writer.write((head + rest).encode())
        writer.write_eof()
        assert (await reader.read()).startswith(b"HTTP/1.1 400 ")
        writer.close()
        await server.ended.wait()


async def test_a_head_may_come_byte_by_byte() -> None:
    async with answering(OK) as server, proxying(server.port) as proxy:
        reader, writer = await proxy.open()
        for byte in (GET.replace("{port}", str(server.port)) + "X: 1\r\n\r\n").encode():
            writer.write(bytes([byte]))
            await writer.drain()
            await asyncio.sleep(0)
        assert (await reader.readuntil(b"\r\n\r\n")).startswith(b"HTTP/1.1 200 ")
        writer.close()


@pytest.mark.parametrize(
    "start",
    [b"", b"G", b"GET http://example.org/ HTTP/1.1\r\nHost: x\r\n", b"\x05", b"\x05\x01\0\x05"],
)
async def test_a_head_that_is_not_complete_in_time_ends_the_connection(start: bytes) -> None:
    async with proxying(1, limits=ProxyLimits(head_s=0.3)) as proxy:
        reader, writer = await proxy.open()
        writer.write(start)

        async def drip() -> None:
            with suppress(OSError):
                while True:
                    await asyncio.sleep(0.02)
                    if start.startswith(b"GET"):
                        writer.write(b"X")
                        await writer.drain()

        dripping = asyncio.create_task(drip())
        with suppress(ConnectionResetError):
            await asyncio.wait_for(reader.read(), PATIENCE_S)
        dripping.cancel()
        await asyncio.gather(dripping, return_exceptions=True)
        writer.transport.abort()
        await until(lambda: count_connections() == 0)


async def test_a_refusal_is_readable_while_the_body_is_still_sent() -> None:
    async with proxying(1) as proxy:
        reader, writer = await proxy.open()
        writer.write(
            b"PUT http://evil.test/ HTTP/1.1\r\nHost: x\r\nContent-Length: 9999999\r\n\r\n"
        )
        writer.write(bytes(300_000))
        assert (await reader.read()).startswith(b"HTTP/1.1 403 ")
        writer.transport.abort()


# SOCKS


@pytest.mark.parametrize(
    ("sent", "answer"),
    [
        (b"\x05\x01\x02", b"\x05\xff"),  # only with a password
        (b"\x05\0", b"\x05\xff"),
        (b"\x05\x01\0\x05\x02\0\x01" + bytes(6), b"\x05\0\x05\x07\0\x01" + bytes(6)),  # bind
        (b"\x05\x01\0\x05\x03\0\x01" + bytes(6), b"\x05\0\x05\x07\0\x01" + bytes(6)),  # UDP
        (b"\x05\x01\0\x05\x01\0\x09" + bytes(6), b"\x05\0\x05\x07\0\x01" + bytes(6)),
        (b"\x05\x01\0\x04\x01\0\x01" + bytes(6), b"\x05\0\x05\x07\0\x01" + bytes(6)),
        (b"\x05\x01\0\x05\x01\0\x03\0\0\x50", b"\x05\0\x05\x02\0\x01" + bytes(6)),  # no name
        (b"\x05\x01\0\x05\x01\0\x03\x02\xff\xfe\0\x50", b"\x05\0\x05\x02\0\x01" + bytes(6)),
        (b"\x04\x01\0\x50\0\0\0\x01x\0example.org\0", b"\0\x5b" + bytes(6)),
    ],
)
async def test_socks_is_version_5_without_passwords_and_connects_only(
    sent: bytes, answer: bytes
) -> None:
    async with proxying(1) as proxy:
        assert await proxy.talk(sent) == answer


# TLS


async def test_a_tls_connection_for_the_allowed_host_passes(
    authority: Identity, identity: Identity
) -> None:
    context = ssl.create_default_context(cafile=authority.cert_file)
    theirs = server_context(identity)
    async with answering(OK, context=theirs) as server, proxying(server.port) as proxy:
        reader, writer = await proxy.tunnel("example.org", server.port)
        await writer.start_tls(context, server_hostname="example.org")
        writer.write(b"GET / HTTP/1.1\r\n\r\n")
        assert await reader.readexactly(len(OK)) == OK
        writer.close()


async def test_a_tls_connection_for_another_host_is_closed() -> None:
    context = ssl.create_default_context()
    async with serving(echo) as server, proxying(server.port) as proxy:
        for name in ("evil.test", "www.example.org"):
            _, writer = await proxy.tunnel("example.org", server.port)
            with pytest.raises(ssl.SSLError, match="UNRECOGNIZED_NAME"):
                await writer.start_tls(context, server_hostname=name)
            writer.close()
        reader, writer = await proxy.open()
        writer.write(socks_request("example.org", server.port))
        assert await reader.readexactly(12) == b"\x05\0" + SOCKS_OK
        with pytest.raises(ssl.SSLError, match="UNRECOGNIZED_NAME"):
            await writer.start_tls(context, server_hostname="evil.test")
        writer.close()
    assert [each[0] for each in proxy.denied] == ["example.org"] * 3
    assert "'evil.test'" in proxy.denied[0][2]


HELLO = records(hello(server_name(b"example.org")))


@pytest.mark.parametrize(
    ("port", "sent", "passes"),
    [
        (443, HELLO, True),
        (443, records(hello(server_name(b"example.org")), 10), True),
        (443, records(hello(server_name(b"EXAMPLE.org."))), True),
        (443, records(hello()), True),  # no name
        (443, records(hello(server_name(b"evil.test"))), False),
        (443, records(hello(server_name(b"example.org\0evil.test"))), False),
        (443, records(hello(server_name(b"127.0.0.1"))), False),
        (443, records(hello(server_name(b"\xff"))), False),
        (443, b"GET / HTTP/1.1\r\n\r\n", False),
        (443, b"SSH-2.0-x\r\n", False),
        (443, HELLO[:50] + b"\x15\x03\x01\0\x01x", False),
        (443, HELLO[:-1], False),
        (443, b"\x16", False),
        (8443, HELLO, True),
        (8443, records(hello(server_name(b"evil.test"))), False),
        (8443, b"GET / HTTP/1.1\r\n\r\n", True),
        (22, b"SSH-2.0-x\r\n", True),
        (443, b"", True),
    ],
)
@pytest.mark.parametrize("step", [1, 7, 100_000])
async def test_only_tls_for_the_allowed_host_goes_out_to_port_443(
    port: int, sent: bytes, passes: bool, step: int
) -> None:
    denied = []
    near, client = socket.socketpair()
    far, server = socket.socketpair()

    async def connect(host: str, port: int) -> tuple[str, socket.socket]:
        return "example.org", far

    near.setblocking(False)
    far.setblocking(False)
    limits = ProxyLimits()
    with near, client, far, server:
        connection = ProxyConnection(near, connect, lambda *what: denied.append(what), limits)
        task = asyncio.create_task(connection.run())
        reader, writer = await asyncio.open_connection(sock=client)
        out, back = await asyncio.open_connection(sock=server)
        writer.write(socks_request("example.org", port))
        assert await reader.readexactly(12) == b"\x05\0" + SOCKS_OK
        for at in range(0, len(sent), step):
            writer.write(sent[at : at + step])
            await asyncio.sleep(0)
        writer.write_eof()
        got = asyncio.create_task(out.read())
        if passes:
            assert await got == sent
            back.write_eof()
        await task
        far.close()
        assert await got == (sent if passes else b"")
        assert (denied == []) == passes
        writer.close()
        back.close()


# Limits and hostile listeners


async def test_a_thousand_idle_connections_are_held_at_the_limit_and_then_dropped() -> None:
    limits = ProxyLimits(connections=20, head_s=0.3)
    async with serving(echo) as server, proxying(server.port, limits=limits) as proxy:
        idle = [await proxy.open() for _ in range(1_000)]
        assert count_connections() <= 20
        for _, writer in idle[20:]:
            writer.transport.abort()
        reader, writer = await proxy.tunnel("example.org", server.port)
        writer.write(b"still here")
        assert await reader.readexactly(10) == b"still here"
        writer.close()
        for reader, writer in idle[:20]:
            assert await reader.read() == b""
            writer.close()


async def test_connections_beyond_the_limit_wait_for_a_place() -> None:
    limits = ProxyLimits(connections=1)
    async with serving(echo) as server, proxying(server.port, limits=limits) as proxy:
        _, first = await proxy.tunnel("example.org", server.port)
        second = asyncio.create_task(proxy.tunnel("example.org", server.port))
        await asyncio.sleep(0.2)
        assert not second.done()
        first.transport.abort()
        _, writer = await second
        writer.close()


def file_as_socket(kind: str, tmp_path: Path) -> socket.socket:
    if kind == "file":
        handle = os.open(tmp_path / "file", os.O_CREAT | os.O_RDWR)
    elif kind == "pipe":
        handle, other = os.pipe()
        os.close(other)
    else:
        handle = os.open("/dev/null", os.O_RDWR)
    sock = socket.socket()
    os.dup2(handle, sock.fileno())
    os.close(handle)
    return sock


def other_socket(kind: str, tmp_path: Path) -> socket.socket:
    if kind == "unix":
        return socket.socket(socket.AF_UNIX)
    if kind == "listening unix":
        sock = socket.socket(socket.AF_UNIX)
        sock.bind(str(tmp_path / "s"))
        sock.listen()
        return sock
    if kind == "udp":
        return socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    if kind == "not listening":
        return socket.socket(socket.AF_INET, socket.SOCK_STREAM)
    if kind == "closed":
        sock = socket.socket()
        sock.close()
        return sock
    return file_as_socket(kind, tmp_path)


@pytest.mark.parametrize(
    "kind",
    ["file", "pipe", "device", "unix", "listening unix", "udp", "not listening", "closed"],
)
async def test_a_listener_that_cannot_be_used_is_an_error_and_closed(
    kind: str, tmp_path: Path
) -> None:
    listener = other_socket(kind, tmp_path)
    proxy = FilterProxy(make_rules([]))
    with pytest.raises(ToolError, match="its listener is not a"):
        proxy.serve(listener)
    assert listener.fileno() == -1
    await proxy.close()


async def test_a_sandbox_that_keeps_the_listener_cannot_block_the_loop() -> None:
    """It shares all settings of the socket, and can accept its connections."""
    listener = listen()
    with listener.dup() as theirs:
        async with serving(echo) as server, proxying(server.port, listener=listener) as proxy:
            for is_blocking in (True, False):
                theirs.setblocking(is_blocking)
                theirs.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 60))
                reader, writer = await proxy.tunnel("example.org", server.port)
                writer.write(b"hello")
                assert await reader.readexactly(5) == b"hello"
                writer.write(bytes(1_000_000))  # what comes back is never read
                writer.transport.abort()
            theirs.shutdown(socket.SHUT_RDWR)
            with pytest.raises(ConnectionRefusedError):
                await proxy.open()
            theirs.listen()  # and again


async def test_several_listeners_are_served_by_one_proxy() -> None:
    async with serving(echo) as server, proxying(server.port) as proxy:
        listener = socket.create_server(("::1", 0), family=socket.AF_INET6)
        port = listener.getsockname()[1]
        proxy.proxy.serve(listener)
        _, first = await proxy.tunnel("example.org", server.port)
        reader, second = await asyncio.open_connection("::1", port)
        second.write(socks_request("example.org", server.port))
        assert await reader.readexactly(12) == b"\x05\0" + SOCKS_OK
        first.close()
        second.close()


# Programs


def test_the_environment_names_the_proxy_in_both_spellings() -> None:
    env = proxy_env(3128)
    assert env["HTTPS_PROXY"] == env["http_proxy"] == "http://127.0.0.1:3128"
    assert env["ALL_PROXY"] == "socks5h://127.0.0.1:3128"
    assert all(env[name.upper()] == env[name] for name in env if name.islower())


async def run(*command: str, env: Mapping[str, str]) -> tuple[int, str]:
    def work() -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            command, env=dict(env), capture_output=True, text=True, timeout=PATIENCE_S, check=False
        )

    done = await asyncio.to_thread(work)
    return done.returncode, done.stdout + done.stderr


@needs(shutil.which("curl"), "curl")
async def test_curl_reaches_allowed_hosts_by_every_protocol(
    authority: Identity, identity: Identity
) -> None:
    async with (
        answering(OK) as plain,
        answering(OK, context=server_context(identity)) as secure,
        proxying(plain.port, secure.port) as proxy,
    ):
        env = {"PATH": os.environ["PATH"], **proxy_env(proxy.port)}
        bare = {"PATH": os.environ["PATH"]}
        curl = ["curl", "-sS", "--max-time", "60", "--cacert", str(authority.cert_file)]
        urls = [f"http://example.org:{plain.port}/", f"https://example.org:{secure.port}/"]
        for url in urls:
            assert await run(*curl, url, env=env) == (0, "ok")
            socks = ["--socks5-hostname", f"{LOCAL}:{proxy.port}"]
            assert await run(*curl, *socks, url, env=bare) == (0, "ok")
            assert await run(*curl, "-p", "-x", f"http://{LOCAL}:{proxy.port}", url, env=bare) == (
                0,
                "ok",
            )
        code, said = await run(*curl, "http://evil.test/", env=env)
        assert code == 0
        assert "evil.test:80 is not allowed in the sandbox" in said
        code, said = await run(*curl, "https://evil.test/", env=env)
        assert code != 0
        assert "403" in said
    assert {each[:2] for each in proxy.denied} == {("evil.test", 80), ("evil.test", 443)}
