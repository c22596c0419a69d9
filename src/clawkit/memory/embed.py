"""Embeddings: the choice of a service that turns notes into vectors, and requests to it.

Notes are only sent to a service that the user configured: without a provider or a plugin in the
role, there are no embeddings.
"""

from __future__ import annotations

import asyncio
import ipaddress
import math
from collections.abc import Callable, Sequence
from typing import Any, Literal, NamedTuple, Protocol

import msgspec
from msgspec import structs

from clawkit.config.load import Loaded
from clawkit.config.modelref import ModelRef, normalize_provider
from clawkit.config.section import SecretRef, suggest
from clawkit.config.sections.models import ModelSettings, Provider
from clawkit.config.sections.plugins import MemorySearch
from clawkit.config.sections.shared import RequestSettings
from clawkit.core.tasks import in_thread
from clawkit.errors import ConfigError, Issue, SecretError
from clawkit.models.catalog import Catalog
from clawkit.models.client import auth_headers
from clawkit.models.errors import from_net, from_response, unusable
from clawkit.models.known import base_url_of, fault, read_address
from clawkit.models.protocols import ErrorKind, ModelError
from clawkit.models.providers import Service
from clawkit.net.client import Client
from clawkit.net.route import NetError, join_headers
from clawkit.redact import header_secrets

Purpose = Literal["query", "document"]
Learn = Callable[[list[str]], None]
"""Called with every secret before its use, so that it can be redacted."""
MAX_BATCH = 64
_MAX_DIMENSION, _MAX_NUMBER = 8_192, 32
"""Maximum numbers of a vector, and characters of a number."""
_MIN_CHARS = 100
_RETRIED: frozenset[ErrorKind] = frozenset(
    {"rate_limit", "overloaded", "server", "network", "timeout", "cut"}
)
_VOYAGE = "https://api.voyageai.com/v1"
_KEY = "memory.search.remote"


class EmbedTimes(msgspec.Struct, frozen=True):
    """Timeouts of a service."""

    batch_s: float = 60.0
    query_s: float = 10.0
    """Both include retries."""
    pauses_s: tuple[float, ...] = (1.0, 2.0)
    """Before each retry, unless the service says how long to wait."""

    def limit_s(self, purpose: Purpose) -> float:
        return self.query_s if purpose == "query" else self.batch_s


DEFAULT_TIMES = EmbedTimes()


class Embedder(Protocol):
    """Turns texts into vectors that are close to each other for similar texts. A plugin provides
    one in the role `embeddings`."""

    @property
    def provider(self) -> str:
        """The name of the service, for people."""

    @property
    def model(self) -> str:
        """With the provider, identifies the vector space: vectors of different models are never
        compared."""

    async def embed(self, texts: Sequence[str], purpose: Purpose) -> Sequence[Sequence[float]]:
        """One vector for each text, all of the same length. Raises `ModelError`."""


class EmbeddingApi(msgspec.Struct, frozen=True):
    """The API of one service."""

    provider: str
    """The provider whose address and credentials are used; empty for none."""
    model: str
    path: str = "/embeddings"
    batch: int = MAX_BATCH
    size_key: str = "dimensions"
    input_types: tuple[str, str] = ("", "")
    """For queries and notes, unless configured."""


_APIS = {
    "openai": EmbeddingApi("openai", "text-embedding-3-small"),
    "gemini": EmbeddingApi(
        "google",
        "gemini-embedding-001",
        "/models/{model}:batchEmbedContents",
        size_key="outputDimensionality",
        input_types=("RETRIEVAL_QUERY", "RETRIEVAL_DOCUMENT"),
    ),
    "voyage": EmbeddingApi(
        "", "voyage-4-large", size_key="output_dimension", input_types=("query", "document")
    ),
    "mistral": EmbeddingApi("mistral", "mistral-embed", batch=32, size_key="output_dimension"),
    "ollama": EmbeddingApi("ollama", "nomic-embed-text", "/api/embed"),
    "openai-compatible": EmbeddingApi("", ""),
}
PROVIDERS = (*_APIS, "local")


class Values(msgspec.Struct):
    values: list[float] = []
    embedding: list[float] = []
    index: int | None = None


