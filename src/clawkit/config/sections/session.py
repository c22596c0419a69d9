"""Conversations: `session`, `messages` and `bindings`."""

from typing import Annotated, Literal

from msgspec import Meta

from clawkit.config.section import Count, Name, Override, Positive, Section
from clawkit.config.sections.media import Tts
from clawkit.config.sections.shared import Scope


class Reset(Section):
    """When a conversation starts afresh."""

    mode: Literal["daily", "idle"] | None = None
    """At an hour of the day, or after a pause."""
    at_hour: Annotated[int, Meta(ge=0, le=23)] | None = None
    """Hour for mode daily, 0 to 23."""
    idle_minutes: Positive | None = None
    """Minutes of pause."""


class PingPong(Section):
    """Conversations between agents."""

    max_ping_pong_turns: Annotated[int, Meta(ge=0, le=5)] = 5
    """Most turns of two agents with each other, 0 to 5; default 5."""


class Session(Section):
    """How messages are sorted into conversations."""

    scope: Literal["per-sender", "global"] = "per-sender"
    """A conversation for each sender (default), or one for all."""
    dm_scope: Literal["main", "per-peer", "per-channel-peer", "per-account-channel-peer"] | None = (
        None
    )
    """Whether direct chats share the main conversation or have their own."""
    main_key: Name = "main"
    """Key of the main conversation; default main."""
    identity_links: dict[str, list[str]] = {}
    """Person to their ids on all channels, so that they are one."""
    reset: Reset = Reset()
    """When a conversation starts afresh."""
    reset_by_type: dict[str, Reset] = {}
    """When conversations start afresh, by kind: direct, group or thread."""
    reset_by_channel: dict[str, Reset] = {}
    """When conversations start afresh, by channel."""
    reset_triggers: list[str] | None = None
    """Messages that start afresh; unset is /new and /reset."""
    store: str | None = None
    """File in which conversations are kept; unset is `sessions.sqlite` in the state directory."""
    send_policy: Scope = Scope()
    """Conversations that may be answered."""
    agent_to_agent: PingPong = PingPong()
    """Conversations between agents."""


class GroupChat(Section):
    """Behaviour in groups."""

    mention_patterns: list[str] = []
    """Patterns that count as addressing the agent."""
    history_limit: Count | None = None
    """Earlier messages of the group shown to the agent."""


class Messages(Section):
    """How messages are received and sent."""

    response_prefix: str | None = None
    """Text in front of every reply."""
    ack_reaction: str | None = None
    """Reaction that shows a message was seen."""
    group_chat: GroupChat = GroupChat()
    """Behaviour in groups."""
    tts: Override[Tts] | None = None
    """Changes to `tts`, in the older place."""


class Peer(Section):
    """One person or group."""

    kind: Literal["direct", "dm", "group", "channel"]
    """What it is."""
    id: str | int
    """Its id on the channel."""


class BindingMatch(Section):
    """Which messages a binding is about; everything given must fit."""

    channel: Name
    """Channel id."""
    account_id: str | None = None
    """Account that received it; `*` is any."""
    peer: Peer | None = None
    """Person or group it came from."""
    guild_id: str | None = None
    """Discord server it came from."""
    team_id: str | None = None
    """Slack or Teams team it came from."""
    roles: list[str] = []
    """Roles of the sender, one of which must fit."""


class Binding(Section):
    """Which agent answers which messages."""

    agent_id: Name
    """Agent that answers."""
    match: BindingMatch
    """Messages it is about."""
    type: Literal["route", "acp"] = "route"
    """What the binding is for; clawkit acts on route (default) only."""
    comment: str | None = None
    """A note for people."""
