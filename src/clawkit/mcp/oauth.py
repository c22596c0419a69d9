"""Logging in to a server (OAuth 2.1 with PKCE), and the tokens that result from it.

Only `login` involves a person, and only `clawkit mcp login` calls it: a request that needs a login
fails and says so. Whatever a server claims about its authorization server is checked: that the
resource is the server itself, that metadata comes from the issuer it names, and that the answer of
the person's browser comes from the same issuer.
"""

from __future__ import annotations

import asyncio
import base64
import hashlib
import os
import re
import secrets
import time
from asyncio import IncompleteReadError, LimitOverrunError
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from contextlib import asynccontextmanager, suppress
from secrets import compare_digest
from typing import TypeVar
from urllib.parse import parse_qsl, quote, urlencode, urlsplit

import msgspec
from msgspec import Struct

from clawkit.config.section import SecretInput
from clawkit.config.sections.plugins import McpServer
from clawkit.errors import ToolError
from clawkit.mcp import protocol
from clawkit.net.addresses import ParsedUrl, env_proxy, kind_of, kind_of_name, parse_url
from clawkit.net.client import Client, Response
from clawkit.net.route import NetError, Route, Tls
from clawkit.process.jsonrpc import UNREADABLE
from clawkit.store import locked, locked_async, private_dir, write_atomic
from clawkit.text import one_line

LOGIN_S = 300.0
"""Seconds that a person may take."""
EARLY_S = 30.0
"""A token is renewed this long before it expires."""
_REQUEST_S = 30.0
_MAX_BODY = 256 * 1024
_JSON, _FORM = "application/json", "application/x-www-form-urlencoded"
_PARAM = re.compile(r'([a-zA-Z_]+)\s*=\s*(?:"([^"]*)"|([^\s,"]+))')
_BAD_REQUEST = OSError, ValueError, IndexError, IncompleteReadError, LimitOverrunError
_DONE = (
    b"HTTP/1.1 200 OK\r\nContent-Type: text/plain; charset=utf-8\r\nConnection: close\r\n\r\n"
    b"You can close this window and return to clawkit.\n"
)
T = TypeVar("T")
OpenUrl = Callable[[str], Awaitable[None]]
"""Shows a URL to the person, to open in a browser."""


class OAuthClient(Struct, omit_defaults=True):
    """The identity of clawkit at an authorization server."""

    id: str
    secret: str = ""
    method: str = "none"
    """How the secret is sent to the token endpoint."""


class OAuthGrant(Struct, omit_defaults=True):
    """A token, and the data to renew it."""

    issuer: str
    resource: str
    endpoint: str
    client: OAuthClient
    access: str
    refresh: str = ""
    expires_at: float = 0.0
    """Seconds since the epoch; 0 if unknown."""
    scope: str = ""
    wanted: str = ""
    """Scopes that the server requested later."""

    @property
    def secrets(self) -> tuple[str, ...]:
        return self.access, self.refresh, self.client.secret


class TokenStore:
    """The tokens of all servers by URL, in a private file. Each is bound to its issuer."""

    def __init__(self, folder: str, learn: Callable[[list[str]], object] = list) -> None:
        """`learn` is called with all tokens, to redact them."""
        self._path, self._learn = os.path.join(folder, "tokens.json"), learn

    def read(self) -> dict[str, OAuthGrant]:
        try:
            with open(self._path, "rb") as file:
                found = msgspec.json.decode(file.read(), type=dict[str, OAuthGrant])
        except FileNotFoundError:
            return {}
        except UNREADABLE:
            raise ToolError(f"{self._path}: invalid; remove it and log in again") from None
        self._learn([text for each in found.values() for text in each.secrets])
        return found

    def save(self, url: str, grant: OAuthGrant | None) -> bool:
        """Store the token of a server, or remove it; returns whether there was one."""
        private_dir(os.path.dirname(self._path))
        with locked(f"{self._path}.lock", wait_s=5.0):
            tokens = self.read()
            old = tokens.pop(url, None)
            if grant is not None:
                self._learn([*grant.secrets])
                tokens[url] = grant
            if grant != old:
                write_atomic(self._path, msgspec.json.encode(tokens))
        return old is not None

    @asynccontextmanager
    async def renewing(self, url: str) -> AsyncIterator[None]:
        """Waits while another run or process renews the token of this server: reusing a refresh
        token may revoke all tokens derived from it."""
        name = hashlib.sha256(url.encode()).hexdigest()[:16]
        private_dir(os.path.dirname(self._path))
        async with locked_async(f"{self._path}.{name}.lock"):
            yield


