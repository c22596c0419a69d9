"""Bindings: which agent answers a message, depending on its origin."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import TYPE_CHECKING

from msgspec import Struct

from clawkit.config.model import Config
from clawkit.core.context import Sender
from clawkit.policy.selectors import group_ids

if TYPE_CHECKING:
    from clawkit.config.sections.messaging import Binding, BindingMatch, Peer

_ANY = "*"
_DEFAULT_ACCOUNTS = ("", "default")
_PEER, _ROLES, _GUILD, _TEAM, _ACCOUNT, _CHANNEL = range(6)
_NOBODY = Sender()
_ASSIGNED = re.compile(r"^!|[0-9]")
"""Group ids that a platform assigns. Where people name groups, one called `ops:topic:x` is no topic
of `ops`."""


class Origin(Struct, frozen=True):
    """Where a message comes from; without a channel, this machine."""

    channel: str = ""
    account: str = ""
    """Empty for the channel's default account."""
    group: str = ""
    """Empty for a direct message."""
    sender: Sender = _NOBODY
    space: str = ""
    """The server or team that the group belongs to."""


class Choice(Struct, frozen=True):
    agent: str
    by: str = ""
    """Settings key of the binding; empty if none matched."""


def choose_agent(config: Config, named: str | None, origin: Origin) -> Choice:
    """The named agent, or else the one of the most specific binding, or the default agent.

    Raises `ConfigError` for a named agent that is not configured.
    """
    if not named and (number := find_binding(config.bindings, origin)) is not None:
        agent = config.agents.choose(config.bindings[number].agent_id).strip().lower()
        return Choice(agent, f"bindings[{number}]")
    return Choice(config.agents.choose(named))


def find_binding(bindings: Sequence[Binding], origin: Origin) -> int | None:
    """Index of the most specific matching binding, the first of several; None if none matches."""
    if not origin.channel:
        return None
    ranked = [
        (rank, number)
        for number, binding in enumerate(bindings)
        if binding.type == "route" and (rank := _rank(binding.match, origin)) is not None
    ]
    return min(ranked)[1] if ranked else None


def _rank(match: BindingMatch, origin: Origin) -> tuple[int, int] | None:
    """How specific a binding is, the lowest being the most specific; None if it does not match.
    Everything that it names must match exactly: people can choose names that differ only in case or
    look alike."""
    account = match.account_id or ""
    accounts = (account,) if account else _DEFAULT_ACCOUNTS
    fits_account = account == _ANY or origin.account in accounts
    fits_roles = not match.roles or not {*match.roles}.isdisjoint(origin.sender.roles)
    fits_space = {match.guild_id, match.team_id} <= {None, "", origin.space}
    fits_channel = _same_channel(match.channel, origin.channel)
    if not (fits_channel and fits_account and fits_roles and fits_space):
        return None
    if match.peer is not None:
        distance = _distance(match.peer, origin)
        return None if distance is None else (_PEER, distance)
    if match.guild_id:
        return (_ROLES if match.roles else _GUILD), 0
    if match.team_id:
        return _TEAM, 0
    return (_CHANNEL if account == _ANY else _ACCOUNT), 0


def _distance(peer: Peer, origin: Origin) -> int | None:
    """0 for the peer itself, more for a group that contains the topic or thread."""
    is_group = peer.kind in ("group", "channel")
    if is_group != bool(origin.group):
        return None
    ids = [origin.group] if is_group else [origin.sender.id]
    if is_group and _ASSIGNED.search(str(peer.id)):
        ids = list(group_ids(origin.group))
    return next((n for n, each in enumerate(ids) if each and each == str(peer.id)), None)


def _same_channel(written: str, given: str) -> bool:
    # Beyond ASCII, letters that are not the same become so without case.
    return written.lower() == given.lower() if given.isascii() else written == given
