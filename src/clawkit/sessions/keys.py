"""What sessions are called: keys, what a key says about its session, and the aliases of tools."""

from __future__ import annotations

import re
from typing import Literal

from msgspec import Struct

from clawkit.errors import NotFoundError, ToolInputError
from clawkit.sessions.protocols import MAX_NAME, Refuse, Session, Sessions, session_key
from clawkit.text import one_line

Kind = Literal["main", "group", "cron", "hook", "node", "other"]
INTERNAL = frozenset(("cron", "hook", "node"))
"""Kinds that no channel has anything to do with."""
MAIN, CURRENT = "main", "current"
_AGENT = "agent:"
# Compiled on first use: tools are described without them.
_THREAD = r"(.+?):(?:thread|topic):(.+)"
_GROUP = r"([^:]+):(?:group|channel):(.+)"
_DIRECT = r"([^:]+):(?:[^:]+:)?(?:direct|dm):(.+)"
_SUB_AGENTS = r"subagent:[^:]+(?::subagent:[^:]+)*"
_PREFIXES: tuple[tuple[str, Kind], ...] = (("cron:", "cron"), ("hook:", "hook"), ("node-", "node"))


class Key(Struct, frozen=True):
    """What a key says."""

    agent: str  # empty for a key that names none, such as `cron:daily`
    name: str  # all that follows `agent:<id>:`
    kind: Kind
    channel: str = ""  # the messenger; empty when the key does not say
    peer: str = ""  # the group or person there
    thread: str = ""
    depth: int = 0  # 0 for a main session, 1 for a sub-agent, 2 for its sub-agent

    @property
    def is_thread(self) -> bool:
        return bool(self.thread)


def parse_key(key: str, main: str = MAIN) -> Key:
    """What a key says; `main` is how the main session is called (`session.mainKey`). Raises
    `ToolInputError` for what cannot be a key."""
    agent, name = "", key
    if key.startswith(_AGENT):
        agent, _, name = key.removeprefix(_AGENT).partition(":")
    whole = bool(name) and bool(agent or not key.startswith(_AGENT))
    if not whole or not key.isprintable() or any(map(str.isspace, key)):
        raise ToolInputError(
            f"{one_line(key, 60)!r} cannot be the key of a session; "
            "one is agent:<agent>:<name>, such as agent:main:main"
        )
    kind = kind_of(name, main)
    if kind in INTERNAL:
        return Key(agent, name, kind)
    if re.fullmatch(_SUB_AGENTS, name):
        return Key(agent, name, kind, depth=len(name.split(":")) // 2)
    in_thread = re.fullmatch(_THREAD, name)
    base, thread = (in_thread[1], in_thread[2]) if in_thread else (name, "")
    peer = re.fullmatch(_GROUP, base) or re.fullmatch(_DIRECT, base)
    channel, who = (peer[1], peer[2]) if peer else ("", "")
    return Key(agent, name, kind, channel, who, thread)


def kind_of(name: str, main: str = MAIN) -> Kind:
    """The kind of a session by its name alone."""
    if name == main:
        return "main"
    for prefix, kind in _PREFIXES:
        if name.startswith(prefix):
            return kind
    return "group" if ":" in name and re.match(_GROUP, name) else "other"


def child_key(agent: str, parent: str, uuid: str) -> str:
    """The key of a sub-agent: below that of its parent, if the parent is one."""
    above = parse_key(parent)
    name = f"{above.name}:subagent:{uuid}" if above.depth else f"subagent:{uuid}"
    if not uuid or ":" in uuid or len(name) > MAX_NAME:
        raise ToolInputError(f"{one_line(name, 60)!r} cannot be the name of a sub-agent's session")
    return session_key(agent, name)


def resolve(
    sessions: Sessions | None,
    text: str,
    *,
    agent: str,
    main: str = MAIN,
    here: Session | None = None,
    refuse: Refuse | None = None,
) -> Session:
    """The session that a tool or a person means by `text`.

    `current` is the one they are in (`here`), `main` the main one of the agent; else see
    `Sessions.get`. Raises `NotFoundError`, `ToolInputError` when more than one could be meant, and
    `ToolAuthorizationError` when it may not be seen.
    """
    wanted = text.strip()
    if wanted == MAIN:
        wanted = session_key(agent, main)
    if here is not None and wanted in (CURRENT, here.key, here.name, here.id or here.key):
        return here
    if sessions is None or wanted == CURRENT:
        there = f"; this one is {here.name!r}" if here else ""
        raise NotFoundError(f"there is no session {one_line(text.strip(), 60)!r}{there}")
    return sessions.get(wanted, agent, refuse)
