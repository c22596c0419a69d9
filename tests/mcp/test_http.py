"""Servers behind an address: headers, certificates, logins, and answers of all kinds."""

from __future__ import annotations

import asyncio
import base64
import json
import socket
import ssl
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any
from urllib.parse import parse_qsl, urlsplit

import pytest
from tests.mcp.parts import error, mounts, names, open_kit
from tests.net.parts import Asked, Server, make_identity, read_request, serving

from clawkit.errors import ToolError
from clawkit.net.client import Client

Answer = tuple[int, dict[str, str], bytes]
TOOL = {"name": "echo", "inputSchema": {"type": "object"}}


def as_json(value: object, status: int = 200, **headers: str) -> Answer:
    return status, {"Content-Type": "application/json", **headers}, json.dumps(value).encode()


class Service:
    """A server of the new era that requires a login if it is asked to, and its authorization
    server."""

    def __init__(self, *, guarded: bool = False) -> None:
        self.guarded = guarded
        self.tokens = {"T1"}
        self.issued: list[dict[str, str]] = []
        self.registered: list[dict[str, Any]] = []
        self.authorized: list[dict[str, str]] = []
        self.answer: Callable[[dict[str, Any]], Answer] | None = None
        self.expires_in = 3600
        self.url = ""

    def handle(self, asked: Asked) -> Answer:
        verb, target, _ = asked.line.split(" ")
        parts = urlsplit(target)
        query = dict(parse_qsl(parts.query))
        if "oauth-protected-resource" in parts.path:
            about = {"resource": f"{self.url}/mcp", "authorization_servers": [self.url]}
            return as_json({**about, "scopes_supported": ["basic"]})
        if "oauth-authorization-server" in parts.path:
            ends = ("authorization", "token", "registration")
            found = {f"{end}_endpoint": f"{self.url}/{end}" for end in ends}
            return as_json(
                {**found, "issuer": self.url, "code_challenge_methods_supported": ["S256"]}
            )
        if parts.path == "/registration":
            self.registered.append(json.loads(asked.body))
            return as_json({"client_id": "given"}, 201)
        if parts.path == "/authorization":
            self.authorized.append(query)
            back = f"{query['redirect_uri']}?code=C1&state={query['state']}&iss={self.url}"
            return 302, {"Location": back}, b""
        if parts.path == "/token":
            form = dict(parse_qsl(asked.body.decode()))
            self.issued.append({**form, "authorization": asked.headers.get("authorization", "")})
            token = f"T{len(self.issued)}"
            self.tokens.add(token)
            more = {"refresh_token": f"R{len(self.issued)}", "expires_in": self.expires_in}
            return as_json({"access_token": token, "token_type": "Bearer", **more})
        if verb != "POST":
            return 405, {}, b""
        token = asked.headers.get("authorization", "").removeprefix("Bearer ")
        if self.guarded and token not in self.tokens:
            return 401, {"WWW-Authenticate": "Bearer"}, b""
        message = json.loads(asked.body)
        if self.answer is not None and message["method"] == "tools/call":
            return self.answer(message)
        results: dict[str, Any] = {
            "server/discover": {"supportedVersions": ["2026-07-28"], "capabilities": {"tools": {}}},
            "tools/list": {"tools": [TOOL]},
            "tools/call": {"content": [{"type": "text", "text": "done"}]},
        }
        return as_json(
            {"jsonrpc": "2.0", "id": message["id"], "result": results[message["method"]]}
        )


@asynccontextmanager
async def running(service: Service, context: ssl.SSLContext | None = None) -> AsyncIterator[Server]:
    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while True:
            asked = await read_request(reader)
            server.asked.append(asked)
            status, headers, body = service.handle(asked)
            lines = [f"HTTP/1.1 {status} x", f"Content-Length: {len(body)}"]
            lines += [f"{name}: {value}" for name, value in headers.items()]
            writer.write("\r\n".join((*lines, "", "")).encode() + body)
            await writer.drain()

    async with serving(serve, context) as server:
        scheme = "https" if context else "http"
        service.url = f"{scheme}://127.0.0.1:{server.port}"
        yield server


