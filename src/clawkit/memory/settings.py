"""The memory settings of one agent."""

from __future__ import annotations

from clawkit.config.model import Config
from clawkit.config.sections.agents import ContextLimits
from clawkit.config.sections.plugins import MemorySearch
from clawkit.memory.protocols import Source


def settings_of(config: Config, agent: str) -> MemorySearch:
    """`memory.search`, then what `agents.defaults` and the agent override, field by field. Extra
    paths add up."""
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
    """What is indexed. Past sessions only if that was asked for, in either place."""
    found: set[Source] = set(settings.sources or ["memory"])
    if settings.experimental.session_memory:
        found.add("sessions")
    return frozenset(found)


def excerpt_chars(config: Config, agent: str) -> int:
    """How many characters one excerpt of a note may have."""
    limits = ContextLimits()
    for override in (
        config.agents.defaults.context_limits,
        config.agents.get(agent).context_limits,
    ):
        limits = limits.merged(override)
    return limits.memory_get_max_chars
