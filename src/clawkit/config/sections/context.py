"""What goes into a model's context, and what is left out when it gets long."""

from collections.abc import Iterable
from typing import Annotated, Any, Literal

from msgspec import Meta

from clawkit.config.section import Conflict, Count, Positive, Section
from clawkit.text import parse_time


class ContextLimits(Section):
    """How much text goes into the context."""

    memory_get_max_chars: Annotated[int, Meta(ge=1, le=250_000)] = 12_000
    """Most characters `memory_get` returns; default 12000."""
    post_compaction_max_chars: Positive | None = None
    """Most characters kept of workspace rules after compaction."""


class Compaction(Section):
    """Shortening long conversations."""

    enabled: bool = True
    """Shorten conversations that get too long; default true."""
    model: str | None = None
    """Model that writes the summary; unset is the agent's."""
    keep_recent_tokens: Positive | None = None
    """Tokens of recent conversation kept word for word."""
    recent_turns_preserve: Count | None = None
    """Recent turns kept word for word."""
    timeout_seconds: Positive | None = None
    """Seconds until it fails."""


class PruningTools(Section):
    """Whose results may be left out."""

    allow: list[str] | None = None
    """Only results of these tools; unset means all."""
    deny: list[str] = []
    """Tools whose results are always kept."""


class HardClear(Section):
    """Replacing an old result as a whole."""

    enabled: bool = True
    """Replace results when shortening them is not enough; default true."""
    placeholder: str = "[Old tool result content cleared]"
    """Text that stands in its place."""


class ContextPruning(Section):
    """Leaving out old tool results once the provider's cache has expired."""

    mode: Literal["off", "cache-ttl"] = "off"
    """Off (default), or once the cache has expired."""
    ttl: str = "5m"
    """When the cache expires, such as `5m` (default) or `1h`."""
    tools: PruningTools = PruningTools()
    """Whose results may be left out."""
    hard_clear: HardClear = HardClear()
    """Replacing an old result as a whole."""

    @classmethod
    def conflicts(cls, raw: dict[str, Any]) -> Iterable[Conflict]:
        try:
            parse_time(str(raw.get("ttl", "5m")))
        except ValueError as error:
            yield "ttl", str(error), "Write a number and s, m, h or d"