class _EmbeddingAnswer(msgspec.Struct):
    """The answer of any service."""

    data: list[Values] | None = None
    embeddings: list[Values | list[float]] | None = None

    def vectors(self) -> list[list[float]]:
        if self.data is not None:
            # The order is not guaranteed.
            places = (at if row.index is None else row.index for at, row in enumerate(self.data))
            rows = sorted(zip(places, self.data, strict=True), key=lambda each: each[0])
            return [row.embedding for _, row in rows]
        found = self.embeddings or []
        return [row if isinstance(row, list) else row.values for row in found]


class ServiceAccess(NamedTuple):
    """What requests to all services share."""

    catalog: Catalog
    client: Client
    learn: Learn
    times: EmbedTimes


class Embedders(NamedTuple):
    """The configured embedder, then the fallback."""

    all: Sequence[Embedder] = ()
    times: EmbedTimes = DEFAULT_TIMES
    client: Client | None = None
    """To be closed together with them."""
    problem: str = ""
    """Why there are none although some are configured."""


class HttpEmbedder:
    """An embedding service."""

    def __init__(
        self, settings: MemorySearch, provider: str, api: EmbeddingApi, access: ServiceAccess
    ) -> None:
        """Raises `ConfigError` for an unusable address."""
        self.provider = provider
        self.model = settings.model or api.model
        if not self.model:
            raise fault("is not set", "memory.search.model", f"{provider} has no default model")
        self._api = api
        self._settings = settings
        self._catalog, self._client, self._learn, self._times = access
        service = _find_service(settings, provider, api, self._catalog)
        models = {self.model: ModelSettings(id=self.model)}
        self._service = structs.replace(service, models=models)
        self._catalog.services[service.id] = self._service
        self._ref = ModelRef(service.id, self.model)
        self._endpoint = self._catalog.endpoint(self._ref)
        self._url = self._endpoint.base_url
        if provider == "ollama":
            self._url = self._url.removesuffix("/v1").removesuffix("/api")

    @property
    def space(self) -> str:
        """Identifies the vector space: differs if vectors are not comparable."""
        settings = self._settings
        kinds = (settings.input_type, settings.query_input_type, settings.document_input_type)
        return repr((self._url, settings.output_dimensionality, kinds))

    async def embed(self, texts: Sequence[str], purpose: Purpose) -> list[list[float]]:
        try:
            async with asyncio.timeout(self._times.limit_s(purpose)):
                found: list[list[float]] = []
                for at in range(0, len(texts), self._api.batch):
                    found += await self._embed_batch(texts[at : at + self._api.batch], purpose)
                return found
        except TimeoutError:
            raise ModelError("timeout", f"{self.provider} did not embed in time") from None

    async def _embed_batch(self, texts: Sequence[str], purpose: Purpose) -> list[list[float]]:
        """The vectors of one request, or of two if it was too long. Of a single text that is too
        long, only the beginning is embedded, so that it does not block all others."""
        try:
            return await self._with_retries(texts, purpose)
        except ModelError as error:
            is_short = len(texts) == 1 and len(texts[0]) < _MIN_CHARS
            if error.kind != "overflow" or is_short:
                raise
        half = len(texts) // 2
        if not half:
            return await self._embed_batch([texts[0][: len(texts[0]) // 2]], purpose)
        first = await self._embed_batch(texts[:half], purpose)
        return first + await self._embed_batch(texts[half:], purpose)

    async def _with_retries(self, texts: Sequence[str], purpose: Purpose) -> list[list[float]]:
        for pause_s in self._times.pauses_s:
            try:
                return await self._ask(texts, purpose)
            except ModelError as error:
                if error.kind not in _RETRIED:
                    raise
                await asyncio.sleep(error.retry_after_s or pause_s)
        return await self._ask(texts, purpose)

    async def _ask(self, texts: Sequence[str], purpose: Purpose) -> list[list[float]]:
        signed = await self._headers()
        secrets = [*signed.values(), *(value.rpartition(" ")[2] for value in signed.values())]
        url = self._url + self._api.path.format(model=self.model)
        body = msgspec.json.encode(self._body(texts, purpose))
        kinds = {"content-type": "application/json", "accept": "application/json"}
        try:
            route = await in_thread(self._catalog.route, self._ref)
            self._learn([*self._catalog.secrets])
            request = self._client.stream(
                "POST",
                url,
                headers=join_headers(kinds, signed),
                body=body,
                route=route,
                timeout_s=self._times.batch_s,
            )
            async with request as response:
                answer = await response.read((len(texts) + 1) * _MAX_DIMENSION * _MAX_NUMBER)
        except NetError as error:
            raise from_net(self.provider, error, self._service.key) from None
        except (ConfigError, SecretError) as error:
            raise ModelError("refused", f"{self.provider}: {error}") from None
        if not 200 <= response.status < 300:
            given = (self.provider, response.status, response.headers, answer)
            raise from_response(*given, secrets=secrets, setting=self._service.key)
        try:
            vectors = msgspec.json.decode(answer, type=_EmbeddingAnswer).vectors()
        except (msgspec.DecodeError, RecursionError):
            problem = unusable(self.provider, "the answer has no embeddings")
            raise ModelError("malformed", problem) from None
        check_vectors(self.provider, vectors, len(texts))
        return vectors

    def _body(self, texts: Sequence[str], purpose: Purpose) -> dict[str, Any]:
        settings, api = self._settings, self._api
        at = ("query", "document").index(purpose)
        own = (settings.query_input_type, settings.document_input_type)[at]
        kind = own or settings.input_type or api.input_types[at]
        more: dict[str, Any] = {}
        if settings.output_dimensionality:
            more[api.size_key] = settings.output_dimensionality
        if self.provider == "gemini":
            more |= {"model": f"models/{self.model}", "taskType": kind}
            return {
                "requests": [{"content": {"parts": [{"text": text}]}, **more} for text in texts]
            }
        if kind:
            more["input_type"] = kind
        return {"model": self.model, "input": list(texts), **more}

    async def check(self) -> None:
        """Raises `ModelError` if it cannot be used. Sends nothing."""
        await self._headers()

    async def _headers(self) -> dict[str, str]:
        """The configured headers, and the credential. Raises `ModelError`."""
        credentials = self._catalog.credentials
        credentials.learn = self._learn
        try:
            headers: dict[str, str] = await in_thread(self._catalog.headers, self._ref)
            found = credentials.for_provider(self._service.id)
        except (ConfigError, SecretError) as error:
            raise ModelError("auth", f"{self.provider}: {error}") from None
        self._learn([*header_secrets(headers), *self._catalog.secrets])
        if not found and not self._settings.remote.base_url:
            raise credentials.missing(self._service.id)
        for first in found[:1]:
            credential = await credentials.ready(first)
            signed = auth_headers(self._endpoint, self._service.settings, credential)
            headers = join_headers(signed, headers)
        return headers


def _find_service(
    settings: MemorySearch, provider: str, api: EmbeddingApi, catalog: Catalog
) -> Service:
    """The model provider with that name; or a separate one if an address or key is set for memory
    only, because a provider's key must not be sent to another address."""
    remote, known = settings.remote, catalog.services.get(api.provider)
    base, key = remote.base_url, remote.api_key
    if known and not base:
        if not key:
            headers = {**known.settings.headers, **remote.headers}
            return structs.replace(known, settings=structs.replace(known.settings, headers=headers))
        base = known.settings.base_url
        if not base and known.known:
            base = base_url_of(known.known, catalog.env)
    elif provider == "voyage" and not base:
        base, key = _VOYAGE, key or SecretRef(source="env", id="VOYAGE_API_KEY")
    if not base:
        problem = f"is not set, and {provider!r} has no address of its own"
        raise fault(problem, f"{_KEY}.baseUrl", "Set the address of its API")
    request = RequestSettings(allow_private_network=_is_private(base) or None)
    if known and not remote.base_url:
        request = known.settings.request
        if request.auth:  # this key is sent the same way, instead of the provider's
            auth = structs.replace(request.auth, token=key, value=key)
            request = structs.replace(request, auth=auth)
    own = Provider(
        base_url=base,
        api="google-generative-ai" if provider == "gemini" else None,
        api_key=key,
        headers=remote.headers,
        request=request,
    )
    return Service(f"memory.{provider}", None, own, key=_KEY)


def _is_private(url: str) -> bool:
    """Whether the address is a literal private IP address or this machine, not just a name for
    one."""
    try:
        return ipaddress.ip_address(read_address(url, f"{_KEY}.baseUrl").host).is_private
    except ValueError:
        return False


def check_vectors(provider: str, vectors: Sequence[Sequence[float]], count: int) -> None:
    """Raise `ModelError` unless there is one usable vector for each text."""
    sizes = {len(each) for each in vectors}
    problem = ""
    if len(vectors) != count:
        problem = f"{len(vectors)} vectors for {count} texts"
    elif len(sizes) > 1 or not 0 < max(sizes, default=1) <= _MAX_DIMENSION:
        problem = "vectors of an unusable length"
    elif not all(map(math.isfinite, (value for each in vectors for value in each))):
        problem = "vectors with values that are not numbers"
    if problem:
        raise ModelError("malformed", unusable(provider, problem))


def make_embedders(
    settings: MemorySearch,
    loaded: Loaded,
    agent: str,
    *,
    learn: Learn,
    plugged: Embedder | None = None,
    times: EmbedTimes = DEFAULT_TIMES,
) -> Embedders:
    """The embedders as configured.

    `auto` means OpenAI if it has a key, else a configured local model. A plugin in the role is used
    if no provider is set, or with `plugin`.
    """
    client = Client()
    access = ServiceAccess(Catalog.of(loaded, agent), client, learn, times)
    try:
        return Embedders(_make_all(settings, access, plugged), times, client)
    except ConfigError as error:
        return Embedders((), times, client, str(error))


def find_issues(settings: MemorySearch, loaded: Loaded, agent: str) -> Sequence[Issue]:
    """Errors that `make_embedders` would raise, with any plugins."""
    from clawkit.memory.static_model import StaticEmbedder

    catalog = Catalog.of(loaded, agent)
    access = ServiceAccess(catalog, Client(), lambda _secrets: None, DEFAULT_TIMES)
    try:
        _make_all(settings, access, plugged=StaticEmbedder(""))
    except ConfigError as error:
        return error.issues
    return ()


def _make_all(
    settings: MemorySearch, access: ServiceAccess, plugged: Embedder | None
) -> list[Embedder]:
    names = (("provider", settings.provider or ""), ("fallback", settings.fallback))
    found = [_make(settings, key, name.strip().lower(), access, plugged) for key, name in names]
    return [each for each in found if each]


def _make(
    settings: MemorySearch, key: str, wanted: str, access: ServiceAccess, plugged: Embedder | None
) -> Embedder | None:
    if plugged and (wanted in ("plugin", "auto") or (key, wanted) == ("provider", "")):
        return plugged
    if wanted == "plugin":
        hint = "Enable one with the role embeddings"
        raise fault("no plugin provides embeddings", f"memory.search.{key}", hint)
    if wanted == "auto":
        has_key = settings.remote.api_key or access.catalog.credentials.has("openai")
        wanted = "openai" if has_key else "local" if settings.local.model_path else "none"
    if wanted == "local":
        from clawkit.memory.static_model import StaticEmbedder

        return StaticEmbedder(settings.local.model_path or "")
    return None if wanted in ("", "none") else _http(settings, wanted, key, access)


def _http(settings: MemorySearch, wanted: str, key: str, access: ServiceAccess) -> HttpEmbedder:
    wanted = {"google": "gemini", "openai_compatible": "openai-compatible"}.get(wanted, wanted)
    api = _APIS.get(wanted)
    if api is None:
        service = normalize_provider(wanted)
        if service not in access.catalog.services:
            names = (*PROVIDERS, "plugin", "auto", "none", *access.catalog.config.models.providers)
            hint = suggest(wanted, names, "Known are")
            problem = f"unknown embedding provider {wanted[:80]!r}"
            raise fault(problem, f"memory.search.{key}", hint)
        api = EmbeddingApi(service, "")
    if key == "fallback":
        if not api.model:
            usable = ", ".join(each for each, found in _APIS.items() if found.model)
            problem = f"{wanted!r} has no default model; memory.search.model is for the provider"
            raise fault(problem, "memory.search.fallback", f"Use local, or one of {usable}")
        # The model and the address belong to the first service.
        remote = type(settings.remote)()
        settings = structs.replace(settings, model=None, remote=remote, output_dimensionality=None)
    return HttpEmbedder(settings, wanted, api, access)


def space_of(embedder: Embedder) -> str:
    """The name of its vector space."""
    return "\n".join((embedder.provider, embedder.model, getattr(embedder, "space", "")))
