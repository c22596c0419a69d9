"""Settings overridden in one conversation, by `/exec` and `/elevated`."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec
from msgspec.structs import replace

from clawkit.config.model import Config
from clawkit.config.sections.tools import Exec
from clawkit.errors import ConfigError, Issue
from clawkit.text import nearest

LEVELS = ("off", "on", "ask", "full")
EXEC = ("host", "node", "security", "ask", "mode")
"""Settings of `tools.exec` that a conversation can override."""


def with_overrides(config: Config, agent: str, overrides: Mapping[str, Any]) -> Config:
    """The configuration with the overrides of a conversation: `exec` and `elevated`. Raises
    `ConfigError` for an unknown or invalid setting."""
    changes, level = dict(overrides.get("exec") or {}), overrides.get("elevated")
    if changes:
        config = _with_exec(config, agent, changes)
    if level is None:
        return config
    if level not in LEVELS:
        raise ConfigError([Issue("elevated", f"must be one of {', '.join(LEVELS)}, not {level!r}")])
    defaults = replace(config.agents.defaults, elevated_default=level)
    return replace(config, agents=replace(config.agents, defaults=defaults))


def _with_exec(config: Config, agent: str, changes: dict[str, Any]) -> Config:
    for key in changes:
        if key not in EXEC:
            close = nearest(key, EXEC, 1)
            hint = f"Did you mean {close[0]!r}?" if close else f"Known: {', '.join(EXEC)}"
            raise ConfigError(
                [Issue("exec", f"has no setting {key!r} for a conversation", hint=hint)]
            )
    # Merged into the agent's own settings, which would otherwise take precedence.
    settings = config.tools.exec.merged(config.agents.get(agent).tools.exec)
    if not changes.keys().isdisjoint(("security", "ask")):
        settings = replace(settings, mode=None)
    try:
        built = msgspec.to_builtins(settings) | changes
        settings = msgspec.convert(built, Exec)
    except msgspec.ValidationError as error:
        raise ConfigError([Issue("exec", str(error))]) from None
    agents, wanted = config.agents, agent.strip().lower()

    def without_own(name: str, entry: Any) -> Any:
        if name.strip().lower() != wanted:
            return entry
        tools = replace(entry.tools, exec=None)
        return replace(entry, tools=tools)

    agents = replace(
        agents,
        listed=[without_own(entry.id or "", entry) for entry in agents.listed],
        entries={name: without_own(name, entry) for name, entry in agents.entries.items()},
    )
    return replace(config, tools=replace(config.tools, exec=settings), agents=agents)
