"""The model that is used where none is chosen and no key was found: one of an Ollama here."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from clawkit.cli.onboarding_look import local_models
from clawkit.config.modelref import ModelRef
from clawkit.models.resolve import Catalog

Look = Callable[[Mapping[str, str]], Sequence[str]]


def find_local(catalog: Catalog, look: Look = local_models) -> ModelRef | None:
    """The one that a turn would use. Ollama has half a second to answer."""
    if "ollama" not in catalog.services:
        return None
    found = (ModelRef("ollama", name) for name in look(catalog.env))
    return next(filter(catalog.is_allowed, found), None)


class LookOnce:
    """Asks Ollama the first time, and knows it from then on."""

    def __init__(self) -> None:
        self._found: Sequence[str] | None = None

    def __call__(self, env: Mapping[str, str]) -> Sequence[str]:
        if self._found is None:
            self._found = local_models(env)
        return self._found
