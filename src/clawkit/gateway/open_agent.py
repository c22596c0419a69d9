"""An open agent of the gateway: its activity and its rights."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from msgspec import Struct

from clawkit.agent.loop import limits_of
from clawkit.agent_session import Agent
from clawkit.config.load import Loaded
from clawkit.config.sections.shared import Thinking as Level
from clawkit.core.approval import Approver
from clawkit.cron.protocols import HeartbeatControl
from clawkit.gateway.protocol import GatewayError
from clawkit.gateway.session_events import EventReporter, GatewayRun
from clawkit.models.protocols import Model
from clawkit.process.protocols import Commands
from clawkit.services import Services
from clawkit.sessions.keys import parse_key
from clawkit.tools._commands import owner_of

POLL_S = 0.01


def shutting_down() -> GatewayError:
    details = {"code": "SHUTTING_DOWN"}
    return GatewayError("UNAVAILABLE", "the gateway is shutting down", details, retry_ms=1000)


def merged(overrides: Mapping[object, Mapping[str, Any]]) -> dict[str, Any]:
    """The merged overrides that clients have set for a session."""
    return {name: value for each in overrides.values() for name, value in each.items()}


class Opening(Struct, frozen=True):
    """Options for the agent of a special-purpose session, such as that of a job."""

    model: str | Model = ""
    fallbacks: tuple[str, ...] = ()
    thinking: Level | None = None
    allow: tuple[str, ...] | None = None
    """The only allowed tools, within policy."""
    is_light: bool = False
    """Whether to leave workspace files out of the prompt."""
    approver: Approver | None = None
    heartbeat: HeartbeatControl | None = None
    """The heartbeat that the session is opened for."""

    def open(self, loaded: Loaded, key: str, id_: str, workspace: str, *, owner: bool) -> Agent:
        """Open the agent of a session: a stored one by its id, or a new one."""
        parsed = parse_key(key)
        return Agent.open(
            loaded,
            workspace=workspace,
            agent=parsed.agent,
            session=id_ or key.removeprefix(f"agent:{parsed.agent}:"),
            owner=owner,
            depth=parsed.depth,
            channel=parsed.channel,
            group=parsed.peer if parsed.kind == "group" else "",
            model=self.model or None,
            fallbacks=self.fallbacks,
            thinking=self.thinking,
            allow=self.allow,
            mode="minimal" if self.is_light else "full",
            approver=self.approver,
            in_gateway=True,
            in_heartbeat=self.heartbeat is not None,
        )


class Open:
    """An open agent."""

    def __init__(
        self, agent: Agent, reporter: EventReporter, loaded: Loaded, *, owner: bool
    ) -> None:
        self.agent = agent
        self.reporter = reporter
        self.loaded = loaded
        self.owner = owner
        self.used_at = time.monotonic()
        self.runs: dict[str, GatewayRun] = {}
        self._users = 0
        self._door = asyncio.Lock()

    @contextmanager
    def in_use(self) -> Iterator[None]:
        """Keep it open inside the `with` block."""
        self._users += 1
        try:
            yield
        finally:
            self._users -= 1
            self.used_at = time.monotonic()

    def limit(self, max_turns: int | None = None, max_cost: float | None = None) -> None:
        """Set limits for further turns; by default the configured ones."""
        config = self.agent.kit.config
        settings = config.agents.get(self.agent.kit.run.scope.agent)
        self.agent.conversation.limits = limits_of(config, settings, max_turns, max_cost)

    @property
    def is_busy(self) -> bool:
        """Whether closing it would stop something."""
        return self.has_turns or self.works_in_background

    @property
    def has_turns(self) -> bool:
        """Whether a turn is running, waiting, or ended but not yet reported."""
        lane = self.agent.turns.lane
        return bool(self.runs) or lane.is_busy or bool(lane.waiting)

    @property
    def has_subagents(self) -> bool:
        """Whether sub-agents are active, or have results that the model has not read."""
        agent, delegation = self.agent, self.agent.delegation
        is_active = delegation is not None and delegation.subagents.active(agent.session_id)
        return bool(is_active) or agent.has_results

    async def wait_idle(self) -> None:
        """Wait until it has no turns; waiters continue in order of arrival."""
        async with self._door:
            while self.has_turns:
                await self.agent.turns.lane.idle()
                await asyncio.sleep(POLL_S)  # a held lane counts as idle

    @property
    def works_in_background(self) -> bool:
        """Whether anything but turns is running: calls, sub-agents, commands."""
        if self._users or self.has_subagents:
            return True
        run = self.agent.kit.run
        if not isinstance(run.services, Services) or not run.services.is_created(Commands):
            return False
        commands = run.services[Commands].all(owner_of(run.scope))
        return any(each.exit is None for each in commands)
