"""Providers as they are used: what is known, what the configuration says, what `models.json` adds.

The configuration goes over `models.json`, key by key, and both over what is known. Two things are
the other way round: an address in `models.json` wins, and so does a key in it, unless the
configuration only refers to one.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Any, Literal, NamedTuple

import msgspec

from clawkit.config.model import Config
from clawkit.config.modelref import normalize_provider
from clawkit.config.section import SecretInput, SecretRef, SectionT
from clawkit.config.sections.models import Compat, Model, Provider
from clawkit.config.sections.request import Request
from clawkit.errors import ConfigError, Issue
from clawkit.models.known import PROVIDERS, KnownProvider
from clawkit.models.modelsjson import VARIABLE, key_mark, read_models_json, setting

Origin = Literal["config", "models.json", "known"]

_BLANK: dict[type, Any] = {
    Provider: Provider(),
    Model: Model(id="-"),
    Request: Request(),
    Compat: Compat(),
}
_KEY_NAMES = ("KEY", "TOKEN", "SECRET", "PASSWORD")


class Service(NamedTuple):
    """One provider, everything said about it put together; nothing of what is known."""

    id: str
    known: KnownProvider | None
    settings: Provider = Provider()
    models: Mapping[str, Model] = MappingProxyType({})
    """Models by id, the configured ones first."""
    origins: Mapping[str, Origin] = MappingProxyType({})
    """Where each of them is from."""
    key: str = ""
    """Where its settings are in the configuration, for messages."""

    def __repr__(self) -> str:
        return f"<provider {self.id}>"

    def at(self, *steps: str | int) -> str:
        """The path of one of its settings."""
        return self.key + "".join(
            f".{step}" if isinstance(step, str) else f"[{step}]" for step in steps
        )

    def model_at(self, name: str, step: str) -> str:
        """The path of a setting of one of its models."""
        listed = [each for each, origin in self.origins.items() if origin == "config"]
        place = listed.index(name) if name in listed else repr(name)
        return f"{self.at('models')}[{place}].{step}"


def load_services(
    config: Config,
    env: Mapping[str, str],
    folder: str,
    raw: Mapping[str, Any] | None = None,
) -> dict[str, Service]:
    """All providers by id: configured ones, those of `folder`'s models.json, then known ones.

    `raw` is the configuration as it is written; without it a key behind `${NAME}` looks like one
    that stands there itself. With `models.mode` "replace" only what is configured counts.
    """
    configured = _configured(config)
    only_configured = config.models.mode == "replace"
    stored = {} if only_configured else read_models_json(folder, env)
    written = _written_keys(raw)
    services: dict[str, Service] = {}
    for name in [*configured, *(name for name in stored if name not in configured)]:
        key, mine = configured.get(name, ("", Provider()))
        services[name] = _join(name, key, mine, stored.get(name), written.get(name))
    if not only_configured:
        for name, known in PROVIDERS.items():
            services.setdefault(
                name, Service(name, known, key=setting("models", "providers", name))
            )
    return services


def _configured(config: Config) -> dict[str, tuple[str, Provider]]:
    """Key in the configuration and settings, by the one spelling of the id."""
    found: dict[str, tuple[str, Provider]] = {}
    for name, provider in config.models.providers.items():
        wanted = normalize_provider(name)
        key = setting("models", "providers", name)
        if wanted in found:
            problem = f"{name!r} is the same provider as {found[wanted][0]}"
            raise ConfigError([Issue(key, problem, hint="Join the two")])
        found[wanted] = (key, provider)
    return found


def _written_keys(raw: Mapping[str, Any] | None) -> dict[str, Any]:
    """The `apiKey` of each provider as the configuration has it, before anything is put in."""
    models = (raw or {}).get("models")
    providers = models.get("providers") if isinstance(models, dict) else None
    return {
        normalize_provider(name): provider.get("apiKey", provider.get("api_key"))
        for name, provider in (providers if isinstance(providers, dict) else {}).items()
        if isinstance(provider, dict)
    }


def _join(name: str, key: str, mine: Provider, stored: Provider | None, written: Any) -> Service:
    models = {model.id: model for model in mine.models}
    origins: dict[str, Origin] = dict.fromkeys(models, "config")
    settings = mine
    if stored:
        settings = _over(mine, stored)
        is_managed = isinstance(mine.api_key, SecretRef) or _is_reference(mine.api_key, written)
        own_key = stored.api_key if not isinstance(stored.api_key, SecretRef) else None
        settings = msgspec.structs.replace(
            settings,
            base_url=stored.base_url or mine.base_url,
            api_key=(None if is_managed else own_key) or mine.api_key or stored.api_key,
        )
        for model in stored.models:
            before = models.get(model.id)
            models[model.id] = _over(before, model) if before else model
            origins.setdefault(model.id, "models.json")
    key = key or setting("models", "providers", name)
    return Service(name, PROVIDERS.get(name), settings, models, origins, key)


def _is_reference(key: SecretInput | None, written: Any) -> bool:
    """Whether the configuration names a secret instead of holding it."""
    if isinstance(written, str) and written:
        return bool(key_mark(written))
    return isinstance(key, str) and bool(key_mark(key))


def _over(high: SectionT, low: SectionT) -> SectionT:
    """`high` with what only `low` sets; maps are joined by key."""
    blank = _BLANK[type(high)]
    changes: dict[str, Any] = {}
    for name in high.__struct_fields__:
        upper, lower, unset = getattr(high, name), getattr(low, name), getattr(blank, name)
        if type(unset) in _BLANK:
            changes[name] = _over(upper, lower)
        elif isinstance(unset, dict):
            changes[name] = {**lower, **upper}
        elif upper == unset:
            changes[name] = lower
    return msgspec.structs.replace(high, **changes)


def over(high: Compat, low: Compat) -> Compat:
    """What a service can do, as it is said, and otherwise as it is known."""
    return _over(high, low)


def named_variable(text: str, env: Mapping[str, str]) -> str | None:
    """The variable that a plain key is the name of, whether it is set or not; None for a key.

    `LITELLM_KEY` is a name and `EMPTY` is not, unless there is a variable of that name.
    """
    if not VARIABLE.fullmatch(text):
        return None
    return text if env.get(text) or text.endswith(_KEY_NAMES) else None
