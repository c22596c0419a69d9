"""Which tools are in force: profiles, allow and deny lists, and rules over arguments."""

from collections.abc import Iterable
from typing import Any, Literal

from clawkit.config.section import Conflict, Name, Section

Profile = Literal["minimal", "coding", "messaging", "full"]
Effect = Literal["deny", "ask", "allow"]


class ToolPolicy(Section):
    """Allow and deny lists. Entries are tool names, `group:` names, plugin ids or `*` patterns."""

    allow: list[str] | None = None
    """Only these tools stay. Empty restricts nothing; nor unset, but for sandbox and sub-agent."""
    also_allow: list[str] | None = None
    """Tools to add to the profile or the defaults; not together with `allow`."""
    deny: list[str] | None = None
    """Tools to remove; wins over every allow."""

    @classmethod
    def conflicts(cls, raw: dict[str, Any]) -> Iterable[Conflict]:
        if raw.get("allow") and raw.get("alsoAllow"):
            yield (
                "alsoAllow",
                "cannot be combined with 'allow' in one place",
                "Move its entries into allow, or use a profile with alsoAllow",
            )


class ProviderPolicy(ToolPolicy):
    """Allow and deny lists on top of a profile."""

    profile: Profile | None = None
    """Set of tools to start from; unset and `full` mean all of them."""


class ToolScope(Section):
    """Holder of a tool policy for one kind of session."""

    tools: ToolPolicy = ToolPolicy()
    """Allow and deny lists for these sessions."""


Senders = dict[str, ToolPolicy]
"""Keys: `channel:<channel>:<id>`, `id:`, `e164:`, `username:`, `name:` or `*`."""


class Rule(Section):
    """One rule over the arguments of a call."""

    tool: Name
    """Tool the rule is about: a name, `group:` name or `*` pattern."""
    effect: Effect
    """What happens on a match: refuse, ask a person, or go ahead."""
    action: Name | None = None
    """Only calls with this `action`, for tools that have actions."""
    params: dict[str, str] = {}
    """Parameter name to a `*` pattern or `/regex/`; all of them must match."""
    reason: str | None = None
    """Shown to the person and the model on a match."""
