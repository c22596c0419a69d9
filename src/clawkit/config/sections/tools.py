"""Tools and what limits them: `tools`, and `tools` of one agent."""

from collections.abc import Iterable
from itertools import pairwise
from typing import Any, ClassVar, Literal

import msgspec

from clawkit.config.section import Conflict, Override, Positive, Section
from clawkit.config.sections.exec import Exec
from clawkit.config.sections.fs import Fs
from clawkit.config.sections.media import Media
from clawkit.config.sections.policy import ProviderPolicy, Rule, Senders, ToolScope
from clawkit.config.sections.shared import People
from clawkit.config.sections.web import Web


class Elevated(Section):
    """Running commands outside the sandbox on request of a trusted sender."""

    enabled: bool = True
    """Offer elevated mode at all; default true."""
    allow_from: dict[str, People] | None = None
    """Channel to the senders who may use it, `*` for anyone; for an agent it only narrows."""


class Detectors(Section):
    """Which kinds of loop are looked for."""

    generic_repeat: bool = True
    """The same call with the same parameters, over and over; default true."""
    known_poll_no_progress: bool = True
    """Polling that keeps returning the same; default true."""
    ping_pong: bool = True
    """A few calls in turns without progress; default true."""


_THRESHOLDS = {
    "warningThreshold": 10,
    "criticalThreshold": 20,
    "globalCircuitBreakerThreshold": 30,
}


class LoopDetection(Section):
    """Guard against calls that repeat without progress."""

    enabled: bool | None = None
    """Turn the guard on; unset only ends a loop that goes on after a compaction, false not even
    that."""
    history_size: Positive = 30
    """Calls to look back on; default 30."""
    warning_threshold: Positive = 10
    """Repeats after which the model is warned; default 10."""
    critical_threshold: Positive = 20
    """Repeats after which the call is blocked; default 20."""
    global_circuit_breaker_threshold: Positive = 30
    """Repeats after which no call is made any more; default 30."""
    detectors: Detectors = Detectors()
    """Which kinds of loop are looked for."""

    @classmethod
    def conflicts(cls, raw: dict[str, Any]) -> Iterable[Conflict]:
        return cls.partial_conflicts({**_THRESHOLDS, **raw})

    @classmethod
    def partial_conflicts(cls, raw: dict[str, Any]) -> Iterable[Conflict]:
        steps = [(key, raw[key]) for key in _THRESHOLDS if raw.get(key) is not None]
        for (low, smaller), (high, larger) in pairwise(steps):
            if smaller >= larger:
                yield (
                    low,
                    f"must be smaller than {high}, but {smaller} is not below {larger}",
                    f"Lower {low} or raise {high}",
                )


class AgentToAgent(Section):
    """Messages between agents."""

    enabled: bool = False
    """Let agents reach sessions of other agents; default false."""
    allow: list[str] | None = None
    """Agents that may take part, both sides must match; unset means all."""


class SessionTools(Section):
    """Which sessions the session tools may see."""

    visibility: Literal["self", "tree", "agent", "all"] = "tree"
    """Own session, own and spawned ones (tree, default), all of the agent, or all there are."""


class Attachments(Section):
    """Files handed to a sub-agent with its task."""

    enabled: bool = False
    """Allow files with a task; default false."""
    max_total_bytes: Positive = 5_242_880
    """Most bytes over all files; default 5242880 (5 MB)."""
    max_files: Positive = 50
    """Most files; default 50."""
    max_file_bytes: Positive = 1_048_576
    """Most bytes in one file; default 1048576 (1 MB)."""
    retain_on_session_keep: bool = False
    """Keep the files when the sub-agent's session is kept; default false."""


class SessionsSpawn(Section):
    """The `sessions_spawn` tool."""

    attachments: Attachments = Attachments()
    """Files handed to a sub-agent with its task."""


class Experimental(Section):
    """Tools that are not on for everyone."""

    plan_tool: bool | None = None
    """Offer `update_plan`; unset offers it to strict-agentic GPT-5 runs only."""


class Marker(Section):
    """Text that shows where a message came from."""

    enabled: bool = True
    """Mark messages sent to another conversation; default true."""
    prefix: str = "[from {channel}] "
    """Text before the message; {channel} is the origin."""
    suffix: str = ""
    """Text after the message."""


