"""Secrets in the files of agents, for redaction."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from typing import Any

from clawkit.config.json5 import Json5Error, parse
from clawkit.config.masking import secrets_of, variables_of
from clawkit.config.model import Config
from clawkit.config.sources import ReadError, read_text, substitute
from clawkit.models.providers import AUTH_PROFILES, MODELS_JSON, agent_dirs

_SECRETS = ("key", "token", "access", "refresh")


def stored_secrets(config: Config, env: Mapping[str, str]) -> Iterator[str]:
    """The secrets in models.json and auth-profiles.json of every agent, and in variables that they
    name."""
    for folder in agent_dirs(config, env):
        models = {"models": _read(os.path.join(folder, MODELS_JSON))}
        yield from map(str, secrets_of(substitute(models, env)))
        stored = _read(os.path.join(folder, AUTH_PROFILES))
        profiles = stored.get("profiles")
        for entry in profiles.values() if isinstance(profiles, dict) else ():
            given = entry if isinstance(entry, dict) else {}
            yield from (given[key] for key in _SECRETS if isinstance(given.get(key), str))
        for name in (*variables_of(models), *variables_of(stored)):
            yield env.get(name, "")


def _read(file: str) -> dict[str, Any]:
    """The content of a file; empty if it cannot be read, which is reported elsewhere."""
    if not os.path.lexists(file):
        return {}
    try:
        value = parse(read_text(file)).value
    except (ReadError, Json5Error):
        return {}
    return value if isinstance(value, dict) else {}
