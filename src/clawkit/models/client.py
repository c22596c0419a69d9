"""A model over HTTP: sends one request and reads the streamed answer.

Timeouts: 15 seconds to connect; 300 seconds without data, before or within the answer, because
thinking models can be silent for minutes; an hour for the whole answer. A provider's
`timeoutSeconds` replaces the last two.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Callable, Iterator, Mapping
from contextlib import AbstractAsyncContextManager, suppress
from importlib import import_module
from typing import TYPE_CHECKING

import msgspec

from clawkit.config.sections.models import Provider
from clawkit.content import Assistant
from clawkit.errors import ConfigError
from clawkit.models.credentials import Credential, Credentials
from clawkit.models.errors import PER_CREDENTIAL, cut_off, from_net, from_response, unusable
from clawkit.models.protocols import Api, Delta, Endpoint, ModelError, Request
from clawkit.net.route import DIRECT, NetError, Route, bad_name, bad_value, join_headers
from clawkit.net.sse import EventStream
from clawkit.redact import Redactor
from clawkit.text import one_line

if TYPE_CHECKING:
    from clawkit.models.wire.answer import AnswerDecoder
    from clawkit.models.wire.request import ApiWire
    from clawkit.net.client import Client, Response

CONNECT_S = 15.0
SILENCE_S = 300.0
WHOLE_S = 3_600.0
_DRAIN_S = 0.25
"""Seconds to wait for the end of the body after the end of the answer."""
_MAX_REFUSAL = 64 * 1024
_REFUSAL_S = 10.0
MAX_BODY = 256 * 1024 * 1024
"""Maximum bytes of a stream, including its framing; they are not kept in memory."""
MAX_WHOLE = 8 * 1024 * 1024
"""Maximum bytes of an answer that is not streamed."""
_BLANKS = b"\xef\xbb\xbf \t\r\n"
_LAST = frozenset({"message_stop", "response.completed", "response.incomplete", "response.failed"})

_WIRES: Mapping[Api, tuple[str, str]] = {
    "openai-completions": ("completions", "CompletionsWire"),
    "openai-responses": ("responses", "ResponsesWire"),
    "anthropic-messages": ("anthropic", "AnthropicWire"),
    "google-generative-ai": ("google", "GoogleWire"),
}
_OAUTH_BETA = "oauth-2025-04-20"
_OAUTH_START = "sk-ant-oat"
_HEADERS = {"content-type": "application/json", "accept": "text/event-stream"}


def make_wire(endpoint: Endpoint) -> ApiWire:
    """The writer and reader of the endpoint's API, imported on use."""
    module, name = _WIRES[endpoint.api]
    wire: ApiWire = getattr(import_module(f"clawkit.models.wire.{module}"), name)(endpoint)
    return wire


def auth_headers(endpoint: Endpoint, settings: Provider, credential: Credential) -> dict[str, str]:
    """The headers for a credential. Raises ModelError if it cannot be sent."""
    secret = credential.secret
    if not secret:
        return {}
    if problem := bad_value(secret):
        where = f"the credential {credential.id} of {credential.provider}"
        raise ModelError("auth", f"{where} cannot be sent: {problem}; check its value")
    auth = settings.request.auth
    if auth and auth.mode == "header":
        name, prefix = auth.header_name or "", auth.prefix or ""
        if problem := bad_name(name) or bad_value(prefix):
            raise ModelError("auth", f"request.auth of {credential.provider}: {problem}")
        return {name: f"{prefix}{secret}"}
    if auth and auth.mode == "authorization-bearer":
        return {"Authorization": f"Bearer {secret}"}
    is_anthropic = endpoint.api == "anthropic-messages"
    is_oauth = credential.kind == "oauth" or secret.startswith(_OAUTH_START)
    as_bearer = credential.kind in ("token", "oauth") or bool(settings.auth_header)
    if is_anthropic and not (as_bearer or is_oauth):
        return {"x-api-key": secret}
    if endpoint.api == "google-generative-ai" and not as_bearer:
        return {"x-goog-api-key": secret}
    beta = {"anthropic-beta": _OAUTH_BETA} if is_anthropic and is_oauth else {}
    return {"Authorization": f"Bearer {secret}"} | beta


