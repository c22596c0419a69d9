"""The configured model of a run, and its context window."""

from __future__ import annotations

import os

from clawkit.config.model import Config
from clawkit.config.modelref import ModelRef, normalize_provider, parse_ref
from clawkit.config.sections.shared import ModelChoice
from clawkit.errors import ConfigError, Issue
from clawkit.schema.choose import Target, target_for


def default_model(config: Config, agent: str) -> ModelRef | None:
    """The default model of an agent: its own, or else that of `agents.defaults`."""
    for key, choice in (
        (f"agents.{agent}.model", config.agents.get(agent).model),
        ("agents.defaults.model", config.agents.defaults.model),
    ):
        name = choice.primary if isinstance(choice, ModelChoice) else choice
        if name:
            try:
                return find_model(config, agent, name)
            except ValueError as error:
                raise ConfigError([Issue(key, str(error))]) from None
    return None


def find_model(config: Config, agent: str, name: str) -> ModelRef:
    """The model of an alias, a full name, or an id alone. Raises `ValueError` if it is invalid:
    policy depends on the provider, so it is never guessed."""
    layers = (
        (f"agents.{agent}", config.agents.get(agent)),
        ("agents.defaults", config.agents.defaults),
    )
    if any(entry.alias for _, layer in layers for entry in layer.models.values()):
        from clawkit.models.catalog import find_alias

        if found := find_alias(layers, name, lambda _key, entry: parse_ref(entry)):
            return found
    ref = parse_ref(name)
    if ref.provider:
        return ref
    from clawkit.models.catalog import Catalog

    try:
        return Catalog(config, os.environ, agent).find(name)
    except ConfigError:
        # The provider is unknown; the agent reports that when the model is used.
        return ref


def target_of(model: ModelRef | None) -> Target:
    """The provider whose schema format a model expects; Anthropic if the model is unknown."""
    return target_for(model.provider, model.id) if model else "anthropic"


def context_window_of(config: Config, model: ModelRef | None) -> int | None:
    """Context window of the model in tokens: the configured cap, else the configured or known
    size."""
    if model is None:
        return None
    names = (name for name in config.models.providers if normalize_provider(name) == model.provider)
    if provider := config.models.providers.get(next(names, "")):
        entry = next((each for each in provider.models or () if each.id == model.id), None)
        for place in (entry, provider):
            if place is not None and (tokens := place.context_tokens or place.context_window):
                return tokens
    from clawkit.models.known import known_model

    known = known_model(model.provider, model.id)
    return known.context_window if known else None
