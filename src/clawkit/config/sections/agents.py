"""Agents, their context limits, and conversations: `agents` and `session`."""

from collections.abc import Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Annotated, Any, Literal

import msgspec
from msgspec import Meta

from clawkit.config.section import Conflict, Count, Name, Override, Positive, Section, suggest
from clawkit.config.sections.sandbox import SandboxSettings
from clawkit.config.sections.shared import ModelInput, ScopeSettings, Thinking
from clawkit.config.sections.tools import AgentTools
from clawkit.errors import ConfigError, Issue
from clawkit.text import one_line, parse_time

if TYPE_CHECKING:
    from clawkit.config.sections.gateway import Heartbeat
    from clawkit.config.sections.messaging import GroupChat
    from clawkit.config.sections.plugins import AgentMemory, MemorySearch
    from clawkit.config.sections.skills import AgentSkillLimits


class ContextLimits(Section):
    memory_get_max_chars: Annotated[int, Meta(ge=1, le=250_000)] = 12_000
    """Maximum characters from `memory_get`."""
    post_compaction_max_chars: Positive | None = None
    """Maximum characters of workspace rules kept."""


class MemoryFlush(Section):
    """Saving notes before a conversation is compacted."""

    enabled: bool = True  #: Let the model save notes in the workspace before compaction.
    soft_threshold_tokens: Count = 4_000  #: Tokens before the compaction limit.
    model: str | None = None  #: Model that writes the notes; unset is the agent's.
    prompt: str | None = None  #: Prompt for the notes; `{file}` is replaced by their file.
    system_prompt: str | None = None  #: Added to the system prompt; not cached by providers.


class Compaction(Section):
    enabled: bool = True  #: Shorten conversations that get too long.
    model: str | None = None  #: Model that writes the summary; unset is the agent's.
    keep_recent_tokens: Positive | None = None  #: Tokens of recent conversation kept verbatim.
    recent_turns_preserve: Count | None = None  #: Recent turns kept verbatim.
    timeout_seconds: Positive | None = None  #: Seconds to wait for the summary.
    memory_flush: MemoryFlush = MemoryFlush()


class PruningTools(Section):
    allow: list[str] | None = None  #: Only results of these tools; unset means all.
    deny: list[str] = []  #: Tools whose results are always kept.


class HardClear(Section):
    enabled: bool = True  #: Replace results when shortening them is not enough.
    placeholder: str = "[Old tool result content cleared]"  #: Text that replaces a result.


class ContextPruning(Section):
    mode: Literal["off", "cache-ttl"] = "off"  #: Off (default), or once the cache has expired.
    ttl: str = "5m"  #: When the cache expires, such as `5m` (default) or `1h`.
    tools: PruningTools = PruningTools()  #: Tools whose results may be shortened.
    hard_clear: HardClear = HardClear()  #: Replacing whole results.

    @classmethod
    def conflicts(cls, raw: dict[str, Any]) -> Iterable[Conflict]:
        try:
            parse_time(str(raw.get("ttl", "5m")))
        except ValueError as error:
            yield "ttl", str(error), "Write a number and s, m, h or d"


MAIN = "main"
DmScope = Literal["main", "per-peer", "per-channel-peer", "per-account-channel-peer"]


class Reset(Section):
    mode: Literal["daily", "idle"] | None = None  #: At an hour of the day, or after inactivity.
    at_hour: Annotated[int, Meta(ge=0, le=23)] | None = None  #: Hour for mode daily, 0 to 23.
    idle_minutes: Positive | None = None  #: Minutes of inactivity.


class PingPong(Section):
    max_ping_pong_turns: Annotated[int, Meta(ge=0, le=5)] = 5  #: Maximum replies per exchange.


class SessionSettings(Section):
    """How messages are assigned to conversations."""

    scope: Literal["per-sender", "global"] = "per-sender"  #: One for each sender, or for all.
    dm_scope: DmScope | None = None  #: Whether direct chats share the main conversation.
    main_key: Name = "main"  #: Key of the main conversation.
    identity_links: dict[str, list[str]] = {}  #: A person's ids on all channels, by name.
    reset: Reset = Reset()  #: When a conversation is reset.
    reset_by_type: dict[str, Reset] = {}  #: Resets by kind: direct, group or thread.
    reset_by_channel: dict[str, Reset] = {}  #: Resets by channel.
    reset_triggers: list[str] | None = None  #: Messages that reset; unset is /new and /reset.
    store: str | None = None  #: Database of conversations; unset is in clawkit's home.
    send_policy: ScopeSettings = ScopeSettings()  #: Conversations that may be answered.
    agent_to_agent: PingPong = PingPong()  #: Conversations between agents.


class ModelEntry(Section):
    alias: str | None = None  #: Short name for the model.
    params: dict[str, Any] = {}  #: Additional request fields, passed through unchanged.
    streaming: bool | None = None  #: Request streaming answers.


class ModelPolicy(Section):
    allow: list[str] | None = None  #: Models that may be chosen, with `*` patterns; unset is all.