class _Metadata(Struct):
    """Metadata of an authorization server."""

    issuer: str
    authorization_endpoint: str
    token_endpoint: str
    registration_endpoint: str = ""
    scopes_supported: list[str] = []
    code_challenge_methods_supported: list[str] = []
    token_endpoint_auth_methods_supported: list[str] | None = None
    client_id_metadata_document_supported: bool = False
    authorization_response_iss_parameter_supported: bool = False


class _Protected(Struct):
    """Metadata of a protected resource."""

    resource: str
    authorization_servers: list[str] = []
    scopes_supported: list[str] = []


class _Registered(Struct):
    client_id: str
    client_secret: str = ""
    token_endpoint_auth_method: str = ""


class _Issued(Struct):
    access_token: str
    refresh_token: str = ""
    expires_in: float | None = None
    scope: str = ""


class OAuth:
    """The headers of requests to one server: the configured ones, and a token."""

    def __init__(
        self,
        name: str,
        entry: McpServer,
        client: Client,
        tokens: TokenStore,
        reveal: Callable[[SecretInput], str],
    ) -> None:
        self._name, self._settings, self.http = name, entry.oauth, client
        self._url, self._tokens, self._reveal = entry.url or "", tokens, reveal
        # The owner configured this address, so it may be private.
        proxy = env_proxy(self._url, os.environ)
        self.route = Route(private=True, tls=Tls(insecure=not entry.ssl_verify), proxy=proxy)
        self._entry = entry
        self._has_own = any(each.lower() == "authorization" for each in entry.headers)
        self._challenge: dict[str, str] | None = None
        self._renewed = ""
        """The last renewed token: if that is refused as well, a login is required."""

    async def headers(self) -> Mapping[str, str]:
        found = {name: self._reveal(value) for name, value in self._entry.headers.items()}
        if self._has_own:
            return found
        grant = self._grant()
        if grant is not None and 0 < grant.expires_at < time.time() + EARLY_S and grant.refresh:
            grant = await self._refresh(grant)
        if grant is None and self._entry.auth:
            raise self._needs_login()
        return {**found, "Authorization": f"Bearer {grant.access}"} if grant else found

    def _grant(self) -> OAuthGrant | None:
        """The stored token, unless its issuer is not the configured one."""
        grant = self._tokens.read().get(self._url)
        return grant if grant is not None and self._is_expected(grant.issuer) else None

    def _is_expected(self, issuer: str) -> bool:
        wanted = self._settings.issuer
        return not wanted or issuer.rstrip("/") == wanted.rstrip("/")

    async def renew(self, status: int, challenge: str, sent: Mapping[str, str]) -> bool:
        """Whether a refused request with the headers `sent` can be repeated, after renewing the
        token. Raises `ToolError` if a login is required."""
        if self._has_own:
            return False
        said = self._challenge = read_challenge(challenge)
        grant = self._grant()
        if status == 403:
            if said.get("error") != "insufficient_scope":
                return False
            async with self._tokens.renewing(self._url):
                grant = self._grant()
                wanted = _union(grant.scope if grant else "", said.get("scope", ""))
                if grant is not None:
                    self._tokens.save(self._url, msgspec.structs.replace(grant, wanted=wanted))
            raise self._needs_login(f"it requires more permissions ({one_line(wanted, 200)})")
        if grant is not None and sent.get("Authorization") != f"Bearer {grant.access}":
            return True  # another request has renewed it
        if grant is None or not grant.refresh or grant.access == self._renewed:
            raise self._needs_login()
        if await self._refresh(grant) is None:
            raise self._needs_login("its login has expired")
        return True

    def _needs_login(self, why: str = "it requires a login") -> ToolError:
        return ToolError(f"{why}; run `clawkit mcp login {self._name}`")

    async def _refresh(self, grant: OAuthGrant) -> OAuthGrant | None:
        """A new token; None if the authorization server issues none."""
        form = {"grant_type": "refresh_token", "refresh_token": grant.refresh}
        if grant.scope:
            form["scope"] = grant.scope
        async with self._tokens.renewing(self._url):
            known = self._grant()
            if known is None or known.access != grant.access:
                return known  # another request was faster
            try:
                renewed = await self._issue(known, form)
            except ToolError:
                return None
        self._renewed = renewed.access
        return renewed

    async def login(self, open_url: OpenUrl) -> None:
        """Let the person log in, and store the token. Raises `ToolError`."""
        said = self._challenge
        if said is None:  # the server's challenge to a request without a token
            body = protocol.request(1, "server/discover", {})
            accept = f"{_JSON}, text/event-stream"
            async with self._ask(self._url, body, Accept=accept) as response:
                said = read_challenge(response.headers.get("www-authenticate", ""))
        resource, metadata = await self._discover(said.get("resource_metadata", ""))
        known = self._grant()
        scope = self._settings.scope or _union(known.wanted if known else "", said.get("scope", ""))
        scope = scope or " ".join(resource.scopes_supported)
        if scope and "offline_access" in metadata.scopes_supported:
            scope = _union(scope, "offline_access")
        verifier, state = secrets.token_urlsafe(64), secrets.token_urlsafe(24)
        digest = hashlib.sha256(verifier.encode()).digest()
        async with _waiting(self._settings.redirect_url, state) as (redirect, answer):
            client = await self._identify(metadata, redirect)
            query = {
                "response_type": "code",
                "client_id": client.id,
                "redirect_uri": redirect,
                "state": state,
                "code_challenge": base64.urlsafe_b64encode(digest).rstrip(b"=").decode(),
                "code_challenge_method": "S256",
                "resource": resource.resource,
                **({"scope": scope} if scope else {}),
            }
            joint = "&" if "?" in metadata.authorization_endpoint else "?"
            await open_url(f"{metadata.authorization_endpoint}{joint}{urlencode(query)}")
            done, _ = await asyncio.wait([answer], timeout=LOGIN_S)
        if not done:
            raise ToolError(f"no one logged in within {LOGIN_S / 60:g} minutes")
        names_issuer = metadata.authorization_response_iss_parameter_supported
        code = read_answer(answer.result(), metadata.issuer, must_name_issuer=names_issuer)
        grant = OAuthGrant(
            metadata.issuer, resource.resource, metadata.token_endpoint, client, "", scope=scope
        )
        form = {"grant_type": "authorization_code", "code": code, "redirect_uri": redirect}
        await self._issue(grant, {**form, "code_verifier": verifier})
        self._challenge, self._renewed = None, ""

    async def _issue(self, grant: OAuthGrant, form: Mapping[str, str]) -> OAuthGrant:
        """Send a request to the token endpoint, and store the issued token. Raises `ToolError`."""
        client, login = grant.client, {}
        form = {**form, "resource": grant.resource, "client_id": client.id}
        if client.method == "client_secret_basic":
            pair = f"{quote(client.id, safe='')}:{quote(client.secret, safe='')}"
            login["Authorization"] = f"Basic {base64.b64encode(pair.encode()).decode()}"
        elif client.method == "client_secret_post":
            form["client_secret"] = client.secret
        issued = await self._read(_Issued, grant.endpoint, urlencode(form).encode(), _FORM, **login)
        if issued is None:
            raise ToolError("the authorization server refused to issue a token")
        renewed = msgspec.structs.replace(
            grant,
            access=issued.access_token,
            refresh=issued.refresh_token or grant.refresh,
            expires_at=time.time() + issued.expires_in if issued.expires_in else 0.0,
            scope=issued.scope or grant.scope,
        )
        self._tokens.save(self._url, renewed)
        return renewed

    async def _discover(self, named: str) -> tuple[_Protected, _Metadata]:
        """The metadata of the server, and of the authorization server that it names."""
        parts = urlsplit(self._url)
        origin, path = f"{parts.scheme}://{parts.netloc}", parts.path.rstrip("/")
        known = f"{origin}/.well-known/oauth-protected-resource"
        found: _Protected | None = None
        fallback: _Metadata | None = None
        if named and not named.startswith(f"{origin}/"):
            self._check_address(named)
        for url in (named,) if named else dict.fromkeys((f"{known}{path}", known)):
            found = found or await self._read(_Protected, url)
        if found is None:
            # Servers of 2025-03-26 are their own authorization servers.
            found = _Protected(f"{origin}{path}", [origin])
            ends = f"{origin}/authorize", f"{origin}/token", f"{origin}/register"
            fallback = _Metadata(origin, *ends, code_challenge_methods_supported=["S256"])
        if not is_same_resource(found.resource, self._url):
            raise ToolError("its metadata is about another resource, which the login would be for")
        issuer = self._choose(found.authorization_servers)
        metadata: _Metadata | None = None
        for url in metadata_urls(issuer):
            metadata = metadata or await self._read(_Metadata, url)
        metadata = metadata or fallback
        if metadata is None:
            raise ToolError(f"its authorization server {one_line(issuer, 200)!r} has no metadata")
        if metadata.issuer != issuer:
            raise ToolError("the metadata of the authorization server names another issuer")
        if "S256" not in metadata.code_challenge_methods_supported:
            raise ToolError("its authorization server does not support PKCE with S256")
        own = metadata.authorization_endpoint, metadata.token_endpoint
        for url in (*own, metadata.registration_endpoint or issuer):
            self._check_address(url)
        return found, metadata

    def _choose(self, named: Sequence[str]) -> str:
        """The authorization server to use, among those that the server names. A configured secret
        is only for the configured one, or for one at the server's own address."""
        issuer = next(filter(self._is_expected, named), "")
        key = f"mcp.servers.{self._name}.oauth.issuer"
        if not named:
            raise ToolError("its metadata names no authorization server")
        if not issuer:
            raise ToolError(f"it names {one_line(named[0], 200)!r}, which is not {key}")
        self._check_address(issuer)
        is_other = urlsplit(issuer)[:2] != urlsplit(self._url)[:2]
        if is_other and self._settings.client_secret and not self._settings.issuer:
            why = f"its authorization server is {one_line(issuer, 200)!r}, at another address"
            raise ToolError(f"{why}; to send it oauth.clientSecret, set {key} to that")
        return issuer

    def _check_address(self, url: str) -> None:
        if not is_safe(url, self._url):
            raise ToolError("its authorization server has an address that is not https, or private")

    async def _identify(self, metadata: _Metadata, redirect: str) -> OAuthClient:
        """The id of clawkit at an authorization server: configured, a document, or registered."""
        settings, supported = self._settings, metadata.token_endpoint_auth_methods_supported
        if settings.client_id:
            secret = self._reveal(settings.client_secret) if settings.client_secret else ""
            return OAuthClient(settings.client_id, secret, choose_method(supported, secret, ""))
        if metadata.client_id_metadata_document_supported and settings.client_metadata_url:
            return OAuthClient(settings.client_metadata_url)
        if not metadata.registration_endpoint:
            do = f"set mcp.servers.{self._name}.oauth.clientId"
            raise ToolError(f"its authorization server registers no clients; {do}")
        wanted = {
            "client_name": "clawkit",
            "application_type": "native",
            "redirect_uris": [redirect],
            "grant_types": ["authorization_code", "refresh_token"],
            "response_types": ["code"],
            "token_endpoint_auth_method": choose_method(supported, "", ""),
        }
        body = msgspec.json.encode(wanted)
        made = await self._read(_Registered, metadata.registration_endpoint, body)
        if made is None:
            raise ToolError("its authorization server refused to register clawkit")
        method = choose_method(supported, made.client_secret, made.token_endpoint_auth_method)
        return OAuthClient(made.client_id, made.client_secret, method)

    async def _read(
        self, kind: type[T], url: str, body: bytes = b"", type_: str = _JSON, **headers: str
    ) -> T | None:
        """Fetch a document; None if there is none. Raises `ToolError` if its address is not
        allowed."""
        async with self._ask(url, body, type_, **headers) as response:
            with suppress(*UNREADABLE):
                if response.status in (200, 201):
                    return msgspec.json.decode(await response.read(_MAX_BODY), type=kind)
        return None

    @asynccontextmanager
    async def _ask(
        self, url: str, body: bytes, type_: str = _JSON, **headers: str
    ) -> AsyncIterator[Response]:
        about = {"Accept": _JSON, **({"Content-Type": type_} if body else {}), **headers}
        verb, limit_s = "POST" if body else "GET", _REQUEST_S
        try:
            async with self.http.stream(
                verb, url, headers=about, body=body, route=self._route_to(url), timeout_s=limit_s
            ) as response:
                yield response
        except NetError as error:
            raise ToolError(str(error)) from None

    def _route_to(self, url: str) -> Route:
        """A server can name any address, so only public ones and its own host are allowed."""
        own = parse_url(self._url)
        if parse_url(url).host == own.host:
            return self.route
        return Route(loopback=_place_of(own) == "loopback", proxy=env_proxy(url, os.environ))


