"""`Catalog`: the models of a configuration, and how to reach each of them."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import cached_property
from typing import TYPE_CHECKING, Any

import msgspec

from clawkit.config.load import Loaded
from clawkit.config.model import Config
from clawkit.config.modelref import OPERATOR, ModelRef, normalize_provider, parse_ref
from clawkit.config.section import SecretInput, SecretRef
from clawkit.config.sections.agents import AgentCommon
from clawkit.config.sections.models import Cost, ModelSettings
from clawkit.config.sections.shared import ModelChoice, ModelInput, TlsSettings
from clawkit.errors import ConfigError, SecretError
from clawkit.globs import Glob
from clawkit.models import known as builtin
from clawkit.models.credentials import Credentials
from clawkit.models.protocols import Api, Endpoint, Facts
from clawkit.models.providers import Origin, Service, agent_dir, load_services, write_models_json
from clawkit.policy.tool_names import unset_variable
from clawkit.text import nearest

if TYPE_CHECKING:
    from clawkit.net.route import Route, Tls

_NATIVE: dict[Api, str] = {
    "openai-completions": "api.openai.com",
    "openai-responses": "api.openai.com",
    "anthropic-messages": "api.anthropic.com",
    "google-generative-ai": "generativelanguage.googleapis.com",
}
"""The host of each API's original service."""
_APIS: dict[str, Api] = {**{api: api for api in _NATIVE}, "ollama": "openai-completions"}
_PATHS = {"api.openai.com": "/v1", "generativelanguage.googleapis.com": "/v1beta"}
"""Paths that people often omit from an address."""
_MAX_SHOWN = 80
_MAX_SUGGESTED = 4
_HINT = "Write it as provider/model; `clawkit models list --all` lists all models"


class ListedModel(msgspec.Struct, frozen=True):
    """One entry of the list of models."""

    ref: ModelRef
    facts: Facts
    source: Origin
    has_credential: bool
    aliases: tuple[str, ...] = ()
    problem: str = ""
    """Why it cannot be used as configured."""


