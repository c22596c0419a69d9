"""Which sessions a session may know about."""

from __future__ import annotations

from collections.abc import Callable
from typing import Literal

from clawkit.sessions.base import Session

Sight = Literal["self", "spawned", "tree", "agent", "all"]
"""`spawned` is `tree` without the right of the main session to see all of its agent."""
SETTING = "tools.sessions.visibility"


def why_hidden(
    sight: Sight,
    here: Session,
    there: Session,
    descends: Callable[[str, str], bool],
    main: str = "main",
) -> str:
    """Why one session may not know about another; empty when it may."""
    if here.key == there.key:
        return ""
    if here.agent != there.agent:
        return f"it is of the agent {there.agent!r}, and this one is {here.agent!r}"
    if sight == "self":
        return f"{SETTING} is 'self'"
    if sight in ("agent", "all") or (sight == "tree" and here.name == main):
        return ""
    if here.id and descends(there.id, here.id):
        return ""
    if sight == "spawned":
        return "a sandboxed session sees what it started itself (sandbox.sessionToolsVisibility)"
    return f"{SETTING} is 'tree', and this session did not start it"