class CrossContext(Section):
    """Sending to conversations other than the one a session belongs to."""

    allow_within_provider: bool = False
    """Other conversations of the same channel; default false."""
    allow_across_providers: bool = False
    """Conversations of other channels; default false."""
    marker: Marker = Marker()
    """Text that shows where a message came from."""


class MessageActions(Section):
    """Actions of the `message` tool."""

    allow: list[str] | None = None
    """Only these actions are offered; unset means all."""


class Broadcast(Section):
    """Sending one message to many places."""

    enabled: bool = True
    """Offer the `broadcast` action; default true."""


class MessageTool(Section):
    """The `message` tool."""

    cross_context: CrossContext = CrossContext()
    """Sending to conversations other than the session's own."""
    allow_cross_context_send: bool | None = None
    """Older form of both `crossContext` permissions at once."""
    actions: MessageActions = MessageActions()
    """Which actions are offered."""
    broadcast: Broadcast = Broadcast()
    """Sending one message to many places."""

    @classmethod
    def conflicts(cls, raw: dict[str, Any]) -> Iterable[Conflict]:
        if raw.get("allowCrossContextSend") is not None and raw.get("crossContext"):
            yield (
                "allowCrossContextSend",
                "cannot be combined with 'crossContext', the newer form",
                "Keep crossContext only",
            )


class ToolSettings(ProviderPolicy):
    """What `tools` and `tools` of one agent have in common."""

    by_provider: dict[str, ProviderPolicy] = {}
    """Tighter policy by `provider` or `provider/model`; the more particular key is used."""
    tools_by_sender: Senders = {}
    """Policy by sender: `id:`, `e164:`, `username:`, `name:`, `channel:<c>:<id>` or `*`."""
    sandbox: ToolScope = ToolScope()
    """Tools of sandboxed sessions; lists that are not set are the built-in ones."""


class Tools(ToolSettings):
    """Tools for every agent."""

    ALIASES: ClassVar[dict[str, str]] = {"sessionsSpawn": "sessions_spawn"}

    rules: list[Rule] = []
    """Rules over arguments: any matching deny wins, then the first match in this order."""
    elevated: Elevated = Elevated()
    """Running commands outside the sandbox."""
    exec: Exec = Exec()
    """Running commands."""
    fs: Fs = Fs()
    """The file tools."""
    loop_detection: LoopDetection = LoopDetection()
    """Guard against calls that repeat without progress."""
    web: Web = Web()
    """Searching and fetching on the web."""
    media: Media = Media()
    """Understanding images, sound and video."""
    message: MessageTool = MessageTool()
    """The `message` tool."""
    agent_to_agent: AgentToAgent = AgentToAgent()
    """Messages between agents."""
    sessions: SessionTools = SessionTools()
    """Which sessions the session tools may see."""
    sessions_spawn: SessionsSpawn = msgspec.field(default=SessionsSpawn(), name="sessions_spawn")
    """The `sessions_spawn` tool."""
    subagents: ToolScope = ToolScope()
    """Tools of sub-agents, on top of what their depth allows."""
    experimental: Experimental = Experimental()
    """Tools that are not on for everyone."""
    update_plan: bool | None = None
    """Offer `update_plan`; newer form of `experimental.planTool`."""

    @classmethod
    def conflicts(cls, raw: dict[str, Any]) -> Iterable[Conflict]:
        yield from super().conflicts(raw)
        older = (raw.get("experimental") or {}).get("planTool")
        if older is not None and raw.get("updatePlan") not in (None, older):
            yield (
                "updatePlan",
                "says the opposite of experimental.planTool",
                "Keep one of the two",
            )

    def plan_tool(self) -> bool | None:
        """Whether `update_plan` is asked for, by either spelling; None is not said."""
        return self.experimental.plan_tool if self.update_plan is None else self.update_plan


class AgentTools(ToolSettings):
    """Tools of one agent; objects here change the general ones key by key."""

    elevated: Elevated | None = None
    """Further limits on running commands outside the sandbox."""
    exec: Override[Exec] | None = None
    """Running commands."""
    fs: Override[Fs] | None = None
    """The file tools."""
    loop_detection: Override[LoopDetection] | None = None
    """Guard against calls that repeat without progress."""
    message: Override[MessageTool] | None = None
    """The `message` tool."""