class Catalog:
    """The models of one agent. Methods raise ConfigError for errors in the configuration."""

    def __init__(
        self,
        config: Config,
        env: Mapping[str, str],
        agent: str,
        *,
        raw: Mapping[str, Any] | None = None,
    ) -> None:
        """`env` is the environment the configuration was loaded with; `raw` is the file's text as
        data, without substitution."""
        self.config = config
        self.env = env
        self.agent = agent
        self.folder = agent_dir(config, env, agent)
        self.secrets: set[str] = set()
        """Resolved secrets, to be redacted from output."""
        self.plugged: set[str] = set()
        """Providers that plugins add."""
        self._raw = raw
        self.services = load_services(config, env, self.folder, raw)
        self._only_listed = config.models.mode == "replace"
        """Whether only configured models exist."""
        self._layers: list[tuple[str, AgentCommon]] = [("agents.defaults", config.agents.defaults)]
        """Agent settings, the most specific first."""
        if key := config.agents.key_of(agent):
            self._layers.insert(0, (key, config.agents.get(agent)))

    @classmethod
    def of(cls, loaded: Loaded, agent: str | None = None) -> Catalog:
        name = agent or loaded.config.agents.default_id()
        return cls(loaded.config, loaded.env, name, raw=loaded.raw)

    @cached_property
    def credentials(self) -> Credentials:
        return Credentials(self.config, self.env, self.folder, services=self.services)

    def find(self, text: str) -> ModelRef:
        """Find a model by `provider/model`, an alias, or an id. Raises ConfigError with a hint."""
        text = text.strip()
        if not text:
            raise builtin.fault("the name of a model is empty")
        if text.lower() == str(OPERATOR):
            return OPERATOR
        if text.partition("/")[0] in self.plugged:
            return parse_ref(text)
        found = (
            find_alias(self._layers, text, self._entry_ref)
            or self._by_provider(text)
            or self._by_id(text)
        )
        if found is None:
            raise self._unknown(text)
        return found

    def _entry_ref(self, key: str, name: str) -> ModelRef:
        ref = self._by_provider(name) or self._by_id(name)
        if ref is None:
            raise self._unknown(name, f"{key}.models[{name!r}]")
        return ref

    def _by_provider(self, text: str) -> ModelRef | None:
        head, slash, _ = text.partition("/")
        if not slash or normalize_provider(head) not in self.services:
            return None
        try:
            ref = parse_ref(text)
        except ValueError as error:
            raise builtin.fault(str(error)) from None
        service = self.services[ref.provider]
        if ref.id not in service.models:
            # Ids are matched without regard to case if that is unambiguous.
            folded = str(ref).casefold()
            refs = (*self._listed(), *self._known())
            same = {each for each in refs if str(each).casefold() == folded}
            ref = same.pop() if len(same) == 1 else ref
        self._service(ref)
        return ref

    def _by_id(self, text: str) -> ModelRef | None:
        for fold in (str, str.casefold):
            for refs, must_be_one in ((self._listed(), True), (self._known(), False)):
                same = [ref for ref in refs if fold(ref.id) == fold(text)]
                usable = [ref for ref in same if self.credentials.has(ref.provider)] or same
                if must_be_one and len(usable) > 1:
                    names = " or ".join(map(str, usable))
                    raise builtin.fault(f"{text!r} is ambiguous: {names}; name the provider too")
                if usable:
                    return usable[0]
        return None

    def _listed(self) -> Iterator[ModelRef]:
        for service in self.services.values():
            yield from (ModelRef(service.id, name) for name in service.models)

    def _known(self) -> Iterator[ModelRef]:
        for service in () if self._only_listed else self.services.values():
            if service.known:
                yield from (ModelRef(service.id, row.id) for row in service.known.models)

    def _service(self, ref: ModelRef) -> Service:
        """The provider of a model. Raises ConfigError if it cannot have this model."""
        service = self.services.get(ref.provider)
        if service is None:
            raise self._unknown(str(ref))
        if ref.id in service.models:
            return service
        if service.known is None and not service.models:
            problem = f"is empty, and {service.id!r} is not a built-in provider"
            raise builtin.fault(problem, service.at("models"), "List its models, each with its id")
        if service.known is None or self._only_listed:
            close = nearest(ref.id, service.models) or list(service.models)[:3]
            problem = f"the provider {service.id!r} has no model {_short(ref.id)}"
            raise builtin.fault(problem, service.at("models"), f"Add it there, or use {_or(close)}")
        return service

    def _unknown(self, text: str, key: str = "") -> ConfigError:
        head, slash, _ = text.partition("/")
        if slash and normalize_provider(head) == OPERATOR.provider:
            close = [str(OPERATOR)]
            problem = f"unknown model {_short(text)}"
        elif slash:
            close = nearest(normalize_provider(head), self.services)
            problem = f"unknown provider {_short(head)} for the model {_short(text)}"
        else:
            by_id = {ref.id: str(ref) for ref in reversed((*self._listed(), *self._known()))}
            entries = [entry for _, layer in self._layers for entry in layer.models.values()]
            aliases = [entry.alias for entry in entries if entry.alias]
            close = self._containing(text) or [
                by_id.get(name, name) for name in nearest(text, [*by_id, *aliases])
            ]
            problem = f"unknown model or alias {_short(text)}"
        hint = f"Did you mean {_or(close)}?" if close else _HINT
        return builtin.fault(problem, key, hint)

    def _containing(self, text: str) -> list[str]:
        """A few models with the text in their id, those with a credential first."""
        refs = dict.fromkeys((*self._listed(), *self._known()) if len(text) > 2 else ())
        found = [ref for ref in refs if text.casefold() in ref.id.casefold()]
        found.sort(key=lambda ref: not self.credentials.has(ref.provider))
        return list(map(str, found[:_MAX_SUGGESTED]))

    def _means(self, text: str, ref: ModelRef) -> bool:
        """Whether a key of an agent's `models` refers to this model."""
        try:
            return parse_ref(text) in (ref, ModelRef("", ref.id))
        except ValueError:
            return text == ref.id

    def _aliases_of(self, ref: ModelRef) -> tuple[str, ...]:
        entries = [each for _, layer in self._layers for each in layer.models.items()]
        found = [entry.alias for text, entry in entries if entry.alias and self._means(text, ref)]
        return tuple(dict.fromkeys(found))

    def is_allowed(self, ref: ModelRef) -> bool:
        """Whether the most specific model policy allows this model."""
        for key, layer in self._layers:
            policy = layer.model_policy
            if policy is not None and policy.allow is not None:
                place = f"{key}.modelPolicy.allow"
                return any(self._fits(entry, ref, place) for entry in policy.allow)
        return True

    def _fits(self, entry: str, ref: ModelRef, key: str) -> bool:
        entry = entry.strip()
        if problem := unset_variable(entry):
            raise builtin.fault(problem, key)
        if not entry:
            return False
        head, slash, rest = entry.partition("/")
        if slash:
            entry = f"{normalize_provider(head)}/{rest}"
        if "*" in entry:
            text = str(ref) if slash else ref.id
            return Glob(entry.casefold()).match(text.casefold())
        folded = entry.casefold()
        aliases = (alias.casefold() for alias in self._aliases_of(ref))
        return folded in (str(ref).casefold(), ref.id.casefold(), *aliases)

    def candidates(self) -> list[ModelRef]:
        """The agent's model and its fallbacks, in the order they are tried."""
        found: dict[ModelRef, None] = {}
        for key, text in self.chosen():
            try:
                found[self.find(text)] = None
            except ConfigError as error:
                raise ConfigError([issue._replace(path=key) for issue in error.issues]) from None
        return list(found)

    def chosen(self) -> Iterator[tuple[str, str]]:
        """Setting and name of each model. An agent that sets only its model keeps the fallbacks of
        the defaults."""
        return _names((f"{key}.model", layer.model) for key, layer in self._layers)

    def chosen_for_subagents(self) -> Iterator[tuple[str, str]]:
        """Setting and name of each model that sub-agents of the agent use."""
        config = self.config.agents
        own = getattr(config.get(self.agent).subagents, "model", None)
        key = config.key_of(self.agent) if own else "agents.defaults"
        return _names([(f"{key}.subagents.model", own or config.defaults.subagents.model)])

    def facts(self, ref: ModelRef) -> Facts:
        """The known and configured facts about a model."""
        return _facts(self._service(ref), ref.id)

    def endpoint(self, ref: ModelRef) -> Endpoint:
        """How to reach a model, without the credential."""
        service = self._service(ref)
        model = service.models.get(ref.id) or ModelSettings(id=ref.id)
        said, known = model.api or service.settings.api, service.known
        if not said:
            said = builtin.api_of(known, ref.id) if known else "openai-completions"
        api = _APIS.get(said)
        if api is None:
            key = service.model_at(ref.id, "api") if model.api else service.at("api")
            names = ", ".join(name for name in _APIS if name != "ollama")
            raise builtin.fault(f"the API {said!r} is not supported yet", key, f"Use {names}")
        address, facts = self._address(service, model), _facts(service, ref.id)
        is_ollama = "ollama" in (service.id, said) or address.port == builtin.OLLAMA_PORT
        # Ollama needs to know how much context to allocate.
        wants_size = is_ollama and api == "openai-completions" and service.settings.inject_num_ctx
        return Endpoint(
            ref=ModelRef(ref.provider, builtin.full_id(ref.provider, ref.id)),
            api=api,
            base_url=_base_url(address, api, is_ollama=is_ollama),
            facts=facts,
            compat=model.compat,
            is_native=address.host == _NATIVE[api],
            params={**service.settings.params, **model.params},
            thinking_levels=model.thinking_level_map,
            num_ctx=facts.window if wants_size else None,
        )

    def _address(self, service: Service, model: ModelSettings) -> builtin.Address:
        if model.base_url and model.base_url.strip():
            return builtin.read_address(model.base_url, service.model_at(model.id, "baseUrl"))
        said, key = service.settings.base_url or "", service.at("baseUrl")
        if not said.strip():
            if service.known is None:
                problem = f"is missing, and {service.id!r} is not a built-in provider"
                raise builtin.fault(problem, key, "Set the address of its API")
            said = builtin.base_url_of(service.known, self.env)
        return builtin.read_address(said, key)

    def params(self, ref: ModelRef) -> dict[str, Any]:
        """Additional request fields for this model, from the agent's settings."""
        found: dict[str, Any] = {}
        for _, layer in reversed(self._layers):
            found |= layer.params
            for text, entry in layer.models.items():
                if self._means(text, ref):
                    found |= entry.params
        return found

    def timeout_s(self, ref: ModelRef) -> float | None:
        """Timeout of one request; None if not configured. The agent's setting takes precedence."""
        for _, layer in self._layers:
            if isinstance(layer.model, ModelChoice) and layer.model.timeout_ms:
                return layer.model.timeout_ms / 1000
        said = self._service(ref).settings.timeout_seconds
        return float(said) if said else None

    def headers(self, ref: ModelRef) -> dict[str, str]:
        """Extra headers of requests to this model, secrets resolved. Also raises SecretError."""
        from clawkit.net.route import join_headers

        service = self._service(ref)
        model = service.models.get(ref.id) or ModelSettings(id=ref.id)
        places = (
            (service.at("headers"), service.settings.headers),
            (service.model_at(ref.id, "headers"), model.headers),
            (service.at("request", "headers"), service.settings.request.headers),
        )
        return join_headers(*(dict(self._resolved(key, given)) for key, given in places))

    def _resolved(self, key: str, secrets: Mapping[str, SecretInput]) -> Iterator[tuple[str, str]]:
        from clawkit.net.route import bad_name, bad_value

        for name, value in secrets.items():
            if problem := bad_name(name):
                raise builtin.fault(problem, key)
            text = self._secret(value, f"{key}.{name}").strip()
            if problem := bad_value(text):
                raise builtin.fault(f"cannot be sent: {problem}", f"{key}.{name}")
            yield name, text

    def _secret(self, value: SecretInput, key: str) -> str:
        from clawkit.config.secrets import resolve

        try:
            found = resolve(value, self.config, self.env)
        except SecretError as error:
            raise SecretError(f"{key}: {error}") from None
        if isinstance(value, SecretRef):
            self.secrets.add(found.strip())
        return found

    def route(self, ref: ModelRef) -> Route:
        """Allowed addresses, TLS and proxy for this model. Also raises SecretError."""
        # Imported on use: most uses of a catalog make no connections.
        from clawkit.net.addresses import env_proxy
        from clawkit.net.route import Proxy, Route

        service = self._service(ref)
        request = service.settings.request
        said, key = request.proxy, service.at("request", "proxy")
        if said and said.mode == "explicit-proxy":
            proxy: Proxy | None = Proxy(self._secret(said.url or "", f"{key}.url"))
        else:
            proxy = env_proxy(self.endpoint(ref).base_url, self.env)
        if said and proxy:
            proxy = Proxy(proxy.url, self._tls(said.tls, f"{key}.tls"))
        return Route(
            loopback=request.allow_private_network is not False,
            private=request.allow_private_network is True,
            tls=self._tls(request.tls, service.at("request", "tls")),
            proxy=proxy,
        )

    def _tls(self, tls: TlsSettings | None, key: str) -> Tls:
        from clawkit.net.route import Tls

        if tls is None:
            return Tls()
        texts = {
            name: self._secret(value, f"{key}.{name}")
            for name in ("ca", "cert", "key", "passphrase")
            if (value := getattr(tls, name))
        }
        insecure = tls.insecure_skip_verify
        return Tls(**texts, server_name=tls.server_name or "", insecure=insecure)

    def list(self) -> list[ListedModel]:
        """All configured and known models, configured ones first."""
        return [self._entry(ref) for ref in dict.fromkeys((*self._listed(), *self._known()))]

    def _entry(self, ref: ModelRef) -> ListedModel:
        service, problem = self.services[ref.provider], ""
        try:
            self.endpoint(ref)
        except ConfigError as error:
            problem = str(error)
        return ListedModel(
            ref,
            _facts(service, ref.id),
            service.origins.get(ref.id, "known"),
            self.credentials.has(service.id),
            self._aliases_of(ref),
            problem,
        )

    def write_models_json(self) -> str:
        """Write the configured providers into the agent's models.json; returns its path. Needs a
        catalog created with `raw`. Raises ConfigError for an invalid file, and OSError."""
        if self._raw is None:
            raise ValueError("models.json can only be written by a catalog created with `raw`")
        return write_models_json(self.folder, self._raw, replace=self._only_listed)