async def browse(url: str) -> None:
    client = Client()
    try:
        async with client.stream("GET", url, headers={}) as response:
            target = response.headers["location"]
        # Another page of the browser may come first.
        odd = target.replace("state=", "state=x").replace("code=C1", "code=EVIL")
        odder = target.replace("state=", "state=%C3%A9")
        for each in (odd, odder, target):
            async with client.stream("GET", each, headers={}) as response:
                await response.read(100)
    finally:
        await client.close()


async def test_headers_are_sent_with_their_secrets(
    workspace: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("KEY_FOR_IT", "K3y")
    service = Service()
    async with running(service) as server:
        entry = {"url": f"{service.url}/mcp", "headers": {"X-Key": "$KEY_FOR_IT", "X-Plain": "p"}}
        async with open_kit(workspace, {"it": entry}) as kit:
            assert not (await kit.call("it__echo")).is_error
        assert {(each.headers["x-key"], each.headers["x-plain"]) for each in server.asked} == {
            ("K3y", "p")
        }
    last = [each for each in server.asked if each.body][-1].headers
    assert (last["mcp-protocol-version"], last["mcp-method"]) == ("2026-07-28", "tools/call")
    assert last["mcp-name"] == "echo"


@pytest.mark.parametrize("verify", [True, False])
async def test_certificates_are_checked_unless_the_entry_says_otherwise(
    workspace: Path, tmp_path: Path, verify: bool
) -> None:
    identity = make_identity(tmp_path, "stranger")
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(identity.cert_file, identity.key_file)
    service = Service()
    async with running(service, context):
        entry = {"url": f"{service.url}/mcp", "sslVerify": verify}
        async with open_kit(workspace, {"it": entry}) as kit:
            assert (names(kit) == []) is verify
            assert ("certificate" in mounts(kit).errors.get("it", "")) is verify


async def test_a_login_is_required_said_and_then_used_and_renewed(workspace: Path) -> None:
    service = Service(guarded=True)
    service.tokens.clear()
    async with running(service):
        entry = {"url": f"{service.url}/mcp"}
        async with open_kit(workspace, {"it": entry}) as kit:
            assert names(kit) == []
            assert "run `clawkit mcp login it`" in mounts(kit).errors["it"]
            await mounts(kit).login("it", browse)
            await mounts(kit).refresh("it")
            assert await kit.update()
            assert not (await kit.call("it__echo")).is_error
            # A token that is refused is renewed once, without a person.
            service.tokens.clear()
            assert not (await kit.call("it__echo")).is_error
            service.tokens.clear()
            service.handle = lambda asked: (401, {}, b"")  # type: ignore[method-assign]
            said = error(await kit.call("it__echo"))
    assert "clawkit mcp login it" in said
    first, renewed = service.issued[:2]
    assert (first["grant_type"], first["code"]) == ("authorization_code", "C1")
    assert first["resource"] == service.authorized[0]["resource"] == f"{service.url}/mcp"
    assert service.authorized[0]["scope"] == "basic"
    assert service.authorized[0]["code_challenge_method"] == "S256"
    assert (renewed["grant_type"], renewed["refresh_token"]) == ("refresh_token", "R1")
    assert service.registered[0]["application_type"] == "native"


async def test_a_token_is_renewed_before_it_expires(workspace: Path) -> None:
    service = Service(guarded=True)
    service.expires_in = 5
    async with running(service), open_kit_at(workspace, service) as kit:
        await mounts(kit).login("it", browse)
        await mounts(kit).refresh("it")
    assert {each["grant_type"] for each in service.issued[1:]} == {"refresh_token"}


async def test_a_refresh_token_is_used_once_by_all_runs_together(workspace: Path) -> None:
    service = Service(guarded=True)
    service.expires_in = 5
    async with (
        running(service),
        open_kit_at(workspace, service) as one,
        open_kit_at(workspace, service) as other,
    ):
        await mounts(one).login("it", browse)
        await asyncio.gather(*(mounts(kit).refresh("it") for kit in (one, other)))
    used = [each["refresh_token"] for each in service.issued[1:]]
    assert len(used) == len(set(used)) >= 2


async def test_a_login_does_not_leave_the_encrypted_way(workspace: Path) -> None:
    for changed, document in (
        ("oauth-protected-resource", {"authorization_servers": ["http://as.example"]}),
        ("oauth-authorization-server", {"registration_endpoint": "http://as.example/new"}),
    ):
        service = Service(guarded=True)
        plain = service.handle

        def handle(
            asked: Asked,
            plain: Any = plain,
            changed: str = changed,
            document: dict[str, Any] = document,
        ) -> Answer:
            status, headers, body = plain(asked)
            if changed in asked.line:
                body = json.dumps({**json.loads(body), **document}).encode()
            return status, headers, body

        service.handle = handle  # type: ignore[method-assign]
        async with running(service), open_kit_at(workspace, service) as kit:
            with pytest.raises(ToolError, match="an address that is not https"):
                await mounts(kit).login("it", browse)
        assert service.registered == []


async def test_the_settings_of_a_login_are_used(
    workspace: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("CLIENT_SECRET_OF_IT", "s3cret")
    with socket.create_server(("127.0.0.1", 0)) as probe:
        port = probe.getsockname()[1]
    oauth = {
        "scope": "mine",
        "redirectUrl": f"http://127.0.0.1:{port}/back",
        "clientId": "me",
        "clientSecret": "$CLIENT_SECRET_OF_IT",
    }
    service = Service(guarded=True)
    async with (
        running(service),
        open_kit(workspace, {"it": {"url": f"{service.url}/mcp", "oauth": oauth}}) as kit,
    ):
        await mounts(kit).login("it", browse)
    [asked] = service.authorized
    assert (asked["scope"], asked["client_id"]) == ("mine", "me")
    assert asked["redirect_uri"] == oauth["redirectUrl"]
    pair = base64.b64encode(b"me:s3cret").decode()
    assert service.issued[0]["authorization"] == f"Basic {pair}"
    assert service.registered == []


async def test_a_configured_secret_goes_to_no_issuer_that_the_server_chooses(
    workspace: Path,
) -> None:
    own, evil = Service(guarded=True), Service(guarded=True)
    plain = own.handle

    def handle(asked: Asked) -> Answer:
        status, headers, body = plain(asked)
        if "oauth-protected-resource" in asked.line:
            named = {"authorization_servers": [evil.url]}
            body = json.dumps({**json.loads(body), **named}).encode()
        return status, headers, body

    own.handle = handle  # type: ignore[method-assign]
    client = {"clientId": "me", "clientSecret": "s3cret"}
    async with running(own), running(evil):
        for oauth, said in (
            (client, "to send it oauth.clientSecret, set mcp.servers.it.oauth.issuer to that"),
            ({**client, "issuer": own.url}, "which is not mcp.servers.it.oauth.issuer"),
            ({"issuer": own.url}, "which is not mcp.servers.it.oauth.issuer"),
            ({**client, "issuer": f"{evil.url}/"}, ""),
        ):
            entry = {"url": f"{own.url}/mcp", "oauth": oauth}
            async with open_kit(workspace, {"it": entry}) as kit:
                if said:
                    with pytest.raises(ToolError, match=said):
                        await mounts(kit).login("it", browse)
                    assert evil.issued == evil.authorized == []
                else:
                    await mounts(kit).login("it", browse)
                    assert evil.issued[0]["authorization"].startswith("Basic ")
        # The token of an issuer that is not the configured one any more is not used.
        own.tokens |= evil.tokens
        async with open_kit(
            workspace, {"it": {"url": f"{own.url}/mcp", "oauth": {"issuer": own.url}}}
        ) as kit:
            with pytest.raises(ToolError, match="clawkit mcp login it"):
                await mounts(kit).refresh("it")


async def test_requests_that_are_refused_together_are_all_repeated(workspace: Path) -> None:
    service = Service(guarded=True)
    async with running(service), open_kit_at(workspace, service) as kit:
        await mounts(kit).login("it", browse)
        await mounts(kit).refresh("it")
        login = mounts(kit)._slots["it"].login
        assert login is not None
        sent = await login.headers()
        service.tokens.clear()
        assert await login.renew(401, "", sent)
        now = await login.headers()
        # Another request, which was sent before the token was renewed, is refused after that.
        assert await login.renew(401, "", sent)
        with pytest.raises(ToolError, match="clawkit mcp login it"):
            await login.renew(401, "", now)


async def test_nothing_is_sent_before_a_login_that_the_entry_requires(workspace: Path) -> None:
    service = Service()
    async with running(service) as server:
        entry = {"url": f"{service.url}/mcp", "auth": "oauth"}
        async with open_kit(workspace, {"it": entry}) as kit:
            assert "clawkit mcp login it" in mounts(kit).errors["it"]
        assert server.asked == []


async def test_an_own_header_is_used_instead_of_a_login(workspace: Path) -> None:
    service = Service(guarded=True)
    async with running(service):
        for token, works in (("T1", True), ("T9", False)):
            headers = {"Authorization": f"Bearer {token}"}
            entry = {"url": f"{service.url}/mcp?{token}", "headers": headers}
            async with open_kit(workspace, {token: entry}) as kit:
                assert bool(names(kit)) is works
                assert ("status 401" in mounts(kit).errors.get(token, "")) is not works


def event(message: dict[str, Any]) -> bytes:
    return f"data: {json.dumps(message)}\n\n".encode()


async def test_answers_of_all_kinds_are_read_or_refused(
    workspace: Path, subtests: pytest.Subtests
) -> None:
    service = Service()
    good = {"jsonrpc": "2.0", "result": {"content": [{"type": "text", "text": "fine"}]}}
    stream = {"Content-Type": "text/event-stream"}
    async with running(service), open_kit_at(workspace, service) as kit:
        for name, answer, said in (
            ("json", lambda m: as_json({**good, "id": m["id"]}), "fine"),
            ("stream", lambda m: (200, stream, event({**good, "id": m["id"]})), "fine"),
            (
                "noise first",
                lambda m: (
                    200,
                    stream,
                    b": hi\n\n" + event({**good, "id": 999}) + event({**good, "id": m["id"]}),
                ),
                "fine",
            ),
            ("no answer", lambda _m: (200, stream, b": hi\n\n"), "without an answer"),
            ("not json", lambda _m: (200, {"Content-Type": "application/json"}, b"{"), "invalid"),
            ("html", lambda _m: (200, {"Content-Type": "text/html"}, b"<p>"), "without an answer"),
            ("error", lambda _m: (500, {}, b"x"), "status 500"),
            (
                "redirect",
                lambda _m: (302, {"Location": "http://10.0.0.1/"}, b""),
                "without an answer",
            ),
            (
                "refusal",
                lambda m: as_json(
                    {"jsonrpc": "2.0", "id": m["id"], "error": {"code": -1, "message": "no"}}
                ),
                "it answered: no",
            ),
            (
                "not a result",
                lambda m: as_json({"jsonrpc": "2.0", "id": m["id"], "result": 5}),
                "invalid",
            ),
            (
                "more input",
                lambda m: as_json(
                    {
                        "jsonrpc": "2.0",
                        "id": m["id"],
                        "result": {"resultType": "input_required", "requestState": "s"},
                    }
                ),
                "asked for more input",
            ),
            (
                "sampling",
                lambda m: as_json(
                    {
                        "jsonrpc": "2.0",
                        "id": m["id"],
                        "result": {
                            "resultType": "input_required",
                            "inputRequests": {"a": {"method": "sampling/createMessage"}},
                        },
                    }
                ),
                "does not support",
            ),
        ):
            with subtests.test(name):
                service.answer = answer
                result = await kit.call("it__echo")
                assert said in (result.as_text())


@asynccontextmanager
async def open_kit_at(workspace: Path, service: Service) -> AsyncIterator[Any]:
    async with open_kit(workspace, {"it": {"url": f"{service.url}/mcp"}}) as kit:
        yield kit
