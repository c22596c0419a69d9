"""Who is trusted, and what is said when somebody is not."""

from __future__ import annotations

import asyncio
import gc
import os
import socket
import ssl
import tempfile
from contextlib import suppress
from pathlib import Path

import pytest
from tests.net.conftest import Identities
from tests.net.parts import OK, Identity, answering, get, making_client, read_request, serving
from tests.tables import table

from clawkit.net.route import NetError, Route, Tls
from clawkit.net.tls import describe, make_context


def server_context(identity: Identity, *, clients: Identity | None = None) -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(identity.cert_file, identity.key_file)
    if clients is not None:
        context.verify_mode = ssl.CERT_REQUIRED
        context.load_verify_locations(clients.cert_file)
    return context


def trusting(identities: Identities, **more: object) -> Route:
    return Route(tls=Tls(ca=identities.authority.cert, **more))  # type: ignore[arg-type]


NAMES = {"api.example": ["127.0.0.1"]}


@pytest.mark.parametrize("host", ["127.0.0.1", "localhost", "api.example"])
async def test_a_server_is_trusted_by_its_authority(identities: Identities, host: str) -> None:
    context = server_context(identities.server)
    async with answering(OK, context=context) as server, making_client(NAMES) as client:
        url = server.url(host=host, scheme="https")
        for _ in range(3):
            assert await get(client, url, route=trusting(identities)) == (200, b"ok")
    assert server.connections == 1


async def test_a_large_body_goes_both_ways(identities: Identities) -> None:
    body = bytes(range(256)) * 8_000

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while True:
            asked = await read_request(reader)
            writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n" % len(asked.body))
            writer.write(asked.body)
            await writer.drain()

    context = server_context(identities.server)
    async with serving(serve, context) as server, making_client() as client:
        for _ in range(2):
            async with client.stream(
                "POST",
                server.url(scheme="https"),
                headers={},
                body=body,
                route=trusting(identities),
            ) as response:
                assert await response.read(len(body) + 1) == body
    assert server.connections == 1


@pytest.mark.parametrize(
    ("who", "host", "trusts", "words"),
    [
        ("server", "localhost", False, "an authority that is not trusted"),
        ("authority", "localhost", False, "is self-signed and not trusted"),
        ("expired", "localhost", True, "its certificate has expired"),
        ("other", "localhost", True, "its certificate is for another name"),
        ("other", "127.0.0.1", True, "its certificate is for another address"),
    ],
)
async def test_a_wrong_certificate_is_named_in_plain_words(
    identities: Identities, who: str, host: str, trusts: bool, words: str
) -> None:
    context = server_context(getattr(identities, who))
    route = trusting(identities) if trusts else Route()
    async with answering(OK, context=context) as server, making_client() as client:
        with pytest.raises(NetError, match=words) as caught:
            await get(client, server.url(host=host, scheme="https"), route=route)
    assert caught.value.kind == "tls"
    assert str(caught.value).startswith(f"no secure connection to {host}:{server.port}: ")
    assert server.asked == []


async def test_any_certificate_is_accepted_when_the_route_says_so(identities: Identities) -> None:
    context = server_context(identities.expired)
    async with answering(OK, context=context) as server, making_client() as client:
        url = server.url(scheme="https")
        assert await get(client, url, route=Route(tls=Tls(insecure=True))) == (200, b"ok")


async def test_another_name_can_be_expected(identities: Identities) -> None:
    context = server_context(identities.other)
    asked_for: list[str | None] = []
    context.sni_callback = lambda _tls, name, _context: asked_for.append(name)
    async with answering(OK, context=context) as server, making_client() as client:
        route = trusting(identities, server_name="other.example")
        assert await get(client, server.url(scheme="https"), route=route) == (200, b"ok")
        route = trusting(identities, server_name=".other")
        with pytest.raises(NetError, match="is not a host name"):
            await get(client, server.url(scheme="https"), route=route)
    assert asked_for == ["other.example"]