def _base_url(address: builtin.Address, api: Api, *, is_ollama: bool) -> str:
    """The URL that the API's own paths are appended to."""
    path = address.path
    if is_ollama and api == "openai-completions":
        path = path.removesuffix("/api").removesuffix("/v1") + "/v1"
    elif api == "anthropic-messages":
        # The API's own paths start with the version.
        path = path.removesuffix("/v1")
    else:
        path = path or _PATHS.get(address.host, "")
    return address.origin + path


def _names(choices: Iterable[tuple[str, ModelInput | None]]) -> Iterator[tuple[str, str]]:
    """Setting and name of the first model, and of the first fallbacks."""
    given = [(key, choice) for key, choice in choices if choice]
    for key, choice in given:
        if isinstance(choice, str):
            yield key, choice
            break
        if choice.primary:
            yield f"{key}.primary", choice.primary
            break
    for key, choice in given:
        if isinstance(choice, ModelChoice):
            for index, text in enumerate(choice.fallbacks):
                yield f"{key}.fallbacks[{index}]", text
            break


def _facts(service: Service, name: str) -> Facts:
    listed = service.models.get(name)
    model = listed or ModelSettings(id=name)
    settings, known = service.settings, builtin.known_model(service.id, name)
    usual = Facts()
    at_home = service.known is not None and service.known.is_local
    said = model.context_window or settings.context_window or 0
    window = max(said, known.context_window if known else 0)
    window = window or (builtin.LOCAL_WINDOW if at_home else usual.context_window)
    most = max(model.max_tokens or settings.max_tokens or 0, known.max_tokens if known else 0)
    if model.input is not None:
        images = "image" in model.input
    elif known or listed is not None:
        images = bool(known and known.images)  # a listed model accepts the input types of its entry
    else:
        from clawkit.models.discover import infer_images

        images = bool(infer_images(name))
    return Facts(
        name=model.name or (known.name if known else "") or name,
        context_window=window,
        context_tokens=model.context_tokens or settings.context_tokens or 0,
        max_tokens=min(most or usual.max_tokens, window),
        is_capped=bool(model.max_tokens or settings.max_tokens),
        images=images,
        reasoning=known.reasoning if model.reasoning is None and known else bool(model.reasoning),
        cost=model.cost or (builtin.cost_of(known) if known else None) or Cost(),
    )


def find_alias(
    layers: Sequence[tuple[str, AgentCommon]], text: str, read: Callable[[str, str], ModelRef]
) -> ModelRef | None:
    """The model that an alias refers to; `read` makes a model from a layer and the name of an
    entry. Raises ConfigError if an alias refers to two models of one layer."""
    wanted = text.strip().casefold()
    for key, layer in layers:
        found = {
            read(key, name)
            for name, entry in layer.models.items()
            if entry.alias and entry.alias.strip().casefold() == wanted
        }
        if len(found) > 1:
            names = " and ".join(sorted(map(str, found)))
            raise builtin.fault(
                f"the alias {text.strip()!r} refers to both {names}", f"{key}.models"
            )
        if found:
            return found.pop()
    return None


def _short(text: str) -> str:
    return repr(text if len(text) <= _MAX_SHOWN else f"{text[:_MAX_SHOWN]}...")


def _or(names: Sequence[str]) -> str:
    return " or ".join(map(repr, names))