class EmbeddedPi(Section):
    execution_contract: Literal["default", "strict-agentic"] = "default"
    """strict-agentic keeps GPT-5 models working until the task is done."""


class SubagentSettings(Section):
    """The sub-agents that an agent may start."""

    allow_agents: list[str] | None = None  #: Agents it may start, `*` for any; unset: itself only.
    require_agent_id: bool = False  #: Whether every task must name its agent.
    delegation_mode: Literal["suggest", "prefer"] = "suggest"
    """Whether the prompt suggests sub-agents for large work, or prefers them for most of it."""
    model: ModelInput | None = None  #: Their model; unset is the caller's.
    thinking: Thinking | None = None  #: Their thinking level.
    max_concurrent: Positive = 8  #: Maximum running at once.
    max_spawn_depth: Annotated[int, Meta(ge=1, le=5)] = 1  #: Levels of sub-agents, 1 to 5.
    max_children_per_agent: Annotated[int, Meta(ge=1, le=20)] = 5  #: Maximum running per session.
    run_timeout_seconds: Count = 0  #: Seconds until a run is stopped; 0 (default) is never.
    archive_after_minutes: Count = 60  #: Minutes until a finished session is archived; 0 is never.
    announce: Literal["steer", "followup"] = "steer"
    """When a busy session reads results: before its next answer, or at the end of its turn."""
    announce_timeout_ms: Positive = 120_000  #: Milliseconds to wait for delivery of a report.


class MediaModels(Section):
    image: ModelInput | None = None  #: Model that draws.
    video: ModelInput | None = None  #: Model that makes videos.
    music: ModelInput | None = None  #: Model that makes music.


class Identity(Section):
    name: str | None = None  #: Its name.
    theme: str | None = None  #: A line about its character.
    emoji: str | None = None  #: Its emoji.
    avatar: str | None = None  #: Its picture, a path or address.


class AgentCommon(Section):
    """Settings of both the defaults and each agent; unset in an agent means the default."""

    ALIASES = {"embeddedAgent": "embeddedPi"}

    workspace: str | None = None  #: Directory the agent works in.
    model: ModelInput | None = None  #: Model, or model with fallbacks.
    models: dict[str, ModelEntry] = {}  #: Settings and aliases by `provider/model`.
    model_policy: ModelPolicy | None = None  #: The models that may be chosen.
    params: dict[str, Any] = {}  #: Additional request fields, passed through unchanged.
    thinking_default: Thinking | Literal["adaptive"] | None = None  #: Initial thinking level.
    context_limits: "Override[ContextLimits] | None" = None  #: How much text goes into the context.
    bootstrap_max_chars: Positive | None = None  #: Maximum characters of one workspace file.
    bootstrap_total_max_chars: Positive | None = None  #: Maximum characters of all workspace files.
    embedded_pi: "Override[EmbeddedPi] | None" = None  #: How the agent loop behaves.
    skills: list[str] | None = None  #: Only these skills, by name; unset is all, `[]` none.
    max_turns: Positive | None = None  #: Maximum model answers in one turn; unset is 200.
    max_cost: Annotated[float, Meta(gt=0)] | None = None  #: Maximum dollars per conversation.
    memory_search: "Override[MemorySearch] | None" = None  #: Older place of `memory.search`.


class AgentDefaults(AgentCommon):
    """Settings of every agent that does not override them."""

    image_model: ModelInput | None = None  #: Model that looks at images.
    pdf_model: ModelInput | None = None  #: Model that reads PDF files.
    image_generation_model: ModelInput | None = None  #: Older form of `mediaModels.image`.
    media_models: MediaModels = MediaModels()  #: Models that produce media.
    elevated_default: Literal["off", "on", "ask", "full"] | None = None
    """Initial elevated mode of a session; unset is on where allowed."""
    timeout_seconds: Positive | None = None  #: Seconds until a turn is stopped.
    max_concurrent: Positive | None = None  #: Maximum turns at once over all sessions.
    user_timezone: str | None = None  #: The user's time zone, such as `Europe/Berlin`.
    image_max_dimension_px: Positive = 1200  #: Longest side of images sent to models, in pixels.
    media_max_mb: Annotated[float, Meta(gt=0)] | None = None  #: Largest media file, in megabytes.
    pdf_max_mb: Annotated[float, Meta(gt=0)] | None = None  #: Largest PDF file, in megabytes.
    pdf_max_pages: Positive | None = None  #: Maximum pages of a PDF file.
    skip_bootstrap: bool = False  #: Do not create the usual workspace files.
    compaction: Compaction = Compaction()  #: Shortening long conversations.
    context_pruning: ContextPruning = ContextPruning()  #: Shortening old tool results.
    heartbeat: "Heartbeat | None" = None
    sandbox: SandboxSettings = SandboxSettings()
    subagents: SubagentSettings = SubagentSettings()


