"""Which sessions may see which others, and which agents may be started: pure functions."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Literal

from msgspec import Struct

from clawkit.config.model import Config
from clawkit.config.sections.agents import Agents
from clawkit.core.context import Scope
from clawkit.globs import Glob
from clawkit.sessions.keys import MAIN
from clawkit.sessions.protocols import Visible, session_key

Mode = Literal["self", "tree", "agent", "all"]
SETTING = "tools.sessions.visibility"
SANDBOX = "agents.defaults.sandbox.sessionToolsVisibility"
AGENTS = "tools.agentToAgent"


class Requester(Struct, frozen=True):
    id: str  # empty if it is not stored, and so cannot have started others
    key: str
    agent: str
    sandboxed: bool = False
    depth: int = 0  # more than 0 for a sub-agent


class SessionTarget(Struct, frozen=True):
    id: str
    key: str
    agent: str
    lineage: tuple[str, ...] = ()  # ids of its ancestors, its parent first


class Sight(Struct, frozen=True):
    """The settings that decide what can be seen."""

    mode: Mode = "tree"
    spawned_only: bool = True  # whether a sandboxed session sees only sessions it started
    agent_to_agent: bool = False
    allow: tuple[str, ...] | None = None  # agents that may see each other's sessions; None for all
    main: str = MAIN  # name of the main session

    @classmethod
    def of(cls, config: Config, agent: str) -> Sight:
        between = config.tools.agent_to_agent
        return cls(
            config.tools.sessions.visibility,
            config.agents.sandbox_of(agent).session_tools_visibility == "spawned",
            between.enabled,
            tuple(between.allow) if between.allow else None,
            config.session.main_key,
        )

    def clamps(self, scope: Scope | Requester) -> bool:
        """Whether the sandbox restricts what can be seen. Sub-agents see little enough anyway."""
        return self.spawned_only and scope.sandboxed and not scope.depth


def may_see(requester: Requester, target: SessionTarget, config: Sight) -> str:
    """Why a session may not see another, with the setting that decides; empty if it may."""
    if requester.key == target.key:
        return ""
    if config.mode == "self":
        return f"{SETTING} is 'self'"
    is_own = bool(requester.id) and requester.id in target.lineage
    if config.clamps(requester) and not is_own:
        return f"{SANDBOX} is 'spawned': in a sandbox, only sessions started from here can be seen"
    if requester.agent != target.agent:
        return "" if is_own and config.mode != "agent" else _across(requester, target, config)
    if is_own or config.mode != "tree":
        return ""
    if requester.key == session_key(requester.agent, config.main):
        return ""
    return f"{SETTING} is 'tree', and this session did not start it"


def all_visible(requester: Requester, config: Sight, agents: Iterable[str]) -> Visible:
    """The answer of `may_see` for all sessions at once: apart from the session itself, it depends
    only on the agent, and on whether the session was started from here."""

    def seen(*lineage: str) -> tuple[str, ...]:
        targets = (SessionTarget("", "", agent, lineage) for agent in names)
        return tuple(each.agent for each in targets if not may_see(requester, each, config))

    names = tuple(agents)
    own = seen(requester.id) if requester.id else ()
    return Visible(requester.key, requester.id, seen(), own)


def _across(requester: Requester, target: SessionTarget, config: Sight) -> str:
    whose = f"it belongs to the agent {target.agent!r}, and"
    if config.mode != "all":
        return f"{whose} {SETTING} is {config.mode!r}, not 'all'"
    if not config.agent_to_agent:
        return f"{whose} {AGENTS}.enabled is false"
    for agent in (requester.agent, target.agent):
        if not takes_part(agent, config.allow):
            return f"{whose} {AGENTS}.allow does not list {agent!r}"
    return ""


def takes_part(agent: str, allow: tuple[str, ...] | None) -> bool:
    """Whether a list of agents includes one: by exact id, or a case-insensitive `*` pattern."""
    if allow is None:
        return True
    entries = [entry.strip() for entry in allow]
    return any(
        Glob(entry.lower()).match(agent.lower()) if "*" in entry else entry == agent
        for entry in entries
        if entry
    )


def startable(agents: Agents, requester: str) -> set[str]:
    """The ids of the agents that `requester` may start as sub-agents (`subagents.allowAgents`)."""
    requester = requester.strip().lower()
    allowed = agents.defaults.subagents.merged(agents.get(requester).subagents).allow_agents
    if allowed is None:
        return {requester}
    named, known = {each.strip().lower() for each in allowed}, {requester, *agents.by_id()}
    return known if "*" in named else known & named
