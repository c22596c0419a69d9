"""The memory settings of one agent."""

from __future__ import annotations

from clawkit.config.model import Config
from clawkit.config.sections.agents import ContextLimits
from clawkit.config.sections.plugins import MemorySearch
from clawkit.memory.protocols import Source


def settings_of(config: Config, agent: str) -> MemorySearch:
    """`memory.search`, overridden field by field by `agents.defaults` and the agent. Extra paths
    are combined."""
    own = config.agents.get(agent)
    settings = config.memory.search if config.memory else MemorySearch()
    for override in (
        config.agents.defaults.memory_search,
        own.memory_search,
        own.memory.search if own.memory else None,
    ):
        settings = settings.merged(override)
    return settings


def sources_of(settings: MemorySearch) -> frozenset[Source]:
    """The sources to index. Past sessions only if enabled, in either place."""
    found: set[Source] = set(settings.sources or ["memory"])
    if settings.experimental.session_memory:
        found.add("sessions")
    return frozenset(found)


def excerpt_chars(config: Config, agent: str) -> int:
    """Maximum characters of one excerpt of a note."""
    limits = ContextLimits()
    for override in (
        config.agents.defaults.context_limits,
        config.agents.get(agent).context_limits,
    ):
        limits = limits.merged(override)
    return limits.memory_get_max_chars
