"""Embeddings: which service turns notes into vectors, and the requests to it.

Notes leave the machine only for a service that the user configured: without a provider, and
without a plugin that has the role, there are none.
"""

from __future__ import annotations

import asyncio
import ipaddress
import math
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, Literal, NamedTuple, Protocol

import msgspec

from clawkit.config.load import Loaded
from clawkit.config.modelref import ModelRef, normalize_provider
from clawkit.config.section import SecretInput, SecretRef
from clawkit.config.sections.plugins import MemorySearch
from clawkit.core.tasks import in_thread
from clawkit.errors import ConfigError, SecretError
from clawkit.models.catalog import Catalog
from clawkit.models.errors import from_net, from_response, unusable
from clawkit.models.known import Address, base_url_of, fault, read_address
from clawkit.models.protocols import ErrorKind, ModelError
from clawkit.net.addresses import env_proxy
from clawkit.net.route import NetError, Route, bad_name, bad_value, join_headers

if TYPE_CHECKING:
    from clawkit.net.client import Client

Purpose = Literal["query", "document"]
Learn = Callable[[list[str]], None]
"""Is given every secret before it is used, so that it can be redacted."""
MAX_BATCH = 64
_MAX_DIMENSION, _MAX_NUMBER = 8_192, 32
"""Numbers of a vector, and characters of a number."""
_MIN_CHARS = 100
_RETRIED: frozenset[ErrorKind] = frozenset(
    {"rate_limit", "overloaded", "server", "network", "timeout", "cut"}
)
FINAL: frozenset[ErrorKind] = frozenset({"auth", "billing", "not_found", "invalid", "refused"})
"""Errors that only a person can do something about."""
_VOYAGE = "https://api.voyageai.com/v1"
_KEY = "memory.search.remote"


class EmbedTimes(msgspec.Struct, frozen=True):
    """How long a service is waited for."""

    batch_s: float = 60.0
    query_s: float = 10.0
    """Both with retries."""
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
        """Who makes the vectors, for people."""

    @property
    def model(self) -> str:
        """With the provider, the name of the space: vectors of two models are never compared."""

    async def embed(self, texts: Sequence[str], purpose: Purpose) -> Sequence[Sequence[float]]:
        """One vector for each text, all of one length. Raises `ModelError`."""


class EmbeddingApi(msgspec.Struct, frozen=True):
    """How one service is asked."""

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
    """What any of the services may answer."""

    data: list[Values] | None = None
    embeddings: list[Values | list[float]] | None = None

    def vectors(self) -> list[list[float]]:
        if self.data is not None:
            # The order is not promised.
            places = (at if row.index is None else row.index for at, row in enumerate(self.data))
            rows = sorted(zip(places, self.data, strict=True), key=lambda each: each[0])
            return [row.embedding for _, row in rows]
        found = self.embeddings or []
        return [row if isinstance(row, list) else row.values for row in found]


class ServiceAccess(NamedTuple):
    """What all services are asked with."""

    catalog: Catalog
    client: Client
    learn: Learn
    times: EmbedTimes


