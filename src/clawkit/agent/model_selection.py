"""Selection of the model of a conversation, and the connections to providers."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import TYPE_CHECKING, Any

from msgspec.structs import replace

from clawkit.config.load import Loaded
from clawkit.config.model import Config
from clawkit.config.modelref import OPERATOR, ModelRef
from clawkit.config.sections.agents import AgentSettings
from clawkit.config.sections.shared import Thinking as Level
from clawkit.errors import ConfigError, ToolAuthorizationError, ToolInputError
from clawkit.models.catalog import Catalog
from clawkit.models.protocols import Model

if TYPE_CHECKING:
    from clawkit.models.failover import Clock
    from clawkit.net.client import Client

_MAX_ANSWER = 1 << 20
_POST_S = 30.0


class ModelSelection:
    """The models available to one agent."""

    def __init__(self, loaded: Loaded, agent: str, *, clock: Clock | None = None) -> None:
        """`clock` times the retries; None for the real clock."""
        self.catalog = Catalog.of(loaded, agent)
        self.learn: Callable[[Iterable[str]], None] = lambda _secrets: None
        """Called with new credentials, to redact them; earlier ones are in the catalog."""
        self.on_sent: Callable[[], None] = lambda: None
        """Called when a request has been sent."""
        self._clock = clock
        self._makers: dict[str, Callable[[str], Model]] = {}
        self._client: Client | None = None

    def plug(self, provider: str, make: Callable[[str], Model]) -> None:
        """Add the provider of a plugin; `make` creates a model by name. Known providers take
        precedence."""
        if provider not in self.catalog.services:
            self._makers[provider] = make
            self.catalog.plugged.add(provider)

    async def close(self) -> None:
        if self._client is not None:
            await self._client.close()
            self._client = None

    def find(self, name: str) -> ModelRef:
        """The model of that name. Raises `ToolInputError` for an unknown model,
        `ToolAuthorizationError` for one that may not be chosen."""
        if name.strip().lower() == str(OPERATOR):
            return OPERATOR
        try:
            ref = self.catalog.find(name)
        except ConfigError as error:
            raise ToolInputError(str(error)) from None
        if not self.catalog.is_allowed(ref):
            raise ToolAuthorizationError(f"{ref} is not an allowed model (modelPolicy.allow)")
        return ref

    def model(
        self,
        name: str | None = None,
        *,
        strict: bool = False,
        fallbacks: Iterable[str] = (),
    ) -> Model:
        """The model of that name, or else the configured one with its fallbacks, or one found in
        the environment. A model requested by name has only the given `fallbacks`, and none if
        `strict`. Makes no connection. Raises `ConfigError` and the errors of `find`."""
        if name:
            refs = list(dict.fromkeys(map(self.find, (name, *fallbacks))))
        else:
            refs = self.catalog.candidates() or [self._discovered() or OPERATOR]
        if refs[0] == OPERATOR:
            from clawkit.models.operator import Operator

            return Operator()
        from clawkit.models.failover import ModelChain

        links = [self.plain_model(ref) for ref in refs if ref != OPERATOR]
        return ModelChain(links, strict=strict, clock=self._clock)

    def plain_model(self, ref: ModelRef, profile: str = "") -> Model:
        """A single model without retries and fallbacks; `profile` is the only credential to use.
        Raises `ConfigError`, `SecretError`."""
        if (make := self._makers.get(ref.provider)) is not None:
            return make(ref.id)
        from clawkit.models.client import HttpModel

        catalog = self.catalog
        catalog.credentials.post = self._post
        catalog.credentials.learn = self._learn
        endpoint = catalog.endpoint(ref)
        endpoint = replace(endpoint, params={**endpoint.params, **catalog.params(ref)})
        model = HttpModel(
            endpoint,
            self._connections(),
            keys=catalog.credentials.only(profile) if profile else catalog.credentials,
            settings=catalog.services[ref.provider].settings,
            headers=catalog.headers(ref),
            route=catalog.route(ref),
            timeout_s=catalog.timeout_s(ref),
        )
        self.learn(catalog.secrets)
        return model

    def _learn(self, secrets: list[str]) -> None:
        self.catalog.secrets.update(secrets)
        self.learn(secrets)

    def _discovered(self) -> ModelRef | None:
        from clawkit.models.discover import found_model

        return found_model(self.catalog)

    async def find_local(self) -> ModelRef | None:
        """A model served by Ollama on this machine."""
        from clawkit.models.discover import ollama_models

        if "ollama" not in self.catalog.services:
            return None
        found = await ollama_models(self.catalog.env, self._get)
        return next(filter(self.catalog.is_allowed, found), None)

    def _connections(self) -> Client:
        from clawkit.net.client import Client

        if self._client is None:
            self._client = Client()
            self._client.on_sent = lambda: self.on_sent()
        return self._client

    async def _get(self, url: str, timeout_s: float) -> tuple[int, bytes]:
        request = self._connections().stream("GET", url, headers={}, timeout_s=timeout_s)
        async with request as response:
            return response.status, await response.read(_MAX_ANSWER)

    async def _post(self, url: str, headers: Mapping[str, str], body: bytes) -> tuple[int, bytes]:
        request = self._connections().stream(
            "POST", url, headers=headers, body=body, timeout_s=_POST_S
        )
        async with request as response:
            return response.status, await response.read(_MAX_ANSWER)

    def auth(self, ref: ModelRef) -> str:
        """Kind and source of the credential of a model; never the credential itself."""
        found = self.catalog.credentials.for_provider(ref.provider)
        if ref == OPERATOR or (found and found[0].kind == "none"):
            return "no credential needed"
        return str(found[0].id) if found else "no credential"


def thinking_of(config: Config, agent: AgentSettings, stored: Any) -> Level:
    """The thinking level: the stored one, or else the configured one."""
    level = stored or agent.thinking_default or config.agents.defaults.thinking_default or "off"
    return "medium" if level == "adaptive" else level