class _Attempt(msgspec.Struct):
    key: Credential | None = None
    signed: Mapping[str, str] = {}
    """The headers that carry the credential."""


class HttpModel:
    """One model for one conversation: it caches the encodings of messages."""

    def __init__(
        self,
        endpoint: Endpoint,
        client: Client,
        *,
        keys: Credentials | None = None,
        settings: Provider | None = None,
        headers: Mapping[str, str] | None = None,
        route: Route = DIRECT,
        timeout_s: float | None = None,
        now: Callable[[], float] = time.time,
    ) -> None:
        """`settings` define how to send a credential; `headers` are the configured ones,
        resolved."""
        self.ref, self.api, self.facts = endpoint.ref, endpoint.api, endpoint.facts
        self._endpoint = endpoint
        self._client = client
        self._keys = keys
        self._settings = settings or Provider()
        self._headers = dict(headers or {})
        self._route = route
        self._silence_s = timeout_s or SILENCE_S
        self._whole_s = timeout_s or WHOLE_S
        self._wire = make_wire(endpoint)
        self._now = now
        self._last = ""

    def rest_s(self) -> float:
        """Seconds until a credential is ready; 0 if one is ready or none is needed."""
        return min((rest for _, rest in self._rests()), default=0.0)

    def has_spare(self) -> bool:
        """Whether there is a ready credential other than the last one used."""
        return any(key != self._last and not rest for key, rest in self._rests())

    def _rests(self) -> Iterator[tuple[str, float]]:
        """The id of each credential, and its remaining cooldown in seconds."""
        if self._keys is None:
            return
        # Configuration errors are reported when a request is sent.
        with suppress(ConfigError):
            for key in self._keys.for_provider(self.ref.provider):
                yield key.id, self._keys.cooldown_s(key)

    async def stream(self, request: Request) -> AsyncIterator[Delta | Assistant]:
        attempt = _Attempt()
        reading = Reading(self.ref.provider, self._wire.decoder())
        try:
            await self._sign(attempt)
            async with self._send(attempt, self._wire.write(request)) as response:
                if not 200 <= response.status < 300:
                    raise await self._refusal(response, attempt)
                async for chunk in response:
                    for delta in reading.feed(chunk):
                        yield delta
                    if reading.is_over:
                        await _drain(response)
                        break
                for delta in reading.end():
                    yield delta
            answer = reading.decoder.finish()
        except asyncio.CancelledError as stopped:
            if reading.has_begun:
                # The provider charges for the part it has sent so far.
                stopped.partial = reading.decoder.partial()  # type: ignore[attr-defined]
            raise
        except (NetError, ModelError) as failed:
            if isinstance(failed, ModelError):
                error = failed
            elif reading.has_begun and failed.kind != "timeout":
                error = ModelError("cut", cut_off(self.ref.provider, str(failed)))
            else:
                error = from_net(self.ref.provider, failed)
            if error.partial is None and reading.has_begun:
                error.partial = reading.decoder.partial()
            # Errors from decoders lack the provider's name and may contain secrets.
            words = str(error)
            if error.kind == "malformed" and not words.startswith(self.ref.provider):
                words = unusable(self.ref.provider, words)
            error.args = (Redactor(self._secrets(attempt)).strict(words),)
            if attempt.key and self._keys and error.kind in PER_CREDENTIAL:
                self._keys.mark_failed(attempt.key, error.kind)
            raise error from None
        if attempt.key and self._keys:
            self._keys.mark_used(attempt.key)
        yield msgspec.structs.replace(answer, at_ms=int(self._now() * 1_000))

    async def _sign(self, attempt: _Attempt) -> None:
        """Choose the credential. Raises ModelError if there is none, or it cannot be used."""
        if self._keys is None:
            return
        provider = self.ref.provider
        try:
            found = self._keys.for_provider(provider)
        except ConfigError as error:
            raise ModelError("auth", one_line(f"{provider}: {error}", 600)) from None
        if not found:
            raise self._keys.missing(provider)
        attempt.key = found[0]
        self._last = attempt.key.id
        attempt.key = await self._keys.ready(attempt.key)
        attempt.signed = auth_headers(self._endpoint, self._settings, attempt.key)

    def _send(self, attempt: _Attempt, body: bytes) -> AbstractAsyncContextManager[Response]:
        return self._client.stream(
            "POST",
            self._endpoint.base_url + self._wire.path,
            headers=join_headers(_HEADERS, self._wire.headers, self._headers, attempt.signed),
            body=body,
            route=self._route,
            timeout_s=self._whole_s,
            connect_s=CONNECT_S,
            idle_s=self._silence_s,
        )

    async def _refusal(self, response: Response, attempt: _Attempt) -> ModelError:
        body = b""
        # Without a body, the status suffices.
        with suppress(TimeoutError, NetError):
            async with asyncio.timeout(_REFUSAL_S):
                body = await response.read(_MAX_REFUSAL)
        return from_response(
            self.ref.provider,
            response.status,
            response.headers,
            body,
            secrets=self._secrets(attempt),
            credential=attempt.key.id if attempt.key else "",
        )

    def _secrets(self, attempt: _Attempt) -> list[str]:
        """Header values that were sent and must not be shown."""
        sent = (*self._headers.values(), *attempt.signed.values())
        # Error messages quote a credential without a prefix such as `Bearer`.
        bare = [value.rpartition(" ")[2] for value in sent]
        return [*sent, *bare, attempt.key.secret if attempt.key else ""]


