"""From a configuration to models that can be asked: which there are, and how each is reached."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from functools import cached_property
from typing import Any, NamedTuple

import msgspec

from clawkit.config.load import Loaded
from clawkit.config.model import Config
from clawkit.config.modelref import ModelRef
from clawkit.config.secrets import resolve
from clawkit.config.section import SecretInput, SecretRef
from clawkit.config.sections.agents import AgentCommon
from clawkit.config.sections.models import Cost, Model, Provider
from clawkit.config.sections.request import Tls as TlsSettings
from clawkit.config.sections.shared import ModelChoice
from clawkit.errors import ConfigError, Issue, SecretError
from clawkit.models.base import Endpoint, Facts
from clawkit.models.credentials import Credentials
from clawkit.models.discover import infer_images
from clawkit.models.endpoints import (
    Address,
    fit_address,
    host_compat,
    is_native,
    is_ollama,
    read_address,
    supported_api,
)
from clawkit.models.headers import bad_name, bad_value, join_headers
from clawkit.models.known import LOCAL_WINDOW, api_of, base_url_of, cost_of, full_id, known_model
from clawkit.models.modelsjson import agent_dir, write_models_json
from clawkit.models.names import Names
from clawkit.models.providers import Origin, Service, load_services, over
from clawkit.net.base import Proxy, Route, Tls
from clawkit.net.proxy import env_proxy


class Entry(NamedTuple):
    """One line of a list of models."""

    ref: ModelRef
    facts: Facts
    source: Origin
    has_credential: bool
    aliases: tuple[str, ...] = ()
    problem: str = ""
    """Why it cannot be used as it is configured."""


class Catalog:
    """The models of one agent. Raises ConfigError for what is wrong in the configuration."""

    def __init__(
        self,
        config: Config,
        env: Mapping[str, str],
        agent: str,
        *,
        raw: Mapping[str, Any] | None = None,
    ) -> None:
        """`env` is what the configuration was loaded with; `raw` the file as it is written."""
        self.config = config
        self.env = env
        self.agent = agent
        self.folder = agent_dir(config, env, agent)
        self.secrets: set[str] = set()
        """What was got from where secrets are kept, to be kept out of what is shown."""
        self._raw = raw
        self.services = load_services(config, env, self.folder, raw)
        own = config.agents.get(agent)
        key = config.agents.key_of(agent)
        layers = [(key, own)] if key else []
        self._layers: list[tuple[str, AgentCommon]] = [
            *layers,
            ("agents.defaults", config.agents.defaults),
        ]
        self._names = Names(
            self.services,
            self._layers,
            self._has_credential,
            only_listed=config.models.mode == "replace",
        )

    @classmethod
    def of(cls, loaded: Loaded, agent: str | None = None) -> Catalog:
        """The models of a configuration that was loaded."""
        name = agent or loaded.config.agents.default_id()
        return cls(loaded.config, loaded.env, name, raw=loaded.raw)

    @cached_property
    def credentials(self) -> Credentials:
        return Credentials(self.config, self.env, self.folder, services=self.services)

    def find(self, text: str) -> ModelRef:
        """The model that a person means: `provider/model`, an alias, or a model id."""
        return self._names.find(text)

    def candidates(self, agent: str | None = None) -> list[ModelRef]:
        """The agent's model and its fallbacks, in the order in which they are tried."""
        if agent is not None and agent != self.agent:
            return Catalog(self.config, self.env, agent, raw=self._raw).candidates()
        found: dict[ModelRef, None] = {}
        for key, text in self.chosen():
            try:
                found[self.find(text)] = None
            except ConfigError as error:
                raise ConfigError([issue._replace(path=key) for issue in error.issues]) from None
        return list(found)

    def chosen(self) -> Iterator[tuple[str, str]]:
        """Setting and text of each model; who names only a model keeps everyone's fallbacks."""
        given = [(key, layer.model) for key, layer in self._layers if layer.model]
        for key, choice in given:
            if isinstance(choice, str):
                yield f"{key}.model", choice
                break
            if choice.primary:
                yield f"{key}.model.primary", choice.primary
                break
        for key, choice in given:
            if isinstance(choice, ModelChoice):
                for index, text in enumerate(choice.fallbacks):
                    yield f"{key}.model.fallbacks[{index}]", text
                break

    def is_allowed(self, ref: ModelRef) -> bool:
        """Whether a person may choose this model; without a policy every one."""
        return self._names.is_allowed(ref)

    def facts(self, ref: ModelRef) -> Facts:
        """What is known about a model, and what is said about it."""
        service = self._names.service(ref)
        return _facts(service, ref.id)

    def endpoint(self, ref: ModelRef) -> Endpoint:
        """Where and how a model is asked, but for the credential."""
        service = self._names.service(ref)
        model = service.models.get(ref.id) or Model(id=ref.id)
        said, key = self._api(service, model)
        api = supported_api(said, key)
        address = self._address(service, model)
        ollama = is_ollama(service.id, said, address)
        native = is_native(api, address)
        compat = over(model.compat, host_compat(api, address.host))
        if api == "openai-completions" and not native:
            # Imitations that do not know the role refuse the request, or lose the instructions.
            compat = msgspec.structs.replace(compat, supports_developer_role=False)
        facts = _facts(service, ref.id)
        wants_num_ctx = ollama and api == "openai-completions" and service.settings.inject_num_ctx
        return Endpoint(
            ref=ModelRef(ref.provider, full_id(ref.provider, ref.id)),
            api=api,
            base_url=fit_address(address, api, ollama=ollama),
            facts=facts,
            compat=compat,
            is_native=native,
            params={**service.settings.params, **model.params},
            thinking_levels=model.thinking_level_map,
            num_ctx=facts.window if wants_num_ctx else None,
        )

    def _api(self, service: Service, model: Model) -> tuple[str, str]:
        """The API a model is offered through, and the setting that says so."""
        if model.api:
            return model.api, service.model_at(model.id, "api")
        if service.settings.api:
            return service.settings.api, service.at("api")
        key = service.at("api")
        return (api_of(service.known, model.id) if service.known else "openai-completions"), key

    def _address(self, service: Service, model: Model) -> Address:
        if model.base_url and model.base_url.strip():
            return read_address(model.base_url, service.model_at(model.id, "baseUrl"))
        said = service.settings.base_url
        if said and said.strip():
            return read_address(said, service.at("baseUrl"))
        if service.known is None:
            problem = f"is missing: {service.id!r} is not a provider clawkit knows"
            hint = "Set the address of its API"
            raise ConfigError([Issue(service.at("baseUrl"), problem, hint=hint)])
        return read_address(base_url_of(service.known, self.env), service.at("baseUrl"))

    def params(self, ref: ModelRef) -> dict[str, Any]:
        """Further fields of requests to this model, as the agent's settings have them."""
        found: dict[str, Any] = {}
        for _, layer in reversed(self._layers):
            found |= layer.params
            for text, entry in layer.models.items():
                if self._names.means(text, ref):
                    found |= entry.params
        return found

    def settings(self, ref: ModelRef) -> Provider:
        """The settings of its provider, which say how a credential is sent."""
        return self._names.service(ref).settings

    def timeout_s(self, ref: ModelRef) -> float | None:
        """Longest time for one request; None when nothing is said. The agent's word goes first."""
        for _, layer in self._layers:
            if isinstance(layer.model, ModelChoice) and layer.model.timeout_ms:
                return layer.model.timeout_ms / 1000
        said = self._names.service(ref).settings.timeout_seconds
        return float(said) if said else None

    def headers(self, ref: ModelRef) -> dict[str, str]:
        """Extra headers of requests to this model, secrets put in. Raises SecretError too."""
        service = self._names.service(ref)
        model = service.models.get(ref.id) or Model(id=ref.id)
        places = (
            (service.at("headers"), service.settings.headers),
            (service.model_at(ref.id, "headers"), model.headers),
            (service.at("request", "headers"), service.settings.request.headers),
        )
        return join_headers(*(dict(self._resolved(key, given)) for key, given in places))

    def _resolved(self, key: str, given: Mapping[str, SecretInput]) -> Iterator[tuple[str, str]]:
        for name, value in given.items():
            if problem := bad_name(name):
                raise ConfigError([Issue(key, problem)])
            text = self._secret(value, f"{key}.{name}").strip()
            if problem := bad_value(text):
                raise ConfigError([Issue(f"{key}.{name}", f"cannot be sent: {problem}")])
            yield name, text

    def _secret(self, value: SecretInput, key: str) -> str:
        try:
            found = resolve(value, self.config, self.env)
        except SecretError as error:
            raise SecretError(f"{key}: {error}") from None
        if isinstance(value, SecretRef):
            self.secrets.add(found.strip())
        return found

    def route(self, ref: ModelRef) -> Route:
        """Who may be connected to for this model, and by what way. Raises SecretError too."""
        service = self._names.service(ref)
        request = service.settings.request
        return Route(
            loopback=request.allow_private_network is not False,
            private=request.allow_private_network is True,
            tls=self._tls(request.tls, service.at("request", "tls")),
            proxy=self._proxy(service, self.endpoint(ref).base_url),
        )

    def _tls(self, tls: TlsSettings | None, key: str) -> Tls:
        def text(name: str) -> str:
            value = getattr(tls, name)
            return self._secret(value, f"{key}.{name}") if value else ""

        if tls is None:
            return Tls()
        return Tls(
            ca=text("ca"),
            cert=text("cert"),
            key=text("key"),
            passphrase=text("passphrase"),
            server_name=tls.server_name or "",
            insecure=tls.insecure_skip_verify,
        )

    def _proxy(self, service: Service, url: str) -> Proxy | None:
        """The proxy that is configured, else the environment's."""
        said = service.settings.request.proxy
        if said is None:
            return env_proxy(url, self.env)
        tls = self._tls(said.tls, service.at("request", "proxy", "tls"))
        if said.mode == "explicit-proxy":
            return Proxy(
                url=self._secret(said.url or "", service.at("request", "proxy", "url")), tls=tls
            )
        found = env_proxy(url, self.env)
        return Proxy(url=found.url, tls=tls) if found else None

    def list(self) -> list[Entry]:
        """Every model that is configured or known, those that are configured first."""
        entries: list[Entry] = []
        merged = self.config.models.mode == "merge"
        for service in self.services.values():
            entries += (self._entry(service, name) for name in service.models)
        for service in self.services.values():
            rows = service.known.models if service.known and merged else ()
            entries += (
                self._entry(service, row.id) for row in rows if row.id not in service.models
            )
        return entries

    def _entry(self, service: Service, name: str) -> Entry:
        ref = ModelRef(service.id, name)
        problem = ""
        try:
            self.endpoint(ref)
        except ConfigError as error:
            problem = str(error)
        return Entry(
            ref,
            _facts(service, name),
            service.origins.get(name, "known"),
            self._has_credential(service.id),
            self._names.aliases_of(ref),
            problem,
        )

    def _has_credential(self, provider: str) -> bool:
        return self.credentials.has(provider)

    def write_models_json(self) -> str:
        """Writes the configured providers into the agent's models.json; gives its path.

        Secrets become marks, which only the file as it is written tells: the catalog must have
        been made with it. Raises ConfigError for a broken file, OSError.
        """
        raw = self._raw
        if raw is None:
            raise ValueError("models.json is written from the configuration as it is written")
        section = raw.get("models")
        return write_models_json(
            self.folder,
            section if isinstance(section, dict) else {},
            replace=self.config.models.mode == "replace",
        )


def _facts(service: Service, name: str) -> Facts:
    listed = service.models.get(name)
    model = listed or Model(id=name)
    settings, known = service.settings, known_model(service.id, name)
    usual = Facts()
    at_home = service.known is not None and service.known.is_local
    said = model.context_window or settings.context_window or 0
    window = max(said, known.context_window if known else 0)
    window = window or (LOCAL_WINDOW if at_home else usual.context_window)
    most = max(model.max_tokens or settings.max_tokens or 0, known.max_tokens if known else 0)
    if model.input is not None:
        images = "image" in model.input
    elif known:
        images = known.images
    else:
        # A model that is listed takes what its entry says; others are known by their names.
        images = listed is None and bool(infer_images(name))
    return Facts(
        name=model.name or (known.name if known else "") or name,
        context_window=window,
        context_tokens=model.context_tokens or settings.context_tokens or 0,
        max_tokens=min(most or usual.max_tokens, window),
        is_capped=bool(model.max_tokens or settings.max_tokens),
        images=images,
        reasoning=known.reasoning if model.reasoning is None and known else bool(model.reasoning),
        cost=model.cost or (cost_of(known) if known else None) or Cost(),
    )
