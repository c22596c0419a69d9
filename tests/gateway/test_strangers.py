"""What strangers could use up or pretend: proxies, slots, sockets, long texts, bad settings."""

from __future__ import annotations

import asyncio
import base64
import json
import logging
import os
import resource
import select
import socket
import stat
from contextlib import AsyncExitStack, suppress
from pathlib import Path
from typing import Any

import msgspec
import pytest
from tests.gateway.conftest import TOKEN, Device, Ground, hello_params, serve
from tests.gateway.raw_http import send
from tests.tables import table
from websockets.exceptions import InvalidStatus

from clawkit.config.sections.gateway import RateLimit
from clawkit.errors import ConfigError
from clawkit.gateway import connection, protocol
from clawkit.gateway import log as logs
from clawkit.gateway import serve as serving
from clawkit.gateway.http import Invoke
from clawkit.gateway.limits import MAX_UNAUTHENTICATED, LoginLimiter
from clawkit.gateway.methods import METHODS
from clawkit.gateway.openai import Completion
from clawkit.gateway.origin import OriginPolicy, RequestOrigin, check_policy, locate
from clawkit.gateway.server import app
from clawkit.redact import Redactor

NEAR_PROXY: dict[str, Any] = {"gateway": {"trustedProxies": ["127.0.0.1"]}}


async def test_a_rebound_name_is_refused_from_the_address_of_a_proxy_too() -> None:
    async with serve(NEAR_PROXY) as ground:
        host = f"evil.test:{ground.port}"
        page = {"Host": host, "Origin": f"http://{host}"}
        assert (await send(ground, "POST", "/tools/invoke", {"tool": "ls"}, page)).status == 403
        assert (await send(ground, "GET", "/healthz", headers={"Host": host})).status == 403
        # A page can send this to its own name, and each would be a new address to guess from.
        page["X-Forwarded-For"] = "198.51.100.1"
        assert (await send(ground, "POST", "/tools/invoke", {"tool": "ls"}, page)).status == 403
    headers = {"host": ["claw.example.org"], "x-forwarded-for": ["203.0.113.5"]}
    for proxy, origins in (("127.0.0.1", ("https://claw.example.org",)), ("10.0.0.5", ())):
        policy = OriginPolicy(trusted_proxies=(proxy,), allowed_origins=origins)
        assert not locate(policy, proxy, headers).refused


async def test_nothing_from_the_address_of_a_proxy_is_local() -> None:
    async with serve(NEAR_PROXY) as ground:
        _, frame = await ground.shake(hello_params())
        assert frame["payload"]["auth"]["scopes"] == []


def test_without_authentication_there_may_be_no_proxy() -> None:
    with pytest.raises(ConfigError, match="trustedProxies"):
        app({"gateway": {"auth": {"mode": "none"}, "trustedProxies": ["10.0.0.1"]}})


PING = b"\x89\xfd\0\0\0\0" + b"x" * 125


async def deaf(ground: Ground) -> socket.socket:
    """A client that has finished the upgrade, and reads nothing."""
    loop, client = asyncio.get_running_loop(), socket.socket()
    client.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4_096)
    client.setblocking(False)
    await loop.sock_connect(client, ("127.0.0.1", ground.port))
    key = base64.b64encode(os.urandom(16)).decode()
    head = f"GET / HTTP/1.1\r\nHost: 127.0.0.1:{ground.port}\r\nUpgrade: websocket\r\n"
    head += f"Connection: Upgrade\r\nSec-WebSocket-Key: {key}\r\nSec-WebSocket-Version: 13\r\n\r\n"
    await loop.sock_sendall(client, head.encode())
    await asyncio.wait_for(loop.sock_recv(client, 1), 5)
    return client