async def _drain(response: Response) -> None:
    """Read the rest of the body, so that the connection can be reused."""
    if response.has_come:  # the usual case needs no timer
        return
    with suppress(TimeoutError, NetError):
        async with asyncio.timeout(_DRAIN_S):
            async for _ in response:
                pass


class Reading:
    """Reads the body of one answer. The first byte decides its format, because many servers send a
    wrong content type."""

    def __init__(self, provider: str, decoder: AnswerDecoder) -> None:
        self._provider = provider
        self.decoder = decoder
        self._events: EventStream | None = None
        self._body = bytearray()
        self._size = 0
        self.is_over = False
        """Whether the last event has been received; anything after it is ignored."""
        self.has_begun = False
        """Whether part of an answer has been received."""

    def feed(self, chunk: bytes) -> Iterator[Delta]:
        """Read more of the body. Raises `ModelError`, as does `end`."""
        self._size += len(chunk)
        if self._size > MAX_BODY:
            raise self._malformed(f"an answer of more than {MAX_BODY} bytes")
        if self._events is None:
            chunk = chunk if self._body else chunk.lstrip(_BLANKS)
            if not chunk:
                return
            self.has_begun = True
            if self._body or chunk[:1] in (b"{", b"[", b"<"):
                self._body += chunk
                if len(self._body) > MAX_WHOLE:
                    raise self._malformed(f"an answer of more than {MAX_WHOLE} bytes")
                return
            self._events = EventStream()
        try:
            events = self._events.feed(chunk)
        except ValueError as error:
            raise self._malformed(str(error)) from None
        decode = self.decoder.feed
        for event in events:
            yield from decode(event)
            if event.name in _LAST or event.data == "[DONE]":
                self.is_over = True

    def end(self) -> Iterator[Delta]:
        """Finish at the end of the body."""
        if self._events is None:
            yield from self.decoder.feed_whole(bytes(self._body))
        elif not self.is_over:
            for event in self._events.end():
                yield from self.decoder.feed(event)

    def _malformed(self, problem: str) -> ModelError:
        return ModelError("malformed", f"{self._provider} sent {problem}.")