class AgentSettings(AgentCommon):
    """One agent."""

    id: Name | None = None  #: Its id; needed in `list`, the key itself in `entries`.
    default: bool = False  #: Use it where no agent is named; else `main` is used.
    name: str | None = None  #: Display name.
    description: str | None = None  #: What it is for.
    max_concurrent: Positive | None = None  #: Maximum turns at once over its sessions.
    agent_dir: str | None = None  #: Directory of its models and credentials.
    identity: Identity = Identity()  #: How it presents itself.
    group_chat: "GroupChat | None" = None  #: How it behaves in groups.
    tools: AgentTools = AgentTools()  #: Its tools.
    sandbox: "Override[SandboxSettings] | None" = None  #: Isolation of its commands.
    subagents: "Override[SubagentSettings] | None" = None  #: Sub-agents it may start.
    heartbeat: "Override[Heartbeat] | None" = None
    memory: "AgentMemory | None" = None  #: Its long-term memory.
    skills_limits: "AgentSkillLimits | None" = None  #: Its own limits of skills.


class Agents(Section):
    """Agents, as a list or as a map by id, and their defaults."""

    defaults: AgentDefaults = AgentDefaults()
    listed: list[AgentSettings] = msgspec.field(
        default_factory=list, name="list"
    )  #: Agents in order.
    entries: dict[str, AgentSettings] = {}  #: Agents by id, the newer form.

    @classmethod
    def conflicts(cls, raw: dict[str, Any]) -> Iterable[Conflict]:
        places = [
            *(
                ("list", f"list[{i}]", each.get("id"))
                for i, each in enumerate(raw.get("list") or ())
            ),
            *(("entries", f"entries.{name}", name) for name in raw.get("entries") or ()),
        ]
        seen: dict[str, str] = {}
        for key, where, given in places:
            agent_id = _normal(given or "")
            first = seen.setdefault(agent_id, where)
            if not agent_id:
                yield key, f"the agent at {where} has no id", "Give it an id of its own"
            elif first != where:
                yield (
                    key,
                    f"agent {agent_id!r} is defined twice, at {first} and at {where}",
                    "Merge the two, or rename one; case does not matter",
                )
        for name, agent in (raw.get("entries") or {}).items():
            if _normal(agent.get("id") or name) != _normal(name):
                yield (
                    "entries",
                    f"the agent under {name!r} has the id {agent['id']!r}",
                    "Remove its id: the key is the id",
                )

    def sandbox_of(self, agent: str) -> SandboxSettings:
        """The sandbox settings of an agent, merged with the defaults."""
        return self.defaults.sandbox.merged(self.get(agent).sandbox)

    def key_of(self, agent_id: str) -> str:
        """Settings key of an agent; empty if it is not configured."""
        return next((key for key, name, _ in self._all() if name == _normal(agent_id)), "")

    def by_id(self) -> dict[str, AgentSettings]:
        """All agents by lowercase id, those of `list` first."""
        return {name: msgspec.structs.replace(agent, id=name) for _, name, agent in self._all()}

    def _all(self) -> Iterator[tuple[str, str, AgentSettings]]:
        """Settings key, lowercase id and settings of each agent."""
        for index, agent in enumerate(self.listed):
            yield f"agents.list[{index}]", _normal(agent.id or ""), agent
        for name, agent in self.entries.items():
            yield f"agents.entries.{name}", _normal(name), agent

    def get(self, agent_id: str | None = None) -> AgentSettings:
        """The agent of that id, or the default one; empty settings if it is not configured."""
        name = self.default_id() if agent_id is None else _normal(agent_id)
        return self.by_id().get(name) or AgentSettings(id=name)

    def choose(self, name: str | None) -> str:
        """The id of the named agent, by default of the default agent. Raises `ConfigError` if it is
        not among those configured: no limits set for agents would apply to it."""
        return _normal(name) if name and not self.by_id() else self.find(name)

    def find(self, name: str | None) -> str:
        """The same, but if no agents are configured, there is only the main one: for commands
        about what an agent has, where another name is a typo."""
        known = self.ids()
        if name and _normal(name) not in (*known, MAIN):
            hint = suggest(_normal(name), known, "Known agents")
            problem = f"there is no agent {one_line(name, 60)!r}"
            raise ConfigError([Issue("agents", problem, hint=hint)])
        return _normal(name) if name else self.default_id()

    def doubt(self, agent_id: str, others: Sequence[str]) -> str:
        """A warning if the named agent, which is neither configured nor one of the `others` with
        sessions, is probably a typo; empty otherwise."""
        known = {*self.ids(), MAIN, *others}
        hint = "" if agent_id in known else suggest(agent_id, [*known])
        return hint and f"the agent {one_line(agent_id, 60)!r} has no sessions yet. {hint}"

    def default_id(self) -> str:
        """The agent marked as default, or else `main`."""
        return next((name for name, agent in self.by_id().items() if agent.default), MAIN)

    def ids(self) -> list[str]:
        """All agents, the default one first."""
        return list(dict.fromkeys((self.default_id(), *self.by_id())))


def _normal(agent_id: str) -> str:
    return agent_id.strip().lower()