def read_challenge(header: str) -> dict[str, str]:
    """The parameters of a `WWW-Authenticate` header."""
    return {name.lower(): quoted or plain for name, quoted, plain in _PARAM.findall(header[:8192])}


def is_safe(url: str, server: str) -> bool:
    """Whether an address may be part of a login at a server: public and https, the host of the
    server, or on this machine if the server is. A server must not direct a browser to services on
    this machine or in the person's network."""
    with suppress(NetError):
        one, own = parse_url(url), parse_url(server)
        place = _place_of(one)
        if place == "loopback":
            return _place_of(own) == "loopback"
        return one.scheme == "https" and (place == "public" or one.host == own.host)
    return False


def _place_of(url: ParsedUrl) -> str:
    kind = kind_of(url.address) if url.address is not None else kind_of_name(url.host)
    return kind or "public"


def is_same_resource(resource: str, url: str) -> bool:
    """Whether resource metadata covers a server: the same address, or a parent of it."""
    with suppress(NetError):
        one, other = parse_url(resource), parse_url(url)
        path = one.path.rstrip("/")
        return one.origin == other.origin and f"{other.path.rstrip('/')}/".startswith(f"{path}/")
    return False


def metadata_urls(issuer: str) -> list[str]:
    """The possible metadata URLs of an issuer, in order."""
    parts = urlsplit(issuer)
    origin, path = f"{parts.scheme}://{parts.netloc}", parts.path.rstrip("/")
    kinds = ("oauth-authorization-server", "openid-configuration")
    urls = [f"{origin}/.well-known/{kind}{path}" for kind in kinds]
    return [*urls, f"{origin}{path}/.well-known/openid-configuration"] if path else urls


