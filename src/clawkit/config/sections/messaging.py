"""Chat channels: `channels`, `bindings`, `messages`, `tools.message`, forwarding of approvals."""

from collections.abc import Iterable
from typing import TYPE_CHECKING, Any, Literal

from clawkit.config.section import Conflict, Count, Name, Override, Section
from clawkit.config.sections.shared import People, Queue, Switch
from clawkit.config.sections.tools import Senders, ToolPolicy

if TYPE_CHECKING:
    from clawkit.config.sections.web import Tts


class GroupChat(Section):
    mention_patterns: list[str] = []  #: Patterns that count as addressing the agent.
    history_limit: Count | None = None  #: Earlier messages of the group shown to the agent.


class Messages(Section):
    """How messages are received and sent."""

    response_prefix: str | None = None  #: Text in front of every reply.
    ack_reaction: str | None = None  #: Reaction that shows a message was seen.
    group_chat: GroupChat = GroupChat()  #: Behavior in groups.
    queue: Queue = Queue()  #: Messages that arrive while the agent works.
    tts: "Override[Tts] | None" = None  #: Changes to `tts`, in the older place.


class Peer(Section):
    kind: Literal["direct", "dm", "group", "channel"]  #: Kind of peer.
    id: str | int  #: Its id on the channel.


class BindingMatch(Section):
    channel: Name  #: Channel id.
    account_id: str | None = None  #: Account that received it; `*` is any; unset: the default one.
    peer: Peer | None = None  #: Person or group it came from.
    guild_id: str | None = None  #: Discord server it came from.
    team_id: str | None = None  #: Slack or Teams team it came from.
    roles: list[str] = []  #: Roles of the sender, one of which must match.


class Binding(Section):
    """Which agent answers which messages."""

    agent_id: Name  #: Agent that answers.
    match: BindingMatch  #: Messages that the binding applies to.
    type: Literal["route", "acp"] = "route"  #: Kind of binding; those of acp are ignored.
    comment: str | None = None  #: A note for people.


class ChannelGroup(Section, forbid_unknown_fields=False):
    """One group, or `*` for all others. Channels may add their own settings here."""

    enabled: bool | None = None  #: Answer in this group.
    require_mention: bool | None = None  #: Answer only when addressed.
    allow_from: People | None = None  #: Members who are answered; unset means all.
    tools: ToolPolicy | None = None  #: Tools in this group.
    tools_by_sender: Senders = {}  #: Tools in this group by sender.


class ChannelAccount(Section, forbid_unknown_fields=False):
    """One account on a channel. Channels may add their own settings here."""

    enabled: bool | None = None  #: Turn it on or off.
    dm_policy: Literal["pairing", "allowlist", "open", "disabled"] | None = None
    """Who may write directly: after pairing, those in allowFrom, anyone, or no one."""
    allow_from: People | None = None  #: Senders who may write directly.
    group_policy: Literal["open", "allowlist", "disabled"] | None = None  #: Groups it answers.
    group_allow_from: People | None = None  #: Senders who are answered in groups.
    actions: dict[str, bool] = {}  #: Actions of the `message` tool; false turns one off.
    groups: dict[str, ChannelGroup] = {}  #: Settings by group id, `*` for all others.


class Channel(ChannelAccount):
    """One chat channel. Channels may add their own settings here."""

    accounts: dict[str, ChannelAccount] = {}  #: Accounts by name, which override the channel.


class Marker(Section):
    enabled: bool = True  #: Mark messages sent to another conversation.
    prefix: str = "[from {channel}] "  #: Text before the message; {channel} is the origin.
    suffix: str = ""  #: Text after the message.


class CrossContext(Section):
    allow_within_provider: bool = False  #: Other conversations of the same channel.
    allow_across_providers: bool = False  #: Conversations of other channels.
    marker: Marker = Marker()  #: Text that shows where a message came from.


class MessageActions(Section):
    allow: list[str] | None = None  #: Only these actions are offered; unset means all.


class MessageTool(Section):
    """The `message` tool."""

    EXCLUSIVE = {"allowCrossContextSend": "crossContext"}

    cross_context: CrossContext = CrossContext()  #: Sending to other conversations.
    allow_cross_context_send: bool | None = None  #: Older form of both `crossContext` settings.
    actions: MessageActions = MessageActions()  #: Which actions are offered.
    broadcast: Switch = Switch()  #: Sending one message to many places.


class ApprovalTarget(Section):
    channel: Name  #: Channel id, such as `telegram`.
    to: Name  #: Person or group on that channel.
    account_id: str | None = None  #: Account to send from.
    thread_id: str | int | None = None  #: Thread to send to.


class Forwarding(Section):
    """Sending questions to chat channels."""

    enabled: bool = False  #: Forward questions.
    mode: Literal["session", "targets", "both"] = "session"  #: The origin, `targets`, or both.
    agent_filter: list[str] | None = None  #: Only questions of these agents; unset means all.
    session_filter: list[str] | None = None  #: Only sessions with a matching key; unset is all.
    targets: list[ApprovalTarget] = []  #: Places for mode `targets` and `both`.

    @classmethod
    def conflicts(cls, raw: dict[str, Any]) -> Iterable[Conflict]:
        if raw.get("enabled") and raw.get("mode") == "targets" and not raw.get("targets"):
            yield "targets", "empty although mode is 'targets'", "Add a target or change mode"