async def pings(client: socket.socket, size: int) -> None:
    """Send so many bytes of pings."""
    loop, blob = asyncio.get_running_loop(), PING * 1_000
    for _ in range(size // len(blob)):
        await asyncio.wait_for(loop.sock_sendall(client, blob), 30)


async def test_a_client_that_reads_no_pongs_is_dropped(ground: Ground) -> None:
    client = await deaf(ground)
    with client, pytest.raises((ConnectionError, TimeoutError)) as ended:
        await pings(client, 32_000_000)
    assert isinstance(ended.value, ConnectionError)


async def test_a_client_that_reads_nothing_keeps_no_place(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(protocol, "HELLO_S", 3.0)
    monkeypatch.setattr(connection, "_CLOSE_S", 0.5)
    monkeypatch.setattr(serving, "MAX_PONGS", 2**30)
    async with serve({}) as ground:
        with await deaf(ground) as client:
            waiting = ground.gateway.waiting.addresses
            assert len(waiting) == 1
            with suppress(ConnectionError):  # on a busy machine it is dropped meanwhile
                await pings(client, 7_000_000)
            async with asyncio.timeout(60):
                while waiting:
                    await asyncio.sleep(0.05)
            with pytest.raises(ConnectionError):
                await pings(client, 100_000_000)


async def test_a_client_that_closes_and_reads_nothing_does_not_keep_the_gateway_from_ending(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(serving, "MAX_PONGS", 2**30)
    async with serve({}) as ground:
        client = await deaf(ground)
        await pings(client, 7_000_000)  # what is sent to it waits, also the answer to its close
        await asyncio.get_running_loop().sock_sendall(client, b"\x88\x82\0\0\0\0\x03\xe8")
        await ground.join()
    client.close()
    assert not ground.gateway.is_ready


async def test_a_foreign_page_takes_no_place(ground: Ground) -> None:
    entered: list[str] = []
    note: Any = lambda who, _limit: entered.append(who)  # noqa: E731
    ground.gateway.waiting.enter = note  # type: ignore[method-assign]
    with pytest.raises(InvalidStatus, match="403"):
        await ground.open({"Origin": "http://evil.test"})
    assert entered == []


HEAD = b"GET /healthz HTTP/1.1\r\nHost: 127.0.0.1\r\n"


@pytest.mark.parametrize(
    "data",
    [b"", HEAD, HEAD + b"\r\n" + HEAD, HEAD + b"Content-Length: 1000\r\n\r\n"],
    ids=["nothing", "half a head", "half a second head", "no body"],
)
async def test_a_client_that_sends_no_request_is_dropped(
    monkeypatch: pytest.MonkeyPatch, data: bytes
) -> None:
    monkeypatch.setattr(serving, "HEAD_S", 0.3)
    async with serve({}) as ground:
        _, writer = await asyncio.open_connection("127.0.0.1", ground.port)
        writer.write(data)
        with pytest.raises(ConnectionError):
            await drip(writer)
        writer.close()


async def drip(writer: asyncio.StreamWriter) -> None:
    async with asyncio.timeout(3):
        while True:
            writer.write(b"x")
            await writer.drain()
            await asyncio.sleep(0.05)


async def test_there_is_no_timeout_after_a_request_was_sent(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(serving, "HEAD_S", 0.2)
    async with serve({}) as ground:
        peer = await ground.join()
        wrong = {"Authorization": "Bearer wrong"}  # is answered after a while
        assert (await send(ground, "GET", "/tools/invoke")).status == 405
        assert (await send(ground, "POST", "/tools/invoke", {}, wrong)).status == 401
        assert await peer.call("health")


def listen_with_small_buffers(host: str, port: int) -> socket.socket:
    sock = serving.listen(host, port)
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 8_192)
    return sock


@pytest.mark.parametrize("is_slow", [True, False], ids=["slow", "deaf"])
async def test_there_is_no_timeout_while_an_answer_is_read(
    monkeypatch: pytest.MonkeyPatch, is_slow: bool
) -> None:
    monkeypatch.setattr(serving, "HEAD_S", 0.3)
    monkeypatch.setattr("tests.gateway.conftest.listen", listen_with_small_buffers)
    loop, size = asyncio.get_running_loop(), 1_500_000
    body = json.dumps({"tool": "ls", "args": {"path": "x" * size}, "dryRun": True}).encode()
    async with serve({}) as ground:
        with socket.socket() as client:
            client.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 8_192)
            client.setblocking(False)
            await loop.sock_connect(client, ("127.0.0.1", ground.port))
            head = (
                f"POST /tools/invoke HTTP/1.1\r\nHost: 127.0.0.1\r\nAuthorization: Bearer {TOKEN}"
            )
            head += f"\r\nContent-Type: application/json\r\nContent-Length: {len(body)}\r\n\r\n"
            await loop.sock_sendall(client, head.encode() + body)
            await asyncio.to_thread(select.select, [client], [], [], 60)  # the answer begins
            await asyncio.sleep(0 if is_slow else 1.5)
            got, until = 0, loop.time() + 1.5
            with suppress(ConnectionError):
                while piece := await asyncio.wait_for(loop.sock_recv(client, 8_192), 5):
                    got += len(piece)
                    await asyncio.sleep(0.01 if is_slow and loop.time() < until else 0)
            assert (got > size) is is_slow


async def test_too_many_connections_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(serving, "max_connections", lambda: 3)
    async with serve({}) as ground:
        peer = await ground.join()
        idle = [await asyncio.open_connection("127.0.0.1", ground.port) for _ in range(4)]
        for reader, _ in idle[2:]:
            assert await asyncio.wait_for(reader.read(), 2) == b""
        assert await peer.call("health")
        for _, writer in idle:
            writer.close()
        await asyncio.sleep(0.1)
        assert (await send(ground, "GET", "/healthz")).status == 200


def test_connections_leave_files_for_the_gateway(monkeypatch: pytest.MonkeyPatch) -> None:
    limits = (1_024, resource.RLIM_INFINITY)
    changed: list[tuple[int, int]] = []
    monkeypatch.setattr(resource, "getrlimit", lambda _kind: limits)
    monkeypatch.setattr(resource, "setrlimit", lambda _kind, new: changed.append(new))
    assert serving.max_connections() + serving.BACKLOG < 700
    serving.raise_file_limit()
    assert changed == [(serving.MAX_FILES, resource.RLIM_INFINITY)]


@table(
    ("headers", "address"),
    [
        ({"x-real-ip": "6.6.6.6"}, "6.6.6.6"),
        ({"x-forwarded-for": "6.6.6.6:1234"}, "6.6.6.6"),
        ({"x-forwarded-for": "[2001:db8::6]:1234"}, "2001:db8::6"),
        ({"x-forwarded-for": "2001:db8::6"}, "2001:db8::6"),
        ({"forwarded": "for=6.6.6.6;proto=https, for=10.0.0.5"}, "6.6.6.6"),
        ({"forwarded": 'proto=https;For="[2001:db8::6]:47"'}, "2001:db8::6"),
        ({"forwarded": "proto=https"}, "10.1.1.1"),
        ({"forwarded": "for=_hidden"}, "10.1.1.1"),
        ({"x-forwarded-for": "6.6.6.6", "x-real-ip": "6.6.6.6"}, "6.6.6.6"),
        ({"x-forwarded-for": "6.6.6.6", "x-real-ip": "10.0.0.5"}, "6.6.6.6"),
        ({"x-forwarded-for": "1.2.3.4", "x-real-ip": "6.6.6.6"}, "10.1.1.1"),
        ({"x-forwarded-for": "nonsense", "x-real-ip": "6.6.6.6"}, "10.1.1.1"),
        ({"x-forwarded-for": "10.0.0.4, 10.0.0.5"}, "10.1.1.1"),
        ({"x-forwarded-proto": "https"}, "10.1.1.1"),
    ],
)
def test_the_client_of_a_proxy_is_named_in_many_ways(headers: dict[str, str], address: str) -> None:
    policy = OriginPolicy(trusted_proxies=("10.0.0.0/8",))
    given = {name: [value] for name, value in headers.items()}
    assert locate(policy, "10.1.1.1", given) == RequestOrigin(address)


def test_only_a_program_on_this_machine_is_not_locked_out() -> None:
    limiter = LoginLimiter(RateLimit(max_attempts=2))
    behind, here = RequestOrigin("127.0.0.1"), RequestOrigin("127.0.0.1", is_local=True)
    for _ in range(2):
        limiter.fail(behind)
    assert limiter.locked_s(behind) > 0
    assert limiter.locked_s(here) == 0


async def test_a_login_that_succeeds_does_not_make_guesses_free() -> None:
    limit = {"maxAttempts": 2, "exemptLoopback": False}
    async with serve({"gateway": {"auth": {"token": TOKEN, "rateLimit": limit}}}) as ground:
        wrong = {"Authorization": "Bearer guess"}
        found = []
        for headers in (wrong, {}, wrong, {}):
            found.append((await send(ground, "POST", "/tools/invoke", {}, headers)).status)
        assert found == [401, 400, 401, 429]


async def test_guesses_wait_for_each_other(ground: Ground) -> None:
    loop = asyncio.get_running_loop()
    before, wrong = loop.time(), {"Authorization": "Bearer guess"}
    guesses = [
        asyncio.create_task(send(ground, "POST", "/tools/invoke", {}, wrong)) for _ in range(2)
    ]
    await asyncio.sleep(0.1)
    assert (await send(ground, "POST", "/tools/invoke", {"tool": "ls"})).status == 200
    assert loop.time() - before >= 0.7
    assert {(await each).status for each in guesses} == {401}
    assert ground.gateway.logins._turns == {}


async def test_only_a_few_guesses_wait(ground: Ground) -> None:
    async with AsyncExitStack() as stack:
        await stack.enter_async_context(
            ground.gateway.logins.turn(RequestOrigin("", is_local=True))
        )
        wrong = {"Authorization": "Bearer guess"}
        guesses = [
            asyncio.create_task(send(ground, "POST", "/tools/invoke", {}, wrong)) for _ in range(9)
        ]
        done, waiting = await asyncio.wait(guesses, timeout=1)
        assert [each.result().status for each in done] == [429] * 2
        for each in waiting:
            each.cancel()
        ground.gateway.logins.fail = lambda origin: 0.0  # type: ignore[method-assign]


async def test_others_do_not_keep_out_who_has_a_secret_of_ours(ground: Ground) -> None:
    device = Device()
    token = (await ground.join(None, device)).hello["auth"]["deviceToken"]
    own, place = ground.gateway.auth.own_secret, RequestOrigin("", is_local=True)
    async with AsyncExitStack() as stack:
        # One guess is being answered, as slowly as can be, and many connections say nothing.
        await stack.enter_async_context(ground.gateway.logins.turn(place))
        silent = [await ground.open() for _ in range(MAX_UNAUTHENTICATED + 2)]
        assert (await ground.join(auth={"token": own})).hello["auth"]["scopes"]
        again = await ground.join(None, device, auth={"deviceToken": token})
        assert again.hello["auth"]["method"] == "device-token"
        for each in silent[:2]:
            await asyncio.wait_for(each.socket.wait_closed(), 10)


async def test_others_do_not_delay_who_has_a_long_secret() -> None:
    secret = "long-enough-that-no-one-guesses-it"
    limit = {"maxAttempts": 1, "exemptLoopback": False}
    auth = {"token": secret, "rateLimit": limit}
    right = {"Authorization": f"Bearer {secret}"}
    async with serve({"gateway": {"auth": auth}}) as ground:
        wrong = {"Authorization": f"Bearer {secret}x"}
        found = []
        for headers in (wrong, wrong, right):
            found.append((await send(ground, "POST", "/tools/invoke", {}, headers)).status)
        assert found == [401, 429, 400], "it is neither locked out with others"
        async with ground.gateway.logins.turn(
            RequestOrigin("", is_local=True)
        ):  # nor waits for them
            assert (await send(ground, "POST", "/tools/invoke", {}, right)).status == 400
            assert (await ground.join(auth={"token": secret})).hello["auth"]["scopes"]


LONG = {"message", "line", "content", "payloadJSON"}
"""Texts that may be as long as a frame."""


def unbounded(kind: Any) -> set[str]:
    """Names of the texts and lists in a type that may have any length."""
    found: set[str] = set()

    def look(name: str, shape: Any) -> None:
        if isinstance(shape, msgspec.inspect.UnionType):
            for option in shape.types:
                look(name, option)
        elif isinstance(shape, msgspec.inspect.ListType):
            look(name, shape.item_type)
            if shape.max_length is None:
                found.add(name)
        elif isinstance(shape, msgspec.inspect.StructType):
            for each in shape.fields:
                look(each.encode_name, each.type)
        elif isinstance(shape, msgspec.inspect.StrType) and shape.max_length is None:
            found.add(name)

    look("", msgspec.inspect.type_info(kind))
    return found


KINDS: list[Any] = [*(each.params for each in METHODS.values()), Invoke, Completion]


@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.__name__)
def test_keys_and_names_are_short(kind: Any) -> None:
    assert unbounded(kind) <= LONG


async def test_a_long_path_is_refused_at_once(ground: Ground) -> None:
    peer = await ground.join(["operator.read"])
    error = await peer.refused("config.schema.lookup", {"path": "a." * 1_000_000})
    assert error["message"].startswith("invalid config.schema.lookup params: at /path: ")


@table(
    "origin",
    [
        *("http://[bad", "null", "*", "", "claw.example.org", "https://", "https://a.test/path"),
        *("https://*.a.test", "https://a.test:99999", "https://u@a.test", "https://a.test?b"),
    ],
)
def test_an_invalid_origin_is_a_mistake(origin: str) -> None:
    with pytest.raises(ConfigError, match=r"gateway\.controlUi\.allowedOrigins"):
        app({"gateway": {"controlUi": {"allowedOrigins": [origin]}}})


@table("proxy", ["nonsense", "", "10.0.0.0/99", "proxy.test", "10.0.0.1:80"])
def test_a_proxy_without_an_address_is_a_mistake(proxy: str) -> None:
    with pytest.raises(ConfigError, match=r"gateway\.trustedProxies"):
        app({"gateway": {"trustedProxies": ["10.0.0.1", proxy]}})


def test_proxies_and_origins_have_many_forms() -> None:
    origins = ("https://a.test", "http://[::1]:5173", "HTTPS://A.test:8443/", "tauri://localhost")
    proxies = ("10.0.0.1", "10.0.0.1/8", "::1", "fd00::/8")
    check_policy(OriginPolicy(proxies, origins))


async def test_a_gateway_that_stops_calls_no_tools(ground: Ground) -> None:
    ground.gateway.live.is_closed = True
    found = await send(ground, "POST", "/tools/invoke", {"tool": "ls"})
    assert (found.status, found.json["ok"]) == (503, False)
    assert int(found.headers["retry-after"]) > 0


def test_the_log_is_private_after_it_was_rotated(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(logs, "MAX_BYTES", 500)
    before = os.umask(0o022)
    log = logs.GatewayLog(str(tmp_path / "logs"), Redactor())
    try:
        for _ in range(10):
            logging.getLogger("clawkit.gateway").warning("x" * 200)
    finally:
        log.close()
        os.umask(before)
    files = list((tmp_path / "logs").iterdir())
    assert len(files) == 1 + logs.KEEP
    assert {stat.S_IMODE(each.stat().st_mode) for each in files} == {0o600}