def choose_method(supported: list[str] | None, secret: str, named: str) -> str:
    """How a client with or without a secret identifies itself at the token endpoint."""
    if named and (secret or named == "none"):
        return named
    if not secret and (supported is None or "none" in supported):
        return "none"
    basic, post = "client_secret_basic", "client_secret_post"
    return post if supported is not None and basic not in supported and post in supported else basic


def read_answer(answer: Mapping[str, str], issuer: str, *, must_name_issuer: bool) -> str:
    """The code in the answer of an authorization server. Raises `ToolError` if it comes from
    another one, before using anything in it."""
    if answer.get("iss", "" if must_name_issuer else issuer) != issuer:
        raise ToolError("the login was answered by another authorization server; nothing was sent")
    if error := answer.get("error"):
        words = one_line(f"{error} {answer.get('error_description', '')}".strip(), 300)
        raise ToolError(f"the login was refused: {words}")
    if not answer.get("code"):
        raise ToolError("the authorization server sent no code")
    return answer["code"]


def _union(*scopes: str) -> str:
    return " ".join(dict.fromkeys(each for text in scopes for each in text.split()))


@asynccontextmanager
async def _waiting(
    redirect_url: str | None, state: str
) -> AsyncIterator[tuple[str, asyncio.Future[dict[str, str]]]]:
    """Wait on this machine for the browser's redirect; yields its address. Takes the first one with
    the state of the request; others are ignored."""
    wanted = urlsplit(redirect_url or "http://127.0.0.1:0/callback")
    host, found = wanted.hostname or "", asyncio.get_running_loop().create_future()
    if host not in ("127.0.0.1", "localhost", "::1") or wanted.scheme != "http":
        raise ToolError("oauth.redirectUrl must be an http address of this machine")

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with suppress(*_BAD_REQUEST):
            async with asyncio.timeout(10):
                line = (await reader.readuntil(b"\r\n\r\n")).split(b"\r\n", 1)[0]
                target = urlsplit(line.decode("ascii").split(" ")[1])
                answer = dict(parse_qsl(target.query))
                given = answer.get("state", "").encode()
                is_ours = target.path == wanted.path and compare_digest(given, state.encode())
                if is_ours and not found.done():
                    found.set_result(answer)
                writer.write(_DONE)
                await writer.drain()
        writer.close()

    try:
        server = await asyncio.start_server(serve, host, wanted.port or 0, limit=16_384)
    except OSError as error:
        raise ToolError(f"cannot listen for the browser's redirect: {error}") from None
    async with server:
        port = server.sockets[0].getsockname()[1]
        yield wanted._replace(netloc=f"{host}:{port}").geturl(), found
