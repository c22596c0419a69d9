"""How much a model can take in."""

from __future__ import annotations

from clawkit.config.model import Config
from clawkit.config.modelref import ModelRef, normalize_provider


def context_window_of(config: Config, model: ModelRef | None) -> int | None:
    """How many tokens the model takes in, as far as the configuration says; a cap comes first."""
    if model is None:
        return None
    names = (name for name in config.models.providers if normalize_provider(name) == model.provider)
    provider = config.models.providers.get(next(names, ""))
    if provider is None:
        return None
    entry = next((each for each in provider.models or () if each.id == model.id), None)
    for place in (entry, provider):
        if place is not None and (tokens := place.context_tokens or place.context_window):
            return tokens
    return None
