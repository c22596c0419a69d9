"""Chat channels: `channels.<id>`."""

from typing import ClassVar, Literal

from clawkit.config.section import Section
from clawkit.config.sections.policy import Senders, ToolPolicy
from clawkit.config.sections.shared import People


class ChannelGroup(Section, forbid_unknown_fields=False):
    """One group, or `*` for all others. Channels may have settings of their own here."""

    OPEN: ClassVar[bool] = True

    enabled: bool | None = None
    """Answer in this group."""
    require_mention: bool | None = None
    """Answer only when addressed."""
    allow_from: People | None = None
    """Members who are answered; unset means all."""
    tools: ToolPolicy | None = None
    """Tools in this group."""
    tools_by_sender: Senders = {}
    """Tools in this group by sender."""


class ChannelAccount(Section, forbid_unknown_fields=False):
    """One account on a channel. Channels have further settings of their own."""

    OPEN: ClassVar[bool] = True

    enabled: bool | None = None
    """Turn it on or off."""
    dm_policy: Literal["pairing", "allowlist", "open", "disabled"] | None = None
    """Who may write directly: after pairing, those in allowFrom, anyone, or nobody."""
    allow_from: People | None = None
    """Senders who may write directly."""
    group_policy: Literal["open", "allowlist", "disabled"] | None = None
    """Whether groups are answered: all, those allowed, or none."""
    group_allow_from: People | None = None
    """Senders who are answered in groups."""
    actions: dict[str, bool] = {}
    """Actions of the `message` tool; false turns one off."""
    groups: dict[str, ChannelGroup] = {}
    """Settings by group id, `*` for all others."""


class Channel(ChannelAccount, forbid_unknown_fields=False):
    """One chat channel. Channels have further settings of their own."""

    accounts: dict[str, ChannelAccount] = {}
    """Accounts by name; they change the channel's settings."""