@pytest.mark.parametrize("form", ["two texts", "one text", "locked"])
async def test_a_client_can_show_a_certificate(
    identities: Identities, form: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Where nobody else leaves anything at the same time.
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    mine = identities.client
    shown = {
        "two texts": {"cert": mine.cert, "key": mine.key},
        "one text": {"cert": mine.cert + mine.key},
        "locked": {"cert": mine.cert, "key": identities.client_locked_key, "passphrase": "open"},
    }[form]
    context = server_context(identities.server, clients=identities.authority)
    async with answering(OK, context=context) as server, making_client() as client:
        route = trusting(identities, **shown)
        assert await get(client, server.url(scheme="https"), route=route) == (200, b"ok")
    assert list(tmp_path.iterdir()) == []


async def test_a_server_that_wants_a_certificate_says_so(identities: Identities) -> None:
    context = server_context(identities.server, clients=identities.authority)

    def serve(listener: socket.socket) -> None:
        # Not asyncio's server: that one hangs up without a word.
        with (
            listener.accept()[0] as plain,
            context.wrap_socket(plain, server_side=True, do_handshake_on_connect=False) as tls,
        ):
            with suppress(ssl.SSLError):
                tls.do_handshake()
            while os.read(tls.fileno(), 1000):
                pass

    with socket.create_server(("127.0.0.1", 0)) as listener:
        serving_once = asyncio.create_task(asyncio.to_thread(serve, listener))
        async with making_client() as client:
            url = f"https://127.0.0.1:{listener.getsockname()[1]}/"
            with pytest.raises(NetError, match="requires a client certificate") as caught:
                await get(client, url, route=trusting(identities))
        await serving_once
    assert caught.value.kind == "tls"


@pytest.mark.parametrize(
    ("wrong", "words"),
    [
        ({"ca": "secret"}, "request.tls.ca is not a certificate"),
        ({"ca": "-----BEGIN CERTIFICATE-----\nsecret\n-----END CERTIFICATE-----"}, "tls.ca is not"),
        ({"ca": "s€cret"}, "request.tls.ca is not a certificate"),
        ({"cert": "secret", "key": "secret"}, "or its passphrase is wrong"),
        ({"cert": "own", "key": "locked", "passphrase": "secret"}, "or its passphrase is wrong"),
        ({"cert": "own", "key": "locked"}, "or its passphrase is wrong"),
        ({"cert": "own", "key": "foreign"}, "does not belong to request.tls.cert"),
        # A certificate in the key counts for nothing.
        ({"cert": "own", "key": "foreign both"}, "does not belong to request.tls.cert"),
        ({"cert": "own"}, "or its passphrase is wrong"),
        ({"key": "own"}, "without request.tls.cert"),
    ],
)
def test_wrong_settings_are_named_and_not_shown(
    identities: Identities, wrong: dict[str, str], words: str
) -> None:
    keys = {"own": identities.client.key, "foreign": identities.other.key}
    given = dict(wrong)
    if given.get("cert") == "own":
        given["cert"] = identities.client.cert
    keys["locked"] = identities.client_locked_key
    keys["foreign both"] = f"{identities.other.key}\n{identities.other.cert}"
    given["key"] = keys.get(given.get("key", ""), given.get("key", ""))
    with pytest.raises(NetError, match=words) as caught:
        make_context(Tls(**given))  # type: ignore[arg-type]
    assert caught.value.kind == "tls"
    assert "secret" not in str(caught.value)


def test_settings_are_made_once_and_allow_nothing_old(identities: Identities) -> None:
    tls = Tls(ca=identities.authority.cert)
    assert make_context(tls) is make_context(Tls(ca=identities.authority.cert))
    assert make_context(tls).minimum_version == ssl.TLSVersion.TLSv1_2
    assert make_context(tls).check_hostname
    assert make_context(tls).verify_mode == ssl.CERT_REQUIRED


async def test_a_server_without_tls_is_told_from_one_with_a_bad_certificate() -> None:
    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readexactly(5)
        writer.write(b"HTTP/1.1 400 Bad Request\r\n\r\n")
        await reader.read()

    async with serving(serve) as server, making_client() as client:
        with pytest.raises(NetError, match="does not speak TLS on this port") as caught:
            await get(client, server.url(scheme="https"))
    assert caught.value.kind == "tls"


async def test_what_comes_before_the_encryption_is_not_an_answer(identities: Identities) -> None:
    async def relay(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(OK)  # somebody on the way
        there = await asyncio.open_connection("127.0.0.1", server.port)

        async def pass_on(source: asyncio.StreamReader, to: asyncio.StreamWriter) -> None:
            with suppress(OSError):
                while data := await source.read(65_536):
                    to.write(data)
            to.close()

        await asyncio.gather(pass_on(reader, there[1]), pass_on(there[0], writer))

    context = server_context(identities.server)
    async with (
        answering(OK, context=context) as server,
        serving(relay) as way,
        making_client() as client,
    ):
        with pytest.raises(NetError) as caught:
            await get(client, way.url(scheme="https"), route=trusting(identities))
    assert caught.value.kind == "tls"


async def test_a_server_that_hangs_up_while_encrypting_is_an_error() -> None:
    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readexactly(5)

    async with serving(serve) as server, making_client() as client:
        with pytest.raises(NetError, match="closed the connection before it was encrypted"):
            await get(client, server.url(scheme="https"))


@table(
    ("alert", "words"),
    [
        (70, "it supports no TLS newer than 1.1"),
        (40, "no common TLS settings"),
        (112, "it does not know the requested name"),
        (80, "TLS failed: tlsv1 alert internal error"),
    ],
)
async def test_what_a_server_complains_about_is_told(alert: int, words: str) -> None:
    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readexactly(5)
        writer.write(bytes([21, 3, 1, 0, 2, 2, alert]))
        await reader.read()

    async with serving(serve) as server, making_client() as client:
        with pytest.raises(NetError, match=words) as caught:
            await get(client, server.url(scheme="https"))
    assert caught.value.kind == "tls"


@pytest.mark.parametrize("is_announced", [True, False])
async def test_an_end_that_anybody_could_have_made_is_not_the_end_of_an_answer(
    identities: Identities, is_announced: bool
) -> None:
    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await read_request(reader)
        writer.write(b"HTTP/1.1 200 OK\r\n\r\nall of it")
        await writer.drain()
        if is_announced:
            writer.close()
            await writer.wait_closed()

    context = server_context(identities.server)
    async with serving(serve, context) as server, making_client() as client:
        url, route = server.url(scheme="https"), trusting(identities)
        if is_announced:
            assert await get(client, url, route=route) == (200, b"all of it")
        else:
            with pytest.raises(NetError, match="before it had answered completely") as caught:
                await get(client, url, route=route)
            assert caught.value.kind == "closed"


async def test_leaving_early_and_cancelling_leave_nothing_behind(identities: Identities) -> None:
    head = b"HTTP/1.1 200 OK\r\nContent-Length: 1000\r\n\r\nhalf"
    context = server_context(identities.server)
    async with answering(head, context=context) as server, making_client() as client:
        url, route = server.url(scheme="https"), trusting(identities)
        async with client.stream("GET", url, headers={}, route=route) as response:
            assert await response.read(4) == b"half"
        await server.ended.wait()
        server.ended.clear()
        task = asyncio.create_task(get(client, url, route=route))
        while len(server.asked) < 2:
            await asyncio.sleep(0)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        await server.ended.wait()
    gc.collect()


def test_unknown_problems_are_still_described() -> None:
    assert describe(ssl.SSLError(1, "what")) == "TLS failed: no reason given"
    unknown = ssl.SSLCertVerificationError(1, "what")
    unknown.verify_code, unknown.verify_message = 79, "invalid CA certificate"
    assert describe(unknown) == "its certificate is invalid: invalid CA certificate"