class HttpEmbedder:
    """An embedding service."""

    def __init__(
        self, settings: MemorySearch, provider: str, api: EmbeddingApi, access: ServiceAccess
    ) -> None:
        """Raises `ConfigError` for an unusable address."""
        self.provider = provider
        self.model = settings.model or api.model
        self._api = api
        self._settings = settings
        self._catalog, self._client, self._learn, self._times = access
        self._address = self._find_address()
        if not self.model:
            raise fault("is not set", "memory.search.model", f"{provider} has no default model")

    @property
    def space(self) -> str:
        """What changes when vectors are no longer comparable."""
        settings = self._settings
        kinds = (settings.input_type, settings.query_input_type, settings.document_input_type)
        return repr((self._address.url, settings.output_dimensionality, kinds))

    def _find_address(self) -> Address:
        remote, service = self._settings.remote, self._catalog.services.get(self._api.provider)
        if remote.base_url:
            found = read_address(remote.base_url, f"{_KEY}.baseUrl")
        elif service is not None and service.settings.base_url:
            found = read_address(service.settings.base_url, service.at("baseUrl"))
        elif service is not None and service.known is not None:
            found = read_address(base_url_of(service.known, self._catalog.env), service.at())
        elif self.provider == "voyage":
            found = read_address(_VOYAGE, _KEY)
        else:
            problem = f"is not set, and {self.provider!r} has no address of its own"
            raise fault(problem, f"{_KEY}.baseUrl", "Set the address of its API")
        if self.provider == "ollama":
            path = found.path.removesuffix("/v1").removesuffix("/api")
            found = msgspec.structs.replace(found, path=path)
        return found

    async def embed(self, texts: Sequence[str], purpose: Purpose) -> list[list[float]]:
        try:
            async with asyncio.timeout(self._times.limit_s(purpose)):
                found: list[list[float]] = []
                for at in range(0, len(texts), self._api.batch):
                    found += await self._whole(texts[at : at + self._api.batch], purpose)
                return found
        except TimeoutError:
            raise ModelError("timeout", f"{self.provider} did not embed in time") from None

    async def _whole(self, texts: Sequence[str], purpose: Purpose) -> list[list[float]]:
        """The vectors of one request, or of two if it was too long. Of a text that is too long by
        itself, the beginning is embedded: it must not keep all others from being embedded."""
        try:
            return await self._with_retries(texts, purpose)
        except ModelError as error:
            is_short = len(texts) == 1 and len(texts[0]) < _MIN_CHARS
            if error.kind != "overflow" or is_short:
                raise
        half = len(texts) // 2
        if not half:
            return await self._whole([texts[0][: len(texts[0]) // 2]], purpose)
        first = await self._whole(texts[:half], purpose)
        return first + await self._whole(texts[half:], purpose)

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
        url = self._address.url + self._api.path.format(model=self.model)
        body = msgspec.json.encode(self._body(texts, purpose))
        kinds = {"content-type": "application/json", "accept": "application/json"}
        try:
            request = self._client.stream(
                "POST",
                url,
                headers=join_headers(kinds, signed),
                body=body,
                route=self._route(),
                timeout_s=self._times.batch_s,
            )
            async with request as response:
                answer = await response.read((len(texts) + 1) * _MAX_DIMENSION * _MAX_NUMBER)
        except NetError as error:
            raise from_net(self.provider, error) from None
        if not 200 <= response.status < 300:
            raise from_response(
                self.provider, response.status, response.headers, answer, secrets=secrets
            )
        try:
            vectors = msgspec.json.decode(answer, type=_EmbeddingAnswer).vectors()
        except (msgspec.DecodeError, RecursionError):
            problem = unusable(self.provider, "the answer has no embeddings")
            raise ModelError("malformed", problem) from None
        check_vectors(self.provider, vectors, len(texts))
        return vectors

    def _body(self, texts: Sequence[str], purpose: Purpose) -> dict[str, Any]:
        settings, api = self._settings, self._api
        own, default = (
            (settings.query_input_type, api.input_types[0])
            if purpose == "query"
            else (settings.document_input_type, api.input_types[1])
        )
        kind = own or settings.input_type or default
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
        remote = self._settings.remote
        found: dict[str, str] = {}
        for name, value in remote.headers.items():
            found[name] = await self._secret(value, f"{_KEY}.headers.{name}")
        if key := await self._find_key():
            name = "x-goog-api-key" if self.provider == "gemini" else "Authorization"
            found = join_headers({name: key if name[0] == "x" else f"Bearer {key}"}, found)
        for name, value in found.items():
            if problem := bad_name(name) or bad_value(value):
                raise ModelError("auth", f"{self.provider}: the header {name}: {problem}")
        return found

    async def _find_key(self) -> str:
        remote, api = self._settings.remote, self._api
        if remote.api_key:
            return await self._secret(remote.api_key, f"{_KEY}.apiKey")
        if remote.base_url:
            return ""  # the key of a provider is not sent to another address
        if self.provider == "voyage":
            return await self._secret(SecretRef(source="env", id="VOYAGE_API_KEY"), _KEY)
        credentials = self._catalog.credentials
        credentials.learn = self._learn
        try:
            found = credentials.for_provider(api.provider)
        except ConfigError as error:
            raise ModelError("auth", f"{self.provider}: {error}") from None
        if not found:
            raise credentials.missing(api.provider)
        return (await credentials.ready(found[0])).secret

    async def _secret(self, value: SecretInput, key: str) -> str:
        from clawkit.config.secrets import resolve

        try:
            catalog = self._catalog
            found: str = await in_thread(resolve, value, catalog.config, catalog.env)
        except SecretError as error:
            raise ModelError("auth", f"{self.provider}: {key}: {error}") from None
        self._learn([found.strip()])
        return found.strip()

    def _route(self) -> Route:
        """The route of the provider; for another address, that of the environment. An address in
        a private network is allowed if it was configured as such, not if a name leads there."""
        service = self._catalog.services.get(self._api.provider)
        if not self._settings.remote.base_url and service is not None and service.known:
            try:
                return self._catalog.route(ModelRef(service.id, self.model))
            except (ConfigError, SecretError) as error:
                raise ModelError("refused", f"{self.provider}: {error}") from None
        try:
            is_private = ipaddress.ip_address(self._address.host).is_private
        except ValueError:
            is_private = False
        return Route(private=is_private, proxy=env_proxy(self._address.url, self._catalog.env))


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
    client: Client,
    learn: Learn,
    plugged: Embedder | None = None,
    times: EmbedTimes = DEFAULT_TIMES,
) -> list[Embedder]:
    """The configured service, then the fallback. Raises `ConfigError`.

    `auto` is OpenAI if there is a key for it, else a local model if one is configured. A plugin in
    the role is used if no provider is set, or with `plugin`.
    """
    catalog = Catalog.of(loaded, agent)
    access = ServiceAccess(catalog, client, learn, times)
    found: list[Embedder] = []
    for key, name in (("provider", settings.provider or ""), ("fallback", settings.fallback)):
        wanted = name.strip().lower()
        if wanted == "auto" and not plugged:
            has_key = settings.remote.api_key or catalog.credentials.has("openai")
            wanted = "openai" if has_key else "local" if settings.local.model_path else "none"
        if wanted == "plugin" and not plugged:
            hint = "Enable one with the role embeddings"
            raise fault("no plugin provides embeddings", f"memory.search.{key}", hint)
        if plugged and (wanted in ("plugin", "auto") or (key, wanted) == ("provider", "")):
            found.append(plugged)
        elif wanted == "local":
            from clawkit.memory.static_model import StaticEmbedder

            found.append(StaticEmbedder(settings.local.model_path or ""))
        elif wanted not in ("", "none"):
            found.append(_http(settings, wanted, key, access))
    return found


def _http(settings: MemorySearch, wanted: str, key: str, access: ServiceAccess) -> HttpEmbedder:
    wanted = {"google": "gemini", "openai_compatible": "openai-compatible"}.get(wanted, wanted)
    api = _APIS.get(wanted)
    if api is None:
        service = normalize_provider(wanted)
        if service not in access.catalog.services:
            names = ", ".join((*PROVIDERS, "plugin", "auto", "none"))
            problem = f"unknown embedding provider {wanted[:80]!r}"
            raise fault(
                problem, f"memory.search.{key}", f"Use one of {names}, or one of models.providers"
            )
        api = EmbeddingApi(service, "")
    if key == "fallback":
        # The model and the address are those of the first service.
        remote = type(settings.remote)()
        settings = msgspec.structs.replace(
            settings, model=None, remote=remote, output_dimensionality=None
        )
    return HttpEmbedder(settings, wanted, api, access)


def space_of(embedder: Embedder) -> str:
    """The name of the space of its vectors."""
    return "\n".join((embedder.provider, embedder.model, getattr(embedder, "space", "")))
