"""Session keys: parsing them, and resolving the names that tools and people use for sessions."""

from __future__ import annotations

import re
from typing import Literal

from msgspec import Struct

from clawkit.errors import NotFoundError, ToolInputError
from clawkit.sessions.protocols import MAX_NAME, Refuse, Session, Sessions, session_key
from clawkit.text import one_line

Kind = Literal["main", "group", "cron", "hook", "node", "other"]
INTERNAL = frozenset(("cron", "hook", "node"))
"""Kinds of sessions that do not belong to a channel."""
MAIN, CURRENT = "main", "current"
_AGENT = "agent:"
# Compiled on first use: describing tools does not need them.
_THREAD = r"(.+?):(?:thread|topic):(.+)"
_GROUP = r"([^:]+):(?:group|channel):(.+)"
_DIRECT = r"([^:]+):(?:[^:]+:)?(?:direct|dm):(.+)"
_SUB_AGENTS = r"subagent:[^:]+(?::subagent:[^:]+)*"
_PREFIXES: tuple[tuple[str, Kind], ...] = (("cron:", "cron"), ("hook:", "hook"), ("node-", "node"))


class SessionKey(Struct, frozen=True):
    agent: str  # empty for a key without an agent, such as `cron:daily`
    name: str  # everything after `agent:<id>:`
    kind: Kind
    channel: str = ""  # such as `telegram`; empty if not part of the key
    peer: str = ""  # the group or person on that channel
    thread: str = ""
    depth: int = 0  # 0 for a main session, 1 for a sub-agent, 2 for its sub-agent

    @property
    def is_shared(self) -> bool:
        """Whether other people than the owner write here: their words must not act for the
        owner."""
        return bool(self.channel) or self.kind in ("group", "hook")


def parse_key(key: str, main: str = MAIN) -> SessionKey:
    """Parse a key; `main` is `session.mainKey`. Raises `ToolInputError` if it is invalid."""
    agent, name = "", key
    if key.startswith(_AGENT):
        agent, _, name = key.removeprefix(_AGENT).partition(":")
    whole = bool(name) and bool(agent or not key.startswith(_AGENT))
    if not whole or not key.isprintable() or any(map(str.isspace, key)):
        raise ToolInputError(
            f"invalid session key {one_line(key, 60)!r}; "
            "use agent:<agent>:<name>, such as agent:main:main"
        )
    kind = kind_of(name, main)
    if kind in INTERNAL:
        return SessionKey(agent, name, kind)
    if re.fullmatch(_SUB_AGENTS, name):
        return SessionKey(agent, name, kind, depth=len(name.split(":")) // 2)
    in_thread = re.fullmatch(_THREAD, name)
    base, thread = (in_thread[1], in_thread[2]) if in_thread else (name, "")
    peer = re.fullmatch(_GROUP, base) or re.fullmatch(_DIRECT, base)
    channel, who = (peer[1], peer[2]) if peer else ("", "")
    return SessionKey(agent, name, kind, channel, who, thread)


def kind_of(name: str, main: str = MAIN) -> Kind:
    """The kind of a session, from its name alone."""
    if name == main:
        return "main"
    for prefix, kind in _PREFIXES:
        if name.startswith(prefix):
            return kind
    return "group" if ":" in name and re.match(_GROUP, name) else "other"


def is_heartbeat(key: str) -> bool:
    """Whether a session is for the heartbeats of an agent."""
    return parse_key(key).name.partition(":")[0] == "heartbeat"


def child_key(agent: str, parent: str, uuid: str) -> str:
    """The key of a sub-agent, nested in the parent's name if the parent is a sub-agent itself."""
    above = parse_key(parent)
    name = f"{above.name}:subagent:{uuid}" if above.depth else f"subagent:{uuid}"
    if not uuid or ":" in uuid or len(name) > MAX_NAME:
        raise ToolInputError(f"invalid name for the session of a sub-agent: {one_line(name, 60)!r}")
    return session_key(agent, name)


def resolve(
    sessions: Sessions | None,
    text: str,
    *,
    agent: str,
    main: str = MAIN,
    current: Session | None = None,
    refuse: Refuse | None = None,
) -> Session:
    """Resolve the session that a tool or a person refers to as `text`. `current` is the session of
    the call, `main` the agent's main session; for anything else see `Sessions.get`. Raises
    `NotFoundError`, `ToolInputError` for an ambiguous reference, and `ToolAuthorizationError` for a
    session that may not be seen."""
    wanted = text.strip()
    if wanted == MAIN:
        wanted = session_key(agent, main)
    if current and wanted in (CURRENT, current.key, current.name, current.id or current.key):
        return current
    if sessions is None or wanted == CURRENT:
        there = f"; this one is {current.name!r}" if current else ""
        raise NotFoundError(f"there is no session {one_line(text.strip(), 60)!r}{there}")
    return sessions.get(wanted, agent, refuse)
