"""The model of a run: which one it is, and how much it can take in."""

from __future__ import annotations

import os

from clawkit.config.model import Config
from clawkit.config.modelref import ModelRef, normalize_provider, parse_ref
from clawkit.config.sections.shared import ModelChoice
from clawkit.errors import ConfigError, Issue
from clawkit.schema.choose import Target, target_for


def default_model(config: Config, agent: str) -> ModelRef | None:
    """The model a run of this agent has when none is named: the agent's, else everyone's."""
    for key, choice in (
        (f"agents.{agent}.model", config.agents.get(agent).model),
        ("agents.defaults.model", config.agents.defaults.model),
    ):
        name = choice.primary if isinstance(choice, ModelChoice) else choice
        if name:
            try:
                return _find_model(config, agent, name)
            except ValueError as error:
                raise ConfigError([Issue(key, str(error))]) from None
    return None


def _find_model(config: Config, agent: str, name: str) -> ModelRef:
    """The model of an alias, a whole name, or an id alone. Raises `ValueError` when it cannot be
    one: policy goes by the provider, which is not guessed."""
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
        # Its provider is unknown: the agent says so when the model is to be used.
        return ref


def target_of(model: ModelRef | None) -> Target:
    """Whose form of schemas a run's model takes; Anthropic's where no model is known."""
    return target_for(model.provider, model.id) if model else "anthropic"


def context_window_of(config: Config, model: ModelRef | None) -> int | None:
    """How many tokens the model takes in: as configured, a cap first, else as it is known."""
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
